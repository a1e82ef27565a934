package fabric

import (
	"bytes"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEdgeTags sends frames with all sorts of tags to a device with two edges, one of VLAN 42 and one of none: the outer tag
// says whose a frame is, VLAN 0 is none (IEEE 802.1Q, priority tags), and what is within it stays.
func TestEdgeTags(t *testing.T) {
	n := newNode(t, "")
	outside := newElement(t, "outside")
	n.pair(outside, "wire", "10.9.0.1/24")
	wire := n.dirs.PortDevice(portID("net/outside:wire"))
	a, b := newElement(t, "a"), newElement(t, "b")
	n.plug(a, "eth0").Edge = &Edge{Device: wire, VLAN: 42}
	n.plug(b, "eth0", "10.9.0.3/24").Edge = &Edge{Device: wire}
	n.apply()
	tagged, untagged := n.capture(t, "a:eth0"), n.capture(t, "b:eth0")
	head := slices.Repeat([]byte{0xff}, 6)
	head = append(head, 2, 0, 0, 0, 0, 9)
	send := func(name string, tags ...byte) {
		frame := append(append(append(slices.Clone(head), tags...), 0x88, 0xb5), name...)
		outside.do(func() {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
			outside.check(err, "open a packet socket")
			defer unix.Close(fd)
			d, err := net.InterfaceByName("wire")
			outside.check(err, "find wire")
			outside.check(unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: d.Index}), "send %s", name)
		})
	}
	send("untagged")
	send("priority", 0x81, 0, 0xa0, 0)
	send("42", 0x81, 0, 0x60, 42)
	send("42-of-7", 0x81, 0, 0, 42, 0x81, 0, 0, 7)
	send("ad-42-of-7", 0x88, 0xa8, 0, 42, 0x81, 0, 0, 7)
	send("43", 0x81, 0, 0, 43)
	send("0-of-42", 0x81, 0, 0, 0, 0x81, 0, 0, 42)
	outside.ping(t, "10.9.0.3") // behind all of them
	inner7, inner42 := []byte{0x81, 0, 0, 7}, []byte{0x81, 0, 0, 42}
	for _, x := range []struct {
		c    *capturing
		who  string
		want map[string][]byte // what is left of the tags, by name
	}{
		{tagged, "the edge of VLAN 42", map[string][]byte{"42": nil, "42-of-7": inner7, "ad-42-of-7": inner7}},
		{untagged, "the edge without a VLAN", map[string][]byte{"untagged": nil, "priority": nil, "0-of-42": inner42}},
	} {
		got := map[string][]byte{}
		for _, p := range x.c.packets(t) {
			rest, ours := bytes.CutPrefix(p.data, head)
			if at := bytes.LastIndex(rest, []byte{0x88, 0xb5}); ours && at >= 0 {
				got[string(rest[at+2:])] = rest[:at]
			}
		}
		for name, tags := range x.want {
			if have, came := got[name]; !came || !bytes.Equal(have, tags) {
				t.Errorf("%s: %s came: %v, with the tags %x; want %x", x.who, name, came, have, tags)
			}
			delete(got, name)
		}
		for name := range got {
			t.Errorf("%s got %s, which is not for it", x.who, name)
		}
	}
}

// TestEdgeDeviceComesBack takes an edge's device away, and brings it back.
func TestEdgeDeviceComesBack(t *testing.T) {
	n := newNode(t, "")
	outside := newElement(t, "outside")
	a := newElement(t, "a")
	n.must("ip", "link", "add", "wire", "type", "veth", "peer", "name", "far")
	n.plug(a, "eth0", "10.7.0.1/24").Edge = &Edge{Device: "wire"}
	n.pair(outside, "eth0", "10.7.0.9/24")
	n.must("ip", "link", "add", "br0", "type", "bridge")
	n.must("ip", "link", "set", "dev", "br0", "up")
	n.must("ip", "link", "set", "dev", "far", "up", "master", "br0")
	n.must("ip", "link", "set", "dev", n.dirs.PortDevice(portID("net/outside:eth0")), "master", "br0")
	n.apply()
	outside.ping(t, "10.7.0.1")
	n.must("ip", "link", "del", "wire")
	if err := n.fabric.Apply(t.Context(), n.state).Failed[portID("net/a:eth0")]; err == nil {
		t.Error("nothing is said of the edge's device being gone")
	}
	n.must("ip", "link", "add", "wire", "type", "veth", "peer", "name", "far")
	n.must("ip", "link", "set", "dev", "far", "up", "master", "br0")
	n.apply()
	outside.ping(t, "10.7.0.1")
}
