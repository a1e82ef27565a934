package example

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
)

// memory stands for the node: it has ports, and can refuse to make or to remove those of an element.
type memory struct {
	ports    map[model.PortID]control.Device
	last     int
	refused  model.ID
	changing int // calls that changed something
}

func (m *memory) Make(id model.ID, ifc model.PlacedInterface) (control.Device, error) {
	if id == m.refused {
		return control.Device{}, errors.New("no room")
	}
	port := model.PortID{ID: id, Interface: ifc.Name}
	if _, ok := m.ports[port]; !ok {
		m.last++
		m.changing++
		m.ports[port] = control.Device{Interface: ifc.Name, Name: "pp", Index: m.last}
	}
	return m.ports[port], nil
}

func (m *memory) Remove(id model.ID, ifc string) error {
	if id == m.refused {
		return errors.New("busy")
	}
	m.changing++
	delete(m.ports, model.PortID{ID: id, Interface: ifc})
	return nil
}

func job(name string, interfaces ...string) control.Job {
	j := control.Job{ID: model.ID{Network: "lab", Element: name}}
	for _, ifc := range interfaces {
		j.Element.Interfaces = append(j.Element.Interfaces, model.PlacedInterface{
			ResolvedInterface: model.ResolvedInterface{Name: ifc}})
	}
	return j
}

func kinds(r control.Result) (all []change.Kind) {
	for _, c := range r.Changed {
		all = append(all, c.Kind)
	}
	return all
}

// TestPromises asks the driver for each promise of control.Driver.
func TestPromises(t *testing.T) {
	m := &memory{ports: map[model.PortID]control.Device{}}
	d := New(m, nil)
	jobs := []control.Job{job("a", "x", "y"), job("bad", "x"), job("c")}
	a, bad := jobs[0].ID, jobs[1].ID

	// The results are in the order of the jobs; one failing element does not stop the others.
	m.refused = bad
	for i, r := range d.Apply(t.Context(), jobs) {
		if r.ID != jobs[i].ID || (r.Err != nil) != (r.ID == bad) || (r.Phase == model.PhaseFailed) != (r.ID == bad) ||
			r.Err == nil && (r.Phase != model.PhaseRunning || len(r.Devices) != len(jobs[i].Element.Interfaces)) {
			t.Errorf("result %d: %+v", i, r)
		}
		for k, device := range r.Devices {
			if device.Interface != jobs[i].Element.Interfaces[k].Name || device.Index == 0 {
				t.Errorf("%s: device %d is %+v", r.ID, k, device)
			}
		}
	}
	// What is missing is made, and told. What is right is not touched.
	m.refused = model.ID{}
	d.Apply(t.Context(), jobs)
	m.changing = 0
	for _, r := range d.Apply(t.Context(), jobs) {
		if r.Err != nil || r.Changed != nil {
			t.Errorf("repeated: %+v", r)
		}
	}
	if m.changing != 0 {
		t.Errorf("an Apply of what is right changed %d ports", m.changing)
	}
	// What was altered is put right, and told.
	delete(m.ports, model.PortID{ID: a, Interface: "y"})
	if r := d.Apply(t.Context(), jobs)[0]; r.Err != nil ||
		!slices.Equal(kinds(r), []change.Kind{change.PortRestored}) {
		t.Errorf("a port was lost: %+v", r)
	}
	jobs[0] = job("a", "x")
	if r := d.Apply(t.Context(), jobs)[0]; r.Err != nil ||
		!slices.Equal(kinds(r), []change.Kind{change.PortRemoved}) {
		t.Errorf("an interface is gone: %+v", r)
	}
	// The user's wishes are phases.
	wishes := map[model.Phase]model.Override{model.PhaseStopped: {Stopped: true},
		model.PhaseSuspended: {Suspended: true}}
	for want, o := range wishes {
		stopped := jobs[0]
		stopped.Element.Override = o
		if r := d.Apply(t.Context(), []control.Job{stopped})[0]; r.Phase != want {
			t.Errorf("%+v: %s", o, r.Phase)
		}
	}
	// An Apply without an element does not remove it; Remove does, and may be repeated.
	d.Apply(t.Context(), nil)
	if found, err := d.List(t.Context()); err != nil || len(found) != 3 || found[0].ID != a {
		t.Fatalf("there is %v, %v", found, err)
	}
	m.refused = bad
	err := d.Remove(t.Context(), []model.ID{bad, a}, false)
	if err == nil || !strings.Contains(err.Error(), "lab/bad") {
		t.Errorf("what could not be removed is not told: %v", err)
	}
	if found, _ := d.List(t.Context()); len(found) != 2 || found[0].ID != bad {
		t.Errorf("there is %v", found)
	}
	m.refused = model.ID{}
	for range 2 {
		if err := d.Remove(t.Context(), []model.ID{a, bad, jobs[2].ID}, false); err != nil {
			t.Error(err)
		}
	}
	if found, _ := d.List(t.Context()); len(found) != 0 || len(m.ports) != 0 {
		t.Errorf("left: %v, %v", found, slices.Collect(maps.Keys(m.ports)))
	}
	// What comes again after that is a new element.
	r := d.Apply(t.Context(), jobs[:1])[0]
	if r.Err != nil || !slices.Equal(kinds(r), []change.Kind{change.ElementCreated}) {
		t.Errorf("made again: %+v", r)
	}
}

// TestOffer: embedding places elements by what the driver says that it makes, and refusals say what it lacks.
func TestOffer(t *testing.T) {
	vm := model.ControlVM.Feature()
	host := model.Want{Feature: vm, Driver: vm, Kind: model.Host}
	if why := New(nil, nil).Offers(t.Context()).Lack(host); why != "" {
		t.Errorf("it lacks %s", why)
	}
	if why := New(nil, errors.New("no /dev/kvm")).Offers(t.Context()).Lack(host); why != "no /dev/kvm" {
		t.Errorf("it lacks %q", why)
	}
}
