package manager

import (
	"context"
	"errors"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/store"
)

// storeLook is how often the manager looks whether a store that others keep is still the one that it has opened. The
// store compares with every request as well; this is so that people learn it before they change something.
const storeLook = 5 * time.Second

// watchStore looks again and again until the context ends.
func (m *Manager) watchStore(ctx context.Context) {
	tick := time.Tick(storeLook)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			m.lookAtStore(ctx)
		}
	}
}

// lookAtStore tells when another store is at the place of ours, when it has not answered for a while, and when ours is
// back.
func (m *Manager) lookAtStore(ctx context.Context) {
	err := m.store.Look(ctx)
	if ctx.Err() != nil {
		return
	}
	silent := ""
	if err := m.store.Silent(); err != nil {
		silent = err.Error()
	}
	m.mu.Lock()
	before := m.silent
	m.silent = silent
	m.mu.Unlock()
	switch {
	case before == "" && silent != "":
		m.event(model.Error, "manager", "StoreSilent", silent, "")
	case before != "" && silent == "":
		m.event(model.Info, "manager", "StoreAnswers", "the store answers again", "")
	}
	if err != nil && !errors.Is(err, store.ErrOther) {
		return
	}
	now := ""
	if err != nil {
		now = err.Error()
	}
	m.mu.Lock()
	was := m.strange
	m.strange = now
	m.mu.Unlock()
	switch {
	case was == now:
	case now != "":
		m.event(model.Error, "manager", "StoreReplaced", now, "")
	default:
		m.event(model.Info, "manager", "StoreBack", "the store that this manager works with is back in its place", "")
	}
}
