package search

import (
	"cmp"
	"slices"
)

// A bit more on a wire costs one + crowd·use², so that ways lead around full wires where that is not far. 0.15 to 0.5
// were as good as each other; with 1 and 2 fewer requests were accepted.
const (
	one   = 1000
	crowd = 300
)

// overloadOne is what each thousandth costs that a node is filled above its fair load: more than any way around.
const overloadOne = int64(1) << 33

// state is a search under way.
type state struct {
	p      *Problem
	at     []int32
	ways   [][]int32
	cost   int64
	weight []int64 // link → what it counts for
	ends   [][]end // element → its links to other elements
	arcs   [][]arc // node → what leaves it
	wires  []wire
	prices []int64 // wire → of a bit more
	rooms  []int64 // wire → what is free

	cpu, memory, load []int64 // node → what is taken, others' load included
	groups            []group

	order []int32 // elements, those with fixed places first
	fixed int
	steps int
	depth int
	stuck Stuck

	closed int32 // a node that no way leads through; -1: none

	dijkstra
	price []int64 // of places, node → what an element's links would cost there
}

type end struct{ to, link int32 }

// group is how the elements of one are spread.
type group struct {
	Group
	holds   []int // node → elements; nil where that does not matter
	regions []int // region → elements; likewise
}

type arc struct{ to, wire int32 }

type wire struct {
	Wire
	others int64
	cost   int64 // of what the links take
}

func newState(p *Problem) *state {
	s := &state{p: p, steps: Steps(p), closed: -1, at: make([]int32, len(p.Elements)),
		ways: make([][]int32, len(p.Links)), weight: make([]int64, len(p.Links)), ends: make([][]end, len(p.Elements)),
		arcs: make([][]arc, len(p.Nodes)), wires: make([]wire, len(p.Wires)),
		prices: make([]int64, len(p.Wires)), rooms: make([]int64, len(p.Wires)), cpu: make([]int64, len(p.Nodes)),
		memory: make([]int64, len(p.Nodes)), load: make([]int64, len(p.Nodes)),
		groups: make([]group, len(p.Groups)), price: make([]int64, len(p.Nodes)), dijkstra: newDijkstra(len(p.Nodes))}
	regions := int32(0)
	for n := range p.Nodes {
		s.load[n] = p.Nodes[n].Load
		regions = max(regions, p.Nodes[n].Region+1)
	}
	for g := range p.Groups {
		s.groups[g].Group = p.Groups[g]
		if p.Groups[g].Alone || p.Groups[g].Pack {
			s.groups[g].holds = make([]int, len(p.Nodes))
		}
		if p.Groups[g].Most > 0 {
			s.groups[g].regions = make([]int, regions)
		}
	}
	for i, w := range p.Wires {
		s.wires[i] = wire{Wire: w, others: w.Taken}
		s.reprice(int32(i))
		s.arcs[w.A] = append(s.arcs[w.A], arc{w.B, int32(i)})
		s.arcs[w.B] = append(s.arcs[w.B], arc{w.A, int32(i)})
	}
	least := int64(0)
	for _, l := range p.Links {
		if l.Demand > 0 && (least == 0 || l.Demand < least) {
			least = l.Demand
		}
	}
	for i, l := range p.Links {
		// Links that reserve nothing are to be short as well, but count for less than those that do.
		s.weight[i] = max(l.Demand, least/16, 1000)
		if l.A != l.B {
			s.ends[l.A] = append(s.ends[l.A], end{l.B, int32(i)})
			s.ends[l.B] = append(s.ends[l.B], end{l.A, int32(i)})
		}
	}
	for i := range s.ends { // the heaviest is routed first
		slices.SortStableFunc(s.ends[i], func(a, b end) int { return cmp.Compare(s.weight[b.link], s.weight[a.link]) })
	}
	for i := range s.at {
		s.at[i] = -1
	}
	for i := range p.Elements {
		if n := p.Elements[i].At; n >= 0 {
			s.settle(int32(i), n)
		}
	}
	return s
}

// use is how full the wire is with that much on it, in thousandths.
func (w *wire) use(taken int64) int64 {
	if w.Capacity <= 0 {
		return 0
	}
	if taken > 1<<50 {
		return min(taken/max(w.Capacity/one, 1), one)
	}
	return min(taken*one/w.Capacity, one)
}

// reprice works out what the wire costs now. What is taken costs the sum of the prices that its bits had, so the order
// in which links are routed makes no difference.
func (s *state) reprice(k int32) {
	w := &s.wires[k]
	sum := func(taken int64) int64 {
		u := w.use(taken)
		return taken / 1000 * (6*one + 2*crowd*u*u/(one*one))
	}
	u := w.use(w.Taken)
	s.prices[k], s.rooms[k] = one+crowd*u*u/(one*one), 1<<60
	if w.Capacity >= 0 {
		s.rooms[k] = w.Capacity - w.Taken
	}
	w.cost = sum(w.Taken) - sum(w.others)
}

// settle puts an element onto a node, without its links.
func (s *state) settle(i, n int32) {
	s.at[i] = n
	s.book(i, n, 1)
}

func (s *state) unsettle(i int32) {
	s.book(i, s.at[i], -1)
	s.at[i] = -1
}

// book counts an element on a node, or no longer.
func (s *state) book(i, n int32, sign int64) {
	el, g := &s.p.Elements[i], &s.groups[s.p.Elements[i].Group]
	s.cost -= s.overload(n, s.load[n])
	s.cpu[n] += sign * el.CPU
	s.memory[n] += sign * el.Memory
	s.load[n] += sign * el.Load
	s.cost += s.overload(n, s.load[n])
	if g.holds != nil {
		s.cost -= g.opened(n)
		g.holds[n] += int(sign)
		s.cost += g.opened(n)
	}
	if region := s.p.Nodes[n].Region; g.regions != nil && region >= 0 {
		g.regions[region] += int(sign)
	}
}

// opened is what it costs that elements of a group which is to be on few nodes are on one.
func (g *group) opened(n int32) int64 {
	if !g.Pack || g.holds[n] == 0 {
		return 0
	}
	return overloadOne * one
}

// overload is what it costs to fill a node above its fair load.
func (s *state) overload(n int32, load int64) int64 {
	fair := s.p.Nodes[n].Fair
	if fair <= 0 || load <= fair {
		return 0
	}
	return min(load-fair, 1<<29) * overloadOne / fair * one
}

// fits tells whether a node may and can take an element.
func (s *state) fits(i, n int32) bool {
	el, node := &s.p.Elements[i], &s.p.Nodes[n]
	g := &s.groups[el.Group]
	return (el.May == nil || el.May[n]) && (el.CPU == 0 || s.cpu[n]+el.CPU <= node.CPU) &&
		(el.Memory == 0 || s.memory[n]+el.Memory <= node.Memory) && !(g.Alone && g.holds[n] > 0) &&
		(g.Most == 0 || node.Region >= 0 && g.regions[node.Region] < g.Most)
}

// places are the nodes where an element would cost least, the best first.
func (s *state) places(i int32, most int) []int32 {
	s.steps -= len(s.price)
	any := false
	for n := range s.price {
		s.price[n] = 0
		if !s.fits(i, int32(n)) {
			s.price[n] = -1
		} else {
			any = true
		}
	}
	if !any {
		return nil
	}
	joined := false
	for _, end := range s.ends[i] {
		to := s.at[end.to]
		if to < 0 {
			continue
		}
		joined = true
		s.search(to, -1, s.p.Links[end.link].Demand)
		for n := range s.price {
			if s.price[n] < 0 {
				continue
			}
			if s.far[n] == nowhere {
				s.price[n] = -1
				continue
			}
			s.price[n] += s.weight[end.link] / 1000 * s.far[n]
		}
	}
	el := &s.p.Elements[i]
	for n := range s.price {
		if s.price[n] >= 0 {
			s.price[n] += (s.overload(int32(n), s.load[n]+el.Load) - s.overload(int32(n), s.load[n])) / 6
			if g := &s.groups[el.Group]; g.Pack && g.holds[n] == 0 {
				s.price[n] += overloadOne * one / 6
			}
		}
	}
	if !joined { // nothing draws it anywhere
		for rank, n := range s.rich() {
			if s.price[n] >= 0 {
				s.price[n] += int64(rank)
			}
		}
	}
	// The few best are picked out, in order. Of equals the least loaded is better.
	better := func(a, b int32) bool {
		return s.price[a] < s.price[b] || s.price[a] == s.price[b] && s.load[a] < s.load[b]
	}
	var chosen []int32
	for n := range int32(len(s.price)) {
		if s.price[n] < 0 || len(chosen) == most && !better(n, chosen[most-1]) {
			continue
		}
		k := len(chosen)
		if k < most {
			chosen = append(chosen, n)
		} else {
			k--
		}
		for ; k > 0 && better(n, chosen[k-1]); k-- {
			chosen[k] = chosen[k-1]
		}
		chosen[k] = n
	}
	return chosen
}

// put places an element and routes its links to what is placed. If one finds no way nothing is changed.
func (s *state) put(i, n int32) bool {
	s.settle(i, n)
	for k, end := range s.ends[i] {
		if s.at[end.to] < 0 || s.route(end.link) {
			continue
		}
		for _, before := range s.ends[i][:k] {
			s.free(before.link)
		}
		s.unsettle(i)
		return false
	}
	return true
}

// lifted is what an element had.
type lifted struct {
	node int32
	ways [][]int32
	cost int64 // of everything
}

// lift takes an element and its links off the substrate.
func (s *state) lift(i int32) lifted {
	was := lifted{node: s.at[i], ways: make([][]int32, len(s.ends[i])), cost: s.cost}
	for k, end := range s.ends[i] {
		was.ways[k] = s.ways[end.link]
		s.free(end.link)
	}
	s.unsettle(i)
	return was
}

// back undoes a lift.
func (s *state) back(i int32, was lifted) {
	s.settle(i, was.node)
	for k, end := range s.ends[i] {
		if was.ways[k] != nil {
			s.take(end.link, was.ways[k])
		}
	}
}

// take reserves a way for a link.
func (s *state) take(l int32, way []int32) {
	s.ways[l] = way
	s.charge(l, way, 1)
}

// free gives a link's way back.
func (s *state) free(l int32) {
	s.charge(l, s.ways[l], -1)
	s.ways[l] = nil
}

func (s *state) charge(l int32, way []int32, sign int64) {
	demand := s.p.Links[l].Demand
	for _, k := range way {
		w := &s.wires[k]
		if demand == 0 {
			s.cost += sign * (s.weight[l] / 1000) * 6 * one
			continue
		}
		s.cost -= w.cost
		w.Taken += sign * demand
		s.reprice(k)
		s.cost += w.cost
	}
}

// route finds the cheapest way for a link between elements with places and takes it.
func (s *state) route(l int32) bool {
	link := &s.p.Links[l]
	a, b := s.at[link.A], s.at[link.B]
	if a == b {
		return true
	}
	s.search(a, b, link.Demand)
	if s.far[b] == nowhere {
		return false
	}
	hops := 0
	for n := b; n != a; n = s.other(s.from[n], n) {
		hops++
	}
	way := make([]int32, hops)
	for n := b; n != a; n = s.other(s.from[n], n) {
		hops--
		way[hops] = s.from[n]
	}
	s.take(l, way)
	return true
}

func (s *state) other(w, n int32) int32 { return s.wires[w].A + s.wires[w].B - n }

// routeFixed routes the links between elements that have their places: those that have a way keep it, of the others
// the heaviest go first.
func (s *state) routeFixed() *Stuck {
	var open []int32
	for l := range s.p.Links {
		link := &s.p.Links[l]
		switch {
		case s.at[link.A] < 0 || s.at[link.B] < 0 || s.at[link.A] == s.at[link.B]:
		case link.Way != nil:
			s.take(int32(l), link.Way)
		default:
			open = append(open, int32(l))
		}
	}
	slices.SortStableFunc(open, func(a, b int32) int { return cmp.Compare(s.weight[b], s.weight[a]) })
	for _, l := range open {
		if !s.route(l) {
			return &Stuck{At: slices.Clone(s.at), Element: -1, Link: l}
		}
	}
	return nil
}

func (s *state) save() *Solution {
	return &Solution{At: slices.Clone(s.at), Ways: slices.Clone(s.ways), Cost: s.cost}
}

// restore makes everything as it was saved.
func (s *state) restore(was *Solution) {
	for l := range s.ways {
		s.free(int32(l))
	}
	for i := range s.at {
		if s.at[i] >= 0 && s.p.Elements[i].At < 0 {
			s.unsettle(int32(i))
		}
	}
	for i, n := range was.At {
		if n >= 0 && s.p.Elements[i].At < 0 {
			s.settle(int32(i), n)
		}
	}
	for l, way := range was.Ways {
		s.take(int32(l), way)
	}
}

// queue yields elements by what they have towards the others, entries of earlier figures included: whoever pops leaves
// out what was served already.
type queue []queued

type queued struct {
	towards, weight, cpu int64
	element              int32
}

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	a, b := &q[i], &q[j]
	return cmp.Or(cmp.Compare(b.towards, a.towards), cmp.Compare(b.weight, a.weight), cmp.Compare(b.cpu, a.cpu),
		cmp.Compare(a.element, b.element)) < 0
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(queued)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
