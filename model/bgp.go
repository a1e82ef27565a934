package model

import (
	"net/netip"
	"slices"
)

// BGP speaks to every directly linked router that has BGP as well, unless Neighbors names those that it speaks to.
type BGP struct {
	AS uint32 `json:"as"`
	// announced; the connected subnets of hosts and the loopback when empty
	Networks  []netip.Prefix `json:"networks,omitempty"`
	Neighbors []BGPNeighbor  `json:"neighbors,omitempty"`
	// Reflector makes a client of every neighbour of the own autonomous system that is no reflector itself (RFC 4456).
	Reflector bool `json:"reflector,omitempty"`
	// Unnumbered has the sessions with directly linked routers that say so, too, lead over the interfaces, by the
	// addresses that these have by themselves; such links need no others, and are given none.
	Unnumbered bool `json:"unnumbered,omitempty"`
	// PrefixLists are named lists of what ParsePrefixRange reads, for rules of policies.
	PrefixLists map[string][]string `json:"prefixLists,omitempty" key:"prefix-lists"`
	// Policies are for what neighbours tell and are told.
	Policies map[string][]BGPRule `json:"policies,omitempty"`
	// Toward is what is said of sessions that follow from links, by the name of the router at the other end.
	Toward map[string]BGPToward `json:"toward,omitempty" key:"neighbors"`
	BGPTimers
}

// Described is what a document says of a router's part in BGP that was resolved: its sessions, one by one.
func (b *BGP) Described() *BGP {
	if b == nil || len(b.Neighbors) == 0 {
		return b
	}
	d := *b
	d.Neighbors = slices.Clone(b.Neighbors)
	for i := range d.Neighbors {
		if n := &d.Neighbors[i]; n.Interface != "" {
			n.Address = netip.Addr{}
		}
	}
	return &d
}

// BGPNeighbor is one session.
type BGPNeighbor struct {
	// Address is, of a session over an interface, the link-local one at its far end; in documents there is none, and
	// nobody knows it where the far end is no router of the network.
	Address netip.Addr `json:"address,omitzero"`
	// Interface is where the neighbour is, whatever its address there: the session carries both address families (RFC
	// 8950).
	Interface string `json:"interface,omitempty"`
	AS        uint32 `json:"as"`
	Name      string `json:"name,omitempty"`
	// Client tells that what others of the autonomous system say is reflected to it, and the other way round.
	Client bool `json:"client,omitempty"`
	// In and Out are the policies for what it tells, and for what it is told; everything passes where there is none.
	In  string `json:"in,omitempty"`
	Out string `json:"out,omitempty"`
}

// Where is what people call the far end of the session: its address, or the interface that it is at.
func (n BGPNeighbor) Where() string {
	if n.Interface != "" {
		return "at " + n.Interface
	}
	return n.Address.String()
}
