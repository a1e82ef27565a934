package fabric

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/system/attack"
)

func TestLocalLinks(t *testing.T) {
	n := newNode(t, "")
	a, r, b := newElement(t, "a"), newElement(t, "r"), newElement(t, "b")
	n.plug(a, "eth0", "10.0.1.1/24", "fd00:1::1/64")
	n.plug(r, "eth0", "10.0.1.2/24", "fd00:1::2/64")
	n.plug(r, "eth1", "10.0.2.2/24", "fd00:2::2/64")
	n.plug(b, "eth0", "10.0.2.1/24", "fd00:2::1/64")
	n.local("a:eth0", "r:eth0")
	n.local("r:eth1", "b:eth0")
	if len(n.apply()) == 0 {
		t.Error("nothing changed at the first Apply")
	}
	if changed := n.apply(); len(changed) != 0 {
		t.Errorf("the second Apply changed something: %q", changed)
	}
	r.must("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	a.must("ip", "route", "add", "default", "via", "10.0.1.2")
	a.must("ip", "route", "add", "default", "via", "fd00:1::2")
	b.must("ip", "route", "add", "default", "via", "10.0.2.2")
	b.must("ip", "route", "add", "default", "via", "fd00:2::2")
	a.ping(t, "10.0.2.1")
	a.ping(t, "fd00:2::1")
	b.ping(t, "10.0.1.1")
}

func TestTunnels(t *testing.T) {
	t.Parallel()
	for _, family := range []struct{ name, a, b string }{
		{"IPv4", "192.0.2.1", "192.0.2.2"}, {"IPv6", "2001:db8::1", "2001:db8::2"},
	} {
		t.Run(family.name, func(t *testing.T) { testTunnels(t, family.a, family.b) })
	}
}

func testTunnels(t *testing.T, underA, underB string) {
	n1, n2 := newNode(t, underA), newNode(t, underB)
	underlay(t, n1, n2, 9000)
	a, b := newElement(t, "a"), newElement(t, "b")
	n1.plug(a, "eth0", "10.0.0.1/24", "fd00::1/64").Tunnel = &Tunnel{VNI: 77, Peer: n2.under}
	n2.plug(b, "eth0", "10.0.0.2/24", "fd00::2/64").Tunnel = &Tunnel{VNI: 77, Peer: n1.under}
	n1.state.Peers = []model.Peer{{Name: "n2", Address: n2.under}}
	n2.state.Peers = []model.Peer{{Name: "n1", Address: n1.under}}
	n1.apply()
	n2.apply()
	for _, n := range []*node{n1, n2} {
		if changed := n.apply(); len(changed) != 0 {
			t.Errorf("the second Apply changed something: %q", changed)
		}
	}
	a.ping(t, "10.0.0.2")
	b.ping(t, "fd00::1")
	a.must("ping", "-c", "1", "-M", "do", "-s", "1472", "-W", "2", "10.0.0.2") // 1,500 with both headers
}

func attachmentOf(f *Fabric) linux.Attachment { return linux.Attachment{Block: f.block()} }

// TestSpoofedTunnelPacketsAreDropped sends with the right VNI from an address that is not the tunnel's other end.
func TestSpoofedTunnelPacketsAreDropped(t *testing.T) {
	t.Parallel()
	attack.Tell(t, "tunnel packets from an address that is not the link's other node", "none arrives")
	n1, n2, a, b := twoNodes(t, 9000)
	a.ping(t, "10.0.0.2")
	n2.must("ip", "address", "add", "192.0.2.66/24", "dev", "under")
	before := n1.counters()[portID("net/a:eth0")]
	n2.fabric.pipe.Peers[0] = pipeline.NewPeer(netip.MustParseAddr("192.0.2.66"))
	if out, err := b.run("ping", "-c", "3", "-i", "0.01", "-W", "1", "10.0.0.1"); err == nil {
		t.Errorf("a spoofed packet was answered:\n%s", out)
	}
	after := n1.counters()[portID("net/a:eth0")]
	if after.TxPackets != before.TxPackets || after.Drops[NotThePeer] == 0 {
		t.Errorf("before: %+v\nafter: %+v", before, after)
	}
	n2.apply()
	b.ping(t, "10.0.0.1")
	// A VNI of no port.
	n2.state.Ports[0].Tunnel.VNI = 78
	n2.apply()
	if out, err := b.run("ping", "-c", "1", "-W", "1", "10.0.0.1"); err == nil {
		t.Errorf("a VNI of no port was answered:\n%s", out)
	}
	if n1.counters()[model.PortID{}].Drops[NoPort] == 0 {
		t.Errorf("no drop counted: %+v", n1.counters()[model.PortID{}])
	}
}

// TestMTU carries frames of 1,500 bytes over an underlay of 1,550, without a fragment.
func TestMTU(t *testing.T) {
	t.Parallel()
	n1, _, a, _ := twoNodes(t, 1550)
	for _, to := range []string{"10.0.0.2", "fd00::2"} {
		size := "1472"
		if to == "fd00::2" {
			size = "1452"
		}
		a.must("ping", "-c", "2", "-i", "0.01", "-M", "do", "-s", size, "-W", "2", to)
	}
	if out := n1.must("nstat", "-asz", "IpFragCreates"); !strings.Contains(out, "IpFragCreates                   0") {
		t.Errorf("the underlay's packets were fragmented:\n%s", out)
	}
}

// TestEdges joins elements to a device of the node, untagged and by VLAN; what is no edge's stays the host's.
func TestEdges(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	outside := newElement(t, "outside")
	n.pair(outside, "wire", "10.9.0.1/24")
	wire := n.dirs.PortDevice(portID("net/outside:wire"))
	a, b := newElement(t, "a"), newElement(t, "b")
	n.must("ip", "address", "add", "10.9.0.2/24", "dev", wire)
	n.plug(a, "eth0", "10.7.0.1/24").Edge = &Edge{Device: wire, VLAN: 42}
	n.apply()
	if changed := n.apply(); len(changed) != 0 {
		t.Errorf("changed: %q", changed)
	}
	outside.ping(t, "10.9.0.2") // the host's
	// The far side of VLAN 42 is a fabric too: this kernel may have no VLAN devices.
	n2 := &node{space: outside.space, dirs: n.dirs}
	n2.dirs.Node, n2.dirs.Run = "n2", n.dirs.Run+"/n2"
	n2.open()
	t.Cleanup(func() { n2.fabric.Destroy() })
	c := newElement(t, "c")
	n2.plug(c, "eth0", "10.7.0.2/24").Edge = &Edge{Device: "wire", VLAN: 42}
	n2.apply()
	a.ping(t, "10.7.0.2")
	outside.ping(t, "10.9.0.2")
	tagged := n.capture(t, "a:eth0")
	a.ping(t, "10.7.0.2")
	for _, p := range tagged.packets(t) {
		if len(p.data) > 13 && p.data[12] == 0x81 && p.data[13] == 0 {
			t.Errorf("the element sees the edge's tag: %x", p.data)
		}
	}
	// Untagged beside it: now the host's frames are the element's.
	n.plug(b, "eth0", "10.9.0.3/24").Edge = &Edge{Device: wire}
	n.apply()
	outside.ping(t, "10.9.0.3")
	a.ping(t, "10.7.0.2")
	if out, err := outside.run("ping", "-c", "1", "-W", "1", "10.9.0.2"); err == nil {
		t.Errorf("the host still gets the edge's frames:\n%s", out)
	}
	n.state.Ports = nil
	n.apply()
	outside.ping(t, "10.9.0.2")
	if out := n.must("tc", "qdisc", "show", "dev", wire); strings.Contains(out, "clsact") {
		t.Errorf("the edge's filter is still there:\n%s", out)
	}
	// A node that ends gives the host its device back.
	n.plug(b, "eth1", "10.9.0.3/24").Edge = &Edge{Device: wire}
	n.apply()
	for range 2 {
		n.do(func() { n.check(ReleaseEdges(n.dirs), "release the edges") })
	}
	outside.ping(t, "10.9.0.2")
	if out := n.must("ip", "-d", "link", "show", "dev", wire) + n.must("tc", "qdisc", "show", "dev",
		wire); strings.Contains(out, "clsact") ||
		!strings.Contains(out, "promiscuity 0") {
		t.Errorf("the node's edge has left something on the device:\n%s", out)
	}
}
