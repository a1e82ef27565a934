package fast

import (
	"context"
	"fmt"
	"time"

	"github.com/polyplane/polyplane/node/forward"
)

// A router with many routes takes seconds until its tables have them, and the devices of a companion have no carrier at
// once. Other tenants must not wait for that. So Prepare does not wait: it says for which routers it would have to, and
// returns. One goroutine for each of these waits in its place. It changes nothing. It only makes Prepare be called
// again, which looks for itself.

var _ forward.Watcher = (*Way)(nil)

// Watch is forward.Watcher's.
func (w *Way) Watch(ctx context.Context, changed func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.awaited:
			changed()
		}
	}
}

// unready says that a router is not in sync, and why if that is known. For syncTime somebody waits for it by await,
// beside the caller. The caller holds the lock.
func (w *Way) unready(r *router, why string, await func(ctx context.Context)) (waits bool, err error) {
	p := w.plane
	if r.since.IsZero() {
		r.since = time.Now()
	}
	rest := syncTime - time.Since(r.since)
	if rest <= 0 {
		return false, fmt.Errorf("router %s: its routes are not yet known to forwarding %s%s; until they are it is "+
			"forwarded for as before", r.id, w.name, why)
	}
	if !r.waiter {
		r.waiter = true
		p.wait.Go(func() {
			ctx, cancel := context.WithTimeout(p.ctx, rest)
			defer cancel()
			await(ctx)
			p.mu.Lock()
			r.waiter = false
			p.mu.Unlock()
			w.Again()
		})
	}
	return true, nil
}

// awaitSync returns when all of these are closed, when nothing feeds the router's tables any more, or when ctx ends.
func (r *router) awaitSync(ctx context.Context, synced []<-chan struct{}) {
	for _, one := range synced {
		select {
		case <-one:
		case <-r.done:
		case <-ctx.Done():
		}
	}
}

// Again has whoever watches ask for another pass.
func (w *Way) Again() {
	select {
	case w.awaited <- struct{}{}:
	default: // it is told already
	}
}
