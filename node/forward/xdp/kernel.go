package xdp

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

// leaveTime is how long a companion that no more packets are handed to stays, for those that it has.
const leaveTime = 100 * time.Millisecond

// Kernel is the plane of routers whose transit packets the node's kernel forwards in a companion: between devices (router)
// or between bridges with a device each (bridge).
type Kernel struct {
	p   *Plane
	way model.Forwarding
}

var _ forward.Plane = (*Kernel)(nil)

// Kernel returns the plane of a way: model.ForwardRouter or model.ForwardBridge. The calling thread must be in the node's
// network namespace.
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

// Probe tells whether the kernel has what companions need.
func (k *Kernel) Probe(context.Context) error { return k.p.home.Probe(k.way) }

// Prepare has every router's companion follow its namespace, and steers its packets there once it does.
func (k *Kernel) Prepare(ctx context.Context, jobs []forward.Job) []forward.Prepared {
	return k.p.prepare(ctx, jobs, k.way)
}

// List tells which routers have a companion of this way, but for those that forward until another plane is ready.
func (k *Kernel) List(context.Context) ([]model.ID, error) {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	found, err := k.p.home.List(k.way)
	var ids []model.ID
	for _, id := range found {
		if wanted := k.p.wanted[id]; wanted == "" || wanted == k.way || !k.p.routers[id].uses(k.way) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Retire removes companions. What forwards by them is given to the routers' own stacks first.
func (k *Kernel) Retire(ctx context.Context, ids []model.ID) error {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	var failed []error
	var left []model.ID
	for _, id := range ids {
		r := k.p.routers[id]
		if r.uses(k.way) || r == nil && k.p.fabric.Steered()[id].Companions != nil {
			if err := k.p.toGuest(ctx, id); err != nil {
				failed = append(failed, err)
				continue
			}
		} else if r != nil {
			r.leave(k.way)
		}
		left = append(left, id)
	}
	if len(left) > 0 {
		time.Sleep(leaveTime)
	}
	for _, id := range left {
		failed = append(failed, k.p.home.Remove(id, k.way))
	}
	return errors.Join(failed...)
}

// uses tells whether a companion of that way forwards for the router.
func (r *router) uses(way model.Forwarding) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.using != nil && r.using.Way() == way
}

// leave has a companion be told no more.
func (r *router) leave(way model.Forwarding) {
	r.mu.Lock()
	f := r.companions[way]
	delete(r.companions, way)
	r.mu.Unlock()
	if f != nil {
		f.Close() //nolint:errcheck // nothing is lost
	}
}

// accompany sees to it that the router has the companion that a way needs. fresh is whether nothing was told yet.
func (r *router) accompany(job *forward.Job, way model.Forwarding, fresh bool) error {
	if way == model.ForwardXDP {
		return nil
	}
	f := r.companions[way]
	if f != nil && !f.Same() {
		if err := r.lose(f.Companion); err != nil {
			return err
		}
		r.leave(way)
		f = nil
	}
	made := f == nil
	if made {
		c, err := r.plane.home.Open(r.id, way)
		if err != nil {
			return err
		}
		c.Follow(r.port)
		f = &follower{Companion: c}
	}
	interfaces := make([]companion.Interface, len(job.Element.Interfaces))
	for i := range interfaces {
		ifc := &job.Element.Interfaces[i]
		mac, err := net.ParseMAC(ifc.MAC)
		if err != nil {
			return fmt.Errorf("interface %s: its MAC address: %w", ifc.Name, err)
		}
		interfaces[i] = companion.Interface{Name: ifc.Name, Device: ifc.LinuxName(), MAC: mac, Port: r.ports[ifc.LinuxName()].number}
	}
	changed, err := f.Ensure(interfaces, func(ends map[string]int) error {
		return r.plane.fabric.JoinCompanion(r.plane.ctx, r.id, ends)
	}, r.handedOver)
	if err != nil {
		if made {
			err = errors.Join(err, f.Close())
		} else {
			err = errors.Join(err, r.lose(f.Companion))
		}
		return err
	}
	if made {
		r.mu.Lock()
		r.companions[way] = f
		r.mu.Unlock()
	}
	switch {
	case fresh, !made && !changed:
		return nil
	case changed:
		if err := r.lose(f.Companion); err != nil {
			return err
		}
	}
	r.mu.Lock()
	f.follows = false
	r.mu.Unlock()
	f.Restart()
	r.mirror.Restart()
	return nil
}

// lose has the fabric forward, by the same tables, while a companion that forwarded cannot.
func (r *router) lose(c *companion.Companion) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.using != c {
		return nil
	}
	r.using = nil
	return r.tell()
}

// handedOver counts the routes by which packets are handed to companions; not known while not all of them fit, or if they
// are too many to be counted now and then.
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
