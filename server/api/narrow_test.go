package api

import (
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestOwnersSeeNothingOfMachines: what nodes found, and how others' elements fare, is no owner's business.
func TestOwnersSeeNothingOfMachines(t *testing.T) {
	d := model.Dump{
		Nodes: []model.NodeStatus{{Held: []string{"other"}, Found: &model.Discovery{Node: "n1"},
			Phases: map[model.Phase]int{model.PhaseFailed: 7}}},
		Substrate: []model.SubstrateLinkStatus{{Found: &model.FoundLink{}}, {Found: &model.FoundLink{}, Unstated: true}},
	}
	narrowNodes(&d)
	n := d.Nodes[0]
	if n.Held != nil || n.Found != nil || n.Phases != nil || len(d.Substrate) != 1 || d.Substrate[0].Found != nil {
		t.Errorf("owners see %+v", d)
	}
}
