package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
)

// nodes are simulated ones of four cores each, whose agents have told that they make everything.
func nodes(count int) Situation {
	s := Situation{Offers: map[string]model.Offers{}}
	everything := model.Offers{
		{Driver: "control: netns", Makes: []model.Feature{"software: frr", "software: bird"}},
		{Driver: "forwarding: guest", Kinds: []model.Kind{model.Router, model.Host}},
		{Driver: "forwarding: xdp", Kinds: []model.Kind{model.Router}},
		{Driver: "forwarding: bridge", Kinds: []model.Kind{model.Switch}},
		{Driver: "internet", Makes: []model.Feature{model.FeatureInternet}},
	}
	for i := range count {
		name := fmt.Sprintf("n%d", i+1)
		s.Substrate.Nodes = append(s.Substrate.Nodes, model.SubstrateNode{Name: name, CPU: 4000,
			Memory: 4 << 30, Simulated: true})
		s.Offers[name] = everything
	}
	return s
}

// lab is a network of one router, which asks for so many cores.
func lab(name string, cpu model.CPU) model.Network {
	return model.Network{Name: name,
		Elements: []model.Element{{Name: "r1", Kind: model.Router, Amounts: model.Amounts{CPU: cpu}}}}
}

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func admit(s Situation, doc model.Network, old *Network) (Network, error) {
	d, err := Draw(doc, old, "alice", now)
	if err != nil {
		return Network{}, err
	}
	return s.Admit(d)
}

func must(t *testing.T, s Situation, doc model.Network, old *Network) Network {
	t.Helper()
	n, err := admit(s, doc, old)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Each kind of reason, with the words for it.
func TestRefusals(t *testing.T) {
	out := func(doc model.Network, edges ...model.Edge) model.Network {
		for i := range edges {
			edges[i].End = model.End{Element: "r1", Interface: edges[i].Name}
		}
		doc.Edges = edges
		return doc
	}
	inside := func(port uint16) *model.Internet {
		return &model.Internet{Forwards: []model.Forward{{Port: port, Element: "r1", To: 22}}}
	}
	small := lab("lab", 0)
	small.Elements[0].Disk, small.Elements[0].Software = 32<<20, model.SoftwareBIRD
	large := lab("lab", 0)
	large.Elements[0].Disk, large.Elements[0].Software = 64<<20, model.SoftwareBIRD
	followed := lab("lab", 0)
	followed.Elements[0].Forwarding = model.ForwardXDP
	for name, c := range map[string]struct {
		doc  model.Network
		old  *model.Network
		s    func(s *Situation)
		kind Kind
		want string
	}{
		"a document that is wrong": {doc: model.Network{Name: "lab",
			Elements: []model.Element{{Name: "r1", Kind: "ship"}}},
			want: `the kind "ship" is unknown`},
		"more than there is": {doc: lab("lab", 5000), want: "r1 needs 5 cores on one node"},
		"a slice that nothing holds": {doc: model.Network{Name: "lab", Slice: model.Slice{CPU: 90_000},
			Elements: lab("", 0).Elements},
			want: "90 cores are more than all nodes have together"},
		"routes that nobody tells": {doc: followed, s: func(s *Situation) {
			s.Offers["n1"][0].Lacks = map[model.Feature]string{model.FeatureRoutes: "it tells no routes"}
		}, want: "router r1 wants routes; n1 lacks it: it tells no routes"},
		"its owner's quota": {doc: lab("lab", 2000), s: func(s *Situation) {
			s.Quotas.Owners = map[string]model.Quota{"alice": {CPU: 1000}}
		}, want: "network lab does not fit into its quota"},
		"a disk that shrinks": {doc: small, old: &large, want: "its disk of 64MiB cannot shrink to 32MiB"},
		"another's device": {doc: out(lab("lab", 0), model.Edge{Name: "wan", Device: "eth1"}), s: func(s *Situation) {
			s.Others = []model.Record{must(t, nodes(1), out(lab("other", 0), model.Edge{Name: "lan", Device: "eth1"}),
				nil).Record}
		}, want: "eth1 of node n1 is already edge lan of network other"},
		"a device that is not there": {doc: out(lab("lab", 0), model.Edge{Name: "wan", Device: "eth7"}),
			s: func(s *Situation) {
				s.Seen = map[string]Seen{"n1": {Devices: []string{"eth0", "eth1"}}}
			}, want: "node n1 has no device eth7; it has eth0, eth1"},
		"another's port": {doc: out(lab("lab", 0), model.Edge{Name: "wan", Internet: inside(2222)}),
			s: func(s *Situation) {
				s.Others = []model.Record{must(t, nodes(1),
					out(lab("other", 0), model.Edge{Name: "up", Internet: inside(2222)}), nil).Record}
			}, want: "port 2222 is already forwarded by edge up of network other"},
		"a process's port": {doc: out(lab("lab", 0), model.Edge{Name: "wan", Internet: inside(2222)}),
			s: func(s *Situation) {
				s.Seen = map[string]Seen{"n1": {Listeners: map[Port]string{{"tcp", 2222}: "sshd"}}}
			}, want: "tcp port 2222 of the machine is taken by sshd"},
		"an owner takes a device": {doc: out(lab("lab", 0), model.Edge{Name: "wan", Device: "eth1"}),
			s:    func(s *Situation) { s.Owner = true },
			kind: NotYours, want: "edge wan takes device eth1 of node n1; only an admin may do that"},
		"a node that refuses": {doc: lab("lab", 0), s: func(s *Situation) {
			s.Refusing = map[string]string{"n1": ", which changes nothing today"}
		}, kind: Conflict, want: "network lab would have elements on node n1, which changes nothing today"},
		"a node that has not told": {doc: lab("lab", 0), s: func(s *Situation) { s.Offers = nil }, kind: NotYet,
			want: "the agent of node n1 has not reported what can run there"},
	} {
		t.Run(name, func(t *testing.T) {
			s := nodes(1)
			var old *Network
			if c.old != nil {
				n := must(t, s, *c.old, nil)
				old = &n
			}
			if c.s != nil {
				c.s(&s)
			}
			_, err := admit(s, c.doc, old)
			var r *Refusal
			if !errors.As(err, &r) || r.Kind != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q of kind %d", err, c.want, c.kind)
			}
		})
	}
}

// All reasons of a step are told, not the first one.
func TestAllReasonsAreTold(t *testing.T) {
	doc := model.Network{Name: "lab", Elements: []model.Element{{Name: "r1", Kind: "ship"},
		{Name: "r 2", Kind: model.Host}}}
	_, err := admit(nodes(1), doc, nil)
	var r *Refusal
	if !errors.As(err, &r) || len(r.Reasons) != 2 {
		t.Errorf("%v", err)
	}
}

// What is there stays where it is, whatever its node says; new elements are not put there.
func TestWhatIsThereStays(t *testing.T) {
	s := nodes(1)
	old := must(t, s, lab("lab", 100), nil)
	s.Offers, s.Refusing = nil, map[string]string{"n1": ": it is lost"}
	next := must(t, s, lab("lab", 200), &old)
	if next.Record.Revision != 2 || next.Record.Assigned.Placement.Elements["r1"] != "n1" ||
		next.Record.Network.Elements[0].CPU != 200 {
		t.Errorf("%+v", next.Record)
	}
}

// A network that has elements on a node that takes nothing new gets new ones elsewhere, also beside their neighbours on
// that node, and is refused only where all nodes are such.
func TestNewElementsGoWhereTheyAreTaken(t *testing.T) {
	s := nodes(2)
	old := must(t, s, lab("lab", 100), nil)
	held := old.Record.Assigned.Placement.Elements["r1"]
	free := map[string]string{"n1": "n2", "n2": "n1"}[held]
	s.Others = []model.Record{{Network: lab("other", 600), Assigned: model.Assigned{ // so that the other node is emptier
		Placement: model.Placement{Elements: map[string]string{"r1": free}}}}}
	s.Refusing = map[string]string{held: ", which changes nothing today"}
	doc := lab("lab", 100)
	doc.Elements = append(doc.Elements, model.Element{Name: "new", Kind: model.Host})
	doc.Links = append(doc.Links, model.Link{Name: "new--r1", Ends: [2]model.End{
		{Element: "new", Interface: "r1"}, {Element: "r1", Interface: "new"}}})
	next := must(t, s, doc, &old)
	for element, node := range next.Record.Assigned.Placement.Elements {
		if is := node == held; is != (old.on(element) != "") {
			t.Errorf("%s is on %s, and %s takes nothing new", element, node, held)
		}
	}
	s.Refusing = map[string]string{"n1": ", which changes nothing today", "n2": ", which changes nothing today"}
	if _, err := admit(s, doc, &old); err == nil || !strings.Contains(err.Error(), "which changes nothing today") {
		t.Errorf("with two such nodes it is refused by %v", err)
	}
}

// A node that takes nothing new is left out while another one will do; pinned to it, an element is refused.
func TestANodeThatRefusesIsLeftOut(t *testing.T) {
	for _, refusing := range []string{"n1", "n2"} {
		s := nodes(2)
		s.Refusing = map[string]string{refusing: ", which changes nothing today"}
		n := must(t, s, lab("lab", 100), nil)
		for element, node := range n.Record.Assigned.Placement.Elements {
			if node == refusing {
				t.Errorf("%s is on %s, which takes nothing new", element, node)
			}
		}
		doc := lab("lab", 100)
		doc.Elements[0].Node = refusing
		if _, err := admit(s, doc, nil); err == nil || !strings.Contains(err.Error(), "which changes nothing today") {
			t.Errorf("pinned to %s: %v", refusing, err)
		}
	}
}

// What one network of a file gives up, another one of it may have; a refusal says which of them are refused.
func TestTogether(t *testing.T) {
	s := nodes(1)
	a := must(t, s, lab("a", 3000), nil)
	draw := func(documents []model.Network, old *Network) (drafts []*Draft) {
		for i, doc := range documents {
			d, err := Draw(doc, map[bool]*Network{true: old}[i == len(documents)-1], "alice", now)
			if err != nil {
				t.Fatal(err)
			}
			drafts = append(drafts, d)
		}
		return drafts
	}
	documents := []model.Network{lab("b", 3000), lab("a", 1000)}
	all, err := s.Together(documents, draw(documents, &a))
	if err != nil || len(all) != 2 || all[0].Record.Assigned.Index == all[1].Record.Assigned.Index {
		t.Fatalf("%v, %+v", err, all)
	}
	documents = []model.Network{lab("b", 2000), lab("c", 2000), lab("a", 3000)}
	_, err = s.Together(documents, draw(documents, &a))
	var r *Refusal
	if !errors.As(err, &r) || r.Kind != Wrong || !strings.HasPrefix(r.Detail, "2 of 3 networks are refused") ||
		len(r.Reasons) != 2 {
		t.Fatalf("%v", err)
	}
	var p model.Problem
	if !errors.As(r.Reasons[0], &p) || p.Network != "b" {
		t.Errorf("which network it is about is not said: %+v", p)
	}
}

// To decide is to change nothing: neither the document nor the situation, and once more gives the same.
func TestAdmissionIsPure(t *testing.T) {
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := nodes(rapid.IntRange(1, 3).Draw(t, "nodes"))
		s.Owner, s.Overwrite = rapid.Bool().Draw(t, "owner"), rapid.Bool().Draw(t, "overwrite")
		s.LoseFiles = rapid.Bool().Draw(t, "lose files")
		var old *Network
		for i := range rapid.IntRange(0, 3).Draw(t, "networks") {
			cpu := model.CPU(rapid.IntRange(10, 3000).Draw(t, "cpu"))
			n, err := admit(s, lab(fmt.Sprintf("net%d", i), cpu), nil)
			if err != nil {
				continue
			}
			if i == 0 {
				old = &n
			} else {
				s.Others = append(s.Others, n.Record)
			}
		}
		s.Restraints = []model.Restraint{{Owner: "alice",
			ID: model.ID{Network: "net0", Element: "r2"}, Quarantined: true}}
		doc := lab("net0", model.CPU(rapid.IntRange(10, 5000).Draw(t, "cpu")))
		for i := range rapid.IntRange(1, 4).Draw(t, "more") {
			e := model.Element{Name: fmt.Sprintf("r%d", i+2), Kind: model.Router}
			doc.Elements = append(doc.Elements, e)
			doc.Links = append(doc.Links, model.Link{Name: "r1--" + e.Name,
				Ends: [2]model.End{{Element: "r1", Interface: e.Name}, {Element: e.Name, Interface: "r1"}}})
		}
		before := text([]any{s.Substrate, s.Others, s.Restraints, doc, old})
		first, err := admit(s, doc, old)
		again, errAgain := admit(s, doc, old)
		if text([]any{s.Substrate, s.Others, s.Restraints, doc, old}) != before {
			t.Error("what was asked about has changed")
		}
		if text(first) != text(again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Errorf("once more it is %v %v, and was %v %v", text(again), errAgain, text(first), err)
		}
		if err == nil && slices.ContainsFunc(first.Resolved.Elements, func(e model.ResolvedElement) bool {
			return first.Record.Assigned.Placement.Elements[e.Name] == ""
		}) {
			t.Errorf("an element has no node: %+v", first.Record.Assigned)
		}
		if err == nil && !first.Record.Overrides["r2"].Quarantined {
			t.Error("what an administrator has decided about r2 does not count")
		}
	})
}

// TestFreshEdges: what has to be looked at before a decision are new edges, and those that are not as they were.
func TestFreshEdges(t *testing.T) {
	edge := func(name, device string) model.Edge {
		return model.Edge{Name: name, Device: device, End: model.End{Element: "r1", Interface: name}}
	}
	doc := lab("lab", 0)
	doc.Edges = []model.Edge{edge("same", "eth1"), edge("other", "eth2")}
	old := must(t, nodes(1), doc, nil)
	doc.Edges = []model.Edge{edge("same", "eth1"), edge("other", "eth3"), edge("wan", "eth4")}
	for _, c := range []struct {
		old  *Network
		want string
	}{{nil, "same other wan"}, {&old, "other wan"}} {
		d, err := Draw(doc, c.old, "alice", now)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range d.Fresh() {
			got = append(got, e.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("fresh are %q, want %q", got, c.want)
		}
	}
}
