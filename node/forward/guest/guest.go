// Package guest is the forwarding plane of `forwarding: guest`: the element's own network stack forwards its packets, so
// there is nothing to prepare.
package guest

import (
	"context"
	"sync"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

var _ forward.Plane = (*Plane)(nil)

// Plane leaves forwarding to the elements.
type Plane struct {
	mu       sync.Mutex
	elements map[model.ID]bool
}

// New returns the plane.
func New() *Plane { return &Plane{elements: map[model.ID]bool{}} }

// Probe always succeeds.
func (p *Plane) Probe(context.Context) error { return nil }

// Prepare notes the elements.
func (p *Plane) Prepare(_ context.Context, jobs []forward.Job) []forward.Prepared {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.elements)
	prepared := make([]forward.Prepared, len(jobs))
	for i := range jobs {
		p.elements[jobs[i].ID] = true
		prepared[i].ID = jobs[i].ID
	}
	return prepared
}

// List tells for which elements Prepare was called last.
func (p *Plane) List(context.Context) ([]model.ID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]model.ID, 0, len(p.elements))
	for id := range p.elements {
		ids = append(ids, id)
	}
	return ids, nil
}

// Retire forgets elements.
func (p *Plane) Retire(_ context.Context, ids []model.ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		delete(p.elements, id)
	}
	return nil
}
