package fast

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/companion"
)

// A companion whose devices have no carrier yet is looked at again after firstLook. The wait doubles up to lastLook.
const (
	firstLook = time.Millisecond
	lastLook  = 64 * time.Millisecond
)

// leave stops telling a companion anything.
func (r *router) leave(way model.Forwarding) {
	r.mu.Lock()
	f := r.companions[way]
	delete(r.companions, way)
	r.mu.Unlock()
	if f != nil {
		f.Close() //nolint:errcheck // nothing is lost
	}
}

// accompany makes sure that the router has the companion that a way needs. fresh says that nothing was told yet. While
// a companion that forwarded is put right, the fabric itself forwards by the same tables; meanwhile is the steering for
// that.
func (r *router) accompany(job *forward.Job, w *Way, fresh bool) (meanwhile *forward.Steering, err error) {
	if w.open == nil {
		return nil, nil
	}
	way := w.name
	f := r.companions[way]
	used := f != nil && f.used
	if f != nil && !f.Same() {
		r.leave(way)
		f = nil
	}
	made := f == nil
	if made {
		c, err := w.open(r.id)
		if err != nil {
			return r.without(used), err
		}
		c.Follow(r.port)
		f = &follower{Companion: c}
	}
	interfaces := make([]companion.Interface, len(job.Element.Interfaces))
	for i := range interfaces {
		ifc := &job.Element.Interfaces[i]
		mac, err := net.ParseMAC(ifc.MAC)
		if err != nil {
			return nil, fmt.Errorf("interface %s: its MAC address: %w", ifc.Name, err)
		}
		interfaces[i] = companion.Interface{Name: ifc.Name, Device: ifc.LinuxName(), MAC: mac,
			Port: r.ports[ifc.LinuxName()].number}
	}
	state, err := f.Ensure(interfaces, r.place.Join, r.handedOver)
	if made || state != companion.Unchanged || err != nil {
		f.used, meanwhile = false, r.without(used)
	}
	if err != nil && made {
		return meanwhile, errors.Join(err, f.Close())
	}
	if made {
		r.mu.Lock()
		r.companions[way] = f
		r.mu.Unlock()
	}
	waits := state == companion.Waits
	if err != nil || !waits && (fresh || !made && state == companion.Unchanged) {
		return meanwhile, err
	}
	r.mu.Lock()
	f.follows, f.waits = false, waits
	r.mu.Unlock()
	if f.Restart(); !waits {
		r.stream.Restart()
	}
	return meanwhile, nil
}

// awaitCarriers returns when all devices of a companion have carriers, when it is no longer the router's, or when ctx
// ends. The caller does not hold the plane's lock.
func (r *router) awaitCarriers(ctx context.Context, way model.Forwarding, f *follower) {
	for wait := firstLook; ctx.Err() == nil; wait = min(2*wait, lastLook) {
		r.plane.mu.Lock()
		over := r.companions[way] != f || f.Carried()
		r.plane.mu.Unlock()
		if over {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// without is the steering of a router whose companion cannot forward now, if it did before.
func (r *router) without(used bool) *forward.Steering {
	if !used {
		return nil
	}
	return &forward.Steering{Tables: r.number}
}

// handedOver counts the routes by which packets are handed to companions. The number is not known while not all of them
// fit, or if they are too many to be counted now and then.
func (r *router) handedOver() (n int, known bool) {
	if s := r.feed.Status(); !s.Synced || s.Full != nil || s.Punted != [2]string{} {
		return 0, false
	}
	for _, t := range r.tables {
		if t.Usage().Routes > companion.MostRoutes {
			return 0, false
		}
		for _, hop := range t.Routes() {
			if hop > fib.ProhibitID {
				n++
			}
		}
	}
	return n, true
}
