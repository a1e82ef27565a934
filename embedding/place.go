package embedding

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// unit is what is placed as one: an element, or several that links glue together.
type unit struct {
	members  []int32
	cpu      model.CPU
	memory   model.Bytes
	weight   model.CPU
	location string
	adjacent []int32 // units
}

// place puts every element onto a node, or tells the problems.
func (e *embedder) place() {
	e.problems = nil
	for i := range e.nodes {
		e.nodes[i].used = e.nodes[i].base
	}
	units, unitOf := e.units()
	for i := range e.at {
		e.at[i] = -1
	}
	e.fix()
	var free []int32
	for u := range units {
		if e.at[units[u].members[0]] < 0 {
			free = append(free, int32(u))
		}
	}
	if len(free) == 0 {
		return
	}
	p := &placer{embedder: e, units: units, unitOf: unitOf}
	p.shares(free)
	p.besideNeighbours(free)
	p.grow(free)
	if p.leftovers(free) {
		return
	}
	// The neighbourly way left holes that something large would have needed: pack by size alone.
	for _, u := range free {
		p.lift(u)
	}
	if p.leftovers(free) {
		return
	}
	for _, u := range free {
		if !p.placed(u) {
			e.refuseUnit(&units[u])
		}
	}
}

// units groups glued elements.
func (e *embedder) units() ([]unit, []int32) {
	unitOf := make([]int32, len(e.parent))
	var units []unit
	for i := range e.parent {
		root := e.find(int32(i))
		if root == int32(i) {
			unitOf[i] = int32(len(units))
			units = append(units, unit{})
		}
	}
	for i := range e.parent {
		el := &e.net.Elements[i]
		u := unitOf[e.find(int32(i))]
		unitOf[i] = u
		units[u].members = append(units[u].members, int32(i))
		units[u].cpu += el.CPU
		units[u].memory += el.Memory
		units[u].weight += max(el.CPU, DefaultWeight)
		if e.location[i] != "" {
			units[u].location = e.location[i]
		}
	}
	for u := range units {
		for _, i := range units[u].members {
			for _, j := range e.adjacent[i] {
				if unitOf[j] != int32(u) {
					units[u].adjacent = append(units[u].adjacent, unitOf[j])
				}
			}
		}
	}
	return units, unitOf
}

// find returns the element that stands for i's group: the group's least.
func (e *embedder) find(i int32) int32 {
	for e.parent[i] != i {
		e.parent[i] = e.parent[e.parent[i]]
		i = e.parent[i]
	}
	return i
}

// fix puts what is pinned or stays where it must be, and tells the nodes that this overfills.
func (e *embedder) fix() {
	for i := range e.at {
		if n := e.pin[e.find(int32(i))]; n >= 0 {
			e.put(int32(i), n)
		}
	}
	for n := range e.nodes {
		e.checkFixed(int32(n))
	}
}

// checkFixed tells what of a node's pinned and staying elements has no room.
func (e *embedder) checkFixed(n int32) {
	node := &e.nodes[n]
	if node.used.CPU <= node.CPU && node.used.Memory <= node.Memory {
		return
	}
	var asking []string
	for i, at := range e.at {
		el := &e.net.Elements[i]
		if at != n || el.CPU == 0 && el.Memory == 0 {
			continue
		}
		how := "pinned"
		if e.stays[i] {
			how = "there already"
		}
		asking = append(asking, fmt.Sprintf("%s %s (%s)", el.Name, demand(el.CPU, el.Memory), how))
	}
	if len(asking) == 0 {
		return // others overfill it; nothing of this network makes it worse
	}
	e.refuse("node %s has %s free, but these must be there: %s; give them less, or pin some to another node", node.Name,
		demand(minus(node.CPU, node.base.CPU), minus(node.Memory, node.base.Memory)), list(asking))
}

func (e *embedder) put(i, n int32) {
	el, node := &e.net.Elements[i], &e.nodes[n]
	e.at[i] = n
	node.used.CPU += el.CPU
	node.used.Memory += el.Memory
	node.used.Weight += max(el.CPU, DefaultWeight)
	node.used.Elements++
}

// load is how full a node of this usage would be, as a fraction of the whole substrate's capacity.
func (e *embedder) load(weight model.CPU, memory model.Bytes) float64 {
	l := 0.0
	if e.totalCPU > 0 {
		l = float64(weight) / e.totalCPU
	} else {
		l = float64(weight)
	}
	if e.totalMem > 0 {
		l = max(l, float64(memory)/e.totalMem)
	}
	return l
}

// size is the node's part of the whole substrate.
func (e *embedder) size(n int32) float64 {
	if e.totalCPU > 0 {
		return max(float64(e.nodes[n].CPU)/e.totalCPU, 1e-9)
	}
	return 1 / float64(len(e.nodes))
}

// placer places the units that are free to be anywhere.
type placer struct {
	*embedder
	units  []unit
	unitOf []int32
	share  []float64 // node → the load that it is filled to
	fair   []float64 // node → the load that all would have for their size, if some were not above it already
}

func (p *placer) placed(u int32) bool  { return p.at[p.units[u].members[0]] >= 0 }
func (p *placer) nodeOf(u int32) int32 { return p.at[p.units[u].members[0]] }

func (p *placer) put(u, n int32) {
	for _, i := range p.units[u].members {
		p.embedder.put(i, n)
	}
}

// lift takes a unit off its node again.
func (p *placer) lift(u int32) {
	if !p.placed(u) {
		return
	}
	for _, i := range p.units[u].members {
		el, node := &p.net.Elements[i], &p.nodes[p.at[i]]
		node.used.CPU -= el.CPU
		node.used.Memory -= el.Memory
		node.used.Weight -= max(el.CPU, DefaultWeight)
		node.used.Elements--
		p.at[i] = -1
	}
}

// fits tells whether the node may and can take the unit.
func (p *placer) fits(u, n int32) bool {
	un, node := &p.units[u], &p.nodes[n]
	return (un.location == "" || un.location == node.Location) &&
		(un.cpu == 0 || node.used.CPU+un.cpu <= node.CPU) &&
		(un.memory == 0 || node.used.Memory+un.memory <= node.Memory)
}

// shares fills the nodes like connected vessels: afterwards all that get something are equally loaded for their size.
func (p *placer) shares(free []int32) {
	var weight model.CPU
	var memory model.Bytes
	for _, u := range free {
		weight += p.units[u].weight
		memory += p.units[u].memory
	}
	more := p.load(weight, memory)
	order := make([]int32, len(p.nodes))
	loads := make([]float64, len(p.nodes))
	for n := range p.nodes {
		order[n] = int32(n)
		loads[n] = p.load(p.nodes[n].used.Weight, p.nodes[n].used.Memory)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(loads[a]/p.size(a), loads[b]/p.size(b))
	})
	p.share, p.fair = slices.Clone(loads), make([]float64, len(loads))
	sum, size := more, 0.0
	for k, n := range order {
		sum += loads[n]
		size += p.size(n)
		level := sum / size
		if k+1 < len(order) && level > loads[order[k+1]]/p.size(order[k+1]) {
			continue
		}
		for _, m := range order[:k+1] {
			p.share[m] = level * p.size(m)
		}
		for m := range p.fair {
			p.fair[m] = level * p.size(int32(m))
		}
		break
	}
}

// besideNeighbours puts units beside neighbours that are placed, as long as their nodes are not much above their share.
func (p *placer) besideNeighbours(free []int32) {
	links := make([]int, len(p.nodes))
	queue := slices.Clone(free)
	queued := make([]bool, len(p.units))
	for _, u := range queue {
		queued[u] = true
	}
	for len(queue) > 0 {
		u := queue[0]
		queue = queue[1:]
		queued[u] = false
		if p.placed(u) {
			continue
		}
		clear(links)
		any := false
		for _, v := range p.units[u].adjacent {
			if n := p.nodeOf(v); n >= 0 {
				links[n]++
				any = true
			}
		}
		if !any {
			continue
		}
		best := int32(-1)
		for n := range p.nodes {
			if links[n] == 0 || !p.fits(u, int32(n)) || p.after(u, int32(n)) > p.fair[n]*nearby {
				continue
			}
			if best < 0 || links[n] > links[best] {
				best = int32(n)
			}
		}
		if best < 0 {
			continue
		}
		p.put(u, best)
		for _, v := range p.units[u].adjacent {
			if !p.placed(v) && !queued[v] {
				queued[v] = true
				queue = append(queue, v)
			}
		}
	}
}

// after is the node's load with the unit on it.
func (p *placer) after(u, n int32) float64 {
	return p.load(p.nodes[n].used.Weight+p.units[u].weight, p.nodes[n].used.Memory+p.units[u].memory)
}

// grow fills one node after the other with a connected region: always the unit with the most links into the region.
// Where a region ends the next begins, so that a line is cut into contiguous pieces.
func (p *placer) grow(free []int32) {
	order := make([]int32, len(p.nodes))
	for n := range order {
		order[n] = int32(n)
	}
	room := func(n int32) float64 { return p.share[n] - p.load(p.nodes[n].used.Weight, p.nodes[n].used.Memory) }
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(room(b), room(a)) })
	// The first node is the roomiest; each next one is the nearest to the one before that has room.
	seeds := p.seeds(free)
	gain := make([]int32, len(p.units)) // links into the region
	var last int32 = -1
	for range order {
		n := int32(-1)
		for _, m := range order {
			if m < 0 || room(m) <= 0 {
				continue
			}
			if n < 0 || last >= 0 && p.sub.distance(last, m) < p.sub.distance(last, n) {
				n = m
			}
		}
		if n < 0 {
			break
		}
		order[slices.Index(order, n)] = -1
		last = n
		p.region(n, free, seeds, gain)
	}
}

// region grows node n's region until its share is reached.
func (p *placer) region(n int32, free []int32, seeds *seedQueue, gain []int32) {
	clear(gain)
	front := &frontier{gain: gain}
	for _, u := range free { // regions begin beside what the node has
		if p.placed(u) {
			continue
		}
		for _, v := range p.units[u].adjacent {
			if p.nodeOf(v) == n {
				gain[u]++
			}
		}
		if gain[u] > 0 {
			front.push(u)
		}
	}
	var skipped []int32
	for {
		u, ok := front.pop(p)
		if !ok {
			if u, ok = seeds.pop(p); !ok {
				break
			}
		}
		// The last unit belongs to the node whose share it is nearer to.
		half := (p.after(u, n) + p.load(p.nodes[n].used.Weight, p.nodes[n].used.Memory)) / 2
		if half > p.share[n] {
			seeds.again(u)
			break
		}
		if !p.fits(u, n) {
			skipped = append(skipped, u)
			continue
		}
		p.put(u, n)
		for _, v := range p.units[u].adjacent {
			if !p.placed(v) {
				gain[v]++
				front.push(v)
				seeds.again(v)
			}
		}
	}
	for _, u := range skipped {
		seeds.again(u)
	}
}

// leftovers places what is left, the largest first, beside neighbours if it can, else where the load is least. It tells
// whether everything has its place.
func (p *placer) leftovers(free []int32) bool {
	var left []int32
	for _, u := range free {
		if !p.placed(u) {
			left = append(left, u)
		}
	}
	large := func(u int32) float64 { return p.load(p.units[u].cpu, p.units[u].memory) }
	slices.SortStableFunc(left, func(a, b int32) int { return cmp.Compare(large(b), large(a)) })
	all := true
	for _, u := range left {
		best, bestLinks, bestLoad := int32(-1), -1, 0.0
		for n := range p.nodes {
			if !p.fits(u, int32(n)) {
				continue
			}
			links := 0
			if p.after(u, int32(n)) <= p.fair[n]*nearby+p.load(p.units[u].weight, p.units[u].memory) {
				for _, v := range p.units[u].adjacent {
					if p.nodeOf(v) == int32(n) {
						links++
					}
				}
			}
			load := p.after(u, int32(n)) / p.size(int32(n))
			if best < 0 || links > bestLinks || links == bestLinks && load < bestLoad {
				best, bestLinks, bestLoad = int32(n), links, load
			}
		}
		if best < 0 {
			all = false
			continue
		}
		p.put(u, best)
	}
	return all
}

// refuseUnit tells what the unit needs and what each node has.
func (e *embedder) refuseUnit(u *unit) {
	names := make([]string, len(u.members))
	for i, m := range u.members {
		names[i] = e.net.Elements[m].Name
	}
	var has []string
	where := ""
	if u.location != "" {
		where = " in location " + u.location
	}
	for i := range e.nodes {
		n := &e.nodes[i]
		if u.location != "" && n.Location != u.location {
			continue
		}
		var lacks []string
		if u.cpu > 0 && n.used.CPU+u.cpu > n.CPU {
			lacks = append(lacks, cores(minus(n.CPU, n.used.CPU)))
		}
		if u.memory > 0 && n.used.Memory+u.memory > n.Memory {
			lacks = append(lacks, minus(n.Memory, n.used.Memory).String())
		}
		has = append(has, fmt.Sprintf("%s has %s free", n.Name, strings.Join(lacks, " and ")))
	}
	verb := "needs"
	if len(names) > 1 {
		verb = "together need"
	}
	e.refuse("%s %s %s on one node%s: %s", list(names), verb, demand(u.cpu, u.memory), where, list(has))
}

// seedQueue yields units to begin a region with: those met beside earlier regions first, the latest first, then the
// network's own order from an outermost element on.
type seedQueue struct {
	met   []int32
	order []int32
	next  int
}

// seeds begins at an element that is farthest from the first one: the end of a line, the rim of a tree.
func (p *placer) seeds(free []int32) *seedQueue {
	far := p.breadthFirst(free, free[0])
	first := far[len(far)-1]
	order := p.breadthFirst(free, first)
	return &seedQueue{order: order}
}

// breadthFirst orders the free units by their distance from one; separate components follow in their own order, and the
// component of first counts alone when the last is wanted.
func (p *placer) breadthFirst(free []int32, first int32) []int32 {
	seen := make([]bool, len(p.units))
	order := make([]int32, 0, len(free))
	visit := func(u int32) {
		seen[u] = true
		start := len(order)
		order = append(order, u)
		for k := start; k < len(order); k++ {
			for _, v := range p.units[order[k]].adjacent {
				if !seen[v] && !p.placed(v) {
					seen[v] = true
					order = append(order, v)
				}
			}
		}
	}
	visit(first)
	for _, u := range free {
		if !seen[u] && !p.placed(u) {
			visit(u)
		}
	}
	return order
}

func (q *seedQueue) again(u int32) { q.met = append(q.met, u) }

func (q *seedQueue) pop(p *placer) (int32, bool) {
	for len(q.met) > 0 {
		u := q.met[len(q.met)-1]
		q.met = q.met[:len(q.met)-1]
		if !p.placed(u) {
			return u, true
		}
	}
	for q.next < len(q.order) {
		u := q.order[q.next]
		q.next++
		if !p.placed(u) {
			return u, true
		}
	}
	return -1, false
}

// frontier is a queue of units by their links into the region; entries of earlier gains are skipped.
type frontier struct {
	items []frontItem
	gain  []int32
	count int32
}

type frontItem struct{ unit, gain, order int32 }

func (f *frontier) Len() int { return len(f.items) }
func (f *frontier) Less(i, j int) bool {
	if f.items[i].gain != f.items[j].gain {
		return f.items[i].gain > f.items[j].gain
	}
	return f.items[i].order < f.items[j].order
}
func (f *frontier) Swap(i, j int) { f.items[i], f.items[j] = f.items[j], f.items[i] }
func (f *frontier) Push(x any)    { f.items = append(f.items, x.(frontItem)) }
func (f *frontier) Pop() any {
	last := f.items[len(f.items)-1]
	f.items = f.items[:len(f.items)-1]
	return last
}

func (f *frontier) push(u int32) {
	f.count++
	heap.Push(f, frontItem{u, f.gain[u], f.count})
}

func (f *frontier) pop(p *placer) (int32, bool) {
	for len(f.items) > 0 {
		it := heap.Pop(f).(frontItem)
		if !p.placed(it.unit) && it.gain == f.gain[it.unit] {
			return it.unit, true
		}
	}
	return -1, false
}
