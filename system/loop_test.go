package system

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/system/attack"
)

// looped is a network that wants its peace, and one whose element is held to a tenth of a core and to 1,000 packets a
// second.
const looped = `network: victim
routers:
  r1: {software: static, node: n1}
hosts: {v1: {node: n1}, v2: {node: n2}}
links:
  - v1 -- r1: 192.168.1.0/30
  - r1 -- v2: 192.168.2.0/30
---
network: mean
slice: {packets: 1000}
hosts:
  a1: {node: n1, cpu: 0.1}
  a2: {node: n1}
links:
  - a1 -- a2: 192.168.1.0/30
`

// twoBridges is two bridges joined twice, and 256 broadcasts that go round on them from then on. Nothing runs
// afterwards.
const twoBridges = `set -e; ip link add b1 type bridge; ip link add b2 type bridge
	ip link add x1 type veth peer name x2; ip link add y1 type veth peer name y2
	for d in x1 y1; do ip link set $d master b1 up; done; for d in x2 y2; do ip link set $d master b2 up; done
	ip link set b1 up; ip link set b2 up
	exec perl -e 'open my $f, "<", "/sys/class/net/b1/ifindex"; my $index = <$f>;
		socket my $s, 17, 3, 0 or die; bind $s, pack "SnlSCCa8", 17, 3, $index, 0, 0, 0, "" or die;
		send $s, "\xff" x 6 . "\x02\0\0\0\0\x01" . "\x88\xb5" . "x" x 46, 0 for 1..256'`

// TestLoopInside has an element make a loop of its own devices, on which packets go round in the kernel's time.
func TestLoopInside(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, looped))
	usual := p.timed("apply", "-f", file(t, strings.ReplaceAll(another, "NAME", "usual")))
	f := p.steady("victim", "v1", "v2", "192.168.2.2")
	loop := func(element string) { p.run("exec", element, "--", "sh", "-c", twoBridges) }

	var took time.Duration
	attacked := make(chan struct{})
	go func() {
		defer close(attacked)
		time.Sleep(time.Second)
		loop("mean/a1")
		took = p.timed("apply", "-f", file(t, strings.ReplaceAll(another, "NAME", "meanwhile")))
	}()
	sent, lost := f.run(8 * time.Second)
	<-attacked
	p.await("the loop to be cut", func() bool { return strings.Contains(p.run("get", "events"), "LoopCut") },
		func() string { return p.run("get", "events") })
	attack.Measured(t, "two bridges joined twice inside a host, 256 frames for ever",
		fmt.Sprintf("%d of %d packets", lost, sent))
	t.Logf("%d of %d packets lost; apply took %s, usually %s\n%s", lost, sent, took, usual, p.run("get", "events"))
	if float64(lost) > tolerated*float64(sent) {
		t.Errorf("another network lost %d of %d packets", lost, sent)
	}
	if took > 5*time.Second+2*usual { // it took 15 s
		t.Errorf("apply of a third network took %s meanwhile, usually %s", took, usual)
	}
	if events := p.run("get", "events"); !strings.Contains(events, "mean/a1") ||
		!strings.Contains(events, "x1, x2, y1, y2") {
		t.Errorf("no event names the element and its devices:\n%s", events)
	}
	for _, x := range []struct{ verb, element string }{{"suspend", "mean/a1"}, {"stop", "mean/a2"}} {
		loop(x.element)
		took := p.timed(x.verb, x.element)
		t.Logf("%s took %s", x.verb, took)
		if took > 5*time.Second+usual { // what a busy machine needs for as much in peace
			t.Errorf("%s of the attacker took %s, want at most 5 s", x.verb, took)
		}
		space := p.namespace("mean", strings.TrimPrefix(x.element, "mean/"))
		devices := func() string { return in(t, space, "ip", "-br", "link") }
		p.await("the loop to be cut", func() bool { return !strings.Contains(devices(), "x1") }, devices)
	}
	// The first one did it for the second time.
	p.run("resume", "mean/a1")
	p.run("exec", "mean/a1", "--", "sh", "-c",
		"ip link add x1 type veth peer name x2; ip link set x1 up; ip link set x2 up; true")
	space := p.namespace("mean", "a1")
	devices := func() string { return in(t, space, "ip", "-br", "link") }
	p.await("it to have no devices", func() bool { return !strings.Contains(devices(), "x1") }, devices)
}

// TestStopTakesDevicesAway stops elements in which somebody has made devices, which forward without any process.
func TestStopTakesDevicesAway(t *testing.T) {
	attack.Tell(t, "devices made inside elements that are stopped then",
		"nothing goes on in them")
	p := up(t, 1)
	p.run("apply", "-f", file(t, `network: lab
hosts: {h1: {}}
routers: {r1: {software: frr}}
switches: {s1: {}}
links: [h1 -- s1: 10.0.0.0/29, r1 -- s1]
`))
	for _, element := range []string{"h1", "r1", "s1"} {
		p.run("exec", "lab/"+element, "--", "sh", "-c",
			"ip link add x1 type veth peer name x2; ip link set x1 up; ip link set x2 up; ip link add m1 link x1 "+
				"type macvlan; ip link set m1 up")
		p.run("stop", "lab/"+element)
		if left := in(t, p.namespace("lab", element), "ip", "-o", "link"); strings.Contains(left, "x1") ||
			strings.Contains(left, "m1") {
			t.Errorf("%s is stopped, and has devices that somebody made in it:\n%s", element, left)
		}
		p.run("start", "lab/"+element)
	}
	in(t, p.namespace("lab", "h1"), "ping", "-c1", "-W10", "10.0.0.2")
}

// another is a network that somebody applies.
const another = `network: NAME
hosts: {h1: {node: n1}, h2: {node: n2}}
links: [h1 -- h2: 10.0.0.0/30]
`

// timed runs a command that must succeed, and tells how long it took.
func (p *platform) timed(args ...string) time.Duration {
	p.t.Helper()
	began := time.Now()
	p.run(args...)
	return time.Since(began)
}
