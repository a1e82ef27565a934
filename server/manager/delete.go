package manager

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
)

// Delete removes a network. Its record stays, marked, until every node has released its part. If only nodes have parts
// of the network, because the store does not know it, they release those. With now, its files do not go to the trash.
func (m *Manager) Delete(ctx context.Context, name string, now bool) error {
	ctx = urgently(ctx)
	if err := m.changing.LockFor(ctx, api.User(ctx)); err != nil {
		return api.Unavailable(err)
	}
	defer m.changing.Unlock()
	m.mu.RLock()
	n := m.networks[name]
	held := n == nil && len(m.nodes.heldOn(name)) > 0
	var err error
	if n == nil && !held {
		err = m.networks.none(name)
	} else if n != nil {
		err = checkMine(ctx, n)
	}
	m.mu.RUnlock()
	switch {
	case err != nil:
		return err
	case held && api.Only(ctx) != "":
		return api.NotFound("there is no network %s", name)
	case held:
		return m.forgetHeld(ctx, name, now)
	case n.damaged != nil:
		return m.forget(ctx, name, "its record could not be read; the nodes remove what they have of it", now)
	case n.record.Deleting:
		return nil
	}
	if api.Only(ctx) != "" {
		err = m.restraints.keep(ctx, restraintsOf(&n.record, nil))
	} else {
		_, err = m.restraints.forgive(ctx, func(r *model.Restraint) {
			if r.Owner == n.record.WhoseItIs() && m.isKeptOf(r, model.ID{Network: name, Element: r.ID.Element}) {
				r.Quarantined, r.Attack = false, ""
			}
		})
	}
	if err != nil {
		return err
	}
	next := n.next()
	next.Deleting, next.Discard = true, now
	revision, err := m.store.Put(context.WithoutCancel(ctx), next)
	if err != nil && !errors.Is(err, store.ErrFull) {
		return storeProblem(err)
	}
	// A full store must not keep anyone from making room. So if the mark cannot be stored, it is only in memory, and a
	// restart before the removal is complete brings the network back.
	m.mu.Lock()
	defer m.mu.Unlock()
	leaving := map[string]int64{}
	for node := range placedOn(next) {
		leaving[node] = 0
	}
	gone := &network{record: next, resolved: n.resolved, index: n.index, interfaces: n.interfaces, parts: n.parts,
		leaving: leaving, phase: model.PhasePending}
	gone.begin(n)
	m.networks[name] = gone
	m.networkEvent(model.Info, name, "NetworkDeleting", "is being deleted", "")
	m.tellAside(name)
	m.advance(revision)
	m.publish(gone, nil)
	for node := range leaving {
		leaving[node] = m.revision
	}
	return nil
}

// finishDeletions forgets the networks that no node has any more.
func (m *Manager) finishDeletions(ctx context.Context) {
	m.changing.Lock()
	defer m.changing.Unlock()
	for _, name := range m.left() {
		if err := m.forget(ctx, name, "is deleted", false); err != nil {
			slog.Error("a deleted network cannot be forgotten yet", "network", name, "error", err)
		}
	}
}

// left are the deleted networks that no node has any more.
func (m *Manager) left() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name, n := range m.networks {
		if n.damaged != nil || !n.record.Deleting {
			continue
		}
		for node, revision := range n.leaving {
			// Nobody waits for a node that the substrate no longer has.
			if on := m.nodes[node]; on == nil || on.heard && on.reported >= revision &&
				!on.has(name) && !on.atWork[name] {
				delete(n.leaving, node)
			}
		}
		if len(n.leaving) == 0 {
			names = append(names, name)
		}
	}
	return names
}

// has returns whether the node reports anything of the network.
func (n *node) has(network string) bool {
	for id := range n.elements {
		if id.Network == network {
			return true
		}
	}
	return false
}

// forget removes a network from the store and from memory. The caller holds changing.
func (m *Manager) forget(ctx context.Context, name, message string, now bool) error {
	m.mu.RLock()
	n := m.networks[name]
	was := model.Deleted{Index: n.record.Assigned.Index, Owner: n.record.WhoseItIs(), Title: n.record.Network.Title}
	if n.damaged != nil {
		was.Index = n.damaged.Index
	}
	m.mu.RUnlock()
	revision, err := m.store.Delete(context.WithoutCancel(ctx), name, was)
	if err != nil {
		return storeProblem(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was.Time = time.Now()
	m.deleted[name] = was
	held := n.damaged != nil
	if n.end != nil {
		n.end()
	}
	m.networkEvent(model.Info, name, "NetworkDeleted", message, "")
	delete(m.networks, name)
	if held { // the nodes learn that nothing holds them any longer
		m.advance(revision)
		for _, on := range m.nodes {
			if is := on.beside[name]; is.elements > 0 {
				on.letsGo(model.HeldNetwork{Name: name, Index: was.Index, VNI: n.damaged.VNI,
					Elements: is.elements}, now)
			} else {
				on.goneFrom(name, now)
			}
			m.tell(on)
		}
	}
	return nil
}
