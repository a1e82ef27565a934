package example

import (
	"errors"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
)

// world stands for the data path and for the switch.
type world struct {
	known   map[model.PortID]bool
	joined  map[model.ID]map[string]int
	behind  map[model.PortID]int
	refused model.ID
	gone    []model.ID // what was detached
}

// place is an element's in the world. The plane uses nothing else of it.
type place struct {
	forward.Place
	*world
	id model.ID
}

func (p place) Ports(interfaces []string) (map[string]uint32, error) {
	for _, ifc := range interfaces {
		p.known[model.PortID{ID: p.id, Interface: ifc}] = true
	}
	return nil, nil
}

func (p place) Join(devices map[string]int) error {
	for ifc := range devices {
		if !p.known[model.PortID{ID: p.id, Interface: ifc}] {
			return errors.New("not known to the data path")
		}
	}
	p.joined[p.id] = devices
	return nil
}

func (w *world) Attach(id model.ID, ifc string) (int, error) {
	if id == w.refused {
		return 0, errors.New("no room")
	}
	port := model.PortID{ID: id, Interface: ifc}
	if w.behind[port] == 0 {
		w.behind[port] = 100 + len(w.behind)
	}
	return w.behind[port], nil
}

func (w *world) Detach(id model.ID) error {
	if id == w.refused {
		return errors.New("busy")
	}
	w.gone = append(w.gone, id)
	for port := range w.behind {
		if port.ID == id {
			delete(w.behind, port)
		}
	}
	return nil
}

// TestPromises asks the plane for each promise of forward.Plane.
func TestPromises(t *testing.T) {
	w := &world{known: map[model.PortID]bool{}, joined: map[model.ID]map[string]int{}, behind: map[model.PortID]int{}}
	p := New(w, nil)
	a, bad := model.ID{Network: "lab", Element: "a"}, model.ID{Network: "lab", Element: "bad"}
	ports := []control.Device{{Interface: "x", Index: 1}, {Interface: "y", Index: 2}}
	jobs := []forward.Job{{ID: bad, Devices: ports, Place: place{world: w, id: bad}},
		{ID: a, Devices: ports, Place: place{world: w, id: a}}}

	// The results are in the order of the jobs. A failing element has no steering, so it is forwarded as before.
	w.refused = bad
	first := p.Prepare(t.Context(), jobs)
	if len(first) != 2 || first[0].ID != bad || first[0].Err == nil || first[0].Steering != nil {
		t.Fatalf("%+v", first)
	}
	if first[1].ID != a || first[1].Err != nil || first[1].Steering == nil || len(first[1].Steering.Devices) != 2 {
		t.Fatalf("%+v", first[1])
	}
	// The data path was told of the devices before packets go there, and the owner is left to the agent.
	if s := first[1].Steering; len(w.joined[a]) != 2 || w.joined[a]["x"] != s.Devices["x"] ||
		s.Owner != "" || s.Tables != 0 {
		t.Errorf("steering %+v, the data path knows %v", s, w.joined[a])
	}
	// It may be repeated.
	if again := p.Prepare(t.Context(), jobs)[1]; again.Err != nil || !again.Steering.Equal(*first[1].Steering) {
		t.Errorf("repeated: %+v", again)
	}
	// Prepare without an element does not let go of it: packets may still go there. What failed is listed as well.
	p.Prepare(t.Context(), nil)
	if ids, err := p.List(t.Context()); err != nil || len(ids) != 2 || !slices.Contains(ids, bad) {
		t.Errorf("listed %v, %v", ids, err)
	}
	// Retire lets go, may be repeated, and keeps what it could not let go of in the list.
	if err := p.Retire(t.Context(), []model.ID{bad, a}); err == nil {
		t.Error("a failure is not told")
	}
	if ids, _ := p.List(t.Context()); !slices.Equal(ids, []model.ID{bad}) {
		t.Errorf("listed %v", ids)
	}
	w.refused = model.ID{}
	for range 2 {
		if err := p.Retire(t.Context(), []model.ID{bad, a}); err != nil {
			t.Error(err)
		}
	}
	if ids, _ := p.List(t.Context()); len(ids) != 0 || len(w.behind) != 0 || !slices.Equal(w.gone, []model.ID{a, bad}) {
		t.Errorf("left: %v, %v; detached, each once: %v", ids, w.behind, w.gone)
	}
}

// TestOffer: embedding places elements by what the plane says that it forwards for.
func TestOffer(t *testing.T) {
	way := model.ForwardOpenFlow.Feature()
	for kind, want := range map[model.Kind]string{model.Router: "no switch here", model.Switch: "no switch here"} {
		w := model.Want{Feature: way, Driver: way, Kind: kind}
		if why := New(nil, nil).Offers(t.Context()).Lack(w); why != "" {
			t.Errorf("it lacks %s for a %s", why, kind)
		}
		if why := New(nil, errors.New(want)).Offers(t.Context()).Lack(w); why != want {
			t.Errorf("for a %s it lacks %q", kind, why)
		}
	}
}
