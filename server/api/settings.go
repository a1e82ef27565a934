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
	reply(api, operation("set", http.MethodPatch, "/networks/{network}",
		"Set fields of a network, an element or a link: all of them or none", "networks"),
		func(ctx context.Context, in *setInput) (model.SetResult, error) {
			if err := mayGive(ctx, in.Body); err != nil {
				return model.SetResult{}, err
			}
			return s.settings.Set(ctx, in.Network, in.Body)
		})
	reply(api, operation("policies", http.MethodGet, "/policies",
		"What is done to elements that attack, and which are in quarantine", "networks"),
		func(ctx context.Context, in *OfNetwork) ([]model.PolicyView, error) {
			all, err := s.settings.Policies(ctx, in.Network)
			return list(all), err
		})
	reply(api, operation("set-policy", http.MethodPatch, "/networks/{network}/policy",
		"Set an administrator's policy of a network or an element of it", "networks"),
		func(ctx context.Context, in *policyInput) ([]model.PolicyView, error) {
			all, err := s.settings.SetPolicy(ctx, in.Network, in.Body)
			return list(all), err
		})
	reply(api, operation("quotas", http.MethodGet, "/quotas",
		"What owners and networks may have, and what they use", "quotas"),
		func(ctx context.Context, _ *struct{}) ([]model.QuotaStatus, error) { return list(s.quotas(ctx)), nil })
	reply(api, operation("set-quota", http.MethodPatch, "/quotas/{kind}/{name}",
		"Set bounds of a quota", "quotas"),
		func(ctx context.Context, in *quotaInput) (model.QuotaStatus, error) {
			return s.settings.SetQuota(ctx, in.Kind, in.Name, in.Body)
		})
}
