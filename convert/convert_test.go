package convert

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec"
)

var update = flag.Bool("update", false, "write the golden files anew")

// allWords are all that files may have one day, old those that they always had.
var (
	allWords = Words{Start: true, Env: true, Image: true, Files: true, Unaddressed: true}
	oldWords = Words{}
)

func beside(file string) func(string) ([]byte, error) {
	return func(named string) ([]byte, error) { return os.ReadFile(filepath.Join(filepath.Dir(file), named)) }
}

// TestLabs compares what becomes of labs, and what is told of them, with what was looked at by people.
func TestLabs(t *testing.T) {
	for _, lab := range []struct{ file, format string }{{"lab.clab.yml", Containerlab}, {"topology.yml", Netlab}} {
		for _, with := range []struct {
			name  string
			words Words
		}{{"all", allWords}, {"old", oldWords}} {
			file := filepath.Join("testdata", lab.file)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			result, err := Read(lab.file, data, with.words, beside(file))
			if err != nil {
				t.Fatal(err)
			}
			if result.Format != lab.format {
				t.Errorf("%s is taken for one of %s", file, result.Format)
			}
			got := string(result.YAML) + "---\n"
			for _, n := range result.Notes {
				got += fmt.Sprintf("# %d: %s\n", n.Line, n.Message)
				if n.Line < 1 || n.Line > strings.Count(string(data), "\n") {
					t.Errorf("%s: a note is of no line: %+v", file, n)
				}
			}
			golden := filepath.Join("testdata", lab.file+"."+with.name)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s with %s words (-update writes it anew):\n%s\nwanted:\n%s", file, with.name, got, want)
			}
			var any map[string]any
			if err := yaml.Unmarshal(result.YAML, &any); err != nil {
				t.Errorf("%s with %s words is no YAML: %v", file, with.name, err)
			}
		}
	}
}

// TestLabsAreTaken: what comes of the labs, without words that are not there yet, is a network that can be made.
func TestLabsAreTaken(t *testing.T) {
	for _, lab := range []string{"lab.clab.yml", "topology.yml"} {
		file := filepath.Join("testdata", lab)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		result, err := Read(lab, data, Words{Unaddressed: true}, beside(file))
		if err != nil {
			t.Fatal(err)
		}
		nets, err := spec.Parse(file, result.YAML, spec.Options{})
		if err != nil {
			t.Fatalf("%s: %v\n%s", lab, err, result.YAML)
		}
		if _, problems := resolve.Read(nets[0]); len(problems) > 0 || len(nets[0].Elements) < 5 ||
			len(nets[0].Links) < 5 {
			t.Errorf("%s: %v: %+v", lab, problems, nets[0])
		}
	}
}

// TestSmallThings are constructs by themselves: what they become, or what is told of them.
func TestSmallThings(t *testing.T) {
	const clabHead, netlabHead = "name: x\ntopology:\n  nodes:\n", "defaults.device: frr\n"
	for _, c := range []struct{ text, want string }{
		{clabHead + "    a: {kind: linux, exec: [ip a add 10.0.0.1/24 dev eth9]}\n", "start: [ip address add 10.0.0.1/24 dev eth9]"},
		{clabHead + "    a: {kind: linux, exec: [\"sh -c 'echo $$X'\"]}\n", `start: ["sh -c 'echo $X'"]`},
		{clabHead + "    a: {kind: linux, exec: [ip route add 10.0.0.1 via 10.1.0.1]}\n", "routes: [10.0.0.1/32 via 10.1.0.1]"},
		{clabHead + "    a: {kind: linux, exec: [\"ip -6 route add default via 2001:db8::1\"]}\n", `gateway: "2001:db8::1"`},
		{clabHead + "    a: {kind: linux, memory: 1Gib, cpu: 2}\n", "memory: 1GiB, cpu: 2"},
		{clabHead + "    a: {kind: linux, memory: lots}\n", "4: node a: the memory \"lots\" is not understood"},
		{clabHead + "    a: {kind: linux, exec: [{echo: x}]}\n", "4: node a: this entry of exec is no text"},
		{clabHead + "    a b: {kind: linux}\n", "4: node \"a b\" is called a-b"},
		{clabHead + "    a: {kind: linux, image: \"frrouting/frr:v8\"}\n", "routers:\n  a: {software: frr}\n"},
		{clabHead + "    a: &base {kind: linux, cpu: 1}\n    b:\n      <<: *base\n      cpu: 2\n", "b: {cpu: 2}"},
		{clabHead + "    a: {kind: linux}\n  links:\n    - endpoints: [\"a:eth1\", \"b:eth1\"]\n", "6: the link to b:eth1 is not carried over: there is no such node"},
		{clabHead + "    a: {kind: linux}\n    b: {kind: linux}\n  links:\n    - endpoints: [\"a:eth1\", \"b:eth1\"]\n" +
			"    - endpoints: [\"a:eth1\", \"b:eth2\"]\n", "8: the interface a:eth1 has a link already"},
		{netlabHead + "module: [vxlan]\nnodes: [a]\n", "2: the module vxlan is not carried over"},
		{netlabHead + "nodes: [r-1, b]\nlinks: [r-1-b]\n", "- r-1 -- b"},
		{netlabHead + "nodes: [a, b]\nlinks: [a-c]\n", "3: the link is not carried over: there is no node \"c\""},
		{netlabHead + "nodes: [a, b]\nlinks:\n- a:\n  b:\n  prefix: false\n", "a -- b: {addressing: none}"},
		{netlabHead + "nodes: [a, b]\nmodule: [isis]\nisis.type: level-1\n", "isis: {level: 1}"},
		{netlabHead + "nodes: [a, b]\nmodule: [ospf]\naddressing.p2p.ipv6: 2001:db8::/48\n", "ospf6: {}"},
		{netlabHead + "nodes: [a, b, c]\nmodule: [bgp]\nbgp.as_list: {65001: {members: [a, b], rr: [a]}}\n", "bgp: {as: 65001}"},
		{"groups: {_auto_create: true, x: {members: [a, b]}, all: {members: [x]}}\nlinks: [a-b]\n", "routers: [a, b]\nlinks:\n  - a -- b\n"},
		{"groups: {x: {members: [a, b]}, y: {_auto_create: true, members: [b, c]}}\nlinks: [b-c]\n", "routers: [b, c]\n"},
		{netlabHead + "nodes: [a, b, c]\nlinks:\n- {a: , b: , prefix: 10.3.0.0/24}\n- {b: , c: , prefix: 10.3.0.0/24}\n", "5: the prefix 10.3.0.0/24 is another link's, too"},
		{netlabHead + "nodes: [a, b, c]\nlinks:\n- {a: , b: , c: , prefix: 10.3.0.0/30}\n", "4: the prefix 10.3.0.0/30 has no room for 3 interfaces"},
		{netlabHead + "nodes: [a, b]\nlinks:\n- {a: , b: , prefix: 10.3.0.0/31}\n", "a -- b: {prefixes: [10.3.0.0/31]}"},
		{netlabHead + "nodes: [a, b]\nlinks:\n- {a: , b: , tc: {delay: 2, jitter: 13}}\n", "4: the jitter 13ms is more than the delay 2ms"},
		{netlabHead + "nodes: {a: {loopback.ipv4: 10.9.9.9/32}, b: {loopback.ipv4: 10.9.9.9/32}}\n", "2: node b: the address 10.9.9.9 is given twice"},
		{netlabHead + "nodes: {a: {role: bridge}, b: {device: linux, role: router}}\n", "routers:\n  b: {software: static}\nswitches: [a]\n"},
	} {
		result, err := Read("lab", []byte(c.text), allWords, nil)
		if err != nil {
			t.Errorf("%s\n%v", c.text, err)
			continue
		}
		got := string(result.YAML)
		for _, n := range result.Notes {
			got += fmt.Sprintf("%d: %s\n", n.Line, n.Message)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s\nbecame\n%s\nwithout\n%s", c.text, got, c.want)
		}
	}
}

// TestUnreadable: what is no lab says so, with the line where there is one.
func TestUnreadable(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", c, c, c-1, c-1, c-1, c-1, c-1,
			c-1, c-1, c-1, c-1, c-1)
	}
	for _, c := range []struct{ text, want string }{
		{"", "there is nothing in it"},
		{"a: 1\n", "it is neither a topology of containerlab"},
		{"a: [\n", "it is no YAML"},
		{"\x00", "it is no text"},
		{"name: x\ntopology:\n  nodes:\n{{ range .Nodes }}\n", "lab:4: this is a template"},
		{"a: " + deep, "nests too deep"},
		{"a: *b\n", "lab:1: there is no anchor &b before this"},
		{"a: &a {b: *a}\n", "has itself in it"},
		{bomb, "its aliases repeat"},
		{"nodes: [a]\nnodes: [b]\n", "lab:2: \"nodes\" is there twice"},
		{strings.Repeat("#", 5<<20), "is it the right file?"},
	} {
		_, err := Read("lab", []byte(c.text), allWords, nil)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, wanted %q", c.text, err, c.want)
		}
	}
	if r, err := Read("lab", []byte("network: x\nrouters: [a]\n"), allWords, nil); err != nil || r.Format != Polyplane {
		t.Errorf("a file of ours: %+v, %v", r, err)
	}
}

// FuzzRead: whatever comes, nothing panics, notes have lines of the file, and what is written is YAML that reads as it
// was meant.
func FuzzRead(f *testing.F) {
	for _, file := range []string{"lab.clab.yml", "topology.yml"} {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("name: \"a\\tb\"\ntopology: {nodes: {\"#\": {kind: linux, exec: [\"- x\", \": y\", \"'\"]}}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		result, err := Read("lab", data, allWords, nil)
		if err != nil || result.Format == Polyplane {
			return
		}
		lines := bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")) + 1
		for _, n := range result.Notes {
			if n.Line < 0 || n.Line > lines+1 || n.Message == "" {
				t.Errorf("a note of line %d, of %d: %q", n.Line, lines, n.Message)
			}
		}
		var doc map[string]any
		if err := yaml.Unmarshal(result.YAML, &doc); err != nil {
			t.Errorf("%v:\n%s", err, result.YAML)
		}
		if doc["network"] == nil {
			t.Errorf("no network:\n%s", result.YAML)
		}
	})
}
