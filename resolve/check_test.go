package resolve

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// The API takes networks as JSON, so that what no file can say must be refused as well.
func TestValidateRefuses(t *testing.T) {
	prefix := netip.MustParsePrefix
	for want, change := range map[string]func(*model.Network){
		"the kind \"\" is unknown":            func(n *model.Network) { n.Elements[0].Kind = "" },
		"the name is empty":                   func(n *model.Network) { n.Elements[0].Name = "" },
		"is less than the 68 that IPv4 needs": func(n *model.Network) { n.Links[0].MTU = 67 },
		"loss 2 is more":                      func(n *model.Network) { n.Links[0].Loss = 2 },
		"delay -1ns is less":                  func(n *model.Network) { n.Links[0].Delay = -1 },
		"the jitter 2ns is more":              func(n *model.Network) { n.Links[0].Delay, n.Links[0].Jitter = 1, 2 },
		"bandwidth 1bit is less":              func(n *model.Network) { n.Links[0].Bandwidth = 1 },
		"another link has this name":          func(n *model.Network) { n.Links[1].Name = n.Links[0].Name },
		"both a node and a location": func(n *model.Network) {
			n.Elements[0].Node,
				n.Elements[0].Location = "a", "b"
		},
		"the interface x twice": func(n *model.Network) {
			n.Elements[0].Interfaces = []model.Interface{{Name: "x"},
				{Name: "x"}}
		},
		"no interface's MAC": func(n *model.Network) {
			n.Elements[0].Interfaces = []model.Interface{{Name: "r2", MAC: "01:00:00:00:00:01"}}
		},
		"only routers have routing": func(n *model.Network) { n.Elements[2].Routing.RIP = &model.RIP{} },
		"only routers have a " +
			"configuration": func(n *model.Network) { n.Elements[2].Config = map[string]string{"frr.conf": ""} },
		"\"../x\" is no file " +
			"name": func(n *model.Network) { n.Elements[0].Config = map[string]string{"../x": "a"} },
		"reads no file bird.conf": func(n *model.Network) {
			n.Elements[0].Software, n.Elements[0].Config = model.SoftwareFRR, map[string]string{"bird.conf": "a"}
		},
		"{file: ./r1.conf}":          func(n *model.Network) { n.Elements[0].Config = map[string]string{"frr.conf": "./r1.conf"} },
		"{file: r1.conf}":            func(n *model.Network) { n.Elements[0].Config = map[string]string{"frr.conf": " r1.conf\n"} },
		"{file: ../my lab/frr.conf}": func(n *model.Network) { n.Elements[0].Config = map[string]string{"frr.conf": "../my lab/frr.conf"} },
		"30MiB that FRR needs to start with bgp": func(n *model.Network) {
			n.Elements[0].Routing.BGP, n.Elements[0].Memory = &model.BGP{AS: 1}, 29<<20
		},
		"not UTF-8 text": func(n *model.Network) { n.Elements[0].Config = map[string]string{"frr.conf": "\xff"} },
		"two gateways of one": func(n *model.Network) {
			n.Elements[2].Gateways = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
		},
		"is blackhole, so": func(n *model.Network) {
			n.Elements[0].Routes = []model.Route{{To: prefix("10.0.0.0/8"),
				Type: model.RouteBlackhole, Interface: "r2"}}
		},
		"two routes to 0.0.0.0/0 with the same metric": func(n *model.Network) {
			n.Elements[0].Gateways = []netip.Addr{netip.MustParseAddr("fe80::1"), netip.MustParseAddr("10.0.0.2")}
			n.Elements[0].Routes = []model.Route{{To: prefix("0.0.0.0/0"),
				Via: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}}
		},
		"also the MAC address of r1:r2 on the same segment": func(n *model.Network) {
			n.Elements[0].Interfaces = []model.Interface{{Name: "r2", MAC: "02:00:00:00:00:0a"}}
			n.Elements[1].Interfaces = []model.Interface{{Name: "r1", MAC: "02:00:00:00:00:0A"}}
		},
		"bandwidth 1bit is less than the 8kbit": func(n *model.Network) { n.Slice.Bandwidth = 1 },
		"needs a next hop":                      func(n *model.Network) { n.Elements[0].Routes = []model.Route{{To: prefix("10.0.0.0/8")}} },
		"has the IPv6 next hop": func(n *model.Network) {
			n.Elements[0].Routes = []model.Route{{To: prefix("10.0.0.0/8"),
				Via: []netip.Addr{netip.MustParseAddr("fe80::1")}}}
		},
		"its prefix is 10.0.0.0/8": func(n *model.Network) {
			n.Elements[0].Routes = []model.Route{{To: prefix("10.0.0.1/8"), Interface: "r2"}}
		},
		"smaller than the /30": func(n *model.Network) { n.Pools = []netip.Prefix{prefix("10.0.0.0/31")} },
		"overlaps another": func(n *model.Network) {
			n.Pools = []netip.Prefix{prefix("10.0.0.0/8"),
				prefix("10.1.0.0/16")}
		},
		"there are shared or strict": func(n *model.Network) { n.Slice.Mode = "greedy" },
		"the router ID 2001:db8::1":  func(n *model.Network) { n.Elements[0].RouterID = netip.MustParseAddr("2001:db8::1") },
		"has the router ID 1.2.3.4 as well": func(n *model.Network) {
			n.Elements[0].RouterID = netip.MustParseAddr("1.2.3.4")
			n.Elements[1].RouterID = n.Elements[0].RouterID
		},
		"no IS-IS area": func(n *model.Network) { n.Elements[0].Routing.ISIS = &model.ISIS{Area: "49.1"} },
		"cannot redistribute " +
			"\"rip\"": func(n *model.Network) { n.Elements[0].Routing.RIP = &model.RIP{Redistribute: []string{"rip"}} },
		"always reaches itself": func(n *model.Network) {
			n.Expect = []model.Expectation{{From: "h1",
				To: "h1"}}
		},
		"the address family \"ipx\"": func(n *model.Network) {
			n.Expect = []model.Expectation{{From: "h1",
				To: "r1", Family: "ipx"}}
		},
		"already the end of link r1--r2": func(n *model.Network) {
			n.Edges = []model.Edge{{Name: "e", End: model.End{Element: "r1", Interface: "r2"}, Device: "eth0"}}
		},
		"already has this device": func(n *model.Network) {
			n.Edges = []model.Edge{{Name: "e", End: model.End{Element: "r1", Interface: "e"}, Device: "eth0"},
				{Name: "f", End: model.End{Element: "r1", Interface: "f"}, Device: "eth0"}}
		},
		"copies go to a host": func(n *model.Network) {
			n.Edges = []model.Edge{{Name: "m", End: model.End{Element: "r2", Interface: "m"},
				Mirror: &model.Mirror{Link: "r1--r2"}}}
		},
		"there is no link r1--r9; there are r1--r2, r2--h1": func(n *model.Network) {
			n.Edges = []model.Edge{{Name: "m", End: model.End{Element: "h1", Interface: "m"},
				Mirror: &model.Mirror{Link: "r1--r9"}}}
		},
		"a link has one mirror": func(n *model.Network) {
			n.Edges = []model.Edge{{Name: "m", End: model.End{Element: "h1", Interface: "m"},
				Mirror: &model.Mirror{Link: "r1--r2"}}, {Name: "o", End: model.End{Element: "h1", Interface: "o"},
				Mirror: &model.Mirror{Link: "r1--r2"}}}
		},
		"the 8kbit that a mirror needs": func(n *model.Network) {
			n.Edges = []model.Edge{{Name: "m", End: model.End{Element: "h1", Interface: "m"},
				Mirror: &model.Mirror{Link: "r1--r2", Bandwidth: 7}}}
		},
		"it is a mirror and leads out": func(n *model.Network) {
			n.Edges = []model.Edge{{Name: "m", End: model.End{Element: "h1", Interface: "m"}, Device: "eth1",
				Mirror: &model.Mirror{Link: "r1--r2"}}}
		},
		"one of them is a trunk": func(n *model.Network) {
			n.Edges = []model.Edge{{Name: "e", End: model.End{Element: "r1", Interface: "e"}, Device: "eth0",
				Trunk: true}, {Name: "f", End: model.End{Element: "r1", Interface: "f"}, Device: "eth0", VLAN: 5}}
		},
		"a device, VLAN or trunk and internet": func(n *model.Network) {
			n.Edges = []model.Edge{{Name: "e", End: model.End{Element: "r1", Interface: "e"},
				Internet: &model.Internet{}, Trunk: true}}
		},
		"that of link": func(n *model.Network) {
			n.Elements = append(n.Elements, model.Element{Name: "s1", Kind: model.Switch})
			n.Links = append(n.Links,
				model.Link{Name: "a", Ends: [2]model.End{{Element: "h1", Interface: "a"},
					{Element: "s1", Interface: "a"}}, MTU: 9000}, model.Link{Name: "b", Ends: [2]model.End{{Element: "r1", Interface: "b"}, {Element: "s1", Interface: "b"}}})
		},
	} {
		n := build("r1", "r2", "h1", "r1-r2", "r2-h1")
		if _, problems := Read(n); len(problems) > 0 {
			t.Fatalf("the network is invalid before any change: %v", problems)
		}
		change(&n)
		var all []string
		for _, p := range problemsOf(n) {
			all = append(all, p.Error())
		}
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("want a problem with %q, there are %q", want, all)
		}
	}
}

// All problems are told at once, each with its object.
func TestValidateTellsAll(t *testing.T) {
	n := build("r1", "r2", "r1-r2", "r1-r9")
	n.Elements[1].CPU = 1
	n.Links[0].MTU = 1
	n.Slice.Mode = "x"
	got := map[string]bool{}
	for _, p := range problemsOf(n) {
		got[string(p.About)+" "+p.Name+" "+p.Field] = true
	}
	for _, want := range []string{"network net slice/mode", "element r2 cpu", "link r1--r2 mtu", "link r1--r9 ends"} {
		if !got[want] {
			t.Errorf("%s is not told: %v", want, got)
		}
	}
}

// FuzzRead: a network from anywhere gives problems, or resolves; nothing panics.
func FuzzRead(f *testing.F) {
	for _, n := range []model.Network{build("r1", "r2", "r1-r2"),
		build("r1", "h1", "s1", "r1-s1=10.0.0.0/24,2001:db8::/64", "h1-s1")} {
		data, err := json.Marshal(complete(n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var n model.Network
		if json.Unmarshal(data, &n) != nil {
			return
		}
		_, problems := Read(n)
		_, as, err := resolveAs(n, model.Assigned{}, NewNumbers())
		if len(problems) > 0 || err != nil {
			return
		}
		if len(as.Links) != len(n.Links) {
			t.Errorf("%d links, %d assigned", len(n.Links), len(as.Links))
		}
	})
}
