package kernelmemory

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/linux"
)

// netlink is what programs in Perl need to speak to a part of the kernel: attributes, and questions with their answers.
const netlink = `use strict; my $s; sub to { socket $s, 16, 3, $_[0] or die; bind $s, pack "SSLL", 16, 0, 0, 0; }
	sub attr { my ($t, $v) = @_; pack("SS", 4 + length $v, $t) . $v . "\0" x (-length($v) & 3) }
	sub attrs { my ($d, @all) = @_; while (length $d >= 4) { my ($l, $t) = unpack "SS", $d; last if $l < 4;
		push @all, [$t & 0x3fff, substr $d, 4, $l - 4]; $d = length $d > (($l + 3) & ~3) ? substr $d, ($l + 3) & ~3 : "" } @all }
	sub ask { my ($type, $flags, $body) = @_; my @all;
		send $s, pack("LSSLL", 16 + length $body, $type, $flags | 1, 1, 0) . $body, 0, pack "SSLL", 16, 0, 0, 0 or die "send: $!";
		for (;;) { defined recv $s, my $m, 1 << 18, 0 or die "recv: $!"; while (length $m >= 16) {
			my ($l, $k) = unpack "LS", $m; my $p = substr $m, 16, $l - 16; $m = length $m > (($l + 3) & ~3) ? substr $m, ($l + 3) & ~3 : "";
			if ($k == 2) { my $e = unpack "l", $p; $! = -$e; die "$!\n" if $e; return @all } return @all if $k == 3; push @all, $p } } }
	sub family { to(16); for (ask(16, 4, pack("CCS", 3, 1, 0) . attr(2, "$_[0]\0"))) { for (attrs(substr $_, 4)) { return unpack "S", $_->[1] if $_->[0] == 1 } } }
	`

func perl(format string, args ...any) string {
	return "perl -e '" + netlink + fmt.Sprintf(format, args...) + "'"
}

// counted asks for all of something, and prints how many there are.
func counted(question string) string {
	return perl("my @all = eval { %s }; die $@ if $@ && $@ !~ /No such|not supp|Invalid/; print scalar @all", question)
}

// lacking runs a script that needs something of the kernel.
func lacking(what, script string) func(*lab) string {
	return func(l *lab) string {
		out, err := exec.Command("nsenter", "--net="+l.elements[mean].Path, "sh", "-c", script).CombinedOutput()
		if err == nil {
			return ""
		}
		return fmt.Sprintf("this kernel has no %s: %s", what, strings.TrimSpace(string(out)))
	}
}

func bridgeVLANs(*lab) string {
	if linux.ProbeBridgeVLANs() != nil {
		return "this kernel has no VLANs of bridges (CONFIG_BRIDGE_VLAN_FILTERING)"
	}
	return ""
}

const segmentRouting = "ip -6 route add fd11::/64 encap seg6 mode encap segs fd02::1 dev d0 && ip -6 route del fd11::/64"

const guard = `my $f = family("wireguard");`

// sessions of L2TP that are no network devices, and how to ask for all of them
const (
	ofL2TP      = `my $f = family("l2tp");`
	l2tpSession = `use Socket; eval { ask($f, 4, pack("CCS", 1, 1, 0) . attr(9, pack "L", 1) . attr(10, pack "L", 1) . attr(7, pack "C", 2) . attr(2, pack "S", 0) .
		attr(24, inet_aton "10.0.0.1") . attr(25, inet_aton "10.2.2.2") . attr(26, pack "S", 1701) . attr(27, pack "S", 1701)) };
		die $@ if $@ && $@ !~ /exist/;
		for (1 .. %d) { eval { ask($f, 4, pack("CCS", 5, 1, 0) . attr(9, pack "L", 1) . attr(11, pack "L", $_) . attr(12, pack "L", $_) . attr(1, pack "S", 7)) };
		die $@ if $@ && $@ !~ /exist/ }`
)

// Messages of netfilter's parts: what makes an object.
const (
	makeSets = `to(12); for (1 .. %d) { eval { ask(6 << 8 | 2, 0x604, pack("CCn", 2, 0, 0) . attr(1, "\7") . attr(2, "s$_\0") .
		attr(3, "hash:ip\0") . attr(4, "\4") . attr(5, "\2") . attr(0x8007, attr(0x4012, pack "N", 65536))) }; die $@ if $@ && $@ !~ /exist|4097/ }`
	makeCounters = `to(12); for (1 .. %d) { eval { ask(7 << 8, 0x604, pack("CCn", 2, 0, 0) . attr(1, "c$_\0")) }; die $@ if $@ && $@ !~ /exist|busy/ }`
	makeTimes    = `to(12); for (1 .. %d) { eval { ask(8 << 8, 0x604, pack("CCn", 2, 0, 0) . attr(1, "t$_\0") . attr(2, pack "n", 2) .
		attr(3, "\x11") . attr(0x8004, attr(0x4001, pack "N", 30))) }; die $@ if $@ && $@ !~ /exist|busy/ }`
)

// makeTunnelGroups gives a VXLAN device groups (RTM_NEWMDB of a struct br_mdb_entry, with MDBE_ATTR_DST).
const makeTunnelGroups = `to(0); for (1 .. %d) { eval { ask(84, 0x604, pack("Cx3L", 7, INDEX) . attr(1, pack("LCCSNx12nx2", INDEX, 1, 0, 0, 0xe8000000 + $_, 0x800)) .
	attr(0x8002, attr(5, "\12\2\2\2"))) }; die $@ if $@ && $@ !~ /exist/ }`

// countHosts asks for IFLA_BRPORT_MCAST_EHT_HOSTS_CNT, which ip does not tell.
const countHosts = `to(0); sub of { my ($d, $k) = @_; map { $_->[1] } grep { $_->[0] == $k } attrs($d) }
	print unpack "L", (of(of(of(substr((ask(18, 4, pack "Cx3Lx8", 0, PORT))[0], 16), 18), 5), 38))[0]`

// report has many hosts behind p0 say which group they are in, from which source (IGMPv3).
const report = `ip link set p1 up; ip link set b0 type bridge mcast_snooping 1 mcast_igmp_version 3 mcast_hash_max 100000;
	bridge link set dev p0 fastleave on; until ip -d link show p0 | grep -q "bridge_slave state forwarding"; do sleep 0.05; done
	perl -e 'sub attr { my ($t, $v) = @_; pack("SS", 4 + length $v, $t) . $v . "\0" x (-length($v) & 3) } sub sum { my $t = 0; $t += $_ for unpack "n*", $_[0]; $t = ($t >> 16) + ($t & 65535) while $t >> 16; 65535 ^ $t }
		my ($port, $index) = @ARGV; socket my $r, 16, 3, 0; my $set = pack("Cx3Lx8", 7, $port) . attr(0x800c, attr(37, pack "L", 1 << 30));
		send $r, pack("LSSLL", 16 + length $set, 19, 5, 1, 0) . $set, 0, pack "SSLL", 16, 0, 0, 0; recv $r, my $m, 4096, 0; (unpack "x16l", $m)[0] == 0 or die "limit: ", unpack "x16l", $m;
		socket my $s, 17, 3, 0 or die; for my $n (1 .. %d) {
			my $g = pack("CCnnn", 0x22, 0, 0, 0, 1) . pack("CCnNN", 5, 0, 1, 0xe8010101, 0x0a090909); substr($g, 2, 2) = pack "n", sum $g;
			my $p = pack("CCnnnCCnNNN", 0x46, 0xc0, 24 + length $g, 1, 0, 1, 2, 0, 0x0a100000 + $n, 0xe0000016, 0x94040000); substr($p, 10, 2) = pack "n", sum $p;
			send $s, "\1\0\x5e\0\0\x16\2\0\0\0\0\1\x08\0$p$g", 0, pack "SnLSCCa8", 17, 0x800, $index, 0, 0, 6, "" or die "send: $!" }' $(ip -o link show p0 | cut -d: -f1) $(ip -o link show p1 | cut -d: -f1)`

// advertise has d1 hear of so many prefixes, which are valid for so many seconds.
const advertise = `sysctl -qw net.ipv6.conf.d1.accept_ra=2; ip -6 address replace fe80::99/64 dev d0 nodad;
	perl -e 'my $index = %[1]s; socket my $s, 10, 3, 58 or die; setsockopt $s, 41, 18, pack "i", 255; setsockopt $s, 41, 17, pack "i", $index;
		bind $s, pack "SnNa16L", 10, 0, 0, "\xfe\x80" . "\0" x 13 . "\x99", $index or die "bind: $!";
		for (my $n = 1; $n <= %[2]d; $n += 40) { my $m = pack "CCnCCnNN", 134, 0, 0, 64, 0, 0, 0, 0;
			$m .= pack "CCCCNNNnnnnx8", 3, 4, 64, 0x80, %[3]s, %[3]s, 0, 0xfd77, 0, $_ >> 16, $_ & 65535 for $n .. $n + 39;
			send $s, $m, 0, pack "SnNa16L", 10, 0, 0, "\xff\x02" . "\0" x 13 . "\1", $index or die "send: $!" }'`

func advertisements(n int, valid string) string {
	return fmt.Sprintf(advertise, "'$(ip -o link show d0 | cut -d: -f1)'", n, valid)
}

// ruleOfSet makes a set into which a rule has each packet put where it is for.
const ruleOfSet = `nft list table t >/dev/null 2>&1 || nft -f - <<-END
	table t { set s { type ipv4_addr; size 65535; flags dynamic, timeout; timeout 1h; }
	chain o { type filter hook output priority 0; udp dport 9 update @s { ip daddr } drop; }; }
	END
	`

// ruleOfTimedSet does so in two steps, without which nft would call the set dynamic by itself.
const ruleOfTimedSet = `nft list table t >/dev/null 2>&1 || {
	nft add table t; nft add set t s '{ type ipv4_addr; size 65535; flags timeout; timeout 1h; }'
	nft add chain t o '{ type filter hook output priority 0; }'
	nft add rule t o udp dport 9 add @s '{ ip daddr }' drop
	}; `

// tablesOfMessages are further ones.
var tablesOfMessages = []tableCase{
	{"VLANs of a bridge's ports", BridgeVLANs, 300, 0, func(n int) string {
		if n == 0 { // all, of several ports
			return `for i in 1 2 3; do ip link show q$i >/dev/null 2>&1 || ip link add q$i type veth peer name r$i;
				ip link set q$i master b0; bridge vlan add dev q$i vid 2-4094; done`
		}
		return fmt.Sprintf("bridge vlan add dev p0 vid 2-%d", n)
	}, "bridge -j -compressvlans vlan show | perl -0ne 'while (/\"vlan\":(\\d+)(?:,\"vlanEnd\":(\\d+))?/g) { $n += ($2 || $1) - $1 + 1 if $1 > 1 } print $n + 0'"},
	{"VLANs of a bridge itself", BridgeVLANs, 300, 4094, func(n int) string {
		return fmt.Sprintf("bridge vlan add dev b0 vid 2-%d self", n)
	}, "bridge -j -compressvlans vlan show | perl -0ne 'while (/\"vlan\":(\\d+)(?:,\"vlanEnd\":(\\d+))?/g) { $n += ($2 || $1) - $1 + 1 if $1 > 1 } print $n + 0'"},
	{"peers of WireGuard", Peers, 100, 2000, func(n int) string {
		return "ip link show wg0 >/dev/null 2>&1 || ip link add wg0 type wireguard;" + perl(guard+`for (my $n = 0; $n < %d; $n += 100) {
			ask($f, 4, pack("CCS", 1, 1, 0) . attr(2, "wg0\0") . attr(0x8008, join "", map { attr(0x8000, attr(1, pack "Nx24N", $_, 7)) } $n + 1 .. $n + 100)) }`, n)
	}, counted(guard + `map { map { $_->[0] == 8 ? attrs($_->[1]) : () } attrs(substr $_, 4) } ask($f, 0x304, pack("CCS", 0, 1, 0) . attr(2, "wg0\0"))`)},
	{"sessions of L2TP", Sessions, 20, 300, func(n int) string { return perl(ofL2TP+l2tpSession, n) },
		counted(ofL2TP + `ask($f, 0x304, pack "CCS", 8, 1, 0)`)},
	{"sets of netfilter", Parts, 1, 10, func(n int) string { return perl(makeSets, n) },
		counted(`to(12); ask(6 << 8 | 7, 0x304, pack("CCn", 2, 0, 0) . attr(1, "\7") . attr(6, pack "N", 4))`)},
	{"counters of netfilter", Parts, 1000, 9000, func(n int) string { return perl(makeCounters, n) },
		counted(`to(12); ask(7 << 8 | 1, 0x304, pack("CCn", 2, 0, 0))`)},
	{"time limits of netfilter", Parts, 500, 5000, func(n int) string { return perl(makeTimes, n) },
		counted(`to(12); ask(8 << 8 | 1, 0x304, pack("CCn", 2, 0, 0))`)},
	{"encapsulations of IPv6 routes", Encapsulations, 500, 5000, func(n int) string {
		return lines(`route replace fd10:%1$x:%2$x:%3$x::/64 encap seg6 mode encap segs fd02::1,fd02::%4$x dev d0`, n) +
			"| ip -6 -batch -"
	}, "ip -6 route | grep -c encap; true"},
	{"encapsulations of IPv4 routes", Encapsulations, 500, 5000, func(n int) string {
		return lines(`route replace 11.%1$d.%2$d.%3$d encap seg6 mode encap segs fd02::1,fd02::%4$x dev d0`, n) + "| ip -batch -"
	}, "ip route | grep -c encap; true"},
	{"encapsulations of next hops", NextHops, 300, 5000, func(n int) string {
		return "ip -6 address replace fd01::1/64 dev d0 nodad;" + lines(`nexthop replace id %4$d encap seg6 mode encap segs fd02::1,fd02::%4$x via fd01::2 dev d0`, n) +
			"| ip -6 -batch -"
	}, "ip nexthop | wc -l"},
	{"routes that router advertisements make", Advertised, 500, 5000, func(n int) string { return advertisements(n, "3600") },
		"ip -6 route | grep -c '^fd77.*expires'; true"},
	{"routes that router advertisements make for ever", Advertised, 500, 5000, func(n int) string {
		return advertisements(n, "0xffffffff")
	}, "ip -6 route | grep -v expires | grep -c '^fd77'; true"},
	{"hosts in groups of bridges", BridgeGroups, 1000, 9000, func(n int) string {
		return fmt.Sprintf(report, n)
	}, "port=$(ip -o link show p0 | cut -d: -f1); " + strings.ReplaceAll(perl(countHosts), "PORT", "'$port'")},
	{"groups of tunnels", TunnelGroups, 500, 9000, func(n int) string {
		return "ip link show v0 >/dev/null 2>&1 || ip link add v0 type vxlan id 5 dev d0 dstport 4789; ip link set v0 up;" +
			"index=$(ip -o link show v0 | cut -d: -f1);" + strings.ReplaceAll(perl(makeTunnelGroups, n), "INDEX", "'$index'")
	}, "ip link show v0 >/dev/null 2>&1 || { echo 0; exit; }; " + counted(`to(0); map { attrs($_->[1]) } grep { $_->[0] == 1 } map { attrs(substr $_, 8) } ask(86, 0x304, pack "Cx7", 7)`)},
	{"sets that packets fill", PacketSets, 500, 9000, func(n int) string {
		return ruleOfSet + fmt.Sprintf(`perl -e 'use Socket; socket my $u, 2, 2, 0; for (1 .. %d) { send $u, "x", 0, sockaddr_in 9, pack "N", 0x0a100000 + $_ }'`, n)
	}, "nft -j list set t s 2>/dev/null | grep -o '\"elem\": {' | wc -l"},
	{"timed sets that packets fill", PacketSets, 500, 9000, func(n int) string {
		return ruleOfTimedSet + fmt.Sprintf(`perl -e 'use Socket; socket my $u, 2, 2, 0; for (1 .. %d) { send $u, "x", 0, sockaddr_in 9, pack "N", 0x0a100000 + $_ }'`, n)
	}, "nft -j list set t s 2>/dev/null | grep -o '\"elem\": {' | wc -l"},
	{"long queues", TrafficControl, 2000, 60000, func(n int) string {
		return fmt.Sprintf("tc qdisc replace dev d0 root pfifo_fast; ip link set d0 txqueuelen %d", n)
	}, "ip -o link show d0 | grep -o 'qlen [0-9]*' | cut -d' ' -f2"},
	{"packet filters of traffic control", TrafficControl, 3, 40, func(n int) string {
		return "tc qdisc replace dev d0 clsact; for i in $(seq " + fmt.Sprint(n) + "); do tc filter add dev d0 egress pref $i bpf bytecode '1801," +
			strings.Repeat("0 0 0 1,", 1800) + "6 0 0 0'; done"
	}, "tc filter show dev d0 egress | grep -c bytecode; true"},
}

// lacksTable says why this kernel has no such table, if it has none.
var lacksTable = map[string]func(*lab) string{
	// since Linux 6.4
	"groups of tunnels": lacking("groups of VXLAN devices", "index=$(ip -o link show v0 | cut -d: -f1);"+
		strings.ReplaceAll(perl(makeTunnelGroups, 1), "INDEX", "'$index'")),
	// Linux 6.1 refuses them to a device that is up.
	"long queues": lacking("long queues of devices that are up", "tc qdisc replace dev d0 root pfifo_fast && "+
		"ip link set d0 txqueuelen 60000 && ip link set d0 txqueuelen 1000"),
	"VLANs of a bridge's ports":     bridgeVLANs,
	"VLANs of a bridge itself":      bridgeVLANs,
	"peers of WireGuard":            lacking("WireGuard", "ip link add wg0 type wireguard"),
	"sessions of L2TP":              lacking("L2TP", perl(ofL2TP+l2tpSession, 1)),
	"sets of netfilter":             lacking("ipset", perl(makeSets, 0)),
	"counters of netfilter":         lacking("nfacct", perl(makeCounters, 0)),
	"time limits of netfilter":      lacking("time limits of connections", perl(makeTimes, 0)),
	"encapsulations of IPv6 routes": lacking("segment routing", segmentRouting),
	"encapsulations of IPv4 routes": lacking("segment routing", segmentRouting),
	"encapsulations of next hops":   lacking("segment routing", segmentRouting),
}

// ruleOfIpset has a rule of nftables refer to the first set of ipset (nft_compat's match "set", NFT_MSG_NEWRULE).
const ruleOfIpset = `nft add table ip t; nft add chain ip t c; ` + "perl -e '" + netlink + `to(12);
	my $match = attr(0x8001, attr(1, "match\0") . attr(0x8002, attr(1, "set\0") . attr(2, pack "N", 1) . attr(3, pack "SCCx4", 0, 1, 0)));
	my $edge = sub { pack("LSSLLCCn", 20, $_[0], 1, 1, 0, 0, 0, 10) }; my $body = pack("CCn", 2, 0, 0) . attr(1, "t\0") . attr(2, "c\0") . attr(0x8004, $match);
	send $s, $edge->(16) . pack("LSSLL", 16 + length $body, 10 << 8 | 6, 0xc05, 1, 0) . $body . $edge->(17), 0, pack "SSLL", 16, 0, 0, 0 or die "send: $!";
	recv $s, my $answer, 65536, 0; (unpack "LSSLLl", $answer)[5] == 0 or die -(unpack "LSSLLl", $answer)[5]'`

// TestSetsInUseKeepNothingElse: one set that a rule refers to kept all others, and counters and time limits as well. It
// stays, but without what was in it.
func TestSetsInUseKeepNothingElse(t *testing.T) {
	const sets, counters = `to(12); ask(6 << 8 | 7, 0x304, pack("CCn", 2, 0, 0) . attr(1, "\7") . attr(6, pack "N", 4))`,
		`to(12); ask(7 << 8 | 1, 0x304, pack("CCn", 2, 0, 0))`
	l := newLab(t, 16<<20)
	for _, what := range []string{"sets of netfilter", "counters of netfilter"} {
		if why := lacksTable[what](l); why != "" {
			t.Skip(why)
		}
	}
	if why := lacking("match of rules for sets (xt_set, nft_compat)", perl(makeSets, 1)+" && "+ruleOfIpset)(l); why != "" {
		t.Skip(why)
	}
	for _, busy := range []bool{false, true} { // the second time there is nothing but the set in use
		if !busy {
			l.in(t, mean, perl(makeSets, 10)+" && "+perl(makeCounters, 2000))
		} else {
			l.in(t, mean, perl(strings.ReplaceAll(makeSets, `"s$_\0"`, `"t$_\0"`), 1)+"; "+
				perl(`to(12); ask(6 << 8 | 6, 4, pack("CCn", 2, 0, 0) . attr(1, "\7") . attr(2, "s1\0") . attr(3, "t1\0"))`))
			l.elements[mean] = Element{Path: l.elements[mean].Path, Memory: 4 << 20, Devices: devices}
		}
		l.w.look(mean, l.elements[mean])
		select {
		case v := <-l.verdicts:
			if v.Table != Parts || v.Err != nil || v.Removed == 0 {
				t.Errorf("told was %+v", v)
			}
		default:
			t.Error("nobody was told")
		}
		if n := l.in(t, mean, counted(sets)); n != "1" {
			t.Errorf("%s sets are left, want the one that a rule refers to", n)
		}
		if n := l.in(t, mean, counted(counters)); n != "0" {
			t.Errorf("%s counters are left", n)
		}
		hashes := l.in(t, mean, perl(`my ($set) = eval { %s }; my ($d) = map { $_->[1] } grep { $_->[0] == 7 } attrs(substr $set, 4);
			print map { unpack "N", $_->[1] } grep { $_->[0] == 18 } attrs($d)`, sets))
		if n, err := strconv.Atoi(hashes); err != nil || n > 1024 {
			t.Errorf("the set in use keeps %s hash values (%v)", hashes, err)
		}
	}
	if out := l.in(t, mean, "nft list table ip t"); !strings.Contains(out, "set") {
		t.Errorf("the rule is gone: %s", out)
	}
}

// TestSharedEncapsulationsCountOnce: IPv4 routes over one next hop share what hangs at it.
func TestSharedEncapsulationsCountOnce(t *testing.T) {
	l := newLab(t, 16<<20)
	if why := lacksTable["encapsulations of IPv4 routes"](l); why != "" {
		t.Skip(why)
	}
	l.in(t, mean, lines(`route add 11.%1$d.%2$d.%3$d encap seg6 mode encap segs fd02::1,fd02::2 dev d0`, 5000)+"| ip -batch -")
	l.w.look(mean, l.elements[mean])
	if n := l.in(t, mean, "ip route | grep -c encap; true"); n != "5000" || len(l.verdicts) > 0 {
		t.Errorf("%s routes are left of 5,000 that share one encapsulation; %d verdicts", n, len(l.verdicts))
	}
}

// TestRoutesOfAddressesAreNotAdvertised: those that the kernel makes for addresses look like such of router
// advertisements that last for ever.
func TestRoutesOfAddressesAreNotAdvertised(t *testing.T) {
	l := newLab(t, 16<<20)
	l.in(t, mean, lines(`address add fd10:%1$x:%2$x:%3$x::1/64 dev d0 nodad`, 2000)+"| ip -6 -batch -")
	l.in(t, mean, lines(`address add fd11::%2$x:%3$x peer fd12:%1$x:%2$x:%3$x::1/64 dev d0 nodad`, 1000)+"| ip -6 -batch -")
	there := l.in(t, mean, "ip -6 route | grep -c '^fd1'; true")
	if n, err := strconv.Atoi(there); err != nil || int64(n)*advertisedBytes <= 1<<20 {
		t.Fatalf("%s routes are too few (%v)", there, err)
	}
	l.w.look(mean, l.elements[mean])
	if left := l.in(t, mean, "ip -6 route | grep -c '^fd1'; true"); left != there || len(l.verdicts) > 0 {
		t.Errorf("%s routes are left of %s that addresses have; %d verdicts", left, there, len(l.verdicts))
	}
}

// TestReadingRoutesIsBounded: after many routes were read in vain, they are not read again at once, unless something was
// found, or the kernel's memory has grown. Others' routes are read meanwhile.
func TestReadingRoutesIsBounded(t *testing.T) {
	l := newLab(t, 16<<20)
	if why := lacksTable["encapsulations of IPv6 routes"](l); why != "" {
		t.Skip(why)
	}
	const is = 1 << 40 // what the kernel has of memory
	fill := func(name string) {
		t.Helper()
		l.in(t, name, lines(`route replace fd10:%1$x:%2$x:%3$x::/64 encap seg6 mode encap segs fd02::1,fd02::%4$x dev d0`, 5000)+
			"| ip -6 -batch -")
	}
	look := func(is int64, want map[string]string) {
		t.Helper()
		l.w.everybody(t.Context(), is)
		for name, want := range want {
			if left := l.in(t, name, "ip -6 route | grep -c encap; true"); left != want {
				t.Errorf("%s has %s encapsulations left, want %s", name, left, want)
			}
		}
	}
	l.in(t, mean, lines(`route add fd20:%1$x:%2$x:%3$x::/64 dev d0`, 5000)+"| ip -6 -batch -")
	look(is, nil)
	many, few := &l.w.remembered(mean).routes, &l.w.remembered(peace).routes
	if many.many < 5000 || few.many >= 100 || many.took == 0 || many.rest < share*(many.took+few.took) ||
		few.rest > share*few.took || many.least < many.took+few.took {
		t.Fatalf("what was read of who has many routes, and few: %+v, %+v", many, few)
	}
	// They could be a million: reading them took an hour, two hours ago.
	many.took, many.ended = time.Hour, time.Now().Add(-2*time.Hour)
	l.w.restOfRoutes()
	few.ended = time.Time{}
	fill(mean)
	fill(peace)
	look(is, map[string]string{mean: "5000", peace: "0"})
	fill(mean)
	look(is+step, map[string]string{mean: "5000"})
	look(is+2*step, map[string]string{mean: "5000"})
	look(is+hurry+1, map[string]string{mean: "0"}) // it has grown little by little
	*many = reading{many: 5000, took: time.Hour, rest: 20 * time.Hour, least: time.Hour, ended: time.Now()}
	fill(mean)
	look(is+hurry+1, map[string]string{mean: "5000"}) // not even then
	many.always = time.Now().Add(time.Hour)
	look(is, map[string]string{mean: "0"}) // too much was found a short time ago
}

// TestRestOfRoutes: who has few routes rests as if nobody had more.
func TestRestOfRoutes(t *testing.T) {
	w := &Watcher[int]{past: map[int]*past{}}
	for id, n := range []int64{1e6, 10, 1000, 10} {
		w.remembered(id).routes = reading{many: n, took: time.Duration(n) * time.Microsecond}
	}
	w.restOfRoutes()
	for id, want := range []time.Duration{1001020, 20, 1020, 20} {
		want *= time.Microsecond
		if is := w.remembered(id).routes; is.rest != 20*want || is.least != want {
			t.Errorf("%d rests for %v, at least %v, want 20 times %v", id, is.rest, is.least, want)
		}
	}
}

// TestVLANsOfTheFileComeOnTop: a switch has what its file asks for, and who has more memory more of all.
func TestVLANsOfTheFileComeOnTop(t *testing.T) {
	for _, c := range []struct {
		e    Element
		want int64
	}{{Element{Memory: 16 << 20}, 1 << 20}, {Element{Memory: 32 << 20}, 2 << 20},
		{Element{Memory: 16 << 20, VLANs: 4094}, 1<<20 + 2*4094*vlanSize.bytes()}} {
		if is := c.e.limit(BridgeVLANs); is != c.want {
			t.Errorf("%+v may have %d bytes, not %d", c.e, is, c.want)
		}
		if is := c.e.limit(BridgeGroups); is != c.e.Memory/16 {
			t.Errorf("%+v may have %d bytes of groups", c.e, is)
		}
	}
}

// TestSizesGrowWithProcessors: of some things the kernel keeps a part for each processor that the machine could have. What
// took 1.25 KiB on two takes 5 on 128.
func TestSizesGrowWithProcessors(t *testing.T) {
	for what, c := range map[string]struct {
		is   size
		want map[int]int64
	}{
		"VLANs":          {vlanSize, map[int]int64{1: 1248, 2: 1280, 8: 1472, 128: 5312}},
		"peers":          {peerSize, map[int]int64{2: 2048, 8: 2288, 128: 7088}},
		"encapsulations": {encapSize, map[int]int64{2: 512, 8: 752, 128: 5552}},
	} {
		for n, want := range c.want {
			if is := c.is.of(n); is != want {
				t.Errorf("%s take %d bytes with %d processors, want %d", what, is, n, want)
			}
		}
		if n := ebpf.MustPossibleCPU(); c.is.bytes() != c.is.of(n) {
			t.Errorf("%s take %d bytes here, with %d possible processors", what, c.is.bytes(), n)
		}
	}
	if is := encapsulated(make([]byte, 8)); is != encapSize.bytes()+16 {
		t.Errorf("an encapsulation of 8 bytes takes %d", is)
	}
}

// TestOwnedSetsAreEmptied: a batch of changes that is refused looked like one that was carried out. A table may belong to a
// process, and then nobody else may change it, or what else is in the same batch.
func TestOwnedSetsAreEmptied(t *testing.T) {
	const count = "nft -j list sets 2>/dev/null | grep -o '\"elem\": {' | wc -l"
	l := newLab(t, 16<<20)
	l.in(t, mean, "nft add table u")
	owner := exec.Command("nsenter", "--net="+l.elements[mean].Path, "nft", "-i")
	in, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- owner.Wait() }()
	t.Cleanup(func() { in.Close(); owner.Process.Kill() }) //nolint:errcheck // it may have ended
	for _, line := range []string{"add table ip t { flags owner; }",
		"add set ip t s { type ipv4_addr; size 65535; flags dynamic, timeout; timeout 1h; }",
		"add chain ip t o { type filter hook output priority 0; }",
		"add rule ip t o udp dport 9 update @s { ip daddr } drop"} {
		fmt.Fprintln(in, line)
	}
	l.in(t, mean, "until nft list chain ip t o 2>/dev/null | grep -q update; do sleep 0.05; done")
	l.in(t, mean, strings.ReplaceAll(ruleOfSet, "table t", "table w")+
		`perl -e 'use Socket; socket my $u, 2, 2, 0; for (1 .. 9000) { send $u, "x", 0, sockaddr_in 9, pack "N", 0x0a100000 + $_ }'`)
	for end := time.Now().Add(time.Minute); l.in(t, mean, count) != "0"; { // the table goes with the process, a while after it
		if l.w.look(mean, l.elements[mean]); time.Now().After(end) {
			t.Fatalf("%s elements are left", l.in(t, mean, count))
		}
	}
	if err := <-ended; err == nil {
		t.Error("who owned the table was not ended")
	}
	if out := l.in(t, mean, "nft list tables"); !strings.Contains(out, "table ip u") {
		t.Errorf("nobody's tables are gone: %s", out)
	}
	for len(l.verdicts) > 0 {
		if v := <-l.verdicts; v.ID != mean || v.Table != PacketSets || v.Err != nil || v.Removed == 0 {
			t.Errorf("told was %+v", v)
		}
	}
}

// TestManySetsHaveTheirTurn: each flush began with the same sets, so those behind what its time allows were never emptied.
func TestManySetsHaveTheirTurn(t *testing.T) {
	const sets = 4 * emptiedAtOnce
	l := newLab(t, 16<<20)
	var script strings.Builder
	script.WriteString("add table ip t\n")
	for i := range sets {
		fmt.Fprintf(&script, "add set ip t s%d { type ipv4_addr; flags timeout; timeout 1h; elements = { 10.0.0.1 }; }\n", i)
	}
	file := filepath.Join(t.TempDir(), "sets")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	l.in(t, mean, "nft -f "+file)
	s, err := open(l.elements[mean].Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	i := slices.IndexFunc(readers, func(r reader) bool { return r.table == PacketSets })
	count := func() int {
		n, err := readers[i].count(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != sets {
		t.Fatalf("%d elements are in %d sets", n, sets)
	}
	over := time.Now()
	for tries := 0; count() > 0; tries++ {
		if _, left, err := readers[i].empty(s, over); err != nil || !left {
			t.Fatalf("with no time it is told that some is left: %v, %v", left, err)
		}
		if tries == 1000 {
			t.Fatalf("%d elements never have their turn", count())
		}
	}
	if _, left, err := readers[i].empty(s, time.Now().Add(time.Hour)); err != nil || left {
		t.Errorf("with time enough it is told that some is left: %v, %v", left, err)
	}
}
