package source

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
)

func stream(k frame.Kind, sizes frame.Sizes, dsts int) Stream {
	s := Stream{Sizes: sizes, Headers: frame.Headers{Kind: k, SourceMAC: netdev.MAC(1), DestMAC: netdev.MAC(2)}}
	switch k {
	case frame.IPv4:
		s.Headers.Source = netip.MustParseAddr("10.0.0.1")
		s.Destinations = Destinations(netip.MustParseAddr("10.1.255.250"), dsts)
	case frame.IPv6:
		s.Headers.Source = netip.MustParseAddr("2001:db8::1")
		s.Destinations = Destinations(netip.MustParseAddr("2001:db8:1::fffa"), dsts)
	}
	return s
}

// The programs' frames are, byte for byte, the ones that frame.Build writes: packet in, packet out, one by one, into a
// buffer full of rubbish; and where the payload is kept, into one whose payload is as the kernel puts it there.
func TestFramesAreAsBuilt(t *testing.T) {
	for _, k := range []frame.Kind{frame.IPv4, frame.IPv6, frame.Raw} {
		for name, change := range map[string]func(*Options){
			"any size, paced":        func(o *Options) { o.Streams[0].Rate = 1e6 },
			"any size":               func(*Options) {},
			"any size, payload kept": func(o *Options) { o.KeepPayload = true },
			"one size":               func(o *Options) { o.Streams[0].Sizes = frame.Fixed(333) },
			"one size, payload kept": func(o *Options) { o.Streams[0].Sizes, o.KeepPayload = frame.Fixed(333), true },
			"smallest, payload kept": func(o *Options) {
				o.Streams[0].Sizes,
					o.KeepPayload = frame.Fixed(k.MinSize()), true
			},
			"in order, one port": func(o *Options) { o.Streams[0].InOrder, o.Streams[0].SourcePorts = true, 1 },
			"not in a row":       func(o *Options) { slices.Reverse(o.Streams[0].Destinations) },
			"not in a row, paced, kept": func(o *Options) {
				slices.Reverse(o.Streams[0].Destinations)
				o.Streams[0].Rate, o.KeepPayload = 1e6, true
			},
			"one size, payload kept, one port, near": func(o *Options) {
				o.Streams[0].Sizes, o.KeepPayload = frame.Fixed(333), true
				nearby(o)
			},
			"smallest, in order, one port, near": func(o *Options) {
				o.Streams[0].Sizes, o.Streams[0].InOrder, o.KeepPayload = frame.Fixed(k.MinSize()), true, true
				nearby(o)
			},
			"any size, one port, near": nearby,
			"any size, payload kept, one port, near": func(o *Options) {
				o.KeepPayload = true
				nearby(o)
			},
			"IMIX, payload kept, one port, near": func(o *Options) {
				o.Streams[0].Sizes = frame.Sizes{Of: []int{k.MinSize(), 594, 1518}}
				o.KeepPayload = true
				nearby(o)
			},
			"IMIX, payload kept, random": func(o *Options) {
				o.Streams[0].Sizes = frame.Sizes{Of: []int{k.MinSize(), 594, 1518}}
				o.KeepPayload = true
			},
		} {
			t.Run(k.String()+", "+name, func(t *testing.T) {
				s := stream(k, frame.Uniform(k.MinSize(), frame.MaxSize), 5000)
				s.SourcePorts, s.SourcePort = 7, 2000
				o := Options{Streams: []Stream{s}, Duration: time.Hour, Run: 0x1234, Seed: 5}
				change(&o)
				framesAreAsBuilt(t, o)
			})
		}
	}
}

// nearby gives a stream one port, and destinations that differ in their last 16 bits only.
func nearby(o *Options) {
	s := &o.Streams[0]
	s.SourcePorts = 1
	switch s.Headers.Kind {
	case frame.IPv4:
		s.Destinations = Destinations(netip.MustParseAddr("10.64.3.0"), 5000)
	case frame.IPv6:
		s.Destinations = Destinations(netip.MustParseAddr("2001:db8:1::ffff:0"), 5000)
	}
}

func framesAreAsBuilt(t *testing.T, o Options) {
	x, err := OpenXDP(o)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s := x.o.Streams[0]
	k := s.Headers.Kind
	const frames = 1000
	rng := rand.New(rand.NewPCG(1, 1))
	in := make([]byte, x.room)
	flows, sizes := map[netip.AddrPort]bool{}, map[int]bool{}
	for seq := range frames {
		for i := range in {
			in[i] = byte(rng.Uint32())
		}
		if o.KeepPayload {
			copy(in[k.HeaderSize()+frame.TagSize:], frame.Filler[:])
		}
		opts := ebpf.RunOptions{Data: in, DataOut: make([]byte, 2048)}
		ret, err := x.program().Run(&opts)
		if err != nil {
			t.Fatal(err)
		}
		if ret != 4 && ret != 0 { // XDP_REDIRECT; XDP_ABORTED as no device is set
			t.Fatalf("verdict %d", ret)
		}
		got := opts.DataOut
		tag, whole, err := frame.Parse(got)
		if err != nil || !whole || tag.Seq != uint32(seq) || tag.Run != 0x1234 || tag.Stream != 0 {
			t.Fatalf("frame %d: %+v, whole %v, %v", seq, tag, whole, err)
		}
		var dst netip.Addr
		var port uint16
		switch k {
		case frame.IPv4:
			dst, _ = netip.AddrFromSlice(got[30:34])
			port = binary.BigEndian.Uint16(got[34:])
		case frame.IPv6:
			dst, _ = netip.AddrFromSlice(got[38:54])
			port = binary.BigEndian.Uint16(got[54:])
		}
		want := frame.Build(s.Headers.Template(), k, tag, dst, port, len(got)+frame.FCS)
		if !bytes.Equal(got, want) {
			t.Fatalf("frame %d, %d bytes:\n got %x\nwant %x", seq, len(got), got, want)
		}
		if k != frame.Raw {
			flows[netip.AddrPortFrom(dst, port)] = true
			i := slices.Index(s.Destinations, dst)
			if i < 0 || port < 2000 || port >= 2000+uint16(s.ports()) || s.InOrder && i != seq%len(s.Destinations) {
				t.Fatalf("frame %d goes to %v from port %d", seq, dst, port)
			}
		}
		sizes[len(got)+frame.FCS] = true
	}
	if k != frame.Raw && len(flows) < frames*4/5 { // draws of 5,000 flows at least, or one after the other
		t.Errorf("%d different flows", len(flows))
	}
	if n := len(s.Sizes.Of); n > 0 && len(sizes) != n || n == 0 && len(sizes) < 550 {
		t.Errorf("%d different sizes", len(sizes))
	}
	rep, err := x.report()
	if err != nil || rep.Sent() != frames {
		t.Errorf("%d reported, %v", rep.Sent(), err)
	}
}

// What a pause made late follows at four times the rate at most, and says how much that was.
func TestCatchingUpIsNoBurst(t *testing.T) {
	s := stream(frame.IPv4, frame.Fixed(64), 16)
	s.Rate = 1000
	x, err := OpenXDP(Options{Streams: []Stream{s}, Duration: time.Hour, Run: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	call := func() bool {
		ret, err := x.objects.Source.Run(&ebpf.RunOptions{Data: make([]byte, x.room)})
		if err != nil {
			t.Fatal(err)
		}
		return ret != 1 // XDP_DROP: it waits
	}
	call()
	time.Sleep(100 * time.Millisecond) // the pause
	frames, start := 0, time.Now()
	for time.Since(start) < 20*time.Millisecond {
		if call() {
			frames++
		}
	}
	most := int(4*s.Rate*time.Since(start).Seconds()) + 1
	rep, err := x.report()
	if err != nil {
		t.Fatal(err)
	}
	st := rep.Streams[0]
	t.Logf("%d frames, at most %d; %+v", frames, most, st)
	if frames > most || frames < 2 || st.Burst != uint64(frames) || st.Late != st.Burst ||
		st.LateMax < 50*time.Millisecond {
		t.Errorf("%d frames after a pause, want at most %d, all late, in a row: %+v", frames, most, st)
	}
}

// The table of gaps gives exponential ones: mean, variance and tail.
func TestExponentialTable(t *testing.T) {
	e := exponentialTable()
	rng := rand.New(rand.NewPCG(2, 2))
	variate := func() float64 {
		sum := 0.0
		for {
			r := rng.Uint64()
			bin := r >> 52
			if bin == 0 {
				sum += float64(e[0])
				continue
			}
			high, low := float64(e[bin]), float64(e[bin+1])
			return (sum + high - (high-low)*float64(r>>20&0xffff)/65536) / 65536
		}
	}
	const n = 2_000_000
	sum, squares, tail := 0.0, 0.0, 0
	for range n {
		v := variate()
		sum += v
		squares += v * v
		if v > 10 {
			tail++
		}
	}
	mean := sum / n
	if math.Abs(mean-1) > 0.003 {
		t.Errorf("mean %v", mean)
	}
	if v := squares/n - mean*mean; math.Abs(v-1) > 0.01 {
		t.Errorf("variance %v", v)
	}
	if want := math.Exp(-10) * n; math.Abs(float64(tail)-want) > 5*math.Sqrt(want) {
		t.Errorf("%d beyond 10, want %.0f", tail, want)
	}
}

func TestValidate(t *testing.T) {
	good := Options{Streams: []Stream{stream(frame.IPv4, frame.Fixed(64), 1)}, Duration: time.Second}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"no stream":      func(o *Options) { o.Streams = nil },
		"no duration":    func(o *Options) { o.Duration = 0 },
		"batch":          func(o *Options) { o.Batch = 257 },
		"no destination": func(o *Options) { o.Streams[0].Destinations = nil },
		"other family": func(o *Options) {
			o.Streams[0].Destinations = Destinations(netip.MustParseAddr("::1"),
				1)
		},
		"negative rate":     func(o *Options) { o.Streams[0].Rate = -1 },
		"not a rate":        func(o *Options) { o.Streams[0].Rate = math.NaN() },
		"too many frames":   func(o *Options) { o.Streams[0].Rate, o.Duration = 1e7, time.Hour },
		"ports":             func(o *Options) { o.Streams[0].SourcePort, o.Streams[0].SourcePorts = 65000, 1000 },
		"a frame too small": func(o *Options) { o.Streams[0].Sizes = frame.Fixed(60) },
	} {
		o := good
		o.Streams = slices.Clone(good.Streams)
		spoil(&o)
		if o.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestIntended(t *testing.T) {
	s := Stream{Rate: 1000}
	for _, c := range []struct {
		sent uint64
		due  time.Duration
		want uint64
	}{{1000, time.Second, 1000}, {900, 900 * time.Millisecond, 1000}, {0, 0, 1000}} {
		if got := intended(s, c.sent, c.due, time.Second); got != c.want {
			t.Errorf("sent %d, next due at %v: intended %d, want %d", c.sent, c.due, got, c.want)
		}
	}
	if got := intended(Stream{}, 5, 0, time.Second); got != 5 {
		t.Errorf("unpaced: %d", got)
	}
}
