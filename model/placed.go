package model

import (
	"net/netip"
	"slices"
)

// NodeNetwork is a network's part on one node. Elements are complete: every interface has its MAC, MTU, addresses and
// far end, every intent its neighbours.
type NodeNetwork struct {
	Name  string `json:"name"`
	Index uint32 `json:"index"`
	// Title is what its owner calls it; empty where that is the name. Owner is whose it is. Both are told so that they
	// are known should the store be lost.
	Title string `json:"title,omitempty"`
	Owner string `json:"owner,omitempty"`
	// Seal proves that the manager placed it on the node, for the case that the store is lost: see HeldNetwork.
	Seal     string        `json:"seal,omitempty"`
	Slice    Slice         `json:"slice,omitzero"`
	Elements []NodeElement `json:"elements,omitempty"`
	// Edges are those whose inner ends are on the node. The elements' interfaces refer to them by name.
	Edges []PlacedEdge `json:"edges,omitempty"`
	// Relays are the links whose path leads through the node. A node may have these and no elements.
	Relays []Relay `json:"relays,omitempty"`
	// Arriving are elements that are being moved to the node, and are not on it yet: it takes their disks.
	Arriving []Arrival `json:"arriving,omitempty"`
	// Names are the addresses of all elements of the network, wherever they are, so that they find each other by name.
	Names []NamedAddresses `json:"names,omitempty"`
	// Outside tells that an internet edge leads out of the network.
	Outside bool `json:"outside,omitempty"`
}

// NamedAddresses are an element's address by which others find it, at most one an address family.
type NamedAddresses struct {
	Name      string       `json:"name"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Space is where these addresses are: elements know the names of their own space. VRFs keep spaces apart.
	Space int `json:"space,omitempty"`
}

// MaxNames is how many names an element knows at most.
const MaxNames = 4096

// Equal tells whether both are the same.
func (n NamedAddresses) Equal(o NamedAddresses) bool {
	return n.Name == o.Name && n.Space == o.Space && slices.Equal(n.Addresses, o.Addresses)
}

// NamesOf is the address by which others find an element: that of its loopback, else of its first interface that has
// one.
func NamesOf(e *PlacedElement) NamedAddresses {
	return namesOf(e, func(i *PlacedInterface) []netip.Prefix { return i.ownAddresses() })
}

func namesOf[I any](e *ElementOf[I], addresses func(*I) []netip.Prefix) NamedAddresses {
	n := NamedAddresses{Name: e.Name}
	n.add(e.Loopback)
	for i := range e.Interfaces {
		n.add(addresses(&e.Interfaces[i]))
	}
	return n
}

func (n *NamedAddresses) add(prefixes []netip.Prefix) {
	for _, p := range prefixes {
		a := p.Addr()
		if !a.IsLinkLocalUnicast() && !slices.ContainsFunc(n.Addresses,
			func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			n.Addresses = append(n.Addresses, a)
		}
	}
}

// NodeElement is one element that shall be on this node.
type NodeElement struct {
	PlacedElement
	Override
	// Leaving is the move by which it leaves the node: it stands still, and its disk is left alone. Arrived is the one
	// by which it has come: it starts with the disk that was sent, and not without it.
	Leaving string `json:"leaving,omitempty"`
	Arrived string `json:"arrived,omitempty"`
}

// PlacedElement is an element whose interfaces know where their far ends are.
type PlacedElement = ElementOf[PlacedInterface]

// PlacedInterface is an interface as its node has to know it: what ResolvedInterface has, and what follows from where
// the elements are.
type PlacedInterface struct {
	ResolvedInterface
	// Far takes the place of the one that does not know where the far end is, in JSON as well.
	Far *PlacedFar `json:"far,omitempty"`
	// VLANs are the interfaces of VLANs on it. They have no ports of their own.
	VLANs []ResolvedInterface `json:"vlans,omitempty"`
	// Copy tells where copies of what passes the link go. It is nil where nobody gets any, and at the link's other end.
	Copy *Copy `json:"copy,omitempty"`
}

// PlacedFar is the other end of the link, and where that is.
type PlacedFar struct {
	Far
	// Node is the node of the far end, VNI the tunnel's identifier (1…2²⁴-1) when that is another node than this
	// end's.
	Node string `json:"node,omitempty"`
	VNI  uint32 `json:"vni,omitempty"`
	// Via is the next node on the link's path, if others relay its packets: they go to and come from this one.
	Via string `json:"via,omitempty"`
	// Also are other paths of the link whose packets are taken as well, while it changes from one to another.
	Also []FarTunnel `json:"also,omitempty"`
	// Down tells that this end must lose its carrier: the far element is stopped or in quarantine, or the link is
	// stopped.
	Down bool `json:"down,omitempty"`
	// Stopped tells that it is the link itself that shall be down.
	Stopped bool `json:"stopped,omitempty"`
}

// FarTunnel is a path of a link as its end knows it: the tunnel's identifier, and the next node if others relay.
type FarTunnel struct {
	VNI uint32 `json:"vni"`
	Via string `json:"via,omitempty"`
}

// Relay is a link whose path leads through a node: what comes from one of the nodes beside it on the path goes on to
// the other one.
type Relay struct {
	Link  string    `json:"link"`
	VNI   uint32    `json:"vni"`
	Nodes [2]string `json:"nodes"` // the one before it on the path, seen from the link's first end, and the one behind
	// Shape is what the link does to packets; nil when it does nothing.
	Shape *Shape `json:"shape,omitempty"`
	MTU   int    `json:"mtu"`
}

// Resolved is the interface without where its far end is.
func (i *PlacedInterface) Resolved() ResolvedInterface {
	r := i.ResolvedInterface
	if i.Far != nil {
		r.Far = &i.Far.Far
	}
	return r
}

// Resolved is the element without where its interfaces' far ends are.
func (e *NodeElement) Resolved() ResolvedElement {
	interfaces := make([]ResolvedInterface, len(e.Interfaces))
	for i := range e.Interfaces {
		interfaces[i] = e.Interfaces[i].Resolved()
	}
	for i := range e.Interfaces {
		interfaces = append(interfaces, e.Interfaces[i].VLANs...)
	}
	return Rephased(e.PlacedElement, interfaces)
}

// Described is the interface as its owner may have described it.
func (i *PlacedInterface) Described() Interface {
	return Interface{Name: i.Name, MAC: i.MAC, Addresses: i.Addresses, OSPF: i.OSPF, OSPF6: i.OSPF6}
}

// Rephased is the element with other interfaces in place of its own: so it goes from one phase to another.
func Rephased[I, J any](e ElementOf[I], interfaces []J) ElementOf[J] {
	return ElementOf[J]{Name: e.Name, Kind: e.Kind, Control: e.Control, Forwarding: e.Forwarding, Hook: e.Hook,
		Software: e.Software,
		Amounts:  e.Amounts, Attack: e.Attack, Node: e.Node, Location: e.Location, Interfaces: interfaces,
		Loopback: e.Loopback,
		Gateways: e.Gateways, Routes: e.Routes, Routing: e.Routing, Config: e.Config, RouterID: e.RouterID,
		Prefixes: e.Prefixes, STP: e.STP, VRRP: e.VRRP, MPLS: e.MPLS, VLANs: e.VLANs, VRFs: e.VRFs, Service: e.Service}
}

// PlacedEdge is an edge as the node of its end has to know it.
type PlacedEdge = EdgeOf[ResolvedInternet, PlacedMirror]

// PlacedMirror is a mirror and where its copies come from.
type PlacedMirror struct {
	Mirror
	// From is the node where copies are made, and VNI their tunnel, if that is another node than this end's.
	From string `json:"from,omitempty"`
	VNI  uint32 `json:"vni,omitempty"`
}

// DescribedEdge is the edge as its owner may have described it.
func DescribedEdge(e PlacedEdge) Edge {
	var internet *Internet
	if e.Internet != nil {
		internet = &e.Internet.Internet
	}
	var mirror *Mirror
	if e.Mirror != nil {
		mirror = &e.Mirror.Mirror
	}
	return WithParts(e, internet, mirror)
}

// WithParts is the edge with another description of what it leads to.
func WithParts[I, M, J, N any](e EdgeOf[I, M], internet *J, mirror *N) EdgeOf[J, N] {
	return EdgeOf[J, N]{Name: e.Name, End: e.End, Node: e.Node, Device: e.Device, VLAN: e.VLAN,
		Trunk: e.Trunk, Internet: internet,
		Mirror: mirror}
}
