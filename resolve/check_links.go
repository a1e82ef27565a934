package resolve

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// checkLinks looks at names and ends. An interface is the end of one link, or of one edge, and no interface is the end
// of none. A circle of switches must have a spanning tree.
func (ps *problems) checkLinks(l *layout) {
	n := ps.net
	names := make(map[string]struct{}, len(n.Links))
	used := make(map[model.End]string, 2*len(n.Links))
	use := func(end model.End, by string, report func(string, ...any)) {
		if other, twice := used[end]; twice {
			report("%s:%s is already the end of %s; an interface has one link", end.Element, end.Interface, other)
			return
		}
		used[end] = by
	}
	for i, link := range n.Links {
		report := func(format string, args ...any) { ps.link(i, "ends", format, args...) }
		if err := model.CheckLinkName(link.Name); err != nil {
			ps.link(i, "name", "%v", err)
		}
		if _, twice := names[link.Name]; twice {
			ps.link(i, "name", "another link has this name; choose a different one")
		}
		names[link.Name] = struct{}{}
		for _, end := range link.Ends {
			if _, ok := l.elements[end.Element]; !ok && !ps.mayBe(end.Element) {
				report("there is no router, host or switch %s%s", end.Element, ps.near(end.Element))
			}
			use(end, "link "+link.Name, report)
		}
		for _, end := range link.Ends {
			if at, ok := l.elements[end.Element]; ok && !isSwitch(n, at) {
				for _, name := range l.vlans.links[i].impliedBy(end) {
					use(model.End{Element: end.Element, Interface: name}, "a VLAN of link "+link.Name, report)
				}
			}
		}
		if link.Ends[0].Element == link.Ends[1].Element {
			report("it joins %s to itself; a link has two different ends", link.Ends[0].Element)
		}
		ps.checkPrefixes(link.Prefixes, func(format string, args ...any) { ps.link(i, "prefixes", format, args...) })
		ps.checkShape(i)
	}
	for i, edge := range n.Edges {
		if edge.End.Element == "" {
			continue // that is said already
		}
		use(edge.End, "edge "+edge.Name, func(format string, args ...any) { ps.edge(i, "end", format, args...) })
	}
	unsure := ps.unsureVLANs()
	for i, e := range n.Elements {
		for k, f := range e.Interfaces {
			if _, ok := used[model.End{Element: e.Name, Interface: f.Name}]; !ok &&
				l.interfaces[model.End{Element: e.Name, Interface: f.Name}] == k && !ps.mayHave(i, f.Name) &&
				!(unsure && strings.Contains(f.Name, ".")) {
				ps.element(i, "interfaces/"+f.Name,
					"the interface %s is on no link; write a link %s:%s -- …, or name the interface after the link's "+
						"far end",
					f.Name, e.Name, f.Name)
			}
		}
	}
	kinds := make(map[string]model.Kind, len(n.Elements))
	for i, e := range n.Elements {
		if k, twice := kinds[e.Name]; twice {
			ps.element(i, "", "a %s has this name as well; choose another", k)
		}
		kinds[e.Name] = e.Kind
	}
	for _, i := range l.loops {
		if unsure && l.vlans.links[i].aware() {
			continue
		}
		if without := ps.withoutTree(l, i); without != "" {
			ps.link(i, "ends", "it closes a loop of switches%s, in which a broadcast would circle for ever; leave the "+
				"link out, or write `stp: true` at all switches of the segment: %s", loopOf(&l.vlans.links[i]), without)
		}
	}
}

// withoutTree names the switches of a link's segment that run no spanning tree.
func (ps *problems) withoutTree(l *layout, link int) string {
	var names []string
	for k := range l.segments {
		if s := &l.segments[k]; slices.Contains(s.links, link) {
			for _, i := range s.switches {
				_, on := ps.net.Elements[i].STP.Priority()
				if name := ps.net.Elements[i].Name; !on && !ps.ofElement(i, "stp") && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	if len(names) > model.MostNamed {
		names = append(names[:model.MostNamed], "and others")
	}
	return strings.Join(names, ", ")
}

// near is a hint: an element whose name differs only in case, or the names that exist.
func (ps *problems) near(name string) string {
	if len(ps.list) > 20 { // enough hints for one reader
		return ""
	}
	var all []string
	for _, e := range ps.net.Elements {
		if strings.EqualFold(e.Name, name) {
			return "; did you mean " + e.Name + "?"
		}
		all = append(all, e.Name)
	}
	switch {
	case len(all) == 0:
		return "; the network has no elements: list them under routers:, hosts: or switches:"
	case len(all) > 8:
		return "; add it to routers:, hosts: or switches:"
	}
	return "; there are " + strings.Join(all, ", ")
}

// checkShape checks what the link does to packets.
func (ps *problems) checkShape(i int) {
	link := &ps.net.Links[i]
	v6 := slices.ContainsFunc(link.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() })
	if len(link.Prefixes) == 0 {
		v6 = ps.v6 && !ps.ofLink(i, "prefixes") && !(ps.unknown != nil && ps.unknown.Families)
	}
	bad := map[string]bool{}
	model.CheckKeys(model.Link{}.Keys(), link, func(key, problem string) {
		bad[key] = true
		ps.link(i, key, "%s", problem)
	})
	if m := link.MTU; m >= model.MinMTU && m < model.MinMTU6 && v6 {
		ps.link(i, "mtu", "the MTU %d is too small for IPv6, which needs %d; state an IPv4 prefix only, or a larger "+
			"MTU", m, model.MinMTU6)
	}
	if link.Addressing == model.AddressingNone && len(link.Prefixes) > 0 {
		ps.link(i, "prefixes", "it states %s and addressing: none, so that nobody would get an address of it; leave "+
			"one of them out, or state the addresses of interfaces", link.Prefixes[0])
	}
	switch {
	case bad["jitter"] || bad["delay"] || ps.ofLink(i, "delay"):
	case link.Jitter > 0 && link.Delay == 0:
		ps.link(i, "jitter", "jitter is how much the delay varies, and there is no delay; state one of at least %s",
			link.Jitter)
	case link.Jitter > link.Delay:
		ps.link(i, "jitter", "the jitter %s is more than the delay %s; packets cannot arrive before they are sent",
			link.Jitter, link.Delay)
	}
}

// checkAddresses checks segments and addresses together.
func (ps *problems) checkAddresses(l *layout) {
	var stated []placed
	ps.checkSessions(l)
	for _, s := range l.segments {
		subnets := ps.checkSegment(l, s)
		for k := range subnets {
			subnets[k].space = l.spaceOf(&s)
		}
		stated = append(stated, subnets...)
	}
	// When they are sorted, a prefix that overlaps another stands right behind the one that contains it.
	slices.SortStableFunc(stated, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.space, b.space), a.prefix.Addr().Compare(b.prefix.Addr()),
			cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	for i, outer := 1, 0; i < len(stated); i++ {
		if stated[outer].space != stated[i].space || !stated[outer].prefix.Overlaps(stated[i].prefix) {
			outer = i
			continue
		}
		a, b := stated[outer], stated[i]
		if a.index > b.index {
			a, b = b, a
		}
		b.report(ps, "%s overlaps %s of %s; every link and segment needs a prefix of its own",
			b.prefix, a.prefix, a.name)
	}
	ps.checkDuplicates(l)
	ps.checkNextHops(l)
}

// checkSessions counts the BGP sessions that follow from segments, where every router speaks to every other.
func (ps *problems) checkSessions(l *layout) {
	all := 0
	for _, s := range l.segments {
		speakers, first := 0, -1
		for _, m := range s.members {
			if g := ps.net.Elements[m.element].Routing.BGP; g != nil && len(g.Neighbors) == 0 {
				speakers++
				first = max(first, m.element)
			}
		}
		if all += speakers * speakers; all > model.MaxSessions {
			ps.element(first, "routing/bgp",
				"with it, more than %s BGP sessions follow from the network's links and switches, which is more than "+
					"a network "+
					"may have; name the neighbors of those that share a switch with many", thousands(model.MaxSessions))
			return
		}
	}
}

// placed is a stated prefix, with what states it.
type placed struct {
	prefix netip.Prefix
	name   string
	about  model.Subject
	index  int
	space  int
}

func (p placed) report(ps *problems, format string, args ...any) {
	if p.about == model.AboutElement {
		ps.element(p.index, "prefixes", format, args...)
	} else {
		ps.link(p.index, "prefixes", format, args...)
	}
}

// checkSegment returns the segment's stated prefixes, one for each address family.
func (ps *problems) checkSegment(l *layout, s segment) (subnets []placed) {
	n := ps.net
	add := func(about model.Subject, index int, name string, prefixes []netip.Prefix) {
		for _, p := range prefixes {
			this := placed{prefix: p, name: name, about: about, index: index}
			i := slices.IndexFunc(subnets, func(o placed) bool { return o.prefix.Addr().Is4() == p.Addr().Is4() })
			switch {
			case !p.IsValid():
			case i < 0:
				subnets = append(subnets, this)
			case subnets[i].prefix != p && len(s.switches) > 0:
				this.report(ps, "%s is not %s, which %s states for the same segment; connected switches are one subnet",
					p, subnets[i].prefix, subnets[i].name)
			}
		}
	}
	for _, e := range s.switches {
		add(model.AboutElement, e, "switch "+n.Elements[e].Name, l.ofSwitch(s, e))
	}
	for _, i := range s.links {
		add(model.AboutLink, i, "link "+n.Links[i].Name, l.ofLink(s, i))
	}
	if len(s.links) == 0 {
		return subnets
	}
	mtu := func(i int) int { return cmp.Or(n.Links[i].MTU, model.DefaultMTU) }
	known := slices.DeleteFunc(slices.Clone(s.links), func(i int) bool { return ps.ofLink(i, "mtu") })
	for at, i := range known {
		if first := known[0]; at > 0 && mtu(i) != mtu(first) {
			ps.link(i, "mtu", "its MTU is %d, that of link %s on the same segment %d; they must be the same", mtu(i),
				n.Links[first].Name, mtu(first))
			break
		}
	}
	for _, p := range subnets {
		first, last := hostNumbers(p.prefix)
		if have := last - first + 1; p.prefix.IsSingleIP() || have < uint64(len(s.members)) {
			p.report(ps, "%s is too small: it has %d usable address%s for %d interfaces; a /%d would do", p.prefix,
				have,
				map[bool]string{true: "", false: "es"}[have == 1], len(s.members), lengthFor(p.prefix, len(s.members)))
		}
		for _, m := range s.members {
			f := l.interfaceOf(m)
			for _, a := range f.Addresses {
				if a.Addr().Is4() == p.prefix.Addr().Is4() && !a.Addr().IsLinkLocalUnicast() &&
					!p.prefix.Contains(a.Addr()) {
					ps.element(m.element, "interfaces/"+f.Name, "interface %s: %s is outside %s, the prefix of %s",
						f.Name, a, p.prefix, p.name)
				}
			}
		}
	}
	return subnets
}

// lengthFor is the longest prefix of the family with room for this many interfaces.
func lengthFor(p netip.Prefix, members int) int {
	for bits := p.Addr().BitLen() - 1; bits > 0; bits-- {
		first, last := hostNumbers(netip.PrefixFrom(p.Addr(), bits))
		if last-first+1 >= uint64(max(2, members)) {
			return bits
		}
	}
	return 0
}

// checkDuplicates finds addresses that the document states twice. A link-local address may be used again on another
// segment.
func (ps *problems) checkDuplicates(l *layout) {
	owners := map[spaced]string{}
	own := func(i int, field, owner string, at spaced) {
		if other, twice := owners[at]; twice {
			ps.element(i, field, "%s is also the address of %s; an address belongs to one interface", at.addr, other)
			return
		}
		owners[at] = owner
	}
	for i, e := range ps.net.Elements {
		for _, f := range e.Interfaces {
			for _, a := range f.Addresses {
				if !a.Addr().IsLinkLocalUnicast() {
					own(i, "interfaces/"+f.Name, e.Name+":"+f.Name, l.placeOf(i, f.Name, a.Addr()))
				}
			}
		}
		for _, a := range e.Loopback {
			own(i, "loopback", e.Name+"'s loopback", l.ownPlace(i, a.Addr()))
		}
	}
	ids := map[spaced]string{}
	for i, e := range ps.net.Elements {
		if !e.RouterID.IsValid() {
			continue
		}
		at := l.ownPlace(i, e.RouterID)
		if other, twice := ids[at]; twice {
			ps.element(i, "routerID", "router %s has the router ID %s as well; they must differ", other, e.RouterID)
		}
		ids[at] = e.Name
	}
	for _, s := range l.segments {
		local := map[netip.Addr]string{}
		stations := map[string]string{} // by MAC
		for _, m := range s.members {
			f, name := l.interfaceOf(m), ps.net.Elements[m.element].Name
			if mac := strings.ToLower(f.MAC); mac != "" {
				if other, twice := stations[mac]; twice {
					ps.element(m.element, "interfaces/"+f.Name+"/mac",
						"interface %s: %s is also the MAC address of %s on the same segment", f.Name, f.MAC, other)
				}
				stations[mac] = name + ":" + f.Name
			}
			for _, a := range f.Addresses {
				if !a.Addr().IsLinkLocalUnicast() {
					continue
				}
				if other, twice := local[a.Addr()]; twice {
					ps.element(m.element, "interfaces/"+f.Name,
						"%s is also the address of %s on the same segment", a.Addr(), other)
				}
				local[a.Addr()] = name + ":" + f.Name
			}
		}
	}
}

// checkNextHops checks that gateways and next hops are on a subnet of the element, if the document states all of its
// subnets.
func (ps *problems) checkNextHops(l *layout) {
	n := ps.net
	segments := make(map[table][]*prefixSet) // one set for all members of a segment
	own := make(map[table]*prefixSet)
	unknown := map[int]bool{}
	for _, s := range l.segments {
		stated := &prefixSet{}
		for _, p := range l.stated(s) {
			stated.add(p)
		}
		for _, m := range s.members {
			for _, a := range l.interfaceOf(m).Addresses {
				stated.add(a)
			}
		}
		open := len(stated.list) == 0 || ps.unknown != nil &&
			(slices.ContainsFunc(s.members, func(m member) bool { return ps.ofElement(m.element, "interfaces") }) ||
				slices.ContainsFunc(s.links, func(i int) bool { return ps.ofLink(i, "prefixes") }) ||
				slices.ContainsFunc(s.switches, func(i int) bool { return ps.ofElement(i, "prefixes") }))
		for _, m := range s.members {
			segments[l.tableOf(m)] = append(segments[l.tableOf(m)], stated)
			unknown[m.element] = unknown[m.element] || open
		}
	}
	// A link whose other end does not exist has a subnet that nobody knows.
	for _, link := range n.Links {
		for _, end := range link.Ends {
			if i, ok := l.elements[end.Element]; ok {
				if _, _, both := l.ends(link); !both {
					unknown[i] = true
				}
			}
		}
	}
	for _, e := range n.Edges {
		i, ok := l.elements[e.End.Element]
		at := table{i, l.vrfs.of[e.End]}
		if ok && own[at] == nil && e.Mirror == nil {
			own[at] = &prefixSet{}
			for _, f := range n.Elements[i].Interfaces {
				for _, a := range f.Addresses {
					if l.vrfs.of[model.End{Element: e.End.Element, Interface: f.Name}] == at.vrf {
						own[at].add(a)
					}
				}
			}
		}
	}
	for i := range n.Elements {
		e := &n.Elements[i]
		if unknown[i] || ps.mayBeJoined(i) || ps.unsureVRFs(i) {
			continue
		}
		ps.checkHops(i, "", e.Gateways, e.Routes, segments[table{i, ""}], own[table{i, ""}])
		for _, name := range e.VRFNames() {
			at := table{i, name}
			ps.checkHops(i, name, e.VRFs[name].Gateways, e.VRFs[name].Routes, segments[at], own[at])
		}
	}
}

// checkHops checks the next hops in one table of an element: on which of its segments' subnets, or else its own, they
// are.
func (ps *problems) checkHops(i int, vrf string, gateways []netip.Addr, routes []model.Route, sets []*prefixSet,
	own *prefixSet) {
	if len(gateways) == 0 && len(routes) == 0 {
		return
	}
	if own != nil {
		sets = append(sets, own)
	}
	if len(sets) > 1 { // many links: look at all of them at once
		all := &prefixSet{}
		for _, set := range sets {
			for _, p := range set.list {
				all.add(p)
			}
		}
		sets = []*prefixSet{all}
	}
	check := func(field, what string, a netip.Addr) {
		if !a.IsValid() || a.IsLinkLocalUnicast() || len(sets) > 0 && sets[0].contains(a) {
			return
		}
		words := "it has none"
		if len(sets) > 0 {
			words = sets[0].words()
		}
		ps.inVRF(i, vrf, field, "%s %s is on none of its subnets (%s)", what, a, words)
	}
	for _, g := range gateways {
		check("gateways", "the gateway", g)
	}
	for _, r := range routes {
		for _, v := range r.Via {
			check("routes", "the next hop", v)
		}
	}
}

// checkEdges looks at where the network leaves the platform. A VLAN's number is between 1 and 4094: 0 means no VLAN,
// and 4095 is reserved (IEEE 802.1Q).
func (ps *problems) checkEdges(l *layout) {
	names := map[string]struct{}{}
	type device struct {
		node, name string
		vlan       int
	}
	devices := map[device]string{}
	for i, e := range ps.net.Edges {
		if err := model.CheckName(e.Name); err != nil && (e.Mirror == nil || !ps.ofEdge(i, "to")) {
			ps.edge(i, "", "%v", err)
		}
		if _, twice := names[e.Name]; twice {
			ps.edge(i, "", "another edge has this name; choose a different one")
		}
		names[e.Name] = struct{}{}
		switch _, ok := l.elements[e.End.Element]; {
		case e.End.Element == "" && ps.ofEdge(i, "end", "to"), !ok && ps.mayBe(e.End.Element):
		case e.End.Element == "":
			ps.edge(i, "end", "it needs end:, the element or element:interface that the device is joined to")
		case !ok:
			ps.edge(i, "end", "there is no router, host or switch %s%s", e.End.Element, ps.near(e.End.Element))
		}
		if e.Mirror != nil {
			ps.checkMirror(i, l)
			continue
		}
		if e.Internet != nil {
			ps.checkInternet(i, l)
			continue
		}
		switch {
		case e.Device == "" && ps.ofEdge(i, "device", "internet"):
		case e.Device == "":
			ps.edge(i, "", "it needs device:, a real device like eth1, or internet: {}, the way out by the machine's "+
				"uplink")
		case model.DeviceName(e.Device) != e.Device:
			ps.edge(i, "device", "the device %q is no name of a Linux device; write one like eth1", e.Device)
		}
		if e.VLAN < 0 || e.VLAN > 4094 {
			ps.edge(i, "vlan", "the VLAN %d is not between 1 and 4094", e.VLAN)
		}
		d := device{e.Node, e.Device, e.VLAN}
		if e.Device == "" || ps.ofEdge(i, "device", "vlan", "node", "internet") {
			continue
		}
		if other, twice := devices[d]; twice {
			ps.edge(i, "device", "edge %s already has this device and VLAN", other)
		}
		devices[d] = e.Name
	}
	for i, e := range ps.net.Edges {
		for k, other := range ps.net.Edges[:i] {
			if e.Device != "" && e.Device == other.Device && e.Node == other.Node && e.VLAN != other.VLAN &&
				(e.WholeTrunk() || other.WholeTrunk()) && !ps.ofEdge(i, "vlan", "node") &&
				!ps.ofEdge(k, "vlan", "node") {
				ps.edge(i, "device", "edge %s is of this device too, and one of them is a trunk, which takes all of it",
					other.Name)
			}
		}
	}
}
