package manager

import (
	"context"
	"errors"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// patience is how long callers wait for agents that are being started again. When agents or the manager are killed,
// what they made runs on, and nobody should hear otherwise. They come back within a second.
const patience = 4 * time.Second

// patient is a Manager as users see it.
type patient struct {
	*Manager
	restored <-chan struct{} // closed once nodes have reported, or had time to
	most     time.Duration
}

var (
	_ api.Views  = patient{}
	_ api.Agents = patient{}
)

// Dump reports networks once their nodes have reported to this process, or have not done so in time.
func (p patient) Dump(network string, parts api.Parts) (model.Dump, error) {
	if parts.Networks || parts.Elements || parts.Links {
		<-p.restored
	}
	return p.Manager.Dump(network, parts)
}

// Agent waits for an agent that is away.
func (p patient) Agent(ctx context.Context, id model.ID) (api.Reach, error) {
	within, done := context.WithTimeout(ctx, p.most)
	defer done()
	for {
		changed := p.Changed()
		reach, err := p.Manager.Agent(ctx, id)
		if refusal, ok := errors.AsType[*api.Problem](err); !ok || reach.Lost || refusal.Kind != api.KindUnavailable {
			return reach, err
		}
		select {
		case <-changed:
		case <-within.Done():
			return reach, err
		}
	}
}

// restored is closed when all nodes with elements have reported that these are as they should be, or when the time is
// over.
func (m *Manager) restored(ctx context.Context, most time.Duration) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, over := context.WithTimeout(ctx, most)
		defer over()
		for {
			changed := m.Changed()
			if m.allHeard() {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return done
}

func (m *Manager) allHeard() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, n := range m.networks {
		for name, p := range n.parts {
			if on := m.nodes[name]; on != nil && (!on.heard || on.reported < p.revision ||
				on.atWork[n.record.Network.Name]) {
				return false
			}
		}
	}
	return true
}
