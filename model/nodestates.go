package model

import (
	"cmp"
	"net/netip"
	"slices"
)

// ResolvedRecord is one network as Resolve left it, with what was set at run time.
type ResolvedRecord struct {
	Network   Resolved
	Assigned  Assigned
	Overrides map[string]Override
	Policies  Policies
	Moving    *Moving
}

// offLine tells that the far ends of an element's links have no carrier.
func (r *ResolvedRecord) offLine(element string) bool {
	return r.Overrides[element].offLine() || r.Moving.Copies(element)
}

// moves adds what a move that is under way asks of nodes to their parts.
func (r *ResolvedRecord) moves(parts map[string]NodeNetwork) {
	m := r.Moving
	if m == nil {
		return
	}
	at := m.To
	if m.Step == MoveCopying {
		at = r.Assigned.Placement.Elements[m.Element]
	}
	elements := parts[at].Elements
	i := slices.IndexFunc(elements, func(e NodeElement) bool { return e.Name == m.Element })
	switch {
	case i < 0:
	case m.Step != MoveCopying:
		elements[i].Arrived = m.Move
	default:
		elements[i].Leaving = m.Move
		part, ok := parts[m.To]
		if !ok {
			part = NodeNetwork{Name: r.Network.Name, Index: r.Assigned.Index, Slice: r.Network.Slice}
		}
		part.Arriving = []Arrival{{Element: m.Element, Move: m.Move, Disk: elements[i].Limits().Disk}}
		parts[m.To] = part
	}
}

// NodeStates tells what every node of the substrate shall have, by node name: its elements, complete with where their
// links end, its peers, and its links to neighbours. Elements without a node in Assigned.Placement are on none. A far
// end that is stopped, in quarantine or on no node is Down, and so are both ends of a link that shall be down. The
// caller fills in the revision. Nothing in the records is changed, but the states share with them whatever does not
// differ.
func NodeStates(records []ResolvedRecord, substrate Substrate) map[string]NodeState {
	states := make(map[string]NodeState, len(substrate.Nodes))
	links := nodeLinks(substrate)
	for _, n := range substrate.Nodes {
		s := NodeState{Node: n.Name}
		for _, p := range substrate.Nodes {
			if p.Name != n.Name && p.Address.IsValid() {
				s.Peers = append(s.Peers, Peer{Name: p.Name, Address: p.Address})
			}
		}
		slices.SortFunc(s.Peers, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
		s.Links = links[n.Name]
		s.Hook = cmp.Or(n.Hook, substrate.Hook)
		states[n.Name] = s
	}
	simulated := substrate.simulated()
	for _, r := range records {
		for node, part := range r.parts(simulated) {
			if s, ok := states[node]; ok {
				s.Networks = append(s.Networks, part)
				states[node] = s
			}
		}
	}
	for name, s := range states {
		slices.SortFunc(s.Networks, func(a, b NodeNetwork) int { return cmp.Compare(a.Name, b.Name) })
		states[name] = s
	}
	return states
}

// nodeLinks are the substrate's links by the nodes at their ends, without those to a node that has no address.
func nodeLinks(substrate Substrate) map[string][]NodeLink {
	addresses := make(map[string]netip.Addr, len(substrate.Nodes))
	for _, n := range substrate.Nodes {
		addresses[n.Name] = n.Address
	}
	links := map[string][]NodeLink{}
	for _, l := range substrate.Links {
		for _, end := range [][2]string{{l.A, l.B}, {l.B, l.A}} {
			if to := addresses[end[1]]; to.IsValid() {
				links[end[0]] = append(links[end[0]], NodeLink{To: end[1], Address: to, Bandwidth: l.Bandwidth})
			}
		}
	}
	for _, l := range links {
		slices.SortFunc(l, func(a, b NodeLink) int { return cmp.Compare(a.To, b.To) })
	}
	return links
}

// relay adds what nodes relay to their parts.
func (r ResolvedRecord) relay(parts map[string]NodeNetwork, simulated map[string]bool) {
	placed := r.Assigned.Placement.Elements
	for i := range r.Network.Links {
		l := &r.Network.Links[i]
		shape := &Shape{Bandwidth: l.Bandwidth, Delay: l.Delay, Jitter: l.Jitter, Loss: l.Loss}
		if *shape == (Shape{}) {
			shape = nil
		}
		in, also := r.Assigned.paths(l.Name, simulated)
		for _, p := range slices.Concat([]NumberedPath{in}, also) {
			if p.via(placed[l.Ends[0].Element], placed[l.Ends[1].Element], simulated) == "" {
				continue
			}
			for k := 1; k < len(p.Nodes)-1; k++ {
				part, ok := parts[p.Nodes[k]]
				if !ok {
					part = NodeNetwork{Name: r.Network.Name, Index: r.Assigned.Index, Slice: r.Network.Slice}
				}
				part.Relays = append(part.Relays, Relay{Link: l.Name, VNI: p.VNI,
					Nodes: [2]string{p.Nodes[k-1], p.Nodes[k+1]}, Shape: shape, MTU: cmp.Or(l.MTU, DefaultMTU)})
				parts[p.Nodes[k]] = part
			}
		}
	}
}

// parts are the network's parts by node.
func (r ResolvedRecord) parts(simulated map[string]bool) map[string]NodeNetwork {
	placed := r.Assigned.Placement.Elements
	count := 0
	for i := range r.Network.Elements {
		count += len(r.Network.Elements[i].Interfaces)
	}
	interfaces := make([]PlacedInterface, 0, count) // one block each for all elements
	fars := make([]PlacedFar, 0, count)
	parts := map[string]NodeNetwork{}
	copies := r.copies()
	names, outside := r.names()
	stopped := map[string]bool{}
	for k := range r.Network.Links {
		if r.Network.Links[k].State == LinkDown {
			stopped[r.Network.Links[k].Name] = true
		}
	}
	for k := range r.Network.Elements {
		e := &r.Network.Elements[k]
		node := placed[e.Name]
		if node == "" {
			continue
		}
		first := len(interfaces)
		onOthers := make(map[string][]ResolvedInterface) // interfaces of VLANs, by the one that they are on
		for k := range e.Interfaces {
			if f := &e.Interfaces[k]; f.VLAN != 0 && slices.ContainsFunc(e.Interfaces,
				func(on ResolvedInterface) bool { return on.Name == f.On && on.VLAN == 0 }) {
				onOthers[f.On] = append(onOthers[f.On], *f)
			}
		}
		for k := range e.Interfaces {
			if f := &e.Interfaces[k]; f.VLAN != 0 && onOthers[f.On] != nil {
				continue
			}
			i := PlacedInterface{ResolvedInterface: e.Interfaces[k]}
			if f := i.ResolvedInterface.Far; f != nil {
				i.ResolvedInterface.Far = nil
				far := PlacedFar{Far: *f}
				farNode := placed[far.Element]
				far.Stopped = stopped[i.Link]
				far.Down = far.Stopped || farNode == "" || r.offLine(far.Element)
				if farNode != "" && farNode != node {
					in, also := r.Assigned.paths(i.Link, simulated)
					far.Node, far.VNI, far.Via = farNode, in.VNI, in.via(node, farNode, simulated)
					for _, p := range also {
						far.Also = append(far.Also, FarTunnel{p.VNI, p.via(node, farNode, simulated)})
					}
				}
				fars = append(fars, far)
				i.Far = &fars[len(fars)-1]
			}
			i.Copy = copies[End{e.Name, i.Name}]
			i.VLANs = onOthers[i.Name]
			interfaces = append(interfaces, i)
		}
		is := Rephased(*e, interfaces[first:len(interfaces):len(interfaces)])
		part, ok := parts[node]
		if !ok {
			part = NodeNetwork{Name: r.Network.Name, Index: r.Assigned.Index, Slice: r.Network.Slice, Names: names,
				Outside: outside}
		}
		is.Attack, _ = AttackPolicyOf(r.Network.Attack, e.Name, e.Attack, r.Policies)
		if is.Attack == AttackTell {
			is.Attack = "" // the default
		}
		part.Elements = append(part.Elements, NodeElement{PlacedElement: is, Override: r.Overrides[e.Name]})
		parts[node] = part
	}
	for k := range r.Network.Edges {
		edge := &r.Network.Edges[k]
		if node := placed[edge.End.Element]; node != "" {
			part := parts[node]
			part.Edges = append(part.Edges, WithParts(*edge, edge.Internet, r.placedMirror(edge)))
			parts[node] = part
		}
	}
	r.relay(parts, simulated)
	r.moves(parts)
	return parts
}

// names are the addresses by which the network's elements find each other, and whether there is a way out.
func (r ResolvedRecord) names() (all []NamedAddresses, outside bool) {
	all = make([]NamedAddresses, 0, min(len(r.Network.Elements), MaxNames))
	for k := range r.Network.Elements {
		n := namesOf(&r.Network.Elements[k], func(i *ResolvedInterface) []netip.Prefix { return i.ownAddresses() })
		n.Space = r.Network.Spaces[n.Name]
		if len(n.Addresses) > 0 && len(all) < MaxNames {
			all = append(all, n)
		}
	}
	outside = slices.ContainsFunc(r.Network.Edges, func(e ResolvedEdge) bool { return e.Internet != nil })
	return all, outside
}
