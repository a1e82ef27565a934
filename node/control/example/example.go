// Package example is the control driver that docs/adding-a-control-driver.md builds step by step. No node uses it. It
// keeps its elements in memory, where a real driver makes namespaces or virtual machines.
package example

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
)

// Ports makes the device pairs of interfaces. A real driver uses package node/port.
type Ports interface {
	// Make returns the port. It returns the same one for as long as that exists.
	Make(id model.ID, ifc model.PlacedInterface) (control.Device, error)
	Remove(id model.ID, ifc string) error
}

// Driver makes elements that exist in memory only.
type Driver struct {
	ports Ports
	lacks error // what this machine lacks; nil if it lacks nothing

	mu       sync.Mutex // guards has: the agent's API calls drivers while Apply runs
	has      map[model.ID]*element
	sequence []model.ID // in which List tells them
}

type element struct {
	phase   model.Phase
	devices map[string]control.Device // by interface
}

var _ control.Driver = (*Driver)(nil)

// New makes a driver. lacks is why this machine cannot have its elements.
func New(ports Ports, lacks error) *Driver {
	return &Driver{ports: ports, lacks: lacks, has: map[model.ID]*element{}}
}

// Offers returns what the driver makes: routers and hosts.
func (d *Driver) Offers(context.Context) model.Offers {
	return model.OfferOf(model.ControlVM.Feature(), d.lacks, model.Router, model.Host)
}

// Apply makes what is missing, puts right what differs, and touches nothing else.
func (d *Driver) Apply(ctx context.Context, jobs []control.Job) []control.Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	results := make([]control.Result, len(jobs))
	for i := range jobs {
		results[i] = d.apply(&jobs[i])
		control.Progress(ctx) // many elements may take long, but none of them does
	}
	return results
}

// apply makes one element so. Its error stays in its own result.
func (d *Driver) apply(j *control.Job) control.Result {
	r := control.Result{ID: j.ID}
	e := d.has[j.ID]
	if e == nil {
		e = &element{devices: map[string]control.Device{}}
		d.has[j.ID], d.sequence = e, append(d.sequence, j.ID)
		r.Changed = append(r.Changed, change.ElementCreated.Of())
	}
	if err := d.applyPorts(j, e, &r); err != nil {
		e.phase = model.PhaseFailed
		r.Phase, r.Err = e.phase, err
		return r
	}
	switch {
	case j.Element.Stopped:
		e.phase = model.PhaseStopped
	case j.Element.Suspended:
		e.phase = model.PhaseSuspended
	default:
		e.phase = model.PhaseRunning
	}
	r.Phase = e.phase
	return r
}

// applyPorts makes a port for each interface, in the element's order, and removes the others.
func (d *Driver) applyPorts(j *control.Job, e *element, r *control.Result) error {
	wanted := map[string]bool{}
	for _, ifc := range j.Element.Interfaces {
		wanted[ifc.Name] = true
		device, err := d.ports.Make(j.ID, ifc)
		if err != nil {
			return fmt.Errorf("make port %s: %w", ifc.Name, err)
		}
		if before, ok := e.devices[ifc.Name]; ok && before != device {
			r.Changed = append(r.Changed, change.PortRestored.Of(ifc.Name))
		}
		e.devices[ifc.Name] = device
		r.Devices = append(r.Devices, device)
	}
	for name := range e.devices {
		if wanted[name] {
			continue
		}
		if err := d.ports.Remove(j.ID, name); err != nil {
			return fmt.Errorf("remove port %s: %w", name, err)
		}
		delete(e.devices, name)
		r.Changed = append(r.Changed, change.PortRemoved.Of(name))
	}
	return nil
}

// List tells which elements there are. After a restart a real driver asks the kernel, and not its own memory.
func (d *Driver) List(context.Context) ([]control.Found, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]control.Found, len(d.sequence))
	for i, id := range d.sequence {
		all[i] = control.Found{ID: id, Phase: d.has[id].phase}
	}
	return all, nil
}

// Remove removes elements. An element whose port stays is still listed, so that the next pass tries again.
func (d *Driver) Remove(_ context.Context, ids []model.ID, _ bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var failed []error
	for _, id := range ids {
		if err := d.remove(id); err != nil {
			failed = append(failed, fmt.Errorf("remove element %s: %w", id, err))
		}
	}
	return errors.Join(failed...)
}

func (d *Driver) remove(id model.ID) error {
	e := d.has[id]
	if e == nil {
		return nil // removing twice is no mistake
	}
	for name := range e.devices {
		if err := d.ports.Remove(id, name); err != nil {
			return fmt.Errorf("port %s: %w", name, err)
		}
		delete(e.devices, name)
	}
	delete(d.has, id)
	for i, other := range d.sequence {
		if other == id {
			d.sequence = append(d.sequence[:i], d.sequence[i+1:]...)
			break
		}
	}
	return nil
}
