package pipeline

import (
	"sync/atomic"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// TestPuntMeter has routers 1 and 2 get exceptions by one meter, which nothing fills, and then by none.
func TestPuntMeter(t *testing.T) {
	l := newRoutersLab(t)
	l.usual()
	l.Routers[1].Meter, l.Routers[2].Meter = 1, 1
	fragment := func(to string, flags layers.IPv4Flag, length uint16) []byte {
		return ipv4(to, func(ip *layers.IPv4) { ip.Flags, ip.Length = flags, length })
	}
	ends := func(ip *layers.IPv4) { ip.TTL = 1 }
	for _, k := range []struct {
		name    string
		in      []byte
		router  int
		metered bool
	}{
		{"TTL", ipv4("10.1.1.1", ends), 1, true},
		{"TTL at the second router", ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.TTL = 2 }), 2, true},
		{"hop limit", ipv6("2001:db8:1:1::1", func(ip *layers.IPv6) { ip.HopLimit = 1 }), 1, true},
		{"header", changed(ipv4("10.1.1.1", nil), 24, 0x45), 1, true},
		{"options", changed(ipv4("10.1.1.1", nil), 14, 0x46), 1, true},
		{"no route", ipv4("10.200.0.1", nil), 1, true},
		{"unreachable", ipv4("10.6.1.1", nil), 1, true},
		{"unresolved", ipv4("10.7.1.1", nil), 1, true},
		{"too long, not to be cut", fragment("10.3.1.1", layers.IPv4DontFragment, 601), 1, true},
		{"too long, IPv6", ipv6("2001:db8:2::1", func(ip *layers.IPv6) { ip.Length = 1241 }), 1, true},
		{"another's MAC address", changed(ipv4("10.1.1.1", nil), 5, 99), 1, true},
		{"to be cut into fragments", fragment("10.3.1.1", 0, 601), 1, false},
		{"own address", ipv4("10.9.0.1", ends), 1, false},
		{"ARP to all", changed(changed(ipv4("10.1.1.1", nil), 13, 6), 0, 0xff), 1, false},
		{"ARP to the router", changed(ipv4("10.1.1.1", nil), 13, 6), 1, false},
		{"multicast", changed(ipv4("224.0.0.5", ends), 0, 1), 1, false},
		{"link-local", ipv6("fe80::1", nil), 1, false},
		{"table", ipv4("10.8.1.1", nil), 1, false},
		{"back", ipv4("10.10.0.1", nil), 1, false},
		{"interface is off", ipv4("10.11.0.1", nil), 1, false},
		{"forwarded", ipv4("10.1.1.1", nil), 1, false},
	} {
		l.PuntMeters[1] = Meter{Tokens: 2, Burst: 2}
		want := l.oracle(k.in, 10)
		for n := range 4 {
			if n == 2 && k.metered {
				c := want.routers[k.router]
				c.Punts, c.Refused = [16]uint64{}, 1
				want.routers[k.router], want.verdict, want.drops = c, shot, 1
			}
			if got := l.observe(l.FromPort, k.in); !got.same(want) {
				t.Errorf("%s, packet %d:\n%s, not\n%s", k.name, n, got, want)
			}
		}
	}
	l.dropped(1, DropPunts, 20) // at the port that sent them
	l.dropped(11, DropPunts, 2)
	l.PuntMeters[1] = Meter{Tokens: 2, Burst: 2}
	virtual := ipv4("10.1.1.1", nil)
	copy(virtual, []byte{0, 0, 0x5e, 0, 1, 7})
	l.Ports[10].Flags |= Virtual
	for n := range 4 {
		if got, want := l.observe(l.FromPort, virtual), l.oracle(virtual, 10); !got.same(want) {
			t.Errorf("to a virtual router, packet %d:\n%s, not\n%s", n, got, want)
		}
	}
	l.Ports[10].Flags &^= Virtual
	l.observe(l.FromPort, virtual)
	l.observe(l.FromPort, virtual)
	if got := l.observe(l.FromPort, virtual); got.verdict != shot {
		t.Errorf("to a virtual router of others: %s", got)
	}
	l.PuntMeters[1] = Meter{}
	l.Routers[1].Meter = 0
	in := ipv4("10.1.1.1", ends)
	if got, want := l.observe(l.FromPort, in), l.oracle(in, 10); !got.same(want) {
		t.Errorf("without a meter:\n%s, not\n%s", got, want)
	}
}

// TestQueueBeforeRouter has router 1 forward what has passed the queue of the port where it came in, and hosts get what
// has passed theirs.
func TestQueueBeforeRouter(t *testing.T) {
	l := newRoutersLab(t)
	l.usual()
	l.Ports[10].Flags |= Rated
	l.Queues[10] = lo
	before := func(in []byte) {
		t.Helper()
		want := outcome{verdict: redirect, frame: string(in), tx: map[int]int{10: 1}, rx: map[int]int{1: 1},
			routers: map[int]RouterCount{}}
		if got := l.observe(l.FromPort, in); !got.same(want) {
			t.Errorf("%s, not queued as\n%s", got, want)
		}
	}
	after := func(in []byte, slot int) {
		t.Helper()
		want := l.oracle(in, slot)
		if want.tx[slot]--; want.tx[slot] == 0 {
			delete(want.tx, slot)
		}
		delete(want.rx, 1)
		if got := l.marked(l.FromQueue, in, l.markOf(uint32(slot))); !got.same(want) {
			t.Errorf("behind the queue %s, not\n%s", got, want)
		}
	}
	for _, in := range [][]byte{ipv4("10.1.1.1", nil), ipv6("2001:db8:1:1::1", nil), ipv4("10.2.1.1", nil),
		ipv4("10.5.1.1", nil), ipv4("10.9.0.1", nil),
		ipv4("10.200.0.1", nil), changed(ipv4("10.1.1.1", nil), 0, 0xff)} {
		before(in)
		after(in, 10)
		l.Routers[1].On = ToCompanion // which is behind the queue, too
		before(in)
		after(in, 10)
		l.Routers[1].On = ToPipeline
	}
	in := ipv4("10.1.1.1", nil)
	l.Routers[1].On = 0 // the guest's packets pass the queue too
	before(in)
	after(in, 10)
	l.Routers[1].On = 1

	// A queue on the way, behind router 1: what is queued is what router 1 made of it.
	l.Ports[10].Flags &^= Rated
	l.Ports[20].Flags |= Rated
	l.Queues[20] = lo
	want := l.oracle(in, 10)
	_, made, reason := l.decide(in, 10, 1)
	if reason != "" {
		t.Fatal(reason)
	}
	want.frame, want.tx, want.rx = string(made), map[int]int{10: 1, 20: 1}, map[int]int{1: 1, 11: 1}
	want.routers = map[int]RouterCount{1: {Packets: 1}}
	if got := l.observe(l.FromPort, in); !got.same(want) {
		t.Errorf("%s, not\n%s", got, want)
	}
	after(made, 20)
	if got := l.observe(l.FromPortXDP, in); got.verdict != xdpPass || got.frame != string(in) {
		t.Errorf("the driver's hook goes past a queue: %s", got)
	}

	// A port without a device for its queue delivers at once; what has no port is dropped.
	l.Queues[20] = 0
	want = l.oracle(in, 10)
	if got := l.observe(l.FromPort, in); !got.same(want) {
		t.Errorf("%s, not\n%s", got, want)
	}
	// What is gone: no port, a slot alone, the port before, and so many ports before that a mark's bits come again but
	// for one.
	l.Generations[20] = 5 << 18
	own := l.markOf(20)
	for _, mark := range []uint32{0, 29, MaxPorts + 1, 1 << 31, 20 | 1<<14, own - 1<<14, own ^ 1<<31} {
		if got := l.marked(l.FromQueue, in, mark); got.verdict != shot || got.drops != 1 {
			t.Errorf("mark %d: %s", mark, got)
		}
	}
	l.Ports[20].Flags |= Down
	if got := l.marked(l.FromQueue, made, own); got.verdict != shot || got.drops != 1 {
		t.Errorf("a port that is down got %s", got)
	}
	// Loss and counters are done with before the queue.
	l.Ports[20].Flags, l.Ports[20].Loss = RoutedBy(2), 1<<32-1
	if got := l.marked(l.FromQueue, made, own); got.verdict != redirect || got.drops != 0 {
		t.Errorf("lost behind the queue: %s", got)
	}
}

// markOf is the mark of a packet that waits in a queue and is of the port that has this slot now.
func (p *Pipeline) markOf(slot uint32) uint32 {
	return slot | uint32(atomic.LoadUint64(&p.Generations[slot]))<<slotBits
}
