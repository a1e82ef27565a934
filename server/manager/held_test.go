package manager

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
	"github.com/polyplane/polyplane/system/attack"
	"github.com/polyplane/polyplane/trust"
)

// goneOf are the networks that a node is told to let go of.
func goneOf(s model.NodeState) string {
	var names []string
	for _, g := range s.Gone {
		names = append(names, g.Name)
	}
	return strings.Join(names, " ")
}

// hold reports that a node holds a network.
func (f *fixture) hold(t *testing.T, node string, h ...model.HeldNetwork) {
	t.Helper()
	if err := f.Report(model.Report{Node: node, Held: h}); err != nil {
		t.Fatal(err)
	}
}

func TestANodeIsToldWhatIsGoneAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	f := start(t, dir, substrateOf(2))
	lab := f.apply(t, line("lab", 2), model.ApplyOptions{})
	index := lab.Record.Assigned.Index
	node := lab.Record.Assigned.Placement.Elements["r1"]
	identity := f.desired(t, node).Store
	if identity.ID == "" || identity.Generation != 1 || identity.Early {
		t.Fatalf("the store's identity is %+v", identity)
	}
	f.obey(t, "n1", nil)
	f.obey(t, "n2", nil)
	if g := goneOf(f.desired(t, node)); g != "" {
		t.Fatalf("told of as gone: %s", g)
	}
	if err := f.Delete(t.Context(), "lab", false); err != nil {
		t.Fatal(err)
	}
	if g := goneOf(f.desired(t, node)); g != "lab" {
		t.Fatalf("the deleted network is not told: %q", g)
	}
	f.obey(t, "n1", nil)
	f.obey(t, "n2", nil)
	f.await(t, 0, "lab", "NetworkDeleted")
	f.stop()

	// A node that was away meanwhile is told, over a restart, and without anybody having to decide.
	f = start(t, dir, model.Substrate{})
	if f.desired(t, node).Store.ID != identity.ID {
		t.Fatal("a restart has changed the store's identity")
	}
	f.hold(t, node, model.HeldNetwork{Name: "lab", Index: index, Elements: 2, Why: "x"})
	if g := goneOf(f.desired(t, node)); g != "lab" {
		t.Fatalf("the network that was deleted while the node was away is not told: %q", g)
	}
	// Another one of that name is not meant.
	f.hold(t, "n2", model.HeldNetwork{Name: "lab", Index: index + 7, Elements: 2, Why: "x"})
	if g := goneOf(f.desired(t, "n2")); node != "n2" && g != "" {
		t.Fatalf("another network of that name is told as gone: %q", g)
	}
}

func TestWhatTheStoreDoesNotKnowIsHeld(t *testing.T) {
	dir := t.TempDir()
	f := start(t, dir, substrateOf(2))
	before := f.seq()
	f.hold(t, "n1", model.HeldNetwork{Name: "lost", Index: 1, VNI: 5, Elements: 3, Why: "this is another store"})
	f.hold(t, "n2", model.HeldNetwork{Name: "lost", Index: 1, VNI: 9, Elements: 1, Why: "this is another store"})
	s := status(t, f.Manager, "lost")
	if s.Phase != model.PhaseHeld || s.Elements != 4 || strings.Join(s.Nodes, " ") != "n1 n2" {
		t.Fatalf("%+v", s)
	}
	for _, words := range []string{"recover --from-nodes lost", "delete lost", "unknown to this store",
		"this is another store"} {
		if !strings.Contains(s.Message, words) {
			t.Errorf("%q does not say %q", s.Message, words)
		}
	}
	f.await(t, before, "lost", "NetworkHeld")
	_, err := f.Apply(t.Context(), line("lost", 2), model.ApplyOptions{})
	if p := problem(t, err); p.Kind != api.KindConflict {
		t.Errorf("applied over what nodes hold: %v", p)
	}
	if _, err := f.Dump("lost", api.Parts{Elements: true}); problem(t, err).Kind != api.KindConflict ||
		!strings.Contains(err.Error(), "recover --from-nodes lost") {
		t.Errorf("its elements: %v", err)
	}
	for _, action := range []model.Action{model.ActionStop, model.ActionSuspend, model.ActionQuarantine} {
		_, err := f.Act(t.Context(), model.ID{Network: "lost", Element: "r1"}, action)
		if problem(t, err).Kind != api.KindConflict || !strings.Contains(err.Error(), "recover --from-nodes lost") {
			t.Errorf("%s: %v", action, err)
		}
	}
	_, err = f.Apply(t.Context(), line("other", 2), model.ApplyOptions{})
	if p := problem(t, err); p.Kind != api.KindConflict || !strings.Contains(p.Error(), "lost") {
		t.Errorf("placed on a node that follows another store: %v", p)
	}
	if _, err := f.Network("lost"); problem(t, err).Kind != api.KindConflict {
		t.Error(err)
	}
	if g := goneOf(f.desired(t, "n1")); g != "" {
		t.Fatalf("told of as gone: %s", g)
	}
	// One that is told to is let go of, by a node that was away as well, also over a restart.
	if err := f.Delete(t.Context(), "lost", true); err != nil {
		t.Fatal(err)
	}
	lost := model.GoneNetwork{Name: "lost", Now: true, Deleted: true}
	if d := f.desired(t, "n1"); len(d.Gone) != 1 || d.Gone[0] != lost {
		t.Fatalf("%+v", d.Gone)
	}
	f.obey(t, "n1", nil)
	f.obey(t, "n2", nil)
	if len(f.unknownHeld()) != 0 {
		t.Fatal("still held")
	}
	added := f.apply(t, line("other", 2), model.ApplyOptions{})
	if added.Record.Assigned.Index == 0 {
		t.Fatal(added)
	}
	f.stop()
	f = start(t, dir, model.Substrate{})
	f.hold(t, "n1", model.HeldNetwork{Name: "lost", Index: 1, VNI: 5, Elements: 3, Why: "x"})
	if g := goneOf(f.desired(t, "n1")); g != "lost" {
		t.Fatalf("after a restart: %q", g)
	}
}

// What a node shall let go of while it holds another network is there, and told of, until the node has removed it. It
// is no "removed", and nothing can take its name meanwhile.
func TestWhatIsLetGoOfIsShownUntilItIsGone(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	lab := model.HeldNetwork{Name: "lab", Index: 2, VNI: 9, Elements: 2, Why: "this is another store"}
	duo := model.HeldNetwork{Name: "duo", Index: 1, VNI: 5, Elements: 1, Why: "this is another store"}
	f.hold(t, "n1", duo, lab)
	if err := f.Delete(t.Context(), "lab", false); err != nil {
		t.Fatal(err)
	}
	if d := f.desired(t, "n1"); len(d.Gone) != 1 || !d.Gone[0].Deleted {
		t.Fatalf("%+v", d.Gone)
	}
	id := model.ID{Network: "lab", Element: "r1"}
	for what, r := range map[string]model.Report{
		"an agent that goes on with it": {Elements: []model.ElementStatus{{ID: id, Phase: model.PhaseRunning}}},
		"an agent that removes it":      {AtWork: []string{"lab"}},
	} {
		r.Node, r.Held = "n1", []model.HeldNetwork{duo}
		if err := f.Report(r); err != nil {
			t.Fatal(err)
		}
		s := status(t, f.Manager, "lab")
		if s.Phase != model.PhaseHeld || s.Running != len(r.Elements) ||
			!strings.Contains(s.Message, "told to let go of it") {
			t.Errorf("%s: %+v", what, s)
		}
		_, err := f.Apply(t.Context(), line("lab", 2), model.ApplyOptions{})
		if p := problem(t, err); p.Kind != api.KindConflict || !strings.Contains(p.Error(), "let go of it") {
			t.Errorf("%s: applied over it: %v", what, p)
		}
		if err := f.Delete(t.Context(), "lab", false); err != nil {
			t.Errorf("%s: deleted once more: %v", what, err)
		}
	}
	f.hold(t, "n1", duo)
	if names := strings.Join(f.unknownHeld(), " "); names != "duo" {
		t.Errorf("when it is gone, %s are held", names)
	}
}

// A quarantine that the store has lost, and that the node goes on with, is told.
func TestAQuarantineThatOnlyTheNodeKnowsIsTold(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	lab := f.apply(t, line("lab", 2), model.ApplyOptions{})
	f.obey(t, "n1", nil)
	f.hold(t, "n1", model.HeldNetwork{Name: "lab", Index: lab.Record.Assigned.Index, Elements: 2, Why: "it is older",
		Cut: []string{"r2", "no name/"}})
	d, err := f.Dump("lab", api.Parts{Elements: true})
	if err != nil || d.Elements[0].Quarantine != "" || !strings.Contains(d.Elements[1].Quarantine, "goes on with") {
		t.Errorf("%+v, %v", d.Elements, err)
	}
	all, err := f.Policies(t.Context(), "lab")
	if err != nil || len(all) != 2 || all[0].Quarantined || !all[1].Quarantined {
		t.Errorf("%+v, %v", all, err)
	}
}

// A network whose record is damaged is told of with the backup that has it and the commands that settle it, whatever is
// asked of it. What runs of it is counted, and shown until it is gone once it is deleted.
func TestADamagedNetworkIsTold(t *testing.T) {
	dir := t.TempDir()
	f := start(t, dir, substrateOf(1))
	f.apply(t, line("lab", 2), model.ApplyOptions{})
	f.apply(t, line("other", 2), model.ApplyOptions{})
	b := &backups{m: f.Manager, dir: f.dirs.Backups()}
	b.look(t.Context(), time.Now(), backupEvery)
	good := store.StoredBackups(b.dir)
	if len(good) != 1 {
		t.Fatal(good)
	}
	was := f.desired(t, "n1")
	if err := f.store.Spoil(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f = start(t, dir, model.Substrate{})
	b = &backups{m: f.Manager, dir: f.dirs.Backups()}
	if err := b.make(t.Context(), time.Now().Add(time.Second)); err != nil {
		t.Fatalf("all others are not backed up: %v", err)
	}
	if n := eventsOf(f, "BackupIncomplete"); n != 1 {
		t.Errorf("that the backup lacks a network is told %d times", n)
	}
	running := model.Report{Node: "n1"}
	for _, n := range was.Networks {
		for _, e := range n.Elements {
			running.Elements = append(running.Elements, model.ElementStatus{Phase: model.PhaseRunning,
				ID: model.ID{Network: n.Name, Element: e.Name}})
		}
	}
	if err := f.Report(running); err != nil {
		t.Fatal(err)
	}
	s := status(t, f.Manager, "lab")
	if !s.Damaged || s.Elements != 2 || s.Running != 2 {
		t.Errorf("%+v", s)
	}
	_, elements := f.Dump("lab", api.Parts{Elements: true})
	_, stop := f.Act(t.Context(), model.ID{Network: "lab", Element: "r1"}, model.ActionStop)
	for what, told := range map[string]string{"its status": s.Message, "its elements": elements.Error(),
		"stop": stop.Error()} {
		for _, words := range []string{"its checksum does not match", "restore " + good[0], "recover --from-nodes lab",
			"delete lab"} {
			if !strings.Contains(told, words) {
				t.Errorf("%s does not say %q: %s", what, words, told)
			}
		}
	}
	if d := f.desired(t, "n1"); len(d.Hold) != 1 || d.Hold[0] != "lab" {
		t.Errorf("the node is told to leave %v as it is", d.Hold)
	}
	if err := f.Delete(t.Context(), "lab", false); err != nil {
		t.Fatal(err)
	}
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhaseHeld || !strings.Contains(s.Message, "let go of it") {
		t.Errorf("while it runs: %+v", s)
	}
	running.Elements = running.Elements[2:]
	if err := f.Report(running); err != nil {
		t.Fatal(err)
	}
	if d, err := f.Dump("", api.Parts{Networks: true}); err != nil || len(d.Networks) != 1 {
		t.Errorf("when it is gone: %+v, %v", d.Networks, err)
	}
}

// Numbers of what is held are nobody else's.
func TestNumbersOfHeldNetworksAreTaken(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(3))
	f.hold(t, "n3", model.HeldNetwork{Name: "lost", Index: 1, VNI: 40, Elements: 3, Why: "x"})
	lab := line("lab", 2)
	lab.Elements[0].Node, lab.Elements[1].Node = "n1", "n2"
	a := f.apply(t, lab, model.ApplyOptions{}).Record.Assigned
	if a.Index == 1 || a.Links["r1--r2"].VNI <= 40 {
		t.Fatalf("index %d, VNI %d", a.Index, a.Links["r1--r2"].VNI)
	}
}

// A store that a polyplane without identities has made gets one, and says that it was there before.
func TestAnEarlierStoreIsGivenAnIdentity(t *testing.T) {
	dir := t.TempDir()
	f := start(t, dir, substrateOf(1))
	f.apply(t, line("lab", 1), model.ApplyOptions{})
	if err := f.store.ForgetIdentity(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f = start(t, dir, model.Substrate{})
	first := f.desired(t, "n1").Store
	if first.ID == "" || !first.Early {
		t.Fatalf("%+v", first)
	}
	f.stop()
	f = start(t, dir, model.Substrate{})
	if again := f.desired(t, "n1").Store; again.ID != first.ID || !again.Early {
		t.Fatalf("%+v after %+v", again, first)
	}
	f.stop()
	if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	f = start(t, dir, substrateOf(1))
	if other := f.desired(t, "n1").Store; other.ID == first.ID || other.Early {
		t.Fatalf("a new store: %+v", other)
	}
}

// A node that joined says that it holds networks that were never placed on it: they are nobody's, take no numbers, are
// in nobody's way, and are not taken in. What was placed there it is believed, though the store has lost all of it.
func TestAJoinedNodeHoldsOnlyWhatWasPlacedThere(t *testing.T) {
	attack.Tell(t, "a node that joined invents networks that it holds, with high numbers and others' names",
		"none of them is believed, shown, numbered or recovered")
	dir := t.TempDir()
	if _, err := trust.OpenAuthority(authorityDir(dir), "test"); err != nil {
		t.Fatal(err)
	}
	begin := func() *fixture {
		f := start(t, dir, substrateOf(3))
		f.mu.Lock()
		defer f.mu.Unlock()
		f.substrate.Nodes[0].Joined, f.nodes["n1"].Joined = true, true
		return f
	}
	f := begin()
	lab, others := line("lab", 2), line("others", 2)
	lab.Elements[0].Node, lab.Elements[1].Node = "n1", "n2"
	others.Elements[0].Node, others.Elements[1].Node = "n2", "n3"
	f.apply(t, lab, model.ApplyOptions{})
	index := f.apply(t, others, model.ApplyOptions{}).Record.Assigned.Index
	was, theirs := f.desired(t, "n1"), f.desired(t, "n2")
	if was.Networks[0].Seal == "" || theirs.Networks[0].Seal != "" {
		t.Fatalf("seals: %q on the node that joined, %q on this machine", was.Networks[0].Seal, theirs.Networks[0].Seal)
	}
	// A network of others, while the store knows it.
	before := f.seq()
	f.hold(t, "n1", model.HeldNetwork{Name: "others", Index: index + 9, Elements: 2, Why: "x"})
	if on := f.nodes.heldOn("others"); len(on) != 0 {
		t.Errorf("believed about others' network: %+v", on)
	}
	f.await(t, before, "n1", "ReportRefused")
	f.stop()

	if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	f = begin()
	mine := was.Networks[0].Held()
	mine.Why = "this is another store"
	lies := []model.HeldNetwork{{Name: "ghost", Index: 77, VNI: 1<<24 - 2, Elements: 3, Why: "x"}}
	for _, lie := range []func(*model.HeldNetwork){
		func(h *model.HeldNetwork) { h.Name = "others" },
		func(h *model.HeldNetwork) { h.Index++ },
		func(h *model.HeldNetwork) { h.Index = 0 },
		func(h *model.HeldNetwork) { h.VNI = 1<<24 - 2 },
		func(h *model.HeldNetwork) { h.Owner = "mallory" },
		func(h *model.HeldNetwork) { h.Seal = "" },
	} {
		h := mine
		lie(&h)
		lies = append(lies, h)
	}
	for _, h := range lies {
		f.hold(t, "n1", h)
		if on := f.nodes.heldOn(h.Name); len(on) != 0 || len(f.unknownHeld()) != 0 {
			t.Fatalf("%+v is believed: %+v", h, on)
		}
		f.mu.RLock()
		problem := f.nodes["n1"].heldProblem()
		f.mu.RUnlock()
		if !strings.Contains(problem, "network "+h.Name+", and nothing shows") {
			t.Errorf("%q", problem)
		}
	}
	if n := eventsOf(f, "NetworkHeld"); n != 0 {
		t.Errorf("%d events of networks that nobody has", n)
	}
	_, err := f.Apply(t.Context(), lab, model.ApplyOptions{})
	if p := problem(t, err); p.Kind != api.KindConflict || !strings.Contains(p.Error(), "nothing shows") {
		t.Errorf("placed on a node that follows nothing: %v", p)
	}
	f.hold(t, "n1", mine)
	if on := f.nodes.heldOn("lab"); len(on) != 1 || on["n1"].Index != mine.Index {
		t.Fatalf("what was placed there is not believed: %+v", on)
	}

	// What it tells of itself when networks are put together again.
	invented := was.Networks[0]
	invented.Name = "others"
	stolen := was.Networks[0]
	stolen.Owner = "mallory"
	for name, c := range map[string]struct {
		told model.NodeNetwork
	}{
		"its own":                 {was.Networks[0]},
		"others'":                 {invented},
		"its own, but somebody's": {stolen},
	} {
		f.mu.RLock()
		parts, unbelieved := f.believedParts(map[string]model.NodeState{"n1": {Networks: []model.NodeNetwork{c.told}},
			"n2": theirs,
			"n3": {Networks: []model.NodeNetwork{{Name: "others"}}}})
		f.mu.RUnlock()
		if nodes := strings.Join(slices.Sorted(maps.Keys(parts[c.told.Name])), " "); strings.Contains(nodes,
			"n1") != (name == "its own") ||
			len(unbelieved) != map[bool]int{true: 0, false: 1}[name == "its own"] {
			t.Errorf("%s: %s are believed; not believed: %q", name, nodes, unbelieved)
		}
	}
}
