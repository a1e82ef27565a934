package resolve

import (
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// checkMPLS looks at the static label-switched paths that elements are on.
func (ps *problems) checkMPLS(l *layout) {
	hops := l.hops()
	for i := range ps.net.Elements {
		if len(ps.net.Elements[i].MPLS) > 0 {
			ps.checkPaths(i, l, hops)
		}
	}
}

// checkPaths looks at what a router does with labels (RFC 3031): it swaps or takes off the one that comes in, or puts
// some on packets to a prefix.
func (ps *problems) checkPaths(i int, l *layout, hops map[[2]int][]hop) {
	e := &ps.net.Elements[i]
	switch {
	case e.Kind != model.Router:
		ps.element(i, "mpls", "a %s switches no labels: mpls is for routers", e.Kind)
		return
	case e.Forwarding != model.ForwardGuest && !ps.ofElement(i, "forwarding"):
		ps.element(i, "mpls", "packets with labels are forwarded by the router's own stack: mpls takes forwarding: "+
			"guest, and not %s", e.Forwarding)
	}
	in, to := map[int]bool{}, map[netip.Prefix]bool{}
	for _, r := range e.Routes {
		to[r.To] = true
	}
	for _, p := range e.MPLS {
		switch {
		case p.NextHop.IsValid() || p.Interface != "":
			ps.element(i, "mpls", "mpls %s: its next hop follows from via, and is not stated; leave out nextHop and "+
				"interface", p.Described())
			continue
		case p.In != 0 && p.To.IsValid(), p.In == 0 && !p.To.IsValid():
			ps.element(i, "mpls", "mpls %s: it needs either the label in: or the prefix to:", p)
			continue
		case p.To.IsValid() && p.To != p.To.Masked():
			ps.element(i, "mpls", "mpls %s: %s has bits beyond its length; its prefix is %s", p, p.To, p.To.Masked())
		case p.To.IsValid() && len(p.Out) == 0:
			ps.element(i, "mpls", "mpls %s: it needs the label that packets to %s get", p, p.To)
		case p.Via == "" && len(p.Out) > 0:
			ps.element(i, "mpls", "mpls %s: it needs via:, the neighbour that packets with the label are sent to", p)
		case p.To.IsValid() && to[p.To]:
			ps.element(i, "mpls", "mpls %s: it has a route to %s as well; keep one of them", p, p.To)
		case p.In != 0 && in[p.In]:
			ps.element(i, "mpls", "mpls %s: it has the label %d twice", p, p.In)
		}
		labels := slices.Clone(p.Out)
		if p.In != 0 {
			labels, in[p.In] = append(labels, p.In), true
		} else {
			to[p.To] = true
		}
		for _, n := range labels {
			if err := model.CheckLabel(n); err != nil {
				ps.element(i, "mpls", "mpls %s: %v", p, err)
			}
		}
		if _, err := netip.ParseAddr(p.Via); p.Via == "" || err == nil {
			continue
		}
		switch at, is := l.elements[p.Via]; {
		case !is && ps.mayBe(p.Via):
		case !is:
			ps.element(i, "mpls", "mpls %s: there is no element %s%s", p, p.Via, ps.near(p.Via))
		case ps.mayBeJoined(i) && ps.mayBeJoined(at):
		case len(hops[[2]int{i, at}]) == 0:
			ps.element(i, "mpls", "mpls %s: %s is no neighbour of it; link them, or name one of its neighbours", p,
				p.Via)
		}
	}
}

// hop is a segment that a router on label-switched paths shares with one of its next hops: its own interface there, and
// those of the other.
type hop struct {
	from member
	to   []member
}

// hops are those of all routers on label-switched paths, by the router and its next hop. Its time grows with the size
// of the segments or the number of next hops, whichever is less.
func (l *layout) hops() map[[2]int][]hop {
	wanted := map[int]map[int]bool{}
	for i := range l.net.Elements {
		for _, p := range l.net.Elements[i].MPLS {
			if at, is := l.elements[p.Via]; is && at != i {
				if wanted[i] == nil {
					wanted[i] = map[int]bool{}
				}
				wanted[i][at] = true
			}
		}
	}
	all := map[[2]int][]hop{}
	for _, s := range l.segments {
		if !slices.ContainsFunc(s.members, func(m member) bool { return wanted[m.element] != nil }) {
			continue
		}
		on := make(map[int][]member, len(s.members))
		for _, m := range s.members {
			on[m.element] = append(on[m.element], m)
		}
		for from, own := range on {
			to := func(e int) {
				if wanted[from][e] && len(on[e]) > 0 {
					all[[2]int{from, e}] = append(all[[2]int{from, e}], hop{own[0], on[e]})
				}
			}
			if len(on) < len(wanted[from]) {
				for e := range on {
					to(e)
				}
				continue
			}
			for e := range wanted[from] {
				to(e)
			}
		}
	}
	return all
}

// LeaveMPLS takes off their routers the label-switched paths that lead to nobody, as a link was left out of the
// network. All addresses of the network are stated.
func LeaveMPLS(net *model.Network) {
	whole := WithInterfaces(*net)
	l := newLayout(&whole)
	hops := l.hops()
	for i := range net.Elements {
		e := &net.Elements[i]
		e.MPLS = slices.DeleteFunc(slices.Clone(e.MPLS), func(p model.LSP) bool {
			if a, err := netip.ParseAddr(p.Via); err == nil {
				return !slices.ContainsFunc(e.Interfaces, func(f model.Interface) bool {
					return slices.ContainsFunc(f.Addresses, func(o netip.Prefix) bool { return o.Contains(a) })
				})
			}
			at, is := l.elements[p.Via]
			return p.Via != "" && (!is || len(hops[[2]int{i, at}]) == 0)
		})
	}
}

// labels tells label-switched paths where their next hops are.
func (r *resolver) labels() {
	hops := r.hops()
	for i := range r.out.Elements {
		e := &r.out.Elements[i]
		e.MPLS = slices.Clone(e.MPLS)
		var subnets map[netip.Prefix]string
		for k := range e.MPLS {
			p := &e.MPLS[k]
			if *p = p.Described(); p.Via == "" {
				continue
			}
			if a, err := netip.ParseAddr(p.Via); err == nil {
				if subnets == nil {
					subnets = subnetsOf(e)
				}
				p.NextHop, p.Interface = a, narrowest(subnets, a)
				continue
			}
			of := hops[[2]int{i, r.elements[p.Via]}]
			v6 := p.To.IsValid() && p.To.Addr().Is6()
			if r.reach(p, of, v6); !p.NextHop.IsValid() && !p.To.IsValid() {
				r.reach(p, of, true)
			}
		}
	}
}

// reach gives a path the first address of its next hop, of one address family.
func (r *resolver) reach(p *model.LSP, hops []hop, v6 bool) {
	for _, h := range hops {
		for _, m := range h.to {
			if far, ok := r.address(m, v6); ok {
				p.NextHop, p.Interface = far.Addr(), r.interfaceOf(h.from).Name
				return
			}
		}
	}
}

// subnetsOf are the subnets that an element is on, and the interfaces there.
func subnetsOf(e *model.ResolvedElement) map[netip.Prefix]string {
	all := map[netip.Prefix]string{}
	for _, f := range e.Interfaces {
		for _, a := range f.Addresses {
			if _, is := all[a.Masked()]; !is {
				all[a.Masked()] = f.Name
			}
		}
	}
	return all
}

// narrowest is the interface on the smallest subnet that an address is of.
func narrowest(subnets map[netip.Prefix]string, a netip.Addr) string {
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if name, is := subnets[p]; err == nil && is {
			return name
		}
	}
	return ""
}

// checkLabels finds next hops that are not there, once addresses have been chosen.
func (ps *problems) checkLabels(n *model.Resolved) {
	for i := range n.Elements {
		e := &n.Elements[i]
		for _, p := range e.MPLS {
			switch {
			case p.Via == "":
			case !p.NextHop.IsValid():
				ps.element(i, "mpls", "mpls %s: %s has no address on a link to it", p.Described(), p.Via)
			case p.Interface == "":
				ps.element(i, "mpls", "mpls %s: %s is on none of its subnets", p.Described(), p.Via)
			case p.To.IsValid() && p.To.Addr().Is4() != p.NextHop.Is4():
				ps.element(i, "mpls", "mpls %s: the next hop is of another address family than %s", p.Described(), p.To)
			}
		}
	}
}
