package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/node/forward"
)

// Forwarded counts what the data path did with packets of a router since the router got its number. Packets are counted
// as in Counters.
type Forwarded struct {
	Packets, Bytes uint64            // forwarded by the data path or the companion, through all of its ports
	Companion      uint64            // the part of these that the companion or the devices got
	Driver         uint64            // the part of these that took the driver's hook
	Blackholed     uint64            // dropped because the route says so
	Refused        uint64            // packets for the guest that were beyond the network's punts a second
	Punted         map[string]uint64 // given to the guest, by reason
}

// steered is what the fabric knows of an element that has a number.
type steered struct {
	forward.Steering // what State said last, or what an earlier process left
	number           int
	kept             bool   // a plane fills the tables with this number, which belongs to the element until Leave
	on               uint32 // pipeline.ToGuest, …
	off              map[string]forward.Off
}

// Tables is the memory of the forwarding tables (package fib's Memory), which outlives the agent. It must not be used
// after Close.
type Tables struct {
	*pipeline.FIB
	f *Fabric
}

// Tables returns the node's.
func (f *Fabric) Tables() Tables { return Tables{f.pipe.FIB, f} }

// Used tells whether packets are steered to any tables.
func (t Tables) Used() bool {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	for _, s := range t.f.steered {
		if s.Tables != 0 {
			return true
		}
	}
	return false
}

// place is the forward.Place of an element.
type place struct {
	f  *Fabric
	id model.ID
}

// Place returns an element's.
func (f *Fabric) Place(id model.ID) forward.Place { return place{f, id} }

// lock locks the fabric, which must not be closed.
func (p place) lock() (unlock func(), err error) {
	p.f.mu.Lock()
	if p.f.pipe == nil {
		p.f.mu.Unlock()
		return nil, errClosed
	}
	return p.f.mu.Unlock, nil
}

// Ports is forward.Place's. The next Apply must name the ports, or the numbers become free again.
func (p place) Ports(interfaces []string) (map[string]uint32, error) {
	unlock, err := p.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	ids := each.Of(interfaces, func(ifc string) model.PortID { return model.PortID{ID: p.id, Interface: ifc} })
	refused, err := p.f.takeSlots(ids)
	if err != nil {
		return nil, err
	}
	if len(refused) > 0 {
		return nil, fmt.Errorf("port %s: %w", refused[0], errNoSlot)
	}
	numbers := make(map[string]uint32, len(ids))
	for _, id := range ids {
		numbers[id.Interface] = p.f.slots[id]
	}
	return numbers, nil
}

// Tables is forward.Place's. The number is that of pipeline.Table.
func (p place) Tables() (int, error) {
	unlock, err := p.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	s, err := p.f.numbered(p.id)
	if err != nil {
		return 0, err
	}
	s.kept = true
	return s.number, nil
}

// numbered gives an element its number.
func (f *Fabric) numbered(id model.ID) (*steered, error) {
	if s := f.steered[id]; s != nil {
		return s, nil
	}
	for n := 1; n < len(f.pipe.Routers); n++ {
		r := &f.pipe.Routers[n]
		if r.Name != [16]uint8{} || time.Since(f.freed[n]) < numberRest {
			continue
		}
		delete(f.freed, n)
		if err := pipeline.Zero[pipeline.RouterCount](f.pipe.RouterCounts, []uint32{uint32(n)}); err != nil {
			return nil, err
		}
		r.Seed = pipeline.FlowSeed(id.String())
		set32(&r.Meter, 0)
		r.Name = pipeline.RouterName(id.String())
		f.steered[id] = &steered{number: n}
		return f.steered[id], nil
	}
	return nil, fmt.Errorf("element %s: the fabric of a node forwards for %d routers, and has them, or had until a "+
		"moment ago", id, pipeline.MaxRouters)
}

// numberRest is how long a router's number stays unused after it became free. A run of the programs that read it from a
// port just before is long over by then.
const numberRest = time.Second

// Leave is forward.Place's.
func (p place) Leave() error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if is := p.f.steered[p.id]; is != nil {
		if is.kept = false; is.on != pipeline.ToDevices {
			p.f.toGuest(p.id, is)
		}
	}
	return nil
}

// Restrict is forward.Place's.
func (p place) Restrict(off map[string]forward.Off) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	is := p.f.steered[p.id]
	if is == nil {
		return fmt.Errorf("element %s has no tables", p.id)
	}
	if !maps.Equal(is.off, off) {
		is.off = maps.Clone(off)
		p.f.flagPorts(p.id)
	}
	return nil
}

// toGuest gives all of an element's packets to its own stack, by a single store. If nobody fills the tables with its
// number, the number is free then.
func (f *Fabric) toGuest(id model.ID, is *steered) {
	if is.on != pipeline.ToGuest {
		atomic.StoreUint32(&f.pipe.Routers[is.number].On, pipeline.ToGuest)
		is.Steering, is.on = forward.Steering{}, pipeline.ToGuest
		f.flagPorts(id)
		f.nameCompanions(id, nil)
	}
	if !is.kept {
		f.pipe.Routers[is.number].Name = [16]uint8{}
		delete(f.steered, id)
		f.freed[is.number] = time.Now()
	}
}

// steer finds the elements that are to be steered differently. What goes to the guest does so at once. For the others,
// queues are made first, and turn comes later.
func (p *pass) steer() {
	p.turned = map[model.ID]*steered{}
	for id, s := range p.state.Steering {
		is := p.steered[id]
		if s.Tables == 0 && s.Devices == nil {
			if is != nil {
				p.toGuest(id, is)
			}
			continue
		}
		var err error
		if s.Tables == 0 {
			is, err = p.numbered(id)
		} else if is == nil || is.number != s.Tables {
			err = fmt.Errorf("element %s cannot be steered to tables %d: they are not its own", id, s.Tables)
		}
		if err != nil {
			p.report.Failed[model.PortID{ID: id}] = err
		} else if !is.Equal(s) {
			s.Devices = maps.Clone(s.Devices)
			switch is.Steering, is.on = s, pipeline.ToCompanion; {
			case s.Tables == 0:
				is.on = pipeline.ToDevices
			case s.Devices == nil:
				is.on = pipeline.ToPipeline
			}
			p.turned[id] = is
		}
	}
}

// turn makes packets go where steering says, for all ports of an element by a single store, and repairs what was
// altered. It names devices before packets are handed to them, and forgets them afterwards.
func (p *pass) turn() {
	name := func(devices bool) {
		for port, slot := range p.slots {
			if s := p.turned[port.ID]; s != nil && (s.Devices != nil) == devices {
				p.nameCompanion(slot, uint32(s.Devices[port.Interface]))
			}
		}
	}
	for port, slot := range p.slots {
		if p.turned[port.ID] != nil {
			p.flagPort(port, slot) // one that the state does not name, too
		}
	}
	name(true)
	for id, s := range p.steered {
		r := &p.pipe.Routers[s.number]
		if name := pipeline.RouterName(id.String()); r.Name != name {
			r.Name = name
		}
		set32(&r.Seed, pipeline.FlowSeed(id.String()))
		if s.on != pipeline.ToGuest && set32(&r.On, s.on) && p.turned[id] == nil {
			p.changed(change.SteeringRestored, id)
		}
	}
	name(false)
	p.report.Steered = true
}

// flagPorts writes the flags that follow from steering into the entries of the element's ports.
func (f *Fabric) flagPorts(id model.ID) {
	for port, slot := range f.slots {
		if port.ID == id {
			f.flagPort(port, slot)
		}
	}
}

func (f *Fabric) flagPort(port model.PortID, slot uint32) {
	flags := &f.pipe.Ports[slot].Flags
	set32(flags, atomic.LoadUint32(flags)&keptFlags|f.steeringOf(port))
}

// keptFlags are those that steering leaves as they are.
const keptFlags = pipeline.Down | pipeline.Queue | pipeline.XDP | pipeline.TC | pipeline.Metered | pipeline.Rated |
	pipeline.Cut | pipeline.Paced | pipeline.Trunk | pipeline.Copies | pipeline.Virtual | pipeline.Untagged

// steeringOf are the flags that steering sets on a port.
func (f *Fabric) steeringOf(port model.PortID) uint32 {
	s := f.steered[port.ID]
	if s == nil || s.on == pipeline.ToGuest {
		return 0
	}
	flags := pipeline.RoutedBy(s.number)
	off := s.off[port.Interface]
	if off.IPv4 {
		flags |= pipeline.OffIPv4
	}
	if off.IPv6 {
		flags |= pipeline.OffIPv6
	}
	return flags
}

// Steered returns which elements have a number, and how they are steered.
func (f *Fabric) Steered() map[model.ID]forward.Steering {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[model.ID]forward.Steering, len(f.steered))
	for id, s := range f.steered {
		all[id] = s.Steering // the map itself is never changed, only replaced
	}
	return all
}

// rememberSteering reads from the tables how an earlier process steered, and frees numbers that no port uses.
func (f *Fabric) rememberSteering() {
	for port, slot := range f.slots {
		flags := atomic.LoadUint32(&f.pipe.Ports[slot].Flags)
		n := pipeline.RouterOf(flags)
		if n <= 0 || n >= len(f.pipe.Routers) || f.pipe.Routers[n].Name != pipeline.RouterName(port.ID.String()) {
			set32(&f.pipe.Ports[slot].Flags, flags&keptFlags)
			continue
		}
		s := f.steered[port.ID]
		if s == nil {
			s = &steered{number: n, on: min(atomic.LoadUint32(&f.pipe.Routers[n].On), pipeline.ToDevices),
				off: map[string]forward.Off{}}
			if s.on == pipeline.ToPipeline || s.on == pipeline.ToCompanion {
				s.Tables = n
			}
			f.steered[port.ID] = s
		}
		if o := (forward.Off{IPv4: flags&pipeline.OffIPv4 != 0, IPv6: flags&pipeline.OffIPv6 != 0}); o.IPv4 || o.IPv6 {
			s.off[port.Interface] = o
		}
	}
	f.rememberCompanions()
	known := map[int]bool{}
	for _, s := range f.steered {
		known[s.number] = true
	}
	for n := range f.pipe.Routers {
		if r := &f.pipe.Routers[n]; r.Name != [16]uint8{} && !known[n] {
			atomic.StoreUint32(&r.On, 0)
			r.Name = [16]uint8{}
		}
	}
}

// Forwarded reads what the data path forwarded, for all elements that have a number.
func (f *Fabric) Forwarded(ctx context.Context) (map[model.ID]Forwarded, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return nil, errClosed
	}
	if err := ctx.Err(); err != nil || len(f.steered) == 0 {
		return nil, err
	}
	n := 0
	for _, s := range f.steered {
		n = max(n, s.number+1)
	}
	counts, processors, err := pipeline.PerCPU[pipeline.RouterCount](f.pipe.RouterCounts, n)
	if err != nil {
		return nil, err
	}
	all := make(map[model.ID]Forwarded, len(f.steered))
	for id, s := range f.steered {
		var c Forwarded
		for _, v := range counts[s.number*processors : (s.number+1)*processors] {
			c.Packets += v.Packets
			c.Bytes += v.Bytes
			c.Companion += v.Companion
			c.Blackholed += v.Blackholed
			c.Refused += v.Refused
			c.Driver += v.Driver
			for reason, text := range pipeline.Punts {
				if v.Punts[reason] == 0 {
					continue
				}
				if c.Punted == nil {
					c.Punted = map[string]uint64{}
				}
				c.Punted[text] += v.Punts[reason]
			}
		}
		all[id] = c
	}
	return all, nil
}

var errNoSlot = fmt.Errorf("the fabric of a node holds %d ports, and all are taken", pipeline.MaxPorts)

// takeSlots gives slots with counters at zero to ports that have none. It returns the ports for which no slot was left.
func (f *Fabric) takeSlots(ports []model.PortID) (refused []model.PortID, err error) {
	var keys []pipeline.IdentityKey
	var values []pipeline.Identity
	var slots []uint32
	var ids []model.PortID
	var taken map[uint32]bool
	next := uint32(1)
	for _, id := range ports {
		if _, ok := f.slots[id]; ok {
			continue
		}
		if taken == nil {
			taken = make(map[uint32]bool, len(f.slots))
			for _, slot := range f.slots {
				taken[slot] = true
			}
			for slot := range f.resting {
				taken[slot] = true
			}
		}
		for taken[next] {
			next++
		}
		if next > pipeline.MaxPorts {
			refused = append(refused, id)
			continue
		}
		taken[next] = true
		key, value := pipeline.NewIdentity(id.String(), next)
		keys, values, slots, ids = append(keys, key), append(values, value), append(slots, next), append(ids, id)
		f.slots[id] = next
	}
	if len(keys) == 0 {
		return refused, nil
	}
	for _, slot := range slots {
		f.pipe.NextGeneration(slot) // before anything says that it belongs to the port
	}
	err = errors.Join(pipeline.Zero[pipeline.TrafficCount](f.pipe.Traffic, slots),
		pipeline.Zero[pipeline.DropCount](f.pipe.Drops, slots))
	if err == nil {
		if _, err = f.pipe.Identities.BatchUpdate(keys, values, nil); err != nil {
			err = fmt.Errorf("write %d ports into the identities' table: %w", len(keys), err)
		}
	}
	if err != nil {
		for _, id := range ids {
			delete(f.slots, id)
		}
	}
	return refused, err
}
