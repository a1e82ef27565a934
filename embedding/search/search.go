// Package search places elements and routes their links in one go. It knows nodes, wires, elements and links by number
// and nothing of what they are called: package embedding asks it.
//
// The heaviest element starts at each of the nodes with the most bandwidth in turn. Always the element with the most
// bandwidth to what is placed comes next. It goes where its links cost least, and they are routed at once; where one
// finds no way, the next best node is tried. Then elements and pairs of them are lifted and placed again, and links
// are routed again, as long as it costs less.
//
// A search is bounded by steps, not by time, and all its figures are integers: the same question has the same answer
// on a busy machine and on another processor.
package search

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/polyplane/polyplane/each"
)

// Bounds of a search. They were chosen on other instances than those that docs/performance.md tells of.
const (
	steps  = 1_500_000 // arcs that are looked at, beside those of one beginning
	orders = 2         // of the elements
	starts = 40        // nodes that the first element is tried on
	best   = 3         // of the placements found, how many are improved
	tries  = 8         // nodes that an element is tried on
	rounds = 4         // of improving
	pairs  = 3         // nodes that the first element of a pair is tried on
	dearer = 1100      // thousandths of the least cost so far, above which a placement is given up

	mostSteps = 60_000_000 // whatever the size
)

// Problem is a question. The search changes nothing in it but what is Left.
type Problem struct {
	Nodes    []Node
	Wires    []Wire
	Groups   []Group // of elements
	Elements []Element
	Links    []Link
	// Left are the steps that this and other searches may still take together; nil: as many as Steps tells.
	Left *int
}

// Group is what elements are placed by together.
type Group struct {
	Alone bool // no two of them share a node
	Most  int  // of them in a region; 0: any number
	Pack  bool // they are to be on few nodes
}

// Node is a machine that elements may be on.
type Node struct {
	CPU, Memory int64 // free; what nobody asks for fits in any case
	Load        int64 // of others
	Fair        int64 // the load above which it is only used where nothing else serves; 0: none
	Region      int32 // what Most counts by; -1: in none, so elements that may be anywhere are not put there
}

// Wire joins two nodes and has the same room in both directions.
type Wire struct {
	A, B     int32
	Capacity int64 // -1: unlimited
	Taken    int64 // by others
}

// Element is what is placed.
type Element struct {
	CPU, Memory, Load int64
	Group             int32
	At                int32  // the node that it must be on; -1: none
	May               []bool // nodes that it may be on; nil: all
	Pinned            bool   // it does not move; for plans
}

// Link joins two elements.
type Link struct {
	A, B   int32
	Demand int64   // of each wire that it takes
	Way    []int32 // the wires that it has and keeps, from A to B
}

// Solution says where everything is.
type Solution struct {
	At   []int32   // element → node
	Ways [][]int32 // link → the wires from A to B; none where both are on one node
	Cost int64
}

// Stuck says how far the best attempt came.
type Stuck struct {
	At      []int32 // element → node, or -1
	Element int32   // the one that found no place; -1 where a link between elements with places found no way
	Link    int32   // that link
	Spent   bool    // the steps had an end before all was tried
}

// Steps is how many steps a search may take: enough for one beginning of any size that a network may have on some
// hundred nodes, and for many of small ones.
func Steps(p *Problem) int {
	arcs := 2*len(p.Wires) + len(p.Nodes)
	return min(steps+5*len(p.Elements)*len(p.Nodes)+3*len(p.Links)*arcs, mostSteps)
}

// Solve searches for the cheapest placement. Where it finds none, it tells how far it came.
func Solve(p *Problem) (*Solution, *Stuck) {
	s := newState(p)
	if p.Left != nil {
		s.steps = max(0, min(s.steps, *p.Left))
		defer func(had int) { *p.Left -= had - s.steps }(s.steps)
	}
	if stuck := s.routeFixed(); stuck != nil {
		return nil, stuck
	}
	ground := s.save()
	var found []*Solution
	for first, k := int32(-1), 0; k < orders && len(found) == 0 && s.steps > 0; k++ {
		s.restore(ground)
		s.arrange(first)
		found = s.beginAnywhere(ground)
		// Where no order of this kind works out, the element that found no place goes first.
		if s.stuck.At != nil {
			if first == s.stuck.Element || first < 0 && s.fixed < len(s.order) && s.order[s.fixed] == s.stuck.Element {
				break
			}
			first = s.stuck.Element
		}
	}
	if len(found) == 0 {
		s.stuck.Spent = s.steps <= 0
		return nil, &s.stuck
	}
	slices.SortStableFunc(found, func(a, b *Solution) int { return cmp.Compare(a.Cost, b.Cost) })
	found = slices.CompactFunc(found, func(a, b *Solution) bool { return slices.Equal(a.At, b.At) })
	cheapest := found[0]
	for _, f := range found[:min(best, len(found))] {
		s.restore(f)
		s.improve()
		if now := s.save(); now.Cost < cheapest.Cost {
			cheapest = now
		}
	}
	return cheapest, nil
}

// beginAnywhere grows placements from each of the beginnings.
func (s *state) beginAnywhere(ground *Solution) (found []*Solution) {
	least := int64(1 << 62)
	for _, start := range s.beginnings() {
		s.restore(ground)
		if s.grow(start, least) {
			found = append(found, s.save())
			least = min(least, s.cost)
		}
		if s.steps <= 0 {
			break
		}
	}
	return found
}

// arrange puts the elements into the order in which they are placed: the heaviest first, then always the one with the
// most bandwidth to those before it.
func (s *state) arrange(first int32) {
	s.order = s.order[:0]
	n := len(s.p.Elements)
	weight, towards := make([]int64, n), make([]int64, n)
	for l := range s.p.Links {
		link := &s.p.Links[l]
		weight[link.A] += s.weight[l]
		weight[link.B] += s.weight[l]
	}
	in := make([]bool, n)
	var next queue
	push := func(i int32) {
		heap.Push(&next, queued{towards[i], weight[i], s.p.Elements[i].CPU, i})
	}
	add := func(i int32) {
		in[i] = true
		s.order = append(s.order, i)
		for _, end := range s.ends[i] {
			if towards[end.to] += s.weight[end.link]; !in[end.to] {
				push(end.to)
			}
		}
	}
	for i := range s.p.Elements {
		if s.at[i] >= 0 {
			add(int32(i))
		} else {
			push(int32(i))
		}
	}
	s.fixed = len(s.order)
	if first >= 0 {
		add(first)
	}
	for len(s.order) < n {
		if i := heap.Pop(&next).(queued).element; !in[i] {
			add(i)
		}
	}
}

// beginnings are the nodes that the first element is tried on, those with the most bandwidth first; -1 where it follows
// from what is placed already.
func (s *state) beginnings() []int32 {
	if s.fixed == len(s.order) {
		return []int32{-1}
	}
	first := s.order[s.fixed]
	for _, end := range s.ends[first] {
		if s.at[end.to] >= 0 {
			return []int32{-1}
		}
	}
	nodes := each.That(s.rich(), func(n int32) bool { return s.fits(first, n) })
	if len(nodes) == 0 {
		return []int32{-1}
	}
	return nodes[:min(starts, len(nodes))]
}

// rich are the nodes, those with the most room on their wires first, of those the least loaded.
func (s *state) rich() []int32 {
	s.steps -= 4 * len(s.arcs)
	room := make([]int64, len(s.arcs))
	nodes := make([]int32, len(s.arcs))
	for n := range s.arcs {
		nodes[n] = int32(n)
		for _, arc := range s.arcs[n] {
			room[n] += min(max(s.rooms[arc.wire], 0), 1<<50)
		}
	}
	slices.SortStableFunc(nodes, func(a, b int32) int {
		return cmp.Or(cmp.Compare(room[b], room[a]), cmp.Compare(s.load[a], s.load[b]))
	})
	return nodes
}

// grow places all elements in order, the first of them at start. It gives up where that becomes much dearer than least.
func (s *state) grow(start int32, least int64) bool {
	for k := s.fixed; k < len(s.order); k++ {
		i := s.order[k]
		var nodes []int32
		if k == s.fixed && start >= 0 {
			nodes = []int32{start}
		} else if s.steps > 0 {
			nodes = s.places(i, tries)
		}
		if !slices.ContainsFunc(nodes, func(n int32) bool { return s.put(i, n) }) {
			if s.stuck.At == nil || k > s.depth {
				s.depth, s.stuck = k, Stuck{At: slices.Clone(s.at), Element: i}
			}
			return false
		}
		if s.cost > least/one*dearer {
			return false
		}
	}
	return true
}

// improve lifts and places again, and routes again, as long as that makes it cheaper.
func (s *state) improve() {
	for range rounds {
		before := s.cost
		for _, i := range s.order[s.fixed:] {
			s.again(i)
		}
		s.routeAgain()
		for l := range s.p.Links {
			s.pairAgain(&s.p.Links[l])
			if s.steps <= 0 {
				return
			}
		}
		s.routeAgain()
		if s.cost >= before || s.steps <= 0 {
			return
		}
	}
}

// again lifts an element and places it where it costs least.
func (s *state) again(i int32) {
	if s.steps <= 0 {
		return
	}
	was := s.lift(i)
	cost := was.cost
	for _, n := range s.places(i, 2) {
		if n == was.node {
			break // nothing is better than where it was
		}
		if !s.put(i, n) {
			continue
		}
		if s.cost < cost {
			return
		}
		s.lift(i)
	}
	s.back(i, was)
}

// pairAgain lifts both ends of a link and places them anew.
func (s *state) pairAgain(l *Link) {
	a, b := l.A, l.B
	if a == b || s.p.Elements[a].At >= 0 || s.p.Elements[b].At >= 0 {
		return
	}
	cost := s.cost
	wasA := s.lift(a)
	wasB := s.lift(b)
	for _, first := range s.places(a, pairs) {
		if !s.put(a, first) {
			continue
		}
		for _, second := range s.places(b, 2) {
			if !s.put(b, second) {
				continue
			}
			if s.cost < cost {
				return
			}
			s.lift(b)
		}
		s.lift(a)
	}
	s.back(b, wasB)
	s.back(a, wasA)
}

// routeAgain routes each link again and keeps what is cheaper.
func (s *state) routeAgain() {
	for l := range s.p.Links {
		way := s.ways[l]
		if s.p.Links[l].Way != nil || len(way) < 2 {
			continue
		}
		cost := s.cost
		s.free(int32(l))
		if !s.route(int32(l)) || s.cost >= cost {
			s.free(int32(l))
			s.take(int32(l), way)
		}
	}
}
