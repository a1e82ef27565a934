package fib_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/gaissmai/bart"
	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/node/fib"
)

// lab is a table beside the oracle.
type lab struct {
	pool   *fib.Pool
	slice  *fib.Slice
	table  *fib.Table
	oracle *bart.Table[fib.ID]
	family fib.Family
	hops   []fib.ID
	mem    *recorder
	groups int // bytes of the slice's groups
	fatal  func(format string, args ...any)
}

func newLab(f fib.Family, quota fib.Quota, fatal func(string, ...any)) *lab {
	l := &lab{family: f, oracle: new(bart.Table[fib.ID]), fatal: fatal}
	var err error
	l.mem = &recorder{Heap: fib.NewHeap(4, 64, 400)}
	l.pool, err = fib.New(l.mem)
	l.must(err)
	l.slice = l.pool.NewSlice("lab", quota)
	for i := range 5 {
		id, err := l.slice.AddNextHop(fib.NextHop{Kind: fib.KindForward, Port: uint32(i)})
		l.must(err)
		l.hops = append(l.hops, id)
	}
	l.hops = append(l.hops, fib.BlackholeID, fib.LocalID)
	l.table = l.slice.NewTable(f)
	l.must(l.table.Publish(2))
	return l
}

func (l *lab) must(err error) {
	if err != nil {
		l.fatal("%v", err)
	}
}

// tell the oracle.
func (l *lab) tell(changes []fib.Change) {
	for _, c := range changes {
		if c.NextHop == 0 {
			l.oracle.Delete(c.Prefix)
		} else {
			l.oracle.Insert(c.Prefix, c.NextHop)
		}
	}
}

func (l *lab) apply(changes []fib.Change) {
	done, err := l.table.Apply(changes)
	l.must(err)
	if done != len(changes) {
		l.fatal("%d of %d changes made", done, len(changes))
	}
	l.tell(changes)
}

// probes are the addresses where a prefix's answer could go wrong: its first and last, and those beside them.
func probes(p netip.Prefix) []netip.Addr {
	first, last := p.Masked().Addr(), lastOf(p)
	list := []netip.Addr{first, last}
	for _, a := range []netip.Addr{first.Prev(), first.Next(), last.Prev(), last.Next()} {
		if a.IsValid() {
			list = append(list, a)
		}
	}
	return list
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// check compares the answers around a prefix with the oracle's.
func (l *lab) check(p netip.Prefix) {
	for _, a := range probes(p) {
		l.checkAddr(a)
	}
}

func (l *lab) checkAddr(a netip.Addr) {
	hop, length, err := l.pool.Lookup(2, l.family, a)
	l.must(err)
	want, hopWant, _ := l.oracle.LookupPrefixLPM(netip.PrefixFrom(a, a.BitLen()))
	if !want.IsValid() {
		want = netip.PrefixFrom(a, 0)
	}
	if hop != hopWant || length != want.Bits() {
		l.fatal("%s in a table of shape %s: next hop %d by a prefix of length %d, should be %d by %s",
			a, l.table.Usage().Shape, hop, length, hopWant, want)
	}
	if hopRaw, lengthRaw := l.mem.lookup(2, a); hopRaw != hop || lengthRaw != length {
		l.fatal("%s: the words say next hop %d, length %d, the reader %d, %d", a, hopRaw, lengthRaw, hop, length)
	}
}

// checkAll compares around every prefix there is, and the table's own list.
func (l *lab) checkAll() {
	for p := range l.oracle.All() {
		l.check(p)
	}
	n := 0
	for p, id := range l.table.Routes() {
		n++
		if want, _ := l.oracle.Get(p); want != id {
			l.fatal("route %s has next hop %d in the list, should be %d", p, id, want)
		}
	}
	if n != l.oracle.Size() || n != l.table.Usage().Routes || n != l.slice.Usage().Routes {
		l.fatal("%d routes listed, %d and %d counted, should be %d", n, l.table.Usage().Routes, l.slice.Usage().Routes,
			l.oracle.Size())
	}
	if got, want := l.slice.Usage().Bytes, l.table.Usage().Bytes+l.groups; got != want {
		l.fatal("the slice has %d bytes, its only table and its groups %d", got, want)
	}
}

// filler makes a table of the other shape: n routes without a range in common.
func filler(f fib.Family, n int, hop fib.ID) (list []fib.Change) {
	for i := range n {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{203, byte(i >> 7), byte(i << 1), 0}), 24)
		if f == fib.IPv6 {
			p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, byte(i >> 8), byte(i), byte(i), byte(i)}), 56-i%24)
		}
		list = append(list, fib.Change{Prefix: p.Masked(), NextHop: hop})
	}
	return list
}

// aPrefix draws prefixes that nest: their bits are few patterns', and their lengths sit around the nodes' borders.
func aPrefix(f fib.Family) *rapid.Generator[netip.Prefix] {
	return rapid.Custom(func(t *rapid.T) netip.Prefix {
		size := 4
		if f == fib.IPv6 {
			size = 16
		}
		b := make([]byte, size)
		for i := range b {
			b[i] = rapid.SampledFrom([]byte{0, 0, 0, 0xff, 0xff, 0x80, 0x7f, 0x01}).Draw(t, "byte")
		}
		bits := rapid.OneOf(rapid.IntRange(0, 8*size), rapid.SampledFrom([]int{0, 1, 15, 16, 17, 23, 24, 25, 31, 32,
			8 * size, 8*size - 1, 5 * size, 4 * size, 4*size + 1})).Draw(t, "length")
		a, _ := netip.AddrFromSlice(b)
		return netip.PrefixFrom(a, bits).Masked()
	})
}

func aChange(l *lab) *rapid.Generator[fib.Change] {
	prefix := aPrefix(l.family)
	return rapid.Custom(func(t *rapid.T) fib.Change {
		p := prefix.Draw(t, "prefix")
		if l.oracle.Size() > 0 && rapid.IntRange(0, 2).Draw(t, "known") == 0 {
			for known := range l.oracle.All() {
				p = known
				break
			}
		}
		return fib.Change{Prefix: p, NextHop: rapid.SampledFrom(append(l.hops, 0, 0, 0)).Draw(t, "hop")}
	})
}

func TestAnswersAreTheOracles(t *testing.T) {
	for _, family := range []fib.Family{fib.IPv4, fib.IPv6} {
		for _, full := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/trie=%v", family, full), rapid.MakeCheck(func(t *rapid.T) {
				l := newLab(family, fib.Quota{}, t.Fatalf)
				fill := filler(family, 600, l.hops[0])
				if full {
					l.apply(fill)
					if got := l.table.Usage().Shape; got != fib.ShapeTrie {
						t.Fatalf("600 routes make a table of shape %s", got)
					}
				}
				var mark fib.Mark
				for range rapid.IntRange(1, 12).Draw(t, "batches") {
					batch := rapid.SliceOfN(aChange(l), 1, 20).Draw(t, "batch")
					l.apply(batch)
					for _, c := range batch {
						l.check(c.Prefix)
					}
					l.pool.Release(mark)
					mark = l.pool.Mark()
				}
				l.checkAll()
				if full {
					l.sameAsNew()
					for i := range fill {
						fill[i].NextHop = 0
					}
					l.apply(fill)
					if got := l.table.Usage().Shape; got == fib.ShapeTrie {
						t.Fatalf("%d routes are still a trie", l.table.Usage().Routes)
					}
					l.checkAll()
				}
				l.empty()
			}))
		}
	}
}

// sameAsNew asserts that a table made at once of the same routes takes as much memory: nothing is left over from routes
// that were there before.
func (l *lab) sameAsNew() {
	next := l.slice.NewTable(l.family)
	var all []fib.Change
	for p, id := range l.oracle.All() {
		all = append(all, fib.Change{Prefix: p, NextHop: id})
	}
	_, err := next.Apply(all)
	l.must(err)
	if was, is := l.table.Usage(), next.Usage(); was.Bytes != is.Bytes || was.Shape != is.Shape {
		l.fatal("%d routes take %d bytes (%s), made at once %d (%s)", was.Routes, was.Bytes,
			was.Shape, is.Bytes, is.Shape)
	}
	l.must(l.table.Swap(next))
	l.checkAll()
}

// empty deletes all routes and asserts that nothing is left of them.
func (l *lab) empty() {
	var all []fib.Change
	for p := range l.oracle.All() {
		all = append(all, fib.Change{Prefix: p})
	}
	l.apply(all)
	l.checkAll()
	l.pool.Release(l.pool.Mark())
	if u := l.pool.Usage(); u.Live != 0 || u.Resting != 0 {
		l.fatal("an empty table takes %d bytes, and %d rest", u.Live, u.Resting)
	}
	if got := l.table.Usage().Shape; got != fib.ShapeEmpty {
		l.fatal("a table without routes has shape %s", got)
	}
	l.table.Close()
	for _, id := range l.hops[:5] {
		l.must(l.slice.Drop(id))
	}
	l.pool.Release(l.pool.Mark())
	if u, s := l.pool.Usage(), l.slice.Usage(); u.NextHops != 0 || s.NextHops != 0 || s.Routes != 0 || s.Bytes != 0 {
		l.fatal("an empty slice has %+v, the pool %+v", s, u)
	}
}
