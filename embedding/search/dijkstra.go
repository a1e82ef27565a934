package search

// dijkstra finds the cheapest ways from one node to the others. Its tables are used again.
type dijkstra struct {
	far  []int64 // node → the price of a bit; nowhere: not reached
	from []int32 // node → the wire by which it is reached
	done []bool
	heap []uint64 // price and node in one word, so that equals have an order
}

const (
	nowhere  = int64(1) << 40
	nodeBits = 20 // more than a million nodes are none
)

func newDijkstra(n int) dijkstra {
	return dijkstra{far: make([]int64, n), from: make([]int32, n), done: make([]bool, n)}
}

// search works out the prices from a node over wires with that much room. It ends early where only one is asked for; to
// is -1 where all are.
func (s *state) search(from, to int32, room int64) {
	d := &s.dijkstra
	if room == 0 {
		room = -1 << 62 // what reserves nothing goes over full wires, too
	}
	for i := range d.far {
		d.far[i], d.done[i] = nowhere, false
	}
	d.far[from], d.from[from] = 0, -1
	d.heap = append(d.heap[:0], uint64(from))
	for len(d.heap) > 0 {
		n := int32(d.pop() & (1<<nodeBits - 1))
		if d.done[n] {
			continue
		}
		d.done[n] = true
		if n == to {
			return
		}
		if n == s.closed && n != from {
			continue // ways may end there, and do not lead through
		}
		s.steps -= len(s.arcs[n])
		at := d.far[n]
		for _, a := range s.arcs[n] {
			far := at + s.prices[a.wire]
			if far >= d.far[a.to] || s.rooms[a.wire] < room {
				continue
			}
			d.far[a.to], d.from[a.to] = far, a.wire
			d.push(uint64(far)<<nodeBits | uint64(a.to))
		}
	}
}

func (d *dijkstra) push(x uint64) {
	h := append(d.heap, x)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h[up] <= x {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = x
	d.heap = h
}

func (d *dijkstra) pop() uint64 {
	h := d.heap
	top, x := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	d.heap = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1] < h[down] {
			down++
		}
		if h[down] >= x {
			break
		}
		h[i] = h[down]
		i = down
	}
	h[i] = x
	return top
}
