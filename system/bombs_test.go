package system

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polyplane/polyplane/system/attack"
)

// bombed is a network that wants its peace, and one whose host fills what tables of the kernel it can. Both have what
// they have by default.
const bombed = `network: victim
routers:
  r1: {software: static, node: n1}
hosts: {v1: {node: n1}, v2: {node: n2}}
links:
  - v1 -- r1: 192.168.1.0/30
  - r1 -- v2: 192.168.2.0/30
---
network: mean
hosts:
  a1: {node: n1}
  a2: {node: n1}
links:
  - a1 -- a2: 192.168.1.0/30
`

// tableBomb is one way to take the kernel's memory, or its locks.
type tableBomb struct {
	name string
	// script is run again and again; prepare before it, once.
	prepare, script string
	// event is what of an event tells of it; empty where nobody need be told: what it takes is charged, refused, or
	// time only, or the kernel searches a list for each entry, so that in a minute there is not yet too much.
	event string
	// needs is a command that fails on kernels where this cannot be tried.
	needs string
	// refused is what the command says where it cannot do anything.
	refused string
	// orRefused is what it says where the kernel can refuse it; on others somebody is told.
	orRefused string
	// always is for those that are of another kind than the others; the rest is tried by `make attack`.
	always bool
}

// batched feeds lines to a command: %1$d to %3$d are three bytes of the line's number, which is %4$d; they go on where
// the turn before ended. A turn is short: the command's own memory is charged.
func batched(format, to string) string {
	return fmt.Sprintf(`perl -se 'printf q{%s} . "\n", $_ >> 16 & 255, $_ >> 8 & 255, $_ & 255, $_ for $k + 1 .. $k + 20000' -- -k=$k | %s 2>/dev/null`, format, to)
}

// tunnelGroup gives a VXLAN device groups, since Linux 6.4 (RTM_NEWMDB of a struct br_mdb_entry, with MDBE_ATTR_DST). What
// it does with the kernel's answer $e is last.
func tunnelGroup(n int, last string) string {
	return fmt.Sprintf(`ip link show vg >/dev/null 2>&1 || { ip link add vg type vxlan id 6 dev a2 dstport 4790; ip link set vg up; }
		perl -se 'sub attr { my ($t, $v) = @_; pack("SS", 4 + length $v, $t) . $v . "\0" x (-length($v) & 3) } socket my $s, 16, 3, 0 or die; bind $s, pack "SSLL", 16, 0, 0, 0;
			for ($k + 1 .. $k + %d) { my $b = pack("Cx3L", 7, $index) . attr(1, pack "LCCSNx12nx2", $index, 1, 0, 0, 0xe8000000 + $_, 0x800) . attr(0x8002, attr(5, "\300\250\1\2"));
			send $s, pack("LSSLL", 16 + length $b, 84, 0x605, 1, 0) . $b, 0, pack "SSLL", 16, 0, 0, 0; recv $s, my $m, 65536, 0; my $e = unpack "x16l", $m; %s }' -- -k=${k:-0} -index=$(ip -o link show vg | cut -d: -f1)`, n, last)
}

var bombs = []tableBomb{
	{name: "groups of next hops", always: true, event: "next-hop objects",
		script: "ip nexthop replace id 1 via 192.168.1.2 dev a2;" +
			batched(`nexthop replace id 1%4$09d group 1 type resilient buckets 65534`, "ip -force -batch -")},
	{name: "next hops", event: "next-hop objects", script: batched(`nexthop replace id %4$d via 192.168.1.2 dev a2`,
		"ip -force -batch -")},
	{name: "proxy neighbours", script: batched(`neighbour replace proxy 11.%1$d.%2$d.%3$d dev a2`,
		"ip -force -batch -")},
	{name: "FDB of a bridge", event: "forwarding entries",
		prepare: "ip link add b0 type bridge; ip link set b0 up; ip link add x0 type veth peer name x1; ip link set " +
			"x0 master b0; ip link set x0 up",
		script: batched(`fdb replace 02:00:%1$02x:%2$02x:%3$02x:00 dev x0 master static`, "bridge -force -batch -")},
	{name: "FDB of a tunnel", event: "forwarding entries",
		prepare: "ip link add vx type vxlan id 5 dev a2 dstport 4789; ip link set vx up",
		script: batched(`fdb replace 02:00:%1$02x:%2$02x:%3$02x:00 dev vx self dst 192.168.1.2`,
			"bridge -force -batch -")},
	{name: "tc filters", script: "tc qdisc replace dev a2 clsact;" +
		batched(`filter add dev a2 egress protocol ip pref 7 u32 match ip dst 10.%1$d.%2$d.%3$d`,
			"tc -force -batch -")},
	{name: "tc classes", event: "queueing disciplines", prepare: "tc qdisc add dev a2 root handle 1: htb",
		script: "tc qdisc replace dev a2 root handle 1: htb;" +
			batched(`class replace dev a2 parent 1: classid 1:%2$02x%3$02x htb rate 1mbit`, "tc -force -batch -")},
	{name: "address labels", script: batched(`addrlabel add prefix fd00:%1$x:%2$x:%3$x::/64 label 7`,
		"ip -force -batch -")},
	// Of many devices, since the kernel searches a device's list for each further one.
	{name: "multicast addresses", event: "multicast addresses",
		prepare: `for i in $(seq 200); do echo link add m$i type bridge; done | ip -batch -`,
		script: `perl -se 'socket my $s, 2, 2, 0; for ($k + 1 .. $k + 20000) { # SIOCADDMULTI
		ioctl $s, 0x8931, pack "a16SC6x16", "m" . ($_ % 200 + 1), 0, 1, 0, $_ >> 24, $_ >> 16 & 255, $_ >> 8 & 255, $_ & 255 or die "$_: $!" }' -- -k=$k`},
	{name: "netlink buffers", always: true, event: "sockets buffered", script: `perl -e 'my $m = pack("LSSLL", 60016, 0, 0, 0, 0) . "x" x 60000;
		for (1 .. 4000) { socket my $s, 16, 3, 0 or last; setsockopt $s, 1, 8, pack "i", 1 << 20; bind $s, pack "SSLL", 16, 0, 0, 0 or die;
			my $port = (unpack "SSLL", getsockname $s)[2]; push @s, $s; for (1 .. 40) { send $s, $m, 0x40, pack "SSLL", 16, 0, $port, 0 or last } }
		sleep 20'`},
	{name: "netfilter's log", event: "sockets buffered", orRefused: "log: Operation not permitted",
		prepare: `(echo 'table l { chain o { type filter hook output priority 0;'; for i in $(seq 3000); do echo log group $i; done; echo '}'; echo '}') | nft -f -`,
		script: `perl -e 'use Socket; socket my $s, 16, 3, 12 or die; bind $s, pack "SSLL", 16, 0, 0, 0;
		sub attr { my ($t, $v) = @_; my $l = 4 + length $v; pack("SS", $l, $t) . $v . "\0" x (-$l & 3) }
		for my $group (1 .. 3000) { my $b = pack("CCn", 2, 0, $group) . attr(1, "\1") . attr(2, pack "NCx", 65000, 2) . attr(3, pack "N", 131072) .
				attr(4, pack "N", 4e6) . attr(5, pack "N", 4e9);
			send $s, pack("LSSLL", 16 + length $b, 4 << 8 | 1, 5, $group, 0) . $b, 0, pack "SSLL", 16, 0, 0, 0 or die "log: $!"; recv $s, my $answer, 65536, 0 }
		socket my $u, 2, 2, 0; send $u, "x" x 50, 64, sockaddr_in 9, inet_aton "192.168.1.2"; sleep 20'`},
	{name: "exceptions of routes", always: true, event: "exceptions of its routes",
		prepare: `perl -e 'printf "route replace 10.%d.%d.%d via 192.168.1.2 metric %d\n", $_ >> 16, $_ >> 8 & 255, $_ & 255, $_ for 1 .. 20000' | ip -batch -`,
		script: `perl -e 'use Socket; sub sum { my $t = 0; $t += $_ for unpack "n*", $_[0]; $t = ($t >> 16) + ($t & 65535) while $t >> 16; 65535 ^ $t }
		socket my $l, AF_INET, SOCK_RAW, 253 or die; socket my $s, AF_INET, SOCK_RAW, 1 or die; my $a = inet_aton "192.168.1.1";
		for my $n (1 .. 20000) { my $p = pack("CCnnn", 3, 4, 0, 0, 1000) . pack("CCnnnCCn", 0x45, 0, 28, 1, 0x4000, 64, 253, 0) . $a .
			pack("CCCC", 10, $n >> 16, $n >> 8 & 255, $n & 255) . "x" x 8;
			substr($p, 2, 2) = pack "n", sum $p; send $s, $p, 0, sockaddr_in 0, $a }'`},
	{name: "encapsulations of routes", event: "encapsulations of its routes",
		script: batched(`route replace fd10:%1$x:%2$x:%3$x::/64 encap seg6 mode encap segs fd02::1,fd02::%4$x dev a2`,
			"ip -6 -force -batch -")},
	{name: "router advertisements", event: "router advertisements",
		prepare: "ip link add w0 type veth peer name w1; sysctl -qw net.ipv6.conf.w1.accept_ra=2; ip link set w0 up; " +
			"ip link set w1 up; ip -6 address add fe80::99/64 dev w0 nodad",
		script: `perl -se 'socket my $s, 10, 3, 58 or die; setsockopt $s, 41, 18, pack "i", 255; setsockopt $s, 41, 17, pack "i", $index;
		bind $s, pack "SnNa16L", 10, 0, 0, "\xfe\x80" . "\0" x 13 . "\x99", $index or die "bind: $!";
		for (my $n = $k; $n < $k + 20000; $n += 40) { my $m = pack "CCnCCnNN", 134, 0, 0, 64, 0, 0, 0, 0;
			$m .= pack "CCCCNNNnnnnx8", 3, 4, 64, 0x80, 3600, 3600, 0, 0xfd77, 0, $_ >> 16, $_ & 65535 for $n .. $n + 39;
			send $s, $m, 0, pack "SnNa16L", 10, 0, 0, "\xff\x02" . "\0" x 13 . "\1", $index }' -- -k=$k -index=$(ip -o link show w0 | cut -d: -f1)`},
	{name: "sets that packets fill", event: "elements that packets put into sets",
		prepare: `ip route add 10.0.0.0/8 via 192.168.1.2; nft -f - <<-END
			table t { set s { type ipv4_addr; size 10000000; flags dynamic, timeout; timeout 1h; }
			chain o { type filter hook output priority 0; udp dport 9 update @s { ip daddr } drop; }; }
			END`,
		script: `perl -se 'use Socket; socket my $u, 2, 2, 0; send $u, "x", 0, sockaddr_in 9, pack "N", 0x0a000000 + $_ % 0xffffff for $k + 1 .. $k + 20000' -- -k=$k`},
	{name: "ipset", event: "sets, counters and time limits", orRefused: "ipset: Operation not permitted",
		script: `perl -se 'socket my $s, 16, 3, 12 or die; bind $s, pack "SSLL", 16, 0, 0, 0; sub attr { my ($t, $v) = @_; my $l = 4 + length $v; pack("SS", $l, $t) . $v . "\0" x (-$l & 3) }
		for (1 .. 200) { my $b = pack("CCn", 2, 0, 0) . attr(1, "\7") . attr(2, "s" . ($k + $_) . "\0") . attr(3, "hash:ip\0") . attr(4, "\4") . attr(5, "\2") .
				attr(0x8007, attr(0x4012, pack "N", 1 << 20)); # hash values
			send $s, pack("LSSLL", 16 + length $b, 6 << 8 | 2, 5, 1, 0) . $b, 0, pack "SSLL", 16, 0, 0, 0 or die "ipset: $!"; recv $s, my $answer, 65536, 0 }' -- -k=$k`},
	{name: "routes of multicast packets", event: "routes of multicast packets",
		// MRT_ADD_MFC of a struct mfcctl
		script: `perl -se 'socket my $s, 2, 3, 2 or die; for ($k + 1 .. $k + 20000) {
		setsockopt $s, 0, 204, pack "NNSx2x32x16", 0x0a000000 + $_, 0xe8000000 + $_, 0 or die "$_: $!" }' -- -k=$k`},
	{name: "groups of a tunnel", event: "groups of its VXLAN devices", needs: tunnelGroup(1, "die -$e if $e"),
		script: tunnelGroup(20000, "")},
	{name: "network devices", event: "network devices", script: batched(`link add y%4$d type bridge`,
		"ip -force -batch -")},
	{name: "IPsec", refused: "Protocol not supported",
		script: "ip xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 dir in"},
	{name: "nftables", prepare: "nft add table t; nft add set t s '{ type ipv4_addr; }'",
		script: `perl -se 'print "add element t s { ", join(", ", map { join ".", unpack "C4", pack "N", $_ } $k + 1 .. $k + 20000), " }\n"' -- -k=$k | nft -f -`},
	{name: "devices made and removed", always: true,
		script: `for i in 1 2 3 4; do while :; do ip link add z$i type veth peer name zz$i; ip link del z$i; done & done; wait`},
	{name: "routes made and removed", script: `for i in 1 2 3 4; do while :; do
		perl -e 'for $v (qw(replace del)) { printf "route $v 10.%d.%d.%d via 192.168.1.2\n", $ARGV[0], $_ >> 8, $_ & 255 for 1 .. 20000 }' $i | ip -force -batch -; done & done; wait`},
}

// kernelMemory is what the kernel has for itself and cannot give back, in MiB.
func kernelMemory(t *testing.T) (sum int) {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var name string
		var kib int
		if _, err := fmt.Sscanf(line, "%s %d", &name, &kib); err == nil &&
			(name == "SUnreclaim:" || name == "VmallocUsed:" || name == "Percpu:") {
			sum += kib / 1024
		}
	}
	return sum
}

// TestBombs has a host fill, one after another, what tables of the kernel its root can, while another network's flow of
// 10,000 packets a second counts what it loses, and a third network is applied.
func TestBombs(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, bombed))
	usual := p.timed("apply", "-f", file(t, strings.ReplaceAll(another, "NAME", "usual")))
	for i, b := range bombs {
		if !b.always && os.Getenv("ATTACKS_FOUND") == "" {
			continue
		}
		t.Run(b.name, func(t *testing.T) { b.explode(t, p.with(t), usual, fmt.Sprintf("meanwhile%d", i)) })
	}
	p.allWell("victim")
}

func (b *tableBomb) explode(t *testing.T, p *platform, usual time.Duration, name string) {
	if b.needs != "" {
		if out, err := p.command("exec", "mean/a1", "--", "sh", "-c", b.needs).CombinedOutput(); err != nil {
			t.Skipf("this kernel has nothing of it: %s", out)
		}
	}
	if b.prepare != "" {
		p.run("exec", "mean/a1", "--", "sh", "-c", b.prepare)
	}
	f := p.steady("victim", "v1", "v2", "192.168.2.2")
	before, told := kernelMemory(t), p.run("get", "events")
	var said spoken
	c := p.command("exec", "mean/a1", "--", "sh", "-c", "echo begun; k=0; while :; do "+b.script+
		"; k=$((k+20000)); done")
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	// On a busy machine that may take longer than the whole flow.
	p.await("the attack to begin", func() bool { return strings.Contains(said.String(), "begun") }, said.String)
	most := make(chan int)
	over := make(chan bool)
	go func() {
		m := 0
		for {
			select {
			case <-over:
				most <- m
				return
			case <-time.After(50 * time.Millisecond):
				m = max(m, kernelMemory(t))
			}
		}
	}()
	applied := make(chan time.Duration, 1)
	go func() {
		time.Sleep(time.Second)
		applied <- p.timed("apply", "-f", file(t, strings.ReplaceAll(another, "NAME", name)))
	}()
	sent, lost := f.run(4 * time.Second)
	took := <-applied
	if b.event != "" {
		events := func() string { return p.run("get", "events") }
		p.await("its owner to be told", func() bool {
			for line := range strings.Lines(events()) {
				if strings.Contains(told, line) {
					continue // of another kind, which fills the same table
				}
				if strings.Contains(line, "mean/a1") && strings.Contains(line, "KernelMemoryLimit") &&
					strings.Contains(line, b.event) {
					return true
				}
			}
			return b.orRefused != "" && strings.Contains(said.String(), b.orRefused)
		}, events)
	}
	if b.refused != "" {
		p.await("it to be refused", func() bool { return strings.Contains(said.String(), b.refused) }, said.String)
	}
	close(over)
	grown := <-most - before
	c.Process.Signal(syscall.SIGTERM)
	<-ended
	attack.Measured(t, b.name+" without end",
		fmt.Sprintf("%d of %d packets; the kernel had at most %d MiB more; apply of a third network took %s, usually "+
			"%s",
			lost, sent, grown, took.Round(time.Millisecond), usual.Round(time.Millisecond)))
	if float64(lost) > tolerated*float64(sent) {
		t.Errorf("another network lost %d of %d packets", lost, sent)
	}
	p.run("delete", name)
	p.run("restart", "mean/a1")
}
