package manager

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// relay has a node tell that it has done what it was told, with the relays that it has.
func (f *fixture) relay(t *testing.T, node string, relays bool, but ...func(*model.Report)) {
	t.Helper()
	s := f.desired(t, node)
	r := model.Report{Node: node, Revision: s.Revision}
	for _, nn := range s.Networks {
		for _, e := range nn.Elements {
			r.Elements = append(r.Elements, model.ElementStatus{ID: model.ID{Network: nn.Name, Element: e.Name},
				Phase: model.PhaseRunning})
			for _, i := range e.Interfaces {
				r.Ports = append(r.Ports, model.PortStatus{ID: model.PortID{
					ID: model.ID{Network: nn.Name, Element: e.Name}, Interface: i.Name}, Up: true})
			}
		}
		for _, is := range nn.Relays {
			if relays {
				r.Relays = append(r.Relays, model.RelayStatus{Network: nn.Name, Link: is.Link, VNI: is.VNI})
			}
		}
	}
	for _, b := range but {
		b(&r)
	}
	if err := f.Report(r); err != nil {
		t.Fatal(err)
	}
}

// TestPathsChangeStepByStep has a link get another path. Its ends send there once all nodes on it are ready, and a
// relay that could not be made is none; the path before goes when both ends have left it, and not before a rest. A
// manager that starts anew in between goes on.
func TestPathsChangeStepByStep(t *testing.T) {
	substrate := substrateOf(3) // n1 – n2 – n3
	substrate.Links = append(substrate.Links, model.SubstrateLink{A: "n1", B: "n3", Bandwidth: 1e8})
	for i := range substrate.Nodes {
		substrate.Nodes[i].Simulated = true
	}
	f := start(t, t.TempDir(), substrate)
	watch := func() {
		for _, node := range []string{"n1", "n2", "n3"} {
			_, end, err := f.Watch(node, true)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(end)
		}
	}
	watch()
	doc := line("lab", 2)
	doc.Elements[0].Node, doc.Elements[1].Node = "n1", "n3"
	doc.Links[0].Bandwidth = 5e7
	f.apply(t, doc, model.ApplyOptions{})
	sends := func(what string, vni uint32, via string, also ...model.FarTunnel) {
		t.Helper()
		for _, node := range []string{"n1", "n3"} {
			far := f.desired(t, node).Networks[0].Elements[0].Interfaces[0].Far
			if far.VNI != vni || far.Via != via || !slices.Equal(far.Also, also) {
				t.Errorf("%s: %s is told %+v", what, node, far)
			}
		}
	}
	steps := turning{f.known, f.commit, map[linkID]time.Time{}}
	now := time.Now()
	step := func(after time.Duration) {
		now = now.Add(after)
		steps.step(t.Context(), now)
	}
	sends("at first", 1, "")
	revision, since := mustNetwork(t, f, "lab").Revision, f.seq()
	if r, err := f.set(t, "r1--r2", "bandwidth=500Mbit"); err != nil || !r.Changed {
		t.Fatalf("%+v, %v", r, err)
	}
	f.await(t, since, "lab/r1--r2", "PathChanging")
	sends("before anybody is ready", 1, "", model.FarTunnel{VNI: 2, Via: "n2"})
	f.relay(t, "n1", true)
	f.relay(t, "n2", false)
	f.relay(t, "n3", true)
	step(time.Hour)
	sends("without the relay", 1, "", model.FarTunnel{VNI: 2, Via: "n2"})
	f.stop()
	f = start(t, f.dir, substrate)
	watch()
	steps = turning{f.known, f.commit, map[linkID]time.Time{}}
	f.relay(t, "n2", true)
	f.relay(t, "n1", true)
	step(0)
	sends("without an end", 1, "", model.FarTunnel{VNI: 2, Via: "n2"})
	since = f.seq()
	f.relay(t, "n3", true)
	f.await(t, since, "lab/r1--r2", "PathChanged")
	sends("ready", 2, "n2", model.FarTunnel{VNI: 1})
	f.relay(t, "n1", true)
	step(time.Hour)
	step(time.Hour)
	sends("one end still sends where it did", 2, "n2", model.FarTunnel{VNI: 1})
	f.relay(t, "n3", true)
	step(0)
	sends("both ends have left it", 2, "n2", model.FarTunnel{VNI: 1})
	step(turnRest)
	sends("after a rest", 2, "n2")
	r := mustNetwork(t, f, "lab")
	if r.Assigned.Turns != nil || r.Revision != revision+1 {
		t.Errorf("at the end: revision %d after %d, %+v", r.Revision, revision, r.Assigned.Turns)
	}
	var paths []string
	for _, p := range r.Assigned.Placement.Links["r1--r2"] {
		paths = append(paths, strings.Join(p.Nodes, "→"))
	}
	if len(paths) != 1 || paths[0] != "n1→n2→n3" {
		t.Errorf("it is on %v", paths)
	}
}

// TestPathsWaitForWhatFailed has all nodes of a new path tell that they have what they were told, while a port does not
// run, an element has failed, or the node has a problem: the link stays on the path that it is on.
func TestPathsWaitForWhatFailed(t *testing.T) {
	f, _ := cutLab(t, model.SubstrateLink{A: "n1", B: "n2"}, model.SubstrateLink{A: "n2", B: "n3"},
		model.SubstrateLink{A: "n1", B: "n3", Bandwidth: 1e8})
	doc := line("lab", 2)
	doc.Elements[0].Node, doc.Elements[1].Node, doc.Links[0].Bandwidth = "n1", "n3", 5e7
	f.apply(t, doc, model.ApplyOptions{})
	if r, err := f.set(t, "r1--r2", "bandwidth=500Mbit"); err != nil || !r.Changed {
		t.Fatalf("%+v, %v", r, err)
	}
	since := f.seq()
	f.relay(t, "n1", true)
	f.relay(t, "n2", true)
	steps := turning{f.known, f.commit, map[linkID]time.Time{}}
	for what, worse := range map[string]func(*model.Report){
		"a problem": func(r *model.Report) { r.Problem = "relay what comes by eth0: operation not supported" },
		"failed":    func(r *model.Report) { r.Elements[0].Phase = model.PhaseFailed },
		"down":      func(r *model.Report) { r.Ports[0].Up = false },
		"no ports":  func(r *model.Report) { r.Ports = nil },
	} {
		f.relay(t, "n3", true, worse)
		steps.step(t.Context(), time.Now())
		if mustNetwork(t, f, "lab").Assigned.Turns["r1--r2"].Turned {
			t.Fatalf("%s at an end, and the link was turned", what)
		}
	}
	f.relay(t, "n3", true)
	f.await(t, since, "lab/r1--r2", "PathChanged")
}

// TestMixedSubstratesTurn has a path change of which a node in between is a machine of its own, which relays nothing:
// packets go from one end to the other, and it is not waited for.
func TestMixedSubstratesTurn(t *testing.T) {
	substrate := substrateOf(4)
	substrate.Links = []model.SubstrateLink{{A: "n1", B: "n2"}, {A: "n2", B: "n3", Bandwidth: 1e8},
		{A: "n1", B: "n4"}, {A: "n4", B: "n3"}}
	for i := range substrate.Nodes {
		substrate.Nodes[i].Simulated = i != 3
	}
	f := start(t, t.TempDir(), substrate)
	for _, node := range []string{"n1", "n2", "n3"} { // the agent of n4 is away
		_, end, err := f.Watch(node, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(end)
	}
	doc := line("lab", 3)
	doc.Elements[0].Node, doc.Elements[1].Node, doc.Elements[2].Node = "n1", "n3", "n4"
	doc.Links[0].Bandwidth = 5e7
	f.apply(t, doc, model.ApplyOptions{})
	if got := f.pathOf(t, "lab", "r1--r2"); got != "n1→n2→n3" {
		t.Fatalf("it is on %s", got)
	}
	since := f.seq()
	if r, err := f.set(t, "r1--r2", "bandwidth=500Mbit"); err != nil || !r.Changed {
		t.Fatalf("%+v, %v", r, err)
	}
	f.relay(t, "n1", true)
	f.relay(t, "n3", true)
	f.await(t, since, "lab/r1--r2", "PathChanged")
}
