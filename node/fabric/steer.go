package fabric

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// Steering is what the data path does with the packets that arrive for an element's ports.
type Steering struct {
	// Router is the number (from Router) of the forwarding tables that they are forwarded by. 0: the element's own stack,
	// the guest, gets them all.
	Router int
	// Companions, if not nil, has the node's kernel forward them instead, where those tables say that they are forwarded: in
	// the router's companion namespace, by these devices (their indices in the node's namespace, known to JoinCompanion), by
	// interface. What comes in at an interface without one is for the guest.
	Companions map[string]int
	// Off are the interfaces at which one family or both come in for the guest only.
	Off map[string]Off
}

// Off says which packets that come in at an interface are not forwarded by the data path.
type Off struct{ IPv4, IPv6 bool }

// Forwarded counts what the data path did with packets of a router since it got its number. Packets are as Counters
// has them.
type Forwarded struct {
	Packets, Bytes uint64            // forwarded by the data path or the companion, by way of all its ports
	Companion      uint64            // of these packets, those that the companion got
	Driver         uint64            // of these packets, those that took the driver's hook
	Blackholed     uint64            // dropped because the route says so
	Refused        uint64            // that the guest would have got, beyond the network's punts a second
	Punted         map[string]uint64 // given to the guest, by reason
}

// steered is what the fabric knows of a router.
type steered struct {
	number     int
	on         uint32 // pipeline.ToGuest, …
	companions map[string]int
	off        map[string]Off
}

// Tables is the memory of the forwarding tables (package fib's Memory), which outlives the agent. It must not be used
// after Close.
func (f *Fabric) Tables() *pipeline.FIB {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return nil
	}
	return f.pipe.FIB
}

// Ports gives the numbers by which the data path knows the ports, also before they are there: the next Apply must name
// them, or the numbers are others' again.
func (f *Fabric) Ports(ids []model.PortID) (map[model.PortID]uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return nil, errClosed
	}
	refused, err := f.takeSlots(ids)
	if err != nil {
		return nil, err
	}
	if len(refused) > 0 {
		return nil, fmt.Errorf("port %s: %w", refused[0], errNoSlot)
	}
	numbers := make(map[model.PortID]uint32, len(ids))
	for _, id := range ids {
		numbers[id] = f.slots[id]
	}
	return numbers, nil
}

// Router gives the number of an element's forwarding tables (pipeline.Table), which it keeps until it is steered to the
// guest. Its counters begin at zero.
func (f *Fabric) Router(id model.ID) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return 0, errClosed
	}
	if s := f.steered[id]; s != nil {
		return s.number, nil
	}
	for n := 1; n < len(f.pipe.Routers); n++ {
		r := &f.pipe.Routers[n]
		if r.Name != [16]uint8{} || time.Since(f.freed[n]) < numberRest {
			continue
		}
		delete(f.freed, n)
		if err := pipeline.Zero[pipeline.RouterCount](f.pipe.RouterCounts, []uint32{uint32(n)}); err != nil {
			return 0, err
		}
		name := routerName(id)
		r.Seed = FlowSeed(id)
		set32(&r.Meter, 0)
		r.Name = name
		f.steered[id] = &steered{number: n}
		return n, nil
	}
	return 0, fmt.Errorf("element %s: the fabric of a node forwards for %d routers, and has them, or had until a moment ago", id, pipeline.MaxRouters)
}

// numberRest is how long a router's number is nobody's: far longer than a run of the programs takes, which may have read it
// from a port just before.
const numberRest = time.Second

func routerName(id model.ID) [16]uint8 {
	h := sha256.Sum256([]byte(id.String()))
	return [16]uint8(h[:16])
}

// Steer changes where packets for an element go, for all of its ports by one store. Ports that come later follow.
func (f *Fabric) Steer(_ context.Context, id model.ID, s Steering) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return errClosed
	}
	is := f.steered[id]
	if s.Router == 0 {
		if is == nil {
			return nil
		}
		atomic.StoreUint32(&f.pipe.Routers[is.number].On, pipeline.ToGuest)
		is.on, is.companions, is.off = pipeline.ToGuest, nil, nil
		f.flagPorts(id)
		f.nameCompanions(id, nil)
		f.pipe.Routers[is.number].Name = [16]uint8{}
		delete(f.steered, id)
		f.freed[is.number] = time.Now()
		return nil
	}
	if is == nil || is.number != s.Router {
		return fmt.Errorf("element %s cannot be steered to tables %d: they are not its own", id, s.Router)
	}
	is.on, is.companions, is.off = pipeline.ToPipeline, maps.Clone(s.Companions), maps.Clone(s.Off)
	if s.Companions != nil {
		is.on = pipeline.ToCompanion
		f.nameCompanions(id, s.Companions)
	}
	f.flagPorts(id)
	atomic.StoreUint32(&f.pipe.Routers[is.number].On, is.on)
	if s.Companions == nil {
		f.nameCompanions(id, nil)
	}
	return nil
}

// flagPorts writes what steering says into the flags of the element's ports.
func (f *Fabric) flagPorts(id model.ID) {
	for port, slot := range f.slots {
		if port.ID != id {
			continue
		}
		flags := &f.pipe.Ports[slot].Flags
		set32(flags, atomic.LoadUint32(flags)&keptFlags|f.steeringOf(port))
	}
}

// keptFlags are those that steering leaves as they are.
const keptFlags = pipeline.Down | pipeline.Queue | pipeline.XDP | pipeline.TC | pipeline.Metered | pipeline.Rated | pipeline.Cut | pipeline.Paced | pipeline.Trunk | pipeline.Copies

// steeringOf are the flags that steering gives a port.
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

// FlowSeed is where the hash begins that chooses among an element's next hops.
func FlowSeed(id model.ID) uint32 {
	name := routerName(id)
	return binary.LittleEndian.Uint32(name[:])
}

// Steered tells which elements have a number, and how they are steered.
func (f *Fabric) Steered() map[model.ID]Steering {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[model.ID]Steering, len(f.steered))
	for id, s := range f.steered {
		all[id] = s.steering()
	}
	return all
}

// rememberSteering reads from the tables how an earlier process steered, and frees numbers that no port tells of.
func (f *Fabric) rememberSteering() {
	for port, slot := range f.slots {
		flags := atomic.LoadUint32(&f.pipe.Ports[slot].Flags)
		n := pipeline.RouterOf(flags)
		if n <= 0 || n >= len(f.pipe.Routers) || f.pipe.Routers[n].Name != routerName(port.ID) {
			set32(&f.pipe.Ports[slot].Flags, flags&keptFlags)
			continue
		}
		s := f.steered[port.ID]
		if s == nil {
			s = &steered{number: n, on: min(atomic.LoadUint32(&f.pipe.Routers[n].On), pipeline.ToCompanion), off: map[string]Off{}}
			f.steered[port.ID] = s
		}
		if o := (Off{flags&pipeline.OffIPv4 != 0, flags&pipeline.OffIPv6 != 0}); o != (Off{}) {
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

// Forwarded reads what the data path forwarded, of all elements that have a number.
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

// takeSlots gives slots to ports that have none, with counters at zero, and tells for which there was none left.
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
		f.pipe.NextGeneration(slot) // before anything says that it is the port's
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
