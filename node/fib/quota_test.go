package fib_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/node/fib"
)

// tenRoutes are those of a small router: two links, their addresses, a default route, and a few beyond.
func tenRoutes(f fib.Family) (list []fib.Change) {
	texts := strings.Fields("0.0.0.0/0 10.0.1.0/24 10.0.1.1/32 10.0.2.0/24 10.0.2.1/32 10.1.0.0/16 10.2.0.0/16 " +
		"10.2.7.0/24 172.16.0.0/12 192.168.3.0/24")
	if f == fib.IPv6 {
		texts = strings.Fields("::/0 fe80::/64 fe80::1/128 2001:db8:1::/64 2001:db8:1::1/128 2001:db8:2::/64 " +
			"2001:db8:2::1/128 2001:db8:3::/48 fd00::/8 ff00::/8")
	}
	for _, s := range texts {
		list = append(list, fib.Change{Prefix: netip.MustParsePrefix(s), NextHop: fib.LocalID})
	}
	return list
}

// TestFourThousandSmallRouters asserts that a router of ten routes each of IPv4 and IPv6, its words and its 64-bit
// table words included, takes 1 KiB at most, and that 4,000 of them fit.
func TestFourThousandSmallRouters(t *testing.T) {
	pool := newPool(t, 16, 20)
	for i := range 4000 {
		slice := pool.NewSlice("small", fib.Quota{Bytes: 1024})
		for j, f := range []fib.Family{fib.IPv4, fib.IPv6} {
			table := slice.NewTable(f)
			if err := table.Publish(2*i + j); err != nil {
				t.Fatal(err)
			}
			if _, err := table.Apply(tenRoutes(f)); err != nil {
				t.Fatal(err)
			}
		}
		if u := slice.Usage(); u.Bytes+2*8 > 1024 || u.Routes != 20 {
			t.Fatalf("a router with 20 routes takes %+v", u)
		} else if i == 0 {
			t.Logf("%d bytes for 10 IPv4 and 10 IPv6 routes, %d for their copies", u.Bytes, u.Copy)
		}
	}
	pool.Release(pool.Mark())
	t.Logf("4,000 routers: %+v", pool.Usage())
}

// TestAFullQuotaChangesNothing fills slices until they are full: each change that was refused left the table as it was,
// another slice has room still, and Punt and Resume do what they say.
func TestAFullQuotaChangesNothing(t *testing.T) {
	for _, family := range []fib.Family{fib.IPv4, fib.IPv6} {
		for what, quota := range map[string]fib.Quota{"ranges": {Bytes: 1500}, "promotion": {Bytes: 200_000},
			"trie": {Bytes: 400_000}, "routes": {Routes: 300}} {
			t.Run(family.String()+"/"+what, func(t *testing.T) {
				l := newLab(family, quota, t.Fatalf)
				other := l.pool.NewSlice("other", fib.Quota{}).NewTable(family)
				var refused fib.Change
				for i, c := range filler(family, 4000, l.hops[1]) {
					if family == fib.IPv4 { // a node for each
						c.Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i / 200), byte(i), 1, 0}), 24)
					}
					done, err := l.table.Apply([]fib.Change{c})
					if err != nil {
						if done != 0 || !errors.Is(err, fib.ErrFull) || !strings.Contains(err.Error(), "slice lab") {
							t.Fatalf("%d changes made, error %v", done, err)
						}
						refused = c
						break
					}
					l.tell([]fib.Change{c})
					if i%50 == 0 {
						l.pool.Release(l.pool.Mark())
					}
				}
				if !refused.Prefix.IsValid() {
					t.Fatalf("nothing was refused: %+v", l.slice.Usage())
				}
				l.checkAll()
				l.check(refused.Prefix)
				if q := quota.Bytes; q > 0 && l.slice.Usage().Bytes > q {
					t.Errorf("%+v is over the quota %+v", l.slice.Usage(), quota)
				}
				l.slice.SetQuota(fib.Quota{Bytes: 1, Routes: 1})
				for p := range l.oracle.All() { // deleting works over any quota
					l.apply([]fib.Change{{Prefix: p}})
					break
				}
				l.checkAll()
				l.slice.SetQuota(quota)
				if err := other.Insert(refused.Prefix, fib.PuntID); err != nil {
					t.Errorf("another slice: %v", err)
				}
				l.puntAndResume(t, refused, quota)
			})
		}
	}
}

func (l *lab) puntAndResume(t *testing.T, refused fib.Change, quota fib.Quota) {
	if err := l.table.Punt(); err != nil {
		t.Fatal(err)
	}
	if hop, _ := l.table.Lookup(refused.Prefix.Addr()); hop != fib.PuntID {
		t.Errorf("a punting table answers next hop %d", hop)
	}
	if u := l.slice.Usage(); u.Bytes != 0 {
		t.Errorf("a punting table takes %d bytes", u.Bytes)
	}
	if quota.Routes == 0 {
		l.apply(filler(l.family, 600, l.hops[2]))
		l.apply([]fib.Change{refused})
		if err := l.table.Resume(); !errors.Is(err, fib.ErrFull) {
			t.Errorf("a table that does not fit resumed: %v", err)
		}
		if hop, _ := l.table.Lookup(refused.Prefix.Addr()); hop != fib.PuntID {
			t.Errorf("a table that does not fit answers next hop %d", hop)
		}
	}
	l.slice.SetQuota(fib.Quota{})
	if err := l.table.Resume(); err != nil {
		t.Fatal(err)
	}
	l.checkAll()
	l.apply([]fib.Change{refused})
	l.checkAll()
	l.closes()
}

// closes is empty for a pool that others use too.
func (l *lab) closes() {
	l.table.Close()
	if u := l.slice.Usage(); u.Bytes != 0 || u.Routes != 0 || u.Copy != 0 {
		l.fatal("a slice whose table was closed has %+v", u)
	}
	if hop, _, err := l.pool.Lookup(2, l.family, netip.IPv4Unspecified()); l.family == fib.IPv4 &&
		(hop != 0 || err != nil) {
		l.fatal("a table that was closed answers %d, %v", hop, err)
	}
	if err := l.table.Insert(netip.MustParsePrefix("10.0.0.0/8"), fib.PuntID); err == nil {
		l.fatal("a table that was closed takes routes")
	}
}

// TestMemoryThatIsFull: deleting works where nothing is left, except where it needs a block; what rests comes back.
func TestMemoryThatIsFull(t *testing.T) {
	pool := newPool(t, 16, 2) // a root, and 256 nodes
	table := pool.NewSlice("a", fib.Quota{}).NewTable(fib.IPv4)
	if err := table.Publish(0); err != nil {
		t.Fatal(err)
	}
	nth := func(i int) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 1, 0}), 24) }
	if _, err := table.Apply(filler(fib.IPv4, 600, fib.PuntID)); err != nil {
		t.Fatal(err)
	}
	pool.Release(pool.Mark())
	n := 0
	for ; table.Insert(nth(n), fib.LocalID) == nil; n++ {
		if n > 256 {
			t.Fatal("more nodes than memory")
		}
	}
	err := table.Insert(nth(n), fib.LocalID)
	if !errors.Is(err, fib.ErrFull) || !strings.Contains(err.Error(), "all 2 chunks of 256 KiB are in use") {
		t.Errorf("full memory: %v", err)
	}
	for i := range n {
		if err := table.Delete(nth(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Insert(nth(n), fib.LocalID); !errors.Is(err, fib.ErrFull) ||
		!strings.Contains(err.Error(), "rest until") {
		t.Errorf("memory that rests was used: %v", err)
	}
	pool.Release(pool.Mark())
	if err := table.Insert(nth(n), fib.LocalID); err != nil {
		t.Error(err)
	}
}

func TestTablesArePublishedOnce(t *testing.T) {
	pool := newPool(t, 16, 2)
	a, b := pool.NewSlice("a", fib.Quota{}), pool.NewSlice("b", fib.Quota{})
	one, two := a.NewTable(fib.IPv4), a.NewTable(fib.IPv4)
	if err := one.Publish(3); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"twice":           one.Publish(4),
		"taken":           two.Publish(3),
		"too large":       two.Publish(10_000),
		"swap family":     one.Swap(a.NewTable(fib.IPv6)),
		"swap slice":      one.Swap(b.NewTable(fib.IPv4)),
		"swap itself":     one.Swap(one),
		"swap published":  two.Swap(one),
		"small memory":    second(fib.New(fib.NewHeap(1, 6, 1))),
		"unknown table":   third(pool.Lookup(10_000, fib.IPv4, netip.IPv4Unspecified())),
		"other's address": third(pool.Lookup(3, fib.IPv4, netip.IPv6Unspecified())),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	one.Close()
	if err := two.Publish(3); err != nil {
		t.Error(err)
	}
}

func third[A, B any](_ A, _ B, err error) error { return err }
