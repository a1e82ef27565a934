package resolve

import (
	"cmp"
	"fmt"
	"maps"
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
			owner, known := d.owner[d.ownPlace(i, n.Address.WithZone(""))]
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
				d.session(i, n, owner)
			}
		}
	}
}

// session compares what two ends of a session say of each other.
func (d *doubts) session(at int, n model.BGPNeighbor, other int) {
	e, far := &d.resolved.Elements[at], &d.resolved.Elements[other]
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
		i, known := d.owner[d.ownPlace(other, o.Address.WithZone(""))]
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

// policies looks for what policies say to no avail.
func (d *doubts) policies() {
	met := map[string]bool{} // routers that others which name them have sessions with
	for i := range d.resolved.Elements {
		if b := d.resolved.Elements[i].Routing.BGP; b != nil {
			for _, n := range b.Neighbors {
				if _, named := d.net.Elements[i].Routing.BGP.Toward[n.Name]; named {
					met[n.Name] = true
				}
			}
		}
	}
	told := map[string]bool{}
	for i := range d.resolved.Elements {
		e := &d.resolved.Elements[i]
		b := e.Routing.BGP
		if b == nil || !generated(e) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(d.net.Elements[i].Routing.BGP.Toward)) {
			if !met[name] && name != e.Name && !told[name] {
				told[name] = true // a network says it for all of its routers
				d.tell("%s: it says which policies %s has, and has no BGP session with it", e.Name, name)
			}
		}
		for _, n := range b.Neighbors {
			d.policy(e, n.In, false, n)
			d.policy(e, n.Out, true, n)
		}
	}
}

// policy looks at what a session's policy sets in vain.
func (d *doubts) policy(e *model.ResolvedElement, name string, out bool, n model.BGPNeighbor) {
	b, own := e.Routing.BGP, n.AS == e.Routing.BGP.AS
	rules := b.Policies[name]
	has := func(what func(model.BGPRule) bool) bool { return slices.ContainsFunc(rules, what) }
	prepends := has(func(r model.BGPRule) bool { return r.Set.Prepend > 0 })
	with := cmp.Or(n.Name, n.Where())
	var told string
	switch {
	case prepends && out && own:
		told = fmt.Sprintf("%s: policy %s prepends AS %d to what %s of the same AS is told, which takes that for a "+
			"loop and drops it", e.Name, name, b.AS, with)
	case prepends && !out:
		told = fmt.Sprintf("%s: policy %s prepends AS %d to what it is told by %s; routers of the same AS take that "+
			"for a loop and drop it; prepend where routes go out", e.Name, name, b.AS, with)
	case out && !own && has(func(r model.BGPRule) bool { return r.Set.LocalPreference != nil }):
		told = fmt.Sprintf("%s: policy %s sets a local preference for %s, which is in another AS and is not told of "+
			"it; set it where routes come in", e.Name, name, with)
	}
	if told != "" && !slices.Contains(d.told, told) { // a router may have several sessions with another
		d.told = append(d.told, told)
	}
}
