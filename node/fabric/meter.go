package fabric

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// A token bucket of packets bounds what a network's elements on a node send together. Forwarding costs processor time
// that is charged to nobody, and this is what bounds it. A packet that will be segmented (GSO) counts as its segments.
const (
	// meterBurst is what may be sent at once after a pause. The bucket is filled at the kernel's ticks, the longest of
	// which last 10 ms. A smaller burst would cost bandwidth.
	meterBurst = 20 * time.Millisecond
	leastBurst = 16 // packets
	// puntBurst is the same for punts. It covers more time than the tables ever lag behind the router's own.
	puntBurst = 100 * time.Millisecond
)

// meters gives all ports of a network with a limit the same meter: that of the lowest slot among them, so that it is
// the same after a restart.
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
		if rate := p.state.Packets[network]; setMeter(&p.pipe.Meters[n], rate, meterBurst) {
			p.changed(change.PacketsLimited, network, rate)
		}
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

// sane returns whether a meter holds values that its programs could have written: last filled now or earlier, and with
// no more debt than this many processors can cause. A spoilt meter could block everything for ever.
func sane(m *pipeline.Meter) bool {
	const mostDebt = 1 << 24
	last := atomic.LoadUint64(&m.Last) // before the clock: it moves on meanwhile
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return true
	}
	tokens := int64(atomic.LoadUint64(&m.Tokens))
	return last <= uint64(now.Nano()) && tokens >= -mostDebt && tokens <= int64(atomic.LoadUint64(&m.Burst))
}

// mostRate is the largest rate that the programs can multiply by a pause of a second in nanoseconds. Without this bound
// a mirror of more than 147 Gbit/s would get an arbitrary rate.
const mostRate = math.MaxUint64 / uint64(time.Second)

// setMeter sets a meter's rate, and returns whether it has changed.
func setMeter(m *pipeline.Meter, packets int, atOnce time.Duration) (changed bool) {
	rate := min(uint64(packets), mostRate)
	burst := max(leastBurst, rate*uint64(atOnce)/uint64(time.Second))
	if !sane(m) {
		atomic.StoreUint64(&m.Last, 0)
		atomic.StoreUint64(&m.Tokens, burst)
	}
	was := atomic.LoadUint64(&m.Rate)
	if was == rate && atomic.LoadUint64(&m.Burst) == burst {
		return false
	}
	atomic.StoreUint64(&m.Burst, burst)
	atomic.StoreUint64(&m.Rate, rate)
	return was != 0
}

// puntMeters gives all routers of a network with a limit the same meter of punts: that of the lowest number among them.
func (p *pass) puntMeters() error {
	number := map[string]int{}
	for id, s := range p.steered {
		if n, has := number[id.Network]; p.state.Punts[id.Network] > 0 && (!has || s.number < n) {
			number[id.Network] = s.number
		}
	}
	for network, n := range number {
		if rate := p.state.Punts[network]; setMeter(&p.pipe.PuntMeters[n], rate, puntBurst) {
			p.changed(change.PuntsLimited, network, rate)
		}
	}
	for id, s := range p.steered {
		set32(&p.pipe.Routers[s.number].Meter, uint32(number[id.Network]))
	}
	return nil
}
