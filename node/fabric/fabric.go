// Package fabric is a node's patch panel: it joins ports – to each other, to tunnels, to real devices – counts what
// passes and shows it. Its data path is eBPF; one table entry says where a port's link ends.
package fabric

import (
	"net"
	"net/netip"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// State is everything the fabric of one node shall have.
type State struct {
	Ports []Port
	Peers []model.Peer // the other nodes; tunnel packets from any other address are dropped
	// Slices are the caps on what all ports of a network send into the underlay and edges together, by network; those
	// that are not named have none.
	Slices map[string]model.Bandwidth
	// Packets are the packets a second that all ports of a network on this node may send together; those that are not
	// named have no limit.
	Packets map[string]int
	// Punts are the exceptional packets a second – those that routers answer or drop – that the routers of a network on
	// this node may get from the data path together; those that are not named have no limit.
	Punts map[string]int
	// Steering says where packets for elements go. An element that is not named is steered as before, as long as it has
	// ports.
	Steering map[model.ID]forward.Steering
	// Underlay says in which hook of the underlay's devices tunnels' packets are taken for routers that are forwarded
	// here; auto when empty.
	Underlay model.Hook
	// Incomplete tells that more ports may exist than are named here: nothing is removed.
	Incomplete bool
}

// Port is one port and where its link ends. At most one of Local, Tunnel, Edge is set; none means that the link ends
// nowhere and packets are dropped.
type Port struct {
	ID    model.PortID
	Index int // interface index in the node's namespace
	// MAC is the address of the element's interface. Frames to it take the short way into the element, others
	// (broadcast, multicast, flooded) the one through the device, so that the element's kernel sees that they are not
	// addressed to it. Without a MAC all take the short way and count as addressed to the element: right for a switch,
	// whose ports take every frame, wrong for a router beside one.
	MAC net.HardwareAddr
	// Down takes the port's, and so the element's, carrier away: the far end is stopped.
	Down   bool
	Local  model.PortID // the far end, when it is on this node
	Tunnel *Tunnel
	Edge   *Edge
	// Copy has what passes the port's link copied, both ways; Copies is set for a port that gets such copies, from this
	// node, or from another by Tunnel: what its element sends there goes nowhere.
	Copy   *Copy
	Copies bool
	// Shape is what the link does to packets on their way to the element: each direction's shape is at the port where
	// it ends.
	Shape model.Shape
	// Hook is set for ports of routers whose packets the data path forwards: where it may take them (auto, tc or xdp).
	// Whether the driver's hook is used at a port depends on where its link ends: on the devices there.
	Hook model.Hook
}

// Tunnel leads to another node; packets that come with VNI from there are the port's.
type Tunnel struct {
	VNI  uint32
	Peer netip.Addr
}

// Edge is a real device of the node, or one VLAN of it; its packets are the port's.
type Edge struct {
	Device string
	VLAN   int // 1…4094, untagged when zero
	// Trunk lets frames with VLAN tags of their own pass, both ways; else they are dropped. Without a VLAN all of the
	// device's frames are the port's, and no other edge can be there.
	Trunk bool
}

// Report tells what Apply did and could not do.
type Report struct {
	Failed  map[model.PortID]error
	Changed []string // for events; empty when all was right
	Problem error    // what keeps the fabric as a whole from working
	Steered bool     // packets go where State.Steering says, but for those of elements that failed
	// Hooks are those in use at the ports that have one of their own (Port.Hook), and at the underlay's devices if
	// there are tunnels among them.
	Hooks    map[model.PortID]model.HookUse
	Underlay map[string]model.HookUse
}

// Counters are a port's, since it was first made on this node. Rx is what came from the element, Tx what went to it.
// They count what a wire would carry: a packet that the kernel segments later (GSO) counts as its segments, each with
// its headers; bytes are of whole Ethernet frames with their VLAN tag, without preamble and check sequence. Drops are
// counted in packets, at the port that sent them, or for those from a tunnel or an edge at the port that they were for.
// Tx has what went into the queue of a link with a bandwidth; what found it full is a drop of the port that it was for.
type Counters struct {
	RxPackets, RxBytes uint64
	TxPackets, TxBytes uint64
	Drops              map[string]uint64 // by reason
	// Copied are the packets of which the link's mirror got copies, Uncopied those that were beyond its bandwidth.
	Copied, Uncopied uint64
}
