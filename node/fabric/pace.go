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

// paceBurst is what may come at once after a pause.
const paceBurst = 20 * time.Millisecond

// Pace limits how many packets a second may go to and from an element together. A negative limit is none. devices are
// the indices of its ports; ports that come later are not limited before the next call. It waits for no other method:
// to end what floods the kernel must not have to wait for a pass.
func (f *Fabric) Pace(id model.ID, devices []int, rate int) error {
	f.pacing.Lock()
	defer f.pacing.Unlock()
	if f.pacer == nil {
		return errClosed
	}
	var slots []uint32
	for _, index := range devices {
		var slot uint32
		err := f.pacer.Devices.Lookup(uint32(index), &slot)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("find the port of device %d: %w", index, err)
		}
		if slot > 0 && int(slot) < len(f.pacer.Ports) &&
			atomic.LoadUint32(&f.pacer.Ports[slot].Ifindex) == uint32(index) {
			slots = append(slots, slot)
		}
	}
	if rate < 0 {
		delete(f.paced, id)
		for _, slot := range slots {
			atomic.AndUint32(&f.pacer.Ports[slot].Flags, ^uint32(pipeline.Paced))
		}
		return nil
	}
	f.paced[id] = true
	for _, slot := range slots {
		p := &f.pacer.Paces[slot]
		if slot == slots[0] {
			setMeter((*pipeline.Meter)(&p.Meter), rate, paceBurst)
		}
		atomic.StoreUint64(&p.Number, uint64(slots[0]))
		atomic.OrUint32(&f.pacer.Ports[slot].Flags, pipeline.Paced)
	}
	return nil
}

// paceOf are the flags that pacing sets on a port.
func (f *Fabric) paceOf(port model.PortID) uint32 {
	f.pacing.Lock()
	defer f.pacing.Unlock()
	if f.paced[port.ID] {
		return pipeline.Paced
	}
	return 0
}
