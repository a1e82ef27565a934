package model

import (
	"cmp"
	"net/netip"
	"time"
)

// Assigned is what polyplane chose for a network. It is stored and never changes by itself: a link keeps its subnets
// and its VNI, and an element keeps its loopback, its router ID and its node, whatever is added or removed beside them.
type Assigned struct {
	// Index is the network's number on all nodes (1…4095): its user namespace maps uid 0 to UIDBase(Index).
	Index uint32                  `json:"index"`
	Links map[string]AssignedLink `json:"links,omitempty"` // by link name
	// Segments are the subnets of switches, by the name of the segment's first switch in alphabetical order.
	Segments map[string][]netip.Prefix `json:"segments,omitempty"`
	// Addresses are the interfaces', by "link/element:interface". So a link that is made anew elsewhere gets new ones.
	Addresses map[string][]netip.Prefix `json:"addresses,omitempty"`
	// Edges are the subnets of internet edges that end at routers and hosts, by edge name.
	Edges     map[string][]netip.Prefix `json:"edges,omitempty"`
	Loopbacks map[string][]netip.Prefix `json:"loopbacks,omitempty"` // by router name
	Placement Placement                 `json:"placement"`
	// Turns are links that get another path, by link name. Placement has the new one.
	Turns map[string]Turn `json:"turns,omitempty"`
}

// AssignedLink is what a link was given.
type AssignedLink struct {
	VNI      uint32         `json:"vni"`
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
}

// Placement is an embedding: elements onto nodes, links onto substrate paths.
type Placement struct {
	Elements map[string]string     `json:"elements,omitempty"` // element name → node name
	Links    map[string][]LinkPath `json:"links,omitempty"`    // link name → paths; none for a link within one node
}

// LinkPath is one substrate path, as the nodes it visits from the link's first end to its second.
type LinkPath struct {
	Nodes     []string  `json:"nodes"`
	Bandwidth Bandwidth `json:"bandwidth,omitempty"` // reserved on it
}

// Override is what was set on an element at run time, beside its document. An `apply` that names the same field
// replaces it.
type Override struct {
	Stopped bool `json:"stopped,omitempty"`
	// Suspended processes are there and do not run; what the kernel forwards for the element goes on.
	Suspended bool `json:"suspended,omitempty"`
	// Quarantined cuts the element's links: nothing comes to it or from it, whoever forwards, and the far ends lose
	// their carrier. The element itself, its processes and its own carrier stay. Only a release ends it.
	Quarantined bool `json:"quarantined,omitempty"`
	// Reason says why, in words. Decided is the time of the latest incident that somebody has decided about
	// (Incident.At, in nanoseconds since 1970): the node need not keep the links cut for that one.
	Reason  string `json:"reason,omitempty"`
	Decided int64  `json:"decided,omitempty"`
	// Held tells that an administrator, or an administrator's policy, put it into quarantine: its owner cannot release
	// it.
	Held     bool   `json:"held,omitempty"`
	Restarts uint32 `json:"restarts,omitempty"` // counts requested restarts
	// Overwrites counts the applies that asked for the document's configuration to replace what was edited inside the
	// element. A driver may find that the document's configuration has changed and that the element's own was edited.
	// It then leaves the latter and reports the conflict, unless Overwrites has grown since it last wrote the
	// configuration.
	Overwrites uint32 `json:"overwrites,omitempty"`
}

// offLine tells that the far ends of the element's links have no carrier.
func (o Override) offLine() bool { return o.Stopped || o.Quarantined }

// Record is everything the store keeps for one network.
type Record struct {
	Network   Network             `json:"network"`
	Overrides map[string]Override `json:"overrides,omitempty"` // by element name
	Set       Settings            `json:"set,omitzero"`
	// FaultRun is the schedule of faults that was started last, until it is stopped.
	FaultRun *FaultRun `json:"faultRun,omitempty"`
	// Moving is the move of an element that is under way; nil when there is none.
	Moving *Moving `json:"moving,omitempty"`
	// Policies are those of administrators. They come before the document's.
	Policies Policies `json:"policies,omitempty"`
	// Owner made the network; Network.Owner comes before it.
	Owner    string    `json:"owner,omitempty"`
	Assigned Assigned  `json:"assigned"`
	Revision int64     `json:"revision"` // the network's own count of changes, from 1
	Created  time.Time `json:"created"`
	Modified time.Time `json:"modified"`
	// Provisional is when the network is removed, since whoever makes it has not said that it is whole. It is zero for
	// others.
	Provisional time.Time `json:"provisional,omitzero"`
	// Deleting tells that somebody has asked for the network to be removed. The record goes when every node has let go
	// of its part.
	Deleting bool `json:"deleting,omitempty"`
	// Discard tells that the files of a network that is being deleted do not go to the trash.
	Discard bool `json:"discard,omitempty"`
}

// WhoseItIs is the owner whom the network counts for.
func (r *Record) WhoseItIs() string { return cmp.Or(r.Network.Owner, r.Owner) }

// FirstUID is the first user ID that polyplane's user namespaces use. Neither Debian's /etc/subuid (100000…) nor
// systemd's container range (524288…1879048191, systemd.io/UIDS-GIDS) touches this range. Each network owns
// UIDsPerNetwork of it.
const (
	FirstUID       = 1879048192
	UIDsPerNetwork = 65536
	MaxNetworks    = 4095
)

// UIDBase is the host's user ID that is root inside the network of this index.
func UIDBase(index uint32) uint32 { return FirstUID + index*UIDsPerNetwork }
