package search

import (
	"cmp"
	"container/heap"
	"slices"
)

// A plan of moves begins where everything is (Element.At, Link.Way), and changes one element at a time, so that nothing
// is given more than it has at any moment: while an element moves it is on both of its nodes, and each of its links has
// the wires of its old way and of its new one. A wire of both is used once, since a packet takes one of the ways.

// Limit bounds a plan.
type Limit struct{ Moves, Steps int }

// Move takes an element to another node, or, with Element -1, links to other ways.
type Move struct {
	Element, From, To int32
	Links             []int32   // those whose ways change
	Ways              [][]int32 // theirs afterwards, from A to B
	First             []int32   // the nodes that these begin at
}

// Plan is an order of moves, and what stays although it should not.
type Plan struct {
	Moves []Move
	Stays []Stay
	Spent bool // the steps had an end before all was tried
}

// Stay is an element that found no other node, or, with Element -1, a link that found no other way.
type Stay struct {
	Element, Link int32
	Whys          []Why  // by node; nil where the element is pinned
	Free          []Node // what nodes have left
}

// Why is why an element does not go to a node.
type Why int

const (
	NoWay    Why = iota // it would fit
	Itself              // it is there
	Unfit               // it may not be there
	NoCPU               // too little is free
	NoMemory            // likewise
	Taken               // another of its group is there
	Full                // the region has enough of its group
)

// Bounds of how room is made for one element.
const (
	roomNodes = 8  // nodes that room is made on
	roomMoves = 16 // elements that are tried on each, as what goes elsewhere
)

// planner makes a plan.
type planner struct {
	*state
	limit Limit
	moves []Move
	had   [][][]int32 // for each of the moves, what its links had
	avoid int32       // the node that nothing is to be on; -1: none
}

func newPlanner(p *Problem, limit Limit) *planner {
	m := &planner{state: newState(p), limit: limit, avoid: -1}
	m.steps = limit.Steps
	for l := range p.Links {
		if link := &p.Links[l]; m.at[link.A] != m.at[link.B] && link.Way != nil {
			m.take(int32(l), link.Way)
		}
	}
	return m
}

// Drain plans that elements leave a node, the largest first, and that links which lead through it go elsewhere.
func Drain(p *Problem, node int32, limit Limit) Plan {
	m := newPlanner(p, limit)
	m.avoid, m.closed = node, node
	var open []int32
	var plan Plan
	for i := range p.Elements {
		switch {
		case m.at[i] != node:
		case p.Elements[i].Pinned:
			plan.Stays = append(plan.Stays, Stay{Element: int32(i), Link: -1})
		default:
			open = append(open, int32(i))
		}
	}
	weight := make([]int64, len(p.Elements))
	for i := range m.ends {
		for _, end := range m.ends[i] {
			weight[i] += p.Links[end.link].Demand
		}
	}
	slices.SortStableFunc(open, func(a, b int32) int {
		x, y := &p.Elements[a], &p.Elements[b]
		return cmp.Or(cmp.Compare(y.CPU, x.CPU), cmp.Compare(y.Memory, x.Memory), cmp.Compare(weight[b], weight[a]))
	})
	// What found no place may find one once others are gone, so all are tried as long as one leaves.
	for before := -1; len(open) > 0 && len(open) != before; {
		before = len(open)
		open = slices.DeleteFunc(open, func(i int32) bool { return m.leave(i) || m.makeRoom(i) })
	}
	for _, i := range open {
		plan.Stays = append(plan.Stays, m.stay(i))
	}
	for l := range p.Links {
		if m.leadsThrough(int32(l), node) && !m.reroute(int32(l)) {
			plan.Stays = append(plan.Stays, Stay{Element: -1, Link: int32(l)})
		}
	}
	plan.Moves, plan.Spent = m.moves, m.steps <= 0 || len(m.moves) >= limit.Moves && len(plan.Stays) > 0
	return plan
}

// full tells whether no more may be planned.
func (m *planner) full() bool { return m.steps <= 0 || len(m.moves) >= m.limit.Moves }

// leave moves an element to the best node that takes it.
func (m *planner) leave(i int32) bool {
	for _, n := range m.goals(i, tries) {
		if !m.full() && m.shift(i, n) {
			return true
		}
	}
	return false
}

// goals are the best nodes for an element, as if its links were not there yet.
func (m *planner) goals(i int32, most int) []int32 {
	if m.full() {
		return nil
	}
	was := m.lift(i)
	nodes := slices.DeleteFunc(m.places(i, most+1), func(n int32) bool { return n == m.avoid || n == was.node })
	m.back(i, was)
	return nodes[:min(most, len(nodes))]
}

// makeRoom moves an element to a node that another one leaves for it.
func (m *planner) makeRoom(i int32) bool {
	el := &m.p.Elements[i]
	var nodes []int32
	for n := range m.p.Nodes {
		if int32(n) != m.avoid && int32(n) != m.at[i] && (el.May == nil || el.May[n]) && el.CPU <= m.p.Nodes[n].CPU &&
			el.Memory <= m.p.Nodes[n].Memory {
			nodes = append(nodes, int32(n))
		}
	}
	lacks := func(n int32) int64 {
		node := &m.p.Nodes[n]
		return max(el.CPU+m.cpu[n]-node.CPU, 0) + max(el.Memory+m.memory[n]-node.Memory, 0)>>20
	}
	slices.SortStableFunc(nodes, func(a, b int32) int { return cmp.Compare(lacks(a), lacks(b)) })
	for _, n := range nodes[:min(roomNodes, len(nodes))] {
		tried := 0
		for j := range m.at {
			if m.steps--; m.full() || tried == roomMoves {
				break
			}
			if m.at[j] != n || m.p.Elements[j].Pinned || !m.makes(i, int32(j)) {
				continue
			}
			tried++
			for _, to := range m.goals(int32(j), 2) {
				if len(m.moves)+2 > m.limit.Moves || !m.shift(int32(j), to) {
					continue
				}
				if m.shift(i, n) {
					return true
				}
				m.undo()
			}
		}
	}
	return false
}

// makes tells whether an element would fit onto another's node once that one is gone.
func (m *planner) makes(i, j int32) bool {
	n := m.at[j]
	m.book(j, n, -1)
	fits := m.fits(i, n)
	m.book(j, n, 1)
	return fits
}

// shift moves an element, and makes it a step of the plan. Where that is not possible, nothing is changed.
func (m *planner) shift(i, to int32) bool {
	from := m.at[i]
	if !m.takes(i, to) {
		return false
	}
	move := Move{Element: i, From: from, To: to}
	olds := make([][]int32, len(m.ends[i]))
	held := make([][]int32, len(m.ends[i]))
	m.settle(i, to)
	ok := true
	for k, end := range m.ends[i] {
		olds[k] = m.ways[end.link]
		m.free(end.link)
		ok = m.route(end.link)
		if !ok {
			m.take(end.link, olds[k])
			held, olds = held[:k], olds[:k]
			break
		}
		held[k] = without(olds[k], m.ways[end.link])
		m.charge(end.link, held[k], 1)
	}
	for k, way := range held {
		m.charge(m.ends[i][k].link, way, -1)
	}
	if !ok {
		for k := range olds {
			m.free(m.ends[i][k].link)
		}
		for k, way := range olds {
			m.take(m.ends[i][k].link, way)
		}
		m.book(i, to, -1)
		m.at[i] = from
		return false
	}
	m.book(i, from, -1)
	links := make([]int32, len(m.ends[i]))
	for k, end := range m.ends[i] {
		links[k] = end.link
	}
	m.note(move, links, olds)
	return true
}

// takes tells whether a node may and can have an element that leaves another one for it.
func (m *planner) takes(i, n int32) bool {
	from := m.at[i]
	m.book(i, from, -1) // its region may be the same
	fits := n != from && m.fits(i, n)
	m.book(i, from, 1)
	return fits
}

// note writes a move down, with the ways of links that it has changed. had are those from before.
func (m *planner) note(move Move, links []int32, had [][]int32) {
	var olds [][]int32
	for k, l := range links {
		if len(had[k]) == 0 && len(m.ways[l]) == 0 {
			continue
		}
		move.Links = append(move.Links, l)
		move.Ways = append(move.Ways, m.ways[l])
		move.First = append(move.First, m.at[m.p.Links[l].A])
		olds = append(olds, had[k])
	}
	m.moves, m.had = append(m.moves, move), append(m.had, olds)
}

// without are the wires of a way that another does not have.
func without(way, of []int32) (rest []int32) {
	for _, w := range way {
		if !slices.Contains(of, w) {
			rest = append(rest, w)
		}
	}
	return rest
}

// undo takes back the last step, an element's move.
func (m *planner) undo() {
	last := len(m.moves) - 1
	move, had := m.moves[last], m.had[last]
	m.moves, m.had = m.moves[:last], m.had[:last]
	for _, l := range move.Links {
		m.free(l)
	}
	m.book(move.Element, move.To, -1)
	m.settle(move.Element, move.From)
	for k, l := range move.Links {
		m.take(l, had[k])
	}
}

// leadsThrough tells whether a link's way leads through a node, and does not end there.
func (m *planner) leadsThrough(l, node int32) bool {
	link := &m.p.Links[l]
	at := m.at[link.A]
	if at == node || m.at[link.B] == node {
		return false
	}
	for _, w := range m.ways[l] {
		if at = m.other(w, at); at == node {
			return true
		}
	}
	return false
}

// reroute takes a link elsewhere, and makes that a step of the plan.
func (m *planner) reroute(l int32) bool {
	if m.full() {
		return false
	}
	old := m.ways[l]
	m.free(l)
	if !m.route(l) {
		m.take(l, old)
		return false
	}
	m.note(Move{Element: -1, From: -1, To: -1}, []int32{l}, [][]int32{old})
	return true
}

// stay tells why an element is where it is.
func (m *planner) stay(i int32) Stay {
	stay := Stay{Element: i, Link: -1, Whys: make([]Why, len(m.p.Nodes)), Free: make([]Node, len(m.p.Nodes))}
	el := &m.p.Elements[i]
	g := &m.groups[el.Group]
	for n := range m.p.Nodes {
		node := &m.p.Nodes[n]
		free := Node{CPU: max(node.CPU-m.cpu[n], 0), Memory: max(node.Memory-m.memory[n], 0)}
		stay.Free[n] = free
		switch {
		case m.at[i] == int32(n):
			stay.Whys[n] = Itself
		case el.May != nil && !el.May[n]:
			stay.Whys[n] = Unfit
		case el.CPU > free.CPU:
			stay.Whys[n] = NoCPU
		case el.Memory > free.Memory:
			stay.Whys[n] = NoMemory
		case g.Alone && g.holds[n] > 0:
			stay.Whys[n] = Taken
		case !m.takes(i, int32(n)):
			stay.Whys[n] = Full
		}
	}
	return stay
}

// Rebalance plans the moves that save most, one after the other, as long as each is worth its while.
func Rebalance(p *Problem, limit Limit) Plan {
	m := newPlanner(p, limit)
	for before := -1; len(m.moves) > before && !m.full(); { // what moves may make others worth it that were not
		before = len(m.moves)
		m.balance()
	}
	return Plan{Moves: m.moves, Spent: m.steps <= 0}
}

// balance looks at each element once, and again where it has become another case.
func (m *planner) balance() {
	var hopes hopes
	for i := range m.p.Elements {
		if !m.p.Elements[i].Pinned {
			hopes = append(hopes, hope{1 << 62, int32(i)}) // it is looked at first
		}
	}
	heap.Init(&hopes)
	for len(hopes) > 0 && !m.full() {
		top := hopes[0]
		gain, to := m.worth(top.element)
		if gain <= 0 {
			heap.Pop(&hopes)
			continue
		}
		if gain < top.gain { // it was thought to be worth more; others may be better now
			hopes[0].gain = gain
			heap.Fix(&hopes, 0)
			if hopes[0].element != top.element {
				continue
			}
		}
		heap.Pop(&hopes)
		if !m.shift(top.element, to) {
			continue
		}
		for _, end := range m.ends[top.element] { // what is beside it may follow
			if !m.p.Elements[end.to].Pinned {
				m.steps -= len(hopes)
				hopes.again(end.to)
			}
		}
	}
}

// worth is what moving an element would save, and where it would go. Nothing is what does not save enough.
func (m *planner) worth(i int32) (gain int64, to int32) {
	demand := int64(0)
	for _, end := range m.ends[i] {
		demand += m.p.Links[end.link].Demand
	}
	from, cost, load := m.at[i], m.cost, m.p.Elements[i].Load
	for _, n := range m.goals(i, 2) {
		balance := m.overload(from, m.load[from]) - m.overload(from, m.load[from]-load) +
			m.overload(n, m.load[n]) - m.overload(n, m.load[n]+load)
		if !m.shift(i, n) {
			continue
		}
		saved := cost - m.cost
		m.undo()
		worthIt := balance >= overloadOne*one/20 || demand > 0 && saved-balance >= demand/1000*6*one/4
		if saved > gain && worthIt {
			gain, to = saved, n
		}
	}
	return gain, to
}

// hopes are elements by what moving them is thought to save, the most first.
type hopes []hope

type hope struct {
	gain    int64
	element int32
}

func (h hopes) Len() int { return len(h) }
func (h hopes) Less(i, j int) bool {
	return h[i].gain > h[j].gain || h[i].gain == h[j].gain && h[i].element < h[j].element
}
func (h hopes) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *hopes) Push(x any)   { *h = append(*h, x.(hope)) }
func (h *hopes) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// again has an element looked at again.
func (h *hopes) again(i int32) {
	for k := range *h {
		if (*h)[k].element == i {
			(*h)[k].gain = 1 << 62
			heap.Fix(h, k)
			return
		}
	}
	heap.Push(h, hope{1 << 62, i})
}
