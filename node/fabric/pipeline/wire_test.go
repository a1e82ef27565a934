package pipeline

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/node/fib"
)

// wireLab is the routers' lab in a namespace with an underlay: lo is the device that frames come from, and has edges; u
// leads to the peers 192.0.2.1 (number 3) and 192.0.2.2 (4), from 192.0.2.9. Router 1 has tunnels at ports 12 (VNI 5,
// peer 3) and 18 (VNI 6, peer 4).
type wireLab struct {
	*routersLab
	u uint32
}

var (
	underMAC = net.HardwareAddr{2, 0, 0, 0, 9, 9} // u's
	peerMAC  = net.HardwareAddr{2, 0, 0, 0, 9, 1} // the next hop's
	loMAC    = net.HardwareAddr{0, 0, 0, 0, 0, 0}
)

const vxlanPort = 4789

func newWireLab(t *testing.T) *wireLab {
	t.Helper()
	runtime.LockOSThread() // never unlocked: its namespace is of no use to others
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	l := &wireLab{routersLab: newRoutersLab(t)}
	l.sh(fmt.Sprintf("ip link set lo up; ip link add u mtu 2000 type veth peer name v; ip link set u address %s up; "+
		"ip link set v up; "+
		"ip addr add 192.0.2.9/24 dev u; echo 1 > /proc/sys/net/ipv4/ip_forward", underMAC))
	for _, far := range []string{"192.0.2.1", "192.0.2.2"} {
		l.sh(fmt.Sprintf("ip neigh replace %s lladdr %s dev u nud permanent", far, peerMAC))
	}
	u, err := net.InterfaceByName("u")
	if err != nil {
		t.Fatal(err)
	}
	l.u = uint32(u.Index)
	l.usual()
	l.Peers[0] = NewPeer(netip.MustParseAddr("192.0.2.9"))
	l.Peers[4] = NewPeer(netip.MustParseAddr("192.0.2.2"))
	l.Ports[18] = Port{Ifindex: lo, Link: uint64(NewLink(Tunnel, 6, 4)), Mac: MAC(macAt(18)), Flags: RoutedBy(1)}
	l.put(l.Tunnels, uint32(5), TunnelEnd{Slot: 12, Peer: 3})
	l.put(l.Tunnels, uint32(6), TunnelEnd{Slot: 18, Peer: 4})
	l.Ports[2].Flags |= XDP
	l.driver(lo, DriverTunnels|DriverEdges)
	l.driver(l.u, DriverTunnels)
	return l
}

func (l *wireLab) sh(command string) {
	l.Helper()
	if out, err := exec.Command("sh", "-ec", command).CombinedOutput(); err != nil {
		l.Fatalf("%s: %v\n%s", command, err, out)
	}
}

func (l *wireLab) driver(index, flags uint32) {
	l.Helper()
	mac := loMAC
	if index == l.u && l.u != 0 {
		mac = underMAC
	}
	l.put(l.Drivers, index, Driver{Mac: MAC(mac), Flags: flags, Port: uint32(vxlanPort>>8 | vxlanPort&0xff<<8)})
}

// edge makes port 13's edge a VLAN of lo; 0: lo itself.
func (l *wireLab) edge(vlan uint32) {
	l.Helper()
	l.Edges.Delete(EdgeKey{Ifindex: lo, Vlan: LinkOf(&l.Ports[13]).Label()}) //nolint:errcheck // not yet there
	l.Ports[13].Link = uint64(NewLink(Edge, vlan, lo))
	l.put(l.Edges, EdgeKey{Ifindex: lo, Vlan: vlan}, uint32(13))
}

// to addresses a frame to a port.
func to(slot int, frame []byte) []byte {
	return append(append([]byte{}, macAt(slot)...), frame[6:]...)
}

func tagged(vlan uint16, frame []byte) []byte {
	f := append([]byte{}, frame[:12]...)
	f = binary.BigEndian.AppendUint16(append(f, 0x81, 0), vlan)
	return append(f, frame[12:]...)
}

// outer is what is in front of a frame in a tunnel.
type outer struct {
	e  layers.Ethernet
	ip layers.IPv4
	u  layers.UDP
	v  layers.VXLAN
}

// tunnelled is the frame as it comes by port 12's tunnel.
func tunnelled(inner []byte, change func(*outer)) []byte {
	o := outer{
		e: layers.Ethernet{SrcMAC: peerMAC, DstMAC: loMAC, EthernetType: layers.EthernetTypeIPv4},
		ip: layers.IPv4{Version: 4, IHL: 5, TTL: 9, Protocol: layers.IPProtocolUDP, Id: 77, SrcIP: net.IP{192, 0, 2, 1},
			DstIP:  net.IP{192, 0, 2, 9},
			Length: uint16(36 + len(inner))},
		u: layers.UDP{SrcPort: 50000, DstPort: vxlanPort, Length: uint16(16 + len(inner))},
		v: layers.VXLAN{ValidIDFlag: true, VNI: 5},
	}
	if change != nil {
		change(&o)
	}
	b := gopacket.NewSerializeBuffer()
	payload := gopacket.Payload(inner)
	for _, layer := range []gopacket.SerializableLayer{&payload, &o.v, &o.u, &o.ip, &o.e} {
		if err := layer.SerializeTo(b,
			gopacket.SerializeOptions{ComputeChecksums: layer == gopacket.SerializableLayer(&o.ip)}); err != nil {
			panic(err)
		}
	}
	return append([]byte{}, b.Bytes()...)
}

// unwrap takes off what a tunnel has in front of a frame, with gopacket's eyes, and tells what is wrong with it.
func unwrap(frame []byte, vni uint32, peer net.IP) (inner []byte, err error) {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	e, _ := packet.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	ip, _ := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	u, _ := packet.Layer(layers.LayerTypeUDP).(*layers.UDP)
	v, _ := packet.Layer(layers.LayerTypeVXLAN).(*layers.VXLAN)
	if e == nil || ip == nil || u == nil || v == nil {
		return nil, fmt.Errorf("not VXLAN: %v", packet)
	}
	again := *ip
	right := binary.BigEndian.Uint16(serialize(&again)[10:])
	wrong := map[string]bool{
		"MAC addresses": !bytes.Equal(e.SrcMAC, underMAC) || !bytes.Equal(e.DstMAC, peerMAC),
		"IP header": ip.IHL != 5 || ip.TOS != 0 || int(ip.Length) != len(frame)-14 || ip.Flags != 0 ||
			ip.FragOffset != 0 || ip.TTL != 64,
		"addresses": !ip.SrcIP.Equal(net.IP{192, 0, 2, 9}) || !ip.DstIP.Equal(peer),
		"checksum":  ip.Checksum != right,
		"UDP": u.SrcPort < 49152 || u.DstPort != vxlanPort ||
			int(u.Length) != len(frame)-34 || u.Checksum != 0,
		"VXLAN": !bytes.Equal(v.Contents, []byte{8, 0, 0, 0, byte(vni >> 16), byte(vni >> 8), byte(vni), 0}),
	}
	for what, is := range wrong {
		if is {
			return nil, fmt.Errorf("wrong %s: %v", what, packet)
		}
	}
	return v.Payload, nil
}

// wire is what the driver's hook shall do with the frame that comes to slot, if it takes it.
func (l *wireLab) wire(inner []byte, slot int, from map[int]int) outcome {
	want := l.oracle(inner, slot)
	want.rx[1]--
	for s, n := range from {
		want.rx[s] += n
	}
	for s, n := range want.rx {
		if n == 0 {
			delete(want.rx, s)
		}
	}
	want.byDriver()
	return want
}

// taken compares what the program does with what it shall do. by is the slot of the tunnel or edge that it leaves by,
// if any.
func (l *wireLab) taken(name string, p *ebpf.Program, in []byte, want outcome, by int) {
	l.Helper()
	got := l.observe(p, in)
	if got.verdict == xdpRedirect && by != 0 {
		switch link := LinkOf(&l.Ports[by]); link.Kind() {
		case Tunnel:
			inner, err := unwrap([]byte(got.frame), link.Label(), AddressOf(&l.Peers[link.Target()]).AsSlice())
			if err != nil {
				l.Errorf("%s: %v", name, err)
				return
			}
			got.frame = string(inner)
		case Edge:
			if link.Label() != 0 {
				want.frame = string(tagged(uint16(link.Label()), []byte(want.frame)))
			}
		}
	}
	if !got.same(want) {
		l.Errorf("%s:\n%s, not\n%s", name, got, want)
	}
}

func (l *wireLab) untouched(name string, p *ebpf.Program, in []byte) {
	l.Helper()
	got := l.observe(p, in)
	want := outcome{verdict: xdpPass, frame: string(in), tx: map[int]int{}, rx: map[int]int{},
		routers: map[int]RouterCount{}}
	if !got.same(want) {
		l.Errorf("%s: %s, not left to the tc hook", name, got)
	}
}

// TestWires takes packets from everywhere to everywhere: from a port, a tunnel, an edge without and with a tag, to a
// port (by two routers), another tunnel, an edge.
func TestWires(t *testing.T) {
	l := newWireLab(t)
	for _, vlan := range []uint32{0, 42} {
		l.edge(vlan)
		tag := func(frame []byte) []byte {
			if vlan == 0 {
				return frame
			}
			return tagged(uint16(vlan)|0x6000, frame)
		}
		for name, packet := range map[string][2][]byte{
			"a port":   {ipv4("10.1.1.1", nil), ipv6("2001:db8:1:1::1", nil)},
			"a tunnel": {ipv4("10.16.1.1", nil), ipv6("2001:db8:16::1", nil)},
			"an edge":  {ipv4("10.3.1.1", nil), ipv6("2001:db8:3::1", nil)},
		} {
			by := map[string]int{"a tunnel": 18, "an edge": 13}[name]
			for i, inner := range packet {
				name := fmt.Sprintf("%s, VLAN %d, IPv%d", name, vlan, 4+2*i)
				l.taken("from a port to "+name, l.FromPortXDP, inner, l.wire(inner, 10, map[int]int{1: 1}), by)
				inner = to(12, inner)
				l.taken("from a tunnel to "+name, l.FromWireXDP, tunnelled(inner, nil), l.wire(inner, 12, nil), by)
				if by != 13 {
					inner = to(13, inner)
					l.taken("from an edge to "+name, l.FromWireXDP, tag(inner), l.wire(inner, 13, nil), by)
				}
			}
		}
	}
	// A trailer stays, and a packet in pieces too: it is only longer.
	in := to(12, append(ipv4("10.16.1.1", func(ip *layers.IPv4) { ip.Length = 20 }), 1, 2, 3))
	l.taken("with a trailer", l.FromWireXDP, tunnelled(in, nil), l.wire(in, 12, nil), 18)
	// A peer behind a router of the underlay: the frame is for that router, and the packet for the peer.
	l.sh(fmt.Sprintf("ip neigh add 192.0.2.7 lladdr %s dev u nud permanent; ip route add 192.0.2.2 via 192.0.2.7 dev u",
		peerMAC))
	in = to(12, ipv4("10.16.1.1", nil))
	l.taken("behind a router", l.FromWireXDP, tunnelled(in, nil), l.wire(in, 12, nil), 18)
	// The same flow takes the same way, another one another.
	port := func(source string) string {
		_, out := l.run(l.FromWireXDP,
			tunnelled(to(12, ipv4("10.16.1.1", func(ip *layers.IPv4) { ip.SrcIP = net.ParseIP(source).To4() })), nil))
		return string(out[34:36])
	}
	if a, b := port("10.0.0.2"), port("10.0.0.2"); a != b {
		t.Errorf("a flow has the ports %x and %x", a, b)
	}
	ports := map[string]bool{}
	for i := range 16 {
		ports[port(fmt.Sprintf("10.0.0.%d", i+1))] = true
	}
	if len(ports) < 12 {
		t.Errorf("16 flows have %d ports", len(ports))
	}
}

// TestRememberedEdge takes frames of an edge to the port that has it, also when another had it for the frame before,
// and to none when none has it: what the program remembers counts only as long as the port says the same.
func TestRememberedEdge(t *testing.T) {
	l := newWireLab(t)
	packet := ipv4("10.1.1.1", nil)
	take := func(name string, slot int) {
		inner := to(slot, packet)
		l.taken(name, l.FromWireXDP, tagged(42, inner), l.wire(inner, slot, nil), 0)
	}
	l.edge(42)
	take("the first frame", 13)
	l.Ports[13].Link = 0
	l.untouched("nobody's edge", l.FromWireXDP, tagged(42, to(13, packet)))
	l.Ports[15].Link = uint64(NewLink(Edge, 42, lo))
	l.put(l.Edges, EdgeKey{Ifindex: lo, Vlan: 42}, uint32(15))
	take("from another port's edge", 15)
	if err := l.Edges.Delete(EdgeKey{Ifindex: lo, Vlan: 42}); err != nil {
		t.Fatal(err)
	}
	take("remembered", 15)
	l.Ports[15].Link = uint64(NewLink(Edge, 43, lo))
	l.untouched("not the port's VLAN", l.FromWireXDP, tagged(42, to(15, packet)))
	l.untouched("not in the table", l.FromWireXDP, tagged(43, to(15, packet)))
}

// TestTunnelsOfOnePort has packets come to a port by the tunnel that it sends by and by another one, from another node:
// both are taken, each from its own node only.
func TestTunnelsOfOnePort(t *testing.T) {
	l := newWireLab(t)
	inner := to(12, ipv4("10.16.1.1", nil))
	from := func(vni uint32, last byte) []byte {
		return tunnelled(inner, func(o *outer) { o.v.VNI, o.ip.SrcIP = vni, net.IP{192, 0, 2, last} })
	}
	l.untouched("before", l.FromWireXDP, from(7, 2))
	l.put(l.Tunnels, uint32(7), TunnelEnd{Slot: 12, Peer: 4})
	for name, in := range map[string][]byte{"its own": from(5, 1), "the other": from(7, 2)} {
		l.taken(name, l.FromWireXDP, in, l.wire(inner, 12, nil), 18)
	}
	l.untouched("its own, from the other's node", l.FromWireXDP, from(5, 2))
	l.untouched("the other, from its own node", l.FromWireXDP, from(7, 1))
	l.put(l.Tunnels, uint32(7), TunnelEnd{Slot: 12, Peer: MaxPeers + 1})
	l.untouched("from a node that cannot be", l.FromWireXDP, from(7, 2))
	l.Ports[12].Link = uint64(NewLink(Local, 0, 1))
	l.untouched("to a port whose link leads by no tunnel", l.FromWireXDP, from(5, 1))
}

// TestWiresLeave shows what the driver's hook leaves to the tc hook.
func TestWiresLeave(t *testing.T) {
	l := newWireLab(t)
	l.edge(42)
	inner := to(12, ipv4("10.16.1.1", nil))
	good := tunnelled(inner, nil)
	for name, in := range map[string][]byte{
		"another MAC":       tunnelled(inner, func(o *outer) { o.e.DstMAC = macAt(9) }),
		"another protocol":  tunnelled(inner, func(o *outer) { o.ip.Protocol = layers.IPProtocolTCP }),
		"another port":      tunnelled(inner, func(o *outer) { o.u.DstPort = 4790 }),
		"another peer":      tunnelled(inner, func(o *outer) { o.ip.SrcIP = net.IP{192, 0, 2, 2} }),
		"not to us":         tunnelled(inner, func(o *outer) { o.ip.DstIP = net.IP{192, 0, 2, 8} }),
		"congestion":        tunnelled(inner, func(o *outer) { o.ip.TOS = 3 }),
		"first fragment":    tunnelled(inner, func(o *outer) { o.ip.Flags = layers.IPv4MoreFragments }),
		"later fragment":    tunnelled(inner, func(o *outer) { o.ip.FragOffset = 9 }),
		"UDP checksum":      tunnelled(inner, func(o *outer) { o.u.Checksum = 99 }),
		"UDP length":        tunnelled(inner, func(o *outer) { o.u.Length-- }),
		"IP length":         tunnelled(inner, func(o *outer) { o.ip.Length--; o.u.Length-- }),
		"longer than it is": tunnelled(inner, func(o *outer) { o.ip.Length++; o.u.Length++ }),
		"another VNI":       tunnelled(inner, func(o *outer) { o.v.VNI = 7 }),
		"another tunnel's":  tunnelled(inner, func(o *outer) { o.v.VNI = 6 }),
		"group policy":      tunnelled(inner, func(o *outer) { o.v.GBPExtension = true }),
		"no VNI":            changed(good, 42, 0), "reserved flags": changed(good, 42, 9),
		"reserved bits":   changed(good, 49, 1),
		"options outside": changed(good, 14, 0x46), "IPv4 checksum": changed(good, 24, good[24]^1),
		"ARP": changed(good, 13, 6), "nothing in it": tunnelled(nil, nil),
		"to a host":                  tunnelled(ipv4("10.16.1.1", nil), nil),
		"own address":                tunnelled(to(12, ipv4("10.9.0.1", nil)), nil),
		"TTL":                        tunnelled(to(12, ipv4("10.16.1.1", func(ip *layers.IPv4) { ip.TTL = 1 })), nil),
		"blackhole":                  tunnelled(to(12, ipv4("10.5.1.1", nil)), nil),
		"back":                       tunnelled(to(12, ipv4("10.2.1.1", nil)), nil),
		"cut":                        tunnelled(inner[:20], nil),
		"to a port without the hook": tunnelled(to(12, ipv4("10.12.1.1", nil)), nil),
		"multicast":                  tunnelled(append([]byte{1, 0, 94, 0, 0, 5}, inner[6:]...), nil),
		"a tag inside":               tunnelled(tagged(3, inner), nil),
		"edge without the tag":       to(13, ipv4("10.16.1.1", nil)),
		"another VLAN":               tagged(43, to(13, ipv4("10.16.1.1", nil))),
		"two tags":                   tagged(42, tagged(42, to(13, ipv4("10.16.1.1", nil)))),
	} {
		l.untouched(name, l.FromWireXDP, in)
	}
	fromPort, fromEdge := ipv4("10.16.1.1", nil), tagged(42, to(13, ipv4("10.16.1.1", nil)))
	toEdge := tunnelled(to(12, ipv4("10.3.1.1", nil)), nil)
	all := [][]byte{good, fromEdge, fromPort}
	for name, k := range map[string]struct {
		change string
		f      func()
		undo   string
		in     [][]byte
	}{
		"no way": {"ip route del 192.0.2.0/24", nil, "ip route add 192.0.2.0/24 dev u", all},
		"unresolved": {"ip neigh replace 192.0.2.2 dev u nud failed", nil,
			fmt.Sprintf("ip neigh replace 192.0.2.2 lladdr %s dev u nud permanent", peerMAC), all},
		"blackhole": {"ip route add blackhole 192.0.2.2", nil, "ip route del blackhole 192.0.2.2", all},
		"too long": {"ip route add 192.0.2.2 dev u mtu lock 600", nil, "ip route del 192.0.2.2",
			[][]byte{tunnelled(to(12, ipv4("10.16.1.1", func(ip *layers.IPv4) { ip.Length = 551 })), nil)}},
		"too long, edge": {"ip link set lo mtu 600", nil, "ip link set lo mtu 65536",
			[][]byte{tunnelled(to(12, ipv4("10.17.1.1", func(ip *layers.IPv4) { ip.Length = 601 })), nil)}},
		"no forwarding": {"echo 0 > /proc/sys/net/ipv4/conf/lo/forwarding", nil,
			"echo 1 > /proc/sys/net/ipv4/conf/lo/forwarding", all},
		"not by that device":    {"", func() { l.driver(l.u, 0) }, "", all},
		"no device for tunnels": {"", func() { l.driver(lo, DriverEdges) }, "", [][]byte{good}},
		"no device for edges":   {"", func() { l.driver(lo, DriverTunnels) }, "", [][]byte{fromEdge, toEdge}},
		"no device":             {"", func() { l.Drivers.Delete(uint32(lo)) }, "", [][]byte{good, fromEdge, toEdge}}, //nolint:errcheck // seen
		"no tunnel device":      {"", func() { l.Ports[0].Ifindex = 0 }, "", all},
		"IPv6 underlay":         {"", func() { l.Peers[0] = NewPeer(netip.MustParseAddr("2001:db8::9")) }, "", all},
		"IPv6 peer":             {"", func() { l.Peers[4] = NewPeer(netip.MustParseAddr("2001:db8::9")) }, "", all},
		"no peer":               {"", func() { l.Peers[3] = Peer{} }, "", [][]byte{good}},
		"a slice's queue":       {"", func() { l.Shapers[18], l.Shapers[13] = 9, 9 }, "", append(all, toEdge)},
		"tc hook": {"",
			func() { l.Ports[12].Flags |= TC; l.Ports[13].Flags |= TC; l.Ports[10].Flags |= TC }, "", all},
		"down": {"",
			func() { l.Ports[12].Flags |= Down; l.Ports[13].Flags |= Down; l.Ports[18].Flags |= Down }, "",
			append(all, toEdge)},
		"a capture": {"", func() { l.Ports[12].Snap, l.Ports[13].Snap = 9, 9 }, "",
			[][]byte{good, fromEdge, toEdge}},
		"a capture outside": {"", func() { l.Ports[18].Snap = 9 }, "", all},
		"to the guest":      {"", func() { l.Routers[1].On = 0 }, "", all},
		"no router": {"", func() { l.Ports[12].Flags, l.Ports[13].Flags, l.Ports[10].Flags = 0, 0, 0 }, "",
			all},
		"another end": {"", func() { l.Ports[12].Link, l.Ports[13].Link = l.Ports[1].Link, l.Ports[1].Link },
			"", [][]byte{good, fromEdge, toEdge}},
		"ends nowhere": {"", func() { l.Ports[18].Link = 0 }, "", all},
	} {
		ports, peers, router, shapers := append([]Port{}, l.Ports[:32]...), append([]Peer{}, l.Peers[:8]...),
			l.Routers[1], append([]uint64{}, l.Shapers[:32]...)
		for i, in := range k.in {
			if p := l.program(in); l.observe(p, in).verdict != xdpRedirect && name != "too long" &&
				name != "too long, edge" {
				t.Fatalf("%s: frame %d is not taken before", name, i)
			}
		}
		l.sh(k.change)
		if k.f != nil {
			k.f()
		}
		for _, in := range k.in {
			if name == "another end" && bytes.Equal(in, toEdge) {
				continue // now to a port
			}
			l.untouched(name, l.program(in), in)
		}
		l.sh(k.undo)
		copy(l.Ports, ports)
		copy(l.Peers, peers)
		copy(l.Shapers, shapers)
		l.Routers[1] = router
		l.driver(lo, DriverTunnels|DriverEdges)
		l.driver(l.u, DriverTunnels)
	}
	// Exactly what fits is taken.
	l.sh("ip route add 192.0.2.2 dev u mtu lock 600; ip link set lo mtu 600")
	fits := to(12, ipv4("10.16.1.1", func(ip *layers.IPv4) { ip.Length = 550 }))
	l.taken("fits", l.FromWireXDP, tunnelled(fits, nil), l.wire(fits, 12, nil), 18)
	fits = to(12, ipv4("10.17.1.1", func(ip *layers.IPv4) { ip.Length = 600 }))
	l.taken("fits the edge", l.FromWireXDP, tunnelled(fits, nil), l.wire(fits, 12, nil), 13)
	// What comes in by an edge is metered; what comes by a tunnel was, where it came from.
	l.Ports[12].Flags |= Metered
	l.Ports[13].Flags |= Metered
	l.Metered[12], l.Metered[13] = 5, 5
	l.Meters[5] = Meter{Rate: 1, Burst: 1, Tokens: 1, Last: 1 << 62} // never filled again
	for i, want := range []uint32{xdpRedirect, xdpDrop} {
		got := l.observe(l.FromWireXDP, fromEdge)
		if drops := i; got.verdict != want || got.drops != drops || want == xdpDrop && len(got.rx)+len(got.tx)+
			len(got.routers) != 0 {
			t.Errorf("metered frame %d: %s, not verdict %d with %d drops", i, got, want, drops)
		}
	}
	if got := l.observe(l.FromWireXDP, good); got.verdict != xdpRedirect {
		t.Errorf("from a tunnel: %s, although only what comes from elements and edges is metered", got)
	}
}

// program is the one that a frame of TestWiresLeave comes to.
func (l *wireLab) program(in []byte) *ebpf.Program {
	if MAC(in[:6]) == MAC(macAt(10)) {
		return l.FromPortXDP
	}
	return l.FromWireXDP
}

// TestWireChain takes a packet from a tunnel by 16 routers in one run to a tunnel; by 17, it is the tc hook's.
func TestWireChain(t *testing.T) {
	l := newWireLab(t)
	const first = 100 // slots: router n of the row comes in by first+2n, and leaves by the next
	for n := range 17 {
		in, out := first+2*n, first+2*n+1
		l.Ports[in] = Port{Ifindex: lo, Mac: MAC(macAt(in)), Flags: RoutedBy(10 + n),
			Link: uint64(NewLink(Local, 0, uint32(in-1)))}
		l.Ports[out] = Port{Ifindex: lo, Mac: MAC(macAt(out)), Flags: RoutedBy(10 + n),
			Link: uint64(NewLink(Local, 0, uint32(out+1)))}
		l.Routers[10+n] = Router{On: 1}
		l.table(10+n, map[string]fib.ID{"10.0.0.0/8": l.hop(hopTo(out, in+2, 1500))})
	}
	l.Ports[first].Link = uint64(NewLink(Tunnel, 8, 3))
	l.put(l.Tunnels, uint32(8), TunnelEnd{Slot: first, Peer: 3})
	in := tunnelled(to(first, ipv4("10.16.1.1", nil)), func(o *outer) { o.v.VNI = 8 })
	last := func(routers int) *Port { return &l.Ports[first+2*routers-1] }
	last(17).Link = uint64(NewLink(Tunnel, 9, 4))
	l.untouched("17 routers", l.FromWireXDP, in)
	last(16).Link = uint64(NewLink(Tunnel, 9, 4))
	before := l.routers(10, 26)
	verdict, out := l.run(l.FromWireXDP, in)
	if verdict != xdpRedirect {
		t.Fatalf("16 routers: verdict %d", verdict)
	}
	inner, err := unwrap(out, 9, net.IP{192, 0, 2, 2})
	if err != nil {
		t.Fatal(err)
	}
	if want := framedFrom(first+31, first+32, 48); !bytes.Equal(inner, want) {
		t.Errorf("16 routers:\n%x, not\n%x", inner, want)
	}
	if n := l.routers(10, 26) - before; n != 16 {
		t.Errorf("the driver's hook counts %d routers", n)
	}
}

// routers sums what the driver's hook forwarded for the routers of these numbers.
func (l *wireLab) routers(from, to int) (n int) {
	l.Helper()
	all, processors, err := PerCPU[RouterCount](l.RouterCounts, to)
	if err != nil {
		l.Fatal(err)
	}
	for _, c := range all[from*processors:] {
		n += int(c.Driver)
	}
	return n
}

// framedFrom is the packet of TestWireChain as it leaves a port.
func framedFrom(from, far int, ttl uint8) []byte {
	f := ipv4("10.16.1.1", func(ip *layers.IPv4) { ip.TTL = ttl })
	return append(append(append([]byte{}, macAt(far)...), macAt(from)...), f[12:]...)
}

// TestRandomWires damages headers outside and inside at random: what the driver's hook takes is what the reference,
// which reads with gopacket, would make of it; else it is untouched.
func TestRandomWires(t *testing.T) {
	l := newWireLab(t)
	l.edge(42)
	random := rand.New(rand.NewPCG(3, 9))
	rounds := 6000
	if testing.Short() {
		rounds = 1500
	}
	takes, leaves := 0, 0
	for range rounds {
		inner := ipv4(fmt.Sprintf("10.%d.1.1", []int{1, 2, 3, 5, 6, 16, 16, 16}[random.IntN(8)]),
			func(ip *layers.IPv4) {
				ip.TTL, ip.Id, ip.Protocol = uint8(random.IntN(70)), uint16(random.Uint32()),
					layers.IPProtocol(random.IntN(20))
				ip.Length = uint16(20 + random.IntN(1500)*random.IntN(2))
			})
		if random.IntN(3) == 0 {
			inner = ipv6(fmt.Sprintf("2001:db8:%d:1::1", []int{1, 2, 3, 16}[random.IntN(4)]), func(ip *layers.IPv6) {
				ip.HopLimit, ip.FlowLabel, ip.Length = uint8(random.IntN(70)), random.Uint32N(1<<20),
					uint16(random.IntN(1400))
			})
		}
		slot, in := 12, []byte(nil)
		if random.IntN(3) == 0 {
			slot = 13
			inner = to(slot, inner)
			in = tagged(42, inner)
		} else {
			inner = to(slot, inner)
			in = tunnelled(inner, func(o *outer) {
				o.ip.Id, o.ip.TTL, o.u.SrcPort = uint16(random.Uint32()), uint8(random.Uint32()),
					layers.UDPPort(random.Uint32())
				o.ip.TOS = uint8(random.IntN(256) * (random.IntN(8) / 7))
			})
		}
		for range random.IntN(3) * random.IntN(2) {
			in[random.IntN(min(len(in), 90))] ^= 1 << random.IntN(8)
		}
		got := l.observe(l.FromWireXDP, in)
		if got.verdict != xdpRedirect {
			l.untouched("random", l.FromWireXDP, in)
			leaves++
			if want, slot := l.received(in); want != nil {
				if o := l.wire(want, slot, nil); l.plainly(o) && !(o.rx[13] > 0 && maybeTunnelled(want)) {
					t.Fatalf("%x: left to the tc hook, but %s", in, o)
				}
			}
			continue
		}
		takes++
		want, slot := l.received(in)
		if want == nil {
			t.Fatalf("%x was taken, and no port's", in)
		}
		o := l.wire(want, slot, nil)
		by := 0
		for s := range o.rx {
			if k := LinkOf(&l.Ports[s]).Kind(); k == Tunnel || k == Edge {
				by = s
			}
		}
		l.taken(fmt.Sprintf("%x", in), l.FromWireXDP, in, o, by)
		if t.Failed() {
			return
		}
	}
	if takes < rounds/4 || leaves < rounds/4 {
		t.Errorf("%d taken, %d left: the random headers say nothing", takes, leaves)
	}
}

// plainly tells that all routers forward the packet to where the driver's hook can send it.
func (l *wireLab) plainly(o outcome) bool {
	if o.drops > 0 || len(o.routers) == 0 {
		return false
	}
	for _, c := range o.routers {
		if c.Blackholed > 0 || c.Punts != (RouterCount{}).Punts {
			return false
		}
	}
	for s := range o.tx {
		if f := l.Ports[s].Flags; RouterOf(f) == 0 && f&XDP == 0 {
			return false
		}
	}
	return true
}

// received is the frame that comes to a router by a tunnel or an edge, and the slot that it comes to, read with
// gopacket.
func (l *wireLab) received(in []byte) ([]byte, int) {
	var e layers.Ethernet
	if e.DecodeFromBytes(in, gopacket.NilDecodeFeedback) != nil {
		return nil, 0
	}
	if e.EthernetType == layers.EthernetTypeDot1Q {
		var q layers.Dot1Q
		if q.DecodeFromBytes(e.Payload, gopacket.NilDecodeFeedback) != nil || q.VLANIdentifier != 42 {
			return nil, 0
		}
		return append(append([]byte{}, in[:12]...), in[16:]...), 13
	}
	var ip layers.IPv4
	var u layers.UDP
	var v layers.VXLAN
	if e.EthernetType != layers.EthernetTypeIPv4 || !bytes.Equal(e.DstMAC, loMAC) ||
		ip.DecodeFromBytes(in[14:], gopacket.NilDecodeFeedback) != nil ||
		ip.IHL != 5 || ip.Protocol != layers.IPProtocolUDP || ip.Flags&layers.IPv4MoreFragments != 0 ||
		ip.FragOffset != 0 || int(ip.Length) != len(in)-14 ||
		ip.Version != 4 || ip.TOS&3 != 0 || !ip.SrcIP.Equal(net.IP{192, 0, 2, 1}) ||
		!ip.DstIP.Equal(net.IP{192, 0, 2, 9}) {
		return nil, 0
	}
	again := ip
	if right := binary.BigEndian.Uint16(serialize(&again)[10:]); ip.Checksum != right {
		return nil, 0
	}
	if u.DecodeFromBytes(ip.Payload, gopacket.NilDecodeFeedback) != nil || u.DstPort != vxlanPort || u.Checksum != 0 ||
		int(u.Length) != len(ip.Payload) ||
		v.DecodeFromBytes(u.Payload, gopacket.NilDecodeFeedback) != nil ||
		!bytes.Equal(v.Contents, []byte{8, 0, 0, 0, 0, 0, 5, 0}) {
		return nil, 0
	}
	return v.Payload, 12
}

// maybeTunnelled tells of a frame on its way out of an edge that only the tc hook can say whether it is for a node's
// tunnels: UDP whose ports the driver's hook does not read, and what may have UDP behind other headers.
func maybeTunnelled(frame []byte) bool {
	if binary.BigEndian.Uint16(frame[12:]) == 0x0800 {
		length, fragment := binary.BigEndian.Uint16(frame[16:]), binary.BigEndian.Uint16(frame[20:])
		return frame[23] == 17 && (length < 24 || fragment&0x3fff != 0)
	}
	length := binary.BigEndian.Uint16(frame[18:])
	return frame[20] != 6 && frame[20] != 58 && (frame[20] != 17 || length < 4)
}
