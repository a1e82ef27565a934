package model

import (
	"net/netip"
	"slices"
	"strings"
)

// Known is what an element's routing is expected to know, a neighbour or a route, or its part in VRRP; or what a
// switch's spanning tree is.
type Known struct {
	// What is empty if it is whether another element is reached.
	What What `json:"what,omitempty"`
	// Protocol is whose neighbour or route it is; empty for a route of the kernel's table.
	Protocol string `json:"protocol,omitempty"`
	// State is the neighbour's, in the words of NeighbourStates, or the port's, in those of TreeStates.
	State string `json:"state,omitempty"`
	// Interface is the switch's port.
	Interface string `json:"interface,omitempty"`
	// Prefix is where the route leads.
	Prefix netip.Prefix `json:"prefix,omitzero"`
	// Via is the route's next hop, where that is said as an address. Of VRRP it is the virtual router's address, where
	// that is said.
	Via netip.Addr `json:"via,omitzero"`
	// VRF is that of the router where it is known; empty if that is none.
	VRF string `json:"vrf,omitempty"`
}

// What is which of these it is.
type What string

const (
	KnownNeighbour What = "neighbor"
	KnownRoute     What = "route"
	KnownTreeRoot  What = "root" // of a spanning tree
	KnownTreePort  What = "port"
	// KnownVirtual is what the element is in VRRP: State has it, in the words of VRRPStates.
	KnownVirtual What = "vrrp"
)

// VRRPStates are the states in which a router can be expected that takes part in VRRP.
var VRRPStates = []string{"master", "backup"}

// ProtocolSTP is the protocol of switches' spanning trees.
const ProtocolSTP = "stp"

// OfSwitch tells whether it is a switch that is to know it.
func (k Known) OfSwitch() bool { return k.What == KnownTreeRoot || k.What == KnownTreePort }

// NeighbourStates are the protocols that have neighbours, and the states in which these can be expected, the usual one
// first.
var NeighbourStates = map[string][]string{
	"ospf":  {"full", "2-way"},
	"ospf6": {"full", "2-way"},
	"isis":  {"up"},
	"bgp":   {"established"},
}

// RouteProtocols are the protocols of which a route can be expected.
var RouteProtocols = []string{"bgp", "isis", "ospf", "ospf6", "rip"}

// protocolNames are the protocols as people write them.
var protocolNames = map[string]string{"ospf": "OSPF", "ospf6": "OSPFv3", "isis": "IS-IS", "bgp": "BGP", "rip": "RIP",
	"stp": "STP"}

// ProtocolName is a protocol as people write it.
func ProtocolName(protocol string) string {
	if name := protocolNames[protocol]; name != "" {
		return name
	}
	return protocol
}

// stateNames are the states as the protocols' standards write them.
var stateNames = map[string]string{"full": "Full", "2-way": "2-Way", "up": "Up", "established": "Established"}

// StateName is a neighbour's state as its protocol's standard writes it.
func StateName(state string) string {
	if name := stateNames[state]; name != "" {
		return name
	}
	return state
}

// String is the sentence that files have: "h1 reaches h2", "h1 does not reach h2 over ipv6", "r1 ospf neighbor r2
// full", "r1 no bgp route 10.0.0.0/8 via r2", "r1 vrrp master", "s2 stp root s1", "s2 stp port s3 blocking".
func (x Expectation) String() string {
	s := x.From
	if x.What != "" && x.Not {
		s += " no"
	}
	if x.Protocol != "" {
		s += " " + x.Protocol
	}
	switch {
	case x.What == KnownVirtual:
		if s += " vrrp " + x.State; x.Via.IsValid() {
			s += " of " + x.Via.String()
		}
	case x.What == KnownNeighbour:
		s += " neighbor " + x.To + " " + x.State
	case x.What == KnownTreeRoot:
		s = strings.TrimSuffix(s+" root "+x.To, " ")
	case x.What == KnownTreePort:
		s += " port " + x.Interface + " " + x.State
	case x.What == KnownRoute && x.Via.IsValid():
		s += " route " + x.Prefix.String() + " via " + x.Via.String()
	case x.What == KnownRoute && x.To != "":
		s += " route " + x.Prefix.String() + " via " + x.To
	case x.What == KnownRoute:
		s += " route " + x.Prefix.String()
	case x.Not:
		s += " does not reach " + x.To
	default:
		s += " reaches " + x.To
	}
	if x.Family != AnyFamily {
		s += " over " + string(x.Family)
	}
	if x.VRF != "" {
		s += " vrf " + x.VRF
	}
	return s
}

// Problem says what is wrong with what is expected to be known, by itself; empty if nothing is.
func (k Known) Problem() string {
	switch {
	case k.VRF == "":
	case k.What != KnownRoute && k.What != KnownNeighbour,
		k.Protocol != "" && k.Protocol != "ospf" && k.Protocol != "ospf6":
		return "vrf is for routes of the kernel, and for neighbours and routes of OSPF; nothing else is spoken in a VRF"
	}
	switch k.What {
	case "":
		return ""
	case KnownNeighbour:
		states := NeighbourStates[k.Protocol]
		switch {
		case states == nil:
			return k.Protocol + " has no neighbours; bgp, isis, ospf and ospf6 have"
		case !slices.Contains(states, k.State):
			return ProtocolName(k.Protocol) + " has no state " + k.State + " that could be expected; there is " +
				Either(states)
		}
		return ""
	case KnownVirtual:
		if !slices.Contains(VRRPStates, k.State) {
			return "VRRP has no state " + k.State + " that could be expected; there is " + Either(VRRPStates)
		}
		return ""
	case KnownRoute:
		switch {
		case k.Protocol != "" && !slices.Contains(RouteProtocols, k.Protocol):
			return k.Protocol + " has no routes; " + Either(RouteProtocols) + " has, and without a word the kernel"
		case !k.Prefix.IsValid():
			return "a route leads to a prefix, like 10.0.0.0/8"
		case k.Prefix != k.Prefix.Masked():
			return k.Prefix.String() + " has bits beyond its length; its prefix is " + k.Prefix.Masked().String()
		case (k.Protocol == "ospf") && k.Prefix.Addr().Is6():
			return "ospf carries no IPv6; ospf6 does"
		case k.Protocol == "ospf6" && k.Prefix.Addr().Is4():
			return "ospf6 carries no IPv4; ospf does"
		}
		return ""
	case KnownTreeRoot, KnownTreePort:
		switch {
		case k.Protocol != ProtocolSTP:
			return "it is stp that has a " + string(k.What)
		case k.What == KnownTreePort && k.Interface == "":
			return "a port is named by its interface"
		case k.What == KnownTreePort && !slices.Contains(TreeStates, k.State):
			return "a port of a spanning tree cannot be expected to be " + k.State + "; there is " + Either(TreeStates)
		}
		return ""
	}
	return string(k.What) + " is neither a neighbor nor a route, nor vrrp, nor a root or a port of a spanning tree"
}
