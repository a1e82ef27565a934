package sink

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/netdev"
)

// loaded is a sink that is attached nowhere.
func loaded(t *testing.T, o Options, queues int) *Sink {
	t.Helper()
	s := &Sink{o: o, queues: queues}
	if err := s.load(); err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%v", ve)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { s.objects.Close() })
	if err := s.setRun(uint32(networkOrder(7))); err != nil {
		t.Fatal(err)
	}
	return s
}

// The program passes the kernel's verifier whatever it is set to.
func TestVerifier(t *testing.T) {
	for _, o := range []Options{{Streams: 1, TimeEvery: 1, Window: 1024, EtherType: 0x88b5},
		{Streams: 64, TimeEvery: 1 << 20, Window: 1 << 20, EtherType: 0x0601}} {
		for _, queues := range []int{1, 2, maxQueues} {
			loaded(t, o, queues)
		}
	}
}

func (s *Sink) see(t *testing.T, b []byte) uint32 {
	t.Helper()
	v, err := s.objects.Sink.Run(&ebpf.RunOptions{Data: b})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (s *Sink) flow(t *testing.T, i int) *programFlow {
	t.Helper()
	f := new(programFlow)
	if err := s.count(i/s.o.Streams, i%s.o.Streams, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// unique is the frames that were counted once.
func (f *programFlow) unique() uint64 { return f.Frames - f.Duplicated - f.TooOld }

func build(k frame.Kind, tag frame.Tag, size int) []byte {
	h := frame.Headers{Kind: k, SourceMAC: netdev.MAC(1), DestMAC: netdev.MAC(2),
		Source: netip.MustParseAddr("10.0.0.1")}
	dst := netip.MustParseAddr("10.0.0.2")
	if k == frame.IPv6 {
		h.Source, dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	}
	return frame.Build(h.Template(), k, tag, dst, 1024, size)
}

var defaults = Options{Streams: 2, TimeEvery: 1, Window: 1 << 16, EtherType: 0x88b5}

// Frame in, count and verdict out: every kind at every size, whole and with any byte of the payload changed.
func TestEveryKindAndSize(t *testing.T) {
	for _, k := range []frame.Kind{frame.IPv4, frame.IPv6, frame.Raw} {
		s := loaded(t, defaults, 1)
		rng := rand.New(rand.NewPCG(1, uint64(k)))
		seq := uint32(0)
		for size := k.MinSize(); size <= frame.MaxSize; size++ {
			b := build(k, frame.Tag{Run: 7, Stream: 1, Seq: seq, Time: 1}, size)
			if v := s.see(t, b); v != 1 {
				t.Fatalf("%v, %d bytes: verdict %d, want XDP_DROP", k, size, v)
			}
			seq++
			// one bit behind the tag's own fields, where there is filler; else in the sequence number
			at := k.HeaderSize() + 4 + rng.IntN(4)
			if rest := len(b) - k.HeaderSize() - frame.TagSize; rest > 0 {
				at = k.HeaderSize() + frame.TagSize + rng.IntN(rest)
			}
			b[at] ^= 1 << rng.IntN(8)
			if v := s.see(t, b); v != 1 {
				t.Fatalf("%v, %d bytes, damaged: verdict %d, want XDP_DROP", k, size, v)
			}
			if f := s.flow(t, 1); f.unique() != uint64(seq) || f.Corrupted != uint64(seq) || f.Frames != uint64(seq) {
				t.Fatalf("%v, %d bytes: %d unique, %d corrupted after %d of each", k, size,
					f.unique(), f.Corrupted, seq)
			}
		}
	}
}

func TestForeignFramesPass(t *testing.T) {
	s := loaded(t, defaults, 1)
	other := build(frame.IPv4, frame.Tag{Run: 8, Stream: 0}, 64)
	arp := make([]byte, 60)
	arp[12], arp[13] = 0x08, 0x06
	port := build(frame.IPv4, frame.Tag{Run: 7}, 64)
	port[36]++
	for name, b := range map[string][]byte{"another run": other, "ARP": arp, "another port": port} {
		if v := s.see(t, b); v != 2 {
			t.Errorf("%s: verdict %d, want XDP_PASS", name, v)
		}
	}
	short := build(frame.IPv4, frame.Tag{Run: 7}, 200)[:100]
	if v := s.see(t, short); v != 1 {
		t.Errorf("cut short: verdict %d, want XDP_DROP", v)
	}
	var totals [maxQueues]programTotals
	if err := s.objects.TotalsOf.Get(&totals); err != nil {
		t.Fatal(err)
	}
	if totals[0].Foreign != 3 || totals[0].Corrupted != 1 {
		t.Errorf("%+v", totals[0])
	}
	if f := s.flow(t, 0); f.Frames != 0 {
		t.Errorf("%d frames counted", f.Frames)
	}
}

// Any order of arrival, with duplicates, gives what RFC 4737's definition gives, for one queue (plain stores, and runs
// where not every frame is timed) and several (compare and swap).
func TestOrder(t *testing.T) {
	for _, c := range []struct{ queues, every int }{{1, 1}, {1, quickEvery}, {2, 1}} {
		queues := c.queues
		s := loaded(t, Options{Streams: 1, TimeEvery: c.every, CheckEvery: c.every, Window: 1024,
			EtherType: 0x88b5}, queues)
		rng := rand.New(rand.NewPCG(3, uint64(queues)))
		var unique, duplicated, reordered, extent, next, old uint64
		seen := map[uint32]bool{}
		newest := map[uint32]uint32{} // word of the window → which 32 numbers it stands for
		base := uint32(0)
		for range 20000 {
			base += uint32(rng.IntN(3))
			seq := base
			switch rng.IntN(10) {
			case 0:
				seq -= min(seq, uint32(rng.IntN(50)))
			case 1:
				seq -= min(seq, uint32(rng.IntN(3000))) // beyond the window
			}
			s.see(t, build(frame.Raw, frame.Tag{Run: 7, Seq: seq, Time: 1}, 64))
			word, epoch := seq/32%32, seq/1024
			if e, ok := newest[word]; ok && e > epoch {
				old++
				continue
			}
			newest[word] = epoch
			if seen[seq] {
				duplicated++
				continue
			}
			seen[seq] = true
			unique++
			if uint64(seq) >= next {
				next = uint64(seq) + 1
			} else {
				reordered++
				extent = max(extent, next-uint64(seq))
			}
		}
		f := s.flow(t, 0)
		if f.unique() != unique || f.Duplicated != duplicated || f.Reordered != reordered || f.Extent != extent ||
			f.Next != next || f.TooOld != old {
			t.Errorf("%+v: unique %d, duplicated %d, reordered %d by up to %d, next %d, too old %d; want %d %d %d %d "+
				"%d %d", c,
				f.unique(), f.Duplicated, f.Reordered, f.Extent, f.Next, f.TooOld, unique, duplicated,
				reordered, extent, next, old)
		}
		if unique == 0 || duplicated == 0 || reordered == 0 || old == 0 {
			t.Errorf("the test saw too little: %d %d %d %d", unique, duplicated, reordered, old)
		}
	}
}

// The kernel's histogram and delay variation are hist's, value by value: the sums tell which delay the program saw, and
// Go must put it into the same buckets and come to the same jitter.
func TestDelaysAreCountedAsInGo(t *testing.T) {
	s := loaded(t, defaults, 1)
	var want hist.Histogram
	var variation hist.Variation
	sum := uint64(0)
	rng := rand.New(rand.NewPCG(4, 4))
	for seq := range uint32(400) {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		ago := rng.Uint64() >> (24 + rng.IntN(40)) // up to 2⁴⁰ ns, beyond the histogram's range
		if uint64(now.Nano()) <= ago {
			ago = uint64(now.Nano()) / 2
		}
		s.see(t, build(frame.IPv4, frame.Tag{Run: 7, Seq: seq, Time: uint64(now.Nano()) - ago}, 64))
		f := s.flow(t, 0)
		want.Add(f.Delay.Sum - sum)
		variation.Add(int64(f.Delay.Sum - sum))
		sum = f.Delay.Sum
	}
	got, err := histogram(&s.flow(t, 0).Delay)
	if err != nil {
		t.Fatal(err)
	}
	if got.Sums != want.Sums {
		t.Errorf("sums %+v, want %+v", got.Sums, want.Sums)
	}
	for i, c := range got.Counts() {
		if c != want.Counts()[i] {
			t.Fatalf("bucket %d: %d, want %d", i, c, want.Counts()[i])
		}
	}
	f := s.flow(t, 0)
	abs, err := histogram(&f.Ipdv)
	if err != nil {
		t.Fatal(err)
	}
	if abs.Sums != variation.Abs.Sums || f.IpdvSum != variation.Sum || f.Longer != variation.Longer ||
		f.Shorter != variation.Shorter ||
		f.Jitter != variation.Jitter || f.MaxJitter != variation.MaxJ {
		t.Errorf("variation %+v %d %d %d %d %d, want %+v %d %d %d %d %d", abs.Sums, f.IpdvSum, f.Longer, f.Shorter,
			f.Jitter, f.MaxJitter,
			variation.Abs.Sums, variation.Sum, variation.Longer, variation.Shorter, variation.Jitter, variation.MaxJ)
	}
	if want.Over == 0 || unsafe.Sizeof(f.Delay) != (7+hist.Buckets)*8 {
		t.Errorf("no delay beyond the range was tried: %+v", want.Sums)
	}
}

// A frame from the future is not timed, and said to be early.
func TestEarlyFrames(t *testing.T) {
	s := loaded(t, defaults, 1)
	s.see(t, build(frame.IPv4, frame.Tag{Run: 7, Time: 1 << 62}, 64))
	if f := s.flow(t, 0); f.Early != 1 || f.Delay.Count != 0 || f.unique() != 1 {
		t.Errorf("early %d, timed %d, unique %d", f.Early, f.Delay.Count, f.unique())
	}
}

// Where only every fourth payload is summed up, damage shows in those and nowhere else; damage to the tag always shows.
func TestSampledPayloads(t *testing.T) {
	o := defaults
	o.CheckEvery = 4
	s := loaded(t, o, 1)
	payload, tags := uint64(0), uint64(0)
	for _, k := range []frame.Kind{frame.IPv4, frame.IPv6, frame.Raw} {
		for seq := range uint32(64) {
			seq += uint32(k) * 64
			b := build(k, frame.Tag{Run: 7, Seq: seq, Time: 1}, 200)
			s.see(t, b)
			damaged := build(k, frame.Tag{Run: 7, Stream: 1, Seq: seq, Time: 1}, 200)
			damaged[len(damaged)-1-int(seq)%100] ^= 1
			s.see(t, damaged)
			if seq%4 == 0 {
				payload++
			}
			if f := s.flow(t, 1); f.Corrupted != payload+tags || f.Frames != uint64(seq)+1-payload {
				t.Fatalf("%v, frame %d: %d whole, %d corrupted, want %d", k, seq, f.Frames, f.Corrupted, payload+tags)
			}
		}
	}
	for at := 4; at < frame.TagSize; at++ { // run and stream would make it somebody else's
		b := build(frame.IPv4, frame.Tag{Run: 7, Stream: 1, Seq: 1001, Time: 1}, 1000)
		b[42+at] ^= 0x10
		s.see(t, b)
		tags++
	}
	if f, g := s.flow(t, 1), s.flow(t, 0); f.Corrupted != payload+tags || g.Frames != 192 || g.Corrupted != 0 {
		t.Errorf("%d corrupted, want %d; of the whole ones %d were counted, %d corrupted", f.Corrupted, payload+tags,
			g.Frames, g.Corrupted)
	}
}

// Frames that come one after the other are counted in runs, where not every one of them is timed: whatever arrives, the
// outcome is the same as without.
func TestRuns(t *testing.T) {
	for _, k := range []frame.Kind{frame.IPv4, frame.IPv6, frame.Raw} {
		o := Options{Streams: 3, TimeEvery: quickEvery, CheckEvery: 4 * quickEvery, Window: 1024, EtherType: 0x88b5}
		quick := loaded(t, o, 1)
		o.TimeEvery /= 2
		plain := loaded(t, o, 1)
		if !quick.quick() || plain.quick() {
			t.Fatal("the two sinks do not differ")
		}
		rng := rand.New(rand.NewPCG(8, uint64(k)))
		next := make([]uint32, o.Streams)
		see := func(b []byte) {
			if v, w := quick.see(t, b), plain.see(t, b); v != w {
				t.Fatalf("%v: verdicts %d and %d for % x", k, v, w, b)
			}
		}
		in := 0 // frames of which nothing is the matter
		for range 20000 {
			i := rng.IntN(o.Streams)
			tag := frame.Tag{Run: 7, Stream: uint16(i), Seq: next[i], Time: 1}
			size := k.MinSize() + rng.IntN(40)
			switch rng.IntN(50) {
			case 0: // lost
				next[i] += uint32(1 + rng.IntN(200))
				continue
			case 1: // late, or again
				tag.Seq -= min(tag.Seq, uint32(rng.IntN(100)))
				see(build(k, tag, size))
				continue
			case 2: // any bit changed
				b := build(k, tag, size)
				b[12+rng.IntN(k.HeaderSize()+frame.TagSize-12)] ^= 1 << rng.IntN(8)
				see(b)
				next[i]++
				continue
			case 3: // of another run, or of no stream
				tag.Run, tag.Stream = uint16(7+rng.IntN(2)), uint16(o.Streams+rng.IntN(1000))
				see(build(k, tag, size))
				continue
			case 4: // cut short, or longer than its header says
				b := build(k, tag, size+20)
				if rng.IntN(2) == 0 {
					b = b[:len(b)-1-rng.IntN(20)]
				} else {
					b = append(b, 1, 2, 3)
				}
				see(b)
				next[i]++
				continue
			}
			see(build(k, tag, size))
			next[i]++
			in++
		}
		for i := range o.Streams {
			got, want := quick.flow(t, i), plain.flow(t, i)
			if got.Frames != want.Frames || got.Bytes != want.Bytes || got.Duplicated != want.Duplicated ||
				got.Reordered != want.Reordered || got.Corrupted != want.Corrupted ||
				got.TooOld != want.TooOld || got.Next != want.Next || got.Extent != want.Extent {
				t.Errorf("%v, stream %d: %d frames, %d bytes, duplicated %d, reordered %d, corrupted %d, too old %d, "+
					"next %d, extent %d; want %d %d %d %d %d %d %d %d", k, i,
					got.Frames, got.Bytes, got.Duplicated, got.Reordered, got.Corrupted, got.TooOld,
					got.Next, got.Extent,
					want.Frames, want.Bytes, want.Duplicated, want.Reordered, want.Corrupted, want.TooOld,
					want.Next, want.Extent)
			}
			if want.Frames < uint64(in/o.Streams)*9/10 || want.Duplicated == 0 || want.Reordered == 0 ||
				want.Corrupted == 0 {
				t.Errorf("%v: the test saw too little: %d frames, %d duplicated, %d reordered, %d corrupted", k,
					want.Frames, want.Duplicated, want.Reordered, want.Corrupted)
			}
		}
		var a, b [maxQueues]programTotals
		if err := errors.Join(quick.objects.TotalsOf.Get(&a), plain.objects.TotalsOf.Get(&b)); err != nil {
			t.Fatal(err)
		}
		if a != b || a[0].Foreign == 0 {
			t.Errorf("%v: totals %+v, want %+v", k, a[0], b[0])
		}
	}
}
