package fabric

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// TestDeadNetworksFramesReachNobody deletes a network whose frames wait in its slice's slow queue, or in the queue of a
// port of a router, ends the agent, and has another network take the port's slot: what waited reaches nobody and is
// counted as such. With the generation put back to what it was, it reaches the other network: so it would if slots were
// all that marks say.
func TestDeadNetworksFramesReachNobody(t *testing.T) {
	t.Parallel()
	attack.Tell(t, "a network with frames in a slow queue is deleted, and its slot given to another, with and "+
		"without a new agent",
		"none of its frames reaches the other")
	for _, restart := range []bool{true, false} {
		for _, back := range []bool{false, true} {
			for try := 0; !deadNetwork(t, restart, back); try++ {
				if try == 20 {
					t.Fatal("the machine is too busy to see what waits in a queue")
				}
			}
		}
	}
}

// deadNetwork does it once, unless the queue was empty before the other network had the slot.
func deadNetwork(t *testing.T, restart, back bool) bool {
	t.Helper()
	n1, n2, a, _ := twoNodes(t, 1600)
	n1.state.Slices = map[string]model.Bandwidth{"net": 100e3}
	n1.apply()
	sendMany(a, "10.0.0.2")
	began := time.Now()
	old := portID("net/a:eth0")
	slot := n1.fabric.slots[old]
	generation := n1.fabric.pipe.Generations[slot]
	// The network goes, on both nodes.
	n1.state.Ports, n1.state.Slices, n2.state.Ports = nil, nil, nil
	n1.apply()
	n2.apply()
	// Another one comes.
	c, d := newElement(t, "c"), newElement(t, "d")
	n1.plug(c, "eth0", "10.0.0.1/24").Tunnel = &Tunnel{VNI: 78, Peer: n2.under}
	n2.plug(d, "eth0", "10.0.0.2/24").Tunnel = &Tunnel{VNI: 78, Peer: n1.under}
	n1.state.Ports[0].ID, n2.state.Ports[0].ID = portID("other/c:eth0"), portID("other/d:eth0")
	n2.apply()
	if restart {
		n1.restart()
	} else {
		time.Sleep(numberRest)
		n1.apply()
		n1.state.Ports[0].ID = portID("other/e:eth0") // the first pass saw that the slot has rested
	}
	if n1.apply(); n1.fabric.slots[n1.state.Ports[0].ID] != slot {
		t.Fatalf("slot %d is not used again: %v", slot, n1.fabric.slots)
	}
	if back {
		n1.fabric.pipe.Generations[slot] = generation
	}
	time.Sleep(time.Second)
	// frames of 1,042 bytes, and perhaps some short ones of its own
	got := n2.counters()[portID("other/d:eth0")].TxBytes / 1000
	stale := n1.counters()[model.PortID{}].Drops[Stale]
	// A second passes after the slot was given away, in which a dozen of them come to their turn: all have had it after
	// five.
	if took := time.Since(began); took > 4*time.Second && !(got > 0 && !back) &&
		(back && got < 5 || !back && stale < 5) {
		t.Logf("it took %s, on a busy machine: what waited has left the queue before", took)
		return false
	}
	switch {
	case back && got < 5:
		t.Errorf("with the generation put back only %d frames came: the test would notice nothing", got)
	case !back && stale < 5:
		t.Errorf("only %d frames are told to be of a port that is gone", stale)
	case !back && got > 0:
		t.Errorf("%d frames reached another network", got)
	}
	t.Logf("restarted %v, generation put back %v: %d frames at another network, %d dropped", restart, back, got, stale)
	return true
}

// TestDeadRoutersFramesReachNobody is the same for what waits in the queue before a router that the data path forwards
// for: the next port with that slot has a queue too, and finds the devices with the frames in them.
func TestDeadRoutersFramesReachNobody(t *testing.T) {
	t.Parallel()
	attack.Tell(t, "frames wait in the queue before a fast router, whose network is deleted",
		"none of them reaches another network")
	for _, back := range []bool{false, true} {
		l := newRouted(t)
		l.port("r:left").Shape.Bandwidth = 100e3
		l.steer(true)
		sendMany(l.a, "10.1.0.1")
		slot := l.fabric.slots[portID("net/r:left")]
		generation := l.fabric.pipe.Generations[slot]
		if err := l.fabric.Place(l.id).Leave(); err != nil {
			t.Fatal(err)
		}
		l.state.Ports, l.state.Steering = nil, nil
		l.apply()
		l.restart()
		c := newElement(t, "c")
		for i := range int(slot) {
			l.plug(c, name(i))
			l.state.Ports[i].ID = portID("other/c:" + name(i))
			l.state.Ports[i].MAC = nil
		}
		if l.apply(); l.fabric.slots[l.state.Ports[slot-1].ID] != slot {
			t.Fatalf("slot %d is not used again: %v", slot, l.fabric.slots)
		}
		if back {
			l.fabric.pipe.Generations[slot] = generation
		}
		received := func() (bytes uint64) {
			c.do(func() {
				d, err := netlink.LinkByName(name(int(slot) - 1))
				c.check(err, "find the interface")
				bytes = d.Attrs().Statistics.RxBytes
			})
			return bytes
		}
		before := received()
		time.Sleep(time.Second)
		after := received()
		if came := after > before+1000; came != back {
			t.Errorf("generation put back %v: another network received %d bytes, then %d", back, before, after)
		}
		if stale := l.counters()[model.PortID{}].Drops[Stale]; !back && stale < 5 {
			t.Errorf("only %d frames are told to be of a port that is gone", stale)
		}
	}
}

// sendMany sends some 60 packets at once.
func sendMany(e *element, to string) {
	e.do(func() {
		c, err := net.Dial("udp", to+":9")
		e.check(err, "dial %s", to)
		defer c.Close()
		for range 60 {
			c.Write(make([]byte, 1000)) //nolint:errcheck // what is refused because of an earlier one
		}
	})
}
