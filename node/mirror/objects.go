package mirror

import "slices"

// object is a next-hop object.
type object struct {
	id        uint32
	hop       hop
	blackhole bool
	odd       bool
	fdb       bool
	grouped   bool
	group     []objectMember
	groups    map[uint32]struct{} // that it is a member of
	ways      map[uint32]struct{} // through it
	out       ID
	seen      uint16
}

// newObject takes in an RTM_NEWNEXTHOP. Objects keep their nature when they are replaced: single or group.
func (v *View) newObject(m *objectMessage) {
	o := v.objects[m.id]
	if o != nil && o.grouped != m.grouped {
		v.removeObject(o)
		o = nil
	}
	if o == nil {
		o = &object{id: m.id, grouped: m.grouped, groups: map[uint32]struct{}{}, ways: map[uint32]struct{}{}}
		if m.grouped {
			o.out = v.newGroup(nil, true)
		} else {
			o.out = v.objectOut()
		}
		v.objects[m.id] = o
		for n := range v.ways { // routes that came first, which happens when messages were missed
			if w := &v.ways[n]; w.used && w.object == m.id {
				o.ways[uint32(n)] = struct{}{}
			}
		}
	}
	o.seen = v.objectEpoch
	o.fdb = m.fdb
	if m.grouped {
		v.setGroup(o, m.group)
	} else {
		if o.hop.index != 0 {
			l := v.linkOf(o.hop.index)
			delete(l.objects, o.id)
			v.forgetLink(l)
		}
		o.hop, o.blackhole, o.odd = m.hop, m.blackhole, m.odd
		if o.hop.index != 0 {
			v.linkOf(o.hop.index).objects[o.id] = struct{}{}
		}
		v.setKey(o.out, outKey{o.hop.gateway, o.hop.index, 0, o.hop.kind}, o.blackhole, o.odd)
	}
	v.objectChanged(o)
}

func (v *View) setGroup(o *object, group []objectMember) {
	for _, m := range o.group {
		if member := v.objects[m.id]; member != nil {
			delete(member.groups, o.id)
		}
	}
	o.group = slices.Clone(group)
	for _, m := range o.group {
		if member := v.objects[m.id]; member != nil {
			member.groups[o.id] = struct{}{}
		} else {
			v.wantLook = true
		}
	}
}

// objectChanged looks again at what depends on an object.
func (v *View) objectChanged(o *object) {
	if o.grouped {
		members := v.members[:0]
		for _, m := range o.group {
			// A group of IPv4 and IPv6 members: usable is looked at by the gateway's family.
			if member := v.objects[m.id]; member != nil && !member.grouped && v.objectUsable(member.family(), member) {
				id := member.out
				if member.hop.kind == gatewayNone && !member.blackhole && !member.odd {
					id = connectedID
				}
				members = append(members, Member{id, int(m.weight)})
			}
		}
		v.members = members
		if len(members) > v.limits.Members {
			members = members[:0]
		}
		v.setMembers(o.out, members)
	}
	v.reevaluate(o.ways)
	for id := range o.groups {
		if g := v.objects[id]; g != nil {
			v.objectChanged(g)
		}
	}
}

func (o *object) family() Family {
	if o.hop.kind == gateway6 {
		return IPv6
	}
	return IPv4
}

// removeObject does what the kernel does when an object goes: routes through it go without a word, groups lose it, and
// those that have no other go with it.
func (v *View) removeObject(o *object) {
	if v.objects[o.id] != o {
		return
	}
	delete(v.objects, o.id)
	if o.hop.index != 0 {
		l := v.linkOf(o.hop.index)
		delete(l.objects, o.id)
		v.forgetLink(l)
	}
	for _, m := range o.group {
		if member := v.objects[m.id]; member != nil {
			delete(member.groups, o.id)
		}
	}
	for n := range o.ways {
		v.doom(n)
	}
	for id := range o.groups {
		g := v.objects[id]
		if g == nil {
			continue
		}
		g.group = slices.DeleteFunc(g.group, func(m objectMember) bool { return m.id == o.id })
		if len(g.group) == 0 {
			v.removeObject(g)
		} else {
			v.objectChanged(g)
		}
	}
	v.unref(o.out)
}
