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
		Assigned: model.Assigned{Placement: model.Placement{
			Elements: map[string]string{"a": "n1"}, Links: map[string][]model.LinkPath{
				"a--x": {{Nodes: []string{"n3", "n1"}, Bandwidth: 100e6}}}}}}
	after := model.Record{Network: model.Network{Name: "lab", Elements: []model.Element{el("a", 1500), el("b", 0),
		el("c", 500)}, Links: []model.Link{{Name: "a--c"}}},
		Assigned: model.Assigned{Placement: model.Placement{
			Elements: map[string]string{"a": "n1", "b": "n1", "c": "n2"},
			Links:    map[string][]model.LinkPath{"a--c": {{Nodes: []string{"n1", "n3", "n2"}, Bandwidth: 200e6}}}}}}
	f := lab()
	f.dump.Nodes = []model.NodeStatus{
		{SubstrateNode: model.SubstrateNode{Name: "n1", CPU: 4000, Memory: 8 << 30}, CPUReserved: 3000},
		{SubstrateNode: model.SubstrateNode{Name: "n2", CPU: 4000, Memory: 8 << 30}, MemoryReserved: 1 << 30}}
	planned := []model.ApplyResult{{Record: after, Before: &before, Changed: true}}
	f.dump.Substrate = []model.SubstrateLinkStatus{
		{SubstrateLink: model.SubstrateLink{A: "n3", B: "n1", Bandwidth: 1e9}, Reserved: 300e6},
		{SubstrateLink: model.SubstrateLink{A: "n3", B: "n2"}}}
	left, err := leftAfter(t.Context(), f, planned)
	if err != nil {
		t.Fatal(err)
	}
	want := "  on n1: a, b; 0.5 of 4 cores and 8GiB of 8GiB left\n" +
		"  on n2: c; 3.5 of 4 cores and 7GiB of 8GiB left\n" +
		"  by n1 → n3 → n2: a--c; left on n1 – n3 600Mbit of 1Gbit\n"
	if got := placesOf(planned[0], left); got != want {
		t.Errorf("it says\n%swant\n%s", got, want)
	}
	f.down = true
	if _, err := leftAfter(t.Context(), f, planned); err == nil {
		t.Error("what nobody can tell is told")
	}
}
