package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// pass has the manager hear for so long.
func (f *fixture) pass(d time.Duration) {
	if f.ear.last.IsZero() {
		f.listened(time.Now())
	}
	for at := f.ear.last; d > 0; d -= listenEvery {
		at = at.Add(listenEvery)
		f.listened(at)
	}
}

func (f *fixture) nodeStatus(t *testing.T, name string) model.NodeStatus {
	t.Helper()
	d, err := f.Dump("", api.Parts{Nodes: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range d.Nodes {
		if n.Name == name {
			return n
		}
	}
	t.Fatalf("there is no node %s", name)
	return model.NodeStatus{}
}

func (f *fixture) beat(t *testing.T, b model.Beat) {
	t.Helper()
	if err := f.Beat(b); err != nil {
		t.Fatal(err)
	}
}

// An agent that hangs with its connections open is unknown after the time of a lease, and what is known of it is as
// last told.
func TestSilentNodeBecomesUnknown(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	net := line("lab", 4)
	net.Elements[0].Node, net.Elements[1].Node, net.Elements[2].Node, net.Elements[3].Node = "n1", "n1", "n2", "n2"
	f.apply(t, net, model.ApplyOptions{})
	for _, n := range []string{"n1", "n2"} {
		_, end := f.watch(t, n)
		defer end()
		if err := f.Register(n, model.Registration{Socket: f.nodes[n].socket,
			Offers: offering(model.ForwardGuest)}); err != nil {
			t.Fatal(err)
		}
		f.obey(t, n, nil)
	}
	for range 30 { // as long as it beats
		f.pass(model.BeatEvery)
		f.beat(t, model.Beat{Node: "n1"})
		f.beat(t, model.Beat{Node: "n2"})
	}
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhaseRunning || s.Running != 4 || s.Unknown != 0 {
		t.Fatalf("with both nodes: %+v", s)
	}
	since := f.seq()
	for heard := time.Duration(0); heard <= model.LeaseTime; heard += listenEvery {
		if n := f.nodeStatus(t, "n2"); n.Condition != model.Ready {
			t.Fatalf("after %s: %+v", heard, n)
		}
		f.beat(t, model.Beat{Node: "n1"})
		f.pass(listenEvery)
	}
	n := f.nodeStatus(t, "n2")
	if n.Condition != model.Unknown || n.Ready || !strings.Contains(n.Problem, "nothing has been heard") {
		t.Errorf("after the time of a lease: %+v", n)
	}
	if n := f.nodeStatus(t, "n1"); n.Condition != model.Ready {
		t.Errorf("the other one: %+v", n)
	}
	f.await(t, since, "n2", "NodeUnknown")
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhaseUnknown || s.Running != 2 || s.Unknown != 2 ||
		!strings.Contains(s.Message, "node n2") {
		t.Errorf("the network: %+v", s)
	}
	d, err := f.Dump("lab", api.Parts{Elements: true, Links: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range d.Elements {
		if told := e.LastTold != 0; e.Phase != model.PhaseRunning || told != (e.Node == "n2") || told &&
			!strings.HasPrefix(e.Message, "as last told: node n2") {
			t.Errorf("%s: %+v", e.ID, e.ElementStatus)
		}
	}
	for _, l := range d.Links {
		if told := l.LastTold != 0; told != (l.Link.Ends[1].Element != "r2") {
			t.Errorf("link %s was last told %s ago", l.Link.Name, l.LastTold)
		}
	}
	reach, err := f.Agent(t.Context(), model.ID{Network: "lab", Element: "r3"})
	if err == nil || !reach.Lost || !strings.Contains(err.Error(), "nothing has been heard") {
		t.Errorf("reach an element there: %+v, %v", reach, err)
	}
	began := time.Now()
	if _, err := (patient{f.Manager, nil, time.Minute}).Agent(t.Context(),
		model.ID{Network: "lab", Element: "r3"}); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("a user waits for a node that is lost: %v after %s", err, time.Since(began))
	}
	f.beat(t, model.Beat{Node: "n2"})
	if n := f.nodeStatus(t, "n2"); n.Condition != model.Ready {
		t.Errorf("back: %+v", n)
	}
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhaseRunning || s.Running != 4 {
		t.Errorf("back: %+v", s)
	}
	f.await(t, since, "n2", "NodeReady")
}

// An agent whose loop stands still is not ready, however often it beats; one at a long step that goes on is.
func TestNodeWhoseLoopStandsStillIsNotReady(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	_, end := f.watch(t, "n1")
	defer end()
	f.obey(t, "n1", nil)
	since := f.seq()
	f.beat(t, model.Beat{Node: "n1", Turns: 3, Step: "make elements",
		Still: model.Duration(model.StillTime - model.BeatEvery)})
	if n := f.nodeStatus(t, "n1"); n.Condition != model.Ready {
		t.Errorf("at work: %+v", n)
	}
	f.beat(t, model.Beat{Node: "n1", Turns: 3, Step: "make elements", Still: model.Duration(model.StillTime)})
	if n := f.nodeStatus(t, "n1"); n.Condition != model.NotReady ||
		!strings.Contains(n.Problem, `"make elements" for 45s`) {
		t.Errorf("standing still: %+v", n)
	}
	f.await(t, since, "n1", "NodeProblem")
	f.beat(t, model.Beat{Node: "n1", Turns: 4})
	if n := f.nodeStatus(t, "n1"); n.Condition != model.Ready {
		t.Errorf("round again: %+v", n)
	}
}

// A manager that was stopped for an hour, or whose machine slept, has not failed to hear anybody.
func TestManagerThatWasStoppedBlamesNobody(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	_, end := f.watch(t, "n1")
	defer end()
	f.obey(t, "n1", nil)
	f.pass(3 * listenEvery)
	f.listened(f.ear.last.Add(time.Hour))
	if n := f.nodeStatus(t, "n1"); n.Condition != model.Ready {
		t.Errorf("after the manager was stopped: %+v", n)
	}
	f.pass(model.LeaseTime)
	if n := f.nodeStatus(t, "n1"); n.Condition != model.Unknown {
		t.Errorf("and with a silent agent: %+v", n)
	}
}
