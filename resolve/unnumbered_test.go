package resolve

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// Ends of links with addressing: none have what their elements state, and nothing else; all others are numbered as if
// these links were not there, also on the same switch.
func TestUnnumberedLinks(t *testing.T) {
	net := build("r1", "r2", "h1", "h2", "h3", "s", "r1-r2", "r1-h1", "h2-s", "h3-s", "r2-s")
	link := func(name string) *model.Link {
		for i := range net.Links {
			if net.Links[i].Name == name {
				return &net.Links[i]
			}
		}
		t.Fatalf("no link %s", name)
		return nil
	}
	link("r1--h1").Addressing, link("h3--s").Addressing = model.AddressingNone, model.AddressingNone
	addresses := func() string {
		got, as := resolve(t, net, model.Assigned{})
		var all []string
		for _, e := range got.Elements {
			for _, f := range e.Interfaces {
				if e.Kind != model.Switch {
					all = append(all, fmt.Sprintf("%s:%s%v", e.Name, f.Name, f.Addresses))
				}
			}
			if e.Kind == model.Host && len(e.Gateways) > 0 != (e.Name == "h2") {
				t.Errorf("%s has the gateways %v", e.Name, e.Gateways)
			}
		}
		if p := as.Links["r1--h1"].Prefixes; len(p) > 0 {
			t.Errorf("r1--h1 was assigned %v", p)
		}
		return strings.Join(all, " ")
	}
	if got, want := addresses(), "r1:r2[10.0.1.1/30] r1:h1[] r2:r1[10.0.1.2/30] r2:s[10.0.0.1/24] h1:r1[] "+
		"h2:s[10.0.0.2/24] h3:s[]"; got != want {
		t.Errorf("addresses are\n%s, want\n%s", got, want)
	}
	for i := range net.Elements {
		if net.Elements[i].Name == "h1" {
			net.Elements[i].Interfaces = []model.Interface{{Name: "r1",
				Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")}}}
		}
	}
	if got := addresses(); !strings.Contains(got, "r1:h1[] ") || !strings.Contains(got, "h1:r1[192.0.2.2/24]") {
		t.Errorf("with a stated address they are %s", got)
	}
}

func TestUnnumberedLinksAreRefused(t *testing.T) {
	for want, change := range map[string]func(*model.Network){
		"ospf has no address to speak from: its links have addressing: none": func(n *model.Network) {
			n.Elements[0].Routing.OSPF = &model.OSPF{}
		},
		"bgp has no address to speak from": func(n *model.Network) { n.Elements[0].Routing.BGP = &model.BGP{AS: 1} },
		"ospf has no address to speak from: its links have addressing: none, or need none for BGP": func(n *model.Network) {
			for i := range 2 {
				n.Elements[i].Routing = model.Routing{OSPF: &model.OSPF{}, BGP: &model.BGP{AS: 1, Unnumbered: true}}
			}
			n.Links[1].Addressing = ""
		},
		"expect: r2 has no address by which it could be reached": func(n *model.Network) {
			n.Expect = []model.Expectation{{From: "r2", To: "h1"}}
		},
		"the gateway 10.9.9.9 is on none of its subnets (it has none)": func(n *model.Network) {
			n.Elements[2].Gateways = []netip.Addr{netip.MustParseAddr("10.9.9.9")}
		},
		"it states 10.0.0.0/30 and addressing: none": func(n *model.Network) {
			n.Links[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")}
		},
		`addressing "some" is unknown; there are auto or none`: func(n *model.Network) { n.Links[0].Addressing = "some" },
		"": func(n *model.Network) {
			n.Elements[0].Routing.OSPF = &model.OSPF{}
			n.Links[1].Addressing = model.AddressingAuto
		},
	} {
		net := build("r1", "r2", "h1", "r1-h1", "r1-r2")
		for i := range net.Links {
			net.Links[i].Addressing = model.AddressingNone
		}
		change(&net)
		document, problems := Read(net)
		if len(problems) == 0 {
			got, _, err := document.Resolve(model.Assigned{}, NewNumbers())
			if err != nil {
				t.Fatal(err)
			}
			problems = document.Check(&got)
		}
		if len(problems) == 0 != (want == "") || want != "" && !strings.Contains(problems[0].Error(), want) {
			t.Errorf("%v, want %q", problems, want)
		}
	}
}

// TestUnnumberedSessions: between two routers that say so, BGP's session is over the interface, both ways, and the link is
// given no addresses; all else is as without.
func TestUnnumberedSessions(t *testing.T) {
	type end struct{ neighbours, addresses string }
	for name, c := range map[string]struct {
		change func(*model.Network)
		want   end // of r1, at r1--r2
	}{
		"both":           {func(*model.Network) {}, end{"at r2", ""}},
		"one":            {func(n *model.Network) { n.Elements[1].Routing.BGP.Unnumbered = false }, end{"10.0.1.2", "10.0.1.1/30"}},
		"with addresses": {func(n *model.Network) { n.Links[0].Addressing = model.AddressingAuto }, end{"at r2", "10.0.1.1/30"}},
		"with a prefix": {func(n *model.Network) {
			n.Links[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/30")}
		}, end{"at r2", "192.0.2.1/30"}},
		"with one address": {func(n *model.Network) {
			n.Elements[1].Interfaces = []model.Interface{{Name: "r1", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/30")}}}
		}, end{"at r2", "192.0.2.1/30"}},
		"with a link-local address": {func(n *model.Network) {
			n.Elements[1].Interfaces = []model.Interface{{Name: "r1", Addresses: []netip.Prefix{netip.MustParsePrefix("fe80::7/64")}}}
		}, end{"at r2", ""}},
		"stated": {func(n *model.Network) {
			for i := range 2 {
				b := n.Elements[i].Routing.BGP
				b.Unnumbered, b.Neighbors = false, []model.BGPNeighbor{{Interface: n.Elements[1-i].Name, AS: uint32(65002 - i)}}
			}
		}, end{"at r2", "10.0.1.1/30"}},
		"stated, without addresses": {func(n *model.Network) {
			for i := range 2 {
				b := n.Elements[i].Routing.BGP
				b.Unnumbered, b.Neighbors = false, []model.BGPNeighbor{{Interface: n.Elements[1-i].Name, AS: uint32(65002 - i)}}
			}
			n.Links[0].Addressing = model.AddressingNone
		}, end{"at r2", ""}},
	} {
		n := build("r1", "r2", "s", "h1", "r1-r2", "r1-h1", "r2-s", "r1-s")
		n.Pools = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}
		for i := range 2 {
			n.Elements[i].Routing.BGP = &model.BGP{AS: uint32(65001 + i), Unnumbered: true}
		}
		n.Elements[0].Interfaces = []model.Interface{{Name: "r2", MAC: "02:00:5e:10:00:01"}}
		c.change(&n)
		read, problems := Read(n)
		if len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
			continue
		}
		r, _, err := read.Resolve(model.Assigned{}, NewNumbers())
		if err != nil {
			t.Fatal(err)
		}
		if problems := read.Check(&r); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		r1, r2 := element(t, r.Elements, "r1"), element(t, r.Elements, "r2")
		var got end
		for _, x := range r1.Routing.BGP.Neighbors {
			onSwitch := x.Interface == "" && netip.MustParsePrefix("10.0.0.0/24").Contains(x.Address)
			if !onSwitch {
				got.neighbours = strings.TrimSpace(got.neighbours + " " + x.Where())
			}
		}
		for _, f := range r1.Interfaces {
			for _, a := range f.Addresses {
				if f.Name == "r2" {
					got.addresses = strings.TrimSpace(got.addresses + " " + a.String())
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: r1 has %+v, want %+v", name, got, c.want)
		}
		if b := r2.Routing.BGP; c.want.neighbours == "at r2" {
			n := b.Neighbors[0]
			if want := netip.MustParseAddr("fe80::5eff:fe10:1%r1"); n.Interface != "r1" || n.Address != want || n.Name != "r1" ||
				n.AS != 65001 {
				t.Errorf("%s: r2's neighbour is %+v, want %s", name, n, want)
			}
			if peers := peersOf(t, r, "r2", "r1"); len(peers) != 1 || !strings.Contains(peers[0], "fe80::5eff:fe10:1") {
				if c.want.addresses == "" && !strings.HasPrefix(name, "stated") {
					t.Errorf("%s: r2 knows %q at the link", name, peers)
				}
			}
		}
	}
}
