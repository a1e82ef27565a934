package resolve

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// segment is one layer-2 segment: a link between two elements that are no switches, or connected switches with all
// links to them. Where they have VLANs each VLAN is one.
type segment struct {
	vlan int // 0: all frames

	switches []int // by index in Elements, ascending
	links    []int // by index in Links, ascending
	members  []member
	edge     bool  // a real device is on it
	internet []int // the internet edges on it, by index in Edges
}

// member is an interface of a router or a host on a segment.
type member struct {
	link    int // -1: none
	element int
	iface   int // by index in the element's Interfaces
}

// layout is a network's structure by indices.
type layout struct {
	net        *model.Network
	elements   map[string]int
	interfaces map[model.End]int // index in the element's Interfaces
	segments   []segment         // in the order of their first links
	loops      []int             // links that close a loop of switches, in some VLAN
	vlans      vlans
	vrfs       vrfs
}

// newLayout reads the structure of a network that Complete has seen. Links and edges to elements that do not exist are
// left out.
func newLayout(net *model.Network) *layout { return newPartLayout(net, nil) }

// newPartLayout does it where the VRFs of some elements are not known.
func newPartLayout(net *model.Network, unsure func(element int) bool) *layout {
	l := &layout{net: net, elements: make(map[string]int, len(net.Elements)),
		interfaces: make(map[model.End]int, 2*len(net.Links))}
	l.vlans = vlansOf(net)
	for i, e := range net.Elements {
		l.elements[e.Name] = i
		for k, f := range e.Interfaces {
			l.interfaces[model.End{Element: e.Name, Interface: f.Name}] = k
		}
	}
	connected := sets[part]{} // in a VLAN
	for n, link := range net.Links {
		a, b, ok := l.ends(link)
		if !ok || net.Elements[a].Kind != model.Switch || net.Elements[b].Kind != model.Switch {
			continue
		}
		loop := false
		for _, vlan := range l.vlans.links[n].all() {
			loop = !connected.join(part{a, vlan}, part{b, vlan}) || loop
		}
		if loop {
			l.loops = append(l.loops, n)
		}
	}
	byPart := map[part]int{} // root → segment
	joined := map[part]bool{}
	of := func(sw, vlan int) *segment {
		root := connected.root(part{sw, vlan})
		s, ok := byPart[root]
		if !ok {
			s = len(l.segments)
			byPart[root] = s
			l.segments = append(l.segments, segment{vlan: vlan})
		}
		if !joined[part{sw, vlan}] {
			joined[part{sw, vlan}] = true
			l.segments[s].switches = append(l.segments[s].switches, sw)
		}
		return &l.segments[s]
	}
	for n, link := range net.Links {
		a, b, ok := l.ends(link)
		if !ok {
			continue
		}
		c := &l.vlans.links[n]
		for _, vlan := range c.all() {
			var s *segment
			switch {
			case isSwitch(net, a) && isSwitch(net, b):
				of(b, vlan) // they are one
				s = of(a, vlan)
			case isSwitch(net, a):
				s = of(a, vlan)
			case isSwitch(net, b):
				s = of(b, vlan)
			default:
				l.segments = append(l.segments, segment{vlan: vlan})
				s = &l.segments[len(l.segments)-1]
			}
			s.links = append(s.links, n)
			for k, e := range [2]int{a, b} {
				if !isSwitch(net, e) {
					s.members = append(s.members, member{n, e, l.interfaces[c.end(link.Ends[k], vlan)]})
				}
			}
		}
	}
	for n, edge := range net.Edges {
		e, ok := l.elements[edge.End.Element]
		switch {
		case !ok:
		case isSwitch(net, e) && edge.Internet != nil:
			s := of(e, l.vlans.untagged(e))
			s.internet = append(s.internet, n)
		case isSwitch(net, e):
			for _, vlan := range l.vlans.atEdge(e, &net.Edges[n]) {
				of(e, vlan).edge = true
			}
		case edge.Internet != nil:
			l.segments = append(l.segments,
				segment{internet: []int{n}, members: []member{{-1, e, l.interfaces[edge.End]}}})
		}
	}
	for i := range l.segments {
		slices.Sort(l.segments[i].switches)
	}
	l.newVRFs(unsure)
	return l
}

// part is what a switch is in one VLAN, or with 0 altogether.
type part struct{ sw, vlan int }

func isSwitch(net *model.Network, i int) bool { return net.Elements[i].Kind == model.Switch }

func (l *layout) ends(link model.Link) (a, b int, ok bool) {
	a, okA := l.elements[link.Ends[0].Element]
	b, okB := l.elements[link.Ends[1].Element]
	return a, b, okA && okB
}

func (l *layout) interfaceOf(m member) *model.Interface {
	return &l.net.Elements[m.element].Interfaces[m.iface]
}

// numbered tells whether the member is given an address where it states none.
func (l *layout) numbered(m member) bool {
	if m.link < 0 {
		return true
	}
	a := l.net.Links[m.link].Addressing
	return a != model.AddressingNone && (a == model.AddressingAuto || !l.unnumbered(m.link))
}

// unnumbered tells whether a link needs no addresses: BGP's session over it is by link-local ones, and nothing else is
// stated for it.
func (l *layout) unnumbered(link int) bool {
	a, b, ok := l.ends(l.net.Links[link])
	if !ok || l.vlans.links[link].aware() || len(l.net.Links[link].Prefixes) > 0 || !l.overInterfaces(a, b) {
		return false
	}
	for k, e := range [2]int{a, b} {
		i := l.interfaces[l.net.Links[link].Ends[k]]
		if l.vrfOf(member{link, e, i}) != "" {
			return false // no BGP is spoken there
		}
		if slices.ContainsFunc(l.net.Elements[e].Interfaces[i].Addresses,
			func(p netip.Prefix) bool { return !p.Addr().IsLinkLocalUnicast() }) {
			return false
		}
	}
	return true
}

// meetOverInterfaces tells whether the session of a segment's two members is over their interfaces.
func (l *layout) meetOverInterfaces(s *segment) bool {
	return len(s.switches) == 0 && len(s.members) == 2 && l.vrfOf(s.members[0]) == "" && l.vrfOf(s.members[1]) == "" &&
		l.overInterfaces(s.members[0].element, s.members[1].element)
}

// overInterfaces tells whether the sessions of two elements with a link between them are over their interfaces.
func (l *layout) overInterfaces(a, b int) bool {
	return !slices.ContainsFunc([]int{a, b}, func(i int) bool {
		e := &l.net.Elements[i]
		return e.Kind != model.Router || e.Routing.BGP == nil || !e.Routing.BGP.Unnumbered
	})
}

// name is what people call the segment: its switch, or else its link.
func (l *layout) name(s segment) string {
	of := ""
	if s.vlan != 0 {
		of = fmt.Sprintf("the VLAN %d of ", s.vlan)
	}
	switch {
	case len(s.switches) > 0 && of != "":
		return of + "switch " + l.net.Elements[s.switches[0]].Name
	case len(s.switches) > 0:
		return "the segment of switch " + l.net.Elements[s.switches[0]].Name
	case len(s.links) == 0:
		return "edge " + l.net.Edges[s.internet[0]].Name
	}
	return of + "link " + l.net.Links[s.links[0]].Name
}

// problem is one with a segment's addresses.
func (l *layout) problem(s segment, format string, args ...any) model.Problem {
	p := model.Problem{About: model.AboutElement, Field: "prefixes", Message: fmt.Sprintf("%s: %s", l.name(s),
		fmt.Sprintf(format, args...))}
	if len(s.switches) > 0 {
		p.Name = l.net.Elements[s.switches[0]].Name
	} else {
		p.About, p.Name = model.AboutLink, l.net.Links[s.links[0]].Name
	}
	return p
}

// stated are the prefixes that the segment's links and switches state, each once.
func (l *layout) stated(s segment) []netip.Prefix {
	if len(s.switches) == 0 {
		if len(s.links) == 0 {
			return nil
		}
		return l.ofLink(s, s.links[0])
	}
	var all []netip.Prefix
	known := map[netip.Prefix]struct{}{}
	add := func(ps []netip.Prefix) {
		for _, p := range ps {
			if _, there := known[p]; !there {
				known[p] = struct{}{}
				all = append(all, p)
			}
		}
	}
	for _, e := range s.switches {
		add(l.ofSwitch(s, e))
	}
	for _, n := range s.links {
		add(l.ofLink(s, n))
	}
	return all
}

// ofSwitch are the subnets that a switch states for a segment. Its prefixes are those of what says no VLAN.
func (l *layout) ofSwitch(s segment, e int) []netip.Prefix {
	sw := &l.net.Elements[e]
	if s.vlan > model.DefaultVLAN {
		return sw.VLANs.Of(s.vlan)
	}
	return append(slices.Clip(sw.Prefixes), sw.VLANs.Of(s.vlan)...)
}

// ofLink are the subnets that a link states for a segment: they are for its frames without a tag.
func (l *layout) ofLink(s segment, n int) []netip.Prefix {
	if l.vlans.links[n].untagged != s.vlan {
		return nil
	}
	return l.net.Links[n].Prefixes
}

// Families returns the address families with which the network's links are numbered if they state none. If the network
// names pools, these are the families of its pools. Otherwise they are the families that it mentions: prefixes and
// addresses are of IPv4 or IPv6, ospf is IPv4's, ospf6 is IPv6's. If it mentions neither, it is IPv4, and IPv6 as well
// if isis, bgp or rip carry it.
func Families(n *model.Network) (v4, v6 bool) {
	var both bool
	prefixes := func(ps []netip.Prefix) {
		for _, p := range ps {
			v4 = v4 || p.Addr().Is4()
			v6 = v6 || p.Addr().Is6() && !p.Addr().IsLinkLocalUnicast()
		}
	}
	addresses := func(as []netip.Addr) {
		for _, a := range as {
			v4 = v4 || a.Is4()
			v6 = v6 || a.Is6() && !a.IsLinkLocalUnicast()
		}
	}
	if prefixes(n.Pools); v4 || v6 {
		return v4, v6
	}
	for i := range n.Links {
		prefixes(n.Links[i].Prefixes)
	}
	for i := range n.Elements {
		e := &n.Elements[i]
		prefixes(e.Loopback)
		prefixes(e.Prefixes)
		addresses(e.Gateways)
		for k := range e.Interfaces {
			prefixes(e.Interfaces[k].Addresses)
		}
		for _, r := range e.Routes {
			prefixes([]netip.Prefix{r.To})
		}
		for _, v := range e.VRFs {
			addresses(v.Gateways)
			for _, r := range v.Routes {
				prefixes([]netip.Prefix{r.To})
			}
			v4, v6 = v4 || v.OSPF != nil, v6 || v.OSPF6 != nil
		}
		v4 = v4 || e.Routing.OSPF != nil
		v6 = v6 || e.Routing.OSPF6 != nil
		both = both || e.Routing.BGP != nil || e.Routing.ISIS != nil || e.Routing.RIP != nil
		if e.Routing.BGP != nil {
			prefixes(e.Routing.BGP.Networks)
			for _, b := range e.Routing.BGP.Neighbors {
				addresses([]netip.Addr{b.Address})
			}
		}
	}
	if !v4 && !v6 {
		return true, both
	}
	return v4, v6
}
