package embedding

import (
	"cmp"
	"math"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// unlimited is the room of links that have no stated bandwidth.
const unlimited = model.Bandwidth(math.MaxUint64)

// graph is the substrate, with nodes by number. Several links between the same two nodes count as one.
type graph struct {
	nodes     []model.SubstrateNode
	index     map[string]int
	neighbour [][]int32 // by name
	arcs      map[[2]int32]*arc
	far       [][]metric // destination → node → distance; filled on demand
}

// arc is one direction of a link, which has its bandwidth to itself.
type arc struct {
	delay    model.Duration
	capacity model.Bandwidth
	others   model.Bandwidth // what other networks take
	taken    model.Bandwidth
}

// metric orders paths: fewer hops, then less delay.
type metric struct {
	hops  int32
	delay model.Duration
}

var unreachable = metric{hops: math.MaxInt32}

func (m metric) less(o metric) bool { return m.hops < o.hops || m.hops == o.hops && m.delay < o.delay }

// newGraph reads a substrate. If a substrate states no links at all, nobody has described how its machines are
// connected: then each reaches each directly, and no bandwidth is known.
func newGraph(sub model.Substrate) *graph {
	g := &graph{nodes: sub.Nodes, index: make(map[string]int, len(sub.Nodes)),
		neighbour: make([][]int32, len(sub.Nodes)),
		arcs:      map[[2]int32]*arc{}, far: make([][]metric, len(sub.Nodes))}
	for i, n := range sub.Nodes {
		g.index[n.Name] = i
	}
	links := sub.Links
	if len(links) == 0 {
		for i, a := range sub.Nodes {
			for _, b := range sub.Nodes[i+1:] {
				links = append(links, model.SubstrateLink{A: a.Name, B: b.Name})
			}
		}
	}
	for _, l := range links {
		a, okA := g.index[l.A]
		b, okB := g.index[l.B]
		if okA && okB && a != b {
			g.join(int32(a), int32(b), l)
			g.join(int32(b), int32(a), l)
		}
	}
	for i := range g.neighbour {
		slices.SortFunc(g.neighbour[i], func(x, y int32) int {
			if g.nodes[x].Name < g.nodes[y].Name {
				return -1
			}
			return 1
		})
	}
	return g
}

// join adds a link in one direction. Several between the same nodes are one, with their bandwidth together and the
// least delay among them. The sum must not overflow: it would look like little room.
func (g *graph) join(from, to int32, l model.SubstrateLink) {
	capacity := cmp.Or(l.Bandwidth, unlimited)
	if a := g.arcs[[2]int32{from, to}]; a != nil {
		a.delay = min(a.delay, l.Delay)
		if a.capacity > unlimited-capacity {
			a.capacity = unlimited
		} else {
			a.capacity += capacity
		}
		return
	}
	g.arcs[[2]int32{from, to}] = &arc{delay: l.Delay, capacity: capacity}
	g.neighbour[from] = append(g.neighbour[from], to)
}

// number is the node's, or -1.
func (g *graph) number(name string) int32 {
	if i, ok := g.index[name]; ok {
		return int32(i)
	}
	return -1
}

// take marks bandwidth as another network's.
func (g *graph) take(from, to string, bw model.Bandwidth) {
	if a := g.arcs[[2]int32{g.number(from), g.number(to)}]; a != nil {
		a.others += bw
		a.taken += bw
	}
}

// reset gives back what was reserved.
func (g *graph) reset() {
	for _, a := range g.arcs {
		a.taken = a.others
	}
}

// room is what is free from one node to its neighbour, in that direction and back.
func (g *graph) room(from, to int32) model.Bandwidth {
	one := func(a *arc) model.Bandwidth {
		if a.capacity == unlimited {
			return unlimited
		}
		return minus(a.capacity, a.taken)
	}
	return min(one(g.arcs[[2]int32{from, to}]), one(g.arcs[[2]int32{to, from}]))
}

// hasRoom tells whether the nodes are neighbours with that much bandwidth free in both directions.
func (g *graph) hasRoom(from, to int32, bw model.Bandwidth) bool {
	if g.arcs[[2]int32{from, to}] == nil {
		return false
	}
	return bw == 0 || g.room(from, to) >= bw
}

func (g *graph) reserve(nodes []string, bw model.Bandwidth) {
	if bw == 0 {
		return
	}
	for k := 1; k < len(nodes); k++ {
		a, b := g.number(nodes[k-1]), g.number(nodes[k])
		g.arcs[[2]int32{a, b}].taken += bw
		g.arcs[[2]int32{b, a}].taken += bw
	}
}

// distances are every node's to the destination, over the links and nodes that ok allows.
func (g *graph) distances(to int32, ok func(a, b int32) bool) []metric {
	dist := make([]metric, len(g.nodes))
	for i := range dist {
		dist[i] = unreachable
	}
	dist[to] = metric{}
	// Hops count first, so nodes are settled ring by ring.
	ring := []int32{to}
	for len(ring) > 0 {
		var next []int32
		for _, b := range ring {
			for _, a := range g.neighbour[b] {
				d := metric{dist[b].hops + 1, dist[b].delay + g.arcs[[2]int32{a, b}].delay}
				if !d.less(dist[a]) || ok != nil && !ok(a, b) {
					continue
				}
				if dist[a] == unreachable {
					next = append(next, a)
				}
				dist[a] = d
			}
		}
		ring = next
	}
	return dist
}

// distance is the number of hops between two nodes, with everything allowed.
func (g *graph) distance(a, b int32) int32 { return g.all(b)[a].hops }

func (g *graph) all(to int32) []metric {
	if g.far[to] == nil {
		g.far[to] = g.distances(to, nil)
	}
	return g.far[to]
}

// path is the shortest from a to b whose links have the bandwidth free; nil when there is none.
func (g *graph) path(a, b int32, bw model.Bandwidth) []string {
	ok := func(x, y int32) bool { return bw == 0 || g.hasRoom(x, y, bw) }
	if p := g.follow(a, b, g.all(b), ok); p != nil {
		return p
	}
	return g.follow(a, b, g.distances(b, ok), ok)
}

// follow walks down the distances from a to b. Among equals it takes the node whose name comes first, so that the
// answer is always the same. It gives up where ok refuses the way.
func (g *graph) follow(a, b int32, dist []metric, ok func(x, y int32) bool) []string {
	if dist[a] == unreachable {
		return nil
	}
	path := []string{g.nodes[a].Name}
	for a != b {
		n := g.nextHop(a, dist, ok)
		if n < 0 {
			return nil
		}
		path = append(path, g.nodes[n].Name)
		a = n
	}
	return path
}

// nextHop is a's neighbour on a shortest path, the first by name; -1 when there is none that ok allows.
func (g *graph) nextHop(a int32, dist []metric, ok func(x, y int32) bool) int32 {
	for _, n := range g.neighbour[a] {
		d := metric{dist[n].hops + 1, dist[n].delay + g.arcs[[2]int32{a, n}].delay}
		if dist[n] != unreachable && d == dist[a] && (ok == nil || ok(a, n)) {
			return n
		}
	}
	return -1
}

// ShortestPaths tells, for each node, the neighbour through which it reaches each other node: the shortest way by hops,
// then delay, then the next hop's name. Nodes that cannot be reached are left out.
func ShortestPaths(sub model.Substrate) map[string]map[string]string {
	g := newGraph(sub)
	routes := make(map[string]map[string]string, len(g.nodes))
	for _, n := range g.nodes {
		routes[n.Name] = map[string]string{}
	}
	for to := range g.nodes {
		dist := g.all(int32(to))
		for from := range g.nodes {
			if from == to || dist[from] == unreachable {
				continue
			}
			next := g.nextHop(int32(from), dist, nil)
			routes[g.nodes[from].Name][g.nodes[to].Name] = g.nodes[next].Name
		}
	}
	return routes
}
