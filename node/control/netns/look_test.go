package netns

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// TestLook asks a router with processes and one without what their routing knows; and routing software that hangs, or
// has no end.
func TestLook(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 9, 1)
	static := lineOf("plain", 19, 1)
	frr, plain := jobs[0].ID, static[0].ID
	jobs[0].Element.Routes = []model.Route{{To: netip.MustParsePrefix("198.51.100.0/24"), Type: model.RouteBlackhole}}
	jobs[0].Element.Routing.OSPF, jobs[0].Element.RouterID = &model.OSPF{}, netip.MustParseAddr("10.255.0.9")
	n.awaitPhases(t, append(jobs, static...), model.PhaseRunning)
	n.run(t, plain, "sh", "-c", "ip link add cable type bridge && ip address add 192.0.2.1/24 dev cable && "+
		"ip link set cable up && ip route add 203.0.113.0/24 via 192.0.2.2 && "+
		"ip route add 10.99.0.0/16 nexthop via 192.0.2.2 nexthop via 192.0.2.3 && "+
		"ip route add 10.98.0.0/16 via inet6 fe80::7 dev cable && ip route add blackhole default && "+
		"ip route add 203.0.113.0/24 via 192.0.2.9 table 7 && ip -6 route add 2001:db8::/32 via fe80::8 dev cable")
	route := func(id model.ID, protocol, prefix, via string, not bool) model.Look {
		l := model.Look{Element: id, Not: not, Known: model.Known{What: model.KnownRoute, Protocol: protocol,
			Prefix: netip.MustParsePrefix(prefix)}}
		if via != "" {
			l.Via = netip.MustParseAddr(via)
		}
		return l
	}
	neighbour := func(protocol string) model.Look {
		return model.Look{Element: frr, Known: model.Known{What: model.KnownNeighbour, Protocol: protocol, State: "full"},
			Peer: &model.LookedFor{Name: "r9"}}
	}
	type expected struct {
		look model.Look
		want model.LookAnswer
	}
	ask := func(all ...expected) {
		t.Helper()
		var looks []model.Look
		for _, x := range all {
			looks = append(looks, x.look)
		}
		for i, got := range n.Look(t.Context(), looks) {
			want := all[i].want
			if got.So != want.So || got.Seen != want.Seen || !strings.Contains(got.Error, want.Error) ||
				(got.Error == "") != (want.Error == "") {
				t.Errorf("%s %+v: the answer is %+v, want %+v", looks[i].Element, looks[i].Known, got, want)
			}
		}
	}
	so := func(seen string) model.LookAnswer { return model.LookAnswer{So: true, Seen: seen} }
	ask(expected{route(plain, "", "203.0.113.0/24", "192.0.2.2", false), so("via 192.0.2.2 on cable")},
		expected{route(plain, "", "203.0.113.0/24", "192.0.2.9", false),
			model.LookAnswer{Seen: "via 192.0.2.2 on cable"}}, // another table's
		expected{route(plain, "", "10.99.0.0/16", "192.0.2.3", false),
			so("via 192.0.2.2 on cable, via 192.0.2.3 on cable")},
		expected{route(plain, "", "10.98.0.0/16", "fe80::7", false), so("via fe80::7 on cable")},
		expected{route(plain, "", "0.0.0.0/0", "", false), so("nowhere")},
		expected{route(plain, "", "2001:db8::/32", "fe80::8", false), so("via fe80::8 on cable")},
		expected{route(plain, "", "10.0.0.0/8", "", false), model.LookAnswer{}},
		expected{route(plain, "", "10.0.0.0/8", "", true), so("")},
		expected{route(plain, "bgp", "10.0.0.0/8", "", true), model.LookAnswer{Error: "no routing software"}},
		expected{route(frr, "", "198.51.100.0/24", "", false), so("nowhere")},
		expected{route(frr, "", "198.51.100.0/24", "", true), model.LookAnswer{Seen: "nowhere"}},
		expected{neighbour("ospf"), model.LookAnswer{}},
		expected{neighbour("bgp"), model.LookAnswer{Error: "bgpd is not running"}},
		expected{route(model.ID{Network: "lab", Element: "none"}, "", "10.0.0.0/8", "", true),
			model.LookAnswer{Error: "its kernel's routes cannot be read"}})

	// A command without an end is cut off by what it prints, one that hangs by its time; and once for all questions.
	if _, err := n.ask(t.Context(), frr, []string{"cat", "/dev/zero"}); err == nil ||
		!strings.Contains(err.Error(), "answers more than 4MiB") {
		t.Errorf("of an answer without end: %v", err)
	}
	n.asked = 300 * time.Millisecond
	goOn := n.hangAll(t, frr, "ospfd", "zebra")
	defer goOn()
	silent := model.LookAnswer{Error: "its routing software did not answer within 300ms"}
	ask(expected{neighbour("ospf"), silent}, expected{route(frr, "ospf", "10.0.0.0/8", "", true), silent})
}
