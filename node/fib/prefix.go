package fib

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Family is a table's address family.
type Family uint8

// The families.
const (
	IPv4 Family = iota
	IPv6
)

func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// bits is the length of the family's addresses.
func (f Family) bits() int {
	if f == IPv4 {
		return 32
	}
	return 128
}

// address is the bits of an IP address, from the most significant bit of hi on. An IPv4 address fills hi's upper half.
// The other bits are 0, or 1 in the last address of a range.
type address struct{ hi, lo uint64 }

// address turns a into bits; ok is false if it is of another family. IPv4-mapped IPv6 addresses are IPv6.
func (f Family) address(a netip.Addr) (bits address, ok bool) {
	if f == IPv4 {
		if !a.Is4() {
			return address{}, false
		}
		b := a.As4()
		return address{hi: uint64(binary.BigEndian.Uint32(b[:])) << 32}, true
	}
	if !a.Is6() {
		return address{}, false
	}
	b := a.As16()
	return address{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, true
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

// prefix gives p's bits with everything behind its length cleared.
func (f Family) prefix(p netip.Prefix) (address, int, error) {
	a, ok := f.address(p.Addr())
	if !ok || !p.IsValid() {
		return address{}, 0, fmt.Errorf("%s is no %s prefix", p, f)
	}
	return a.first(p.Bits()), p.Bits(), nil
}

// hostBits returns an address with 0 in the first length bits, and 1 in the others.
func hostBits(length int) address {
	if length < 64 {
		return address{1<<(64-length) - 1, ^uint64(0)} // a shift by 64 gives 0, less one all ones
	}
	if length == 64 {
		return address{0, ^uint64(0)}
	}
	return address{0, 1<<(128-length) - 1}
}

func (a address) first(length int) address {
	h := hostBits(length)
	return address{a.hi &^ h.hi, a.lo &^ h.lo}
}

func (a address) last(length int) address {
	h := hostBits(length)
	return address{a.hi | h.hi, a.lo | h.lo}
}

// next returns the address after a; ok is false if a is the last one.
func (a address) next() (n address, ok bool) {
	if a.lo++; a.lo == 0 {
		a.hi++
	}
	return a, a != address{}
}

func (a address) less(b address) bool {
	return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo
}

// slot is a's number within a node for the bits from depth on. No node's bits lie on both sides of bit 64.
func (a address) slot(depth, bits int) int {
	if depth < 64 {
		return int(a.hi >> (64 - depth - bits) & (1<<bits - 1))
	}
	return int(a.lo >> (128 - depth - bits) & (1<<bits - 1))
}
