// Package admission decides whether a network may become what its document says, beside the networks that are there: it
// gives a record with a placement, or all the reasons why not. It keeps nothing, takes no lock and asks no clock. What
// it must know is in a Situation; only through Situation.Machine does it ask how the manager's own machine is. What
// comes of a decision – storing it, telling the nodes, an HTTP status – is the caller's.
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
	Machine   Machine
}

// Machine is what only a look at the manager's own machine can tell.
type Machine interface {
	// Devices are the devices of a node; ok is false where that cannot be seen from here.
	Devices(node string) (names []string, ok bool)
	// Listener names the process that has a port of the machine that a node is on, empty where none has, or where that
	// cannot be seen from here.
	Listener(node string, f model.Forward) string
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
