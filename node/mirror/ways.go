package mirror

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// way is everything that a route says besides its prefix and table. Routes that say the same share one way, like the
// kernel's fib_info. So a change of a way's next hop is one change, however many routes use it.
type way struct {
	id       string // what it is found by
	family   Family
	kind     uint8
	tos      uint8
	scope    uint8
	protocol uint8
	odd      bool
	specific bool // counts for some packets only
	joins    bool // IPv6: routes of the same metric join it
	mixed    bool
	metric   uint32
	object   uint32
	mtu      uint32
	rest     uint64
	source   address
	hops     []hop

	refs   int32
	used   bool
	doomed bool // the kernel has taken its routes away without a message
	stale  bool // alive, link or out has changed, and its routes were not told anew yet

	alive bool
	link  int32 // the interface, if its destinations are neighbours there
	out   ID
	group ID // a group of its own, if it has several hops
}

// appendID writes what a route is told apart by. The message must be canonical: the hops of an IPv6 route are sorted
// there, since their order says nothing.
func (r *route) appendID(id []byte) []byte {
	id = append(id, byte(r.family), r.kind, r.tos, r.scope, r.protocol, r.sourceLen, flagByte(r.odd),
		flagByte(r.multipath)|flagByte(r.mixed)<<1)
	id = binary.NativeEndian.AppendUint32(id, r.metric)
	id = binary.NativeEndian.AppendUint32(id, r.object)
	id = binary.NativeEndian.AppendUint32(id, r.mtu)
	id = binary.NativeEndian.AppendUint64(id, r.rest)
	id = binary.NativeEndian.AppendUint64(id, r.source.hi)
	id = binary.NativeEndian.AppendUint64(id, r.source.lo)
	for i := range r.hops {
		h := &r.hops[i]
		id = binary.NativeEndian.AppendUint32(id, uint32(h.index))
		id = binary.NativeEndian.AppendUint32(id, h.weight<<8|uint32(h.kind))
		id = binary.NativeEndian.AppendUint64(id, h.gateway.hi)
		id = binary.NativeEndian.AppendUint64(id, h.gateway.lo)
	}
	return id
}

func flagByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// canonical changes the message into the one form among those that say the same.
func (r *route) canonical() {
	if r.object != 0 && r.kind == unix.RTN_BLACKHOLE {
		r.kind = unix.RTN_UNICAST // told so while the object is a blackhole
	}
	if r.family == IPv4 {
		return
	}
	r.scope, r.tos = 0, 0
	r.source = address{} // it chooses the router's own source address, and may be taken away in silence
	r.multipath = false
	if len(r.hops) > 1 {
		r.mixed = r.mixed || r.mtu != 0
		slices.SortFunc(r.hops, func(a, b hop) int {
			switch {
			case a.index != b.index:
				return int(a.index) - int(b.index)
			case a.gateway == b.gateway:
				return int(a.weight) - int(b.weight)
			case a.gateway.less(b.gateway):
				return -1
			}
			return 1
		})
	}
}

// joins tells whether an IPv6 route is one of those that the kernel combines into one route with several hops.
func (r *route) joins() bool {
	if r.family != IPv6 || r.object != 0 || r.kind != unix.RTN_UNICAST || r.odd || len(r.hops) == 0 {
		return false
	}
	for i := range r.hops {
		if r.hops[i].kind == gatewayNone {
			return false
		}
	}
	return true
}

// lookupWay finds the way that says what the message says; 0 if there is none. The message must be canonical.
func (v *View) lookupWay(r *route) uint32 {
	v.idBuffer = r.appendID(v.idBuffer[:0])
	if v.lastWay != 0 && string(v.idBuffer) == v.ways[v.lastWay].id && !v.ways[v.lastWay].doomed {
		return v.lastWay
	}
	w := v.wayByID[string(v.idBuffer)]
	if w != 0 {
		v.lastWay = w
	}
	return w
}

// wayOf is lookupWay that makes the way if there is none.
func (v *View) wayOf(r *route) uint32 {
	if w := v.lookupWay(r); w != 0 {
		return w
	}
	var n uint32
	if last := len(v.freeWays); last > 0 {
		n, v.freeWays = v.freeWays[last-1], v.freeWays[:last-1]
	} else {
		n = uint32(len(v.ways))
		v.ways = append(v.ways, way{})
	}
	w := &v.ways[n]
	*w = way{
		id: string(v.idBuffer), family: r.family, kind: r.kind, tos: r.tos, scope: r.scope,
		protocol: r.protocol, odd: r.odd,
		specific: r.tos != 0 || r.sourceLen != 0, joins: r.joins(), mixed: r.mixed, metric: r.metric, object: r.object,
		mtu: r.mtu, rest: r.rest,
		source: r.source, hops: slices.Clone(r.hops), used: true,
	}
	v.wayByID[w.id] = n
	v.wayCount++
	for i := range w.hops {
		v.linkOf(w.hops[i].index).ways[n] = struct{}{}
	}
	if w.object != 0 {
		v.usesOf(w.object).ways[n] = struct{}{}
	}
	sweep := v.sweep
	v.evaluate(n)
	v.ways[n].stale, v.sweep = false, sweep // no route knows it yet
	return n
}

func (v *View) refWay(n uint32) { v.ways[n].refs++ }

// unrefWay is called when a route lets go of a way. A way of no route is forgotten at once: its number and its place in
// the links' sets are free for others.
func (v *View) unrefWay(n uint32) {
	w := &v.ways[n]
	if w.refs--; w.refs > 0 {
		return
	}
	if v.wayByID[w.id] == n {
		delete(v.wayByID, w.id)
	}
	for i := range w.hops {
		l := v.linkOf(w.hops[i].index)
		delete(l.ways, n)
		v.forgetLink(l)
	}
	if w.object != 0 {
		delete(v.usesOf(w.object).ways, n)
		v.forgetUses(w.object)
	}
	v.unref(w.out)
	v.unref(w.group)
	v.wayCount--
	*w = way{}
	if v.lastWay == n {
		v.lastWay = 0
	}
	v.freeWays = append(v.freeWays, n)
}

// doom takes the way's routes away. A route that says the same later gets another way.
func (v *View) doom(n uint32) {
	w := &v.ways[n]
	if w.doomed || !w.used {
		return
	}
	w.doomed = true
	w.alive = false
	if v.wayByID[w.id] == n {
		delete(v.wayByID, w.id)
	}
	if v.lastWay == n {
		v.lastWay = 0
	}
	v.stale(n)
	v.wantLook = true
}

// stale notes that the way's routes are to be looked at.
func (v *View) stale(n uint32) {
	v.ways[n].stale = true
	v.sweep = true
}

// evaluate finds out what becomes of packets that take the way.
func (v *View) evaluate(n uint32) {
	w := &v.ways[n]
	if w.doomed {
		return
	}
	alive, out, link := true, puntID, int32(0)
	switch w.kind {
	case unix.RTN_LOCAL, unix.RTN_ANYCAST, unix.RTN_BROADCAST:
		out = localID
	case unix.RTN_BLACKHOLE:
		out = blackholeID
	case unix.RTN_UNREACHABLE:
		out = unreachableID
	case unix.RTN_PROHIBIT:
		out = prohibitID
	case unix.RTN_UNICAST:
		switch {
		case w.odd, w.mixed:
		case w.object != 0:
			alive, out, link = v.throughObject(w)
		default:
			alive, out, link = v.throughHops(n)
			w = &v.ways[n]
		}
	}
	if w.alive != alive || w.out != out || w.link != link {
		v.ref(out)
		v.unref(w.out)
		w.alive, w.out, w.link = alive, out, link
		v.stale(n)
	}
}

// throughHops is evaluate for a way with its own hops. What it returns is held by the way's group, or by others.
func (v *View) throughHops(n uint32) (alive bool, out ID, link int32) {
	w := &v.ways[n]
	switch {
	case len(w.hops) == 0, len(w.hops) > v.limits.Members, v.uncertain(w):
		return true, puntID, 0
	case len(w.hops) == 1:
		h := &w.hops[0]
		if h.dead || !v.usable(w.family, h.index) {
			return false, w.out, 0
		}
		if h.kind == gatewayNone {
			return true, connectedID, h.index
		}
		id := v.plain(outKey{h.gateway, h.index, w.mtu, h.kind})
		v.unref(id) // the caller takes its own; what is unused now is looked at later
		return true, id, 0
	}
	members := v.members[:0]
	for i := range w.hops {
		h := &w.hops[i]
		if h.dead || !v.usable(w.family, h.index) {
			continue
		}
		id := connectedID
		if h.kind != gatewayNone {
			id = v.plain(outKey{h.gateway, h.index, w.mtu, h.kind})
		}
		members = append(members, Member{id, int(h.weight)})
	}
	v.members = members
	if len(members) == 0 {
		return false, w.out, 0
	}
	if w.group == 0 {
		w.group = v.newGroup(members, false)
	} else {
		v.setMembers(w.group, members)
	}
	for _, m := range members {
		v.unref(m.NextHop)
	}
	return true, w.group, 0
}

// uncertain tells whether nobody can know if the kernel uses a route: an IPv4 route by an IPv6 gateway through an
// interface without carrier. That depends on which of the two came first, since the kernel does not look at the carrier
// when it takes in such a route.
func (v *View) uncertain(w *way) bool {
	for i := range w.hops {
		if h := &w.hops[i]; w.family == IPv4 && h.kind == gateway6 {
			if l := v.links[h.index]; l != nil && l.exists && l.up && !l.carrier && v.ignores(IPv4, l) {
				return true
			}
		}
	}
	return false
}

// throughObject is evaluate for a way through a next-hop object.
func (v *View) throughObject(w *way) (alive bool, out ID, link int32) {
	o := v.objects[w.object]
	if o == nil {
		v.wantLook = true // it will have been missed
		return true, puntID, 0
	}
	if w.mtu != 0 || o.fdb {
		return true, puntID, 0
	}
	if o.grouped {
		for _, m := range o.group {
			if member := v.objects[m.id]; member != nil && v.objectUsable(w.family, member) {
				if len(v.outs[o.out].members) == 0 {
					return true, puntID, 0
				}
				return true, o.out, 0
			}
		}
		return false, w.out, 0
	}
	if !v.objectUsable(w.family, o) {
		return false, w.out, 0
	}
	if o.hop.kind == gatewayNone && !o.blackhole && !o.odd {
		link = o.hop.index
	}
	return true, o.out, link
}

func (v *View) objectUsable(f Family, o *object) bool {
	return o.blackhole || v.usable(f, o.hop.index)
}

// reevaluate looks at ways again.
func (v *View) reevaluate(ways map[uint32]struct{}) {
	for n := range ways {
		v.evaluate(n)
	}
}
