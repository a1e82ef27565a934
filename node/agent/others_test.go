package agent

import (
	"slices"
	"testing"
)

// TestWiresBelow: LLDP is spoken on wires, and never where somebody's virtual machines are.
func TestWiresBelow(t *testing.T) {
	mac := [6]byte{2, 0, 0, 0, 0, 1}
	others := map[int32]other{
		1: {name: "lo"},
		2: {name: "eth0", mac: mac, master: 5},
		3: {name: "eth1", mac: mac, master: 5},
		4: {name: "eth2", mac: mac, master: 7},
		5: {name: "bond0", kind: "bond", mac: mac},
		6: {name: "bond0.7", kind: "vlan", mac: mac, lower: 5},
		7: {name: "br0", kind: "bridge", mac: mac},
		8: {name: "vnet0", kind: "tun", mac: mac, master: 7},
		9: {name: "wg0", kind: "wireguard"},
		// The far end of a pair is in another namespace: its number says nothing here.
		10: {name: "wire", kind: "veth", mac: mac, lower: 2},
		11: {name: "odd", kind: "vlan", mac: mac, lower: 11},
		12: {name: "ring0", kind: "vlan", mac: mac, lower: 13},
		13: {name: "ring1", kind: "vlan", mac: mac, lower: 12},
		14: {name: "moved", kind: "vlan", mac: mac, lower: 2, far: true},
	}
	for index, want := range map[int32][]int32{1: nil, 2: {2}, 5: {2, 3}, 6: {2, 3}, 7: {4}, 9: nil, 10: {10}, 11: {11},
		12: nil, 14: {14}, 99: nil} {
		got := wires(others, index)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("below %s are %v, and not %v", others[index].name, got, want)
		}
	}
}
