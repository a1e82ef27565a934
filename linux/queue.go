package linux

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// Numbers of linux/pkt_sched.h.
const (
	tcaStats2 = 7

	statsBasic = 1
	statsQueue = 3

	rootParent  = 0xffffffff
	tbfHandle   = 0x7070 << 16 // ours: other programs' qdiscs get their handles from 0x8000 on
	netemHandle = 0x7071 << 16

	tbfParms  = 1
	tbfRate64 = 4
	tbfBurst  = 6

	netemRate      = 6
	netemRate64    = 8
	netemLatency64 = 10
	netemJitter64  = 11

	sizeofRatespec  = 12
	sizeofTBFOpt    = 2*sizeofRatespec + 12
	sizeofNetemOpt  = 24
	sizeofNetemRate = 16

	linkLayerEthernet = 1

	tick = 64 // nanoseconds, of the kernel's packet scheduler
)

// Queue is what a device does with what it sends. It is a TBF (tc-tbf(8)) or, with a delay or with Frames, a netem
// (tc-netem(8)), which then keeps the rate as well.
type Queue struct {
	// Bytes of Ethernet frames a second, without check sequence; 0 means no rate, which only a netem can do.
	Rate   uint64
	Burst  uint32 // TBF: bytes that may pass at once after a pause; a frame longer than that cannot pass at all
	Bytes  uint32 // TBF: bytes that wait at most
	Delay  time.Duration
	Jitter time.Duration // the delay varies by so much, both ways
	Frames uint32        // netem: how many frames wait at most, including those that are being delayed
}

// Netem tells that the queue is a netem. Not all kernels have that.
func (q Queue) Netem() bool { return q.Frames > 0 || q.Delay > 0 || q.Jitter > 0 }

// Same returns whether two queues do the same, as precisely as the kernel describes them.
func (q Queue) Same(o Queue) bool {
	if max(q.Burst, o.Burst) > 0 && uint64(max(q.Burst, o.Burst))*1e9/max(1, min(q.Rate, o.Rate)) >= tick<<32 {
		o.Burst = q.Burst // too long a time for the kernel to tell
	}
	slack := 1 + max(q.Rate, o.Rate)*tick/1e9 + uint64(max(q.Burst, o.Burst))/1024
	if max(q.Burst, o.Burst)-min(q.Burst, o.Burst) > uint32(min(slack, 1<<31)) {
		return false
	}
	q.Burst, o.Burst = 0, 0
	return q == o
}

// QueueInfo is a device's queue as it was read.
type QueueInfo struct {
	Queue
	Packets    uint64 // sent; of GSO packets, their segments
	Sent       uint64 // bytes, including the headers of the segments
	Drops      uint64 // packets that found the queue full
	Overlimits uint64 // how often a packet had to wait for the rate
	Backlog    uint32 // bytes that wait now
}

// ReplaceQueue requests a queue for a device. If the device has one of the same kind, its parameters are changed, and
// what waits in it stays there. If it has none, frames that are sent through it meanwhile are lost; frames that reach
// its peer in other ways are not.
func (b *Batch) ReplaceQueue(index int, q Queue) int {
	handle := uint32(tbfHandle)
	if q.Netem() {
		handle = netemHandle
	}
	i := b.Request(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	b.tcmsg(index, handle, rootParent, 0)
	if q.Netem() {
		b.netem(q)
	} else {
		b.tbf(q)
	}
	return i
}

// RemoveQueue requests the removal of a queue that ReplaceQueue made. What waits in it is lost.
func (b *Batch) RemoveQueue(index int, q Queue) int {
	handle := uint32(tbfHandle)
	if q.Netem() {
		handle = netemHandle
	}
	i := b.Request(unix.RTM_DELQDISC, 0)
	b.tcmsg(index, handle, rootParent, 0)
	return i
}

// rate32 is the rate as a 32-bit field. The kernel ignores it if there is a 64-bit one as well.
func rate32(rate uint64) uint32 { return uint32(min(rate, 1<<32-1)) }

func (b *Batch) tbf(q Queue) {
	order := binary.NativeEndian
	spec := order.AppendUint32([]byte{0, linkLayerEthernet, 0, 0, 0, 0, 0, 0}, rate32(q.Rate))
	options := append(spec, make([]byte, sizeofRatespec)...) // no peak rate
	options = order.AppendUint32(options, q.Bytes)
	// buffer, in ticks: TCA_TBF_BURST says it in bytes; mtu: the peak rate's
	options = append(options, make([]byte, 8)...)
	b.String(tcaKind, "tbf")
	b.Begin(tcaOptions)
	b.Attr(tbfParms, options)
	b.Uint32(tbfBurst, q.Burst)
	if q.Rate >= 1<<32 {
		b.uint64(tbfRate64, q.Rate)
	}
	b.End()
}

func (b *Batch) netem(q Queue) {
	order := binary.NativeEndian
	ticks := func(d time.Duration) uint32 { return uint32(min(uint64(d)/tick, 1<<32-1)) }
	options := order.AppendUint32(nil, ticks(q.Delay))
	options = order.AppendUint32(options, q.Frames)
	options = append(options, make([]byte, 12)...) // loss, gap, duplicate
	options = order.AppendUint32(options, ticks(q.Jitter))
	b.String(tcaKind, "netem")
	b.Begin(tcaOptions)
	b.Raw(options)
	b.uint64(netemLatency64, uint64(q.Delay))
	b.uint64(netemJitter64, uint64(q.Jitter))
	// Without this attribute an existing rate stays. No overheads, no cells.
	b.Attr(netemRate, append(order.AppendUint32(nil, rate32(q.Rate)), make([]byte, 12)...))
	if q.Rate >= 1<<32 {
		b.uint64(netemRate64, q.Rate)
	}
	b.End()
}

func (b *Batch) uint64(kind uint16, v uint64) {
	b.Attr(kind, binary.NativeEndian.AppendUint64(nil, v))
}

// parseQueue reads one of our queues from the attributes of an RTM_NEWQDISC message.
func parseQueue(netem bool, attributes []byte) QueueInfo {
	var q QueueInfo
	for kind, value := range Attrs(attributes) {
		switch {
		case kind == tcaOptions && netem:
			q.readNetem(value)
		case kind == tcaOptions:
			q.readTBF(value)
		case kind == tcaStats2:
			for k, v := range Attrs(value) {
				switch {
				case k == statsBasic && len(v) >= 12:
					q.Sent, q.Packets = binary.NativeEndian.Uint64(v), uint64(binary.NativeEndian.Uint32(v[8:]))
				case k == statsQueue && len(v) >= 20:
					q.Backlog = binary.NativeEndian.Uint32(v[4:])
					q.Drops = uint64(binary.NativeEndian.Uint32(v[8:]))
					q.Overlimits = uint64(binary.NativeEndian.Uint32(v[16:]))
				}
			}
		}
	}
	return q
}

func (q *QueueInfo) readTBF(options []byte) {
	var buffer uint32
	for k, v := range Attrs(options) {
		switch {
		case k == tbfParms && len(v) >= sizeofTBFOpt:
			q.Rate = max(q.Rate, uint64(binary.NativeEndian.Uint32(v[8:])))
			q.Bytes = binary.NativeEndian.Uint32(v[2*sizeofRatespec:])
			buffer = binary.NativeEndian.Uint32(v[2*sizeofRatespec+4:])
		case k == tbfRate64 && len(v) >= 8:
			q.Rate = binary.NativeEndian.Uint64(v)
		}
	}
	q.Burst = uint32(min(float64(buffer)*tick*float64(q.Rate)/1e9, 1<<32-1))
}

func (q *QueueInfo) readNetem(options []byte) {
	if len(options) < sizeofNetemOpt {
		return
	}
	order := binary.NativeEndian
	q.Delay, q.Frames = time.Duration(order.Uint32(options))*tick, order.Uint32(options[4:])
	q.Jitter = time.Duration(order.Uint32(options[20:])) * tick
	for k, v := range Attrs(options[sizeofNetemOpt:]) {
		switch {
		case k == netemLatency64 && len(v) >= 8:
			q.Delay = time.Duration(order.Uint64(v))
		case k == netemJitter64 && len(v) >= 8:
			q.Jitter = time.Duration(order.Uint64(v))
		case k == netemRate && len(v) >= sizeofNetemRate && q.Rate < 1<<32:
			q.Rate = uint64(order.Uint32(v))
		case k == netemRate64 && len(v) >= 8:
			q.Rate = order.Uint64(v)
		}
	}
}
