package model

import (
	"cmp"
	"net/netip"
	"slices"
)

// Resolved is a network with everything that follows from its document, as package resolve works it out. Its elements
// and links are those of the document, in the same order.
type Resolved struct {
	Name     string
	Slice    Slice
	Placing  Placing
	Attack   AttackPolicy
	Elements []ResolvedElement
	Links    []Link
	Edges    []ResolvedEdge
	// Spaces are the address spaces of elements that are not in the first one, by name: VRFs keep them apart.
	Spaces map[string]int
}

// ResolvedElement is an element whose interfaces are complete, and whose loopback, gateways, router ID and BGP
// neighbours are those that it will have.
type ResolvedElement = ElementOf[ResolvedInterface]

// ResolvedInterface is an interface with its device, its MAC and its addresses, and what it is an end of.
type ResolvedInterface struct {
	Name      string         `json:"name"`
	Device    string         `json:"device,omitempty"` // what Linux calls it inside the element, where that is not Name
	MAC       string         `json:"mac,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	OSPF      *OSPFPort      `json:"ospf,omitempty"`
	OSPF6     *OSPFPort      `json:"ospf6,omitempty"`

	// VRRP are the virtual routers that the element takes part in there.
	VRRP []VirtualRouter `json:"vrrp,omitempty"`

	MTU  int    `json:"mtu,omitempty"`
	BFD  BFD    `json:"bfd,omitempty"`
	Link string `json:"link,omitempty"`
	Edge string `json:"edge,omitempty"`
	Far  *Far   `json:"far,omitempty"` // nil at an edge
	// Untagged is the VLAN of its frames without a tag, Tagged are those of its frames with one, where its link's
	// switches have VLANs or its link has any.
	Untagged int   `json:"untagged,omitempty"`
	Tagged   VLANs `json:"tagged,omitempty"`
	// VLAN is set where it is the interface of one VLAN (IEEE 802.1Q) on another one, which On names.
	VLAN int    `json:"vlan,omitempty"`
	On   string `json:"on,omitempty"`
	// VRF is the name of the element's table that it is in; empty where it is in none of its own.
	VRF string `json:"vrf,omitempty"`
	// Internet tells that the edge leads out by the machine's uplink. Nobody there speaks a routing protocol, and the
	// element announces its default route to its neighbours.
	Internet bool `json:"internet,omitempty"`
	// Unannounced tells that it does not announce it.
	Unannounced bool `json:"unannounced,omitempty"`
	// Shape is what the link does to packets on their way to this interface; nil when it does nothing.
	Shape *Shape `json:"shape,omitempty"`
}

// ownAddresses are those that are in none of the element's VRFs.
func (i ResolvedInterface) ownAddresses() []netip.Prefix {
	if i.VRF != "" {
		return nil
	}
	return i.Addresses
}

// LinuxName is what Linux calls the interface inside its element: Device, or Name where there is none.
func (i ResolvedInterface) LinuxName() string { return cmp.Or(i.Device, i.Name) }

// hasVLANs tells whether an element needs more of its node for VLANs: a switch whose ports have some, or a router or a
// host that has interfaces of VLANs.
func hasVLANs(e *ResolvedElement) bool {
	return slices.ContainsFunc(e.Interfaces, func(i ResolvedInterface) bool {
		return i.VLAN != 0 || e.Kind == Switch && i.HasVLANs()
	})
}

// HasVLANs tells whether its link's frames belong to VLANs.
func (i ResolvedInterface) HasVLANs() bool { return i.Untagged != 0 || i.Tagged != "" }

// Access tells whether its link carries frames without tags only, of one VLAN.
func (i ResolvedInterface) Access() bool { return i.Untagged != 0 && i.Tagged == "" }

// Shape is what a link does to packets in one direction.
type Shape struct {
	Bandwidth Bandwidth `json:"bandwidth,omitempty"`
	Delay     Duration  `json:"delay,omitempty"`
	Jitter    Duration  `json:"jitter,omitempty"` // each packet's delay is Delay ± Jitter
	Loss      float64   `json:"loss,omitempty"`   // 0…1
}

// Far is the other end of the link.
type Far struct {
	Element   string `json:"element"`
	Interface string `json:"interface"`
	// Kind is what the far element is: routing protocols speak on links to routers and switches, and are silent on
	// those to hosts.
	Kind Kind `json:"kind,omitempty"`
	// Peers are the interfaces that this end reaches without a router in between. On a link between two routers or
	// hosts that is the other end. On a switch they are those of its segment, as many as MaxPeers leaves room for.
	Peers []LinkPeer `json:"peers,omitempty"`
}

// LinkPeer is an interface as those on the same segment know it.
type LinkPeer struct {
	MAC string `json:"mac"`
	// Addresses are its own, and the link-local one that goes with its MAC where it has any of IPv6.
	Addresses []netip.Addr `json:"addresses"`
}

// ResolvedEdge is an edge whose gateway to the uplink knows the network's addresses.
type ResolvedEdge = EdgeOf[ResolvedInternet, Mirror]

// ResolvedInternet is an internet edge with what its gateway must know of the network.
type ResolvedInternet struct {
	Internet
	// Gateway are the edge's own addresses towards the network, one an address family.
	Gateway []netip.Prefix `json:"gateway,omitempty"`
	// Via are the next hops by which the gateway reaches what is outside of its own subnet, one an address family.
	Via []netip.Addr `json:"via,omitempty"`
	// Sources are the network's prefixes: what comes from any other address does not leave.
	Sources []netip.Prefix `json:"sources,omitempty"`
	// Targets are the addresses that forwards lead to, at most one an address family, by element.
	Targets map[string][]netip.Addr `json:"targets,omitempty"`
}

// MaxPeers is how many peers an interface knows at most. On a segment with more members, routers and hosts know its
// routers, and the routers know as many of its members as there is room for. So what is known grows with the number of
// members, and not with its square.
const MaxPeers = 64

// LinkLocal is the IPv6 link-local address that Linux gives an interface of that MAC address: of the modified EUI-64
// (RFC 4291, appendix A).
func LinkLocal(m [6]byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3],
		14: m[4], 15: m[5]})
}
