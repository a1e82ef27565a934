package manager

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// machineOf names the machine that a node is on: simulated nodes share this one.
func (m *Manager) machineOf(node string) string {
	if n := m.nodes[node]; n != nil && n.Simulated {
		return ""
	}
	return node
}

// checkForwards tells which forwarded ports another network has on the same machine, or a process of this machine.
func (m *Manager) checkForwards(old *network, net model.Network, placed map[string]string, others []model.Record) []error {
	var problems []error
	for _, e := range net.Edges {
		if e.Internet == nil {
			continue
		}
		node := placed[e.End.Element]
		for _, f := range e.Internet.Forwards {
			if who := m.forwardedBy(m.machineOf(node), f, others); who != "" {
				problems = append(problems, fmt.Errorf("edge %s: forward %s: port %d is already forwarded by %s; take another port", e.Name, f, f.Port, who))
				continue
			}
			if old != nil && m.forwards(old, m.machineOf(node), f) || !m.here(node) {
				continue // its own agent listens there; what a machine elsewhere runs, its agent tells
			}
			if who := listener(f); who != "" {
				problems = append(problems, fmt.Errorf("edge %s: forward %s: %s port %d of the machine is taken by %s; take another port",
					e.Name, f, f.Network(), f.Port, who))
			}
		}
	}
	return problems
}

// forwardedBy names the edge of another network that has the port.
func (m *Manager) forwardedBy(machine string, f model.Forward, others []model.Record) string {
	for _, o := range others {
		for _, e := range o.Network.Edges {
			if e.Internet != nil && m.machineOf(o.Assigned.Placement.Elements[e.End.Element]) == machine &&
				slices.ContainsFunc(e.Internet.Forwards, f.Collides) {
				return "edge " + e.Name + " of network " + o.Network.Name
			}
		}
	}
	return ""
}

// forwards tells whether the network itself has the port already.
func (m *Manager) forwards(n *network, machine string, f model.Forward) bool {
	return m.forwardedBy(machine, f, []model.Record{n.record}) != ""
}

// here tells whether a node is on the manager's own machine.
func (m *Manager) here(node string) bool {
	n := m.nodes[node]
	return n != nil && (n.Simulated || strings.HasPrefix(n.socket, m.dirs.Run))
}

// listener names the process of this machine that has the port, empty when nobody has.
func listener(f model.Forward) string {
	fd, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	return linux.Listener(fd, f.Network(), f.Port)
}
