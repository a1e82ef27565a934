package virne

import (
	"fmt"

	"github.com/polyplane/polyplane/model"
)

// checker keeps account of what is free, in the data set's own numbers. It shares nothing with the embedding.
type checker struct {
	nodes   []float64          // free
	links   map[[2]int]float64 // free, by its ends, the lesser first
	running map[int]*held
}

// held is what a request has.
type held struct {
	nodes map[int]float64
	links map[[2]int]float64
}

// tolerance is for the sums of numbers that are no integers.
const tolerance = 1e-6

func newChecker(g *Graph) *checker {
	c := &checker{links: map[[2]int]float64{}, running: map[int]*held{}}
	c.nodes = append(c.nodes, g.Nodes...)
	for _, l := range g.Links {
		c.links[pair(l.A, l.B)] += l.Bandwidth
	}
	return c
}

func pair(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// arrive books a request as it was placed, or tells what is wrong about that. It works out what the request brings, the
// sum of what it asks for, and what it costs: its bandwidth counts for each link of its way.
func (c *checker) arrive(k int, g *Graph, placed model.Placement) (revenue, cost float64, err error) {
	number := make(map[string]int, len(c.nodes))
	for i := range c.nodes {
		number[name(i)] = i
	}
	h := &held{map[int]float64{}, map[[2]int]float64{}}
	at := make([]int, len(g.Nodes))
	for i, cpu := range g.Nodes {
		n, ok := number[placed.Elements[name(i)]]
		if !ok {
			return 0, 0, fmt.Errorf("node %d is on %q, which does not exist", i, placed.Elements[name(i)])
		}
		if _, twice := h.nodes[n]; twice {
			return 0, 0, fmt.Errorf("two of its nodes are on node %d", n)
		}
		at[i], h.nodes[n] = n, cpu
		revenue += cpu
		cost += cpu
	}
	for i, l := range g.Links {
		revenue += l.Bandwidth
		paths := placed.Links[name(i)]
		if len(paths) != 1 || len(paths[0].Nodes) < 2 {
			return 0, 0, fmt.Errorf("link %d has paths %v", i, paths)
		}
		way := paths[0].Nodes
		for _, n := range way {
			if _, ok := number[n]; !ok {
				return 0, 0, fmt.Errorf("link %d goes by %q, which does not exist", i, n)
			}
		}
		if number[way[0]] != at[l.A] || number[way[len(way)-1]] != at[l.B] {
			return 0, 0, fmt.Errorf("link %d from %d to %d has path %v", i, at[l.A], at[l.B], way)
		}
		for j := 1; j < len(way); j++ {
			hop := pair(number[way[j-1]], number[way[j]])
			if _, ok := c.links[hop]; !ok {
				return 0, 0, fmt.Errorf("link %d goes from %s to %s, which nothing joins", i, way[j-1], way[j])
			}
			h.links[hop] += l.Bandwidth
			cost += l.Bandwidth
		}
	}
	for n, cpu := range h.nodes {
		if cpu > c.nodes[n]+tolerance {
			return 0, 0, fmt.Errorf("node %d has %g free and is to carry %g", n, c.nodes[n], cpu)
		}
	}
	for hop, bandwidth := range h.links {
		if bandwidth > c.links[hop]+tolerance {
			return 0, 0, fmt.Errorf("link %d–%d has %g free and is to carry %g", hop[0], hop[1], c.links[hop],
				bandwidth)
		}
	}
	c.book(h, -1)
	c.running[k] = h
	return revenue, cost, nil
}

// leave gives back what a request has.
func (c *checker) leave(k int) {
	if h := c.running[k]; h != nil {
		c.book(h, 1)
		delete(c.running, k)
	}
}

func (c *checker) book(h *held, sign float64) {
	for n, cpu := range h.nodes {
		c.nodes[n] += sign * cpu
	}
	for hop, bandwidth := range h.links {
		c.links[hop] += sign * bandwidth
	}
}
