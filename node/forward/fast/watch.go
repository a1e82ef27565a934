package fast

import (
	"context"
	"fmt"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// A router with many routes takes seconds until its tables have them, and other tenants must not wait for that. So
// Prepare does not wait: it says for which routers it would have to, and returns. One goroutine for each of these waits
// in its place. It changes nothing. It only makes Prepare be called again, which looks for itself.

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

// unready says that a router is not in sync. For syncTime somebody waits for it, beside the caller. The caller holds
// the lock.
func (p *Plane) unready(r *router, way model.Forwarding, synced []<-chan struct{}) (waits bool, err error) {
	if r.since.IsZero() {
		r.since = time.Now()
	}
	rest := syncTime - time.Since(r.since)
	if rest <= 0 {
		return false, fmt.Errorf("router %s: its routes are not yet known to forwarding %s; until they are it is "+
			"forwarded for as before",
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
			p.tell()
		})
	}
	return true, nil
}

// tell has whoever watches ask for another pass.
func (p *Plane) tell() {
	select {
	case p.awaited <- struct{}{}:
	default: // it is told already
	}
}
