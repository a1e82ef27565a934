package model

import "net/netip"

// Substrate is the physical nodes and links with their capacities.
type Substrate struct {
	Nodes []SubstrateNode `json:"nodes"`
	Links []SubstrateLink `json:"links,omitempty"`
	// Hook counts for all nodes that have none of their own.
	Hook Hook `json:"hook,omitempty"`
}

// SubstrateNode is one machine (or a simulated one: a network namespace with its own agent).
type SubstrateNode struct {
	// Hook says in which hook of the underlay's devices packets from tunnels are taken that are for routers with
	// forwarding: xdp. Where it is empty, the substrate's counts.
	Hook     Hook       `json:"hook,omitempty"`
	Name     string     `json:"name"`
	Location string     `json:"location,omitempty"`
	CPU      CPU        `json:"cpu"`
	Memory   Bytes      `json:"memory"`
	Address  netip.Addr `json:"address,omitzero"` // in the underlay: the tunnels' end
	MTU      int        `json:"mtu,omitempty"`    // of the underlay
	// Simulated tells that the node is a network namespace on this machine.
	Simulated bool `json:"simulated,omitempty"`
	// Joined tells that the node is a machine of its own, which joined over the network.
	Joined bool `json:"joined,omitempty"`
}

// SubstrateLink joins two nodes.
type SubstrateLink struct {
	A         string    `json:"a"`
	B         string    `json:"b"`
	Bandwidth Bandwidth `json:"bandwidth,omitempty"` // each direction; unlimited when zero
	Delay     Duration  `json:"delay,omitempty"`
}

// NodeState is everything that one node shall have; the agent makes it so.
type NodeState struct {
	Node     string        `json:"node"`
	Revision int64         `json:"revision"` // grows with every change of any network
	Store    StoreIdentity `json:"store,omitzero"`
	Networks []NodeNetwork `json:"networks,omitempty"`
	Peers    []Peer        `json:"peers,omitempty"`
	// Links are those of the substrate that end at the node and whose other end has an address.
	Links []NodeLink `json:"links,omitempty"`
	// Hook is where the underlay's devices take packets from tunnels that are for routers with forwarding: xdp; auto
	// when empty.
	Hook Hook `json:"hook,omitempty"`
	// Hold names networks whose records cannot be read. The node leaves them exactly as they are, with whatever it has
	// of them.
	Hold []string `json:"hold,omitempty"`
	// Gone are networks that the node may have, and of which it shall have nothing any longer. A node removes no
	// network that its store does not name here: what a store does not know, it may have lost.
	Gone []GoneNetwork `json:"gone,omitempty"`
}

// Peer is another node's tunnel end.
type Peer struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
}

// Phase is the state of an element.
type Phase string

const (
	PhasePending Phase = "pending" // not yet made, or its node has not answered
	// PhaseStarting is an element that is made, and whose software does not run with its configuration yet.
	PhaseStarting Phase = "starting"
	PhaseRunning  Phase = "running"
	PhaseStopped  Phase = "stopped"
	// PhaseSuspended is an element whose processes are held by the user's wish, and whose packets are forwarded.
	PhaseSuspended Phase = "suspended"
	PhaseFailed    Phase = "failed"
	// PhaseHeld is a network that nodes have and the store does not know.
	PhaseHeld Phase = "held"
	// PhaseUnknown is a network with elements on nodes that say nothing now.
	PhaseUnknown Phase = "unknown"
)

// ElementPhases are those that a node reports of elements. The others are phases of networks, or follow from a node's
// silence.
var ElementPhases = []Phase{PhasePending, PhaseStarting, PhaseRunning, PhaseStopped, PhaseSuspended, PhaseFailed}

// ElementStatus is what a node reports of one element.
type ElementStatus struct {
	ID    ID     `json:"id"`
	Node  string `json:"node"`
	Phase Phase  `json:"phase"`
	// AtWork tells that the element's node is still making it what it was told. Phase is what the element is meanwhile.
	AtWork bool `json:"atWork,omitempty"`
	// Message says why it failed. Of an element that runs, it is what the owner should know, such as that it keeps its
	// own configuration.
	Message string `json:"message,omitempty"`
	// LastTold is how old all of this is if the node says nothing now, so that this is what it told last. Otherwise it
	// is zero.
	LastTold Duration `json:"lastTold,omitempty"`
	// Restarts counts how often its processes were started again.
	Restarts int `json:"restarts,omitempty"`
	// Arrived is the move by which it came to the node, once it has the disk that was sent.
	Arrived string `json:"arrived,omitempty"`
	// Incident is the attack for which the node has cut the element's links, and which the manager has not decided
	// about.
	Incident *Incident `json:"incident,omitempty"`
	// Quarantine is why its links are cut; empty when they are not.
	Quarantine string `json:"quarantine,omitempty"`
	// Attacks counts the attacks that were suspected, by signal, since its agent started.
	Attacks map[string]uint64 `json:"attacks,omitempty"`
	// Usage is what its processes and files take; nil where it has none.
	Usage *Usage `json:"usage,omitempty"`
	// PacketTime is how many cores the node's kernel is busy with packets on the element's devices, in time that no
	// process is charged for. It is an estimate by samples, and 0 while packets take little of the node's processors
	// altogether. What the node's data path does for the element is not in it.
	PacketTime float64 `json:"packetTime,omitempty"`
	// Fast is what the node's data path did for a router that it forwards for (forwarding: xdp, router or bridge), and
	// nil for others.
	Fast *FastPath `json:"fast,omitempty"`
}

// FastPath counts the packets of a router since its node began to forward for it. A packet that is segmented later
// counts as its segments.
type FastPath struct {
	Packets uint64 `json:"packets"` // forwarded without the router's own stack
	Bytes   uint64 `json:"bytes"`
	// of these packets, those that the node's kernel forwarded, in the router's companion
	Companion  uint64 `json:"companion,omitempty"`
	Driver     uint64 `json:"driver,omitempty"`     // of these packets, those that took a driver's hook
	Blackholed uint64 `json:"blackholed,omitempty"` // dropped because the route says so
	// dropped: exceptional, beyond the slice's punts a second
	Refused uint64            `json:"refused,omitempty"`
	Punted  map[string]uint64 `json:"punted,omitempty"` // given to the router's own stack, by reason
	// Hooks tells which hook is used where, by interface.
	Hooks map[string]HookUse `json:"hooks,omitempty"`
	// Tables are what the data path knows of the router; nil while it is not told.
	Tables *FastTables `json:"tables,omitempty"`
}

// Usage is what an element takes, and what it may take.
type Usage struct {
	CPU       float64 `json:"cpu"` // cores
	Memory    Bytes   `json:"memory"`
	Processes int     `json:"processes"`
	Disk      Bytes   `json:"disk"`
	Limits    Limits  `json:"limits"`
}

// PortStatus is what a node reports of one port. Received counts what came from the element, sent what went to it.
type PortStatus struct {
	ID        PortID `json:"id"`
	Device    string `json:"device"`
	Index     int    `json:"index"` // the port's interface index on the node
	Up        bool   `json:"up"`
	RxPackets uint64 `json:"rxPackets"`
	RxBytes   uint64 `json:"rxBytes"`
	TxPackets uint64 `json:"txPackets"`
	TxBytes   uint64 `json:"txBytes"`
	Dropped   uint64 `json:"dropped"`
	// Drops are the packets of Dropped by reason.
	Drops map[string]uint64 `json:"drops,omitempty"`
	// Copied are the packets of which the link's mirror got copies. Uncopied are those that were beyond its bandwidth.
	Copied   uint64 `json:"copied,omitempty"`
	Uncopied uint64 `json:"uncopied,omitempty"`
}

// RelayStatus is what a node did for a link whose path leads through it. The first of each pair is of packets from the
// link's first end.
type RelayStatus struct {
	Network string    `json:"network"`
	Link    string    `json:"link"`
	VNI     uint32    `json:"vni"` // of the path: a link that changes has several
	Node    string    `json:"node"`
	Packets [2]uint64 `json:"packets"` // passed on
	Bytes   [2]uint64 `json:"bytes"`
	Over    [2]uint64 `json:"over"` // packets dropped: more than the link's bandwidth
	// Foreign are packets that were dropped since they did not come from the nodes beside it on the path, Lost those
	// for which there was no way on.
	Foreign uint64 `json:"foreign,omitempty"`
	Lost    uint64 `json:"lost,omitempty"`
}

// Report is a node's account of itself to the manager.
type Report struct {
	Node string `json:"node"`
	// Revision is that of the NodeState which the node has last become, completely or with the failures that Elements
	// tell.
	Revision int64           `json:"revision"`
	Elements []ElementStatus `json:"elements,omitempty"` // all of them
	Ports    []PortStatus    `json:"ports,omitempty"`    // all of them
	Relays   []RelayStatus   `json:"relays,omitempty"`   // all of them
	Events   []Event         `json:"events,omitempty"`   // new since the last report
	// Held are the networks that keep the node from following the store: the node goes on with what it was told before.
	Held []HeldNetwork `json:"held,omitempty"`
	// AtWork are the networks of which the node is still removing something that is no longer in Revision.
	AtWork []string `json:"atWork,omitempty"`
	// Problem is what keeps the node as a whole from working, in words.
	Problem string  `json:"problem,omitempty"`
	CPUUsed float64 `json:"cpuUsed,omitempty"` // cores
	MemUsed Bytes   `json:"memUsed,omitempty"`
	// Disk is how large the disk is that the node's data is on, DiskFree what is free of it.
	Disk     Bytes `json:"disk,omitempty"`
	DiskFree Bytes `json:"diskFree,omitempty"`
	// Underlay tells the hooks of the underlay's devices; empty while no router with forwarding: xdp has tunnels here.
	Underlay map[string]HookUse `json:"underlay,omitempty"`
}
