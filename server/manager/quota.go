package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// quotas are what owners, and networks, may have together.
type quotas struct {
	*known
	gate   *gate
	images *shelf
	limits model.Quotas // mu guards them
}

// Allowed is what a user who is an owner may have.
func (q *quotas) Allowed(user string) model.Quota {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.limits.OfOwner(user)
}

// Quotas are all quotas, and all owners and networks without one, with what they use.
func (q *quotas) Quotas() []model.QuotaStatus {
	q.mu.RLock()
	defer q.mu.RUnlock()
	owners, networks := map[string]model.Quota{}, map[string]model.Quota{}
	for name, n := range q.networks {
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
	for _, i := range q.images.kept.List("") {
		d := owners[i.Owner]
		d.Images = q.images.kept.Used(i.Owner)
		owners[i.Owner] = d
	}
	limits := maps.Clone(q.limits.Owners)
	for _, user := range q.gate.owners() {
		if limits == nil {
			limits = map[string]model.Quota{}
		}
		limits[user] = q.limits.OfOwner(user)
	}
	list(model.QuotaOfOwner, owners, limits)
	list(model.QuotaOfNetwork, networks, q.limits.Networks)
	return all
}

// SetQuota changes a quota. What exists already stays, even if it is more.
func (q *quotas) SetQuota(ctx context.Context, kind model.QuotaKind, name string,
	request model.QuotaRequest) (model.QuotaStatus, error) {
	ctx = urgently(ctx)
	q.changing.Lock()
	defer q.changing.Unlock()
	q.mu.RLock()
	next := model.Quotas{Owners: maps.Clone(q.limits.Owners), Networks: maps.Clone(q.limits.Networks)}
	q.mu.RUnlock()
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
	quota, problems := (*of)[name].Assign(request.Values)
	if kind == model.QuotaOfNetwork && (quota.Networks+quota.Requests+quota.Streams != 0 || quota.Images != 0) {
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
	if (*of)[name] = quota; quota == (model.Quota{}) {
		delete(*of, name)
	}
	if err := q.store.PutQuotas(context.WithoutCancel(ctx), next); err != nil {
		return model.QuotaStatus{}, storeProblem(err)
	}
	q.mu.Lock()
	q.limits = next
	tell := q.event
	if kind == model.QuotaOfNetwork {
		tell = q.networkEvent
	}
	tell(model.Info, name, "QuotaSet", fmt.Sprintf("the quota of %s %s was set", kind, name), "")
	q.mu.Unlock()
	for _, s := range q.Quotas() {
		if s.Kind == kind && s.Name == name {
			return s, nil
		}
	}
	return model.QuotaStatus{Kind: kind, Name: name}, nil
}
