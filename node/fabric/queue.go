package fabric

import (
	"fmt"
	"sync/atomic"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// What comes in at a router first passes the queue of its link, and then the router. If the data path forwards for the
// router, the queue must end in the data path and not in the router's own stack. So the port's queue is then at a pair
// of devices of its own, and the look-up begins at the second of them. This queue has the same rate as the port's own.
// When the router is steered to its own stack again, the port's own queue takes over.

const queueName = "polyplane queue"

func (f *Fabric) queueDevices(slot uint32) (in, out string) {
	n := uint64(f.number("queue")&0x3fffffff)<<14 | uint64(slot) // 11 digits: slots have 14 bits
	return fmt.Sprintf("%sra%011x", instance.PortDevicePrefix, n),
		fmt.Sprintf("%srb%011x", instance.PortDevicePrefix, n)
}

func (f *Fabric) queueAlias() string { return f.dirs.AliasPrefix() + "queue " }

// queueAliasOf is an alias that says whose queue it is, and that no port has.
func (f *Fabric) queueAliasOf(id model.PortID) string {
	return f.queueAlias() + id.Network + " " + id.Element + " " + id.Interface
}

// queuesApart gives queues of this kind to ports of routers that the data path forwards for, before packets are sent
// through them. It returns which ports have one.
func (p *pass) queuesApart() (apart map[uint32]bool, err error) {
	var lanes []lane
	var owners []*want
	apart = map[uint32]bool{}
	for i := range p.wants {
		w := &p.wants[i]
		d := p.kernel.devices[int(w.index)]
		if w.index == 0 || w.flags&pipeline.Routed == 0 || !d.straight() {
			continue
		}
		in, out := p.queueDevices(w.slot)
		is, has := p.kernel.Queues[p.kernel.names[in]]
		queue, needed := queueFor(w.port.Shape, d.mtu, has && is.Netem())
		if !needed {
			continue
		}
		if has && is.Netem() != queue.Netem() {
			if !p.aside(w, pipeline.Rated) {
				apart[w.slot] = true // it has its queue, which just is not used
				continue
			}
			if atomic.LoadUint64(&p.pipe.Queues[w.slot]) != 0 {
				p.past[w.slot] += is.Drops
			}
		}
		lanes = append(lanes, lane{in: in, out: out, alias: p.queueAliasOf(w.port.ID), queue: queue, filter: queueName,
			program: p.pipe.FromQueue,
			set: func() {
				if has && w.known {
					p.changed(change.QueueSet, w.port.ID, w.port.Shape)
				}
			}})
		owners = append(owners, w)
	}
	indices, failed, err := p.lanes(lanes)
	if err != nil {
		return nil, err
	}
	for i, w := range owners {
		delete(p.beside, w.slot)
		if failed[i] != nil {
			p.fail(w.port.ID, "set its queue to %s: %w", w.port.Shape, failed[i])
			p.beside[w.slot] = beside{err: p.report.Failed[w.port.ID]}
			continue
		}
		apart[w.slot] = true
		w.flags |= pipeline.Rated
		set(&p.pipe.Queues[w.slot], uint64(indices[i]))
	}
	return apart, nil
}

// leaveQueues removes the devices of queues through which nothing was sent since the last pass.
func (p *pass) leaveQueues() error {
	inUse := map[int]bool{}
	for i := range p.wants {
		w := &p.wants[i]
		at := &p.pipe.Queues[w.slot]
		index := int(atomic.LoadUint64(at))
		if index == 0 {
			continue
		}
		inUse[index] = true
		// Enter has written which of them are not used. The next pass removes these, or puts another queue into them.
		if _, waits := p.beside[w.slot]; !waits && w.flags&pipeline.Rated == 0 {
			p.past[w.slot] += p.kernel.Queues[index].Drops
			atomic.StoreUint64(at, 0)
		}
	}
	if p.state.Incomplete {
		return nil
	}
	return p.removeLanes(p.kernel, "ra", p.queueAlias(), inUse)
}

func (f *Fabric) removeQueues(k kernel) error { return f.removeLanes(k, "ra", f.queueAlias(), nil) }
