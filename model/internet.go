package model

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
)

// Internet is an edge that leads out by the uplink of the node's machine, with source NAT, and in by forwarded ports.
type Internet struct {
	Forwards []Forward `json:"forwards,omitempty"`
	// Unannounced keeps a router at the edge from telling its neighbours of the default route.
	Unannounced bool `json:"unannounced,omitempty"`
}

// The protocols whose ports can be forwarded.
const (
	TCP = "tcp"
	UDP = "udp"
)

// NATPorts is the first port that connections from inside are given. It and those above it are not forwarded.
const NATPorts = 61000

// Forward is one port of the machine that leads to an element's.
type Forward struct {
	Protocol string `json:"protocol,omitempty"` // TCP when empty
	// Address is the machine's address whose port is meant; an invalid one means all addresses.
	Address netip.Addr `json:"address,omitzero"`
	Port    uint16     `json:"port"` // 1…60999
	Element string     `json:"element"`
	To      uint16     `json:"to"` // the element's port
}

// String is the forward as a file says it: "2222:h1:22", "127.0.0.1:5353:h2:53/udp".
func (f Forward) String() string {
	s := strconv.Itoa(int(f.Port)) + ":" + f.Element + ":" + strconv.Itoa(int(f.To))
	if f.Address.Is4() {
		s = f.Address.String() + ":" + s
	} else if f.Address.IsValid() {
		s = "[" + f.Address.String() + "]:" + s
	}
	if f.Network() != TCP {
		s += "/" + f.Protocol
	}
	return s
}

// Network is the protocol, also where the document leaves it out.
func (f Forward) Network() string { return cmp.Or(f.Protocol, TCP) }

// Collides tells whether both would listen on the same port of the same machine.
func (f Forward) Collides(o Forward) bool {
	return f.Port == o.Port && f.Network() == o.Network() &&
		(f.Address == o.Address || !f.Address.IsValid() || !o.Address.IsValid())
}

// WholeTrunk tells that the edge has all of its device, with every VLAN.
func (e EdgeOf[I, M]) WholeTrunk() bool { return e.Trunk && e.VLAN == 0 && e.Device != "" }

// LeadsTo is what an edge leads to, in words.
func LeadsTo(e *Edge) string {
	if e.Internet != nil {
		return "internet"
	}
	if e.Mirror != nil {
		return "mirror of " + e.Mirror.Link
	}
	out := e.Device
	if e.VLAN != 0 {
		out += " VLAN " + strconv.Itoa(e.VLAN)
	}
	if e.Trunk {
		out += " (trunk)"
	}
	return out
}

// EdgeKey is the key of an edge's own addresses in Assigned.Addresses; those of interfaces have a slash.
func EdgeKey(name string) string { return "edge " + name }

// EdgeAddresses are an internet edge's own addresses towards its network.
func (a Assigned) EdgeAddresses(edge string) []netip.Prefix { return a.Addresses[EdgeKey(edge)] }

// ParseForward reads "[ADDRESS:]PORT:ELEMENT:PORT[/tcp|/udp]", IPv6 addresses in brackets.
func ParseForward(s string) (Forward, bool) {
	var f Forward
	rest, protocol, stated := strings.Cut(s, "/")
	if f.Protocol = protocol; stated && protocol != TCP && protocol != UDP {
		return f, false
	}
	if protocol == TCP {
		f.Protocol = "" // what goes without saying
	}
	parts := strings.Split(rest, ":")
	if strings.HasPrefix(rest, "[") {
		address, more, ok := strings.Cut(rest[1:], "]:")
		if !ok {
			return f, false
		}
		parts = append([]string{address}, strings.Split(more, ":")...)
	}
	if len(parts) == 4 {
		a, err := netip.ParseAddr(parts[0])
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return f, false
		}
		f.Address, parts = a, parts[1:]
	}
	if len(parts) != 3 {
		return f, false
	}
	port, err := strconv.ParseUint(parts[0], 10, 16)
	to, err2 := strconv.ParseUint(parts[2], 10, 16)
	f.Port, f.Element, f.To = uint16(port), parts[1], uint16(to)
	return f, err == nil && err2 == nil && f.Element != ""
}
