package system

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/polyplane/polyplane/system/attack"
	"github.com/polyplane/polyplane/system/sandbox"
)

// attacked is a network that wants its peace, and one that does not leave it. Both have elements on both nodes, and the
// same addresses.
const attacked = `network: victim
routers:
  r1: {software: static, node: n1}
hosts: {v1: {node: n1}, v2: {node: n2}, v3: {node: n1}}
links:
  - v1 -- r1: 192.168.1.0/30
  - r1 -- v2: 192.168.2.0/30
  - r1 -- v3: 192.168.3.0/30
---
network: mean
switches: {s1: {node: n1}}
hosts:
  a1: {node: n1, disk: 32MiB, processes: 128, memory: 128MiB, neighbours: 4000000, connections: 4000000}
  a2: {node: n2}
  a3: {node: n1}
links:
  - a1 -- s1: 192.168.1.0/29
  - a2 -- s1
  - a3 -- s1
`

// raw is the beginning of programs that send frames as they like: the socket is bound to the first interface. What they
// send, they send from two processes until somebody ends them.
const raw = `use strict; $SIG{ALRM} = sub { exit }; alarm 20;
open my $f, "<", "/sys/class/net/s1/ifindex"; my $index = <$f>;
open $f, "<", "/sys/class/net/s1/address"; my $own = pack "H12", join "", split /:/, <$f>;
socket my $s, 17, 3, 0 or die "socket: $!"; bind $s, pack "SnlSCCa8", 17, 3, $index, 0, 0, 0, "" or die "bind: $!";
my $all = "\xff" x 6; fork; srand $$; sub bytes { pack "N2", rand 2**32, rand 2**32 }
`

// offence is what one element does, as its root, and what shows that it did.
type offence struct {
	name    string
	command []string
	// proof is a shell command in the attacker's network namespace whose number grows by at least atLeast.
	proof   string
	atLeast int
	says    string // what the command says of its success, where there is no proof
}

const (
	sentFrames = "awk '$1 == \"s1:\" {print $11}' /proc/net/dev"
	entries    = "ip -4 neighbour show nud all | wc -l"
)

// fullTable is the attack that begins when the machine's neighbour table is full.
const fullTable = "neighbour table"

// tableLimit is how many entries the kernel has room for.
func tableLimit(t *testing.T) int {
	t.Helper()
	out, err := exec.Command("ip", "ntable", "show", "name", "arp_cache").Output()
	words := strings.Fields(string(out))
	if i := slices.Index(words, "thresh3"); err == nil && i >= 0 && i+1 < len(words) {
		n, err := strconv.Atoi(words[i+1])
		if err == nil {
			return n
		}
	}
	t.Fatalf("the neighbour table's limit: %v in %q", err, out)
	return 0
}

// spoken is what a command said so far.
type spoken struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func perl(program string) []string { return []string{"perl", "-e", program} }

var attacks = []offence{
	{name: "broadcast storm", command: perl(raw + `send $s, $all . $own . "\x88\xb5" . "x" x 46, 0 while 1`),
		proof: sentFrames, atLeast: 10_000},
	{name: "large broadcast storm", command: perl(raw + `send $s, $all . $own . "\x88\xb5" . "x" x 1486, 0 while 1`),
		proof: sentFrames, atLeast: 10_000},
	{name: "multicast storm",
		command: perl(raw + `send $s, "\x01\x00\x5e\x00\x00\x05" . $own . "\x08\x00" . "x" x 46, 0 while 1`),
		proof:   sentFrames, atLeast: 10_000},
	{name: "MAC flood", command: perl(raw +
		`send $s, "\x02" . substr(bytes, 0, 5) . "\x02" . substr(bytes, 0, 5) . "\x88\xb5" . "x" x 46, 0 while 1`),
		proof: sentFrames, atLeast: 10_000},
	{name: "ARP flood", command: perl(raw +
		`send $s, $all . $own . pack("nnnCCn", 0x806, 1, 0x800, 6, 4, 1 + int rand 2) . $own . "\xc0\xa8\x01" . substr(bytes, 0, 1) . ` +
		`"\0" x 6 . "\xc0\xa8\x01" . chr(1 + rand 6) . "x" x 18, 0 while 1`), proof: sentFrames, atLeast: 10_000},
	{name: "forged sources", command: perl(raw + `my $n; while (1) { $n++;
		my $ip = pack("CCnnnCCna4a4", 0x45, 0, 46, $n & 0xffff, 0, 64, 17, 0, "\xc0\xa8\x01\x01", "\xc0\xa8\x02\x02"); # the victim's own
		send $s, ($n & 1 ? $all : "\x02" . substr(bytes, 0, 5)) . "\x02" . substr(bytes, 0, 5) . "\x08\x00" . $ip . pack("nnnn", 4789, 4789, 26, 0) .
			pack("CCnN", 8, 0, 0, (1 + int rand 64) << 8) . "x" x 10, 0 }`), proof: sentFrames, atLeast: 2_000},
	{name: "malformed frames", command: perl(raw + `my @h = ("\x08\x00", "\x86\xdd", "\x81\x00", "\x88\xa8", "\x08\x06", "\x88\x47", "\x00\x04"); while (1) {
		my $h = $h[rand @h]; $h x= 1 + rand 4 if rand 4 < 1;
		send $s, (rand 2 < 1 ? $all : bytes . "") . $own . $h . join("", map bytes, 1 .. rand 180), 0;
		send $s, substr($all . $own . "\x08\x00", 0, rand 14), 0 }`), proof: sentFrames, atLeast: 10_000},
	{name: "unknown neighbours", command: []string{"sh", "-c", `ip address add 10.0.0.1/8 dev s1; exec perl -e 'alarm 20; fork; srand $$;
		while (1) { socket $s, 2, 2, 0; send $s, "x", 0, pack "SnC4x8", 2, 9, 10, rand 256, rand 256, rand 256 for 1 .. 100 }'`}, proof: entries, atLeast: 5_000},
	{name: fullTable, command: []string{"sh", "-c", `fill() { while :; do perl -e 'srand; printf "neighbour replace 11.%d.%d.%d dev s1 lladdr 02:00:00:00:00:01 nud reachable\n",
		rand 256, rand 256, rand 256 for 1 .. 20000' | ip -force -batch - 2>/dev/null; done; }; fill & fill`}, proof: entries, atLeast: 0},
	{name: "connection tracking", command: []string{"sh", "-c", `nft 'add table inet t; add chain inet t o { type filter hook output priority 0; }; add rule inet t o ct state new accept'
		exec perl -e 'alarm 20; fork; srand $$; while (1) { socket $s, 2, 2, 0;
		for (1..200) { send $s, "x", 0, pack "SnC4x8", 2, 1 + rand 65000, 127, 0, 0, 1 + rand 250 } }'`},
		proof: "cat /proc/sys/net/netfilter/nf_conntrack_count", atLeast: 10_000},
	{name: "fork bomb", command: perl(`alarm 20; $SIG{CHLD} = "IGNORE"; $| = 1; while (1) { defined fork or $n++ or print "refused\n" }`), says: "refused"},
	{name: "memory hog", command: []string{"sh", "-c",
		`while :; do perl -e 'while (1) { $x .= "x" x 1e6 }'; echo ended $?; done`}, says: "ended 137"},
	{name: "processor hog", command: perl(`alarm 20; $| = 1; fork for 1 .. 5; print "begun\n"; while (1) {}`),
		says: "begun"},
	{name: "system call hog", command: perl(`alarm 20; $| = 1; fork for 1 .. 5; print "begun\n";
		while (1) { stat "/proc/self/status"; open F, "<", "/proc/net/dev"; @x = <F> }`), says: "begun"},
	{name: "disk", command: []string{"sh", "-c", `while :; do cat /dev/zero > /root/fill; rm /root/fill; done`},
		says: "No space left"},
	{name: "files", command: []string{"sh", "-c", `mkdir -p /root/many && cd /root/many &&
		while :; do perl -e 'for (1..1e5) { open F, ">", $_ or print("$!\n"), exit }'; rm -rf /root/many/*; done`}, says: "No space left"},
}

// tolerated is the part of a neighbour's packets that an attack may cost.
const tolerated = 0.01

// TestAttacks has one element do its worst, of each kind, while another network's flow of 10,000 packets a second
// counts what it loses.
func TestAttacks(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, attacked))
	if !t.Run("the meter", func(t *testing.T) { flowIsMeasured(t, p.with(t)) }) {
		return
	}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) { a.run(t, p.with(t)) })
	}
	t.Run("tables of the kernel", func(t *testing.T) { tablesAreBounded(t, p.with(t)) })
	p.allWell("victim")
}

// tablesAreBounded wants an element with more permanent neighbours than its limit to lose them, and its owner to be
// told.
func tablesAreBounded(t *testing.T, p *platform) {
	f := p.steady("victim", "v1", "v2", "192.168.2.2")
	p.run("set", "mean/a1", "neighbours=8192")
	attacker := p.namespace("mean", "a1")
	const fill = `for ($n .. $n + 19999) { printf "neighbour replace 11.%d.%d.%d dev s1 lladdr 02:00:00:00:00:01 nud permanent\n", $_ >> 16, $_ >> 8 & 255, $_ & 255 }`
	p.run("exec", "mean/a1", "--", "sh", "-c", "for n in 0 20000 40000 60000; do perl -se '"+fill+
		"' -- -n=$n | ip -force -batch -; done")
	var left string
	p.await("its neighbours to be forgotten", func() bool {
		left = strings.TrimSpace(in(t, attacker, "sh", "-c", "ip neighbour show nud permanent | wc -l"))
		n, err := strconv.Atoi(left)
		return err == nil && n <= 8192
	}, func() string { return left })
	p.await("its owner to be told", func() bool { return strings.Contains(p.run("get", "events"), "NeighbourLimit") },
		func() string { return p.run("get", "events") })
	sent, lost := f.run(100 * time.Millisecond)
	if loss := float64(lost) / float64(sent); loss > tolerated {
		t.Errorf("%d of another network's %d packets were lost", lost, sent)
	}
}

func (a *offence) run(t *testing.T, p *platform) {
	f := p.steady("victim", "v1", "v2", "192.168.2.2")
	attacker := p.namespace("mean", "a1")
	proof := func() int {
		if a.proof == "" {
			return 0
		}
		n, err := strconv.Atoi(strings.TrimSpace(in(t, attacker, "sh", "-c", a.proof)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := proof()
	var said spoken
	c := p.command(append([]string{"exec", "mean/a1", "--"}, a.command...)...)
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	if a.proof == "" {
		p.await("the attack to begin", func() bool { return strings.Contains(said.String(), a.says) }, said.String)
	} else {
		begun := before + 100
		if a.name == fullTable {
			begun = tableLimit(t) * 9 / 10
		}
		p.await("the attack to begin", func() bool { return proof() > begun }, said.String)
	}
	drops := sandbox.ReadDrops()
	sent, lost := f.run(1500 * time.Millisecond)
	loss := float64(lost) / float64(sent)
	dropped := sandbox.ReadDrops().Since(drops)
	if a.name == fullTable {
		// Who never spoke before finds each other although nobody gets a new entry.
		in(t, p.namespace("victim", "v3"), "ping", "-c3", "-i0.2", "-W10", "192.168.1.1")
	}
	after := proof()
	// Whoever ends a command ends its processes in the element.
	c.Process.Signal(syscall.SIGTERM)
	<-ended
	var left string
	p.await("the attack's processes to be gone", func() bool {
		out, err := p.command("exec", "mean/a1", "--", "sh", "-c", "set -- /proc/[0-9]*; echo $#").CombinedOutput()
		left = strings.TrimSpace(string(out))
		n, wrong := strconv.Atoi(left)
		return err == nil && wrong == nil && n < 10
	}, func() string { return left })
	if a.proof == entries {
		in(t, attacker, "sh", "-c", "ip link set s1 down; ip link set s1 up") // this empties the table
	}
	attack.Measured(t, fmt.Sprintf("%s, by the root of a host in another network; its count grew from %d to %d",
		a.name, before, after),
		fmt.Sprintf("%d of %d packets (%.2f %%)", lost, sent, 100*loss))
	if loss > tolerated {
		t.Errorf("%s costs another network %.2f %% of %d packets: want at most %.0f %%; %s", a.name, 100*loss, sent,
			100*tolerated, dropped)
	}
	if after-before < a.atLeast {
		t.Errorf("the attack is none: its proof grew from %d to %d, and it says %s", before, after, said.String())
	}
}
