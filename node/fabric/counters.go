package fabric

import (
	"context"
	"sync/atomic"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// Counters reads the counters of all ports. Those of the zero PortID are the node's own: packets that belonged to no
// port.
func (f *Fabric) Counters(ctx context.Context) (map[model.PortID]Counters, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return nil, errClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := 1
	for _, slot := range f.slots {
		n = max(n, int(slot)+1)
	}
	traffic, processors, err := pipeline.PerCPU[pipeline.TrafficCount](f.pipe.Traffic, n)
	if err != nil {
		return nil, err
	}
	drops, _, err := pipeline.PerCPU[pipeline.DropCount](f.pipe.Drops, n)
	if err != nil {
		return nil, err
	}
	sum := func(slot uint32) Counters {
		var c Counters
		at := int(slot) * processors
		for _, t := range traffic[at : at+processors] {
			c.RxPackets += t.RxPackets
			c.RxBytes += t.RxBytes
			c.TxPackets += t.TxPackets
			c.TxBytes += t.TxBytes
		}
		for _, d := range drops[at : at+processors] {
			for reason := range pipeline.Drops {
				if d.Packets[reason] == 0 || reason == pipeline.Uncaptured {
					continue
				}
				if c.Drops == nil {
					c.Drops = map[Drop]uint64{}
				}
				c.Drops[Drop(reason)] += d.Packets[reason]
			}
		}
		return c
	}
	all := make(map[model.PortID]Counters, len(f.slots)+1)
	all[model.PortID{}] = sum(0)
	for id, slot := range f.slots {
		c := sum(slot)
		m := &f.pipe.Mirrors[slot]
		c.Copied, c.Uncopied = atomic.LoadUint64(&m.Copied), atomic.LoadUint64(&m.Missed)
		all[id] = c
	}
	if !f.rated {
		return all, nil
	}
	return all, f.queued(all)
}
