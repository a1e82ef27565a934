package manager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// What can be told from the nodes alone, or from the networks alone, is told by these two types. The manager's lock
// guards both: whoever calls a method holds it.

// nodes are those of the substrate, by name.
type nodes map[string]*node

// named finds a node by name.
func (ns nodes) named(name string) (*node, error) {
	if n := ns[name]; n != nil {
		return n, nil
	}
	return nil, api.NotFound("there is no node %s; the nodes are: %s", name,
		strings.Join(slices.Sorted(maps.Keys(ns)), ", "))
}

// heldOn are the networks of this name that nodes hold, by node.
func (ns nodes) heldOn(network string) map[string]model.HeldNetwork {
	on := map[string]model.HeldNetwork{}
	for name, n := range ns {
		for h := range n.keeps() {
			if h.Name == network {
				on[name] = h
			}
		}
	}
	return on
}

// heldNumbers are the numbers of what nodes hold, which no other network may get.
func (ns nodes) heldNumbers() []model.Record {
	var all []model.Record
	for _, n := range ns {
		for h := range n.keeps() {
			all = append(all, model.Record{Assigned: model.Assigned{Index: h.Index,
				Links: map[string]model.AssignedLink{"": {VNI: h.VNI}}}})
		}
	}
	return all
}

// refusing are the nodes that do not follow the store, and why nothing new may be put on them. An owner does not learn
// whose networks they hold.
func (ns nodes) refusing(owner bool, command func(string) string) map[string]string {
	all := map[string]string{}
	for name, n := range ns {
		switch {
		case n.unproven != "":
			all[name] = ": " + n.heldProblem()
		case len(n.held) == 0:
		case owner:
			all[name] = ", which changes nothing until an administrator has settled what becomes of other networks " +
				"that it holds"
		default:
			held := n.heldNames()
			all[name] = fmt.Sprintf(", which changes nothing until it is settled what becomes of what it holds (%s): "+
				"take it in (`%s`), or let it go (`%s`)", strings.Join(held, ", "), command("recover --from-nodes"),
				command("forget "+held[0]))
		}
	}
	return all
}

// offered are the offers of all nodes, by node. It leaves out nodes whose agents have not reported theirs since this
// process started.
func (ns nodes) offered() map[string]model.Offers {
	all := make(map[string]model.Offers, len(ns))
	for name, n := range ns {
		if n.came {
			all[name] = n.offers
		}
	}
	return all
}

// checkAddress refuses an address that another node has.
func (ns nodes) checkAddress(machine model.Machine) error {
	for name, n := range ns {
		if name != machine.Name && n.Address == machine.Address {
			return api.Conflict("node %s has the address %s already; say by which address the other nodes reach this "+
				"host (--underlay ADDRESS)", name, machine.Address)
		}
	}
	return nil
}

func (ns nodes) measured(from, to string) *model.LinkMeasure {
	n := ns[from]
	if n == nil || n.mute() != "" {
		return nil
	}
	return n.measures.Link(to)
}

// elementStatus is what the element's node says, or why it says nothing. The lock is held.
func (ns nodes) elementStatus(n *network, element string) model.ElementStatus {
	s := ns.toldOf(n, element)
	switch o := n.record.Overrides[element]; {
	case o.Quarantined:
		s.Quarantine = cmp.Or(o.Reason, "by hand")
	case s.Incident != nil && o.Decided < s.Incident.At.UnixNano():
		s.Quarantine = reasonOf(s.Incident.What)
	case ns.keepsCut(n, element):
		s.Quarantine = keptCut
	}
	return s
}

// keptCut is the reason of a quarantine that only the element's node knows of.
const keptCut = "an administrator's, which this store does not know and the element's node goes on with"

// keepsCut returns whether the element's node holds its network and has the element in a quarantine that the store has
// lost. The lock is held.
func (ns nodes) keepsCut(n *network, element string) bool {
	on := ns[n.record.Assigned.Placement.Elements[element]]
	return on != nil && slices.ContainsFunc(on.held, func(h model.HeldNetwork) bool {
		return h.Name == n.record.Network.Name && slices.Contains(h.Cut, element)
	})
}

// toldOf is what the element's node told last. The lock is held.
func (ns nodes) toldOf(n *network, element string) model.ElementStatus {
	id := model.ID{Network: n.record.Network.Name, Element: element}
	s := model.ElementStatus{ID: id, Node: n.record.Assigned.Placement.Elements[element], Phase: model.PhasePending}
	on := ns[s.Node]
	switch {
	case on == nil:
		s.Phase, s.Message = model.PhaseFailed,
			fmt.Sprintf("it is placed on node %q, which the substrate does not have", s.Node)
	case on.mute() != "":
		reported, ok := on.elements[id]
		if s.Message = on.mute(); ok { // what runs there goes on running
			reported.Message, reported.LastTold = "as last told: "+s.Message, on.toldBefore()
			return reported
		}
	default:
		if reported, ok := on.elements[id]; ok {
			return reported
		}
		if on.problem != "" {
			s.Message = on.problem
		}
	}
	return s
}

// linkStatus sums up a link: it is up when both its ports are. The lock is held.
func (ns nodes) linkStatus(n *network, l model.Link) model.LinkStatus {
	if len(l.Prefixes) == 0 {
		l.Prefixes = n.subnets(l)
	}
	s := model.LinkStatus{Network: n.record.Network.Name, Owner: n.record.WhoseItIs(),
		Title: n.record.Network.Called(), Link: l, VNI: n.record.Assigned.Links[l.Name].VNI,
		Paths: n.record.Assigned.Placement.Links[l.Name]}
	up := 0
	for _, end := range l.Ends {
		id := model.PortID{ID: model.ID{Network: s.Network, Element: end.Element}, Interface: end.Interface}
		on := ns[n.record.Assigned.Placement.Elements[end.Element]]
		if on == nil {
			continue
		}
		if p, ok := on.ports[id]; ok {
			s.Ports = append(s.Ports, p)
			if on.mute() != "" {
				s.LastTold = max(s.LastTold, on.toldBefore())
			}
			if p.Up { // as last told, where the agent is away
				up++
			}
		}
	}
	s.Up = up == len(l.Ends)
	if t, turns := n.record.Assigned.Turns[l.Name]; turns {
		s.Turn = &t
	}
	for _, p := range n.record.Assigned.AllPaths(l.Name) {
		for _, name := range p.Nodes {
			on := ns[name]
			if on == nil {
				continue
			}
			if r, ok := on.relays[relayID{linkID{s.Network, l.Name}, p.VNI}]; ok {
				s.Relays = append(s.Relays, r)
			}
		}
	}
	return s
}

// networks are all networks, by name.
type networks map[string]*network

func (ns networks) none(name string) error {
	names := slices.Sorted(maps.Keys(ns))
	if len(names) == 0 {
		return api.NotFound("there is no network %s; there are no networks yet", name)
	}
	return api.NotFound("there is no network %s; the networks are: %s", name, shorten(names))
}

// placed are the networks that have elements on a node, by name.
func (ns networks) placed(node string) []string {
	var on []string
	for name, n := range ns {
		if placedOn(n.record)[node] > 0 {
			on = append(on, name)
		}
	}
	slices.Sort(on)
	return on
}

// mayTell returns whether a joined node may speak of an object in an event: of itself, its links, and what is placed on
// it. The caller holds the manager's lock.
func (ns networks) mayTell(n *node, object string) bool {
	if !n.Joined || n.itself(object) {
		return true
	}
	of := ns[networkOf(object)]
	if of == nil || of.damaged != nil {
		return false
	}
	if _, element, is := strings.Cut(object, "/"); is {
		element, _, _ = strings.Cut(element, ":")
		return of.record.Assigned.Placement.Elements[element] == n.Name
	}
	return placedOn(of.record)[n.Name] > 0
}

// places returns whether the manager has placed an element on the node. A network that is being deleted counts until
// the node has released it.
func (ns networks) places(n *node, id model.ID) (of *network, ok bool) {
	of = ns[id.Network]
	if of == nil || of.damaged != nil {
		return of, false
	}
	return of, of.record.Assigned.Placement.Elements[id.Element] == n.Name
}
