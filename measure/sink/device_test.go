package sink

import (
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/hist"
)

// arrival is a frame as a simulated device hands it out.
type arrival struct {
	seq     uint32
	delay   int64 // ns
	damaged bool
}

// A device that exists only as arithmetic, with a rate limit, delay, jitter, loss, reordering, duplication and
// corruption: the sink counts what it did, to the frame, and its delays and their variation are the device's.
func TestSimulatedDevice(t *testing.T) {
	const (
		frames = 20_000
		gap    = 1e9 / 100_000 // offered: 100,000 frames/s
		limit  = 80_000.0      // forwarded at most, with a burst of 10
		delay  = 20_000_000
		jitter = 8_000_000
	)
	rng := rand.New(rand.NewPCG(11, 12))
	var out []arrival
	var limited, lost, duplicated, corrupted, detoured uint64
	tokens := 10.0
	var behind []arrival // on a detour: they come three frames later
	for seq := range uint32(frames) {
		if len(behind) > 0 && seq >= behind[0].seq+3 {
			out, behind = append(out, behind[0]), behind[1:]
		}
		if tokens = min(tokens+limit*gap/1e9, 10); tokens < 1 {
			limited++
			continue
		}
		tokens--
		a := arrival{seq: seq, delay: delay + rng.Int64N(jitter)}
		switch draw := rng.Float64(); {
		case draw < 0.02:
			lost++
		case draw < 0.03:
			duplicated++
			out = append(out, a, a)
		case draw < 0.045:
			corrupted++
			a.damaged = true
			out = append(out, a)
		case draw < 0.05 && seq < frames-4:
			detoured++
			behind = append(behind, a)
		default:
			out = append(out, a)
		}
	}
	out = append(out, behind...)
	// Reordered is what came after a frame that was sent later, by RFC 4737's definition; of what the sink can tell
	// apart.
	var reordered, next uint64
	var want hist.Variation
	var delays hist.Histogram
	seen := map[uint32]bool{}
	for _, a := range out {
		if a.damaged || seen[a.seq] {
			continue
		}
		seen[a.seq] = true
		if uint64(a.seq) < next {
			reordered++
		}
		next = max(next, uint64(a.seq)+1)
		delays.Add(uint64(a.delay))
		want.Add(a.delay)
	}

	s := loaded(t, Options{Streams: 1, TimeEvery: 1, Window: 1 << 16, EtherType: 0x88b5}, 1)
	for _, a := range out {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		b := build(frame.IPv4, frame.Tag{Run: 7, Seq: a.seq, Time: uint64(now.Nano() - a.delay)}, 128)
		if a.damaged {
			b[len(b)-1-int(a.seq)%60] ^= 1 << (a.seq % 8)
		}
		s.see(t, b)
	}
	got, err := s.stream(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d frames came; %d beyond the limit, %d lost, %d twice, %d damaged, %d on a detour; delay %v",
		got.Unique, frames, limited, lost, duplicated, corrupted, detoured, got.Delay.Digest())
	if got.Unique != frames-limited-lost-corrupted || got.Duplicated != duplicated || got.Corrupted != corrupted ||
		got.Reordered != reordered || got.TooOld != 0 {
		t.Errorf("%d unique, %d duplicated, %d corrupted, %d reordered, %d too old; want %d %d %d %d 0", got.Unique,
			got.Duplicated, got.Corrupted, got.Reordered,
			got.TooOld, frames-limited-lost-corrupted, duplicated, corrupted, reordered)
	}
	if got.Lost(frames) != limited+lost {
		t.Errorf("%d lost, want %d", got.Lost(frames), limited+lost)
	}
	if reordered == 0 || reordered > detoured || math.Abs(float64(frames-limited)/frames-limit*gap/1e9) > 0.01 {
		t.Errorf("the device itself: %d reordered of %d detoured, %d beyond the limit", reordered, detoured, limited)
	}
	// The sink's clock is read a few µs after this one: within 1 % of 20 ms, whatever pause single frames saw.
	for _, p := range []float64{0.1, 0.5, 0.9} {
		if g, w := float64(got.Delay.Quantile(p)), float64(delays.Quantile(p)); math.Abs(g/w-1) > 0.01 {
			t.Errorf("p%v: %.0f ns, want %.0f ± 1 %%", 100*p, g, w)
		}
	}
	w := want.Digest()
	if g := got.Variation; math.Abs(float64(g.Abs.P50)/float64(w.Abs.P50)-1) > 0.03 {
		t.Errorf("median variation %d ns, want %d", g.Abs.P50, w.Abs.P50)
	}
}
