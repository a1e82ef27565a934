package mirror

// A dump is not always newer than the notifications before it. Since Linux 6.9 most dumps are made without the lock
// under which changes are made, and changes are queued some time after they are made. Also, the notification that an
// IPv4 route is deleted comes before the route is gone. So a look ignores, in its dumps, everything that a notification
// took away since the look began and that no notification has brought back: whatever comes back is notified. A look
// begins with a dump of the links, which waits for that lock. So all changes that were notified before it are really
// made by then.

// gone is what notifications have taken away since the look began.
type gone struct {
	routes map[goneRoute]struct{} // holding their ways; nil between looks
	// links, addresses, objects and neighbours, by what they are found by; of this dump's kind
	others map[any]struct{}
}

// goneRoute is a route that a notification has taken away. It keeps a reference to the way: otherwise the way's number
// could become another's meanwhile.
type goneRoute struct {
	table *table
	key   key
	way   uint32
}

// goneMost bounds the memory for routes that were deleted during one look: 5 MiB.
const goneMost = 1 << 16

// lookBegins forgets what was gone before.
func (v *View) lookBegins() {
	v.lookEnds()
	v.gone.routes = map[goneRoute]struct{}{}
}

func (v *View) lookEnds() {
	for g := range v.gone.routes {
		v.unrefWay(g.way)
	}
	v.gone.routes = nil
}

// routeGone notes that a prefix no longer has this route.
func (v *View) routeGone(t *table, k key, way uint32) {
	if v.gone.routes == nil {
		return
	}
	g := goneRoute{t, k, way}
	if _, ok := v.gone.routes[g]; ok {
		return
	}
	if len(v.gone.routes) == goneMost {
		v.wantLook = true
		return
	}
	v.refWay(way)
	v.gone.routes[g] = struct{}{}
}

// routeBack ends routeGone. The caller has taken a reference to the way for the prefix, or takes it next.
func (v *View) routeBack(t *table, k key, way uint32) {
	if len(v.gone.routes) == 0 {
		return
	}
	g := goneRoute{t, k, way}
	if _, ok := v.gone.routes[g]; ok {
		delete(v.gone.routes, g)
		v.ways[way].refs--
	}
}

// withoutGone removes, from the routes that a dump tells of a prefix, those that are gone.
func (v *View) withoutGone(t *table, k key, ways []uint32) []uint32 {
	if len(v.gone.routes) == 0 {
		return ways
	}
	kept := ways[:0]
	for _, w := range ways {
		if _, ok := v.gone.routes[goneRoute{t, k, w}]; ok {
			v.unrefWay(w)
		} else {
			kept = append(kept, w)
		}
	}
	return kept
}

// dumping tells whether objects of this kind are being dumped.
func (v *View) dumping(request uint16) bool { return v.dump.under && v.dump.Kind == request }

// said notes a notification about an object that is not a route, while a dump of its kind is under way.
func (v *View) said(id any, there bool) {
	switch {
	case there:
		delete(v.gone.others, id)
	default:
		if v.gone.others == nil {
			v.gone.others = map[any]struct{}{}
		}
		v.gone.others[id] = struct{}{}
	}
}

// outdated tells whether a notification has taken an object away since the dump began that now tells it.
func (v *View) outdated(id any) bool {
	_, is := v.gone.others[id]
	return is
}
