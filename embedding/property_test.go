package embedding

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
)

// question is a random Embed.
type question struct {
	sub  model.Substrate
	used Usage
	net  model.Resolved
	now  model.Placement
}

func drawQuestion(t *rapid.T) question {
	var q question
	nodes := rapid.IntRange(1, 6).Draw(t, "nodes")
	q.used = Usage{Nodes: map[string]NodeUsage{}, Links: map[Direction]model.Bandwidth{}}
	for i := range nodes {
		n := model.SubstrateNode{Name: fmt.Sprintf("n%d", i), CPU: model.CPU(rapid.IntRange(0, 8000).Draw(t, "cpu")),
			Memory: model.Bytes(rapid.IntRange(0, 64).Draw(t, "memory")) << 28, Location: fmt.Sprintf("l%d", i%3),
			MTU: rapid.SampledFrom([]int{0, 1550, 2000, 9000}).Draw(t, "mtu")}
		q.sub.Nodes = append(q.sub.Nodes, n)
		q.used.Nodes[n.Name] = NodeUsage{CPU: model.CPU(rapid.IntRange(0, int(n.CPU)).Draw(t, "used")), Weight: 100}
	}
	bandwidth := rapid.SampledFrom([]model.Bandwidth{0, 10e6, 100e6, 1e9})
	name := func(n int) string { return q.sub.Nodes[n].Name }
	for range rapid.IntRange(0, 8).Draw(t, "substrate links") {
		a, b := rapid.IntRange(0, nodes-1).Draw(t, "a"), rapid.IntRange(0, nodes-1).Draw(t, "b")
		q.sub.Links = append(q.sub.Links, model.SubstrateLink{A: name(a), B: name(b),
			Bandwidth: bandwidth.Draw(t, "bandwidth"),
			Delay:     model.Duration(rapid.IntRange(0, 5).Draw(t, "delay"))})
	}
	elements := rapid.IntRange(1, 25).Draw(t, "elements")
	q.net.Name = "lab"
	if rapid.Bool().Draw(t, "placing") {
		elements = min(elements, rapid.IntRange(2, nodes+1).Draw(t, "few"))
		q.net.Placing = model.Placing{Distinct: rapid.Bool().Draw(t, "distinct"),
			Spread: rapid.SampledFrom([]model.PlacingSpread{"", model.SpreadLocation}).Draw(t, "spread")}
	}
	q.net.Placing.Policy = rapid.SampledFrom([]model.PlacingPolicy{"", model.Balance, model.Pack}).Draw(t, "policy")
	for i := range elements {
		el := model.ResolvedElement{Name: fmt.Sprintf("e%d", i)}
		if rapid.IntRange(0, 2).Draw(t, "asks") == 0 {
			el.CPU = model.CPU(rapid.IntRange(0, 3000).Draw(t, "cpu"))
			el.Memory = model.Bytes(rapid.IntRange(0, 8).Draw(t, "memory")) << 28
		}
		switch rapid.IntRange(0, 9).Draw(t, "pin") {
		case 0:
			el.Node = name(rapid.IntRange(0, nodes-1).Draw(t, "node"))
		case 1:
			el.Location = q.sub.Nodes[rapid.IntRange(0, nodes-1).Draw(t, "location")].Location
		}
		q.net.Elements = append(q.net.Elements, el)
	}
	for i := range rapid.IntRange(0, 2*elements).Draw(t, "links") {
		end := func() model.End {
			return model.End{Element: fmt.Sprintf("e%d", rapid.IntRange(0, elements-1).Draw(t, "end"))}
		}
		q.net.Links = append(q.net.Links, model.Link{Name: fmt.Sprintf("k%d", i), Ends: [2]model.End{end(), end()},
			Bandwidth: bandwidth.Draw(t, "rate") / 10,
			MTU:       rapid.SampledFrom([]int{0, 0, 0, 1500, 1500, 1960}).Draw(t, "mtu")})
	}
	if rapid.Bool().Draw(t, "placed before") {
		q.now.Elements = map[string]string{}
		for _, el := range q.net.Elements {
			if rapid.Bool().Draw(t, "placed") {
				q.now.Elements[el.Name] = name(rapid.IntRange(0, nodes-1).Draw(t, "where"))
			}
		}
	}
	return q
}

func (q question) answer() (model.Placement, error) {
	return Embed(q.sub, nil, q.used, q.net, Current{Placement: q.now})
}

func TestPropertyCapacitiesAndPins(t *testing.T) {
	fitted, apart := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		fits, distinct := capacitiesAndPins(t)
		if fits {
			fitted++
		}
		if distinct {
			apart++
		}
	})
	if fitted < 10 || apart < 1 {
		t.Errorf("only %d random networks fitted, %d of them on nodes of their own; the property was hardly tried",
			fitted, apart)
	}
}

func FuzzCapacitiesAndPins(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { capacitiesAndPins(t) }))
}

// capacitiesAndPins tells whether a random network fitted, and whether each of its elements was to be on a node of its
// own.
func capacitiesAndPins(t *rapid.T) (fitted, distinct bool) {
	q := drawQuestion(t)
	p, err := q.answer()
	if err != nil {
		return false, false
	}
	u := UsageOf([]model.Record{{Network: document(q.net), Assigned: model.Assigned{Placement: p}}})
	at := map[string]model.SubstrateNode{}
	for _, n := range q.sub.Nodes {
		at[n.Name] = n
		own := u.Nodes[n.Name]
		if own.CPU > 0 && own.CPU+q.used.Nodes[n.Name].CPU > n.CPU {
			t.Fatalf("%s of %d has %d for others and %d for us", n.Name, n.CPU, q.used.Nodes[n.Name].CPU, own.CPU)
		}
		if own.Memory > n.Memory {
			t.Fatalf("%s of %d bytes has %d", n.Name, n.Memory, own.Memory)
		}
	}
	for _, el := range q.net.Elements {
		n, ok := at[p.Elements[el.Name]]
		switch {
		case !ok:
			t.Fatalf("%s is on no node", el.Name)
		case el.Node != "" && n.Name != el.Node, el.Location != "" && n.Location != el.Location:
			t.Fatalf("%s is pinned to %q %q and on %s", el.Name, el.Node, el.Location, n.Name)
		}
	}
	capacity := map[Direction]model.Bandwidth{}
	joined := map[Direction]bool{}
	for _, l := range q.sub.Links {
		for _, d := range []Direction{{l.A, l.B}, {l.B, l.A}} {
			joined[d] = true
			if l.Bandwidth == 0 || capacity[d] == unlimited {
				capacity[d] = unlimited
			} else {
				capacity[d] += l.Bandwidth
			}
		}
	}
	for d, bw := range u.Links {
		if len(q.sub.Links) > 0 && (!joined[d] || bw > capacity[d]) {
			t.Fatalf("%v of %d bit/s carries %d", d, capacity[d], bw)
		}
	}
	for _, l := range q.net.Links {
		a, b := p.Elements[l.Ends[0].Element], p.Elements[l.Ends[1].Element]
		paths := p.Links[l.Name]
		if a == b {
			if paths != nil {
				t.Fatalf("%s is within %s and has paths %v", l.Name, a, paths)
			}
			continue
		}
		if len(paths) != 1 || paths[0].Nodes[0] != a || paths[0].Nodes[len(paths[0].Nodes)-1] != b {
			t.Fatalf("%s from %s to %s has paths %v", l.Name, a, b, paths)
		}
		for _, n := range paths[0].Nodes {
			if mtu := cmp.Or(l.MTU, model.DefaultMTU) + model.TunnelOverhead; at[n].MTU != 0 && at[n].MTU < mtu {
				t.Fatalf("%s goes through %s, whose MTU is %d", l.Name, n, at[n].MTU)
			}
		}
	}
	on, in := map[string]int{}, map[string]int{}
	for _, n := range p.Elements {
		on[n]++
		in[at[n].Location]++
	}
	locations := map[string]bool{}
	for _, n := range q.sub.Nodes {
		locations[n.Location] = true
	}
	for n, elements := range on {
		if q.net.Placing.Distinct && elements > 1 {
			t.Fatalf("%s has %d elements that are to be on nodes of their own", n, elements)
		}
	}
	for l, elements := range in {
		if most := (len(q.net.Elements) + len(locations) - 1) / len(locations); q.net.Placing.Spread != "" &&
			elements > most {
			t.Fatalf("%s has %d of %d elements that are to be spread over %d locations", l, elements,
				len(q.net.Elements), len(locations))
		}
	}
	return true, q.net.Placing.Distinct && len(on) > 1
}

func TestPropertySameQuestionSameAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := drawQuestion(t)
		p1, err1 := q.answer()
		p2, err2 := q.answer()
		if !reflect.DeepEqual(p1, p2) || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Fatalf("two answers: %v %v and %v %v", p1, err1, p2, err2)
		}
	})
}

func TestPropertyEmbeddingAgainChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := drawQuestion(t)
		p, err := q.answer()
		if err != nil {
			return
		}
		again, err := Embed(q.sub, nil, q.used, q.net, Current{Placement: p})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(p, again) {
			t.Fatalf("again:\n%v\nfirst:\n%v", again, p)
		}
	})
}

func TestPropertyRemovingALinkMovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := drawQuestion(t)
		p, err := q.answer()
		if err != nil || len(q.net.Links) == 0 {
			return
		}
		k := rapid.IntRange(0, len(q.net.Links)-1).Draw(t, "removed")
		name := q.net.Links[k].Name
		q.net.Links = slices.Delete(slices.Clone(q.net.Links), k, k+1)
		after, err := Embed(q.sub, nil, q.used, q.net, Current{Placement: p})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(after.Elements, p.Elements) {
			t.Fatalf("elements moved from %v to %v", p.Elements, after.Elements)
		}
		for link, paths := range p.Links {
			if link != name && !reflect.DeepEqual(after.Links[link], paths) {
				t.Fatalf("%s moved from %v to %v", link, paths, after.Links[link])
			}
		}
	})
}
