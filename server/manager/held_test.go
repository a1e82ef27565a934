package manager

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
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
	if d := f.desired(t, "n1"); len(d.Gone) != 1 || d.Gone[0] != (model.GoneNetwork{Name: "lost", Now: true}) {
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
