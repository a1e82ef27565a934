package model

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/system/attack"
)

// What is larger than a network may be is refused before anything else looks at it, in few words.
func TestBounds(t *testing.T) {
	hosts := func(n int) []Element {
		all := make([]Element, n)
		for i := range all {
			all[i] = Element{Name: fmt.Sprintf("h%d", i), Kind: Host}
		}
		return all
	}
	big := func(f func(*Element)) Network {
		n := Network{Name: "lab", Elements: []Element{{Name: "r1", Kind: Router, Software: SoftwareBIRD}}}
		f(&n.Elements[0])
		return n
	}
	for what, c := range map[string]struct {
		net  Network
		says string
	}{
		"elements":     {Network{Name: "lab", Elements: hosts(MaxElements + 1)}, "network lab: it has 20,001 elements; 20,000 are allowed"},
		"links":        {Network{Name: "lab", Links: make([]Link, MaxLinks+1)}, "it has 60,001 links; 60,000 are allowed"},
		"pools":        {Network{Name: "lab", Pools: make([]netip.Prefix, MaxPools+1)}, "it has 65 pools; 64 are allowed"},
		"interfaces":   {big(func(e *Element) { e.Interfaces = make([]Interface, MaxInterfaces+1) }), "router r1: it has 10,001 interfaces; 10,000 are allowed"},
		"routes":       {big(func(e *Element) { e.Routes = make([]Route, MaxRoutes+1) }), "router r1: it has 20,001 routes; 20,000 are allowed"},
		"next hops":    {big(func(e *Element) { e.Routes = []Route{{Via: make([]netip.Addr, MaxNextHops+1)}} }), "it has 65 next hops in one route; 64 are allowed"},
		"neighbors":    {big(func(e *Element) { e.Routing.BGP = &BGP{Neighbors: make([]BGPNeighbor, MaxNeighborsBGP+1)} }), "it has 4,097 BGP neighbors"},
		"a large file": {big(func(e *Element) { e.Config = map[string]string{"bird.conf": strings.Repeat("#", MaxConfigSize+1)} }), "it has 1,048,577 bytes in the configuration file bird.conf; 1,048,576 are allowed"},
		"all files": {func() Network {
			n := Network{Name: "lab", Elements: hosts(17)}
			for i := range n.Elements {
				n.Elements[i].Config = map[string]string{"bird.conf": strings.Repeat("#", MaxConfigSize)}
			}
			return n
		}(), "it has 17,825,792 bytes of configuration files; 16,777,216 are allowed"},
		"a name": {Network{Name: strings.Repeat("x", 1<<20)}, "its name has 1,048,576 characters; 63 are allowed"},
	} {
		problems := c.net.Validate()
		if len(problems) == 0 || !strings.Contains(problems[0].Message, c.says) {
			t.Errorf("%s: %.300v", what, problems)
		}
		for _, p := range problems {
			if len(p.Message) > maxMessage+8 || len(p.Name) > maxMessage {
				t.Errorf("%s: a message of %d bytes", what, len(p.Message))
			}
		}
	}
}

// Of the problems of a hopeless document some are told, and how many more there are.
func TestProblemsAreCapped(t *testing.T) {
	problems := Network{Name: "lab", Elements: make([]Element, 10_000)}.Validate()
	// Each of them has an unknown kind; each but the first has another's name.
	if last := problems[len(problems)-1]; len(problems) != MaxProblems+1 || last.Message != "… and 19,899 more problems" {
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
	star := func(n int, f func(i int, e *Element)) Network {
		net := Network{Name: "lab", Elements: []Element{{Name: "sw", Kind: Switch}}}
		for i := range n {
			e := Element{Name: fmt.Sprintf("e%d", i), Kind: Host}
			f(i, &e)
			net.Elements = append(net.Elements, e)
			net.Links = append(net.Links, Link{Name: "l" + e.Name, Ends: [2]End{{"sw", e.Name}, {e.Name, "sw"}}})
		}
		return net
	}
	for what, net := range map[string]Network{
		"hosts with a subnet and a gateway each": star(MaxInterfaces, func(i int, e *Element) {
			e.Interfaces = []Interface{{Name: "sw", Addresses: []netip.Prefix{address(10, i>>6, i<<2, 1)}}}
			e.Gateways = []netip.Addr{netip.AddrFrom4([4]byte{172, 16, 0, 1})}
		}),
		"BGP routers on one switch": star(MaxInterfaces, func(i int, e *Element) {
			e.Kind, e.Routing.BGP = Router, &BGP{AS: uint32(i + 1)}
		}),
		"hosts that know routers with many addresses": star(3000, func(i int, e *Element) {
			f := Interface{Name: "sw"}
			if i < MaxPeers {
				e.Kind = Router
				for k := range MaxAddresses {
					f.Addresses = append(f.Addresses, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(k), 1}), 8))
				}
			}
			e.Interfaces = []Interface{f}
		}),
		"routes by wrong interfaces": func() Network {
			net := star(MaxInterfaces, func(int, *Element) {})
			net.Elements[0].Kind = Router
			for i := range MaxRoutes {
				net.Elements[0].Routes = append(net.Elements[0].Routes, Route{To: address(20, i>>6, i<<2, 0), Interface: "none"})
			}
			return net
		}(),
		"switches with prefixes of their own": func() Network {
			net := Network{Name: "lab"}
			for i := range MaxElements {
				e := Element{Name: fmt.Sprintf("s%d", i), Kind: Switch}
				for k := range 8 {
					e.Prefixes = append(e.Prefixes, address(k+1, i>>6, i<<2, 0))
				}
				net.Elements = append(net.Elements, e)
				if i > 0 {
					was := fmt.Sprintf("s%d", i-1)
					net.Links = append(net.Links, Link{Name: e.Name, Ends: [2]End{{was, e.Name}, {e.Name, was}}})
				}
			}
			return net
		}(),
		"links that lead nowhere": {Name: "lab", Elements: []Element{{Name: "r", Kind: Router}}, Links: make([]Link, MaxLinks)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		problems := net.Validate()
		if len(problems) == 0 {
			if resolved, _, err := Resolve(net, Assigned{}, NewNumbers()); err == nil {
				problems = ValidateResolved(&net, &resolved)
			}
		}
		took := time.Since(begin)
		runtime.ReadMemStats(&after)
		allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%s: %v, %d MiB allocated, %d problems", what, took.Round(time.Millisecond), allocated, len(problems))
		if took > 10*time.Second || allocated > 1024 || len(problems) > MaxProblems+1 {
			t.Errorf("%s: %v, %d MiB, %d problems", what, took, allocated, len(problems))
		}
	}
}
