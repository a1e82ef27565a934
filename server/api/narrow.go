package api

import (
	"context"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// What owners see is narrowed to their own networks here.

// dump is Views.Dump as the caller sees it.
func (s *Server) dump(ctx context.Context, network string, parts Parts) (model.Dump, error) {
	c := callerOf(ctx)
	if !c.owner() {
		return s.views.Dump(network, parts)
	}
	if network != "" {
		if err := s.guard.owns(c, network); err != nil {
			return model.Dump{}, err
		}
		d, err := s.views.Dump(network, parts)
		narrowNodes(&d)
		return d, err
	}
	d, err := s.views.Dump("", parts)
	narrowNodes(&d)
	owned := s.gate.Owned(c.Name)
	other := func(network string) bool {
		_, own := owned[network]
		return !own
	}
	d.Networks = slices.DeleteFunc(d.Networks, func(n model.NetworkStatus) bool { return other(n.Name) })
	d.Elements = slices.DeleteFunc(d.Elements, func(e model.ElementView) bool { return other(e.ID.Network) })
	d.Links = slices.DeleteFunc(d.Links, func(l model.LinkStatus) bool { return other(l.Network) })
	return d, err
}

// whatIf is Views.WhatIf as the caller sees it: of others' networks an owner learns how many there are.
func (s *Server) whatIf(ctx context.Context, ask model.WhatIf) (model.WhatIfResult, error) {
	r, err := s.views.WhatIf(ctx, ask)
	c := callerOf(ctx)
	if err != nil || !c.owner() {
		return r, err
	}
	owned := s.gate.Owned(c.Name)
	r.Networks = slices.DeleteFunc(r.Networks, func(w model.WouldBe) bool {
		_, own := owned[w.Network]
		if !own {
			r.Others.Add(&w)
		}
		return !own
	})
	r.Moves = slices.DeleteFunc(r.Moves, func(w model.WouldBe) bool {
		_, own := owned[w.Network]
		return !own
	})
	return r, nil
}

// narrowNodes leaves out the networks that nodes hold and the store does not know: nobody knows whose they are. What
// else is on nodes' machines, and who is on their wires, is no owner's business either.
func narrowNodes(d *model.Dump) {
	for i := range d.Nodes {
		d.Nodes[i].Held, d.Nodes[i].Found, d.Nodes[i].Phases = nil, nil, nil
	}
	d.Substrate = slices.DeleteFunc(d.Substrate, func(l model.SubstrateLinkStatus) bool { return l.Unstated })
	for i := range d.Substrate {
		d.Substrate[i].Found = nil
	}
}

// sees tells which events a caller sees: an owner those of the own networks, since they were made.
func (s *Server) sees(ctx context.Context) func(*model.Event) bool {
	c := callerOf(ctx)
	if !c.owner() {
		return func(*model.Event) bool { return true }
	}
	owned := s.gate.Owned(c.Name)
	return func(e *model.Event) bool {
		made, own := owned[e.Network]
		return own && !e.Time.Before(made)
	}
}

// quotas are those that the caller sees.
func (s *Server) quotas(ctx context.Context) []model.QuotaStatus {
	all := s.settings.Quotas()
	c := callerOf(ctx)
	if !c.owner() {
		return all
	}
	owned := s.gate.Owned(c.Name)
	return slices.DeleteFunc(all, func(q model.QuotaStatus) bool {
		if q.Kind == model.QuotaOfOwner {
			return q.Name != c.Name
		}
		_, own := owned[q.Name]
		return !own
	})
}

// applyOptions are the options of an apply. Users make networks in their own name. Only a document can name somebody
// else, and the manager refuses such a document of an owner.
func applyOptions(ctx context.Context, in *ApplyQuery) model.ApplyOptions {
	o := model.ApplyOptions{DryRun: in.DryRun, Overwrite: in.Overwrite, LoseFiles: in.LoseFiles, Owner: in.Owner,
		Provisional: in.Provisional}
	c := callerOf(ctx)
	if c.Name != "" {
		o.Owner = c.Name
	}
	return o
}

// Only is the owner whose networks alone a request may change; it is empty where the request may change everybody's.
// Whoever makes a change must check it again under the lock: between the guard's check and the change, the name could
// become somebody else's.
func Only(ctx context.Context) string {
	if c := callerOf(ctx); c.owner() {
		return c.Name
	}
	return ""
}

// AsOwner is the context of what the platform does for an owner, in their name: nothing that they may not do
// themselves. Without an owner it may do everything.
func AsOwner(ctx context.Context, owner string) context.Context {
	if owner == "" {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, Caller{Name: owner, Role: model.RoleOwner})
}

// User is whose request it is; empty for root on this machine, and for the platform itself.
func User(ctx context.Context) string { return callerOf(ctx).who() }

// mayGive refuses an owner to give a network to somebody else, and with it what it uses up.
func mayGive(ctx context.Context, request model.SetRequest) error {
	c := callerOf(ctx)
	if !c.owner() || request.Object != "" {
		return nil
	}
	for _, v := range request.Values {
		if v.Key == "owner" && v.Value != c.Name {
			return Forbidden("user %s is an owner and may not give networks to others: an admin may", c.Name)
		}
	}
	return nil
}
