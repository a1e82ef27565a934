package mirror

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Dump is one request to the kernel: list all objects of one kind (rtnetlink(7), NLM_F_DUMP).
type Dump struct {
	Kind   uint16 // RTM_GETLINK, RTM_GETNETCONF, RTM_GETADDR, RTM_GETRULE, RTM_GETNEXTHOP, RTM_GETNEIGH or RTM_GETROUTE
	Family uint8  // AF_INET, AF_INET6 or, for links and next hops, AF_UNSPEC
	Table  uint32 // of routes
}

// Dumps are the requests that make a snapshot together. Their order matters: what others refer to comes first.
var Dumps = []Dump{
	{unix.RTM_GETLINK, unix.AF_UNSPEC, 0},
	{unix.RTM_GETNETCONF, unix.AF_INET, 0},
	{unix.RTM_GETNETCONF, unix.AF_INET6, 0},
	{unix.RTM_GETADDR, unix.AF_INET, 0},
	{unix.RTM_GETRULE, unix.AF_INET, 0},
	{unix.RTM_GETRULE, unix.AF_INET6, 0},
	{unix.RTM_GETNEIGH, unix.AF_INET, 0},
	{unix.RTM_GETNEIGH, unix.AF_INET6, 0},
	{unix.RTM_GETNEXTHOP, unix.AF_UNSPEC, 0},
	{unix.RTM_GETROUTE, unix.AF_INET, unix.RT_TABLE_LOCAL},
	{unix.RTM_GETROUTE, unix.AF_INET, unix.RT_TABLE_MAIN},
	{unix.RTM_GETROUTE, unix.AF_INET, unix.RT_TABLE_DEFAULT},
	{unix.RTM_GETROUTE, unix.AF_INET6, unix.RT_TABLE_LOCAL},
	{unix.RTM_GETROUTE, unix.AF_INET6, unix.RT_TABLE_MAIN},
}

// dump is the one that is under way.
type dump struct {
	Dump
	under  bool
	family Family
	table  *table // of a dump of routes
	doubt  bool   // something changed while it went on
	oldest uint16 // what was seen in this epoch or later is there: repeated dumps count together

	open    bool // cur is being gathered
	key     key
	cur     []uint32
	borders map[uint64]struct{} // IPv4: at which the dump was continued

	rules [3]int // of a dump of rules: how many there are for each table
	odd   bool   // and whether there is another one
}

// Begin says that a dump is under way. Until End, what Dumped tells is part of it. Notifications go on meanwhile, in
// the order in which the kernel put them on the one socket. repeated is how often the same dump was made just before
// and ended in doubt. The first of Dumps begins a look, and the last ends it.
func (v *View) Begin(d Dump, repeated int) {
	if d == Dumps[0] && repeated == 0 || v.gone.routes == nil {
		v.lookBegins()
	}
	v.gone.others = nil
	o := &v.dump
	*o = dump{Dump: d, under: true, cur: o.cur[:0]}
	if d.Family == unix.AF_INET6 {
		o.family = IPv6
	}
	switch d.Kind {
	case unix.RTM_GETLINK:
		v.linkEpoch++
		o.oldest = v.linkEpoch
	case unix.RTM_GETADDR:
		v.addressEpoch++
		o.oldest = v.addressEpoch
	case unix.RTM_GETNEXTHOP:
		v.objectEpoch++
		o.oldest = v.objectEpoch
	case unix.RTM_GETNEIGH:
		v.neighbourEpoch++
		o.oldest = v.neighbourEpoch
	case unix.RTM_GETROUTE:
		if i := tableIndex(o.family, d.Table); i != noTable {
			o.table = v.tables[o.family][i]
			o.table.epoch++
			o.oldest = o.table.epoch
			o.borders = map[uint64]struct{}{}
		}
	}
	o.oldest -= uint16(repeated) // what the dumps before saw is there, too
}

// Dumped takes in one datagram of the dump's answer.
func (v *View) Dumped(data []byte) {
	v.messages(data, true)
	if v.dump.open && v.dump.family == IPv4 {
		v.dump.borders[v.dump.key.hi] = struct{}{}
	}
}

// notified looks whether a change makes the dump doubtful. A dump takes several calls. The kernel continues an IPv4
// dump by counting the routes of the address at which it stopped. When the tree has changed, it continues an IPv6 dump
// by counting its nodes from the start. If something goes meanwhile, the kernel counts past others and leaves them out.
func (d *dump) notified(r *route, gone bool) {
	if d.table == nil || r.family != d.family {
		return
	}
	if d.family == IPv6 {
		d.doubt = d.doubt || gone
	} else if len(d.borders) > 0 {
		if _, border := d.borders[r.key.hi]; border {
			d.doubt = true
		}
	}
}

// dumpedRoute gathers the routes of one prefix, which the dump tells one after the other.
func (v *View) dumpedRoute(r *route) {
	d := &v.dump
	i := tableIndex(r.family, r.table)
	if d.table == nil || i == noTable || v.tables[r.family][i] != d.table {
		return
	}
	if d.open && d.key != r.key {
		v.commit()
	}
	if d.open && r.joins() { // told a hop at a time
		for i, w := range d.cur {
			if o := &v.ways[w]; o.joins && o.metric == r.metric && len(r.hops) == 1 {
				r.hops = addHops(o.hops, r.hops)
				r.canonical()
				d.cur[i] = v.wayOf(r)
				v.refWay(d.cur[i])
				v.unrefWay(w)
				return
			}
		}
	}
	d.open, d.key = true, r.key
	w := v.wayOf(r)
	v.refWay(w)
	d.cur = append(d.cur, w)
}

// commit makes what was gathered the prefix's routes.
func (v *View) commit() {
	d := &v.dump
	if !d.open {
		return
	}
	d.open = false
	t := d.table
	told := len(d.cur)
	d.cur = v.withoutGone(t, d.key, d.cur)
	if len(d.cur) == 0 && !t.has(d.key) {
		return
	}
	at := t.add(d.key)
	newer := len(d.cur) < told || t.seen(at) == t.epoch // notifications came that the dump perhaps does not know of
	t.setSeen(at)
	if len(d.cur) == 1 && t.routes(at) == d.cur[0] && !v.ways[d.cur[0]].doomed {
		v.unrefWay(d.cur[0])
		d.cur = d.cur[:0]
		return
	}
	list := v.routesOf(t, at)
	if newer && !slices.Equal(list, common(d.cur, list)) {
		d.doubt = d.doubt || !slices.Equal(common(list, d.cur), common(d.cur, list)) // which comes first
		for _, w := range d.cur {
			if !slices.Contains(list, w) {
				from, to := v.group(list, w)
				d.doubt = d.doubt || from < to // likewise
				list = slices.Insert(list, to, w)
				v.refWay(w)
				v.routes++
				v.dirtySlot(t, at)
			}
			v.unrefWay(w)
		}
		v.list = list
		v.store(t, at, list)
	} else {
		v.keepMixed(list)
		v.keepHidden(list)
		if !slices.Equal(list, d.cur) {
			v.dirtySlot(t, at)
		}
		v.routes += len(d.cur) - len(list)
		for _, w := range list {
			v.unrefWay(w)
		}
		v.store(t, at, d.cur)
	}
	d.cur = d.cur[:0]
}

// common gives those of a that b has, too, in a's order.
func common(a, b []uint32) []uint32 {
	return slices.DeleteFunc(slices.Clone(a), func(w uint32) bool { return !slices.Contains(b, w) })
}

// keepMixed keeps what the mirror knows and a dump does not tell: that hops of a route have MTUs of their own.
func (v *View) keepMixed(list []uint32) {
	for _, w := range list {
		o := &v.ways[w]
		if !o.mixed {
			continue
		}
		for i, told := range v.dump.cur {
			n := &v.ways[told]
			if n.joins && !n.mixed && n.metric == o.metric &&
				slices.EqualFunc(n.hops, o.hops, func(a, b hop) bool { return sameHop(&a, &b) }) {
				v.refWay(w)
				v.dump.cur[i] = w
				v.unrefWay(told)
			}
		}
	}
}

// keepHidden keeps routes that a dump leaves out. When the kernel has told the hops of an IPv6 route, it goes on after
// the last one. Routes of the same metric that are not among these hops may lie between, and are not told. What the
// mirror knows of them is from notifications.
func (v *View) keepHidden(list []uint32) {
	d := &v.dump
	if d.family != IPv6 {
		return
	}
	for _, w := range list {
		if v.ways[w].joins || slices.Contains(d.cur, w) {
			continue
		}
		after := 0
		for i, told := range d.cur {
			if v.mayHide(told, w) || after > 0 && v.ways[told].metric == v.ways[w].metric {
				after = i + 1
			}
		}
		if after > 0 {
			v.refWay(w)
			d.cur = slices.Insert(d.cur, after, w)
		}
	}
}

// mayHide tells whether dumps may leave out an IPv6 route because they tell another of the same prefix.
func (v *View) mayHide(told, w uint32) bool {
	o, n := &v.ways[told], &v.ways[w]
	return o.joins && len(o.hops) > 1 && !n.joins && o.metric == n.metric
}

// Doubt says that the kernel flagged the dump as interrupted (NLM_F_DUMP_INTR).
func (v *View) Doubt() { v.dump.doubt = true }

// Cancel ends a dump that the kernel refused. What it told counts. What it did not tell proves nothing.
func (v *View) Cancel() {
	if v.dump.under && v.dump.table != nil {
		v.commit()
	}
	v.dump = dump{cur: v.dump.cur[:0]}
	v.lookEnds()
}

// End ends the dump. If it returns false, things that the dump did not tell may exist all the same: repeat it, a few
// times; last makes it count.
func (v *View) End(last bool) bool {
	d := &v.dump
	if !d.under {
		return true
	}
	if d.table != nil {
		v.commit()
	}
	clean := !d.doubt
	d.under = false
	defer func() { d.Kind, d.table, d.borders = 0, nil, nil }()
	if !clean && !last {
		return false
	}
	if d.Dump == Dumps[len(Dumps)-1] {
		defer v.lookEnds()
	}
	gone := func(seen uint16) bool { return int16(seen-d.oldest) < 0 }
	switch d.Kind {
	case unix.RTM_GETLINK:
		for _, l := range v.links {
			if l.exists && gone(l.seen) {
				v.deleteLink(l)
			}
		}
	case unix.RTM_GETADDR:
		for a, seen := range v.addresses {
			if gone(seen) {
				v.deleteAddress(&a)
			}
		}
	case unix.RTM_GETNEXTHOP:
		for _, o := range v.objects {
			if gone(o.seen) {
				v.removeObject(o)
			}
		}
	case unix.RTM_GETNEIGH:
		for _, n := range v.neighbours {
			if n.family == d.family && n.kernel && gone(n.seen) {
				n.kernel, n.valid = false, false
				v.neighbourChanged(n)
			}
		}
	case unix.RTM_GETRULE:
		v.ruleCount[d.family], v.oddRule[d.family] = d.rules, d.odd
	case unix.RTM_GETROUTE:
		t := d.table
		t.each(func(at int) {
			if t.routes(at) != 0 && gone(t.seen(at)) {
				list := v.routesOf(t, at)
				v.routes -= len(list)
				for _, w := range list {
					v.unrefWay(w)
				}
				v.store(t, at, nil)
				v.dirtySlot(t, at)
			}
		})
	}
	return clean
}

// exceeded forgets the routes, next hops and neighbours when there are more than a limit. Nothing is followed until
// everything is looked at again.
func (v *View) exceeded(what string, limit int) {
	v.overflow = fmt.Sprintf("more than %d %s", limit, what)
	v.forgetAll()
}

// forgetAll begins with an empty view, which tells a Reset. It keeps what does not follow from the tables: the
// neighbours that were given, the rules, and that a limit was exceeded.
func (v *View) forgetAll() {
	fresh := NewView(v.limits)
	keep := *v
	*v = *fresh
	v.overflow, v.synced = keep.overflow, keep.synced
	v.linkEpoch, v.addressEpoch = keep.linkEpoch, keep.addressEpoch
	for k, n := range keep.neighbours {
		if n.hasGiven && len(v.neighbours) < v.limits.Neighbours {
			g := v.neighbour(k)
			g.given, g.hasGiven = n.given, true
		}
	}
	v.oddRule, v.ruleCount = keep.oddRule, keep.ruleCount
}

// Overflow tells which limit was exceeded, "" if none. Then nothing is followed until Again.
func (v *View) Overflow() string { return v.overflow }

// Again makes a view that exceeded a limit start anew.
func (v *View) Again() {
	if v.overflow != "" {
		v.overflow = ""
		v.forgetAll()
	}
}
