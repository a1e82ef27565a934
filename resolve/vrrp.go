package resolve

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// withVRRP are the routers that take part in a virtual router, by their places.
func withVRRP(net *model.Network) map[int]bool {
	if !slices.ContainsFunc(net.Elements, func(e model.Element) bool { return len(e.VRRP) > 0 }) {
		return nil
	}
	all := map[int]bool{}
	l := newLayout(net)
	for i := range l.segments {
		s := &l.segments[i]
		for _, sw := range s.switches {
			for k := range net.Elements[sw].VRRP {
				for _, m := range l.partners(s, &net.Elements[sw].VRRP[k]) {
					all[m.element] = true
				}
			}
		}
	}
	return all
}

// partners are the routers of a segment that take part in a virtual router, each by its first interface there.
func (l *layout) partners(s *segment, v *model.VRRP) (all []member) {
	for _, m := range s.members {
		e := &l.net.Elements[m.element]
		_, named := v.Priority[e.Name]
		if e.Kind == model.Router && (named || len(v.Priority) == 0) &&
			!slices.ContainsFunc(all, func(o member) bool { return o.element == m.element }) {
			all = append(all, m)
		}
	}
	return all
}

// checkVRRP looks at what switches say of virtual routers.
func (ps *problems) checkVRRP(l *layout) {
	for i := range ps.net.Elements {
		e := &ps.net.Elements[i]
		if len(e.VRRP) == 0 {
			continue
		}
		at := slices.IndexFunc(l.segments, func(s segment) bool { return slices.Contains(s.switches, i) })
		switch {
		case e.Kind != model.Switch:
			ps.element(i, "vrrp", "a %s has no virtual routers: vrrp is for switches, whose segment has them", e.Kind)
		case len(e.VRRP) > model.MostVRRPOfSegment:
			ps.element(i, "vrrp", "it has %d virtual routers; at most %d are allowed", len(e.VRRP),
				model.MostVRRPOfSegment)
		case at < 0 && !ps.mayBeJoined(i):
			ps.element(i, "vrrp", "there are no routers on its segment that could take part in VRRP; link some to it")
		default:
			s := &segment{switches: []int{i}}
			if at >= 0 {
				s = &l.segments[at]
			}
			for k := range e.VRRP {
				ps.checkVirtual(l, s, i, k)
			}
		}
	}
}

// checkVirtual looks at one virtual router, the one with number k of the switch i.
func (ps *problems) checkVirtual(l *layout, s *segment, i, k int) {
	v := &ps.net.Elements[i].VRRP[k]
	report := func(key, format string, args ...any) {
		words := "vrrp"
		if len(ps.net.Elements[i].VRRP) > 1 {
			words += fmt.Sprintf(" number %d", k+1)
		}
		ps.element(i, "vrrp/"+key, "%s: %s", words, fmt.Sprintf(format, args...))
	}
	model.CheckKeys(v.Keys(), &v.VRRPKeys, func(key, problem string) { report(key, "%s", problem) })
	if v.Interval%(10*1e6) != 0 {
		report("interval", "interval %s is no whole number of hundredths of a second", v.Interval)
	}
	if v.Preempt != "" && v.Preempt != model.No && v.Preempt != model.Yes {
		report("preempt", "preempt %q is neither true nor false", string(v.Preempt))
	}
	ps.checkVirtualAddress(l, s, v, report)
	for _, sw := range s.switches { // of two with the same number the later one is told
		for o := range ps.net.Elements[sw].VRRP {
			other := &ps.net.Elements[sw].VRRP[o]
			if sw > i || sw == i && o >= k {
				continue
			}
			if v.ID != 0 && v.ID == other.ID {
				report("id", "another virtual router of the segment has the number %d as well", v.ID)
			}
			if v.Address.IsValid() && v.Address == other.Address {
				report("address", "another virtual router of the segment has the address %s as well", v.Address)
			}
		}
	}
	on := func(name string) bool {
		return slices.ContainsFunc(s.members, func(m member) bool { return ps.net.Elements[m.element].Name == name })
	}
	for _, name := range slices.Sorted(maps.Keys(v.Priority)) {
		if p := v.Priority[name]; p < model.MinVRRPPriority || p > model.MaxVRRPPriority {
			report("priority", "the priority %d of %s is not between %d and %d", p, name, model.MinVRRPPriority,
				model.MaxVRRPPriority)
		}
		at, is := l.elements[name]
		switch {
		case !is && ps.mayBe(name), is && ps.mayReach(l, at, i):
		case !is:
			report("priority", "there is no router %s%s", name, ps.near(name))
		case ps.net.Elements[at].Kind != model.Router:
			report("priority", "%s is a %s; routers take part in VRRP", name, ps.net.Elements[at].Kind)
		case !on(name):
			report("priority", "router %s is not on the segment; link it to the switch", name)
		}
	}
	partners := l.partners(s, v)
	if len(partners) == 0 && len(v.Priority) == 0 && !ps.ofElement(i, "vrrp") && !ps.mayBeJoined(i) {
		report("priority", "there are no routers on the segment that could take part; link some to the switch")
	}
	for _, m := range partners {
		e := &ps.net.Elements[m.element]
		switch {
		case ps.ofElement(m.element, "software"), ps.ofElement(i, "vrrp"):
		case e.Software == model.SoftwareBIRD:
			report("priority", "router %s runs BIRD, which speaks no VRRP; FRR does: take software: frr for it, or "+
				"leave it out of priority", e.Name)
		case e.Software != model.SoftwareFRR:
			report("priority", "router %s has software: %s, which speaks no VRRP; take frr for it, or leave it out of "+
				"priority", e.Name, e.Software)
		}
	}
}

// mayReach tells whether an element may be on a switch's segment by a link that the document lacks: one of its own, or
// one between that switch and another one whose segment it is on.
func (ps *problems) mayReach(l *layout, element, sw int) bool {
	if ps.unknown == nil || !ps.mayBeJoined(sw) {
		return false
	}
	return ps.mayBeJoined(element) || slices.ContainsFunc(l.segments, func(s segment) bool {
		return slices.ContainsFunc(s.members, func(m member) bool { return m.element == element }) &&
			slices.ContainsFunc(s.switches, ps.mayBeJoined)
	})
}

// checkVirtualAddress looks at where a virtual router's address is.
func (ps *problems) checkVirtualAddress(l *layout, s *segment, v *model.VRRP, report func(string, string, ...any)) {
	a := v.Address
	switch {
	case !a.IsValid():
		return
	case a.Is6():
		report("address", "the address %s is of IPv6; virtual routers have one of IPv4", a)
		return
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast():
		report("address", "%s is no address that a virtual router can have", a)
		return
	}
	for _, p := range l.stated(*s) {
		switch first, last := hostNumbers(p); {
		case !p.IsValid() || p.Addr().Is6():
		case !p.Contains(a):
			report("address", "%s is outside %s, the segment's prefix", a, p)
		case a.Less(nth(p, first)) || nth(p, last).Less(a):
			report("address", "%s is the network or broadcast address of %s; %s is its last usable one", a, p,
				nth(p, last))
		}
	}
	for i := range ps.net.Elements {
		e := &ps.net.Elements[i]
		for _, f := range e.Interfaces {
			if slices.ContainsFunc(f.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
				report("address", "%s is the address of %s:%s; a virtual router's belongs to no interface", a, e.Name,
					f.Name)
			}
		}
		if slices.ContainsFunc(e.Loopback, func(p netip.Prefix) bool { return p.Addr() == a }) {
			report("address", "%s is the address of %s's loopback; a virtual router's belongs to nobody", a, e.Name)
		}
	}
}

// virtualsOf calls f for each virtual router of a segment; it may change it.
func (r *resolver) virtualsOf(s *segment, f func(v *model.VRRP)) {
	for _, sw := range s.switches {
		for k := range r.out.Elements[sw].VRRP {
			f(&r.out.Elements[sw].VRRP[k])
		}
	}
}

func (r *resolver) virtuals(s *segment) (n int) {
	r.virtualsOf(s, func(*model.VRRP) { n++ })
	return n
}

// virtualOf is the segment's first virtual router; nil where there is none.
func (r *resolver) virtualOf(s *segment) (first *model.VRRP) {
	r.virtualsOf(s, func(v *model.VRRP) {
		first = cmp.Or(first, v)
	})
	return first
}

// virtualAddresses gives those virtual routers of a segment an address that state none: from the end of its subnet,
// where nobody else's is soon. Nobody is given it afterwards.
func (r *resolver) virtualAddresses(s segment, subnet netip.Prefix) {
	if subnet.Addr().Is6() {
		return
	}
	first, next := hostNumbers(subnet)
	r.virtualsOf(&s, func(v *model.VRRP) {
		for ; !v.Address.IsValid() && next >= first; next-- {
			a := nth(subnet, next)
			at := spaced{r.spaceOf(&s), a}
			if _, stated := r.explicit[at]; !stated {
				v.Address = a
				r.explicit[at] = struct{}{}
			}
		}
	})
}

// virtualRouters numbers the virtual routers, and tells the routers in which they take part.
func (r *resolver) virtualRouters() error {
	for i := range r.segments {
		s := &r.segments[i]
		used := map[int]bool{}
		r.virtualsOf(s, func(v *model.VRRP) { used[v.ID] = true })
		next := 1
		r.virtualsOf(s, func(v *model.VRRP) {
			for ; v.ID == 0; next++ {
				if !used[next] {
					v.ID, used[next] = next, true
				}
			}
			if !v.Address.IsValid() {
				return // Check tells
			}
			for _, m := range r.partners(s, v) {
				f := r.interfaceOf(m)
				priority := model.UsualVRRPPriority
				if p, named := v.Priority[r.out.Elements[m.element].Name]; named {
					priority = p
				}
				f.VRRP = append(f.VRRP, model.VirtualRouter{ID: v.ID, Address: v.Address, Priority: priority,
					Interval: cmp.Or(v.Interval, model.UsualVRRPInterval), Preempt: v.Preempt != model.No,
					Device: model.DeviceName(fmt.Sprintf("vrrp%d-%s", v.ID, f.LinuxName()))})
			}
		})
	}
	return nil
}

// virtualPeers are the virtual routers that a member of a segment reaches there: those in which it takes no part.
func (r *resolver) virtualPeers(s *segment, m member) (all []model.LinkPeer) {
	r.virtualsOf(s, func(v *model.VRRP) {
		own := func(o model.VirtualRouter) bool { return o.ID == v.ID }
		if !v.Address.IsValid() || slices.ContainsFunc(r.out.Elements[m.element].Interfaces,
			func(f model.ResolvedInterface) bool {
				return f.Link == r.interfaceOf(m).Link && slices.ContainsFunc(f.VRRP, own)
			}) {
			return
		}
		mac := model.VRRPMAC(v.ID)
		all = append(all, model.LinkPeer{MAC: net.HardwareAddr(mac[:]).String(), Addresses: []netip.Addr{v.Address}})
	})
	return all
}

// checkVirtualRouters finds what only the addresses that were chosen show.
func (ps *problems) checkVirtualRouters(n *model.Resolved) {
	for i := range n.Elements {
		e := &n.Elements[i]
		for _, f := range e.Interfaces {
			for _, v := range f.VRRP {
				has := slices.ContainsFunc(f.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() })
				within := slices.ContainsFunc(f.Addresses, func(p netip.Prefix) bool { return p.Contains(v.Address) })
				switch {
				case !has:
					ps.element(i, "interfaces/"+f.Name, "interface %s: VRRP needs an address of IPv4 there", f.Name)
				case !within:
					ps.element(i, "interfaces/"+f.Name, "interface %s: %s, the address of the virtual router, is on "+
						"none of its subnets (%s); write at the switch what the segment's is, like prefixes: %s",
						f.Name, v.Address, join(f.Addresses), netip.PrefixFrom(v.Address, 24).Masked())
				}
			}
		}
		if e.Kind != model.Switch {
			continue
		}
		for _, v := range e.VRRP {
			if !v.Address.IsValid() {
				ps.element(i, "vrrp", "vrrp: the segment has no subnet of IPv4, or no address of it is left; state an "+
					"address")
			}
		}
	}
}

func join(prefixes []netip.Prefix) (words string) {
	for i, p := range prefixes {
		words += []string{"", ", "}[min(i, 1)] + p.String()
	}
	return words
}

// checkVirtualExpected looks at what is expected of a router's part in VRRP.
func (ps *problems) checkVirtualExpected(i int, x *model.Expectation, l *layout,
	report func(format string, args ...any)) {
	e := &ps.net.Elements[i]
	switch {
	case e.Kind == model.Switch: // that is told
		return
	case e.Kind != model.Router:
		report("%s is a host, which takes no part in VRRP", e.Name)
		return
	case ps.ofElement(i, "software") || ps.mayBeJoined(i):
		return
	}
	part, here := false, false
	for k := range l.segments {
		for _, sw := range l.segments[k].switches {
			if ps.ofElement(sw, "vrrp") {
				return
			}
			for n := range ps.net.Elements[sw].VRRP {
				v := &ps.net.Elements[sw].VRRP[n]
				if slices.ContainsFunc(l.partners(&l.segments[k], v), func(m member) bool { return m.element == i }) {
					part = true
					here = here || !x.Via.IsValid() || x.Via == v.Address || !v.Address.IsValid()
				}
			}
		}
	}
	switch {
	case len(e.Config) > 0: // which may say more
	case !part:
		report("%s takes no part in VRRP; write vrrp: {priority: {%s: 200}} at its switch", e.Name, e.Name)
	case !here:
		report("%s takes no part in a virtual router with the address %s", e.Name, x.Via)
	}
}

// LeaveVRRP takes out of a network's virtual routers who is not on their segments, as its link was left out of the
// network, and those in which nobody is left.
func LeaveVRRP(net *model.Network) {
	whole := WithInterfaces(*net)
	l := newLayout(&whole)
	for i := range net.Elements {
		var kept []model.VRRP
		at := slices.IndexFunc(l.segments, func(s segment) bool { return slices.Contains(s.switches, i) })
		for _, v := range net.Elements[i].VRRP {
			if at < 0 {
				continue
			}
			partners := l.partners(&l.segments[at], &v)
			if named := v.Priority; len(named) > 0 {
				v.Priority = map[string]int{}
				for _, m := range partners {
					v.Priority[whole.Elements[m.element].Name] = named[whole.Elements[m.element].Name]
				}
			}
			if len(partners) > 0 {
				kept = append(kept, v)
			}
		}
		net.Elements[i].VRRP = kept
	}
}
