package pipeline

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/polyplane/polyplane/node/fib"
)

// The routers' lab: host's port 1 is lo, where test runs come from. Router 1 has ports 10 (to the host), 11 (to router
// 2), 12 (to a tunnel), 13 (to an edge), 14 (to a host with a queue) and 15 (its link ends nowhere); router 2 has 20
// (to router 1) and 21 (to a host at port 2); router 3 has two ports that are joined by a cable, and does not forward
// yet.
type routersLab struct {
	bench
	pool  *fib.Pool
	slice *fib.Slice
}

func macAt(slot int) net.HardwareAddr { return net.HardwareAddr{2, 0xaa, 3, 4, 5, byte(slot)} }

func hopTo(port, far int, mtu uint16) fib.NextHop {
	return fib.NextHop{Kind: fib.KindForward, Port: uint32(port), MTU: mtu, Source: fib.MAC(macAt(port)),
		Destination: fib.MAC(macAt(far))}
}

const seed = 0x12345678

func newRoutersLab(t *testing.T) *routersLab {
	t.Helper()
	l := &routersLab{bench: newBench(t)}
	var err error
	if l.pool, err = fib.New(l.FIB); err != nil {
		t.Fatal(err)
	}
	l.slice = l.pool.NewSlice("net", fib.Quota{})
	l.put(l.Devices, uint32(lo), uint32(1))
	port := func(slot, router int, link Link, flags uint32) {
		if router > 0 {
			flags |= RoutedBy(router)
		}
		l.Ports[slot] = Port{Ifindex: lo, Link: uint64(link), Mac: MAC(macAt(slot)), Flags: flags}
	}
	local := func(slot uint32) Link { return NewLink(Local, 0, slot) }
	port(1, 0, local(10), 0)
	port(10, 1, local(1), 0)
	port(11, 1, local(20), 0)
	port(20, 2, local(11), 0)
	port(12, 1, NewLink(Tunnel, 5, 3), 0)
	port(13, 1, NewLink(Edge, 0, lo), 0)
	port(14, 1, local(3), 0)
	port(3, 0, local(14), Queue)
	port(15, 1, 0, 0)
	port(16, 1, local(4), Down)
	port(4, 0, local(16), 0)
	port(21, 2, local(2), 0)
	port(2, 0, local(21), 0)
	port(30, 3, local(31), 0)
	port(31, 3, local(30), 0)
	l.Ports[0].Ifindex = lo
	l.Peers[3] = NewPeer(netip.MustParseAddr("192.0.2.1"))
	for _, slot := range []int{10, 11, 12, 13, 14, 15, 16, 20, 21} {
		l.Companions[slot] = lo
	}
	for r := 1; r <= 2; r++ {
		l.Routers[r] = Router{On: 1, Seed: seed + uint32(r)}
	}
	return l
}

func (l *routersLab) hop(h fib.NextHop) fib.ID {
	l.Helper()
	id, err := l.slice.AddNextHop(h)
	if err != nil {
		l.Fatal(err)
	}
	return id
}

func (l *routersLab) table(router int, routes map[string]fib.ID) {
	l.Helper()
	for _, f := range []fib.Family{fib.IPv4, fib.IPv6} {
		table := l.slice.NewTable(f)
		for p, id := range routes {
			if prefix := netip.MustParsePrefix(p); prefix.Addr().Is4() == (f == fib.IPv4) {
				if err := table.Insert(prefix, id); err != nil {
					l.Fatal(err)
				}
			}
		}
		if err := table.Publish(Table(router, f == fib.IPv6)); err != nil {
			l.Fatal(err)
		}
	}
}

// usual gives both routers routes.
func (l *routersLab) usual() {
	l.Helper()
	var ways []fib.ID
	for _, far := range []int{101, 102, 103} {
		ways = append(ways, l.hop(hopTo(11, far, 1500)))
	}
	ways = append(ways, l.hop(hopTo(11, 20, 1500)))
	var members []fib.Member
	for i, id := range ways {
		members = append(members, fib.Member{NextHop: id, Weight: i + 1})
	}
	group, err := l.slice.AddGroup(members)
	if err != nil {
		l.Fatal(err)
	}
	l.table(1, map[string]fib.ID{
		"10.1.0.0/16": l.hop(hopTo(11, 20, 1500)), "2001:db8:1::/48": l.hop(hopTo(11, 20, 1500)), // to router 2
		"10.2.0.0/16": l.hop(hopTo(12, 99, 1500)), "2001:db8:2::/48": l.hop(hopTo(12, 99, 1280)), // the tunnel
		"10.3.0.0/16": l.hop(hopTo(13, 99, 600)), "2001:db8:3::/48": l.hop(hopTo(13, 99, 0)), // the edge
		// another tunnel, of TestWires
		"10.16.0.0/16": l.hop(hopTo(18, 98, 1500)), "2001:db8:16::/48": l.hop(hopTo(18, 98, 1500)),
		"10.17.0.0/16": l.hop(hopTo(13, 97, 1500)),
		"10.4.0.0/16":  group, "2001:db8:4::/48": group,
		"10.5.0.0/16": fib.BlackholeID, "2001:db8:5::/48": fib.BlackholeID,
		"10.6.0.0/16": fib.UnreachableID, "2001:db8:6::/48": fib.ProhibitID,
		"10.7.0.0/16": fib.ConnectedID, "2001:db8:7::/48": l.hop(fib.NextHop{Kind: fib.KindUnresolved}),
		"10.8.0.0/16": fib.PuntID, "2001:db8:8::/48": l.hop(fib.NextHop{Kind: fib.KindPunt}),
		"10.9.0.1/32": fib.LocalID, "2001:db8:9::1/128": fib.LocalID,
		"10.10.0.0/16": l.hop(hopTo(10, 1, 1500)), // back
		"10.11.0.0/16": l.hop(hopTo(21, 2, 1500)), // another router's port
		"10.12.0.0/16": l.hop(hopTo(14, 3, 1500)), "2001:db8:12::/48": l.hop(hopTo(14, 3, 1500)),
		"10.13.0.0/16": l.hop(hopTo(15, 3, 1500)),
		"10.14.0.0/16": l.hop(hopTo(16, 4, 1500)),
		"10.15.0.0/16": l.hop(hopTo(MaxPorts+9, 4, 1500)), // no port at all
	})
	l.table(2, map[string]fib.ID{
		"10.1.1.0/24": l.hop(hopTo(21, 2, 1400)), "2001:db8:1:1::/64": l.hop(hopTo(21, 2, 1500)),
		"10.1.2.0/24": fib.BlackholeID, "10.4.0.0/16": l.hop(hopTo(21, 2, 1500)), "0.0.0.0/0": fib.UnreachableID,
	})
}

// outcome is what becomes of a frame, and what is counted.
type outcome struct {
	verdict uint32
	frame   string
	tx, rx  map[int]int         // frames, by slot
	routers map[int]RouterCount // without bytes
	drops   int
}

func (o outcome) String() string {
	return fmt.Sprintf("verdict %d, %x, to ports %v, from ports %v, routers %v, %d dropped", o.verdict, o.frame, o.tx,
		o.rx, o.routers, o.drops)
}

func (o outcome) same(other outcome) bool {
	return o.verdict == other.verdict && (o.frame == other.frame || o.verdict == shot) && maps.Equal(o.tx, other.tx) &&
		maps.Equal(o.rx, other.rx) && maps.Equal(o.routers, other.routers) && o.drops == other.drops
}

func (o *outcome) router(n int, f func(*RouterCount)) {
	c := o.routers[n]
	f(&c)
	o.routers[n] = c
}

// oracle follows a frame that is to be delivered to the port at slot.
func (l *routersLab) oracle(frame []byte, slot int) outcome {
	o := outcome{verdict: redirect, tx: map[int]int{}, rx: map[int]int{1: 1}, routers: map[int]RouterCount{}}
	for n := 0; ; n++ {
		if l.Ports[slot].Flags&Down != 0 {
			o.verdict, o.drops = shot, 1
			break
		}
		o.tx[slot]++
		router := RouterOf(l.Ports[slot].Flags)
		if router == 0 || l.Routers[router].On == 0 {
			break
		}
		next, out, reason := 0, frame, "too many routers in a row"
		if l.Routers[router].On == ToDevices { // without a look at it
			reason = ""
		} else if n < 16 {
			next, out, reason = l.decide(frame, slot, router)
		}
		if reason == "blackhole" {
			o.router(router, func(c *RouterCount) { c.Blackholed++ })
			o.verdict = shot
			break
		}
		if reason != "" {
			o.router(router, func(c *RouterCount) { c.Punts[puntOf(reason)]++ })
			break
		}
		if l.Routers[router].On >= ToCompanion {
			if l.Companions[slot] == 0 {
				o.router(router, func(c *RouterCount) { c.Punts[puntOf("interface does not forward")]++ })
			} else {
				o.router(router, func(c *RouterCount) { c.Packets++; c.Companion++ })
			}
			break // as it came
		}
		o.router(router, func(c *RouterCount) { c.Packets++ })
		frame = out
		o.rx[next]++
		link := LinkOf(&l.Ports[next])
		if link.Kind() != Local {
			if link.Kind() == Nowhere {
				o.verdict, o.drops = shot, 1
			}
			break
		}
		slot = int(link.Target())
	}
	o.frame = string(frame)
	return o
}

func puntOf(reason string) int {
	for i, text := range Punts {
		if text == reason {
			return i
		}
	}
	panic("no such reason: " + reason)
}

// decide is what a router does with a frame, by the standards, with gopacket's eyes.
func (l *routersLab) decide(frame []byte, slot, router int) (next int, out []byte, reason string) {
	var e layers.Ethernet
	if err := e.DecodeFromBytes(frame, gopacket.NilDecodeFeedback); err != nil || MAC(e.DstMAC) != l.Ports[slot].Mac {
		return 0, nil, "not addressed to the router, or not IP"
	}
	switch e.EthernetType {
	case layers.EthernetTypeIPv4:
		return l.decide4(frame[14:], slot, router)
	case layers.EthernetTypeIPv6:
		return l.decide6(frame[14:], slot, router)
	}
	return 0, nil, "not addressed to the router, or not IP"
}

func (l *routersLab) decide4(packet []byte, slot, router int) (next int, out []byte, reason string) {
	if len(packet) < 20 || packet[0]>>4 != 4 || packet[0]&15 < 5 {
		return 0, nil, "wrong or cut header"
	}
	if packet[0]&15 > 5 {
		return 0, nil, "options"
	}
	var ip layers.IPv4
	if err := ip.DecodeFromBytes(packet, gopacket.NilDecodeFeedback); err != nil || int(ip.Length) > len(packet) {
		return 0, nil, "wrong or cut header"
	}
	is := ip.Checksum
	right := binary.BigEndian.Uint16(serialize(&ip)[10:])
	if is != right && (right != 0 || is != 0xffff) {
		return 0, nil, "wrong or cut header"
	}
	source, _ := netip.AddrFromSlice(ip.SrcIP.To4())
	to, _ := netip.AddrFromSlice(ip.DstIP.To4())
	for _, a := range []netip.Addr{source, to} {
		if b := a.As4(); b[0] == 0 || a.IsLoopback() || b[0] >= 224 {
			return 0, nil, "address that is not forwarded"
		}
	}
	if l.Ports[slot].Flags&OffIPv4 != 0 {
		return 0, nil, "interface does not forward"
	}
	var ports [2]uint16
	if hasPorts(ip.Protocol) && ip.Flags&layers.IPv4MoreFragments == 0 && ip.FragOffset == 0 && ip.Length >= 24 {
		ports = [2]uint16{binary.BigEndian.Uint16(packet[20:]), binary.BigEndian.Uint16(packet[22:])}
	}
	h, reason := l.way(router, slot, fib.IPv4, source, to, ports, ip.Protocol, ip.TTL, int(ip.Length))
	if reason != "" {
		return 0, nil, reason
	}
	ip.TTL--
	return int(h.Port), framed(h, layers.EthernetTypeIPv4, append(serialize(&ip), packet[20:]...)), ""
}

func (l *routersLab) decide6(packet []byte, slot, router int) (next int, out []byte, reason string) {
	if len(packet) < 40 || packet[0]>>4 != 6 {
		return 0, nil, "wrong or cut header"
	}
	if packet[6] == 0 {
		return 0, nil, "options"
	}
	var ip layers.IPv6
	empty := binary.BigEndian.Uint16(packet[4:]) == 0
	if empty { // nothing behind the header: gopacket takes it for a jumbogram
		packet = changed(packet, 5, 1)
	}
	err := ip.DecodeFromBytes(packet, gopacket.NilDecodeFeedback)
	if empty {
		packet, ip.Length = changed(packet, 5, 0), 0
	}
	if err != nil || 40+int(ip.Length) > len(packet) {
		return 0, nil, "wrong or cut header"
	}
	source, _ := netip.AddrFromSlice(ip.SrcIP)
	to, _ := netip.AddrFromSlice(ip.DstIP)
	for _, a := range []netip.Addr{source, to} {
		if netip.MustParsePrefix("::/64").Contains(a) || a.Is4In6() || a.IsLinkLocalUnicast() || a.IsMulticast() {
			return 0, nil, "address that is not forwarded"
		}
	}
	if l.Ports[slot].Flags&OffIPv6 != 0 {
		return 0, nil, "interface does not forward"
	}
	var ports [2]uint16
	if hasPorts(ip.NextHeader) && ip.Length >= 4 {
		ports = [2]uint16{binary.BigEndian.Uint16(packet[40:]), binary.BigEndian.Uint16(packet[42:])}
	}
	h, reason := l.way(router, slot, fib.IPv6, source, to, ports, ip.NextHeader, ip.HopLimit, 40+int(ip.Length))
	if reason != "" {
		return 0, nil, reason
	}
	rest := append([]byte{}, packet...)
	rest[7]--
	return int(h.Port), framed(h, layers.EthernetTypeIPv6, rest), ""
}

func hasPorts(p layers.IPProtocol) bool {
	return p == layers.IPProtocolTCP || p == layers.IPProtocolUDP || p == layers.IPProtocolSCTP
}

// way is the next hop, or why there is none for this packet.
func (l *routersLab) way(router, slot int, f fib.Family, source, to netip.Addr, ports [2]uint16,
	protocol layers.IPProtocol,
	ttl uint8, length int) (fib.Hop, string) {
	id, _, err := l.pool.Lookup(Table(router, f == fib.IPv6), f, to)
	if err != nil {
		l.Fatal(err)
	}
	h := l.pool.Resolve(id, fib.FlowHash(l.Routers[router].Seed, source, to, ports[0], ports[1], uint8(protocol)))
	if id > fib.ProhibitID && ttl <= 1 {
		return h, "TTL"
	}
	reason, ok := map[fib.Kind]string{fib.KindNone: "no route", fib.KindLocal: "to the router itself",
		fib.KindConnected: "next hop not resolved", fib.KindUnresolved: "next hop not resolved",
		fib.KindPunt: "left to the guest by the tables", fib.KindBlackhole: "blackhole",
		fib.KindUnreachable: "unreachable or prohibited", fib.KindProhibit: "unreachable or prohibited"}[h.Kind]
	switch {
	case ok:
		return h, reason
	case h.MTU != 0 && length > int(h.MTU):
		return h, "larger than the MTU"
	case int(h.Port) == slot:
		return h, "leaves where it came from"
	case int(h.Port) >= len(l.Ports) || RouterOf(l.Ports[h.Port].Flags) != router || l.Ports[h.Port].Flags&Down != 0:
		return h, "interface does not forward"
	}
	return h, ""
}

func serialize(l gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	if err := l.SerializeTo(b, gopacket.SerializeOptions{ComputeChecksums: true}); err != nil {
		panic(err)
	}
	return append([]byte{}, b.Bytes()...)
}

func framed(h fib.Hop, kind layers.EthernetType, packet []byte) []byte {
	return append(ethernet(h.Destination[:], h.Source[:], kind), packet...)
}

func ethernet(to, from net.HardwareAddr, kind layers.EthernetType) []byte {
	return binary.BigEndian.AppendUint16(append(append([]byte{}, to...), from...), uint16(kind))
}

// observe runs the program, and tells what was counted since before.
func (l *routersLab) observe(p *ebpf.Program, in []byte) outcome {
	l.Helper()
	return l.counted(func() (uint32, []byte) { return l.run(p, in) })
}

// marked is observe, of a frame with a mark.
func (l *routersLab) marked(p *ebpf.Program, in []byte, mark uint32) outcome {
	l.Helper()
	return l.counted(func() (uint32, []byte) {
		type context struct { // struct __sk_buff
			_    [2]uint32
			mark uint32
			_    [45]uint32
		}
		o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64), Context: context{mark: mark}}
		verdict, err := p.Run(&o)
		if err != nil {
			l.Fatal(err)
		}
		return verdict, o.DataOut
	})
}

func (l *routersLab) counted(run func() (uint32, []byte)) outcome {
	l.Helper()
	before := l.counts()
	verdict, frame := run()
	after := l.counts()
	o := outcome{verdict: verdict, frame: string(frame), tx: map[int]int{}, rx: map[int]int{},
		routers: map[int]RouterCount{}}
	for slot, c := range after.ports {
		if n := int(c.TxPackets - before.ports[slot].TxPackets); n != 0 {
			o.tx[slot] = n
		}
		if n := int(c.RxPackets - before.ports[slot].RxPackets); n != 0 {
			o.rx[slot] = n
		}
	}
	for n, c := range after.routers {
		was := before.routers[n]
		d := RouterCount{Packets: c.Packets - was.Packets, Blackholed: c.Blackholed - was.Blackholed,
			Driver:  c.Driver - was.Driver,
			Refused: c.Refused - was.Refused, Companion: c.Companion - was.Companion}
		for i := range d.Punts {
			d.Punts[i] = c.Punts[i] - was.Punts[i]
		}
		if d != (RouterCount{}) {
			o.routers[n] = d
		}
	}
	o.drops = after.drops - before.drops
	return o
}

type counts struct {
	ports   map[int]TrafficCount
	routers map[int]RouterCount
	drops   int
}

func (l *routersLab) counts() counts {
	l.Helper()
	const slots, routers = 32, 4
	c := counts{ports: map[int]TrafficCount{}, routers: map[int]RouterCount{}}
	traffic, processors, err := PerCPU[TrafficCount](l.Traffic, slots)
	if err != nil {
		l.Fatal(err)
	}
	for i, v := range traffic {
		s := c.ports[i/processors]
		s.RxPackets += v.RxPackets
		s.TxPackets += v.TxPackets
		c.ports[i/processors] = s
	}
	all, _, err := PerCPU[RouterCount](l.RouterCounts, routers)
	if err != nil {
		l.Fatal(err)
	}
	for i, v := range all {
		s := c.routers[i/processors]
		s.Packets += v.Packets
		s.Blackholed += v.Blackholed
		s.Driver += v.Driver
		s.Refused += v.Refused
		s.Companion += v.Companion
		for k := range s.Punts {
			s.Punts[k] += v.Punts[k]
		}
		c.routers[i/processors] = s
	}
	drops, _, err := PerCPU[DropCount](l.Drops, slots)
	if err != nil {
		l.Fatal(err)
	}
	for _, v := range drops {
		for _, n := range v.Packets {
			c.drops += int(n)
		}
	}
	return c
}
