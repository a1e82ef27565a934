package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
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

// situation finds a network that is about to be applied, nil when it is new. The lock is held.
func (m *Manager) situation(name string, base int64) (*network, error) {
	old := m.networks[name]
	if err := m.errHeld(name); err != nil {
		return nil, err
	}
	switch {
	case old == nil && base > 0:
		return nil, api.Conflict("network %s was at revision %d when the document was made; it has been deleted since", name, base)
	case old == nil:
	case old.damaged != nil:
		_, err := m.usable(name)
		return nil, err
	case old.record.Deleting:
		return nil, api.Conflict("network %s is being deleted (waiting for %s); apply it again when it is gone", name,
			shorten(slices.Sorted(maps.Keys(old.leaving))))
	case base == model.BaseNew:
		return nil, api.Conflict("network %s has been made meanwhile, by somebody else (it is at revision %d); plan again", name,
			old.record.Revision)
	case base > 0 && base != old.record.Revision:
		return nil, api.Conflict("network %s was changed meanwhile: the document was made from revision %d, it is at %d now; plan again",
			name, base, old.record.Revision)
	}
	return old, nil
}

// draft is what can be decided about a network without looking at others: without holding anybody up.
type draft struct {
	old      *network // what it was worked out from; nil for a new one
	next     model.Record
	resolved model.Resolved
	assigned model.Assigned // numbered by itself alone
	was      model.Assigned
}

// draw decides what follows from the document and what was there before. What was set on it and the document does not name
// stays. The owner is that of a new network. No lock is needed.
func draw(doc model.Network, old *network, owner string) (*draft, error) {
	if large := resolve.Bounds(&doc); len(large) > 0 {
		return nil, invalid(doc.Name, large)
	}
	var marks model.Settings
	if old != nil {
		doc, marks = model.Inherit(doc, old.record.Network, old.record.Set)
		owner = old.record.Owner
	}
	document, problems := resolve.Read(doc)
	if len(problems) > 0 {
		return nil, invalid(doc.Name, problems)
	}
	now := time.Now().UTC()
	d := &draft{old: old, next: model.Record{Network: document.Network(), Set: marks, Owner: owner, Revision: 1, Created: now, Modified: now}}
	if old != nil {
		d.was = old.record.Assigned
		d.next.Revision, d.next.Created = old.record.Revision+1, old.record.Created
		d.next.Overrides = remaining(old.record.Overrides, doc)
		d.next.Policies = remainingPolicies(old.record.Policies, doc)
	}
	var err error
	if d.resolved, d.assigned, err = document.Resolve(d.was, resolve.NewNumbers(d.was)); err != nil {
		return nil, api.Invalid(fmt.Sprintf("network %s is refused", doc.Name), withoutName(doc.Name, err))
	}
	if problems := document.Check(&d.resolved); len(problems) > 0 {
		return nil, invalid(doc.Name, problems)
	}
	return d, nil
}

// workOut decides the rest: whether there is room for the network beside the others, and where. changing is held.
func (m *Manager) workOut(d *draft, others []model.Record, overwrite, bounded bool) (model.Record, model.Resolved, error) {
	var none model.Resolved
	doc, old, next, resolved, was := &d.next.Network, d.old, d.next, d.resolved, d.was
	taken := make([]model.Assigned, 0, len(others)+1)
	for i := range others {
		taken = append(taken, others[i].Assigned)
	}
	assigned, err := resolve.NewNumbers(append(taken, was)...).Renumber(&resolved, d.assigned, was)
	if err != nil {
		return model.Record{}, none, api.Invalid(fmt.Sprintf("network %s is refused", doc.Name), withoutName(doc.Name, err))
	}
	if problems := m.checkQuotas(&next, old, others, bounded); len(problems) > 0 {
		return model.Record{}, none, api.Invalid(fmt.Sprintf("network %s does not fit into its quota", doc.Name), problems...)
	}
	if problems := checkDisks(old, resolved); len(problems) > 0 {
		return model.Record{}, none, api.Invalid(fmt.Sprintf("network %s is refused", doc.Name), problems...)
	}
	if problems := slices.Concat(checkSoftware(resolved), checkSlice(resolved.Slice, m.substrate)); len(problems) > 0 {
		return model.Record{}, none, api.Invalid(fmt.Sprintf("network %s is refused", doc.Name), problems...)
	}
	offers, current := m.offered(), embedding.Current{Placement: was.Placement}
	if old != nil {
		current.Network = old.resolved
	}
	assigned.Placement, err = embedding.Embed(m.substrate, offers, embedding.UsageOf(others), resolved, current)
	if err != nil {
		return model.Record{}, none, refusal(doc.Name, err)
	}
	placed := assigned.Placement.Elements
	if problems := slices.Concat(checkEdges(*doc, placed, others), m.checkDevices(old, *doc, placed),
		m.checkForwards(old, *doc, placed, others), m.checkTables(&next.Network, placed, others)); len(problems) > 0 {
		return model.Record{}, none, api.Invalid(fmt.Sprintf("network %s does not fit onto the substrate", doc.Name), problems...)
	}
	if silent := unheard(old, resolved, placed, offers); len(silent) > 0 {
		return model.Record{}, none, notHeard(doc.Name, silent)
	}
	if err := m.checkHeldNodes(old, doc.Name, placed, bounded); err != nil {
		return model.Record{}, none, err
	}
	next.Assigned = assigned
	m.restrain(&next, old)
	if overwrite {
		next.Overrides = overwriteAll(next.Overrides, resolved)
	}
	return next, resolved, nil
}

func invalid(name string, problems []model.Problem) error {
	reasons := make([]error, len(problems))
	for i, p := range problems {
		reasons[i] = withoutName(name, p)
	}
	return api.Invalid(fmt.Sprintf("network %s is refused", name), reasons...)
}

// withoutName is a reason behind words that name the network already.
func withoutName(name string, err error) error {
	rest, ok := strings.CutPrefix(err.Error(), "network "+name+": ")
	if !ok {
		return err
	}
	var p model.Problem
	if errors.As(err, &p) {
		p.Message = rest
		return p
	}
	return errors.New(rest)
}

func refusal(name string, err error) error {
	var r *embedding.Refusal
	if !errors.As(err, &r) {
		return api.Invalid(fmt.Sprintf("network %s is refused", name), err)
	}
	reasons := make([]error, len(r.Problems))
	for i, p := range r.Problems {
		reasons[i] = p
	}
	return api.Invalid(fmt.Sprintf("network %s does not fit onto the substrate", name), reasons...)
}

// remaining are the overrides of the elements that the document still has.
func remaining(overrides map[string]model.Override, doc model.Network) map[string]model.Override {
	if len(overrides) == 0 {
		return nil
	}
	kept := map[string]model.Override{}
	for i := range doc.Elements {
		if o, ok := overrides[doc.Elements[i].Name]; ok {
			kept[doc.Elements[i].Name] = o
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// overwriteAll asks every element with configuration of its own to take the document's.
func overwriteAll(overrides map[string]model.Override, resolved model.Resolved) map[string]model.Override {
	out := map[string]model.Override{}
	maps.Copy(out, overrides)
	for i := range resolved.Elements {
		e := &resolved.Elements[i]
		if e.Software == model.SoftwareFRR || e.Software == model.SoftwareBIRD {
			o := out[e.Name]
			o.Overwrites++
			out[e.Name] = o
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// same tells whether two records say the same; their times and revisions, and who said it, apart.
func same(a, b model.Record) bool {
	if reflect.DeepEqual(a.Network, b.Network) && reflect.DeepEqual(a.Assigned, b.Assigned) && maps.Equal(a.Overrides, b.Overrides) &&
		maps.Equal(a.Policies, b.Policies) {
		return true
	}
	// Empty and missing lists are one in JSON, the form in which records rest.
	a.Revision, a.Created, a.Modified, a.Set, a.Owner = b.Revision, b.Created, b.Modified, b.Set, b.Owner
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// tellMoves tells which elements a change has placed on another node. The lock is held.
func (m *Manager) tellMoves(old, next *model.Record) {
	for i := range next.Network.Elements {
		id := model.ID{Network: next.Network.Name, Element: next.Network.Elements[i].Name}
		from, to := old.Assigned.Placement.Elements[id.Element], next.Assigned.Placement.Elements[id.Element]
		if from != "" && from != to {
			m.networkEvent(model.Info, id.String(), "ElementMoved", "moves from node "+from+" to node "+to, to)
		}
	}
}

func storeProblem(err error) error {
	p := api.Unavailable(err)
	if errors.Is(err, store.ErrFull) {
		p.Status = http.StatusInsufficientStorage // RFC 4918
	}
	return p
}

// Act starts, stops, restarts, suspends, resumes, cuts off or releases an element. What is so already is no error and changes nothing.
func (m *Manager) Act(ctx context.Context, id model.ID, action model.Action) (result model.ActionResult, err error) {
	if action == model.ActionQuarantine {
		return m.Quarantine(ctx, id, "")
	}
	if action == model.ActionRelease && api.Only(ctx) == "" {
		// Also what was deleted: then there is nothing else to release.
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
	return m.override(ctx, id, string(action)+" of "+id.String()+" was asked for", func(is *model.Override) error { return act(ctx, id, action, is) })
}

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
		return api.Invalid(fmt.Sprintf("%q is no action: start, stop, restart, suspend, resume, quarantine or release was expected", action))
	}
	return nil
}

// override changes what is set on an element at run time, and tells of it in words. What is so already is no error and changes nothing.
func (m *Manager) override(ctx context.Context, id model.ID, message string, enter func(*model.Override) error) (result model.ActionResult, err error) {
	if err := m.changing.LockFor(ctx, api.User(ctx)); err != nil {
		return result, api.Unavailable(err)
	}
	defer m.changing.Unlock()
	m.mu.RLock()
	n, err := m.usable(id.Network)
	m.mu.RUnlock()
	if err == nil {
		err = checkMine(ctx, n)
	}
	if err != nil {
		return result, err
	}
	if _, ok := n.index[id.Element]; !ok {
		return result, n.noElement(id.Element)
	}
	if n.record.Deleting {
		return result, api.Conflict("network %s is being deleted", id.Network)
	}
	was := n.record.Overrides[id.Element]
	is := was
	if err := enter(&is); err != nil {
		return result, err
	}
	if is == was {
		return result, nil
	}
	next := n.record
	next.Overrides = map[string]model.Override{}
	maps.Copy(next.Overrides, n.record.Overrides)
	if next.Overrides[id.Element] = is; is == (model.Override{}) {
		delete(next.Overrides, id.Element)
	}
	if len(next.Overrides) == 0 {
		next.Overrides = nil
	}
	next.Revision++
	next.Modified = time.Now().UTC()
	if err := m.commit(ctx, &change{record: next, resolved: n.resolved, reason: "ElementAction",
		message: message}); err != nil {
		return result, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	result.Changed = true
	if on := m.nodes[next.Assigned.Placement.Elements[id.Element]]; on != nil {
		result.Revision = on.revision
	}
	return result, nil
}
