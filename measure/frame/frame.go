// Package frame is the shape of measured frames: their headers, sizes and destinations, and the tag that lets the sink
// tell which frame of which stream it sees, when it was sent, and whether it arrived whole. The eBPF source writes the
// same frames.
package frame

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// TagSize is the bytes that a frame needs behind its headers.
const TagSize = 18

// EthernetSize and UDPSize are the bytes of these headers.
const (
	EthernetSize = 14
	UDPSize      = 8
)

// FCS is the frame check sequence that Ethernet adds: sizes include it, as RFC 2544's do, buffers do not.
const FCS = 4

// The smallest and the largest frame, with the check sequence.
const (
	MinSize = 64
	MaxSize = 1518
)

// DestinationPort is the UDP port that measured frames go to. 9 (discard) lets a host that gets one drop it.
const DestinationPort = 9

// Flows are what the frames of a stream are sent in: destinations in a row times UDP source ports. Within each of them
// frames are expected in the order in which they were sent. Without destinations all frames are one flow.
type Flows struct {
	First        uint32 // the last 32 bits of the first destination
	Destinations int
	Port         uint16 // the first
	Ports        int
}

// Count is how many flows are told apart; 0 if all frames are one.
func (f Flows) Count() int { return f.Destinations * f.Ports }

// Kind is what a frame looks like between its Ethernet header and its tag.
type Kind uint32

// The kinds; the numbers are those of tag.h.
const (
	IPv4 Kind = iota // UDP over IPv4
	IPv6             // UDP over IPv6
	Raw              // nothing: the tag follows an EtherType of the user's choice
)

// String is the name that files and the command line use.
func (k Kind) String() string {
	switch k {
	case IPv4:
		return "ipv4"
	case IPv6:
		return "ipv6"
	case Raw:
		return "raw"
	}
	return fmt.Sprintf("Kind(%d)", uint32(k))
}

// HeaderSize is the bytes before the tag.
func (k Kind) HeaderSize() int {
	switch k {
	case IPv4:
		return 14 + 20 + 8
	case IPv6:
		return 14 + 40 + 8
	}
	return 14
}

// MinSize is the smallest frame that holds headers and tag: 64 bytes, but 84 for IPv6 (RFC 5180, section 5.1.1,
// foresees that a tester's own bytes raise the smallest size).
func (k Kind) MinSize() int { return max(MinSize, k.HeaderSize()+TagSize+FCS) }

// Headers are the fields that all frames of a stream share.
type Headers struct {
	Kind      Kind
	SourceMAC net.HardwareAddr
	DestMAC   net.HardwareAddr
	EtherType uint16     // of Raw frames; 0 means 0x88b5, IEEE's for local experiments
	Source    netip.Addr // of IP frames
	TTL       uint8      // 0 means 64
	Class     uint8      // DSCP and ECN bits
}

// Validate names what is wrong.
func (h Headers) Validate() error {
	if len(h.SourceMAC) != 6 || len(h.DestMAC) != 6 {
		return fmt.Errorf("frame headers: MAC addresses %q and %q; both are needed, with 6 bytes",
			h.SourceMAC, h.DestMAC)
	}
	switch h.Kind {
	case IPv4:
		if !h.Source.Is4() {
			return fmt.Errorf("frame headers: source %v of an IPv4 stream", h.Source)
		}
	case IPv6:
		if !h.Source.Is6() || h.Source.Is4In6() {
			return fmt.Errorf("frame headers: source %v of an IPv6 stream", h.Source)
		}
	case Raw:
		if h.EtherType != 0 && h.EtherType < 0x600 {
			return fmt.Errorf("frame headers: EtherType %#x is a length; EtherTypes start at 0x600", h.EtherType)
		}
	default:
		return fmt.Errorf("frame headers: unknown %v", h.Kind)
	}
	return nil
}

// Template is the header bytes with everything that differs from frame to frame left zero: lengths, destination, source
// port, checksums.
func (h Headers) Template() []byte {
	b := make([]byte, h.Kind.HeaderSize())
	copy(b[0:], h.DestMAC)
	copy(b[6:], h.SourceMAC)
	ttl := cmp.Or(h.TTL, 64)
	switch h.Kind {
	case IPv4:
		binary.BigEndian.PutUint16(b[12:], 0x0800)
		ip := b[14:]
		ip[0], ip[1], ip[6], ip[8], ip[9] = 0x45, h.Class, 0x40, ttl, 17
		copy(ip[12:16], h.Source.AsSlice())
		binary.BigEndian.PutUint16(ip[22:], DestinationPort)
	case IPv6:
		binary.BigEndian.PutUint16(b[12:], 0x86dd)
		ip := b[14:]
		ip[0], ip[1], ip[6], ip[7] = 0x60|h.Class>>4, h.Class<<4, 17, ttl
		copy(ip[8:24], h.Source.AsSlice())
		binary.BigEndian.PutUint16(ip[42:], DestinationPort)
	default:
		t := cmp.Or(h.EtherType, 0x88b5)
		binary.BigEndian.PutUint16(b[12:], t)
	}
	return b
}

// Tag is what a frame says about itself.
type Tag struct {
	Run    uint16 // tells one measurement's frames from strays of another
	Stream uint16
	Seq    uint32
	Time   uint64 // CLOCK_MONOTONIC, ns
}

// Filler is what follows the tag; not zero, so that bytes that were never written show.
var Filler = func() [MaxSize]byte {
	var f [MaxSize]byte
	x := uint32(0x706f6c79)
	for i := range f {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		f[i] = byte(x)
	}
	return f
}()

// Build writes one frame. The size counts the check sequence, which is not written: the slice is 4 bytes shorter.
func Build(template []byte, kind Kind, t Tag, dst netip.Addr, sport uint16, size int) []byte {
	b := make([]byte, size-FCS)
	copy(b, template)
	p := b[kind.HeaderSize():]
	binary.BigEndian.PutUint16(p[0:], t.Run)
	binary.BigEndian.PutUint16(p[2:], t.Stream)
	binary.BigEndian.PutUint32(p[4:], t.Seq)
	binary.BigEndian.PutUint64(p[8:], t.Time)
	copy(p[TagSize:], Filler[:])
	binary.BigEndian.PutUint16(p[16:], ^Sum(p))
	udp := func(u []byte, addresses []byte) {
		binary.BigEndian.PutUint16(u[0:], sport)
		binary.BigEndian.PutUint16(u[4:], uint16(len(u)))
		pseudo := append(append([]byte{}, addresses...), 0, 17, u[4], u[5])
		c := ^Sum(append(pseudo, u...))
		if c == 0 {
			c = 0xffff // 0 means "none" in UDP
		}
		binary.BigEndian.PutUint16(u[6:], c)
	}
	switch kind {
	case IPv4:
		ip := b[14:]
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		copy(ip[16:20], dst.AsSlice())
		binary.BigEndian.PutUint16(ip[10:], ^Sum(ip[:20]))
		udp(ip[20:], ip[12:20])
	case IPv6:
		ip := b[14:]
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
		copy(ip[24:40], dst.AsSlice())
		udp(ip[40:], ip[8:40])
	}
	return b
}

// ErrNotMeasured says that a frame carries no tag.
var ErrNotMeasured = errors.New("not a measured frame")

// Parse reads the tag of a frame and tells whether its payload is whole.
func Parse(b []byte) (t Tag, whole bool, err error) {
	if len(b) < 14+TagSize {
		return t, false, ErrNotMeasured
	}
	p := b[14:]
	switch binary.BigEndian.Uint16(b[12:]) {
	case 0x0800:
		if len(p) < 28+TagSize || p[0] != 0x45 || p[9] != 17 || binary.BigEndian.Uint16(p[22:]) != DestinationPort {
			return t, false, ErrNotMeasured
		}
		p = p[28:]
	case 0x86dd:
		if len(p) < 48+TagSize || p[6] != 17 || binary.BigEndian.Uint16(p[42:]) != DestinationPort {
			return t, false, ErrNotMeasured
		}
		p = p[48:]
	}
	t = Tag{binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:]), binary.BigEndian.Uint32(p[4:]),
		binary.BigEndian.Uint64(p[8:])}
	return t, Sum(p) == 0xffff, nil
}

// Sum is the 16-bit ones' complement sum of RFC 1071; an odd last byte counts as the high half of a word.
func Sum(b []byte) uint16 {
	s := uint64(0)
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(b[0])<<8 | uint64(b[1])
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// FillerSums are the sums of the filler's first n bytes, as this machine loads them.
func FillerSums() (sums [2048]uint16) {
	s := uint32(0)
	for n := range sums {
		sums[n] = uint16(s)
		if n >= len(Filler) {
			continue
		}
		v := uint32(Filler[n])
		if n%2 == 1 {
			v <<= 8
		}
		s += v
		s = s&0xffff + s>>16
	}
	return sums
}
