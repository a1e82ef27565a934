package fib_test

import (
	"net/netip"
	"testing"

	"github.com/polyplane/polyplane/node/fib"
)

// FuzzOperations takes bytes as operations on a table and compares with the oracle after each. A first byte's lowest
// bits choose the family and the starting shape; then each operation is a byte that says what to do, a length, and
// address bytes.
func FuzzOperations(f *testing.F) {
	f.Add([]byte{0, 1, 8, 10, 2, 16, 10, 1, 0x40, 8, 10})
	f.Add([]byte{2, 1, 24, 10, 2, 3, 2, 32, 10, 2, 3, 4, 0x43, 24, 10, 2, 3, 0x80, 0xc0})
	f.Add([]byte{1, 1, 64, 0x20, 1, 2, 128, 0x20, 1, 0x40, 64, 0x20, 1, 0xa0})
	f.Add([]byte{3, 1, 0, 2, 33, 0x20, 3, 37, 0x20, 0x60, 37, 0x20, 0x80, 0xc0, 0xa0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 400 {
			return
		}
		family := fib.Family(data[0] & 1)
		l := newLab(family, fib.Quota{Routes: 1500}, t.Fatalf)
		if data[0]&2 != 0 {
			l.apply(filler(family, 600, l.hops[0]))
		}
		take := func() (b byte) {
			if len(data) > 0 {
				b, data = data[0], data[1:]
			}
			return b
		}
		for take(); len(data) > 0; {
			op := take()
			switch op >> 5 {
			case 4: // a table made at once
				l.sameAsNew()
			case 5:
				l.pool.Release(l.pool.Mark())
			case 6:
				l.must(l.table.Punt())
				if hop, _ := l.table.Lookup(netip.IPv4Unspecified()); family == fib.IPv4 && hop != fib.PuntID {
					t.Fatalf("a punting table answers %d", hop)
				}
				l.must(l.table.Resume())
			default:
				bits := int(take()) % (33 + 96*int(family))
				b := make([]byte, 4+12*int(family))
				for i := range (bits + 7) / 8 {
					b[i] = take()
				}
				a, _ := netip.AddrFromSlice(b)
				c := fib.Change{Prefix: netip.PrefixFrom(a, bits).Masked()}
				if op>>5 < 2 {
					c.NextHop = l.hops[int(op&31)%len(l.hops)]
				}
				l.apply([]fib.Change{c})
				l.check(c.Prefix)
			}
		}
		l.checkAll()
		l.empty()
	})
}
