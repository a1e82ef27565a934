package pipeline

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/polyplane/polyplane/system/attack"
)

const relayedVNI = 9

// relayLab is a node that relays VNI 9 between the peers 192.0.2.1 and 192.0.2.2, with these bounds in bytes.
func relayLab(t *testing.T, rate, burst uint64) *wireLab {
	l := newWireLab(t)
	l.Ports[0].Mac = vxlanPort
	l.relay(rate, burst)
	return l
}

func (l *wireLab) relay(rate, burst uint64) {
	l.Helper()
	l.put(l.Relays, uint32(relayedVNI), RelayBetween(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"),
		rate, burst))
}

func (l *wireLab) relayed() Relay {
	l.Helper()
	var r Relay
	if err := l.Relays.Lookup(uint32(relayedVNI), &r); err != nil {
		l.Fatal(err)
	}
	return r
}

// segments is what the kernel says of a buffer that it has yet to segment.
type segments struct {
	_    [41]uint32
	Segs uint32
	_    [2]uint32 // sk
	Size uint32
	_    uint32
	_    uint64
}

func (l *wireLab) underlay(in []byte, of segments) (uint32, []byte) {
	l.Helper()
	o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64), Context: of}
	verdict, err := l.FromUnderlay.Run(&o)
	if err != nil {
		l.Fatal(err)
	}
	return verdict, o.DataOut
}

// TestRelay has packets of both directions go on: their outer addresses and TTL change, and nothing else.
func TestRelay(t *testing.T) {
	l := relayLab(t, 0, 0)
	inner := ipv4("10.1.1.1", nil)
	there := func(o *outer) { o.v.VNI = relayedVNI }
	back := func(o *outer) { o.v.VNI, o.ip.SrcIP = relayedVNI, net.IP{192, 0, 2, 2} }
	for _, way := range []struct {
		name   string
		change func(*outer)
		to     net.IP
	}{{"there", there, net.IP{192, 0, 2, 2}}, {"back", back, net.IP{192, 0, 2, 1}}} {
		for _, payload := range [][]byte{inner, ipv6("2001:db8:1:1::1", nil), make([]byte, 1500)} {
			want := tunnelled(payload, func(o *outer) {
				way.change(o)
				o.ip.SrcIP, o.ip.DstIP, o.ip.TTL = net.IP{192, 0, 2, 9}, way.to, o.ip.TTL-1
			})
			if verdict, got := l.underlay(tunnelled(payload, way.change), segments{}); verdict != redirect ||
				!bytes.Equal(got, want) {
				t.Errorf("%s: verdict %d with\n%x, not\n%x", way.name, verdict, got, want)
			}
		}
	}
	r, bytes := l.relayed(), uint64(len(inner)+len(ipv6("2001:db8:1:1::1", nil))+1500)
	for i, w := range r.Ways {
		if w.Packets != 3 || w.Bytes != bytes || w.Over != 0 || r.Foreign+r.Lost != 0 {
			t.Errorf("way %d: %+v", i, r)
		}
	}
	// A buffer of five segments, each with all headers: 14 + 20 + 8 bytes inside.
	big := make([]byte, 42+5*100)
	copy(big, inner[:42])
	l.underlay(tunnelled(big, there), segments{Segs: 5, Size: 100})
	if now := l.relayed(); now.Ways[0].Packets != 8 || now.Ways[0].Bytes != bytes+5*142 {
		t.Errorf("a packet of five segments is counted as %d packets, %d bytes", now.Ways[0].Packets-3,
			now.Ways[0].Bytes-bytes)
	}
}

// TestRelayRefuses has packets come that are not to go on: by a wrong address, at their end, without a way on, and by
// what no tunnel of a node sends.
func TestRelayRefuses(t *testing.T) {
	attack.Tell(t, "somebody on the underlay sends tunnel packets to a relay", "it passes on those of its two nodes only")
	l := relayLab(t, 0, 0)
	inner := ipv4("10.1.1.1", nil)
	for name, k := range map[string]struct {
		verdict       uint32
		change        func(*outer)
		foreign, lost uint64
	}{
		"another address":     {shot, func(o *outer) { o.ip.SrcIP = net.IP{192, 0, 2, 3} }, 1, 0},
		"the node's own":      {shot, func(o *outer) { o.ip.SrcIP = net.IP{192, 0, 2, 9} }, 1, 0},
		"TTL":                 {shot, func(o *outer) { o.ip.TTL = 1 }, 0, 1},
		"a VNI of no relay":   {unspec, func(o *outer) { o.v.VNI = 10 }, 0, 0},
		"to another address":  {unspec, func(o *outer) { o.ip.DstIP = net.IP{192, 0, 2, 8} }, 0, 0},
		"to all":              {unspec, func(o *outer) { o.ip.DstIP = net.IP{192, 0, 2, 255} }, 0, 0},
		"another port":        {unspec, func(o *outer) { o.u.DstPort = 4788 }, 0, 0},
		"a UDP checksum":      {unspec, func(o *outer) { o.u.Checksum = 1 }, 0, 0},
		"a fragment":          {unspec, func(o *outer) { o.ip.Flags = layers.IPv4MoreFragments }, 0, 0},
		"the next fragment":   {unspec, func(o *outer) { o.ip.FragOffset = 8 }, 0, 0},
		"another protocol":    {unspec, func(o *outer) { o.ip.Protocol = layers.IPProtocolTCP }, 0, 0},
		"no VNI":              {unspec, func(o *outer) { o.v.ValidIDFlag = false }, 0, 0},
		"for another machine": {unspec, func(o *outer) { o.e.DstMAC = net.HardwareAddr{2, 0, 0, 0, 0, 7} }, 0, 0},
		"a broadcast":         {unspec, func(o *outer) { o.e.DstMAC = layers.EthernetBroadcast }, 0, 0},
	} {
		l.relay(0, 0)
		in := tunnelled(inner, func(o *outer) { o.v.VNI = relayedVNI; k.change(o) })
		verdict, out := l.underlay(in, segments{})
		r := l.relayed()
		if verdict != k.verdict || r.Foreign != k.foreign || r.Lost != k.lost || r.Ways[0].Packets != 0 {
			t.Errorf("%s: verdict %d, %+v", name, int32(verdict), r)
		}
		if verdict == unspec && !bytes.Equal(in, out) {
			t.Errorf("%s: it was changed", name)
		}
	}
	spoilt := tunnelled(inner, func(o *outer) { o.v.VNI = relayedVNI })
	spoilt[24] ^= 1
	for name, in := range map[string][]byte{"a wrong checksum": spoilt, "a cut header": spoilt[:49],
		"no IPv4": changed(spoilt, 13, 6), "options": changed(spoilt, 14, 0x46)} {
		if verdict, out := l.underlay(in, segments{}); verdict != unspec || !bytes.Equal(in, out) {
			t.Errorf("%s: verdict %d", name, int32(verdict))
		}
	}
	l.relay(0, 0)
	l.sh("ip route flush dev u; ip addr flush dev u")
	verdict, _ := l.underlay(tunnelled(inner, func(o *outer) { o.v.VNI = relayedVNI }), segments{})
	if r := l.relayed(); verdict != shot || r.Lost != 1 {
		t.Errorf("without a way on: verdict %d, %+v", verdict, r)
	}
}

// TestRelayBounds has a link send more than its bandwidth: the rest is dropped, in this direction only.
func TestRelayBounds(t *testing.T) {
	inner := ipv4("10.1.1.1", nil)
	l := relayLab(t, 1, 3*uint64(len(inner)))
	there := tunnelled(inner, func(o *outer) { o.v.VNI = relayedVNI })
	back := tunnelled(inner, func(o *outer) { o.v.VNI, o.ip.SrcIP = relayedVNI, net.IP{192, 0, 2, 2} })
	for n := range 5 {
		verdict, _ := l.underlay(there, segments{})
		if (verdict == redirect) != (n < 3) {
			t.Errorf("packet %d: verdict %d", n, verdict)
		}
	}
	if verdict, _ := l.underlay(back, segments{}); verdict != redirect {
		t.Errorf("back: verdict %d", verdict)
	}
	if r := l.relayed(); r.Ways[0].Packets != 3 || r.Ways[0].Over != 2 || r.Ways[1].Packets != 1 || r.Ways[1].Over != 0 {
		t.Errorf("counted: %+v", r)
	}
}
