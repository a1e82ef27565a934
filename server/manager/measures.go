package manager

import (
	"fmt"

	"github.com/polyplane/polyplane/model"
)

// Measure takes over what a node's agent has measured.
func (m *Manager) Measure(measures model.Measures) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.nodes.named(measures.Node)
	if err != nil {
		return err
	}
	m.believeMeasures(n, &measures)
	was := n.measures
	n.measures = &measures
	for i := range measures.Links {
		is := &measures.Links[i]
		m.linkEvent(n.Name, was.Link(is.To), is)
	}
	m.touch()
	return nil
}

// linkEvent tells of a link that no longer answers, or answers again. The first report about a link is no news, whether
// it answers or not. The caller holds the lock.
func (m *Manager) linkEvent(node string, was, is *model.LinkMeasure) {
	object := node + " -- " + is.To
	switch {
	case was == nil:
	case was.Up != is.Up && !m.nodes[node].takesEvent():
	case was.Up && !is.Up:
		m.event(model.Warning, object, "SubstrateLinkDown", "node "+is.To+" no longer answers node "+node+
			" over the substrate", node)
	case !was.Up && is.Up && was.RTTMedian > 0:
		m.event(model.Info, object, "SubstrateLinkUp", fmt.Sprintf("node %s answers node %s again, within %v", is.To,
			node, is.RTTMedian), node)
	}
	if is.Problem != "" && (was == nil || was.Problem != is.Problem) && m.nodes[node].takesEvent() {
		m.event(model.Warning, object, "SubstrateLinkUnmeasured", is.Problem, node)
	}
}

// substrateLinks are the substrate's links, with what is known of them. If the agent that measured one is away, nothing
// is known of that link.
func (m *Manager) substrateLinks() []model.SubstrateLinkStatus {
	all := make([]model.SubstrateLinkStatus, 0, len(m.substrate.Links))
	for _, l := range m.substrate.Links {
		all = append(all, model.SubstrateLinkStatus{SubstrateLink: l, Forth: m.nodes.measured(l.A, l.B),
			Back: m.nodes.measured(l.B, l.A)})
	}
	return all
}
