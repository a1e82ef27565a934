package fabric

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// A router's companion is a namespace in which the node's kernel forwards for it. Each of the router's ports has a pair
// of devices: one end in the companion, the other in the node's namespace. The data path hands packets to that pair,
// and what the kernel has forwarded comes out of another port's pair, as if the router's port had sent it. Devices may
// also get all of an element's packets, and not only those that its tables forward. To the data path these are the
// same; what lies behind them is the business of whoever made them.

const companionName = "polyplane companion"

// companionBlock is the tc block that the devices of all companions share.
func (f *Fabric) companionBlock() uint32 { return f.number("companions") }

// A port's entry names the device that packets are handed to now, and the one before it, from which some may still
// come.
func companionWord(now, former uint32) uint64 { return uint64(former)<<32 | uint64(now) }

func companionsOf(word uint64) (now, former uint32) { return uint32(word), uint32(word >> 32) }

// Join is forward.Place's.
func (p place) Join(devices map[string]int) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	var indices []int
	var keys, slots []uint32
	for ifc, index := range devices {
		slot, ok := p.f.slots[model.PortID{ID: p.id, Interface: ifc}]
		if !ok {
			return fmt.Errorf("interface %s of element %s is not known to the fabric", ifc, p.id)
		}
		indices, keys, slots = append(indices, index), append(keys, uint32(index)), append(slots, slot)
	}
	if err := p.f.joinCompanions(indices); err != nil {
		return fmt.Errorf("element %s: %w", p.id, err)
	}
	return write(p.f.pipe.CompanionDevices, keys, slots)
}

// joinCompanions attaches the filter of companions' devices.
func (f *Fabric) joinCompanions(indices []int) error {
	block := f.companionBlock()
	for i, index := range indices {
		var b linux.Batch
		b.AddClsact(index, block)
		if errs := f.netlink.Do(&b); errs != nil && !errors.Is(errs[0], unix.EEXIST) {
			return fmt.Errorf("attach a companion's device to the fabric: %w", errs[0])
		}
		if i > 0 {
			continue
		}
		// The block is created with its first device, and must have its filter before it has a second. A filter that is
		// there may be an earlier process's. Only Apply replaces that, once all tables are filled.
		at := linux.Attachment{Block: block}
		if f.filtered(at, companionName) {
			continue
		}
		if _, err := f.filterAt(at, companionName, f.pipe.FromCompanion); err != nil {
			return err
		}
	}
	return nil
}

// nameCompanions writes to which devices packets for the element's ports are handed. The devices before them stay
// known.
func (f *Fabric) nameCompanions(id model.ID, devices map[string]int) {
	for port, slot := range f.slots {
		if port.ID == id {
			f.nameCompanion(slot, uint32(devices[port.Interface]))
		}
	}
}

func (f *Fabric) nameCompanion(slot, index uint32) (changed bool) {
	word := &f.pipe.Companions[slot]
	now, former := companionsOf(atomic.LoadUint64(word))
	if now == index {
		return false
	}
	if now != 0 {
		former = now
	}
	return set(word, companionWord(index, former))
}

// companions repairs what was altered of them, and forgets devices that are gone.
func (p *pass) companions() error {
	gone := func(index uint32) bool { return index != 0 && p.kernel.devices[int(index)].index == 0 }
	slots := map[uint32]uint32{}
	for slot := range p.pipe.Companions {
		now, former := companionsOf(atomic.LoadUint64(&p.pipe.Companions[slot]))
		if now == 0 && former == 0 {
			continue
		}
		if gone(now) {
			now = 0 // until there is another device, the guest gets what comes there
		}
		if gone(former) {
			former = 0
		}
		set(&p.pipe.Companions[slot], companionWord(now, former))
	}
	for port, slot := range p.slots {
		s := p.steered[port.ID]
		if s == nil || s.Devices == nil {
			continue
		}
		if index := uint32(s.Devices[port.Interface]); !gone(index) && p.nameCompanion(slot, index) {
			p.changed(change.CompanionRestored, port)
		}
	}
	for slot := range p.pipe.Companions {
		now, former := companionsOf(atomic.LoadUint64(&p.pipe.Companions[slot]))
		for _, index := range []uint32{now, former} {
			if index != 0 {
				slots[index] = uint32(slot)
			}
		}
	}
	known, err := pipeline.All[uint32, uint32](p.pipe.CompanionDevices)
	if err != nil {
		return err
	}
	var keys, values, stale []uint32
	for index, slot := range slots {
		if was, ok := known[index]; !ok || was != slot {
			keys, values = append(keys, index), append(values, slot)
		}
	}
	for index := range known {
		if gone(index) {
			stale = append(stale, index)
		}
	}
	if err := write(p.pipe.CompanionDevices, keys, values); err != nil {
		return err
	}
	if err := p.attachCompanions(slots); err != nil || len(stale) == 0 {
		return err
	}
	if _, err := p.pipe.CompanionDevices.BatchDelete(stale, nil); err != nil {
		return fmt.Errorf("remove %d entries from the table of companions' devices: %w", len(stale), err)
	}
	return nil
}

// attachCompanions makes sure that companions' devices have their filter.
func (p *pass) attachCompanions(slots map[uint32]uint32) error {
	if len(slots) == 0 {
		return nil
	}
	block := p.companionBlock()
	var missing []int
	for index := range slots {
		q, ok := p.kernel.Ingress[int(index)]
		if ok && q.Kind == "clsact" && q.Block == block {
			continue
		}
		if ok { // somebody else's, on a device of ours
			var b linux.Batch
			b.RemoveClsact(int(index))
			p.netlink.Do(&b) // what is wrong shows in the next step
		}
		missing = append(missing, int(index))
	}
	if len(missing) > 0 {
		p.changed(change.CompanionsJoined, len(missing))
		if err := p.joinCompanions(missing); err != nil {
			return err
		}
	}
	changed, err := p.filterAt(linux.Attachment{Block: block}, companionName, p.pipe.FromCompanion)
	if changed {
		p.changed(change.FilterSet, "companions'")
	}
	return err
}

// rememberCompanions reads from the tables to which devices an element's packets are handed.
func (f *Fabric) rememberCompanions() {
	for port, slot := range f.slots {
		s := f.steered[port.ID]
		now, _ := companionsOf(atomic.LoadUint64(&f.pipe.Companions[slot]))
		if s == nil || s.on < pipeline.ToCompanion {
			f.nameCompanion(slot, 0)
			continue
		}
		if s.Devices == nil {
			s.Devices = map[string]int{}
		}
		if now != 0 {
			s.Devices[port.Interface] = int(now)
		}
	}
}
