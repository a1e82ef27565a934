package model

import "testing"

// What is set of a placement stays when a file that says nothing of it is applied.
func TestPlacingIsSet(t *testing.T) {
	net := Network{Name: "lab"}
	got, marks, errs := Assign(net, Settings{}, "", []Assignment{{"distinct", "true"}, {"policy", "pack"}})
	if errs != nil || !got.Placing.Distinct || got.Placing.Policy != Pack {
		t.Fatalf("set gives %+v, %v", got.Placing, errs)
	}
	if kept, _ := Inherit(net, got, marks); kept.Placing != got.Placing {
		t.Errorf("a file that says nothing of it makes it %+v", kept.Placing)
	}
	if _, _, errs := Assign(net, Settings{}, "", []Assignment{{"distinct", "perhaps"}}); errs == nil {
		t.Error("distinct=perhaps is taken")
	}
	if _, _, errs := Assign(net, Settings{}, "", []Assignment{{"spread", "rack"}}); errs == nil {
		t.Error("spread=rack is taken")
	}
}
