package embedding

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
)

// mtus is a substrate of nodes n1… with these MTUs, in a line.
func mtus(list ...int) model.Substrate {
	s := substrate(len(list))
	s.Links = nil
	for i, mtu := range list {
		s.Nodes[i].MTU = mtu
		if i > 0 {
			s.Links = append(s.Links, model.SubstrateLink{A: s.Nodes[i-1].Name, B: s.Nodes[i].Name})
		}
	}
	return s
}

func TestMTUsNeverDependOnPlacement(t *testing.T) {
	ring := mtus(9000, 9000, 9000, 1500)
	ring.Links = append(ring.Links, model.SubstrateLink{A: "n4", B: "n1"})
	parts := mtus(9000, 9000, 1500, 1500)
	parts.Links = []model.SubstrateLink{parts.Links[0], parts.Links[2]}
	ipv6 := mtus(9000, 9000)
	for i := range ipv6.Nodes {
		ipv6.Nodes[i].Address = netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", i+1))
	}
	for _, c := range []struct {
		name   string
		sub    model.Substrate
		mtu    int
		a, b   string // pins
		change func(*model.Resolved)
		want   string // empty: it fits
	}{
		{name: "one node carries any", sub: mtus(1500), mtu: 9000},
		{name: "both ends pinned to one node", sub: mtus(1500, 1500), mtu: 9000, a: "n1", b: "n1"},
		{name: "not pinned, though both fit on one node", sub: mtus(9000, 9000), mtu: 9000,
			want: "link r1--r2 has an MTU of 9000, so the underlay must carry 9050 wherever the ends may be placed, " +
				"and substrate link n1 -- n2 carries 9000; " +
				"lower the link's MTU to 8950, or raise the underlay's to 9050, or pin the ends (node:) to where it " +
				"is carried"},
		{name: "one end pinned", sub: mtus(9000, 9000), mtu: 8951, a: "n1", want: "lower the link's MTU to 8950"},
		{name: "just carried", sub: mtus(9000, 9000), mtu: 8950},
		{name: "far away", sub: mtus(9000, 9000, 1500), mtu: 8000, want: "substrate link n2 -- n3 carries 1500"},
		{name: "pinned away from where it is not carried", sub: mtus(9000, 9000, 1500), mtu: 8000, a: "n1", b: "n2"},
		{name: "pinned behind it", sub: mtus(9000, 9000, 1500), mtu: 8000, a: "n1", b: "n3",
			want: "substrate link n2 -- n3 carries 1500"},
		{name: "a detour that leads there", sub: ring, mtu: 8000, a: "n1", b: "n2",
			want: "substrate link n1 -- n4 carries 1500, substrate link n3 -- n4 carries 1500"},
		{name: "not joined", sub: parts, mtu: 8000, a: "n1", b: "n2"},
		{name: "nobody said", sub: mtus(0, 0), mtu: 9000},
		{name: "one did", sub: mtus(0, 1500), mtu: 1500, want: "lower the link's MTU to 1450"},
		{name: "nothing is small enough", sub: mtus(9000, 100), mtu: 1500,
			want: "carries 100; raise the underlay's to 1550"},
		{name: "the default counts", sub: mtus(9000, 1500), want: "has an MTU of 1500"},
		{name: "ipv6 takes more", sub: ipv6, mtu: 8931, want: "must carry 9001"},
		{name: "ipv6 takes no more than that", sub: ipv6, mtu: 8930},
		{name: "an edge is a pin", sub: mtus(1500, 1500), mtu: 1500, a: "n2", change: func(n *model.Resolved) {
			n.Edges = []model.ResolvedEdge{{Name: "up", Node: "n2", Device: "eth1",
				End: model.End{Element: "r2", Interface: "up"}}}
		}},
		{name: "a location of one node", sub: mtus(9000, 1500), mtu: 9000, a: "n1", change: func(n *model.Resolved) {
			n.Elements[1].Location = "rio"
		}},
		{name: "a location of several", sub: mtus(9000, 9000, 9000), mtu: 9000, a: "n1",
			change: func(n *model.Resolved) {
				n.Elements[1].Location = "rio"
			}, want: "substrate link n2 -- n3 carries 9000"},
		{name: "links are counted together", sub: mtus(9000, 1500), change: func(n *model.Resolved) {
			for i := range 20 {
				addLink(n, "r1", "r2").Name += fmt.Sprint(i)
			}
		}, want: "links r1--r2, r1--r20, r1--r21, r1--r22, r1--r23, r1--r24, r1--r25, r1--r26 and 13 more have an " +
			"MTU of 1500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			net := line(2)
			net.Elements[0].Node, net.Elements[1].Node, net.Links[0].MTU = c.a, c.b, c.mtu
			if c.change != nil {
				c.change(&net)
			}
			// Being together already is no excuse.
			_, err := Embed(c.sub, nil, Usage{}, net,
				Current{Placement: model.Placement{Elements: map[string]string{"r1": "n1", "r2": "n1"}}})
			var refusal *Refusal
			switch {
			case c.want == "":
				if err != nil {
					t.Error(err)
				}
			case !errors.As(err, &refusal) || len(refusal.Problems) != 1 || !strings.Contains(err.Error(), c.want):
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// A substrate link limits what it limits: the search for components finds what trying every simple path finds.
func TestPropertyLimitsAreThoseOfAllSimplePaths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "nodes")
		sub := model.Substrate{Links: []model.SubstrateLink{{}}} // one of nothing: no links are no mesh
		for i := range n {
			sub.Nodes = append(sub.Nodes, model.SubstrateNode{Name: fmt.Sprintf("n%d", i), MTU: 1500})
		}
		node := rapid.IntRange(0, n-1)
		for range rapid.IntRange(0, 12).Draw(t, "links") {
			sub.Links = append(sub.Links, model.SubstrateLink{A: sub.Nodes[node.Draw(t, "a")].Name,
				B: sub.Nodes[node.Draw(t, "b")].Name})
		}
		g := newGraph(sub)
		some := func(what string) (list []int32) {
			for _, i := range rapid.SliceOfNDistinct(node, 1, n, rapid.ID[int]).Draw(t, what) {
				list = append(list, int32(i))
			}
			return list
		}
		from, to := some("from"), some("to")
		want := map[string]bool{}
		var walk func(path []int32, goal int32)
		walk = func(path []int32, goal int32) {
			at := path[len(path)-1]
			if at == goal {
				for k := 1; k < len(path); k++ {
					want[fmt.Sprint(min(path[k-1], path[k]), "-", max(path[k-1], path[k]))] = true
				}
				return
			}
		next:
			for _, y := range g.neighbour[at] {
				for _, x := range path {
					if x == y {
						continue next
					}
				}
				walk(append(path[:len(path):len(path)], y), goal)
			}
		}
		for _, a := range from {
			for _, b := range to {
				walk([]int32{a}, b)
			}
		}
		got := map[string]bool{}
		for _, c := range g.limitBetween(from, to).links {
			got[fmt.Sprint(g.number(c.a), "-", g.number(c.b))] = true
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("from %v to %v over %v:\ngot  %v\nwant %v", from, to, sub.Links[1:], got, want)
		}
	})
}

// What fits fits wherever its ends are: with its ends pinned to any nodes on which they may be, no link is refused for
// its MTU.
func TestPropertyMTUsHoldForEveryPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := drawQuestion(t)
		for i := range q.net.Elements { // nothing but MTUs may be in the way
			q.net.Elements[i].CPU, q.net.Elements[i].Memory = 0, 0
		}
		for i := range q.net.Links {
			q.net.Links[i].Bandwidth = 0
		}
		p, err := q.answer()
		if err != nil {
			return
		}
		for i := range q.net.Elements {
			el := &q.net.Elements[i]
			if el.Node == "" && el.Location == "" {
				el.Node = q.sub.Nodes[rapid.IntRange(0, len(q.sub.Nodes)-1).Draw(t, "elsewhere")].Name
			}
		}
		if _, err := Embed(q.sub, nil, q.used, q.net, Current{Placement: p}); err != nil &&
			strings.Contains(err.Error(), "MTU") {
			t.Fatal(err)
		}
	})
}

func TestUsualMTU(t *testing.T) {
	net := model.Resolved{Name: "lab"}
	for _, name := range []string{"r1", "r2", "r3"} {
		net.Elements = append(net.Elements, model.ResolvedElement{Name: name, Kind: model.Router})
	}
	for _, ends := range [][2]string{{"r1", "r2"}, {"r2", "r3"}} {
		net.Links = append(net.Links, model.Link{Name: ends[0] + "--" + ends[1],
			Ends: [2]model.End{{Element: ends[0]}, {Element: ends[1]}}})
	}
	for _, c := range []struct {
		name   string
		sub    model.Substrate
		change func(*model.Resolved)
		mtu    int
		why    string
	}{
		{name: "one node", sub: mtus(1300), mtu: 1500},
		{name: "large enough", sub: mtus(1550, 1550), mtu: 1500},
		{name: "Ethernet", sub: mtus(1500, 1500, 9000), mtu: 1450,
			why: "substrate link n1 -- n2 carries 1500, substrate link n2 -- n3 carries 1500"},
		{name: "the smallest of two", sub: mtus(1500, 1400, 9000), mtu: 1350,
			why: "substrate link n1 -- n2 carries 1400, substrate link n2 -- n3 carries 1400"},
		{name: "one for all, though one is on one node", sub: mtus(1500, 1500), mtu: 1450,
			change: func(n *model.Resolved) { n.Elements[0].Node, n.Elements[1].Node = "n1", "n1" },
			why:    "substrate link n1 -- n2 carries 1500"},
		{name: "all on one node", sub: mtus(1500, 1500), mtu: 1500, change: func(n *model.Resolved) {
			for i := range n.Elements {
				n.Elements[i].Node = "n2"
			}
		}},
		{name: "where it matters one is stated", sub: mtus(1500, 1500), mtu: 1500, change: func(n *model.Resolved) {
			n.Elements[0].Node, n.Elements[1].Node = "n1", "n1"
			n.Links[1].MTU = 1280
		}},
		{name: "just enough for IPv6", sub: mtus(1330, 1330), mtu: 1280, why: "substrate link n1 -- n2 carries 1330"},
		{name: "too little for IPv6", sub: mtus(1329, 1329), mtu: 1500},
		{name: "a pin to no node", sub: mtus(1500, 1500), mtu: 1500,
			change: func(n *model.Resolved) { n.Elements[0].Node = "n9" }},
	} {
		n := net
		n.Elements, n.Links = slices.Clone(net.Elements), slices.Clone(net.Links)
		if c.change != nil {
			c.change(&n)
		}
		if mtu, why := UsualMTU(c.sub, n); mtu != c.mtu || why != c.why {
			t.Errorf("%s: %d because %q", c.name, mtu, why)
		}
	}
}
