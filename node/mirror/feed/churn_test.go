package feed_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// churn makes random changes to a router's tables, in the words of ip(8).
type churn struct {
	*rand.Rand
	odd      bool // also what the fast path leaves to the guest
	prefixes [2][]string
}

func newChurn(seed uint64, odd bool) *churn {
	c := &churn{Rand: rand.New(rand.NewPCG(seed, 5)), odd: odd}
	for i := range 4 {
		c.prefixes[0] = append(c.prefixes[0], fmt.Sprintf("20.%d.0.0/16", i), fmt.Sprintf("20.%d.%d.0/24", i, i),
			fmt.Sprintf("20.%d.%d.128/25", i, i),
			fmt.Sprintf("20.%d.%d.131/32", i, i), fmt.Sprintf("20.%d.0.0/20", i), fmt.Sprintf("10.0.%d.64/26", i),
			fmt.Sprintf("10.0.%d.66/32", i))
		c.prefixes[1] = append(c.prefixes[1], fmt.Sprintf("2001:db9:%d::/48", i),
			fmt.Sprintf("2001:db9:%d:%d::/64", i, i), fmt.Sprintf("2001:db9:%d:%d:8::/77", i, i),
			fmt.Sprintf("2001:db9:%d:%d::83/128", i, i), fmt.Sprintf("2001:db8:%d::40/122", i),
			fmt.Sprintf("2001:db8:%d::42/128", i))
	}
	c.prefixes[0] = append(c.prefixes[0], "0.0.0.0/0", "20.0.0.0/8", "20.0.0.0/14")
	c.prefixes[1] = append(c.prefixes[1], "::/0", "2001:db9::/32", "2001:db9::/29")
	return c
}

func (c *churn) one(of ...string) string { return of[c.IntN(len(of))] }

func (c *churn) dev() string { return fmt.Sprintf("e%d", c.IntN(links)) }

// via is a gateway on a link, and its device.
func (c *churn) via(f int) string {
	i := c.IntN(links)
	if f == 0 {
		return fmt.Sprintf("10.0.%d.%d dev e%d", i, 2+c.IntN(3), i)
	}
	return fmt.Sprintf("2001:db8:%d::%d dev e%d", i, 2+c.IntN(3), i)
}

// way is what a route may say.
func (c *churn) way(f int) (before, after string) {
	switch c.IntN(12) {
	case 0:
		return c.one("blackhole", "unreachable", "prohibit"), ""
	case 1, 2:
		return "", "dev " + c.dev()
	case 3, 4, 5:
		for range 2 + c.IntN(2) {
			after += fmt.Sprintf(" nexthop via %s weight %d", c.via(f), 1+c.IntN(3))
		}
		return "", after
	case 6, 7:
		return "", fmt.Sprintf("nhid %d", c.object(f, 6+4*c.IntN(2)))
	case 8:
		if f == 0 {
			return "", fmt.Sprintf("via %s src 10.9.%d.1", c.via(f), c.IntN(3))
		}
	case 9:
		return "", fmt.Sprintf("via %s mtu %d", c.via(f), 1300+100*c.IntN(3))
	case 10:
		if f == 0 && c.odd {
			return "", "via inet6 " + c.via(1)
		}
	}
	return "", "via " + c.via(f)
}

// object is a next-hop object's number: 1…6 are single, 7…10 groups, of IPv4; 100 more of IPv6.
func (c *churn) object(f, most int) int { return 100*f + 1 + c.IntN(most) }

// line is one change.
func (c *churn) line() string {
	f := c.IntN(2)
	switch c.IntN(24) {
	case 0:
		return fmt.Sprintf("nexthop %s id %d via %s", c.one("add", "replace"), c.object(f, 6), c.via(f))
	case 1:
		return fmt.Sprintf("nexthop replace id %d group %d,%d/%d", c.object(f, 4)+6, c.object(f, 6),
			c.object(f, 6), 1+c.IntN(3))
	case 2:
		return fmt.Sprintf("nexthop %s id %d %s", c.one("replace", "add"), c.object(f, 6),
			c.one("blackhole", "via "+c.via(f), "via "+c.via(f), "dev "+c.dev()))
	case 3:
		if c.IntN(2) == 0 {
			return fmt.Sprintf("nexthop del id %d", c.object(f, 10))
		}
	case 4, 5, 6:
		return fmt.Sprintf("neigh replace %s lladdr 02:00:00:00:00:%02x nud %s", c.via(f), c.IntN(256),
			c.one("permanent", "reachable", "stale"))
	case 7:
		return "neigh del " + c.via(f)
	case 8:
		if c.IntN(3) == 0 {
			return fmt.Sprintf("link set %s %s", c.dev(), c.one("up", "down", "up", "mtu 1400", "mtu 1500",
				"address 02:00:00:00:01:01", "address 02:00:00:00:01:02"))
		}
	case 9:
		i := c.IntN(links)
		if c.IntN(2) == 0 {
			return fmt.Sprintf("addr %s 10.0.%d.1/24 dev e%d", c.one("add", "del"), i, i)
		}
		return fmt.Sprintf("addr %s 2001:db8:%d::1/64 dev e%d nodad", c.one("add", "del"), i, i)
	case 10:
		return fmt.Sprintf("addr %s 10.9.%d.1/32 dev %s", c.one("add", "add", "del"), c.IntN(3), c.dev())
	}
	prefix := c.prefixes[f][c.IntN(len(c.prefixes[f]))]
	before, after := c.way(f)
	verb := c.one("add", "add", "replace", "replace", "change", "append", "prepend", "del", "del")
	metric := c.one("", "", "metric 10", "metric 20")
	if verb == "del" && c.IntN(2) == 0 {
		before, after = "", ""
	}
	if f == 1 && !c.odd && (verb == "append" || verb == "prepend") && !strings.Contains(after, "via") {
		verb = "replace" // several that are not one
	}
	if prefix == "0.0.0.0/0" && !c.odd && (verb == "append" || verb == "prepend") {
		verb = "add"
	}
	line := fmt.Sprintf("route %s %s %s %s %s", verb, before, prefix, after, metric)
	if c.odd && f == 0 {
		line += " " + c.one("", "", "", "", "tos 0x10", "table local", "table default")
		line = strings.Replace(line, "blackhole", c.one("blackhole", "throw"), 1)
	}
	return line
}

// addresses are the first and last of each prefix, and those beside them.
func (c *churn) addresses() (list []netip.Addr) {
	for _, prefixes := range c.prefixes {
		for _, s := range prefixes {
			p := netip.MustParsePrefix(s)
			first, last := p.Addr(), lastOf(p)
			for _, a := range []netip.Addr{first, last, first.Prev(), first.Next(), last.Next(), last.Prev()} {
				if a.IsValid() && !a.IsUnspecified() {
					list = append(list, a)
				}
			}
		}
	}
	for i := range byte(links) {
		for host := range byte(6) {
			list = append(list, netip.AddrFrom4([4]byte{10, 0, i, host}),
				netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, i, 15: host}))
		}
		list = append(list, netip.AddrFrom4([4]byte{10, 9, i, 1}))
	}
	return list
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// TestChurn changes a router's tables at random, and compares the fast path with the kernel at every quiet point.
func TestChurn(t *testing.T) {
	for _, c := range []struct {
		name string
		odd  bool
	}{{"plain", false}, {"odd", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newRouter(t)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			churn := newChurn(seed, c.odd)
			l.start(mirror.Options{}, fib.Quota{}, 100)
			l.waitSynced()
			k := newKernel(t, l.router)
			probes, punted := 0, 0
			for round := range 100 {
				var lines []string
				for range 1 + churn.IntN(40) {
					lines = append(lines, churn.line())
				}
				if round%10 == 9 { // all links up again, so that not all is gone soon
					for i := range links {
						lines = append(lines, fmt.Sprintf("link set e%d up", i),
							fmt.Sprintf("addr add 10.0.%d.1/24 dev e%d", i, i))
					}
				}
				ip(t, l.router, true, lines...)
				if churn.IntN(4) == 0 {
					ip(t, l.peer, true, fmt.Sprintf("link set p%d %s", churn.IntN(links),
						churn.one("up", "up", "down")))
				}
				l.settled(round)
				p, n := l.compare(k, churn.addresses(), lines)
				probes, punted = probes+n, punted+p
			}
			t.Logf("%d probes, %d punted; %+v", probes, punted, l.mirror.Usage())
			// IPv6 routes of one metric that the kernel does not make one; with most seeds 1 to 7 %, with one 10.4 %.
			if 4*punted > probes && !c.odd {
				t.Errorf("%d of %d probes were punted, though there is little that the fast path can't do", punted,
					probes)
			}
		})
	}
}

// compare probes addresses until the fast path agrees with the kernel: the kernel takes note of a carrier some time
// after it tells of it, or before.
func (l *lab) compare(k *kernel, addresses []netip.Addr, lines []string) (punted, probes int) {
	l.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		k.look()
		punted = 0
		var differs []string
		for _, a := range addresses {
			d, punts := l.same(k, a)
			if punts {
				punted++
			}
			if d != "" {
				differs = append(differs, d)
			}
		}
		if len(differs) == 0 {
			return punted, len(addresses)
		}
		if time.Since(began) > 20*time.Second {
			l.t.Fatalf("%s\nafter\n%s\n%s", strings.Join(differs, "\n"), strings.Join(lines, "\n"), l.show())
		}
	}
}

// show is what ip(8) tells of the router.
func (l *lab) show() (text string) {
	in(l.t, l.router, func() error {
		for _, what := range []string{"-br link", "-4 route show", "-6 route show", "nexthop", "neigh"} {
			out, _ := exec.Command("ip", strings.Fields(what)...).CombinedOutput()
			text += "ip " + what + ":\n" + string(out)
		}
		return nil
	})
	return text
}
