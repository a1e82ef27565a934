package model

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

// relayedRecord is a network with a link of 80 Mbit from a on n1 to b on n2, on a path.
func relayedRecord(path ...string) (ResolvedRecord, Substrate) {
	link := Link{Name: "a--b", Ends: [2]End{{"a", "eth0"}, {"b", "eth0"}}, Bandwidth: 80e6}
	end := func(name, far string) ResolvedElement {
		return ResolvedElement{Name: name, Kind: Host, Interfaces: []ResolvedInterface{{Name: "eth0", Link: "a--b",
			MTU: DefaultMTU, Far: &Far{Element: far, Interface: "eth0"}}}}
	}
	r := ResolvedRecord{Network: Resolved{Name: "lab", Elements: []ResolvedElement{end("a", "b"), end("b", "a")},
		Links: []Link{link}}, Assigned: Assigned{Index: 7, Links: map[string]AssignedLink{"a--b": {VNI: 5}},
		Placement: Placement{Elements: map[string]string{"a": path[0], "b": path[len(path)-1]},
			Links: map[string][]LinkPath{"a--b": {{Nodes: path}}}}}}
	s := Substrate{}
	for i, n := range []string{"n1", "n2", "n3", "n4"} {
		s.Nodes = append(s.Nodes, SubstrateNode{Name: n, Simulated: true,
			Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})})
	}
	return r, s
}

func TestPathsBecomeRelays(t *testing.T) {
	r, s := relayedRecord("n1", "n3", "n4", "n2")
	states := NodeStates([]ResolvedRecord{r}, s)
	for node, via := range map[string]string{"n1": "n3", "n2": "n4"} {
		far := states[node].Networks[0].Elements[0].Interfaces[0].Far
		if far.Via != via || far.VNI != 5 {
			t.Errorf("on %s the link's far end is %+v, not by way of %s", node, far, via)
		}
	}
	shape := &Shape{Bandwidth: 80e6}
	for node, nodes := range map[string][2]string{"n3": {"n1", "n4"}, "n4": {"n3", "n2"}} {
		want := []NodeNetwork{{Name: "lab", Index: 7,
			Relays: []Relay{{Link: "a--b", VNI: 5, Nodes: nodes, Shape: shape, MTU: DefaultMTU}}}}
		if got := states[node].Networks; !reflect.DeepEqual(got, want) {
			t.Errorf("%s has %+v, not %+v", node, got, want)
		}
	}
	// What has not changed is known not to have.
	again := NodeStates([]ResolvedRecord{r}, s)
	for node, state := range again {
		before := states[node]
		if state.Share(&before); !state.Networks[0].Is(&before.Networks[0]) {
			t.Errorf("%s: the network is told as changed", node)
		}
	}
}

func TestPathsWithoutRelays(t *testing.T) {
	none := func(name string, r ResolvedRecord, s Substrate) {
		t.Helper()
		for node, state := range NodeStates([]ResolvedRecord{r}, s) {
			for _, n := range state.Networks {
				if len(n.Relays) > 0 {
					t.Errorf("%s: %s relays %+v", name, node, n.Relays)
				}
				for _, e := range n.Elements {
					if via := e.Interfaces[0].Far.Via; via != "" {
						t.Errorf("%s: on %s the far end of %s is by way of %s", name, node, e.Name, via)
					}
				}
			}
		}
	}
	r, s := relayedRecord("n1", "n2")
	none("direct", r, s)
	r, s = relayedRecord("n1", "n3", "n2")
	s.Nodes[2].Simulated, s.Nodes[2].Joined = false, true
	none("over a machine of its own", r, s)
	r, s = relayedRecord("n1", "n3", "n2")
	r.Assigned.Placement.Elements["b"] = "n4"
	none("of another placement", r, s)
	r, s = relayedRecord("n1", "n3", "n2")
	r.Assigned.Placement.Elements["b"] = "n1"
	none("within a node", r, s)
}

// TestTurn goes from one path to the next, as nodes are told of it: first they take packets from both, then the ends
// send by the new one.
func TestTurn(t *testing.T) {
	r, s := relayedRecord("n1", "n2")
	next := uint32(5)
	number := func() (uint32, error) { next++; return next, nil }
	turn := func(nodes ...string) {
		t.Helper()
		was := r.Assigned
		r.Assigned.Links = map[string]AssignedLink{"a--b": {VNI: was.Links["a--b"].VNI}}
		r.Assigned.Placement.Links = map[string][]LinkPath{"a--b": {{Nodes: nodes}}}
		if err := r.Assigned.Turn(&was, s, number); err != nil {
			t.Fatal(err)
		}
	}
	told := func(what string, far PlacedFar, relays map[string][]uint32) {
		t.Helper()
		states := NodeStates([]ResolvedRecord{r}, s)
		is := *states["n1"].Networks[0].Elements[0].Interfaces[0].Far
		far.Far, far.Node = is.Far, is.Node
		if !reflect.DeepEqual(is, far) {
			t.Errorf("%s: n1 is told %+v, not %+v", what, is, far)
		}
		for _, node := range []string{"n3", "n4"} {
			var vnis []uint32
			for _, n := range states[node].Networks {
				for _, relay := range n.Relays {
					vnis = append(vnis, relay.VNI)
				}
			}
			if !reflect.DeepEqual(vnis, relays[node]) {
				t.Errorf("%s: %s relays %v, not %v", what, node, vnis, relays[node])
			}
		}
	}
	turned := func() {
		turn := r.Assigned.Turns["a--b"]
		turn.Turned = true
		r.Assigned.Turns = map[string]Turn{"a--b": turn}
	}
	turn("n1", "n2")
	told("the same path", PlacedFar{VNI: 5}, nil)
	turn("n1", "n3", "n2")
	told("made", PlacedFar{VNI: 5, Also: []FarTunnel{{6, "n3"}}}, map[string][]uint32{"n3": {6}})
	turn("n1", "n3", "n2")
	told("the same path again", PlacedFar{VNI: 5, Also: []FarTunnel{{6, "n3"}}}, map[string][]uint32{"n3": {6}})
	turn("n1", "n4", "n2")
	told("another one before that", PlacedFar{VNI: 5, Also: []FarTunnel{{7, "n4"}}}, map[string][]uint32{"n4": {7}})
	turned()
	told("turned", PlacedFar{VNI: 7, Via: "n4", Also: []FarTunnel{{VNI: 5}}}, map[string][]uint32{"n4": {7}})
	turn("n1", "n3", "n4", "n2")
	told("the next one", PlacedFar{VNI: 7, Via: "n4", Also: []FarTunnel{{8, "n3"}, {VNI: 5}}},
		map[string][]uint32{"n3": {8}, "n4": {7, 8}})
	if got := slices.Sorted(slices.Values(r.Assigned.VNIs())); !slices.Equal(got, []uint32{5, 7, 8}) {
		t.Errorf("it has the numbers %v", got)
	}
	whole := s
	s.Nodes = s.Nodes[:3]
	told("n4 is gone", PlacedFar{VNI: 8, Also: []FarTunnel{{VNI: 5}}}, nil)
	s = whole
	r.Assigned.Placement.Elements = map[string]string{"a": "n1", "b": "n4"}
	turn("n1", "n4")
	told("an end on another node", PlacedFar{VNI: 8}, nil)
	for range 5 {
		turn("n1", "n3", "n4")
		turned()
		turn("n1", "n4")
		turned()
	}
	if n := len(r.Assigned.Turns["a--b"].Before); n != MostBefore {
		t.Errorf("it is on %d paths beside its own", n)
	}
	// Machines of their own are reached directly, whatever the path: nothing changes.
	r, s = relayedRecord("n1", "n3", "n2")
	s.Nodes[2].Simulated = false
	turn("n1", "n4", "n3", "n2")
	if r.Assigned.Turns != nil {
		t.Errorf("turned: %+v", r.Assigned.Turns)
	}
}
