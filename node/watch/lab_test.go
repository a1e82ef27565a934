package watch

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/polyplane/polyplane/model"
)

var (
	macA, macB = mac{2, 0, 0, 0, 0, 0xa}, mac{2, 0, 0, 0, 0, 0xb}
	all        = mac{255, 255, 255, 255, 255, 255}
	addrA      = netip.MustParseAddr("10.0.0.1")
	addrB      = netip.MustParseAddr("10.0.0.2")
	me         = model.ID{Network: "lab", Element: "h1"}
)

// frame builds one with gopacket: what is parsed here is written by somebody else.
func frame(t testing.TB, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: false},
		all...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ether(from, to mac, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: from[:], DstMAC: to[:], EthernetType: kind}
}

func ip4(from, to netip.Addr, proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
}

type tcpFlags struct{ syn, ack, rst, fin bool }

func tcp(t testing.TB, fromMAC, toMAC mac, from, to netip.Addr, source, target uint16, f tcpFlags) []byte {
	return frame(t, ether(fromMAC, toMAC, layers.EthernetTypeIPv4), ip4(from, to, layers.IPProtocolTCP),
		&layers.TCP{SrcPort: layers.TCPPort(source), DstPort: layers.TCPPort(target), SYN: f.syn, ACK: f.ack,
			RST: f.rst, FIN: f.fin})
}

func udp(t testing.TB, from, to netip.Addr, target uint16) []byte {
	return frame(t, ether(macA, macB, layers.EthernetTypeIPv4), ip4(from, to, layers.IPProtocolUDP),
		&layers.UDP{SrcPort: 4000, DstPort: layers.UDPPort(target)}, gopacket.Payload("hello"))
}

// unreachable is host B's answer to a packet of A's.
func unreachable(t testing.TB, of []byte) []byte {
	return frame(t, ether(macB, macA, layers.EthernetTypeIPv4), ip4(addrB, addrA, layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}, gopacket.Payload(of[14:min(len(of), 14+28)]))
}

func arp(t testing.TB, op uint16, fromMAC mac, sender, target netip.Addr) []byte {
	to := all
	if op == 2 {
		to = macA
	}
	return frame(t, ether(fromMAC, to, layers.EthernetTypeARP), &layers.ARP{AddrType: layers.LinkTypeEthernet,
		Protocol:      layers.EthernetTypeIPv4,
		HwAddressSize: 6, ProtAddressSize: 4, Operation: op, SourceHwAddress: fromMAC[:],
		SourceProtAddress: sender.AsSlice(),
		DstHwAddress:      make([]byte, 6), DstProtAddress: target.AsSlice()})
}

// traffic is a port's sample that is put together frame by frame.
type traffic struct {
	Sampled
	t testing.TB
}

func newTraffic(t testing.TB) *traffic {
	return &traffic{Sampled{Interface: "eth0", MAC: macA, Span: 250 * time.Millisecond}, t}
}

func (f *traffic) add(at time.Duration, toElement bool, data []byte) {
	f.Frames = append(f.Frames, Frame{At: at, ToElement: toElement, Length: len(data),
		Data: data[:min(len(data), SnapLen)]})
}

func (f *traffic) sends(at time.Duration, data []byte) { f.add(at, false, data) }
func (f *traffic) gets(at time.Duration, data []byte)  { f.add(at, true, data) }

// judged is what is not nothing.
func judged(ports ...Sampled) map[Signal]float64 {
	found := map[Signal]float64{}
	for _, v := range Judge(ports) {
		if v.Value > 0 {
			found[v.Signal] = v.Value
		}
	}
	return found
}

func address(n int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0x0a000000+uint32(n))
	return netip.AddrFrom4(b)
}

// spread are n moments of a sample.
func spread(n int, do func(i int, at time.Duration)) {
	for i := range n {
		do(i, time.Duration(i)*200*time.Millisecond/time.Duration(n))
	}
}
