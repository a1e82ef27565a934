package model

import (
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
)

// Tree is a switch's part of its segment's spanning tree (IEEE 802.1D), as its bridge has it now.
type Tree struct {
	Bridge BridgeID `json:"bridge"`
	Root   BridgeID `json:"root"` // the bridge that it takes for the root
	// Cost is what the way to the root costs: 0 at the root itself.
	Cost  uint32     `json:"cost"`
	Ports []TreePort `json:"ports"` // in the order of the switch's interfaces
}

// BridgeID is a bridge's identifier: the lowest of a segment is the root's.
type BridgeID struct {
	Priority uint16 `json:"priority"`
	MAC      string `json:"mac"`
}

// String is the identifier as people write it: "4096 02:00:00:00:00:01".
func (b BridgeID) String() string { return fmt.Sprintf("%d %s", b.Priority, b.MAC) }

// TreePort is a port of a spanning tree.
type TreePort struct {
	Interface string        `json:"interface"`
	Role      TreePortRole  `json:"role"`
	State     TreePortState `json:"state"`
	Cost      uint32        `json:"cost"` // of the way through it
}

// TreePortRole is what a port is for.
type TreePortRole string

const (
	TreeRoot       TreePortRole = "root"       // the way to the root
	TreeDesignated TreePortRole = "designated" // others' way to the root
	TreeAlternate  TreePortRole = "alternate"  // another way to the root, or back to the switch itself
	TreeNone       TreePortRole = "none"       // without a carrier
)

// TreePortState is what a port does.
type TreePortState string

const (
	TreeDisabled   TreePortState = "disabled"
	TreeBlocking   TreePortState = "blocking"
	TreeListening  TreePortState = "listening"
	TreeLearning   TreePortState = "learning"
	TreeForwarding TreePortState = "forwarding"
)

// TreeStates are the words in which a port can be expected to be: its state, or its role. Listening and learning pass.
var TreeStates = []string{string(TreeForwarding), string(TreeBlocking), string(TreeDisabled), string(TreeRoot),
	string(TreeDesignated), string(TreeAlternate)}

// Is tells whether the port is in a state, or has a role, of TreeStates.
func (p TreePort) Is(word string) bool { return string(p.State) == word || string(p.Role) == word }

// String says what the port is: "blocking (alternate)".
func (p TreePort) String() string { return fmt.Sprintf("%s (%s)", p.State, p.Role) }

// BridgeMAC is a switch's own address; it never changes. A bridge that is left alone takes the lowest of its ports'
// addresses, and changes it as ports come and go.
func BridgeMAC(id ID) (mac [6]byte) {
	h := sha256.Sum256([]byte("bridge " + id.String()))
	copy(mac[:], h[:])
	mac[0] = mac[0]&^3 | 2 // locally administered, unicast
	return mac
}

// BridgeName is the switch of a network whose bridge has an address; empty if none of those named has.
func BridgeName(network, mac string, names []string) string {
	i := slices.IndexFunc(names, func(name string) bool {
		own := BridgeMAC(ID{Network: network, Element: name})
		return net.HardwareAddr(own[:]).String() == mac
	})
	if i < 0 {
		return ""
	}
	return names[i]
}

// Answer says whether the tree is as a look of Known asks, about a switch.
func (t *Tree) Answer(look *Look) (a LookAnswer) {
	switch look.What {
	case KnownTreeRoot:
		to := look.Element
		if look.To != "" {
			to.Element = look.To
		}
		mac := BridgeMAC(to)
		a.So, a.Seen = net.HardwareAddr(mac[:]).String() == t.Root.MAC, t.Root.MAC
	case KnownTreePort:
		i := slices.IndexFunc(t.Ports, func(p TreePort) bool { return p.Interface == look.Interface })
		if i < 0 {
			a.Error = "it has no port " + look.Interface
			return a
		}
		a.So, a.Seen = t.Ports[i].Is(look.State), t.Ports[i].String()
	default:
		a.Error = "a switch can be asked about its spanning tree only"
		return a
	}
	a.So = a.So != look.Not
	return a
}
