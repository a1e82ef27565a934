package impair_test

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/impair"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/sink"
	"github.com/polyplane/polyplane/measure/source"
)

// bench is source – device – sink, in three namespaces.
type bench struct {
	src, in, out, dst netdev.Ref
	device            *impair.Device
	sink              *sink.Sink
	run               uint16
}

func newBench(t *testing.T) *bench {
	t.Helper()
	var ns [3]string
	for i := range ns {
		n, err := netdev.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		ns[i] = n.Path()
	}
	b := &bench{src: netdev.Ref{Namespace: ns[0], Name: "s"}, in: netdev.Ref{Namespace: ns[1], Name: "in"},
		out: netdev.Ref{Namespace: ns[1], Name: "out"}, dst: netdev.Ref{Namespace: ns[2], Name: "k"}}
	detour := [2]netdev.Ref{{Namespace: ns[1], Name: "x0"}, {Namespace: ns[1], Name: "x1"}}
	for i, pair := range [][2]netdev.Ref{{b.src, b.in}, {b.out, b.dst}, detour} {
		if err := netdev.NewVeth(pair[0], pair[1], byte(1+2*i)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if b.device, err = impair.Open(b.in, b.out, detour, impair.Faults{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.device.Close() })
	if b.sink, err = sink.Open(sink.Options{Device: b.dst, Sender: b.out, Streams: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.sink.Close() })
	return b
}

type outcome struct {
	sent   source.Report
	got    sink.Report
	counts impair.Counts
}

// measure sends over the device with these faults.
func (b *bench) measure(t *testing.T, f impair.Faults, rate float64, d time.Duration, size, batch int) outcome {
	t.Helper()
	f.Seed = 42
	if err := b.device.Set(f); err != nil {
		t.Fatal(err)
	}
	b.run++
	if err := b.sink.Start(b.run); err != nil {
		t.Fatal(err)
	}
	o := source.Options{Device: b.src, Run: b.run, Duration: d, CPU: -1, Batch: batch, Streams: []source.Stream{{
		Headers: frame.Headers{Kind: frame.IPv4, SourceMAC: netdev.MAC(1), DestMAC: netdev.MAC(2),
			Source: netip.MustParseAddr("10.0.0.1")},
		Sizes: frame.Fixed(size), Destinations: source.Destinations(netip.MustParseAddr("10.1.0.0"), 4096),
		Rate: rate,
	}}}
	src, err := source.OpenXDP(o)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var out outcome
	if out.sent, err = src.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := b.sink.Settle(context.Background(), out.sent.Sent(), 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if out.got, err = b.sink.Report(); err != nil {
		t.Fatal(err)
	}
	if out.counts, err = b.device.Counts(); err != nil {
		t.Fatal(err)
	}
	if out.counts.Frames+out.sent.Refused.Sent != out.sent.Sent() {
		t.Errorf("%d frames sent, %d refused by the device's ring, but it saw %d", out.sent.Sent(),
			out.sent.Refused.Sent, out.counts.Frames)
	}
	return out
}

// What the device did to frames is what the sink says, to the frame.
func TestFaultsAreCountedExactly(t *testing.T) {
	b := newBench(t)
	for name, f := range map[string]impair.Faults{
		"none":        {},
		"loss":        {Loss: 0.01},
		"much loss":   {Loss: 0.6},
		"duplication": {Duplication: 0.02},
		"corruption":  {Corruption: 0.03},
		"all":         {Loss: 0.01, Duplication: 0.01, Corruption: 0.01, Detour: 0.01},
	} {
		t.Run(name, func(t *testing.T) {
			o := b.measure(t, f, 100_000, time.Second, 200, 32)
			st, c := o.got.Streams[0], o.counts
			// A bit flipped in the tag itself may hide the stream or the run: such frames are counted without a stream.
			corrupted := st.Corrupted + o.got.Corrupted
			overrun := o.got.Overrun
			t.Logf("%+v sink %d unique %d dup %d reordered %d corrupted, overrun %d", c, st.Unique, st.Duplicated,
				st.Reordered, corrupted, overrun)
			duplicatesOfCorrupted := uint64(0)
			if f.Duplication > 0 && f.Corruption > 0 { // independent faults may hit one frame
				duplicatesOfCorrupted = corrupted - min(c.Corrupted, corrupted)
			}
			// What the sink's ring had no room for, and the sink confesses to, may be any of the frames.
			same := func(what string, got, want uint64) {
				if got > want+overrun || got+overrun < want {
					t.Errorf("%d %s, the device says %d; the sink was overrun by %d", got, what, want, overrun)
				}
			}
			same("corrupted", corrupted-duplicatesOfCorrupted, c.Corrupted)
			same("duplicated", st.Duplicated+duplicatesOfCorrupted, c.Duplicated)
			same("lost", o.sent.Sent()-st.Unique-c.Corrupted-o.sent.Refused.Sent, c.Lost)
			if f.Detour == 0 && st.Reordered != 0 {
				t.Errorf("%d reordered, the device keeps the order", st.Reordered)
			}
			if n := float64(c.Frames); math.Abs(float64(c.Lost)-f.Loss*n) > 5*math.Sqrt(n*f.Loss*(1-f.Loss))+1 {
				t.Errorf("the device lost %d of %d, a chance of %v was asked for", c.Lost, c.Frames, f.Loss)
			}
		})
	}
}

// Detoured frames are overtaken when others follow closely, which a burst makes sure of; never are more frames
// reordered.
func TestReordering(t *testing.T) {
	b := newBench(t)
	o := b.measure(t, impair.Faults{Detour: 0.01}, 0, 500*time.Millisecond, 64, 32)
	st, c := o.got.Streams[0], o.counts
	t.Logf("%d detoured, %d reordered by up to %d", c.Detoured, st.Reordered, st.Extent)
	if st.Reordered > c.Detoured || float64(st.Reordered) < 0.8*float64(c.Detoured) {
		t.Errorf("%d reordered, %d took the detour", st.Reordered, c.Detoured)
	}
	if st.Duplicated+st.Corrupted+st.TooOld > 0 {
		t.Errorf("%+v", st)
	}
}

// A limit of 40,000 frames/s lets through that, and at most the burst more. The burst is what 100 ms of the limit are,
// since a busy machine makes the source pause and catch up.
func TestRateLimit(t *testing.T) {
	b := newBench(t)
	const limit, burst = 40_000, 4_000
	o := b.measure(t, impair.Faults{Rate: limit, Burst: burst}, 100_000, 2*time.Second, 64, 8)
	st := o.got.Streams[0]
	want := limit * o.sent.Elapsed.Seconds()
	t.Logf("%d of %d came through, want %.0f to %.0f; source %+v", st.Unique, o.sent.Sent(), want,
		want+burst, o.sent.Streams)
	if float64(st.Unique) > want*1.001+burst {
		t.Errorf("%d frames came through, the limit allows %.0f", st.Unique, want+burst)
	}
	if float64(st.Unique) < want*0.98 && o.sent.Streams[0].LateMax < 90*time.Millisecond {
		t.Errorf("%d frames came through, the limit allows %.0f", st.Unique, want)
	}
	if lost := o.sent.Sent() - st.Unique - o.sent.Refused.Sent - o.got.Overrun; lost != o.counts.Limited {
		t.Errorf("%d lost, the device held back %d", lost, o.counts.Limited)
	}
}

// Delay and jitter are measured as what they are. Frames go one by one (batch 1), so that device and sink run inside
// each frame's own call, and pauses of a busy machine fall between frames; quantiles leave out the few that do not. A
// machine that is slower for seconds stretches all of them, so a wrong figure counts only if it is wrong time and
// again.
func TestDelay(t *testing.T) {
	var wrong []string
	for range 5 {
		if wrong = delays(t, newBench(t)); len(wrong) == 0 {
			return
		}
		t.Logf("measured again: %v", wrong)
	}
	t.Error(wrong)
}

// delays tells which figures of delay and jitter are not what was asked for.
func delays(t *testing.T, b *bench) (wrong []string) {
	t.Helper()
	base := b.measure(t, impair.Faults{}, 5_000, time.Second, 64, 1).got.Streams[0]
	slow := b.measure(t, impair.Faults{Delay: 30 * time.Microsecond}, 5_000, time.Second, 64, 1).got.Streams[0]
	t.Logf("without: %v", base.Delay.Digest())
	t.Logf("30 µs:   %v", slow.Delay.Digest())
	for _, p := range []float64{0.1, 0.25, 0.5} {
		d := float64(slow.Delay.Quantile(p)) - float64(base.Delay.Quantile(p))
		if math.Abs(d-30_000) > 1_500 {
			wrong = append(wrong, fmt.Sprintf("p%v: %.0f ns more delay, want 30,000 ± 5 %%", p*100, d))
		}
	}
	wobbly := b.measure(t, impair.Faults{Jitter: 60 * time.Microsecond}, 5_000, 2*time.Second, 64, 1).got.Streams[0]
	t.Logf("jitter:  %v; variation %+v", wobbly.Delay.Digest(), wobbly.Variation)
	// Uniform on 0…60 µs: quartiles 15, 30, 45; |difference of two| has the median 60·(1 − 1/√2) = 17.6.
	for p, want := range map[float64]float64{0.25: 15_000, 0.5: 30_000, 0.75: 45_000} {
		d := float64(wobbly.Delay.Quantile(p)) - float64(base.Delay.Quantile(0.25))
		if math.Abs(d-want) > 3_000 {
			wrong = append(wrong, fmt.Sprintf("p%v: %.0f ns of jitter, want %.0f", p*100, d, want))
		}
	}
	if got := float64(wobbly.Variation.Abs.P50); math.Abs(got-17_574) > 1_800 {
		wrong = append(wrong, fmt.Sprintf("median delay variation %.0f ns, want 17,574", got))
	}
	return wrong
}

func TestSetRefuses(t *testing.T) {
	b := newBench(t)
	for _, f := range []impair.Faults{{Loss: 1.5}, {Corruption: -1}, {Delay: time.Second}, {Jitter: -1},
		{Detour: math.NaN()}} {
		if b.device.Set(f) == nil {
			t.Errorf("%+v was accepted", f)
		}
	}
}
