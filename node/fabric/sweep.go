package fabric

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// sweep removes the entries of what is no longer wanted.
func (p *pass) sweep() error {
	if p.state.Incomplete {
		return nil
	}
	devices := map[uint32]bool{}
	edges := map[pipeline.EdgeKey]bool{}
	peers := map[uint32]bool{}
	for _, w := range p.wants {
		if w.index != 0 {
			devices[w.index] = true
		}
		if w.link.Kind() == pipeline.Edge {
			edges[pipeline.EdgeKey{Ifindex: w.link.Target(), Vlan: w.link.Label()}] = true
		}
	}
	for _, peer := range p.state.Peers {
		peers[p.peers[peer.Address.Unmap()]] = true
	}
	if err := errors.Join(remove(p.pipe.Devices, devices), p.sweepTunnels(),
		remove(p.pipe.Edges, edges), p.sweepRelays()); err != nil {
		return err
	}
	for i := 1; i < len(p.pipe.Peers); i++ { // if entries are spoilt, several may have the same address
		if !peers[uint32(i)] {
			set32(&p.pipe.Peers[i].Family, 0)
		}
	}
	p.freeNumbers()
	if err := p.freeSlots(); err != nil {
		return err
	}
	if p.swept {
		return nil
	}
	p.clear()
	err := p.pipe.Sweep()
	p.swept = err == nil
	return err
}

// clear empties slots that belong to nobody: an earlier process may have left something there, or something else has
// spoilt them.
func (p *pass) clear() {
	taken := make(map[uint32]bool, len(p.slots))
	for _, slot := range p.slots {
		taken[slot] = true
	}
	for slot := range uint32(len(p.pipe.Ports)) {
		if slot > 0 && !taken[slot] && p.pipe.Ports[slot] != (pipeline.Port{}) {
			p.vacateSlot(slot)
		}
	}
}

// vacateSlot empties a port's entry.
func (f *Fabric) vacateSlot(slot uint32) {
	e := &f.pipe.Ports[slot]
	atomic.StoreUint64(&e.Link, 0)
	atomic.StoreUint32(&e.Ifindex, 0)
	atomic.StoreUint32(&e.Flags, 0)
	atomic.StoreUint64(&e.Mac, 0)
	atomic.StoreUint32(&e.Snap, 0)
	atomic.StoreUint32(&e.Loss, 0)
	for _, word := range []*uint64{&f.pipe.Mirrors[slot].Link, &f.pipe.Mirrors[slot].Device,
		&f.pipe.Mirrors[slot].Copied, &f.pipe.Mirrors[slot].Missed} {
		atomic.StoreUint64(word, 0)
	}
	atomic.StoreUint64(&f.pipe.Shapers[slot], 0)
	atomic.StoreUint64(&f.pipe.Queues[slot], 0)
	atomic.StoreUint64(&f.pipe.Companions[slot], 0)
}

// remove deletes what is not wanted from a table.
func remove[K comparable](m *ebpf.Map, wanted map[K]bool) error {
	all, err := pipeline.All[K, uint32](m)
	if err != nil {
		return err
	}
	var stale []K
	for k := range all {
		if !wanted[k] {
			stale = append(stale, k)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	if _, err := m.BatchDelete(stale, nil); err != nil {
		return fmt.Errorf("remove %d entries from the table %v: %w", len(stale), m, err)
	}
	return nil
}

// restSlots lets slots be used again when no run of the programs can still use what it read before they became free.
// What waits in queues is recognised by the slot's generation, however long it waits.
func (p *pass) restSlots() {
	for slot, since := range p.resting {
		if time.Since(since) >= numberRest {
			delete(p.resting, slot)
		}
	}
}

// freeNumbers takes the numbers of elements without ports away, unless somebody fills their tables.
func (p *pass) freeNumbers() {
	there := make(map[model.ID]bool, len(p.steered))
	for _, w := range p.wants {
		there[w.port.ID.ID] = true
	}
	for id, is := range p.steered {
		if !is.kept && !there[id] {
			p.toGuest(id, is)
		}
	}
}

// freeSlots forgets ports that are not in the state.
func (p *pass) freeSlots() error {
	p.restSlots()
	if len(p.slots) == len(p.wants) {
		return nil
	}
	kept := make(map[model.PortID]bool, len(p.wants))
	for _, w := range p.wants {
		kept[w.port.ID] = true
	}
	var keys []pipeline.IdentityKey
	for id, slot := range p.slots {
		if kept[id] {
			continue
		}
		key, _ := pipeline.NewIdentity(id.String(), slot)
		keys = append(keys, key)
		p.vacateSlot(slot)
		delete(p.past, slot)
		delete(p.beside, slot)
		p.captures.end(slot)
		delete(p.slots, id)
		delete(p.links, slot)
		p.resting[slot] = time.Now()
		p.freed++
	}
	if len(keys) == 0 {
		return nil
	}
	if _, err := p.pipe.Identities.BatchDelete(keys, nil); err != nil {
		return fmt.Errorf("remove %d ports from the identities' table: %w", len(keys), err)
	}
	return nil
}
