package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// checkOwner says why a name cannot be an owner's. Whoever applies a network owns it, and directories give users names
// that networks cannot have (alice@example.org).
func checkOwner(name string) error {
	if name == "" || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
		return fmt.Errorf("%q is no user's name; one without spaces was expected", name)
	}
	return nil
}

// checkOnly refuses networks to an owner that are not, or would not be, the owner's.
func checkOnly(owner string, documents []model.Document, situations []*network) error {
	for i := range documents {
		net, old := &documents[i].Network, situations[i]
		if old != nil && old.record.WhoseItIs() != owner {
			return api.Forbidden("network %s is not user %s's; choose another name", net.Name, owner)
		}
		if net.Owner != "" && net.Owner != owner {
			return api.Forbidden("network %s: user %s is an owner and may make networks in the own name only, not in "+
				"%s's (owner:)", net.Name, owner, net.Owner)
		}
		if old != nil && old.record.Owner != owner {
			net.Owner = owner // an administrator made it for this owner, and it stays the owner's
		}
	}
	return nil
}

// checkMine refuses a network to everybody but its owner, with the same words as if there were none.
func checkMine(ctx context.Context, n *network) error {
	if only := api.Only(ctx); only != "" && (n.damaged != nil || n.record.WhoseItIs() != only) {
		return api.NotFound("user %s has no network %s", only, n.record.Network.Name)
	}
	return nil
}

// Allowed is what a user who is an owner may have.
func (m *Manager) Allowed(user string) model.Quota {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.quotas.OfOwner(user)
}

// Quotas are all quotas, and all owners and networks without one, with what they use.
func (m *Manager) Quotas() []model.QuotaStatus {
	m.mu.RLock()
	defer m.mu.RUnlock()
	owners, networks := map[string]model.Quota{}, map[string]model.Quota{}
	for name, n := range m.networks {
		if n.damaged != nil {
			continue
		}
		d, _ := model.DemandOf(n.record.Network)
		owner := n.record.WhoseItIs()
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
	for _, i := range m.images.kept.List("") {
		d := owners[i.Owner]
		d.Images = m.images.kept.Used(i.Owner)
		owners[i.Owner] = d
	}
	limits := maps.Clone(m.quotas.Owners)
	for _, user := range m.gate.owners() {
		if limits == nil {
			limits = map[string]model.Quota{}
		}
		limits[user] = m.quotas.OfOwner(user)
	}
	list(model.QuotaOfOwner, owners, limits)
	list(model.QuotaOfNetwork, networks, m.quotas.Networks)
	return all
}

// SetQuota changes a quota. What exists already stays, even if it is more.
func (m *Manager) SetQuota(ctx context.Context, kind model.QuotaKind, name string,
	request model.QuotaRequest) (model.QuotaStatus, error) {
	ctx = urgently(ctx)
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
	if kind == model.QuotaOfNetwork && (q.Networks+q.Requests+q.Streams != 0 || q.Images != 0) {
		problems = append(problems,
			fmt.Errorf("networks, images, requests, streams: one network has no number of these; they are an owner's "+
				"(owner/NAME)"))
	}
	if len(problems) > 0 {
		return model.QuotaStatus{},
			api.Invalid(fmt.Sprintf("the quota of %s %s is not changed", kind, name), problems...)
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
