package mirror

import "slices"

// The routes of one prefix and table are a list of ways in the kernel's order: of IPv4, higher TOS first, then lower
// metrics, then as they were added; of IPv6, lower metrics first. One alone is kept in the slot itself.

// routesOf reads a slot's routes into scratch memory, without those that are doomed.
func (v *View) routesOf(t *table, at int) []uint32 {
	list := v.list[:0]
	switch r := t.routes(at); {
	case r == 0:
	case r&isList == 0:
		list = append(list, r)
	default:
		list = append(list, v.lists[r&^isList]...)
	}
	kept := list[:0]
	for _, w := range list {
		if v.ways[w].doomed {
			v.routes--
			v.unrefWay(w)
		} else {
			kept = append(kept, w)
		}
	}
	v.list = list
	if len(kept) < len(list) {
		v.store(t, at, kept)
		v.dirtySlot(t, at)
	}
	return kept
}

// store writes a slot's routes. The caller takes and releases the references to ways.
func (v *View) store(t *table, at int, list []uint32) {
	old := t.routes(at)
	switch {
	case len(list) == 0:
		t.setRoutes(at, 0)
	case len(list) == 1:
		t.setRoutes(at, list[0])
	case old&isList != 0:
		v.lists[old&^isList] = append(v.lists[old&^isList][:0], list...)
		return
	default:
		var n uint32
		if last := len(v.free3); last > 0 {
			n, v.free3 = v.free3[last-1], v.free3[:last-1]
		} else {
			n = uint32(len(v.lists))
			v.lists = append(v.lists, nil)
		}
		v.lists[n] = slices.Clone(list)
		t.setRoutes(at, n|isList)
		return
	}
	if old&isList != 0 {
		v.lists[old&^isList] = nil
		v.free3 = append(v.free3, old&^isList)
	}
}

// dirtySlot notes that a prefix is to be told.
func (v *View) dirtySlot(t *table, at int) {
	if w := t.last(at); *w&slotDirty == 0 {
		*w |= slotDirty
		v.dirty[t.family] = append(v.dirty[t.family], t.key(at))
	}
}

// group returns the part of a list that has a way's TOS and metric, or the place where it would be.
func (v *View) group(list []uint32, w uint32) (from, to int) {
	tos, metric := v.ways[w].tos, v.ways[w].metric
	for from < len(list) {
		o := &v.ways[list[from]]
		if o.tos < tos || o.tos == tos && o.metric >= metric {
			break
		}
		from++
	}
	for to = from; to < len(list); to++ {
		if o := &v.ways[list[to]]; o.tos != tos || o.metric != metric {
			break
		}
	}
	return from, to
}

// newRoute takes in an RTM_NEWROUTE with its flags. It does to the prefix's routes what the kernel did.
func (v *View) newRoute(r *route, flags uint16) {
	i := tableIndex(r.family, r.table)
	if i == noTable {
		return
	}
	t := v.tables[r.family][i]
	at := t.add(r.key)
	t.setSeen(at)
	list := v.routesOf(t, at)
	if r.family == IPv6 {
		v.newRoute6(t, at, list, r, flags)
		return
	}
	w := v.wayOf(r)
	v.routeBack(t, r.key, w)
	if len(list) == 0 || len(list) == 1 && flags&nlmReplace != 0 && v.sameGroup(list[0], w) { // nearly always
		if len(list) == 1 && list[0] == w {
			return
		}
		v.refWay(w)
		v.routes++
		if len(list) == 1 {
			v.routeGone(t, r.key, list[0])
			v.unrefWay(list[0])
			v.routes--
		}
		v.list = append(v.list[:0], w)
		v.store(t, at, v.list)
		v.dirtySlot(t, at)
		return
	}
	from, to := v.group(list, w)
	have := slices.Index(list[from:to], w)
	switch {
	case flags&nlmReplace != 0 && have > 0:
		// The kernel refuses this; when it was said, the list was another.
		v.dump.doubt = true
		v.wantLook = true
		return
	case have >= 0:
		return
	case flags&nlmReplace != 0 && from < to:
		if to-from > 1 && v.dump.under {
			v.dump.doubt = true // if the dump was later than this, another route was replaced
		}
		v.routeGone(t, r.key, list[from])
		v.unrefWay(list[from])
		list[from] = w
		v.routes--
	case flags&nlmAppend != 0:
		list = slices.Insert(list, to, w)
	default:
		list = slices.Insert(list, from, w)
	}
	v.refWay(w)
	v.routes++
	v.list = list
	v.store(t, at, list)
	v.dirtySlot(t, at)
}

// Flags of RTM_NEWROUTE (netlink(7)): whether a route takes the place of another, or stands behind those that are its
// equals.
const (
	nlmReplace = 0x100 // NLM_F_REPLACE
	nlmAppend  = 0x800 // NLM_F_APPEND
)

// sameGroup tells whether two IPv4 routes of one prefix replace each other: those with the same TOS and metric do.
func (v *View) sameGroup(a, b uint32) bool {
	return v.ways[a].tos == v.ways[b].tos && v.ways[a].metric == v.ways[b].metric
}

// newRoute6 is newRoute for IPv6. There, routes of one metric through gateways are one route with several hops. The
// kernel tells such a route whole. Older kernels, and others that speak netlink, tell one hop at a time.
func (v *View) newRoute6(t *table, at int, list []uint32, r *route, flags uint16) {
	join := -1 // the first that r is joined to, or put in place of
	first := -1
	for i, w := range list {
		o := &v.ways[w]
		if o.metric != r.metric {
			continue
		}
		if first < 0 {
			first = i
		}
		if o.joins == r.joins() && join < 0 {
			join = i
		}
	}
	if flags&nlmReplace != 0 {
		if join < 0 {
			join = first
		}
	} else if !r.joins() {
		join = -1
	} else if join >= 0 {
		if o := &v.ways[list[join]]; len(r.hops) == 1 && (len(o.hops) > 1 || !sameHop(&o.hops[0], &r.hops[0])) {
			r.hops = addHops(o.hops, r.hops)
		}
		if o := &v.ways[list[join]]; len(r.hops) > 1 {
			r.mixed = r.mixed || o.mixed || o.mtu != 0
		}
		r.canonical()
	}
	w := v.wayOf(r)
	v.routeBack(t, r.key, w)
	if slices.Contains(list, w) {
		return
	}
	v.refWay(w)
	if join >= 0 {
		v.routeGone(t, r.key, list[join])
		v.unrefWay(list[join])
		list[join] = w
	} else {
		_, to := v.group(list, w)
		list = slices.Insert(list, to, w)
		v.routes++
	}
	v.list = list
	v.store(t, at, list)
	v.dirtySlot(t, at)
}

// addHops returns the hops of both lists, each once.
func addHops(have, more []hop) []hop {
	all := slices.Clone(have)
	for _, h := range more {
		if !slices.ContainsFunc(all, func(o hop) bool { return sameHop(&o, &h) }) {
			all = append(all, h)
		}
	}
	return all
}

func sameHop(a, b *hop) bool { return a.index == b.index && a.kind == b.kind && a.gateway == b.gateway }

// deleteRoute takes in an RTM_DELROUTE.
func (v *View) deleteRoute(r *route) {
	i := tableIndex(r.family, r.table)
	if i == noTable {
		return
	}
	t := v.tables[r.family][i]
	if v.gone.routes != nil { // a dump may bring it yet, also where it is not known
		w := v.wayOf(r)
		v.refWay(w)
		v.routeGone(t, r.key, w)
		v.unrefWay(w)
	}
	if !t.has(r.key) {
		v.wantLook = v.wantLook || v.gone.routes != nil && r.joins() // perhaps but a part of what is there
		return
	}
	at, _ := t.find(r.key)
	list := v.routesOf(t, at)
	n := slices.Index(list, v.lookupWay(r))
	if n < 0 && r.joins() {
		v.deleteHops(t, at, list, r)
		return
	}
	if n < 0 {
		// Perhaps it is not told as it was: the only one with its metric will be it. A route through an object that has
		// gone is told after the object, and the routes beside it stay.
		for i, w := range list {
			if o := &v.ways[w]; o.metric == r.metric && o.tos == r.tos && o.kind == r.kind && o.object == r.object {
				if n >= 0 {
					n = -1
					break
				}
				n = i
			}
		}
		v.wantLook = v.wantLook || len(list) > 0
	}
	if n < 0 {
		return
	}
	gone := list[n]
	v.routeGone(t, r.key, gone)
	v.store(t, at, slices.Delete(list, n, n+1))
	v.routes--
	v.dirtySlot(t, at)
	if i == tableLocal && r.family == IPv4 && r.key.length == 32 && t.routes(at) == 0 {
		v.noSuchAddress(r.key.address)
	}
	v.unrefWay(gone)
}

// deleteHops takes hops away from an IPv6 route.
func (v *View) deleteHops(t *table, at int, list []uint32, r *route) {
	for i, w := range list {
		o := &v.ways[w]
		if o.metric != r.metric || !o.joins {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(o.hops), func(h hop) bool {
			return slices.ContainsFunc(r.hops, func(g hop) bool { return sameHop(&g, &h) })
		})
		if len(left) == len(o.hops) {
			continue
		}
		if len(left) == 0 {
			list = slices.Delete(list, i, i+1)
			v.routes--
		} else {
			// The rest is told apart by what the way is told apart by, not by the message.
			r.hops = append(r.hops[:0], left...)
			if len(left) == 1 {
				r.hops[0].weight = 1 // as the kernel tells it alone
			}
			r.protocol, r.mtu, r.rest, r.mixed = o.protocol, o.mtu, o.rest, o.mixed
			v.wantLook = v.wantLook || o.mixed
			list[i] = v.wayOf(r)
			v.refWay(list[i])
			v.routeBack(t, r.key, list[i])
		}
		v.routeGone(t, r.key, w)
		v.list = list
		v.store(t, at, list)
		v.unrefWay(w)
		v.dirtySlot(t, at)
		return
	}
}
