package model

import (
	"net/netip"
	"time"
)

// NetworkStatus is one network at a glance.
type NetworkStatus struct {
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"`
	Title string `json:"title,omitempty"` // what its owner calls it
	// Key is its name within the instance, that of directories, devices and metrics, if Name is what whoever asks calls
	// it. Owners are not told it.
	Key       string `json:"key,omitempty"`
	Phase     Phase  `json:"phase"` // running when every element that shall run does, and every node is up to date
	Message   string `json:"message,omitempty"`
	Elements  int    `json:"elements"`
	Running   int    `json:"running"`
	Stopped   int    `json:"stopped,omitempty"`   // by the user's wish
	Suspended int    `json:"suspended,omitempty"` // likewise
	Failed    int    `json:"failed,omitempty"`
	// Unknown are those of nodes that say nothing now. They are counted nowhere else.
	Unknown  int       `json:"unknown,omitempty"`
	Links    int       `json:"links"`
	Nodes    []string  `json:"nodes,omitempty"`
	Revision int64     `json:"revision"`
	Created  time.Time `json:"created"`
	Modified time.Time `json:"modified"`
	Deleting bool      `json:"deleting,omitempty"`
	// Provisional is when the network is removed unless it is kept; zero for others.
	Provisional time.Time `json:"provisional,omitzero"`
	// Damaged tells that the store cannot read its record. What nodes have of it goes on, and Message says what can be
	// done.
	Damaged bool `json:"damaged,omitempty"`
}

// NodeStatus is one node at a glance.
type NodeStatus struct {
	SubstrateNode
	Ready bool `json:"ready"`
	// Condition is ready; or notReady, and then Problem says why; or unknown, when nothing was heard of the node for
	// the time of a lease.
	Condition Condition `json:"condition"`
	Problem   string    `json:"problem,omitempty"`
	// Held are the networks that keep the node from following the store.
	Held     []string  `json:"held,omitempty"`
	LastSeen time.Time `json:"lastSeen,omitzero"`
	Elements int       `json:"elements"`
	Ports    int       `json:"ports"`
	// Reserved is what the elements placed here ask for, Used what the node's processes take.
	CPUReserved    CPU     `json:"cpuReserved"`
	MemoryReserved Bytes   `json:"memoryReserved"`
	CPUUsed        float64 `json:"cpuUsed"`
	MemoryUsed     Bytes   `json:"memoryUsed"`
	// Disk is how large the disk is that the node's data is on, DiskFree what is free of it; zero: not known.
	Disk     Bytes `json:"disk,omitempty"`
	DiskFree Bytes `json:"diskFree,omitempty"`
	Revision int64 `json:"revision"`
	// Offers are what the node's drivers make, and what they lack.
	Offers Offers `json:"offers,omitempty"`
	// Underlay tells the hooks of its underlay's devices; empty while no router with forwarding: xdp has tunnels there.
	Underlay map[string]HookUse `json:"underlay,omitempty"`
	// Phases counts its elements by their phase.
	Phases map[Phase]int `json:"phases,omitempty"`
	// Found is what its agent has found of its machine and of its neighbours; nil while nothing is known.
	Found *Discovery `json:"found,omitempty"`
}

// ElementView is one element with its state, as `get elements` and `describe` show it.
type ElementView struct {
	ElementStatus
	// Owner and Title are the network's.
	Owner   string          `json:"owner,omitempty"`
	Title   string          `json:"title,omitempty"`
	Element ResolvedElement `json:"element"` // complete: addresses, MACs, far ends
}

// LinkStatus is one link with its state and counters.
type LinkStatus struct {
	Network string     `json:"network"`
	Owner   string     `json:"owner,omitempty"` // the network's, as Title is
	Title   string     `json:"title,omitempty"`
	Link    Link       `json:"link"` // with the subnets that its ends are in, where it states none
	VNI     uint32     `json:"vni"`
	Paths   []LinkPath `json:"paths,omitempty"`
	// Turn tells that it is on its way to this path from another one.
	Turn *Turn `json:"turn,omitempty"`
	Up   bool  `json:"up"`
	// LastTold is how old what is told here of the ports is, if one of their nodes says nothing now; otherwise zero.
	LastTold Duration     `json:"lastTold,omitempty"`
	Ports    []PortStatus `json:"ports,omitempty"` // those known, first end first
	// Relays are the nodes between the first and the last of its path, in this order, as far as they have told; and
	// those of paths that it leaves.
	Relays []RelayStatus `json:"relays,omitempty"`
}

// Dump is everything the manager knows, in one answer; watching is a stream of them.
type Dump struct {
	Networks []NetworkStatus `json:"networks,omitempty"`
	Nodes    []NodeStatus    `json:"nodes,omitempty"`
	// Substrate are the links between the nodes.
	Substrate []SubstrateLinkStatus `json:"substrate,omitempty"`
	Elements  []ElementView         `json:"elements,omitempty"`
	Links     []LinkStatus          `json:"links,omitempty"`
}

// ProbeResult is the outcome of one probe: From asked To at Address and was answered, or not, or by somebody else.
type ProbeResult struct {
	From     string        `json:"from"` // "net/element"
	To       string        `json:"to"`
	Address  netip.Addr    `json:"address"`
	Not      bool          `json:"not,omitempty"` // To must not be reached
	OK       bool          `json:"ok"`
	Reached  bool          `json:"reached"`
	Answered string        `json:"answered,omitempty"` // who answered, when it was not To
	RTT      time.Duration `json:"rtt,omitempty"`
	Message  string        `json:"message,omitempty"`
}

// CheckResult is the outcome of `check`.
type CheckResult struct {
	Network string        `json:"network"`
	OK      bool          `json:"ok"`
	Probes  []ProbeResult `json:"probes"`
	// States are the outcomes of what routing is expected to know.
	States []StateResult `json:"states,omitempty"`
}

// CheckRequest selects what to check.
type CheckRequest struct {
	// Mesh probes every pair of hosts (and, with Routers, router loopbacks) both ways, beside what the file expects.
	Mesh    bool          `json:"mesh,omitempty"`
	Routers bool          `json:"routers,omitempty"`
	Wait    time.Duration `json:"wait,omitempty"` // try again until all is well or this has passed
	// Sample limits Mesh to so many pairs, chosen with Seed.
	Sample int   `json:"sample,omitempty"`
	Seed   int64 `json:"seed,omitempty"`
	// Neighbours probes so many seeded pairs of directly linked elements, across their link, once each and at the first
	// try: all well means that the network forwards now.
	Neighbours int `json:"neighbours,omitempty"`
}
