package fabric

import (
	"testing"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
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
