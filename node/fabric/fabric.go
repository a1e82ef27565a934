// Package fabric is a node's patch panel. It joins ports to each other, to tunnels and to real devices, counts what
// passes, and shows it. Its data path is eBPF, and a single table entry says where a port's link ends.
package fabric

import (
	"net"
	"net/netip"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/port"
)

// State is everything that the fabric of one node is to have.
type State struct {
	Ports []Port
	Peers []model.Peer // the other nodes; tunnel packets from any other address are dropped
	// Relays are the links whose path leads through this node without ending here.
	Relays []Relay
	// Slices limit, by network, what all ports of a network send into the underlay and into edges together. A network
	// that is not named has no limit.
	Slices map[string]model.Bandwidth
	// Packets limit how many packets a second all ports of a network on this node may send together. A network that is
	// not named has no limit.
	Packets map[string]int
	// Punts limit how many exceptional packets a second (those that routers answer or drop) the data path may give the
	// routers of a network on this node together. A network that is not named has no limit.
	Punts map[string]int
	// Steering says where packets for elements go. An element that is not named is steered as before, as long as it has
	// ports.
	Steering map[model.ID]forward.Steering
	// Underlay says in which hook of the underlay's devices the tunnels' packets are taken for routers that are
	// forwarded here; empty stands for auto.
	Underlay model.Hook
	// Incomplete tells that there may be more ports than are named here, so that nothing is removed.
	Incomplete bool
}

// Port is one port, with the place where its link ends. At most one of Local, Tunnel and Edge is set. Without any of
// them the link ends nowhere, and packets are dropped.
type Port struct {
	ID    model.PortID
	Index int // interface index in the node's namespace
	// MAC is the address of the element's interface. Frames to it take the short way into the element. Others
	// (broadcast, multicast, flooded) take the way through the device, so that the element's kernel sees that they are
	// not addressed to it. Without a MAC, all frames take the short way and count as addressed to the element. That is
	// right for a switch, whose ports take every frame, and wrong for a router beside one.
	MAC net.HardwareAddr
	// Virtual tells that the element takes part in virtual routers there (VRRP), and takes frames to their MAC
	// addresses, too. Its own kernel forwards them; they do not count as packets that a router should not get often.
	Virtual bool
	// Down takes the port's, and so the element's, carrier away: the far end is stopped.
	Down   bool
	Local  model.PortID // the far end, when it is on this node
	Tunnel *Tunnel
	// Also are tunnels whose packets are taken beside those of Tunnel: those that the far end sent by before, and those
	// that it will send by next.
	Also []Tunnel
	Edge *Edge
	// Copy has copies made of what passes the port's link, in both directions. Copies is set for a port that gets such
	// copies, from this node or from another one by Tunnel. What its element sends there is dropped.
	Copy   *Copy
	Copies bool
	// Untagged drops frames with VLAN tags that come from the element: its link is that of a switch's access port.
	Untagged bool
	// Shape is what the link does to packets on their way to the element. The shape of each direction is at the port
	// where that direction ends.
	Shape model.Shape
	// Behind is what is at the other side, as the element's control driver has told; nil where nobody has.
	Behind port.Behind
	// Hook is set for ports of routers for which the data path forwards. It says where packets may be taken (auto, tc
	// or xdp). Where the driver's hook is used also depends on the devices at which the port's link ends.
	Hook model.Hook
}

// Tunnel leads to another node. Packets that come from there with this VNI are for the port.
type Tunnel struct {
	VNI  uint32
	Peer netip.Addr
}

// Edge is a real device of the node, or one VLAN of it. Its packets are for the port.
type Edge struct {
	Device string
	VLAN   int // 1…4094, untagged when zero
	// Trunk lets frames with VLAN tags of their own pass in both directions; otherwise they are dropped. Without a VLAN
	// all of the device's frames are for the port, and the device can have no other edge.
	Trunk bool
}

// Report tells what Apply did and could not do.
type Report struct {
	Failed  map[model.PortID]error
	Changed []change.Change // for events; empty when all was right
	// Again is after how long another Apply can do what this one has begun; zero if there is nothing.
	Again   time.Duration
	Problem error // what is wrong with the fabric as a whole
	Steered bool  // packets go where State.Steering says, except for those of elements that failed
	// Hooks are the hooks in use at ports that have one of their own (Port.Hook) and, if there are tunnels among them,
	// at the underlay's devices.
	Hooks    map[model.PortID]model.HookUse
	Underlay map[string]model.HookUse
}

// Counters are those of a port since it was first made on this node. Rx is what came from the element, Tx what went to
// it. They count what a wire would carry: a packet that the kernel segments later (GSO) counts as its segments, each
// with its headers. Bytes are those of whole Ethernet frames with their VLAN tag, without preamble and check sequence.
// Drops are packets, counted at the port that sent them, or at the port that they were for if they came from a tunnel
// or an edge. Tx contains what went into the queue of a link with a bandwidth. What found that queue full is a drop of
// the port that it was for.
type Counters struct {
	RxPackets, RxBytes uint64
	TxPackets, TxBytes uint64
	Drops              map[Drop]uint64
	// Copied are the packets of which the link's mirror got copies, Uncopied those beyond its bandwidth.
	Copied, Uncopied uint64
}

// Drop is why packets were dropped. Its String is the reason for people.
type Drop = pipeline.Drop

const (
	OverBandwidth = pipeline.DropQueue   // they found the queue of their link's bandwidth full
	OverPackets   = pipeline.DropMeter   // beyond a network's packets a second
	OverPunts     = pipeline.DropPunts   // exceptional packets beyond a network's punts a second
	NoPort        = pipeline.DropUnknown // from a tunnel, with a number that no port here has, or from no port's device
	NotThePeer    = pipeline.DropSource  // from a tunnel, by another address than its far end's
	Tagged        = pipeline.DropTag     // with a VLAN tag, or for bridges alone, at an edge that is no trunk
	ByCopies      = pipeline.DropCopies  // sent by an interface that gets a mirror's copies
	ToTunnels     = pipeline.DropNode    // an element would send them out of an edge to a node's tunnels
	Quarantined   = pipeline.DropCut     // from an element in quarantine, or to one
	Stale         = pipeline.DropStale   // they waited in a queue until their port was gone
	TooCostly     = pipeline.DropPace    // an element's packets cost the node more than they may
)
