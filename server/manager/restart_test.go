package manager

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

func TestDeleteWaitsForTheNodesAndSurvivesARestart(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	lab := f.apply(t, line("lab", 4), model.ApplyOptions{})
	f.apply(t, line("other", 2), model.ApplyOptions{})
	for _, n := range []string{"n1", "n2"} {
		_, end := f.watch(t, n)
		defer end()
		f.obey(t, n, nil)
	}
	if err := f.Delete(t.Context(), "lab", false); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"n1", "n2"} {
		for _, nn := range f.desired(t, n).Networks {
			if nn.Name == "lab" {
				t.Fatalf("%s is still told of the deleted network", n)
			}
		}
	}
	f.obey(t, "n1", nil)
	if s := status(t, f.Manager, "lab"); !s.Deleting {
		t.Fatalf("%+v", s)
	}
	_, err := f.Apply(t.Context(), line("lab", 4), model.ApplyOptions{})
	if p := problem(t, err); p.Kind != api.KindConflict {
		t.Fatal(p)
	}

	f.stop()
	f = start(t, f.dir, model.Substrate{})
	if s := status(t, f.Manager, "lab"); !s.Deleting {
		t.Fatalf("after the restart: %+v", s)
	}
	placed := map[string]bool{}
	for _, n := range lab.Record.Assigned.Placement.Elements {
		placed[n] = true
	}
	for n := range placed {
		if s := status(t, f.Manager, "lab"); !s.Deleting {
			t.Fatalf("gone before node %s had let go", n)
		}
		f.obey(t, n, nil)
	}
	f.await(t, 0, "lab", "NetworkDeleted")
	if _, err := f.Network("lab"); problem(t, err).Kind != api.KindNotFound {
		t.Fatal(err)
	}
	if _, err := f.Network("other"); err != nil {
		t.Fatal(err)
	}
	// Its name and its number are free again.
	if r := f.apply(t, line("lab", 2), model.ApplyOptions{}); r.Record.Revision != 1 ||
		r.Record.Assigned.Index != lab.Record.Assigned.Index {
		t.Errorf("made anew: revision %d, index %d", r.Record.Revision, r.Record.Assigned.Index)
	}
}

func TestRestartTellsTheSame(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(3))
	f.apply(t, line("b", 5), model.ApplyOptions{})
	f.apply(t, line("a", 7), model.ApplyOptions{})
	if _, err := f.Act(t.Context(), model.ID{Network: "a", Element: "r3"}, model.ActionStop); err != nil {
		t.Fatal(err)
	}
	before := map[string]model.NodeState{}
	for n := range f.nodes {
		before[n] = f.desired(t, n)
	}
	f.stop()
	f = start(t, f.dir, model.Substrate{})
	for n, was := range before {
		is := f.desired(t, n)
		if is.Revision < was.Revision {
			t.Errorf("node %s: revision fell from %d to %d", n, was.Revision, is.Revision)
		}
		is.Revision = was.Revision
		if !reflect.DeepEqual(is, was) {
			t.Errorf("node %s is told something else after a restart", n)
		}
	}
}

func TestDamagedNetworkIsHeldAndItsNumbersStayTaken(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, line("fine", 2), model.ApplyOptions{})
	broken := f.apply(t, line("broken", 3), model.ApplyOptions{}) // the last, so that its VNIs are the highest
	record := mustNetwork(t, f, "broken")
	// A record that no version of this code writes: its content contradicts itself.
	record.Network.Links[0].Ends[0].Element = "nobody"
	record.Revision++
	if _, err := f.store.Put(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f = start(t, f.dir, model.Substrate{})
	s := f.desired(t, "n1")
	if !reflect.DeepEqual(s.Hold, []string{"broken"}) || len(s.Networks) != 1 || s.Networks[0].Name != "fine" {
		t.Fatalf("hold %v, networks %d", s.Hold, len(s.Networks))
	}
	if st := status(t, f.Manager, "broken"); st.Phase != model.PhaseFailed || st.Message == "" {
		t.Errorf("%+v", st)
	}
	_, err := f.Apply(t.Context(), line("broken", 3), model.ApplyOptions{})
	if p := problem(t, err); p.Kind != api.KindConflict {
		t.Error(p)
	}
	third := f.apply(t, line("third", 2), model.ApplyOptions{}).Record.Assigned
	if third.Index == broken.Record.Assigned.Index {
		t.Error("the damaged network's number was given away")
	}
	for _, l := range broken.Record.Assigned.Links {
		if l.VNI == third.Links["r1--r2"].VNI {
			t.Errorf("the damaged network's VNI %d was given away: two tenants would share a tunnel", l.VNI)
		}
	}
	all, _ := f.Events(0)
	if len(all) == 0 || all[0].Reason != "ManagerStarted" || !strings.Contains(all[0].Message, "with 2 networks") {
		t.Errorf("the first event of a manager's life: %+v", all)
	}
	if err := f.Delete(t.Context(), "broken", false); err != nil {
		t.Fatal(err)
	}
	if s := f.desired(t, "n1"); len(s.Hold) != 0 {
		t.Error("a forgotten network is still held")
	}
}

// Right after a manager was killed nothing is told of what runs until its node has, or has not in time.
func TestAfterARestartReportsAreWaitedFor(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, line("lab", 2), model.ApplyOptions{})
	f.stop()
	f = start(t, f.dir, model.Substrate{})
	late := patient{f.Manager, f.restored(t.Context(), 0), 0}
	if d, err := late.Dump("", api.Parts{Networks: true}); err != nil || d.Networks[0].Phase != model.PhasePending {
		t.Fatalf("with no patience: %+v, %v", d, err)
	}
	id := model.ID{Network: "lab", Element: "r1"}
	if _, err := late.Agent(t.Context(), id); problem(t, err).Kind != api.KindUnavailable {
		t.Fatal(err)
	}
	p := patient{f.Manager, f.restored(t.Context(), time.Minute), time.Minute}
	dumped, reached := make(chan model.Dump), make(chan error)
	go func() {
		d, err := p.Dump("", api.Parts{Networks: true, Elements: true})
		if err != nil {
			t.Error(err)
		}
		dumped <- d
	}()
	go func() {
		_, err := p.Agent(t.Context(), id)
		reached <- err
	}()
	_, end := f.watch(t, "n1")
	f.obey(t, "n1", nil)
	if d := <-dumped; d.Networks[0].Running != 2 || d.Elements[0].Phase != model.PhaseRunning {
		t.Errorf("after the first report: %+v", d)
	}
	if err := <-reached; err != nil {
		t.Error(err)
	}
	// The agent is killed: what it told last counts.
	end()
	d, err := p.Dump("", api.Parts{Networks: true, Elements: true})
	if err != nil || d.Networks[0].Running != 0 || d.Networks[0].Unknown != 2 || d.Elements[0].LastTold == 0 ||
		d.Elements[0].Phase != model.PhaseRunning || !strings.Contains(d.Elements[0].Message,
		"agent of node n1 is away") {
		t.Errorf("with the agent away: %+v, %v", d, err)
	}
	// One that is back, and has not looked yet, finds no elements.
	_, end = f.watch(t, "n1")
	defer end()
	if _, err := late.Agent(t.Context(), id); problem(t, err).Kind != api.KindUnavailable {
		t.Error(err)
	}
	f.obey(t, "n1", nil)
	if _, err := late.Agent(t.Context(), id); err != nil {
		t.Error(err)
	}
}
