package system

import (
	"fmt"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// strays counts the packets that hosts of a network got and have no use for: not to any of their addresses.
func (p *platform) strays(network string) (n int) {
	p.t.Helper()
	for name, e := range p.elements(network) {
		if e.Element.Kind != model.Host {
			continue
		}
		for _, f := range strings.Fields(in(p.t, p.namespace(network, name), "nstat", "-asz", "IpInAddrErrors",
			"Ip6InAddrErrors", "IpExtInNoRoutes", "Ip6InNoRoutes")) {
			var k int
			if _, err := fmt.Sscanf(f, "%d", &k); err == nil && !strings.Contains(f, ".") {
				n += k
			}
		}
	}
	return n
}

// TestFaultsUnderXDP does to routers that the nodes forward for, one after the other, what routers live through, under
// numbered packets in both families: while there is a way, nothing is lost; when there is one again, packets take it;
// and nothing ever comes to a host that it was not for.
func TestFaultsUnderXDP(t *testing.T) {
	p := square(t, 2)
	ns := map[string]string{}
	for _, name := range []string{"r1", "r2", "r3", "r4", "h1", "h3"} {
		ns[name] = p.namespace(squareNetwork, name)
	}
	// Ways that OSPF has nothing to do with, for when it has none. Zebra takes the first byte of a metric for the
	// distance: it prefers some of them to OSPF's ways, and OSPF's, of distance 110, to the others.
	const preferred, last = 4000, 200 << 24
	spare := map[string][]string{
		"r1": {"10.3.0.0/24 via 10.0.41.1", "2001:db8:3::/64 via 2001:db8:41::1"},
		"r4": {"10.3.0.0/24 via 10.0.34.1", "10.1.0.0/24 via 10.0.41.2", "2001:db8:3::/64 via 2001:db8:34::1",
			"2001:db8:1::/64 via 2001:db8:41::2"},
		"r2": {"2001:db8:1::/64 via 2001:db8:12::1", "2001:db8:3::/64 via 2001:db8:23::2"},
		"r3": {"10.1.0.0/24 via 10.0.34.2", "2001:db8:1::/64 via 2001:db8:34::2"},
	}
	spares := func(verb string, metric int) {
		for router, ways := range spare {
			for _, way := range ways {
				sh(t, ns[router], fmt.Sprint("ip route ", verb, " ", way, " metric ", metric))
			}
		}
	}
	// OSPF's own routes, both ways from r1 to h3 and back, are what all is measured by.
	converged := func(p *platform) {
		for _, want := range [][3]string{{"r1", "10.3.0.0/24", "10.0.12.2 10.0.41.1"},
			{"r3", "10.1.0.0/24", "10.0.23.1 10.0.34.2"}} {
			p.await("OSPF's routes", func() bool {
				routes := routes(t, ns[want[0]])
				line := routes[strings.Index(routes, "\n"+want[1]+" ")+1:]
				line, _, _ = strings.Cut(line, "\n")
				first, second, _ := strings.Cut(want[2], " ")
				return strings.Contains(line, first) && strings.Contains(line, second)
			}, func() string { return routes(t, ns[want[0]]) })
		}
	}
	strays := p.strays(squareNetwork)
	step := func(name string, ways bool, f func(p *platform)) {
		t.Run(name, func(t *testing.T) {
			p := p.with(t)
			flows := p.flows()
			f(p)
			p.run("check", squareNetwork, "--mesh", "--wait", "3m")
			pass(flows, 200)
			for name, f := range flows {
				sent, lost, duplicated := f.stop()
				t.Logf("%s: %d of %d packets lost", name, lost, sent)
				if duplicated != 0 || lost != 0 && (ways || name == "many") {
					t.Errorf("%s: of %d packets %d were lost and %d came twice", name, sent, lost, duplicated)
				}
			}
			if now := p.strays(squareNetwork); now != strays {
				t.Errorf("hosts got %d packets that were not for them", now-strays)
				strays = now
			}
		})
	}
	zebra := func(router string) string {
		return strings.TrimSpace(p.run("exec", squareNetwork+"/"+router, "--", "pidof", "zebra"))
	}

	converged(p)
	spares("add", preferred)
	step("zebra killed", true, func(p *platform) {
		old := map[string]string{}
		for _, router := range []string{"r1", "r3"} {
			old[router] = zebra(router)
			p.run("exec", squareNetwork+"/"+router, "--", "kill", "-9", old[router])
		}
		for router := range old {
			p.await("another zebra", func() bool {
				out, _, _ := p.try("exec", squareNetwork+"/"+router, "--", "pidof", "zebra")
				return out != "" && strings.TrimSpace(out) != old[router]
			}, func() string { return "there is none" })
		}
	})
	step("routing software started again", true, func(p *platform) {
		p.run("restart", squareNetwork+"/r2")
		p.run("restart", squareNetwork+"/r1")
	})
	step("default route turned", true, func(p *platform) {
		// To an address that nobody has a route for, of which the flows know nothing.
		sh(p.t, ns["h3"], "ip addr add 192.0.2.77/32 dev lo")
		for _, way := range [][2]string{{"r2", "10.0.23.2"}, {"r4", "10.0.34.1"}, {"r3", "10.3.0.2"}} {
			sh(p.t, ns[way[0]], "ip route add 192.0.2.77/32 via "+way[1])
		}
		sh(p.t, ns["r1"], "ip route add default via 10.0.12.2")
		f := p.flow(squareNetwork, "h1", "h3", "192.0.2.77", 0)
		for range 20 {
			sh(p.t, ns["r1"], "for i in 1 2 3 4 5; do ip route replace default via 10.0.41.1; ip route replace "+
				"default via 10.0.12.2; done")
		}
		f.reached(f.sent.Load() + 100)
		if sent, lost, duplicated := f.stop(); lost+duplicated != 0 {
			p.t.Errorf("by the default route: of %d packets %d were lost and %d came twice", sent, lost, duplicated)
		}
	})
	spares("del", preferred)
	converged(p)
	// ospf6d takes routes away and adds them again, up to a millisecond later, when the cost of any link changes.
	spares("add", last)
	step("ECMP member lost and back", true, func(p *platform) {
		// Not its device, which would be set up again: what OSPF says of it.
		for range 2 {
			for _, cost := range []string{"1000", "10"} {
				p.run("exec", squareNetwork+"/r1", "--", "vtysh", "-c", "configure terminal", "-c", "interface r2",
					"-c", "ip ospf cost "+cost,
					"-c", "ipv6 ospf6 cost "+cost)
				p.await("the routes to follow", func() bool {
					_, line, _ := strings.Cut(routes(p.t, ns["r1"]), "\n10.3.0.0/24 ospf")
					line, _, _ = strings.Cut(line, "\n")
					return strings.Contains(line, "10.0.12.2") == (cost == "10")
				}, func() string { return routes(p.t, ns["r1"]) })
			}
		}
	})
	spares("del", last)
	step("interfaces down and up", false, func(p *platform) {
		for range 5 {
			sh(p.t, ns["r1"], "ip link set r2 down; ip link set r2 up; ip link set r4 down; ip link set r4 up")
			sh(p.t, ns["r3"], "ip link set h3 down; ip link set h3 up")
			sh(p.t, ns["r3"], "ip link set r2 down")
		}
		p.run("check", squareNetwork, "--wait", "3m") // by r4
		sh(p.t, ns["r3"], "ip link set r2 up")
	})
	step("addresses taken away and others", false, func(p *platform) {
		// The audit may come at any moment and put them right, before this does.
		sh(p.t, ns["r1"], "ip addr del 10.0.12.1/30 dev r2; ip addr replace 10.0.12.9/30 dev r2; ip -6 addr del "+
			"2001:db8:41::2/64 dev r4")
		sh(p.t, ns["r3"], "ip addr del 10.3.0.1/24 dev h3; ip -6 addr del 2001:db8:3::1/64 dev h3; sleep 0.2; "+
			"ip addr replace 10.3.0.1/24 dev h3; ip addr replace 2001:db8:3::1/64 dev h3 nodad")
		sh(p.t, ns["r1"], "ip addr del 10.0.12.9/30 dev r2 2>/dev/null; ip addr replace 10.0.12.1/30 dev r2; ip addr "+
			"replace 2001:db8:41::2/64 dev r4 nodad")
	})
	p.isFast()
}
