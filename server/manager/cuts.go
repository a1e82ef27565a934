package manager

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/server/api"
)

// When a link of the substrate is cut, the links of networks that are on it get other paths, where there are some. It
// counts as cut when both nodes at its ends tell that the other one no longer answers, and both tell all else: a node
// whose agent is away does not answer either, while its packets go on. Whoever has got another path stays there when
// the cut is mended.

// cuts is what is done about cut links of the substrate.
type cuts struct {
	*Manager
	last  string          // the cuts that were looked at last
	stuck map[linkID]bool // links on these that have no other way
}

// cutLinks are the substrate's links that are cut, as "a -- b". The caller holds the lock.
func (k *known) cutLinks() []string {
	var cut []string
	down := func(from, to string) bool {
		n, is := k.nodes[from], k.nodes.measured(from, to)
		return n != nil && n.Simulated && n.mute() == "" && is != nil && !is.Up && is.RTTMedian > 0
	}
	for i := range k.substrate.Links {
		if l := &k.substrate.Links[i]; down(l.A, l.B) && down(l.B, l.A) {
			cut = append(cut, cutName(l.A, l.B))
		}
	}
	slices.Sort(cut)
	return cut
}

func cutName(a, b string) string { return min(a, b) + " -- " + max(a, b) }

// over is the first of the cut links that a path leads over; empty if there is none.
func over(path []string, cut []string) string {
	for i := 1; i < len(path); i++ {
		if name := cutName(path[i-1], path[i]); slices.Contains(cut, name) {
			return name
		}
	}
	return ""
}

// step has links leave what is cut.
func (c *cuts) step(ctx context.Context) {
	c.mu.RLock()
	cut := c.cutLinks()
	if key := strings.Join(cut, ", "); key != c.last || c.silent != "" {
		c.last, c.stuck = key, map[linkID]bool{}
	}
	on := c.on(cut)
	silent := c.silent != ""
	c.mu.RUnlock()
	if len(on) == 0 || silent {
		return
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	c.mu.RLock()
	on = c.on(cut)
	c.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(on)) {
		if err := c.leave(ctx, name, on[name], cut); err != nil {
			slog.Error("links cannot leave what is cut yet", "network", name, "error", err)
		}
	}
}

// on are the links that lead over what is cut, by network, without those that have no other way. The caller holds the
// lock.
func (c *cuts) on(cut []string) map[string][]string {
	on := map[string][]string{}
	if len(cut) == 0 {
		return on
	}
	for name, n := range c.networks {
		if n.damaged != nil || n.record.Deleting {
			continue
		}
		for i := range n.resolved.Links {
			link := n.resolved.Links[i].Name
			paths := n.record.Assigned.Placement.Links[link]
			if len(paths) == 1 && over(paths[0].Nodes, cut) != "" && !c.stuck[linkID{name, link}] {
				on[name] = append(on[name], link)
			}
		}
	}
	return on
}

// leave gives links of a network paths without what is cut. Those that have none stay, and it is told. The caller holds
// changing.
func (c *cuts) leave(ctx context.Context, name string, links, cut []string) error {
	_, others, err := c.situations([]model.Document{{Network: model.Network{Name: name}}})
	if err != nil {
		return err
	}
	s := c.situationOf(others, false)
	whole := s.Substrate
	s.Substrate.Links = slices.DeleteFunc(slices.Clone(whole.Links),
		func(l model.SubstrateLink) bool { return slices.Contains(cut, cutName(l.A, l.B)) })
	c.mu.RLock()
	n := c.networks[name]
	c.mu.RUnlock()
	next := n.record
	next.Assigned.Links = maps.Clone(next.Assigned.Links)
	next.Assigned.Placement.Links = maps.Clone(next.Assigned.Placement.Links)
	used := embedding.UsageOf(others)
	// route finds other paths for some of the links, beside all that are not on a cut.
	route := func(these ...string) bool {
		net := n.resolved
		net.Links = slices.DeleteFunc(slices.Clone(net.Links), func(l model.Link) bool {
			paths := next.Assigned.Placement.Links[l.Name]
			return len(paths) == 1 && over(paths[0].Nodes, cut) != "" && !slices.Contains(these, l.Name)
		})
		p, err := embedding.Embed(s.Substrate, s.Offers, used, net,
			embedding.Current{Placement: next.Assigned.Placement, Network: n.resolved})
		if err != nil || !maps.Equal(p.Elements, next.Assigned.Placement.Elements) {
			return false
		}
		for _, l := range these {
			next.Assigned.Placement.Links[l] = p.Links[l]
		}
		return true
	}
	var stuck []string
	if !route(links...) {
		for _, l := range links {
			if !route(l) {
				stuck = append(stuck, l)
			}
		}
	}
	taken := []model.Assigned{n.record.Assigned}
	for i := range others {
		taken = append(taken, others[i].Assigned)
	}
	if err := next.Assigned.Turn(&n.record.Assigned, whole, resolve.NewNumbers(taken...).VNI); err != nil {
		return api.Conflict("%v", err)
	}
	if len(stuck) < len(links) {
		if err := c.commit(ctx, &change{record: next, resolved: n.resolved}); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range stuck {
		c.stuck[linkID{name, l}] = true
		path := n.record.Assigned.Placement.Links[l][0].Nodes
		c.networkEvent(model.Warning, name+"/"+l, "PathCut", fmt.Sprintf("its path %s leads over %s, which is cut, "+
			"and no other way has room for it", strings.Join(path, "→"), over(path, cut)), "")
	}
	return nil
}
