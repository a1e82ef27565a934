package system

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polyplane/polyplane/system/attack"
)

// costly is a network that wants its peace, and one of two hosts joined three times, of which one is held to a tenth of
// a core.
const costly = `network: victim
routers:
  r1: {software: static, node: n1}
hosts: {v1: {node: n1}, v2: {node: n2}}
links:
  - v1 -- r1: 192.168.1.0/30
  - r1 -- v2: 192.168.2.0/30
---
network: mean
hosts:
  a1: {node: n1, cpu: 0.1}
  a2: {node: n1}
links:
  - a1:eth0 -- a2:eth0: 192.168.1.0/30
  - a1:eth1 -- a2:eth1: 192.168.2.0/30
  - a1:eth2 -- a2:eth2: 192.168.3.0/30
`

// bridged joins all links of a host by a bridge.
const bridged = `set -e; ip link add b1 type bridge; for d in eth0 eth1 eth2; do ip link set $d master b1; done; ip link set b1 up`

// circling are 256 broadcasts that go round, and become more each time, from then on.
const circling = `perl -e 'open my $f, "<", "/sys/class/net/b1/ifindex"; my $index = <$f>;
	socket my $s, 17, 3, 0 or die; bind $s, pack "SnlSCCa8", 17, 3, $index, 0, 0, 0, "" or die;
	send $s, "\xff" x 6 . "\x02\0\0\0\0\x01" . "\x88\xb5" . "x" x 46, 0 for 1..256'`

// TestLoopOverLinks has two elements hand packets to each other for ever, which no process sends any more. LOOP_LOAD is
// how many processes compute all the while, each of them in a session of its own.
func TestLoopOverLinks(t *testing.T) {
	load, _ := strconv.Atoi(os.Getenv("LOOP_LOAD"))
	compute(t, load, &syscall.SysProcAttr{Setsid: true}) // else they share one scheduling group, and get little
	a := costlyAttack(t)
	// The kernel's own multicasts go round as soon as both bridges are up, so the other network must be sending by
	// then.
	a.run("two elements bridge their three links, 256 broadcasts that become more each time", func() {
		for _, element := range []string{"a1", "a2"} {
			a.p.run("exec", "mean/"+element, "--", "sh", "-c", bridged)
		}
		a.p.run("exec", "mean/a1", "--", "sh", "-c", circling)
	})
	// Which of the two it is told as depends on what began in the network during the short look that found it: the
	// kernel's own multicasts are the first that go round.
	events := a.p.run("get", "events")
	if !strings.Contains(events, "they go round over the links of several elements") &&
		!strings.Contains(events, "it makes too much of each of the") {
		t.Errorf("no event names who makes the kernel work:\n%s", events)
	}
	a.ends()
}

// expensive is an attack on the kernel's time.
type expensive struct {
	p         *platform
	usual     time.Duration // that somebody else's apply takes
	meanwhile time.Duration
}

func costlyAttack(t *testing.T) *expensive {
	p := up(t, 2)
	p.run("apply", "-f", file(t, costly))
	return &expensive{p: p, usual: applies(p, "usual")}
}

// applies is how long somebody else's apply takes: the median of three, each of a network that is deleted again.
func applies(p *platform, name string) time.Duration {
	var all []time.Duration
	for range 3 {
		all = append(all, p.timed("apply", "-f", file(p.t, strings.ReplaceAll(another, "NAME", name))))
		p.run("delete", name, "--now")
	}
	slices.Sort(all)
	return all[1]
}

// run attacks while another network sends, and somebody applies a network.
func (a *expensive) run(what string, attacks func()) {
	t, p := a.p.t, a.p
	t.Helper()
	f := p.steady("victim", "v1", "v2", "192.168.2.2")
	var took time.Duration
	attacked := make(chan struct{})
	go func() {
		defer close(attacked)
		time.Sleep(time.Second)
		attacks()
		took = applies(p, "meanwhile")
	}()
	sent, lost := f.run(15 * time.Second)
	<-attacked
	p.await("the packets to be paced", func() bool { return strings.Contains(p.run("get", "events"), "PacketTime") },
		func() string { return p.run("get", "events") })
	attack.Measured(t, what, fmt.Sprintf("%d of %d packets", lost, sent))
	events := p.run("get", "events")
	t.Logf("apply took %s, usually %s\n%s", took, a.usual, events)
	if float64(lost) > tolerated*float64(sent) {
		t.Errorf("another network lost %d of %d packets", lost, sent)
	}
	for range 2 {
		if took > 2*a.usual {
			t.Logf("apply took %s at first", took)
			took = applies(p, "meanwhile")
		}
	}
	a.meanwhile = took
	if !strings.Contains(events, "mean/a1") {
		t.Errorf("no event names the element:\n%s", events)
	}
}

// ends suspends and stops the attackers, and compares what was usual before and after with what was meanwhile: a
// machine's other work comes and goes.
func (a *expensive) ends() {
	a.p.t.Helper()
	for _, args := range [][]string{{"suspend", "mean/a1"}, {"stop", "mean/a1"}, {"stop", "mean/a2"}} {
		took := a.p.timed(args...)
		a.p.t.Logf("%s took %s", strings.Join(args, " "), took)
		if took > 5*time.Second+a.usual { // what a busy machine needs for as much in peace
			a.p.t.Errorf("%s took %s, want at most 5 s", strings.Join(args, " "), took)
		}
	}
	if a.meanwhile > 2*a.usual {
		a.usual = max(a.usual, applies(a.p, "after"))
	}
	if a.meanwhile > 2*a.usual {
		a.p.t.Errorf("apply of another network took %s meanwhile, usually %s: want at most twice as long",
			a.meanwhile, a.usual)
	}
}
