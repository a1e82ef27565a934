package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

func TestEmbedReplaysADataSet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r := run(t, &fake{}, "embed", "--generate", dir, "--requests", "4", "--seed", "3", "--topology", "geant")
	if r.code != ExitOK || !strings.Contains(r.out, "4 requests for 40 nodes and 61 links") {
		t.Fatalf("%d: %s%s", r.code, r.out, r.err)
	}
	r = run(t, &fake{}, "embed", "--virne", dir, "-o", "json")
	var got replayResult
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || got.Requests != 4 || got.Nodes != 40 ||
		got.Accepted == 0 || got.RevenueToCost == 0 {
		t.Errorf("%d: %s%s (%v)", r.code, r.out, r.err, err)
	}
	if r = run(t, &fake{}, "embed", "--virne", dir); !strings.Contains(r.out, "Substrate           40 nodes, 61 links\n") {
		t.Errorf("%d: %s%s", r.code, r.out, r.err)
	}
	if err := os.WriteFile(filepath.Join(dir, "v_nets", "v_net-00002.gml"), []byte("graph [ node [ id 1 ] ]"),
		0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--what-if NODE down is needed, or --virne DIR"},
		{[]string{"--virne", dir, "--rate", "1"}, "--rate is of --generate"},
		{[]string{"--generate", dir + "2", "-o", "json"}, "no other output"},
		{[]string{"--generate", dir + "2", "--physical", "x"}, "--physical is of --virne"},
		{[]string{"--virne", dir, "n1"}, "unexpected argument"},
		{[]string{"--what-if", "n1", "down", "--virne", dir}, "has no data set"},
		{[]string{"--what-if"}, "it is not said what would be: NODE down, or +NODE"},
		{[]string{"--what-if", "n1"}, "what would become of node n1: n1 down, or +n1 for one more"},
		{[]string{"--what-if", "n1", "n2", "down"}, "what would become of node n1"},
		{[]string{"--what-if", "cpu=1"}, "of no node"},
		{[]string{"--what-if", "n1", "down", "cpu=1"}, "of no node"},
		{[]string{"--what-if", "+n9", "disk=1"}, `+n9: "disk" is no key`},
		{[]string{"--what-if", "+n9", "cpu=many"}, "+n9: "},
		{[]string{"--what-if", "+n9", "like="}, "like= is empty"},
		{[]string{"--what-if", "+"}, "name is missing"},
		{[]string{"--virne", dir, "--generate", dir}, "two commands"},
		{[]string{"--generate", dir}, "file exists"},
		{[]string{"--virne", dir}, "v_net-00002.gml: line 1: the node has no cpu"},
		{[]string{"--generate", dir + "2", "--requests", "0"}, "0 requests cannot be made"},
		{[]string{"--generate", dir + "2", "--topology", "ring"}, "waxman, geant, brain"},
	} {
		r := run(t, &fake{}, append([]string{"embed"}, c.args...)...)
		if _, err := os.Stat(dir + "2"); r.code != ExitUsage || !strings.Contains(r.err, c.want) || err == nil {
			t.Errorf("%v: %d, %q; wanted %q", c.args, r.code, r.err, c.want)
		}
	}
}

func TestEmbedTellsWhatWouldBe(t *testing.T) {
	f := lab()
	f.wouldBe = model.WhatIfResult{
		Networks: []model.WouldBe{
			{Network: "lab", Elements: []model.WouldMove{{Element: "r2", From: "n2", To: "n3"},
				{Element: "r4", From: "n2", To: "n3"}}, Links: []model.WouldRoute{
				{Link: "r1--r2", Nodes: []string{"n1", "n3"}}, {Link: "r2--r4"}},
				Lost: []model.WouldLose{{Element: "r5", Why: "r5 is pinned to n2 (node:)"}}},
			{Network: "shop", Refused: []string{"web needs 2 cores on one node: n1 has 0.5 cores free"}}},
		Others: model.WouldBeOthers{Networks: 2, Elements: 5, Refused: 1},
		Nodes: []model.NodeRoom{{Name: "n1", CPU: 4000, Memory: 8 << 30, CPULeft: 500, CPUNow: 500, MemoryLeft: 3 << 30,
			MemoryNow: 3 << 30}, {Name: "n3", CPU: 4000, Memory: 8 << 30, CPULeft: 1000, CPUNow: 3000,
			MemoryLeft: 2 << 30, MemoryNow: 6 << 30}},
		Links: []model.LinkRoom{{A: "n1", B: "n3", Bandwidth: 1e9, Left: 200e6, Now: 700e6}},
	}
	r := run(t, f, "embed", "--what-if", "n2", "down")
	const want = `what if n2 were down (nothing is changed):
  lab
    r2, r4 would be on n3
    r2--r4 would be within a node
    r1--r2 would go by n1 → n3
    r5 would have no place: r5 is pinned to n2 (node:)
  shop does not fit
    web needs 2 cores on one node: n1 has 0.5 cores free
  of others: 2 networks would be other than now, 5 elements elsewhere, 1 network that would not fit
left:
  n1       0.5 of 4 cores, 3GiB of 8GiB
  n3       1 of 4 cores (now 3), 2GiB of 8GiB (now 6GiB)
  n1 – n3  200Mbit of 1Gbit (now 700Mbit)
`
	if r.code != ExitOK || r.out != want {
		t.Errorf("%d: it says\n%s%swant\n%s", r.code, r.out, r.err, want)
	}
	f.wouldBe = model.WhatIfResult{Added: []model.SubstrateNode{{Name: "n1-2", CPU: 8000, Memory: 8 << 30},
		{Name: "n9", CPU: 1000, Memory: 1 << 30}},
		Moves: []model.WouldBe{{Network: "lab", Elements: []model.WouldMove{{Element: "r1", From: "n1", To: "n1-2"}}}},
		Nodes: []model.NodeRoom{{Name: "n1-2", CPU: 8000, Memory: 8 << 30, CPULeft: 8000, MemoryLeft: 8 << 30}}}
	r = run(t, f, "embed", "--what-if", "+n1", "cpu=8", "bandwidth=1Gbit", "n3", "down", "+n9", "cpu=1", "memory=1GiB",
		"location=rio")
	asked := model.WhatIf{Down: []string{"n3"}, Add: []model.NodeToCome{{Name: "n1", CPU: 8000, Bandwidth: 1e9},
		{Name: "n9", CPU: 1000, Memory: 1 << 30, Location: "rio"}}}
	if !reflect.DeepEqual(f.asked, asked) {
		t.Errorf("asked is %+v, want %+v", f.asked, asked)
	}
	const comes = "what if n3 were down, and n1-2 came (cpu 8, memory 8GiB, like n1), and n9 came (cpu 1, " +
		"memory 1GiB) (nothing is changed):\n" + `  everything would stay as it is
worth moving then:
  lab
    r1 to n1-2
left:
  n1-2  8 of 8 cores, 8GiB of 8GiB
`
	if r.code != ExitOK || r.out != comes {
		t.Errorf("%d: it says\n%s%swant\n%s", r.code, r.out, r.err, comes)
	}
	f.wouldBe = model.WhatIfResult{Networks: []model.WouldBe{{Network: "lab", Unknown: true}}, Spent: true,
		Others: model.WouldBeOthers{Networks: 3, Unknown: 2}, Notes: []string{"node n9 would be joined to no other"},
		Nodes: []model.NodeRoom{{Name: "n1", CPU: 1000, CPULeft: 1000, CPUNow: 1000}}}
	r = run(t, f, "embed", "--what-if", "n2", "down")
	const unknown = `what if n2 were down (nothing is changed):
  lab: where its elements and links would be was not worked out
  of others: 3 networks would be other than now, 2 networks not worked out
note: node n9 would be joined to no other
note: this is not all: the question was too large to be worked out whole; ask about fewer nodes
left:
  n1  1 of 1 cores, 0B of 0B
`
	if r.code != ExitOK || r.out != unknown {
		t.Errorf("%d: it says\n%s%swant\n%s", r.code, r.out, r.err, unknown)
	}
	var back model.WhatIfResult
	r = run(t, f, "embed", "--what-if", "+n1", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &back); err != nil || !reflect.DeepEqual(back, f.wouldBe) {
		t.Errorf("in JSON it is %s%s (%v)", r.out, r.err, err)
	}
	if r = run(t, f, "embed", "--what-if", "+n1", "-o", "yaml"); !strings.Contains(r.out, "cpuLeft") {
		t.Errorf("in YAML it is %s%s", r.out, r.err)
	}
}
