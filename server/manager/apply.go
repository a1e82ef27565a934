package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
)

// Apply makes networks be like the documents: they are checked, worked out and placed together, stored and told to the
// nodes, in their order – or refused with all reasons and nothing has changed. A document that changes nothing is neither
// stored nor told. The documents' own Base counts, not that of the options.
func (m *Manager) Apply(ctx context.Context, documents []model.Document, options model.ApplyOptions) ([]model.ApplyResult, error) {
	m.changing.Lock()
	defer m.changing.Unlock()
	situations, others, err := m.situations(documents)
	only := api.Only(ctx)
	if err == nil && only != "" {
		err = checkOnly(only, documents, situations)
	}
	if err != nil {
		return nil, err
	}
	if len(documents) > store.MaxTogether {
		return nil, api.Invalid(fmt.Sprintf("%d networks are too many for one file: at most %d are applied together", len(documents), store.MaxTogether))
	}
	options.Owner = strings.ToValidUTF8(options.Owner, "?") // as it is after a restart; metrics take nothing else
	results := make([]model.ApplyResult, len(documents))
	var changes []*change
	refusals := map[string]error{} // by network
	for i, d := range documents {
		old := situations[i]
		// Those before it are as they will be. Those behind it have what they will ask for, where they are now: what one
		// gives up another of the same file may have, in whatever order they stand.
		rest := slices.Clone(others)
		for k := range documents {
			switch {
			case k < i && refusals[documents[k].Network.Name] == nil:
				rest = append(rest, results[k].Record)
			case k != i && situations[k] != nil:
				rest = append(rest, expected(situations[k].record, documents[k].Network))
			}
		}
		next, resolved, err := m.workOut(d.Network, old, rest, options.Overwrite, options.Owner)
		if err == nil && only != "" {
			err = checkTaken(next, old)
		}
		if err != nil {
			refusals[d.Network.Name] = about(d.Network.Name, err)
			continue
		}
		result := model.ApplyResult{Record: next, Changed: true, Notes: m.notes(old, resolved, options.Overwrite)}
		if old != nil {
			before := old.record
			result.Before = &before
			if result.Changed = !same(before, next); !result.Changed {
				result.Record = before
			}
		}
		if results[i] = result; result.Changed {
			changes = append(changes, &change{record: next, resolved: resolved, reason: "NetworkApplied",
				message: fmt.Sprintf("revision %d: %d elements, %d links", next.Revision, len(next.Network.Elements), len(next.Network.Links))})
		}
	}
	if len(refusals) > 0 {
		return nil, together(documents, refusals)
	}
	if options.DryRun {
		return results, nil
	}
	if err := m.commit(ctx, changes...); err != nil {
		return nil, err
	}
	return results, nil
}

// expected is what a network that is to become like the document takes until it is worked out: what the document, and what
// was set and stays, asks for of what is there, and the numbers that it has.
func expected(r model.Record, doc model.Network) model.Record {
	doc, _ = model.Inherit(doc, r.Network, r.Set)
	bandwidth := make(map[string]model.Bandwidth, len(doc.Links))
	for i := range doc.Links {
		bandwidth[doc.Links[i].Name] = doc.Reserves(&doc.Links[i])
	}
	links := make(map[string][]model.LinkPath, len(r.Assigned.Placement.Links))
	for name, paths := range r.Assigned.Placement.Links {
		rate, stays := bandwidth[name]
		for _, p := range paths {
			if stays {
				links[name] = append(links[name], model.LinkPath{Nodes: p.Nodes, Bandwidth: rate})
			}
		}
	}
	r.Network, r.Assigned.Placement.Links = doc, links
	return r
}

// situations finds the networks that are about to be applied (nil for new ones) and the records of all others.
func (m *Manager) situations(documents []model.Document) ([]*network, []model.Record, error) {
	ours := make(map[string]struct{}, len(documents))
	for _, d := range documents {
		if _, twice := ours[d.Network.Name]; twice {
			return nil, nil, api.Invalid(fmt.Sprintf("network %s is there twice; what is applied together must have different names", d.Network.Name))
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
	return found, append(others, m.heldNumbers()...), nil
}

// about has each reason of a refusal say which network it is about.
func about(network string, err error) error {
	var refusal *api.Problem
	if !errors.As(err, &refusal) {
		return err
	}
	for i, reason := range refusal.Reasons {
		p := model.Problem{About: model.AboutNetwork, Name: network, Message: reason.Error()}
		errors.As(reason, &p)
		p.Network, p.Index = network, 0
		refusal.Reasons[i] = p
	}
	return err
}

// mostRefused is how many refused networks of one request are told.
const mostRefused = 8

// together makes one refusal of those of several documents.
func together(documents []model.Document, refusals map[string]error) error {
	if len(documents) == 1 {
		return refusals[documents[0].Network.Name]
	}
	all := &api.Problem{Status: http.StatusServiceUnavailable, Detail: fmt.Sprintf("%d of %d networks are refused (each was tried beside those before it), so none is changed",
		len(refusals), len(documents))}
	for _, d := range documents {
		err := refusals[d.Network.Name]
		if err == nil {
			continue
		}
		var p *api.Problem
		if !errors.As(err, &p) {
			return err
		}
		if p.Status != http.StatusServiceUnavailable { // what will not pass by waiting
			all.Status = http.StatusUnprocessableEntity
		}
		if len(all.Reasons) == mostRefused {
			all.Reasons = append(all.Reasons, fmt.Errorf("and %d more", len(refusals)-mostRefused))
			return all
		}
		all.Reasons = append(all.Reasons, err)
	}
	return all
}

// change is a record that is to be stored and told.
type change struct {
	record          model.Record
	resolved        model.Network
	reason, message string

	parts map[string]part
}

// commit stores records and makes them what the nodes shall have: all, or none where the store refuses one. changing is
// held.
func (m *Manager) commit(ctx context.Context, changes ...*change) error {
	for _, c := range changes {
		var err error
		if c.parts, err = makeParts(c.record, c.resolved, m.substrate); err != nil {
			return err
		}
	}
	if len(changes) == 0 {
		return nil
	}
	records := make([]model.Record, len(changes))
	for i, c := range changes {
		records[i] = c.record
	}
	// Once begun, a write is seen through: whoever asked may go away meanwhile.
	revision, err := m.store.Put(context.WithoutCancel(ctx), records...)
	if err != nil {
		return storeProblem(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(revision)
	for _, c := range changes {
		n := &network{record: c.record, resolved: c.resolved, phase: model.PhasePending}
		n.makeIndex()
		name := c.record.Network.Name
		old := m.networks[name]
		n.begin(old)
		m.networks[name] = n
		m.networkEvent(model.Info, name, c.reason, c.message, "")
		if old != nil {
			n.parts = old.parts
			m.tellMoves(&old.record, &c.record)
		}
		m.publish(n, c.parts)
	}
	return nil
}
