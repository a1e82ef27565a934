package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/watch"
)

// arrives is a wish as it comes, before the loop takes it.
func (a *Agent) arrives(s model.NodeState) { a.cut(&s, false) }

// Quarantine begins when the wish comes. It ends only by a wish that is followed: a store that is empty, or that has
// forgotten who is in quarantine and lacks something else, ends nobody's.
func TestALostStoreReleasesNobody(t *testing.T) {
	one := model.StoreIdentity{ID: "one", Generation: 1}
	r := &record{}
	dir := t.TempDir()
	a := remembering(t, dir, r)
	a.cuts = readCuts(a.Dirs.Incidents(), a.Log)
	r1, r2 := model.ID{Network: "lab", Element: "r1"}, model.ID{Network: "lab", Element: "r2"}
	full := func(revision int64, quarantined bool) model.NodeState {
		s := wish(one, revision, "lab/r1 lab/r2 other/h")
		s.Networks[0].Elements[0].Quarantined = quarantined
		return s
	}
	is := func(when string, want ...model.ID) {
		t.Helper()
		if len(r.cut) != len(want) {
			t.Errorf("%s: cut off are %v, want %v", when, r.cut, want)
			return
		}
		for _, id := range want {
			if !r.cut[id] {
				t.Errorf("%s: cut off are %v, want %v", when, r.cut, want)
			}
		}
	}
	s := full(50, false)
	a.arrives(s)
	a.told(t, s)
	a.cuts.add(r2, model.Incident{At: time.Now(), What: "scans"}) // the node's own, which nobody has decided about
	s = full(51, true)
	a.arrives(s)
	is("as the wish comes", r1, r2)
	a.told(t, s)
	is("once it is followed", r1, r2)

	for name, lost := range map[string]model.NodeState{
		"an empty store": wish(model.StoreIdentity{ID: "two", Generation: 1}, 3, ""),
		"an older copy":  wish(one, 40, "lab/r1 lab/r2"),
	} {
		a.arrives(lost)
		is(name, r1, r2)
		if held := a.told(t, lost); held == "" {
			t.Fatalf("%s is followed", name)
		}
		is(name+", looked at", r1, r2)
	}
	if a.cuts.of(r2) == nil {
		t.Error("the node has forgotten whom it cut off itself")
	}
	s = full(52, false)
	a.arrives(s)
	is("released, and not followed yet", r1, r2)
	a.told(t, s)
	is("released", r2)
	s.Revision, s.Networks[0].Elements[1].Decided = 53, time.Now().UnixNano()
	a.arrives(s)
	a.told(t, s)
	is("decided")
}

// A newer wish that has come already counts while an older one is followed.
func TestCutsOfANewerWishStay(t *testing.T) {
	one := model.StoreIdentity{ID: "one", Generation: 1}
	r := &record{}
	a := remembering(t, t.TempDir(), r)
	older, newer := wish(one, 50, "lab/r1"), wish(one, 51, "lab/r1")
	newer.Networks[0].Elements[0].Quarantined = true
	a.arrives(older)
	a.arrives(newer)
	a.told(t, older)
	if !r.cut[model.ID{Network: "lab", Element: "r1"}] {
		t.Error("the older wish has undone what the newer one says")
	}
}

// What the watch has kept of an element goes with it: the next of its name may be somebody else's.
func TestNothingIsKeptOfElementsThatAreGone(t *testing.T) {
	one := model.StoreIdentity{ID: "one", Generation: 1}
	a := remembering(t, t.TempDir(), &record{})
	a.watcher = newWatcher()
	gone, stays := model.ID{Network: "lab", Element: "r1"}, model.ID{Network: "other", Element: "h"}
	a.told(t, wish(one, 50, "lab/r1 other/h"))
	for _, id := range []model.ID{gone, stays} {
		port := model.PortID{ID: id, Interface: "x"}
		e := watched{id: id, ports: []model.PortID{port}}
		a.watcher.remember(e, time.Now(),
			map[model.PortID]fabric.Sample{port: {Frames: []fabric.SampledFrame{{Data: []byte("secret")}}}})
		a.watcher.record(watchLook{ID: id, Found: []watch.Verdict{{Signal: watch.Storm}}})
		if err := writeEvidence(a.Dirs.Evidence(id), e, a.watcher.recent[id]); err != nil {
			t.Fatal(err)
		}
	}
	s := wish(one, 51, "other/h", "lab")
	a.arrives(s)
	a.told(t, s)
	// Of the next one of its name nothing was told yet.
	judge := watch.New()
	for range 2 {
		for _, id := range []model.ID{gone, stays} {
			judge.Look(id, time.Now(), []watch.Value{{Signal: watch.Storm, Value: 1e5}})
		}
	}
	a.watcher.forget(judge, watch.NewSlow())
	if n := len(judge.Memories()); n != 1 {
		t.Errorf("the judge remembers %d signals, want the one of who is there", n)
	}
	kept := func(id model.ID) int {
		n := len(a.watcher.recent[id].all) + len(a.watcher.found[id])
		if _, err := os.Stat(a.Dirs.Evidence(id)); err == nil {
			n++
		}
		return n
	}
	if n := kept(gone); n != 0 {
		t.Errorf("%d things are kept of an element that is gone", n)
	}
	if n := kept(stays); n != 3 {
		t.Errorf("of one that is there %d things are kept, want 3", n)
	}
	if _, err := os.Stat(filepath.Dir(a.Dirs.Evidence(gone))); err == nil {
		t.Error("an empty directory is left")
	}
}

// An attack after the clock was put back counts, although what was decided last is of a later time.
func TestIncidentsAfterTheClockWentBack(t *testing.T) {
	one := model.StoreIdentity{ID: "one", Generation: 1}
	a := remembering(t, t.TempDir(), &record{})
	a.watcher, a.cuts = newWatcher(), readCuts(a.Dirs.Incidents(), slog.New(slog.DiscardHandler))
	id := model.ID{Network: "lab", Element: "r1"}
	s := wish(one, 50, "lab/r1")
	s.Networks[0].Elements[0].Decided = time.Now().Add(time.Hour).UnixNano()
	a.arrives(s)
	a.told(t, s)
	if !a.suspect(watched{id: id, policy: model.AttackQuarantine},
		[]watch.Verdict{{Signal: watch.Storm, Value: 5000}}) {
		t.Fatal("nothing was cut")
	}
	s.Revision++
	a.arrives(s)
	a.told(t, s)
	if a.cuts.of(id) == nil || a.cuts.of(id).At.UnixNano() <= s.Networks[0].Elements[0].Decided {
		t.Errorf("the incident does not count: %+v", a.cuts.of(id))
	}
}
