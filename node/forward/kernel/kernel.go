// Package kernel has the planes of routers whose transit packets the node's kernel forwards, in a companion of the
// router: between devices (`forwarding: router`), or between bridges with one device each (`bridge`). The tables of
// package fast say which packets are forwarded for certain, and the fabric hands these to the companion.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/companion"
	"github.com/polyplane/polyplane/node/forward/fast"
)

// leaveTime is how long a companion stays after the last packet was handed to it, so that it can send on what it has.
const leaveTime = 100 * time.Millisecond

// Plane is the plane of one of these ways.
type Plane struct {
	*fast.Way
	way  model.Forwarding
	home *companion.Home

	mu      sync.Mutex             // guards parting, and lets nobody open a companion while it is removed
	parting map[model.ID]time.Time // companions that nobody hands packets to any more, and since when
}

var _ forward.Watcher = (*Plane)(nil)
var _ forward.Plane = (*Plane)(nil)

// New returns the plane of a way: model.ForwardRouter or model.ForwardBridge. The calling thread must be in the node's
// network namespace.
func New(dirs instance.NodeDirs, tables *fast.Plane, way model.Forwarding) (*Plane, error) {
	home, err := companion.NewHome(dirs)
	if err != nil {
		return nil, fmt.Errorf("forwarding %s: %w", way, err)
	}
	p := &Plane{way: way, home: home, parting: map[model.ID]time.Time{}}
	p.Way = tables.By(way, p.open)
	return p, nil
}

// Close lets go of the node's namespace. Companions stay, and can still be listed and retired.
func (p *Plane) Close() { p.home.Close() } //nolint:errcheck // it was only looked into

func (p *Plane) open(id model.ID) (*companion.Companion, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.parting, id)
	return p.home.Open(id, p.way)
}

// Offers returns routers, where the kernel has what companions need.
func (p *Plane) Offers(context.Context) model.Offers {
	return model.OfferOf(p.way.Feature(), p.home.Probe(p.way), model.Router)
}

// List tells which routers have a companion of this way, also one that an earlier process left.
func (p *Plane) List(ctx context.Context) ([]model.ID, error) {
	followed, _ := p.Way.List(ctx) // from memory: it does not fail
	found, err := p.home.List(p.way)
	all := each.Set(slices.Concat(followed, found))
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.parting, func(id model.ID, _ time.Time) bool { return err == nil && !all[id] })
	return slices.Collect(maps.Keys(all)), err
}

// Retire removes companions, each at the first call that comes leaveTime after the one that began it. Until then it
// lists them, and it has whoever watches told when that time is over.
func (p *Plane) Retire(ctx context.Context, ids []model.ID) error {
	var failed []error
	began := false
	for _, id := range ids {
		if err := p.Way.Retire(ctx, []model.ID{id}); err != nil {
			failed = append(failed, err)
			continue
		}
		p.mu.Lock()
		if since, ok := p.parting[id]; !ok {
			p.parting[id], began = time.Now(), true
		} else if time.Since(since) >= leaveTime {
			err := p.home.Remove(id, p.way)
			if err == nil {
				delete(p.parting, id)
			}
			failed = append(failed, err)
		}
		p.mu.Unlock()
	}
	if began {
		time.AfterFunc(leaveTime, p.Again)
	}
	return errors.Join(failed...)
}
