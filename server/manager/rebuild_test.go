package manager

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec"
)

// Every example, placed on three nodes, is put together from what the nodes were told: each element as it is.
func TestExamplesAreRebuilt(t *testing.T) {
	paths, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(paths) < 8 {
		t.Fatalf("%v: %d examples", err, len(paths))
	}
	tried := 0
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
				numbers := model.NewNumbers()
				resolved, as, err := model.Resolve(net, model.Assigned{}, numbers)
				if err != nil {
					t.Fatal(err)
				}
				substrate := substrateOf(nodes)
				as.Placement.Elements = map[string]string{}
				overrides := map[string]model.Override{}
				for i, e := range resolved.Elements {
					as.Placement.Elements[e.Name] = substrate.Nodes[i%nodes].Name
					if i%2 == 1 {
						overrides[e.Name] = model.Override{Restarts: uint32(i), Suspended: i%4 == 1}
					}
				}
				parts := map[string]model.NodeNetwork{}
				for node, s := range model.NodeStates([]model.ResolvedRecord{{Network: resolved, Assigned: as, Overrides: overrides}}, substrate) {
					if len(s.Networks) > 0 {
						parts[node] = s.Networks[0]
					}
				}
				r, err := rebuild(net.Name, parts, model.NewNumbers())
				if err != nil {
					t.Fatalf("%s on %d nodes: %v", net.Name, nodes, err)
				}
				for _, n := range r.notes {
					t.Errorf("%s on %d nodes: %s", net.Name, nodes, n)
				}
				got := r.record
				if got.Assigned.Index != as.Index || !reflect.DeepEqual(got.Assigned.Placement.Elements, as.Placement.Elements) ||
					len(got.Network.Links) != len(net.Links) || len(got.Network.Elements) != len(net.Elements) {
					t.Errorf("%s: %+v", net.Name, got.Assigned)
				}
				if problems := got.Network.Validate(); len(problems) > 0 {
					t.Errorf("%s on %d nodes: its document is refused: %v", net.Name, nodes, problems)
				}
				if nodes == 3 && len(parts) > 1 { // one node is silent
					lacking := map[string]model.NodeNetwork{}
					for node, part := range parts {
						if node != "n1" {
							lacking[node] = part
						}
					}
					if _, err := rebuild(net.Name, lacking, model.NewNumbers()); err == nil && len(net.Links) > 0 {
						t.Errorf("%s: rebuilt without node n1", net.Name)
					}
				}
				tried++
			}
		}
	}
	if tried < 24 {
		t.Fatalf("only %d were tried", tried)
	}
}
