// Package example is the forwarding plane that docs/adding-a-forwarding-plane.md builds step by step. No node uses it.
// It has a device forward all packets of an element, as a virtual switch beside the node would.
package example

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// Switch is what forwards.
type Switch interface {
	// Attach returns the index of the device that forwards what arrives at an interface. It may be called again.
	Attach(id model.ID, ifc string) (index int, err error)
	Detach(id model.ID) error
}

// Plane has a Switch forward.
type Plane struct {
	behind Switch
	lacks  error // what this machine lacks; nil if it lacks nothing

	mu  sync.Mutex
	has map[model.ID]bool
}

var _ forward.Plane = (*Plane)(nil)

// New makes a plane. lacks is why this machine cannot have it.
func New(behind Switch, lacks error) *Plane {
	return &Plane{behind: behind, lacks: lacks, has: map[model.ID]bool{}}
}

// Offers returns what the plane forwards for.
func (p *Plane) Offers(context.Context) model.Offers {
	return model.OfferOf(model.ForwardOpenFlow.Feature(), p.lacks, model.Router, model.Switch)
}

// Prepare has the switch ready, and says where packets shall go. It steers nobody.
func (p *Plane) Prepare(_ context.Context, jobs []forward.Job) []forward.Prepared {
	p.mu.Lock()
	defer p.mu.Unlock()
	prepared := make([]forward.Prepared, len(jobs))
	for i := range jobs {
		steering, err := p.prepare(&jobs[i])
		prepared[i] = forward.Prepared{ID: jobs[i].ID, Steering: steering, Err: err}
	}
	return prepared
}

func (p *Plane) prepare(j *forward.Job) (*forward.Steering, error) {
	p.has[j.ID] = true // from here on there is something to retire, even if the rest fails
	devices := map[string]int{}
	var interfaces []string
	for _, d := range j.Devices {
		index, err := p.behind.Attach(j.ID, d.Interface)
		if err != nil {
			return nil, fmt.Errorf("attach interface %s to the switch: %w", d.Interface, err)
		}
		devices[d.Interface], interfaces = index, append(interfaces, d.Interface)
	}
	if _, err := j.Place.Ports(interfaces); err != nil {
		return nil, fmt.Errorf("have its interfaces known to the data path: %w", err)
	}
	if err := j.Place.Join(devices); err != nil {
		return nil, fmt.Errorf("join the switch's devices: %w", err)
	}
	return &forward.Steering{Devices: devices}, nil
}

// List tells for which elements the switch has something.
func (p *Plane) List(context.Context) ([]model.ID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []model.ID
	for id := range p.has {
		all = append(all, id)
	}
	return all, nil
}

// Retire detaches elements. One that cannot be detached is still listed, so that the next pass tries again.
func (p *Plane) Retire(_ context.Context, ids []model.ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failed []error
	for _, id := range ids {
		if !p.has[id] {
			continue // retiring twice is no mistake
		}
		if err := p.behind.Detach(id); err != nil {
			failed = append(failed, fmt.Errorf("element %s: detach it from the switch: %w", id, err))
			continue
		}
		delete(p.has, id)
	}
	return errors.Join(failed...)
}
