package manager

import (
	"context"
	"errors"
	"log/slog"
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

// asideStored has the store take what was decided while it took nothing, and tells of it.
func (k *known) asideStored(ctx context.Context) {
	for _, network := range k.store.Overtaken() {
		k.mu.Lock()
		k.networkEvent(model.Error, network, "AsideOvertaken", "what was decided of it while the store took nothing "+
			"does not count, since it was changed in the store by somebody else: see whether somebody runs who was "+
			"stopped or cut off", "")
		k.mu.Unlock()
	}
	if k.store.Aside() == "" {
		return
	}
	if err := k.store.StoreAside(ctx); err != nil {
		slog.Debug("the store does not take what was laid aside yet", "error", err)
		return
	}
	k.event(model.Info, "manager", "AsideStored", "the store has taken what was decided while it took nothing", "")
}

// tellAside tells of a network of which the store has not taken the last change. The caller holds the lock.
func (k *known) tellAside(network string) {
	if why := k.store.AsideOf(network); why != "" {
		k.networkEvent(model.Warning, network, "LaidAside", "what was decided last is not in the store: "+why, "")
	}
}

// takeBack has the store keep what the manager knows of networks of which a write got no answer: whoever asked for it
// was told that it has failed.
func (k *known) takeBack(ctx context.Context) {
	unsure := k.store.Unsure()
	if len(unsure) == 0 || k.store.Silent() != nil || k.store.Look(ctx) != nil {
		return
	}
	for _, name := range unsure {
		if k.store.AsideOf(name) != "" {
			continue // StoreAside settles it
		}
		k.changing.Lock()
		k.mu.RLock()
		var is *model.Record
		n := k.networks[name]
		if n != nil && n.damaged == nil {
			is = &n.record
		}
		k.mu.RUnlock()
		if n == nil || is != nil {
			if err := k.store.TakeBack(ctx, name, is); err != nil {
				slog.Error("a write without an answer is not taken back yet", "network", name, "error", err)
			}
		}
		k.changing.Unlock()
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
	if err == nil {
		m.asideStored(ctx)
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
