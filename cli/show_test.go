package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/polyplane/polyplane/model"
)

func TestGolden(t *testing.T) {
	for name, args := range map[string][]string{
		"networks.txt":           {"get", "networks"},
		"networks-wide.txt":      {"get", "networks", "-o", "wide"},
		"nodes.txt":              {"get", "nodes"},
		"nodes-wide.txt":         {"get", "nodes", "-o", "wide"},
		"elements.txt":           {"get", "elements"},
		"elements-wide.txt":      {"get", "elements", "lab", "-o", "wide"},
		"element.txt":            {"get", "elements", "lab/r1", "--no-headers"},
		"elements-name.txt":      {"get", "elements", "-o", "name"},
		"links.txt":              {"get", "links"},
		"links-wide.txt":         {"get", "links", "lab/r2", "-o", "wide"},
		"events.txt":             {"get", "events", "lab"},
		"describe-network.txt":   {"describe", "lab"},
		"describe-element.txt":   {"describe", "lab/r1"},
		"describe-interface.txt": {"describe", "lab/r1:ge-0/0/1"},
		"describe-link.txt":      {"describe", "lab/r1--r2"},
		"describe-node.txt":      {"describe", "node/n1"},
		"graph.dot":              {"graph", "lab"},
		"graph.mermaid":          {"graph", "lab", "--format", "mermaid"},
		"example-line.yaml":      {"example", "line", "--routers", "3"},
		"examples.txt":           {"example"},
		"networks.yaml":          {"get", "networks", "-o", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, lab(), args...)
			if r.code != ExitOK || r.err != "" {
				t.Fatalf("status %d, %s", r.code, r.err)
			}
			golden(t, name, r.out)
		})
	}
}

// Every line of a table has the columns that its heading has, so that scripts can count them.
func TestTablesHaveNoHoles(t *testing.T) {
	for _, what := range []string{"networks", "nodes", "elements", "links"} {
		lines := strings.Split(strings.TrimSpace(run(t, lab(), "get", what).out), "\n")
		columns := len(splitColumns(lines[0]))
		for _, line := range lines[1:] {
			if n := len(splitColumns(line)); n != columns {
				t.Errorf("get %s: %d columns, want %d: %s", what, n, columns, line)
			}
		}
	}
}

func splitColumns(line string) []string {
	var out []string
	for _, f := range strings.Split(line, strings.Repeat(" ", columnGap)) {
		if f = strings.TrimSpace(f); f != "" {
			out = append(out, f)
		}
	}
	return out
}

func TestJSONAndYAMLAreTheModel(t *testing.T) {
	f := lab()
	var elements []model.ElementView
	if err := json.Unmarshal([]byte(run(t, f, "get", "elements", "-o", "json").out), &elements); err != nil {
		t.Fatal(err)
	}
	if len(elements) != 4 || elements[1].ID != f.dump.Elements[1].ID || elements[1].Element.Memory != 256<<20 {
		t.Errorf("elements = %+v", elements)
	}
	var links []map[string]any
	if err := yaml.Unmarshal([]byte(run(t, f, "get", "links", "-o", "yaml").out), &links); err != nil {
		t.Fatal(err)
	}
	if len(links) != 2 || links[1]["network"] != "lab" {
		t.Errorf("links = %v", links)
	}
	if out := run(t, &fake{}, "get", "networks", "-o", "json").out; out != "[]\n" {
		t.Errorf("no networks in JSON: %q, want an empty list", out)
	}
	var one map[string]any
	if err := json.Unmarshal([]byte(run(t, f, "describe", "lab", "-o", "json").out), &one); err != nil ||
		one["name"] != "lab" {
		t.Errorf("describe -o json: %v, name %v", err, one["name"])
	}
}

func TestEmptyListsSayWhatToDo(t *testing.T) {
	r := run(t, &fake{}, "get", "networks")
	if r.code != ExitOK || r.out != "" || !strings.Contains(r.err, "polyplane apply") {
		t.Errorf("got %+v", r)
	}
}

// A watch shows everything once, then only what has changed, and what has gone.
func TestWatch(t *testing.T) {
	f := lab()
	first, second, third := f.dump, f.dump, f.dump
	second.Elements = append([]model.ElementView(nil), first.Elements...)
	second.Elements[2].Phase = model.PhaseRunning
	third.Elements = second.Elements[:3]
	f.dumps = []model.Dump{first, first, second, third}
	r := run(t, f, "get", "elements", "-w")
	if r.code != ExitFailed || !strings.Contains(r.err, "the connection broke") {
		t.Errorf("a broken watch: %+v", r)
	}
	golden(t, "watch.txt", r.out)

	f.dumps = []model.Dump{first, second, third}
	lines := strings.Split(strings.TrimSpace(run(t, f, "get", "elements", "-w", "-o", "json").out), "\n")
	if len(lines) != 6 || lines[5] != `{"gone":"lab/s1"}` {
		t.Errorf("%d lines of JSON, the last %s", len(lines), lines[len(lines)-1])
	}
}

// An age or a counter alone is nothing that a watch tells.
func TestWatchIgnoresNoise(t *testing.T) {
	f := lab()
	second := f.dump
	second.Nodes = append([]model.NodeStatus(nil), f.dump.Nodes...)
	second.Nodes[0].CPUUsed, second.Nodes[0].LastSeen = 1.5, now
	f.dumps = []model.Dump{f.dump, second}
	if out := run(t, f, "get", "nodes", "-o", "wide", "-w").out; strings.Count(out, "\n") != 3 {
		t.Errorf("a watch told noise:\n%s", out)
	}
}

func TestFlagsBeforeTheNoun(t *testing.T) {
	for _, args := range []string{"get --no-headers elements lab", "get -o name elements lab",
		"get elements lab -o name"} {
		if r := run(t, lab(), strings.Fields(args)...); r.code != ExitOK || !strings.HasPrefix(r.out, "lab/") {
			t.Errorf("%s: got %+v", args, r)
		}
	}
	f := lab()
	f.dumps = []model.Dump{f.dump}
	before := run(t, f, "get", "-w", "elements")
	f.dumps = []model.Dump{f.dump}
	after := run(t, f, "get", "elements", "-w")
	if before.out != after.out || !strings.Contains(before.out, "lab/r1") {
		t.Errorf("get -w elements: got %+v, want %+v", before, after)
	}
	if r := run(t, lab(), "get", "-w"); r.code != ExitUsage || !strings.Contains(r.err, "what to get is missing") {
		t.Errorf("get -w: got %+v", r)
	}
}

func TestTop(t *testing.T) {
	f := lab()
	later := f.dump
	later.Links = append([]model.LinkStatus(nil), f.dump.Links...)
	later.Links[0].Ports = []model.PortStatus{f.dump.Links[0].Ports[0], f.dump.Links[0].Ports[1]}
	later.Links[0].Ports[0].RxBytes += 2_500_000
	later.Links[0].Ports[0].RxPackets += 3000
	later.Links[0].Ports[1].RxBytes = 125 // less than before: counted anew
	c := New(nil)
	c.Out, c.Getenv, c.Instance = &strings.Builder{}, func(string) string { return "" }, "default"
	before := sample{now, f.dump}
	golden(t, "top.txt", string(c.topScreen(before, sample{now.Add(2e9), later}, 0, 0)))
	for _, width := range []int{60, 80, 100, 140} {
		screen := string(c.topScreen(before, sample{now.Add(2e9), later}, width, 0))
		for line := range strings.Lines(screen) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns in %d: %s", n, width, line)
			}
		}
		if !strings.Contains(screen, "SENDS") || !strings.Contains(screen, "DROPS") || width >= 80 &&
			!strings.Contains(screen, "lab/r1") {
			t.Errorf("at %d what counts is left out:\n%s", width, screen)
		}
	}
	if got := string(c.topScreen(before, sample{now.Add(2e9), later}, 0, 14)); !strings.Contains(got, "… 3 more") {
		t.Errorf("a small screen is not cut:\n%s", got)
	}
}
