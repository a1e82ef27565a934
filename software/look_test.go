package software

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

func lookFor(t *testing.T, software model.Software, k model.Known, change func(*model.Look)) model.Look {
	t.Helper()
	look := model.Look{Element: model.ID{Network: "lab", Element: "r1"}, Known: k,
		Peer: &model.LookedFor{Name: "r2", RouterID: netip.MustParseAddr("10.255.0.2"),
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("2001:db8::2"),
				netip.MustParseAddr("fe80::2")}, Devices: []string{"r2"}}}
	if change != nil {
		change(&look)
	}
	if problem := look.Known.Problem(); problem != "" {
		t.Fatal(problem)
	}
	if _, err := Asking(software, &look); err != nil {
		t.Fatal(err)
	}
	return look
}

// TestAnswers reads what routing software says: FRR 8.4 and BIRD 2.0.12 as they said it, FRR 10.3 by its source. That
// they are asked rightly is seen by TestProtocolsExchangeRoutes.
func TestAnswers(t *testing.T) {
	neighbour := func(protocol, state string) model.Known {
		return model.Known{What: model.KnownNeighbour, Protocol: protocol, State: state}
	}
	route := func(protocol, prefix string) model.Known {
		return model.Known{What: model.KnownRoute, Protocol: protocol, Prefix: netip.MustParsePrefix(prefix)}
	}
	not := func(l *model.Look) { l.Not = true }
	anyone := func(l *model.Look) { l.Peer = nil }
	over := func(f model.Family) func(*model.Look) { return func(l *model.Look) { l.Family = f } }
	const (
		ospf84 = `{"neighbors":{"10.255.0.2":[{"priority":1,"state":"Full\/DR","nbrState":"Full\/DR","converged":"Full",
"address":"10.0.0.2","ifaceAddress":"10.0.0.2","ifaceName":"r2:10.0.0.1"}],
"10.255.0.3":[{"state":"Init\/-","nbrState":"Init\/-","converged":"Init","address":"10.0.0.6","ifaceName":"r3:10.0.0.5"}]}}`
		ospf103 = `{"neighbors":{"10.9.9.9":[{"nbrState":"Init\/-","nbrPriority":1,"converged":"Init","role":"DROther",
"ifaceAddress":"10.7.0.2","ifaceName":"r2:10.7.0.1"}]}}`
		ospf6 = `{"neighbors":[{"neighborId":"10.255.0.2","state":"Twoway","interfaceName":"lan"},
{"neighborId":"10.255.0.2","state":"Full","interfaceName":"r2"}]}`
		isis = `{"areas":[{"area":"polyplane","circuits":[{"circuit":0},{"circuit":0,"adj":"r2","interface":"lan",
"level":2,"state":"Up"},{"circuit":0,"adj":"0102.5500.0003","interface":"lan","state":"Initializing"}]}]}`
		summary = `{"ipv4Unicast":{"peers":{"10.0.0.2":{"state":"Active","peerState":"OK"},"10.9.0.1":{"state":"Established"}}},
"ipv6Unicast":{"peers":{"2001:db8::2":{"state":"Established","idType":"ipv6"}}},"l2VpnEvpn":"none"}`
		unnumbered = `{"ipv4Unicast":{"peers":{"r2":{"state":"Established","idType":"interface"}}},
"ipv6Unicast":{"peers":{"r2":{"state":"Established","idType":"interface"}}}}`
		zebra = `{"10.1.0.0/16":[{"prefix":"10.1.0.0/16","protocol":"ospf","nexthops":[{"ip":"10.0.0.2","interfaceName":"r2",
"fib":true},{"ip":"10.0.0.6","interfaceName":"r3"}]},{"prefix":"10.1.0.0/16","protocol":"static","nexthops":[{"ip":"10.9.0.1"}]}]}`
		bgp = `{"prefix":"10.1.0.0/16","paths":[{"valid":true,"multipath":true,"bestpath":{"overall":true},
"nexthops":[{"ip":"10.0.0.2","used":true}],"peer":{"peerId":"10.0.0.2"}},{"valid":true,"multipath":true,
"nexthops":[{"ip":"10.0.0.6"}],"peer":{"peerId":"10.0.0.6"}},{"valid":true,"nexthops":[{"ip":"10.0.0.10"}]}]}`
		overInterface = `{"prefix":"10.1.0.0/16","paths":[{"valid":true,"bestpath":{"overall":true},"nexthops":[{"ip":"::",
"scope":"global"},{"ip":"fe80::2","scope":"link-local","used":true}],"peer":{"peerId":"fe80::2","interface":"r2"}}]}`
		birdHead = "BIRD 2.0.12 ready.\nAccess restricted\n"
		birdOSPF = birdHead + `ospfv2:
Router ID   	Pri	     State     	DTime	Interface  Router IP
10.255.0.2  	  1	Full/PtP  	11.048	r2         10.0.0.2

ospfv3:
Router ID   	Pri	     State     	DTime	Interface  Router IP
10.255.0.2  	  1	ExStart/PtP  	11.293	r2         fe80::2
`
		birdBGP = birdHead + `Name       Proto      Table      State  Since         Info
device1    Device     ---        up     16:25:33.139

bgp1       BGP        ---        up     16:25:54.666  Established
  Description:    r2
  BGP state:          Established
    Neighbor address: 10.0.0.2
    Neighbor AS:      65002
  Channel ipv4
    State:          UP

bgp2       BGP        ---        start  16:25:54.666  Active        Socket: Connection refused
  BGP state:          Active
    Neighbor address: fe80::2%r2
`
		birdRoutes = birdHead + "Table master4:\n" +
			"10.1.0.0/16          unicast [bgp1 16:25:55.933] * (100) [AS65001i]\n\tvia 10.0.0.2 on r2\n" +
			"\tBGP.next_hop: 10.0.0.2 fe80::2\n" +
			"                     unicast [bgp3 16:25:55.934] (100) [AS65001i]\n\tvia 10.0.0.6 on r3 weight 1\n"
	)
	for name, c := range map[string]struct {
		software model.Software
		known    model.Known
		change   func(*model.Look)
		said     []Output
		want     model.LookAnswer
	}{
		"ospf":             {"frr", neighbour("ospf", "full"), nil, []Output{{ospf84, 0}}, model.LookAnswer{So: true}},
		"ospf must not be": {"frr", neighbour("ospf", "full"), not, []Output{{ospf84, 0}}, model.LookAnswer{Seen: "Full"}},
		"ospf of another router ID": {"frr", neighbour("ospf", "full"), nil, []Output{{ospf103, 0}},
			model.LookAnswer{Seen: "Init"}},
		"ospf nobody": {"frr", neighbour("ospf", "full"), nil, []Output{{`{"neighbors":{}}`, 0}}, model.LookAnswer{}},
		"ospf nobody, and it must be so": {"frr", neighbour("ospf", "full"), not, []Output{{`{}`, 0}},
			model.LookAnswer{So: true}},
		"ospf6, two links, one not": {"frr", neighbour("ospf6", "full"), nil, []Output{{ospf6, 0}},
			model.LookAnswer{Seen: "2-Way at lan"}},
		"isis": {"frr", neighbour("isis", "up"), nil, []Output{{isis, 0}}, model.LookAnswer{So: true}},
		"isis by its number": {"frr", neighbour("isis", "up"), func(l *model.Look) {
			l.Peer = &model.LookedFor{Name: "r3", RouterID: netip.MustParseAddr("10.255.0.3")}
		}, []Output{{isis, 0}}, model.LookAnswer{Seen: "Initializing"}},
		"bgp of both families": {"frr", neighbour("bgp", "established"), nil, []Output{{summary, 0}},
			model.LookAnswer{Seen: "Active at 10.0.0.2"}},
		"bgp over ipv6": {"frr", neighbour("bgp", "established"), over(model.IPv6), []Output{{summary, 0}},
			model.LookAnswer{So: true}},
		"bgp unnumbered": {"frr", neighbour("bgp", "established"), nil, []Output{{unnumbered, 0}},
			model.LookAnswer{So: true}},
		"a daemon that is not there": {"frr", neighbour("bgp", "established"), not,
			[]Output{{"bgpd is not running\n", 1}},
			model.LookAnswer{Error: "vtysh ended with status 1: bgpd is not running"}},
		"no JSON": {"frr", neighbour("bgp", "established"), not, []Output{{"\x1b[31mgotcha\n", 0}},
			model.LookAnswer{Error: "what vtysh answers is not understood: [31mgotcha"}},
		"nothing": {"frr", route("ospf", "10.1.0.0/16"), not, []Output{{"", 0}},
			model.LookAnswer{Error: "vtysh answers nothing"}},
		"other JSON": {"frr", route("ospf", "10.1.0.0/16"), not, []Output{{`[{"10.1.0.0/16":7}]`, 0}},
			model.LookAnswer{Error: `what vtysh answers is not understood: [{"10.1.0.0/16":7}]`}},
		"ospf route": {"frr", route("ospf", "10.1.0.0/16"), nil, []Output{{zebra, 0}},
			model.LookAnswer{So: true, Seen: "via 10.0.0.2 on r2, via 10.0.0.6 on r3"}},
		"route of another protocol": {"frr", route("isis", "10.1.0.0/16"), anyone, []Output{{zebra, 0}}, model.LookAnswer{}},
		"ospf route that must not be there": {"frr", route("ospf", "10.1.0.0/16"), func(l *model.Look) { not(l); anyone(l) },
			[]Output{{zebra, 0}}, model.LookAnswer{Seen: "via 10.0.0.2 on r2, via 10.0.0.6 on r3"}},
		"bgp route, second of two paths": {"frr", model.Known{What: model.KnownRoute, Protocol: "bgp",
			Prefix: netip.MustParsePrefix("10.1.0.0/16"), Via: netip.MustParseAddr("10.0.0.6")}, anyone,
			[]Output{{bgp, 0}}, model.LookAnswer{So: true, Seen: "via 10.0.0.2, via 10.0.0.6"}},
		"bgp route by a path that is not used": {"frr", model.Known{What: model.KnownRoute, Protocol: "bgp",
			Prefix: netip.MustParsePrefix("10.1.0.0/16"), Via: netip.MustParseAddr("10.0.0.10")}, anyone,
			[]Output{{bgp, 0}}, model.LookAnswer{Seen: "via 10.0.0.2, via 10.0.0.6"}},
		"bgp route over an interface": {"frr", route("bgp", "10.1.0.0/16"), nil, []Output{{overInterface, 0}},
			model.LookAnswer{So: true, Seen: "via fe80::2 on r2"}},
		"BIRD's ospf": {"bird", neighbour("ospf", "full"), nil, []Output{{birdOSPF, 0}}, model.LookAnswer{So: true}},
		"BIRD's ospf6": {"bird", neighbour("ospf6", "full"), nil, []Output{{birdOSPF, 0}},
			model.LookAnswer{Seen: "ExStart"}},
		"BIRD's bgp": {"bird", neighbour("bgp", "established"), nil, []Output{{birdBGP, 0}},
			model.LookAnswer{Seen: "Active at fe80::2"}},
		"BIRD's bgp over ipv4": {"bird", neighbour("bgp", "established"), over(model.IPv4), []Output{{birdBGP, 0}},
			model.LookAnswer{So: true}},
		"BIRD's bgp route": {"bird", route("bgp", "10.1.0.0/16"), nil, []Output{{birdRoutes, 0}, {"", 0}},
			model.LookAnswer{So: true, Seen: "via 10.0.0.2 on r2, via 10.0.0.6 on r3"}},
		"BIRD's bgp route, reflected": {"bird", route("bgp", "10.1.0.0/16"), nil, []Output{{birdHead + "Table master4:\n" +
			"10.1.0.0/16          unicast [bgp1 16:25:55.933 from 10.0.9.1] * (100/20) [i]\n\tvia 10.0.9.1 on rr\n" +
			"\tType: BGP univ\n\tBGP.origin: IGP\n\tBGP.next_hop: 10.0.0.2\n", 0}},
			model.LookAnswer{So: true, Seen: "via 10.0.0.2"}},
		"BIRD's bgp route, with a configuration of its own": {"bird", route("bgp", "10.1.0.0/16"), nil,
			[]Output{{birdHead + "syntax error, unexpected CF_SYM_UNDEFINED\n", 1}, {birdRoutes, 0}},
			model.LookAnswer{So: true, Seen: "via 10.0.0.2 on r2, via 10.0.0.6 on r3"}},
		"BIRD has no such route": {"bird", route("rip", "10.1.0.0/16"), nil,
			[]Output{{birdHead + "Network not found\n", 1}}, model.LookAnswer{}},
		"BIRD has no such protocol": {"bird", neighbour("ospf", "full"), not,
			[]Output{{birdHead + "There is no OSPF protocol running\n", 1}},
			model.LookAnswer{Error: "birdc ended with status 1: There is no OSPF protocol running"}},
	} {
		t.Run(name, func(t *testing.T) {
			look := lookFor(t, c.software, c.known, c.change)
			if got := Answer(c.software, &look, c.said); got != c.want {
				t.Errorf("the answer is %+v, want %+v", got, c.want)
			}
		})
	}
}

// awaitKnown waits until the router says, by the commands of Asking, that the far one is its neighbour and that routes to
// those addresses lead by it, and by nobody else.
func (r *running) awaitKnown(t *testing.T, far model.ResolvedElement, to []netip.Prefix) {
	t.Helper()
	peer := &model.LookedFor{Name: far.Name, RouterID: far.RouterID}
	for _, p := range far.Loopback {
		peer.Addresses = append(peer.Addresses, p.Addr())
	}
	for _, f := range far.Interfaces {
		for _, a := range f.Addresses {
			peer.Addresses = append(peer.Addresses, a.Addr())
		}
	}
	for _, f := range r.el.Interfaces {
		if f.Far.Element == far.Name {
			peer.Devices = append(peer.Devices, f.LinuxName())
		}
	}
	var looks []model.Look
	for _, protocol := range r.el.Routing.Protocols() {
		if states := model.NeighbourStates[protocol]; states != nil {
			looks = append(looks, model.Look{Peer: peer, Known: model.Known{What: model.KnownNeighbour,
				Protocol: protocol, State: states[0]}})
		}
		for _, p := range to {
			look := model.Look{Peer: peer, Known: model.Known{What: model.KnownRoute, Protocol: protocol, Prefix: p.Masked()}}
			if look.Known.Problem() == "" { // else the protocol does not carry that family
				other := look
				other.Not, other.Peer = true, &model.LookedFor{Name: "r9", RouterID: netip.MustParseAddr("10.255.0.9")}
				nowhere := model.Look{Not: true, Known: look.Known}
				nowhere.Prefix = netip.MustParsePrefix("192.0.2.0/24")
				if p.Addr().Is6() {
					nowhere.Prefix = netip.MustParsePrefix("2001:db8:ffff::/48")
				}
				looks = append(looks, look, other, nowhere)
			}
		}
	}
	if len(looks) < 3*len(to)/2 {
		t.Fatalf("%s is asked only %d questions", r.el.Name, len(looks))
	}
	for _, look := range looks {
		r.awaitKnownBy(t, look)
	}
}

// awaitKnownBy waits until the router's answer to one question is as it shall be.
func (r *running) awaitKnownBy(t *testing.T, look model.Look) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		answer := r.know(t, look)
		if answer.So {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s, asked for %+v, answers %+v", r.el.Name, look.Known, answer)
		}
	}
}

// know is the router's answer to one question.
func (r *running) know(t *testing.T, look model.Look) model.LookAnswer {
	t.Helper()
	commands, err := Asking(r.el.Software, &look)
	if err != nil {
		t.Fatal(err)
	}
	var out []Output
	for _, c := range commands {
		text, err := r.exec(c...)
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		one := Output{Text: text}
		if exit != nil {
			one.Status = exit.ExitCode()
		}
		out = append(out, one)
	}
	answer := Answer(r.el.Software, &look, out)
	if answer.Error != "" {
		t.Logf("%s: %+v", r.el.Name, out)
	}
	return answer
}

// TestHostileAnswers: whatever an element's root has his programs say, what is told of it is short and printable.
func TestHostileAnswers(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, text := range []string{
		`{"neighbors":{"10.255.0.2":[{"converged":"\u001b]0;` + long + `"}]}}`,
		`{"neighbors":{"10.255.0.2":[` + strings.Repeat(`{"converged":"a\n","address":"10.0.0.2"},`, 1000) + `{}]}}`,
		strings.Repeat("[", 1<<20), long,
	} {
		look := lookFor(t, model.SoftwareFRR, model.Known{What: model.KnownNeighbour, Protocol: "ospf", State: "full"}, nil)
		got := Answer(model.SoftwareFRR, &look, []Output{{text, 0}})
		if said := got.Seen + got.Error; got.So || len(said) > 400 || strings.ContainsAny(said, "\n\x1b") {
			t.Errorf("%.40q… is told as %.600q", text, said)
		}
	}
}
