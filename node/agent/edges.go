package agent

import (
	"context"
	"net/netip"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/edge"
)

// applyEdges has the gateways of internet edges made, and returns the devices by which the fabric reaches them. If an
// edge fails, the element at it is reported as failed.
func (a *Agent) applyEdges(ctx context.Context, outcomes map[model.ID]*outcome) (map[edge.ID]string, error) {
	if a.Drivers.Edges == nil {
		return nil, nil
	}
	var all []edge.Edge
	ends := map[edge.ID]*outcome{}
	for _, n := range a.desired.Networks {
		for _, e := range n.Edges {
			o := outcomes[model.ID{Network: n.Name, Element: e.End.Element}]
			if e.Internet == nil || o == nil {
				continue
			}
			x := edge.Edge{ID: edge.ID{Network: n.Name, Edge: e.Name}, MTU: model.DefaultMTU, Internet: *e.Internet}
			for _, ifc := range o.job.Element.Interfaces {
				if ifc.Name == e.End.Interface && ifc.MTU != 0 {
					x.MTU = ifc.MTU
				}
			}
			all = append(all, x)
			ends[x.ID] = o
		}
	}
	nodes := each.Of(a.desired.Peers, func(p model.Peer) netip.Addr { return p.Address })
	report := a.Drivers.Edges.Apply(ctx, all, nodes)
	if ctx.Err() != nil {
		return report.Devices, nil
	}
	for id, err := range report.Failed {
		if o := ends[id]; o.err == nil {
			o.phase, o.err = model.PhaseFailed, err
		}
	}
	for _, e := range all {
		a.changes(e.ID.String(), report.Changed[e.ID])
	}
	switch was := a.noUplink; {
	case report.Warning == was:
	case report.Warning != "":
		a.event(model.Warning, a.Dirs.Node, "NoUplink", report.Warning)
	default:
		a.event(model.Info, a.Dirs.Node, "UplinkFound", "internet edges lead out again")
	}
	if a.noUplink = report.Warning; a.noUplink != "" {
		for _, o := range ends {
			if o.warning.Message == "" {
				o.warning.Reason, o.warning.Message = "NoUplink", a.noUplink
			}
		}
	}
	return report.Devices, report.Problem
}

// removeEdges removes the gateways of edges that are not desired.
func (a *Agent) removeEdges(ctx context.Context) error {
	if a.Drivers.Edges == nil {
		return nil
	}
	found, err := a.Drivers.Edges.List()
	if err != nil {
		return err
	}
	var gone []edge.ID
	for _, id := range found {
		e, ok := a.plan.edges[id.Network+" "+id.Edge]
		if (!ok || e.Internet == nil) && a.shallGo(id.Network) {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := a.Drivers.Edges.Remove(ctx, gone); err != nil {
		return err
	}
	for _, id := range gone {
		a.event(model.Info, id.String(), "EdgeRemoved", "internet edge removed")
	}
	return nil
}
