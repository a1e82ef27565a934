package cli

import (
	"testing"

	"github.com/polyplane/polyplane/model"
)

func TestPlanTellsPlacesAndWhatIsLeft(t *testing.T) {
	el := func(name string, cpu model.CPU) model.Element {
		return model.Element{Name: name, Kind: model.Router, Amounts: model.Amounts{CPU: cpu}}
	}
	before := model.Record{Network: model.Network{Name: "lab", Elements: []model.Element{el("a", 1000)}},
		Assigned: model.Assigned{Placement: model.Placement{Elements: map[string]string{"a": "n1"}}}}
	after := model.Record{Network: model.Network{Name: "lab", Elements: []model.Element{el("a", 1500), el("b", 0),
		el("c", 500)}, Links: []model.Link{{Name: "a--c"}}},
		Assigned: model.Assigned{Placement: model.Placement{
			Elements: map[string]string{"a": "n1", "b": "n1", "c": "n2"},
			Links:    map[string][]model.LinkPath{"a--c": {{Nodes: []string{"n1", "n3", "n2"}}}}}}}
	f := lab()
	f.dump.Nodes = []model.NodeStatus{
		{SubstrateNode: model.SubstrateNode{Name: "n1", CPU: 4000, Memory: 8 << 30}, CPUReserved: 3000},
		{SubstrateNode: model.SubstrateNode{Name: "n2", CPU: 4000, Memory: 8 << 30}, MemoryReserved: 1 << 30}}
	planned := []model.ApplyResult{{Record: after, Before: &before, Changed: true}}
	nodes, left := leftAfter(t.Context(), f, planned)
	want := "  on n1: a, b; 0.5 of 4 cores and 8GiB of 8GiB left\n" +
		"  on n2: c; 3.5 of 4 cores and 7GiB of 8GiB left\n" +
		"  by n1 → n3 → n2: a--c\n"
	if got := placesOf(planned[0], nodes, left); got != want {
		t.Errorf("it says\n%swant\n%s", got, want)
	}
	// Who may not look at nodes still sees where everything would be.
	if got := placesOf(planned[0], nil, nil); got != "  on n1: a, b\n  on n2: c\n  by n1 → n3 → n2: a--c\n" {
		t.Errorf("without nodes it says\n%s", got)
	}
}
