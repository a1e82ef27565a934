package watch

import (
	"encoding/binary"
	"net/netip"
)

// What a frame is, as far as its first bytes tell. An enemy may have written all of it. So nothing is read beyond the
// data there is, and a source address does not say who sent the frame: the port says that.

type flags uint8

const (
	group    flags = 1 << iota // to everybody or a group
	broken                     // its headers are wrong
	asks                       // asks for a neighbour
	answers                    // answers such a question
	begins                     // begins a TCP connection
	accepts                    // accepts one
	refuses                    // refuses one, or tells that something cannot be reached
	datagram                   // is one of UDP
)

type mac [6]byte

// packet is a frame that was looked into.
type packet struct {
	flags
	from, to mac
	tags     uint64 // the VLANs that it is tagged with
	ttl      uint8
	// sender and receiver are the addresses of an IP packet.
	sender, receiver netip.Addr
	// content is a digest of what is left alone by who passes a packet on, or translates its addresses and ports.
	content uint64
	// source and target are the ports of a datagram.
	source, target uint16
	// peer is whom the packet is about: the service that it is for or, with the flags accepts and refuses, that it
	// comes from; or the neighbour that is asked for, or that answers.
	peer netip.AddrPort
}

// is returns whether the packet has one of the flags.
func (f flags) is(other flags) bool { return f&other != 0 }

// parse looks into a frame of length bytes, of which data are the first. That the sample has cut the frame does not
// make it malformed.
func parse(data []byte, length int) (p packet) {
	if len(data) < 14 {
		if length < 14 {
			p.flags = broken
		}
		return p
	}
	copy(p.to[:], data)
	copy(p.from[:], data[6:12])
	if data[0]&1 != 0 {
		p.flags |= group
	}
	if p.from[0]&1 != 0 { // nobody is a group
		p.flags |= broken
	}
	kind, rest := binary.BigEndian.Uint16(data[12:]), data[14:]
	length -= 14
	for tags := 0; kind == 0x8100 || kind == 0x88a8; tags++ {
		if tags == 2 || length < 4 { // provider bridges have two tags
			p.flags |= broken
			return p
		}
		if len(rest) < 4 {
			return p
		}
		p.tags = p.tags<<16 | 1<<12 | uint64(binary.BigEndian.Uint16(rest)&0xfff)
		kind, rest, length = binary.BigEndian.Uint16(rest[2:]), rest[4:], length-4
	}
	p.content = digest(uint64(kind), rest)
	switch {
	case kind == 0x0800:
		p.ip4(rest, length)
	case kind == 0x86dd:
		p.ip6(rest, length)
	case kind == 0x0806:
		p.arp(rest, length)
	case kind < 1536 && int(kind) > length: // IEEE 802.3: a length, and it is longer than the frame
		p.flags |= broken
	}
	return p
}

func (p *packet) arp(b []byte, length int) {
	switch {
	case length < 28:
		p.flags |= broken
	case len(b) < 28:
	case binary.BigEndian.Uint16(b[2:]) != 0x0800 || b[4] != 6 || b[5] != 4:
		p.flags |= broken
	default:
		sender, target := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
		switch binary.BigEndian.Uint16(b[6:]) {
		case 1:
			if sender != target { // who announces itself asks for nobody
				p.flags |= asks
				p.peer = netip.AddrPortFrom(target, 0)
			}
		case 2:
			p.flags |= answers
			p.peer = netip.AddrPortFrom(sender, 0)
		default:
			p.flags |= broken
		}
	}
}

func (p *packet) ip4(b []byte, length int) {
	if len(b) < 20 {
		if length < 20 {
			p.flags |= broken
		}
		return
	}
	head, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if b[0]>>4 != 4 || head < 20 || total < head || total > length {
		p.flags |= broken
		return
	}
	from, to := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	p.sender, p.receiver = from, to
	number := uint64(binary.BigEndian.Uint16(b[4:]))
	p.ttl, p.content = b[8], digest(number, b[min(head, len(b)):])
	if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 || len(b) < head { // a later fragment
		return
	}
	p.upper(b[9], b[head:], total-head, from, to, number)
}

func (p *packet) ip6(b []byte, length int) {
	if len(b) < 40 {
		if length < 40 {
			p.flags |= broken
		}
		return
	}
	payload := int(binary.BigEndian.Uint16(b[4:]))
	if b[0]>>4 != 6 || payload > length-40 {
		p.flags |= broken
		return
	}
	from, to := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	p.sender, p.receiver = from, to
	p.ttl, p.content = b[7], digest(0, b[40:])
	// Extension headers are not followed. What is behind them is not seen here.
	p.upper(b[6], b[40:], payload, from, to, 0)
}

const (
	protoICMP  = 1
	protoTCP   = 6
	protoUDP   = 17
	protoICMP6 = 58
)

// digest is of the number of an IP packet, or something else of it that stays, and of its first bytes.
func digest(number uint64, b []byte) uint64 {
	const prime = 1099511628211 // FNV-1a
	h := 14695981039346656037 ^ number
	for _, c := range b[:min(len(b), 64)] {
		h = (h ^ uint64(c)) * prime
	}
	return h
}

// upper looks into the payload of the IP packet, which has length bytes.
func (p *packet) upper(proto byte, b []byte, length int, from, to netip.Addr, number uint64) {
	switch proto {
	case protoTCP:
		if length < 20 {
			p.flags |= broken
			return
		}
		if len(b) < 20 {
			return
		}
		p.content = digest(number, b[4:12]) // the sequence numbers: options are changed where links are narrow
		const fin, syn, rst, ack = 1, 2, 4, 16
		source, target := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		switch f := b[13] & (fin | syn | rst | ack); {
		case f&(syn|fin) == syn|fin:
			p.flags |= broken
		case f&(syn|ack) == syn|ack:
			p.flags |= accepts
			p.peer = netip.AddrPortFrom(from, source)
		case f&syn != 0, f&(fin|ack|rst) == fin, f == 0: // the last two: scans that do not begin a connection
			p.flags |= begins
			p.peer = netip.AddrPortFrom(to, target)
		case f&rst != 0:
			p.flags |= refuses
			p.peer = netip.AddrPortFrom(from, source)
		}
	case protoUDP:
		if length < 8 {
			p.flags |= broken
		} else if len(b) >= 8 {
			p.flags |= datagram
			p.source, p.target = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
			p.peer = netip.AddrPortFrom(to, p.target)
			p.content = digest(number, b[8:])
		}
	case protoICMP:
		if len(b) >= 1 && b[0] == 3 {
			p.unreachable(b, 4)
		}
	case protoICMP6:
		switch {
		case len(b) >= 1 && b[0] == 1:
			p.unreachable(b, 6)
		case len(b) >= 24 && b[0] == 135:
			p.flags |= asks
			p.peer = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), 0)
			if from.IsUnspecified() { // who looks whether an address is free
				p.flags &^= asks
			}
		case len(b) >= 24 && b[0] == 136:
			p.flags |= answers
			p.peer = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), 0)
		}
	}
}

// unreachable reads from an ICMP error which packet did not arrive.
func (p *packet) unreachable(b []byte, version int) {
	b = b[min(8, len(b)):]
	head, proto, to := 0, byte(0), netip.Addr{}
	switch {
	case version == 4 && len(b) >= 20 && b[0]>>4 == 4:
		head, proto, to = int(b[0]&15)*4, b[9], netip.AddrFrom4([4]byte(b[16:20]))
	case version == 6 && len(b) >= 40 && b[0]>>4 == 6:
		head, proto, to = 40, b[6], netip.AddrFrom16([16]byte(b[24:40]))
	default:
		return
	}
	if (proto == protoTCP || proto == protoUDP) && len(b) >= head+4 {
		p.flags |= refuses
		p.peer = netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[head+2:]))
	}
}
