package fast

import (
	"errors"
	"time"

	"github.com/polyplane/polyplane/model"
)

// Break has a router's tables be fed no more as if by an error.
func (p *Plane) Break(id model.ID) {
	p.mu.Lock()
	r := p.routers[id]
	p.mu.Unlock()
	r.fail(errors.New("broken"), false)
}

// Look has the planes look into the companions, however short ago they did.
func (p *Plane) Look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.routers {
		for _, f := range r.companions {
			f.Look()
		}
	}
}

// FreeAfter changes how soon memory is given back.
func FreeAfter(d time.Duration) (undo func()) {
	was := freeAfter
	freeAfter = d
	return func() { freeAfter = was }
}

// Unsync has a router not be in sync, until in is called.
func (p *Plane) Unsync(id model.ID) (in func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	synced := make(chan struct{})
	p.routers[id].synced = synced
	return func() { close(synced) }
}
