package manager

import (
	"context"
	"log/slog"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// A network that is imported comes in several steps: it is applied, then its elements get their files. Until whoever
// does that says that it is whole, it is provisional, and its record says when it goes. So it is there whole or not at
// all, whoever dies meanwhile.

// Keep says that a provisional network stays.
func (m *Manager) Keep(ctx context.Context, name string) error {
	if err := m.changing.LockFor(ctx, api.User(ctx)); err != nil {
		return api.Unavailable(err)
	}
	defer m.changing.Unlock()
	n, err := m.alive(ctx, name)
	if err != nil || n.record.Provisional.IsZero() {
		return err
	}
	next := n.next()
	next.Provisional = time.Time{}
	return m.commit(ctx, &change{record: next, resolved: n.resolved, reason: "NetworkKept",
		message: "is whole, and stays"})
}

// provisional has new networks removed again unless they are kept. It refuses that for networks that are there.
func provisional(changes []*change, situations []*network, now time.Time) error {
	for _, old := range situations {
		if old != nil {
			return api.Conflict("network %s is there: only a new network can be provisional", old.record.Network.Name)
		}
	}
	for _, c := range changes {
		c.record.Provisional = now.Add(model.ProvisionalTime).UTC()
	}
	return nil
}

// removeProvisional removes the networks that nobody has kept in time.
func (m *Manager) removeProvisional(ctx context.Context, now time.Time) {
	var late []string
	m.mu.RLock()
	for name, n := range m.networks {
		if at := n.record.Provisional; n.damaged == nil && !at.IsZero() && at.Before(now) && !n.record.Deleting {
			late = append(late, name)
		}
	}
	m.mu.RUnlock()
	for _, name := range late {
		if err := m.Delete(ctx, name, true); err != nil {
			slog.Error("a network that was not kept cannot be removed yet", "network", name, "error", err)
		}
	}
}
