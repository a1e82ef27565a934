package manager

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/software"
)

// offers is what a node has drivers for, as its agent told. An agent that tells of no drivers at all says nothing of them.
type offers struct {
	told        bool // by the agent, since this process started
	controls    []model.Control
	forwardings []model.Forwarding
	noDelay     string // why its links cannot delay packets
	noInternet  string // why it can have no internet edges
}

func (o offers) unknown() bool { return len(o.controls) == 0 && len(o.forwardings) == 0 }

// lacks is what the element asks for and the node has no driver for, as the document says it; empty when it has all.
func (o offers) lacks(e *model.Element) string {
	switch {
	case o.unknown():
	case !slices.Contains(o.controls, e.Control):
		return "control: " + string(e.Control)
	case !slices.Contains(o.forwardings, e.Forwarding) || !serves(e.Forwarding, e.Kind):
		return "forwarding: " + string(e.Forwarding)
	}
	return ""
}

// fieldOf is the field that the element lacks a driver for.
func fieldOf(lacking string) string {
	field, _, _ := strings.Cut(lacking, ":")
	return field
}

// serves tells whether the plane that nodes have is for elements of that kind: there are planes for fewer kinds than
// model.ForwardingsOf allows, and their nodes would refuse the others one by one, when they are there already.
func serves(f model.Forwarding, k model.Kind) bool {
	switch f {
	case model.ForwardBridge:
		return k == model.Switch || k == model.Router
	case model.ForwardRouter, model.ForwardXDP:
		return k == model.Router
	}
	return true
}

// offered are what all the nodes offer together, by node.
func (m *Manager) offered() map[string]offers {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make(map[string]offers, len(m.nodes))
	for name, n := range m.nodes {
		all[name] = n.offers
	}
	return all
}

// checkOffered tells which elements ask for a driver that no node has.
func checkOffered(resolved model.Network, nodes map[string]offers) []error {
	var problems []error
	for i := range resolved.Elements {
		e := &resolved.Elements[i]
		lacking, somewhere := "", false
		for _, o := range nodes {
			if l := o.lacks(e); l == "" {
				somewhere = true
				break
			} else if lacking == "" || l < lacking {
				lacking = l
			}
		}
		if lacking != "" && !somewhere {
			problems = append(problems, model.ProblemOfElement(e, fieldOf(lacking), "no node offers %s; there is %s", lacking, there(e, nodes)))
		}
	}
	return problems
}

// unheard are the nodes whose agents have not told yet what they have drivers for, and must have before the network can be
// judged. What is there already stays, whatever its node's agent does: it must be possible to change a network when one of
// its nodes is dead.
func unheard(old *network, resolved model.Network, placed map[string]string, nodes map[string]offers) []string {
	silent, somewhere := map[string]struct{}{}, []string{}
	for name, o := range nodes {
		if !o.told {
			somewhere = append(somewhere, name)
		}
	}
	if len(somewhere) == 0 {
		return nil
	}
	fresh := make(map[string]struct{}, len(resolved.Elements))
	for i := range resolved.Elements {
		e := &resolved.Elements[i]
		if old != nil && old.record.Assigned.Placement.Elements[e.Name] == placed[e.Name] {
			if k, ok := old.index[e.Name]; ok && old.resolved.Elements[k].Control == e.Control && old.resolved.Elements[k].Forwarding == e.Forwarding {
				continue
			}
		}
		fresh[e.Name] = struct{}{}
		switch on := nodes[placed[e.Name]]; {
		case !on.told:
			silent[placed[e.Name]] = struct{}{}
		case on.lacks(e) != "": // no node that has told has it
			for _, name := range somewhere {
				silent[name] = struct{}{}
			}
		}
	}
	for name := range delayed(old, resolved, fresh) {
		if node := placed[name]; !nodes[node].told {
			silent[node] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(silent))
}

// delayed are the elements at links that delay packets and did not before, or have a new end.
func delayed(old *network, resolved model.Network, fresh map[string]struct{}) map[string]struct{} {
	did := map[string]struct{}{}
	if old != nil {
		for i := range old.resolved.Links {
			if l := &old.resolved.Links[i]; l.Delay != 0 || l.Jitter != 0 {
				did[l.Name] = struct{}{}
			}
		}
	}
	ends := map[string]struct{}{}
	for i := range resolved.Links {
		l := &resolved.Links[i]
		_, before := did[l.Name]
		_, a := fresh[l.Ends[0].Element]
		_, b := fresh[l.Ends[1].Element]
		if (l.Delay != 0 || l.Jitter != 0) && (!before || a || b) {
			ends[l.Ends[0].Element], ends[l.Ends[1].Element] = struct{}{}, struct{}{}
		}
	}
	return ends
}

// notHeard refuses what may be right in a moment.
func notHeard(network string, nodes []string) error {
	what := "the agent of node " + nodes[0] + " has"
	if len(nodes) > 1 {
		what = "the agents of nodes " + shorten(nodes) + " have"
	}
	return api.Unavailable(fmt.Errorf("network %s cannot be judged yet: %s not reported what can run there since the manager started; "+
		"wait until `polyplane get nodes` shows them ready, or pin the elements to other nodes (node:)", network, what))
}

// there is what the nodes have instead of what an element asks for.
func there(e *model.Element, nodes map[string]offers) string {
	controls, forwardings := map[string]struct{}{}, map[string]struct{}{}
	for _, o := range nodes {
		for _, c := range o.controls {
			controls[string(c)] = struct{}{}
		}
		for _, f := range o.forwardings {
			if serves(f, e.Kind) && slices.Contains(model.ForwardingsOf(e.Kind, model.ControlNetns), f) {
				forwardings[string(f)] = struct{}{}
			}
		}
	}
	return "control: " + strings.Join(slices.Sorted(maps.Keys(controls)), ", ") + " with forwarding: " +
		strings.Join(slices.Sorted(maps.Keys(forwardings)), ", ")
}

// checkPlaced tells which elements are placed on a node that has no driver for them, although another has.
func checkPlaced(resolved model.Network, placed map[string]string, nodes map[string]offers) []error {
	var problems []error
	for i := range resolved.Elements {
		e := &resolved.Elements[i]
		if lacking := nodes[placed[e.Name]].lacks(e); lacking != "" {
			var has []string
			for name, o := range nodes {
				if !o.unknown() && o.lacks(e) == "" {
					has = append(has, name)
				}
			}
			if len(has) == 0 {
				continue // a node that has not told yet may have it
			}
			slices.Sort(has)
			problems = append(problems, model.ProblemOfElement(e, fieldOf(lacking), "it would be on node %s, which does not offer %s; pin it with node: to one that does (%s)",
				placed[e.Name], lacking, strings.Join(has, ", ")))
		}
	}
	return problems
}

// checkDelays tells which links would have to delay packets on a node that cannot.
func checkDelays(net model.Network, placed map[string]string, nodes map[string]offers) []error {
	var problems []error
	for _, l := range net.Links {
		if l.Delay == 0 && l.Jitter == 0 {
			continue
		}
		for k, end := range l.Ends { // each direction's delay is made where it ends
			node := placed[end.Element]
			if k == 1 && node == placed[l.Ends[0].Element] {
				continue
			}
			if why := nodes[node].noDelay; why != "" {
				problems = append(problems, model.ProblemOf(model.AboutLink, l.Name, "delay", "its delay and jitter cannot be had on node %s: %s; place %s on another node, or take them out",
					node, why, end.Element))
			}
		}
	}
	return problems
}

// checkSoftware tells which elements' routing software could not be configured: what a node would refuse to render is
// refused before it gets there.
func checkSoftware(resolved model.Network) []error {
	var problems []error
	for i := range resolved.Elements {
		if _, err := software.Render(resolved.Name, resolved.Elements[i]); err != nil {
			problems = append(problems, model.Problem{About: model.AboutElement, Name: resolved.Elements[i].Name, Message: err.Error()})
		}
	}
	return problems
}

// checkDisks tells which elements would have smaller disks than they have: file systems in use do not shrink.
func checkDisks(old *network, resolved model.Network) []error {
	if old == nil {
		return nil
	}
	var problems []error
	for i := range resolved.Elements {
		e := &resolved.Elements[i]
		k, ok := old.index[e.Name]
		if !ok {
			continue
		}
		is, was := e.Limits().Disk, old.resolved.Elements[k].Limits().Disk
		if is < was && e.HasProcesses() && old.resolved.Elements[k].HasProcesses() {
			problems = append(problems, model.ProblemOfElement(e, "disk", "its disk of %s cannot shrink to %s while it is used; leave it, or delete the element and make it anew",
				was, is))
		}
	}
	return problems
}

// device is one that edges use: a real device of a node, or one VLAN of it.
type device struct {
	node, name string
	vlan       int
}

// devicesOf are the devices of a network's edges, with the edges' names.
func devicesOf(net model.Network, placed map[string]string) map[device]string {
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
func checkEdges(net model.Network, placed map[string]string, others []model.Record) []error {
	if len(net.Edges) == 0 {
		return nil
	}
	ours := devicesOf(net, placed)
	var problems []error
	for _, other := range others {
		problems = append(problems, trunksApart(net, placed, other)...)
		for d, edge := range devicesOf(other.Network, other.Assigned.Placement.Elements) {
			mine, both := ours[d]
			if !both {
				continue
			}
			what := d.name
			if d.vlan != 0 {
				what += fmt.Sprintf(" VLAN %d", d.vlan)
			}
			problems = append(problems, model.ProblemOf(model.AboutEdge, mine, "device", "%s of node %s is already edge %s of network %s; take another device or VLAN",
				what, d.node, edge, other.Network.Name))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return problems
}

// trunksApart tells which edges would share a device with another network's, where one of them is a trunk that takes all of it.
func trunksApart(net model.Network, placed map[string]string, other model.Record) (problems []error) {
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
			problems = append(problems, model.ProblemOf(model.AboutEdge, e.Name, "device", "%s of node %s has edge %s of network %s, %s; take another device",
				e.Device, placed[e.End.Element], o.Name, other.Network.Name, what))
		}
	}
	return problems
}

func sliceProblem(field, format string, args ...any) error {
	return model.Problem{About: model.AboutNetwork, Field: "slice/" + field, Message: fmt.Sprintf(format, args...)}
}

// checkTables tells on which nodes a strict slice cannot have the forwarding tables that it states.
func (m *Manager) checkTables(net *model.Network, placed map[string]string, others []model.Record) []error {
	nodes := make([]string, len(m.substrate.Nodes))
	for i := range nodes {
		nodes[i] = m.substrate.Nodes[i].Name
	}
	return model.CheckReservedTables(net, placed, model.ReservedTables(others), nodes)
}

// checkSlice tells which of a slice's amounts is more than all nodes have together: no network could ever fill it.
func checkSlice(s model.Slice, substrate model.Substrate) []error {
	var cpu uint64
	var memory model.Bytes
	for _, n := range substrate.Nodes {
		cpu += uint64(n.CPU)
		memory += n.Memory
	}
	var problems []error
	if uint64(s.CPU) > cpu {
		problems = append(problems, sliceProblem("cpu", "slice: %s cores are more than all nodes have together (%s)", s.CPU, model.CPU(min(cpu, 1<<32-1))))
	}
	if s.Memory > memory {
		problems = append(problems, sliceProblem("memory", "slice: %s of memory is more than all nodes have together (%s)", s.Memory, memory.Rounded()))
	}
	return problems
}

// checkDevices tells which edges are of a device that their node does not have. Those that the network has already are
// not looked for: a device may come and go.
func (m *Manager) checkDevices(old *network, net model.Network, placed map[string]string) []error {
	var problems []error
	had := map[device]string{}
	if old != nil {
		had = devicesOf(old.record.Network, old.record.Assigned.Placement.Elements)
	}
	for _, e := range net.Edges {
		if e.Device == "" {
			continue
		}
		node := placed[e.End.Element]
		if _, kept := had[device{node, e.Device, e.VLAN}]; kept || m.nodes[node] == nil || m.nodes[node].Joined {
			continue // its agent is the one to complain
		}
		namespace := ""
		if m.nodes[node].Simulated {
			namespace = m.dirs.Node(node).NodeNamespace()
		}
		names, err := devicesIn(namespace)
		if err != nil || slices.Contains(names, e.Device) {
			continue // a namespace that cannot be looked into is its agent's to complain of
		}
		problems = append(problems, model.ProblemOf(model.AboutEdge, e.Name, "device", "node %s has no device %s; it has %s", node, e.Device, cmp.Or(shorten(names), "none")))
	}
	return problems
}

// devicesIn are the names of the devices in the network namespace at a path, in this process's own where that is empty,
// without the loopback and what polyplane made.
func devicesIn(namespace string) ([]string, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if namespace != "" {
		ns, nsErr := netns.GetFromPath(namespace)
		if nsErr != nil {
			return nil, nsErr
		}
		defer ns.Close()
		h, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	}
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range links {
		if a := l.Attrs(); a.Flags&net.FlagLoopback == 0 && !strings.HasPrefix(a.Alias, "polyplane") {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
