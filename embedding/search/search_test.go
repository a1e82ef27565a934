package search

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// random is a problem of n nodes and m elements.
func random(seed uint64, n, m int) *Problem {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &Problem{Groups: []Group{{Alone: m <= n}}}
	for range n {
		p.Nodes = append(p.Nodes, Node{CPU: 50 + r.Int64N(50), Memory: 1 << 40, Region: -1})
	}
	for a := range int32(n) {
		for b := a + 1; b < int32(n); b++ {
			if b == a+1 || r.IntN(n) < 6 {
				p.Wires = append(p.Wires, Wire{A: a, B: b, Capacity: (50 + r.Int64N(50)) * 1e6})
			}
		}
	}
	for a := range int32(m) {
		p.Elements = append(p.Elements, Element{CPU: r.Int64N(20), At: -1})
		for b := range a {
			if r.IntN(2) == 0 {
				p.Links = append(p.Links, Link{A: a, B: b, Demand: r.Int64N(30) * 1e6})
			}
		}
	}
	return p
}

// The sum that the search keeps is what its wires cost, however often it lifted and routed.
func TestCostIsWhatItIs(t *testing.T) {
	for seed := range uint64(40) {
		p := random(seed, 30, 8)
		found, _ := Solve(p)
		if found == nil {
			continue
		}
		fresh := newState(p)
		for i, n := range found.At {
			fresh.settle(int32(i), n)
		}
		for l, way := range found.Ways {
			fresh.take(int32(l), way)
		}
		if fresh.cost != found.Cost {
			t.Fatalf("seed %d: the search says %d, it is %d", seed, found.Cost, fresh.cost)
		}
		for k := range fresh.rooms {
			if fresh.rooms[k] < 0 {
				t.Fatalf("seed %d: wire %d has %d of room", seed, k, fresh.rooms[k])
			}
		}
	}
}

func TestSameAnswerTwice(t *testing.T) {
	solved := 0
	for seed := range uint64(20) {
		p := random(seed, 40, 9)
		before := random(seed, 40, 9)
		found, stuck := Solve(p)
		again, stuckAgain := Solve(p)
		if !reflect.DeepEqual(found, again) || !reflect.DeepEqual(stuck, stuckAgain) {
			t.Fatalf("seed %d: two answers", seed)
		}
		if !reflect.DeepEqual(p, before) {
			t.Fatalf("seed %d: the question was changed", seed)
		}
		if found != nil {
			solved++
		}
	}
	if solved < 10 {
		t.Errorf("only %d of 20 problems were solved", solved)
	}
}

// A triangle with one wire that is too small: the two ends go where there is room.
func TestWaysAreChosenWithPlaces(t *testing.T) {
	p := &Problem{Groups: []Group{{Alone: true}}, Nodes: []Node{{CPU: 1, Region: -1}, {CPU: 1, Region: -1}, {CPU: 1, Region: -1}},
		Wires:    []Wire{{A: 0, B: 1, Capacity: 10}, {A: 1, B: 2, Capacity: 9000}, {A: 0, B: 2, Capacity: 10}},
		Elements: []Element{{CPU: 1, At: -1}, {CPU: 1, At: -1}}, Links: []Link{{A: 0, B: 1, Demand: 5000}}}
	found, _ := Solve(p)
	if found == nil {
		t.Fatal("nothing was found")
	}
	if at := slices.Sorted(slices.Values(found.At)); !slices.Equal(at, []int32{1, 2}) {
		t.Errorf("the ends are at %v, only 1 and 2 are joined by enough", found.At)
	}
	p.Links[0].Demand = 9001
	if found, stuck := Solve(p); found != nil || stuck.Element < 0 {
		t.Errorf("more than any wire carries gives %v, %+v", found, stuck)
	}
}

func BenchmarkSolve(b *testing.B) {
	for _, c := range []struct {
		name string
		n, m int
	}{{"6 on 100", 100, 6}, {"10 on 100", 100, 10}} {
		b.Run(c.name, func(b *testing.B) {
			p := random(7, c.n, c.m)
			for b.Loop() {
				if found, _ := Solve(p); found == nil {
					b.Fatal("nothing was found")
				}
			}
		})
	}
}

// A beginning ends with the steps, like everything else.
func TestGrowthIsBoundedBySteps(t *testing.T) {
	p := random(3, 30, 8)
	s := newState(p)
	s.arrange(-1)
	s.steps = 0
	if s.grow(s.rich()[0], 1<<62) {
		t.Error("all elements were placed without a step left")
	}
	if s.steps < -Steps(p) {
		t.Errorf("%d steps were taken without one left", -s.steps)
	}
}
