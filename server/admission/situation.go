// Package admission decides whether a network may become what its document says, beside the networks that are there: it
// gives a record with a placement, or all the reasons why not. It keeps nothing, takes no lock, and asks no clock and
// no machine. What it must know is in a Situation. What comes of a decision – storing it, telling the nodes, an HTTP
// status – is the caller's.
package admission

import "github.com/polyplane/polyplane/model"

// Network is a network that was admitted: its record, and what follows from it.
type Network struct {
	Record   model.Record
	Resolved model.Resolved
}

// elements are its elements by name; none where there is no such network.
func (n *Network) elements() map[string]*model.ResolvedElement {
	all := map[string]*model.ResolvedElement{}
	if n != nil {
		for i := range n.Resolved.Elements {
			all[n.Resolved.Elements[i].Name] = &n.Resolved.Elements[i]
		}
	}
	return all
}

// on is the node that an element was on, empty where there was no such element.
func (n *Network) on(element string) string {
	if n == nil {
		return ""
	}
	return n.Record.Assigned.Placement.Elements[element]
}

// Situation is what a decision depends on beside the document.
type Situation struct {
	Substrate model.Substrate
	// Offers are what the nodes' agents have told, by node. A node without any has not told since the manager started.
	Offers map[string]model.Offers
	// Others are the records of all other networks. Of one that cannot be read only the numbers are known, and it has
	// no name.
	Others []model.Record
	Quotas model.Quotas
	// Restraints are what administrators have decided about elements that may come anew.
	Restraints []model.Restraint
	// Refusing are the nodes that nothing new may be put on, with the reason, in words for whoever asks.
	Refusing map[string]string
	// Owner is set where an owner asks, and no administrator: default quotas bind then, and devices and uplinks of
	// nodes are not to be had.
	Owner bool
	// Overwrite has elements that keep a configuration of their own take the document's.
	Overwrite bool
	// LoseFiles lets elements move to other nodes without what was written inside them.
	LoseFiles bool
	// Seen are the nodes of the manager's own machine, as far as the drafts' Fresh edges need them. Of other nodes
	// their agents tell what is wrong.
	Seen map[string]Seen
}

// Seen is what the manager has seen of a node.
type Seen struct {
	Devices   []string        // nil where they cannot be seen
	Listeners map[Port]string // the processes that have ports of the machine that the node is on
}

// Port is one of a machine's.
type Port struct {
	Network string // tcp or udp
	Number  uint16
}

// machineOf names the machine that a node is on: all simulated nodes share one.
func (s *Situation) machineOf(node string) string {
	for i := range s.Substrate.Nodes {
		if n := &s.Substrate.Nodes[i]; n.Name == node && n.Simulated {
			return ""
		}
	}
	return node
}
