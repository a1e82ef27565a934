package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
)

type setInput struct {
	NetworkPath
	Body model.SetRequest
}

type policyInput struct {
	NetworkPath
	Body model.PolicyRequest
}

type quotaInput struct {
	Kind model.QuotaKind `path:"kind" enum:"owner,network" doc:"whose the quota is"`
	Name string          `path:"name" doc:"the owner's or the network's name"`
	Body model.QuotaRequest
}

// settingRoutes are those that change things in place.
func (s *Server) settingRoutes(api huma.API) {
	huma.Register(api, operation("set", http.MethodPatch, "/networks/{network}",
		"Set fields of a network, an element or a link: all of them or none", "networks"),
		func(ctx context.Context, in *setInput) (*body[model.SetResult], error) {
			if err := mayGive(ctx, in.Body); err != nil {
				return nil, statusError(err)
			}
			r, err := s.settings.Set(ctx, in.Network, in.Body)
			return &body[model.SetResult]{r}, statusError(err)
		})
	huma.Register(api, operation("policies", http.MethodGet, "/policies",
		"What is done to elements that attack, and which are in quarantine", "networks"),
		func(ctx context.Context, in *OfNetwork) (*body[[]model.PolicyView], error) {
			all, err := s.settings.Policies(ctx, in.Network)
			return &body[[]model.PolicyView]{list(all)}, statusError(err)
		})
	huma.Register(api, operation("set-policy", http.MethodPatch, "/networks/{network}/policy",
		"Set an administrator's policy of a network or an element of it", "networks"),
		func(ctx context.Context, in *policyInput) (*body[[]model.PolicyView], error) {
			all, err := s.settings.SetPolicy(ctx, in.Network, in.Body)
			return &body[[]model.PolicyView]{list(all)}, statusError(err)
		})
	huma.Register(api, operation("quotas", http.MethodGet, "/quotas",
		"What owners and networks may have, and what they use", "quotas"),
		func(ctx context.Context, _ *struct{}) (*body[[]model.QuotaStatus], error) {
			return &body[[]model.QuotaStatus]{list(s.quotas(ctx))}, nil
		})
	huma.Register(api, operation("set-quota", http.MethodPatch, "/quotas/{kind}/{name}",
		"Set bounds of a quota", "quotas"),
		func(ctx context.Context, in *quotaInput) (*body[model.QuotaStatus], error) {
			q, err := s.settings.SetQuota(ctx, in.Kind, in.Name, in.Body)
			return &body[model.QuotaStatus]{q}, statusError(err)
		})
}
