package model

import (
	"strings"
	"testing"
)

// Lines that do not fit together make no state: nobody may take a part for the whole.
func TestAssemblyRefusesWhatDoesNotFit(t *testing.T) {
	network := func(name string) Update {
		return Update{Network: &NodeNetwork{Name: name,
			Elements: []NodeElement{{PlacedElement: PlacedElement{Name: "r1"}}}}}
	}
	state := func(revision int64, c StateChange) Update {
		return Update{State: &NodeState{Node: "n1", Revision: revision}, Change: &c}
	}
	for _, c := range []struct {
		name  string
		lines []Update
		want  string // of the last state, or of the error
	}{
		{"all", []Update{network("b"), {}, network("a"), state(5, StateChange{Whole: true, Networks: 2})}, "a b"},
		{"none", []Update{state(5, StateChange{Whole: true})}, ""},
		{"one missing", []Update{network("b"), state(5, StateChange{Whole: true, Networks: 2})},
			"has 2 networks, and 1 were told"},
		{"a change of nothing", []Update{network("b"), state(5, StateChange{Since: 4, Networks: 1})},
			"none was told before"},
		{"a change", []Update{network("a"), network("b"), state(5, StateChange{Whole: true, Networks: 2}),
			network("c"), state(6, StateChange{Since: 5, Dropped: []string{"a"}, Networks: 2})}, "b c"},
		{"a change of another", []Update{network("a"), state(5, StateChange{Whole: true, Networks: 1}),
			state(7, StateChange{Since: 6, Networks: 1})}, "a change of revision 6, and revision 5 was told"},
		{"a change that misses one", []Update{network("a"), state(5, StateChange{Whole: true, Networks: 1}),
			state(6, StateChange{Since: 5, Networks: 2})}, "has 2 networks, and 1 were told"},
		{"everything anew", []Update{network("a"), state(5, StateChange{Whole: true, Networks: 1}),
			network("z"), state(3, StateChange{Whole: true, Networks: 1})}, "z"},
		{"a state of an earlier version's manager",
			[]Update{network("a"), state(5, StateChange{Whole: true, Networks: 1}),
				{State: &NodeState{Node: "n1", Revision: 6, Networks: []NodeNetwork{{Name: "q"}}}}}, "q"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a Assembly
			got := "nothing"
			for _, u := range c.lines {
				s, err := a.Add(u)
				if err != nil {
					got = err.Error()
					break
				}
				if s != nil {
					var names []string
					for _, n := range s.Networks {
						names = append(names, n.Name)
					}
					got = strings.Join(names, " ")
				}
			}
			if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// What does not change is the same value, and not only alike.
func TestWhatIsToldTwiceIsShared(t *testing.T) {
	make := func(name string) NodeNetwork {
		return NodeNetwork{Name: name, Index: 1,
			Elements: []NodeElement{{PlacedElement: PlacedElement{Name: "r1", Config: map[string]string{"a": "b"}}}}}
	}
	before := &NodeState{Networks: []NodeNetwork{make("a"), make("b")}}
	after := &NodeState{Networks: []NodeNetwork{make("a"), make("b"), make("c")}}
	after.Networks[1].Elements[0].Config["a"] = "c"
	after.Share(before)
	if !after.Networks[0].Is(&before.Networks[0]) {
		t.Error("what is alike is not shared")
	}
	if after.Networks[1].Is(&before.Networks[1]) || after.Networks[1].Elements[0].Config["a"] != "c" {
		t.Error("what differs is shared")
	}
	renumbered := before.Networks[0]
	renumbered.Index = 9
	if renumbered.Is(&before.Networks[0]) {
		t.Error("another number counts as the same")
	}
}
