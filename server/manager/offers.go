package manager

import (
	"fmt"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// take notes what a node's agent offers, and tells of changes since its last report. The caller holds the lock.
func (k *known) take(n *node, r *model.Registration) {
	offers := r.Offers
	if offers == nil {
		offers = r.BareOffers.Offers()
	}
	was, first := n.offers.Lacks(), !n.came
	n.offers, n.came = offers.Bounded(maxToldKinds, maxToldName, maxToldText), true
	lacks := n.offers.Lacks()
	for _, f := range slices.Sorted(maps.Keys(lacks)) {
		if _, before := was[f]; !first && !before {
			k.event(model.Warning, n.Name, "NodeLacks", fmt.Sprintf("node %s no longer offers %s: %s", n.Name,
				f, lacks[f]), n.Name)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(was)) {
		if _, still := lacks[f]; !still {
			k.event(model.Info, n.Name, "NodeOffers", fmt.Sprintf("node %s offers %s now", n.Name, f), n.Name)
		}
	}
	k.readiness(n)
}
