package embedding

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

const gib = model.Bytes(1 << 30)

// substrate is n equal nodes in a ring (a line for two), 4 cores and 8 GiB each.
func substrate(n int) model.Substrate {
	var s model.Substrate
	for i := range n {
		s.Nodes = append(s.Nodes, model.SubstrateNode{Name: fmt.Sprintf("n%d", i+1), CPU: 4000,
			Memory: 8 * gib, MTU: 9000,
			Location: []string{"rio", "bonn"}[i%2]})
	}
	for i := range n {
		if i+1 < n {
			s.Links = append(s.Links, model.SubstrateLink{A: s.Nodes[i].Name, B: s.Nodes[i+1].Name})
		} else if n > 2 {
			s.Links = append(s.Links, model.SubstrateLink{A: s.Nodes[i].Name, B: s.Nodes[0].Name})
		}
	}
	return s
}

// line is a network of routers r1 – r2 – … .
func line(n int) model.Resolved {
	net := model.Resolved{Name: "line"}
	for i := range n {
		net.Elements = append(net.Elements, model.ResolvedElement{Name: fmt.Sprintf("r%d", i+1), Kind: model.Router})
		if i > 0 {
			addLink(&net, fmt.Sprintf("r%d", i), fmt.Sprintf("r%d", i+1))
		}
	}
	return net
}

// document has what a usage is worked out from.
func document(net model.Resolved) model.Network {
	doc := model.Network{Name: net.Name, Slice: net.Slice, Links: net.Links}
	for _, e := range net.Elements {
		doc.Elements = append(doc.Elements, model.Rephased(e, []model.Interface(nil)))
	}
	return doc
}

func addLink(net *model.Resolved, a, b string) *model.Link {
	net.Links = append(net.Links, model.Link{Name: a + "--" + b,
		Ends: [2]model.End{{Element: a, Interface: b}, {Element: b, Interface: a}}})
	return &net.Links[len(net.Links)-1]
}

func embed(t *testing.T, sub model.Substrate, net model.Resolved, current model.Placement) model.Placement {
	t.Helper()
	p, err := Embed(sub, nil, Usage{}, net, Current{Placement: current})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func counts(p model.Placement) map[string]int {
	c := map[string]int{}
	for _, n := range p.Elements {
		c[n]++
	}
	return c
}

func TestLongLineIsCutIntoContiguousEqualPieces(t *testing.T) {
	p := embed(t, substrate(3), line(1000), model.Placement{})
	if len(p.Links) != 2 {
		t.Errorf("%d links cross nodes; a line on three nodes needs two", len(p.Links))
	}
	for n, c := range counts(p) {
		if c < 333 || c > 334 {
			t.Errorf("%s has %d of 1000 elements, want a third", n, c)
		}
	}
}

func TestSmallNetworkIsSpread(t *testing.T) {
	p := embed(t, substrate(3), line(4), model.Placement{})
	if c := counts(p); len(c) != 3 {
		t.Errorf("four elements are on %v, want all three nodes in use", c)
	}
	if len(p.Links) > 2 {
		t.Errorf("%d of 3 links cross nodes, want at most 2: %v", len(p.Links), p.Elements)
	}
}

func TestNewcomersGoWhereThereIsRoom(t *testing.T) {
	used := Usage{Nodes: map[string]NodeUsage{"n1": {Weight: 300, Elements: 30}}}
	p, err := Embed(substrate(3), nil, used, line(40), Current{})
	if err != nil {
		t.Fatal(err)
	}
	if c := counts(p); c["n1"] >= c["n2"] || c["n2"] != c["n3"] {
		t.Errorf("n1 is busy with 30 elements, yet 40 more were spread as %v", c)
	}
}

func TestOneMoreElementGoesBesideItsNeighbour(t *testing.T) {
	sub := substrate(3)
	net := line(30)
	before := embed(t, sub, net, model.Placement{})
	net.Elements = append(net.Elements, model.ResolvedElement{Name: "h1", Kind: model.Host})
	addLink(&net, "h1", "r15")
	after := embed(t, sub, net, before)
	if after.Elements["h1"] != before.Elements["r15"] {
		t.Errorf("h1 is on %s, its only neighbour on %s", after.Elements["h1"], before.Elements["r15"])
	}
	for name, node := range before.Elements {
		if after.Elements[name] != node {
			t.Errorf("%s moved from %s to %s because h1 came", name, node, after.Elements[name])
		}
	}
}

func TestPins(t *testing.T) {
	sub := substrate(3)
	net := line(6)
	net.Elements[0].Node = "n3"
	net.Elements[1].Location = "bonn" // n2 alone
	net.Edges = []model.ResolvedEdge{{Name: "e", End: model.End{Element: "r3", Interface: "up"},
		Node: "n1", Device: "eth1"}}
	p := embed(t, sub, net, model.Placement{Elements: map[string]string{"r1": "n1", "r4": "n3", "r5": "gone"}})
	for name, want := range map[string]string{"r1": "n3", "r2": "n2", "r3": "n1", "r4": "n3"} {
		if p.Elements[name] != want {
			t.Errorf("%s is on %s, want %s", name, p.Elements[name], want)
		}
	}
	if !slices.Contains([]string{"n1", "n2", "n3"}, p.Elements["r5"]) {
		t.Errorf("r5, whose node has gone, is on %q", p.Elements["r5"])
	}
}

func TestNodeThatIsGoneIsReplaced(t *testing.T) {
	net := line(30)
	before := embed(t, substrate(3), net, model.Placement{})
	after := embed(t, substrate(2), net, before)
	for name, node := range before.Elements {
		if node != "n3" && after.Elements[name] != node {
			t.Errorf("%s moved from %s to %s although its node is still there", name, node, after.Elements[name])
		}
	}
	if c := counts(after); c["n1"]+c["n2"] != 30 {
		t.Errorf("elements are on %v", c)
	}
}

func TestLargeElementsArePackedWhenNeighbourlinessLeavesHoles(t *testing.T) {
	sub := substrate(2)
	net := line(4)
	for i, cpu := range []model.CPU{1000, 3000, 3000, 1000} {
		net.Elements[i].CPU = cpu
	}
	embed(t, sub, net, model.Placement{})
	net = line(4)
	for i, cpu := range []model.CPU{1000, 1000, 3000, 3000} {
		net.Elements[i].CPU = cpu
	}
	embed(t, sub, net, model.Placement{})
}

func TestLinkThatFitsNowherePullsItsEndsTogether(t *testing.T) {
	sub := substrate(3)
	for i := range sub.Links {
		sub.Links[i].Bandwidth = 100e6
	}
	net := line(4)
	for i := range net.Links {
		net.Links[i].Bandwidth = 1e9
	}
	net.Links[1].Bandwidth = 50e6
	p := embed(t, sub, net, model.Placement{})
	if p.Elements["r1"] != p.Elements["r2"] || p.Elements["r3"] != p.Elements["r4"] {
		t.Errorf("ends of 1 Gbit/s links are on different nodes of a 100 Mbit/s substrate: %v", p.Elements)
	}
}

func TestPathsTakeTurnsWhenBandwidthRunsOut(t *testing.T) {
	sub := substrate(3)
	for i := range sub.Links {
		sub.Links[i].Bandwidth = 100e6
	}
	net := model.Resolved{Name: "pair", Elements: []model.ResolvedElement{{Name: "a", Node: "n1"},
		{Name: "b", Node: "n2"}}}
	for i := range 2 {
		l := addLink(&net, "a", "b")
		l.Name += fmt.Sprint(i)
		l.Bandwidth = 80e6
	}
	p := embed(t, sub, net, model.Placement{})
	if got := [][]string{p.Links["a--b0"][0].Nodes, p.Links["a--b1"][0].Nodes}; !reflect.DeepEqual(got,
		[][]string{{"n1", "n2"}, {"n1", "n3", "n2"}}) {
		t.Errorf("paths are %v", got)
	}
	// The second link keeps its detour when the first is gone.
	net.Links = net.Links[1:]
	q := embed(t, sub, net, p)
	if !reflect.DeepEqual(q.Links["a--b1"], p.Links["a--b1"]) {
		t.Errorf("path moved from %v to %v", p.Links["a--b1"], q.Links["a--b1"])
	}
}

func TestRefusals(t *testing.T) {
	limited := substrate(2)
	limited.Links[0].Bandwidth = 100e6
	small := substrate(2)
	small.Nodes[1].MTU = 1500
	apart := substrate(3)
	apart.Links = apart.Links[:1]
	pinned := func(change func(*model.Resolved)) model.Resolved {
		net := line(2)
		net.Elements[0].Node, net.Elements[1].Node = "n1", "n2"
		change(&net)
		return net
	}
	for _, c := range []struct {
		name string
		sub  model.Substrate
		used Usage
		net  model.Resolved
		now  model.Placement
		want []string
	}{
		{name: "cpu", sub: substrate(2), used: Usage{Nodes: map[string]NodeUsage{"n1": {CPU: 3500}, "n2": {CPU: 2800}}},
			net:  pinnedTo("", func(n *model.Resolved) { n.Elements[0].CPU = 2000 }),
			want: []string{"r1 needs 2 cores on one node: n1 has 0.5 cores free, n2 has 1.2 cores free"}},
		{name: "memory and cpu", sub: substrate(1), net: pinnedTo("", func(n *model.Resolved) {
			n.Elements[0].CPU, n.Elements[0].Memory = 5000, 9*gib
		}), want: []string{"r1 needs 5 cores and 9GiB on one node: n1 has 4 cores and 8GiB free"}},
		{name: "all problems", sub: substrate(2), net: pinnedTo("", func(n *model.Resolved) {
			n.Elements[0].CPU, n.Elements[1].CPU = 5000, 6000
		}), want: []string{"r1 needs 5 cores", "r2 needs 6 cores"}},
		{name: "pinned too much", sub: substrate(2), net: pinnedTo("n1", func(n *model.Resolved) {
			n.Elements[0].CPU, n.Elements[1].CPU = 3000, 3000
		}), want: []string{"node n1 has 4 cores and 8GiB free, but these must be there: r1 3 cores (pinned), r2 3 " +
			"cores (pinned)"}},
		{name: "grown where it is", sub: substrate(2),
			net:  pinnedTo("", func(n *model.Resolved) { n.Elements[0].CPU = 5000 }),
			now:  model.Placement{Elements: map[string]string{"r1": "n2"}},
			want: []string{"r1 5 cores (there already)"}},
		{name: "no such node", sub: substrate(2), net: pinnedTo("n9", func(*model.Resolved) {}),
			want: []string{"r1 is pinned to node n9, which does not exist; there are n1, n2",
				"r2 is pinned to node n9"}},
		{name: "no such location", sub: substrate(2),
			net:  pinnedTo("", func(n *model.Resolved) { n.Elements[0].Location = "paris" }),
			want: []string{"r1 is pinned to location paris, where there is no node; there are rio, bonn"}},
		{name: "location full", sub: substrate(2), net: pinnedTo("", func(n *model.Resolved) {
			n.Elements[0].Location, n.Elements[0].CPU = "bonn", 5000
		}), want: []string{"r1 needs 5 cores on one node in location bonn: n2 has 4 cores free"}},
		{name: "edge without node", sub: substrate(2), net: pinnedTo("", func(n *model.Resolved) {
			n.Edges = []model.ResolvedEdge{{Name: "up", Device: "eth1", End: model.End{Element: "r1"}}}
		}), want: []string{"edge up does not say which node its device eth1 is on; there are n1, n2"}},
		{name: "edge elsewhere", sub: substrate(2), net: pinnedTo("n1", func(n *model.Resolved) {
			n.Edges = []model.ResolvedEdge{{Name: "up", Device: "eth1", Node: "n2", End: model.End{Element: "r1"}}}
		}), want: []string{"r1 is pinned to n1, but its edge's device is on n2"}},
		{name: "bandwidth", sub: limited, net: pinned(func(n *model.Resolved) { n.Links[0].Bandwidth = 200e6 }),
			want: []string{"link r1--r2 needs 200Mbit from n1 (r1) to n2 (r2)", "n1 – n2 has 100Mbit free"}},
		{name: "mtu", sub: small, net: pinned(func(*model.Resolved) {}),
			want: []string{"link r1--r2 has an MTU of 1500, so the underlay must carry 1550",
				"substrate link n1 -- n2 carries 1500",
				"lower the link's MTU to 1450, or raise the underlay's to 1550"}},
		{name: "apart", sub: apart, net: pinned(func(n *model.Resolved) { n.Elements[1].Node = "n3" }),
			want: []string{"n1 and n3 are not joined"}},
		{name: "no nodes", net: line(1), want: []string{"there is no node in the substrate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Embed(c.sub, nil, c.used, c.net, Current{Placement: c.now})
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("error is %v, want a refusal", err)
			}
			if len(refusal.Problems) < 1 {
				t.Fatal("a refusal without problems")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("refusal says\n  %v\nand not\n  %s", err, w)
				}
			}
		})
	}
}

func pinnedTo(node string, change func(*model.Resolved)) model.Resolved {
	net := line(2)
	for i := range net.Elements {
		net.Elements[i].Node = node
	}
	change(&net)
	return net
}

func TestShortestPaths(t *testing.T) {
	sub := substrate(5) // n1 … n5 in a ring
	sub.Nodes = append(sub.Nodes, model.SubstrateNode{Name: "n6"})
	got := ShortestPaths(sub)
	if want := map[string]string{"n2": "n2", "n3": "n2", "n4": "n5", "n5": "n5"}; !reflect.DeepEqual(got["n1"], want) {
		t.Errorf("n1's next hops are %v, want %v (and none to n6, which nothing joins)", got["n1"], want)
	}
	// Of two ways of as many hops the one with less delay.
	sub = substrate(4)
	sub.Links[0].Delay = 1000
	if hop := ShortestPaths(sub)["n1"]["n3"]; hop != "n4" {
		t.Errorf("n1 reaches n3 through %s, the way through n4 has less delay", hop)
	}
	// Every pair gets there, hop by hop.
	sub = substrate(9)
	sub.Links = append(sub.Links, model.SubstrateLink{A: "n1", B: "n5", Delay: 5},
		model.SubstrateLink{A: "n3", B: "n8", Delay: 2})
	next := ShortestPaths(sub)
	for _, a := range sub.Nodes {
		for _, b := range sub.Nodes {
			at := a.Name
			for hops := 0; at != b.Name; hops++ {
				if hops > len(sub.Nodes) {
					t.Fatalf("the way from %s to %s is a loop", a.Name, b.Name)
				}
				at = next[at][b.Name]
			}
		}
	}
}

func TestSubstrateWithoutLinksIsAMesh(t *testing.T) {
	sub := substrate(3)
	sub.Links = nil
	net := line(2)
	net.Elements[0].Node, net.Elements[1].Node = "n1", "n3"
	net.Links[0].Bandwidth = 1e9
	p := embed(t, sub, net, model.Placement{})
	if got := p.Links["r1--r2"][0].Nodes; !slices.Equal(got, []string{"n1", "n3"}) {
		t.Errorf("path is %v", got)
	}
}

func TestUsageOf(t *testing.T) {
	sub := substrate(3)
	net := line(3)
	for i := range net.Elements {
		net.Elements[i].Node = sub.Nodes[i].Name
		net.Elements[i].CPU, net.Elements[i].Memory = 500, gib
	}
	net.Links[0].Bandwidth = 5e6
	p := embed(t, sub, net, model.Placement{})
	u := UsageOf([]model.Record{{Network: document(net), Assigned: model.Assigned{Placement: p}}})
	if want := (NodeUsage{CPU: 500, Memory: gib, Weight: 500, Elements: 1}); u.Nodes["n2"] != want {
		t.Errorf("n2's usage is %+v, want %+v", u.Nodes["n2"], want)
	}
	for _, d := range []Direction{{"n1", "n2"}, {"n2", "n1"}} {
		if u.Links[d] != 5e6 {
			t.Errorf("%v carries %d bit/s, want 5 Mbit/s", d, u.Links[d])
		}
	}
}

func BenchmarkEmbed(b *testing.B) {
	for _, c := range []struct{ elements, nodes int }{{1000, 3}, {4000, 50}} {
		sub, net := substrate(c.nodes), line(c.elements)
		for i := range net.Links {
			net.Links[i].Bandwidth = 1e6
		}
		b.Run(fmt.Sprintf("%d on %d", c.elements, c.nodes), func(b *testing.B) {
			for b.Loop() {
				if _, err := Embed(sub, nil, Usage{}, net, Current{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		// The search, which places by links.
		b.Run(fmt.Sprintf("%d on %d, spread", c.elements, c.nodes), func(b *testing.B) {
			net.Placing.Spread = model.SpreadLocation
			for b.Loop() {
				if _, err := Embed(sub, nil, Usage{}, net, Current{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
