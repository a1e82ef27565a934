package embedding

import "container/heap"

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
				if !seen[v] && p.open(v) {
					seen[v] = true
					order = append(order, v)
				}
			}
		}
	}
	visit(first)
	for _, u := range free {
		if !seen[u] && p.open(u) {
			visit(u)
		}
	}
	return order
}

func (q *seedQueue) again(u int32) { q.met = append(q.met, u) }

// pop gives what was met last first, which is close to what was just placed.
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

// frontItem is a unit with its gain when it was pushed. Of equal gains the one that came first goes first, so that the
// same network is always placed in the same way.
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
