package manager

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec"
)

// Every example, placed on three nodes, is put together from what the nodes were told: each element as it is.
func TestExamplesAreRebuilt(t *testing.T) {
	paths, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(paths) < 8 {
		t.Fatalf("%v: %d examples", err, len(paths))
	}
	tried, restored, relayed := 0, 0, 0
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files, err := spec.Parse(path, b, spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, net := range files {
			for nodes := 1; nodes <= 3; nodes++ {
				numbers := resolve.NewNumbers()
				for i := range net.Links {
					if i%3 == 1 {
						net.Links[i].State = model.LinkDown
					}
				}
				document, _ := resolve.Read(net)
				resolved, as, err := document.Resolve(model.Assigned{}, numbers)
				if err != nil {
					t.Fatal(err)
				}
				substrate := substrateOf(4) // the fourth has no elements: it relays
				for i := range substrate.Nodes {
					substrate.Nodes[i].Simulated = true
				}
				as.Placement.Elements = map[string]string{}
				overrides := map[string]model.Override{}
				for i, e := range resolved.Elements {
					as.Placement.Elements[e.Name] = substrate.Nodes[i%nodes].Name
					if i%2 == 1 {
						overrides[e.Name] = model.Override{Restarts: uint32(i), Suspended: i%4 == 1}
					}
				}
				as.Placement.Links = map[string][]model.LinkPath{}
				for _, l := range net.Links {
					a, b := as.Placement.Elements[l.Ends[0].Element], as.Placement.Elements[l.Ends[1].Element]
					if a+b == "n1n3" || a+b == "n3n1" {
						as.Placement.Links[l.Name] = []model.LinkPath{{Nodes: []string{a, "n4", b}}}
						relayed++
						if relayed%2 == 0 { // nodes still take its packets from two paths that it has left
							if as.Turns == nil {
								as.Turns = map[string]model.Turn{}
							}
							as.Turns[l.Name] = model.Turn{Turned: true, Before: []model.NumberedPath{
								{LinkPath: model.LinkPath{Nodes: []string{a, b}}, VNI: uint32(5000 + relayed)},
								{LinkPath: model.LinkPath{Nodes: []string{a, "n2", "n4", b}},
									VNI: uint32(6000 + relayed)}}}
						}
					}
				}
				parts := map[string]model.NodeNetwork{}
				for node, s := range model.NodeStates([]model.ResolvedRecord{{Network: resolved, Assigned: as,
					Overrides: overrides}}, substrate) {
					if len(s.Networks) > 0 {
						parts[node] = s.Networks[0]
					}
				}
				r, err := rebuild(net.Name, parts, false, resolve.NewNumbers())
				if err != nil {
					t.Fatalf("%s on %d nodes: %v", net.Name, nodes, err)
				}
				for _, n := range r.notes {
					t.Errorf("%s on %d nodes: %s", net.Name, nodes, n)
				}
				got := r.record
				if got.Assigned.Index != as.Index || !reflect.DeepEqual(got.Assigned.Placement.Elements,
					as.Placement.Elements) ||
					len(got.Network.Links) != len(net.Links) || len(got.Network.Elements) != len(net.Elements) {
					t.Errorf("%s: %+v", net.Name, got.Assigned)
				}
				for link, was := range as.Placement.Links {
					is := got.Assigned.Placement.Links[link]
					if len(is) == 1 && is[0].Nodes[0] != was[0].Nodes[0] { // its ends are the other way round
						slices.Reverse(is[0].Nodes)
					}
					if !reflect.DeepEqual(is, was) {
						t.Errorf("%s: the path of %s was %v and is %v", net.Name, link, was, is)
					}
				}
				if _, problems := resolve.Read(got.Network); len(problems) > 0 {
					t.Errorf("%s on %d nodes: its document is refused: %v", net.Name, nodes, problems)
				}
				if nodes == 3 && len(parts) > 1 { // one node is silent
					lacking := map[string]model.NodeNetwork{}
					for node, part := range parts {
						if node != "n1" {
							lacking[node] = part
						}
					}
					if _, err := rebuild(net.Name, lacking, false, resolve.NewNumbers()); err == nil &&
						len(net.Links) > 0 {
						t.Errorf("%s: rebuilt without node n1", net.Name)
					}
					restored += rest(t, net.Name, lacking)
				}
				tried++
			}
		}
	}
	if restored < 6 {
		t.Errorf("of only %d networks there is a rest without one of their nodes", restored)
	}
	if relayed < 6 {
		t.Errorf("only %d links were relayed", relayed)
	}
	if tried < 24 {
		t.Fatalf("only %d were tried", tried)
	}
}

// rest puts together what there is of a network one of whose nodes is lost for good, and tells how many are: every
// element that is left, each link between such, and a word of each that is not.
func rest(t *testing.T, name string, parts map[string]model.NodeNetwork) int {
	t.Helper()
	r, err := rebuild(name, parts, true, resolve.NewNumbers())
	if err != nil {
		t.Logf("%s: %v", name, err)
		return 0
	}
	left, whole, half := map[string]bool{}, map[string]int{}, 0
	for _, part := range parts {
		for _, e := range part.Elements {
			left[e.Name] = true
			for _, f := range e.Interfaces {
				if f.Link != "" && f.Far != nil {
					whole[f.Link]++
				}
			}
		}
	}
	for link, ends := range whole {
		if ends == 1 {
			half++
			delete(whole, link)
		}
	}
	if len(r.record.Network.Elements) != len(left) || len(r.record.Network.Links) != len(whole) {
		t.Errorf("%s: %d elements and %d links are left, %d and %d are put together", name, len(left), len(whole),
			len(r.record.Network.Elements), len(r.record.Network.Links))
	}
	if half > 0 && len(r.notes) < half {
		t.Errorf("%s: %d links are left out, and it says only %q", name, half, r.notes)
	}
	if _, problems := resolve.Read(r.record.Network); len(problems) > 0 {
		t.Errorf("%s: its document is refused: %v", name, problems)
	}
	return 1
}

// A path is taken over where all that is told of it agrees; one node cannot lead links over itself.
func TestRelayedPaths(t *testing.T) {
	links := []model.Link{{Name: "a--b", Ends: [2]model.End{{Element: "a"}, {Element: "b"}}}}
	as := model.Assigned{Placement: model.Placement{Elements: map[string]string{"a": "n1", "b": "n4"}}}
	relay := func(left, right string) model.NodeNetwork {
		return model.NodeNetwork{Relays: []model.Relay{{Link: "a--b", Nodes: [2]string{left, right}}}}
	}
	for _, c := range []struct {
		name string
		told map[string]model.NodeNetwork
		want []string
	}{
		{"whole", map[string]model.NodeNetwork{"n2": relay("n1", "n3"), "n3": relay("n2", "n4")},
			[]string{"n1", "n2", "n3", "n4"}},
		{"told the other way round", map[string]model.NodeNetwork{"n2": relay("n3", "n1"), "n3": relay("n4", "n2")},
			[]string{"n1", "n2", "n3", "n4"}},
		{"one has not told", map[string]model.NodeNetwork{"n2": relay("n1", "n3")}, nil},
		{"one that nobody else knows, at the end",
			map[string]model.NodeNetwork{"n2": relay("n1", "n4"), "n9": relay("n2", "n4")}, nil},
		{"one that nobody else knows, beside the first",
			map[string]model.NodeNetwork{"n2": relay("n1", "n4"), "n9": relay("n1", "n4")}, nil},
		{"in a circle", map[string]model.NodeNetwork{"n2": relay("n1", "n3"), "n3": relay("n2", "n2"),
			"n5": relay("n3", "n4")}, nil},
		{"nothing is told", nil, nil},
	} {
		for range 20 { // whatever order the nodes come in
			var got []string
			if paths := relayedPaths(links, &as, c.told)["a--b"]; len(paths) == 1 {
				got = paths[0].Nodes
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("%s: the path is %v, want %v", c.name, got, c.want)
			}
		}
	}
}
