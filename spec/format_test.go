package spec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// Parse(Format(n)) is n, for networks that say all kinds of things.
func TestFormatRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		net := drawNetwork(t)
		if _, problems := resolve.Read(net); len(problems) > 0 {
			t.Fatalf("the drawn network is invalid: %v", problems)
		}
		checkRoundTrip(t, net)
	})
}

func maybe(t *rapid.T, what string) bool { return rapid.Bool().Draw(t, what) }

var awkwardNames = []string{"1", "1.5", "null", "true", "no", "0x1f", "1e3", "2001-01-01", "r1.2",
	"a-b", "A", "file", "r_1"}

func drawNetwork(t *rapid.T) model.Network {
	names := slices.Clone(awkwardNames)
	for i := range 12 {
		names = append(names, fmt.Sprintf("e%d", i))
	}
	names = rapid.Permutation(names).Draw(t, "names")
	net := model.Network{Name: rapid.SampledFrom([]string{"lab", "7", "null"}).Draw(t, "name")}
	if maybe(t, "pools") {
		net.Pools = []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("fd01::/40")}
	}
	if maybe(t, "slice") {
		net.Slice = model.Slice{CPU: 64000,
			Bandwidth: model.Bandwidth(rapid.Uint64Range(8000, 1e12).Draw(t, "slice bandwidth")),
			Packets:   rapid.IntRange(100, 1e9).Draw(t, "slice packets"), Mode: "shared",
			Tables:   model.Bytes(rapid.IntRange(64<<10, 200<<20).Draw(t, "slice tables")),
			NextHops: rapid.IntRange(64, 50_000).Draw(t, "slice nexthops"),
			Punts:    rapid.IntRange(100, 1e9).Draw(t, "slice punts")}
	}
	if maybe(t, "policy") {
		net.Attack = rapid.SampledFrom(model.AttackPolicies).Draw(t, "network's policy")
	}
	uniform := maybe(t, "uniform")
	var routing model.Routing
	for i, kind := range []model.Kind{model.Router, model.Host, model.Switch} {
		for _, name := range names[i*6 : i*6+rapid.IntRange(0, 6).Draw(t, "count")] {
			e := model.Element{Name: name, Kind: kind}
			if maybe(t, "policy") {
				e.Attack = rapid.SampledFrom(model.AttackPolicies).Draw(t, "element's policy")
			}
			if maybe(t, "amounts") || uniform {
				e.CPU, e.Memory = 250, 64<<20
			}
			if kind == model.Router {
				if !uniform || i == 0 && routing == (model.Routing{}) {
					routing = drawRouting(t)
				}
				e.Routing = routing
				drawRouter(t, &e, len(net.Elements))
				if maybe(t, "hook") {
					e.Hook = rapid.SampledFrom(model.Hooks).Draw(t, "hook")
				}
			}
			if kind != model.Switch && maybe(t, "service") {
				e.Service = drawService(t)
			}
			if kind == model.Switch && maybe(t, "openflow") {
				e.Forwarding = model.ForwardOpenFlow
			} else if kind == model.Switch && maybe(t, "stp") {
				e.STP = rapid.SampledFrom([]model.STP{model.STPUsual, "0", "4096"}).Draw(t, "stp")
			}
			net.Elements = append(net.Elements, e)
		}
	}
	drawLinks(t, &net)
	return read(net).Network()
}

func drawRouting(t *rapid.T) (r model.Routing) {
	if maybe(t, "ospf") {
		r.OSPF = &model.OSPF{Cost: rapid.IntRange(0, 65535).Draw(t, "cost")}
		if maybe(t, "area") {
			r.OSPF.Area, r.OSPF.Redistribute = "0.0.0.1", []string{"bgp", "static"}
		}
	}
	if maybe(t, "ospf6") {
		r.OSPF6 = &model.OSPF{}
	}
	const s = model.Duration(time.Second)
	span := rapid.SampledFrom([]model.Duration{0, 6 * s, 9 * s, 5400 * s})
	if r.OSPF != nil && maybe(t, "ospf timers") {
		r.OSPF.Hello, r.OSPF.Dead = span.Draw(t, "hello"), rapid.SampledFrom([]model.Duration{0, 5401 * s}).Draw(t, "dead")
	}
	if maybe(t, "isis") {
		r.ISIS = &model.ISIS{Area: rapid.SampledFrom([]string{"", "49.0010", "49"}).Draw(t, "isis area"),
			Level: rapid.IntRange(0, 2).Draw(t, "level")}
		if maybe(t, "isis timers") {
			r.ISIS.Hello, r.ISIS.Hold = 3*s, rapid.SampledFrom([]model.Duration{0, 30 * s}).Draw(t, "isis hold")
		}
	}
	if maybe(t, "rip") {
		r.RIP = &model.RIP{RIPTimers: model.RIPTimers{Update: span.Draw(t, "update")}}
	}
	if maybe(t, "bgp") {
		r.BGP = &model.BGP{AS: rapid.Uint32Min(1).Draw(t, "as")}
		if maybe(t, "bgp more") {
			r.BGP.Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"),
				netip.MustParsePrefix("2001:db8::/32")}
			r.BGP.Keepalive, r.BGP.Hold = 7*s, rapid.SampledFrom([]model.Duration{0, 21 * s}).Draw(t, "hold")
			r.BGP.Neighbors = []model.BGPNeighbor{{Address: netip.MustParseAddr("::1:2"), AS: 3, Name: "a b: c"},
				{Address: netip.MustParseAddr("192.0.2.9"), AS: r.BGP.AS, Client: true}}
			r.BGP.Reflector = true
		} else if maybe(t, "unnumbered") {
			r.BGP.Unnumbered = true
		}
		if maybe(t, "policies") {
			n := rapid.Uint32().Draw(t, "med")
			r.BGP.PrefixLists = map[string][]string{"a": {"10.1.0.0/16 le 24", "::/0"}, "b.c": {"10.0.0.0/8 ge 16 le 24"}}
			r.BGP.Policies = map[string][]model.BGPRule{"p-1": {
				{Match: model.BGPMatch{Prefixes: "a", Community: []string{"65001:80", "no-export"}}, Deny: true},
				{Match: model.BGPMatch{Community: []string{"1:2"}}, Set: model.BGPSet{MED: &n, LocalPreference: new(uint32),
					Prepend: rapid.IntRange(0, 10).Draw(t, "prepend"), AddCommunity: []string{"1:1"}, DeleteCommunity: []string{"1:2"}}},
				{Set: model.BGPSet{Community: []string{"none"}}}}, "q": {{}}}
			if len(r.BGP.Neighbors) > 0 {
				r.BGP.Neighbors[0].In, r.BGP.Neighbors[1].Out = "p-1", "q"
			}
		}
	}
	return r
}

func drawRouter(t *rapid.T, e *model.Element, i int) {
	if !e.Routing.Any() {
		e.Software = rapid.SampledFrom([]model.Software{"", model.SoftwareNone, model.SoftwareFRR}).Draw(t, "software")
	} else if e.Routing.ISIS == nil && maybe(t, "bird") {
		e.Software = model.SoftwareBIRD
	}
	if e.Software == "" || e.Software == model.SoftwareFRR {
		if maybe(t, "routes") {
			e.Routes = []model.Route{{To: netip.MustParsePrefix("10.9.0.0/16"), Type: model.RouteBlackhole, Metric: 5},
				{To: netip.MustParsePrefix("::/0"), Via: []netip.Addr{netip.MustParseAddr("fe80::1"),
					netip.MustParseAddr("fe80::2")}}}
		}
	}
	if maybe(t, "mpls") && (e.Forwarding == "" || e.Forwarding == model.ForwardGuest) {
		e.MPLS = []model.LSP{{In: rapid.IntRange(model.MinLabel, model.MaxLabel).Draw(t, "label")}}
	}
	if len(e.MPLS) == 0 && (e.Software == "" || e.Software == model.SoftwareFRR) && (e.Forwarding == "" || e.Forwarding == model.ForwardGuest) &&
		maybe(t, "vrfs") {
		e.VRFs = map[string]model.VRF{"red": {}, "b-2": {RouterID: netip.MustParseAddr("10.0.0.1"),
			Routes: []model.Route{{To: netip.MustParsePrefix("10.9.0.0/16"), Type: model.RouteBlackhole}}}}
		if maybe(t, "vrf ospf") {
			e.Software = model.SoftwareFRR
			e.VRFs["red"] = model.VRF{OSPF: &model.OSPF{Cost: 7}, OSPF6: &model.OSPF{}}
		}
	}
	if maybe(t, "id") {
		e.RouterID = netip.AddrFrom4([4]byte{10, 255, 1, byte(i)})
		e.Loopback = []netip.Prefix{netip.PrefixFrom(e.RouterID, 32)}
	}
	if (e.Software == model.SoftwareFRR || e.Software == model.SoftwareBIRD || e.Software == "" && e.Routing.Any()) &&
		maybe(t, "config") {
		e.Config = map[string]string{}
		if e.Software == "" {
			e.Software = model.SoftwareFRR
		}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(model.ConfigFiles(e.Software)), 1, -1,
			rapid.ID).Draw(t, "files") {
			e.Config[name] = rapid.OneOf(rapid.StringMatching(`[^\x00]*`),
				rapid.Map(rapid.SliceOf(rapid.SampledFrom([]string{"router ospf", " area 0", "!", "",
					"\tneighbor: {x}", "# c", "a: b "})),
					func(lines []string) string { return strings.Join(lines, "\n") + "\n" })).Draw(t, "text")
			if text := strings.TrimSpace(e.Config[name]); strings.ContainsAny(text, "./") &&
				!strings.ContainsAny(text, "\n{};#!") {
				e.Config[name] += "#" // it would be a path
			}
		}
	}
}

func drawLinks(t *rapid.T, net *model.Network) {
	if len(net.Elements) < 2 {
		return
	}
	interfaces := map[model.End]bool{}
	filters := map[string]bool{} // switches that have VLANs
	var rated model.Link
	for i := range rapid.IntRange(0, 12).Draw(t, "links") {
		a := rapid.IntRange(0, len(net.Elements)-1).Draw(t, "a")
		b := rapid.IntRange(0, len(net.Elements)-1).Draw(t, "b")
		ea, eb := &net.Elements[a], &net.Elements[b]
		if a == b || ea.Kind == model.Switch && eb.Kind == model.Switch {
			continue
		}
		l := model.Link{Name: ea.Name + "--" + eb.Name, Ends: [2]model.End{{Element: ea.Name, Interface: eb.Name},
			{Element: eb.Name, Interface: ea.Name}}}
		if interfaces[l.Ends[0]] || interfaces[l.Ends[1]] || maybe(t, "named") {
			l.Name = fmt.Sprintf("link%d", i)
			l.Ends[0].Interface, l.Ends[1].Interface = fmt.Sprintf("ge-0/0/%d", i), fmt.Sprintf("%d", i)
			if slices.Contains(awkwardNames, l.Ends[1].Interface) {
				l.Ends[1].Interface = "x:1"
			}
		}
		if interfaces[l.Ends[0]] || interfaces[l.Ends[1]] {
			continue
		}
		interfaces[l.Ends[0]], interfaces[l.Ends[1]] = true, true
		if rated.Bandwidth == 0 || maybe(t, "rates") {
			rated = model.Link{Bandwidth: model.Bandwidth(rapid.Uint64Range(8000, 1e12).Draw(t, "bandwidth")),
				Delay: model.Duration(rapid.Int64Range(1, 1e9).Draw(t, "delay")),
				Loss:  rapid.Float64Range(0, 1).Draw(t, "loss")}
		}
		l.Bandwidth, l.Delay, l.Loss = rated.Bandwidth, rated.Delay, rated.Loss
		l.BFD = rapid.SampledFrom([]model.BFD{"", model.BFDUsual, "100ms", "1s x 7"}).Draw(t, "bfd")
		for _, k := range [2][2]*model.Element{{ea, eb}, {eb, ea}} {
			if r, s := k[0], k[1]; r.Kind == model.Router && s.Kind == model.Switch && len(s.VRRP) < 2 && !filters[s.Name] &&
				(r.Software == model.SoftwareFRR || r.Software == "" && r.Config["bird.conf"] == "") && maybe(t, "vrrp") {
				s.VRRP = append(s.VRRP, model.VRRP{
					Preempt:  rapid.SampledFrom([]model.YesNo{"", model.No}).Draw(t, "preempt"),
					Priority: map[string]int{r.Name: rapid.IntRange(1, 254).Draw(t, "priority")},
					VRRPKeys: model.VRRPKeys{Interval: model.Duration(rapid.IntRange(0, 4095).Draw(t, "interval")) * 1e7}})
			}
		}
		point := ea.Kind != model.Switch && eb.Kind != model.Switch
		for _, e := range []*model.Element{ea, eb} {
			if e.Kind == model.Switch && e.Forwarding != model.ForwardOpenFlow && len(e.VRRP) == 0 {
				l.VLAN = rapid.SampledFrom([]int{0, 10, 20}).Draw(t, "vlan")
				filters[e.Name] = filters[e.Name] || l.VLAN != 0
			}
		}
		if point && maybe(t, "prefixes") {
			l.MTU = 9000
			l.Prefixes = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 0}), 24)}
			if maybe(t, "IPv6") {
				l.Prefixes = append(l.Prefixes, netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x::/64", i)))
			}
			if maybe(t, "address") {
				ea.Interfaces = append(ea.Interfaces, model.Interface{Name: l.Ends[0].Interface,
					MAC:       "02:00:00:00:00:01",
					Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 7}), 24)}})
			}
		}
		if ea.Routing.OSPF != nil && maybe(t, "ospf there") {
			p := &model.OSPFPort{Passive: rapid.SampledFrom([]model.YesNo{"", model.Yes, model.No}).Draw(t, "passive"),
				OSPFPortKeys: model.OSPFPortKeys{Cost: rapid.IntRange(1, 65535).Draw(t, "cost there"),
					Network: rapid.SampledFrom([]model.OSPFNetwork{"", model.PointToPoint, model.Broadcast}).Draw(t, "type")}}
			if maybe(t, "area there") {
				p.Area = "0.0.0.9"
			}
			if maybe(t, "none there") {
				p = &model.OSPFPort{Off: true}
			}
			if at := slices.IndexFunc(ea.Interfaces, func(f model.Interface) bool {
				return f.Name == l.Ends[0].Interface
			}); at >= 0 {
				ea.Interfaces[at].OSPF = p
			} else {
				ea.Interfaces = append(ea.Interfaces, model.Interface{Name: l.Ends[0].Interface, OSPF: p})
			}
		}
		net.Links = append(net.Links, l)
		if ea.Kind != model.Switch && eb.Kind != model.Switch && maybe(t, "expect") {
			net.Expect = append(net.Expect, model.Expectation{From: ea.Name, To: eb.Name, Not: maybe(t, "not"),
				Family: rapid.SampledFrom([]model.Family{"", model.IPv4, model.IPv6}).Draw(t, "family")})
		}
		if runs := ea.Software == model.SoftwareFRR || ea.Software == model.SoftwareBIRD; runs &&
			eb.Kind != model.Switch && maybe(t, "known") {
			x := rapid.SampledFrom([]string{" bgp neighbor " + eb.Name, " no ospf6 neighbor " + eb.Name + " 2-way",
				" bgp neighbor " + eb.Name + " over ipv4", " route 0.0.0.0/0", " no rip route fd00::/8 via " + eb.Name,
				" bgp route 10.0.0.0/8 via 2001:db8::1"}).Draw(t, "what is known")
			e, err := parseExpect(ea.Name + x)
			if err != nil {
				t.Fatal(err)
			}
			net.Expect = append(net.Expect, e)
		}
	}
	if at := slices.IndexFunc(net.Elements, func(e model.Element) bool { return e.Kind == model.Host }); at >= 0 &&
		len(net.Links) > 0 && maybe(t, "mirror") {
		net.Edges = []model.Edge{{Name: "look", End: model.End{Element: net.Elements[at].Name, Interface: "look"},
			Mirror: &model.Mirror{Link: net.Links[0].Name,
				Bandwidth: rapid.SampledFrom([]model.Bandwidth{0, 5e6}).Draw(t, "mirror's")}}}
	} else if maybe(t, "edge") {
		net.Edges = []model.Edge{{Name: "up", End: model.End{Element: net.Elements[0].Name,
			Interface: rapid.SampledFrom([]string{"up", "wan"}).Draw(t,
				"edge interface")}, Device: "eth1", VLAN: rapid.IntRange(0, 4094).Draw(t, "vlan"), Trunk: rapid.Bool().Draw(t, "trunk")}}
		if maybe(t, "internet") {
			net.Edges[0].Device, net.Edges[0].VLAN, net.Edges[0].Trunk, net.Edges[0].Internet = "", 0,
				false, &model.Internet{Unannounced: rapid.Bool().Draw(t, "unannounced")}
			if net.Elements[0].Kind != model.Switch && maybe(t, "forwards") {
				net.Edges[0].Internet.Forwards = []model.Forward{{Port: 2222, Element: net.Elements[0].Name, To: 22},
					{Protocol: model.UDP, Address: netip.MustParseAddr("::1"), Port: 5353,
						Element: net.Elements[0].Name, To: 53}}
			}
		}
	}
}

func TestFormatRefusesInvalid(t *testing.T) {
	if text, err := Format(model.Network{Name: "a b"}); err == nil || text != nil {
		t.Errorf("an invalid network is written as %q", text)
	}
}
