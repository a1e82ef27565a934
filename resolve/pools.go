package resolve

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/each"
)

// DefaultPools are the address ranges for links and segments that state no prefix: RFC 1918 and RFC 4193 space. Every
// network may use all of it, since networks are isolated from each other.
func DefaultPools() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/48")}
}

// LoopbackPool4 and LoopbackPool6 contain the loopback addresses and identifiers of routers. Links never use them.
var (
	LoopbackPool4 = netip.MustParsePrefix("10.255.0.0/16")
	LoopbackPool6 = netip.MustParsePrefix("fd00:10:0:ffff::/64")
)

// Subnet sizes that links and segments are given.
const (
	linkBits4    = 30 // .1 and .2, which every router, host and textbook accepts, unlike /31 (RFC 3021)
	segmentBits4 = 24 // or shorter, if the segment has more members
	subnetBits6  = 64 // RFC 7421
)

// span is a range of numbers including both ends. IPv4 addresses are used as they are, IPv6 addresses by their upper 64
// bits.
type span struct{ lo, hi uint64 }

func spanOf(p netip.Prefix) span {
	a := p.Masked().Addr()
	if a.Is4() {
		b := a.As4()
		lo := uint64(binary.BigEndian.Uint32(b[:]))
		return span{lo, lo | (1<<(32-p.Bits()) - 1)}
	}
	b := a.As16()
	lo := binary.BigEndian.Uint64(b[:8])
	if p.Bits() >= 64 {
		return span{lo, lo}
	}
	return span{lo, lo | (1<<(64-p.Bits()) - 1)}
}

// spans is a set of numbers as sorted, disjoint ranges.
type spans []span

func newSpans(s []span) spans {
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	out := s[:0]
	for _, x := range s {
		if n := len(out); n > 0 && x.lo <= out[n-1].hi {
			out[n-1].hi = max(out[n-1].hi, x.hi)
			continue
		}
		out = append(out, x)
	}
	return out
}

// overlap returns the first range that shares a number with x.
func (s spans) overlap(x span) (span, bool) {
	i, _ := slices.BinarySearchFunc(s, x.lo, func(e span, lo uint64) int { return cmp.Compare(e.hi, lo) })
	if i < len(s) && s[i].lo <= x.hi {
		return s[i], true
	}
	return span{}, false
}

// pool gives out subnets of one address family, lowest first.
type pool struct {
	v6      bool
	ranges  []netip.Prefix
	taken   []span // also what was given
	sorted  spans  // what was taken when the walk through the range began
	size    int    // of the walk, in bits
	current int    // range of the walk
	next    uint64 // first number of the range that was not looked at yet
	done    bool   // the range has no more
}

func newPool(v6 bool, ranges []netip.Prefix, taken []span) *pool {
	p := &pool{v6: v6, taken: taken, size: -1}
	p.ranges = append(p.ranges, each.That(ranges, func(r netip.Prefix) bool { return r.Addr().Is6() == v6 })...)
	return p
}

func (p *pool) width() int {
	if p.v6 {
		return 64
	}
	return 32
}

// take returns the lowest free subnet with this many bits.
func (p *pool) take(bits int) (netip.Prefix, error) {
	if bits != p.size {
		p.size, p.current, p.done = bits, -1, true
	}
	step := uint64(1) << (p.width() - bits)
	for {
		if p.done {
			if p.current++; p.current >= len(p.ranges) {
				p.current = len(p.ranges) - 1
				return netip.Prefix{}, fmt.Errorf("the pools %v have no /%d left; give the network more or larger "+
					"pools", p.ranges, bits)
			}
			p.next, p.done = spanOf(p.ranges[p.current]).lo, false
			p.sorted = newSpans(slices.Clone(p.taken))
		}
		limit := spanOf(p.ranges[p.current]).hi
		x := span{p.next, p.next + step - 1}
		if p.next > limit || x.hi > limit || x.hi < x.lo {
			p.done = true
			continue
		}
		if o, ok := p.sorted.overlap(x); ok {
			p.next = o.hi/step*step + step
			p.done = p.next <= o.hi // wrapped round
			continue
		}
		p.next += step
		p.done = p.next < step
		p.taken = append(p.taken, x)
		return p.prefix(x.lo, bits), nil
	}
}

func (p *pool) prefix(lo uint64, bits int) netip.Prefix {
	if p.v6 {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], lo)
		return netip.PrefixFrom(netip.AddrFrom16(b), bits)
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(lo))
	return netip.PrefixFrom(netip.AddrFrom4(b), bits)
}

// nth is the subnet's address with this number, counted from the first.
func nth(subnet netip.Prefix, n uint64) netip.Addr {
	a := subnet.Masked().Addr()
	if a.Is4() {
		b := a.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+n)
	return netip.AddrFrom16(b)
}

// hostNumbers are the first and the last address of the subnet that an interface may have: all except IPv4's network
// and broadcast address and IPv6's anycast address, and both of a /31 (RFC 3021) or /127 (RFC 6164).
func hostNumbers(subnet netip.Prefix) (first, last uint64) {
	bits := subnet.Addr().BitLen() - subnet.Bits()
	switch {
	case bits == 0:
		return 0, 0
	case bits == 1:
		return 0, 1
	case bits >= 63:
		return 1, 1<<63 - 1
	case subnet.Addr().Is4():
		return 1, 1<<bits - 2
	default:
		return 1, 1<<bits - 1
	}
}
