package agent

import (
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
)

// remembering is an agent on a directory; another one on the same is its next life.
func remembering(t *testing.T, dir string, r *record) *Agent {
	t.Helper()
	a := &Agent{Config: Config{Dirs: instance.NodeDirs{Instance: "test", Node: "n1", Run: dir, Data: dir},
		Log: slog.New(slog.DiscardHandler),
		Drivers: Drivers{Controls: map[model.Control]control.Driver{model.ControlNetns: recordControl{r}},
			Planes: map[PlaneOf]forward.Plane{{Forwarding: model.ForwardGuest}: recordPlane{}},
			Fabric: r}}, elements: &elements{}, links: &links{}}
	a.reporter = newReporter(nil, "n1", a.Log)
	a.work = newWork("n1")
	a.ground = newNeighbours(a.work, a.Log, func(model.Measures) {})
	var err error
	a.saved = instance.NewDesired(a.Dirs)
	if a.desired, err = a.saved.Read(); err != nil {
		t.Fatal(err)
	}
	if a.memory, err = readMemory(a.memoryFile()); err != nil {
		t.Fatal(err)
	}
	return a
}

// told is one wish as the agent's loop treats it.
func (a *Agent) told(t *testing.T, s model.NodeState) (held string) {
	t.Helper()
	a.take(t.Context(), &s)
	a.pass(t.Context())
	a.keep()
	var names []string
	for _, h := range a.reporter.last.Held {
		names = append(names, h.Name)
	}
	if len(names) > 0 && a.reporter.last.Revision != 0 {
		t.Error("a node that holds networks says that it follows the store")
	}
	return strings.Join(names, " ")
}

// wish is a state with networks of the elements named, "lab/r1 lab/r2". Of what is gone, "-lab" was deleted.
func wish(store model.StoreIdentity, revision int64, elements string, gone ...string) model.NodeState {
	s := model.NodeState{Node: "n1", Store: store, Revision: revision}
	for _, name := range strings.Fields(elements) {
		network, element, _ := strings.Cut(name, "/")
		if len(s.Networks) == 0 || s.Networks[len(s.Networks)-1].Name != network {
			s.Networks = append(s.Networks, model.NodeNetwork{Name: network, Index: uint32(len(network))})
		}
		n := &s.Networks[len(s.Networks)-1]
		n.Elements = append(n.Elements,
			model.NodeElement{PlacedElement: model.PlacedElement{Name: element, Kind: model.Router,
				Control: model.ControlNetns, Forwarding: model.ForwardGuest}})
	}
	for _, g := range gone {
		s.Gone = append(s.Gone, model.GoneNetwork{Name: strings.TrimPrefix(g, "-"), Deleted: strings.HasPrefix(g, "-")})
	}
	return s
}

// Which word of which store a node follows, and which it holds. The node was told of lab and other by generation 2 of
// the store "one", at revision 50; the second generation began after revision 30 of the first.
func TestWhatANodeFollows(t *testing.T) {
	one := model.StoreIdentity{ID: "one", Generation: 2, Ended: []int64{30}}
	restored := func(revision int64) model.StoreIdentity { return one.Restored(revision) }
	fromFirst := model.StoreIdentity{ID: "one", Generation: 1}.Restored(20, 2)
	for _, c := range []struct {
		name    string
		told    model.NodeState
		held    string // the networks, in order
		removed string
	}{
		{"the same again", wish(one, 50, "lab/r1 lab/r2 other/h"), "", ""},
		{"newer", wish(one, 51, "lab/r1 lab/r2 lab/r3 other/h"), "", ""},
		{"an element removed", wish(one, 51, "lab/r1 other/h"), "", "lab/r2"},
		{"a network deleted", wish(one, 51, "lab/r1 lab/r2", "other"), "", "other/h"},
		{"a network missing, and nobody says that it is gone", wish(one, 51, "lab/r1 lab/r2"), "other", ""},
		{"an empty store", wish(model.StoreIdentity{ID: "two", Generation: 1}, 3, ""), "lab other", ""},
		{"an empty store that says that one is gone", wish(model.StoreIdentity{ID: "two", Generation: 1}, 3, "",
			"lab"), "other", ""},
		{"an empty store in which somebody has deleted one", wish(model.StoreIdentity{ID: "two", Generation: 1}, 3, "",
			"-lab"), "other", "lab/r1 lab/r2"},
		{"an older copy in which one was deleted", wish(one, 40, "", "-other"), "lab", "other/h"},
		{"an empty store that says that all are gone", wish(model.StoreIdentity{ID: "two", Generation: 1}, 3, "", "lab",
			"other"), "", "lab/r1 lab/r2 other/h"},
		{"another store with all of it", wish(model.StoreIdentity{ID: "two", Generation: 1}, 3,
			"lab/r1 lab/r2 lab/r9 other/h"), "", ""},
		{"another store with less of one", wish(model.StoreIdentity{ID: "two", Generation: 1}, 3,
			"lab/r1 other/h"), "lab", ""},
		{"an older copy without one network", wish(one, 40, "lab/r1 lab/r2"), "other", ""},
		{"an older copy without one element", wish(one, 40, "lab/r1 other/h"), "lab", ""},
		{"an older copy with all", wish(one, 40, "lab/r1 lab/r2 other/h"), "", ""},
		{"the first generation", wish(model.StoreIdentity{ID: "one", Generation: 1}, 90, "lab/r1 lab/r2"), "other", ""},
		{"restored from a backup that is as new", wish(restored(50), 5, "lab/r1 lab/r2", "other"), "", "other/h"},
		{"restored from a backup that is older", wish(restored(49), 5, "lab/r1"), "lab other", ""},
		{"restored from the first generation's backup", wish(fromFirst, 500, "lab/r1 lab/r2"), "other", ""},
		{"a polyplane without identities", wish(model.StoreIdentity{}, 60, "lab/r1 lab/r2"), "other", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r := &record{}
			a := remembering(t, dir, r)
			if held := a.told(t, wish(one, 50, "lab/r1 lab/r2 other/h")); held != "" {
				t.Fatalf("a new node holds %s", held)
			}
			for _, name := range []string{"lab/r1", "lab/r2", "other/h"} {
				network, element, _ := strings.Cut(name, "/")
				r.exists = append(r.exists, model.ID{Network: network, Element: element})
			}
			for life := range 2 { // the second in a later life of the agent
				if life == 1 && c.removed != "" {
					break
				}
				if held := a.told(t, c.told); held != c.held {
					t.Errorf("life %d: holds %q, want %q", life, held, c.held)
				}
				var removed []string
				for _, id := range r.removed {
					removed = append(removed, id.String())
				}
				if got := strings.Join(removed, " "); got != c.removed {
					t.Errorf("life %d: removed %q, want %q", life, got, c.removed)
				}
				a = remembering(t, dir, r)
			}
			if c.held == "" || c.removed != "" {
				return
			}
			// With its own store back all is as before.
			if held := a.told(t, wish(one, 52, "lab/r1 lab/r2 other/h")); held != "" ||
				len(r.removed) > 0 || !a.complete {
				t.Errorf("with the store back: holds %q, removed %v", held, r.removed)
			}
		})
	}
}

// A node that an earlier polyplane has told what to have follows the store that was there then, and no new one.
func TestAnEarlierNodeFollowsItsStore(t *testing.T) {
	for _, c := range []struct {
		store   model.StoreIdentity
		held    string
		removed int
	}{
		{model.StoreIdentity{ID: "one", Generation: 1, Early: true}, "", 1},
		{model.StoreIdentity{ID: "two", Generation: 1}, "other", 0},
	} {
		r := &record{exists: []model.ID{{Network: "lab", Element: "r1"}, {Network: "other", Element: "h"}}}
		dir := t.TempDir()
		s := wish(model.StoreIdentity{}, 20, "lab/r1 other/h")
		b, err := json.Marshal(s) // in one file, as earlier versions had it
		if err == nil {
			err = os.WriteFile(dir+"/desired.json", b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		a := remembering(t, dir, r)
		if held := a.told(t, wish(c.store, 21, "lab/r1")); held != c.held || len(r.removed) != c.removed {
			t.Errorf("%+v: holds %q, removed %v", c.store, held, r.removed)
		}
	}
}

// What a node was told of a network whose record the store cannot read it goes on with, and remembers over restarts:
// it may be the only one who knows. Once the network is deleted it goes.
func TestWhatTheStoreCannotReadIsRemembered(t *testing.T) {
	one := model.StoreIdentity{ID: "one", Generation: 1}
	dir := t.TempDir()
	r := &record{}
	a := remembering(t, dir, r)
	a.told(t, wish(one, 50, "lab/r1 other/h"))
	r.exists = []model.ID{{Network: "lab", Element: "r1"}, {Network: "other", Element: "h"}}
	damaged := wish(one, 51, "other/h")
	damaged.Hold = []string{"lab"}
	for life := range 3 {
		told := damaged
		if held := a.told(t, told); held != "" || len(r.removed) != 0 || len(a.reporter.last.Elements) != 2 {
			t.Fatalf("life %d: holds %q, removed %v, reports %+v", life, held, r.removed, a.reporter.last.Elements)
		}
		if kept, err := a.saved.Read(); err != nil || len(kept.Networks) != 2 {
			t.Fatalf("life %d: it remembers %+v, %v", life, kept, err)
		}
		if len(damaged.Networks) != 1 {
			t.Fatal("the manager's word was changed")
		}
		a = remembering(t, dir, r)
	}
	a.told(t, wish(one, 52, "other/h", "lab"))
	if len(r.removed) != 1 || r.removed[0].Network != "lab" || len(a.desired.Networks) != 1 {
		t.Fatalf("once it is deleted: removed %v", r.removed)
	}
}

// What is there although the agent remembers nothing of it is held as well: its files may be lost, or damaged.
func TestWhatIsThereWithoutAMemoryIsHeld(t *testing.T) {
	one := model.StoreIdentity{ID: "one", Generation: 1}
	r := &record{exists: []model.ID{{Network: "lab", Element: "r1"}, {Network: "other", Element: "h"}}}
	dir := t.TempDir()
	a := remembering(t, dir, r)
	if held := a.told(t, wish(one, 9, "lab/r1")); held != "other" || len(r.removed) != 0 {
		t.Fatalf("holds %q, removed %v", held, r.removed)
	}
	if _, err := os.Stat(a.Dirs.Desired()); err == nil {
		t.Error("a word that is not followed was kept as the one that is")
	}
	if held := a.told(t, wish(one, 9, "lab/r1", "other")); held != "" || len(r.removed) != 1 {
		t.Fatalf("holds %q, removed %v", held, r.removed)
	}
}

// What somebody has deleted is removed while other networks are held. A later life does not make it again, and the own
// store, once it is back, is followed.
func TestADeletedNetworkGoesWhileAnotherIsHeld(t *testing.T) {
	one, two := model.StoreIdentity{ID: "one", Generation: 1}, model.StoreIdentity{ID: "two", Generation: 1}
	dir := t.TempDir()
	r := &record{}
	a := remembering(t, dir, r)
	a.told(t, wish(one, 50, "lab/r1 lab/r2 other/h"))
	r.exists = []model.ID{{Network: "lab", Element: "r1"}, {Network: "lab", Element: "r2"},
		{Network: "other", Element: "h"}}
	if held := a.told(t, wish(two, 3, "")); held != "lab other" || len(r.removed) != 0 {
		t.Fatalf("holds %q, removed %v", held, r.removed)
	}
	if held := a.told(t, wish(two, 4, "", "-lab")); held != "other" || len(r.removed) != 2 ||
		r.removed[0].Network != "lab" || r.removed[1].Network != "lab" {
		t.Fatalf("holds %q, removed %v", held, r.removed)
	}
	if at := strings.Join(a.reporter.last.AtWork, " "); at != "lab" || len(a.reporter.last.Elements) != 1 {
		t.Errorf("it tells that it removes %q, and of %+v", at, a.reporter.last.Elements)
	}
	r.exists, r.removed = r.exists[2:], nil
	a = remembering(t, dir, r)
	if len(a.desired.Networks) != 1 || a.desired.Networks[0].Name != "other" {
		t.Fatalf("a later life begins with %+v", a.desired.Networks)
	}
	if held := a.told(t, wish(two, 4, "", "-lab")); held != "other" || len(r.removed) != 0 {
		t.Fatalf("holds %q, removed %v", held, r.removed)
	}
	if held := a.told(t, wish(one, 50, "lab/r1 lab/r2 other/h")); held != "" || !a.complete || len(r.removed) != 0 {
		t.Fatalf("with its own store back: holds %q, removed %v", held, r.removed)
	}
	if a = remembering(t, dir, r); len(a.desired.Networks) != 2 {
		t.Fatalf("its own store's word is not kept: %+v", a.desired.Networks)
	}
}

// An element that an administrator has put into quarantine is released by somebody who says so, and not by a store that
// has lost it: an empty one, or one that was restored from a backup of before.
func TestABackupOfBeforeAQuarantineReleasesNobody(t *testing.T) {
	one := model.StoreIdentity{ID: "one", Generation: 1}
	culprit := model.ID{Network: "lab", Element: "r1"}
	for _, c := range []struct {
		name     string
		told     model.NodeState
		held     string
		released bool
	}{
		{"the store that knows it, and another change",
			cutIn(wish(one, 60, "lab/r1 lab/r2 lab/r3 other/h")), "", false},
		{"the store that knows it, after a release", wish(one, 60, "lab/r1 lab/r2 other/h"), "", true},
		{"an empty store", wish(model.StoreIdentity{ID: "two", Generation: 1}, 3, ""), "lab other", false},
		{"a backup of before", wish(one.Restored(40), 41, "lab/r1 lab/r2 other/h"), "lab", false},
		{"a backup of after", cutIn(wish(one.Restored(50), 51, "lab/r1 lab/r2 other/h")), "", false},
		{"a backup of before, taken for what it is", wish(one.Restored(40), 41, "other/h", "lab"), "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r := &record{exists: []model.ID{culprit, {Network: "lab", Element: "r2"}, {Network: "other", Element: "h"}}}
			a := remembering(t, dir, r)
			first := cutIn(wish(one, 50, "lab/r1 lab/r2 other/h"))
			a.cut(&first, false)
			a.told(t, first)
			if !r.cut[culprit] {
				t.Fatal("it is not cut off")
			}
			for life := range 2 {
				a.cut(&c.told, false)
				if !r.cut[culprit] && !(life == 1 && c.released) {
					t.Errorf("life %d: it is released by a word that nobody has looked at", life)
				}
				if held := a.told(t, c.told); held != c.held {
					t.Errorf("life %d: holds %q, want %q", life, held, c.held)
				}
				if r.cut[culprit] == c.released {
					t.Errorf("life %d: cut off: %v", life, r.cut[culprit])
				}
				if c.released {
					break
				}
				a = remembering(t, dir, r)
				a.cut(a.desired, true)
			}
		})
	}
}

// cutIn puts lab/r1 into quarantine by an administrator.
func cutIn(s model.NodeState) model.NodeState {
	s.Networks[0].Elements[0].Override.Quarantined, s.Networks[0].Elements[0].Override.Held = true, true
	return s
}
