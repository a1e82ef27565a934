package system

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// rogue are two networks at one device of this machine: host a of the first has one VLAN of it and a way to the
// internet, a switch and a router whose companion is bridges; of the second, o has what is untagged, q another VLAN.
const rogue = `network: mean
switches: {s: {}}
hosts: {a: {}, c: {}}
routers: {r1: {software: static, forwarding: bridge}}
links:
  - a -- s: [10.0.0.0/24, "2001:db8:1::/64"]
  - c -- s
  - r1 -- s
  - a -- r1: [10.0.1.0/24, "2001:db8:2::/64"]
edges:
  v10: {end: a, device: lan0, vlan: 10}
  up: {end: a, internet: {}}
---
network: other
hosts: {o: {}, q: {}}
edges:
  plain: {end: o, device: lan0}
  v20: {end: q, device: lan0, vlan: 20}
  up: {end: o, internet: {}}
`

// rogueFrames are what a host sends that would be everybody's router and DHCP server, with tags before what they are.
func rogueFrames(t *testing.T, from net.HardwareAddr, tags ...uint16) (frames [][]byte) {
	t.Helper()
	build := func(to string, kind layers.EthernetType, content ...gopacket.SerializableLayer) {
		mac, err := net.ParseMAC(to)
		if err != nil {
			t.Fatal(err)
		}
		ether := &layers.Ethernet{SrcMAC: from, DstMAC: mac, EthernetType: kind}
		all := []gopacket.SerializableLayer{ether}
		for i, tag := range tags {
			next := kind
			if i < len(tags)-1 {
				next = layers.EthernetTypeDot1Q
			}
			ether.EthernetType = layers.EthernetTypeDot1Q
			all = append(all, &layers.Dot1Q{VLANIdentifier: tag, Type: next})
		}
		b := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			append(all, content...)...); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, slices.Clone(b.Bytes()))
	}
	ip6 := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: net.ParseIP("fe80::bad"),
		DstIP: net.ParseIP("ff02::1")}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(134, 0)}
	icmp.SetNetworkLayerForChecksum(ip6) //nolint:errcheck // it is IPv6
	padded := (len(marked) + 2 + 7) / 8 * 8
	option := append([]byte{253, byte(padded / 8)}, marked...)
	advertisement := slices.Concat([]byte{64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, // router for 1,800 s
		3, 4, 64, 0xc0, 0, 0, 7, 8, 0, 0, 7, 8, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0xb, 0xad, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0},
		option, make([]byte, padded-len(option)))
	build("33:33:00:00:00:01", layers.EthernetTypeIPv6, ip6, icmp, gopacket.Payload(advertisement))
	ip4 := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{192, 0, 2, 66},
		DstIP: net.IP{255, 255, 255, 255}}
	udp := &layers.UDP{SrcPort: 67, DstPort: 68}
	udp.SetNetworkLayerForChecksum(ip4) //nolint:errcheck // it is IPv4
	offer := append([]byte{2, 1, 6, 0, 1, 2, 3, 4}, make([]byte, 228)...)
	offer = append(append(offer, 99, 130, 83, 99, 53, 1, 2, 224, byte(len(marked))), marked...)
	build("ff:ff:ff:ff:ff:ff", layers.EthernetTypeIPv4, ip4, udp, gopacket.Payload(append(offer, 255)))
	return frames
}

// blurts sends rogue frames by all devices of a namespace.
func blurts(t *testing.T, namespace string, tags ...uint16) {
	t.Helper()
	within(t, namespace, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		devices, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, d := range devices {
			if len(d.HardwareAddr) != 6 || d.Flags&net.FlagUp == 0 || d.Flags&net.FlagLoopback != 0 {
				continue
			}
			for _, frame := range rogueFrames(t, d.HardwareAddr, tags...) {
				if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: d.Index}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// believers are the namespaces that have taken what a rogue router says: this machine's, those of elements, companions
// and gateways, which are all that are mounted here.
func believers(t *testing.T) (all []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	spaces := []string{"/proc/self/ns/net"}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[3], "net:[") {
			spaces = append(spaces, f[4])
		}
	}
	if len(spaces) < 6 {
		t.Errorf("there are only the namespaces %v", spaces)
	}
	for _, space := range spaces {
		out, err := exec.Command("nsenter", "--net="+space, "sh", "-c",
			"ip -6 route show table all; ip -6 addr").Output()
		if err != nil && space == spaces[0] {
			t.Fatal(err)
		}
		if strings.Contains(string(out), "2001:db8:bad:") || strings.Contains(string(out), "via fe80::bad ") {
			all = append(all, space)
		}
	}
	return all
}

// hearsDHCP counts what a DHCP client of this machine's would take: by its UDP socket, and as those do that have no
// address yet.
func hearsDHCP(t *testing.T) (heard func() (udp, packets int)) {
	t.Helper()
	l, err := net.ListenPacket("udp4", ":68")
	if err != nil {
		t.Fatal(err)
	}
	const ip4 = uint16(unix.ETH_P_IP)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(order16(ip4)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); unix.Close(fd) })
	return func() (udp, packets int) {
		b := make([]byte, 2048)
		for {
			l.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) //nolint:errcheck // it has deadlines
			n, _, err := l.ReadFrom(b)
			if err != nil {
				break
			}
			if bytes.Contains(b[:n], marked) {
				udp++
			}
		}
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				return udp, packets
			}
			if bytes.Contains(b[:n], marked) {
				packets++
			}
		}
	}
}

// TestRogueThroughEdges has a host say, by all its interfaces and with all kinds of tags, that it is everybody's router
// and DHCP server; and somebody on the wire, too. This machine, which believes such words on all its devices, takes
// none of them; nor does another tenant at the same device, a gateway to the internet, a companion, or a neighbour that
// has not asked for it.
func TestRogueThroughEdges(t *testing.T) {
	attack.Tell(t, "router advertisements and DHCP offers by an element, through a VLAN, an internet edge, a switch "+
		"and a companion",
		"nothing: neither the machine nor other tenants take or see them")
	world(t)
	shell(t, `ip netns add wire; ip link add lan0 type veth peer name eth0 netns wire; ip -n wire link set eth0 up; ip link set lan0 up
for f in /proc/sys/net/ipv6/conf/*/accept_ra; do echo 2 > $f; done`)
	t.Cleanup(func() { shell(t, "ip link del lan0; ip netns del wire") })
	heard := hearsDHCP(t)
	// For comparison: without an edge this machine accepts the advertisements.
	for believed := false; !believed; time.Sleep(100 * time.Millisecond) {
		blurts(t, "/run/netns/wire")
		believed = strings.Contains(shell(t, "ip -6 route"), "via fe80::bad ")
	}
	if _, packets := heard(); packets == 0 {
		t.Error("this machine hears no DHCP, which proves nothing")
	}
	shell(t, "ip link set lan0 down; ip link set lan0 up")
	if has := shell(t, "ip -6 route show table all; ip -6 addr"); strings.Contains(has, ":bad") {
		t.Fatalf("it still believes:\n%s", has)
	}
	p := newPlatform(t)
	p.run("up", "-d")
	p.run("apply", "-f", file(t, rogue))
	shell(t, "for f in /proc/sys/net/ipv6/conf/*/accept_ra; do echo 2 > $f; done")
	p.run("exec", "mean/c", "--", "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/s/accept_ra")
	element := func(name string) model.ElementView {
		network, name, _ := strings.Cut(name, "/")
		return p.elements(network)[name]
	}
	o, q, a := sniff(t, p, element("other/o")), sniff(t, p, element("other/q")), sniff(t, p, element("mean/a"))
	wire := start(t, "/run/netns/wire", "tcpdump", "-Z", "root", "-lneQ", "in", "-i", "eth0",
		"udp port 68 or icmp6 or vlan")
	time.Sleep(time.Second)

	mean := p.namespace("mean", "a")
	asked := p.namespace("mean", "c")
	tags := [][]uint16{nil, {0}, {10}, {20}, {0, 20}, {10, 20}}
	p.await("who asked for it to believe it", func() bool {
		for _, tag := range tags {
			blurts(t, mean, tag...)
		}
		out, _ := exec.Command("nsenter", "--net="+asked, "ip", "-6", "route").Output()
		return strings.Contains(string(out), "via fe80::bad ")
	}, nil)
	p.await("its words on the wire, in its own VLAN",
		func() bool { return strings.Contains(wire.said.String(), "vlan 10,") }, wire.said.String)
	check := func(what string) {
		t.Helper()
		for _, who := range believers(t) {
			is, err1 := os.Stat(who)
			c, err2 := os.Stat(asked)
			if err1 != nil || err2 != nil || !os.SameFile(is, c) {
				t.Errorf("%s: %s believes it", what, who)
			}
		}
		if udp, packets := heard(); udp != 0 || packets != 0 {
			t.Errorf("%s: this machine's DHCP clients get %d datagrams, %d packets", what, udp, packets)
		}
	}
	check("an element says that it is the router")
	if o.count()+q.count() != 0 {
		t.Errorf("of what host a says, other tenants' hosts see %d and %d", o.count(), q.count())
	}
	for line := range strings.Lines(wire.said.String()) { // that tenant's own host has something to say there as well
		if strings.Contains(line, "vlan 20") &&
			(strings.Contains(line, "fe80::bad") || strings.Contains(line, "192.0.2.66")) {
			t.Errorf("on the wire it is in another tenant's VLAN: %s", line)
		}
	}

	// From the wire, each goes to whose VLAN it is in, and to nobody else.
	own := a.count()
	blurts(t, "/run/netns/wire")
	p.await("what is untagged to come to o", func() bool { return o.count() == 2 }, nil)
	blurts(t, "/run/netns/wire", 20)
	p.await("what is in VLAN 20 to come to q", func() bool { return q.count() == 2 }, nil)
	check("somebody on the wire says that he is the router")
	if o.count() != 2 || q.count() != 2 || a.count() != own {
		t.Errorf("what was on the wire came to o %d times, to q %d, to a %d", o.count(), q.count(), a.count()-own)
	}
	// Who goes on trying is told of.
	p.await("its attempts at others' VLANs to be told", func() bool {
		for range 30 {
			blurts(t, mean, 10, 20)
		}
		return strings.Contains(strings.Join(p.suspicions("mean/a"), "\n"), "VLAN tag, or for bridges alone, where no trunk is")
	}, func() string { return p.run("get", "events") })
}
