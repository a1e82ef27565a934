package pipeline

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/polyplane/polyplane/node/fib"
)

func ipv4(to string, change func(*layers.IPv4)) []byte {
	ip := layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.ParseIP("10.0.0.2").To4(),
		DstIP: net.ParseIP(to).To4(), Length: 48}
	if change != nil {
		change(&ip)
	}
	f := append(ethernet(macAt(10), macAt(1), layers.EthernetTypeIPv4), serialize(&ip)...)
	for i := range max(28, int(ip.Length)-20) {
		f = append(f, byte(i))
	}
	return f
}

func ipv6(to string, change func(*layers.IPv6)) []byte {
	ip := layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: net.ParseIP("2001:db8::2"),
		DstIP: net.ParseIP(to), Length: 28}
	if change != nil {
		change(&ip)
	}
	f := append(ethernet(macAt(10), macAt(1), layers.EthernetTypeIPv6), serialize(&ip)...)
	for i := range max(28, int(ip.Length)) {
		f = append(f, byte(i))
	}
	return f
}

func changed(f []byte, at int, to byte) []byte {
	f = append([]byte{}, f...)
	f[at] = to
	return f
}

// TestRoute runs a packet through each branch.
func TestRoute(t *testing.T) {
	l := newRoutersLab(t)
	l.usual()
	far := changed(ipv4("10.1.1.1", nil), 5, 99)
	short := func(f []byte, n int) []byte { return f[:n] }
	for _, k := range []struct {
		name, reason string // of router 1's punt; "" where it forwards or drops
		in           []byte
	}{
		{"IPv4 to a host behind two routers", "", ipv4("10.1.1.1", nil)},
		{"IPv6 to a host behind two routers", "", ipv6("2001:db8:1:1::1", nil)},
		{"second router has no route", "", ipv6("2001:db8:1:2::1", nil)},
		{"second router's blackhole", "", ipv4("10.1.2.1", nil)},
		{"second router's unreachable", "", ipv4("10.1.3.1", nil)},
		{"TTL ends at the second router", "", ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.TTL = 2 })},
		{"second router's MTU", "", ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.Length = 1401 })},
		{"tunnel", "", ipv4("10.2.1.1", nil)},
		{"tunnel, IPv6", "", ipv6("2001:db8:2::1", nil)},
		{"edge", "", ipv4("10.3.1.1", nil)},
		{"edge, no limit", "", ipv6("2001:db8:3::1", func(ip *layers.IPv6) { ip.Length = 1400 })},
		{"group", "", ipv4("10.4.1.1", nil)},
		{"group, IPv6", "", ipv6("2001:db8:4::1", nil)},
		{"blackhole", "", ipv4("10.5.1.1", nil)},
		{"blackhole, IPv6", "", ipv6("2001:db8:5::1", nil)},
		{"to a queue", "", ipv4("10.12.1.1", nil)},
		{"link ends nowhere", "", ipv4("10.13.1.1", nil)},
		{"longest that fits", "", ipv4("10.3.1.1", func(ip *layers.IPv4) { ip.Length = 600 })},
		{"fragment", "", ipv4("10.4.1.1", func(ip *layers.IPv4) { ip.FragOffset = 100 })},
		{"first fragment", "", ipv4("10.4.1.1", func(ip *layers.IPv4) { ip.Flags = layers.IPv4MoreFragments })},
		{"no ports", "", ipv4("10.4.1.1", func(ip *layers.IPv4) { ip.Protocol = layers.IPProtocolICMPv4 })},
		{"frame with a trailer", "", ipv4("10.4.1.1", func(ip *layers.IPv4) { ip.Length = 20 })},
		{"shortest frame", "", short(ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.Length = 20 }), 34)},
		{"unreachable", "unreachable or prohibited", ipv4("10.6.1.1", nil)},
		{"prohibit", "unreachable or prohibited", ipv6("2001:db8:6::1", nil)},
		{"neighbour unknown", "next hop not resolved", ipv4("10.7.1.1", nil)},
		{"gateway unknown", "next hop not resolved", ipv6("2001:db8:7::1", nil)},
		{"table says punt", "left to the guest by the tables", ipv4("10.8.1.1", nil)},
		{"next hop says punt", "left to the guest by the tables", ipv6("2001:db8:8::1", nil)},
		{"own address", "to the router itself", ipv4("10.9.0.1", func(ip *layers.IPv4) { ip.TTL = 1 })},
		{"own address, IPv6", "to the router itself", ipv6("2001:db8:9::1", nil)},
		{"no route", "no route", ipv4("10.200.0.1", nil)},
		{"no route, IPv6", "no route", ipv6("2001:db8:200::1", nil)},
		{"back", "leaves where it came from", ipv4("10.10.0.1", nil)},
		{"another router's port", "interface does not forward", ipv4("10.11.0.1", nil)},
		{"port is down", "interface does not forward", ipv4("10.14.0.1", nil)},
		{"no such port", "interface does not forward", ipv4("10.15.0.1", nil)},
		{"TTL 1", "TTL", ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.TTL = 1 })},
		{"TTL 0", "TTL", ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.TTL = 0 })},
		{"hop limit 1", "TTL", ipv6("2001:db8:1:1::1", func(ip *layers.IPv6) { ip.HopLimit = 1 })},
		{"too long", "larger than the MTU", ipv4("10.3.1.1", func(ip *layers.IPv4) { ip.Length = 601 })},
		{"too long, IPv6", "larger than the MTU", ipv6("2001:db8:2::1", func(ip *layers.IPv6) { ip.Length = 1241 })},
		{"options", "options", changed(ipv4("10.1.1.1", nil), 14, 0x46)},
		{"hop-by-hop options", "options", ipv6("2001:db8:1:1::1", func(ip *layers.IPv6) { ip.NextHeader = 0 })},
		{"header length", "wrong or cut header", changed(ipv4("10.1.1.1", nil), 14, 0x44)},
		{"version", "wrong or cut header", changed(ipv4("10.1.1.1", nil), 14, 0x65)},
		{"version, IPv6", "wrong or cut header", changed(ipv6("2001:db8:1:1::1", nil), 14, 0x45)},
		{"checksum", "wrong or cut header", changed(ipv4("10.1.1.1", nil), 24, 0x45)},
		{"length", "wrong or cut header", short(ipv4("10.1.1.1", nil), 61)},
		{"length, IPv6", "wrong or cut header", short(ipv6("2001:db8:1:1::1", nil), 81)},
		{"less than a header", "wrong or cut header", ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.Length = 19 })},
		{"multicast", "address that is not forwarded", ipv4("224.0.0.5", nil)},
		{"broadcast", "address that is not forwarded", ipv4("255.255.255.255", nil)},
		{"loopback", "address that is not forwarded", ipv4("127.0.0.1", nil)},
		{"from nowhere", "address that is not forwarded",
			ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.SrcIP = net.IPv4zero.To4() })},
		{"link-local", "address that is not forwarded", ipv6("fe80::1", nil)},
		{"multicast, IPv6", "address that is not forwarded", ipv6("ff02::5", nil)},
		{"from link-local", "address that is not forwarded",
			ipv6("2001:db8:1:1::1", func(ip *layers.IPv6) { ip.SrcIP = net.ParseIP("febf::1") })},
		{"from loopback, IPv6", "address that is not forwarded",
			ipv6("2001:db8:1:1::1", func(ip *layers.IPv6) { ip.SrcIP = net.IPv6loopback })},
		{"addressed to another", "not addressed to the router, or not IP", far},
		{"ARP", "not addressed to the router, or not IP", changed(ipv4("10.1.1.1", nil), 13, 6)},
	} {
		want := l.oracle(k.in, 10)
		if k.reason != "" {
			if want.routers[1].Punts[puntOf(k.reason)] != 1 || want.frame != string(k.in) || want.verdict != redirect {
				t.Errorf("%s: the reference says %s", k.name, want)
			}
		} else if c := want.routers[1]; c.Packets+c.Blackholed != 1 {
			t.Errorf("%s: the reference says %s", k.name, want)
		}
		if got := l.observe(l.FromPort, k.in); !got.same(want) {
			t.Errorf("%s:\n%s, not\n%s", k.name, got, want)
		}
		// The same with the first, the second and both routers' companions.
		for n := 1; n <= 3; n++ {
			l.Routers[1].On, l.Routers[2].On = 1+uint32(n&1), 1+uint32(n>>1)
			want := l.oracle(k.in, 10)
			if got := l.observe(l.FromPort, k.in); !got.same(want) {
				t.Errorf("%s, companions %b:\n%s, not\n%s", k.name, n, got, want)
			}
		}
		l.Routers[1].On, l.Routers[2].On = ToPipeline, ToPipeline
	}
}

// TestCompanion has the node's kernel forward for a router: it gets the frame as it is, and what it sends goes on as if
// the router had sent it.
func TestCompanion(t *testing.T) {
	l := newRoutersLab(t)
	l.usual()
	compare := func(name string, program *ebpf.Program, in []byte, want outcome) {
		t.Helper()
		if got := l.observe(program, in); !got.same(want) {
			t.Errorf("%s:\n%s, not\n%s", name, got, want)
		}
	}
	in := ipv4("10.1.1.1", nil)
	given := outcome{verdict: redirect, frame: string(in), tx: map[int]int{10: 1}, rx: map[int]int{1: 1},
		routers: map[int]RouterCount{1: {Packets: 1, Companion: 1}}}
	l.Routers[1].On = ToCompanion
	compare("to the companion", l.FromPort, in, given)
	// By way of a router whose packets are forwarded here.
	l.Routers[1].On, l.Routers[2].On = ToPipeline, ToCompanion
	want := l.oracle(in, 10)
	if want.routers[2] != (RouterCount{Packets: 1, Companion: 1}) || want.frame == string(in) {
		t.Errorf("the reference says %s", want)
	}
	compare("to the second router's companion", l.FromPort, in, want)
	l.Routers[1].On, l.Routers[2].On = ToDevices, ToPipeline
	compare("to devices", l.FromPort, in, given)
	for name, frame := range map[string][]byte{"broadcast": changed(in, 0, 0xff), "ARP": changed(in, 13, 6),
		"its TTL at its end": ipv4("10.1.1.1", func(p *layers.IPv4) { p.TTL = 1 })} {
		given := given
		given.frame = string(frame)
		compare("to devices, "+name, l.FromPort, frame, given)
	}
	l.Routers[1].On, l.Routers[2].On = ToPipeline, ToDevices
	compare("to the second router's devices", l.FromPort, in, want)
	// Without a device there the guest gets it.
	l.Routers[1].On, l.Companions[10] = ToCompanion, 0
	off := RouterCount{}
	off.Punts[puntOf("interface does not forward")] = 1
	given.routers[1] = off
	compare("without a companion", l.FromPort, in, given)
	// The driver's hook leaves it to the tc hook.
	l.Companions[10] = lo
	l.Ports[1].Flags, l.Ports[2].Flags = XDP, XDP
	if verdict, out := l.run(l.FromPortXDP, in); verdict != xdpPass || string(out) != string(in) {
		t.Errorf("the driver's hook says %d", verdict)
	}

	// What a companion sends: from the port that it stands for.
	clear(l.Companions)
	l.Companions[11] = lo
	l.put(l.CompanionDevices, uint32(lo), uint32(11))
	l.Routers[2].On = ToGuest
	sent := append(ethernet(macAt(20), macAt(11), layers.EthernetTypeIPv4), in[14:]...)
	fromPort := outcome{verdict: redirect, frame: string(sent), tx: map[int]int{20: 1}, rx: map[int]int{11: 1},
		routers: map[int]RouterCount{}}
	for range 2 { // by the table, and by what the program remembers
		compare("from a companion", l.FromCompanion, sent, fromPort)
	}
	l.Companions[11] = lo<<32 | (lo + 1) // its successor is there already
	compare("from the former companion", l.FromCompanion, sent, fromPort)
	l.Routers[2].On = ToPipeline
	through := l.oracle(sent, 20)
	through.rx[11] = 1
	delete(through.rx, 1)
	if through.routers[2].Packets != 1 {
		t.Errorf("the reference says %s", through)
	}
	compare("from a companion to a router", l.FromCompanion, sent, through)
	compare("what the kernel says itself", l.FromCompanion, changed(sent, 0, 3),
		outcome{verdict: shot, tx: map[int]int{},
			rx: map[int]int{}, routers: map[int]RouterCount{}})
	l.Routers[2].On = ToGuest
	l.Routers[1].On = ToDevices // which may say anything
	fromPort.frame = string(changed(sent, 0, 3))
	compare("a group's, from a device that gets all", l.FromCompanion, changed(sent, 0, 3), fromPort)
	// A device that stands for no port, or no longer for this one.
	gone := outcome{verdict: shot, tx: map[int]int{}, rx: map[int]int{}, routers: map[int]RouterCount{}, drops: 1}
	l.Companions[11] = lo + 1
	compare("from somebody's former companion", l.FromCompanion, sent, gone)
	if err := l.CompanionDevices.Delete(uint32(lo)); err != nil {
		t.Fatal(err)
	}
	compare("from nobody's device", l.FromCompanion, sent, gone)
}

// TestSteering turns a router's forwarding on and off, and that of its interfaces.
func TestSteering(t *testing.T) {
	l := newRoutersLab(t)
	l.usual()
	compare := func(in []byte, router1 RouterCount) {
		t.Helper()
		want := l.oracle(in, 10)
		if want.routers[1] != router1 {
			t.Errorf("the reference says %s", want)
		}
		if got := l.observe(l.FromPort, in); !got.same(want) {
			t.Errorf("%s, not\n%s", got, want)
		}
	}
	v4, v6 := ipv4("10.2.1.1", nil), ipv6("2001:db8:2::1", nil)
	off := RouterCount{}
	off.Punts[puntOf("interface does not forward")] = 1
	compare(v4, RouterCount{Packets: 1})
	l.Ports[10].Flags |= OffIPv4
	compare(v4, off)
	compare(v6, RouterCount{Packets: 1})
	l.Ports[10].Flags ^= OffIPv4 | OffIPv6
	compare(v4, RouterCount{Packets: 1})
	compare(v6, off)
	l.Routers[1].On = 0
	compare(v4, RouterCount{})
	compare(v6, RouterCount{})
	// An interface whose link has a bandwidth: its queue keeps it, and behind that is the guest.
	l.Routers[1].On = 1
	l.Ports[10].Flags = RoutedBy(1) | Queue
	want := outcome{verdict: redirect, frame: string(v4), tx: map[int]int{10: 1}, rx: map[int]int{1: 1}}
	c := RouterCount{}
	c.Punts[puntOf("into a queue")] = 1
	want.routers = map[int]RouterCount{1: c}
	if got := l.observe(l.FromPort, v4); !got.same(want) {
		t.Errorf("%s, not\n%s", got, want)
	}
}

// TestChain lets two routers send a packet to each other until the run's bound: then one of them gets it itself.
func TestChain(t *testing.T) {
	l := newRoutersLab(t)
	l.table(1, map[string]fib.ID{"0.0.0.0/0": l.hop(hopTo(11, 20, 0))})
	l.table(2, map[string]fib.ID{"0.0.0.0/0": l.hop(hopTo(21, 12, 0))})
	l.Ports[21].Link = uint64(NewLink(Local, 0, 12))
	for _, ttl := range []uint8{64, 17, 16, 9, 2} {
		in := ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.TTL = ttl })
		want := l.oracle(in, 10)
		if n := want.routers[1].Packets + want.routers[2].Packets; n != uint64(min(16, ttl-1)) {
			t.Errorf("TTL %d: the reference forwards %d times", ttl, n)
		}
		if got := l.observe(l.FromPort, in); !got.same(want) {
			t.Errorf("TTL %d:\n%s, not\n%s", ttl, got, want)
		}
	}
}

// TestSegments looks at packets that the kernel segments later: what counts is how long their segments will be.
func TestSegments(t *testing.T) {
	l := newRoutersLab(t)
	l.usual()
	for _, k := range []struct {
		in   []byte
		size uint32
		fits bool
	}{
		{ipv4("10.2.1.1", func(ip *layers.IPv4) { ip.Protocol, ip.Length = layers.IPProtocolTCP, 2940 }), 1460, true},
		{ipv4("10.2.1.1", func(ip *layers.IPv4) { ip.Protocol, ip.Length = layers.IPProtocolTCP, 2942 }), 1461, false},
		{ipv6("2001:db8:2::1", func(ip *layers.IPv6) { ip.Length = 2440 }), 1220, true}, // 1,280 are the route's
		{ipv6("2001:db8:2::1", func(ip *layers.IPv6) { ip.Length = 2442 }), 1221, false},
		// the device has 65,536, the route less
		{ipv4("10.2.1.1", func(ip *layers.IPv4) { ip.Length = 2940 }), 1460, false},
		{ipv4("10.2.1.1", func(ip *layers.IPv4) { ip.Length = 2940; ip.Flags = layers.IPv4MoreFragments }), 1460,
			false},
	} {
		k.in[14+20+12], k.in[14+40+12] = 0x50, 0x50 // where TCP says that it has 20 bytes
		fast, punted, verdict := l.segmented(k.in, 2, k.size)
		if verdict != redirect || fast != 2*b2i(k.fits) || punted != 2*b2i(!k.fits) {
			t.Errorf("%d bytes in segments of %d: verdict %d, %d forwarded, %d punted", len(k.in), k.size,
				verdict, fast, punted)
		}
	}
}

// segmented runs a packet that the kernel will segment, and counts what router 1 forwards and leaves to its guest as
// too long.
func (l *routersLab) segmented(in []byte, segments, size uint32) (fast, punted int, verdict uint32) {
	l.Helper()
	type context struct {
		_        [41]uint32
		segments uint32
		_        [2]uint32
		size     uint32
		_        [3]uint32
	}
	before := l.counts().routers[1]
	options := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+256),
		Context: context{segments: segments, size: size}}
	verdict, err := l.FromPort.Run(&options)
	if err != nil {
		l.Fatal(err)
	}
	after, long := l.counts().routers[1], puntOf("larger than the MTU")
	return int(after.Packets - before.Packets), int(after.Punts[long] - before.Punts[long]), verdict
}

// TestRandomSegments does the same with headers of all lengths.
func TestRandomSegments(t *testing.T) {
	l := newRoutersLab(t)
	l.usual()
	random := rand.New(rand.NewPCG(9, 10))
	count := map[bool]int{}
	for range 1000 {
		words, size := 5+random.IntN(11), 1100+random.IntN(400)
		length := 40 + 4*words + size + random.IntN(1500) // a page holds it
		mtu, ip := 1500, 20
		var in []byte
		if random.IntN(2) == 0 {
			in = ipv4("10.2.1.1", func(ip *layers.IPv4) {
				ip.Protocol,
					ip.Length = layers.IPProtocolTCP, uint16(length)
			})
		} else {
			mtu, ip = 1280, 40
			in = ipv6("2001:db8:2::1", func(ip *layers.IPv6) { ip.Length = uint16(length - 40) })
		}
		in[14+ip+12] = byte(words << 4)
		want := ip+4*words+size <= mtu
		count[want]++
		if fast, punted, verdict := l.segmented(in, 2, uint32(size)); verdict != redirect || fast != 2*b2i(want) ||
			punted != 2*b2i(!want) {
			t.Errorf("%x… in segments of %d: verdict %d, %d forwarded, %d punted", in[:60], size, verdict, fast, punted)
		}
	}
	if count[true] < 100 || count[false] < 100 {
		t.Errorf("%v fit: the random segments say nothing", count)
	}
}

// TestRandomHeaders compares what the program does with headers that are damaged at random with what the reference
// does: verdict, bytes, counters.
func TestRandomHeaders(t *testing.T) {
	l := newRoutersLab(t)
	l.usual()
	random := rand.New(rand.NewPCG(7, 8))
	punts := map[int]uint64{}
	l.Ports[2].Flags |= XDP
	forwarded, driven, rounds := uint64(0), 0, 8000
	if testing.Short() {
		rounds = 2000
	}
	for range rounds {
		var in []byte
		if random.IntN(2) == 0 {
			to := fmt.Sprintf("10.%d.%d.1", random.IntN(17), random.IntN(4))
			if random.IntN(6) == 0 {
				to = "10.1.1.1" // through both routers
			}
			in = ipv4(to, func(ip *layers.IPv4) {
				ip.TTL, ip.Id, ip.TOS = uint8(random.IntN(5)*random.IntN(60)), uint16(random.Uint32()),
					uint8(random.Uint32())
				ip.Protocol = layers.IPProtocol(random.IntN(20))
				ip.Length = uint16(20 + random.IntN(1500)*random.IntN(2))
				ip.Flags = layers.IPv4Flag(random.IntN(8) * random.IntN(2))
				ip.SrcIP = net.IP{10, byte(random.Uint32()), byte(random.Uint32()), 1}
			})
		} else {
			to := fmt.Sprintf("2001:db8:%d:%d::%x", random.IntN(14), random.IntN(3), random.IntN(3))
			in = ipv6(to, func(ip *layers.IPv6) {
				ip.HopLimit, ip.FlowLabel = uint8(random.IntN(5)*random.IntN(60)), random.Uint32N(1<<20)
				ip.NextHeader = layers.IPProtocol(1 + random.IntN(60))
				ip.Length = uint16(random.IntN(1500) * random.IntN(2))
				ip.SrcIP[15] = byte(random.Uint32())
			})
		}
		for range random.IntN(3) * random.IntN(2) {
			at := random.IntN(min(len(in), 60))
			in[at] ^= 1 << random.IntN(8)
			// damaged, with a right checksum
			if at >= 14 && at < 34 && in[12] == 8 && in[13] == 0 && random.IntN(2) == 0 {
				in[24], in[25] = 0, 0
				var sum uint32
				for i := 14; i < 34; i += 2 {
					sum += uint32(binary.BigEndian.Uint16(in[i:]))
				}
				sum = sum>>16 + sum&0xffff
				binary.BigEndian.PutUint16(in[24:], ^uint16(sum>>16+sum))
			}
		}
		if random.IntN(10) == 0 {
			in = in[:54+random.IntN(len(in)-53)] // the kernel runs no test with less than an IP header
		}
		switch random.IntN(40) {
		case 0: // with a tag
			in = append(append(append([]byte{}, in[:12]...), 0x81, 0, byte(random.IntN(16)), byte(random.Uint32())),
				in[12:]...)
		case 1: // with options: hop by hop, or some words of them
			if in[12] == 0x86 {
				in[20] = 0
			} else {
				in[14] = 0x40 | byte(random.IntN(16))
			}
		}
		l.Routers[1].On, l.Routers[2].On = 1+random.Uint32N(2), 1+random.Uint32N(2)
		want := l.oracle(in, 10)
		got := l.observe(l.FromPort, in)
		if !got.same(want) {
			t.Fatalf("%x:\n%s, not\n%s", in, got, want)
		}
		// The driver's hook takes what goes from wire to wire with nothing else done to it, and leaves the rest as it
		// is.
		if want.tx[2] == 1 && want.verdict == redirect &&
			!slices.ContainsFunc(slices.Collect(maps.Values(want.routers)), func(c RouterCount) bool {
				return c != RouterCount{Packets: c.Packets}
			}) {
			want.byDriver()
			driven++
		} else {
			want = outcome{verdict: xdpPass, frame: string(in), tx: map[int]int{}, rx: map[int]int{},
				routers: map[int]RouterCount{}}
		}
		if got := l.observe(l.FromPortXDP, in); !got.same(want) {
			t.Fatalf("by the driver's hook, %x:\n%s, not\n%s", in, got, want)
		}
		for _, c := range got.routers {
			forwarded += c.Packets
			for i, n := range c.Punts {
				punts[i] += n
			}
		}
	}
	if forwarded < uint64(rounds/10) || len(punts) < 10 || driven < rounds/200 {
		t.Errorf("%d were forwarded, %d by the driver's hook, and punted %v: the random headers say nothing",
			forwarded, driven, punts)
	}
}
