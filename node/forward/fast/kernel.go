package fast

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/companion"
)

// leaveTime is how long a companion stays after the last packet was handed to it, so that it can send on what it has.
const leaveTime = 100 * time.Millisecond

// A companion whose devices have no carrier yet is looked at again after firstLook. The wait doubles up to lastLook.
const (
	firstLook = time.Millisecond
	lastLook  = 64 * time.Millisecond
)

// Kernel is the plane of routers whose transit packets the node's kernel forwards in a companion: between devices
// (`router`), or between bridges with one device each (`bridge`).
type Kernel struct {
	p   *Plane
	way model.Forwarding
}

var _ forward.Plane = (*Kernel)(nil)

// Kernel returns the plane of a way: model.ForwardRouter or model.ForwardBridge. The calling thread must be in the
// node's network namespace.
func (p *Plane) Kernel(way model.Forwarding) (*Kernel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.home == nil {
		home, err := companion.NewHome(p.dirs)
		if err != nil {
			return nil, fmt.Errorf("forwarding %s: %w", way, err)
		}
		p.home = home
	}
	p.unsynced[way] = true
	return &Kernel{p: p, way: way}, nil
}

// Offers returns routers, where the kernel has what companions need.
func (k *Kernel) Offers(context.Context) model.Offers {
	return model.OfferOf(k.way.Feature(), k.p.home.Probe(k.way), model.Router)
}

// Prepare makes every router's companion follow its namespace, and returns the companion's devices once it does.
func (k *Kernel) Prepare(ctx context.Context, jobs []forward.Job) []forward.Prepared {
	return k.p.prepare(ctx, jobs, k.way)
}

// List tells which routers have a companion of this way, also one that an earlier process left.
func (k *Kernel) List(context.Context) ([]model.ID, error) {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	found, err := k.p.home.List(k.way)
	all := make(map[model.ID]bool, len(found))
	for _, id := range found {
		all[id] = true
	}
	for id, r := range k.p.routers {
		if r.ways[k.way] {
			all[id] = true
		}
	}
	maps.DeleteFunc(k.p.parting, func(p parting, _ time.Time) bool {
		return err == nil && p.way == k.way && !all[p.id]
	})
	return slices.Collect(maps.Keys(all)), err
}

// parting is a companion that nobody hands packets to any more.
type parting struct {
	id  model.ID
	way model.Forwarding
}

// Retire removes companions, each at the first call that comes leaveTime after the one that began it. Until then it
// lists them, and it has whoever watches told when that time is over.
func (k *Kernel) Retire(_ context.Context, ids []model.ID) error {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	var failed []error
	began := false
	for _, id := range ids {
		if err := k.p.leave(id, k.way); err != nil {
			failed = append(failed, err)
			continue
		}
		this := parting{id, k.way}
		if since, ok := k.p.parting[this]; !ok {
			k.p.parting[this], began = time.Now(), true
		} else if time.Since(since) >= leaveTime {
			err := k.p.home.Remove(id, k.way)
			if err == nil {
				delete(k.p.parting, this)
			}
			failed = append(failed, err)
		}
	}
	if began {
		time.AfterFunc(leaveTime, k.p.tell)
	}
	return errors.Join(failed...)
}

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
func (r *router) accompany(job *forward.Job, way model.Forwarding,
	fresh bool) (meanwhile *forward.Steering, err error) {
	if way == model.ForwardXDP {
		return nil, nil
	}
	f := r.companions[way]
	used := f != nil && f.used
	if f != nil && !f.Same() {
		r.leave(way)
		f = nil
	}
	made := f == nil
	if made {
		delete(r.plane.parting, parting{r.id, way})
		c, err := r.plane.home.Open(r.id, way)
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
