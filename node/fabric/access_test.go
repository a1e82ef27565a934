package fabric

import (
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// TestAccessPorts sends frames with all sorts of tags over a link between two elements of one node. Where it is an access
// port's, none with a tag passes, either way; else all of them do, as they are.
func TestAccessPorts(t *testing.T) {
	t.Parallel()
	attack.Tell(t, "frames with tags of every kind are sent over the link of an access port, to hop into another VLAN",
		"none passes")
	for _, access := range []bool{false, true} {
		n := newNode(t, "")
		a, b := newElement(t, "a"), newElement(t, "b")
		n.plug(a, "eth0")
		n.plug(b, "eth0")
		for i := range n.state.Ports {
			p := &n.state.Ports[i]
			p.Local, p.Untagged = n.state.Ports[1-i].ID, access
			p.MAC = nil // as of a switch's port: frames to anybody are for it
		}
		n.apply()
		want := edgeTags
		if access {
			want = map[string][]byte{"untagged": nil, "priority": nil}
		}
		for _, way := range [][2]*element{{a, b}, {b, a}} {
			heard := hear(t, way[1], "eth0", len(want), func() {
				for name, tags := range edgeTags {
					sendTagged(way[0], "eth0", name, tags)
				}
			})
			compareTags(t, "over a link", heard, want)
			dropped := n.counters()[portID("net/"+way[0].name+":eth0")].Drops[Tagged]
			if want := len(edgeTags) - len(want); dropped != uint64(want) {
				t.Errorf("access %v: %d frames are told to have been dropped, of %d", access, dropped, want)
			}
		}
		n.state.Ports[0].Untagged = !access // it can change while frames pass
		n.apply()
		awaited := 1
		if access {
			awaited++ // the tagged one as well
		}
		heard := hear(t, b, "eth0", awaited, func() {
			sendTagged(a, "eth0", "43", edgeTags["43"])
			sendTagged(a, "eth0", "untagged", nil) // it passes in any case, and comes last
		})
		if _, came := heard["43"]; came != access {
			t.Errorf("access %v, changed: a frame with a tag came: %v", access, came)
		}
	}
}

// TestTagsBetweenNodes sends such frames, as long as a link's MTU lets them be, through a tunnel to another node.
func TestTagsBetweenNodes(t *testing.T) {
	t.Parallel()
	for _, access := range []bool{false, true} {
		n1, n2 := newNode(t, "192.0.2.1"), newNode(t, "192.0.2.2")
		underlay(t, n1, n2, 9000)
		n1.state.Peers = []model.Peer{{Name: "n2", Address: n2.under}}
		n2.state.Peers = []model.Peer{{Name: "n1", Address: n1.under}}
		a, b := newElement(t, "a"), newElement(t, "b")
		n1.plug(a, "eth0").Tunnel = &Tunnel{VNI: 77, Peer: n2.under}
		n2.plug(b, "eth0").Tunnel = &Tunnel{VNI: 77, Peer: n1.under}
		for _, n := range []*node{n1, n2} {
			n.state.Ports[0].MAC, n.state.Ports[0].Untagged = nil, access
			n.apply()
		}
		want := edgeTags
		if access {
			want = map[string][]byte{"untagged": nil, "priority": nil}
		}
		heard := hear(t, b, "eth0", len(want), func() {
			for name, tags := range edgeTags {
				sendTagged(a, "eth0", name, tags)
			}
		})
		compareTags(t, "through a tunnel", heard, want)
	}
}
