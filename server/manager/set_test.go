package manager

import (
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

func (f *fixture) set(t *testing.T, object string, values ...string) (model.SetResult, error) {
	t.Helper()
	r := model.SetRequest{Object: object}
	for _, v := range values {
		key, value, _ := strings.Cut(v, "=")
		r.Values = append(r.Values, model.Assignment{Key: key, Value: value})
	}
	return f.Set(t.Context(), "lab", r)
}

// What is set is told to the nodes that have it, stays through applies that leave it out and through a restart, and
// goes with one that names it.
func TestSet(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	doc := line("lab", 2)
	doc.Elements[0].Node, doc.Elements[1].Node = "n1", "n2"
	f.apply(t, doc, model.ApplyOptions{})
	r, err := f.set(t, "r1", "cpu=0.5", "memory=64MiB")
	if err != nil || !r.Changed || r.Before.Network.Elements[0].CPU != 0 || r.Record.Network.Elements[0].CPU != 500 {
		t.Fatalf("%+v, %v", r, err)
	}
	if e := f.desired(t, "n1").Networks[0].Elements[0]; e.CPU != 500 || e.Memory != 64<<20 {
		t.Errorf("n1 is told %+v", e)
	}
	if len(r.Nodes) != 1 || r.Nodes["n1"] != f.desired(t, "n1").Revision {
		t.Errorf("told: %v", r.Nodes)
	}
	if r, err = f.set(t, "r1--r2", "bandwidth=10Mbit", "loss=1%"); err != nil || len(r.Nodes) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if s := f.desired(t, "n2").Networks[0].Elements[0].Interfaces[0].Shape; s == nil ||
		s.Bandwidth != 1e7 || s.Loss != 0.01 {
		t.Errorf("n2 is told %+v", s)
	}
	if r, err = f.set(t, "r1", "cpu=0.5"); err != nil || r.Changed {
		t.Errorf("once more: %+v, %v", r, err)
	}
	if a, err := f.Apply(t.Context(), doc, model.ApplyOptions{}); err != nil || a.Changed {
		t.Errorf("the document leaves it out: %+v, %v", a, err)
	}
	f.stop()
	f = start(t, f.dir, substrateOf(2))
	doc.Elements[0].CPU = 250
	f.apply(t, doc, model.ApplyOptions{})
	if n := mustNetwork(t, f, "lab").Network; n.Elements[0].CPU != 250 || n.Elements[0].Memory != 64<<20 ||
		n.Links[0].Bandwidth != 1e7 {
		t.Errorf("after an apply that names cpu: %+v", n)
	}
	doc.Elements[0].CPU = 0 // the document's to take back
	f.apply(t, doc, model.ApplyOptions{})
	doc.Zeros.Links = map[string][]string{"r1--r2": {"loss"}}
	f.apply(t, doc, model.ApplyOptions{})
	if n := mustNetwork(t, f, "lab").Network; n.Links[0].Loss != 0 || n.Links[0].Bandwidth != 1e7 ||
		n.Zeros.Links != nil {
		t.Errorf("after an apply that says loss: 0: %+v", n)
	}
	doc.Zeros = model.Settings{}
	if _, err := f.set(t, "r1", "memory="); err != nil {
		t.Error(err)
	}
	if n := mustNetwork(t, f, "lab").Network; n.Elements[0].CPU != 0 || n.Elements[0].Memory != 0 {
		t.Errorf("all taken back: %+v", n.Elements[0])
	}
}

// A link that was stopped is told to both its ends' nodes, stays stopped through applies that say nothing of it and
// through a restart, and is told of in events.
func TestStoppedLinksStaySo(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	doc := line("lab", 2)
	doc.Elements[0].Node, doc.Elements[1].Node = "n1", "n2"
	f.apply(t, doc, model.ApplyOptions{})
	is := func(what string, want bool) {
		t.Helper()
		for _, node := range []string{"n1", "n2"} {
			for _, e := range f.desired(t, node).Networks[0].Elements {
				for _, i := range e.Interfaces {
					if i.Link == "r1--r2" && (i.Far.Down != want || i.Far.Stopped != want) ||
						i.Link != "r1--r2" && i.Far.Down {
						t.Errorf("%s: %s is told that %s:%s has the far end %+v", what, node, e.Name, i.Name, i.Far)
					}
				}
			}
		}
	}
	since := f.seq()
	if r, err := f.set(t, "r1--r2", "state=down"); err != nil || !r.Changed || len(r.Nodes) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	f.await(t, since, "lab/r1--r2", "LinkStopped")
	is("stopped", true)
	if a, err := f.Apply(t.Context(), doc, model.ApplyOptions{}); err != nil || a.Changed {
		t.Errorf("the document leaves it out: %+v, %v", a, err)
	}
	f.stop()
	f = start(t, f.dir, substrateOf(2))
	is("after a restart", true)
	since = f.seq()
	if _, err := f.set(t, "r1--r2", "state="); err != nil {
		t.Fatal(err)
	}
	f.await(t, since, "lab/r1--r2", "LinkStarted")
	is("started", false)
	doc.Links = slices.Clone(doc.Links) // the manager has the others
	doc.Links[0].State = model.LinkDown
	f.apply(t, doc, model.ApplyOptions{})
	is("by the document", true)
	doc.Links = slices.Clone(doc.Links)
	doc.Links[0].State = ""
	f.apply(t, doc, model.ApplyOptions{})
	is("no longer by the document", false)
	if _, err := f.set(t, "r1--r2", "state=broken"); err == nil ||
		!strings.Contains(err.Error(), `state: "broken" is unknown; there are up or down`) {
		t.Errorf("a state that is none: %v", err)
	}
	doc.Links[0].State = "broken"
	if _, err := f.Apply(t.Context(), doc, model.ApplyOptions{}); err == nil ||
		!strings.Contains(err.Error(), `state "broken" is unknown`) {
		t.Errorf("a document's state that is none: %v", err)
	}
}

func TestRefusedSetsChangeNothing(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, line("lab", 2), model.ApplyOptions{})
	before := mustNetwork(t, f, "lab")
	for _, c := range []struct {
		object, values, want string
		kind                 api.Kind
	}{
		{"r1", "cpu=1 memory=1MiB", "router r1: memory 1MiB is less than the 8MiB", api.KindInvalid},
		{"r1", "cpu=1 speed=2", `no key "speed"`, api.KindInvalid},
		{"r1", "cpu=1 forwarding=openflow", " wants forwarding: ", api.KindInvalid},
		{"r1--r2", "bandwidth=1bit", "link r1--r2: ", api.KindInvalid},
		{"r1", "cpu=100", "does not fit onto the substrate", api.KindInvalid},
		{"r9", "cpu=1", "neither an element nor a link called r9", api.KindNotFound},
	} {
		if c.values == "cpu=1 forwarding=openflow" {
			f.register(t, "n1", model.ForwardGuest)
		}
		_, err := f.set(t, c.object, strings.Fields(c.values)...)
		if p := problem(t, err); p.Kind != c.kind || !strings.Contains(p.Error(), c.want) {
			t.Errorf("%s %s: %v %v, want %q", c.object, c.values, p.Kind, p, c.want)
		}
	}
	if now := mustNetwork(t, f, "lab"); now.Revision != before.Revision || now.Network.Elements[0].CPU != 0 {
		t.Errorf("%+v was changed to %+v", before, now)
	}
}

func TestSuspendedElements(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, line("lab", 2), model.ApplyOptions{})
	id := model.ID{Network: "lab", Element: "r1"}
	act := func(a model.Action, want model.Override) {
		t.Helper()
		if _, err := f.Act(t.Context(), id, a); err != nil {
			t.Fatal(err)
		}
		if is := mustNetwork(t, f, "lab").Overrides["r1"]; is != want {
			t.Errorf("after %s: %+v, want %+v", a, is, want)
		}
	}
	_, end := f.watch(t, "n1")
	defer end()
	act(model.ActionSuspend, model.Override{Suspended: true})
	f.obey(t, "n1", map[string]model.Phase{"lab/r1": model.PhaseSuspended})
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhaseRunning || s.Suspended != 1 || s.Running != 1 {
		t.Errorf("the network is %+v", s)
	}
	act(model.ActionResume, model.Override{})
	act(model.ActionSuspend, model.Override{Suspended: true})
	act(model.ActionRestart, model.Override{Restarts: 1})
	act(model.ActionStop, model.Override{Stopped: true, Restarts: 1})
	if _, err := f.Act(t.Context(), id, model.ActionSuspend); problem(t, err).Kind != api.KindConflict {
		t.Errorf("suspending a stopped element: %v", err)
	}
	act(model.ActionStart, model.Override{Restarts: 1})
	// A quarantine is ended by nothing but a release.
	act(model.ActionQuarantine, model.Override{Quarantined: true, Reason: "by hand", Held: true, Restarts: 1})
	act(model.ActionStop, model.Override{Quarantined: true, Reason: "by hand", Held: true, Stopped: true, Restarts: 1})
	act(model.ActionStart, model.Override{Quarantined: true, Reason: "by hand", Held: true, Restarts: 1})
	act(model.ActionSuspend, model.Override{Quarantined: true, Reason: "by hand", Held: true,
		Suspended: true, Restarts: 1})
	act(model.ActionResume, model.Override{Quarantined: true, Reason: "by hand", Held: true, Restarts: 1})
	f.apply(t, line("lab", 3), model.ApplyOptions{})
	act(model.ActionRelease, model.Override{Restarts: 1})
}

func TestQuotas(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	quota := func(kind model.QuotaKind, name string, values ...string) error {
		r := model.QuotaRequest{}
		for _, v := range values {
			key, value, _ := strings.Cut(v, "=")
			r.Values = append(r.Values, model.Assignment{Key: key, Value: value})
		}
		_, err := f.SetQuota(t.Context(), kind, name, r)
		return err
	}
	alice, bob := model.ApplyOptions{Owner: "alice"}, model.ApplyOptions{Owner: "bob"}
	f.apply(t, line("lab", 3), alice)
	if err := quota(model.QuotaOfOwner, "alice", "elements=5", "networks=2"); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f = start(t, f.dir, substrateOf(1)) // they are stored
	_, err := f.Apply(t.Context(), line("two", 3), alice)
	if p := problem(t, err); !strings.Contains(p.Error(),
		"owner alice's quota of elements is 5: it asks for 3, other networks have 3, which is 1 too much") {
		t.Errorf("too many elements: %v", err)
	}
	f.apply(t, line("two", 3), bob)
	f.apply(t, line("three", 2), alice)
	_, err = f.Apply(t.Context(), line("four", 1), alice)
	if p := problem(t, err); !strings.Contains(p.Error(), "quota of networks is 2") {
		t.Errorf("too many networks: %v", err)
	}
	// Bob's becomes Alice's only if it fits; who applies it again does not matter.
	r := model.SetRequest{Values: []model.Assignment{{Key: "owner", Value: "alice"}}}
	if _, err := f.Set(t.Context(), "two", r); err == nil || !strings.Contains(err.Error(), "alice's quota") {
		t.Errorf("given to alice: %v", err)
	}
	f.apply(t, line("two", 4), alice)
	// A quota below what there is refuses only more.
	if err := quota(model.QuotaOfNetwork, "two", "elements=2"); err != nil {
		t.Fatal(err)
	}
	f.apply(t, line("two", 3), bob)
	if _, err := f.Apply(t.Context(), line("two", 4), bob); err == nil ||
		!strings.Contains(err.Error(), "network two's quota of elements is 2") {
		t.Errorf("more than a quota: %v", err)
	}
	if err := quota(model.QuotaOfNetwork, "two", "networks=2"); err == nil {
		t.Error("a network has a quota of networks")
	}
	all := map[string]model.QuotaStatus{}
	for _, q := range f.Quotas() {
		all[string(q.Kind)+"/"+q.Name] = q
	}
	if q := all["owner/alice"]; q.Limit.Elements != 5 || q.Used.Elements != 5 || q.Used.Networks != 2 {
		t.Errorf("alice has %+v", q)
	}
	if q := all["network/two"]; q.Limit.Elements != 2 || q.Used.Elements != 3 {
		t.Errorf("two has %+v", q)
	}
	// Users of a directory have names that networks cannot have.
	if err := quota(model.QuotaOfOwner, "dan@example.org", "networks=1"); err != nil {
		t.Fatal(err)
	}
	dan := model.ApplyOptions{Owner: "dan@example.org"}
	f.apply(t, line("dans", 1), dan)
	if _, err := f.Apply(t.Context(), line("more", 1), dan); err == nil ||
		!strings.Contains(err.Error(), "quota of networks is 1") {
		t.Errorf("one more: %v", err)
	}
	for _, name := range []string{"", "two words", "\xff"} {
		if err := quota(model.QuotaOfOwner, name, "networks=1"); err == nil {
			t.Errorf("%q has a quota", name)
		}
	}
	if r := f.apply(t, line("odd", 1), model.ApplyOptions{Owner: "jos\xe9"}); r.Record.Owner != "jos?" {
		t.Errorf("the owner is %q", r.Record.Owner)
	}
	// Of cores, every element with processes must state its share.
	if err := quota(model.QuotaOfOwner, "carol", "cpu=1"); err != nil {
		t.Fatal(err)
	}
	bird := line("carols", 2)
	bird.Elements[0].Software, bird.Elements[0].CPU = model.SoftwareBIRD, 500
	f.apply(t, bird, model.ApplyOptions{Owner: "carol"})
	bird.Elements[1].Software = model.SoftwareBIRD
	if _, err := f.Apply(t.Context(), bird, model.ApplyOptions{}); err == nil ||
		!strings.Contains(err.Error(), "without cpu: r2 would not be limited") {
		t.Errorf("without cpu: %v", err)
	}
	if err := quota(model.QuotaOfOwner, "alice", "elements=", "networks="); err != nil {
		t.Fatal(err)
	}
	f.apply(t, line("four", 20), alice)
}
