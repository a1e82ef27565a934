package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// Recover puts networks together from what nodes were told to have, and takes them into the store: those named, or all
// that the store does not know. They keep their numbers, addresses and places, so that nothing that runs is touched.
func (m *Manager) Recover(ctx context.Context, request model.RecoverRequest) (result model.RecoverResult, err error) {
	m.changing.Lock()
	defer m.changing.Unlock()
	states, silent := m.agents.kept(ctx)
	for _, node := range slices.Sorted(maps.Keys(silent)) {
		result.Silent = append(result.Silent, node+": "+silent[node])
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	parts, unbelieved := m.believedParts(states)
	result.Silent = append(result.Silent, unbelieved...)
	names := request.Networks
	if len(names) == 0 {
		names = m.unknownHeld()
	}
	var changes []*change
	for _, name := range names {
		is := model.RecoveredNetwork{Name: name, Nodes: slices.Sorted(maps.Keys(parts[name]))}
		c, notes, err := m.recovered(name, parts[name], changes, request.Changed)
		is.Notes = notes
		if err != nil {
			is.Problem = err.Error()
		} else {
			is.Taken, is.Elements, is.Links = true, len(c.record.Network.Elements), len(c.record.Network.Links)
			changes = append(changes, c)
		}
		result.Networks = append(result.Networks, is)
	}
	if request.DryRun || len(changes) == 0 {
		return result, nil
	}
	m.mu.RUnlock()
	err = m.commit(ctx, changes...)
	m.mu.RLock()
	return result, err
}

// believedParts are what nodes say they were told to have, by network and node, if it was ever placed there; and, in
// words, what is not believed. The caller holds the lock.
func (k *known) believedParts(states map[string]model.NodeState) (parts map[string]map[string]model.NodeNetwork,
	unbelieved []string) {
	parts = map[string]map[string]model.NodeNetwork{}
	for _, node := range slices.Sorted(maps.Keys(states)) {
		is := k.nodes[node]
		unproven := []string(nil)
		for _, n := range states[node].Networks {
			if is == nil || !k.proven(is, n.Held()) {
				unproven = append(unproven, model.Shorten(n.Name, model.MaxName))
				continue
			}
			if !model.FitsKey(n.Name, n.Title) {
				n.Title = ""
			}
			if parts[n.Name] == nil {
				parts[n.Name] = map[string]model.NodeNetwork{}
			}
			parts[n.Name][node] = n
		}
		if len(unproven) > 0 {
			unbelieved = append(unbelieved,
				fmt.Sprintf("%s: what it says of %s is not believed, since nothing shows that it was ever placed there",
					node, shorten(unproven)))
		}
	}
	return parts, unbelieved
}

// recovered puts one network together. The caller holds the lock.
func (k *known) recovered(name string, parts map[string]model.NodeNetwork, others []*change,
	changed bool) (*change, []string, error) {
	held := k.nodes.heldOn(name)
	own := k.networks[name]
	switch {
	case len(parts) == 0:
		return nil, nil, fmt.Errorf("no node that answers remembers that it was told to have anything of it")
	case own != nil && own.damaged == nil && len(held) == 0:
		return nil, nil, fmt.Errorf("the store knows it, and its nodes follow the store: there is nothing to recover")
	case own != nil && own.record.Deleting:
		return nil, nil, fmt.Errorf("it is being deleted")
	}
	var taken []model.Assigned
	var records []model.Record
	for other, n := range k.networks {
		if other == name {
			continue
		}
		if n.damaged != nil {
			taken = append(taken, numbersOf(*n.damaged))
			continue
		}
		taken, records = append(taken, n.record.Assigned), append(records, n.record)
	}
	for _, c := range others {
		taken, records = append(taken, c.record.Assigned), append(records, c.record)
	}
	taken = append(taken, each.Of(k.nodes.heldNumbers(), func(r model.Record) model.Assigned { return r.Assigned })...)
	r, err := rebuild(name, parts, changed, resolve.NewNumbers(taken...))
	if err != nil {
		return nil, nil, err
	}
	if err := collides(&r.record, records); err != nil {
		return nil, nil, err
	}
	if err := titled(&r.record, records); err != nil {
		return nil, nil, err
	}
	if !r.same() && !changed {
		return nil, r.notes, fmt.Errorf("%s of it would not be exactly as they are; --changed takes it in all the same",
			counts(len(r.notes), "element"))
	}
	now := time.Now().UTC()
	r.record.Created, r.record.Modified = now, now
	if own != nil {
		r.record.Revision = own.record.Revision + 1
	}
	notes := append(r.notes,
		"not known to nodes: what it expects (expect:), its pools, and which values were written, set or assigned: "+
			"all are written now",
		"not known to nodes: whether a policy for attacks is an administrator's: all are the file's now, which its "+
			"owner may change (`polyplane policy "+name+" attack=…` decides anew)")
	if placed, err := embedding.Embed(k.substrate, nil, embedding.UsageOf(records), r.resolved,
		embedding.Current{Placement: r.record.Assigned.Placement}); err != nil {
		notes = append(notes, "its links' paths reserve nothing: "+strings.ReplaceAll(err.Error(), "\n", " "))
	} else if maps.Equal(placed.Elements, r.record.Assigned.Placement.Elements) {
		r.record.Assigned.Placement = placed
	}
	return &change{record: r.record, resolved: r.resolved, reason: "NetworkRecovered",
		message: fmt.Sprintf("was put together again from what %s was told: %s",
			shorten(slices.Sorted(maps.Keys(parts))), counts(len(r.record.Network.Elements), "element"))}, notes, nil
}

// titled says whether a network's owner has another one of its title.
func titled(r *model.Record, others []model.Record) error {
	is := r.NetworkName()
	for i := range others {
		if o := others[i].NetworkName(); o.Owner == is.Owner && o.Title == is.Title {
			return fmt.Errorf("user %s has another network %s by now: delete that one first", is.Owner, is.Title)
		}
	}
	return nil
}

// collides says whether a network has numbers of another one, and which.
func collides(r *model.Record, others []model.Record) error {
	vnis := map[uint32]bool{}
	for _, vni := range r.Assigned.VNIs() {
		vnis[vni] = true
	}
	for i := range others {
		o := &others[i]
		if o.Assigned.Index == r.Assigned.Index {
			return fmt.Errorf("network %s of this store has its number %d: delete that one first",
				o.Network.Name, r.Assigned.Index)
		}
		for _, vni := range o.Assigned.VNIs() {
			if vnis[vni] {
				return fmt.Errorf("network %s of this store has its tunnel number %d: delete that one first",
					o.Network.Name, vni)
			}
		}
	}
	return nil
}
