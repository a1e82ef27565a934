package manager

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// ownerOf is who a network counts for.
func ownerOf(r *model.Record) string { return cmp.Or(r.Network.Owner, r.Owner) }

// checkOwner tells why a name cannot be an owner's. Whoever applies a network owns it, and directories give users names
// that networks cannot have (alice@example.org).
func checkOwner(name string) error {
	if name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
		return fmt.Errorf("%q is no user's name; one without spaces was expected", name)
	}
	return nil
}

// checkOnly refuses an owner networks that are not, or would not be, the owner's.
func checkOnly(owner string, documents []model.Document, situations []*network) error {
	for i := range documents {
		net, old := &documents[i].Network, situations[i]
		if old != nil && ownerOf(&old.record) != owner {
			return api.Forbidden("network %s is not user %s's; choose another name", net.Name, owner)
		}
		if net.Owner != "" && net.Owner != owner {
			return api.Forbidden("network %s: user %s is an owner and may make networks in the own name only, not in %s's (owner:)",
				net.Name, owner, net.Owner)
		}
		if old != nil && old.record.Owner != owner {
			net.Owner = owner // an admin made it for this owner, whose it stays
		}
	}
	return nil
}

// checkMine refuses a network to an owner whose it is not: as if there were none.
func checkMine(ctx context.Context, n *network) error {
	if only := api.Only(ctx); only != "" && (n.damaged != nil || ownerOf(&n.record) != only) {
		return api.NotFound("user %s has no network %s", only, n.record.Network.Name)
	}
	return nil
}

// checkTaken refuses an owner more of the nodes' own than the network has: whoever has one of their devices sees and sends
// what passes there, and nobody else does any more; and what leads out by a machine's uplink speaks with that machine's
// address, and may take its ports.
func checkTaken(next model.Record, old *network) error {
	had := map[device]string{}
	var before model.Record
	if old != nil {
		before = old.record
		had = devicesOf(before.Network, before.Assigned.Placement.Elements)
	}
	for d, edge := range devicesOf(next.Network, next.Assigned.Placement.Elements) {
		if _, has := had[d]; !has {
			return api.Forbidden("network %s: edge %s takes device %s of node %s; only an admin may do that", next.Network.Name, edge, d.name, d.node)
		}
	}
	for _, e := range next.Network.Edges {
		on := next.Assigned.Placement.Elements[e.End.Element]
		if e.Internet != nil && (before.Assigned.Placement.Elements[e.End.Element] != on || !slices.ContainsFunc(before.Network.Edges, func(was model.Edge) bool {
			return was.Name == e.Name && was.End == e.End && was.Internet != nil && slices.Equal(was.Internet.Forwards, e.Internet.Forwards)
		})) {
			return api.Forbidden("network %s: edge %s leads out by the uplink of node %s; only an admin may do that", next.Network.Name, e.Name, on)
		}
	}
	return nil
}

// allowed is what a user may have who is an owner.
func (m *Manager) allowed(user string) model.Quota {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.quotas.OfOwner(user)
}

// checkQuotas tells what of a network its own quota, or its owner's, refuses. bounded tells that an owner asks, whom the
// defaults bind, too.
func (m *Manager) checkQuotas(next *model.Record, old *network, others []model.Record, bounded bool) []error {
	m.mu.RLock()
	quotas := m.quotas
	m.mu.RUnlock()
	demand, unbound := model.DemandOf(next.Network)
	var was, besides model.Quota
	var before []string
	owner := ownerOf(next)
	if old != nil {
		was, before = model.DemandOf(old.record.Network)
	}
	fresh := slices.DeleteFunc(slices.Clone(unbound), func(name string) bool { return slices.Contains(before, name) })
	var problems []error
	if q, ok := quotas.Networks[next.Network.Name]; ok {
		problems = q.Refuses("network "+next.Network.Name, demand, was, besides, fresh)
	}
	q, ok := quotas.Owners[owner]
	if bounded {
		q = quotas.OfOwner(owner)
	} else if !ok {
		return problems
	}
	if old != nil && ownerOf(&old.record) != owner {
		was, fresh = model.Quota{}, unbound // for this owner all of it is new
	}
	for i := range others {
		if others[i].Network.Name != "" && ownerOf(&others[i]) == owner {
			d, _ := model.DemandOf(others[i].Network)
			besides = besides.Add(d)
		}
	}
	return append(problems, q.Refuses("owner "+owner, demand, was, besides, fresh)...)
}

// Quotas are all quotas, and all owners and networks without any, with what they use.
func (m *Manager) Quotas() []model.QuotaStatus {
	m.mu.RLock()
	defer m.mu.RUnlock()
	owners, networks := map[string]model.Quota{}, map[string]model.Quota{}
	for name, n := range m.networks {
		if n.damaged != nil {
			continue
		}
		d, _ := model.DemandOf(n.record.Network)
		owner := ownerOf(&n.record)
		owners[owner] = owners[owner].Add(d)
		networks[name] = d
	}
	var all []model.QuotaStatus
	list := func(kind model.QuotaKind, used, limits map[string]model.Quota) {
		names := maps.Clone(used)
		maps.Copy(names, limits)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if name != "" {
				all = append(all, model.QuotaStatus{Kind: kind, Name: name, Limit: limits[name], Used: used[name]})
			}
		}
	}
	limits := maps.Clone(m.quotas.Owners)
	for _, k := range m.keys {
		if k.Role == model.RoleOwner && k.Unusable(time.Now()) == "" {
			if limits == nil {
				limits = map[string]model.Quota{}
			}
			limits[k.User] = m.quotas.OfOwner(k.User)
		}
	}
	list(model.QuotaOfOwner, owners, limits)
	list(model.QuotaOfNetwork, networks, m.quotas.Networks)
	return all
}

// SetQuota changes a quota. What is there already stays, also where it is more.
func (m *Manager) SetQuota(ctx context.Context, kind model.QuotaKind, name string, request model.QuotaRequest) (model.QuotaStatus, error) {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.RLock()
	next := model.Quotas{Owners: maps.Clone(m.quotas.Owners), Networks: maps.Clone(m.quotas.Networks)}
	m.mu.RUnlock()
	var of *map[string]model.Quota
	switch kind {
	case model.QuotaOfOwner:
		of = &next.Owners
	case model.QuotaOfNetwork:
		of = &next.Networks
	default:
		return model.QuotaStatus{}, api.Invalid(fmt.Sprintf("%q has no quotas; owner or network was expected", kind))
	}
	err := model.CheckName(name)
	if kind == model.QuotaOfOwner {
		err = checkOwner(name)
	}
	if err != nil {
		return model.QuotaStatus{}, api.Invalid(fmt.Sprintf("%s: %v", kind, err))
	}
	q, problems := (*of)[name].Assign(request.Values)
	if kind == model.QuotaOfNetwork && q.Networks+q.Requests+q.Streams != 0 {
		problems = append(problems, fmt.Errorf("networks, requests, streams: one network has no number of these; they are an owner's (owner/NAME)"))
	}
	if len(problems) > 0 {
		return model.QuotaStatus{}, api.Invalid(fmt.Sprintf("the quota of %s %s is not changed", kind, name), problems...)
	}
	if *of == nil {
		*of = map[string]model.Quota{}
	}
	if (*of)[name] = q; q == (model.Quota{}) {
		delete(*of, name)
	}
	if err := m.store.PutQuotas(context.WithoutCancel(ctx), next); err != nil {
		return model.QuotaStatus{}, storeProblem(err)
	}
	m.mu.Lock()
	m.quotas = next
	tell := m.event
	if kind == model.QuotaOfNetwork {
		tell = m.networkEvent
	}
	tell(model.Info, name, "QuotaSet", fmt.Sprintf("the quota of %s %s was set", kind, name), "")
	m.mu.Unlock()
	for _, s := range m.Quotas() {
		if s.Kind == kind && s.Name == name {
			return s, nil
		}
	}
	return model.QuotaStatus{Kind: kind, Name: name}, nil
}

// Bounds are what a caller may have of the manager at a time.
func (m *Manager) Bounds(c api.Caller) api.Bounds {
	q := m.allowed(c.Name)
	b := api.Bounds{Requests: q.Requests, Streams: q.Streams}
	switch {
	case c.Node.Name != "":
		return api.Bounds{Requests: nodeRequests, Streams: nodeStreams, Body: nodeBody}
	case c.Role == model.RoleAdmin:
		b.Requests, b.Streams, b.Body = adminTimes*b.Requests, adminTimes*b.Streams, api.MaxBody
	case c.Role == model.RoleOwner:
		// As JSON, what is stored is escaped, and has more than one document in it.
		b.Body = min(api.MaxBody, 2*int64(q.Stored)+1<<20)
	default:
		b.Body = 64 << 10
	}
	return b
}

const (
	// adminTimes is how many times what an owner may have under way administrators may who are elsewhere.
	adminTimes = 4
	// A node has one watch of what it shall have, and a request or two under way; a report of 20,000 elements has some 24 MB.
	nodeRequests = 8
	nodeStreams  = 3
	nodeBody     = 32 << 20
)
