package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
)

// NetworkPath, ElementPath, NodePath and OfNetwork are parts of requests; they are exported because only exported
// fields are filled.
type NetworkPath struct {
	Network string `path:"network" doc:"the network's name"`
}

// ElementPath names an element.
type ElementPath struct {
	NetworkPath
	Element string `path:"element" doc:"the element's name"`
}

func (p ElementPath) id() model.ID { return model.ID{Network: p.Network, Element: p.Element} }

// OfNetwork narrows a list to one network.
type OfNetwork struct {
	Network string `query:"network" doc:"only this network's; all networks' when empty"`
}

// ApplyQuery says how documents are applied.
type ApplyQuery struct {
	DryRun      bool   `query:"dryRun" doc:"refuse what an apply would refuse, return what it would make, change nothing"`
	Overwrite   bool   `query:"overwrite" doc:"replace configuration and files that were edited inside elements by the documents'"`
	LoseFiles   bool   `query:"loseFiles" doc:"let elements move to other nodes without what was written inside them; a dry run has a note for each"`
	Provisional bool   `query:"provisional" doc:"new networks only: they are removed after ten minutes unless they are kept"`
	Owner       string `query:"owner" doc:"who new networks belong to unless their documents say it"`
}

type applyInput struct {
	NetworkPath
	ApplyQuery
	Base int64 `query:"base" minimum:"-1" doc:"refuse unless the network is at this revision; 0 means any, -1 that there must be no such network"`
	Body model.Network
}

type applyAllInput struct {
	ApplyQuery
	Body []model.Document
}

type whatIfInput struct{ Body model.WhatIf }

type actInput struct {
	ElementPath
	Body model.ActionRequest
}

type checkInput struct {
	NetworkPath
	Body model.CheckRequest
}

type faultInput struct {
	NetworkPath
	Body model.FaultRequest
}

type removeInput struct {
	NetworkPath
	Now bool `query:"now" doc:"do not put its files into the trash"`
}

func (s *Server) userRoutes(api huma.API) {
	reply(api, operation("ping", http.MethodGet, "/ping", "Is the manager there?", "instance"),
		func(context.Context, *struct{}) (model.Pong, error) { return s.views.Ping(), nil })
	reply(api, operation("substrate", http.MethodGet, "/substrate", "The physical nodes and links", "nodes"),
		func(context.Context, *struct{}) (model.Substrate, error) { return s.views.Substrate(), nil })
	reply(api, operation("substrate-links", http.MethodGet, "/substrate/links",
		"The substrate's links with what the nodes have measured of them", "nodes"),
		func(ctx context.Context, _ *struct{}) ([]model.SubstrateLinkStatus, error) {
			d, err := s.dump(ctx, "", Parts{Nodes: true})
			return list(d.Substrate), err
		})
	reply(api, operation("what-if", http.MethodPost, "/what-if",
		"What would become of what runs if nodes went and others came; nothing is changed", "nodes"),
		func(ctx context.Context, in *whatIfInput) (model.WhatIfResult, error) { return s.whatIf(ctx, in.Body) })
	reply(api, operation("nodes", http.MethodGet, "/nodes", "The nodes at a glance", "nodes"),
		func(ctx context.Context, _ *struct{}) ([]model.NodeStatus, error) {
			d, err := s.dump(ctx, "", Parts{Nodes: true})
			return list(d.Nodes), err
		})
	reply(api, operation("networks", http.MethodGet, "/networks", "The networks at a glance", "networks"),
		func(ctx context.Context, _ *struct{}) ([]model.NetworkStatus, error) {
			d, err := s.dump(ctx, "", Parts{Networks: true})
			return list(d.Networks), err
		})
	reply(api, operation("names", http.MethodGet, "/names",
		"What the networks are called that the caller may name", "networks"),
		func(ctx context.Context, _ *struct{}) (model.NameList, error) { return s.nameList(ctx), nil })
	reply(api, operation("network", http.MethodGet, "/networks/{network}",
		"Everything stored of a network", "networks"),
		func(_ context.Context, in *NetworkPath) (model.Record, error) { return s.networks.Network(in.Network) })
	reply(api, operation("apply", http.MethodPut, "/networks/{network}",
		"Make a network be like a document, all of it or nothing", "networks"),
		func(ctx context.Context, in *applyInput) (model.ApplyResult, error) {
			if in.Body.Name != in.Network {
				return model.ApplyResult{}, Invalid(fmt.Sprintf("the document is of network %q, the request of %q",
					in.Body.Name, in.Network))
			}
			r, err := s.networks.Apply(ctx, []model.Document{{Network: in.Body, Base: in.Base}},
				applyOptions(ctx, &in.ApplyQuery))
			if err != nil {
				return model.ApplyResult{}, err
			}
			return r[0], nil
		})
	all := operation("apply-all", http.MethodPut, "/networks",
		"Make several networks be like documents, all of them or none", "networks")
	all.MaxBodyBytes = maxBodyOfSeveral
	reply(api, all, func(ctx context.Context, in *applyAllInput) ([]model.ApplyResult, error) {
		r, err := s.networks.Apply(ctx, in.Body, applyOptions(ctx, &in.ApplyQuery))
		if err != nil {
			return nil, err
		}
		return list(r), nil
	})
	obey(api, operation("delete", http.MethodDelete, "/networks/{network}",
		"Remove a network; it is gone when every node has let go of its part", "networks"),
		func(ctx context.Context, in *removeInput) error { return s.networks.Delete(ctx, in.Network, in.Now) })
	obey(api, operation("keep", http.MethodPost, "/networks/{network}/keep",
		"Say that a network that was applied as provisional is whole, and stays", "networks"),
		func(ctx context.Context, in *NetworkPath) error { return s.networks.Keep(ctx, in.Network) })
	obey(api, operation("forget", http.MethodPost, "/networks/{network}/forget",
		"Have nodes give up what they hold of a network and the store does not know", "networks"),
		func(ctx context.Context, in *removeInput) error { return s.networks.Forget(ctx, in.Network, in.Now) })
	reply(api, operation("check", http.MethodPost, "/networks/{network}/check",
		"Probe what a network's document expects", "networks"),
		func(ctx context.Context, in *checkInput) (model.CheckResult, error) {
			return s.networks.Check(ctx, in.Network, in.Body)
		})
	reply(api, operation("faults", http.MethodPost, "/networks/{network}/faults",
		"Start a network's schedule of faults, or stop it and put back what it has changed", "networks"),
		func(ctx context.Context, in *faultInput) (model.Record, error) {
			return s.networks.Faults(ctx, in.Network, in.Body)
		})
	reply(api, operation("act", http.MethodPost, "/networks/{network}/elements/{element}/actions",
		"Start, stop, restart, suspend, resume, cut off or release an element", "elements"),
		func(ctx context.Context, in *actInput) (model.ActionResult, error) {
			if in.Body.Reason != "" && in.Body.Action != model.ActionQuarantine {
				return model.ActionResult{}, Invalid("a reason goes with a quarantine only")
			}
			if in.Body.Action == model.ActionQuarantine {
				return s.settings.Quarantine(ctx, in.id(), in.Body.Reason)
			}
			return s.networks.Act(ctx, in.id(), in.Body.Action)
		})
	reply(api, operation("elements", http.MethodGet, "/elements", "The elements with their state", "elements"),
		func(ctx context.Context, in *OfNetwork) ([]model.ElementView, error) {
			d, err := s.dump(ctx, in.Network, Parts{Elements: true})
			return list(d.Elements), err
		})
	reply(api, operation("links", http.MethodGet, "/links", "The links with their state and counters", "links"),
		func(ctx context.Context, in *OfNetwork) ([]model.LinkStatus, error) {
			d, err := s.dump(ctx, in.Network, Parts{Links: true})
			return list(d.Links), err
		})
}

// list makes an empty list [] and not null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
