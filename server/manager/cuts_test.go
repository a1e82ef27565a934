package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// TestLinksLeaveWhatIsCut has links of the substrate no longer answer. A link of a network leaves it when both ends
// tell so, and not while an agent is merely away; it stays, and that is told, where there is no other way.
func TestLinksLeaveWhatIsCut(t *testing.T) {
	substrate := substrateOf(3) // n1 – n2 – n3
	substrate.Links = append(substrate.Links, model.SubstrateLink{A: "n1", B: "n3", Bandwidth: 1e8})
	for i := range substrate.Nodes {
		substrate.Nodes[i].Simulated = true
	}
	f := start(t, t.TempDir(), substrate)
	ends := map[string]func(){}
	for _, node := range []string{"n1", "n2", "n3"} {
		_, end, err := f.Watch(node, true)
		if err != nil {
			t.Fatal(err)
		}
		ends[node] = end
	}
	up := map[string]bool{"n1 n2": true, "n2 n1": true, "n2 n3": true, "n3 n2": true, "n1 n3": true, "n3 n1": true}
	tell := func(down ...string) {
		t.Helper()
		for _, d := range down {
			up[d] = false
		}
		for _, node := range []string{"n1", "n2", "n3"} {
			m := model.Measures{Node: node}
			for way, is := range up {
				if from, to, _ := strings.Cut(way, " "); from == node {
					m.Links = append(m.Links, model.LinkMeasure{To: to, Up: is, RTTMedian: time.Millisecond})
				}
			}
			if err := f.Measure(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	doc := line("lab", 2)
	doc.Elements[0].Node, doc.Elements[1].Node = "n1", "n3"
	doc.Links[0].Bandwidth = 5e7
	f.apply(t, doc, model.ApplyOptions{})
	look := cuts{Manager: f.Manager}
	path := func(what, want string) {
		t.Helper()
		look.step(t.Context())
		if got := strings.Join(mustNetwork(t, f, "lab").Assigned.Placement.Links["r1--r2"][0].Nodes, "→"); got != want {
			t.Errorf("%s: it is on %s, not %s", what, got, want)
		}
	}
	tell()
	path("at first", "n1→n3")
	tell("n1 n3")
	path("one end hears nothing", "n1→n3")
	ends["n3"]()
	tell("n3 n1")
	path("an agent is away", "n1→n3")
	since := f.seq()
	if _, _, err := f.Watch("n3", true); err != nil {
		t.Fatal(err)
	}
	path("cut", "n1→n2→n3")
	f.await(t, since, "lab/r1--r2", "PathChanging")
	turn := mustNetwork(t, f, "lab").Assigned.Turns["r1--r2"]
	if len(turn.Before) != 1 || strings.Join(turn.Before[0].Nodes, "→") != "n1→n3" {
		t.Errorf("it turns from %+v", turn)
	}
	if r := mustNetwork(t, f, "lab"); r.Revision != 1 {
		t.Errorf("revision %d", r.Revision)
	}
	since = f.seq()
	tell("n1 n2", "n2 n1")
	path("no other way", "n1→n2→n3")
	if e := f.await(t, since, "lab/r1--r2", "PathCut"); !strings.Contains(e.Message, "n1 -- n2") {
		t.Errorf("told: %s", e.Message)
	}
	up["n1 n3"], up["n3 n1"] = true, true
	tell()
	path("another one is mended", "n1→n3")
}
