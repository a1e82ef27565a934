package resolve

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// Resolve works out everything about a network but where it runs: every interface gets its device name, MAC, MTU, link
// and far end, and its addresses; routers with routing protocols get loopbacks and router IDs, hosts gateways, BGP
// speakers their neighbours and networks. What had to be chosen is in the returned Assigned; given again, it is chosen
// again: nothing is renumbered by what happens beside it, and what has gone is given up. A new network is given with an
// empty Assigned. Placement and Turns are passed through.
//
// Addresses: what the document states is used and never collided with. A link that states prefixes is numbered from
// them, first end .1, second end .2; one that states nothing gets a /30 and a /64 from the pools, in the families that
// Families tells; connected switches are one segment, which gets a /24 (or as much as its members need) and a /64.
//
// The document should be right, as Read tells. Resolve is pure but for the numbers that it takes; O(n log n).
func (d Document) Resolve(as model.Assigned, numbers *Numbers) (model.Resolved, model.Assigned, error) {
	net := d.net
	r := resolver{layout: newLayout(&net), out: unresolved(net), was: as,
		now: model.Assigned{Index: as.Index, Placement: as.Placement, Turns: as.Turns}}
	if r.now.Index == 0 {
		index, err := numbers.Index()
		if err != nil {
			return r.out, as, fmt.Errorf("network %s: %w", net.Name, err)
		}
		r.now.Index = index
	}
	for _, step := range []func() error{
		func() error { return r.links(numbers) }, func() error { return r.mirrors(numbers) }, r.edges,
		r.subnets, r.virtualRouters, r.loopbacks,
	} {
		if err := step(); err != nil {
			return r.out, as, fmt.Errorf("network %s: %w", net.Name, err)
		}
	}
	r.inVRFs()
	r.neighbours()
	r.internets()
	r.labels()
	r.peers()
	return r.out, r.now, nil
}

// resolver works out what a document leaves open: it keeps what was assigned before (was), and notes what is now.
type resolver struct {
	*layout                 // of the document
	out      model.Resolved // with the document's elements, interfaces, links and edges, by the same indices
	was, now model.Assigned
	explicit map[spaced]struct{} // addresses that the document states
}

// unresolved contains what the document says; the resolver fills in the rest. It shares nothing with the document that
// the resolver writes to.
func unresolved(net model.Network) model.Resolved {
	out := model.Resolved{Name: net.Name, Slice: net.Slice, Placing: net.Placing, Attack: net.Attack, Links: net.Links,
		Elements: make([]model.ResolvedElement, len(net.Elements)), Edges: make([]model.ResolvedEdge, len(net.Edges))}
	for i := range net.Elements {
		interfaces := each.Of(net.Elements[i].Interfaces, func(f model.Interface) model.ResolvedInterface {
			return model.ResolvedInterface{Name: f.Name, MAC: f.MAC, Addresses: f.Addresses,
				OSPF: f.OSPF, OSPF6: f.OSPF6,
				MTU: model.DefaultMTU}
		})
		out.Elements[i] = model.Rephased(net.Elements[i], interfaces)
		out.Elements[i].VRRP = slices.Clone(out.Elements[i].VRRP)
	}
	for i, e := range net.Edges {
		var internet *model.ResolvedInternet
		if e.Internet != nil {
			internet = &model.ResolvedInternet{Internet: *e.Internet}
		}
		out.Edges[i] = model.WithParts(e, internet, e.Mirror)
	}
	return out
}

// interfaceOf is a member's interface while it is being resolved.
func (r *resolver) interfaceOf(m member) *model.ResolvedInterface {
	return &r.out.Elements[m.element].Interfaces[m.iface]
}

// links joins the interfaces and gives every link its VNI.
func (r *resolver) links(numbers *Numbers) error {
	for i := range r.out.Elements {
		e := &r.out.Elements[i]
		for k := range e.Interfaces {
			f := &e.Interfaces[k]
			if d := model.DeviceName(f.Name); d != f.Name {
				f.Device = d
			}
			if f.MAC == "" {
				f.MAC = model.MAC(model.PortID{ID: model.ID{Network: r.out.Name, Element: e.Name}, Interface: f.Name})
			}
		}
	}
	r.now.Links = make(map[string]model.AssignedLink, len(r.out.Links))
	fars := make([]model.Far, 0, 2*len(r.out.Links))
	for _, link := range r.out.Links {
		if _, _, ok := r.ends(link); !ok {
			return model.ProblemOf(model.AboutLink, link.Name, "",
				"it joins %s and %s, which are not both elements of the network", link.Ends[0].Element,
				link.Ends[1].Element)
		}
		given := model.AssignedLink{VNI: r.was.Links[link.Name].VNI}
		if given.VNI == 0 {
			var err error
			if given.VNI, err = numbers.VNI(); err != nil {
				return fmt.Errorf("link %s: %w", link.Name, err)
			}
		}
		r.now.Links[link.Name] = given
		shape := shapeOf(link)
		for k, end := range link.Ends {
			f := &r.out.Elements[r.elements[end.Element]].Interfaces[r.interfaces[end]]
			far := link.Ends[1-k]
			fars = append(fars, model.Far{Element: far.Element, Interface: far.Interface,
				Kind: r.out.Elements[r.elements[far.Element]].Kind})
			f.Link, f.Far, f.Shape, f.BFD = link.Name, &fars[len(fars)-1], shape, link.BFD
			if link.MTU != 0 {
				f.MTU = link.MTU
			}
		}
	}
	for k := range r.out.Links {
		r.interfacesOfVLANs(&r.out.Links[k], &r.vlans.links[k])
	}
	return nil
}

// interfacesOfVLANs tells a link's ends which VLANs it carries, and joins the interfaces of these VLANs.
func (r *resolver) interfacesOfVLANs(link *model.Link, c *carriage) {
	if !c.aware() {
		return
	}
	for k, end := range link.Ends {
		e := &r.out.Elements[r.elements[end.Element]]
		f := &e.Interfaces[r.interfaces[end]]
		f.Untagged, f.Tagged = c.untagged, model.VLANsOf(slices.Clone(c.tagged))
		if e.Kind == model.Switch {
			continue
		}
		for _, vlan := range c.tagged {
			far := *f.Far
			if far.Kind != model.Switch {
				far.Interface = c.end(link.Ends[1-k], vlan).Interface
			}
			of := &e.Interfaces[r.interfaces[c.end(end, vlan)]]
			of.VLAN, of.On, of.MAC, of.Link, of.Far = vlan, f.Name, f.MAC, f.Link, &far
			of.MTU, of.BFD = f.MTU, f.BFD
		}
	}
}

// shapeOf is what the link does to packets, the same in both directions.
func shapeOf(l model.Link) *model.Shape {
	s := model.Shape{Bandwidth: l.Bandwidth, Delay: l.Delay, Jitter: l.Jitter, Loss: l.Loss}
	if s == (model.Shape{}) {
		return nil
	}
	return &s
}

func (r *resolver) edges() error {
	for _, edge := range r.out.Edges {
		i, ok := r.elements[edge.End.Element]
		if !ok {
			return fmt.Errorf("edge %s is %s's, which is no element of the network", edge.Name, edge.End.Element)
		}
		f := &r.out.Elements[i].Interfaces[r.interfaces[edge.End]]
		f.Edge, f.Internet = edge.Name, edge.Internet != nil
		f.Unannounced = f.Internet && edge.Internet.Unannounced
	}
	return nil
}

// subnets numbers the segments. Those that state something come first, so that what is chosen for the others stays
// clear of them.
func (r *resolver) subnets() error {
	v4, v6 := Families(r.net)
	pools := r.net.Pools
	if len(pools) == 0 {
		pools = DefaultPools()
	}
	var taken4, taken6 []span
	take := func(p netip.Prefix) {
		if p.Addr().Is4() {
			taken4 = append(taken4, spanOf(p))
		} else {
			taken6 = append(taken6, spanOf(p))
		}
	}
	take(LoopbackPool4)
	take(LoopbackPool6)
	r.explicit = map[spaced]struct{}{}
	for i, e := range r.out.Elements {
		for _, f := range e.Interfaces {
			for _, a := range f.Addresses {
				take(a)
				r.explicit[r.placeOf(i, f.Name, a.Addr())] = struct{}{}
			}
		}
		for _, a := range e.Loopback {
			take(a)
			r.explicit[r.ownPlace(i, a.Addr())] = struct{}{}
		}
		for _, p := range e.Prefixes {
			take(p)
		}
		for _, v := range e.VRRP {
			if v.Address.IsValid() {
				for k := range r.segments {
					if s := &r.segments[k]; slices.Contains(s.switches, i) {
						r.explicit[spaced{r.spaceOf(s), v.Address}] = struct{}{}
					}
				}
			}
		}
	}
	for _, l := range r.out.Links {
		for _, p := range l.Prefixes {
			take(p)
		}
	}
	r.now.Addresses = map[string][]netip.Prefix{}
	r.now.Segments = map[string][]netip.Prefix{}
	stated4, stated6 := newSpans(slices.Clone(taken4)), newSpans(slices.Clone(taken6))

	// What was given before is kept, unless it is in the document's way now.
	var numbered []numbering
	for i := range r.segments {
		s := &r.segments[i]
		n := numbering{segment: s, key: r.segmentKey(*s)}
		n.subnets, n.assign = r.statedSubnets(*s)
		if n.assign {
			for _, p := range r.given(n) {
				known, enabled := stated4, v4
				if p.Addr().Is6() {
					known, enabled = stated6, v6
				}
				if _, hit := known.overlap(spanOf(p)); !hit && enabled && inPools(pools, p) {
					n.subnets = append(n.subnets, p)
					take(p)
				}
			}
		}
		numbered = append(numbered, n)
	}
	p4, p6 := newPool(false, pools, taken4), newPool(true, pools, taken6)
	// Large segments first, so that one walk through the pool does for each size.
	for _, switched := range []bool{true, false} {
		for i := range numbered {
			n := &numbered[i]
			if !n.assign || len(n.segment.members) == 0 || len(n.segment.switches) > 0 != switched {
				continue
			}
			if err := r.choose(n, v4, p4, v6, p6, switched); err != nil {
				return r.problem(*n.segment, "%s", err)
			}
		}
	}
	for i := range numbered {
		if err := r.number(numbered[i]); err != nil {
			return err
		}
	}
	if len(r.now.Addresses) == 0 {
		r.now.Addresses = nil
	}
	if len(r.now.Segments) == 0 {
		r.now.Segments = nil
	}
	return nil
}

// numbering says from what a segment is numbered.
type numbering struct {
	segment *segment
	key     string         // of a switched segment in Assigned.Segments
	subnets []netip.Prefix // one an address family
	assign  bool           // the document states nothing, so the subnets are chosen here
}

func inPools(pools []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(pools, func(r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Contains(p.Addr()) })
}

// segmentKey is the switch under which the segment's subnets are kept: the first that has any from before, or else the
// first. So a switch that joins does not renumber the segment. VLANs have their numbers behind the switch's name,
// except for the one that the switch's prefixes are for. On a link between others than switches the link has the
// switch's place.
func (r *resolver) segmentKey(s segment) string {
	if len(s.switches) == 0 {
		if len(s.links) == 0 || s.vlan == r.vlans.links[s.links[0]].untagged {
			return ""
		}
		return r.out.Links[s.links[0]].Name + ":" + strconv.Itoa(s.vlan)
	}
	behind := ""
	if s.vlan > model.DefaultVLAN {
		behind = "/" + strconv.Itoa(s.vlan)
	}
	names := each.Of(s.switches, func(e int) string { return r.out.Elements[e].Name + behind })
	slices.Sort(names)
	for _, n := range names {
		if _, ok := r.was.Segments[n]; ok {
			return n
		}
	}
	return names[0]
}

// given is what the segment got the last time.
func (r *resolver) given(n numbering) []netip.Prefix {
	switch {
	case n.key != "":
		return r.was.Segments[n.key]
	case len(n.segment.links) == 0:
		return r.was.Edges[r.out.Edges[n.segment.internet[0]].Name]
	}
	return r.was.Links[r.out.Links[n.segment.links[0]].Name].Prefixes
}

// statedSubnets are the subnets that the document states for the segment, by a prefix or by an interface's address;
// prefixes come first. If there are none, they are assigned.
func (r *resolver) statedSubnets(s segment) (subnets []netip.Prefix, assign bool) {
	has := func(v6 bool) bool {
		return slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Addr().Is6() == v6 })
	}
	for _, p := range r.stated(s) {
		if !has(p.Addr().Is6()) {
			subnets = append(subnets, p.Masked())
		}
	}
	assign = len(subnets) == 0 && (len(s.internet) > 0 || slices.ContainsFunc(s.members, r.numbered))
	for _, m := range s.members {
		for _, a := range r.interfaceOf(m).Addresses {
			if a.Addr().IsLinkLocalUnicast() {
				continue
			}
			assign = false
			if !has(a.Addr().Is6()) && !a.IsSingleIP() {
				subnets = append(subnets, a.Masked())
			}
		}
	}
	return subnets, assign
}

// choose takes the subnets that the segment lacks from the pools, and keeps them in Assigned.
func (r *resolver) choose(n *numbering, v4 bool, p4 *pool, v6 bool, p6 *pool, switched bool) error {
	for _, f := range []struct {
		enabled, v6 bool
		pool        *pool
	}{{v4, false, p4}, {v6, true, p6}} {
		if !f.enabled || len(f.pool.ranges) == 0 ||
			slices.ContainsFunc(n.subnets, func(p netip.Prefix) bool { return p.Addr().Is6() == f.v6 }) {
			continue
		}
		bits := linkBits4
		if switched {
			bits = segmentBits4
			need := uint64(len(n.segment.members) + len(n.segment.internet) + r.virtuals(n.segment))
			for _, last := hostNumbers(netip.PrefixFrom(netip.IPv4Unspecified(), bits)); last < need && bits > 8; {
				bits--
				_, last = hostNumbers(netip.PrefixFrom(netip.IPv4Unspecified(), bits))
			}
		}
		if f.v6 {
			bits = subnetBits6
		}
		p, err := f.pool.take(bits)
		if err != nil {
			return err
		}
		n.subnets = append(n.subnets, p)
	}
	slices.SortFunc(n.subnets, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	if n.key != "" {
		r.now.Segments[n.key] = n.subnets
		return nil
	}
	if len(n.segment.links) == 0 {
		if r.now.Edges == nil {
			r.now.Edges = map[string][]netip.Prefix{}
		}
		r.now.Edges[r.out.Edges[n.segment.internet[0]].Name] = n.subnets
		return nil
	}
	name := r.out.Links[n.segment.links[0]].Name
	given := r.now.Links[name]
	given.Prefixes = n.subnets
	r.now.Links[name] = given
	return nil
}

// number gives an address of the subnet to every member of the segment that states none of its family.
func (r *resolver) number(n numbering) error {
	s := *n.segment
	space := r.spaceOf(&s)
	for _, subnet := range n.subnets {
		v6 := subnet.Addr().Is6()
		r.virtualAddresses(s, subnet)
		open := each.That(s.members, func(m member) bool {
			return r.numbered(m) && !slices.ContainsFunc(r.interfaceOf(m).Addresses, func(a netip.Prefix) bool {
				return a.Addr().Is6() == v6 && !a.Addr().IsLinkLocalUnicast()
			})
		})
		if len(open) == 0 && len(s.internet) == 0 {
			continue
		}
		used := make(map[netip.Addr]struct{}, len(open))
		first, last := hostNumbers(subnet)
		give := func(m member, a netip.Addr) {
			used[a] = struct{}{}
			f := r.interfaceOf(m)
			// A copy: the document's slice must not be written to.
			f.Addresses = append(slices.Clone(f.Addresses), netip.PrefixFrom(a, subnet.Bits()))
		}
		if n.key != "" {
			open = r.keepAddresses(space, open, subnet, give)
		}
		for _, edge := range s.internet {
			if !r.gateway(space, edge, subnet, used, first, last) {
				return fmt.Errorf("%s: %s has no address left for the gateway of edge %s; state a larger prefix",
					r.name(s), subnet,
					r.out.Edges[edge].Name)
			}
		}
		next := first
		for _, m := range open {
			if n.key == "" && len(s.members) == 2 && m == s.members[1] && next == first {
				next++ // the second end is .2 even if the first states its own address
			}
			a, ok := r.free(space, subnet, &next, last, used)
			if !ok && len(s.members) == 2 {
				next = first
				a, ok = r.free(space, subnet, &next, last, used)
			}
			if !ok {
				return r.problem(s, "%s has no address left for %s; state a larger prefix", subnet,
					r.out.Elements[m.element].Name)
			}
			give(m, a)
			if n.key != "" {
				key := r.addressKey(m)
				r.now.Addresses[key] = append(r.now.Addresses[key], netip.PrefixFrom(a, subnet.Bits()))
			}
		}
	}
	return nil
}

func (r *resolver) addressKey(m member) string {
	return r.out.Links[m.link].Name + "/" + r.out.Elements[m.element].Name + ":" + r.interfaceOf(m).Name
}

// keepAddresses gives the members of a switched segment the addresses that they had before. It returns the others,
// routers first.
func (r *resolver) keepAddresses(space int, open []member, subnet netip.Prefix,
	give func(member, netip.Addr)) []member {
	var routers, hosts []member
	for _, m := range open {
		key := r.addressKey(m)
		had := slices.IndexFunc(r.was.Addresses[key], func(p netip.Prefix) bool { return p.Masked() == subnet })
		if had >= 0 {
			p := r.was.Addresses[key][had]
			if _, stated := r.explicit[spaced{space, p.Addr()}]; !stated {
				give(m, p.Addr())
				r.now.Addresses[key] = append(r.now.Addresses[key], p)
				continue
			}
		}
		if r.out.Elements[m.element].Kind == model.Router {
			routers = append(routers, m)
		} else {
			hosts = append(hosts, m)
		}
	}
	return append(routers, hosts...)
}

// free returns the subnet's first free address from the number next on.
func (r *resolver) free(space int, subnet netip.Prefix, next *uint64, last uint64,
	used map[netip.Addr]struct{}) (netip.Addr, bool) {
	for ; *next <= last; *next++ {
		a := nth(subnet, *next)
		if _, stated := r.explicit[spaced{space, a}]; stated {
			continue
		}
		if _, ok := used[a]; !ok {
			*next++
			return a, true
		}
	}
	return netip.Addr{}, false
}
