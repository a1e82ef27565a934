package mirror

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// View turns the kernel's messages into what becomes of packets. It does no I/O, so that tests can feed it recorded
// messages. Only one goroutine at a time may call its methods.
type View struct {
	limits Limits
	nextHops

	// The kernel's tables. A prefix has one way, or a list of ways where it has several routes.
	tables [2][3]*table // by family: local, main, default
	lists  [][]uint32   // routes of prefixes that have several, in the kernel's order
	free3  []uint32     // unused lists
	routes int          // in all tables, for Limits

	// What routes say besides their prefix and table; many routes share a way.
	ways     []way // 0 is none
	freeWays []uint32
	wayByID  map[string]uint32
	wayCount int
	lastWay  uint32

	// What ways refer to.
	links        map[int32]*link
	linkCount    int // those that exist; the map also has those that are only referred to
	changedLinks []*link
	addresses    map[addressMessage]uint16
	objects      map[uint32]*object
	uses         map[uint32]*uses // of objects

	// Reasons to punt a whole family.
	oddRule   [2]bool   // there is a rule that no namespace has at first
	ruleCount [2][3]int // of the rules that every namespace has at first
	filtered  [2]string // why a packet filter needs to see what is forwarded
	covers    [2][]key  // prefixes below which the tables' order counts
	overflow  string    // which limit was exceeded

	// An epoch is the number of the last dump of a kind. Each thing notes the epoch in which it was seen last. When a
	// dump ends, what was not seen in it is gone.
	linkEpoch, addressEpoch, objectEpoch, neighbourEpoch uint16

	// What is to be told, and how far that has come.
	dump      dump
	gone      gone
	dirty     [2][]key // to be told, from dirtyHead on
	dirtyHead [2]int
	arranged  [2]int    // up to here of dirty, what bears on others is done
	most      int       // routes in a batch
	sweep     bool      // ways are stale
	reset     bool      // the consumer knows nothing
	synced    bool      // what SetSynced said
	wantLook  bool      // something may have changed without a message
	toldSync  bool      // what the last batch said
	punt      [2]string // likewise

	route      route // scratch
	idBuffer   []byte
	members    []Member
	single     []ID
	list       []uint32
	puntMember [1]Member
}

// The tables that are followed.
const (
	tableLocal = iota
	tableMain
	tableDefault
	noTable
)

// tableIndex finds a table by its number. IPv6 has no rule for "default".
func tableIndex(f Family, id uint32) int {
	switch {
	case id == unix.RT_TABLE_LOCAL:
		return tableLocal
	case id == unix.RT_TABLE_MAIN:
		return tableMain
	case id == unix.RT_TABLE_DEFAULT && f == IPv4:
		return tableDefault
	}
	return noTable
}

// Prefixes that are punted whatever the tables say: what a router does not forward, or does not forward by its tables.
var always = [2][]string{
	{"0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32"},
	{"::/128", "::1/128", "fe80::/10", "ff00::/8"},
}

// alwaysKeys is always, in the form in which prefixes are kept here.
var alwaysKeys = func() (keys [2][]key) {
	for f, list := range always {
		for _, s := range list {
			_, k := mustKey(s)
			keys[f] = append(keys[f], k)
		}
	}
	return keys
}()

// NewView makes a view that knows nothing yet. Tell it a dump of each kind.
func NewView(limits Limits) *View {
	v := &View{
		limits: limits, nextHops: newNextHops(), ways: make([]way, 1), lists: make([][]uint32, 1),
		wayByID: map[string]uint32{},
		links:   map[int32]*link{}, addresses: map[addressMessage]uint16{}, objects: map[uint32]*object{},
		uses: map[uint32]*uses{}, reset: true,
		puntMember: [1]Member{{puntID, 1}}, most: maxRoutes,
	}
	for f := range v.tables {
		for i := range v.tables[f] {
			v.tables[f][i] = newTable(Family(f))
		}
		v.covers[f] = alwaysKeys[f]
	}
	v.Restart()
	return v
}

// Restart tells everything anew, after a Reset.
func (v *View) Restart() {
	v.reset, v.toldSync = true, false
	for f := range v.tables {
		v.dirty[f], v.dirtyHead[f], v.arranged[f] = append(v.dirty[f][:0], alwaysKeys[f]...), 0, 0
		for _, t := range v.tables[f] {
			t.each(func(at int) { *t.last(at) &^= slotDirty })
			t.each(func(at int) { v.dirtySlot(t, at) })
		}
		for _, n := range v.hosts[f] {
			n.dirty = false
			v.dirtyHost(n)
		}
	}
	v.nextHops.told, v.changed = 0, v.changed[:0]
	for id := firstID; int(id) < len(v.outs); id++ {
		if o := &v.outs[id]; o.used {
			o.known, o.changed = false, false
			v.change(id)
		}
	}
	for _, l := range v.links {
		if l.told = (Interface{}); l.exists {
			v.linkChanged(l)
		}
	}
}

// Notify takes in one datagram of the kernel's notifications, in the order in which they came.
func (v *View) Notify(data []byte) { v.messages(data, false) }

// messages splits a datagram into messages (netlink(7): each begins with a struct nlmsghdr and is padded to four
// bytes). The rest of a malformed datagram is ignored: the kernel writes none, and a stream from elsewhere must do no
// harm.
func (v *View) messages(data []byte, dumped bool) {
	for len(data) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(data))
		if n < unix.SizeofNlMsghdr || n > len(data) {
			return
		}
		v.message(binary.NativeEndian.Uint16(data[4:]), binary.NativeEndian.Uint16(data[6:]),
			data[unix.SizeofNlMsghdr:n], dumped)
		data = data[min((n+3)&^3, len(data)):]
	}
}

// message takes in one message: its RTM_* kind, NLM_F_* flags, and what follows the header.
func (v *View) message(kind, flags uint16, p []byte, dumped bool) {
	if v.overflow != "" && kind != unix.RTM_NEWRULE && kind != unix.RTM_DELRULE {
		return
	}
	switch kind {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		r := &v.route
		if !r.parse(p) {
			return
		}
		r.canonical()
		switch {
		case dumped:
			v.dumpedRoute(r)
		case kind == unix.RTM_NEWROUTE:
			v.dump.notified(r, flags&unix.NLM_F_REPLACE != 0)
			v.newRoute(r, flags)
		default:
			v.dump.notified(r, true)
			v.deleteRoute(r)
		}
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		var m objectMessage
		if !m.parse(p) {
			return
		}
		o := v.objects[m.id]
		switch {
		case !dumped && v.dumping(unix.RTM_GETNEXTHOP):
			v.said(m.id, kind == unix.RTM_NEWNEXTHOP)
		case dumped && (o != nil && o.seen == v.objectEpoch || v.outdated(m.id)):
			return
		}
		if kind == unix.RTM_NEWNEXTHOP {
			v.newObject(&m)
		} else if o != nil {
			v.removeObject(o)
			v.wantLook = true
		}
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		var m neighbourMessage
		if !m.parse(p) {
			return
		}
		v.neighbourSaid(&m, kind == unix.RTM_NEWNEIGH, dumped)
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		var m linkMessage
		if !m.parse(p) {
			return
		}
		l := v.links[m.index]
		switch {
		case !dumped && v.dumping(unix.RTM_GETLINK):
			v.said(m.index, kind == unix.RTM_NEWLINK)
		case dumped && (l != nil && l.exists && l.seen == v.linkEpoch || v.outdated(m.index)):
			return
		}
		if kind == unix.RTM_NEWLINK {
			v.newLink(&m)
		} else if l != nil {
			v.deleteLink(l)
			v.forgetLink(l)
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		var m addressMessage
		if !m.parse(p) {
			return
		}
		switch {
		case !dumped && v.dumping(unix.RTM_GETADDR):
			v.said(m, kind == unix.RTM_NEWADDR)
		case dumped && v.outdated(m):
			return
		}
		if kind == unix.RTM_NEWADDR {
			v.newAddress(&m)
		} else {
			v.deleteAddress(&m)
		}
	case unix.RTM_NEWNETCONF:
		var m netconfMessage
		if m.parse(p) {
			v.dump.doubt = v.dump.doubt || !dumped && v.dumping(unix.RTM_GETNETCONF) // it tells but what changed
			v.netconf(&m)
		}
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		var m ruleMessage
		if m.parse(p) {
			v.ruleSaid(&m, kind == unix.RTM_NEWRULE, dumped)
		}
	}
	v.checkLimits()
}

// neighbourSaid takes in a neighbour. What a dump tells counts only if no notification of the same dump's time says
// otherwise.
func (v *View) neighbourSaid(m *neighbourMessage, there, dumped bool) {
	k := neighbourKey{m.address, m.index, m.family}
	n := v.neighbours[k]
	switch {
	case !dumped && v.dumping(unix.RTM_GETNEIGH):
		v.said(k, there)
	case dumped && (n != nil && n.kernel && n.seen == v.neighbourEpoch || v.outdated(k)):
		return
	}
	if n == nil {
		if !there {
			return
		}
		n = v.neighbour(k)
	}
	was, could := n.resolved()
	n.kernel, n.valid, n.mac, n.seen = there, there && m.valid, m.mac, v.neighbourEpoch
	if now, can := n.resolved(); now != was || can != could {
		v.neighbourChanged(n)
	} else {
		v.forget(n)
	}
}

// ruleSaid takes in a rule. When a rule is gone, only a look at all rules tells which are left.
func (v *View) ruleSaid(m *ruleMessage, there, dumped bool) {
	i := tableIndex(m.family, m.table)
	d := &v.dump
	if dumped {
		if d.odd = d.odd || m.odd; !m.odd {
			d.rules[i]++
		}
		return
	}
	d.doubt = d.doubt || d.Kind == unix.RTM_GETRULE && d.family == m.family
	switch {
	case !there:
		v.wantLook = true
		if !m.odd {
			v.ruleCount[m.family][i]--
		}
	case m.odd:
		v.oddRule[m.family] = true
	default:
		v.ruleCount[m.family][i]++
	}
}

// SetFiltered says why forwarded packets of a family must pass the namespace's packet filter; "" if they need not.
func (v *View) SetFiltered(f Family, why string) { v.filtered[f] = why }

// puntReason says why a family can't be forwarded here at all.
func (v *View) puntReason(f Family) string {
	switch {
	case v.overflow != "":
		return v.overflow
	case v.filtered[f] != "":
		return v.filtered[f]
	case v.oddRule[f]:
		return "there are policy routing rules"
	case v.ruleCount[f][tableLocal] <= 0 || v.ruleCount[f][tableMain] <= 0:
		return "a standard routing rule is missing"
	}
	return ""
}

// checkLimits ends following when the namespace has more than one of the limits allows.
func (v *View) checkLimits() {
	if v.overflow != "" {
		return
	}
	switch {
	case v.routes > v.limits.Routes:
		v.exceeded("routes", v.limits.Routes)
	case v.wayCount+len(v.objects) > v.limits.NextHops:
		v.exceeded("next hops", v.limits.NextHops)
	case len(v.neighbours) > v.limits.Neighbours:
		v.exceeded("neighbours", v.limits.Neighbours)
	case v.linkCount > v.limits.Interfaces:
		v.exceeded("interfaces", v.limits.Interfaces)
	}
}

// Usage tells what is kept.
func (v *View) Usage() Usage {
	u := Usage{Routes: v.routes, NextHops: v.nextHops.told}
	for f := range v.tables {
		for _, t := range v.tables[f] {
			u.Bytes += 8 * cap(t.words)
		}
		u.Bytes += 24 * cap(v.dirty[f])
	}
	for _, l := range v.lists {
		u.Bytes += 24 + 4*cap(l)
	}
	for i := range v.ways {
		w := &v.ways[i]
		u.Bytes += wayBytes + 2*len(w.id) + hopBytes*cap(w.hops)
	}
	u.Bytes += outBytes * cap(v.outs)
	for _, n := range v.neighbours {
		if n.kernel {
			u.Neighbours++
		}
	}
	u.Bytes += neighbourBytes * len(v.neighbours)
	return u
}

// Estimated bytes of memory for one object of each kind, with its share of the maps that find it.
const (
	wayBytes       = 300
	hopBytes       = 32
	outBytes       = 200
	neighbourBytes = 200
)
