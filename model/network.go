// Package model holds polyplane's nouns as plain values: virtual networks, what is assigned to them, what a node shall
// have, and what was observed. The same types are the wire format (JSON). The package imports only the standard
// library and does no I/O.
package model

import (
	"net/netip"
	"slices"
)

// A network has a type for each of its phases, so that what is not known yet cannot be read:
//
//   - Network is the document: what its owner says.
//   - Resolved has what follows from that and from the numbers that it was given: addresses, MACs, far ends.
//   - NodeNetwork is the part of one node, with where the far ends are.
//
// Elements have the same fields in all three but for their interfaces, and edges but for what they lead to: ElementOf
// and EdgeOf are those fields, Element, ResolvedElement and PlacedElement the three types.

// Network is one virtual network as its owner described it. Its structure is complete: every element, link and
// interface has its name. Its assignments are not: a link without prefixes, or an element without a node, gets them
// from package resolve and from the embedding. These are stored beside it, in Assigned.
type Network struct {
	// Name is the network's key: no other network of the instance has it, and it never changes.
	Name string `json:"name"`
	// Title is what its owner calls it, as none of the owner's other networks. Where it is empty, that is the key.
	Title string `json:"title,omitempty"`
	// Owner is whose share the network counts towards. Where it is empty, who made the network counts (Record.Owner).
	Owner string `json:"owner,omitempty"`
	// Pools are the prefixes that unnumbered links draw their subnets from; DefaultPools when empty.
	Pools []netip.Prefix `json:"pools,omitempty"`
	Slice Slice          `json:"slice,omitzero"`
	// Placing is how its elements are placed; what is placed already stays.
	Placing Placing `json:"placement,omitzero"`
	// Attack is what is done to elements that attack; tell when empty.
	Attack   AttackPolicy  `json:"attack,omitempty"`
	Elements []Element     `json:"elements,omitempty"`
	Links    []Link        `json:"links,omitempty"`
	Edges    []Edge        `json:"edges,omitempty"`
	Expect   []Expectation `json:"expect,omitempty"`
	// Faults are a schedule, which somebody starts and stops (FaultRun).
	Faults []Fault `json:"faults,omitempty"`
	// Zeros are the keys of elements and links that the document states as zero. A zero that is not here says nothing,
	// so that what was set at run time stays. Records have none.
	Zeros Settings `json:"zeros,omitzero"`
}

// Kind tells what an element is.
type Kind string

const (
	Router Kind = "router" // routes packets
	Host   Kind = "host"   // an end system
	Switch Kind = "switch" // one layer-2 segment
)

// Control tells where an element's routing software and protocol stack run.
type Control string

const (
	ControlNetns      Control = "netns"
	ControlVM         Control = "vm"
	ControlController Control = "controller"
)

// Forwarding tells where an element's packets are forwarded.
type Forwarding string

const (
	ForwardGuest    Forwarding = "guest"
	ForwardRouter   Forwarding = "router"
	ForwardBridge   Forwarding = "bridge"
	ForwardOpenFlow Forwarding = "openflow"
	ForwardXDP      Forwarding = "xdp"
)

// Software is the routing software of a router.
type Software string

const (
	SoftwareFRR    Software = "frr"
	SoftwareBIRD   Software = "bird"
	SoftwareStatic Software = "static" // the kernel's own routes, no process
	SoftwareNone   Software = "none"   // no routes but connected ones, no process
)

// Hook is where the data path takes packets: in a device's driver, by XDP, or behind it, on the tc hook.
type Hook string

const (
	HookAuto Hook = "auto" // the driver's on real devices that have it, tc on veths
	HookTC   Hook = "tc"
	HookXDP  Hook = "xdp" // the driver's on every device that has it
)

// HookUse is the hook that is used at a place, and why.
type HookUse struct {
	Hook Hook   `json:"hook"` // tc or xdp
	Why  string `json:"why"`
}

// Element is a router, a host or a switch, as its owner described it.
type Element = ElementOf[Interface]

// ElementOf is an element whose interfaces are described by I.
type ElementOf[I any] struct {
	Name       string     `json:"name"`
	Kind       Kind       `json:"kind"`
	Control    Control    `json:"control,omitempty"`
	Forwarding Forwarding `json:"forwarding,omitempty"`
	// Hook says where the packets of a router with forwarding: xdp are taken; auto when empty.
	Hook     Hook     `json:"hook,omitempty"`
	Software Software `json:"software,omitempty"`
	// Limits tells what counts for amounts that are zero.
	Amounts
	// Attack is what is done to the element when it attacks. Where it is empty, the network's counts.
	Attack AttackPolicy `json:"attack,omitempty"`
	// Node pins the element to one node, Location to any node of that location.
	Node       string `json:"node,omitempty"`
	Location   string `json:"location,omitempty"`
	Interfaces []I    `json:"interfaces,omitempty"`
	// Loopback are addresses on lo, beside 127.0.0.1 and ::1.
	Loopback []netip.Prefix `json:"loopback,omitempty"`
	// Gateways are the default routes' next hops (one an address family).
	Gateways []netip.Addr `json:"gateways,omitempty"`
	Routes   []Route      `json:"routes,omitempty"`
	// MPLS are the static label-switched paths that the router is on.
	MPLS    []LSP   `json:"mpls,omitempty"`
	Routing Routing `json:"routing,omitzero"`
	// VRFs are a router's tables for some of its interfaces, by name.
	VRFs map[string]VRF `json:"vrfs,omitempty"`
	// Config is the software's own configuration, by file name as the software knows it ("frr.conf", "bird.conf"); it
	// replaces what Routing would generate. It seeds the element: what is written inside the element later persists.
	Config map[string]string `json:"config,omitempty"`
	// RouterID is the 32-bit router identifier of the routing protocols, in dotted form.
	RouterID netip.Addr `json:"routerID,omitzero"`
	// Prefixes are a switch's subnets: its segment's interfaces are numbered from them.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// STP is whether a switch runs the spanning tree protocol.
	STP STP `json:"stp,omitempty"`
	// VRRP are the virtual routers of a switch's segment.
	VRRP []VRRP `json:"vrrp,omitempty"`
	// VLANs are the subnets of a switch's VLANs, as Prefixes are those of a switch that has none.
	VLANs VLANSubnets `json:"vlans,omitempty"`
	Service
}

// Interface is an element's end of a link, as its owner described it.
type Interface struct {
	Name      string         `json:"name"` // the user's; DeviceName tells what Linux calls it
	MAC       string         `json:"mac,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// OSPF and OSPF6 are what these protocols do at it; nil where that is as the router says.
	OSPF  *OSPFPort `json:"ospf,omitempty"`
	OSPF6 *OSPFPort `json:"ospf6,omitempty"`
}

// RouteType is what a route does with packets.
type RouteType string

const (
	RouteUnicast     RouteType = "unicast"
	RouteBlackhole   RouteType = "blackhole"
	RouteUnreachable RouteType = "unreachable"
	RouteProhibit    RouteType = "prohibit"
)

// Route is a static route.
type Route struct {
	To        netip.Prefix `json:"to"`
	Via       []netip.Addr `json:"via,omitempty"` // several are equal-cost next hops
	Interface string       `json:"interface,omitempty"`
	Type      RouteType    `json:"type,omitempty"` // unicast when empty
	Metric    int          `json:"metric,omitempty"`
}

// Routing holds the simple intents from which FRR's or BIRD's configuration is generated.
type Routing struct {
	OSPF  *OSPF `json:"ospf,omitempty"`  // OSPFv2, RFC 2328
	OSPF6 *OSPF `json:"ospf6,omitempty"` // OSPFv3, RFC 5340
	ISIS  *ISIS `json:"isis,omitempty"`  // ISO 10589, RFC 1195
	BGP   *BGP  `json:"bgp,omitempty"`   // RFC 4271
	RIP   *RIP  `json:"rip,omitempty"`   // RIPv2 (RFC 2453), and RIPng (RFC 2080) where there is IPv6
}

// Any tells whether there is any intent.
func (r Routing) Any() bool {
	return r.OSPF != nil || r.OSPF6 != nil || r.ISIS != nil || r.BGP != nil || r.RIP != nil
}

// Protocols are the names of the protocols that it speaks, sorted.
func (r Routing) Protocols() (all []string) {
	for name, there := range map[string]bool{"ospf": r.OSPF != nil, "ospf6": r.OSPF6 != nil, "isis": r.ISIS != nil,
		"bgp": r.BGP != nil, "rip": r.RIP != nil} {
		if there {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Spoken are the names of the protocols that an element speaks, in its VRFs, too.
func (e ElementOf[I]) Spoken() []string {
	all := e.Routing.Protocols()
	for _, v := range e.VRFs {
		all = append(all, v.Routing().Protocols()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// OSPF puts the router's loopback into an area, and all its interfaces that do not say otherwise.
type OSPF struct {
	Area         string   `json:"area,omitempty"` // dotted form; 0.0.0.0 when empty
	Cost         int      `json:"cost,omitempty"`
	Redistribute []string `json:"redistribute,omitempty"` // connected, static, bgp, …
	OSPFTimers
}

// ISIS puts all the router's interfaces and its loopback into one area.
type ISIS struct {
	Area  string `json:"area,omitempty"`  // 49.0001 when empty
	Level int    `json:"level,omitempty"` // 1, 2, or 0 for both
	ISISTimers
}

// RIP speaks on all the router's interfaces.
type RIP struct {
	Redistribute []string `json:"redistribute,omitempty"`
	RIPTimers
}

// Link joins two interfaces.
type Link struct {
	Name string `json:"name"`
	Ends [2]End `json:"ends"`
	// Prefixes are the subnets of the link (one an address family); assigned from the pools when empty and neither end
	// has an address of its own.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// Bandwidth is a cap and a reservation, in each direction. It counts IP packets as large as the link's MTU. What
	// precedes them in frames comes on top, so that of smaller packets a little less passes.
	Bandwidth Bandwidth `json:"bandwidth,omitempty"`
	MTU       int       `json:"mtu,omitempty"` // DefaultMTU when zero
	Delay     Duration  `json:"delay,omitempty"`
	Jitter    Duration  `json:"jitter,omitempty"`
	Loss      float64   `json:"loss,omitempty"` // 0…1
	State     LinkState `json:"state,omitempty"`
	// Addressing says whether its ends are given addresses: auto when empty.
	Addressing Addressing `json:"addressing,omitempty"`
	// BFD is how the routers at its ends watch each other there.
	BFD BFD `json:"bfd,omitempty"`
	// VLAN is that of its frames without a tag, VLANs are those of its frames with one. A link that has neither is in
	// DefaultVLAN where its switches have VLANs.
	VLAN  int   `json:"vlan,omitempty"`
	VLANs VLANs `json:"vlans,omitempty"`
}

// Addressing is who gives a link's ends their addresses.
type Addressing string

const (
	// AddressingAuto gives an address to each end that states none, from the link's prefixes or the pools.
	AddressingAuto Addressing = "auto"
	// AddressingNone gives none: an end has what its element states, and what somebody adds inside it.
	AddressingNone Addressing = "none"
)

// LinkState is what a link shall be: up, which it is when nobody says anything, or down like a cable that was pulled
// out.
type LinkState string

const (
	LinkUp   LinkState = "up"
	LinkDown LinkState = "down"
)

// End names one end of a link.
type End struct {
	Element   string `json:"element"`
	Interface string `json:"interface"`
}

// Edge is where a virtual network meets the world, as its owner described it.
type Edge = EdgeOf[Internet, Mirror]

// EdgeOf is an edge. The far side of End is a real device of a node or its VLAN; or a gateway to the uplink of the
// node's machine, which I describes; or a mirror, which M describes.
type EdgeOf[I, M any] struct {
	Name   string `json:"name"`
	End    End    `json:"end"`
	Node   string `json:"node,omitempty"` // where the device is; needed where there are several nodes
	Device string `json:"device,omitempty"`
	VLAN   int    `json:"vlan,omitempty"` // 1…4094, untagged when zero
	// Trunk lets frames with VLAN tags of their own pass, both ways; without it they are dropped. A trunk without VLAN
	// takes all of the device, so that no other edge can have a part of it.
	Trunk bool `json:"trunk,omitempty"`
	// Internet leads to the machine's uplink instead of to a device.
	Internet *I `json:"internet,omitempty"`
	// Mirror has End get copies of what passes a link, instead of leading out.
	Mirror *M `json:"mirror,omitempty"`
}

// Slice is the network's share of the substrate.
type Slice struct {
	CPU       CPU       `json:"cpu,omitempty"`
	Memory    Bytes     `json:"memory,omitempty"`
	Bandwidth Bandwidth `json:"bandwidth,omitempty"`
	// Packets a second that its elements on a node may send together; no limit when zero.
	Packets int `json:"packets,omitempty"`
	// Tables and NextHops are what its routers that nodes forward for (Element.FastRouter) may have of each node's
	// forwarding tables. Punts is how many exceptional packets a second these routers may get on each node. TableQuota
	// tells what counts where they are zero.
	Tables   Bytes     `json:"tables,omitempty"`
	NextHops int       `json:"nexthops,omitempty"`
	Punts    int       `json:"punts,omitempty"`
	Mode     SliceMode `json:"mode,omitempty"`
}

// Family selects an address family in an expectation.
type Family string

const (
	AnyFamily Family = ""
	IPv4      Family = "ipv4"
	IPv6      Family = "ipv6"
)

// Expectation is one statement that `check` verifies: that an element reaches another one, or what its routing knows.
type Expectation struct {
	From   string `json:"from"`
	To     string `json:"to,omitempty"`     // the neighbour of Known, or who its route leads by; empty if neither
	Family Family `json:"family,omitempty"` // every family that both ends have, when empty
	Not    bool   `json:"not,omitempty"`    // it must not be so
	Known
}

// DefaultMTU is a link's MTU unless it says otherwise; TunnelOverhead is what the underlay must carry on top of it
// (outer IPv4 20 + UDP 8 + VXLAN 8 + inner Ethernet 14 bytes, RFC 7348).
const (
	DefaultMTU     = 1500
	TunnelOverhead = 50
)
