package model

import "net/netip"

// Discovery is what a node's agent has found: of its machine, and of who is at the other ends of its underlay's
// devices.
type Discovery struct {
	Node string `json:"node"`
	// Key is the public half of the key with which this life of the agent signs its announcements (Ed25519).
	Key []byte `json:"key,omitempty"`
	// Settled tells that the agent has listened for longer than others are silent between two announcements. Before
	// that, who is not heard need not be gone.
	Settled bool `json:"settled,omitempty"`
	// Off is why the node neither announces itself nor listens, in words.
	Off string `json:"off,omitempty"`
	// Wires are the underlay's devices.
	Wires []Wire `json:"wires,omitempty"`
	// Refused counts announcements that were not believed, since the agent started.
	Refused uint64 `json:"refused,omitempty"`
	// Unknown are nodes that were heard of and whose keys the agent lacks.
	Unknown []string `json:"unknown,omitempty"`
	// Processor is the kind of processor, in its maker's words.
	Processor  string          `json:"processor,omitempty"`
	Interfaces []NodeInterface `json:"interfaces,omitempty"`
}

// Wire is a device of the underlay, and who is heard on it.
type Wire struct {
	Device string `json:"device"`
	Up     bool   `json:"up"` // it has carrier
	// Speed is what the device can send: the lesser of what it says of itself and of what its queue lets pass. Zero is
	// unknown: virtual devices have no speed.
	Speed    Bandwidth     `json:"speed,omitempty"`
	Problem  string        `json:"problem,omitempty"` // why nothing is announced or heard there, in words
	Nodes    []HeardNode   `json:"nodes,omitempty"`
	Switches []HeardSwitch `json:"switches,omitempty"`
}

// HeardNode is a node whose signed announcements arrive.
type HeardNode struct {
	Node string `json:"node"`
	Port string `json:"port"` // the device that it sends them by
}

// HeardSwitch is somebody who announces itself by LLDP (IEEE 802.1AB) and is no node. Nothing proves what it says.
type HeardSwitch struct {
	Chassis string     `json:"chassis"` // its chassis ID
	Port    string     `json:"port"`    // its port's ID
	Name    string     `json:"name,omitempty"`
	Address netip.Addr `json:"address,omitzero"` // its management address
}

// NodeInterface is a network device of a node's machine. The ports of elements are not among them.
type NodeInterface struct {
	Name   string    `json:"name"`
	Kind   string    `json:"kind,omitempty"` // such as bridge or veth; empty for hardware
	MAC    string    `json:"mac,omitempty"`
	MTU    int       `json:"mtu"`
	Up     bool      `json:"up"` // it is switched on and has carrier
	Speed  Bandwidth `json:"speed,omitempty"`
	Master string    `json:"master,omitempty"` // the bridge or bond that it belongs to
}

// DiscoveryAnswer are the keys that an agent asked for. Nodes that there are not, or that have told no key, are not in
// it.
type DiscoveryAnswer struct {
	Keys map[string][]byte `json:"keys,omitempty"`
}

// Bounds of what a node tells of what it found.
const (
	MaxWires          = 1024
	MaxHeardNodes     = 64 // on one device
	MaxHeardSwitches  = 8  // likewise
	MaxToldInterfaces = 256
	MaxUnknownNodes   = 64
)

// FoundState tells what nodes have found of a link between them.
type FoundState string

const (
	// FoundBoth is a link whose ends hear each other.
	FoundBoth FoundState = "both"
	// FoundOne is a link of which only one end hears the other. It does not count.
	FoundOne FoundState = "one"
	// FoundLost is a link that was found, and is not any longer.
	FoundLost FoundState = "lost"
	// FoundNone is a link whose ends listen and do not hear each other: something between them passes no LLDP on.
	FoundNone FoundState = "none"
	// FoundSwitch is the link of a node to a switch that it hears, and that other nodes hear as well.
	FoundSwitch FoundState = "switch"
)

// FoundLink is what was found of a link of the substrate. What the substrate states, and what networks reserve, does
// not follow from it.
type FoundLink struct {
	State FoundState `json:"state"`
	// Devices are the ends' own, A's first.
	Devices [2]string `json:"devices"`
	// Speed is the lesser of what the ends' devices can send; zero is unknown.
	Speed Bandwidth `json:"speed,omitempty"`
	// Switch is told if B is a switch.
	Switch *HeardSwitch `json:"switch,omitempty"`
}
