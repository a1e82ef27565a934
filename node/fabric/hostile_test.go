package fabric

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// TestElementsCannotBeNodes has an element whose edge is on the wire of the underlay send VXLAN to a node, as if it
// were the other one: nothing of it gets there, whole or in fragments, with and without IP options. What else it sends
// there does.
func TestElementsCannotBeNodes(t *testing.T) {
	t.Parallel()
	attack.Tell(t, "an element behind an edge sends tunnel packets to a node",
		"none is taken for another network")
	n1, n2, a, _ := twoNodes(t, 9000)
	a.ping(t, "10.0.0.2")
	// A third node on the same wire, whose element has an edge there.
	n1.must("ip", "link", "add", "lan", "type", "bridge")
	evil := newNode(t, "")
	evil.pair(&element{space: n1.space, name: "lan"}, "evil")
	wire := evil.dirs.PortDevice(portID("net/lan:evil"))
	n1.must("ip", "link", "set", "evil", "master", "lan")
	n1.must("ip", "address", "del", "192.0.2.1/24", "dev", "under")
	n1.must("ip", "link", "set", "under", "master", "lan")
	n1.must("ip", "address", "add", "192.0.2.1/24", "dev", "lan")
	n1.must("ip", "link", "set", "lan", "up")
	a.ping(t, "10.0.0.2")
	x := newElement(t, "x")
	evil.plug(x, "eth0", "192.0.2.3/24").Edge = &Edge{Device: wire}
	evil.state.Peers = []model.Peer{{Name: "n1", Address: n1.under}, {Name: "n2", Address: n2.under}}
	evil.apply()
	x.ping(t, "192.0.2.2")
	// It takes the address of n1, and sends in the VNI of the link between a and b.
	x.must("ip", "address", "add", "192.0.2.1/32", "dev", "eth0")
	x.must("ip", "neighbour", "replace", "192.0.2.2", "lladdr", macOf(n2, "under"), "dev", "eth0")
	b := portID("net/b:eth0")
	forge := func(to netip.Addr, size int) {
		frame := append([]byte{8, 0, 0, 0, 0, 0, 77, 0}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0,
			0, 0, 9, 0x88, 0xb5)
		x.do(func() {
			c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:5000")),
				net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, DefaultTunnelPort)))
			x.check(err, "make a socket")
			defer c.Close()
			for range 20 {
				_, err := c.Write(append(frame, make([]byte, size)...))
				x.check(err, "send")
			}
		})
	}
	before := n2.counters()[b].TxPackets
	for _, size := range []int{50, 5000} { // the second in fragments
		forge(n2.under, size)
	}
	if after := n2.counters()[b].TxPackets; after > before+5 { // its neighbours' own
		t.Errorf("%d forged frames reached the element on the other node", after-before)
	}
	if n := evil.counters()[portID("net/x:eth0")].Drops[ToTunnels]; n != 40 {
		t.Errorf("%d of 40 packets are told as for tunnels", n)
	}
	// To addresses of that machine at which nobody knows it as a node, and from which its kernel takes tunnels' packets
	// all the same.
	n2.must("ip", "address", "add", "192.0.2.22/24", "dev", "under")
	x.must("ip", "neighbour", "replace", "192.0.2.22", "lladdr", macOf(n2, "under"), "dev", "eth0")
	x.must("ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
	for _, to := range []string{"192.0.2.22", "192.0.2.255", "224.0.0.1"} {
		before := n2.counters()[b]
		forge(netip.MustParseAddr(to), 50)
		after := n2.counters()[b]
		if after.TxPackets > before.TxPackets+5 {
			t.Errorf("to %s: %d forged frames reached the element on the other node", to,
				after.TxPackets-before.TxPackets)
		}
		if n := after.Drops[NotThePeer] - before.Drops[NotThePeer]; n != 20 {
			t.Errorf("to %s: %d of 20 are told as not between the tunnel's ends: the test would notice nothing", to, n)
		}
	}
	// The control: a node that does not know the others as nodes lets it through.
	evil.state.Peers = nil
	evil.apply()
	before = n2.counters()[b].TxPackets
	forge(n2.under, 50)
	if after := n2.counters()[b].TxPackets; after < before+10 {
		t.Errorf("of 20 packets %d came: the test would notice nothing", after-before)
	}
}

func macOf(n *node, name string) (mac string) {
	n.do(func() {
		l, err := netlink.LinkByName(name)
		n.check(err, "find %s", name)
		mac = l.Attrs().HardwareAddr.String()
	})
	return mac
}

// TestHostileNode has a node that hosts one link with another send frames in every VNI that this one has, those of
// links between other nodes, of mirrors and of none: only its own link's arrive. It must take another's address for
// more, which the underlay would have to refuse it.
func TestHostileNode(t *testing.T) {
	t.Parallel()
	attack.Tell(t, "a hostile node sends tunnel packets with the numbers of links that it has no part in",
		"none arrives")
	n := newNode(t, "192.0.2.1")
	hostile := newNode(t, "192.0.2.66")
	underlay(t, n, hostile, 1600)
	honest := netip.MustParseAddr("192.0.2.2")
	n.state.Peers = []model.Peer{{Name: "hostile", Address: hostile.under}, {Name: "honest", Address: honest}}
	hostile.state.Peers = []model.Peer{{Name: "n", Address: n.under}}
	victim := newElement(t, "victim")
	n.plug(victim, "own").Tunnel = &Tunnel{VNI: 66, Peer: hostile.under}
	n.plug(victim, "others").Tunnel = &Tunnel{VNI: 5, Peer: honest}
	copied := n.plug(victim, "copied")
	copied.Tunnel, copied.Copies = &Tunnel{VNI: 6, Peer: honest}, true
	source := n.plug(victim, "mirrored")
	source.Copy = &Copy{Tunnel: &Tunnel{VNI: 7, Peer: hostile.under}, Bandwidth: 1e6}
	n.apply()
	x := newElement(t, "x")
	hostile.plug(x, "eth0")
	for vni := uint32(1); vni <= 70; vni++ {
		hostile.state.Ports[0].Tunnel = &Tunnel{VNI: vni, Peer: n.under}
		hostile.apply()
		sendTagged(x, "eth0", "forged", nil)
	}
	c := n.counters()
	if c[portID("net/victim:own")].TxPackets == 0 {
		t.Error("nothing came by its own link: the test would notice nothing")
	}
	for _, ifc := range []string{"others", "copied", "mirrored"} {
		if got := c[portID("net/victim:"+ifc)]; got.TxPackets != 0 {
			t.Errorf("%s got %d frames", ifc, got.TxPackets)
		}
	}
	for _, ifc := range []string{"others", "copied"} {
		if n := c[portID("net/victim:"+ifc)].Drops[NotThePeer]; n == 0 {
			t.Errorf("%s: nothing is told of what was refused", ifc)
		}
	}
}
