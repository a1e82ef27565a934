package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// tells has a node report an incident of one element, beside that all of them run.
func (f *fixture) tells(t *testing.T, node string, id model.ID, i *model.Incident) {
	t.Helper()
	r := model.Report{Node: node}
	for _, n := range f.desired(t, node).Networks {
		for _, e := range n.Elements {
			s := model.ElementStatus{ID: model.ID{Network: n.Name, Element: e.Name}, Phase: model.PhaseRunning}
			if s.ID == id {
				s.Incident = i
			}
			r.Elements = append(r.Elements, s)
		}
	}
	if err := f.Report(r); err != nil {
		t.Fatal(err)
	}
}

// override is what is set on r2 of network lab once it has been decided about an incident, which is what this node is
// told, too.
func (f *fixture) decided(t *testing.T, i *model.Incident) model.Override {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		for _, e := range f.desired(t, "n1").Networks[0].Elements {
			if e.Name == "r2" && e.Decided >= i.At.UnixNano() {
				return e.Override
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nothing was decided")
	return model.Override{}
}

func TestPoliciesDecide(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	id := model.ID{Network: "lab", Element: "r2"}
	incident := func() *model.Incident {
		return &model.Incident{At: time.Now(), Signal: "scan", What: "scans\nthe others\x1b[0m"}
	}
	doc := line("lab", 3)
	doc.Attack = model.AttackStop
	f.apply(t, doc, model.ApplyOptions{})
	if e := f.desired(t, "n1").Networks[0].Elements[1]; e.Attack != model.AttackStop {
		t.Errorf("the node is told of policy %q", e.Attack)
	}
	policy := func(attack model.AttackPolicy, element string) {
		t.Helper()
		if _, err := f.SetPolicy(t.Context(), "lab",
			model.PolicyRequest{Element: element, Attack: attack}); err != nil {
			t.Fatal(err)
		}
	}

	i := incident()
	f.tells(t, "n1", id, i)
	if o := f.decided(t, i); !o.Stopped || o.Quarantined {
		t.Errorf("stop: %+v", o)
	}
	if _, err := f.Act(t.Context(), id, model.ActionStart); err != nil {
		t.Fatal(err)
	}

	// An administrator's policy comes before the file's, and stays over applies; the element's before the network's.
	policy(model.AttackTell, "")
	policy(model.AttackQuarantine, "r2")
	doc.Elements[1].Attack = model.AttackTell
	f.apply(t, doc, model.ApplyOptions{})
	views, err := f.Policies(t.Context(), "lab")
	if err != nil || views[1].Attack != model.AttackQuarantine || !views[1].Administrator ||
		views[0].Attack != model.AttackTell {
		t.Fatalf("policies are %+v, %v", views, err)
	}
	i = incident()
	f.tells(t, "n1", id, i)
	o := f.decided(t, i)
	if !o.Quarantined || o.Stopped || !o.Held || o.Reason != "scans the others[0m" {
		t.Errorf("quarantine: %+v", o)
	}
	// It is told once, and stays over an apply and over a restart of the manager; its owner cannot end it.
	f.tells(t, "n1", id, i)
	f.apply(t, line("lab", 4), model.ApplyOptions{})
	dir := f.dir
	f.stop()
	f = start(t, dir, substrateOf(1))
	if o := f.decided(t, i); !o.Quarantined {
		t.Errorf("after a restart of the manager: %+v", o)
	}
	if d, err := f.Dump("lab", api.Parts{Elements: true}); err != nil || d.Elements[1].Quarantine != o.Reason {
		t.Errorf("users see %+v, %v", d.Elements[1].ElementStatus, err)
	}
	if o := o; problem(t, release(&o, id, "alice")).Kind != api.KindForbidden || !o.Quarantined {
		t.Errorf("its owner releases what an administrator's policy cut off: %+v", o)
	}
	if _, err := f.Act(t.Context(), id, model.ActionRelease); err != nil {
		t.Fatal(err)
	}
	f.tells(t, "n1", id, i) // a report that is late
	time.Sleep(100 * time.Millisecond)
	if o := f.decided(t, i); o.Quarantined {
		t.Errorf("after its release an old incident counts again: %+v", o)
	}

	// Policy tell: the node must join the links again.
	policy(model.AttackTell, "r2")
	i = incident()
	f.tells(t, "n1", id, i)
	if o := f.decided(t, i); o.Quarantined || o.Stopped {
		t.Errorf("tell: %+v", o)
	}

	policy(model.AttackDelete, "r2")
	f.tells(t, "n1", id, incident())
	deadline := time.Now().Add(20 * time.Second)
	for {
		n := f.desired(t, "n1").Networks[0]
		if len(n.Elements) == 3 && n.Elements[1].Name == "r3" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("r2 was not taken out: %d elements", len(n.Elements))
		}
		time.Sleep(5 * time.Millisecond)
	}
	events, _ := f.Events(0)
	said := false
	for _, e := range events {
		said = said || strings.Contains(e.Message, "lab/r2 was taken out")
	}
	if !said {
		t.Errorf("nobody was told that r2 was taken out: %+v", events)
	}
}

// An attacker is taken out also where mirrors of its links, forwarded ports and expectations name it, and what an
// administrator has decided about it counts again when it comes anew.
func TestTakingOutTakesWhatNamesIt(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	id := model.ID{Network: "lab", Element: "r2"}
	doc := line("lab", 3)
	doc.Elements = append(doc.Elements, model.Element{Name: "ids", Kind: model.Host},
		model.Element{Name: "h", Kind: model.Host})
	doc.Links = append(doc.Links,
		model.Link{Name: "h--r3", Ends: [2]model.End{{Element: "h", Interface: "r3"}, {Element: "r3", Interface: "h"}}})
	doc.Edges = append(doc.Edges,
		model.Edge{Name: "ids--tap", End: model.End{Element: "ids", Interface: "tap"},
			Mirror: &model.Mirror{Link: "r1--r2"}},
		model.Edge{Name: "ids--tap2", End: model.End{Element: "ids", Interface: "tap2"},
			Mirror: &model.Mirror{Link: "h--r3"}},
		model.Edge{Name: "r3--net", End: model.End{Element: "r3", Interface: "net"},
			Internet: &model.Internet{Forwards: []model.Forward{
				{Port: 2222, Element: "r2", To: 22}, {Port: 2223, Element: "h", To: 22}}}})
	doc.Expect = append(doc.Expect, model.Expectation{From: "r1", To: "r2"}, model.Expectation{From: "h", To: "r3"})
	f.apply(t, doc, model.ApplyOptions{Owner: "alice"})
	if _, err := f.SetPolicy(t.Context(), "lab",
		model.PolicyRequest{Element: "r2", Attack: model.AttackDelete}); err != nil {
		t.Fatal(err)
	}
	f.tells(t, "n1", id, &model.Incident{At: time.Now(), Signal: "scan", What: "scans"})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		r, err := f.Network("lab")
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Network.Elements) == 4 {
			if len(r.Network.Edges) != 2 || len(r.Network.Expect) != 1 ||
				len(r.Network.Edges[1].Internet.Forwards) != 1 {
				t.Errorf("left is %+v", r.Network)
			}
			break
		}
		if o := r.Overrides["r2"]; o.Quarantined || time.Now().After(deadline) {
			t.Fatalf("r2 was not taken out: %+v", o)
		}
	}
	if len(doc.Edges[2].Internet.Forwards) != 2 {
		t.Error("the document that was given was changed")
	}
	f.apply(t, doc, model.ApplyOptions{Owner: "alice"})
	if r, _ := f.Network("lab"); r.Policies["r2"] != model.AttackDelete {
		t.Errorf("made anew, the administrator's policy is lost: %+v", r.Policies)
	}
}

// An incident of a time that no clock shows is none: it would have all later ones not count.
func TestIncidentsOfNoTime(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	doc := line("lab", 2)
	doc.Attack = model.AttackQuarantine
	f.apply(t, doc, model.ApplyOptions{})
	id := model.ID{Network: "lab", Element: "r2"}
	for _, at := range []time.Time{{}, time.Date(2262, 6, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		f.tells(t, "n1", id, &model.Incident{At: at, What: strings.Repeat("x", 1<<20)})
		f.mu.RLock()
		i := f.nodes["n1"].elements[id].Incident
		f.mu.RUnlock()
		if i != nil {
			t.Errorf("an incident of %s is taken", at)
		}
	}
	i := &model.Incident{At: time.Now(), What: strings.Repeat("x", 1<<20)}
	f.tells(t, "n1", id, i)
	if o := f.decided(t, i); !o.Quarantined {
		t.Errorf("a later incident: %+v", o)
	}
}

// A node that is not where an element is placed has no say about it.
func TestIncidentsOfOthersElementsDoNotCount(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	doc := line("lab", 2)
	doc.Attack = model.AttackQuarantine
	for i := range doc.Elements {
		doc.Elements[i].Node = "n1"
	}
	f.apply(t, doc, model.ApplyOptions{})
	id := model.ID{Network: "lab", Element: "r2"}
	i := &model.Incident{At: time.Now(), What: "lies"}
	if err := f.Report(model.Report{Node: "n2",
		Elements: []model.ElementStatus{{ID: id, Phase: model.PhaseRunning, Incident: i}}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	f.mu.RLock()
	o := f.networks["lab"].record.Overrides["r2"]
	f.mu.RUnlock()
	if o != (model.Override{}) {
		t.Errorf("another node's word counted: %+v", o)
	}
}

// What is kept of what owners delete is kept over restarts, and nobody can have more of it kept than there is room for.
func TestRestraintsAreKept(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	lost := func(n int) (all []model.Restraint) {
		for i := range n {
			all = append(all, model.Restraint{Owner: "alice",
				ID: model.ID{Network: "lab", Element: fmt.Sprintf("h%d", i)}, Quarantined: true, Reason: "scans"})
		}
		return all
	}
	keep := func(all []model.Restraint) error {
		f.changing.Lock()
		defer f.changing.Unlock()
		return f.restraints.keep(t.Context(), all)
	}
	if err := keep(lost(maxRestraints)); err != nil {
		t.Fatal(err)
	}
	if err := keep(lost(maxRestraints)); err != nil {
		t.Errorf("what is kept already, once more: %v", err)
	}
	if p := problem(t, keep(lost(maxRestraints+1))); p.Kind != api.KindForbidden ||
		!strings.Contains(p.Error(), "quarantine list") {
		t.Errorf("more than may be kept: %v", p)
	}
	dir := f.dir
	f.stop()
	f = start(t, dir, substrateOf(1))
	if !slices.Equal(f.restraints.all(), sorted(lost(maxRestraints))) {
		t.Errorf("after a restart %d are kept: %+v", len(f.restraints.all()), f.restraints.all())
	}
	doc := line("lab", 2)
	r := model.Record{Network: doc, Owner: "alice", Policies: model.Policies{"": model.AttackStop,
		"r2": model.AttackTell},
		Overrides: map[string]model.Override{"r1": {Quarantined: true, Held: true, Reason: strings.Repeat("ä", 500)},
			"r2": {Quarantined: true}}}
	all := restraintsOf(&r, nil)
	if len(all) != 3 || all[0].Attack != model.AttackStop || !all[1].Quarantined || len(all[1].Reason) > maxKeptReason+
		3 || all[2].Quarantined {
		t.Errorf("of a deleted network is kept %+v", all)
	}
	if all := restraintsOf(&r, &doc); all != nil {
		t.Errorf("of what stays is kept %+v", all)
	}
}

func sorted(all []model.Restraint) []model.Restraint {
	slices.SortFunc(all, func(a, b model.Restraint) int { return strings.Compare(a.ID.Element, b.ID.Element) })
	return all
}
