package sink

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
)

// of builds a frame of one flow.
func of(k frame.Kind, tag frame.Tag, dst, port int) []byte {
	h := frame.Headers{Kind: k, SourceMAC: netdev.MAC(1), DestMAC: netdev.MAC(2),
		Source: netip.MustParseAddr("10.0.0.1")}
	to := netip.AddrFrom4([4]byte{10, 0, 1, byte(dst)})
	if k == frame.IPv6 {
		h.Source = netip.MustParseAddr("2001:db8::1")
		to = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 13: 10, 14: 1, 15: byte(dst)})
	}
	return frame.Build(h.Template(), k, tag, to, uint16(port), k.MinSize())
}

// TestOrderIsOfFlows sends frames of two flows that go different ways, so that those of one are late: nothing is
// reordered. Then one of each is late within its flow.
func TestOrderIsOfFlows(t *testing.T) {
	for _, every := range []int{1, quickEvery} {
		s := loaded(t, Options{Streams: 2, TimeEvery: every, CheckEvery: every, Window: 1024, EtherType: 0x88b5,
			Flows: []frame.Flows{{}, {First: 10<<24 | 1<<8 | 2, Destinations: 1, Port: 5000, Ports: 2}}}, 1)
		see := func(port int, seqs ...uint32) {
			for _, seq := range seqs {
				s.see(t, of(frame.IPv4, frame.Tag{Run: 7, Stream: 1, Seq: seq, Time: 1}, 2, port))
			}
		}
		see(5000, 0, 2, 4, 6, 8)
		see(5001, 1, 3, 5, 7)
		if f := s.flow(t, 1); f.unique() != 9 || f.Reordered != 0 || f.Extent != 0 || f.Next != 9 {
			t.Errorf("two ways: %d frames, %d reordered by up to %d, next %d", f.unique(), f.Reordered, f.Extent, f.Next)
		}
		see(5000, 12, 10)
		see(5001, 9, 13, 11)
		if f := s.flow(t, 1); f.unique() != 14 || f.Reordered != 2 || f.Extent != 3 || f.Strange != 0 {
			t.Errorf("late within: %d frames, %d reordered by up to %d, %d strange", f.unique(), f.Reordered, f.Extent,
				f.Strange)
		}
		// On the way somebody has changed its port, or its address: nobody knows where it belongs.
		see(5002, 20)
		see(4999, 21)
		s.see(t, of(frame.IPv4, frame.Tag{Run: 7, Stream: 1, Seq: 22, Time: 1}, 3, 5000))
		see(5000, 14)
		if f := s.flow(t, 1); f.unique() != 18 || f.Reordered != 2 || f.Strange != 3 {
			t.Errorf("others: %d frames, %d reordered, %d strange", f.unique(), f.Reordered, f.Strange)
		}
		// A stream of one flow has the order of all its frames.
		for _, seq := range []uint32{0, 2, 1} {
			s.see(t, of(frame.IPv4, frame.Tag{Run: 7, Seq: seq, Time: 1}, 2, 5000+int(seq)))
		}
		if f := s.flow(t, 0); f.Reordered != 1 || f.Strange != 0 {
			t.Errorf("one flow: %d reordered, %d strange", f.Reordered, f.Strange)
		}
	}
}

// TestOrderOfAnyFlows compares with RFC 4737's definition, flow by flow: for frames in any order, with and without runs,
// for one queue and for several.
func TestOrderOfAnyFlows(t *testing.T) {
	for _, c := range []struct {
		kind          frame.Kind
		queues, every int
	}{{frame.IPv4, 1, 1}, {frame.IPv4, 1, quickEvery}, {frame.IPv6, 1, quickEvery}, {frame.IPv6, 2, 1}} {
		const dsts, ports = 4, 8
		flows := frame.Flows{First: 10<<16 | 1<<8 | 1, Destinations: dsts, Port: 2000, Ports: ports}
		if c.kind == frame.IPv4 {
			flows.First = 10<<24 | 1<<8 | 1
		}
		s := loaded(t, Options{Streams: 2, TimeEvery: c.every, CheckEvery: c.every, Window: 1 << 16, EtherType: 0x88b5,
			Flows: []frame.Flows{flows, flows}}, c.queues)
		rng := rand.New(rand.NewPCG(5, uint64(c.queues+c.every)))
		var reordered, across [2]uint64
		heads, all := map[[3]int]uint64{}, [2]uint64{}
		var late [][2]int // held up: stream and number
		see := func(stream, seq int) {
			// Which flow a number is of does not change, as at the source.
			dst, port := 1+seq*7%dsts, 2000+(seq*seq+seq)%ports
			s.see(t, of(c.kind, frame.Tag{Run: 7, Stream: uint16(stream), Seq: uint32(seq), Time: 1}, dst, port))
			key := [3]int{stream, dst, port}
			if uint64(seq) < heads[key] {
				reordered[stream]++
			}
			if uint64(seq) < all[stream] {
				across[stream]++
			}
			heads[key], all[stream] = max(heads[key], uint64(seq)+1), max(all[stream], uint64(seq)+1)
		}
		next := [2]int{}
		for range 8000 {
			stream := rng.IntN(2)
			next[stream]++
			switch rng.IntN(8) {
			case 0:
				late = append(late, [2]int{stream, next[stream]})
				continue
			case 1:
				if len(late) > 0 {
					at := rng.IntN(len(late))
					see(late[at][0], late[at][1])
					late = append(late[:at], late[at+1:]...)
				}
			}
			see(stream, next[stream])
		}
		for i := range reordered {
			f := s.flow(t, i)
			if f.Reordered != reordered[i] || f.Strange != 0 || f.Duplicated != 0 {
				t.Errorf("%+v, stream %d: %d reordered, want %d; %d strange, %d duplicated", c, i, f.Reordered,
					reordered[i], f.Strange, f.Duplicated)
			}
			if reordered[i] == 0 || across[i] <= reordered[i] {
				t.Errorf("%+v: the test saw too little: %d by flow, %d across", c, reordered[i], across[i])
			}
		}
	}
}
