package manager

import (
	"fmt"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// offered are the offers of all nodes, by node. It leaves out nodes whose agents have not reported theirs since this
// process started. The caller holds the lock.
func (m *Manager) offered() map[string]model.Offers {
	all := make(map[string]model.Offers, len(m.nodes))
	for name, n := range m.nodes {
		if n.came {
			all[name] = n.offers
		}
	}
	return all
}

// take notes what a node's agent offers, and tells of changes since its last report. The caller holds the lock.
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
			m.event(model.Warning, n.Name, "NodeLacks", fmt.Sprintf("node %s no longer offers %s: %s", n.Name,
				f, lacks[f]), n.Name)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(was)) {
		if _, still := lacks[f]; !still {
			m.event(model.Info, n.Name, "NodeOffers", fmt.Sprintf("node %s offers %s now", n.Name, f), n.Name)
		}
	}
	m.readiness(n)
}
