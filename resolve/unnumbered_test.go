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
