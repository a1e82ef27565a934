package manager

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// If a store does not know a network, it may have lost it. So a node removes a network only if the store says that it
// is gone. A node that has other networks, which the store does not know, holds them: it leaves them as they are and
// tells the manager. Then somebody has to say what is to become of them.

// goneFrom tells a node that it must not have anything of a network any longer. The caller holds the lock.
func (n *node) goneFrom(network string, now bool) {
	if n.gone == nil {
		n.gone = map[string]bool{}
	}
	n.gone[network] = now
}

// keeps are the networks that the node holds, and those that it has not let go of yet.
func (n *node) keeps() iter.Seq[model.HeldNetwork] {
	return func(yield func(model.HeldNetwork) bool) {
		for _, h := range slices.Concat(n.held, slices.Collect(maps.Values(n.going))) {
			if !yield(h) {
				return
			}
		}
	}
}

// goneNetworks are the networks that a node is told to remove, by name. The caller holds the lock.
func (k *known) goneNetworks(n *node) []model.GoneNetwork {
	return each.Of(slices.Sorted(maps.Keys(n.gone)), func(name string) model.GoneNetwork {
		return model.GoneNetwork{Name: name, Now: n.gone[name], Deleted: k.networks[name] == nil}
	})
}

// takeHeld takes over what a node says it holds. If the store knows that something of it is gone, the node is told to
// remove that. People decide about the rest. The caller holds the lock.
func (k *known) takeHeld(n *node, r *model.Report) {
	was := n.held
	n.held, n.unproven = nil, ""
	told := false
	unproven := uint64(0)
	for i, h := range r.Held {
		if i == model.MaxNetworks {
			break
		}
		if _, already := n.gone[h.Name]; already {
			if slices.ContainsFunc(was, func(w model.HeldNetwork) bool { return w.Name == h.Name }) &&
				k.networks[h.Name] != nil {
				n.held = append(n.held, h) // until it has let go
			}
			continue
		}
		if k.knownGone(n, h) {
			n.goneFrom(h.Name, false)
			told = true
			continue
		}
		if !k.proven(n, h) {
			if unproven++; n.unproven == "" {
				n.unproven = h.Name
			}
			continue
		}
		n.held = append(n.held, h)
		if !slices.ContainsFunc(was, func(w model.HeldNetwork) bool { return w.Name == h.Name && w.Why == h.Why }) &&
			n.takesEvent() {
			k.networkEvent(model.Warning, h.Name, "NetworkHeld", k.heldWords(n.Name, h), n.Name)
		}
	}
	maps.DeleteFunc(n.going, func(name string, _ model.HeldNetwork) bool {
		_, gone := n.gone[name]
		return !gone || n.beside[name].elements == 0 && !n.atWork[name] &&
			!slices.ContainsFunc(r.Held, func(h model.HeldNetwork) bool { return h.Name == name })
	})
	n.tellRefused(unproven, "network "+n.unproven+", which it says it holds")
	if len(was) > 0 && len(n.held) == 0 && unproven == 0 {
		k.event(model.Info, n.Name, "NodeSettled", "node "+n.Name+" follows this store", n.Name)
	}
	if told {
		k.tell(n)
	}
	for name := range n.gone {
		if r.Revision >= n.revision && !n.has(name) &&
			!slices.ContainsFunc(r.Held, func(h model.HeldNetwork) bool { return h.Name == name }) {
			delete(n.gone, name)
		}
	}
}

// seal adds the proof that a network was placed on a joined node. If the store is lost, the node can show it.
func (k *known) seal(node string, n *model.NodeNetwork, substrate model.Substrate) (err error) {
	if k.authority == nil || !slices.ContainsFunc(substrate.Nodes,
		func(s model.SubstrateNode) bool { return s.Joined && s.Name == node }) {
		return nil
	}
	h := n.Held()
	if n.Seal, err = k.authority.Seal(h.Sealed(node)...); err != nil {
		return fmt.Errorf("seal what node %s is told of network %s: %w", node, n.Name, err)
	}
	return nil
}

// proven returns whether a network that a node says it has was ever placed on it: either the store knows, or the node
// shows the seal. Nodes on this machine belong to the manager and are believed. The caller holds the lock.
func (k *known) proven(n *node, h model.HeldNetwork) bool {
	if !n.Joined {
		return true
	}
	if own := k.networks[h.Name]; own != nil && own.damaged == nil {
		if _, here := own.parts[n.Name]; here && (h.Index == 0 || h.Index == own.record.Assigned.Index) {
			return true
		}
	}
	return h.Index != 0 && k.authority != nil && k.authority.Sealed(h.Seal, h.Sealed(n.Name)...)
}

// knownGone returns whether the store knows that a node must not have anything of what it holds. The caller holds the
// lock.
func (k *known) knownGone(n *node, h model.HeldNetwork) bool {
	if own := k.networks[h.Name]; own != nil {
		if own.damaged != nil {
			return false
		}
		_, here := own.parts[n.Name]
		return !here && (h.Index == 0 || h.Index == own.record.Assigned.Index)
	}
	d, deleted := k.deleted[h.Name]
	return deleted && (h.Index == 0 || d.Index == 0 || d.Index == h.Index)
}

// letsGo notes that a node is told to remove a network that the store does not have any longer. It is shown until it is
// gone. The caller holds the lock.
func (n *node) letsGo(h model.HeldNetwork, now bool) {
	n.goneFrom(h.Name, now)
	if n.going == nil {
		n.going = map[string]model.HeldNetwork{}
	}
	n.going[h.Name] = h
	n.held = slices.DeleteFunc(n.held, func(o model.HeldNetwork) bool { return o.Name == h.Name })
}

// heldWords says what a node holds, why, and what can be done.
func (k *known) heldWords(node string, h model.HeldNetwork) string {
	if _, going := k.nodes[node].going[h.Name]; going {
		return fmt.Sprintf("network %s is deleted, and node %s was told to let go of it: it still has what it had, %s",
			h.Name, node, counts(h.Elements, "element"))
	}
	if own := k.networks[h.Name]; own != nil {
		return fmt.Sprintf("node %s goes on with what it was told before, since %s, and network %s would lose "+
			"elements, or quarantines of elements: `%s` takes in what the nodes have, `%s` lets the node follow the "+
			"store", node, h.Why, h.Name, k.command("recover --from-nodes "+h.Name), k.command("forget "+h.Name))
	}
	return fmt.Sprintf("network %s is unknown to this store, and node %s has %s of it: %s. All of it is kept as it "+
		"is: `%s` takes the network in, `%s` lets it go", h.Name, node, counts(h.Elements, "element"), h.Why,
		k.command("recover --from-nodes "+h.Name), k.command("delete "+h.Name))
}

// damagedWords says what is wrong with a network whose record is damaged, and what can be done.
func (k *known) damagedWords(n *network) string {
	name := n.damaged.Name
	backup := "There is no good backup that has it in " + k.dirs.Backups()
	if n.backup != "" {
		backup = fmt.Sprintf("The newest good backup that has it: `%s`", k.command("restore "+n.backup))
	}
	return fmt.Sprintf("%v. What runs of it goes on as it is, and can be neither changed nor stopped until it is "+
		"settled. %s. `%s` puts it together from what its nodes were told, and changes no other network; `%s` ends "+
		"and removes it", n.damaged.Err, backup, k.command("recover --from-nodes "+name), k.command("delete "+name))
}

// damagedStatus sums up a network whose record is damaged. The lock is held.
func (k *known) damagedStatus(n *network) model.NetworkStatus {
	s := model.NetworkStatus{Name: n.damaged.Name, Phase: model.PhaseFailed, Damaged: true, Message: k.damagedWords(n)}
	for _, node := range slices.Sorted(maps.Keys(k.nodes)) {
		if is := k.nodes[node].beside[s.Name]; is.elements > 0 {
			s.Nodes = append(s.Nodes, node)
			s.Elements, s.Running = s.Elements+is.elements, s.Running+is.running
		}
	}
	return s
}

// command is what a user types to tell this instance something.
func (k *known) command(words string) string { return instance.Command(k.dirs.Name, words) }

func counts(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// unknownHeld are the networks that nodes hold and the store does not know, by name. The caller holds the lock.
func (k *known) unknownHeld() []string {
	names := map[string]bool{}
	for _, n := range k.nodes {
		for h := range n.keeps() {
			if k.networks[h.Name] == nil {
				names[h.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// heldStatus sums up a network that the store does not know. The caller holds the lock.
func (k *known) heldStatus(name string) model.NetworkStatus {
	is := k.nameOf(name)
	s := model.NetworkStatus{Name: name, Owner: is.Owner, Title: is.Title, Phase: model.PhaseHeld}
	on := k.nodes.heldOn(name)
	s.Nodes = slices.Sorted(maps.Keys(on))
	for _, node := range s.Nodes {
		s.Elements += on[node].Elements
		s.Running += k.nodes[node].beside[name].running
	}
	if len(s.Nodes) > 0 {
		s.Message = k.heldWords(s.Nodes[0], on[s.Nodes[0]])
	}
	return s
}

// heldProblem is what is reported about a node that holds networks; empty if it holds none.
func (n *node) heldProblem() string {
	if n.unproven != "" {
		return fmt.Sprintf("it says that it has network %s, and nothing shows that it was ever placed there: that is "+
			"not believed, and the node changes nothing "+
			"until it has let go of it (`polyplane node remove %s`, and join again)", n.unproven, n.Name)
	}
	if len(n.held) == 0 {
		return ""
	}
	return fmt.Sprintf("it goes on with what it was told before and changes nothing: %s: `polyplane get networks -o "+
		"wide` tells what can be done", n.held[0].Why)
}

// heldNames are the networks that the node holds.
func (n *node) heldNames() []string {
	names := each.Of(n.held, func(h model.HeldNetwork) string { return h.Name })
	slices.Sort(names)
	return names
}

// errHeld is the error for what cannot be done with a network that only nodes know, or nil if no node holds it. The
// caller holds the lock.
func (k *known) errHeld(name string) error {
	on := k.nodes.heldOn(name)
	if k.networks[name] != nil || len(on) == 0 {
		return nil
	}
	node := slices.Sorted(maps.Keys(on))[0]
	return api.Conflict("%s", k.heldWords(node, on[node]))
}

// Forget makes nodes give up what they hold of a network: they remove what the store does not know of it.
func (m *Manager) Forget(ctx context.Context, name string, now bool) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	return m.forgetHeld(ctx, name, now)
}

// forgetHeld is Forget; changing is held.
func (m *Manager) forgetHeld(ctx context.Context, name string, now bool) error {
	m.mu.RLock()
	on, known := m.nodes.heldOn(name), m.networks[name] != nil
	m.mu.RUnlock()
	if len(on) == 0 {
		return api.NotFound("no node holds anything of a network %s that this store does not know", name)
	}
	revision, was := int64(0), model.Deleted{}
	if !known {
		var err error
		for _, h := range on {
			was.Owner, was.Title = h.Owner, h.Title
		}
		if revision, err = m.store.Bury(context.WithoutCancel(ctx), name, was); err != nil {
			return storeProblem(err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(revision)
	if !known {
		m.deleted[name] = was
	}
	for node, h := range on {
		n := m.nodes[node]
		if n.goneFrom(name, now); !known {
			n.letsGo(h, now)
		}
		m.tell(n)
	}
	m.networkEvent(model.Info, name, "NetworkForgotten", "the nodes were told to let go of what this store "+
		"does not know of it", "")
	return nil
}
