package manager

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// knowing is a network of r1 and r2, which are joined, and r3 behind a switch, with what it is expected to know.
func knowing(expect ...model.Expectation) model.Network {
	n := model.Network{Name: "net", Expect: expect}
	for _, name := range []string{"r1", "r2", "r3"} {
		n.Elements = append(n.Elements, model.Element{Name: name, Kind: model.Router, Software: model.SoftwareFRR,
			Routing: model.Routing{OSPF: &model.OSPF{}, BGP: &model.BGP{AS: 65001}}})
	}
	n.Elements = append(n.Elements, model.Element{Name: "lan", Kind: model.Switch})
	for _, l := range [][2]string{{"r1", "r2"}, {"r1", "lan"}, {"lan", "r3"}} {
		n.Links = append(n.Links, model.Link{Name: l[0] + "--" + l[1], Ends: [2]model.End{{Element: l[0], Interface: l[1]},
			{Element: l[1], Interface: l[0]}}})
	}
	return n
}

func TestCheckAsksWhatRoutingKnows(t *testing.T) {
	ospf := model.Known{What: model.KnownNeighbour, Protocol: "ospf", State: "full"}
	route := model.Known{What: model.KnownRoute, Protocol: "bgp", Prefix: netip.MustParsePrefix("10.0.0.0/8")}
	kernel := model.Known{What: model.KnownRoute, Prefix: netip.MustParsePrefix("10.0.0.0/8"),
		Via: netip.MustParseAddr("192.0.2.1")}
	all := []model.Expectation{
		{From: "r1", To: "r2", Known: ospf},
		{From: "r1", To: "r3", Known: ospf, Not: true},
		{From: "r1", To: "r2", Known: route},
		{From: "r1", Known: kernel},
	}
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, knowing(all...), model.ApplyOptions{})
	a := &farNode{responders: map[model.ID]string{}}
	a.serve(t, f, "n1")
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name    string
		answers [4]model.LookAnswer
		want    [4]string // what is told; with a ! before it what is not so
	}{
		{"all well", [4]model.LookAnswer{{So: true}, {So: true}, {So: true, Seen: "via 10.0.0.2 on r2"}, {So: true, Seen: "via 192.0.2.1"}},
			[4]string{"Full", "", "via 10.0.0.2 on r2", "via 192.0.2.1"}},
		{"otherwise", [4]model.LookAnswer{{Seen: "Init"}, {Seen: "Full"}, {Seen: "via 10.0.0.6 on r3"}, {}},
			[4]string{"!r1: OSPF neighbour r2 is Init, not Full", "!r1: OSPF neighbour r3 is Full, and must not be",
				"!r1: the BGP route to 10.0.0.0/8 leads via 10.0.0.6 on r3, not via r2", "!r1 has no route to 10.0.0.0/8"}},
		{"nothing, and nothing to be seen", [4]model.LookAnswer{{}, {So: true, Error: "it is stopped"}, {},
			{Seen: "via 192.0.2.7"}},
			[4]string{"!r1 has no OSPF neighbour r2", "!r1: it is stopped", "!r1 has no BGP route to 10.0.0.0/8",
				"!r1: the route to 10.0.0.0/8 leads via 192.0.2.7, not via 192.0.2.1"}},
	} {
		a.know = func(l model.Look, _ int) model.LookAnswer {
			return c.answers[slices.IndexFunc(all, func(e model.Expectation) bool {
				return e.Known == l.Known && e.Not == l.Not && e.From == l.Element.Element
			})]
		}
		r, err := f.Check(t.Context(), "net", model.CheckRequest{})
		if err != nil || len(r.States) != len(all) {
			t.Fatalf("%s: %+v %v", c.name, r, err)
		}
		for i, want := range c.want {
			want, bad := strings.CutPrefix(want, "!")
			if s := r.States[i]; s.OK == bad || s.Message != want || s.Expected != all[i].String() {
				t.Errorf("%s: %+v, want %q", c.name, s, c.want[i])
			}
		}
	}

	// Who r2 is to r1: all its addresses, those that follow from its MACs, and what is alone behind r1's interface.
	var asked []model.Look
	a.know = func(l model.Look, round int) model.LookAnswer {
		asked = append(asked, l)
		return model.LookAnswer{Error: long}
	}
	r, err := f.Check(t.Context(), "net", model.CheckRequest{})
	if err != nil || r.OK || len(r.States[0].Message) > 2*maxToldText {
		t.Fatalf("%v, %+v", err, r.OK)
	}
	n := f.networks["net"].resolved
	peer := asked[0].Peer
	if peer.RouterID != n.Elements[1].RouterID || !peer.RouterID.Is4() || !slices.Equal(peer.Devices, []string{"r2"}) ||
		!slices.ContainsFunc(peer.Addresses, netip.Addr.IsLinkLocalUnicast) ||
		!slices.Contains(peer.Addresses, n.Elements[1].Interfaces[0].Addresses[0].Addr()) {
		t.Errorf("r2 is told as %+v", peer)
	}
	if peer := asked[1].Peer; len(peer.Devices) != 0 {
		t.Errorf("r3, behind a switch, is told as alone behind %v", peer.Devices)
	}
	if asked[3].Peer != nil {
		t.Errorf("a next hop that is an address is asked for as %+v", asked[3].Peer)
	}

	// What is not so yet is waited for.
	began := a.looked
	a.know = func(_ model.Look, round int) model.LookAnswer { return model.LookAnswer{So: round >= began+3} }
	if r, err := f.Check(t.Context(), "net", model.CheckRequest{Wait: time.Hour}); err != nil || !r.OK ||
		a.looked != began+3 {
		t.Errorf("%+v %v after %d rounds", r, err, a.looked-began)
	}
}

// TestCheckWithoutAgentKnowsNothing: least of all that something is not there. Nor does it know of what is stopped.
func TestCheckWithoutAgentKnowsNothing(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, knowing(model.Expectation{From: "r1", Not: true, Known: model.Known{What: model.KnownRoute,
		Prefix: netip.MustParsePrefix("10.0.0.0/8")}}), model.ApplyOptions{})
	r, err := f.Check(t.Context(), "net", model.CheckRequest{})
	if err != nil || r.OK || r.States[0].Message != "the agent of node n1 is away" {
		t.Errorf("%+v %v", r, err)
	}
	a := &farNode{responders: map[model.ID]string{}, know: func(model.Look, int) model.LookAnswer {
		return model.LookAnswer{So: true}
	}}
	a.serve(t, f, "n1")
	f.networks["net"].record.Overrides = map[string]model.Override{"r1": {Stopped: true}}
	r, err = f.Check(t.Context(), "net", model.CheckRequest{})
	if err != nil || r.OK || r.States[0].Message != "r1 is stopped" || a.looked != 0 {
		t.Errorf("of a stopped router: %+v %v", r, err)
	}
}

// TestCheckAsksSwitches what their spanning tree is: its root is told by name.
func TestCheckAsksSwitches(t *testing.T) {
	root := model.Known{What: model.KnownTreeRoot, Protocol: model.ProtocolSTP}
	port := model.Known{What: model.KnownTreePort, Protocol: model.ProtocolSTP, Interface: "s2", State: "blocking"}
	n := model.Network{Name: "net", Expect: []model.Expectation{{From: "s1", Known: root}, {From: "s1", To: "s2", Known: root},
		{From: "s1", Known: port}}}
	for _, name := range []string{"s1", "s2"} {
		n.Elements = append(n.Elements, model.Element{Name: name, Kind: model.Switch, STP: model.STPUsual})
	}
	n.Links = []model.Link{{Name: "s1--s2", Ends: [2]model.End{{Element: "s1", Interface: "s2"},
		{Element: "s2", Interface: "s1"}}}}
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, n, model.ApplyOptions{})
	a := &farNode{responders: map[model.ID]string{}}
	a.serve(t, f, "n1")
	tree := &model.Tree{Ports: []model.TreePort{{Interface: "s2", Role: model.TreeAlternate, State: model.TreeBlocking}}}
	a.know = func(l model.Look, _ int) model.LookAnswer { return tree.Answer(&l) }
	for name, want := range map[string][3]string{
		"s1": {"", "!s1: the root of its spanning tree is s1", "blocking (alternate)"},
		"s2": {"!s1: the root of its spanning tree is s2", "s1: the root of its spanning tree is s2", "!s1: its port s2 is listening (root)"},
		"s3": {"!s1: the root of its spanning tree is a bridge ", "!s1: the root of its spanning tree is a bridge ", "!s1: it has no port s2"},
	} {
		mac := model.BridgeMAC(model.ID{Network: "net", Element: name})
		tree.Root.MAC = net.HardwareAddr(mac[:]).String()
		switch name {
		case "s2":
			tree.Ports[0].Role, tree.Ports[0].State = model.TreeRoot, model.TreeListening
		case "s3":
			tree.Ports = nil
		default:
			tree.Ports[0].Role, tree.Ports[0].State = model.TreeAlternate, model.TreeBlocking
		}
		r, err := f.Check(t.Context(), "net", model.CheckRequest{})
		if err != nil || len(r.States) != 3 {
			t.Fatalf("%+v %v", r, err)
		}
		for i, words := range want {
			words, bad := strings.CutPrefix(words, "!")
			if s := r.States[i]; s.OK == bad || !strings.HasPrefix(s.Message, words) || words == "" && s.Message != "" {
				t.Errorf("root %s: %+v, want %q", name, s, want[i])
			}
		}
		tree.Ports = []model.TreePort{{Interface: "s2"}}
	}
}
