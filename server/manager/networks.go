package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/admission"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
)

// Network returns what is stored of a network.
func (m *Manager) Network(name string) (model.Record, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.usable(name)
	if err != nil {
		return model.Record{}, err
	}
	return n.record, nil
}

// situation finds a network that is about to be applied, or nil if it is new. The caller holds the lock.
func (k *known) situation(name string, base int64) (*network, error) {
	old := k.networks[name]
	if err := k.errHeld(name); err != nil {
		return nil, err
	}
	switch {
	case old == nil && base > 0:
		return nil, api.Conflict("network %s was at revision %d when the document was made; it has been deleted since",
			name, base)
	case old == nil:
	case old.damaged != nil:
		_, err := k.usable(name)
		return nil, err
	case old.record.Deleting:
		return nil, api.Conflict("network %s is being deleted (waiting for %s); apply it again when it is gone", name,
			shorten(slices.Sorted(maps.Keys(old.leaving))))
	case base == model.BaseNew:
		return nil, api.Conflict("network %s has been made meanwhile, by somebody else (it is at revision %d); plan "+
			"again", name, old.record.Revision)
	case base > 0 && base != old.record.Revision:
		return nil, api.Conflict("network %s was changed meanwhile: the document was made from revision %d, it is at "+
			"%d now; plan again", name, base, old.record.Revision)
	}
	return old, nil
}

// draw computes a network from a document and from what exists, which is nil for a new one. It needs no lock.
func draw(doc model.Network, old *network, owner string) (*admission.Draft, error) {
	return admission.Draw(doc, old.admitted(), owner, time.Now().UTC())
}

// drawFitting is draw for a document of an apply: those of its links that state no MTU, and had none set, have one that
// the substrate carries. It is noted in the network's own document, so it stays until the next apply, whatever nodes
// come. notes tell of it.
func (m *Manager) drawFitting(doc model.Network, old *network, owner string) (d *admission.Draft, notes []string,
	err error) {
	if d, err = draw(doc, old, owner); err != nil {
		return nil, nil, err
	}
	mtu, why := embedding.UsualMTU(m.Substrate(), d.Resolved())
	whole := d.Network().Links
	if mtu == model.DefaultMTU || len(whole) != len(doc.Links) {
		return d, nil, nil
	}
	doc.Links = slices.Clone(doc.Links)
	for k := range doc.Links {
		if whole[k].MTU == 0 {
			doc.Links[k].MTU = mtu
		}
	}
	notes = []string{fmt.Sprintf("links that state no mtu have %d, and not %d, which is not carried wherever they may "+
		"be: %s; write an mtu for another, or pin elements to nodes", mtu, model.DefaultMTU, why)}
	d, err = draw(doc, old, owner)
	return d, notes, err
}

// admitted is the network as admission knows it; nil if there is none.
func (n *network) admitted() *admission.Network {
	if n == nil {
		return nil
	}
	return &admission.Network{Record: n.record, Resolved: n.resolved}
}

// situationOf is what admission must know. owner tells that an owner asks, and not an administrator. The caller holds
// changing.
func (m *Manager) situationOf(others []model.Record, owner bool, drafts ...*admission.Draft) admission.Situation {
	s := admission.Situation{Others: others, Owner: owner, Seen: machine{m}.see(drafts)}
	m.mu.RLock()
	defer m.mu.RUnlock()
	s.Substrate, s.Quotas, s.Restraints = m.substrate, m.quotas.limits, m.restraints.all()
	s.Offers, s.Refusing = m.nodes.offered(), m.nodes.refusing(owner, m.command)
	return s
}

// workOut admits a network that was drawn, beside the others. The caller holds changing.
func (m *Manager) workOut(d *admission.Draft, others []model.Record,
	owner, loseFiles bool) (model.Record, model.Resolved, error) {
	s := m.situationOf(others, owner, d)
	s.LoseFiles = loseFiles
	n, err := s.Admit(d)
	return n.Record, n.Resolved, problemOf(err)
}

// problemOf turns a refusal by admission into the API's error. Any other error stays what it is.
func problemOf(err error) error {
	r, ok := err.(*admission.Refusal) //nolint:errorlint // only the outermost counts: wrapped ones are its Reasons
	if !ok {
		return err
	}
	kinds := [...]api.Kind{admission.Wrong: api.KindInvalid, admission.NotYours: api.KindForbidden,
		admission.Conflict: api.KindConflict, admission.NotYet: api.KindUnavailable}
	p := &api.Problem{Kind: kinds[r.Kind], Detail: r.Detail}
	p.Reasons = append(p.Reasons, each.Of(r.Reasons, problemOf)...)
	return p
}

// same returns whether two records say the same, except for their times, their revisions, and who wrote them.
func same(a, b model.Record) bool {
	if reflect.DeepEqual(a.Network, b.Network) && reflect.DeepEqual(a.Assigned, b.Assigned) &&
		maps.Equal(a.Overrides, b.Overrides) && maps.Equal(a.Policies, b.Policies) {
		return true
	}
	// In JSON, the form in which records are stored, empty and missing lists are the same.
	a.Revision, a.Created, a.Modified, a.Set, a.Owner = b.Revision, b.Created, b.Modified, b.Set, b.Owner
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// tellMoves emits an event for each element that a change has placed on another node. The caller holds the lock.
func (k *known) tellMoves(old, next *model.Record) {
	for i := range next.Network.Elements {
		id := model.ID{Network: next.Network.Name, Element: next.Network.Elements[i].Name}
		from, to := old.Assigned.Placement.Elements[id.Element], next.Assigned.Placement.Elements[id.Element]
		if from != "" && from != to {
			k.networkEvent(model.Info, id.String(), "ElementMoved", "moves from node "+from+" to node "+to, to)
		}
	}
}

// tellLinks emits an event for each link that a change has stopped or started. The caller holds the lock.
func (k *known) tellLinks(old, next *model.Record) {
	was := make(map[string]bool, len(old.Network.Links))
	for i := range old.Network.Links {
		was[old.Network.Links[i].Name] = old.Network.Links[i].State == model.LinkDown
	}
	for i := range next.Network.Links {
		l := &next.Network.Links[i]
		down := l.State == model.LinkDown
		switch before, there := was[l.Name]; {
		case down && !before:
			k.networkEvent(model.Info, next.Network.Name+"/"+l.Name, "LinkStopped",
				"is stopped: "+linkEnds(l)+" have no carrier, and nothing passes", "")
		case !down && before && there:
			k.networkEvent(model.Info, next.Network.Name+"/"+l.Name, "LinkStarted",
				"is started: "+linkEnds(l)+" have their carrier back", "")
		}
	}
}

func linkEnds(l *model.Link) string {
	return l.Ends[0].Element + ":" + l.Ends[0].Interface + " and " + l.Ends[1].Element + ":" + l.Ends[1].Interface
}

func storeProblem(err error) error {
	p := api.Unavailable(err)
	if errors.Is(err, store.ErrFull) {
		p.Kind = api.KindFull
	}
	return p
}

// Act starts, stops, restarts, suspends, resumes, cuts off or releases an element. If the element is in that state
// already, nothing changes, and it is no error.
func (m *Manager) Act(ctx context.Context, id model.ID, action model.Action) (result model.ActionResult, err error) {
	if action == model.ActionQuarantine {
		return m.Quarantine(ctx, id, "")
	}
	if action == model.ActionRelease && api.Only(ctx) == "" {
		// Even if the element was deleted: then only its quarantine is left to be released.
		if released, err := m.releaseKept(ctx, id); released || err != nil {
			m.mu.RLock()
			there := false
			if n := m.networks[id.Network]; n != nil {
				_, there = n.index[id.Element]
			}
			m.mu.RUnlock()
			if err != nil || !there {
				return model.ActionResult{Changed: released}, err
			}
		}
	}
	if action == model.ActionStop || action == model.ActionSuspend {
		ctx = urgently(ctx)
	}
	return m.override(ctx, id, string(action)+" of "+id.String()+" was asked for",
		func(is *model.Override) error { return act(ctx, id, action, is) })
}

// urgently has the store take what ends something, or makes room, also while the machine's disk is full.
func urgently(ctx context.Context) context.Context { return store.Urgent(ctx, api.Only(ctx) == "") }

// act enters an action.
func act(ctx context.Context, id model.ID, action model.Action, is *model.Override) error {
	switch action {
	case model.ActionStart:
		is.Stopped, is.Suspended = false, false
	case model.ActionStop:
		is.Stopped, is.Suspended = true, false
	case model.ActionRestart:
		is.Stopped, is.Suspended = false, false
		is.Restarts++
	case model.ActionSuspend:
		if is.Stopped {
			return api.Conflict("%s is stopped: there is nothing to suspend", id)
		}
		is.Suspended = true
	case model.ActionResume:
		is.Suspended = false
	case model.ActionRelease:
		return release(is, id, api.Only(ctx))
	default:
		return api.Invalid(fmt.Sprintf("%q is no action: start, stop, restart, suspend, resume, quarantine or "+
			"release was expected", action))
	}
	return nil
}

// override changes what is set on an element at run time, and emits an event that says so. If it is set already,
// nothing changes, and it is no error.
func (m *Manager) override(ctx context.Context, id model.ID, message string,
	enter func(*model.Override) error) (result model.ActionResult, err error) {
	if err := m.changing.LockFor(ctx, api.User(ctx)); err != nil {
		return result, api.Unavailable(err)
	}
	defer m.changing.Unlock()
	n, err := m.alive(ctx, id.Network)
	if err != nil {
		return result, err
	}
	if _, ok := n.index[id.Element]; !ok {
		return result, n.noElement(id.Element)
	}
	was := n.record.Overrides[id.Element]
	is := was
	if err := enter(&is); err != nil {
		return result, err
	}
	if is == was {
		return result, nil
	}
	next := n.next()
	next.Overrides = map[string]model.Override{}
	maps.Copy(next.Overrides, n.record.Overrides)
	if next.Overrides[id.Element] = is; is == (model.Override{}) {
		delete(next.Overrides, id.Element)
	}
	if len(next.Overrides) == 0 {
		next.Overrides = nil
	}
	if err := m.commit(ctx, &change{record: next, resolved: n.resolved, reason: "ElementAction",
		message: message}); err != nil {
		return result, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	result.Changed, result.Aside = true, m.store.AsideOf(id.Network)
	if on := m.nodes[next.Assigned.Placement.Elements[id.Element]]; on != nil {
		result.Revision = on.revision
	}
	return result, nil
}
