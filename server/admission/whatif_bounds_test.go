package admission

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
)

// However many networks a question concerns, it takes so many steps in all. What was not worked out is told.
func TestWhatIfIsBounded(t *testing.T) {
	var documents []model.Network
	for i := range 20 {
		documents = append(documents, chain(fmt.Sprintf("net%02d", i), 4, 50, 1e6))
	}
	s, networks := ring(t, 4, documents...)
	ask := model.WhatIf{Down: []string{"n2"}, Add: []model.NodeToCome{{Name: "n1"}}}
	whole := whatIf(t, s, networks, ask)
	if whole.Spent || len(whole.Networks) < 10 {
		t.Fatalf("worked out whole it is %+v", whole)
	}
	unknown := func(r model.WhatIfResult) (n int) {
		for _, w := range r.Networks {
			if w.Unknown {
				if n++; len(w.Elements)+len(w.Refused) > 0 {
					t.Errorf("of what was not worked out is told %+v", w)
				}
			}
		}
		return n
	}
	last := len(whole.Networks) + 1
	for _, steps := range []int{1, 300, 600} {
		r, err := s.whatIf(networks, ask, t.Context().Err, steps)
		if err != nil || !r.Spent || len(r.Networks) != len(whole.Networks) || r.Moves != nil {
			t.Fatalf("with %d steps it is %+v, %v", steps, r, err)
		}
		n := unknown(r)
		if n == 0 || n >= last {
			t.Errorf("with %d steps %d networks are unknown, with fewer steps %d were", steps, n, last)
		}
		last = n
		if k := len(r.Networks) - n; !reflect.DeepEqual(r.Networks[:k], whole.Networks[:k]) {
			t.Errorf("with %d steps the first %d are told to be other", steps, k)
		}
	}
}

// Who has gone gets no moves worked out.
func TestWhatIfEndsWhenNobodyWaits(t *testing.T) {
	s, networks := ring(t, 3, chain("lab", 9, 1200, 10e6))
	gone := errors.New("gone")
	if _, err := s.WhatIf(networks, model.WhatIf{Add: []model.NodeToCome{{Name: "n1"}}},
		func() error { return gone }); !errors.Is(err, gone) {
		t.Errorf("it ended with %v", err)
	}
}

// No link at all would mean that each node reaches each.
func TestWhatIfNodesComeWithoutLinks(t *testing.T) {
	s, networks := ring(t, 3, chain("lab", 4, 1500, 10e6))
	all := []string{"n1", "n2", "n3"}
	_, err := s.WhatIf(networks, model.WhatIf{Down: all, Add: []model.NodeToCome{{Name: "x", Like: "n1"},
		{Name: "y", Like: "n1"}}}, t.Context().Err)
	if err == nil || !strings.Contains(err.Error(), "no link would be left between x, y") {
		t.Errorf("two nodes in place of all are refused with %v", err)
	}
	r := whatIf(t, s, networks, model.WhatIf{Down: all, Add: []model.NodeToCome{{Name: "x", Like: "n1"},
		{Name: "y", CPU: 4000, Memory: 4 << 30, Bandwidth: 1e9}}})
	if len(r.Links) != 1 || len(r.Notes) != 0 || len(r.Networks[0].Refused) > 0 {
		t.Errorf("with one that is joined to all it is %+v", r)
	}
	s, networks = ring(t, 5, chain("lab", 4, 1500, 10e6))
	r = whatIf(t, s, networks, model.WhatIf{Down: []string{"n2", "n5"}, Add: []model.NodeToCome{{Name: "n1"}}})
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "node n1-2 would be joined to no other") {
		t.Errorf("of a node without neighbours is told %q", r.Notes)
	}
	if r = whatIf(t, s, networks, model.WhatIf{Down: []string{"n2"}, Add: []model.NodeToCome{{Name: "n1"}}}); r.Notes != nil {
		t.Errorf("of a node with one neighbour is told %q", r.Notes)
	}
}

// moving has an element of a network be copied to another node.
func moving(n *Network, element, to string) {
	n.Record.Moving = &model.Moving{Move: "m1", Element: element, From: n.Record.Assigned.Placement.Elements[element],
		To: to, Step: model.MoveCopying, Placement: n.Record.Assigned.Placement}
}

// What is being moved stays where it is and has room at both nodes, or at none where one of them goes.
func TestWhatIfHoldsWhatIsBeingMoved(t *testing.T) {
	pinned := chain("lab", 3, 1000, 10e6)
	for i := range pinned.Elements {
		pinned.Elements[i].Node = fmt.Sprint("n", i+1)
	}
	s, networks := ring(t, 3, pinned)
	for i := range networks[0].Record.Network.Elements {
		networks[0].Record.Network.Elements[i].Node, networks[0].Resolved.Elements[i].Node = "", ""
	}
	moving(&networks[0], "r2", "n3")
	used := func(r model.WhatIfResult) (all model.CPU) {
		for _, n := range r.Nodes {
			all += n.CPU - n.CPULeft
		}
		return all
	}
	for down, want := range map[string]model.CPU{"n1": 4000, "n2": 3000, "n3": 3000} {
		r := whatIf(t, s, networks, model.WhatIf{Down: []string{down}})
		if got := used(r); got != want || len(r.Networks) != 1 || len(r.Networks[0].Refused) > 0 {
			t.Errorf("without %s %d are taken of what is left, want %d: %+v", down, got, want, r.Networks)
		}
		for _, m := range r.Networks[0].Elements {
			if down != "n2" && m.Element == "r2" {
				t.Errorf("without %s what is being moved would be on %s", down, m.To)
			}
		}
	}
	// Its new place is taken: what must leave n1 beside it does not fit there.
	moving(&networks[0], "r3", "n2")
	networks[0].Resolved.Elements[0].Node = "n1"
	other := chain("other", 1, 2500, 0)
	other.Elements[0].Node = "n1"
	networks = append(networks, must(t, s, other, nil))
	networks[1].Record.Network.Elements[0].Node, networks[1].Resolved.Elements[0].Node = "", ""
	r := whatIf(t, s, networks, model.WhatIf{Down: []string{"n1"}})
	if is := r.Networks[1]; len(is.Refused) > 0 || is.Elements[0].To != "n3" {
		t.Errorf("beside a move to n2 it is %+v, %+v", is, r.Nodes)
	}
}

// A move that is under way is not told to be worth it, and neither is what would cross it.
func TestWhatIfLeavesMovesAlone(t *testing.T) {
	s, networks := ring(t, 3, chain("lab", 9, 1200, 10e6))
	ask := model.WhatIf{Add: []model.NodeToCome{{Name: "n1"}}}
	r := whatIf(t, s, networks, ask)
	if len(r.Moves) != 1 {
		t.Fatalf("what is worth it: %+v", r.Moves)
	}
	m := r.Moves[0].Elements[0]
	for _, step := range []model.MoveStep{model.MoveCopying, model.MoveStarting} {
		moving(&networks[0], m.Element, "n3")
		networks[0].Record.Moving.Step = step
		if r = whatIf(t, s, networks, ask); len(r.Moves) > 0 {
			t.Errorf("while %s is being moved (%s) it is worth it to make %+v", m.Element, step, r.Moves)
		}
	}
}

// On the only node an edge need not say where its device is. It is there, whatever comes.
func TestWhatIfKeepsDevicesOfTheOnlyNode(t *testing.T) {
	s := nodes(1)
	doc := chain("lab", 2, 1800, 0)
	doc.Edges = []model.Edge{{Name: "out", End: model.End{Element: "r1", Interface: "out"}, Device: "eth1"}}
	networks := []Network{must(t, s, doc, nil)}
	big := []model.NodeToCome{{Name: "big", CPU: 16_000, Memory: 64 << 30}}
	r := whatIf(t, s, networks, model.WhatIf{Down: []string{"n1"}, Add: big})
	if len(r.Networks) != 1 || len(r.Networks[0].Lost) != 1 || len(r.Networks[0].Refused) > 0 ||
		r.Networks[0].Lost[0].Why != "the device of its edge out is on n1" {
		t.Errorf("without the device's node it is %+v", r.Networks)
	}
	r = whatIf(t, s, networks, model.WhatIf{Add: big})
	for _, w := range r.Moves {
		for _, m := range w.Elements {
			if m.Element == "r1" {
				t.Errorf("an element would leave its edge's device for %s", m.To)
			}
		}
	}
}

// What is taken is the same, however it was summed up.
func TestUsageIsTakenBack(t *testing.T) {
	_, networks := ring(t, 3, chain("a", 5, 500, 5e6), chain("b", 4, 300, 7e6))
	moving(&networks[0], "r2", "n3")
	networks[0].Record.Moving.Placement.Links = map[string][]model.LinkPath{"r1--r2": {{Nodes: []string{"n1", "n3"},
		Bandwidth: 5e6}}}
	used := embedding.UsageOf([]model.Record{networks[0].Record, networks[1].Record})
	used.Drop(&networks[0].Record)
	alone := embedding.UsageOf([]model.Record{networks[1].Record})
	for node, is := range used.Nodes {
		if is != alone.Nodes[node] {
			t.Errorf("of %s %+v is taken, want %+v", node, is, alone.Nodes[node])
		}
	}
	for d, is := range used.Links {
		if is != alone.Links[d] {
			t.Errorf("of %v %d is taken, want %d", d, is, alone.Links[d])
		}
	}
}
