package model

import (
	"net/netip"
	"slices"
)

// ValidateResolved tells what is wrong with a network that Resolve has numbered: what Validate cannot see in the document,
// since the addresses are not in it.
func (n Network) ValidateResolved() []Problem {
	ps := &problems{net: &n}
	for i := range n.Elements {
		e := &n.Elements[i]
		var own []netip.Prefix
		for _, f := range e.Interfaces {
			own = append(own, f.Addresses...)
		}
		check := func(field, what string, a netip.Addr) {
			switch {
			case a.IsLinkLocalUnicast():
			case slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Addr() == a }):
				ps.element(i, field, "%s %s is its own address; name the neighbour's", what, a)
			case !slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(a) }):
				ps.element(i, field, "%s %s is on none of its subnets (%s)", what, a, subnetList(own))
			}
		}
		for _, g := range e.Gateways {
			check("gateways", "the gateway", g)
		}
		for _, r := range e.Routes {
			for _, v := range r.Via {
				check("routes", "the next hop", v)
			}
		}
	}
	return ps.list
}

func subnetList(addresses []netip.Prefix) string {
	if len(addresses) == 0 {
		return "it has none"
	}
	subnets := make([]netip.Prefix, len(addresses))
	for i, a := range addresses {
		subnets[i] = a.Masked()
	}
	return prefixList(subnets)
}
