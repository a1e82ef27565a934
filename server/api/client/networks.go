package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/polyplane/polyplane/model"
)

// Ping asks whether the manager is there and well.
func (c *Client) Ping(ctx context.Context) (model.Pong, error) {
	return ask[model.Pong](ctx, c, http.MethodGet, path("ping"), nil, nil)
}

// Networks lists the networks by name.
func (c *Client) Networks(ctx context.Context) ([]model.NetworkStatus, error) {
	return ask[[]model.NetworkStatus](ctx, c, http.MethodGet, path("networks"), nil, nil)
}

// NetworkNames tells what the networks are called.
func (c *Client) NetworkNames(ctx context.Context) (model.NameList, error) {
	return ask[model.NameList](ctx, c, http.MethodGet, path("names"), nil, nil)
}

// Network returns everything that is stored of one network. IsNotFound tells that there is none of the name.
func (c *Client) Network(ctx context.Context, name string) (model.Record, error) {
	return ask[model.Record](ctx, c, http.MethodGet, path("networks", name), nil, nil)
}

// Apply makes the network be like the document, whole: either all of it is accepted, stored and on its way to the
// nodes when Apply returns, or it is refused with all reasons and nothing has changed.
func (c *Client) Apply(ctx context.Context, network model.Network,
	options model.ApplyOptions) (model.ApplyResult, error) {
	q := applyQuery(options)
	if options.Base != 0 {
		q.Set("base", strconv.FormatInt(options.Base, 10))
	}
	return ask[model.ApplyResult](ctx, c, http.MethodPut, path("networks", network.Name), q, network)
}

// ApplyAll makes networks be like the documents, as Apply does: all of them, or – should one be refused – none. The
// results are in the documents' order; the documents' own Base counts, not that of the options.
func (c *Client) ApplyAll(ctx context.Context, documents []model.Document,
	options model.ApplyOptions) ([]model.ApplyResult, error) {
	q := applyQuery(options)
	var out []model.ApplyResult
	err := c.do(ctx, http.MethodPut, path("networks"), q, documents, &out)
	if err == nil && len(out) != len(documents) {
		err = fmt.Errorf("apply %d networks: the manager's answer is of %d", len(documents), len(out))
	}
	return out, err
}

func applyQuery(options model.ApplyOptions) url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"dryRun": options.DryRun, "overwrite": options.Overwrite,
		"loseFiles": options.LoseFiles, "provisional": options.Provisional} {
		if on {
			q.Set(name, "true")
		}
	}
	if options.Owner != "" {
		q.Set("owner", options.Owner)
	}
	return q
}

// Delete asks for the network's removal. It is gone (IsNotFound) once every node has removed its part.
// With now its elements' files do not go to the trash.
func (c *Client) Delete(ctx context.Context, network string, now bool) error {
	return c.do(ctx, http.MethodDelete, path("networks", network), nowQuery(now), nil, nil)
}

// Keep says that a network that was applied as provisional is whole, and stays.
func (c *Client) Keep(ctx context.Context, network string) error {
	return c.do(ctx, http.MethodPost, path("networks", network, "keep"), nil, nil, nil)
}

// Forget has nodes give up what they hold of a network and the store does not know.
func (c *Client) Forget(ctx context.Context, network string, now bool) error {
	return c.do(ctx, http.MethodPost, path("networks", network, "forget"), nowQuery(now), nil, nil)
}

func nowQuery(now bool) url.Values {
	if !now {
		return nil
	}
	return url.Values{"now": {"true"}}
}

// Act starts, stops, restarts, suspends or resumes one element.
func (c *Client) Act(ctx context.Context, id model.ID, action model.Action) (model.ActionResult, error) {
	return ask[model.ActionResult](ctx, c, http.MethodPost, element(id, "actions"), nil,
		model.ActionRequest{Action: action})
}

// Faults starts or stops a network's schedule of faults.
func (c *Client) Faults(ctx context.Context, network string, action model.Action) (model.Record, error) {
	return ask[model.Record](ctx, c, http.MethodPost, path("networks", network, "faults"), nil,
		model.FaultRequest{Action: action})
}

// Quarantine cuts an element's links, for a reason in words.
func (c *Client) Quarantine(ctx context.Context, id model.ID, reason string) (model.ActionResult, error) {
	return ask[model.ActionResult](ctx, c, http.MethodPost, element(id, "actions"), nil,
		model.ActionRequest{Action: model.ActionQuarantine, Reason: reason})
}

// Policies lists what is done to elements of a network, or of all when it is empty, that attack.
func (c *Client) Policies(ctx context.Context, network string) ([]model.PolicyView, error) {
	return ask[[]model.PolicyView](ctx, c, http.MethodGet, path("policies"), ofNetwork(network), nil)
}

// SetPolicy sets an administrator's policy.
func (c *Client) SetPolicy(ctx context.Context, network string,
	request model.PolicyRequest) ([]model.PolicyView, error) {
	return ask[[]model.PolicyView](ctx, c, http.MethodPatch, path("networks", network, "policy"), nil, request)
}

// Set changes fields of a network, or of one element or link of it: all, or none with all reasons.
func (c *Client) Set(ctx context.Context, network string, request model.SetRequest) (model.SetResult, error) {
	return ask[model.SetResult](ctx, c, http.MethodPatch, path("networks", network), nil, request)
}

// Quotas lists what owners and networks may have, and what they use.
func (c *Client) Quotas(ctx context.Context) ([]model.QuotaStatus, error) {
	return ask[[]model.QuotaStatus](ctx, c, http.MethodGet, path("quotas"), nil, nil)
}

// SetQuota changes a quota.
func (c *Client) SetQuota(ctx context.Context, kind model.QuotaKind, name string,
	request model.QuotaRequest) (model.QuotaStatus, error) {
	return ask[model.QuotaStatus](ctx, c, http.MethodPatch, path("quotas", string(kind), name), nil, request)
}

// Check probes what the network's document expects, and what the request asks for beside that. It returns when all is
// well or the request's Wait has passed; the result tells which.
func (c *Client) Check(ctx context.Context, network string, request model.CheckRequest) (model.CheckResult, error) {
	return ask[model.CheckResult](ctx, c, http.MethodPost, path("networks", network, "check"), nil, request)
}

// Substrate returns the physical nodes and links.
func (c *Client) Substrate(ctx context.Context) (model.Substrate, error) {
	return ask[model.Substrate](ctx, c, http.MethodGet, path("substrate"), nil, nil)
}

// WhatIf tells what would become of what runs if nodes went and others came. Nothing is changed.
func (c *Client) WhatIf(ctx context.Context, what model.WhatIf) (model.WhatIfResult, error) {
	return ask[model.WhatIfResult](ctx, c, http.MethodPost, path("what-if"), nil, what)
}

// Nodes lists the nodes by name.
func (c *Client) Nodes(ctx context.Context) ([]model.NodeStatus, error) {
	return ask[[]model.NodeStatus](ctx, c, http.MethodGet, path("nodes"), nil, nil)
}

// SubstrateLinks lists the links between the nodes with what was measured of them.
func (c *Client) SubstrateLinks(ctx context.Context) ([]model.SubstrateLinkStatus, error) {
	return ask[[]model.SubstrateLinkStatus](ctx, c, http.MethodGet, path("substrate", "links"), nil, nil)
}

// Node returns one node.
func (c *Client) Node(ctx context.Context, name string) (model.NodeStatus, error) {
	return ask[model.NodeStatus](ctx, c, http.MethodGet, path("nodes", name), nil, nil)
}

// Metrics copies the instance's metrics to w, in Prometheus's text format.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	resp, err := c.open(ctx, http.MethodGet, "/metrics", nil, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(w, resp.Body)
	return c.explain(err)
}

// Elements lists the elements of one network, or of all when network is empty.
func (c *Client) Elements(ctx context.Context, network string) ([]model.ElementView, error) {
	return ask[[]model.ElementView](ctx, c, http.MethodGet, path("elements"), ofNetwork(network), nil)
}

// Links lists the links of one network, or of all when network is empty.
func (c *Client) Links(ctx context.Context, network string) ([]model.LinkStatus, error) {
	return ask[[]model.LinkStatus](ctx, c, http.MethodGet, path("links"), ofNetwork(network), nil)
}

// Dump returns everything the manager knows of one network, or of all when network is empty.
func (c *Client) Dump(ctx context.Context, network string) (model.Dump, error) {
	return ask[model.Dump](ctx, c, http.MethodGet, path("dump"), ofNetwork(network), nil)
}

func ofNetwork(network string) url.Values {
	if network == "" {
		return nil
	}
	return url.Values{"network": {network}}
}
