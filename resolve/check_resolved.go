package resolve

import (
	"net/netip"

	"github.com/polyplane/polyplane/model"
)

// Check finds what is wrong with the network that Resolve made of the document. Read cannot find these problems, since
// the document does not contain the addresses that were chosen.
func (d Document) Check(n *model.Resolved) []model.Problem {
	if p := checkSize(n); p != nil {
		return []model.Problem{*p}
	}
	ps := &problems{net: &d.net}
	ps.checkUnnumbered(n)
	ps.checkVirtualRouters(n)
	ps.checkLabels(n)
	for i := range n.Elements {
		for _, vrf := range append([]string{""}, n.Elements[i].VRFNames()...) {
			ps.checkResolvedHops(i, vrf, model.InVRF(n.Elements[i], vrf))
		}
	}
	return ps.all()
}

// checkResolvedHops checks the next hops in one table of an element.
func (ps *problems) checkResolvedHops(i int, vrf string, e model.ResolvedElement) {
	if len(e.Gateways) == 0 && len(e.Routes) == 0 {
		return
	}
	own, subnets := map[netip.Addr]struct{}{}, &prefixSet{}
	for _, f := range e.Interfaces {
		for _, a := range f.Addresses {
			own[a.Addr()] = struct{}{}
			subnets.add(a)
		}
	}
	check := func(field, what string, a netip.Addr) {
		if a.IsLinkLocalUnicast() {
			return
		}
		if _, is := own[a]; is {
			ps.inVRF(i, vrf, field, "%s %s is its own address; name the neighbour's", what, a)
		} else if !subnets.contains(a) {
			ps.inVRF(i, vrf, field, "%s %s is on none of its subnets (%s)", what, a, subnets.words())
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
