package software

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

const (
	// FRR's; the default, 5 s, is what a new adjacency waits when its first description packet comes too early
	retransmitSeconds = 1
	maxPaths          = 64
	defaultCost       = model.UsualCost // of IS-IS, as of OSPF
)

// port is an interface as routing software sees it.
type port struct {
	device   string
	v4, v6   bool
	loopback bool
	// passive says that there is no router to speak to: only the subnet is announced.
	passive bool
	// pointToPoint says that exactly one router is at the far end, so no designated router is elected.
	pointToPoint bool
	// stub says that the subnet is for end systems (hosts or a switch).
	stub     bool
	prefixes []netip.Prefix
	// ospf and ospf6 are what these protocols do at it; nil where that is as the router says.
	ospf, ospf6 *model.OSPFPort
	// bfd is empty where no router is to be watched.
	bfd model.BFD
	// vrrp are the virtual routers that it takes part in there.
	vrrp []model.VirtualRouter
}

// ports returns lo first (when it has addresses), then the interfaces in their order.
func ports(el model.ResolvedElement) []port {
	var ps []port
	if len(el.Loopback) > 0 {
		ps = append(ps, port{device: "lo", loopback: true, passive: true, prefixes: el.Loopback})
	}
	for _, ifc := range el.Interfaces {
		p := port{device: ifc.LinuxName(), prefixes: ifc.Addresses, passive: ifc.Internet,
			ospf: ifc.OSPF, ospf6: ifc.OSPF6, vrrp: ifc.VRRP}
		if ifc.Far != nil {
			p.passive = ifc.Far.Kind == model.Host
			p.pointToPoint = ifc.Far.Kind == model.Router
			if p.bfd = ifc.BFD; ifc.Far.Kind == model.Host {
				p.bfd = ""
			}
			p.stub = ifc.Far.Kind == model.Host || ifc.Far.Kind == model.Switch
		}
		ps = append(ps, p)
	}
	for i := range ps {
		for _, a := range ps[i].prefixes {
			if a.Addr().Is4() {
				ps[i].v4 = true
			} else {
				ps[i].v6 = true
			}
		}
	}
	return ps
}

// routeDevice is the Linux device of a route's interface.
func routeDevice(el model.ResolvedElement, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	var known []string
	for _, ifc := range el.Interfaces {
		if ifc.Name == name {
			return ifc.LinuxName(), nil
		}
		known = append(known, ifc.Name)
	}
	return "", fmt.Errorf("there is no interface %q; there are %s", name, strings.Join(known, ", "))
}

// routes are the element's static routes with the gateways as default routes.
func routes(el model.ResolvedElement) []model.Route {
	rs := each.Of(el.Gateways, func(gw netip.Addr) model.Route {
		return model.Route{To: netip.PrefixFrom(unspecified(gw), 0), Via: []netip.Addr{gw}}
	})
	return append(rs, el.Routes...)
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// hasDefaultRoute tells whether there is a static default route of the family.
func hasDefaultRoute(el model.ResolvedElement, v4 bool) bool {
	return slices.ContainsFunc(routes(el), func(r model.Route) bool {
		return r.To.Bits() == 0 && r.To.Addr().Is4() == v4
	})
}

// tellsDefault tells whether the element's default route of the family is to be told to its neighbours: it leads out of
// the network by an internet edge.
func tellsDefault(el model.ResolvedElement, v4 bool) bool {
	return hasDefaultRoute(el, v4) && slices.ContainsFunc(el.Interfaces,
		func(ifc model.ResolvedInterface) bool { return ifc.Internet && !ifc.Unannounced })
}

// announced returns the prefixes that BGP originates.
func announced(el model.ResolvedElement) []netip.Prefix {
	if n := el.Routing.BGP.Networks; len(n) > 0 {
		return n
	}
	var nets []netip.Prefix
	for _, p := range ports(el) {
		if !p.loopback && !p.stub {
			continue
		}
		for _, a := range p.prefixes {
			if n := a.Masked(); !slices.Contains(nets, n) && !a.Addr().IsLinkLocalUnicast() {
				nets = append(nets, n)
			}
		}
	}
	return nets
}

// bgpSource is the source address of an element's own packets that go by routes of BGP: its loopback, if BGP announces
// it. The kernel would take the address on the outgoing link. BGP's neighbours know that one, but nobody behind them
// does.
func bgpSource(el model.ResolvedElement, v4 bool) netip.Addr {
	if el.Routing.BGP == nil {
		return netip.Addr{}
	}
	src := loopbackAddr(el, v4)
	if !slices.ContainsFunc(announced(el), func(n netip.Prefix) bool { return src.IsValid() && n.Contains(src) }) {
		return netip.Addr{}
	}
	return src
}

// onLink tells whether an address is in a subnet of one of the element's interfaces.
func onLink(el model.ResolvedElement, a netip.Addr) bool {
	return slices.ContainsFunc(el.Interfaces, func(ifc model.ResolvedInterface) bool {
		return slices.ContainsFunc(ifc.Addresses, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// loopbackAddr is the source of sessions that do not go over one link; invalid where there is none of the family.
func loopbackAddr(el model.ResolvedElement, v4 bool) netip.Addr {
	for _, p := range el.Loopback {
		if p.Addr().Is4() == v4 {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// ipv4Too tells whether an IPv6 session must carry IPv4 as well (RFC 8950): the far router has no IPv4 session, yet
// there are IPv4 prefixes to announce.
func ipv4Too(el model.ResolvedElement, n model.BGPNeighbor) bool {
	if n.Interface != "" || n.Address.Is4() {
		return false
	}
	for _, o := range el.Routing.BGP.Neighbors {
		if o.Address.Is4() && o.AS == n.AS && o.Name == n.Name {
			return false
		}
	}
	return slices.ContainsFunc(announced(el), func(p netip.Prefix) bool { return p.Addr().Is4() })
}

// carries tells whether a session is for routes of the family.
func carries(el model.ResolvedElement, n model.BGPNeighbor, v4 bool) bool {
	return n.Interface != "" || n.Address.Is4() == v4 || ipv4Too(el, n)
}

func ofFamily(prefixes []netip.Prefix, v4 bool) []netip.Prefix {
	return each.That(prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() == v4 })
}

// checkIntents refuses intents from which no configuration can be made.
func checkIntents(el model.ResolvedElement) error {
	r := el.Routing
	if r.BGP != nil && r.BGP.AS == 0 {
		return fmt.Errorf("bgp needs an autonomous system number, 1…4294967295: bgp: {as: 65001}")
	}
	if r.BGP != nil {
		if err := checkPolicies(r.BGP); err != nil {
			return err
		}
	}
	if (r.OSPF != nil || r.OSPF6 != nil || r.BGP != nil || r.ISIS != nil) && !el.RouterID.Is4() {
		return fmt.Errorf("ospf, ospf6, isis and bgp need a router ID in dotted form such as 10.255.0.1, not %q",
			el.RouterID)
	}
	for _, o := range []*model.OSPF{r.OSPF, r.OSPF6} {
		if o != nil && (o.Cost < 0 || o.Cost > 65535) {
			return fmt.Errorf("an ospf cost is 1…65535, not %d", o.Cost)
		}
	}
	if r.ISIS != nil && (r.ISIS.Level < 0 || r.ISIS.Level > 2) {
		return fmt.Errorf("an isis level is 1, 2, or 0 for both, not %d", r.ISIS.Level)
	}
	return nil
}

func area(o *model.OSPF) string {
	return cmp.Or(o.Area, "0.0.0.0")
}

// writer builds a configuration line by line.
type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w, format, args...)
	w.WriteByte('\n')
}
