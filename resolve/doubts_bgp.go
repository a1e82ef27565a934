package resolve

import (
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// bgp looks for the neighbours that routers state.
func (d *doubts) bgp() {
	// What real devices lead to is not known here.
	world := slices.ContainsFunc(d.net.Edges, func(e model.Edge) bool { return e.Device != "" })
	for i := range d.net.Elements {
		stated := d.net.Elements[i].Routing.BGP
		e := &d.resolved.Elements[i]
		if stated == nil || !generated(e) {
			continue
		}
		for _, n := range stated.Neighbors {
			owner, known := d.owner[n.Address.WithZone("")]
			if n.Interface != "" {
				owner, known = d.at(e, n.Interface)
			}
			switch {
			case n.Interface != "" && !known: // who is there may speak BGP
			case n.Address.IsLinkLocalUnicast():
			case !known && !world:
				d.tell("%s: its BGP neighbour %s is nobody's address in this network, so that session will never be; "+
					"`polyplane describe %s` lists those that there are", e.Name, n.Where(), d.net.Name)
			case known && owner == i:
				d.tell("%s: its BGP neighbour %s is its own address", e.Name, n.Address)
			case known:
				d.session(e, n, &d.resolved.Elements[owner])
			}
		}
	}
}

// session compares what two ends of a session say of each other.
func (d *doubts) session(e *model.ResolvedElement, n model.BGPNeighbor, far *model.ResolvedElement) {
	if far.Kind != model.Router || !generated(far) {
		return // whoever runs there may speak BGP
	}
	switch b := far.Routing.BGP; {
	case b == nil:
		d.tell("%s: its BGP neighbour %s is %s, which speaks no BGP", e.Name, n.Where(), far.Name)
	case b.AS != n.AS:
		d.tell("%s: its BGP neighbour %s is %s, whose AS is %d and not %d", e.Name, n.Where(), far.Name, b.AS, n.AS)
	case !slices.ContainsFunc(b.Neighbors, func(o model.BGPNeighbor) bool {
		if (n.Interface == "") != (o.Interface == "") {
			return false
		}
		i, known := d.owner[o.Address.WithZone("")]
		if o.Interface != "" {
			i, known = d.at(far, o.Interface)
		}
		return known && &d.resolved.Elements[i] == e
	}):
		d.tell("%s: its BGP neighbour %s is %s, whose own neighbours leave %s out", e.Name, n.Where(), far.Name,
			e.Name)
	}
}

// at is the router at the other end of an interface's link.
func (d *doubts) at(e *model.ResolvedElement, ifc string) (owner int, known bool) {
	for i := range e.Interfaces {
		if f := &e.Interfaces[i]; f.Name == ifc && f.Far != nil && f.Far.Kind == model.Router {
			owner, known = d.elements[f.Far.Element]
		}
	}
	return owner, known
}

// unnumbered looks for links whose session is to be without addresses at one end only.
func (d *doubts) unnumbered(s *segment) {
	if len(s.switches) > 0 || len(s.members) != 2 {
		return
	}
	a, b := &d.resolved.Elements[s.members[0].element], &d.resolved.Elements[s.members[1].element]
	if b.Routing.BGP != nil && b.Routing.BGP.Unnumbered {
		a, b = b, a
	}
	if addressed := func(m member) bool {
		return slices.ContainsFunc(d.resolved.Elements[m.element].Interfaces[m.iface].Addresses,
			func(p netip.Prefix) bool { return !p.Addr().IsLinkLocalUnicast() })
	}; addressed(s.members[0]) && addressed(s.members[1]) {
		return // the session is by these
	}
	for _, e := range []*model.ResolvedElement{a, b} {
		own := d.net.Elements[d.elements[e.Name]].Routing.BGP
		if !generated(e) || own == nil || len(own.Neighbors) > 0 {
			return
		}
	}
	if a.Routing.BGP.Unnumbered && !b.Routing.BGP.Unnumbered {
		d.tell("%s: the BGP of %s is unnumbered and that of %s is not, so that they have no session there; say "+
			"unnumbered for both, or give the link addresses", d.where(s), a.Name, b.Name)
	}
}
