package mirror

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMetricsAndReplace(t *testing.T) {
	w := newWorld(t)
	const p = "192.0.2.0/24"
	a, b, c := rt{prefix: p, metric: 10, via: "10.0.0.2", index: 2}, rt{prefix: p, metric: 20, via: "10.0.1.2",
		index: 3}, rt{prefix: p, metric: 10, via: "10.0.0.3", index: 2}
	w.add(excl, b)
	w.expect(p, "3:10.0.1.2?")
	w.add(excl, a)
	w.expect(p, "2:10.0.0.2?")
	w.add(replace, c) // the one with its metric
	w.expect(p, "2:10.0.0.3?")
	w.add(appends, a) // behind c
	w.expect(p, "2:10.0.0.3?")
	w.del(c)
	w.expect(p, "2:10.0.0.2?")
	w.add(create, c) // before a
	w.expect(p, "2:10.0.0.3?")
	w.del(c)
	w.del(a)
	w.expect(p, "3:10.0.1.2?")
	w.add(excl, rt{prefix: p, metric: 5, kind: unix.RTN_BLACKHOLE})
	w.expect(p, "blackhole")
	w.add(excl, rt{prefix: p, metric: 5, tos: 16, kind: unix.RTN_BLACKHOLE})
	w.expect(p, "punt")
	w.del(rt{prefix: p, metric: 5, tos: 16, kind: unix.RTN_BLACKHOLE})
	w.del(rt{prefix: p, metric: 5, kind: unix.RTN_BLACKHOLE})
	w.del(b)
	w.expect(p, "none")
	if u := w.view.Usage(); u.Routes != 0 || u.NextHops != 0 {
		t.Errorf("something is left: %+v", u)
	}
}

func TestIPv6HopsOneByOneAndTogether(t *testing.T) {
	w := newWorld(t)
	const p = "2001:db8:9::/48"
	const both, three = "2:fe80::2?*1 3:fe80::3?*1", "2:fe80::2?*1 3:fe80::3?*1 4:fe80::4?*2"
	w.add(excl, rt{prefix: p, via: "fe80::2", index: 2})
	w.expect(p, "2:fe80::2?")
	w.add(appends, rt{prefix: p, via: "fe80::3", index: 3}) // alone, as older kernels tell it
	w.expect(p, both)
	w.add(appends, rt{prefix: p, hops: []string{"4 fe80::4 2", "2 fe80::2 1", "3 fe80::3 1"}}) // whole
	w.expect(p, three)
	w.add(appends, rt{prefix: p, via: "fe80::3", index: 3}) // told late
	w.expect(p, three)
	w.del(rt{prefix: p, via: "fe80::4", index: 4})
	w.expect(p, both)
	w.add(replace, rt{prefix: p, via: "fe80::4", index: 4})
	w.expect(p, "4:fe80::4?")
	w.add(replace, rt{prefix: p, hops: []string{"2 fe80::2 1", "3 fe80::3 1"}})
	w.expect(p, both)
	w.add(excl, rt{prefix: p, metric: 1, index: 2, via: "fe80::9"})
	w.expect(p, both)
	w.del(rt{prefix: p, hops: []string{"3 fe80::3 1", "2 fe80::2 1"}})
	w.expect(p, "2:fe80::9?")
	w.del(rt{prefix: p, metric: 1, index: 2, via: "fe80::9"})
	w.expect(p, "none")
	w.add(excl, rt{prefix: p, via: "fe80::2", index: 2})
	w.add(appends, rt{prefix: p, index: 3}) // the kernel takes the one or the other
	w.expect(p, "punt")
}

func TestMultipathLosesLinks(t *testing.T) {
	w := newWorld(t)
	const p = "192.0.2.0/24"
	w.add(excl, rt{prefix: "0.0.0.0/0", via: "10.0.2.2", index: 4})
	w.add(excl, rt{prefix: p, hops: []string{"2 10.0.0.2 1", "3 10.0.1.2 3"}})
	w.expect(p, "2:10.0.0.2?*1 3:10.0.1.2?*3")
	id := w.routes[netip.MustParsePrefix(p)]
	w.view.Notify(linkAs(2, 0))
	w.expect(p, "3:10.0.1.2?*3")
	if now := w.routes[netip.MustParsePrefix(p)]; now != id {
		t.Errorf("a member that is lost changes the route's next hop, not its members")
	}
	w.view.Notify(linkUp(2))
	w.expect(p, "2:10.0.0.2?*1 3:10.0.1.2?*3")
	w.view.Notify(linkAs(2, 0))
	w.view.Notify(linkAs(3, 0))
	w.expect(p, "none") // the kernel has taken it away, and says nothing
	w.view.Notify(linkUp(2))
	w.view.Notify(linkUp(3))
	w.expect(p, "none")
	if !w.view.WantsLook() {
		t.Error("what was concluded should be looked at")
	}
	w.expect("0.0.0.0/0", "4:10.0.2.2?")
	w.add(excl, rt{prefix: p, hops: []string{"2 10.0.0.2 1", "3 10.0.1.2 3"}})
	w.expect(p, "2:10.0.0.2?*1 3:10.0.1.2?*3")
}

func TestObjects(t *testing.T) {
	w := newWorld(t)
	w.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 1, gatewayOf("10.0.0.2", 2)))
	w.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 2, gatewayOf("10.0.1.2", 3)))
	w.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 10, groupOf(1, 2)))
	const one, several = "192.0.2.0/24", "198.51.100.0/24"
	w.add(excl, rt{prefix: one, object: 1})
	w.add(excl, rt{prefix: several, object: 10})
	w.expect(one, "2:10.0.0.2?")
	w.expect(several, "2:10.0.0.2?*1 3:10.0.1.2?*1")
	w.view.Notify(neigh("10.0.0.2", 2, unix.NUD_REACHABLE))
	w.expect(one, "2:10.0.0.2")
	w.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 1, gatewayOf("10.0.2.9", 4)))
	w.view.Next(&w.batch)
	if len(w.batch.Routes) > 0 || len(w.batch.NextHops) != 1 {
		t.Errorf("a next-hop object that changes is one next hop: %+v", w.batch)
	}
	w.hops[w.batch.NextHops[0].ID] = w.batch.NextHops[0]
	w.expect(several, "3:10.0.1.2?*1 4:10.0.2.9?*1")
	w.view.Notify(linkAs(3, unix.IFF_UP)) // no carrier: object 2 is gone, and leaves its group
	w.expect(several, "4:10.0.2.9?*1")
	w.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 1, attr(nhaBlackhole, nil)))
	w.expect(one, "blackhole")
	w.view.Notify(objectOf(unix.RTM_DELNEXTHOP, 1))
	w.expect(one, "none")
	w.expect(several, "none")
	if u := w.view.Usage(); u.Routes != 0 || len(w.view.objects) != 0 {
		t.Errorf("something is left: %+v", u)
	}
}

// TestRoutesToldWithTheirObjects has the kernel tell routes as it does by nexthop_compat_mode=1: with the next hops of
// their objects, once more when an object is replaced, and of IPv6 also when it is gone.
func TestRoutesToldWithTheirObjects(t *testing.T) {
	w := newWorld(t)
	w.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 1, gatewayOf("10.0.0.2", 2)))
	w.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 2, gatewayOf("10.0.1.2", 3)))
	w.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 10, groupOf(1, 2)))
	w.view.Notify(message(unix.RTM_NEWNEXTHOP, replace, []byte{unix.AF_INET6, 0, 0, 0, 0, 0, 0, 0}, attr32(nhaID, 101),
		gatewayOf("2001:db8::2", 2)))
	const one, several, six = "192.0.2.0/24", "198.51.100.0/24", "2001:db9::/48"
	w.add(excl, rt{prefix: one, object: 1, via: "10.0.0.2", index: 2})
	w.add(excl, rt{prefix: several, object: 10, hops: []string{"2 10.0.0.2 1", "3 10.0.1.2 1"}})
	w.add(excl, rt{prefix: six, object: 101, via: "2001:db8::2", index: 2})
	w.expect(one, "2:10.0.0.2?")
	w.expect(several, "2:10.0.0.2?*1 3:10.0.1.2?*1")
	w.expect(six, "2:2001:db8::2?")
	ways := w.view.wayCount
	w.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 1, gatewayOf("10.0.2.9", 4)))
	w.expect(one, "4:10.0.2.9?")
	w.view.WantsLook() // whatever it was for, it is answered here
	w.add(replace, rt{prefix: one, object: 1, via: "10.0.2.9", index: 4})
	w.add(replace, rt{prefix: several, object: 10, hops: []string{"4 10.0.2.9 1", "3 10.0.1.2 1"}})
	w.add(replace, rt{prefix: one, object: 1, via: "10.0.2.9", index: 4, encap: true})
	if w.view.Next(&w.batch) {
		t.Errorf("routes that are told once more change nothing: %+v", w.batch)
	}
	if now, look := w.view.wayCount, w.view.WantsLook(); now != ways || look {
		t.Errorf("%d ways, and %d after the same routes were told once more; look: %v", ways, now, look)
	}
	// A route beside one whose object goes: the kernel tells of the object first, then of its route.
	w.add(appends, rt{prefix: six, via: "2001:db8::3", index: 3})
	w.view.Notify(objectOf(unix.RTM_DELNEXTHOP, 101))
	w.del(rt{prefix: six, object: 101, via: "2001:db8::2", index: 2})
	w.expect(six, "3:2001:db8::3?")
	w.del(rt{prefix: one, object: 1, via: "10.0.2.9", index: 4})
	w.del(rt{prefix: several, object: 10})
	w.expect(one, "none")
	w.expect(several, "none")
}

func TestNeighboursAndHosts(t *testing.T) {
	w := newWorld(t)
	w.add(excl, rt{prefix: "10.0.0.0/24", index: 2})
	w.add(excl, rt{prefix: "192.0.2.0/24", via: "10.0.0.9", index: 2})
	w.expect("10.0.0.0/24", "connected")
	w.view.SetNeighbours([]Neighbour{{Interface: 2, Address: netip.MustParseAddr("10.0.0.9"), MAC: MAC{2, 9}}})
	w.expect("192.0.2.0/24", "2:10.0.0.9")
	w.expect("10.0.0.9/32", "2:10.0.0.9")
	w.view.Notify(neigh("10.0.0.9", 2, unix.NUD_FAILED)) // the kernel knows better
	w.expect("192.0.2.0/24", "2:10.0.0.9?")
	w.expect("10.0.0.9/32", "none")
	w.view.Notify(neigh("10.0.0.9", 2, unix.NUD_STALE))
	w.expect("10.0.0.9/32", "2:10.0.0.9")
	w.view.Notify(neigh("10.0.0.7", 3, unix.NUD_STALE)) // on another link
	w.expect("10.0.0.7/32", "none")
	w.add(excl, rt{prefix: "10.0.0.0/28", via: "10.0.0.99", index: 2}) // no longer a neighbour
	w.expect("10.0.0.9/32", "none")
	w.del(rt{prefix: "10.0.0.0/28", via: "10.0.0.99", index: 2})
	w.expect("10.0.0.9/32", "2:10.0.0.9")
	w.del(rt{prefix: "10.0.0.0/24", index: 2})
	w.expect("10.0.0.9/32", "none")
}

func TestWhatIsPunted(t *testing.T) {
	w := newWorld(t)
	w.expect("fe80::/10", "punt")
	w.add(excl, rt{prefix: "192.0.2.0/24", via: "10.0.0.2", index: 2, more: attr(unix.RTA_ENCAP, []byte{1, 2, 3, 4})})
	w.expect("192.0.2.0/24", "punt")
	w.add(excl, rt{prefix: "20.1.0.0/16", via: "10.0.0.2", index: 2})
	w.add(excl, rt{prefix: "20.0.0.0/8", kind: unix.RTN_LOCAL, table: unix.RT_TABLE_LOCAL})
	w.expect("20.0.0.0/8", "local")
	w.expect("20.1.0.0/16", "punt") // which of the tables counts is not told
	w.del(rt{prefix: "20.0.0.0/8", kind: unix.RTN_LOCAL, table: unix.RT_TABLE_LOCAL})
	w.expect("20.1.0.0/16", "2:10.0.0.2?")
	w.add(excl, rt{prefix: "30.0.0.0/8", via: "10.0.0.2", index: 2, table: unix.RT_TABLE_DEFAULT})
	w.expect("0.0.0.0/0", "punt")
	w.add(excl, rt{prefix: "0.0.0.0/0", via: "10.0.0.2", index: 2})
	w.expect("0.0.0.0/0", "2:10.0.0.2?")
	w.add(excl, rt{prefix: "40.0.0.0/8", kind: unix.RTN_THROW})
	w.expect("40.0.0.0/8", "punt")
	w.add(excl, rt{prefix: "50.0.0.0/8", via: "10.0.0.2", index: 2, table: 77}) // nobody looks there
	w.expect("50.0.0.0/8", "none")
	w.view.Notify(rule(unix.AF_INET, 100, 77, attr32(unix.FRA_FWMARK, 1)))
	w.take()
	if w.punt[IPv4] == "" || w.punt[IPv6] != "" {
		t.Errorf("with a policy rule for IPv4, punted is %q", w.punt)
	}
}

func TestSourceAddressThatIsGone(t *testing.T) {
	w := newWorld(t)
	own := rt{prefix: "10.9.0.1/32", kind: unix.RTN_LOCAL, table: unix.RT_TABLE_LOCAL, index: 2, source: "10.9.0.1"}
	w.add(excl, own)
	w.add(excl, rt{prefix: "192.0.2.0/24", via: "10.0.0.2", index: 2, source: "10.9.0.1"})
	w.expect("192.0.2.0/24", "2:10.0.0.2?")
	w.del(own)
	w.expect("192.0.2.0/24", "none")
}

func TestResync(t *testing.T) {
	w := newWorld(t)
	keep, stale, missed := rt{prefix: "192.0.2.0/24", via: "10.0.0.2", index: 2},
		rt{prefix: "192.0.3.0/24", via: "10.0.0.2", index: 2}, rt{prefix: "192.0.4.0/24", via: "10.0.0.2", index: 2}
	w.add(excl, keep)
	w.add(excl, stale)
	w.take()
	main := Dump{unix.RTM_GETROUTE, unix.AF_INET, unix.RT_TABLE_MAIN}
	w.view.Begin(main, 0)
	w.view.Dumped(keep.message(unix.RTM_NEWROUTE, 0))
	w.add(excl, rt{prefix: "192.0.5.0/24", via: "10.0.0.2", index: 2}) // comes meanwhile
	w.view.Dumped(missed.message(unix.RTM_NEWROUTE, 0))
	if !w.view.End(false) {
		t.Fatal("the dump ends in doubt")
	}
	w.view.Next(&w.batch)
	if len(w.batch.Routes) != 3 {
		t.Errorf("a resync tells what differs, not %+v", w.batch.Routes)
	}
	for _, r := range w.batch.Routes {
		if r.NextHop == 0 {
			delete(w.routes, r.Prefix)
		} else {
			w.routes[r.Prefix] = r.NextHop
		}
	}
	for p, want := range map[string]string{keep.prefix: "2:10.0.0.2?", stale.prefix: "none",
		missed.prefix: "2:10.0.0.2?", "192.0.5.0/24": "2:10.0.0.2?"} {
		w.expect(p, want)
	}
	// The kernel goes on with a dump by counting the routes of the address at which it stopped.
	w.view.Begin(main, 0)
	w.view.Dumped(keep.message(unix.RTM_NEWROUTE, 0))
	w.del(rt{prefix: "192.0.2.0/25", via: "10.0.0.2", index: 2})
	if w.view.End(false) {
		t.Error("a dump that a change may have shortened is taken for whole")
	}
	w.expect(missed.prefix, "2:10.0.0.2?")
	w.view.Begin(main, 1)
	w.view.Dumped(missed.message(unix.RTM_NEWROUTE, 0))
	if !w.view.End(true) {
		t.Error("the second dump ends in doubt")
	}
	w.expect(keep.prefix, "2:10.0.0.2?") // the first told it
	w.expect("192.0.5.0/24", "none")
}

// TestRoutesThatADumpLeavesOut has a dump that, as the kernel's, tells the hops of an IPv6 route and goes on after the
// last.
func TestRoutesThatADumpLeavesOut(t *testing.T) {
	w := newWorld(t)
	const p = "2001:db8:9::/48"
	both, other := rt{prefix: p, metric: 5, hops: []string{"2 fe80::2 1", "3 fe80::3 1"}},
		rt{prefix: p, metric: 6, via: "fe80::2", index: 2}
	hidden := rt{prefix: p, metric: 5, kind: unix.RTN_BLACKHOLE}
	look := func(told ...rt) {
		t.Helper()
		w.view.Begin(Dump{unix.RTM_GETROUTE, unix.AF_INET6, unix.RT_TABLE_MAIN}, 0)
		for _, r := range told {
			w.view.Dumped(r.message(unix.RTM_NEWROUTE, unix.NLM_F_MULTI))
		}
		if !w.view.End(false) {
			t.Fatal("the dump ends in doubt")
		}
	}
	w.add(excl, rt{prefix: p, metric: 5, via: "fe80::2", index: 2})
	w.add(appends, hidden)
	w.expect(p, "punt")
	w.add(appends, both)
	w.add(excl, other)
	look(both, other)
	w.expect(p, "punt") // which of the two the kernel takes is not told
	w.view.Notify(linkAs(2, unix.IFF_UP))
	w.view.Notify(linkAs(3, unix.IFF_UP))
	for _, index := range []uint32{2, 3} {
		w.view.Notify(message(unix.RTM_NEWNETCONF, 0, []byte{unix.AF_INET6, 0, 0, 0}, attr32(netconfIndex, index),
			attr32(netconfIgnore, 1)))
	}
	w.expect(p, "punt") // it may have been deleted, if messages were lost
	w.view.Notify(linkUp(2))
	w.view.Notify(linkUp(3))
	w.del(hidden)
	w.expect(p, "2:fe80::2?*1 3:fe80::3?*1")
	w.add(appends, hidden)
	look(hidden, both, other) // where it is not between the hops, it is told
	w.del(both)
	w.expect(p, "blackhole")
	look(other) // and nothing hides it
	w.expect(p, "2:fe80::2?")
}

func TestLimits(t *testing.T) {
	w := newWorld(t)
	w.view.limits.Routes = 3
	for i := range 5 {
		w.add(excl, rt{prefix: fmt.Sprintf("192.0.%d.0/24", i), via: "10.0.0.2", index: 2})
	}
	w.take()
	if w.punt[IPv4] == "" || w.punt[IPv6] == "" || w.view.Usage().Routes != 0 ||
		len(w.routes) > len(always[0])+len(always[1]) {
		t.Errorf("beyond its limit a view punts %q, keeps %+v, tells %v", w.punt, w.view.Usage(), w.routes)
	}
	w.view.Again()
	w.add(excl, rt{prefix: "192.0.2.0/24", kind: unix.RTN_BLACKHOLE})
	w.expect("192.0.2.0/24", "blackhole")
}

// TestMessagesAllocateNothing replaces a route by others that say what is known already.
func TestMessagesAllocateNothing(t *testing.T) {
	w := newWorld(t)
	a, b := rt{prefix: "192.0.2.0/24", via: "10.0.0.2", index: 2}, rt{prefix: "192.0.2.0/24", via: "10.0.1.2", index: 3}
	c, d := rt{prefix: "2001:db8::/32", via: "fe80::2", index: 2}, rt{prefix: "2001:db8::/32", via: "fe80::3", index: 3}
	for _, r := range []rt{a, b, c, d} { // others that keep what they say
		w.add(excl, r)
		p := netip.MustParsePrefix(r.prefix)
		r.prefix = netip.PrefixFrom(p.Addr(), p.Bits()-r.index).Masked().String()
		w.add(excl, r)
	}
	w.take()
	var pieces [][]byte
	for _, r := range []rt{a, b, c, d} {
		pieces = append(pieces, r.message(unix.RTM_NEWROUTE, replace))
	}
	n := testing.AllocsPerRun(1000, func() {
		for _, p := range pieces {
			w.view.Notify(p)
			for w.view.Next(&w.batch) {
			}
		}
	})
	if n > 0 {
		t.Errorf("%.1f allocations for %d messages", n, len(pieces))
	}
}
