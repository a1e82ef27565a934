package pipeline

import (
	"maps"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// Verdicts of XDP programs.
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpRedirect = 4
)

// byDriver makes of what the tc hook does what the driver's does.
func (o *outcome) byDriver() {
	o.verdict = xdpRedirect
	for n := range o.routers {
		o.router(n, func(c *RouterCount) { c.Driver = c.Packets })
	}
}

// TestXDP runs the packets of TestRoute through the driver's hook: what it forwards it forwards as the tc hook does,
// and what it does not it leaves as it is, uncounted.
func TestXDP(t *testing.T) {
	l := newRoutersLab(t)
	l.usual()
	l.Ports[2].Flags |= XDP
	untouched := func(name string, in []byte) {
		t.Helper()
		got := l.observe(l.FromPortXDP, in)
		want := outcome{verdict: xdpPass, frame: string(in), tx: map[int]int{}, rx: map[int]int{},
			routers: map[int]RouterCount{}}
		if !got.same(want) {
			t.Errorf("%s: %s, not left to the tc hook", name, got)
		}
	}
	taken := func(name string, in []byte) {
		t.Helper()
		want := l.oracle(in, 10)
		if want.verdict != redirect {
			t.Fatalf("%s: the reference says %s", name, want)
		}
		want.byDriver()
		if got := l.observe(l.FromPortXDP, in); !got.same(want) {
			t.Errorf("%s:\n%s, not\n%s", name, got, want)
		}
	}
	v4, v6 := ipv4("10.1.1.1", nil), ipv6("2001:db8:1:1::1", nil)
	taken("IPv4", v4)
	taken("IPv6", v6)
	taken("with a trailer", ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.Length = 20 }))
	for name, in := range map[string][]byte{
		"tunnel": ipv4("10.2.1.1", nil), "edge": ipv4("10.3.1.1", nil), "blackhole": ipv4("10.5.1.1", nil),
		"queue": ipv4("10.12.1.1", nil),
		"TTL":   ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.TTL = 1 }), "TTL at the second router": ipv4("10.1.1.1",
			func(ip *layers.IPv4) { ip.TTL = 2 }),
		"second router's MTU": ipv4("10.1.1.1", func(ip *layers.IPv4) { ip.Length = 1401 }),
		"options":             changed(v4, 14, 0x46),
		"checksum":            changed(v4, 24, 0x45), "own address": ipv4("10.9.0.1", nil),
		"no route":    ipv6("2001:db8:200::1", nil),
		"another MAC": changed(v4, 5, 99), "ARP": changed(v4, 13, 6), "link-local": ipv6("fe80::1", nil),
		"nowhere": ipv4("10.13.1.1", nil),
	} {
		untouched(name, in)
	}
	for name, change := range map[string]func(){
		"no hook there": func() { l.Ports[2].Flags = 0 }, "down": func() { l.Ports[2].Flags = XDP | Down },
		"tc hook": func() { l.Ports[20].Flags |= TC }, "tc hook from the start": func() { l.Ports[10].Flags |= TC },
		"quarantine":           func() { l.Ports[2].Flags = XDP | Cut },
		"sender in quarantine": func() { l.Ports[1].Flags |= Cut },
		"router in quarantine": func() { l.Ports[10].Flags |= Cut }, "its way out": func() { l.Ports[11].Flags |= Cut },
		"a queue": func() { l.Ports[2].Flags = XDP | Queue }, "capture": func() { l.Ports[2].Snap = 100 },
		"capture in between":     func() { l.Ports[20].Snap = 100 },
		"capture on the way out": func() { l.Ports[11].Snap = 100 },
		"capture at the start":   func() { l.Ports[1].Snap = 100 }, "loss": func() { l.Ports[10].Loss = 1 << 31 },
		"guest": func() { l.Routers[1].On = 0 }, "companion": func() { l.Routers[1].On = ToCompanion },
		"second is a companion": func() { l.Routers[2].On = ToCompanion },
		"second is guest":       func() { l.Routers[2].On = 0 },
		"no router":             func() { l.Ports[10].Flags = 0 }, "gone": func() { l.Ports[2].Ifindex = 0 },
		"tunnel": func() { l.Ports[1].Link = l.Ports[12].Link },
	} {
		ports, routers := append([]Port{}, l.Ports[:32]...), append([]Router{}, l.Routers[:4]...)
		change()
		untouched(name, v4)
		copy(l.Ports, ports)
		copy(l.Routers, routers)
	}
	taken("after all that", v4)
	// What this hook forwards it meters, and only that: the tc hook meters the rest.
	l.Ports[1].Flags |= Metered
	l.Metered[1] = 5
	l.Meters[5] = Meter{Rate: 1, Burst: 1, Tokens: 1, Last: 1 << 62} // never filled again
	untouched("metered, for the tc hook", changed(v4, 13, 6))
	taken("metered", v4)
	got := l.observe(l.FromPortXDP, v4)
	if got.verdict != xdpDrop || got.drops != 1 || !maps.Equal(got.rx, map[int]int{1: 1}) || len(got.tx)+
		len(got.routers) != 0 {
		t.Errorf("more than its network may send: %s, not dropped", got)
	}
	l.Ports[1].Flags &^= Metered
	// A loop of routers ends in the tc hook, which ends it.
	l.Ports[21].Link = uint64(NewLink(Local, 0, 12))
	untouched("chain", v4)
}
