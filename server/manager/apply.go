package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/admission"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
)

// Apply makes networks as the documents say. They are checked, resolved and placed together, stored, and sent to the
// nodes in their order; or they are refused with all reasons, and nothing has changed. A document that changes nothing
// is neither stored nor sent. The Base in each document counts, not the one in the options.
func (m *Manager) Apply(ctx context.Context, documents []model.Document,
	options model.ApplyOptions) ([]model.ApplyResult, error) {
	// As it is after a restart; only metrics are accepted at any time.
	options.Owner = strings.ToValidUTF8(options.Owner, "?")
	for left := renamings; ; left-- {
		of, err := newNamer(m).name(ctx, documents, options.Owner)
		if err != nil {
			return nil, err
		}
		results, err := m.applyNamed(ctx, of, options)
		if !errors.Is(err, errRenamed) || left == 0 {
			return results, of.told(err)
		}
	}
}

// renamings is how often an apply begins again since networks of its documents' names came or went meanwhile.
const renamings = 5

var errRenamed = api.Conflict("networks of these names come and go at the same time; try again")

// applyNamed is Apply for documents of which it is known what networks they are of.
func (m *Manager) applyNamed(ctx context.Context, of named, options model.ApplyOptions) ([]model.ApplyResult, error) {
	documents := of.documents
	if len(documents) > store.MaxTogether {
		return nil, api.Invalid(fmt.Sprintf("%d networks are too many for one file: at most %d are applied together",
			len(documents), store.MaxTogether))
	}
	only := api.Only(ctx)
	if most := m.Allowed(only).Networks; only != "" && most > 0 && len(documents) > most {
		return nil, api.Invalid(fmt.Sprintf("%d networks are applied together, and user %s may have %d",
			len(documents), only, most))
	}
	documents, err := m.images.pin(ctx, documents, options.DryRun)
	if err != nil {
		return nil, err
	}
	networks := make([]model.Network, len(documents))
	fitted := make([][]string, len(documents)) // notes
	drafts, drawnFrom := make([]*admission.Draft, len(documents)), make([]*network, len(documents))
	var others []model.Record
	look := func() (situations []*network, err error) {
		if now, err := newNamer(m).name(ctx, of.given, options.Owner); err != nil {
			return nil, err
		} else if !now.same(&of) {
			return nil, errRenamed
		}
		situations, others, err = m.situations(documents)
		if err == nil && only != "" {
			err = checkOnly(only, documents, situations)
		}
		return situations, err
	}
	situations, err := m.settle(ctx, look, func(situations []*network) error {
		refusals := map[string]error{} // by network
		for i, d := range documents {
			networks[i] = d.Network
			if drafts[i] != nil && drawnFrom[i] == situations[i] {
				continue
			}
			drawnFrom[i] = situations[i]
			var err error
			if drafts[i], fitted[i], err = m.drawFitting(d.Network, situations[i], of.owners[i]); err != nil {
				refusals[d.Network.Name] = err
			}
		}
		return problemOf(admission.Refused(networks, refusals))
	})
	if err != nil {
		return nil, err
	}
	defer m.changing.Unlock()
	if documents, err = m.images.pin(ctx, documents, options.DryRun); err != nil { // one may be gone meanwhile
		return nil, err
	}
	situation := m.situationOf(others, only != "", drafts...)
	situation.Overwrite, situation.LoseFiles = options.Overwrite, options.LoseFiles || options.DryRun
	admitted, err := situation.Together(networks, drafts)
	if err != nil {
		return nil, problemOf(err)
	}
	results := make([]model.ApplyResult, len(documents))
	var changes []*change
	for i, old := range situations {
		next, resolved := admitted[i].Record, admitted[i].Resolved
		results[i] = model.ApplyResult{Record: next, Changed: true,
			Notes: append(fitted[i], m.notes(&situation, old, admitted[i], options)...)}
		result := &results[i]
		if old != nil {
			before := old.record
			result.Before = &before
			if result.Changed = !same(before, next); !result.Changed {
				result.Record = before
			}
		}
		if result.Changed {
			changes = append(changes, &change{record: next, resolved: resolved, reason: "NetworkApplied",
				message: fmt.Sprintf("revision %d: %d elements, %d links", next.Revision, len(next.Network.Elements),
					len(next.Network.Links))})
		}
	}
	m.notePromises(others, results)
	if options.Provisional {
		if err := provisional(changes, situations, time.Now()); err != nil {
			return nil, err
		}
	}
	if err := m.encode(changes); err != nil {
		return nil, err
	}
	if options.DryRun {
		return results, nil
	}
	for i, old := range situations {
		if old != nil && results[i].Changed {
			if err := m.images.inherit(&old.record, &results[i].Record); err != nil {
				return nil, err
			}
		}
	}
	if only != "" {
		var lost []model.Restraint
		for i := range results {
			if before := results[i].Before; before != nil && results[i].Changed {
				lost = append(lost, restraintsOf(before, &results[i].Record.Network)...)
			}
		}
		if err := m.restraints.keep(ctx, lost); err != nil {
			return nil, err
		}
	}
	if err := m.commit(ctx, changes...); err != nil {
		return nil, err
	}
	return results, nil
}

// situations finds the networks that are about to be applied (nil for new ones), and the records of all others.
func (m *Manager) situations(documents []model.Document) ([]*network, []model.Record, error) {
	ours := make(map[string]struct{}, len(documents))
	for _, d := range documents {
		if _, twice := ours[d.Network.Name]; twice {
			return nil, nil, api.Invalid(fmt.Sprintf("network %s is there twice; what is applied together must have "+
				"different names", d.Network.Name))
		}
		ours[d.Network.Name] = struct{}{}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	found := make([]*network, len(documents))
	for i, d := range documents {
		var err error
		if found[i], err = m.situation(d.Network.Name, d.Base); err != nil {
			return nil, nil, err
		}
	}
	others := make([]model.Record, 0, len(m.networks))
	for other, n := range m.networks {
		_, own := ours[other]
		switch {
		case own:
		case n.damaged != nil:
			others = append(others, model.Record{Assigned: numbersOf(*n.damaged)})
		default:
			others = append(others, n.record)
		}
	}
	return found, append(others, m.nodes.heldNumbers()...), nil
}

// change is a record that is to be stored and sent to the nodes.
type change struct {
	record          model.Record
	resolved        model.Resolved
	reason, message string // of an event; none without a reason
	object          string // of the event; the network where it is empty

	parts map[string]part
}

// settle has something computed without making others wait. It returns while it holds changing, with a result whose
// basis has not changed. look reads that basis. If it has changed during draw, draw is called again, the last time
// while changing is held.
func (m *Manager) settle(ctx context.Context, look func() ([]*network, error),
	draw func([]*network) error) ([]*network, error) {
	const draws = 3
	for try := 1; ; try++ {
		before, err := look()
		if err == nil {
			err = draw(before)
		}
		if err != nil {
			return nil, err
		}
		if err := m.changing.LockFor(ctx, api.User(ctx)); err != nil {
			return nil, api.Unavailable(fmt.Errorf("the request was given up before its turn came: %w", err))
		}
		now, err := look()
		if err == nil && slices.Equal(before, now) {
			return now, nil
		}
		if err == nil && try == draws {
			if err = draw(now); err == nil {
				return now, nil
			}
		}
		m.changing.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// encode works out what the nodes are sent for these changes. It refuses what is too much for one of them. The caller
// holds changing.
func (m *Manager) encode(changes []*change) error {
	for _, c := range changes {
		var err error
		if c.parts != nil {
			continue
		}
		if c.parts, err = m.makeParts(c.record, c.resolved, m.substrate); err != nil {
			return err
		}
	}
	if len(changes) == 0 {
		return nil
	}
	sums := map[string]int{} // by node
	ours := map[string]*change{}
	for _, c := range changes {
		ours[c.record.Network.Name] = c
		for node, p := range c.parts {
			sums[node] += len(p.line)
		}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for name, n := range m.networks {
		if ours[name] == nil {
			for node, p := range n.parts {
				sums[node] += len(p.line)
			}
		}
	}
	for _, c := range changes {
		var old map[string]part
		if n := m.networks[c.record.Network.Name]; n != nil {
			old = n.parts
		}
		for node, p := range c.parts {
			if sums[node] > model.MaxNodeBytes && len(p.line) > len(old[node].line) {
				return api.Invalid(fmt.Sprintf("network %s does not fit onto the substrate: with it, what node %s is "+
					"told of its networks is %s, and %s are allowed; "+
					"place elements on other nodes, or give them less configuration", c.record.Network.Name, node,
					model.Bytes(sums[node]).Rounded(), model.Bytes(model.MaxNodeBytes)))
			}
		}
	}
	return nil
}

// commit stores records and makes them what the nodes are to have: all of them, or none if the store refuses one. The
// caller holds changing.
func (m *Manager) commit(ctx context.Context, changes ...*change) error {
	if err := m.encode(changes); err != nil {
		return err
	}
	if len(changes) == 0 {
		return nil
	}
	records := each.Of(changes, func(c *change) model.Record { return c.record })
	// Once begun, a write is completed, even if whoever asked goes away meanwhile.
	revision, err := m.store.Put(context.WithoutCancel(ctx), records...)
	if err != nil {
		return storeProblem(err)
	}
	networks := make([]*network, len(changes))
	for i, c := range changes {
		networks[i] = &network{record: c.record, resolved: c.resolved, phase: model.PhasePending}
		networks[i].makeIndex()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(revision)
	for i, c := range changes {
		n := networks[i]
		name := c.record.Network.Name
		old := m.networks[name]
		n.begin(old)
		m.networks[name] = n
		if c.reason != "" {
			m.networkEvent(model.Info, cmp.Or(c.object, name), c.reason, c.message, "")
		} else if old != nil {
			n.phase = old.phase
		}
		m.tellAside(name)
		if old != nil {
			n.parts = old.parts
			m.tellMoves(&old.record, &c.record)
			m.tellLinks(&old.record, &c.record)
			m.tellTurns(&old.record, &c.record)
		}
		m.publish(n, c.parts)
	}
	return nil
}
