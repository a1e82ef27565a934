package fib_test

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/polyplane/polyplane/node/fib"
)

// TestTwoChangesDuringOneLookup turns between two states by way of a third, as fast as it can. A reader that took one
// half of its answer from one state and the other from another would be seen: the route is always there while the
// default is wrong, and the address beside it always has the outer route.
func TestTwoChangesDuringOneLookup(t *testing.T) {
	for _, c := range []struct {
		family                     fib.Family
		route, sibling, outer, new string
	}{
		{fib.IPv4, "10.1.1.1/32", "10.1.1.2/32", "10.2.0.0/15", "10.2.3.4/32"},
		{fib.IPv6, "2001:db8::1/128", "2001:db8::2/128", "2001:db9::/32", "2001:db9:3::/48"},
	} {
		t.Run(c.family.String(), func(t *testing.T) {
			l := newLab(c.family, fib.Quota{}, t.Fatalf)
			l.apply(filler(c.family, 600, l.hops[0]))
			zero := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if c.family == fib.IPv6 {
				zero = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
			route, outer, inner := netip.MustParsePrefix(c.route), netip.MustParsePrefix(c.outer),
				netip.MustParsePrefix(c.new)
			here, right, wrong, around := l.hops[1], l.hops[2], l.hops[3], l.hops[4]
			on := []fib.Change{{Prefix: route, NextHop: here}, {Prefix: zero, NextHop: wrong},
				{Prefix: inner, NextHop: here}}
			off := []fib.Change{{Prefix: zero, NextHop: right}, {Prefix: route}, {Prefix: inner}}
			// The sibling keeps the route's node, so that the walk ends in it.
			l.apply([]fib.Change{{Prefix: netip.MustParsePrefix(c.sibling), NextHop: here},
				{Prefix: outer, NextHop: around}})
			l.apply(on)

			var stop atomic.Bool
			var readers sync.WaitGroup
			var reads [2]churnReader
			for i := range reads {
				readers.Go(func() {
					for beside := lastOf(inner).Next(); !stop.Load(); {
						if hop, _ := l.table.Lookup(route.Addr()); hop != here && hop != right && hop != fib.PuntID {
							t.Errorf("next hop %d: the route is %d, the default without it %d", hop, here, right)
							return
						}
						if hop, _ := l.table.Lookup(beside); hop != around {
							t.Errorf("next hop %d beside a route that comes and goes: the outer route is %d", hop,
								around)
							return
						}
						if reads[i].rounds.Add(1)%1024 == 0 {
							runtime.Gosched()
						}
					}
				})
			}
			defer readers.Wait()
			defer stop.Store(true)
			for i := 0; (i < 50_000 || reads[0].rounds.Load()+reads[1].rounds.Load() < 100_000) && !t.Failed(); i++ {
				l.applyOnly(off)
				l.applyOnly(on)
				if i%1000 == 0 {
					mark := l.pool.Mark()
					for i := range reads { // all look-ups that began before have ended
						for was := reads[i].rounds.Load(); reads[i].rounds.Load() < was+2 && !t.Failed(); {
							runtime.Gosched()
						}
					}
					l.pool.Release(mark)
				}
			}
		})
	}
}

// applyOnly does not tell the oracle.
func (l *lab) applyOnly(changes []fib.Change) {
	_, err := l.table.Apply(changes)
	l.must(err)
}
