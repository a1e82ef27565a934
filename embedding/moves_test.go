package embedding

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
)

// account keeps what each node and substrate link carries, by names, and shares nothing with the search.
type account struct {
	sub    model.Substrate
	nets   []model.ResolvedRecord
	placed []model.Placement
	was    totals // before the first move
}

type totals struct {
	cpu    map[string]model.CPU
	memory map[string]model.Bytes
	wires  map[Direction]model.Bandwidth
}

// fataler is what both a test and a property have.
type fataler interface {
	Fatalf(format string, args ...any)
}

func newAccount(r Running) *account {
	a := &account{sub: r.Substrate, nets: r.Networks}
	for _, n := range r.Networks {
		p := n.Assigned.Placement
		links := map[string][]model.LinkPath{}
		maps.Copy(links, p.Links)
		a.placed = append(a.placed, model.Placement{Elements: maps.Clone(p.Elements), Links: links})
	}
	a.was = a.totals(nil)
	return a
}

// totals adds up what everything takes; with a move, what it takes while that is made.
func (a *account) totals(m *Move) totals {
	t := totals{map[string]model.CPU{}, map[string]model.Bytes{}, map[Direction]model.Bandwidth{}}
	for k, n := range a.nets {
		for _, el := range n.Network.Elements {
			on := []string{a.placed[k].Elements[el.Name]}
			if m != nil && m.Network == n.Network.Name && m.Element == el.Name {
				on = append(on, m.To)
			}
			for _, node := range on {
				t.cpu[node] += el.CPU
				t.memory[node] += el.Memory
			}
		}
		for _, l := range n.Network.Links {
			wires := map[Direction]bool{}
			paths := slices.Clone(a.placed[k].Links[l.Name])
			if m != nil && m.Network == n.Network.Name {
				paths = append(paths, m.Paths[l.Name]...)
			}
			for _, p := range paths {
				for i := 1; i < len(p.Nodes); i++ {
					wires[Direction{min(p.Nodes[i-1], p.Nodes[i]), max(p.Nodes[i-1], p.Nodes[i])}] = true
				}
			}
			for w := range wires {
				t.wires[w] += n.Network.Slice.Reserves(&l)
			}
		}
	}
	return t
}

func (a *account) check(t fataler, when string, now totals) {
	for _, n := range a.sub.Nodes {
		if now.cpu[n.Name] > max(n.CPU, a.was.cpu[n.Name]) || now.memory[n.Name] > max(n.Memory, a.was.memory[n.Name]) {
			t.Fatalf("%s %s has %d of %d and %d of %d bytes", when, n.Name, now.cpu[n.Name], n.CPU, now.memory[n.Name],
				n.Memory)
		}
	}
	capacity := map[Direction]model.Bandwidth{}
	for _, l := range a.sub.Links {
		d := Direction{min(l.A, l.B), max(l.A, l.B)}
		if l.Bandwidth == 0 || capacity[d] == unlimited {
			capacity[d] = unlimited
		} else {
			capacity[d] += l.Bandwidth
		}
	}
	for w, bw := range now.wires {
		if len(a.sub.Links) > 0 && bw > max(capacity[w], a.was.wires[w]) {
			t.Fatalf("%s %v of %d carries %d", when, w, capacity[w], bw)
		}
	}
}

// make carries a move out as it is told, and checks everything while it is made and afterwards.
func (a *account) make(t fataler, m Move, at int) {
	k := slices.IndexFunc(a.nets, func(n model.ResolvedRecord) bool { return n.Network.Name == m.Network })
	if k < 0 {
		t.Fatalf("move %d is of network %q", at, m.Network)
	}
	net, placed := &a.nets[k].Network, a.placed[k]
	a.check(t, fmt.Sprintf("while move %d is made,", at), a.totals(&m))
	if m.Element != "" {
		el := net.Elements[slices.IndexFunc(net.Elements,
			func(e model.ResolvedElement) bool { return e.Name == m.Element })]
		to := slices.IndexFunc(a.sub.Nodes, func(n model.SubstrateNode) bool { return n.Name == m.To })
		switch {
		case placed.Elements[m.Element] != m.From || to < 0 || m.From == m.To:
			t.Fatalf("move %d takes %s from %s to %s, and it is on %s", at, m.Element, m.From, m.To,
				placed.Elements[m.Element])
		case el.Node != "" || el.Location != "" && a.sub.Nodes[to].Location != el.Location:
			t.Fatalf("move %d takes %s to %s, and it is pinned to %q %q", at, m.Element, m.To, el.Node, el.Location)
		}
		placed.Elements[m.Element] = m.To
	}
	for link, paths := range m.Paths {
		if placed.Links[link] = paths; len(paths) == 0 {
			delete(placed.Links, link)
		}
	}
	a.check(t, fmt.Sprintf("after move %d", at), a.totals(nil))
	on := map[string]int{}
	for _, node := range placed.Elements {
		if on[node]++; net.Placing.Distinct && on[node] > 1 {
			t.Fatalf("after move %d two elements of %s are on %s", at, net.Name, node)
		}
	}
	for _, l := range net.Links {
		from, to := placed.Elements[l.Ends[0].Element], placed.Elements[l.Ends[1].Element]
		paths := placed.Links[l.Name]
		if from == to && len(paths) == 0 {
			continue
		}
		if len(paths) != 1 || paths[0].Nodes[0] != from || paths[0].Nodes[len(paths[0].Nodes)-1] != to {
			t.Fatalf("after move %d link %s from %s to %s has paths %v", at, l.Name, from, to, paths)
		}
	}
}

// drawRunning is a few networks that were placed one after the other.
func drawRunning(t *rapid.T) Running {
	first := drawQuestion(t)
	r := Running{Substrate: first.sub}
	for k := range rapid.IntRange(1, 4).Draw(t, "networks") {
		q := first
		if k > 0 {
			q = drawQuestion(t)
			for i := range q.net.Elements { // its pins are to nodes of another substrate
				q.net.Elements[i].Node, q.net.Elements[i].Location = "", ""
			}
		}
		q.net.Name = fmt.Sprint("net", k)
		var records []model.Record
		for _, n := range r.Networks {
			records = append(records, model.Record{Network: document(n.Network), Assigned: n.Assigned})
		}
		p, err := Embed(r.Substrate, nil, UsageOf(records), q.net, Current{})
		if err != nil {
			continue
		}
		r.Networks = append(r.Networks, model.ResolvedRecord{Network: q.net, Assigned: model.Assigned{Placement: p}})
	}
	return r
}

// tried counts what plans came to.
type tried struct{ moved, rerouted, left, balanced int }

// plans has a node drained, and everything balanced, and checks each step: no capacity is ever exceeded, not while a
// move is made either.
func (c *tried) plans(t fataler, r Running, node string, limit Limit) {
	plan, err := Drain(r, node, limit)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if again, _ := Drain(r, node, limit); !reflect.DeepEqual(plan, again) {
		t.Fatalf("two answers:\n%+v\n%+v", plan, again)
	}
	if limit.Moves > 0 && len(plan.Moves) > limit.Moves {
		t.Fatalf("%d moves where %d are allowed", len(plan.Moves), limit.Moves)
	}
	a := newAccount(r)
	for i, m := range plan.Moves {
		if a.make(t, m, i); m.Element == "" {
			c.rerouted++
		}
	}
	c.moved += len(plan.Moves)
	stays := map[string]bool{}
	for _, s := range plan.Stays {
		stays[s.Network+"/"+s.Element+s.Link] = true
		if s.Why == "" {
			t.Fatalf("it does not say why %+v", s)
		}
	}
	c.left += len(stays)
	for k, n := range r.Networks {
		for el, on := range a.placed[k].Elements {
			if (on == node) != stays[n.Network.Name+"/"+el] {
				t.Fatalf("%s is on %s once %s is drained; stays are %v", el, on, node, plan.Stays)
			}
		}
		for link, paths := range a.placed[k].Links {
			if through := slices.Index(paths[0].Nodes, node); through > 0 && through < len(paths[0].Nodes)-1 &&
				!stays[n.Network.Name+"/"+link] {
				t.Fatalf("%s leads over %v once %s is drained", link, paths[0].Nodes, node)
			}
		}
	}
	plan = Rebalance(r, limit)
	if again := Rebalance(r, limit); !reflect.DeepEqual(plan, again) {
		t.Fatalf("two answers:\n%+v\n%+v", plan, again)
	}
	a = newAccount(r)
	for i, m := range plan.Moves {
		a.make(t, m, i)
	}
	c.balanced += len(plan.Moves)
}

func TestPropertyPlansNeverExceedCapacities(t *testing.T) {
	var c tried
	rapid.Check(t, func(t *rapid.T) {
		r := drawRunning(t)
		c.plans(t, r, r.Substrate.Nodes[rapid.IntRange(0, len(r.Substrate.Nodes)-1).Draw(t, "drained")].Name,
			Limit{Moves: rapid.IntRange(0, 9).Draw(t, "moves"),
				Steps: rapid.SampledFrom([]int{0, 0, 0, 5, 50, 500}).Draw(t, "steps")})
	})
	if c.moved < 5 {
		t.Errorf("%+v: hardly tried", c)
	}
}

// crowded is a substrate with little room, and networks on it.
func crowded(seed uint64) Running {
	x := rand.New(rand.NewPCG(seed, 7))
	n := 3 + x.IntN(5)
	r := Running{Substrate: substrate(n)}
	for i := range r.Substrate.Nodes {
		r.Substrate.Nodes[i].CPU = model.CPU(3000 + 1000*x.IntN(4))
	}
	for i := range r.Substrate.Links {
		r.Substrate.Links[i].Bandwidth = model.Bandwidth(60+20*x.IntN(8)) * 1e6
	}
	for range n / 2 {
		a, b := x.IntN(n), x.IntN(n)
		r.Substrate.Links = append(r.Substrate.Links, model.SubstrateLink{A: r.Substrate.Nodes[a].Name,
			B: r.Substrate.Nodes[b].Name, Bandwidth: 50e6})
	}
	var records []model.Record
	for k := range 2 + x.IntN(5) {
		net := line(2 + x.IntN(7))
		net.Name = fmt.Sprint("net", k)
		net.Placing = []model.Placing{{}, {}, {Distinct: true}, {Policy: model.Pack},
			{Spread: model.SpreadLocation}}[x.IntN(5)]
		for i := range net.Elements {
			net.Elements[i].CPU = model.CPU(100 * x.IntN(12))
		}
		for i := range net.Links {
			net.Links[i].Bandwidth = model.Bandwidth(x.IntN(40)) * 1e6
		}
		for i := range x.IntN(3) {
			a, b := x.IntN(len(net.Elements)), x.IntN(len(net.Elements))
			more := addLink(&net, net.Elements[a].Name, net.Elements[b].Name)
			more.Bandwidth, more.Name = 10e6, fmt.Sprint("more", i)
		}
		p, err := Embed(r.Substrate, nil, UsageOf(records), net, Current{})
		if err != nil {
			continue
		}
		records = append(records, model.Record{Network: document(net), Assigned: model.Assigned{Placement: p}})
		r.Networks = append(r.Networks, model.ResolvedRecord{Network: net, Assigned: model.Assigned{Placement: p}})
	}
	return r
}

func TestPlansOnCrowdedSubstrates(t *testing.T) {
	var c tried
	for seed := range uint64(400) {
		r := crowded(seed)
		c.plans(t, r, fmt.Sprint("n", 1+seed%3), Limit{})
		// What was balanced is not moved again.
		a := newAccount(r)
		for i, m := range Rebalance(r, Limit{}).Moves {
			a.make(t, m, i)
		}
		for k := range r.Networks {
			r.Networks[k].Assigned.Placement = a.placed[k]
		}
		if plan := Rebalance(r, Limit{}); len(plan.Moves) > 0 {
			t.Fatalf("seed %d: once balanced, it moves %+v", seed, plan.Moves)
		}
	}
	t.Logf("%+v", c)
	if c.moved < 500 || c.rerouted < 50 || c.left < 50 || c.balanced < 100 {
		t.Errorf("%+v: hardly tried", c)
	}
}

func running(sub model.Substrate, placed model.Placement, net model.Resolved) Running {
	return Running{Substrate: sub, Networks: []model.ResolvedRecord{{Network: net,
		Assigned: model.Assigned{Placement: placed}}}}
}

func TestDrainTellsWhatStaysAndWhy(t *testing.T) {
	sub := substrate(3)
	net := line(4)
	for i := range net.Elements {
		net.Elements[i].CPU = 2000
	}
	net.Elements[0].Node = "n1"
	net.Edges = []model.ResolvedEdge{{Name: "out", Device: "eth0", Node: "n1", End: model.End{Element: "r2"}}}
	net.Elements = append(net.Elements, model.ResolvedElement{Name: "large", Kind: model.Host,
		Amounts: model.Amounts{CPU: 4000}})
	sub.Nodes[0].CPU = 12_000
	now := model.Placement{Elements: map[string]string{"r1": "n1", "r2": "n1", "r3": "n1", "r4": "n2", "large": "n1"},
		Links: map[string][]model.LinkPath{"r3--r4": {{Nodes: []string{"n1", "n2"}}}}}
	r := running(sub, now, net)
	r.Shut = map[string]string{}
	plan, err := Drain(r, "n1", Limit{})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Moves) != 2 || plan.Moves[0].Element != "large" || plan.Moves[0].To != "n3" ||
		plan.Moves[1].Element != "r3" || plan.Moves[1].To != "n2" {
		t.Errorf("the moves are %+v", plan.Moves)
	}
	whys := map[string]string{}
	for _, s := range plan.Stays {
		whys[s.Element] = s.Why
	}
	if len(whys) != 2 || whys["r1"] != "r1 is pinned to n1 (node:)" ||
		whys["r2"] != "the device of its edge out is on n1" {
		t.Errorf("what stays is %+v", plan.Stays)
	}
	r.Shut["n3"] = "is off"
	plan, _ = Drain(r, "n1", Limit{})
	if got := fmt.Sprint(plan.Stays); !strings.Contains(got, "large  n2 has 0 cores free, n3 takes nothing new") {
		t.Errorf("with n3 shut the reasons are %s", got)
	}
	if _, err := Drain(r, "n9", Limit{}); err == nil || !strings.Contains(err.Error(), "no node n9") {
		t.Errorf("a node that is not there: %v", err)
	}
}

// Where no other node has room for an element, one that is smaller gives way.
func TestDrainMakesRoom(t *testing.T) {
	sub := substrate(3)
	net := model.Resolved{Name: "lab"}
	now := model.Placement{Elements: map[string]string{}}
	for name, c := range map[string]struct {
		cpu  model.CPU
		node string
	}{"big": {3000, "n1"}, "two": {2000, "n2"}, "three": {2000, "n3"}, "one": {1000, "n3"}} {
		net.Elements = append(net.Elements, model.ResolvedElement{Name: name, Kind: model.Host,
			Amounts: model.Amounts{CPU: c.cpu}})
		now.Elements[name] = c.node
	}
	slices.SortFunc(net.Elements, func(a, b model.ResolvedElement) int { return strings.Compare(a.Name, b.Name) })
	sub.Nodes[1].CPU, sub.Nodes[2].CPU = 4000, 5000
	plan, err := Drain(running(sub, now, net), "n1", Limit{})
	if err != nil || len(plan.Moves) != 2 || plan.Moves[0].Element != "two" || plan.Moves[0].To != "n3" ||
		plan.Moves[1].Element != "big" || plan.Moves[1].To != "n2" || len(plan.Stays) != 0 {
		t.Errorf("the plan is %+v, %v", plan, err)
	}
	if plan, _ := Drain(running(sub, now, net), "n1", Limit{Moves: 1}); len(plan.Moves) != 0 || len(plan.Stays) != 1 {
		t.Errorf("with one move the plan is %+v", plan)
	}
}

// Links that only lead through the node take another way.
func TestDrainTakesLinksElsewhere(t *testing.T) {
	sub := substrate(4) // a ring
	net := line(2)
	net.Links[0].Bandwidth = 1e6
	now := model.Placement{Elements: map[string]string{"r1": "n1", "r2": "n3"},
		Links: map[string][]model.LinkPath{"r1--r2": {{Nodes: []string{"n1", "n2", "n3"}, Bandwidth: 1e6}}}}
	plan, err := Drain(running(sub, now, net), "n2", Limit{})
	if err != nil || len(plan.Moves) != 1 || plan.Moves[0].Element != "" ||
		!slices.Equal(plan.Moves[0].Paths["r1--r2"][0].Nodes, []string{"n1", "n4", "n3"}) {
		t.Errorf("the plan is %+v, %v", plan, err)
	}
}

// A new node takes some of what the others carry, neighbours come together, and a balanced state stays as it is.
func TestRebalanceMovesWhatIsWorthIt(t *testing.T) {
	sub := substrate(3)
	net := line(9)
	for i := range net.Elements {
		net.Elements[i].CPU = 400
	}
	now := embed(t, model.Substrate{Nodes: sub.Nodes[:2], Links: sub.Links[:1]}, net, model.Placement{})
	plan := Rebalance(running(sub, now, net), Limit{})
	on := 0
	for _, m := range plan.Moves {
		if m.To == "n3" {
			on++
		}
	}
	if on < 1 || len(plan.Moves) > 4 {
		t.Errorf("onto a new node go %d in %d moves", on, len(plan.Moves))
	}
	apart := line(2)
	apart.Links[0].Bandwidth = 50e6
	placed := model.Placement{Elements: map[string]string{"r1": "n1", "r2": "n2"},
		Links: map[string][]model.LinkPath{"r1--r2": {{Nodes: []string{"n1", "n2"}, Bandwidth: 50e6}}}}
	if plan := Rebalance(running(sub, placed, apart), Limit{}); len(plan.Moves) > 1 {
		t.Errorf("two that may be together: %+v", plan.Moves)
	}
	even := embed(t, sub, net, model.Placement{})
	if plan := Rebalance(running(sub, even, net), Limit{}); len(plan.Moves) != 0 {
		t.Errorf("what was placed well moves: %+v", plan.Moves)
	}
}

func BenchmarkDrain(b *testing.B) {
	sub, net := substrate(50), line(4000)
	p, err := Embed(sub, nil, Usage{}, net, Current{})
	if err != nil {
		b.Fatal(err)
	}
	r := running(sub, p, net)
	b.Run("drain", func(b *testing.B) {
		for b.Loop() {
			if plan, err := Drain(r, "n7", Limit{}); err != nil || len(plan.Stays) > 0 {
				b.Fatal(plan.Stays[0], err)
			}
		}
	})
	b.Run("rebalance", func(b *testing.B) {
		for b.Loop() {
			Rebalance(r, Limit{})
		}
	})
}

// What a move has reserved nobody is sent to, and the network that it is of stays as it is.
func TestDrainBesideAMove(t *testing.T) {
	sub := substrate(3)
	one := func(name, node string) model.ResolvedRecord {
		net := line(1)
		net.Name, net.Elements[0].CPU = name, sub.Nodes[0].CPU/4*3
		return model.ResolvedRecord{Network: net, Assigned: model.Assigned{Placement: model.Placement{
			Elements: map[string]string{net.Elements[0].Name: node}}}}
	}
	a, b := one("a", "n1"), one("b", "n3")
	r := Running{Substrate: sub, Networks: []model.ResolvedRecord{a, b}}
	if p, err := Drain(r, "n1", Limit{}); err != nil || len(p.Moves) != 1 || p.Moves[0].To != "n2" {
		t.Fatalf("n1 is drained by %+v, %v", p, err)
	}
	r.Networks[1].Moving = &model.Moving{Element: b.Network.Elements[0].Name, From: "n3", To: "n2",
		Step: model.MoveCopying}
	if p, err := Drain(r, "n1", Limit{}); err != nil || len(p.Moves) != 0 || len(p.Stays) != 1 {
		t.Errorf("beside a move to n2, n1 is drained by %+v, %v", p, err)
	}
	want := b.Network.Elements[0].Name + " is being moved from n3 to n2, and its network is left alone meanwhile"
	if p, err := Drain(r, "n3", Limit{}); err != nil || len(p.Stays) != 1 || p.Stays[0].Why != want {
		t.Errorf("n3 is drained by %+v, %v", p, err)
	}
}

// Embeddings that have steps together end with them, and say so.
func TestEmbedEndsWithTheSteps(t *testing.T) {
	for _, spread := range []bool{false, true} {
		net := line(30)
		net.Placing.Distinct = spread
		steps := 1 << 30
		if _, err := Embed(substrate(40), nil, Usage{}, net, Current{Steps: &steps}); err != nil || steps == 1<<30 {
			t.Errorf("with steps enough it is %v, and %d are left", err, steps)
		}
		for _, steps := range []int{0, 1, 100, 1200} {
			if _, err := Embed(substrate(40), nil, Usage{}, net, Current{Steps: &steps}); !errors.Is(err, ErrSpent) {
				t.Errorf("with %d steps left it is %v", steps, err)
			}
		}
	}
}
