package embedding

import (
	"cmp"
	"math"
	"slices"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// placer places the units that are free to be anywhere.
type placer struct {
	*embedder
	units  []unit
	unitOf []int32
	turn   int       // of the units that are placed now
	share  []float64 // node → the load that it is filled to
	fair   []float64 // node → the load that all would have for their size, if some were not above it already
}

func (p *placer) placed(u int32) bool  { return p.at[p.units[u].members[0]] >= 0 }
func (p *placer) nodeOf(u int32) int32 { return p.at[p.units[u].members[0]] }

// open tells whether the unit is to be placed now.
func (p *placer) open(u int32) bool { return !p.placed(u) && p.units[u].turn == p.turn }

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
	return (un.may == nil || un.may[n]) && (un.location == "" || un.location == node.Location) &&
		(un.cpu == 0 || node.used.CPU+un.cpu <= node.CPU) &&
		(un.memory == 0 || node.used.Memory+un.memory <= node.Memory)
}

// shares fills the nodes that the units may be on like connected vessels: afterwards all nodes that get something are
// equally loaded for their size. The units must all have the same nodes to choose from.
func (p *placer) shares(free []int32) {
	if p.net.Placing.Policy == model.Pack { // whatever fits
		p.share = slices.Repeat([]float64{math.MaxFloat64}, len(p.nodes))
		p.fair = p.share
		return
	}
	var weight model.CPU
	var memory model.Bytes
	for _, u := range free {
		weight += p.units[u].weight
		memory += p.units[u].memory
	}
	more := p.load(weight, memory)
	var order []int32
	loads := make([]float64, len(p.nodes))
	for n := range p.nodes {
		if may := p.units[free[0]].may; may == nil || may[n] {
			order = append(order, int32(n))
		}
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

// besideNeighbours puts units beside neighbours that are placed already, as long as their nodes are not much above
// their share.
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
			if p.open(v) && !queued[v] {
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
	pack := p.net.Placing.Policy == model.Pack
	slices.SortStableFunc(order, func(a, b int32) int {
		free := func(n int32) model.CPU {
			if !pack {
				return 0
			}
			return minus(p.nodes[n].CPU, p.nodes[n].used.CPU)
		}
		return cmp.Or(cmp.Compare(room(b), room(a)), cmp.Compare(free(b), free(a)))
	})
	// The first node is the roomiest; each next one is the nearest to the one before that has room. Where few nodes are
	// to be used, those come first that the network is on already.
	ours := make([]bool, len(p.nodes))
	for n := range ours {
		ours[n] = pack && p.has(int32(n))
	}
	seeds := p.seeds(free)
	gain := make([]int32, len(p.units)) // links into the region
	var last int32 = -1
	for range order {
		n := int32(-1)
		for _, m := range order {
			if m < 0 || room(m) <= 0 {
				continue
			}
			if n < 0 || ours[m] && !ours[n] ||
				ours[m] == ours[n] && last >= 0 && p.sub.distance(last, m) < p.sub.distance(last, n) {
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

// has tells whether one of the network's elements is on the node.
func (p *placer) has(n int32) bool { return p.nodes[n].used.Elements > p.nodes[n].base.Elements }

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
			if p.open(v) {
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

// leftovers places what is left, the largest of each turn first: beside neighbours if possible, otherwise, where few
// nodes are to be used, beside other elements of the network, otherwise where the load is least. It tells whether
// everything has its place.
func (p *placer) leftovers(free []int32) bool {
	left := each.That(free, func(u int32) bool { return !p.placed(u) })
	large := func(u int32) float64 { return p.load(p.units[u].cpu, p.units[u].memory) }
	slices.SortStableFunc(left, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.units[a].turn, p.units[b].turn), cmp.Compare(large(b), large(a)))
	})
	all := true
	for _, u := range left {
		best, bestLinks, bestHas, bestLoad := int32(-1), -1, false, 0.0
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
			load, has := p.after(u, int32(n))/p.size(int32(n)), p.net.Placing.Policy == model.Pack && p.has(int32(n))
			if best < 0 || links > bestLinks || links == bestLinks &&
				(has && !bestHas || has == bestHas && load < bestLoad) {
				best, bestLinks, bestHas, bestLoad = int32(n), links, has, load
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
