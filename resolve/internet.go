package resolve

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// checkInternet looks at an edge to the internet. The node's ports are shared: with the tunnels and the probes between
// nodes, with connections from inside (from model.NATPorts on), and with the network's other edges.
func (ps *problems) checkInternet(i int, l *layout) {
	e := &ps.net.Edges[i]
	if e.Device != "" || e.VLAN != 0 || e.Trunk {
		ps.edge(i, "internet", "it has a device, VLAN or trunk and internet; it leads to one of them")
	}
	for k, f := range e.Internet.Forwards {
		report := func(format string, args ...any) {
			ps.edge(i, "internet/forwards", "forward %s: "+format, append([]any{f}, args...)...)
		}
		switch at, ok := l.elements[f.Element]; {
		case !ok && ps.mayBe(f.Element):
		case !ok:
			report("there is no router or host %s%s", f.Element, ps.near(f.Element))
		case ps.net.Elements[at].Kind == model.Switch:
			report("%s is a switch, which has no address; name a host or a router", f.Element)
		}
		switch {
		case f.Network() != model.TCP && f.Network() != model.UDP:
			report("the protocol %q is unknown; there are tcp and udp", f.Protocol)
		case f.Port == 0 || f.To == 0:
			report("a port is between 1 and 65535")
		case f.Port >= model.NATPorts:
			report("%d and the ports above are kept for connections from inside; take a lower one", model.NATPorts)
		case f.Network() == model.UDP && f.Port == model.TunnelPort:
			report("UDP port %d is that of the tunnels between nodes; take another", f.Port)
		case f.Network() == model.UDP && f.Port == model.LinkProbePort:
			report("UDP port %d is that of the probes between nodes; take another", f.Port)
		}
		for n := range ps.net.Edges[:i+1] {
			o := ps.net.Edges[n].Internet
			if o == nil {
				continue
			}
			before := o.Forwards
			if n == i {
				before = before[:k]
			}
			for _, other := range before {
				if f.Collides(other) {
					report("edge %s already forwards this port: %s", ps.net.Edges[n].Name, other)
				}
			}
		}
	}
}

// gateway gives the edge an address on a subnet of its segment.
func (r *resolver) gateway(space, edge int, subnet netip.Prefix, used map[netip.Addr]struct{},
	first, last uint64) bool {
	e := &r.out.Edges[edge]
	key := model.EdgeKey(e.Name)
	a := netip.Addr{}
	for _, p := range r.was.Addresses[key] {
		_, stated := r.explicit[spaced{space, p.Addr()}]
		_, taken := used[p.Addr()]
		if p.Masked() == subnet && !stated && !taken {
			a = p.Addr()
		}
	}
	if !a.IsValid() {
		var ok bool
		if a, ok = r.free(space, subnet, &first, last, used); !ok {
			return false
		}
	}
	used[a] = struct{}{}
	p := netip.PrefixFrom(a, subnet.Bits())
	r.now.Addresses[key] = append(r.now.Addresses[key], p)
	e.Internet.Gateway = append(e.Internet.Gateway, p)
	return true
}

// internets gives the internet edges what they must know of the network, and the elements on their segments the way
// out.
func (r *resolver) internets() {
	var sources []netip.Prefix
	for _, s := range r.segments {
		for _, n := range s.internet {
			in := r.out.Edges[n].Internet
			for _, v6 := range []bool{false, true} {
				r.wayOut(s, in, v6)
			}
			if sources == nil {
				sources = r.prefixes()
			}
			in.Sources = sources
			for _, f := range in.Forwards {
				if in.Targets == nil {
					in.Targets = map[string][]netip.Addr{}
				}
				in.Targets[f.Element] = r.targets(f.Element)
			}
		}
	}
}

// wayOut makes the edge the default gateway of the segment's routers, or of its hosts if it has no router. The first
// router is the edge's way into the rest of the network.
func (r *resolver) wayOut(s segment, in *model.ResolvedInternet, v6 bool) {
	at := slices.IndexFunc(in.Gateway, func(p netip.Prefix) bool { return p.Addr().Is6() == v6 })
	if at < 0 {
		return
	}
	gateway := in.Gateway[at]
	routed := false
	for _, m := range s.members {
		own, ok := r.address(m, v6)
		if ok && r.out.Elements[m.element].Kind == model.Router && gateway.Contains(own.Addr()) {
			if !routed {
				in.Via = append(in.Via, own.Addr())
			}
			routed = true
		}
	}
	for _, m := range s.members {
		e := &r.out.Elements[m.element]
		own, ok := r.address(m, v6)
		if !ok || !gateway.Contains(own.Addr()) || e.Kind == model.Host && routed || hasDefault(e, v6) {
			continue
		}
		e.Gateways = append(slices.Clone(e.Gateways), gateway.Addr())
	}
}

// hasDefault returns whether the element has a default route of the family, as a gateway or as a static route.
func hasDefault[I any](e *model.ElementOf[I], v6 bool) bool {
	return slices.ContainsFunc(e.Gateways, func(a netip.Addr) bool { return a.Is6() == v6 }) ||
		slices.ContainsFunc(e.Routes, func(x model.Route) bool { return x.To.Bits() == 0 && x.To.Addr().Is6() == v6 })
}

// prefixes are all prefixes of the network, stated or chosen, without those that another one contains.
func (r *resolver) prefixes() []netip.Prefix {
	var all []netip.Prefix
	add := func(p netip.Prefix) {
		if p.IsValid() && p.Bits() > 0 && !p.Addr().IsLinkLocalUnicast() {
			all = append(all, p.Masked())
		}
	}
	for i := range r.out.Elements {
		e := &r.out.Elements[i]
		for _, f := range e.Interfaces {
			for _, a := range f.Addresses {
				add(a)
			}
		}
		for _, p := range e.Loopback {
			add(p)
		}
		routes := e.Routes
		for _, name := range e.VRFNames() {
			routes = slices.Concat(routes, e.VRFs[name].Routes)
		}
		for _, x := range routes {
			if x.Type == "" || x.Type == model.RouteUnicast {
				add(x.To)
			}
		}
		if e.Routing.BGP != nil {
			for _, p := range e.Routing.BGP.Networks {
				add(p)
			}
		}
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	out := all[:0]
	for _, p := range all {
		if n := len(out); n == 0 || !out[n-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// targets are the addresses by which an element is reached from outside: the first of each family, with those of
// interfaces before those of lo.
func (r *resolver) targets(name string) []netip.Addr {
	var out []netip.Addr
	i, ok := r.elements[name]
	if !ok {
		return nil
	}
	e := &r.out.Elements[i]
	add := func(p netip.Prefix) {
		a := p.Addr()
		if !a.IsLinkLocalUnicast() && !slices.ContainsFunc(out, func(o netip.Addr) bool { return o.Is4() == a.Is4() }) {
			out = append(out, a)
		}
	}
	for _, f := range e.Interfaces {
		for _, a := range f.Addresses {
			add(a)
		}
	}
	for _, p := range e.Loopback {
		add(p)
	}
	return out
}
