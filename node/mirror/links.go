package mirror

import "golang.org/x/sys/unix"

// link is an interface, or, before a message tells of the interface, what others refer to by its index.
type link struct {
	index    int32
	name     string
	exists   bool
	mac      MAC
	ethernet bool
	mtu      uint32
	up       bool
	carrier  bool
	slave    bool // what comes in is its master's, such as a bridge's

	forward     [2]bool // net.ipv4.conf.*.forwarding and IPv6's
	ignoresDown [2]bool // ignore_routes_with_linkdown: routes through it don't count while it has no carrier
	addresses   int     // IPv4 addresses: with the last one its IPv4 routes go

	told    Interface // what the consumer knows
	changed bool
	seen    uint16              // the epoch in which the kernel told of it last
	ways    map[uint32]struct{} // with a hop through it
	objects map[uint32]struct{}
}

// linkOf finds a link, or makes one that does not exist yet. Like the kernel it starts with the setting of `default`.
func (v *View) linkOf(index int32) *link {
	l := v.links[index]
	if l == nil {
		l = &link{index: index, ways: map[uint32]struct{}{}, objects: map[uint32]struct{}{}}
		if d := v.links[netconfDefault]; d != nil {
			l.ignoresDown = d.ignoresDown
		}
		v.links[index] = l
	}
	return l
}

// Indices that stand for all interfaces, and for the defaults of new ones (linux/netconf.h).
const (
	netconfAll     = -1
	netconfDefault = -2
)

// forgetLink lets go of a link that does not exist and that nothing refers to.
func (v *View) forgetLink(l *link) {
	if l.index > 0 && !l.exists && !l.changed && len(l.ways) == 0 && len(l.objects) == 0 && l.addresses == 0 {
		delete(v.links, l.index)
	}
}

// usable tells whether the kernel uses a hop through an interface.
func (v *View) usable(f Family, index int32) bool {
	l := v.links[index]
	if l == nil || !l.exists || !l.up {
		return false
	}
	return l.carrier || !v.ignores(f, l)
}

// ignores tells whether the kernel passes over routes through a link without carrier. For IPv4 the setting of `all`
// counts as well, for IPv6 only the interface's own.
func (v *View) ignores(f Family, l *link) bool {
	if f == IPv4 {
		if all := v.links[netconfAll]; all != nil && all.ignoresDown[f] {
			return true
		}
	}
	return l.ignoresDown[f]
}

// newLink takes in an RTM_NEWLINK.
func (v *View) newLink(m *linkMessage) {
	l := v.linkOf(m.index)
	l.seen = v.linkEpoch
	was := *l
	if !l.exists {
		v.linkCount++
	}
	l.exists, l.mac, l.mtu, l.up, l.carrier, l.slave = true, m.mac, m.mtu, m.up, m.carrier, m.master != 0
	l.ethernet = m.ethernet && m.hasMAC
	if string(trimZero(m.name)) != l.name {
		l.name = string(trimZero(m.name))
	}
	v.linkChanged(l)
	if was.up && !l.up {
		v.linkDown(l, false)
	}
	if l.up && !was.up {
		v.revive(l)
	}
	if !l.up || !l.carrier {
		v.flushObjects(l)
	}
	if was.exists && was.mtu != l.mtu {
		v.mtuChanged(l, was.mtu)
	}
	if was.mac != l.mac || was.mtu != l.mtu || was.exists != l.exists || was.ethernet != l.ethernet {
		v.outsThrough(l.index)
	}
	if was.exists != l.exists || was.up != l.up || was.carrier != l.carrier {
		v.through(l)
	}
}

// mtuChanged does to the MTUs of IPv6 routes what the kernel does, without a message, when that of their interface
// changes.
func (v *View) mtuChanged(l *link, was uint32) {
	for n := range l.ways {
		if w := &v.ways[n]; w.family == IPv6 && w.mtu != 0 && (w.mtu >= l.mtu || w.mtu == was) {
			w.mtu = l.mtu
			v.evaluate(n)
			v.wantLook = true
		}
	}
}

// deleteLink takes in an RTM_DELLINK.
func (v *View) deleteLink(l *link) {
	if !l.exists {
		return
	}
	l.exists, l.up, l.carrier = false, false, false
	v.linkCount--
	v.linkChanged(l)
	for n := range l.ways { // also those that have other hops
		if v.ways[n].family == IPv4 {
			v.doom(n)
		}
	}
	v.flushObjects(l)
	v.outsThrough(l.index)
	v.through(l)
	v.wantLook = true
}

// linkDown does to IPv4 routes what the kernel does, without a message, when an interface goes down, or, with force,
// when it loses its last address. Its hops are dead until it comes up or gets an address, and routes without other hops
// go. Routes to the router's own addresses stay, except with force.
func (v *View) linkDown(l *link, force bool) {
	for n := range l.ways {
		w := &v.ways[n]
		if w.family != IPv4 || w.scope == unix.RT_SCOPE_HOST && !force {
			continue
		}
		dead := true
		for i := range w.hops {
			h := &w.hops[i]
			h.dead = h.dead || h.index == l.index
			dead = dead && h.dead
		}
		if dead {
			v.doom(n)
		}
	}
	v.wantLook = true
}

// revive ends linkDown.
func (v *View) revive(l *link) {
	for n := range l.ways {
		for i := range v.ways[n].hops {
			if h := &v.ways[n].hops[i]; h.index == l.index {
				h.dead = false
			}
		}
	}
}

// flushObjects does to the next-hop objects of an interface that cannot send what the kernel does, without a message.
func (v *View) flushObjects(l *link) {
	for id := range l.objects {
		if o := v.objects[id]; o != nil && !o.blackhole {
			v.removeObject(o)
			v.wantLook = true
		}
	}
}

// through looks again at all that goes through an interface.
func (v *View) through(l *link) {
	v.reevaluate(l.ways)
	for id := range l.objects {
		if o := v.objects[id]; o != nil {
			v.objectChanged(o)
		}
	}
}

// outsThrough makes the outs of an interface told anew.
func (v *View) outsThrough(index int32) {
	for id := firstID; int(id) < len(v.outs); id++ {
		if o := &v.outs[id]; o.used && !o.group && o.key.index == index {
			v.change(id)
		}
	}
}

func (v *View) linkChanged(l *link) {
	if !l.changed && l.index > 0 {
		l.changed = true
		v.changedLinks = append(v.changedLinks, l)
	}
}

// tellLinks adds those that changed to the batch.
func (v *View) tellLinks(b *Batch) {
	for _, l := range v.changedLinks {
		l.changed = false
		now := Interface{Index: int(l.index)}
		if l.exists {
			now = Interface{Index: int(l.index), Name: l.name, MAC: l.mac, MTU: int(l.mtu),
				Up: l.up, Carrier: l.carrier}
			now.Forward[IPv4] = l.forward[IPv4]
			if all := v.links[netconfAll]; all != nil {
				now.Forward[IPv6] = all.forward[IPv6]
			}
			if l.slave {
				now.Forward = [2]bool{}
			}
		}
		if now != l.told {
			l.told = now
			b.Interfaces = append(b.Interfaces, now)
		}
		v.forgetLink(l)
	}
	v.changedLinks = v.changedLinks[:0]
}

// netconf takes in an RTM_NEWNETCONF.
func (v *View) netconf(m *netconfMessage) {
	l := v.linkOf(m.index)
	if m.forward >= 0 {
		l.forward[m.family] = m.forward != 0
	}
	was := l.ignoresDown[m.family]
	if m.ignoresDown >= 0 {
		l.ignoresDown[m.family] = m.ignoresDown != 0
	}
	if m.index == netconfAll {
		for _, l := range v.links {
			if l.exists {
				v.linkChanged(l)
			}
			if was != v.links[netconfAll].ignoresDown[m.family] {
				v.through(l)
			}
		}
		return
	}
	if was != l.ignoresDown[m.family] {
		v.through(l)
	}
	if l.exists {
		v.linkChanged(l)
	}
	v.forgetLink(l)
}

// newAddress and deleteAddress count an interface's IPv4 addresses.
func (v *View) newAddress(m *addressMessage) {
	l := v.linkOf(m.index)
	if _, there := v.addresses[*m]; !there {
		l.addresses++
	}
	v.addresses[*m] = v.addressEpoch
	if l.exists && l.up {
		v.revive(l)
		v.through(l)
	}
}

func (v *View) deleteAddress(m *addressMessage) {
	if _, there := v.addresses[*m]; !there {
		return
	}
	delete(v.addresses, *m)
	l := v.linkOf(m.index)
	if l.addresses--; l.addresses == 0 && l.exists {
		v.linkDown(l, true)
		v.through(l)
	}
	v.forgetLink(l)
}

// noSuchAddress does what the kernel does, without a message, when the router's last route to an own address is gone:
// routes with that address as their source go.
func (v *View) noSuchAddress(a address) {
	for n := range v.ways {
		if w := &v.ways[n]; w.used && w.family == IPv4 && w.source == a && a != (address{}) {
			v.doom(uint32(n))
		}
	}
}

func trimZero(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}
