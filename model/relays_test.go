package model

import (
	"net/netip"
	"reflect"
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
