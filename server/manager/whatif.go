package manager

import (
	"context"
	"fmt"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/admission"
	"github.com/polyplane/polyplane/server/api"
)

// outlook works out what would be. It changes nothing.
type outlook struct {
	*known
	turn turns // one is worked out at a time
}

// WhatIf tells what would become of everything that runs if nodes went and others came. One is worked out at a time,
// beside everything else: what it looks at nobody changes in place.
func (m *outlook) WhatIf(ctx context.Context, ask model.WhatIf) (model.WhatIfResult, error) {
	if err := m.turn.LockFor(ctx, api.User(ctx)); err != nil {
		return model.WhatIfResult{}, api.Unavailable(fmt.Errorf("the request was given up before its turn came: %w",
			err))
	}
	defer m.turn.Unlock()
	s, networks := m.present()
	result, err := s.WhatIf(networks, ask, ctx.Err)
	return result, problemOf(err)
}

// present are the networks that are known whole, in what is around them. Nodes that are not ready take nothing.
func (m *outlook) present() (admission.Situation, []admission.Network) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := admission.Situation{Substrate: m.substrate, Offers: m.nodes.offered(),
		Refusing: m.nodes.refusing(false, m.command)}
	for name, n := range m.nodes {
		if !n.ready() && s.Refusing[name] == "" {
			s.Refusing[name] = ", which is not ready"
		}
	}
	var networks []admission.Network
	for _, n := range m.networks {
		switch {
		case n.damaged != nil:
		case n.record.Deleting: // nobody places it again, but it has what it has until it is gone
			s.Others = append(s.Others, n.record)
		default:
			networks = append(networks, *n.admitted())
		}
	}
	return s, networks
}
