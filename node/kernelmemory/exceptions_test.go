package kernelmemory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/system/attack"
)

// narrow tells a namespace by ICMP, n times, that the way to one further destination is narrow: 10.1.0.0 and on, and
// fd00:1:1:: and on. A raw socket is what the messages are for.
func narrow(n int) string {
	return fmt.Sprintf(`perl -e 'use Socket qw(:all);
		sub sum { my $t = 0; $t += $_ for unpack "n*", $_[0]; $t = ($t >> 16) + ($t & 65535) while $t >> 16; 65535 ^ $t }
		socket my $l, AF_INET, SOCK_RAW, 253 or die; socket my $s, AF_INET, SOCK_RAW, 1 or die; my $a = inet_aton "10.0.0.1";
		for my $n (1 .. %[1]d) { my $p = pack("CCnnn", 3, 4, 0, 0, 1000) . pack("CCnnnCCn", 0x45, 0, 28, 1, 0x4000, 64, 253, 0) . $a .
				pack("CCCC", 10, 1, $n >> 8, $n & 255) . "x" x 8;
			substr($p, 2, 2) = pack "n", sum $p; send $s, $p, 0, sockaddr_in 0, $a or die "send: $!" }
		socket $l, AF_INET6, SOCK_RAW, 253 or die; setsockopt $l, 41, 25, pack "i", 1; # IPV6_RECVERR
		socket $s, AF_INET6, SOCK_RAW, 58 or die; $a = inet_pton AF_INET6, "fd99::1";
		for my $n (1 .. %[1]d) { my $p = pack("CCnN", 2, 0, 0, 1300) . pack("NnCC", 0x60000000, 8, 253, 64) . $a .
				pack("n8", 0xfd00, 1, $n, 0, 0, 0, 0, 1) . "x" x 8;
			send $s, $p, 0, pack_sockaddr_in6 0, $a or die "send: $!" }'`, n)
}

// A gateway that is no router loses its exceptions when the kernel collects garbage.
const (
	ownHops4  = `route replace 10.1.%2$d.%3$d via 10.0.0.2 dev d0 metric %4$d`
	ownHops6  = `route replace fd00:1:%4$x::/48 via fd99::2 dev d0`
	addressed = `ip address add fd99::1/64 dev d0 nodad; ip neighbour replace 10.0.0.2 lladdr 02:00:00:00:00:02 dev d0; ` +
		`ip neighbour replace fd99::2 lladdr 02:00:00:00:00:02 dev d0 router; `
)

// TestExceptionsAreBounded: what is too much goes, whether the kernel lists it or not, and all routes stay, for every
// packet.
func TestExceptionsAreBounded(t *testing.T) {
	attack.Tell(t, "routes without end and, for each, a message that says that its way is narrow",
		"all the exceptions are taken away, the routes stay")
	for _, c := range []struct {
		name    string
		n       int
		prepare string
		six     bool // IPv6 surely, too: the kernel forgets what it hears of a gateway that is no router, sooner or later
		flush   string
	}{
		{"IPv4", 5000, lines(ownHops4, 5000) + "| ip -batch -", false, ""},
		{"IPv4, several of one destination", 5000, lines(ownHops4, 5000) + "| ip -batch -;" +
			lines(`route append 10.1.%2$d.%3$d via 10.0.0.3 dev d0 metric %4$d`, 5000) + "| ip -batch -", false, ""},
		{"IPv4, not listed", 5000, lines(ownHops4, 5000) + "| ip -batch -", false, "ip route flush cache"},
		{"IPv6", 5000, lines(ownHops6, 5000) + "| ip -6 -batch -", true, ""},
		{"several ways", 3000, lines(`route replace 10.1.%2$d.%3$d metric %4$d nexthop via 10.0.0.2 nexthop via 10.0.0.3`, 3000) + "| ip -batch -;" +
			lines(`route replace fd00:1:%4$x::/48 nexthop via fd99::2 nexthop via fd99::3`, 3000) +
			"| ip -6 -batch -", false, ""},
		{"next-hop objects", 2000, lines(`nexthop replace id %4$d via 10.0.0.2 dev d0`, 2000) + "| ip -batch -;" +
			lines(`route replace 10.1.%2$d.%3$d nhid %4$d`, 2000) + "| ip -batch -", false, ""},
		{"own addresses", 700, lines(`address replace 10.1.%2$d.%3$d/32 dev lo`, 700) + "| ip -batch -;" +
			lines(`address replace fd00:1:%4$x::1/128 dev lo nodad`, 700) + "| ip -6 -batch -", true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 16<<20)
			l.in(t, mean, addressed+c.prepare)
			const state = `(ip route show table all; ip -6 route show table all; ip nexthop; ip -6 address) | grep -v 'fe80:\|ff00:\|valid_lft' | sort`
			routes := l.in(t, mean, state)
			// The kernel adds the routes of its own IPv6 addresses a while after the addresses.
			for began := time.Now(); c.name == "own addresses" && strings.Count(routes, "local fd00:1:") < c.n &&
				time.Since(began) < time.Minute; routes = l.in(t, mean, state) {
			}
			narrowed := func() string {
				return l.in(t, mean, fmt.Sprintf("ip route get 10.1.0.7; ip route get 10.1.1.%d;"+
					"ip -6 route get fd00:1:%x::1; ip -6 route get fd00:1:%x::1; true", c.n&127, c.n-2, c.n-3))
			}
			has := unmovableSoon(t)
			l.in(t, mean, narrow(c.n))
			took := unmovableSoon(t) - has
			is := narrowed()
			if strings.Count(is, " mtu 1000") != 2 || c.six && strings.Count(is, " mtu 1300") != 2 {
				t.Fatalf("it is not told of narrow ways: %s", is)
			}
			if c.flush != "" {
				l.in(t, mean, c.flush)
			}
			sent := make(chan string)
			go func() {
				sent <- l.in(t, mean, `perl -e 'use Socket; socket my $s, AF_INET, SOCK_DGRAM, 0; my $to = sockaddr_in 9, inet_aton "10.1.0.7"; my $e = 0;
					for (1 .. 100000) { send $s, "x", 64, $to or $!{ENETUNREACH} and $e++ } print $e'`)
			}()
			for range 3 {
				l.w.look(mean, l.elements[mean])
			}
			if unreachable := <-sent; unreachable != "0" {
				t.Errorf("%s packets had no route", unreachable)
			}
			if is = narrowed(); strings.Contains(is, " mtu ") {
				t.Errorf("exceptions are left: %s", is)
			}
			if is := l.in(t, mean, state); is != routes {
				t.Errorf("routes are not as before: %s", difference(routes, is))
			}
			if len(l.verdicts) == 0 {
				t.Error("nobody was told")
			}
			for len(l.verdicts) > 0 {
				if v := <-l.verdicts; v.Table != Exceptions || v.Err != nil || v.Limit != 1<<20 {
					t.Errorf("told was %+v", v)
				}
			}
			t.Logf("the kernel had %d KiB more, and then %d", took>>10, (unmovableSoon(t)-has)>>10)
		})
	}
}

// TestMemoryOfExceptionsComesBack: 320 MiB of it, which others' memory on the machine may hide once, not five times.
func TestMemoryOfExceptionsComesBack(t *testing.T) {
	const n = 20000
	for try := 1; ; try++ {
		l := newLab(t, 256<<20)
		l.in(t, mean, addressed+lines(ownHops4, n)+"| ip -batch -")
		empty := unmovableSoon(t)
		l.in(t, mean, narrow(n)+"; ip route flush cache")
		full := unmovableSoon(t)
		for range 3 {
			l.w.look(mean, l.elements[mean])
		}
		left := unmovableSoon(t)
		said := fmt.Sprintf("%d MiB more, and %d when they were taken away", (full-empty)>>20, (left-empty)>>20)
		if full-empty > n*exceptionTable*3/4 && left-empty < n*exceptionTable/4 {
			attack.Measured(t, "20,000 routes with an exception each, which the kernel does not list", said)
			return
		}
		if try == 5 {
			t.Fatalf("the kernel had %s", said)
		}
	}
}

// unmovableSoon is what the kernel has when it has given back what it gives back.
func unmovableSoon(t *testing.T) int64 {
	t.Helper()
	for range 2 {
		linux.Grace(t.Context())
	}
	is, err := unmovable()
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// difference is the first line that differs.
func difference(a, b string) string {
	was, is := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			return fmt.Sprintf("line %d was %q, is %q", i, was[i], is[i])
		}
	}
	return fmt.Sprintf("%d lines, now %d", len(was), len(is))
}

// TestExceptionsInUseStay: a router with many routes and some narrow ways, and one of many next hops that hears of few,
// are left alone, also while the kernel's memory grows.
func TestExceptionsInUseStay(t *testing.T) {
	const n = 10000
	for _, c := range []struct {
		name, prepare string
		messages      int
	}{
		{"one gateway", lines(`route replace 10.1.%2$d.%3$d via 10.0.0.2`, n) + "| ip -batch -", 5000},
		{"one next-hop object", "ip nexthop add id 1 via 10.0.0.2 dev d0;" +
			lines(`route replace 10.1.%2$d.%3$d nhid 1`, n) + "| ip -batch -", 5000},
		{"many next hops", lines(ownHops4, n) + "| ip -batch -;" + lines(ownHops6, n) + "| ip -6 -batch -", 200},
		{"a tunnel", lines(`route replace 10.1.%2$d.%3$d dev v0`, n) + "| ip -batch -", 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 256<<20)
			l.in(t, mean, addressed+c.prepare)
			l.in(t, mean, narrow(c.messages))
			changes := make(chan string)
			go func() {
				changes <- l.in(t, mean,
					"timeout 1 ip monitor route nexthop address | grep '10.1.\\|fd00:\\|^id'; true")
			}()
			time.Sleep(300 * time.Millisecond)
			for range 3 {
				l.w.look(mean, l.elements[mean])
			}
			if told := <-changes; told != "" {
				t.Errorf("something was changed: %.300s", told)
			}
			if len(l.verdicts) > 0 {
				t.Errorf("told was %+v", <-l.verdicts)
			}
			// The kernel itself forgets the oldest ones of a gateway that has many, in an order that differs at each boot
			// (update_or_create_fnhe in net/ipv4/route.c).
			last := fmt.Sprintf("10.1.%d.%d", c.messages>>8, c.messages&255)
			if is := l.in(t, mean, "ip route get "+last); !strings.Contains(is, " mtu 1000") {
				t.Errorf("the exception of a route is gone: %s", is)
			}
		})
	}
}
