package frame

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func headers(k Kind) (Headers, netip.Addr) {
	h := Headers{Kind: k, SourceMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DestMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}}
	switch k {
	case IPv4:
		h.Source = netip.MustParseAddr("192.0.2.1")
		return h, netip.MustParseAddr("198.51.100.7")
	case IPv6:
		h.Source = netip.MustParseAddr("2001:db8::1")
		return h, netip.MustParseAddr("2001:db8:1::7")
	}
	return h, netip.Addr{}
}

// What is built is what another implementation decodes, checksums included, at every size.
func TestBuild(t *testing.T) {
	for _, k := range []Kind{IPv4, IPv6, Raw} {
		h, dst := headers(k)
		if err := h.Validate(); err != nil {
			t.Fatal(err)
		}
		tag := Tag{Run: 9, Stream: 3, Seq: 123456789, Time: 1 << 50}
		for size := k.MinSize(); size <= MaxSize; size++ {
			b := Build(h.Template(), k, tag, dst, 4711, size)
			if len(b) != size-FCS {
				t.Fatalf("%v, %d bytes: %d in the buffer", k, size, len(b))
			}
			got, whole, err := Parse(b)
			if err != nil || !whole || got != tag {
				t.Fatalf("%v, %d bytes: %+v %v %v", k, size, got, whole, err)
			}
			if k == Raw {
				continue
			}
			p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
			udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
			if !ok || p.ErrorLayer() != nil {
				t.Fatalf("%v, %d bytes: %v", k, size, p)
			}
			if err := udp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
			if err, bad := p.VerifyChecksums(); err != nil || len(bad) > 0 {
				t.Fatalf("%v, %d bytes: checksums %v %v", k, size, err, bad)
			}
			if udp.SrcPort != 4711 || udp.DstPort != DestinationPort || int(udp.Length) != size-FCS-k.HeaderSize()+8 {
				t.Fatalf("%v, %d bytes: %+v", k, size, udp)
			}
		}
	}
}

// Any single flipped bit of the payload shows.
func TestParseSeesEveryFlippedBit(t *testing.T) {
	h, dst := headers(IPv4)
	b := Build(h.Template(), IPv4, Tag{Run: 1, Seq: 77}, dst, 1, 120)
	for i := IPv4.HeaderSize() * 8; i < len(b)*8; i++ {
		b[i/8] ^= 1 << (i % 8)
		if _, whole, err := Parse(b); err != nil || whole {
			t.Fatalf("bit %d flipped: whole %v, %v", i, whole, err)
		}
		b[i/8] ^= 1 << (i % 8)
	}
	if _, _, err := Parse(b[:20]); err == nil {
		t.Error("a stump was taken for a measured frame")
	}
}

func TestSizes(t *testing.T) {
	for text, mean := range map[string]float64{"64": 64, "79-1518": 798.5, "imix": (7*64 + 4*594 + 1518) / 12.0} {
		s, err := ParseSizes(text)
		if err != nil {
			t.Fatal(err)
		}
		if s.Mean() != mean || s.String() != text || s.Validate(IPv4) != nil {
			t.Errorf("%q: %v, mean %v, %v", text, s, s.Mean(), s.Validate(IPv4))
		}
	}
	for _, s := range []Sizes{Fixed(63), Fixed(1519), Uniform(100, 90)} {
		if s.Validate(IPv4) == nil {
			t.Errorf("%v was accepted", s)
		}
	}
	if Fixed(64).Validate(IPv6) == nil {
		t.Error("64 bytes cannot hold an IPv6 header and the tag")
	}
	for _, text := range []string{"", "x", "64-", "-64"} {
		if _, err := ParseSizes(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestHeadersRefuse(t *testing.T) {
	h, _ := headers(IPv4)
	h.Kind = IPv6
	if h.Validate() == nil {
		t.Error("an IPv4 source in an IPv6 stream was accepted")
	}
	h.Kind, h.EtherType = Raw, 100
	if h.Validate() == nil {
		t.Error("a length was accepted as EtherType")
	}
}
