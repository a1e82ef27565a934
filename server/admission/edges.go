package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// device is one that edges use: a real device of a node, or one VLAN of it.
type device struct {
	node, name string
	vlan       int
}

// devicesOf are the devices of a network's edges, with the edges' names.
func devicesOf(net *model.Network, placed map[string]string) map[device]string {
	devices := make(map[device]string, len(net.Edges))
	for _, e := range net.Edges {
		if e.Device == "" {
			continue // any number of them share the uplink
		}
		devices[device{placed[e.End.Element], e.Device, e.VLAN}] = e.Name
	}
	return devices
}

// checkEdges tells which edges would take a device that another network has: one frame cannot be two tenants'.
func checkEdges(net *model.Network, placed map[string]string, others []model.Record) []error {
	if len(net.Edges) == 0 {
		return nil
	}
	ours := devicesOf(net, placed)
	var problems []error
	for i := range others {
		other := &others[i]
		problems = append(problems, trunksApart(net, placed, other)...)
		for d, edge := range devicesOf(&other.Network, other.Assigned.Placement.Elements) {
			mine, both := ours[d]
			if !both {
				continue
			}
			what := d.name
			if d.vlan != 0 {
				what += fmt.Sprintf(" VLAN %d", d.vlan)
			}
			problems = append(problems, model.ProblemOf(model.AboutEdge, mine, "device",
				"%s of node %s is already edge %s of network %s; "+
					"take another device or VLAN", what, d.node, edge, other.Network.Name))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return problems
}

// trunksApart tells which edges would share a device with another network's, where one of them is a trunk that takes
// all of it.
func trunksApart(net *model.Network, placed map[string]string, other *model.Record) (problems []error) {
	for _, e := range net.Edges {
		for _, o := range other.Network.Edges {
			if e.Device == "" || e.Device != o.Device || e.VLAN == o.VLAN || !e.WholeTrunk() && !o.WholeTrunk() ||
				placed[e.End.Element] != other.Assigned.Placement.Elements[o.End.Element] {
				continue
			}
			what := "which is a trunk and takes all of it"
			if e.WholeTrunk() {
				what = "and a trunk takes all of a device"
			}
			problems = append(problems, model.ProblemOf(model.AboutEdge, e.Name, "device",
				"%s of node %s has edge %s of network %s, %s; "+
					"take another device", e.Device, placed[e.End.Element], o.Name, other.Network.Name, what))
		}
	}
	return problems
}

// checkDevices tells which edges are of a device that their node does not have. Those that the network has already are
// not looked for: a device may come and go.
func (s *Situation) checkDevices(old *Network, net *model.Network, placed map[string]string) []error {
	var problems []error
	had := map[device]string{}
	if old != nil {
		had = devicesOf(&old.Record.Network, old.Record.Assigned.Placement.Elements)
	}
	for i := range net.Edges {
		e := &net.Edges[i]
		if e.Device == "" {
			continue
		}
		node := placed[e.End.Element]
		if _, kept := had[device{node, e.Device, e.VLAN}]; kept {
			continue
		}
		if names := s.Seen[node].Devices; names != nil && !slices.Contains(names, e.Device) {
			problems = append(problems, model.ProblemOf(model.AboutEdge, e.Name, "device",
				"node %s has no device %s; it has %s", node, e.Device, cmp.Or(model.FewNames(12, names), "none")))
		}
	}
	return problems
}

// checkForwards tells which forwarded ports another network has on the same machine, or a process of this machine.
func (s *Situation) checkForwards(old *Network, net *model.Network, placed map[string]string) []error {
	var problems []error
	for _, e := range net.Edges {
		if e.Internet == nil {
			continue
		}
		node := placed[e.End.Element]
		machine := s.machineOf(node)
		for _, f := range e.Internet.Forwards {
			if who := s.forwardedBy(machine, f, s.Others...); who != "" {
				problems = append(problems,
					fmt.Errorf("edge %s: forward %s: port %d is already forwarded by %s; take another port",
						e.Name, f, f.Port, who))
				continue
			}
			if old != nil && s.forwardedBy(machine, f, old.Record) != "" {
				continue // its own agent listens there
			}
			if who := s.Seen[node].Listeners[Port{f.Network(), f.Port}]; who != "" {
				problems = append(problems,
					fmt.Errorf("edge %s: forward %s: %s port %d of the machine is taken by %s; take another port",
						e.Name, f, f.Network(), f.Port, who))
			}
		}
	}
	return problems
}

// forwardedBy names the edge of a network that has the port.
func (s *Situation) forwardedBy(machine string, f model.Forward, networks ...model.Record) string {
	for _, o := range networks {
		for _, e := range o.Network.Edges {
			if e.Internet != nil && s.machineOf(o.Assigned.Placement.Elements[e.End.Element]) == machine &&
				slices.ContainsFunc(e.Internet.Forwards, f.Collides) {
				return "edge " + e.Name + " of network " + o.Network.Name
			}
		}
	}
	return ""
}

// checkTaken refuses an owner more of the nodes' own than the network has: whoever has one of their devices sees and
// sends what passes there, and nobody else does any more; and what leads out by a machine's uplink speaks with that
// machine's address, and may take its ports.
func checkTaken(next *model.Record, old *Network) error {
	had := map[device]string{}
	var before model.Record
	if old != nil {
		before = old.Record
		had = devicesOf(&before.Network, before.Assigned.Placement.Elements)
	}
	for d, edge := range devicesOf(&next.Network, next.Assigned.Placement.Elements) {
		if _, has := had[d]; !has {
			return notYours("network %s: edge %s takes device %s of node %s; only an admin may do that",
				next.Network.Name, edge, d.name, d.node)
		}
	}
	for _, e := range next.Network.Edges {
		on := next.Assigned.Placement.Elements[e.End.Element]
		if e.Internet != nil && (before.Assigned.Placement.Elements[e.End.Element] != on ||
			!slices.ContainsFunc(before.Network.Edges, func(was model.Edge) bool {
				return was.Name == e.Name && was.End == e.End && was.Internet != nil &&
					slices.Equal(was.Internet.Forwards, e.Internet.Forwards)
			})) {
			return notYours("network %s: edge %s leads out by the uplink of node %s; only an admin may do that",
				next.Network.Name, e.Name, on)
		}
	}
	return nil
}

func notYours(format string, args ...any) *Refusal {
	return &Refusal{Kind: NotYours, Detail: fmt.Sprintf(format, args...)}
}
