package cli

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/polyplane/polyplane/model"
)

var macs = [2]net.HardwareAddr{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}

func frame(t *testing.T, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, parts...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ethernet(kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: macs[0], DstMAC: macs[1], EthernetType: kind}
}

func ip4(protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
}

func ip6Header(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: next, SrcIP: net.ParseIP("fd00::1"),
		DstIP: net.ParseIP("fd00::2")}
}

func packets(t *testing.T) map[string][]byte {
	bgp := append(bytes.Repeat([]byte{0xff}, 16), 0, 19, 4)
	isis := append([]byte{0xfe, 0xfe, 0x03, 0x83, 0x1b, 1, 0, 17}, make([]byte, 12)...)
	return map[string][]byte{
		"ARP who has 10.0.0.2? tell 10.0.0.1": frame(t, ethernet(layers.EthernetTypeARP),
			&layers.ARP{AddrType: layers.LinkTypeEthernet,
				Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
				SourceHwAddress: macs[0], SourceProtAddress: []byte{10, 0, 0, 1}, DstHwAddress: make([]byte, 6),
				DstProtAddress: []byte{10, 0, 0, 2}}),
		"ARP 10.0.0.2 is at 02:00:00:00:00:02": frame(t, ethernet(layers.EthernetTypeARP),
			&layers.ARP{AddrType: layers.LinkTypeEthernet,
				Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPReply,
				SourceHwAddress: macs[1], SourceProtAddress: []byte{10, 0, 0, 2}, DstHwAddress: macs[0],
				DstProtAddress: []byte{10, 0, 0, 1}}),
		"IP 10.0.0.1 > 10.0.0.2: ICMP echo request, id 7, seq 3, length 12": frame(t, ethernet(layers.EthernetTypeIPv4),
			ip4(layers.IPProtocolICMPv4),
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 7, Seq: 3},
			gopacket.Payload("data")),
		"IP 10.0.0.1:1234 > 10.0.0.2:80: flags [S], seq 5, win 100, length 0": frame(t,
			ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolTCP),
			&layers.TCP{SrcPort: 1234, DstPort: 80, SYN: true, Seq: 5, Window: 100}),
		"IP 10.0.0.1:179 > 10.0.0.2:4000: flags [P.], seq 5, ack 9, win 100, length 19 BGP keepalive": frame(t,
			ethernet(layers.EthernetTypeIPv4),
			ip4(layers.IPProtocolTCP), &layers.TCP{SrcPort: 179, DstPort: 4000, PSH: true, ACK: true, Seq: 5, Ack: 9,
				Window: 100}, gopacket.Payload(bgp)),
		"vlan 42, IP 10.0.0.1:520 > 10.0.0.2:520: RIP, length 4": frame(t, ethernet(layers.EthernetTypeDot1Q),
			&layers.Dot1Q{VLANIdentifier: 42,
				Type: layers.EthernetTypeIPv4}, ip4(layers.IPProtocolUDP), &layers.UDP{SrcPort: 520,
				DstPort: 520}, gopacket.Payload("ripp")),
		"IP 10.0.0.1 > 10.0.0.2: OSPFv2 hello, length 44": frame(t, ethernet(layers.EthernetTypeIPv4),
			ip4(layers.IPProtocolOSPF),
			gopacket.Payload(append([]byte{2, 1}, make([]byte, 42)...))),
		"IP6 fd00::1 > fd00::2: OSPFv3 link state update, length 36": frame(t, ethernet(layers.EthernetTypeIPv6),
			ip6Header(layers.IPProtocolOSPF),
			gopacket.Payload(append([]byte{3, 4}, make([]byte, 34)...))),
		"IP6 fd00::1 > fd00::2: ICMP6 who has fd00::2?": frame(t, ethernet(layers.EthernetTypeIPv6),
			ip6Header(layers.IPProtocolICMPv6),
			&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)},
			&layers.ICMPv6NeighborSolicitation{TargetAddress: net.ParseIP("fd00::2")}),
		"IP6 [fd00::1]:5000 > [fd00::2]:53: DNS, length 3": frame(t, ethernet(layers.EthernetTypeIPv6),
			ip6Header(layers.IPProtocolUDP),
			&layers.UDP{SrcPort: 5000, DstPort: 53}, gopacket.Payload("xyz")),
		"IS-IS 02:00:00:00:00:01 > 02:00:00:00:00:02: point-to-point hello, length 20": frame(t,
			&layers.Ethernet{SrcMAC: macs[0], DstMAC: macs[1], EthernetType: layers.EthernetTypeLLC,
				Length: uint16(len(isis))}, gopacket.Payload(isis)),
		"02:00:00:00:00:01 > 02:00:00:00:00:02: EtherType 0x88b5, length 60": frame(t, ethernet(0x88b5),
			gopacket.Payload("test")),
	}
}

func TestSummaries(t *testing.T) {
	for want, data := range packets(t) {
		if got := summarize(data, layers.LinkTypeEthernet, len(data)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// However little of a packet there is, a line is printed and nothing breaks.
func TestCutPackets(t *testing.T) {
	for name, data := range packets(t) {
		for n := range len(data) {
			if got := summarize(data[:n], layers.LinkTypeEthernet, len(data)); got == "" ||
				strings.Contains(got, "\n") {
				t.Errorf("%s, the first %d bytes: %q", name, n, got)
			}
		}
	}
}

func FuzzSummary(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00\x45\x00\x00\x14\x00\x00\x00\x00\x40\x59\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := summarize(data, layers.LinkTypeEthernet, len(data)); strings.Contains(got, "\n") {
			t.Errorf("several lines: %q", got)
		}
	})
}

// pcapng is what an instance sends.
func pcapng(t *testing.T, packets ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriterInterface(&b, pcapgo.NgInterface{Name: "lab/r1:h1", LinkType: layers.LinkTypeEthernet,
		TimestampResolution: 9}, pcapgo.NgWriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range packets {
		info := gopacket.CaptureInfo{Timestamp: now.Add(time.Duration(i) * time.Millisecond),
			CaptureLength: len(p), Length: len(p)}
		options := pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}}
		if i > 0 {
			missed := uint64(i)
			options.Flags.Direction, options.DropCount = pcapgo.NgEpbFlagDirectionOutbound, &missed
		}
		if err := w.WritePacketWithOptions(info, p, options); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCapture(t *testing.T) {
	f := lab()
	ping := frame(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoReply, 0), Id: 1, Seq: 2})
	f.capture = pcapng(t, ping, ping, ping)
	r := run(t, f, "capture", "lab/r1:ge-0/0/1", "-c", "2")
	want := "12:00:00.000000 in  IP 10.0.0.1 > 10.0.0.2: ICMP echo reply, id 1, seq 2, length 8\n" +
		"12:00:00.001000 out IP 10.0.0.1 > 10.0.0.2: ICMP echo reply, id 1, seq 2, length 8\n"
	if r.code != ExitOK || r.out != want {
		t.Errorf("got %+v", r)
	}
	// One that will wait says why.
	for i := range f.dump.Elements {
		if e := &f.dump.Elements[i]; e.ID.String() == "lab/r1" {
			was := e.Phase
			e.Phase = model.PhaseStopped
			if r := run(t, f, "capture", "lab/r1:h1", "-c", "1"); r.code != ExitOK ||
				!strings.Contains(r.err, "waiting for packets: lab/r1 is stopped; start it with") {
				t.Errorf("got %+v", r)
			}
			e.Phase = was
		}
	}
	// What goes through a pipe is what came, to the last option.
	if r := run(t, f, "capture", "lab/r1:h1", "-w", "-"); r.out != string(f.capture) ||
		!strings.Contains(r.err, "3 packets captured") {
		t.Errorf("%d bytes, want %d; %s", len(r.out), len(f.capture), r.err)
	}
	file := filepath.Join(t.TempDir(), "x.pcapng")
	if r := run(t, f, "capture", "lab/r1:h1", "-w", file, "-c", "1"); r.code != ExitOK || r.out != "" {
		t.Errorf("got %+v", r)
	}
	one := pcapng(t, ping)
	if saved, err := os.ReadFile(file); err != nil || !bytes.Equal(saved, one) {
		t.Errorf("%d bytes saved, want %d; %v", len(saved), len(one), err)
	}
	// A capture that breaks off within a packet says so, and what it has saved ends with a whole one.
	f.capture = f.capture[:len(f.capture)-3]
	for _, args := range [][]string{{"capture", "lab/r1:h1"}, {"capture", "lab/r1:h1", "-w", file}} {
		if r := run(t, f, args...); r.code != ExitFailed || !strings.Contains(r.err, "broke off") {
			t.Errorf("a broken capture: %+v", r)
		}
	}
	two := pcapng(t, ping, ping)
	if saved, err := os.ReadFile(file); err != nil || !bytes.Equal(saved, two) {
		t.Errorf("%d bytes saved, want %d; %v", len(saved), len(two), err)
	}
	for _, junk := range []string{"", "GET / HTTP/1.1", "\x0a\x0d\x0d\x0a\xff\xff\xff\x7f\x4d\x3c\x2b\x1a"} {
		f.capture = []byte(junk)
		for _, args := range [][]string{{"capture", "lab/r1:h1"}, {"capture", "lab/r1:h1", "-w", "-"}} {
			if r := run(t, f, args...); r.code != ExitFailed || r.out != "" || !strings.Contains(r.err, "broke off") {
				t.Errorf("%q: %+v", junk, r)
			}
		}
	}
	if got := (packetCount{2, 5}).String(); got != "2 packets captured, 5 missed" {
		t.Error(got)
	}
}
