package system

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// watched is a network with a router between three hosts, on two nodes.
const watched = `network: lab
routers:
  r1: {node: n1, software: static}
hosts:
  h1: {node: n1}
  h2: {node: n2}
  h3: {node: n1}
links:
  - h1 -- r1: 10.1.0.0/24
  - h2 -- r1: 10.2.0.0/24
  - h3 -- r1: 10.3.0.0/24
`

// scanning tries one service after another, 250 a second, without end.
const scanning = `alarm 120; use Socket; while (1) { for my $p (1 .. 60000) { socket my $s, 2, 2049, 6; connect $s, pack "SnC4x8", 2, $p, 10, 2, 0, 1; select undef, undef, undef, 0.004 } }`

// begin runs a command in an element until the test ends, or end is called.
func (p *platform) begin(element string, command ...string) (end func()) {
	p.t.Helper()
	c := p.command(append([]string{"exec", element, "--"}, command...)...)
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { c.Wait(); close(done) }()
	ended := false
	end = func() {
		if !ended {
			ended = true
			c.Process.Signal(syscall.SIGTERM)
			<-done
		}
	}
	p.t.Cleanup(end)
	return end
}

// suspicions are the events of attacks by an element.
func (p *platform) suspicions(element string) []string {
	var found []string
	var events []model.Event
	if err := json.Unmarshal([]byte(p.run("get", "events", "-o", "json")), &events); err != nil {
		p.t.Fatal(err)
	}
	for _, e := range events {
		if e.Reason == "AttackSuspected" && (element == "" || e.Object == element) {
			found = append(found, e.Object+": "+e.Message)
		}
	}
	return found
}

// reaches tells whether one address answers another element.
func (p *platform) reaches(network, from, address string) bool {
	return exec.Command("nsenter", "--net="+p.namespace(network, from), "ping", "-c1", "-W1", address).Run() == nil
}

// TestAttackerIsCutOff has a host scan another through a router: the host is cut off by its network's policy, and
// nobody else is; what it did is kept and told; and it stays so whatever dies, until it is released.
func TestAttackerIsCutOff(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, watched))
	p.run("policy", "lab", "attack=quarantine")
	if !p.reaches("lab", "h1", "10.2.0.1") {
		t.Fatal("h1 does not reach h2 before")
	}
	phase := func(element string) string {
		for line := range strings.Lines(p.run("get", "elements", "lab", "--no-headers")) {
			if f := strings.Fields(line); f[0] == "lab/"+element {
				return f[2]
			}
		}
		return ""
	}
	cutOff := func(what string) {
		t.Helper()
		p.await(what, func() bool { return phase("h1") == "quarantined" },
			func() string { return p.run("get", "events") })
	}
	began := time.Now()
	end := p.begin("lab/h1", "perl", "-e", scanning)
	cutOff("the attacker to be cut off")
	t.Logf("cut off after %.1f s", time.Since(began).Seconds())
	if found := p.suspicions(""); len(found) == 0 || !strings.HasPrefix(found[0], "lab/h1: ") ||
		!strings.Contains(found[0], "services of 10.2.0.1") ||
		!strings.Contains(found[0], "polyplane release lab/h1") {
		t.Errorf("told was %q", found)
	}
	for _, other := range []string{"r1", "h2", "h3"} {
		if is := phase(other); is != "running" {
			t.Errorf("%s is %s", other, is)
		}
	}
	if p.reaches("lab", "h1", "10.2.0.1") || p.reaches("lab", "h3", "10.1.0.1") || !p.reaches("lab", "h3", "10.2.0.1") {
		t.Error("h1 is reached, or h2 is not")
	}
	// Its state is kept, and its processes run.
	if out := p.run("exec", "lab/h1", "--", "sh", "-c", "echo here"); out != "here\n" {
		t.Errorf("inside it says %q", out)
	}
	capture := filepath.Join(t.TempDir(), "h1.pcapng")
	p.await("the capture", func() bool {
		_, _, err := p.try("quarantine", "capture", "lab/h1", "-w",
			capture)
		return err == nil
	}, nil)
	if seen := in(t, "/proc/self/ns/net", "tcpdump", "-nr", capture,
		"tcp and src host 10.1.0.1"); strings.Count(seen, "10.2.0.1.") < 20 {
		t.Errorf("the capture shows %s", seen)
	}
	for _, command := range [][]string{{"quarantine", "list"}, {"describe", "lab/h1"}, {"metrics"}, {"graph", "lab"}} {
		want := map[string]string{"quarantine": "services of 10.2.0.1", "describe": "services of 10.2.0.1",
			"metrics": `polyplane_element_quarantined{element="h1",network="lab",node="n1"} 1`,
			"graph":   "quarantined"}[command[0]]
		if out := p.run(command...); !strings.Contains(out, want) {
			t.Errorf("%v does not tell of it: %s", command, out)
		}
	}
	end()

	// An apply, and whatever dies, do not end it.
	p.run("apply", "-f", file(t, watched))
	for _, victims := range [][]string{{"agent n1"}, {"manager"}, {"up", "manager", "agent n1", "agent n2"}} {
		p.kill(victims...)
		if victims[0] == "up" {
			p.run("up", "-d")
		}
		p.ready()
		cutOff("it to be cut off after " + strings.Join(victims, ", "))
		if p.reaches("lab", "h1", "10.2.0.1") {
			t.Errorf("after %v were killed h1 is reached", victims)
		}
	}
	p.run("release", "lab/h1")
	p.await("h1 to reach h2 again", func() bool { return p.reaches("lab", "h1", "10.2.0.1") }, nil)
	if is := phase("h1"); is != "running" {
		t.Errorf("released, it is %s", is)
	}
}

// TestAttackersAreStoppedAndTakenOut has two hosts scan another at once: one is stopped, the other taken out of the
// network, as their policies say; a third, which does as little as usual, is left alone. What each had is there when it
// is back.
func TestAttackersAreStoppedAndTakenOut(t *testing.T) {
	p := up(t, 2)
	text := strings.NewReplacer("h1: {", "h1: {policy: {attack: stop}, ", "h3: {",
		"h3: {policy: {attack: delete}, ").Replace(watched)
	p.run("apply", "-f", file(t, text))
	for _, id := range []string{"lab/h1", "lab/h3"} {
		p.run("exec", id, "--", "sh", "-c", "echo mine > /root/kept")
	}
	state := func() string { return p.run("get", "elements", "lab") + p.run("get", "events") }
	ends := []func(){p.begin("lab/h1", "perl", "-e", scanning), p.begin("lab/h3", "perl", "-e", scanning)}
	p.await("h1 to be stopped",
		func() bool { return strings.Contains(p.run("describe", "lab/h1"), "host lab/h1  stopped") }, state)
	p.await("h3 to be taken out", func() bool { _, ok := p.elements("lab")["h3"]; return !ok }, state)
	for _, end := range ends {
		end()
	}
	for id, want := range map[string]string{"lab/h1": "polyplane start lab/h1", "lab/h3": "polyplane trash list"} {
		if told := p.suspicions(id); len(told) == 0 || !strings.Contains(told[0], "services of 10.2.0.1") ||
			!strings.Contains(told[0], want) {
			t.Errorf("of %s is told %q", id, told)
		}
	}
	if told := p.suspicions(""); len(told) != len(p.suspicions("lab/h1"))+len(p.suspicions("lab/h3")) {
		t.Errorf("others are blamed: %q", told)
	}
	if out := p.run("describe", "lab/h1"); !strings.Contains(out, "services of 10.2.0.1") {
		t.Errorf("describe does not say why h1 is stopped:\n%s", out)
	}
	if p.reaches("lab", "h2", "10.1.0.1") || p.reaches("lab", "h2", "10.3.0.1") || !p.reaches("lab", "h2", "10.2.0.2") {
		t.Error("h1 or h3 is reached, or h2 does not reach its router")
	}

	// Neither an apply of another network nor the death of everything brings them back; who may, does.
	p.kill("up", "manager", "agent n1", "agent n2")
	p.run("up", "-d")
	p.ready()
	if is := p.elements("lab")["h1"].Phase; is != model.PhaseStopped {
		t.Errorf("after everything was killed h1 is %s", is)
	}
	p.run("start", "lab/h1")
	p.run("apply", "-f", file(t, text))
	list := strings.Fields(p.run("trash", "list", "--no-headers"))
	if len(list) == 0 || !strings.HasPrefix(list[0], "lab/h3@") {
		t.Fatalf("the trash has %q", list)
	}
	p.run("stop", "lab/h3")
	p.run("trash", "restore", list[0])
	p.run("start", "lab/h3")
	for _, id := range []string{"lab/h1", "lab/h3"} {
		p.await(id+" to reach h2, with what it had", func() bool {
			out, _, err := p.try("exec", id, "--", "cat", "/root/kept")
			return err == nil && out == "mine\n" && p.reaches("lab", strings.TrimPrefix(id, "lab/"), "10.2.0.1")
		}, state)
	}
}

// TestAttackerIsCutOffWithoutTheManager has the manager stopped while a host attacks, and the agent killed on top.
func TestAttackerIsCutOffWithoutTheManager(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, "policy: {attack: quarantine}\n"+watched))
	manager := p.processes()["manager"]
	end := p.begin("lab/h1", "sh", "-c", "sleep 2; exec perl -e '"+scanning+"'")
	time.Sleep(time.Second) // the command is under way
	if err := unix.Kill(manager, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			unix.Kill(manager, unix.SIGCONT)
		}
	}
	t.Cleanup(resume)
	h1 := p.dirs.Node("n1").Namespace(model.ID{Network: "lab", Element: "h1"})
	reached := func() bool {
		return exec.Command("nsenter", "--net="+h1, "ping", "-c1", "-W1", "10.2.0.1").Run() == nil
	}
	p.await("the attacker to be cut off by its node alone", func() bool { return !reached() }, nil)
	p.kill("agent n1")
	p.await("the agent to be back", func() bool { return p.processes()["agent n1"] != 0 }, nil)
	time.Sleep(2 * time.Second) // it knows what it has to do
	if reached() {
		t.Error("after its agent was killed the attacker is back")
	}
	resume()
	p.ready()
	p.await("the manager to know", func() bool { return strings.Contains(p.run("quarantine", "list"), "lab/h1") },
		func() string { return p.run("get", "events") })
	end()
	p.run("release", "lab/h1")
	p.await("h1 to reach h2 again", reached, nil)
	time.Sleep(3 * time.Second)
	if !reached() {
		t.Error("what its node knew has cut it off again after its release")
	}
}

// TestSlowScanIsFound has a host try a service now and then, far fewer than the watch's short looks see, while the
// router through which it does so, and a host that asks the same dead services again and again, are left alone.
func TestSlowScanIsFound(t *testing.T) {
	attack.Tell(t, "a scan of two and a half services a second", "nothing: who scans is cut off")
	p := up(t, 1)
	p.run("apply", "-f", file(t, strings.NewReplacer("node: n2", "node: n1").Replace(watched)))
	p.run("policy", "lab", "attack=quarantine")
	const tries = `alarm 240; use Socket; for (my $i = 0; 1; $i++) { socket my $s, 2, 2049, 6; connect $s, pack "SnC4x8", 2, 1000 + $i % MANY, 10, 2, 0, 1; select undef, undef, undef, 0.4 }`
	p.begin("lab/h3", "perl", "-e", strings.Replace(tries, "MANY", "20", 1))
	began := time.Now()
	p.begin("lab/h1", "perl", "-e", strings.Replace(tries, "MANY", "60000", 1))
	p.await("the scanner to be cut off", func() bool { return strings.Contains(p.run("quarantine", "list"), "lab/h1") },
		func() string { return p.run("get", "events") })
	t.Logf("cut off after %.1f s: %s", time.Since(began).Seconds(), strings.Join(p.suspicions("lab/h1"), "\n"))
	for _, s := range p.suspicions("") {
		if !strings.HasPrefix(s, "lab/h1: ") || !strings.Contains(s, "services of 10.2.0.1") {
			t.Errorf("suspected was %s", s)
		}
	}
	capture := filepath.Join(t.TempDir(), "h1.pcapng")
	p.await("the capture", func() bool {
		_, _, err := p.try("quarantine", "capture", "lab/h1", "-w",
			capture)
		return err == nil
	}, nil)
	if seen := in(t, "/proc/self/ns/net", "tcpdump", "-nr", capture,
		"tcp and src host 10.1.0.1"); strings.Count(seen, "10.2.0.1.") < 5 {
		t.Errorf("the capture shows %s", seen)
	}
}

// TestRouterIsNotBlamed has hosts do through a router what would get it punished: scans with its own address, scans of
// a whole subnet, which has it ask for neighbours, forged answers. With every way of forwarding.
func TestRouterIsNotBlamed(t *testing.T) {
	attack.Tell(t, "scans and forged packets through a router, or in a third host's name, to have those punished",
		"nobody else is cut off")
	p := up(t, 1)
	p.run("apply", "-f", file(t, strings.NewReplacer("node: n2", "node: n1").Replace(watched)))
	p.run("policy", "lab", "attack=quarantine")
	p.run("policy", "lab/h1", "attack=tell") // the attacker shall go on
	ways := []string{"guest", "xdp"}
	if os.Getenv("ATTACKS_FOUND") == "all" {
		ways = append(ways, "router")
	}
	for _, forwarding := range ways {
		p.run("set", "lab/r1", "forwarding="+forwarding)
		for _, attack := range []string{
			scanning,
			// a whole subnet beyond the router, by UDP
			`alarm 120; socket my $s, 2, 2, 0; while (1) { send $s, "x", 0, pack("SnC4x8", 2, 9, 10, 2, 0, 3 + rand 250); select undef, undef, undef, 0.002 }`,
			// SYNs that claim to be the router's own
			`alarm 120; socket my $s, 2, 3, 255; my $n; while (1) { $n++; my $to = pack("SnC4x8", 2, 0, 10, 2, 0, 1);
			 send $s, pack("CCnnnCCnC4C4", 0x45, 0, 40, $n & 0xffff, 0, 64, 6, 0, 10, 2, 0, 2, 10, 2, 0, 1) . pack("nnNNCCnnn", 4000, $n % 60000, 1, 0, 0x50, 2, 1000, 0, 0), 0, $to;
			 select undef, undef, undef, 0.003 }`,
			// SYNs that claim to be a third host's: refusals come to it that it did not ask for
			`alarm 120; socket my $s, 2, 3, 255; my $n; while (1) { $n++; my $to = pack("SnC4x8", 2, 0, 10, 2, 0, 1);
			 send $s, pack("CCnnnCCnC4C4", 0x45, 0, 40, $n & 0xffff, 0, 64, 6, 0, 10, 3, 0, 1, 10, 2, 0, 1) . pack("nnNNCCnnn", 4000, $n % 60000, 1, 0, 0x50, 2, 1000, 0, 0), 0, $to;
			 select undef, undef, undef, 0.003 }`,
		} {
			end := p.begin("lab/h1", "perl", "-e", attack)
			time.Sleep(4 * time.Second)
			end()
		}
	}
	if out := p.run("quarantine", "list"); !strings.Contains(out, "no element is in quarantine") {
		t.Errorf("somebody was punished for what h1 did:\n%s\n%s", out, strings.Join(p.suspicions(""), "\n"))
	}
	if len(p.suspicions("lab/h1")) == 0 {
		t.Error("h1 itself was not told of")
	}
}

// mean is a host that attacks, and another beside it.
const mean = `network: NAME
switches: {s1: {}}
hosts:
  a1: {disk: 32MiB, processes: 128, memory: 128MiB, LIMITS}
  a2: {}
links:
  - a1 -- s1: 192.168.1.0/29
  - a2 -- s1
`

// found are the attacks of TestAttacks by what shows them.
var found = map[string]string{
	"broadcast storm": "to everybody", "large broadcast storm": "to everybody", "multicast storm": "to everybody",
	"MAC flood": "made-up MAC", "ARP flood": "to everybody", "forged sources": "made-up MAC",
	"malformed frames":   "wrong headers",
	"unknown neighbours": "do not answer", fullTable: "new neighbours", "connection tracking": "tracked connections",
	"fork bomb": "refused by its limit", "memory hog": "ended by its memory limit", "processor hog": "want a processor",
	"system call hog": "want a processor", "disk": "emptying its disk", "files": "emptying its disk",
	"loops of devices": "more of the kernel's time", "tables beyond limits": "more in the kernel's tables",
	"rings": "memory for sockets",
}

// bounded are attacks on what bounds an element: the bounds hold, and the watch tells who goes on running into them.
var bounded = []offence{
	{name: "loops of devices", command: []string{"sh", "-c", "while :; do (" + twoBridges + "); sleep 2; done"}},
	{name: "tables beyond limits", command: []string{"sh", "-c", `while :; do perl -e 'for (1 .. 20000) {
		printf "neighbour replace 11.%d.%d.%d dev s1 lladdr 02:00:00:00:00:01 nud permanent\n", rand 256, rand 256, rand 256 }' |
		ip -force -batch - 2>/dev/null; done`}},
	{name: "rings", command: perl(`alarm 20; while (1) { socket my $s, 17, 3, 0 or die "socket: $!";
		setsockopt $s, 263, 5, pack "IIII", 1 << 22, 64, 1 << 11, 64 << 11; select undef, undef, undef, 0.005 }`)},
}

// TestAttacksAreFound has the watch find each attack of TestAttacks, and those on bounds, each in a network of its own.
// The short form tries one of each kind; ATTACKS_FOUND=all, and `make attack`, try all.
func TestAttacksAreFound(t *testing.T) {
	attack.Tell(t, "each attack in turn, with the watch looking",
		"nothing: each is found, and nobody else is suspected")
	p := up(t, 1)
	short := map[string]bool{"broadcast storm": true, "forged sources": true,
		"unknown neighbours": true, "fork bomb": true}
	for n, a := range slices.Concat(attacks, bounded) {
		if !short[a.name] && os.Getenv("ATTACKS_FOUND") != "all" {
			continue
		}
		// A table that `up` could not make larger, with the kernel's 1,024 entries, is full within milliseconds, which no
		// rate shows. What others lose by that TestAttacks measures.
		if a.name == fullTable && tableLimit(t) < 100_000 {
			continue
		}
		name := fmt.Sprintf("mean%d", n)
		limits := "neighbours: 4000000, connections: 4000000"
		if n >= len(attacks) {
			limits = "neighbours: 8192"
		}
		t.Run(a.name, func(t *testing.T) {
			p := p.with(t)
			p.run("apply", "-f", file(t, strings.NewReplacer("NAME", name, "LIMITS", limits).Replace(mean)))
			defer p.run("delete", name)
			began := time.Now()
			var end func()
			defer func() { end() }()
			restart := func() { end = p.begin(name+"/a1", a.command...) }
			restart()
			again := time.Now()
			p.await("the attack to be found", func() bool {
				if time.Since(again) > 25*time.Second { // they end by themselves
					end()
					restart()
					again = time.Now()
				}
				return strings.Contains(strings.Join(p.suspicions(name+"/a1"), "\n"), found[a.name])
			}, func() string { return strings.Join(p.suspicions(""), "\n") })
			attack.Measured(t, a.name+", with the watch looking", fmt.Sprintf("not measured here: found after %.1f s",
				time.Since(began).Seconds()))
		})
	}
	for _, s := range p.suspicions("") {
		if !strings.Contains(s, "/a1: ") {
			t.Errorf("somebody else was suspected: %s", s)
		}
	}
}
