package fabric

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// A queue at the egress of the port where a link ends keeps the link's bandwidth. Frames get into it by bpf_redirect.
// Those of links without a bandwidth go straight to the element's end and pass no queue. The kernel counts Ethernet
// frames, and a GSO packet as its segments, while a bandwidth counts IP packets. So the queue's rate is higher than the
// bandwidth, by as much as frames of the link's MTU are longer than their packets. UDP that is offered in large
// datagrams then arrives at the stated rate within 3 %, whether one counts payload, packets or frames.
const (
	etherHeader = 14

	// burstTime: so much time's worth of packets may pass at once after a pause. The machine may be this late before
	// bandwidth is lost. It is one per cent of a measurement of one second.
	burstTime  = 10 * time.Millisecond
	burstBytes = 4 << 20
	// queueTime is the longest that a packet waits, at rates where the other two bounds do not apply: a queue holds at
	// least queueFrames of the largest frames, so that several TCP connections find room, and at most queueBytes of the
	// kernel's memory.
	queueTime   = 50 * time.Millisecond
	queueFrames = 64
	queueBytes  = 4 << 20

	// A netem bounds frames instead of bytes, and counts those that it is delaying. So it has room for as many of the
	// smallest frames as the rate allows in the delay, and for queueTime's worth of frames of a middle size.
	smallFrame  = 60
	middleFrame = 256
	maxFrames   = 100_000

	// exchangeTime is much longer than a program that has read a port's flags runs on.
	exchangeTime = 10 * time.Millisecond
)

// queueFor returns the queue that keeps the shape, or none if there is nothing to keep but loss. mtu is the link's. If
// the shape needs a netem, that also keeps the bandwidth, where otherwise a TBF would.
func queueFor(s model.Shape, mtu int, netem bool) (q linux.Queue, needed bool) {
	mtu = max(mtu, 68) // RFC 791: no link carries less
	frame := uint64(mtu + etherHeader)
	if s.Bandwidth > 0 {
		rate := float64(s.Bandwidth) / 8 * float64(frame) / float64(mtu)
		q.Rate = uint64(max(1, math.Round(rate)))
	}
	in := func(d time.Duration) uint64 { return uint64(float64(q.Rate) * d.Seconds()) }
	delayed := s.Delay > 0 || s.Jitter > 0
	switch {
	case s.Bandwidth == 0 && !delayed:
		return q, false
	case delayed || netem:
		q.Delay, q.Jitter, q.Frames = time.Duration(s.Delay), time.Duration(s.Jitter), maxFrames
		if q.Rate > 0 {
			q.Frames = uint32(min(in(q.Delay+q.Jitter)/smallFrame+
				max(in(queueTime)/middleFrame, queueFrames), maxFrames))
		}
		return q, true
	}
	q.Burst = uint32(max(min(in(burstTime), burstBytes), 2*frame))
	q.Bytes = uint32(max(min(in(queueTime), queueBytes), queueFrames*frame))
	return q, true
}

// shapeOf does the opposite, for a queue that was read from the kernel.
func shapeOf(q linux.Queue, mtu int, loss uint32) model.Shape {
	mtu = max(mtu, 68)
	return model.Shape{Bandwidth: model.Bandwidth(math.Round(float64(q.Rate) * 8 * float64(mtu) / float64(mtu+
		etherHeader))), Delay: model.Duration(q.Delay), Jitter: model.Duration(q.Jitter), Loss: pipeline.ShareOf(loss)}
}

// beside is a port whose frames go beside its queue. While the kernel replaces a queue by one of another kind, the
// device loses what is sent through it, so nothing may be.
type beside struct {
	since time.Time
	err   error // of the last try to replace it
}

// aside has frames go beside a port's queue, and returns whether they have for so long that it can be replaced.
// Otherwise a later pass is to do it: other networks' ports do not wait for that.
func (p *pass) aside(w *want, flag uint32) bool {
	at, flags := p.beside[w.slot], &p.pipe.Ports[w.slot].Flags
	if atomic.LoadUint32(flags)&flag != 0 {
		atomic.AndUint32(flags, ^flag)
		at.since = time.Now()
		p.beside[w.slot] = at
	}
	if time.Since(at.since) >= exchangeTime {
		return true
	}
	if p.report.Again = exchangeTime; at.err != nil && p.report.Failed[w.port.ID] == nil {
		p.report.Failed[w.port.ID] = at.err
	}
	return false
}

// queues gives the ports the queues that their links' shapes need, before packets are sent through them. It removes
// queues through which nothing was sent since the last pass.
func (p *pass) queues() error {
	apart, err := p.queuesApart()
	if err != nil {
		return err
	}
	var b linux.Batch
	var owners []*want
	for i := range p.wants {
		w := &p.wants[i]
		d := p.kernel.devices[int(w.index)]
		if w.index == 0 {
			continue
		}
		is, has := p.kernel.Queues[d.index]
		// A netem stays as long as there is a bandwidth: what waits in it would be lost with it.
		wanted, needed := queueFor(w.port.Shape, d.mtu, has && is.Netem())
		needed = needed && !apart[w.slot]
		if needed {
			w.flags |= pipeline.Queue
		}
		used := atomic.LoadUint32(&p.pipe.Ports[w.slot].Flags)&pipeline.Queue != 0 && w.known
		switch {
		case needed && has && is.Same(wanted):
		case needed && has && is.Netem() != wanted.Netem():
			if d.straight() && !p.aside(w, pipeline.Queue) {
				w.flags &^= pipeline.Queue
				continue
			}
			p.past[w.slot] += is.Drops
			b.ReplaceQueue(d.index, wanted)
			owners = append(owners, w)
		case needed:
			b.ReplaceQueue(d.index, wanted)
			owners = append(owners, w)
			if has || w.known && used && d.straight() {
				p.changed(change.QueueSet, w.port.ID, w.port.Shape)
			}
		case has && (!d.straight() || !used && is.Backlog == 0):
			p.past[w.slot] += is.Drops
			b.RemoveQueue(d.index, is.Queue)
			owners = append(owners, w)
		}
	}
	p.rated = p.rated || len(p.kernel.Queues) > 0 || b.Len() > 0
	for i, err := range p.netlink.Do(&b) {
		w := owners[i]
		delete(p.beside, w.slot)
		switch {
		case err == nil || errors.Is(err, unix.ENODEV):
			continue
		case errors.Is(err, unix.ENOENT) && (w.port.Shape.Delay > 0 || w.port.Shape.Jitter > 0):
			p.fail(w.port.ID, "the node's kernel has no netem (CONFIG_NET_SCH_NETEM), which its link's delay and "+
				"jitter need")
		default:
			p.fail(w.port.ID, "set its queue to %s: %w", w.port.Shape, err)
		}
		p.beside[w.slot] = beside{err: p.report.Failed[w.port.ID]}
		if d := p.kernel.devices[int(w.index)]; d.straight() {
			if _, has := p.kernel.Queues[d.index]; !has {
				w.flags &^= pipeline.Queue
			}
		}
	}
	return nil
}

// queued adds to the drops of ports what found their queues full.
func (f *Fabric) queued(all map[model.PortID]Counters) error {
	var found linux.Qdiscs
	err := linux.Undisturbed(func() (err error) {
		found, err = f.netlink.Qdiscs()
		return err
	})
	if err != nil {
		return err
	}
	for id, slot := range f.slots {
		n := f.past[slot]
		for _, index := range []int{int(atomic.LoadUint32(&f.pipe.Ports[slot].Ifindex)),
			int(atomic.LoadUint64(&f.pipe.Queues[slot]))} {
			if q, ok := found.Queues[index]; ok && index != 0 {
				n += q.Drops
			}
		}
		if n == 0 {
			continue
		}
		c := all[id]
		if c.Drops == nil {
			c.Drops = map[Drop]uint64{}
		}
		c.Drops[OverBandwidth] += n
		all[id] = c
	}
	return nil
}
