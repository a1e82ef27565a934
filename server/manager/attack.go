package manager

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// What happens to elements that attack: nodes find them and cut their links at once, even while the manager is away.
// When the manager hears of it, it does what the policy says. From then on its record keeps the links cut.

// maxReason bounds how much of a reason is kept, in bytes. A node or a user may have written it.
const maxReason = 1024

// reasonOf turns a reason into one line that can be shown and is not too long.
func reasonOf(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}

// Quarantine cuts an element's links, for the reason given.
func (m *Manager) Quarantine(ctx context.Context, id model.ID, reason string) (result model.ActionResult, err error) {
	message := "quarantine of " + id.String() + " was asked for"
	if reason = reasonOf(reason); reason != "" {
		message += ": " + reason
	}
	return m.override(urgently(ctx), id, message, func(is *model.Override) error {
		cutOff(is, cmp.Or(reason, "by hand"), api.Only(ctx) == "")
		return nil
	})
}

// cutOff enters a quarantine. A held one can be released only by an administrator. Of two quarantines the stricter
// counts: owners cannot replace an administrator's by their own.
func cutOff(is *model.Override, reason string, held bool) {
	if !is.Quarantined || held && !is.Held {
		is.Quarantined, is.Reason, is.Held = true, reason, held
	}
}

// release ends a quarantine. owner is who asks; empty for somebody who may do everything.
func release(is *model.Override, id model.ID, owner string) error {
	if is.Held && owner != "" {
		return api.Forbidden("%s was put into quarantine by an administrator, or by an administrator's policy, who "+
			"alone releases it: %s", id, is.Reason)
	}
	is.Quarantined, is.Reason, is.Held = false, "", false
	return nil
}

// SetPolicy sets what is done to elements that attack, or withdraws an administrator's policy.
func (m *Manager) SetPolicy(ctx context.Context, name string, request model.PolicyRequest) ([]model.PolicyView, error) {
	ctx = urgently(ctx)
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.RLock()
	n, err := m.usable(name)
	m.mu.RUnlock()
	if request.Attack == "" { // also of what was deleted
		ended, wrong := m.restraints.forgive(ctx, func(r *model.Restraint) {
			if m.isKeptOf(r, model.ID{Network: name, Element: request.Element}) {
				r.Attack = ""
			}
		})
		if wrong != nil {
			return nil, wrong
		}
		if ended && err != nil {
			return []model.PolicyView{}, nil
		}
		if err == nil && ended && request.Element != "" {
			if _, ok := n.index[request.Element]; !ok {
				return m.policies(name)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if _, ok := n.index[request.Element]; request.Element != "" && !ok {
		return nil, n.noElement(request.Element)
	}
	if err := request.Attack.Check(); err != nil {
		return nil, api.Invalid("the policy is not changed", err)
	}
	if n.record.Deleting {
		return nil, api.Conflict("network %s is being deleted", name)
	}
	if n.record.Policies[request.Element] != request.Attack {
		next := n.next()
		next.Policies = maps.Clone(next.Policies)
		if next.Policies == nil {
			next.Policies = model.Policies{}
		}
		if next.Policies[request.Element] = request.Attack; request.Attack == "" {
			delete(next.Policies, request.Element)
		}
		object := objectName(name, request.Element)
		message := fmt.Sprintf("an administrator set the policy of %s: attack=%s", object, request.Attack)
		if request.Attack == "" {
			message = "an administrator took the policy of " + object + " back"
		}
		if err := m.commit(ctx, &change{record: next, resolved: n.resolved, reason: "PolicySet",
			message: message}); err != nil {
			return nil, err
		}
	}
	return m.policies(name)
}

// Policies returns the policy for the elements of a network, or all policies if network is empty.
func (m *Manager) Policies(ctx context.Context, name string) ([]model.PolicyView, error) {
	all, err := m.policies(name)
	only := api.Only(ctx)
	m.mu.RLock()
	defer m.mu.RUnlock()
	if only != "" {
		theirs := func(name string) bool { n := m.networks[name]; return n == nil || checkMine(ctx, n) != nil }
		all = slices.DeleteFunc(all, func(v model.PolicyView) bool { return theirs(v.ID.Network) })
		// in the same words whether it is another's or nobody's, and without others' names
		if name != "" && theirs(name) {
			err = api.NotFound("user %s has no network %s", only, name)
		}
	}
	kept := m.keptViews(name, only)
	if len(kept) > 0 { // also of a network that is not there
		return append(all, kept...), nil
	}
	return all, err
}

// policies reads them of networks, without asking whose they are.
func (m *Manager) policies(name string) ([]model.PolicyView, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	names := slices.Sorted(maps.Keys(m.networks))
	if name != "" {
		if _, err := m.usable(name); err != nil {
			return nil, err
		}
		names = []string{name}
	}
	all := []model.PolicyView{}
	for _, name := range names {
		n := m.networks[name]
		if n.damaged != nil {
			continue
		}
		for i := range n.resolved.Elements {
			e := &n.resolved.Elements[i]
			o := n.record.Overrides[e.Name]
			v := model.PolicyView{ID: model.ID{Network: name, Element: e.Name}, Owner: n.record.WhoseItIs(),
				Title: n.record.Network.Called(), Quarantined: o.Quarantined, Reason: o.Reason}
			if !v.Quarantined && m.nodes.keepsCut(n, e.Name) {
				v.Quarantined, v.Reason = true, keptCut
			}
			v.Attack, v.Administrator = n.policyOf(e)
			all = append(all, v)
		}
	}
	return all, nil
}

// incident is an attack that nothing has been decided about.
type incident struct {
	id   model.ID
	node string
	model.Incident
}

// incidents are those that nodes report about elements placed on them. The caller holds the lock.
func (k *known) incidents() (all []incident) {
	for _, name := range slices.Sorted(maps.Keys(k.nodes)) {
		for id, e := range k.nodes[name].elements {
			if e.Incident == nil {
				continue
			}
			n := k.networks[id.Network]
			if n == nil || n.damaged != nil || n.record.Deleting ||
				n.record.Assigned.Placement.Elements[id.Element] != name ||
				n.record.Overrides[id.Element].Decided >= e.Incident.At.UnixNano() {
				continue
			}
			all = append(all, incident{id, name, *e.Incident})
		}
	}
	return all
}

// decide does what the policies say about the nodes' incidents.
func (m *Manager) decide(ctx context.Context) {
	m.mu.RLock()
	all := m.incidents()
	m.mu.RUnlock()
	for _, i := range all {
		if err := m.decideOn(ctx, i); err != nil {
			slog.Error("an attack is answered by the node alone so far", "element", i.id, "error", err)
		}
	}
}

// policyOf is the policy for an element, and whether an administrator has set it.
func (n *network) policyOf(e *model.ResolvedElement) (p model.AttackPolicy, administrator bool) {
	return model.AttackPolicyOf(n.record.Network.Attack, e.Name, e.Attack, n.record.Policies)
}

// decideOn does what the policy says of one attack. That it was decided is stored with it, so that the node, which has
// cut the element off by itself, and the next manager know that.
func (m *Manager) decideOn(ctx context.Context, i incident) error {
	ctx = urgently(ctx)
	m.mu.RLock()
	n, err := m.usable(i.id.Network)
	m.mu.RUnlock()
	if err != nil {
		return err
	}
	at, ok := n.index[i.id.Element]
	if !ok {
		return nil
	}
	policy, administrator := n.policyOf(&n.resolved.Elements[at])
	reason := reasonOf(i.What)
	if policy == model.AttackDelete {
		err := m.takeOut(ctx, i.id, reason)
		if err == nil {
			return nil
		}
		// What cannot be taken out is cut off.
		reason, policy = reasonOf(fmt.Sprintf("%s (it could not be taken out of its network: %s)", reason, err)),
			model.AttackQuarantine
	}
	message := fmt.Sprintf("what the policy says of attacks is done: %s", policy)
	_, err = m.override(ctx, i.id, message, func(is *model.Override) error {
		is.Decided = max(is.Decided, i.At.UnixNano())
		switch policy {
		case model.AttackQuarantine:
			cutOff(is, reason, administrator)
		case model.AttackStop:
			is.Stopped, is.Suspended, is.Reason = true, false, reason
		}
		return nil
	})
	return err
}

// takeOut removes an element and its links from its network, as a document without them would. Its disk goes to the
// trash like those of all removed elements.
func (m *Manager) takeOut(ctx context.Context, id model.ID, reason string) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.RLock()
	old, err := m.usable(id.Network)
	m.mu.RUnlock()
	if err != nil {
		return err
	}
	doc := without(old.record.Network, id.Element)
	_, others, err := m.situations([]model.Document{{Network: doc}})
	if err != nil {
		return err
	}
	drawn, err := draw(doc, old, "")
	if err != nil {
		return problemOf(err)
	}
	next, resolved, err := m.workOut(drawn, others, false, true)
	if err != nil {
		return err
	}
	// If its owner makes it again, an administrator's decision about it counts again.
	if err := m.restraints.keep(ctx, restraintsOf(&old.record, &doc)); err != nil {
		return err
	}
	return m.commit(ctx, &change{record: next, resolved: resolved, reason: "NetworkApplied",
		message: fmt.Sprintf("revision %d: %s was taken out, as the policy says of attacks: %s",
			next.Revision, id, reason)})
}

// without is a document without an element and everything that names it: its links and edges, mirrors of its links,
// ports that are forwarded to it, and expectations about it.
func without(doc model.Network, element string) model.Network {
	of := func(end model.End) bool { return end.Element == element }
	doc.Elements = slices.DeleteFunc(slices.Clone(doc.Elements),
		func(e model.Element) bool { return e.Name == element })
	links := map[string]bool{}
	var gone []model.End // the far ends
	doc.Links = slices.DeleteFunc(slices.Clone(doc.Links), func(l model.Link) bool {
		if !of(l.Ends[0]) && !of(l.Ends[1]) {
			return false
		}
		links[l.Name] = true
		gone = append(gone, l.Ends[0], l.Ends[1])
		return true
	})
	doc.Edges = slices.DeleteFunc(slices.Clone(doc.Edges), func(e model.Edge) bool {
		mirror := e.Mirror != nil && links[e.Mirror.Link]
		if mirror {
			gone = append(gone, e.End)
		}
		return mirror || of(e.End)
	})
	for i := range doc.Edges {
		if e := &doc.Edges[i]; e.Internet != nil {
			internet := *e.Internet
			internet.Forwards = slices.DeleteFunc(slices.Clone(internet.Forwards),
				func(f model.Forward) bool { return f.Element == element })
			e.Internet = &internet
		}
	}
	doc.Expect = slices.DeleteFunc(slices.Clone(doc.Expect),
		func(e model.Expectation) bool { return e.From == element || e.To == element })
	for i := range doc.Elements {
		e := &doc.Elements[i]
		e.Interfaces = slices.DeleteFunc(slices.Clone(e.Interfaces), func(f model.Interface) bool {
			return slices.Contains(gone, model.End{Element: e.Name, Interface: f.Name})
		})
	}
	return doc
}
