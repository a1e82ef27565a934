package admission

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// An owner keeps the devices of nodes that an admin gave the network, and gets no others: not by another name, another
// VLAN, nor by moving the element to another node.
func TestOwnersKeepWhatDevicesTheyHave(t *testing.T) {
	record := func(node, name, device string, vlan int) model.Record {
		var r model.Record
		r.Network.Name = "lab"
		r.Network.Edges = []model.Edge{{Name: name, End: model.End{Element: "r1", Interface: "wan"},
			Device: device, VLAN: vlan}}
		r.Assigned.Placement.Elements = map[string]string{"r1": node}
		return r
	}
	taken := func(next model.Record, old *Network) error { return checkTaken(&next, old) }
	had := &Network{Record: record("n1", "wan", "eth1", 7)}
	if err := taken(record("n1", "renamed", "eth1", 7), had); err != nil {
		t.Errorf("what it had: %v", err)
	}
	for what, next := range map[string]model.Record{"another device": record("n1", "wan", "eth2", 7),
		"another VLAN": record("n1", "wan", "eth1", 8),
		"all VLANs":    record("n1", "wan", "eth1", 0), "another node": record("n2", "wan", "eth1", 7)} {
		if err := taken(next, had); err == nil || !strings.Contains(err.Error(), "only an admin") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := taken(record("n1", "wan", "eth1", 7), nil); err == nil {
		t.Error("a new network takes a device")
	}
}
