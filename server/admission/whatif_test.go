package admission

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
)

// chain is a network of routers in a row, each of which asks for so many cores.
func chain(name string, count int, cpu model.CPU, bandwidth model.Bandwidth) model.Network {
	net := model.Network{Name: name}
	for i := range count {
		net.Elements = append(net.Elements, model.Element{Name: fmt.Sprintf("r%d", i+1), Kind: model.Router,
			Amounts: model.Amounts{CPU: cpu}})
		if i > 0 {
			a, b := fmt.Sprintf("r%d", i), fmt.Sprintf("r%d", i+1)
			net.Links = append(net.Links, model.Link{Name: a + "--" + b, Bandwidth: bandwidth,
				Ends: [2]model.End{{Element: a, Interface: b}, {Element: b, Interface: a}}})
		}
	}
	return net
}

// ring is nodes in a ring of links, with the networks that were placed there in turn.
func ring(t *testing.T, count int, documents ...model.Network) (Situation, []Network) {
	t.Helper()
	s := nodes(count)
	for i := range s.Substrate.Nodes {
		s.Substrate.Links = append(s.Substrate.Links, model.SubstrateLink{A: s.Substrate.Nodes[i].Name,
			B: s.Substrate.Nodes[(i+1)%count].Name, Bandwidth: 1e9})
	}
	var networks []Network
	at := s
	for _, doc := range documents {
		n := must(t, at, doc, nil)
		at.Others = append(at.Others, n.Record)
		networks = append(networks, n)
	}
	return s, networks
}

func whatIf(t *testing.T, s Situation, networks []Network, ask model.WhatIf) model.WhatIfResult {
	t.Helper()
	before := fmt.Sprintf("%+v", networks)
	r, err := s.WhatIf(networks, ask, t.Context().Err)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := s.WhatIf(networks, ask, t.Context().Err); !reflect.DeepEqual(r, again) {
		t.Fatalf("two answers: %+v\n%+v", r, again)
	}
	if fmt.Sprintf("%+v", networks) != before {
		t.Fatal("the networks were changed")
	}
	return r
}

func TestWhatIfANodeGoes(t *testing.T) {
	pinned := chain("apin", 2, 500, 0)
	pinned.Elements[0].Node = "n2"
	s, networks := ring(t, 3, chain("lab", 6, 1000, 10e6), pinned)
	r := whatIf(t, s, networks, model.WhatIf{Down: []string{"n2"}})
	if len(r.Networks) != 2 || r.Networks[0].Network != "apin" || r.Networks[1].Network != "lab" {
		t.Fatalf("the networks concerned are %+v", r.Networks)
	}
	if lost := r.Networks[0].Lost; len(lost) != 1 || lost[0].Why != "r1 is pinned to n2 (node:)" {
		t.Errorf("of apin is lost %+v", lost)
	}
	lab := r.Networks[1]
	if len(lab.Elements) != 2 || len(lab.Refused) > 0 {
		t.Errorf("lab would be %+v", lab)
	}
	for _, m := range lab.Elements {
		if m.From != "n2" || m.To == "n2" || m.To == "" {
			t.Errorf("an element would move so: %+v", m)
		}
	}
	for _, l := range lab.Links {
		if slices.Contains(l.Nodes, "n2") {
			t.Errorf("%s would go by %v", l.Link, l.Nodes)
		}
	}
	if len(r.Nodes) != 2 || len(r.Links) != 1 || r.Links[0].Bandwidth != 1e9 {
		t.Errorf("left would be %+v %+v", r.Nodes, r.Links)
	}
	left, now := model.CPU(0), model.CPU(0)
	for _, n := range r.Nodes {
		left, now = left+n.CPULeft, now+n.CPUNow
	}
	if now-left < 2000 || left > 2000 {
		t.Errorf("both nodes would have %d left, and have %d", left, now)
	}
	// Two nodes do not carry what three did.
	r = whatIf(t, s, networks, model.WhatIf{Down: []string{"n2", "n3"}})
	if w := r.Networks[1]; len(w.Refused) == 0 || len(w.Elements) > 0 ||
		!strings.Contains(strings.Join(w.Refused, "\n"), "n1 has") {
		t.Errorf("on one node lab would be %+v", w)
	}
}

func TestWhatIfANodeComes(t *testing.T) {
	s, networks := ring(t, 3, chain("lab", 9, 1200, 10e6))
	r := whatIf(t, s, networks, model.WhatIf{Add: []model.NodeToCome{{Name: "n1"}}})
	if len(r.Added) != 1 || r.Added[0].Name != "n1-2" || r.Added[0].CPU != 4000 || len(r.Networks) != 0 {
		t.Errorf("one more like n1 is %+v, and changes %+v", r.Added, r.Networks)
	}
	if len(r.Links) != 5 || len(r.Nodes) != 4 || r.Nodes[3].CPULeft != 4000 || r.Nodes[3].CPUNow != 0 {
		t.Errorf("left would be %+v, %+v", r.Nodes, r.Links)
	}
	if len(r.Moves) != 1 || r.Moves[0].Elements[0].To != "n1-2" {
		t.Errorf("what is worth it: %+v", r.Moves)
	}
	r = whatIf(t, s, networks, model.WhatIf{Down: []string{"n3"}, Add: []model.NodeToCome{{Name: "big", CPU: 16_000,
		Memory: 1 << 34, Bandwidth: 1e10, Location: "rio"}}})
	if len(r.Networks) != 1 || len(r.Networks[0].Refused) > 0 || len(r.Links) != 3 || r.Links[1].Bandwidth != 1e10 ||
		r.Added[0].Location != "rio" {
		t.Errorf("with a large one in n3's place: %+v", r)
	}
	// A node that takes nothing new takes nothing here.
	s.Refusing = map[string]string{"n1": " is not ready", "n2": " is not ready"}
	r = whatIf(t, s, networks, model.WhatIf{Down: []string{"n3"}})
	if len(r.Networks) != 1 || len(r.Networks[0].Refused) == 0 {
		t.Errorf("with no node that takes anything: %+v", r.Networks)
	}
}

func TestWhatIfRefuses(t *testing.T) {
	s, networks := ring(t, 3, lab("lab", 0))
	many, long := make([]string, model.MaxWhatIf+1), strings.Repeat("n", 100_000)
	for want, ask := range map[string]model.WhatIf{
		"0 nodes would go or come":              {},
		"65 nodes would":                        {Down: many},
		"there is no node n9":                   {Down: []string{"n9"}},
		"n1 would be down twice":                {Down: []string{"n1", "n1"}},
		"no node would be left":                 {Down: []string{"n1", "n2", "n3"}},
		"like n9, and there is no such":         {Add: []model.NodeToCome{{Name: "x", Like: "n9"}}},
		"not said what node x would have":       {Add: []model.NodeToCome{{Name: "x", CPU: 1000}}},
		"cannot be called":                      {Add: []model.NodeToCome{{Name: "x y", Like: "n1"}}},
		"no node \"" + long[:64] + "\" that":    {Down: []string{long}},
		"called \"" + long[:64] + "\": use":     {Add: []model.NodeToCome{{Name: long, Like: "n1"}}},
		"like \"" + long[:64] + "\", and":       {Add: []model.NodeToCome{{Name: "x", Like: long}}},
		"be at \"" + long[:64] + "\": a":        {Add: []model.NodeToCome{{Name: "x", Like: "n1", Location: long}}},
		"cannot have 0.001 cores":               {Add: []model.NodeToCome{{Name: "n1", CPU: 1}}},
		"have 16777216TiB of memory; from 8MiB": {Add: []model.NodeToCome{{Name: "n1", Memory: 1<<64 - 1}}},
		"links of node n1 cannot have":          {Add: []model.NodeToCome{{Name: "n1", Bandwidth: 1<<64 - 1}}},
		"node x would come twice":               {Add: []model.NodeToCome{{Name: "x", Like: "n1"}, {Name: "x", Like: "n1"}}},
	} {
		_, err := s.WhatIf(networks, ask, t.Context().Err)
		var refusal *Refusal
		if !errors.As(err, &refusal) || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%+v is refused with %v, want %q", ask, err, want)
		}
	}
}

// Whatever would be elsewhere fits there, beside everything else.
func TestWhatIfNeverOverbooks(t *testing.T) {
	moved := 0
	for seed := range 30 {
		var documents []model.Network
		for k := range 4 {
			documents = append(documents, chain(fmt.Sprintf("net%d", (k+seed)%4), 2+(seed+k)%5,
				model.CPU(200+100*(seed%7)), model.Bandwidth(50+20*k)*1e6))
		}
		s, networks := ring(t, 4, documents...)
		r := whatIf(t, s, networks, model.WhatIf{Down: []string{fmt.Sprint("n", 1+seed%4)}})
		records := make([]model.Record, len(networks))
		for i, n := range networks {
			records[i], _ = without(n.Record, []string{fmt.Sprint("n", 1+seed%4)})
			for _, w := range r.Networks {
				if w.Network != n.Record.Network.Name {
					continue
				}
				for _, m := range w.Elements {
					records[i].Assigned.Placement.Elements[m.Element] = m.To
					moved++
				}
				for _, l := range w.Links {
					records[i].Assigned.Placement.Links[l.Link] = []model.LinkPath{{Nodes: l.Nodes,
						Bandwidth: n.Record.Network.Links[slices.IndexFunc(n.Record.Network.Links,
							func(x model.Link) bool { return x.Name == l.Link })].Bandwidth}}
				}
			}
		}
		used := embedding.UsageOf(records)
		for _, n := range r.Nodes {
			if used.Nodes[n.Name].CPU > n.CPU || n.CPU-used.Nodes[n.Name].CPU != n.CPULeft {
				t.Errorf("seed %d: %s of %d would have %d, %d are told to be left", seed, n.Name, n.CPU,
					used.Nodes[n.Name].CPU, n.CPULeft)
			}
		}
		for _, l := range r.Links {
			if u := used.Links[embedding.Direction{From: l.A, To: l.B}]; u > l.Bandwidth || l.Bandwidth-u != l.Left {
				t.Errorf("seed %d: %s – %s of %d would carry %d, %d are told to be left", seed, l.A, l.B, l.Bandwidth, u,
					l.Left)
			}
		}
	}
	if moved < 50 {
		t.Errorf("only %d elements moved", moved)
	}
}
