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

// The program's frames are, byte for byte, the ones that frame.Build writes: packet in, packet out, one by one, into a buffer
// full of rubbish.
func TestFramesAreAsBuilt(t *testing.T) {
	for _, k := range []frame.Kind{frame.IPv4, frame.IPv6, frame.Raw} {
		s := stream(k, frame.Uniform(k.MinSize(), frame.MaxSize), 5000)
		s.SourcePorts, s.SourcePort = 7, 2000
		x, err := OpenXDP(Options{Streams: []Stream{s}, Duration: time.Hour, Run: 0x1234, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		rng := rand.New(rand.NewPCG(1, 1))
		in := make([]byte, frame.MaxSize-frame.FCS)
		flows, sizes := map[netip.AddrPort]bool{}, map[int]bool{}
		for seq := range 3000 {
			for i := range in {
				in[i] = byte(rng.Uint32())
			}
			out := make([]byte, 2048)
			opts := ebpf.RunOptions{Data: in, DataOut: out}
			ret, err := x.objects.Source.Run(&opts)
			if err != nil {
				t.Fatal(err)
			}
			if ret != 4 && ret != 0 { // XDP_REDIRECT; XDP_ABORTED as no device is set
				t.Fatalf("verdict %d", ret)
			}
			got := opts.DataOut
			tag, whole, err := frame.Parse(got)
			if err != nil || !whole || tag.Seq != uint32(seq) || tag.Run != 0x1234 || tag.Stream != 0 {
				t.Fatalf("%v frame %d: %+v, whole %v, %v", k, seq, tag, whole, err)
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
				t.Fatalf("%v frame %d, %d bytes:\n got %x\nwant %x", k, seq, len(got), got, want)
			}
			if k != frame.Raw {
				flows[netip.AddrPortFrom(dst, port)] = true
				if i := slices.Index(s.Destinations, dst); i < 0 || port < 2000 || port > 2006 {
					t.Fatalf("%v frame %d goes to %v from port %d", k, seq, dst, port)
				}
			}
			sizes[len(got)+frame.FCS] = true
		}
		if k != frame.Raw && len(flows) < 2800 { // 3,000 draws of 35,000 flows
			t.Errorf("%v: %d different flows", k, len(flows))
		}
		if len(sizes) < 1100 {
			t.Errorf("%v: %d different sizes", k, len(sizes))
		}
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
		"no stream":         func(o *Options) { o.Streams = nil },
		"no duration":       func(o *Options) { o.Duration = 0 },
		"batch":             func(o *Options) { o.Batch = 257 },
		"no destination":    func(o *Options) { o.Streams[0].Destinations = nil },
		"other family":      func(o *Options) { o.Streams[0].Destinations = Destinations(netip.MustParseAddr("::1"), 1) },
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
