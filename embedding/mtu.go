package embedding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// A link's MTU never depends on placement. A link is refused if any substrate link over which it could ever be mapped
// carries less than it needs, wherever its ends are now. It could be mapped over every link on some way between two
// nodes that its ends may be on. These are all nodes, unless a node, an edge or a location says otherwise. If both ends
// can be on one node only, or if there is only one node, nothing limits the MTU.

// tunnelOverhead6 is model.TunnelOverhead with an outer IPv6 header (40 bytes for 20).
const tunnelOverhead6 = model.TunnelOverhead + 20

// overhead is what a tunnel adds to a packet on this substrate.
func overhead(sub model.Substrate) int {
	for _, n := range sub.Nodes {
		if n.Address.Is6() && !n.Address.Is4In6() {
			return tunnelOverhead6
		}
	}
	return model.TunnelOverhead
}

// needed is what a link adds to its packets where it is mapped onto the underlay.
func (e *embedder) needed(l *model.Link) int {
	if l.VLANs != "" {
		return e.overhead + model.VLANTag
	}
	return e.overhead
}

// checkMTUs tells the links whose MTU the underlay does not carry everywhere. Links with the same trouble are told as
// one.
func (e *embedder) checkMTUs() {
	type trouble struct {
		mtu, adds int
		ways      string
	}
	type told struct {
		links []string
		mtu   int
		most  int
		small []string
	}
	limits := map[string]limit{}
	var order []trouble
	all := map[trouble]*told{}
	for k := range e.net.Links {
		l := &e.net.Links[k]
		lim, ways := e.limitOf(l, limits)
		mtu, adds := cmp.Or(l.MTU, model.DefaultMTU), e.needed(l)
		if lim.least == 0 || mtu+adds <= lim.least {
			continue
		}
		t := trouble{mtu, adds, ways}
		if all[t] == nil {
			order = append(order, t)
			all[t] = &told{mtu: mtu, most: lim.least - adds, small: lim.below(mtu + adds)}
		}
		all[t].links = append(all[t].links, l.Name)
	}
	for _, t := range order {
		x := all[t]
		subject, whose := "link "+x.links[0]+" has", "the link's MTU"
		if len(x.links) > 1 {
			subject, whose = "links "+list(x.links)+" have", "the links' MTU"
		}
		lower := fmt.Sprintf("lower %s to %d, or raise", whose, x.most)
		if x.most < model.MinMTU {
			lower = "raise"
		}
		e.refuse(model.AboutLink, x.links[0], "mtu",
			"%s an MTU of %d, so the underlay must carry %d wherever the ends may be placed, and %s; %s the "+
				"underlay's to %d, or "+
				"pin the ends (node:) to where it is carried", subject, x.mtu, x.mtu+t.adds, list(x.small),
			lower, x.mtu+t.adds)
	}
}

// limitOf is what the substrate carries wherever a link could be mapped. ways are what its ends may be on, and limits
// what is known already, by that.
func (e *embedder) limitOf(l *model.Link, limits map[string]limit) (lim limit, ways string) {
	i, okA := e.index[l.Ends[0].Element]
	j, okB := e.index[l.Ends[1].Element]
	if !okA || !okB {
		return limit{}, ""
	}
	ways = e.whereabouts(i) + "\x00" + e.whereabouts(j)
	lim, known := limits[ways]
	if !known {
		lim = e.sub.limitBetween(e.mayBe(i), e.mayBe(j))
		limits[ways] = lim
	}
	return lim, ways
}

// UsualMTU is the MTU of a network's links that state none: model.DefaultMTU, or less where the substrate does not
// carry that wherever these links may be mapped. It is one for all of them, so that those of one segment have the same.
// why says what carries less. Where even what IPv6 needs is not carried, it is the default, and Embed says what is
// wrong.
func UsualMTU(sub model.Substrate, net model.Resolved) (mtu int, why string) {
	e := newEmbedder(sub, Usage{}, net)
	e.constrain(model.Placement{})
	mtu = model.DefaultMTU
	if len(e.problems) > 0 { // Embed tells
		return mtu, ""
	}
	limits, told := map[string]limit{}, map[string]bool{}
	var small []string
	for k := range net.Links {
		if l := &net.Links[k]; l.MTU == 0 {
			lim, ways := e.limitOf(l, limits)
			adds := e.needed(l)
			if lim.least == 0 || lim.least-adds >= model.DefaultMTU {
				continue
			}
			mtu = min(mtu, lim.least-adds)
			if !told[ways] {
				told[ways] = true
				small = append(small, lim.below(model.DefaultMTU+adds)...)
			}
		}
	}
	if mtu < model.MinMTU6 {
		return model.DefaultMTU, ""
	}
	slices.Sort(small)
	return mtu, list(slices.Compact(small))
}

// mayBe are the nodes that an element may ever be placed on.
func (e *embedder) mayBe(i int) []int32 {
	if e.pin[i] >= 0 && !e.stays[i] {
		return []int32{e.pin[i]}
	}
	var nodes []int32
	for n := range e.nodes {
		if e.location[i] == "" || e.nodes[n].Location == e.location[i] {
			nodes = append(nodes, int32(n))
		}
	}
	return nodes
}

// whereabouts tells the nodes of mayBe by name.
func (e *embedder) whereabouts(i int) string {
	if e.pin[i] >= 0 && !e.stays[i] {
		return "node " + e.nodes[e.pin[i]].Name
	}
	return "location " + e.location[i]
}

// limit is what the substrate links on some ways carry.
type limit struct {
	least int // zero: everything
	links []carrying
}

// carrying is a substrate link with what it carries: what the smaller of its ends' underlays does.
type carrying struct {
	a, b string
	mtu  int
}

// below tells those that carry less than wanted.
func (l limit) below(wanted int) []string {
	var small []string
	for _, c := range l.links {
		if c.mtu < wanted {
			small = append(small, fmt.Sprintf("substrate link %s -- %s carries %d", c.a, c.b, c.mtu))
		}
	}
	return small
}

// Take such a path, add one node before all of a, one after all of b, and an arc between these two: this is a simple
// cycle. Two arcs are on a common simple cycle exactly if they are in the same biconnected component (Tarjan,
// "Depth-first search and linear graph algorithms", 1972). So the wanted links are those of the added arc's component.
func (g *graph) limitBetween(a, b []int32) limit {
	n := int32(len(g.nodes))
	s, t := n, n+1
	joined := make([][]int32, n+2)
	for i := range n {
		joined[i] = slices.Clone(g.neighbour[i])
	}
	join := func(x, y int32) {
		joined[x] = append(joined[x], y)
		joined[y] = append(joined[y], x)
	}
	join(s, t) // first: the search begins with it, and its component is the one that ends at s
	for _, x := range a {
		join(s, x)
	}
	for _, x := range b {
		join(t, x)
	}
	var l limit
	for _, arc := range component(joined, s, t) {
		if arc[0] >= n || arc[1] >= n {
			continue // one of those added
		}
		x, y := g.nodes[arc[0]], g.nodes[arc[1]]
		mtu := x.MTU
		if mtu == 0 || y.MTU != 0 && y.MTU < mtu {
			mtu = y.MTU // a node that states no MTU carries all
		}
		if mtu == 0 {
			continue
		}
		if x.Name > y.Name {
			x, y = y, x
		}
		l.links = append(l.links, carrying{x.Name, y.Name, mtu})
		if l.least == 0 || mtu < l.least {
			l.least = mtu
		}
	}
	slices.SortFunc(l.links, func(x, y carrying) int {
		return cmp.Or(strings.Compare(x.a, y.a), strings.Compare(x.b, y.b))
	})
	return l
}

// component returns the arcs of the biconnected component that the arc from s to t is in.
func component(joined [][]int32, s, t int32) [][2]int32 {
	seen := make([]int32, len(joined)) // in the order of the search, from 1
	low := make([]int32, len(joined))
	var arcs [][2]int32
	count := int32(1)
	seen[s], low[s] = count, count
	var visit func(x, from int32)
	visit = func(x, from int32) {
		count++
		seen[x], low[x] = count, count
		arcs = append(arcs, [2]int32{from, x})
		for _, y := range joined[x] {
			switch {
			case y == from:
			case seen[y] == 0:
				begin := len(arcs)
				visit(y, x)
				low[x] = min(low[x], low[y])
				if low[y] >= seen[x] {
					arcs = arcs[:begin] // a component of its own, behind x
				}
			case seen[y] < seen[x]:
				arcs = append(arcs, [2]int32{x, y})
				low[x] = min(low[x], seen[y])
			}
		}
	}
	visit(t, s) // what is left on the stack is the component of the first arc
	return arcs
}
