package fast

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/companion"
)

// Way is a way of forwarding by the plane's tables. Each is a forwarding plane's, and a router may have several while
// it changes between them. Where a way has companions, packets that the tables forward are handed to these.
type Way struct {
	plane *Plane
	name  model.Forwarding
	open  func(id model.ID) (*companion.Companion, error) // nil without companions

	awaited chan struct{} // has whoever watches told that the next pass has something to do
}

// By returns a way whose companions come from open. That is called with the plane's lock held.
func (p *Plane) By(name model.Forwarding, open func(id model.ID) (*companion.Companion, error)) *Way {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unsynced[name] = true
	return &Way{p, name, open, make(chan struct{}, 1)}
}

// Prepare makes the tables of every router follow its namespace's, and what companions the way has follow as well. It
// returns the steering of routers for which they do.
func (w *Way) Prepare(ctx context.Context, jobs []forward.Job) []forward.Prepared {
	p, way := w.plane, w.name
	p.mu.Lock()
	defer p.mu.Unlock()
	results := make([]forward.Prepared, len(jobs))
	var opened error
	if len(jobs) > 0 {
		opened = p.open()
	} else {
		p.empty()
	}
	for i := range jobs {
		if results[i].ID = jobs[i].ID; opened != nil {
			results[i].Err = opened
			continue
		}
		control.Progress(ctx)
		results[i].Steering, results[i].Err = p.start(&jobs[i], w)
	}
	synced := true
	for i := range results {
		if results[i].Err == nil {
			p.look(p.routers[jobs[i].ID], w, &results[i])
		}
		synced = synced && results[i].Err == nil && !results[i].Waits
	}
	if p.unsynced[way] = !synced; p.pool != nil && !p.forgotten &&
		!slices.Contains(slices.Collect(maps.Values(p.unsynced)), true) {
		p.pool.Forget()
		p.forgotten = true
	}
	return results
}

// List tells which routers have tables for this way.
func (w *Way) List(context.Context) (ids []model.ID, err error) {
	w.plane.mu.Lock()
	defer w.plane.mu.Unlock()
	for id, r := range w.plane.routers {
		if r.ways[w.name] {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Retire lets go of the tables of routers that are forwarded for in no other way.
func (w *Way) Retire(_ context.Context, ids []model.ID) error {
	w.plane.mu.Lock()
	defer w.plane.mu.Unlock()
	return errors.Join(each.Of(ids, func(id model.ID) error { return w.plane.leave(id, w.name) })...)
}
