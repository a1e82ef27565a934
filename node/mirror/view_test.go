package mirror

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// world is what a consumer knows: it takes batches in and checks that they are told in order.
type world struct {
	t      *testing.T
	view   *View
	hops   map[ID]NextHop
	routes map[netip.Prefix]ID
	batch  Batch
	synced bool
	punt   [2]string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, view: NewView(DefaultLimits), hops: map[ID]NextHop{}, routes: map[netip.Prefix]ID{}}
	for _, d := range Dumps {
		w.view.Begin(d, 0)
		switch d.Kind {
		case unix.RTM_GETLINK:
			for i := range 3 {
				w.view.Dumped(linkUp(i + 2))
			}
		case unix.RTM_GETRULE:
			w.view.Dumped(rule(d.Family, 0, unix.RT_TABLE_LOCAL, nil))
			w.view.Dumped(rule(d.Family, 32766, unix.RT_TABLE_MAIN, nil))
		}
		if !w.view.End(false) {
			t.Fatalf("dump %v ends in doubt", d)
		}
	}
	w.view.SetSynced(true)
	w.take()
	return w
}

func (w *world) take() {
	w.t.Helper()
	for w.view.Next(&w.batch) {
		b := &w.batch
		if b.Reset {
			clear(w.hops)
			clear(w.routes)
		}
		known := func(id ID) {
			if _, ok := w.hops[id]; !ok && (id == 0 || id >= firstID) {
				w.t.Fatalf("next hop %d is named and was not told", id)
			}
		}
		for _, h := range b.NextHops {
			for _, m := range h.Members {
				known(m.NextHop)
			}
			h.Members = slices.Clone(h.Members)
			w.hops[h.ID] = h
		}
		for _, r := range b.Routes {
			if r.NextHop == 0 {
				delete(w.routes, r.Prefix)
			} else {
				known(r.NextHop)
				w.routes[r.Prefix] = r.NextHop
			}
		}
		for _, id := range b.Dropped {
			known(id)
			delete(w.hops, id)
			for p, to := range w.routes {
				if to == id {
					w.t.Fatalf("next hop %d is dropped while %s has it", id, p)
				}
			}
		}
		w.synced, w.punt = b.Synced, b.Punt
	}
}

// says is what becomes of a prefix, in words.
func (w *world) says(prefix string) string {
	w.take()
	id, ok := w.routes[netip.MustParsePrefix(prefix)]
	if !ok {
		return "none"
	}
	return w.hop(id)
}

func (w *world) hop(id ID) string {
	if id < firstID {
		return Kind(id).String()
	}
	h := w.hops[id]
	if len(h.Members) > 0 {
		var list []string
		for _, m := range h.Members {
			list = append(list, fmt.Sprintf("%s*%d", w.hop(m.NextHop), m.Weight))
		}
		slices.Sort(list)
		return strings.Join(list, " ")
	}
	switch h.Kind {
	case KindUnresolved:
		return fmt.Sprintf("%d:%s?", h.Interface, h.Gateway)
	case KindForward:
		return fmt.Sprintf("%d:%s", h.Interface, h.Gateway)
	}
	return h.Kind.String()
}

func message(kind, flags uint16, fixed []byte, attributes ...[]byte) []byte {
	b := append(make([]byte, unix.SizeofNlMsghdr), fixed...)
	for _, a := range attributes {
		b = append(b, a...)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags)
	return b
}

func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(value)&3)...)
}

func attr32(kind uint16, v uint32) []byte {
	return attr(kind, binary.NativeEndian.AppendUint32(nil, v))
}

func join(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func linkAs(index int, flags uint32) []byte {
	fixed := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint16(fixed[2:], unix.ARPHRD_ETHER)
	binary.NativeEndian.PutUint32(fixed[4:], uint32(index))
	binary.NativeEndian.PutUint32(fixed[8:], flags)
	return message(unix.RTM_NEWLINK, 0, fixed, attr(unix.IFLA_IFNAME, []byte(fmt.Sprintf("e%d\x00", index))),
		attr(unix.IFLA_ADDRESS, []byte{2, 0, 0, 0, 0, byte(index)}), attr32(unix.IFLA_MTU, 1500))
}

func linkUp(index int) []byte {
	return linkAs(index, unix.IFF_UP|unix.IFF_RUNNING|unix.IFF_LOWER_UP)
}

func rule(family byte, priority uint32, table byte, more []byte) []byte {
	return message(unix.RTM_NEWRULE, 0, []byte{family, 0, 0, 0, table, 0, 0, unix.FR_ACT_TO_TBL, 0, 0, 0, 0},
		attr32(unix.FRA_PRIORITY, priority), more)
}

func neigh(address string, index int, state uint16) []byte {
	a := netip.MustParseAddr(address)
	fixed := make([]byte, sizeofNdmsg)
	fixed[0] = familyByte(a)
	binary.NativeEndian.PutUint32(fixed[4:], uint32(index))
	binary.NativeEndian.PutUint16(fixed[8:], state)
	return message(unix.RTM_NEWNEIGH, 0, fixed, attr(unix.NDA_DST, a.AsSlice()), attr(unix.NDA_LLADDR, []byte{2, 0, 0, 1, 0, 9}))
}

func familyByte(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// rt is a route message in the words of a test.
type rt struct {
	prefix string
	table  uint32 // main if 0
	kind   byte   // unicast if 0
	tos    byte
	metric uint32
	via    string // one gateway, through index
	index  int
	hops   []string // "index gateway weight"
	object uint32
	source string
	more   []byte
}

func (r rt) message(kind, flags uint16) []byte {
	p := netip.MustParsePrefix(r.prefix)
	if r.kind == 0 {
		r.kind = unix.RTN_UNICAST
	}
	if r.table == 0 {
		r.table = unix.RT_TABLE_MAIN
	}
	fixed := make([]byte, unix.SizeofRtMsg)
	fixed[0], fixed[1], fixed[3], fixed[7] = familyByte(p.Addr()), byte(p.Bits()), r.tos, r.kind
	parts := [][]byte{attr32(unix.RTA_TABLE, r.table), attr(unix.RTA_DST, p.Addr().AsSlice()), r.more}
	if r.metric != 0 {
		parts = append(parts, attr32(unix.RTA_PRIORITY, r.metric))
	}
	if r.via != "" {
		parts = append(parts, attr(unix.RTA_GATEWAY, netip.MustParseAddr(r.via).AsSlice()))
	}
	if r.index != 0 {
		parts = append(parts, attr32(unix.RTA_OIF, uint32(r.index)))
	}
	if r.object != 0 {
		parts = append(parts, attr32(rtaNHID, r.object))
	}
	if r.source != "" {
		parts = append(parts, attr(unix.RTA_PREFSRC, netip.MustParseAddr(r.source).AsSlice()))
	}
	var multipath []byte
	for _, h := range r.hops {
		var index, weight int
		var gateway string
		fmt.Sscan(h, &index, &gateway, &weight)
		gw := attr(unix.RTA_GATEWAY, netip.MustParseAddr(gateway).AsSlice())
		head := binary.NativeEndian.AppendUint16(nil, uint16(sizeofNexthp+len(gw)))
		head = append(head, 0, byte(weight-1))
		multipath = append(multipath, join(binary.NativeEndian.AppendUint32(head, uint32(index)), gw)...)
	}
	if multipath != nil {
		parts = append(parts, attr(unix.RTA_MULTIPATH, multipath))
	}
	return message(kind, flags, fixed, parts...)
}

const (
	create  = unix.NLM_F_CREATE
	excl    = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	replace = unix.NLM_F_REPLACE | unix.NLM_F_CREATE
	appends = unix.NLM_F_APPEND | unix.NLM_F_CREATE
)

func (w *world) add(flags uint16, r rt) { w.view.Notify(r.message(unix.RTM_NEWROUTE, flags)) }
func (w *world) del(r rt)               { w.view.Notify(r.message(unix.RTM_DELROUTE, 0)) }

func (w *world) expect(prefix, want string) {
	w.t.Helper()
	if got := w.says(prefix); got != want {
		w.t.Errorf("%s: %q, should be %q", prefix, got, want)
	}
}

func objectOf(kind uint16, id uint32, parts ...[]byte) []byte {
	return message(kind, replace, []byte{unix.AF_INET, 0, 0, 0, 0, 0, 0, 0}, append([][]byte{attr32(nhaID, id)}, parts...)...)
}

func gatewayOf(a string, index int) []byte {
	return join(attr(nhaGateway, netip.MustParseAddr(a).AsSlice()), attr32(nhaOIF, uint32(index)))
}

func groupOf(members ...uint32) []byte {
	var v []byte
	for _, id := range members {
		v = append(binary.NativeEndian.AppendUint32(v, id), 0, 0, 0, 0)
	}
	return attr(nhaGroup, v)
}

func TestMetricsAndReplace(t *testing.T) {
	w := newWorld(t)
	const p = "192.0.2.0/24"
	a, b, c := rt{prefix: p, metric: 10, via: "10.0.0.2", index: 2}, rt{prefix: p, metric: 20, via: "10.0.1.2", index: 3}, rt{prefix: p, metric: 10, via: "10.0.0.3", index: 2}
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
	keep, stale, missed := rt{prefix: "192.0.2.0/24", via: "10.0.0.2", index: 2}, rt{prefix: "192.0.3.0/24", via: "10.0.0.2", index: 2}, rt{prefix: "192.0.4.0/24", via: "10.0.0.2", index: 2}
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
	for p, want := range map[string]string{keep.prefix: "2:10.0.0.2?", stale.prefix: "none", missed.prefix: "2:10.0.0.2?", "192.0.5.0/24": "2:10.0.0.2?"} {
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

func TestLimits(t *testing.T) {
	w := newWorld(t)
	w.view.limits.Routes = 3
	for i := range 5 {
		w.add(excl, rt{prefix: fmt.Sprintf("192.0.%d.0/24", i), via: "10.0.0.2", index: 2})
	}
	w.take()
	if w.punt[IPv4] == "" || w.punt[IPv6] == "" || w.view.Usage().Routes != 0 || len(w.routes) > len(always[0])+len(always[1]) {
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
