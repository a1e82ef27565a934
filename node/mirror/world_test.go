package mirror

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// world is what a consumer knows: it takes batches in and checks that they are told in order.
type world struct {
	t      rapid.TB
	view   *View
	hops   map[ID]NextHop
	routes map[netip.Prefix]ID
	batch  Batch
	synced bool
	punt   [2]string
}

func newWorld(t rapid.TB) *world {
	w := &world{t: t, view: NewView(DefaultLimits), hops: map[ID]NextHop{}, routes: map[netip.Prefix]ID{}}
	for _, d := range Dumps {
		w.whole(d)
	}
	w.view.SetSynced(true)
	w.take()
	return w
}

// whole makes a dump, of links and rules as they are at first, of others without anything.
func (w *world) whole(d Dump) {
	w.t.Helper()
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
		w.t.Fatalf("dump %v ends in doubt", d)
	}
}

func (w *world) take() {
	w.t.Helper()
	for w.takeOne() {
	}
}

// takeOne takes in one batch, if there is one.
func (w *world) takeOne() bool {
	w.t.Helper()
	if !w.view.Next(&w.batch) {
		return false
	}
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
	told := map[netip.Prefix]ID{}
	for _, r := range b.Routes {
		if before, twice := told[r.Prefix]; twice && before != r.NextHop {
			w.t.Fatalf("a batch tells %s next hop %d, and then %d", r.Prefix, before, r.NextHop)
		}
		told[r.Prefix] = r.NextHop
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
		for _, h := range w.hops {
			if slices.ContainsFunc(h.Members, func(m Member) bool { return m.NextHop == id }) {
				w.t.Fatalf("next hop %d is dropped while %d has it as a member", id, h.ID)
			}
		}
	}
	w.synced, w.punt = b.Synced, b.Punt
	return true
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
	return message(unix.RTM_NEWNEIGH, 0, fixed, attr(unix.NDA_DST, a.AsSlice()),
		attr(unix.NDA_LLADDR, []byte{2, 0, 0, 1, 0, 9}))
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
	encap  bool // of the object's next hops
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
	if r.object != 0 {
		parts = append(parts, attr32(rtaNHID, r.object))
	}
	if r.via != "" {
		parts = append(parts, attr(unix.RTA_GATEWAY, netip.MustParseAddr(r.via).AsSlice()))
	}
	if r.index != 0 {
		parts = append(parts, attr32(unix.RTA_OIF, uint32(r.index)))
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
	if r.encap {
		parts = append(parts, attr(unix.RTA_ENCAP, []byte{1, 2, 3, 4}), attr(unix.RTA_ENCAP_TYPE, []byte{1, 0}))
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
	return message(kind, replace, []byte{unix.AF_INET, 0, 0, 0, 0, 0, 0, 0},
		append([][]byte{attr32(nhaID, id)}, parts...)...)
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
