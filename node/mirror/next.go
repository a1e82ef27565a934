package mirror

import "slices"

// maxRoutes bounds a batch, so that applying it takes no more than some milliseconds.
const maxRoutes = 4096

// Next fills b with changes that were not told yet. It returns false if there are none. Call it until then.
func (v *View) Next(b *Batch) bool {
	*b = Batch{Interfaces: b.Interfaces[:0], NextHops: b.NextHops[:0], Routes: b.Routes[:0], Dropped: b.Dropped[:0]}
	if v.sweep {
		v.sweepWays()
	}
	b.Reset, v.reset = v.reset, false
	for f := IPv4; f <= IPv6; f++ {
		v.arrange(f)
		for v.dirtyHead[f] < len(v.dirty[f]) && len(b.Routes) < v.most {
			k := v.dirty[f][v.dirtyHead[f]]
			v.dirtyHead[f]++
			v.tellRoute(b, f, k)
		}
		if v.dirtyHead[f] == len(v.dirty[f]) {
			v.dirtyHead[f], v.arranged[f] = 0, 0
			if v.dirty[f] = v.dirty[f][:0]; cap(v.dirty[f]) > 16*maxRoutes {
				v.dirty[f] = nil
			}
		}
	}
	more := len(v.dirty[IPv4])+len(v.dirty[IPv6]) > 0
	if !more {
		v.drop(b)
	}
	v.tellNextHops(b)
	v.tellLinks(b)
	b.Synced = v.synced && !more
	changed := b.Reset || b.Synced != v.toldSync
	v.toldSync = b.Synced
	for f := range b.Punt {
		b.Punt[f] = v.puntReason(Family(f))
	}
	changed = changed || b.Punt != v.punt
	v.punt = b.Punt
	return changed || len(b.Interfaces)+len(b.NextHops)+len(b.Routes)+len(b.Dropped) > 0
}

// SetSynced says whether everything that was told fits together: every dump ended well, and nothing was missed since.
func (v *View) SetSynced(synced bool) { v.synced = synced }

// WantsLook returns true, once, if everything should be looked at again soon: something may have changed of which the
// kernel says nothing, or what it said does not fit what is known.
func (v *View) WantsLook() bool {
	want := v.wantLook
	v.wantLook = false
	return want
}

// sweepWays makes the routes of stale ways told anew, and removes those of doomed ways.
func (v *View) sweepWays() {
	v.sweep = false
	for f := range v.tables {
		for _, t := range v.tables[f] {
			t.each(func(at int) {
				r := t.routes(at)
				stale := false
				if r&isList == 0 {
					stale = r != 0 && v.ways[r].stale
				} else {
					stale = slices.ContainsFunc(v.lists[r&^isList], func(w uint32) bool { return v.ways[w].stale })
				}
				if stale {
					v.routesOf(t, at)
					v.dirtySlot(t, at)
				}
			})
		}
	}
	for n := range v.ways {
		v.ways[n].stale = false
	}
}

// arrange handles, before a batch is made, those changes of prefixes that affect what is told of other prefixes. The
// batch may already have told prefixes that lie earlier in the queue. If such a prefix were told twice in a batch, it
// would have two next hops, and the first might be gone before it was told. So a prefix that changes once more becomes
// dirty once more, and is told in a later place.
func (v *View) arrange(f Family) {
	for ; v.arranged[f] < len(v.dirty[f]); v.arranged[f]++ {
		k := v.dirty[f][v.arranged[f]]
		if v.tables[f][tableDefault].clean(k) && k != (key{}) {
			v.dirty[f] = append(v.dirty[f], key{}) // it answers for them all
		}
		v.tables[f][tableLocal].clean(k)
		if int(k.length) < f.bits() {
			v.setCover(f, k, v.tables[f][tableLocal].get(k) != 0)
		}
	}
}

// tellRoute adds one prefix to the batch.
func (v *View) tellRoute(b *Batch, f Family, k key) {
	v.tables[f][tableMain].clean(k)
	out, link, mtu, ok := v.effective(f, k)
	if int(k.length) == f.bits() {
		out = v.host(f, k, out, link, mtu, ok)
	} else {
		v.dirtyHosts(f, k)
	}
	b.Routes = append(b.Routes, Route{f.prefix(k), out})
}

// effective tells what becomes of packets to a prefix, where no longer prefix covers them. It returns the next hop's
// number (0 if there is none), the interface if the destinations are neighbours on it, and the route's MTU.
func (v *View) effective(f Family, k key) (out ID, link int32, mtu uint32, ok bool) {
	for _, c := range v.covers[f] {
		if !k.inside(c) || k == c && !slices.Contains(alwaysKeys[f], c) {
			continue
		}
		if k == c || v.tables[f][tableLocal].get(k) != 0 || v.tables[f][tableMain].get(k) != 0 {
			return puntID, 0, 0, true
		}
		return 0, 0, 0, false
	}
	for _, t := range v.tables[f][:tableDefault] {
		if r := t.get(k); r != 0 {
			if out, link, mtu, ok = v.choose(f, r, k.length == 0); ok {
				return out, link, mtu, true
			}
		}
	}
	if k == (key{}) && f == IPv4 && v.tables[f][tableDefault].n > 0 {
		return puntID, 0, 0, true // what no route of main answers is for this table
	}
	return 0, 0, 0, false
}

// choose picks from a prefix's routes the one that the kernel would use.
func (v *View) choose(f Family, r uint32, isDefault bool) (out ID, link int32, mtu uint32, ok bool) {
	if r&isList == 0 {
		w := &v.ways[r]
		if w.specific {
			return puntID, 0, 0, true
		}
		return w.out, w.link, w.mtu, w.alive
	}
	var best *way
	list := v.lists[r&^isList]
	for _, n := range list {
		w := &v.ways[n]
		switch {
		case w.specific:
			return puntID, 0, 0, true
		case !w.alive:
		case best == nil:
			if best = w; f == IPv6 && slices.ContainsFunc(list, func(o uint32) bool { return v.mayHide(o, n) }) {
				return puntID, 0, 0, true // it may be gone, and no dump would tell
			}
		case (f == IPv6 || isDefault) && w.metric == best.metric &&
			(w.out != best.out || w.link != best.link || w.mtu != best.mtu):
			// the kernel takes the one or the other, of default routes by their gateways' state
			return puntID, 0, 0, true
		}
	}
	if best == nil {
		return 0, 0, 0, false
	}
	return best.out, best.link, best.mtu, true
}

// setCover notes the local table's wider prefixes. The kernel may have merged the tables local and main, and does not
// tell. A route of main below such a prefix counts only if it has, so these routes are punted.
func (v *View) setCover(f Family, k key, is bool) {
	at := slices.Index(v.covers[f], k)
	switch {
	case is == (at >= 0), slices.Contains(alwaysKeys[f], k):
		return
	case is:
		v.covers[f] = append(slices.Clone(v.covers[f]), k)
	default:
		v.covers[f] = slices.Delete(slices.Clone(v.covers[f]), at, at+1)
	}
	for _, t := range v.tables[f][:tableDefault] {
		t.each(func(at int) {
			if other := t.key(at); other != k && other.inside(k) {
				v.dirtySlot(t, at)
			}
		})
	}
}

// dirtyHosts marks the hosts within a prefix to be looked at.
func (v *View) dirtyHosts(f Family, k key) {
	list := v.hosts[f]
	if len(list) == 0 {
		return
	}
	last := k.last()
	for at := v.firstHost(f, k.address); at < len(list) && !last.less(list[at].address); at++ {
		v.dirtyHost(list[at])
	}
}

// dirtyHost queues a neighbour's host route to be told.
func (v *View) dirtyHost(n *neighbour) {
	if !n.dirty {
		n.dirty = true
		v.dirty[n.family] = append(v.dirty[n.family], key{n.address, uint8(n.family.bits())})
	}
}

// host answers for a single address. If its route says that it is a neighbour, and the neighbour's MAC is known, the
// answer is a next hop to that MAC.
func (v *View) host(f Family, k key, out ID, link int32, mtu uint32, ok bool) ID {
	list := v.hostsAt(f, k.address)
	if len(list) == 0 {
		return out
	}
	if !ok {
		link, mtu = v.cover(f, k)
	}
	for _, n := range slices.Clone(list) {
		n.dirty = false
		was := n.host
		n.host = 0
		_, known := n.resolved()
		if known && link != 0 && n.index == link {
			n.host = v.plain(outKey{n.address, n.index, mtu, gateway4 + uint8(f)})
			out = n.host
		}
		v.unref(was)
		if !known {
			v.delist(n)
			v.forget(n)
		}
	}
	return out
}

// cover finds the interface on which a host without a route of its own would be a neighbour; 0 if there is none.
func (v *View) cover(f Family, k key) (link int32, mtu uint32) {
	for length := int(k.length) - 1; length >= 0; length-- {
		if v.tables[f][tableLocal].lengths[length] == 0 && v.tables[f][tableMain].lengths[length] == 0 {
			continue
		}
		if _, link, mtu, ok := v.effective(f, key{k.first(length), uint8(length)}); ok {
			return link, mtu
		}
	}
	return 0, 0
}
