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

// offered are what all nodes offer, by node. Those whose agents have not told since this process started are not there.
func (m *Manager) offered() map[string]model.Offers {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make(map[string]model.Offers, len(m.nodes))
	for name, n := range m.nodes {
		if n.came {
			all[name] = n.offers
		}
	}
	return all
}

// unheard are the nodes that elements would be on and whose agents have not told yet what they offer. What is there already
// and asks for nothing else stays, whatever its node's agent does: it must be possible to change a network when one of its
// nodes is dead.
func unheard(old *network, resolved model.Resolved, placed map[string]string, offers map[string]model.Offers) []string {
	had := map[string][]model.Want{}
	if old != nil {
		for i, w := range model.Wants(&old.resolved) {
			had[old.resolved.Elements[i].Name] = w
		}
	}
	silent := map[string]struct{}{}
	for i, wants := range model.Wants(&resolved) {
		name := resolved.Elements[i].Name
		node := placed[name]
		stays := old != nil && old.record.Assigned.Placement.Elements[name] == node
		if _, told := offers[node]; !told && !(stays && isSubset(wants, had[name])) {
			silent[node] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(silent))
}

func isSubset(wants, of []model.Want) bool {
	return !slices.ContainsFunc(wants, func(w model.Want) bool { return !slices.Contains(of, w) })
}

// take notes what a node's agent offers, and tells of what has changed since it told last. The lock is held.
func (m *Manager) take(n *node, r *model.Registration) {
	offers := r.Offers
	if offers == nil {
		offers = r.BareOffers.Offers()
	}
	was, first := n.offers.Lacks(), !n.came
	n.offers, n.came = offers.Bounded(maxToldKinds, maxToldName, maxToldText), true
	lacks := n.offers.Lacks()
	for _, f := range slices.Sorted(maps.Keys(lacks)) {
		if _, before := was[f]; !first && !before {
			m.event(model.Warning, n.Name, "NodeLacks", fmt.Sprintf("node %s no longer offers %s: %s", n.Name, f, lacks[f]), n.Name)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(was)) {
		if _, still := lacks[f]; !still {
			m.event(model.Info, n.Name, "NodeOffers", fmt.Sprintf("node %s offers %s now", n.Name, f), n.Name)
		}
	}
	m.readiness(n)
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

// checkSoftware tells which elements' routing software could not be configured: what a node would refuse to render is
// refused before it gets there.
func checkSoftware(resolved model.Resolved) []error {
	var problems []error
	for i := range resolved.Elements {
		if _, err := software.Render(resolved.Name, resolved.Elements[i]); err != nil {
			problems = append(problems, model.Problem{About: model.AboutElement, Name: resolved.Elements[i].Name, Message: err.Error()})
		}
	}
	return problems
}

// checkDisks tells which elements would have smaller disks than they have: file systems in use do not shrink.
func checkDisks(old *network, resolved model.Resolved) []error {
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
