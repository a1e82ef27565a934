package manager

import (
	"fmt"

	"github.com/polyplane/polyplane/each"
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
		before := was.Link(is.To)
		if before != nil && before.Up != is.Up {
			m.poke()
		}
		n.answered(is, was == nil || was.Round != measures.Round)
		if n.unanswered[is.To] == cutRounds {
			m.poke()
		}
		m.linkEvent(n.Name, was.Link(is.To), is)
	}
	m.touch()
	return nil
}

// answered counts the rounds in which a neighbour has not answered. It goes on where an agent starts anew, which does
// not know what it heard before. The caller holds the lock.
func (n *node) answered(is *model.LinkMeasure, another bool) {
	count := n.unanswered[is.To]
	switch {
	case is.Up:
		delete(n.unanswered, is.To)
	case another && (count > 0 || is.RTTMedian > 0):
		if n.unanswered == nil {
			n.unanswered = map[string]int{}
		}
		n.unanswered[is.To] = min(count+1, cutRounds+1)
	}
}

// linkEvent tells of a link that no longer answers, or answers again. The first report about a link is no news, whether
// it answers or not. The caller holds the lock.
func (k *known) linkEvent(node string, was, is *model.LinkMeasure) {
	object := node + " -- " + is.To
	switch {
	case was == nil:
	case was.Up != is.Up && !k.nodes[node].takesEvent():
	case was.Up && !is.Up:
		k.event(model.Warning, object, "SubstrateLinkDown", "node "+is.To+" no longer answers node "+node+
			" over the substrate", node)
	case !was.Up && is.Up && was.RTTMedian > 0:
		k.event(model.Info, object, "SubstrateLinkUp", fmt.Sprintf("node %s answers node %s again, within %v", is.To,
			node, is.RTTMedian), node)
	}
	if is.Problem != "" && (was == nil || was.Problem != is.Problem) && k.nodes[node].takesEvent() {
		k.event(model.Warning, object, "SubstrateLinkUnmeasured", is.Problem, node)
	}
}

// substrateLinks are the substrate's links, with what is known of them. If the agent that measured one is away, nothing
// is known of that link.
func (k *known) substrateLinks() []model.SubstrateLinkStatus {
	reserved := map[[2]string]model.Bandwidth{}
	for _, n := range k.networks {
		for _, paths := range n.record.Assigned.Placement.Links {
			for _, p := range paths {
				for i := 1; i < len(p.Nodes); i++ {
					reserved[hop(p.Nodes[i-1], p.Nodes[i])] += p.Bandwidth
				}
			}
		}
	}
	return each.Of(k.substrate.Links, func(l model.SubstrateLink) model.SubstrateLinkStatus {
		return model.SubstrateLinkStatus{SubstrateLink: l, Reserved: reserved[hop(l.A, l.B)],
			Forth: k.nodes.measured(l.A, l.B), Back: k.nodes.measured(l.B, l.A),
			Found: k.foundBetween(l.A, l.B)}
	})
}

// hop is two neighbours on a path, whichever comes first.
func hop(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }
