package resolve

import (
	"cmp"
	"net"
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// loopbacks gives every router with a routing protocol its identifier, and loopback addresses if it states none.
func (r *resolver) loopbacks() error {
	v4, v6 := Families(r.net)
	taken := map[netip.Addr]struct{}{}
	links := map[netip.Addr]struct{}{} // addresses on links: a document may use prefixes of the loopbacks' pools there
	for i := range r.out.Elements {
		for _, f := range r.out.Elements[i].Interfaces {
			for _, a := range f.Addresses {
				links[a.Addr()] = struct{}{}
			}
		}
	}
	clear := func(a netip.Addr) bool {
		_, four := links[a]
		_, six := links[loopback6(a)]
		return !four && !six
	}
	wants := func(e *model.ResolvedElement) bool {
		return e.Kind == model.Router && len(e.Spoken()) > 0
	}
	for i := range r.out.Elements {
		e := &r.out.Elements[i]
		taken[e.RouterID] = struct{}{}
		if had := r.was.Loopbacks[e.Name]; len(had) > 0 && wants(e) {
			taken[had[0].Addr()] = struct{}{}
		}
	}
	next := uint64(1)
	r.now.Loopbacks = map[string][]netip.Prefix{}
	for i := range r.out.Elements {
		e := &r.out.Elements[i]
		stated4 := slices.IndexFunc(e.Loopback, func(p netip.Prefix) bool { return p.Addr().Is4() })
		if !wants(e) || stated4 >= 0 || e.RouterID.IsValid() && len(e.Loopback) > 0 {
			if wants(e) && !e.RouterID.IsValid() {
				e.RouterID = e.Loopback[stated4].Addr()
			}
			continue
		}
		// The number of the IPv4 loopback is the router's number in every family, and its identifier.
		own := r.was.Loopbacks[e.Name]
		if len(own) == 0 || !LoopbackPool4.Contains(own[0].Addr()) || r.statedAddr(i, own[0].Addr()) ||
			!clear(own[0].Addr()) {
			space := r.vrfs.spaces[table{i, ""}]
			a, ok := r.free(space, LoopbackPool4, &next, 1<<16-2, taken)
			for ok && !clear(a) {
				a, ok = r.free(space, LoopbackPool4, &next, 1<<16-2, taken)
			}
			if !ok {
				return model.ProblemOfElement(e, "loopback",
					"%s has no loopback address left; state one", LoopbackPool4)
			}
			own = []netip.Prefix{netip.PrefixFrom(a, 32)}
		}
		own = slices.Clone(own[:1])
		if v6 {
			own = append(own, netip.PrefixFrom(loopback6(own[0].Addr()), 128))
		}
		r.now.Loopbacks[e.Name] = own
		if !e.RouterID.IsValid() {
			e.RouterID = own[0].Addr()
		}
		if len(e.Loopback) == 0 {
			if !v4 {
				own = own[1:]
			}
			e.Loopback = slices.Clone(own)
		}
	}
	if len(r.now.Loopbacks) == 0 {
		r.now.Loopbacks = nil
	}
	return nil
}

// loopback6 is the IPv6 loopback that goes with an IPv4 one.
func loopback6(a netip.Addr) netip.Addr {
	b := a.As4()
	return nth(LoopbackPool6, uint64(b[2])<<8|uint64(b[3]))
}

func (r *resolver) statedAddr(i int, a netip.Addr) bool {
	_, ok := r.explicit[r.ownPlace(i, a)]
	return ok
}

// neighbours tells hosts their gateways and BGP speakers their neighbours and networks.
func (r *resolver) neighbours() {
	bgp := map[int]*model.BGP{} // copies, for those whose neighbours are chosen here
	networks := map[int]bool{}
	for i := range r.out.Elements {
		e := &r.out.Elements[i]
		if e.Routing.BGP == nil {
			continue
		}
		b := *e.Routing.BGP
		e.Routing.BGP = &b
		if len(b.Neighbors) == 0 {
			bgp[i] = &b
		}
		if len(b.Networks) == 0 {
			networks[i] = true
			for _, p := range e.Loopback {
				b.Networks = append(b.Networks, p.Masked())
			}
		}
	}
	for _, s := range r.segments {
		over := r.sessionOverInterfaces(s, bgp)
		hosts := s.edge || slices.ContainsFunc(s.members,
			func(m member) bool { return r.out.Elements[m.element].Kind == model.Host })
		for _, v6 := range []bool{false, true} {
			r.gateways(s, v6)
			for _, m := range s.members {
				if r.vrfOf(m) != "" {
					continue // BGP is spoken in no VRF
				}
				own, ok := r.address(m, v6)
				if b := r.out.Elements[m.element].Routing.BGP; b != nil && ok && hosts && networks[m.element] &&
					!slices.Contains(b.Networks, own.Masked()) {
					b.Networks = append(b.Networks, own.Masked())
				}
				b := bgp[m.element]
				if b == nil || !ok || over {
					continue
				}
				for _, o := range s.members {
					far := &r.out.Elements[o.element]
					a, ok := r.address(o, v6)
					if o.element == m.element || far.Routing.BGP == nil || !ok || !own.Contains(a.Addr()) ||
						r.vrfOf(o) != "" {
						continue
					}
					b.Neighbors = append(b.Neighbors,
						model.BGPNeighbor{Address: a.Addr(), AS: far.Routing.BGP.AS, Name: far.Name})
				}
			}
		}
	}
	r.atInterfaces()
	r.clients()
	r.policies()
}

// sessionOverInterfaces tells whether the session on a segment is over the interfaces at its ends. It is given to those
// whose neighbours are chosen here.
func (r *resolver) sessionOverInterfaces(s segment, chosen map[int]*model.BGP) bool {
	if !r.meetOverInterfaces(&s) {
		return false
	}
	for k, m := range s.members {
		far := &r.out.Elements[s.members[1-k].element]
		if b := chosen[m.element]; b != nil && far != &r.out.Elements[m.element] {
			b.Neighbors = append(b.Neighbors, model.BGPNeighbor{Interface: r.interfaceOf(m).Name,
				AS: far.Routing.BGP.AS, Name: far.Name})
		}
	}
	return true
}

// atInterfaces tells sessions over interfaces which address is at their far ends: that which the kernel gives it by its
// MAC address.
func (r *resolver) atInterfaces() {
	for i := range r.out.Elements {
		e := &r.out.Elements[i]
		if e.Routing.BGP == nil || !slices.ContainsFunc(e.Routing.BGP.Neighbors, overInterface) {
			continue
		}
		b := *e.Routing.BGP
		e.Routing.BGP, b.Neighbors = &b, slices.Clone(b.Neighbors)
		for k := range b.Neighbors {
			n := &b.Neighbors[k]
			at := slices.IndexFunc(e.Interfaces, func(f model.ResolvedInterface) bool { return f.Name == n.Interface })
			if at < 0 || e.Interfaces[at].Far == nil || e.Interfaces[at].Far.Kind != model.Router {
				continue
			}
			end := model.End{Element: e.Interfaces[at].Far.Element, Interface: e.Interfaces[at].Far.Interface}
			far := &r.out.Elements[r.elements[end.Element]]
			n.Name = cmp.Or(n.Name, far.Name)
			mac, err := net.ParseMAC(far.Interfaces[r.interfaces[end]].MAC)
			if err == nil && len(mac) == 6 {
				n.Address = model.LinkLocal([6]byte(mac)).WithZone(e.Interfaces[at].LinuxName())
			}
		}
	}
}

func overInterface(n model.BGPNeighbor) bool { return n.Interface != "" }

// policies gives sessions the policies that are said of whom they are with.
func (r *resolver) policies() {
	for i := range r.out.Elements {
		b := r.out.Elements[i].Routing.BGP // a copy since neighbours, as its Neighbors are, unless they are stated
		if b == nil || len(b.Toward) == 0 {
			continue
		}
		b.Neighbors = slices.Clone(b.Neighbors)
		for k := range b.Neighbors {
			n := &b.Neighbors[k]
			n.In, n.Out = cmp.Or(n.In, b.Toward[n.Name].In), cmp.Or(n.Out, b.Toward[n.Name].Out)
		}
		b.Toward = nil // each session has it by now
	}
}

// clients tells reflectors who of their neighbours is a client of theirs: whoever is of the same autonomous system, and
// no reflector, also if a document states him.
func (r *resolver) clients() {
	reflectors := map[netip.Addr]bool{} // sessions over interfaces have none
	for i := range r.out.Elements {
		e := &r.out.Elements[i]
		if e.Routing.BGP == nil || !e.Routing.BGP.Reflector {
			continue
		}
		for _, p := range e.Loopback {
			reflectors[p.Addr()] = true
		}
		for _, f := range e.Interfaces {
			for _, p := range f.Addresses {
				reflectors[p.Addr()] = true
			}
		}
	}
	for i := range r.out.Elements {
		b := r.out.Elements[i].Routing.BGP
		if b == nil || !b.Reflector {
			continue
		}
		b.Neighbors = slices.Clone(b.Neighbors)
		for k := range b.Neighbors {
			n := &b.Neighbors[k]
			n.Client = n.Client || n.AS == b.AS && !reflectors[n.Address.WithZone("")]
		}
	}
}

// gateways makes the segment's virtual router, or its first router where there is none, the gateway of those hosts on
// it that have none of the family.
func (r *resolver) gateways(s segment, v6 bool) {
	first := netip.Prefix{}
	if v := r.virtualOf(&s); v != nil && !v6 {
		first = netip.PrefixFrom(v.Address, v.Address.BitLen())
	}
	for _, m := range s.members {
		if first.IsValid() {
			break
		}
		if a, ok := r.address(m, v6); ok && r.out.Elements[m.element].Kind == model.Router {
			first = a
			break
		}
	}
	if !first.IsValid() {
		return
	}
	for _, m := range s.members {
		e := &r.out.Elements[m.element]
		if e.Kind != model.Host || slices.ContainsFunc(e.Gateways, func(a netip.Addr) bool { return a.Is6() == v6 }) {
			continue
		}
		if own, ok := r.address(m, v6); ok && own.Contains(first.Addr()) {
			e.Gateways = append(slices.Clone(e.Gateways), first.Addr())
		}
	}
}

// address is the member's first address of the family that is not link-local.
func (r *resolver) address(m member, v6 bool) (netip.Prefix, bool) {
	for _, a := range r.interfaceOf(m).Addresses {
		if a.Addr().Is6() == v6 && !a.Addr().IsLinkLocalUnicast() {
			return a, true
		}
	}
	return netip.Prefix{}, false
}
