package manager

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// rebuilt is a network that was put together from what its nodes were told to have.
type rebuilt struct {
	record   model.Record
	resolved model.Resolved
	parts    map[string]model.NodeNetwork // what it was put together from, by node
	notes    []string                     // what of it could not be had back
}

// rebuild puts a network together. Addresses, loopbacks and gateways that were chosen for it become a part of its
// document, since nobody knows any more whether somebody had written them. Numbers are those that other networks do not
// have. With partial it leaves out links of which only one end is known, because the other end's node does not answer.
func rebuild(name string, parts map[string]model.NodeNetwork, partial bool,
	numbers *resolve.Numbers) (*rebuilt, error) {
	parts, moving := withoutMoves(parts)
	r := &rebuilt{parts: parts}
	net := model.Network{Name: name}
	as := model.Assigned{Links: map[string]model.AssignedLink{},
		Placement: model.Placement{Elements: map[string]string{}}}
	overrides := map[string]model.Override{}
	ends := map[string][]model.End{} // by link, as they were found
	links := map[string]model.Link{}
	for _, node := range slices.Sorted(maps.Keys(parts)) {
		part := parts[node]
		net.Title = cmp.Or(net.Title, part.Title) // nodes of earlier versions keep none
		switch {
		case as.Index == 0:
			as.Index, net.Slice, net.Owner = part.Index, part.Slice, part.Owner
		case as.Index != part.Index:
			return nil, fmt.Errorf("its nodes do not agree: node %s has it as number %d, another as %d; these are two "+
				"networks of one name", node, part.Index, as.Index)
		}
		for _, e := range part.Elements {
			if other, twice := as.Placement.Elements[e.Name]; twice {
				return nil, fmt.Errorf("element %s is on node %s and on node %s: which of them is the newer cannot "+
					"be told", e.Name, other, node)
			}
			as.Placement.Elements[e.Name] = node
			described := make([]model.Interface, len(e.Interfaces))
			for i := range e.Interfaces {
				described[i] = e.Interfaces[i].Described()
			}
			for i := range e.Interfaces {
				for _, v := range e.Interfaces[i].VLANs { // each has the MAC address of the one that it is on
					described = append(described, model.Interface{Name: v.Name, Addresses: v.Addresses, OSPF: v.OSPF,
						OSPF6: v.OSPF6})
				}
			}
			element := model.Rephased(e.PlacedElement, described)
			element.Routing.BGP = element.Routing.BGP.Described()
			element.MPLS = slices.Clone(element.MPLS)
			for i := range element.MPLS {
				element.MPLS[i] = element.MPLS[i].Described()
			}
			net.Elements = append(net.Elements, element)
			if e.Override != (model.Override{}) {
				overrides[e.Name] = e.Override
			}
			for _, f := range e.Interfaces {
				if f.Link == "" || f.Far == nil {
					continue
				}
				ends[f.Link] = append(ends[f.Link], model.End{Element: e.Name, Interface: f.Name})
				l := model.Link{Name: f.Link, BFD: f.BFD, VLAN: f.Untagged, VLANs: f.Tagged}
				if f.Access() && f.Untagged == model.DefaultVLAN {
					l.VLAN = 0 // it need not be said, but where no other is
				}
				if f.MTU != model.DefaultMTU {
					l.MTU = f.MTU
				}
				if s := f.Shape; s != nil {
					l.Bandwidth, l.Delay, l.Jitter, l.Loss = s.Bandwidth, s.Delay, s.Jitter, s.Loss
				}
				// Whoever has no address on a link was given none there.
				if l.Addressing = links[f.Link].Addressing; e.Kind != model.Switch && !hasAddress(&f) {
					l.Addressing = model.AddressingNone
				}
				if f.Far.Stopped {
					l.State = model.LinkDown
				}
				links[f.Link] = l
				if f.Far.VNI != 0 {
					as.Links[f.Link] = model.AssignedLink{VNI: f.Far.VNI}
				}
			}
		}
		for _, e := range part.Edges {
			if m := e.Mirror; m != nil && m.VNI != 0 {
				as.Links[model.MirrorKey(e.Name)] = model.AssignedLink{VNI: m.VNI}
			}
			net.Edges = append(net.Edges, model.DescribedEdge(e))
		}
	}
	for _, link := range slices.Sorted(maps.Keys(ends)) {
		l, at := links[link], ends[link]
		if len(at) == 1 && partial {
			r.notes = append(r.notes,
				fmt.Sprintf("link %s is left out, with what is at its other end: only that at %s is known",
					link, at[0].Element))
			leaveOut(&net, at[0])
			continue
		}
		if len(at) != 2 {
			return nil, fmt.Errorf("of link %s only the end at %s is known: a node that has the other has not "+
				"answered; "+
				"wait for it, or, if it is lost for good, do without the link (--changed)", link, at[0].Element)
		}
		// The first end is the one with which the link's name begins, if there is such a one.
		slices.SortFunc(at, func(a, b model.End) int {
			return cmp.Or(boolOrder(strings.HasPrefix(link, b.Element+"--"), strings.HasPrefix(link, a.Element+"--")),
				cmp.Compare(a.Element, b.Element))
		})
		l.Ends = [2]model.End{at[0], at[1]}
		net.Links = append(net.Links, l)
	}
	if partial {
		resolve.LeaveVRRP(&net)
		resolve.LeaveMPLS(&net)
	}
	if problems := resolve.Bounds(&net); len(problems) > 0 {
		return nil, fmt.Errorf("what the nodes tell is larger than a network may be: %s", problems[0].Message)
	}
	as.Placement.Links = relayedPaths(net.Links, &as, parts)
	document, _ := resolve.Read(net) // it was right when it was applied
	r.record = model.Record{Network: document.Network(), Assigned: as, Revision: 1}
	r.record.Moving = moving
	if len(overrides) > 0 {
		r.record.Overrides = overrides
	}
	var err error
	if r.resolved, r.record.Assigned, err = document.Resolve(as, numbers); err != nil {
		return nil, err
	}
	r.compare()
	return r, nil
}

// withoutMoves takes back the move of an element that still is where it was: the manager that sent its disk is no more.
// One that has the disk that was sent, or is about to, goes on.
func withoutMoves(parts map[string]model.NodeNetwork) (without map[string]model.NodeNetwork, moving *model.Moving) {
	leaving := map[string]bool{}
	stopped := map[string]bool{}
	for node, part := range parts {
		for i := range part.Elements {
			e := &part.Elements[i]
			if e.Leaving != "" {
				leaving[e.Name] = true
			}
			if e.Override.Stopped || e.Override.Quarantined {
				stopped[e.Name] = true
			}
			if e.Arrived != "" {
				moving = &model.Moving{Move: e.Arrived, Element: e.Name, To: node, Step: model.MoveStarting}
			}
		}
	}
	if len(leaving) == 0 {
		return parts, moving
	}
	without = maps.Clone(parts)
	for node, part := range parts {
		part.Arriving, part.Elements = nil, slices.Clone(part.Elements)
		for i := range part.Elements {
			e := &part.Elements[i]
			e.Leaving, e.Interfaces = "", slices.Clone(e.Interfaces)
			for k := range e.Interfaces {
				if f := e.Interfaces[k].Far; f != nil && leaving[f.Element] && f.Down {
					far := *f
					far.Down = f.Stopped || stopped[f.Element]
					e.Interfaces[k].Far = &far
				}
			}
		}
		without[node] = part
	}
	return without, moving
}

// relayedPaths are the paths of links that nodes relay, as far as these have told. The others are found anew. A node
// counts as on a path only where those beside it say the same: what one node tells is not to lead links over it.
// Of a link that was to change its path it is the one that an end sends by.
func relayedPaths(links []model.Link, as *model.Assigned,
	parts map[string]model.NodeNetwork) (paths map[string][]model.LinkPath) {
	relays := map[string]map[string][2]string{} // by link and node: the nodes beside it on the path
	for node, part := range parts {
		for _, r := range part.Relays {
			if r.VNI != as.Links[r.Link].VNI {
				continue
			}
			if relays[r.Link] == nil {
				relays[r.Link] = map[string][2]string{}
			}
			relays[r.Link][node] = r.Nodes
		}
	}
	placed := as.Placement.Elements
	for i := range links {
		l := &links[i]
		of, first, last := relays[l.Name], placed[l.Ends[0].Element], placed[l.Ends[1].Element]
		if len(of) == 0 || first == "" || last == "" || first == last {
			continue
		}
		path := []string{first}
		for node, beside := range of {
			if beside[0] == first || beside[1] == first {
				path = append(path, node)
			}
		}
		if len(path) != 2 {
			continue // nobody says that it is next, or several do
		}
		for at := path[1]; len(path) < len(of)+2; at = path[len(path)-1] {
			beside, relays := of[at]
			before := path[len(path)-2]
			if !relays || beside[0] != before && beside[1] != before {
				break
			}
			next := beside[0]
			if next == before {
				next = beside[1]
			}
			if slices.Contains(path, next) {
				break
			}
			path = append(path, next)
		}
		if len(path) != len(of)+2 || path[len(path)-1] != last {
			continue
		}
		if paths == nil {
			paths = map[string][]model.LinkPath{}
		}
		paths[l.Name] = []model.LinkPath{{Nodes: path}}
	}
	return paths
}

// hasAddress tells whether an interface has an address, or one of a VLAN on it has. On a trunk that has no VLAN for
// frames without a tag, the interface itself has none.
func hasAddress(f *model.PlacedInterface) bool {
	global := func(a netip.Prefix) bool { return !a.Addr().IsLinkLocalUnicast() }
	return slices.ContainsFunc(f.Addresses, global) || slices.ContainsFunc(f.VLANs,
		func(v model.ResolvedInterface) bool { return slices.ContainsFunc(v.Addresses, global) })
}

// leaveOut removes an interface from a network, and the gateways and next hops that are reached by it.
func leaveOut(n *model.Network, end model.End) {
	i := slices.IndexFunc(n.Elements, func(e model.Element) bool { return e.Name == end.Element })
	e := &n.Elements[i]
	k := slices.IndexFunc(e.Interfaces, func(f model.Interface) bool { return f.Name == end.Interface })
	f := e.Interfaces[k]
	for _, v := range e.Interfaces {
		if vlan, is := strings.CutPrefix(v.Name, f.Name+"."); is && isNumber(vlan) {
			leaveOut(n, model.End{Element: end.Element, Interface: v.Name}) // a VLAN on it
		}
	}
	k = slices.IndexFunc(e.Interfaces, func(f model.Interface) bool { return f.Name == end.Interface })
	e.Interfaces = slices.Delete(slices.Clone(e.Interfaces), k, k+1)
	beyond := func(a netip.Addr) bool {
		return slices.ContainsFunc(f.Addresses, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	without := func(gateways []netip.Addr, all []model.Route) ([]netip.Addr, []model.Route) {
		var routes []model.Route
		for _, r := range all {
			had := len(r.Via)
			if r.Via = slices.DeleteFunc(slices.Clone(r.Via), beyond); r.Interface == f.Name ||
				had > 0 && len(r.Via) == 0 {
				continue
			}
			routes = append(routes, r)
		}
		return slices.DeleteFunc(slices.Clone(gateways), beyond), routes
	}
	if name := e.VRFOf(f.Name); name != "" {
		v := e.VRFs[name]
		v.Interfaces = slices.DeleteFunc(slices.Clone(v.Interfaces), func(s string) bool { return s == f.Name })
		v.Gateways, v.Routes = without(v.Gateways, v.Routes)
		e.VRFs = maps.Clone(e.VRFs)
		e.VRFs[name] = v
	} else {
		e.Gateways, e.Routes = without(e.Gateways, e.Routes)
	}
	if b := e.Routing.BGP; b != nil {
		d := *b
		d.Neighbors = slices.DeleteFunc(slices.Clone(b.Neighbors),
			func(n model.BGPNeighbor) bool { return n.Interface == f.Name })
		e.Routing.BGP = &d
	}
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

func boolOrder(a, b bool) int {
	switch {
	case a && !b:
		return 1
	case b && !a:
		return -1
	}
	return 0
}

// compare notes which elements would not be exactly as they are.
func (r *rebuilt) compare() {
	substrate := model.Substrate{}
	for node := range r.parts {
		substrate.Nodes = append(substrate.Nodes, model.SubstrateNode{Name: node})
	}
	states := model.NodeStates([]model.ResolvedRecord{{Network: r.resolved, Assigned: r.record.Assigned,
		Overrides: r.record.Overrides, Moving: r.record.Moving}}, substrate)
	for _, node := range slices.Sorted(maps.Keys(r.parts)) {
		var now model.NodeNetwork
		if n := states[node].Networks; len(n) == 1 {
			now = n[0]
		}
		is := map[string]string{}
		for _, e := range now.Elements {
			is[e.Name] = canonical(e)
		}
		for _, e := range r.parts[node].Elements {
			if was := canonical(e); was != is[e.Name] {
				r.notes = append(r.notes, fmt.Sprintf("element %s is not put together as it is: %s", e.Name,
					difference(was, is[e.Name])))
			}
		}
	}
}

// canonical is an element as a text that does not depend on the order of the elements that it reaches, nor on the paths
// of its links.
func canonical(e model.NodeElement) string {
	e.Interfaces = slices.Clone(e.Interfaces)
	for i := range e.Interfaces {
		if f := e.Interfaces[i].Far; f != nil && (len(f.Peers) > 1 || f.Via != "" || f.Also != nil) {
			far := *f
			far.Via, far.Also = "", nil
			far.Peers = slices.SortedFunc(slices.Values(far.Peers),
				func(a, b model.LinkPeer) int { return cmp.Compare(a.MAC, b.MAC) })
			e.Interfaces[i].Far = &far
		}
	}
	slices.SortFunc(e.Interfaces, func(a, b model.PlacedInterface) int { return cmp.Compare(a.Name, b.Name) })
	b, err := json.Marshal(e)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// difference is the place where two texts begin to differ.
func difference(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	from := max(0, i-20)
	return fmt.Sprintf("…%s… would be …%s…", a[from:min(len(a), i+40)], b[min(from, len(b)):min(len(b), i+40)])
}

// same returns whether all elements are exactly as they are.
func (r *rebuilt) same() bool { return len(r.notes) == 0 }
