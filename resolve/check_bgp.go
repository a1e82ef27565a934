package resolve

import (
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// checkNeighbours looks at the sessions that a router states.
func (ps *problems) checkNeighbours(i int) {
	e := &ps.net.Elements[i]
	b := e.Routing.BGP
	if b.Reflector && b.Unnumbered {
		ps.element(i, "routing/bgp/unnumbered", "a route reflector leaves next hops as they are, and a link-local "+
			"address is one on its own link only; leave unnumbered or reflector out")
	}
	for _, n := range b.Neighbors {
		field := "routing/bgp/neighbors"
		switch {
		case n.Interface != "" && n.Address.IsValid():
			ps.element(i, field, "the BGP neighbour at %s has an address as well (%s); a session is with one of them",
				n.Interface, n.Address)
		case n.Interface != "":
			ps.checkNeighbourAt(i, &n)
		case !n.Address.IsValid() || n.Address.IsUnspecified() || n.Address.IsMulticast() || n.AS == 0:
			ps.element(i, field, "a BGP neighbour needs an address (or an interface) and an autonomous system; write "+
				"{address: 10.0.0.2, as: 65002}")
		}
		if n.Client && b.AS != 0 && n.AS != b.AS {
			ps.element(i, field, "the BGP neighbour %s is in another autonomous system (%d), so it "+
				"is no client of a reflector; leave client out", n.Where(), n.AS)
		}
		if len(n.Name) > model.MaxName ||
			strings.ContainsFunc(n.Name, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
			ps.element(i, field,
				"%q cannot describe a BGP neighbour; at most %d letters, digits and marks but \" and \\ can",
				n.Name, model.MaxName)
		}
	}
}

// checkNeighbourAt looks at a session over an interface. FRR learns from the neighbour's router advertisements whom it
// speaks to; BIRD has to be told.
func (ps *problems) checkNeighbourAt(i int, n *model.BGPNeighbor) {
	const field = "routing/bgp/neighbors"
	e := &ps.net.Elements[i]
	known := slices.ContainsFunc(e.Interfaces, func(f model.Interface) bool { return f.Name == n.Interface })
	switch {
	case !known && !ps.mayHave(i, n.Interface) && !ps.ofElement(i, "interfaces"):
		ps.element(i, field, "its BGP neighbour is at %s, which is none of its interfaces (%s)", n.Interface,
			interfaceNames(e))
	case n.AS == 0:
		ps.element(i, field, "the BGP neighbour at %s needs an autonomous system; write {interface: %[1]s, as: 65002}",
			n.Interface)
	case n.Client || e.Routing.BGP.Reflector && n.AS == e.Routing.BGP.AS:
		ps.element(i, field, "the BGP neighbour at %s would be a reflector's client. What is reflected keeps its next "+
			"hop, and a link-local address is one on its own link only; state the neighbour's address", n.Interface)
	case known && e.Software == model.SoftwareBIRD && len(e.Config) == 0 && !ps.ofElement(i, "software") &&
		!ps.atRouter(e.Name, n.Interface):
		ps.element(i, field, "BIRD must know the address of its BGP neighbour at %s, which only follows from the file "+
			"where a router is at the other end of a link; state the neighbour's address, or take frr", n.Interface)
	}
}

// atRouter tells whether an interface leads by a link to a router, or to what is not known.
func (ps *problems) atRouter(element, ifc string) bool {
	for _, l := range ps.net.Links {
		for k, end := range l.Ends {
			if end.Element != element || end.Interface != ifc {
				continue
			}
			far := slices.IndexFunc(ps.net.Elements,
				func(e model.Element) bool { return e.Name == l.Ends[1-k].Element })
			return far < 0 || ps.net.Elements[far].Kind == model.Router
		}
	}
	return false
}
