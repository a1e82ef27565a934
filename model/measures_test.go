package model

import (
	"net/netip"
	"reflect"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	h := NewHistogram(0.001, 0.01)
	for _, d := range []time.Duration{0, time.Millisecond, time.Millisecond + 1, 10 * time.Millisecond, time.Second} {
		h.Observe(d)
	}
	before := h.Clone()
	h.Observe(0)
	if want := []uint64{2, 2, 1}; !reflect.DeepEqual(before.Counts, want) { // a bound is its class's own
		t.Errorf("counted %v, want %v", before.Counts, want)
	}
	if before.Sum < 1.012 || before.Sum > 1.0121 {
		t.Errorf("the sum is %v", before.Sum)
	}
}

func TestNodeStatesNameNeighbours(t *testing.T) {
	s := Substrate{Nodes: []SubstrateNode{{Name: "n1", Address: netip.MustParseAddr("192.0.2.1")},
		{Name: "n2", Address: netip.MustParseAddr("192.0.2.2")},
		{Name: "n3"}, {Name: "n4", Address: netip.MustParseAddr("192.0.2.4")}},
		Links: []SubstrateLink{{A: "n1", B: "n4"}, {A: "n2", B: "n1", Bandwidth: 1e9}, {A: "n1", B: "n3"}}}
	states := NodeStates(nil, s)
	want := []NodeLink{{To: "n2", Address: netip.MustParseAddr("192.0.2.2"), Bandwidth: 1e9},
		{To: "n4", Address: netip.MustParseAddr("192.0.2.4")}}
	if got := states["n1"].Links; !reflect.DeepEqual(got, want) {
		t.Errorf("n1 has the links %+v, want %+v: n3 has no address", got, want)
	}
	if got := states["n2"].Links; len(got) != 1 || got[0].To != "n1" || got[0].Bandwidth != 1e9 {
		t.Errorf("n2 has the links %+v", got)
	}
}
