package manager

import (
	"cmp"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/metrics"
)

// Metrics is the state of everything at this moment. It includes a port if a network has it and the node of its element
// has reported it. It leaves out ports that a node still reports after they have gone.
func (m *Manager) Metrics() metrics.State {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := metrics.State{Instance: m.dirs.Name, Revision: m.revision, Links: m.substrateLinks(), Events: m.counts()}
	s.Store.Place = m.store.Place()
	s.Store.Size, s.Store.Used = m.store.Size()
	for _, status := range m.nodeStatuses() {
		n := m.nodes[status.Name]
		s.Nodes = append(s.Nodes, metrics.Node{NodeStatus: status, Connected: n.watches > 0, Measures: n.measures})
	}
	for _, name := range slices.Sorted(maps.Keys(m.networks)) {
		n := m.networks[name]
		s.Networks = append(s.Networks, m.networkStatus(n))
		for i := range n.resolved.Elements {
			e := &n.resolved.Elements[i]
			status := m.nodes.elementStatus(n, e.Name)
			s.Elements = append(s.Elements, status)
			on := m.nodes[status.Node]
			if on == nil {
				continue
			}
			for j := range e.Interfaces {
				if p, ok := on.ports[model.PortID{ID: status.ID, Interface: e.Interfaces[j].Name}]; ok {
					s.Ports = append(s.Ports, metrics.Port{Node: status.Node, PortStatus: p})
				}
			}
		}
	}
	return s
}

// counts says how often each kind of event happened since the manager started, in a fixed order.
func (e *news) counts() []metrics.EventCount {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]metrics.EventCount, 0, len(e.count))
	for kind, n := range e.count {
		all = append(all, metrics.EventCount{Severity: kind.severity, Reason: kind.reason, Count: n})
	}
	slices.SortFunc(all, func(a, b metrics.EventCount) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Severity, b.Severity))
	})
	return all
}
