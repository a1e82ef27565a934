package mirror

import "slices"

// object is a next-hop object.
type object struct {
	id        uint32
	hop       hop // of a single one
	blackhole bool
	odd       bool // has an encapsulation, or something unknown
	fdb       bool // for a bridge's table: no route may use it
	grouped   bool // it is a group, now and always
	group     []objectMember
	out       ID
	seen      uint16 // the epoch in which the kernel told of it last
}

// uses is who refers to an object, whether the object exists or not: a route may be told before the object that it
// names.
type uses struct {
	groups map[uint32]struct{}
	ways   map[uint32]struct{}
}

func (v *View) usesOf(id uint32) *uses {
	u := v.uses[id]
	if u == nil {
		u = &uses{map[uint32]struct{}{}, map[uint32]struct{}{}}
		v.uses[id] = u
	}
	return u
}

func (v *View) forgetUses(id uint32) {
	if u := v.uses[id]; u != nil && len(u.groups)+len(u.ways) == 0 {
		delete(v.uses, id)
	}
}

// newObject takes in an RTM_NEWNEXTHOP. When an object is replaced it stays what it was, single or group; the kernel
// refuses anything else.
func (v *View) newObject(m *objectMessage) {
	o := v.objects[m.id]
	if o != nil && o.grouped != m.grouped {
		v.removeObject(o)
		o = nil
	}
	if o == nil {
		o = &object{id: m.id, grouped: m.grouped}
		if m.grouped {
			o.out = v.newGroup(nil, true)
		} else {
			o.out = v.objectOut()
		}
		v.objects[m.id] = o
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

// setGroup changes a group's members, and who is told when they change.
func (v *View) setGroup(o *object, group []objectMember) {
	v.leaveMembers(o)
	o.group = slices.Clone(group)
	for _, m := range o.group {
		v.usesOf(m.id).groups[o.id] = struct{}{}
	}
}

func (v *View) leaveMembers(o *object) {
	for _, m := range o.group {
		delete(v.usesOf(m.id).groups, o.id)
		v.forgetUses(m.id)
	}
}

// objectChanged looks again at what depends on an object.
func (v *View) objectChanged(o *object) {
	if o.grouped {
		members := v.members[:0]
		for _, m := range o.group {
			// A group may have IPv4 and IPv6 members. Whether a member is usable depends on its own gateway's family,
			// not on the group's.
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
	u := v.uses[o.id]
	if u == nil {
		return
	}
	v.reevaluate(u.ways)
	if o.grouped {
		return // groups can't be members
	}
	for id := range u.groups {
		if g := v.objects[id]; g != nil && g.grouped {
			v.objectChanged(g)
		}
	}
}

// family is the one by whose settings the kernel decides whether the object can be used: that of its gateway.
func (o *object) family() Family {
	if o.hop.kind == gateway6 {
		return IPv6
	}
	return IPv4
}

// removeObject does what the kernel does when an object goes: routes through it go without a message, groups lose it,
// and groups without any other member go with it.
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
	v.leaveMembers(o)
	if u := v.uses[o.id]; u != nil {
		v.removeUses(o, u)
	}
	v.unref(o.out)
}

// removeUses does to routes and groups what the kernel does when an object that they use goes.
func (v *View) removeUses(o *object, u *uses) {
	for n := range u.ways {
		v.doom(n)
	}
	for id := range u.groups {
		g := v.objects[id]
		if g == nil {
			continue
		}
		delete(u.groups, id)
		g.group = slices.DeleteFunc(g.group, func(m objectMember) bool { return m.id == o.id })
		if len(g.group) == 0 {
			v.removeObject(g)
		} else {
			v.objectChanged(g)
		}
	}
	v.forgetUses(o.id)
}
