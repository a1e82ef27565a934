package resolve

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// at is an interface of an element of the network.
func at(n *model.Network, element, name string) *model.Interface {
	for i := range n.Elements {
		e := &n.Elements[i]
		if e.Name == element {
			e.Interfaces = append(e.Interfaces, model.Interface{Name: name})
			return &e.Interfaces[len(e.Interfaces)-1]
		}
	}
	panic("no element " + element)
}

// TestDoubts: what can never work is told, and what can is not.
func TestDoubts(t *testing.T) {
	const s = model.Duration(time.Second)
	ospf := func(area string, hello, dead model.Duration) model.Routing {
		return model.Routing{OSPF: &model.OSPF{Area: area, OSPFTimers: model.OSPFTimers{Hello: hello, Dead: dead}}}
	}
	bgp := func(as uint32, neighbors ...model.BGPNeighbor) model.Routing {
		return model.Routing{BGP: &model.BGP{AS: as, Neighbors: neighbors}}
	}
	to := func(a string, as uint32) model.BGPNeighbor {
		return model.BGPNeighbor{Address: netip.MustParseAddr(a), AS: as}
	}
	over := func(ifc string, as uint32) model.BGPNeighbor { return model.BGPNeighbor{Interface: ifc, AS: as} }
	unnumbered := func(as uint32) model.Routing { return model.Routing{BGP: &model.BGP{AS: as, Unnumbered: true}} }
	policed := func(as uint32, with string, set model.BGPSet, out bool) model.Routing {
		toward := model.BGPToward{In: "p"}
		if out {
			toward = model.BGPToward{Out: "p"}
		}
		return model.Routing{BGP: &model.BGP{AS: as, Policies: map[string][]model.BGPRule{"p": {{Set: set}}},
			Toward: map[string]model.BGPToward{with: toward}}}
	}
	both := func(a, b model.Routing) model.Routing { return model.Routing{OSPF: a.OSPF, BGP: b.BGP} }
	for name, c := range map[string]struct {
		one, two model.Routing
		change   func(*model.Network)
		want     []string // parts, one for each that is told
	}{
		"the same":         {one: ospf("", 0, 0), two: ospf("0.0.0.0", 0, 0)},
		"the same by hand": {one: ospf("", 10*s, 0), two: ospf("", 10*s, 40*s)},
		"areas": {one: ospf("", 0, 0), two: ospf("0.0.0.1", 0, 0),
			want: []string{"link r1--r2: r1 is in OSPF area 0.0.0.0 and r2 in area 0.0.0.1"}},
		"hello": {one: ospf("", 0, 0), two: ospf("", 10*s, 40*s),
			want: []string{"link r1--r2: r1 says hello every 1 s by OSPF and is dead after 12 s, r2 every 10 s and after 40 s"}},
		"areas of two systems": {one: both(ospf("", 0, 0), bgp(65001)), two: both(ospf("0.0.0.1", 0, 0), bgp(65002))},
		"areas of one system": {one: both(ospf("", 0, 0), bgp(65001)), two: both(ospf("0.0.0.1", 0, 0), bgp(65001)),
			want: []string{"give both the same area"}},
		"areas, one by hand": {one: ospf("", 0, 0), two: ospf("0.0.0.1", 0, 0), change: func(n *model.Network) {
			n.Elements[1].Config = map[string]string{"frr.conf": "router ospf\n"}
		}},
		"neighbours": {one: bgp(65001, to("10.0.0.2", 65002)), two: bgp(65002, to("10.0.0.1", 65001))},
		"unnumbered": {one: unnumbered(65001), two: unnumbered(65002)},
		"unnumbered at one end": {one: bgp(65001), two: unnumbered(65002), change: func(n *model.Network) {
			n.Links[0].Prefixes, n.Links[0].Addressing = nil, model.AddressingNone
		}, want: []string{"link r1--r2: the BGP of r2 is unnumbered and that of r1 is not"}},
		"unnumbered at one end, with addresses": {one: bgp(65001), two: unnumbered(65002)},
		"over an interface":                     {one: bgp(65001, over("r2", 65002)), two: bgp(65002, over("r1", 65001))},
		"over an interface at one end": {one: bgp(65001, over("r2", 65002)), two: bgp(65002, to("10.0.0.1", 65001)),
			want: []string{"r1: its BGP neighbour at r2 is r2, whose own neighbours leave r1 out",
				"r2: its BGP neighbour 10.0.0.1 is r1, whose own neighbours leave r2 out"}},
		"over an interface, to another system": {one: bgp(65001, over("r2", 65009)), two: bgp(65002),
			want: []string{"r1: its BGP neighbour at r2 is r2, whose AS is 65002 and not 65009"}},
		"policies": {one: policed(65001, "r2", model.BGPSet{MED: new(uint32), Prepend: 1}, true),
			two: policed(65002, "r1", model.BGPSet{LocalPreference: new(uint32)}, false)},
		"prepended within the system": {one: policed(65001, "r2", model.BGPSet{Prepend: 1}, true), two: bgp(65001),
			want: []string{"r1: policy p prepends AS 65001 to what r2 of the same AS is told"}},
		"prepended to what comes in": {one: policed(65001, "r2", model.BGPSet{Prepend: 1}, false), two: bgp(65002),
			want: []string{"r1: policy p prepends AS 65001 to what it is told by r2"}},
		"local preference for others": {one: policed(65001, "r2", model.BGPSet{LocalPreference: new(uint32)}, true),
			two: bgp(65002), want: []string{"r1: policy p sets a local preference for r2"}},
		"policies for nobody": {one: policed(65001, "r3", model.BGPSet{MED: new(uint32)}, true), two: bgp(65002),
			want: []string{"r1: it says which policies r3 has, and has no BGP session with it"}},
		"loopbacks": {one: bgp(65001, to("10.255.0.2", 65002)), two: bgp(65002)},
		"nobody": {one: bgp(65001, to("10.9.9.9", 65002)), two: bgp(65002),
			want: []string{"r1: its BGP neighbour 10.9.9.9 is nobody's address"}},
		"a device": {one: bgp(65001, to("10.9.9.9", 65002)), two: bgp(65002), change: func(n *model.Network) {
			n.Edges = []model.Edge{{Name: "up", End: model.End{Element: "r1", Interface: "up"}, Device: "eth9"}}
		}},
		"another AS": {one: bgp(65001, to("10.0.0.2", 65003)), two: bgp(65002, to("10.0.0.1", 65001)),
			want: []string{"r1: its BGP neighbour 10.0.0.2 is r2, whose AS is 65002 and not 65003"}},
		"no BGP": {one: bgp(65001, to("10.0.0.2", 65002)),
			want: []string{"r1: its BGP neighbour 10.0.0.2 is r2, which speaks no BGP"}},
		"left out": {one: bgp(65001, to("10.0.0.2", 65002)), two: bgp(65002, to("10.0.1.2", 65003)),
			want: []string{"r1: its BGP neighbour 10.0.0.2 is r2, whose own neighbours leave r1 out"}},
		"expected of nobody": {one: ospf("", 0, 0), two: bgp(65002), change: func(n *model.Network) {
			known := model.Known{What: model.KnownNeighbour, Protocol: "ospf", State: "full"}
			n.Expect = []model.Expectation{{From: "r1", To: "r2", Known: known}, {From: "r1", To: "r3", Known: known},
				{From: "r2", Known: model.Known{What: model.KnownRoute, Protocol: "bgp", Prefix: netip.MustParsePrefix("10.0.0.0/8")}}}
		}, want: []string{`expect: "r1 ospf neighbor r2 full": r2 speaks bgp, and no ospf`,
			`expect: "r1 ospf neighbor r3 full": r3 speaks bgp, and no ospf`}},
		"types": {one: ospf("", 0, 0), two: ospf("", 0, 0), change: func(n *model.Network) {
			at(n, "r2", "r1").OSPF = &model.OSPFPort{OSPFPortKeys: model.OSPFPortKeys{Network: model.Broadcast}}
		}, want: []string{"link r1--r2: to OSPF of r1 the network there is point-to-point, to r2 it is broadcast"}},
		"areas and timers of interfaces": {one: ospf("", 0, 0), two: ospf("0.0.0.2", 5*s, 0), change: func(n *model.Network) {
			at(n, "r1", "r2").OSPF = &model.OSPFPort{Area: "0.0.0.2", OSPFPortKeys: model.OSPFPortKeys{
				OSPFTimers: model.OSPFTimers{Hello: 5 * s}}}
		}},
		"another area of an interface": {one: ospf("", 0, 0), two: ospf("", 0, 0), change: func(n *model.Network) {
			at(n, "r1", "r2").OSPF = &model.OSPFPort{Area: "0.0.0.2"}
		}, want: []string{"link r1--r2: r1 is in OSPF area 0.0.0.2 and r2 in area 0.0.0.0"}},
		"another area where nobody is spoken to": {one: ospf("", 0, 0), two: ospf("", 0, 0), change: func(n *model.Network) {
			at(n, "r1", "r2").OSPF = &model.OSPFPort{Area: "0.0.0.2", Passive: model.Yes}
		}},
		"an interface without": {one: ospf("", 0, 0), two: ospf("0.0.0.1", 0, 0), change: func(n *model.Network) {
			at(n, "r1", "r2").OSPF = &model.OSPFPort{Off: true}
		}},
		"itself": {one: bgp(65001, to("10.0.0.1", 65001)), want: []string{"is its own address"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := build("r1", "r2", "r3", "r1-r2=10.0.0.0/30", "r2-r3=10.0.1.0/30")
			n.Elements[0].Routing, n.Elements[1].Routing, n.Elements[2].Routing = c.one, c.two, bgp(65003)
			if c.change != nil {
				c.change(&n)
			}
			read, problems := Read(n)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			r, _, err := read.Resolve(model.Assigned{}, NewNumbers())
			if err != nil {
				t.Fatal(err)
			}
			whole := read.Network()
			told := Doubts(&whole, &r)
			if len(told) != len(c.want) {
				t.Fatalf("told is %q, should be %q", told, c.want)
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(told, func(s string) bool { return strings.Contains(s, want) }) {
					t.Errorf("told is %q, should be %q", told, want)
				}
			}
		})
	}
}

// TestTimersThatAreImpossible are refused, each with its place.
func TestTimersThatAreImpossible(t *testing.T) {
	const s = model.Duration(time.Second)
	n := build("r1", "r2", "r1-r2")
	n.Elements[0].Routing = model.Routing{OSPF: &model.OSPF{OSPFTimers: model.OSPFTimers{Hello: 10 * s, Dead: 10 * s}},
		OSPF6: &model.OSPF{OSPFTimers: model.OSPFTimers{Hello: 20000 * s}},
		ISIS:  &model.ISIS{ISISTimers: model.ISISTimers{Hello: 3 * s, Hold: 10 * s}},
		BGP:   &model.BGP{AS: 1, BGPTimers: model.BGPTimers{Keepalive: 60 * s, Hold: 100 * s}},
		RIP:   &model.RIP{RIPTimers: model.RIPTimers{Update: 2 * s, Timeout: 6 * s}}}
	var got []string
	for _, p := range problemsOf(n) {
		got = append(got, fmt.Sprint(p.Field))
	}
	want := []string{"routing/ospf/dead", "routing/ospf6/hello", "routing/isis/hold",
		"routing/bgp/hold", "routing/rip/update"}
	if !slices.Equal(got, want) {
		t.Errorf("wrong are %q, should be %q", got, want)
	}
}
