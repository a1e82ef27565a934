package agent

import (
	"testing"

	"github.com/polyplane/polyplane/model"
)

// Nobody gets the disk of an element before the next life of the agent would leave that element alone, too.
func TestDepartsOnlyWhenNoted(t *testing.T) {
	id := model.ID{Network: "lab", Element: "r1"}
	var m moves
	if m.noted(id, "m1") || m.noted(id, "") {
		t.Error("what was never kept is noted")
	}
	m.note(&model.NodeState{Networks: []model.NodeNetwork{{Name: "lab", Elements: []model.NodeElement{{
		PlacedElement: model.PlacedElement{Name: "r1"}, Leaving: "m1"}}}}})
	if !m.noted(id, "m1") || m.noted(id, "m2") {
		t.Error("what was kept is not noted, or another move is")
	}
	m.note(&model.NodeState{})
	if m.noted(id, "m1") {
		t.Error("a move that was taken back is still noted")
	}
}
