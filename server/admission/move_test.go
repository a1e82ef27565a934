package admission

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// three is a network of three routers in a row and a switch, on three nodes that are joined in a row.
func three(t *testing.T) (Situation, Network) {
	t.Helper()
	s := nodes(3)
	s.Substrate.Links = []model.SubstrateLink{{A: "n1", B: "n2", Bandwidth: 1e9}, {A: "n2", B: "n3", Bandwidth: 1e9}}
	doc := model.Network{Name: "lab", Elements: []model.Element{
		{Name: "r1", Kind: model.Router, Node: "n1", Amounts: model.Amounts{CPU: 1000}},
		{Name: "r2", Kind: model.Router}, {Name: "s1", Kind: model.Switch}},
		Links: []model.Link{
			{Name: "r1--r2", Ends: [2]model.End{{Element: "r1", Interface: "r2"}, {Element: "r2", Interface: "r1"}},
				Bandwidth: 1e8},
			{Name: "r2--s1", Ends: [2]model.End{{Element: "r2", Interface: "s1"}, {Element: "s1", Interface: "r2"}}}}}
	n := must(t, s, doc, nil)
	for _, name := range []string{"r1", "r2", "s1"} { // all on one node, whatever the embedding likes
		d, err := DrawMove(&n, name, "n1", now)
		if err != nil {
			t.Fatal(err)
		}
		if n.on(name) == "n1" {
			continue
		}
		if n, err = s.Move(d, name); err != nil {
			t.Fatal(err)
		}
	}
	return s, n
}

func move(t *testing.T, s Situation, n Network, element, to string) (Network, error) {
	t.Helper()
	d, err := DrawMove(&n, element, to, now)
	if err != nil {
		return Network{}, err
	}
	return s.Move(d, element)
}

// One element goes, everything else stays, and links get their paths.
func TestMovePlacesOneElement(t *testing.T) {
	s, n := three(t)
	next, err := move(t, s, n, "r2", "n3")
	if err != nil {
		t.Fatal(err)
	}
	if is := next.Record.Assigned.Placement.Elements; is["r2"] != "n3" || is["r1"] != "n1" || is["s1"] != "n1" {
		t.Errorf("placed %v", is)
	}
	if next.Record.Network.Elements[1].Node != "" || next.Resolved.Elements[1].Node != "" {
		t.Error("an element that is not pinned is pinned by its move")
	}
	if next.Record.Revision != n.Record.Revision+1 {
		t.Errorf("revision %d after %d", next.Record.Revision, n.Record.Revision)
	}
	moved := MovedLinks(&n.Record, &next.Record)
	if len(moved) != 2 || moved[0].Link != "r1--r2" || moved[0].Before != nil ||
		strings.Join(moved[0].After[0].Nodes, " ") != "n1 n2 n3" {
		t.Errorf("links that move: %+v", moved)
	}
	if next, err = move(t, s, n, "r1", "n2"); err != nil {
		t.Fatal(err)
	}
	if is := next.Record.Network.Elements[0].Node; is != "n2" {
		t.Errorf("a pinned element is pinned to %q after its move to n2", is)
	}
}

func TestMoveIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		element, to string
		s           func(*Situation)
		want        string
	}{
		"no such element": {"r9", "n2", nil, "has no element r9"},
		"no such node":    {"r2", "n9", nil, "node n9, which does not exist; there are n1, n2, n3"},
		"no room": {"r1", "n2", func(s *Situation) { s.Substrate.Nodes[1].CPU = 500 },
			"n2"},
		"no path": {"r2", "n3", func(s *Situation) { s.Substrate.Links[1].Bandwidth = 1e7 }, "r1--r2"},
		"a node that takes nothing": {"r2", "n2", func(s *Situation) {
			s.Refusing = map[string]string{"n2": ", which changes nothing today"}
		}, "on node n2, which changes nothing today"},
		"a node that has not told": {"r2", "n2", func(s *Situation) { delete(s.Offers, "n2") },
			"the agent of node n2 has not reported"},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := three(t)
			if c.s != nil {
				c.s(&s)
			}
			if _, err := move(t, s, n, c.element, c.to); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// While an element is being moved, what decides where things are waits, and the way back stays open.
func TestNothingIsPlacedDuringAMove(t *testing.T) {
	s, n := three(t)
	next, err := move(t, s, n, "r2", "n3")
	if err != nil {
		t.Fatal(err)
	}
	n.Record.Moving = &model.Moving{Move: "m1", Element: "r2", From: "n1", To: "n3", Step: model.MoveCopying,
		Placement: next.Record.Assigned.Placement}
	for name, try := range map[string]func() error{
		"apply": func() error { _, err := admit(s, n.Record.Network, &n); return err },
		"move":  func() error { _, err := move(t, s, n, "r1", "n2"); return err },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), "r2 is being moved from node n1 to node n3") {
			t.Errorf("%s during a move: %v", name, err)
		}
	}
	// Later it is remembered, as long as the element is where it was moved to.
	n.Record.Assigned.Placement, n.Record.Moving.Step = next.Record.Assigned.Placement, model.MoveStarting
	again := must(t, s, n.Record.Network, &n)
	if again.Record.Moving == nil || again.Record.Moving.Move != "m1" {
		t.Errorf("an apply makes it %+v of the move", again.Record.Moving)
	}
	pinned := n.Record.Network
	pinned.Elements = append([]model.Element(nil), pinned.Elements...)
	pinned.Elements[1].Node = "n2"
	s.LoseFiles = true
	if elsewhere := must(t, s, pinned, &n); elsewhere.Record.Moving != nil {
		t.Errorf("an apply that moves it without its files keeps %+v of the move", elsewhere.Record.Moving)
	}
}

// What an element's move interrupts depends on what it is.
func TestPromises(t *testing.T) {
	router := func(change func(*model.ResolvedElement)) Network {
		n := Network{Resolved: model.Resolved{Elements: []model.ResolvedElement{{Name: "e", Kind: model.Router}}}}
		change(&n.Resolved.Elements[0])
		return n
	}
	plain := func(change func(*model.ResolvedElement)) Network { return router(change) }
	for name, c := range map[string]struct {
		n          Network
		keeps      string
		interrupts string
		loses      string
		not        string // in none of them
	}{
		"static routes": {plain(func(*model.ResolvedElement) {}), "its disk", "all traffic through it", "exec", "OSPF"},
		"OSPF and BGP": {router(func(e *model.ResolvedElement) {
			e.Routing.OSPF, e.Routing.BGP = &model.OSPF{}, &model.BGP{}
		}), "its disk", "OSPF: neighbours lose the adjacency at once", "TCP connections", "IS-IS"},
		"OSPFv3": {router(func(e *model.ResolvedElement) { e.Routing.OSPF6 = &model.OSPF{} }), "", "OSPFv3:", "", ""},
		"IS-IS":  {router(func(e *model.ResolvedElement) { e.Routing.ISIS = &model.ISIS{} }), "", "IS-IS:", "", ""},
		"RIP":    {router(func(e *model.ResolvedElement) { e.Routing.RIP = &model.RIP{} }), "", "RIP:", "", ""},
		"its own": {router(func(e *model.ResolvedElement) { e.Config = map[string]string{"frr.conf": "x"} }), "",
			"its own configuration", "", ""},
		"a host": {plain(func(e *model.ResolvedElement) { e.Kind = model.Host }), "", "from it and to it", "exec", ""},
		"programs": {plain(func(e *model.ResolvedElement) { e.Kind, e.Run = model.Host, "iperf3 -s" }), "", "",
			"in memory", ""},
		"tmpfs": {plain(func(e *model.ResolvedElement) { e.Tmpfs = map[string]model.Bytes{"/tmp": 1 << 20} }), "", "",
			"tmpfs", ""},
		"xdp": {plain(func(e *model.ResolvedElement) { e.Forwarding = model.ForwardXDP }), "", "", "counters", ""},
		"a switch": {plain(func(e *model.ResolvedElement) { e.Kind = model.Switch }), "", "no carrier meanwhile",
			"MAC addresses that it has learnt", "disk"},
	} {
		t.Run(name, func(t *testing.T) {
			p := PromiseOf(&c.n, "e")
			for _, is := range []struct {
				lines []string
				want  string
			}{{p.Keeps, c.keeps}, {p.Interrupts, c.interrupts}, {p.Loses, c.loses}} {
				all := strings.Join(is.lines, "\n")
				if !strings.Contains(all, is.want) {
					t.Errorf("%q is missing in\n%s", is.want, all)
				}
				if c.not != "" && strings.Contains(all, c.not) {
					t.Errorf("%q is in\n%s", c.not, all)
				}
			}
		})
	}
	edge := router(func(*model.ResolvedElement) {})
	edge.Resolved.Edges = []model.ResolvedEdge{{Name: "up", End: model.End{Element: "e"},
		Internet: &model.ResolvedInternet{}}}
	if p := PromiseOf(&edge, "e"); !strings.Contains(strings.Join(p.Loses, "\n"), "internet edge up") {
		t.Errorf("connections through NAT are not told: %v", p.Loses)
	}
	stopped := router(func(*model.ResolvedElement) {})
	stopped.Record.Overrides = map[string]model.Override{"e": {Stopped: true}}
	if p := PromiseOf(&stopped, "e"); !strings.Contains(strings.Join(p.Keeps, "\n"), "it is stopped, and stays so") {
		t.Errorf("that it is stopped is not told: %v", p.Keeps)
	}
}
