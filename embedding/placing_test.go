package embedding

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// star is a network of a hub and its neighbours.
func star(n int) model.Resolved {
	net := model.Resolved{Name: "star", Elements: []model.ResolvedElement{{Name: "hub", Kind: model.Router}}}
	for i := range n {
		name := fmt.Sprintf("r%d", i+1)
		net.Elements = append(net.Elements, model.ResolvedElement{Name: name, Kind: model.Router})
		addLink(&net, "hub", name)
	}
	return net
}

func TestDistinctElementsAreOnNodesOfTheirOwn(t *testing.T) {
	net := star(4)
	net.Placing.Distinct = true
	p := embed(t, substrate(5), net, model.Placement{})
	if c := counts(p); len(c) != 5 {
		t.Errorf("five distinct elements are on %v", c)
	}
	hops := 0
	for _, paths := range p.Links {
		hops += len(paths[0].Nodes) - 1
	}
	if hops != 6 { // two beside the hub on the ring of five, two behind them
		t.Errorf("the links take %d hops, 6 would do: %v", hops, p.Links)
	}
}

func TestPackUsesFewNodes(t *testing.T) {
	net := line(9)
	for i := range net.Elements {
		net.Elements[i].CPU = 1000
	}
	if c := counts(embed(t, substrate(9), net, model.Placement{})); len(c) != 9 {
		t.Errorf("nine elements are balanced over %v", c)
	}
	net.Placing.Policy = model.Pack
	if c := counts(embed(t, substrate(9), net, model.Placement{})); len(c) != 3 {
		t.Errorf("nine elements of a core are packed onto %v, three nodes of four cores would do", c)
	}
	large := line(4000)
	large.Placing.Policy = model.Pack
	if c := counts(embed(t, substrate(50), large, model.Placement{})); len(c) != 1 {
		t.Errorf("4000 elements that ask for nothing are packed onto %d nodes", len(c))
	}
}

func TestSpreadOverLocations(t *testing.T) {
	sub := substrate(6)
	sub.Nodes[5].Location = "" // bonn has n2 and n4, rio n1, n3, n5
	net := line(6)
	net.Placing.Spread = model.SpreadLocation
	p := embed(t, sub, net, model.Placement{})
	if c := counts(p); c["n2"]+c["n4"] != 3 || c["n1"]+c["n3"]+c["n5"] != 3 {
		t.Errorf("six elements are spread over two locations as %v", c)
	}
	// What is there stays, and one that goes makes nothing wrong.
	net.Elements, net.Links = net.Elements[:5], net.Links[:4]
	after, err := Embed(sub, nil, Usage{}, net, Current{Placement: p, Network: net})
	if err != nil {
		t.Fatal(err)
	}
	for _, el := range net.Elements {
		if after.Elements[el.Name] != p.Elements[el.Name] {
			t.Errorf("%s moved from %s to %s", el.Name, p.Elements[el.Name], after.Elements[el.Name])
		}
	}
}

// A network whose links fit nowhere where its elements are placed first is placed by its links.
func TestLinksThatFindNoRoomPlaceTheirEnds(t *testing.T) {
	sub := model.Substrate{Nodes: []model.SubstrateNode{{Name: "n1", CPU: 1000}, {Name: "n2", CPU: 1000},
		{Name: "n3", CPU: 1000}}, Links: []model.SubstrateLink{{A: "n1", B: "n2", Bandwidth: 100e6},
		{A: "n2", B: "n3", Bandwidth: 1e9}}}
	net := line(2)
	net.Elements[0].CPU, net.Elements[1].CPU = 1000, 1000
	net.Links[0].Bandwidth = 500e6
	p := embed(t, sub, net, model.Placement{})
	if got := fmt.Sprint(p.Links["r1--r2"]); !strings.Contains(got, "n2") || !strings.Contains(got, "n3") {
		t.Errorf("the link goes %s, only n2 – n3 has room for it", got)
	}
}

// A path that is there gives way only where the network would be refused otherwise.
func TestPathGivesWayRatherThanRefusing(t *testing.T) {
	sub := substrate(4)
	for i := range sub.Links {
		sub.Links[i].Bandwidth = 100e6
	}
	sub.Links = append(sub.Links, model.SubstrateLink{A: "n1", B: "n3", Bandwidth: 60e6})
	net := model.Resolved{Name: "lab", Elements: []model.ResolvedElement{{Name: "a", Node: "n1"},
		{Name: "b", Node: "n3"}, {Name: "c", Node: "n2"}, {Name: "d", Node: "n4"}}}
	addLink(&net, "a", "b").Bandwidth = 60e6
	before := embed(t, sub, net, model.Placement{})
	for _, pair := range [][2]string{{"a", "c"}, {"c", "b"}, {"b", "d"}} {
		addLink(&net, pair[0], pair[1]).Bandwidth = 100e6
	}
	kept := embed(t, sub, net, before)
	if fmt.Sprint(kept.Links["a--b"]) != fmt.Sprint(before.Links["a--b"]) {
		t.Errorf("a--b moved from %v to %v although there was room", before.Links["a--b"], kept.Links["a--b"])
	}
	// On a detour it is in the way of the last one.
	detour := model.Placement{Elements: before.Elements, Links: map[string][]model.LinkPath{
		"a--b": {{Nodes: []string{"n1", "n2", "n3"}, Bandwidth: 60e6}}}}
	moved := embed(t, sub, net, detour)
	if got := len(moved.Links["a--b"][0].Nodes); got != 2 {
		t.Errorf("a--b goes %v", moved.Links["a--b"])
	}
}

func TestRefusalsOfPlacing(t *testing.T) {
	distinct := func(change func(*model.Resolved)) model.Resolved {
		net := line(3)
		net.Placing.Distinct = true
		change(&net)
		return net
	}
	spread := line(4)
	spread.Placing.Spread = model.SpreadLocation
	nowhere := substrate(2)
	nowhere.Nodes[0].Location, nowhere.Nodes[1].Location = "", ""
	small := substrate(3)
	small.Nodes[2].CPU = 500
	for _, c := range []struct {
		name string
		sub  model.Substrate
		net  model.Resolved
		now  model.Placement
		want string
	}{
		{"too many", substrate(2), distinct(func(*model.Resolved) {}), model.Placement{},
			"3 elements are to be on nodes of their own (placement distinct), and there are 2 nodes"},
		{"pinned together", substrate(3), distinct(func(n *model.Resolved) {
			n.Elements[0].Node, n.Elements[1].Node = "n2", "n2"
		}), model.Placement{}, "r2 is pinned to n2, where r1 is; with placement distinct no two are on one node"},
		{"together already", substrate(3), distinct(func(*model.Resolved) {}),
			model.Placement{Elements: map[string]string{"r1": "n1", "r3": "n1"}}, "r3 is on n1, where r1 is"},
		{"no room", small, distinct(func(n *model.Resolved) {
			for i := range n.Elements {
				n.Elements[i].CPU = 1000
			}
		}), model.Placement{}, "n3 has 0.5 cores free"},
		{"no locations", nowhere, spread, model.Placement{}, "no node has one"},
		{"all in one", substrate(4), spread,
			model.Placement{Elements: map[string]string{"r1": "n1", "r2": "n1", "r3": "n3"}},
			"location rio has r1, r2, r3; 4 elements that are spread over 2 locations are at most 2 in each"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Embed(c.sub, nil, Usage{}, c.net, Current{Placement: c.now})
			var refusal *Refusal
			if !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the refusal says\n  %v\nand not\n  %s", err, c.want)
			}
		})
	}
}

// A network that is to be on few nodes stays on those that it has when it grows, as long as there is room.
func TestPackGrowsWhereItIs(t *testing.T) {
	net := line(1)
	net.Placing.Policy = model.Pack
	net.Elements[0].CPU = 1000
	for range 2 {
		net.Elements = append(net.Elements, model.ResolvedElement{Name: fmt.Sprintf("x%d", len(net.Elements)),
			Kind: model.Host, Amounts: model.Amounts{CPU: 1000}})
	}
	now := model.Placement{Elements: map[string]string{"r1": "n7"}}
	if c := counts(embed(t, substrate(9), net, now)); c["n7"] != 3 {
		t.Errorf("three elements of a core are packed onto %v, n7 has room for them and one already", c)
	}
	// What is large goes where it fits, and what is small beside what is there.
	net.Elements[1].CPU = 4000
	if c := counts(embed(t, substrate(9), net, now)); c["n7"] != 2 || len(c) != 2 {
		t.Errorf("elements of 1, 4 and 1 cores are packed onto %v", c)
	}
}

func TestPackAndSpreadUseFewNodesOfEachLocation(t *testing.T) {
	net := model.Resolved{Name: "lab", Placing: model.Placing{Policy: model.Pack, Spread: model.SpreadLocation}}
	for i := range 6 {
		net.Elements = append(net.Elements, model.ResolvedElement{Name: fmt.Sprint("e", i), Kind: model.Host,
			Amounts: model.Amounts{CPU: 1000}})
	}
	if c := counts(embed(t, substrate(8), net, model.Placement{})); len(c) != 2 {
		t.Errorf("six elements of a core in two locations are packed onto %v, a node in each would do", c)
	}
}

// Where the last location goes, what is there may still be changed; only what is to be placed finds no location.
func TestLastLocationGoes(t *testing.T) {
	net := line(4)
	net.Placing.Spread = model.SpreadLocation
	p := embed(t, substrate(4), net, model.Placement{})
	sub := substrate(4)
	for i := range sub.Nodes {
		sub.Nodes[i].Location = ""
	}
	changed := line(4)
	changed.Placing = net.Placing
	changed.Links[0].Bandwidth = 1e6
	after, err := Embed(sub, nil, Usage{}, changed, Current{Placement: p, Network: net})
	if err != nil {
		t.Fatalf("a link's bandwidth cannot be changed: %v", err)
	}
	if fmt.Sprint(after.Elements) != fmt.Sprint(p.Elements) {
		t.Errorf("elements moved from %v to %v", p.Elements, after.Elements)
	}
	grown := line(5)
	grown.Placing = net.Placing
	if _, err := Embed(sub, nil, Usage{}, grown, Current{Placement: p, Network: net}); err == nil ||
		!strings.Contains(err.Error(), "no node has one") {
		t.Errorf("one more element without a location anywhere: %v", err)
	}
}

// An edge that takes its element elsewhere is a pin like the element's own.
func TestEdgePinsAreAskedForSpread(t *testing.T) {
	net := line(4)
	net.Placing.Spread = model.SpreadLocation
	sub := substrate(4) // rio has n1 and n3, bonn n2 and n4
	now := model.Placement{Elements: map[string]string{"r1": "n1", "r2": "n2", "r3": "n3", "r4": "n4"}}
	changed := net
	changed.Edges = []model.ResolvedEdge{{Name: "out", Device: "eth0", Node: "n1", End: model.End{Element: "r2"}}}
	_, err := Embed(sub, nil, Usage{}, changed, Current{Placement: now, Network: net})
	if err == nil || !strings.Contains(err.Error(), "location rio has r1, r2, r3") {
		t.Errorf("an edge takes a third element to rio: %v", err)
	}
	// What is so already is not asked of again.
	now.Elements["r2"] = "n1"
	if _, err := Embed(sub, nil, Usage{}, changed, Current{Placement: now, Network: changed}); err != nil {
		t.Error(err)
	}
}

// Refusals say what was tried, not more.
func TestRefusalsOfTheSearchSayWhatIs(t *testing.T) {
	sub := substrate(3)
	for i := range sub.Links {
		sub.Links[i].Bandwidth = 10e6
	}
	net := line(2)
	net.Placing.Distinct = true
	net.Links[0].Bandwidth = 100e6
	_, err := Embed(sub, nil, Usage{}, net, Current{})
	for _, want := range []string{"no node was found for r2 beside the others (placement distinct): n1 has r1",
		"n2 has room, but no ways were found for its links"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal says\n  %v\nand not\n  %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "0 cores") {
		t.Errorf("it speaks of what nobody asks for: %v", err)
	}
}
