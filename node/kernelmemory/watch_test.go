package kernelmemory

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/system/attack"
)

// lab is a namespace of somebody who is mean, and one of somebody who wants his peace.
type lab struct {
	elements map[string]Element
	verdicts chan Verdict[string]
	w        *Watcher[string]
}

const (
	mean  = "mean"
	peace = "peace"
)

// devices is how many an element of the lab may have.
const devices = 200

func newLab(t *testing.T, memory int64) *lab {
	t.Helper()
	l := &lab{elements: map[string]Element{}, verdicts: make(chan Verdict[string], 256)}
	dir := t.TempDir()
	for _, name := range []string{mean, peace} {
		path := filepath.Join(dir, name)
		if _, err := linux.MountNamespace(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		l.elements[name] = Element{Path: path, Memory: memory, Devices: devices}
		l.in(t, name, `ip link set lo up; ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up
			ip address add 10.0.0.1/8 dev d0; ip link add b0 type bridge; ip link set b0 up; ip link add p0 type veth peer name p1
			ip link set p0 master b0; ip link set p0 up; ip link add v0 type vxlan id 5 dev d0 dstport 4789; ip link set v0 up`)
	}
	l.w = &Watcher[string]{Elements: func() map[string]Element { return l.elements },
		Log:  slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Tell: func(v Verdict[string]) { l.verdicts <- v }, suspect: map[string]time.Time{},
		past: map[string]*past{}}
	return l
}

// in runs a shell command in a namespace.
func (l *lab) in(t *testing.T, name, script string) string {
	t.Helper()
	out, err := exec.Command("nsenter", "--net="+l.elements[name].Path, "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// lines makes commands for a batch: %[1]d to %[3]d are three bytes of the number.
func lines(format string, n int) string {
	return fmt.Sprintf(`perl -e 'printf q{%s} . "\n", $_ >> 16, $_ >> 8 & 255, $_ & 255, $_ for 1 .. %d'`, format, n)
}

const mostLabels = "sysctl -qw net.mpls.platform_labels=1048575;"

// groupsOfBridge makes more groups than a bridge has room for by default, IPv4's and such by the Ethernet address.
func groupsOfBridge(n int) string {
	return "ip link set b0 up; ip link set b0 type bridge vlan_filtering 0 2>/dev/null;" +
		"ip link set b0 type bridge mcast_snooping 1 mcast_hash_max 1000000;" +
		lines(`mdb add dev b0 port p0 grp 232.%1$d.%2$d.%3$d permanent`, n/2) + "| bridge -force -batch - 2>/dev/null;" +
		lines(`mdb add dev b0 port p0 grp 01:00:01:%1$x:%2$x:%3$x permanent`, n/2) +
		"| bridge -force -batch - 2>/dev/null; true"
}

const countGroups = "bridge mdb | grep -c 'grp.*permanent'; true"

// tableCase is a table that an element's root can fill, and how that is seen.
type tableCase struct {
	name  string
	table Table
	// little is within a limit of a sixteenth of 16 MiB, much is beyond it, as long as left is not read.
	little, much int
	fill         func(n int) string
	left         string
}

var tables = []tableCase{
	{"next hops", NextHops, 1000, 4000, func(n int) string {
		return lines(`nexthop replace id %4$d via 10.1.1.1 dev d0`, n) + "| ip -batch -"
	}, "ip nexthop | wc -l"},
	{"groups of next hops", NextHops, 10, 100, func(n int) string {
		return "ip nexthop replace id 1 via 10.1.1.1 dev d0;" +
			lines(`nexthop replace id 1%4$05d group 1 type resilient buckets 2048`, n) + "| ip -batch -"
	}, "ip nexthop | wc -l"},
	{"proxy neighbours", Proxies, 5000, 20000, func(n int) string {
		return lines(`neighbour replace proxy 11.%1$d.%2$d.%3$d dev d0`, n) + "| ip -batch -"
	}, "ip neighbour show proxy | wc -l"},
	{"a bridge's addresses", Forwarding, 2000, 12000, func(n int) string {
		return lines(`fdb replace 02:00:00:%1$02x:%2$02x:%3$02x dev p0 master static`, n) + "| bridge -batch -"
	}, "bridge fdb show | grep -c '02:00:00:.*static'; true"},
	{"a tunnel's addresses", Forwarding, 2000, 8000, func(n int) string {
		return lines(`fdb replace 02:00:00:%1$02x:%2$02x:%3$02x dev v0 self dst 10.2.2.2`, n) + "| bridge -batch -"
	}, "bridge fdb show dev v0 | grep -c 02:00:00:; true"},
	{"a device's addresses", Forwarding, 1000, 9000, func(n int) string {
		return "bridge fdb flush dev d0 self 2>/dev/null; " + lines(`fdb add 02:00:00:%1$02x:%2$02x:%3$02x dev d0 self`,
			n) + "| bridge -force -batch - 2>/dev/null; true"
	}, "bridge fdb show dev d0 | grep -c 02:00:00:; true"},
	{"multicast addresses", Multicast, 1000, 9000, func(n int) string {
		return fmt.Sprintf(`perl -e 'socket my $s, 2, 2, 0; for (1 .. %d) { # SIOCADDMULTI
			ioctl $s, 0x8931, pack "a16SC6x16", "d0", 0, 1, 0, 0x5e, $_ >> 16, $_ >> 8 & 255, $_ & 255 or die "$_: $!" }'`, n)
	}, "ip maddress show dev d0 | grep -c static; true"},
	{"classes", TrafficControl, 50, 400, func(n int) string {
		return "tc qdisc replace dev d0 root handle 1: htb;" +
			lines(`class replace dev d0 parent 1: classid 1:%4$x htb rate 1mbit`, n) + "| tc -batch -"
	}, "tc class show dev d0 | wc -l"},
	{"filters", TrafficControl, 200, 4000, func(n int) string {
		return "tc qdisc replace dev d0 clsact;" +
			lines(`filter add dev d0 egress protocol ip pref 7 u32 match ip dst 10.%1$d.%2$d.%3$d`, n) + "| tc -batch -"
	}, "tc filter show dev d0 egress | wc -l"},
	{"address labels", AddressLabels, 5000, 20000, func(n int) string {
		return lines(`addrlabel add prefix fd00:%1$x:%2$x:%3$x::/64 label 7`, n) +
			"| ip -force -batch - 2>/dev/null; true"
	}, "ip addrlabel | grep -c fd00; true"},
	{"labels", MPLSRoutes, 5000, 20000, func(n int) string {
		return mostLabels + lines(`route replace 1%4$05d as 16/17 via inet 10.1.1.1 dev d0`, n) + "| ip -f mpls -batch -"
	}, "ip -f mpls route | wc -l"},
	{"labels with many next hops", MPLSRoutes, 100, 1000, func(n int) string {
		return mostLabels + lines(`route replace 1%4$05d nexthop as `+strings.Repeat("16/", 15)+"17 via inet 10.1.1.1 dev d0"+
			strings.Repeat(` nexthop via inet 10.1.1.1 dev d0`, 30), n) + "| ip -f mpls -batch -"
	}, "ip -f mpls route | grep -c ^1; true"},
	{"routes of IPv4 multicast", MulticastRoutes, 1000, 9000, func(n int) string {
		// MRT_ADD_MFC of a struct mfcctl
		return fmt.Sprintf(`perl -e 'socket my $s, 2, 3, 2; for (1 .. %d) {
			setsockopt $s, 0, 204, pack "NNSx2x32x16", 0x0a000000 + $_, 0xe8000000 + $_, 0 or die "$_: $!" }'`, n)
	}, "ip -4 mroute show | wc -l"},
	{"routes of IPv6 multicast", MulticastRoutes, 1000, 9000, func(n int) string {
		// MRT6_ADD_MFC of a struct mf6cctl
		return fmt.Sprintf(`perl -e 'socket my $s, 10, 3, 58; for (1 .. %d) {
			setsockopt $s, 41, 204, pack "Sx6NNNNx4Sx6NNNNx4x36", 10, 0xfd000000, 0, 0, $_, 10, 0xff0e0000, 0, 0, $_
			or die "$_: $!" }'`, n)
	}, "ip -6 mroute show | wc -l"},
	{"groups of bridges", BridgeGroups, 1000, 9000, func(n int) string { return groupsOfBridge(n) }, countGroups},
	{"groups of a bridge that is off", BridgeGroups, 1000, 9000, func(n int) string {
		return groupsOfBridge(n) + "; ip link set b0 down; ip link set b0 type bridge mcast_snooping 0"
	}, countGroups},
	{"groups from before a bridge filtered by VLAN", BridgeGroups, 1000, 9000, func(n int) string {
		return groupsOfBridge(n) + "; ip link set b0 type bridge vlan_filtering 1; bridge vlan show dev p0 | grep -q PVID"
	}, countGroups},
}

// TestTablesAreBounded fills each table, first within the limit, then beyond it.
func TestTablesAreBounded(t *testing.T) {
	attack.Tell(t, "next hops, proxy neighbours, addresses of bridges, tunnels and devices, multicast addresses, "+
		"traffic control, address "+
		"labels, routes of labels and of multicast packets, groups and VLANs of bridges, peers of WireGuard, sessions of "+
		"L2TP, sets, counters and time limits of netfilter, encapsulations of routes, router advertisements without end",
		"all that is taken away, and nothing of anybody else's")
	for _, c := range slices.Concat(tables, tablesOfMessages) {
		t.Run(c.name, func(t *testing.T) {
			switch {
			case c.table == MPLSRoutes && linux.ProbeMPLS() != nil:
				t.Skip("this kernel has no routes of MPLS labels")
			case strings.Contains(c.name, "VLAN") && linux.ProbeBridgeVLANs() != nil:
				t.Skip("this kernel has no VLANs of bridges (CONFIG_BRIDGE_VLAN_FILTERING)")
			}
			l := newLab(t, 16<<20)
			if lacks := lacksTable[c.name]; lacks != nil {
				if why := lacks(l); why != "" {
					t.Skip(why)
				}
			}
			count := func(name string) int {
				n, err := strconv.Atoi(l.in(t, name, c.left))
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			look := func() {
				for _, name := range []string{mean, peace} {
					l.w.look(name, l.elements[name])
				}
			}
			empty := count(mean)
			l.in(t, mean, c.fill(c.little))
			l.in(t, peace, c.fill(c.little))
			filled := count(peace)
			if filled == empty && strings.Contains(c.name, "is off") {
				t.Skip("this kernel hides the groups of bridges that look for none")
			}
			if filled <= empty {
				t.Fatalf("%d entries of %s were made, and %d are there", c.little, c.name, filled)
			}
			if look(); len(l.verdicts) > 0 {
				t.Fatalf("within the limit this was done: %+v", <-l.verdicts)
			}
			l.in(t, mean, c.fill(c.much))
			// Sessions of L2TP go a while after their tunnel.
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				if look(); count(mean) <= empty+2 {
					break
				}
			}
			if left := count(mean); left > empty+2 {
				t.Errorf("%d are left, of %d at first", left, empty)
			}
			if is := count(peace); is != filled {
				t.Errorf("somebody else has %d, of %d", is, filled)
			}
			if len(l.verdicts) == 0 {
				t.Error("nobody was told")
			}
			for len(l.verdicts) > 0 {
				if v := <-l.verdicts; v.ID != mean || v.Table != c.table || v.Err != nil ||
					v.Removed == 0 || v.Limit != 1<<20 {
					t.Errorf("told was %+v", v)
				}
			}
		})
	}
}

// TestDevicesAreBounded: the latest go, those of before stay.
func TestDevicesAreBounded(t *testing.T) {
	attack.Tell(t, "network devices without end", "beyond its limit they are taken away")
	l := newLab(t, 16<<20)
	const own = 7 // that the lab has made in it
	count := func() string { return l.in(t, mean, "ls /sys/class/net >/dev/null; ip -o link | grep -vc ' lo:'") }
	l.in(t, mean, lines(`link add x%4$d type bridge`, devices+50)+"| ip -batch -")
	for range 20 {
		if l.w.look(mean, l.elements[mean]); count() == strconv.Itoa(devices) {
			break
		}
	}
	if n := count(); n != strconv.Itoa(devices) {
		t.Errorf("%s devices are left, and %d may be", n, devices)
	}
	l.in(t, mean, "ip link show d0; ip link show x1; ip link show x"+strconv.Itoa(devices-own-1))
	// Who may have more keeps more.
	more := l.elements[mean]
	more.Devices += 50
	l.in(t, mean, lines(`link add y%4$d type bridge`, 50)+"| ip -batch -")
	if l.w.look(mean, more); count() != strconv.Itoa(devices+50) {
		t.Errorf("%s devices are left, and %d may be", count(), devices+50)
	}
	for len(l.verdicts) > 0 {
		if v := <-l.verdicts; v.Table != Devices || v.Err != nil {
			t.Errorf("told was %+v", v)
		}
	}
}

// hoarder keeps messages to itself in many netlink sockets, as only the root of a namespace may. The kind of socket is
// one that any element may have.
const hoarder = `$| = 1; my @s; my $m = pack("LSSLL", 60016, 0, 0, 0, 0) . "x" x 60000;
	for (1 .. 200) { socket my $s, 16, 3, 0 or last; setsockopt $s, 1, 8, pack "i", 1 << 20; bind $s, pack "SSLL", 16, 0, 0, 0 or die "bind: $!";
		my $port = (unpack "SSLL", getsockname $s)[2]; socket my $from, 16, 3, 0 or last; push @s, $s;
		for (1 .. 3) { send $from, $m, 0x40, pack "SSLL", 16, 0, $port, 0 or last } }
	print "done\n"; sleep 60`

// logger has netfilter keep a packet in a buffer of 128 KiB for each of 200 groups, for which there are rules.
const (
	logRules = `(echo 'table t { chain o { type filter hook output priority 0;'; for i in $(seq 200); do echo log group $i; done; echo '}'; echo '}') | nft -f -`
	logger   = `use Socket; $| = 1; socket my $s, 16, 3, 12 or die; bind $s, pack "SSLL", 16, 0, 0, 0;
	sub attr { my ($t, $v) = @_; my $l = 4 + length $v; pack("SS", $l, $t) . $v . "\0" x (-$l & 3) }
	for my $group (1 .. 200) { # NFULNL_MSG_CONFIG: bind; copy packets; 128 KiB; wait for long, and for many
		my $b = pack("CCn", 2, 0, $group) . attr(1, "\1") . attr(2, pack "NCx", 65000, 2) . attr(3, pack "N", 131072) . attr(4, pack "N", 4e6) . attr(5, pack "N", 4e9);
		send $s, pack("LSSLL", 16 + length $b, 4 << 8 | 1, 5, $group, 0) . $b, 0, pack "SSLL", 16, 0, 0, 0 or die "send: $!";
		recv $s, my $answer, 65536, 0; (unpack "LSSLLl", $answer)[5] == 0 or die "group $group: ", -(unpack "LSSLLl", $answer)[5] }
	` + loggedPacket + ` print "done\n"; sleep 60`
	loggedPacket = `socket my $u, 2, 2, 0; send $u, "x" x 50, 64, sockaddr_in 9, inet_aton "10.1.1.1";`
)

// judge has netfilter keep 3,000 packets for it until it decides about them, which it never does.
const (
	queueRules = `echo 'table q { chain o { type filter hook output priority 0; udp dport 9 queue num 1; }; }' | nft -f -`
	judge      = `use Socket; $| = 1; socket my $s, 16, 3, 12 or die; bind $s, pack "SSLL", 16, 0, 0, 0;
	sub attr { my ($t, $v) = @_; my $l = 4 + length $v; pack("SS", $l, $t) . $v . "\0" x (-$l & 3) }
	for my $a (attr(1, pack "CCn", 1, 0, 2), attr(2, pack "NC", 65000, 2) . attr(3, pack "N", 100000)) { # NFQNL_MSG_CONFIG: bind; copy packets, so many
		my $b = pack("CCn", 2, 0, 1) . $a;
		send $s, pack("LSSLL", 16 + length $b, 3 << 8 | 2, 5, 1, 0) . $b, 0, pack "SSLL", 16, 0, 0, 0 or die "send: $!";
		recv $s, my $answer, 65536, 0; (unpack "LSSLLl", $answer)[5] == 0 or die "queue: ", -(unpack "LSSLLl", $answer)[5] }
	for (1 .. 30) { socket my $u, 2, 2, 0; push @u, $u; send $u, "x" x 50, 64, sockaddr_in 9, inet_aton "10.1.1.1" for 1 .. 100;
		1 while defined recv $s, my $packet, 65536, 0x40 } # or netfilter has no room to tell of more
	print "done\n"; sleep 60`
)

// TestBuffersAreBounded: the process that keeps most in sockets that nobody is charged for is ended.
func TestBuffersAreBounded(t *testing.T) {
	attack.Tell(t, "a process that keeps megabytes in buffers of netlink sockets, of netfilter's log, or in packets "+
		"that wait for its verdict", "the process is ended, another stays")
	for name, c := range map[string]struct{ prepare, program string }{"messages": {"true", hoarder},
		"logs": {logRules, logger}, "groups of the log before their first packet": {"true", strings.Replace(logger, loggedPacket, "", 1)},
		"verdicts": {queueRules, judge}} {
		t.Run(name, func(t *testing.T) {
			if name == "verdicts" {
				if out, err := exec.Command("unshare", "-n", "sh", "-c", c.prepare).CombinedOutput(); err != nil &&
					strings.Contains(string(out), "No such file") {
					t.Skip("this kernel has no queues for verdicts (nft_queue)")
				}
			}
			testBuffers(t, c.prepare, c.program)
		})
	}
}

func testBuffers(t *testing.T, prepare, program string) {
	l := newLab(t, 16<<20)
	l.in(t, mean, prepare)
	start := func(program string) (*exec.Cmd, chan error) {
		c := exec.Command("nsenter", "--net="+l.elements[mean].Path, "perl", "-e", program)
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		t.Cleanup(func() { c.Process.Kill() })
		return c, ended
	}
	innocent, _ := start(`$| = 1; socket my $s, 16, 3, 0; print "done\n"; sleep 60`)
	_, ended := start(program)
	l.w.look(mean, l.elements[mean])
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
	if err := innocent.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("another process was ended: %v", err)
	}
	if len(l.verdicts) != 1 {
		t.Fatalf("%d verdicts were told", len(l.verdicts))
	}
	if v := <-l.verdicts; v.Table != Buffers || v.Removed != 1 || v.Limit != 8<<20 || v.Err != nil {
		t.Errorf("told was %+v", v)
	}
}

// TestGrowthIsSeen: who takes much in a short time is found by what the kernel has of memory, and held to it while it
// goes on.
func TestGrowthIsSeen(t *testing.T) {
	l := newLab(t, 64<<20)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	before, err := unmovable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("nsenter", "--net="+l.elements[mean].Path, "sh", "-c",
		"while :; do ip nexthop replace id 1 via 10.1.1.1 dev d0; "+
			lines(`nexthop replace id 1%4$05d group 1 type resilient buckets 65534`, 2000)+
			"| ip -force -batch - 2>/dev/null; done")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(-c.Process.Pid, unix.SIGKILL); c.Wait() })
	most, told, removed := int64(0), 0, 0
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		is, err := unmovable()
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, is-before)
		for len(l.verdicts) > 0 {
			v := <-l.verdicts
			if v.ID != mean || v.Table != NextHops || v.Err != nil {
				t.Errorf("told was %+v", v)
			}
			told++
			removed += v.Removed
		}
	}
	attack.Measured(t, "groups of next hops of two megabytes each, without end, for four seconds",
		fmt.Sprintf("%d MiB at most at a time; %d groups were made and taken away, in %d turns",
			most>>20, removed, told))
	if told == 0 || most > 2<<30 {
		t.Errorf("it had %d MiB, and was told of %d times", most>>20, told)
	}
}

// BenchmarkLook is what a look at an element costs that has nothing.
func BenchmarkLook(b *testing.B) {
	path := filepath.Join(b.TempDir(), "ns")
	if _, err := linux.MountNamespace(path); err != nil {
		b.Fatal(err)
	}
	defer unix.Unmount(path, unix.MNT_DETACH)
	w := &Watcher[string]{Tell: func(Verdict[string]) {}, suspect: map[string]time.Time{},
		past: map[string]*past{}, Log: slog.New(slog.DiscardHandler)}
	e := Element{Path: path, Memory: 256 << 20, Devices: 1024}
	for b.Loop() {
		w.look("x", e)
	}
}

// BenchmarkRead is what it costs five times a second.
func BenchmarkRead(b *testing.B) {
	for b.Loop() {
		if _, err := unmovable(); err != nil {
			b.Fatal(err)
		}
	}
}
