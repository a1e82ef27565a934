package manager

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestUsualMTU: links that state no MTU have what the underlay carries, which is told; it changes with no node, but with
// the next apply; what is stated or set counts.
func TestUsualMTU(t *testing.T) {
	sub := substrateOf(2)
	sub.Nodes[1].MTU = 1500
	f := start(t, t.TempDir(), sub)
	defer f.stop()
	net := line("lab", 4)
	net.Links[2].MTU = 1300
	mtus := func(r model.ApplyResult) [3]int {
		l := r.Record.Network.Links
		return [3]int{l[0].MTU, l[1].MTU, l[2].MTU}
	}
	for _, dry := range []bool{true, false} {
		r := f.apply(t, net, model.ApplyOptions{DryRun: dry})
		notes := strings.Join(r.Notes, "\n")
		if got := mtus(r); got != [3]int{1450, 1450, 1300} {
			t.Errorf("dry run %v: they are %v", dry, got)
		}
		if !strings.Contains(notes, "have 1450, and not 1500") || !strings.Contains(notes, "n1 -- n2 carries 1500") {
			t.Errorf("dry run %v: noted is %q", dry, notes)
		}
	}
	if r := f.apply(t, net, model.ApplyOptions{}); r.Changed {
		t.Error("once more it changes something")
	}
	if _, err := f.Set(t.Context(), "lab", model.SetRequest{Object: "r1--r2",
		Values: []model.Assignment{{Key: "mtu", Value: "1400"}}}); err != nil {
		t.Fatal(err)
	}
	if r := f.apply(t, net, model.ApplyOptions{}); mtus(r) != [3]int{1400, 1450, 1300} {
		t.Errorf("after set they are %v", mtus(r))
	}
	stated := line("stated", 2)
	stated.Links[0].MTU = 1500
	if got := f.refused(t, stated); !strings.Contains(got, "link r1--r2 has an MTU of 1500") {
		t.Errorf("a stated MTU that is not carried: %s", got)
	}
	pinned := line("pinned", 2)
	for i := range pinned.Elements {
		pinned.Elements[i].Node = "n1"
	}
	if r := f.apply(t, pinned, model.ApplyOptions{}); r.Record.Network.Links[0].MTU != 0 || len(r.Notes) > 0 {
		t.Errorf("on one node: %d, %q", r.Record.Network.Links[0].MTU, r.Notes)
	}
}
