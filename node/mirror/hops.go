package mirror

import (
	"net/netip"
	"slices"
)

// out is a next hop as the consumer knows it, or will: one interface and gateway, or a group.
type out struct {
	refs    int32 // ways, groups, objects and host routes that use it
	used    bool
	changed bool // to be told
	known   bool // was told
	group   bool
	odd     bool // a next-hop object with an encapsulation
	black   bool // a blackhole object
	object  bool // belongs to a next-hop object, and is not found by its key
	key     outKey
	members []Member // a group's
	told    NextHop  // without members
}

// outKey identifies an out that belongs to no next-hop object, so that routes with the same gateway share it.
type outKey struct {
	gateway address
	index   int32
	mtu     uint32 // of the route, 0 if it has none
	kind    uint8  // gatewayNone and so on
}

// nextHops are a view's outs and neighbours.
type nextHops struct {
	outs       []out // by ID
	free       []ID  // numbers that the consumer no longer knows
	byKey      map[outKey]ID
	changed    []ID // to be told
	unused     []ID // may be unused; looked at again when a batch is made
	told       int  // how many the consumer knows
	neighbours map[neighbourKey]*neighbour
	hosts      [2][]*neighbour // those that may be hosts, by address
}

// neighbourKey is what neighbours are told apart by. The same address may be on several links, as link-local ones are.
type neighbourKey struct {
	address address
	index   int32
	family  Family
}

// neighbour is an address on a link: one that the kernel knows, or the model knows, or that is a gateway of some route.
type neighbour struct {
	neighbourKey
	mac      MAC  // the kernel's
	given    MAC  // the model's
	kernel   bool // the kernel has it
	valid    bool // and its MAC may be used
	hasGiven bool
	listed   bool   // in hosts
	dirty    bool   // its host route is to be told
	seen     uint16 // the epoch in which the kernel told of it last
	host     ID     // its host route's
	outs     []ID   // of which it is the gateway
}

func newNextHops() nextHops {
	return nextHops{outs: make([]out, firstID), byKey: map[outKey]ID{}, neighbours: map[neighbourKey]*neighbour{}}
}

// resolved returns the MAC to send to. What the model knows counts until the kernel knows better.
func (n *neighbour) resolved() (MAC, bool) {
	switch {
	case n.valid:
		return n.mac, true
	case n.hasGiven && !n.kernel:
		return n.given, true
	}
	return MAC{}, false
}

func (h *nextHops) neighbour(k neighbourKey) *neighbour {
	n := h.neighbours[k]
	if n == nil {
		n = &neighbour{neighbourKey: k}
		h.neighbours[k] = n
	}
	return n
}

// forget lets go of a neighbour that nobody needs.
func (h *nextHops) forget(n *neighbour) {
	if n.kernel || n.hasGiven || len(n.outs) > 0 || n.dirty || n.host != 0 {
		return
	}
	h.delist(n)
	delete(h.neighbours, n.neighbourKey)
}

// enlist puts a neighbour into hosts, where it is found by its address when a prefix around it changes.
func (h *nextHops) enlist(n *neighbour) {
	if n.listed {
		return
	}
	n.listed = true
	list := h.hosts[n.family]
	at := h.firstHost(n.family, n.address)
	h.hosts[n.family] = slices.Insert(list, at, n)
}

func (h *nextHops) delist(n *neighbour) {
	if !n.listed {
		return
	}
	n.listed = false
	list := h.hosts[n.family]
	for at := h.firstHost(n.family, n.address); at < len(list); at++ {
		if list[at] == n {
			h.hosts[n.family] = slices.Delete(list, at, at+1)
			return
		}
	}
}

// firstHost is the position of the first host with an address not below a.
func (h *nextHops) firstHost(f Family, a address) int {
	list := h.hosts[f]
	low, high := 0, len(list)
	for low < high {
		if mid := (low + high) / 2; list[mid].address.less(a) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// hostsAt returns the hosts with exactly this address: one for each interface.
func (h *nextHops) hostsAt(f Family, a address) []*neighbour {
	list := h.hosts[f]
	first := h.firstHost(f, a)
	end := first
	for end < len(list) && list[end].address == a {
		end++
	}
	return list[first:end]
}

// new takes a number for an out, with one reference, which is the caller's.
func (h *nextHops) new() ID {
	var id ID
	if n := len(h.free); n > 0 {
		id, h.free = h.free[n-1], h.free[:n-1]
	} else {
		id = ID(len(h.outs))
		h.outs = append(h.outs, out{})
	}
	h.outs[id] = out{used: true, refs: 1}
	h.change(id)
	return id
}

func (h *nextHops) change(id ID) {
	if o := &h.outs[id]; !o.changed {
		o.changed = true
		h.changed = append(h.changed, id)
	}
}

func (h *nextHops) ref(id ID) ID {
	if id >= firstID {
		h.outs[id].refs++
	}
	return id
}

// unref gives a reference back. The out is not freed at once: the batch that is being made may still name it, and a
// later change may use it again. drop frees it when everything else has been told.
func (h *nextHops) unref(id ID) {
	if id < firstID {
		return
	}
	o := &h.outs[id]
	if o.refs--; o.refs == 0 {
		h.unused = append(h.unused, id)
	}
}

// plain gives the out with this key, and one reference to it.
func (h *nextHops) plain(k outKey) ID {
	if id, ok := h.byKey[k]; ok {
		return h.ref(id)
	}
	id := h.new()
	h.outs[id].key = k
	h.byKey[k] = id
	h.attach(id)
	return id
}

// objectOut makes an out of a next-hop object.
func (h *nextHops) objectOut() ID {
	id := h.new()
	h.outs[id].object = true
	return id
}

// setKey changes an object's out.
func (h *nextHops) setKey(id ID, k outKey, black, odd bool) {
	o := &h.outs[id]
	if o.key == k && o.black == black && o.odd == odd {
		return
	}
	h.detach(id)
	o.key, o.black, o.odd = k, black, odd
	h.attach(id)
	h.change(id)
}

// newGroup makes an out that has members.
func (h *nextHops) newGroup(members []Member, object bool) ID {
	id := h.new()
	h.outs[id].group, h.outs[id].object = true, object
	h.setMembers(id, members)
	return id
}

// setMembers changes a group's members. It takes the new references before it gives the old ones back, so that a member
// of both is never without one.
func (h *nextHops) setMembers(id ID, members []Member) {
	if slices.Equal(h.outs[id].members, members) {
		return
	}
	for _, m := range members {
		h.ref(m.NextHop)
	}
	was := h.outs[id].members
	h.outs[id].members = slices.Clone(members)
	for _, m := range was {
		h.unref(m.NextHop)
	}
	h.change(id)
}

// neighbour is the neighbour that a next hop's gateway is, if it has a gateway.
func (k outKey) neighbour() (neighbourKey, bool) {
	if k.kind == gatewayNone {
		return neighbourKey{}, false
	}
	return neighbourKey{k.gateway, k.index, Family(k.kind - gateway4)}, true
}

// attach notes at the gateway which out leads to it, so that a change of its MAC changes the out. detach undoes that.
func (h *nextHops) attach(id ID) {
	if k, ok := h.outs[id].key.neighbour(); ok {
		n := h.neighbour(k)
		n.outs = append(n.outs, id)
	}
}

func (h *nextHops) detach(id ID) {
	k, ok := h.outs[id].key.neighbour()
	if !ok {
		return
	}
	n := h.neighbours[k]
	if n == nil {
		return
	}
	if at := slices.Index(n.outs, id); at >= 0 {
		n.outs = slices.Delete(n.outs, at, at+1)
	}
	h.forget(n)
}

// content is what the consumer is told of an out without members.
func (v *View) content(id ID) NextHop {
	o := &v.outs[id]
	h := NextHop{ID: id, Interface: int(o.key.index)}
	if o.black {
		return NextHop{ID: id, Kind: KindBlackhole}
	}
	l := v.links[o.key.index]
	if o.odd || l == nil || !l.exists || !l.ethernet {
		return NextHop{ID: id, Kind: KindPunt}
	}
	h.MTU = int(l.mtu)
	if m := int(o.key.mtu); m > 0 && (m < h.MTU || h.MTU == 0) {
		h.MTU = m
	}
	h.Source = l.mac
	k, ok := o.key.neighbour()
	if !ok {
		h.Kind = KindConnected
		return h
	}
	h.Gateway = k.family.netip(k.address)
	h.Kind = KindUnresolved
	if n := v.neighbours[k]; n != nil {
		if mac, ok := n.resolved(); ok {
			h.Kind, h.MAC = KindForward, mac
		}
	}
	return h
}

// tellNextHops adds those that changed to the batch, members before groups.
func (v *View) tellNextHops(b *Batch) {
	for pass := range 2 {
		for _, id := range v.changed {
			o := &v.outs[id]
			if !o.used || !o.changed || o.group != (pass == 1) {
				continue
			}
			o.changed = false
			if o.group {
				if len(o.members) == 0 { // nothing uses it, or its routes are about to go
					b.NextHops = append(b.NextHops, NextHop{ID: id, Members: v.puntMember[:]})
				} else {
					b.NextHops = append(b.NextHops, NextHop{ID: id, Members: o.members})
				}
			} else if now := v.content(id); !o.known || !sameNextHop(&now, &o.told) {
				o.told = now
				b.NextHops = append(b.NextHops, now)
			}
			if !o.known {
				o.known = true
				v.told++
			}
		}
	}
	v.changed = v.changed[:0]
}

func sameNextHop(a, b *NextHop) bool {
	return a.ID == b.ID && a.Kind == b.Kind && a.Interface == b.Interface && a.Gateway == b.Gateway && a.MAC == b.MAC &&
		a.Source == b.Source && a.MTU == b.MTU
}

// drop frees the outs that nothing uses. Groups are told first, so that a group that goes is not told which members it
// lost before.
func (v *View) drop(b *Batch) {
	single := v.single[:0]
	for len(v.unused) > 0 {
		list := v.unused
		v.unused = nil
		for _, id := range list {
			o := &v.outs[id]
			if !o.used || o.refs > 0 {
				continue
			}
			for _, m := range o.members {
				v.unref(m.NextHop)
			}
			if !o.group && !o.object {
				delete(v.byKey, o.key)
			}
			v.detach(id)
			switch {
			case o.known && o.group:
				b.Dropped = append(b.Dropped, id)
				v.told--
			case o.known:
				single = append(single, id)
				v.told--
			}
			*o = out{changed: o.changed}
			v.free = append(v.free, id)
		}
	}
	b.Dropped = append(b.Dropped, single...)
	v.single = single
}

// SetNeighbours says which neighbours are known beforehand, and replaces those of the call before. What the kernel
// knows of a neighbour comes before this.
func (v *View) SetNeighbours(list []Neighbour) {
	want := make(map[neighbourKey]MAC, len(list))
	for _, n := range list {
		if n.Address.IsValid() && n.Interface > 0 {
			f, a := addressFrom(n.Address)
			want[neighbourKey{a, int32(n.Interface), f}] = n.MAC
		}
	}
	for k, n := range v.neighbours {
		if mac, ok := want[k]; n.hasGiven && (!ok || mac != n.given) {
			n.hasGiven = false
			v.neighbourChanged(n)
		}
	}
	for k, mac := range want {
		if n := v.neighbour(k); !n.hasGiven {
			n.given, n.hasGiven = mac, true
			v.neighbourChanged(n)
		}
	}
}

// neighbourChanged marks what depends on a neighbour as changed: the outs that use it, and its host route.
func (v *View) neighbourChanged(n *neighbour) {
	for _, id := range n.outs {
		v.change(id)
	}
	if mayBeHost(n.family, n.address) {
		if _, ok := n.resolved(); ok {
			v.enlist(n)
		}
		if n.listed {
			v.dirtyHost(n)
		}
	}
	v.forget(n)
}

// mayBeHost is false for addresses that no packet is forwarded to.
func mayBeHost(f Family, a address) bool {
	n := f.netip(a)
	return n.IsValid() && !n.IsLinkLocalUnicast() && !n.IsMulticast() && !n.IsUnspecified() && !n.IsLoopback() &&
		n != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
