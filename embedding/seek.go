package embedding

import (
	"slices"

	"github.com/polyplane/polyplane/embedding/search"
	"github.com/polyplane/polyplane/model"
)

// seek places and routes by the search. It serves where placing first and routing afterwards does not: where elements
// are to be on nodes of their own, or spread, and where links find no room. What is placed stays. Links keep their
// paths, unless the network would be refused otherwise.
func (e *embedder) seek(current model.Placement) (map[string][]model.LinkPath, []model.Problem) {
	e.problems = nil
	for i := range e.nodes {
		e.nodes[i].used = e.nodes[i].base
	}
	for i := range e.at {
		e.at[i], e.parent[i] = -1, int32(i)
	}
	if e.fix(); len(e.problems) > 0 {
		return nil, e.problems
	}
	q := e.question(current)
	found, stuck := search.Solve(&q.Problem)
	if found == nil && q.keeps() {
		q = e.question(model.Placement{Elements: current.Elements})
		found, _ = search.Solve(&q.Problem)
	}
	if found == nil {
		return nil, []model.Problem{e.stuck(q, stuck)}
	}
	copy(e.at, found.At)
	var paths map[string][]model.LinkPath
	for k, way := range found.Ways {
		if len(way) == 0 {
			continue
		}
		if paths == nil {
			paths = map[string][]model.LinkPath{}
		}
		l, at := &e.net.Links[q.links[k]], found.At[q.Links[k].A]
		nodes := append(make([]string, 0, len(way)+1), e.nodes[at].Name)
		for _, w := range way {
			at = q.Wires[w].A + q.Wires[w].B - at
			nodes = append(nodes, e.nodes[at].Name)
		}
		paths[l.Name] = []model.LinkPath{{Nodes: nodes, Bandwidth: e.net.Slice.Reserves(l)}}
	}
	return paths, nil
}

// query is what the search is asked.
type query struct {
	search.Problem
	links []int // the network's links by the search's
}

// keeps tells whether a link keeps a path that it has.
func (q *query) keeps() bool {
	return slices.ContainsFunc(q.Links, func(l search.Link) bool { return l.Way != nil })
}

// question puts the embedding's question by numbers.
func (e *embedder) question(current model.Placement) *query {
	e.sub.reset()
	p := &query{Problem: search.Problem{Groups: []search.Group{e.group()}, Left: e.steps}}
	regions, fair := regionsOf(e.sub.nodes), e.fairLoads()
	for n := range e.nodes {
		node := &e.nodes[n]
		p.Nodes = append(p.Nodes, search.Node{CPU: int64(minus(node.CPU, node.base.CPU)),
			Memory: int64(minus(node.Memory, node.base.Memory)), Load: int64(node.base.Weight), Fair: fair[n],
			Region: regions[n]})
	}
	var numbers map[[2]int32]int32
	p.Wires, numbers = e.sub.wires()
	for i := range e.net.Elements {
		el := &e.net.Elements[i]
		may := e.may[i]
		if e.location[i] != "" {
			may = e.inLocation(may, e.location[i])
		}
		p.Elements = append(p.Elements, search.Element{CPU: int64(el.CPU), Memory: int64(el.Memory),
			Load: int64(max(el.CPU, DefaultWeight)), At: e.pin[i], May: may})
	}
	for k := range e.net.Links {
		l := &e.net.Links[k]
		a, okA := e.index[l.Ends[0].Element]
		b, okB := e.index[l.Ends[1].Element]
		if !okA || !okB {
			continue
		}
		p.links = append(p.links, k)
		asked := search.Link{A: int32(a), B: int32(b), Demand: int64(e.net.Slice.Reserves(l))}
		if have := current.Links[l.Name]; len(have) == 1 && e.pin[a] >= 0 && e.pin[b] >= 0 && e.pin[a] != e.pin[b] &&
			e.serves(l, have[0], e.pin[a], e.pin[b]) {
			e.sub.reserve(have[0].Nodes, e.net.Slice.Reserves(l))
			for k := 1; k < len(have[0].Nodes); k++ {
				asked.Way = append(asked.Way,
					numbers[[2]int32{e.sub.number(have[0].Nodes[k-1]), e.sub.number(have[0].Nodes[k])}])
			}
		}
		p.Links = append(p.Links, asked)
	}
	return p
}

// group is how the network's elements are to be placed together.
func (e *embedder) group() search.Group {
	return search.Group{Alone: e.net.Placing.Distinct, Most: e.mostInLocation(),
		Pack: e.net.Placing.Policy == model.Pack}
}

// regionsOf are the nodes' locations by number; -1: none.
func regionsOf(nodes []model.SubstrateNode) []int32 {
	known := map[string]int32{"": -1}
	regions := make([]int32, len(nodes))
	for n := range nodes {
		if _, ok := known[nodes[n].Location]; !ok {
			known[nodes[n].Location] = int32(len(known) - 1)
		}
		regions[n] = known[nodes[n].Location]
	}
	return regions
}

// wires are what joins neighbours, and their numbers by the ends.
func (g *graph) wires() (wires []search.Wire, numbers map[[2]int32]int32) {
	numbers = map[[2]int32]int32{}
	for a := range g.neighbour {
		for _, b := range g.neighbour[a] {
			if b < int32(a) {
				continue
			}
			w := int32(len(wires))
			numbers[[2]int32{int32(a), b}], numbers[[2]int32{b, int32(a)}] = w, w
			wires = append(wires, g.wire(int32(a), b))
		}
	}
	return wires, numbers
}

// wire is what joins two neighbours.
func (g *graph) wire(a, b int32) search.Wire {
	there, back := g.arcs[[2]int32{a, b}], g.arcs[[2]int32{b, a}]
	w := search.Wire{A: a, B: b, Capacity: -1}
	if there.capacity != unlimited {
		// What is taken is the same in both directions, but for what somebody made by hand.
		w.Capacity = int64(min(there.capacity, 1<<60))
		w.Taken = int64(min(max(there.others, back.others), 1<<60))
	}
	return w
}

// inLocation leaves of the nodes that an element may be on those in a location.
func (e *embedder) inLocation(may []bool, location string) []bool {
	if may == nil {
		may = slices.Repeat([]bool{true}, len(e.nodes))
	}
	may = slices.Clone(may)
	for n := range e.nodes {
		may[n] = may[n] && e.nodes[n].Location == location
	}
	return may
}

// fairLoads are the loads that nodes have when all are as full for their size, a little more for neighbours' sake. None
// counts where elements are on nodes of their own, and where as few nodes as possible are to be used.
func (e *embedder) fairLoads() []int64 {
	fair := make([]int64, len(e.nodes))
	if e.net.Placing.Distinct || e.net.Placing.Policy == model.Pack {
		return fair
	}
	var all, cpu int64
	for n := range e.nodes {
		all += int64(e.nodes[n].base.Weight)
		cpu += int64(e.nodes[n].CPU)
	}
	for i := range e.net.Elements {
		all += int64(max(e.net.Elements[i].CPU, DefaultWeight))
	}
	for n := range e.nodes {
		fair[n] = fairLoad(all, cpu, e.nodes[n].CPU, len(e.nodes))
	}
	return fair
}

// fairLoad is a node's share of the load of all, by its part of their processors, and a little more.
func fairLoad(all, cpu int64, own model.CPU, nodes int) int64 {
	share := all / int64(nodes)
	if cpu > 0 {
		share = int64(float64(all) * (float64(own) / float64(cpu)))
	}
	return max(share+share/4, int64(DefaultWeight))
}
