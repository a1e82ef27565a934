package resolve

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// What is larger than a network may be is refused before anything else looks at it, in few words.
func TestBounds(t *testing.T) {
	hosts := func(n int) []model.Element {
		all := make([]model.Element, n)
		for i := range all {
			all[i] = model.Element{Name: fmt.Sprintf("h%d", i), Kind: model.Host}
		}
		return all
	}
	big := func(f func(*model.Element)) model.Network {
		n := model.Network{Name: "lab",
			Elements: []model.Element{{Name: "r1", Kind: model.Router, Software: model.SoftwareBIRD}}}
		f(&n.Elements[0])
		return n
	}
	for what, c := range map[string]struct {
		net  model.Network
		says string
	}{
		"elements": {model.Network{Name: "lab", Elements: hosts(model.MaxElements + 1)},
			"network lab: it has 20,001 elements; 20,000 are allowed"},
		"links": {model.Network{Name: "lab", Links: make([]model.Link, model.MaxLinks+1)},
			"it has 60,001 links; 60,000 are allowed"},
		"pools": {model.Network{Name: "lab", Pools: make([]netip.Prefix, model.MaxPools+1)},
			"it has 65 pools; 64 are allowed"},
		"interfaces": {big(func(e *model.Element) { e.Interfaces = make([]model.Interface, model.MaxInterfaces+1) }),
			"router r1: it has 10,001 interfaces; 10,000 are allowed"},
		"routes": {big(func(e *model.Element) { e.Routes = make([]model.Route, model.MaxRoutes+1) }),
			"router r1: it has 20,001 routes; 20,000 are allowed"},
		"next hops": {big(func(e *model.Element) {
			e.Routes = []model.Route{{Via: make([]netip.Addr, model.MaxNextHops+
				1)}}
		}), "it has 65 next hops in one route; 64 are allowed"},
		"label-switched paths": {big(func(e *model.Element) { e.MPLS = make([]model.LSP, model.MostLSPs+1) }),
			"router r1: it has 4,097 label-switched paths; 4,096 are allowed"},
		"empty VRFs": {func() model.Network {
			n := model.Network{Name: "lab", Elements: hosts(1000)}
			vrfs := map[string]model.VRF{}
			for i := range model.MaxVRFs {
				vrfs[fmt.Sprintf("v%d", i)] = model.VRF{}
			}
			for i := range n.Elements {
				n.Elements[i].Kind, n.Elements[i].VRFs = model.Router, vrfs
			}
			return n
		}(), "it has 256,000 interfaces and VRFs; 121,000 are allowed"},
		"labels": {big(func(e *model.Element) { e.MPLS = []model.LSP{{Out: make([]int, 1_000_000)}} }),
			"it has 1,000,000 labels in one label-switched path; 4 are allowed"},
		"neighbors": {big(func(e *model.Element) {
			e.Routing.BGP = &model.BGP{Neighbors: make([]model.BGPNeighbor, model.MaxNeighborsBGP+1)}
		}), "it has 4,097 BGP neighbors"},
		"a large file": {big(func(e *model.Element) {
			e.Config = map[string]string{"bird.conf": strings.Repeat("#", model.MaxConfigSize+1)}
		}), "it has 1,048,577 bytes in the configuration file bird.conf; 1,048,576 are allowed"},
		"all files": {func() model.Network {
			n := model.Network{Name: "lab", Elements: hosts(17)}
			for i := range n.Elements {
				n.Elements[i].Config = map[string]string{"bird.conf": strings.Repeat("#", model.MaxConfigSize)}
			}
			return n
		}(), "it has 17,825,792 bytes of configuration, of commands and of files that are put into elements; 16,777,216 are allowed"},
		"a name": {model.Network{Name: strings.Repeat("x", 1<<20)},
			"its name has 1,048,576 characters; 63 are allowed"},
	} {
		_, problems := Read(c.net)
		if len(problems) == 0 || !strings.Contains(problems[0].Message, c.says) {
			t.Errorf("%s: %.300v", what, problems)
		}
		for _, p := range problems {
			if len(p.Message) > model.MaxMessage+8 || len(p.Name) > model.MaxMessage {
				t.Errorf("%s: a message of %d bytes", what, len(p.Message))
			}
		}
	}
}

// Of the problems of a hopeless document some are told, and how many more there are.
func TestProblemsAreCapped(t *testing.T) {
	_, problems := Read(model.Network{Name: "lab", Elements: make([]model.Element, 10_000)})
	// Each of them has an unknown kind; each but the first has another's name.
	if last := problems[len(problems)-1]; len(problems) != model.MaxProblems+1 ||
		last.Message != "… and 19,899 more problems" {
		t.Errorf("%d problems, the last: %s", len(problems), last.Message)
	}
}

// The largest documents that are let through are looked at in a time, and with memory, that a manager has.
func TestTheWorstDocumentsAreBounded(t *testing.T) {
	attack.Tell(t, "documents that take as long as they can to judge",
		"a bounded time")
	address := func(a, b, c, d int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)}), 30)
	}
	star := func(n int, f func(i int, e *model.Element)) model.Network {
		net := model.Network{Name: "lab", Elements: []model.Element{{Name: "sw", Kind: model.Switch}}}
		for i := range n {
			e := model.Element{Name: fmt.Sprintf("e%d", i), Kind: model.Host}
			f(i, &e)
			net.Elements = append(net.Elements, e)
			net.Links = append(net.Links, model.Link{Name: "l" + e.Name,
				Ends: [2]model.End{{Element: "sw", Interface: e.Name}, {Element: e.Name, Interface: "sw"}}})
		}
		return net
	}
	for what, net := range map[string]model.Network{
		"hosts with a subnet and a gateway each": star(model.MaxInterfaces, func(i int, e *model.Element) {
			e.Interfaces = []model.Interface{{Name: "sw", Addresses: []netip.Prefix{address(10, i>>6, i<<2, 1)}}}
			e.Gateways = []netip.Addr{netip.AddrFrom4([4]byte{172, 16, 0, 1})}
		}),
		"BGP routers on one switch": star(model.MaxInterfaces, func(i int, e *model.Element) {
			e.Kind, e.Routing.BGP = model.Router, &model.BGP{AS: uint32(i + 1)}
		}),
		"hosts that know routers with many addresses": star(3000, func(i int, e *model.Element) {
			f := model.Interface{Name: "sw"}
			if i < model.MaxPeers {
				e.Kind = model.Router
				for k := range model.MaxAddresses {
					f.Addresses = append(f.Addresses,
						netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(k), 1}), 8))
				}
			}
			e.Interfaces = []model.Interface{f}
		}),
		"routes by wrong interfaces": func() model.Network {
			net := star(model.MaxInterfaces, func(int, *model.Element) {})
			net.Elements[0].Kind = model.Router
			for i := range model.MaxRoutes {
				net.Elements[0].Routes = append(net.Elements[0].Routes,
					model.Route{To: address(20, i>>6, i<<2, 0), Interface: "none"})
			}
			return net
		}(),
		"a VRF with all interfaces": func() model.Network {
			net := star(model.MaxInterfaces-1, func(int, *model.Element) {})
			e := &net.Elements[0]
			e.Kind, e.Software, e.Forwarding = model.Router, model.SoftwareFRR, model.ForwardGuest
			var in []string
			for i := range net.Links {
				name := net.Links[i].Ends[0].Interface
				in = append(in, name)
				e.Interfaces = append(e.Interfaces, model.Interface{Name: name, OSPF: &model.OSPFPort{Area: "x"}})
			}
			e.VRFs = map[string]model.VRF{"red": {Interfaces: in, OSPF: &model.OSPF{}}}
			return net
		}(),
		"switches with prefixes of their own": func() model.Network {
			net := model.Network{Name: "lab"}
			for i := range model.MaxElements {
				e := model.Element{Name: fmt.Sprintf("s%d", i), Kind: model.Switch}
				for k := range 8 {
					e.Prefixes = append(e.Prefixes, address(k+1, i>>6, i<<2, 0))
				}
				net.Elements = append(net.Elements, e)
				if i > 0 {
					was := fmt.Sprintf("s%d", i-1)
					net.Links = append(net.Links,
						model.Link{Name: e.Name, Ends: [2]model.End{{Element: was, Interface: e.Name},
							{Element: e.Name, Interface: was}}})
				}
			}
			return net
		}(),
		"links that lead nowhere": {Name: "lab", Elements: []model.Element{{Name: "r", Kind: model.Router}},
			Links: make([]model.Link, model.MaxLinks)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		_, problems := Read(net)
		if len(problems) == 0 {
			if resolved, _, err := resolveAs(net, model.Assigned{}, NewNumbers()); err == nil {
				problems = known(net).Check(&resolved)
			}
		}
		took := time.Since(begin)
		runtime.ReadMemStats(&after)
		allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%s: %v, %d MiB allocated, %d problems", what, took.Round(time.Millisecond), allocated, len(problems))
		if took > 10*time.Second || allocated > 1024 || len(problems) > model.MaxProblems+1 {
			t.Errorf("%s: %v, %d MiB, %d problems", what, took, allocated, len(problems))
		}
	}
}
