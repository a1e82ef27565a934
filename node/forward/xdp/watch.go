package xdp

import (
	"context"
	"fmt"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// A router with many routes takes seconds until its tables have them, and one tenant's routers are no reason for the others'
// to wait: Prepare says which routers it waits for, and comes to an end. One goroutine a router waits in its place. It changes
// nothing; it has Prepare called again, which looks for itself.

var _ forward.Watcher = (*Plane)(nil)

// Watch is forward.Watcher's.
func (p *Plane) Watch(ctx context.Context, changed func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.awaited:
			changed()
		}
	}
}

// unready tells of a router that is not in sync: for syncTime it is waited for, beside whoever called. The lock is held.
func (p *Plane) unready(r *router, way model.Forwarding, synced []<-chan struct{}) (waits bool, err error) {
	if r.since.IsZero() {
		r.since = time.Now()
	}
	rest := syncTime - time.Since(r.since)
	if rest <= 0 {
		return false, fmt.Errorf("router %s: its routes are not yet known to forwarding %s; until they are it is forwarded for as before",
			r.id, way)
	}
	if !r.waiter {
		r.waiter = true
		p.wait.Go(func() {
			ctx, cancel := context.WithTimeout(p.ctx, rest)
			defer cancel()
			for _, one := range synced {
				select {
				case <-one:
				case <-r.done:
				case <-ctx.Done():
				}
			}
			p.mu.Lock()
			r.waiter = false
			p.mu.Unlock()
			select {
			case p.awaited <- struct{}{}:
			default: // it is told already
			}
		})
	}
	return true, nil
}
