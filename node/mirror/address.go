package mirror

import (
	"encoding/binary"
	"net/netip"
)

// address is an address as a number; an IPv4 address is in the highest 32 bits.
type address struct{ hi, lo uint64 }

// key names a prefix of a family.
type key struct {
	address
	length uint8
}

func (f Family) bits() int { return [...]int{32, 128}[f&1] }

// addressOf reads 4 or 16 bytes.
func addressOf(f Family, b []byte) (a address, ok bool) {
	switch {
	case f == IPv4 && len(b) == 4:
		return address{hi: uint64(binary.BigEndian.Uint32(b)) << 32}, true
	case f == IPv6 && len(b) == 16:
		return address{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, true
	}
	return address{}, false
}

func addressFrom(a netip.Addr) (Family, address) {
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		n, _ := addressOf(IPv4, b[:])
		return IPv4, n
	}
	b := a.As16()
	n, _ := addressOf(IPv6, b[:])
	return IPv6, n
}

func (f Family) netip(a address) netip.Addr {
	if f == IPv4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(a.hi>>32))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], a.hi)
	binary.BigEndian.PutUint64(b[8:], a.lo)
	return netip.AddrFrom16(b)
}

func (f Family) prefix(k key) netip.Prefix {
	return netip.PrefixFrom(f.netip(k.address), int(k.length))
}

// first keeps the first bits and clears the rest.
func (a address) first(bits int) address {
	switch {
	case bits <= 0:
		return address{}
	case bits <= 64:
		return address{hi: a.hi &^ (1<<(64-bits) - 1)}
	case bits < 128:
		return address{a.hi, a.lo &^ (1<<(128-bits) - 1)}
	}
	return a
}

func (a address) less(b address) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// last is the highest address within the prefix.
func (k key) last() address {
	switch {
	case k.length == 0:
		return address{^uint64(0), ^uint64(0)}
	case k.length <= 64:
		return address{k.hi | (1<<(64-k.length) - 1), ^uint64(0)}
	case k.length < 128:
		return address{k.hi, k.lo | (1<<(128-k.length) - 1)}
	}
	return k.address
}

// inside tells whether k lies within outer, or is it.
func (k key) inside(outer key) bool {
	return k.length >= outer.length && k.first(int(outer.length)) == outer.address
}

func mustKey(s string) (Family, key) {
	p := netip.MustParsePrefix(s)
	f, a := addressFrom(p.Addr())
	return f, key{a, uint8(p.Bits())}
}
