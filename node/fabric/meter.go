package fabric

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// What a network's elements on a node send together is bounded by a token bucket, in packets: what forwarding costs is charged
// to nobody's processor time, so this is what bounds it. A packet that is many (GSO) counts as what it will be.
const (
	// meterBurst is what may be sent at once after a pause. The bucket is filled at the kernel's ticks, of which the longest
	// last 10 ms: less would cost bandwidth.
	meterBurst = 20 * time.Millisecond
	leastBurst = 16 // packets
)

// OverPackets is the reason of drops of what a network sends beyond its packets a second.
const OverPackets = pipeline.OverPackets

// meters gives the ports of every network that has a limit their network's meter: that of the lowest slot among them, so that
// it is the same after a restart.
func (p *pass) meters() error {
	number := map[string]uint32{}
	for i := range p.wants {
		w := &p.wants[i]
		network := w.port.ID.Network
		if n, has := number[network]; p.state.Packets[network] > 0 && (!has || w.slot < n) {
			number[network] = w.slot
		}
	}
	for network, n := range number {
		m, rate := &p.pipe.Meters[n], uint64(p.state.Packets[network])
		burst := max(leastBurst, rate*uint64(meterBurst)/uint64(time.Second))
		if !sane(m) {
			atomic.StoreUint64(&m.Last, 0)
			atomic.StoreUint64(&m.Tokens, burst)
		}
		if atomic.LoadUint64(&m.Rate) == rate && atomic.LoadUint64(&m.Burst) == burst {
			continue
		}
		if atomic.LoadUint64(&m.Rate) != 0 {
			p.changed("network %s: it may send %d packets a second", network, rate)
		}
		atomic.StoreUint64(&m.Burst, burst)
		atomic.StoreUint64(&m.Rate, rate)
	}
	for i := range p.wants {
		w := &p.wants[i]
		if n, has := number[w.port.ID.Network]; has {
			atomic.StoreUint64(&p.pipe.Metered[w.slot], uint64(n))
			w.flags |= pipeline.Metered
		}
	}
	return nil
}

// sane tells whether a meter can say what its programs may have written: filled as of now or before, and less in debt than any
// number of processors can bring it. One that is spoilt would let nothing through, for ever.
func sane(m *pipeline.Meter) bool {
	const mostDebt = 1 << 24
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return true
	}
	tokens := int64(atomic.LoadUint64(&m.Tokens))
	return atomic.LoadUint64(&m.Last) <= uint64(now.Nano()) && tokens >= -mostDebt && tokens <= int64(atomic.LoadUint64(&m.Burst))
}
