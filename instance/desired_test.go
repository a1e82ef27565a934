package instance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

func told(networks ...string) *model.NodeState {
	s := &model.NodeState{Node: "n1", Revision: 7, Store: model.StoreIdentity{ID: "one", Generation: 2},
		Peers: []model.Peer{{Name: "n2"}}}
	for i, name := range networks {
		s.Networks = append(s.Networks, model.NodeNetwork{Name: name, Index: uint32(i + 1),
			Elements: []model.NodeElement{{PlacedElement: model.PlacedElement{Name: "r1", Kind: model.Router},
				Override: model.Override{Stopped: true}}},
			Edges: []model.PlacedEdge{{Name: "out", Device: "eth0", VLAN: 7}}})
	}
	return s
}

func keptIn(t *testing.T) NodeDirs { return NodeDirs{Node: "n1", Data: t.TempDir()} }

func read(t *testing.T, dirs NodeDirs) *model.NodeState {
	t.Helper()
	s, err := NewDesired(dirs).Read()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDesiredIsKept(t *testing.T) {
	dirs := keptIn(t)
	if s := read(t, dirs); s != nil {
		t.Fatalf("without a file: %+v", s)
	}
	d, want := NewDesired(dirs), told("a", "b", "c")
	if err := d.Write(want); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dirs); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	// A small change writes the one network, and nothing is left of what it was; also in a later life.
	for life, d := range []*Desired{d, NewDesired(dirs)} {
		before, err := d.Read()
		if err != nil {
			t.Fatal(err)
		}
		names := stamps(t, dirs)
		next := *before
		next.Networks = append([]model.NodeNetwork(nil), before.Networks...)
		next.Networks[1] = told("x", "b").Networks[1]
		next.Networks[1].Slice.Packets, next.Revision = 5+life, 8
		if err := d.Write(&next); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dirs); !reflect.DeepEqual(got, &next) {
			t.Fatalf("life %d: got %+v, want %+v", life, got, &next)
		}
		now, same := stamps(t, dirs), 0
		for name, was := range names {
			if now[name] == was {
				same++
			}
		}
		if len(now) != 3 || same != 2 {
			t.Errorf("life %d: of 3 files there were %v, and there are %v", life, names, now)
		}
	}
}

// stamps are the networks' files, by when they were written.
func stamps(t *testing.T, dirs NodeDirs) map[string]string {
	t.Helper()
	there, err := os.ReadDir(filepath.Join(dirs.Data, "desired"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range there {
		i, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = fmt.Sprint(i.ModTime().UnixNano())
	}
	return all
}

func TestDesiredOfEarlierVersionsIsRead(t *testing.T) {
	dirs := keptIn(t)
	want := told("a", "b")
	b, err := json.Marshal(want)
	if err == nil {
		err = os.WriteFile(dirs.Desired(), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := NewDesired(dirs)
	got, err := d.Read()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	if err := d.Write(got); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dirs); !reflect.DeepEqual(got, want) {
		t.Errorf("written anew: %+v; want %+v", got, want)
	}
	if err := os.WriteFile(dirs.Desired(), b[:30], 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := NewDesired(dirs).Read(); s != nil || err == nil {
		t.Errorf("of half a file: %+v, %v; want an error", s, err)
	}
}

// A power cut may leave everything but the last step: what was kept before is then what is kept.
func TestDesiredIsReplacedInOneStep(t *testing.T) {
	dirs := keptIn(t)
	d, before := NewDesired(dirs), told("a", "b")
	if err := d.Write(before); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dirs.Desired()+".new", 0o700); err != nil { // the last step fails
		t.Fatal(err)
	}
	next := told("a", "b", "c")
	next.Networks[0].Index = 9
	if err := d.Write(next); err == nil {
		t.Fatal("what could not be written counts as kept")
	}
	if got := read(t, dirs); !reflect.DeepEqual(got, before) {
		t.Fatalf("got %+v, want %+v", got, before)
	}
	if err := os.Remove(dirs.Desired() + ".new"); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(next); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dirs); !reflect.DeepEqual(got, next) {
		t.Fatalf("got %+v, want %+v", got, next)
	}
}

// A file that is damaged costs its network only, and that is left as it is.
func TestDamagedFileOfANetworkIsTold(t *testing.T) {
	for name, spoil := range map[string]func(string) error{
		"a bit":   func(p string) error { b, _ := os.ReadFile(p); b[20] ^= 1; return os.WriteFile(p, b, 0o600) },
		"cut":     func(p string) error { return os.Truncate(p, 9) },
		"missing": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			dirs := keptIn(t)
			d, want := NewDesired(dirs), told("a", "b")
			if err := d.Write(want); err != nil {
				t.Fatal(err)
			}
			if err := spoil(filepath.Join(dirs.Data, "desired", d.kept["a"].file)); err != nil {
				t.Fatal(err)
			}
			again := NewDesired(dirs)
			got, err := again.Read()
			if err == nil || !strings.Contains(err.Error(), "network a") || got == nil {
				t.Fatalf("got %+v, %v", got, err)
			}
			if len(got.Networks) != 1 || got.Networks[0].Name != "b" || len(got.Hold) != 1 || got.Hold[0] != "a" {
				t.Errorf("got %+v", got)
			}
			if err := again.Write(want); err != nil {
				t.Fatal(err)
			}
			if got := read(t, dirs); !reflect.DeepEqual(got, want) {
				t.Errorf("after it was told again: %+v", got)
			}
		})
	}
}
