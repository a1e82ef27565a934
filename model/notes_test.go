package model

import (
	"slices"
	"testing"
)

func TestNotes(t *testing.T) {
	n := Network{Slice: Slice{Bandwidth: 1}, Links: []Link{
		{Name: "plain"},
		{Name: "rated", Bandwidth: 1},
		{Name: "slow", Delay: 1, Loss: 0.1},
		{Name: "both", Bandwidth: 1, Jitter: 1},
	}}
	want := []string{
		"link rated: its bandwidth is reserved on the nodes, but not yet a cap",
		"link slow: its delay and loss is kept, but not yet applied to packets",
		"link both: its bandwidth is reserved on the nodes, but not yet a cap; its delay is kept, but not yet applied to packets",
		"the slice's bandwidth is kept, but not yet a cap",
	}
	if got := n.Notes(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
