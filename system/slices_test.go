package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const redAndBlue = `network: red
forwarding: xdp
slice: {tables: 64KiB, punts: 500}
ospf: {}
defaults:
  routers: {node: n1}
routers: [r1, r2]
hosts: [h1, h2]
links:
  - h1 -- r1: 10.1.0.0/24
  - r1 -- r2: {prefixes: [10.2.0.0/24], bandwidth: 500Mbit}
  - r2 -- h2: 10.3.0.0/24
---
network: blue
forwarding: xdp
software: static
routers:
  r1: {node: n1}
hosts: [h1, h2]
links:
  - h1 -- r1: 10.1.0.0/24
  - r1 -- h2: 10.3.0.0/24
`

// TestSlicesOfTheFastPath floods a router with packets whose TTL ends: neither its OSPF neighbour nor another network
// notices. Then its routes do not fit: it forwards all the same, and on the fast path when the quota is raised.
func TestSlicesOfTheFastPath(t *testing.T) {
	p := up(t, 1)
	p.run("apply", "-f", file(t, redAndBlue))
	p.run("check", "red", "--mesh", "--wait", "3m")
	p.run("check", "blue", "--mesh", "--wait", "1m")
	events := func() string { return p.run("get", "events") }
	told := func(what string) {
		t.Helper()
		p.await("the event "+what, func() bool { return strings.Contains(events(), what) }, events)
	}

	f := p.steady("blue", "h1", "h2", addressOf(p, "blue", "h2", false))
	f.run(100 * time.Millisecond)
	neighbours, _ := p.neighbours("red")
	began := time.Now()
	flood := p.command("exec", "red/h1", "--", "perl", "-e",
		`use Socket; $SIG{ALRM} = sub { exit }; alarm 60; socket my $s, PF_INET, SOCK_DGRAM, 0 or die; `+
			`setsockopt $s, 0, 2, pack("i", 1) or die; my $to = sockaddr_in(9, inet_aton("`+
			addressOf(p, "red", "h2", false)+`")); fork; send $s, "x" x 18, 0, $to while 1`)
	if err := flood.Start(); err != nil {
		t.Fatal(err)
	}
	refused := func() uint64 {
		e := p.elements("red")["r1"]
		if e.Fast == nil {
			return 0
		}
		return e.Fast.Refused
	}
	p.await("the flood to be refused", func() bool { return refused() > 1000 }, events)
	sent, lost := f.run(14 * time.Second) // more than OSPF's dead interval on a link
	flood.Process.Signal(syscall.SIGTERM)
	flood.Wait() //nolint:errcheck // it was ended
	took := time.Since(began)
	fast := p.elements("red")["r1"].Fast
	t.Logf("in %s r1 got %v, %d were refused; blue lost %d of %d", took.Round(time.Millisecond), fast.Punted,
		fast.Refused, lost, sent)
	if loss := float64(lost) / float64(sent); loss > tolerated {
		t.Errorf("%d of another network's %d packets were lost", lost, sent)
	}
	if most := 500*(took.Seconds()+5) + 1000; float64(fast.Punted["TTL"]) > most {
		t.Errorf("r1 got %d packets whose TTL ended, more than %.0f", fast.Punted["TTL"], most)
	}
	if after, _ := p.neighbours("red"); after != neighbours || strings.Count(after, "State is Full") != 2 {
		t.Errorf("the routers' neighbours are\n%s, and were\n%s", after, neighbours)
	}
	told("PuntLimit")

	var batch strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&batch, "route add 20.%d.%d.0/24 via %s\n", i/200, i%200, "10.2.0.2")
	}
	list := filepath.Join(t.TempDir(), "routes")
	if err := os.WriteFile(list, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	in(t, p.namespace("red", "r1"), "ip", "-force", "-batch", list)
	told("TablesFull")
	ping := func() {
		t.Helper()
		in(t, p.namespace("red", "h1"), "ping", "-c20", "-i0.01", "-W10", addressOf(p, "red", "h2", false))
	}
	ping()
	if out := p.run("describe", "red/r1"); !strings.Contains(out, "of 64KiB tables") ||
		!strings.Contains(out, "are used up: what does not fit the router itself forwards") {
		t.Error(out)
	}
	p.run("set", "red", "tables=16MiB", "punts=20000")
	told("TablesFit")
	before := p.elements("red")["r1"].Fast
	ping()
	p.await("the fast path to forward again",
		func() bool { return p.elements("red")["r1"].Fast.Packets >= before.Packets+40 },
		func() string { return p.run("describe", "red/r1") })
	if now := p.elements("red")["r1"].Fast; now.Punted["into a queue"] != 0 ||
		now.Punted["left to the guest by the tables"] != before.Punted["left to the guest by the tables"] {
		t.Errorf("punted %v, before %v", now.Punted, before.Punted)
	}
	if out := p.run("describe", "red"); !strings.Contains(out, "16MiB tables a node") ||
		!strings.Contains(out, "20000 punts/s a node") {
		t.Error(out)
	}
}
