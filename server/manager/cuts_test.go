package manager

import (
	"fmt"
	"slices"
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
	round := uint64(0)
	up := map[string]bool{"n1 n2": true, "n2 n1": true, "n2 n3": true, "n3 n2": true, "n1 n3": true, "n3 n1": true}
	tell := func(down ...string) {
		t.Helper()
		for _, d := range down {
			up[d] = false
		}
		for _, node := range []string{"n1", "n2", "n3"} {
			round++
			m := model.Measures{Node: node, Round: round}
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
	look, now := cuts{Manager: f.Manager}, time.Now()
	path := func(what, want string) {
		t.Helper()
		now = now.Add(time.Minute)
		look.step(t.Context(), now)
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
	tell()
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
	path("one round", "n1→n2→n3")
	tell()
	path("no other way", "n1→n2→n3")
	if e := f.await(t, since, "lab", "PathCut"); !strings.Contains(e.Message, "n1 -- n2") {
		t.Errorf("told: %s", e.Message)
	}
	up["n1 n3"], up["n3 n1"] = true, true
	tell()
	path("another one is mended", "n1→n3")
}

// cutLab has agents at all nodes of a substrate. tell has them tell which links no longer answer, for some rounds.
func cutLab(t *testing.T, links ...model.SubstrateLink) (f *fixture, tell func(rounds int, down ...string)) {
	substrate := substrateOf(3)
	if len(links) > 0 {
		substrate.Links = links
	}
	for i := range substrate.Nodes {
		substrate.Nodes[i].Simulated = true
	}
	f = start(t, t.TempDir(), substrate)
	for i := range substrate.Nodes {
		_, end, err := f.Watch(substrate.Nodes[i].Name, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(end)
	}
	round := uint64(0)
	return f, func(rounds int, down ...string) {
		t.Helper()
		for range rounds {
			round++
			for i := range substrate.Nodes {
				m := model.Measures{Node: substrate.Nodes[i].Name, Round: round}
				for _, l := range substrate.Links {
					far := map[string]string{l.A: l.B, l.B: l.A}[m.Node]
					if far != "" {
						m.Links = append(m.Links, model.LinkMeasure{To: far, RTTMedian: time.Millisecond,
							Up: !slices.Contains(down, l.A+" "+l.B)})
					}
				}
				if err := f.Measure(m); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func (f *fixture) pathOf(t *testing.T, network, link string) string {
	t.Helper()
	return strings.Join(mustNetwork(t, f, network).Assigned.Placement.Links[link][0].Nodes, "→")
}

// pathCuts counts the events about links that have no other way.
func (f *fixture) pathCuts(since int64) (n int) {
	events, _ := f.Events(since)
	for _, e := range events {
		if e.Reason == "PathCut" {
			n++
		}
	}
	return n
}

func (f *fixture) atRevision() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.revision
}

// TestNothingIsWrittenWithoutAnotherWay cuts all links of the substrate. To an embedding, a substrate without links is
// one in which all nodes reach each other.
func TestNothingIsWrittenWithoutAnotherWay(t *testing.T) {
	f, tell := cutLab(t)
	doc := line("lab", 3)
	for i := range doc.Elements {
		doc.Elements[i].Node = fmt.Sprintf("n%d", i+1)
	}
	f.apply(t, doc, model.ApplyOptions{})
	look, now, since, before := cuts{Manager: f.Manager}, time.Now(), f.seq(), f.atRevision()
	for range 20 {
		tell(2, "n1 n2", "n2 n3")
		now = now.Add(time.Minute)
		look.step(t.Context(), now)
	}
	if after := f.atRevision(); after != before {
		t.Errorf("revision %d after %d", after, before)
	}
	if n := f.pathCuts(since); n > 2 { // the manager's own loop looks as well
		t.Errorf("%d events of one network that stays cut", n)
	}
	if e := f.await(t, since, "lab", "PathCut"); !strings.Contains(e.Message, "2 in all: r1--r2 by n1→n2, cut at n1 -- n2; ") {
		t.Errorf("told: %s", e.Message)
	}
}

// TestWhatIsStuckKeepsItsReservation has a link that finds no other way reserve what it has on the hops that are not
// cut: it goes back there when the cut is mended.
func TestWhatIsStuckKeepsItsReservation(t *testing.T) {
	f, tell := cutLab(t, model.SubstrateLink{A: "n1", B: "n2", Bandwidth: 200e6},
		model.SubstrateLink{A: "n2", B: "n3", Bandwidth: 100e6}, model.SubstrateLink{A: "n1", B: "n3", Bandwidth: 50e6})
	doc := line("lab", 3)
	doc.Elements[0].Node, doc.Elements[1].Node, doc.Elements[2].Node = "n3", "n1", "n2"
	doc.Links[0].Bandwidth = 60e6 // n3→n2→n1
	doc.Links[1].Bandwidth = 50e6 // n1→n2, and n1→n3→n2 has no room beside it
	f.apply(t, doc, model.ApplyOptions{})
	tell(2, "n1 n2")
	look := cuts{Manager: f.Manager}
	look.step(t.Context(), time.Now())
	if a, b := f.pathOf(t, "lab", "r1--r2"), f.pathOf(t, "lab", "r2--r3"); a != "n3→n2→n1" || b != "n1→n2" {
		t.Errorf("60 Mbit on %s and 50 Mbit on %s", a, b)
	}
}

// TestRoomThatComesFreeIsUsed has a link that had no other way find one while the cut lasts, when a network leaves room.
func TestRoomThatComesFreeIsUsed(t *testing.T) {
	f, tell := cutLab(t, model.SubstrateLink{A: "n1", B: "n2", Bandwidth: 1e8},
		model.SubstrateLink{A: "n2", B: "n3", Bandwidth: 1e8}, model.SubstrateLink{A: "n1", B: "n3", Bandwidth: 1e8})
	lab, big := line("lab", 2), line("big", 2)
	lab.Elements[0].Node, lab.Elements[1].Node, lab.Links[0].Bandwidth = "n1", "n2", 6e7
	big.Elements[0].Node, big.Elements[1].Node, big.Links[0].Bandwidth = "n1", "n3", 6e7
	f.apply(t, lab, model.ApplyOptions{})
	f.apply(t, big, model.ApplyOptions{})
	tell(2, "n1 n2")
	look, now := cuts{Manager: f.Manager}, time.Now()
	look.step(t.Context(), now)
	if got := f.pathOf(t, "lab", "r1--r2"); got != "n1→n2" {
		t.Fatalf("without room it is on %s", got)
	}
	big.Links[0].Bandwidth = 1e6
	f.apply(t, big, model.ApplyOptions{})
	look.step(t.Context(), now.Add(shortestRest))
	if got := f.pathOf(t, "lab", "r1--r2"); got != "n1→n3→n2" {
		t.Errorf("with room it is on %s", got)
	}
}

// TestFlappingLinksMoveSeldom has links of the substrate be cut in turn, again and again.
func TestFlappingLinksMoveSeldom(t *testing.T) {
	f, tell := cutLab(t, model.SubstrateLink{A: "n1", B: "n2"}, model.SubstrateLink{A: "n2", B: "n3"},
		model.SubstrateLink{A: "n1", B: "n3"})
	lab := line("lab", 2)
	lab.Elements[0].Node, lab.Elements[1].Node = "n1", "n2"
	f.apply(t, lab, model.ApplyOptions{})
	look, now, before := cuts{Manager: f.Manager}, time.Now(), f.atRevision()
	for i := range 120 { // one hour
		tell(2, []string{"n1 n2", "n1 n3"}[i%2])
		now = now.Add(30 * time.Second)
		look.step(t.Context(), now)
	}
	if n := f.atRevision() - before; n < 2 || n > 20 {
		t.Errorf("it was moved %d times in an hour", n)
	}
}

// TestCutsOutliveAgents has the agents at a cut start anew, which then do not know that the other one ever answered.
func TestCutsOutliveAgents(t *testing.T) {
	f, tell := cutLab(t)
	tell(2, "n1 n2")
	look := cuts{Manager: f.Manager}
	look.step(t.Context(), time.Now())
	for node, far := range map[string]string{"n1": "n2", "n2": "n1"} {
		if err := f.Measure(model.Measures{Node: node, Round: 1, Links: []model.LinkMeasure{{To: far}}}); err != nil {
			t.Fatal(err)
		}
	}
	look.step(t.Context(), time.Now())
	if !look.is[hop("n1", "n2")] {
		t.Error("it no longer counts as cut")
	}
}

// TestCutsLeaveMovesAlone cuts a link of a network of which an element is being moved.
func TestCutsLeaveMovesAlone(t *testing.T) {
	f, tell := cutLab(t, model.SubstrateLink{A: "n1", B: "n2"}, model.SubstrateLink{A: "n2", B: "n3"},
		model.SubstrateLink{A: "n1", B: "n3"})
	lab := line("lab", 2)
	lab.Elements[0].Node, lab.Elements[1].Node = "n1", "n2"
	f.apply(t, lab, model.ApplyOptions{})
	tell(2, "n1 n2", "n1 n3") // no other way, so that the manager's own loop does nothing either
	look := cuts{Manager: f.Manager}
	f.mu.RLock()
	look.look()
	f.mu.RUnlock()
	for step, want := range map[model.MoveStep]int{model.MoveCopying: 0, "": 1} {
		f.mu.Lock()
		f.networks["lab"].record.Moving = &model.Moving{Step: step}
		if due := look.due(time.Now()); len(due) != want {
			t.Errorf("step %q: %d networks are due", step, len(due))
		}
		f.networks["lab"].record.Moving = nil
		f.mu.Unlock()
	}
}
