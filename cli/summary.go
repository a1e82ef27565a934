package cli

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/polyplane/polyplane/each"
)

// summarize describes one packet in a line, outermost header first, in the manner of tcpdump. length is the packet's
// own, in bytes, of which data may be only the beginning.
func summarize(data []byte, link layers.LinkType, length int) string {
	packet := gopacket.NewPacket(data, link, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	s := summary{length: length}
	for _, layer := range packet.Layers() {
		s.layer(layer)
		if s.done {
			break
		}
	}
	if !s.done {
		if failure := packet.ErrorLayer(); failure != nil {
			s.say("[cut or malformed: %s]", failure.Error())
		}
		s.say("length %d", length)
	}
	return strings.Join(s.words, " ")
}

type summary struct {
	words    []string
	src, dst string
	length   int
	done     bool
}

func (s *summary) say(format string, args ...any) {
	s.words = append(s.words, fmt.Sprintf(format, args...))
}

func (s *summary) end(format string, args ...any) {
	s.say(format, args...)
	s.done = true
}

func (s *summary) layer(layer gopacket.Layer) {
	switch l := layer.(type) {
	case *layers.Ethernet:
		s.ethernet(l)
	case *layers.Dot1Q:
		s.say("vlan %d,", l.VLANIdentifier)
	case *layers.ARP:
		s.arp(l)
	case *layers.IPv4:
		s.src, s.dst = l.SrcIP.String(), l.DstIP.String()
		s.say("IP")
		if l.FragOffset != 0 {
			s.end("%s > %s: %s fragment at %d, length %d", s.src, s.dst, l.Protocol,
				int(l.FragOffset)*8, len(l.Payload))
			return
		}
		s.network(l.NextLayerType(), uint8(l.Protocol), l.Payload)
	case *layers.IPv6:
		s.src, s.dst = l.SrcIP.String(), l.DstIP.String()
		s.say("IP6")
		s.network(l.NextLayerType(), uint8(l.NextHeader), l.Payload)
	case *layers.ICMPv4:
		s.icmp4(l)
	case *layers.ICMPv6:
		s.icmp6(l)
	case *layers.UDP:
		s.udp(l)
	case *layers.TCP:
		s.tcp(l)
	}
}

func (s *summary) ethernet(l *layers.Ethernet) {
	switch {
	case l.EthernetType == layers.EthernetTypeLLC && len(l.Payload) > 3 && l.Payload[0] == 0xfe && l.Payload[3] == 0x83:
		// ISO 10589 over LLC: the network layer protocol identifier 0x83 is IS-IS.
		kind := "PDU"
		if len(l.Payload) > 7 {
			kind = isisPDU(l.Payload[7] & 0x1f)
		}
		s.end("IS-IS %s > %s: %s, length %d", l.SrcMAC, l.DstMAC, kind, len(l.Payload))
	case l.EthernetType == layers.EthernetTypeLLC:
		s.end("%s > %s: LLC, length %d", l.SrcMAC, l.DstMAC, s.length)
	case l.EthernetType == layers.EthernetTypeLinkLayerDiscovery:
		s.end("%s > %s: LLDP, length %d", l.SrcMAC, l.DstMAC, s.length)
	case l.NextLayerType() == gopacket.LayerTypePayload || l.NextLayerType() == gopacket.LayerTypeZero ||
		strings.HasPrefix(l.EthernetType.String(), "Unknown"):
		s.end("%s > %s: EtherType 0x%04x, length %d", l.SrcMAC, l.DstMAC, uint16(l.EthernetType), s.length)
	}
}

// isisPDU names the PDU types of ISO 10589.
func isisPDU(t byte) string {
	switch t {
	case 15:
		return "L1 LAN hello"
	case 16:
		return "L2 LAN hello"
	case 17:
		return "point-to-point hello"
	case 18:
		return "L1 LSP"
	case 20:
		return "L2 LSP"
	case 24:
		return "L1 CSNP"
	case 25:
		return "L2 CSNP"
	case 26:
		return "L1 PSNP"
	case 27:
		return "L2 PSNP"
	}
	return fmt.Sprintf("PDU type %d", t)
}

func (s *summary) arp(l *layers.ARP) {
	if l.Protocol != layers.EthernetTypeIPv4 || len(l.DstProtAddress) != 4 || len(l.SourceProtAddress) != 4 {
		s.end("ARP, length %d", s.length)
		return
	}
	target, source := dotted(l.DstProtAddress), dotted(l.SourceProtAddress)
	switch l.Operation {
	case layers.ARPRequest:
		s.end("ARP who has %s? tell %s", target, source)
	case layers.ARPReply:
		s.end("ARP %s is at %s", source, colons(l.SourceHwAddress))
	default:
		s.end("ARP operation %d, %s to %s", l.Operation, source, target)
	}
}

func dotted(b []byte) string { return fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3]) }

func colons(b []byte) string {
	return strings.Join(each.Of(b, func(v byte) string { return fmt.Sprintf("%02x", v) }), ":")
}

// IP protocol numbers (IANA) that no decoded layer speaks for.
const (
	protocolOSPF = 89
	protocolPIM  = 103
	protocolVRRP = 112
)

// network describes packets whose protocol sits directly on IP and is decoded here.
func (s *summary) network(next gopacket.LayerType, protocol uint8, payload []byte) {
	switch {
	case protocol == protocolOSPF:
		version, kind := byte(2), "packet"
		if len(payload) > 1 {
			version, kind = payload[0], ospfType(payload[1])
		}
		s.end("%s > %s: OSPFv%d %s, length %d", s.src, s.dst, version, kind, len(payload))
	case protocol == protocolPIM:
		s.end("%s > %s: PIM, length %d", s.src, s.dst, len(payload))
	case protocol == protocolVRRP:
		s.end("%s > %s: VRRP, length %d", s.src, s.dst, len(payload))
	case next == gopacket.LayerTypePayload || next == gopacket.LayerTypeZero:
		s.end("%s > %s: %s, length %d", s.src, s.dst, layers.IPProtocol(protocol), len(payload))
	}
}

// ospfType names the packet types of RFC 2328 and RFC 5340.
func ospfType(t byte) string {
	switch t {
	case 1:
		return "hello"
	case 2:
		return "database description"
	case 3:
		return "link state request"
	case 4:
		return "link state update"
	case 5:
		return "link state acknowledgement"
	}
	return fmt.Sprintf("type %d", t)
}

func (s *summary) icmp4(l *layers.ICMPv4) {
	kind := l.TypeCode.Type()
	switch kind {
	case layers.ICMPv4TypeEchoRequest, layers.ICMPv4TypeEchoReply:
		word := "request"
		if kind == layers.ICMPv4TypeEchoReply {
			word = "reply"
		}
		s.end("%s > %s: ICMP echo %s, id %d, seq %d, length %d", s.src, s.dst, word, l.Id, l.Seq,
			len(l.Contents)+len(l.Payload))
	default:
		s.end("%s > %s: ICMP %s, length %d", s.src, s.dst, l.TypeCode, len(l.Contents)+len(l.Payload))
	}
}

func (s *summary) icmp6(l *layers.ICMPv6) {
	body := l.Payload
	switch kind := l.TypeCode.Type(); kind {
	case layers.ICMPv6TypeEchoRequest, layers.ICMPv6TypeEchoReply:
		word := "request"
		if kind == layers.ICMPv6TypeEchoReply {
			word = "reply"
		}
		id, seq := uint16(0), uint16(0)
		if len(body) >= 4 {
			id, seq = binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:])
		}
		s.end("%s > %s: ICMP6 echo %s, id %d, seq %d, length %d", s.src, s.dst, word, id, seq, len(body)+4)
	case layers.ICMPv6TypeNeighborSolicitation, layers.ICMPv6TypeNeighborAdvertisement:
		target := ""
		if len(body) >= 20 { // four reserved bytes or flags, then the target (RFC 4861, 4.3 and 4.4)
			target = ip6(body[4:20])
		}
		if kind == layers.ICMPv6TypeNeighborSolicitation {
			s.end("%s > %s: ICMP6 who has %s?", s.src, s.dst, target)
		} else {
			s.end("%s > %s: ICMP6 %s is here", s.src, s.dst, target)
		}
	default:
		s.end("%s > %s: ICMP6 %s, length %d", s.src, s.dst, l.TypeCode, len(body)+4)
	}
}

func (s *summary) udp(l *layers.UDP) {
	what := "UDP"
	switch {
	case l.DstPort == 520 || l.DstPort == 521:
		what = "RIP"
	case l.DstPort == 3784 || l.DstPort == 4784:
		what = "BFD"
	case l.DstPort == 4789:
		what = "VXLAN"
	case l.SrcPort == 53 || l.DstPort == 53:
		what = "DNS"
	}
	s.end("%s > %s: %s, length %d", hostPort(s.src, uint16(l.SrcPort)), hostPort(s.dst, uint16(l.DstPort)), what,
		max(0, int(l.Length)-8))
}

func (s *summary) tcp(l *layers.TCP) {
	flags := ""
	for _, f := range []struct {
		set  bool
		name string
	}{{l.SYN, "S"}, {l.FIN, "F"}, {l.RST, "R"}, {l.PSH, "P"}, {l.URG, "U"}, {l.ECE, "E"}, {l.CWR, "W"}, {l.ACK, "."}} {
		if f.set {
			flags += f.name
		}
	}
	flags = cmp.Or(flags, "none")
	s.say("%s > %s: flags [%s], seq %d", hostPort(s.src, uint16(l.SrcPort)),
		hostPort(s.dst, uint16(l.DstPort)), flags, l.Seq)
	if l.ACK {
		s.words[len(s.words)-1] += fmt.Sprintf(", ack %d", l.Ack)
	}
	s.words[len(s.words)-1] += fmt.Sprintf(", win %d, length %d", l.Window, len(l.Payload))
	if l.SrcPort == 179 || l.DstPort == 179 {
		if kind := bgpType(l.Payload); kind != "" {
			s.say("BGP %s", kind)
		}
	}
	s.done = true
}

// bgpType names the first message of a BGP segment: 16 bytes of ones, two of length, one of type (RFC 4271, 4.1).
func bgpType(b []byte) string {
	if len(b) < 19 {
		return ""
	}
	for _, v := range b[:16] {
		if v != 0xff {
			return ""
		}
	}
	switch b[18] {
	case 1:
		return "open"
	case 2:
		return "update"
	case 3:
		return "notification"
	case 4:
		return "keepalive"
	case 5:
		return "route refresh"
	}
	return ""
}

func hostPort(host string, port uint16) string {
	if strings.Contains(host, ":") {
		return fmt.Sprintf("[%s]:%d", host, port)
	}
	return fmt.Sprintf("%s:%d", host, port)
}

func ip6(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}
