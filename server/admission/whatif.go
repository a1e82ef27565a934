package admission

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
)

// mostWorthIt is how many moves are told that nodes which come would be worth.
const mostWorthIt = 20

// WhatIf tells what would become of the networks if nodes went and others came. Networks that a node's going concerns
// are placed again in the order of their names, as they would be if they were applied again: what is elsewhere stays.
// The Situation's Others are what counts beside the networks, and its Refusing are nodes that take nothing.
// gone tells why whoever asked does not wait for it any longer.
func (s Situation) WhatIf(networks []Network, ask model.WhatIf, gone func() error) (model.WhatIfResult, error) {
	var result model.WhatIfResult
	before := s.Substrate
	sub, added, err := s.afterwards(ask)
	if err != nil {
		return result, err
	}
	result.Added = added
	s.Substrate = sub
	networks = slices.Clone(networks)
	slices.SortFunc(networks, func(a, b Network) int {
		return strings.Compare(a.Record.Network.Name, b.Record.Network.Name)
	})
	all := slices.Clone(s.Others)
	first := len(all)
	for i := range networks {
		all = append(all, networks[i].Record)
	}
	now := embedding.UsageOf(all)
	var concerned []int
	for i := range networks {
		if stripped, other := without(networks[i].Record, ask.Down); other {
			all[first+i] = stripped
			concerned = append(concerned, i)
		}
	}
	for _, i := range concerned {
		if err := gone(); err != nil {
			return result, err
		}
		would, record := s.again(&networks[i], all, first+i, ask.Down)
		all[first+i] = record
		result.Networks = append(result.Networks, would)
	}
	if len(added) > 0 {
		result.Moves = s.worthIt(networks, all[first:], all[:first])
	}
	result.Nodes, result.Links = rooms(before, sub, now, embedding.UsageOf(all))
	return result, nil
}

// without is a record without what was on nodes, or led over them.
func without(r model.Record, nodes []string) (stripped model.Record, other bool) {
	elements := map[string]string{}
	for name, node := range r.Assigned.Placement.Elements {
		if slices.Contains(nodes, node) {
			other = true
		} else {
			elements[name] = node
		}
	}
	links := map[string][]model.LinkPath{}
	for name, paths := range r.Assigned.Placement.Links {
		if slices.ContainsFunc(paths, func(p model.LinkPath) bool {
			return slices.ContainsFunc(p.Nodes, func(n string) bool { return slices.Contains(nodes, n) })
		}) {
			other = true
		} else {
			links[name] = paths
		}
	}
	if !other {
		return r, false
	}
	r.Assigned.Placement = model.Placement{Elements: elements, Links: links}
	return r, true
}

// again places a network anew without what has no place by itself. own is its place among all records.
func (s *Situation) again(n *Network, all []model.Record, own int, down []string) (model.WouldBe, model.Record) {
	would := model.WouldBe{Network: n.Record.Network.Name}
	rest, lost := left(n.Resolved, down)
	would.Lost = lost
	others := slices.Concat(all[:own], all[own+1:])
	record := all[own]
	placed, err := embedding.Embed(s.Substrate, s.Offers, embedding.UsageOf(others), rest, embedding.Current{
		Placement: record.Assigned.Placement, Network: n.Resolved, Shut: s.Refusing})
	if err != nil {
		would.Refused = []string{err.Error()}
		var r *embedding.Refusal
		if errors.As(err, &r) {
			would.Refused = nil
			for _, p := range r.Problems {
				would.Refused = append(would.Refused, p.Message)
			}
		}
		return would, record
	}
	was := n.Record.Assigned.Placement
	beside := *s
	beside.Others = others
	for _, err := range beside.checkTables(&record.Network, placed.Elements) {
		would.Refused = append(would.Refused, err.Error())
	}
	if would.Refused != nil {
		return would, record
	}
	for i := range rest.Elements {
		name := rest.Elements[i].Name
		if to := placed.Elements[name]; to != was.Elements[name] {
			would.Elements = append(would.Elements, model.WouldMove{Element: name, From: was.Elements[name], To: to})
		}
	}
	for i := range rest.Links {
		name := rest.Links[i].Name
		if path := nodesOf(placed.Links[name]); !slices.Equal(path, nodesOf(was.Links[name])) {
			would.Links = append(would.Links, model.WouldRoute{Link: name, Nodes: path})
		}
	}
	record.Assigned.Placement = placed
	return would, record
}

// left is a network without the elements that would be lost with nodes, since they must be there, and what is theirs.
func left(r model.Resolved, down []string) (model.Resolved, []model.WouldLose) {
	lost := map[string]string{}
	for i := range r.Elements {
		if el := &r.Elements[i]; slices.Contains(down, el.Node) {
			lost[el.Name] = fmt.Sprintf("%s is pinned to %s (node:)", el.Name, el.Node)
		}
	}
	for i := range r.Edges {
		if e := &r.Edges[i]; slices.Contains(down, e.Node) {
			lost[e.End.Element] = fmt.Sprintf("the device of its edge %s is on %s", e.Name, e.Node)
		}
	}
	if len(lost) == 0 {
		return r, nil
	}
	var told []model.WouldLose
	r.Elements = slices.DeleteFunc(slices.Clone(r.Elements), func(e model.ResolvedElement) bool {
		why := lost[e.Name]
		if why != "" {
			told = append(told, model.WouldLose{Element: e.Name, Why: why})
		}
		return why != ""
	})
	r.Links = slices.DeleteFunc(slices.Clone(r.Links), func(l model.Link) bool {
		return lost[l.Ends[0].Element] != "" || lost[l.Ends[1].Element] != ""
	})
	r.Edges = slices.DeleteFunc(slices.Clone(r.Edges), func(e model.ResolvedEdge) bool {
		return lost[e.End.Element] != ""
	})
	return r, told
}

func nodesOf(paths []model.LinkPath) []string {
	if len(paths) == 0 {
		return nil
	}
	return paths[0].Nodes
}

func nodeNames(s model.Substrate) []string {
	names := make([]string, len(s.Nodes))
	for i := range names {
		names[i] = s.Nodes[i].Name
	}
	return names
}

// worthIt are the moves that would save most, by network. others are records that nothing is known of but what they
// take.
func (s *Situation) worthIt(networks []Network, records, others []model.Record) (moves []model.WouldBe) {
	running := embedding.Running{Substrate: s.Substrate, Offers: s.Offers, Shut: s.Refusing,
		Taken: embedding.UsageOf(others)}
	for i := range records {
		running.Networks = append(running.Networks, model.ResolvedRecord{Network: networks[i].Resolved,
			Assigned: records[i].Assigned})
	}
	at := map[string]int{}
	for _, m := range embedding.Rebalance(running, embedding.Limit{Moves: mostWorthIt}).Moves {
		k, there := at[m.Network]
		if !there {
			k = len(moves)
			at[m.Network], moves = k, append(moves, model.WouldBe{Network: m.Network})
		}
		would := &moves[k]
		would.Elements = append(would.Elements, model.WouldMove{Element: m.Element, From: m.From, To: m.To})
		for _, link := range slices.Sorted(maps.Keys(m.Paths)) {
			would.Links = slices.DeleteFunc(would.Links, func(l model.WouldRoute) bool { return l.Link == link })
			would.Links = append(would.Links, model.WouldRoute{Link: link, Nodes: nodesOf(m.Paths[link])})
		}
	}
	return moves
}

// afterwards is the substrate as it would be.
func (s *Situation) afterwards(ask model.WhatIf) (sub model.Substrate, added []model.SubstrateNode, err error) {
	wrong := func(format string, args ...any) (model.Substrate, []model.SubstrateNode, error) {
		return model.Substrate{}, nil, &Refusal{Kind: Wrong, Detail: fmt.Sprintf(format, args...)}
	}
	if many := len(ask.Down) + len(ask.Add); many == 0 || many > model.MaxWhatIf {
		return wrong("%d nodes would go or come; 1 to %d may", many, model.MaxWhatIf)
	}
	before := s.Substrate
	known := func(name string) int {
		return slices.IndexFunc(before.Nodes, func(n model.SubstrateNode) bool { return n.Name == name })
	}
	for i, name := range ask.Down {
		if known(name) < 0 {
			return wrong("there is no node %s that could be down; there are %s", name,
				model.FewNames(12, nodeNames(before)))
		}
		if slices.Contains(ask.Down[:i], name) {
			return wrong("node %s would be down twice", name)
		}
	}
	if len(ask.Down) == len(before.Nodes) && len(ask.Add) == 0 {
		return wrong("no node would be left")
	}
	sub = before
	sub.Nodes = slices.DeleteFunc(slices.Clone(before.Nodes),
		func(n model.SubstrateNode) bool { return slices.Contains(ask.Down, n.Name) })
	sub.Links = slices.DeleteFunc(slices.Clone(before.Links), func(l model.SubstrateLink) bool {
		return slices.Contains(ask.Down, l.A) || slices.Contains(ask.Down, l.B)
	})
	if len(before.Links) > 0 && len(sub.Links) == 0 && len(sub.Nodes) > 1 {
		// No link at all would mean that each reaches each.
		return wrong("no link would be left between %s; ask about fewer nodes", model.FewNames(12, nodeNames(sub)))
	}
	offers := maps.Clone(s.Offers)
	for _, a := range ask.Add {
		node := model.SubstrateNode{Name: a.Name}
		like := known(a.Like)
		switch {
		case a.Like != "" && like < 0:
			return wrong("node %s would be like %s, and there is no such node; there are %s", a.Name, a.Like,
				model.FewNames(12, nodeNames(before)))
		case a.Like == "" && known(a.Name) >= 0: // one more
			like = known(a.Name)
		case a.Like == "" && (a.CPU == 0 || a.Memory == 0):
			return wrong("it is not said what node %s would have: like=NODE, or cpu= and memory= (there is no node "+
				"of this name that it could be like)", a.Name)
		}
		if like >= 0 {
			node = before.Nodes[like]
			node.Name = a.Name
		}
		taken := func(name string) bool { return slices.Contains(nodeNames(sub), name) || known(name) >= 0 }
		for k := 2; taken(node.Name); k++ {
			if known(a.Name) < 0 {
				return wrong("node %s would come twice", a.Name)
			}
			node.Name = fmt.Sprintf("%s-%d", a.Name, k)
		}
		if err := model.CheckName(node.Name); err != nil {
			return wrong("a node cannot be called %.64q: %v", node.Name, err)
		}
		if a.CPU > 0 {
			node.CPU = a.CPU
		}
		if a.Memory > 0 {
			node.Memory = a.Memory
		}
		if a.Location != "" {
			node.Location = a.Location
		}
		if len(before.Links) > 0 {
			sub.Links = append(sub.Links, linksOf(before, sub, node.Name, like, a.Bandwidth)...)
		}
		sub.Nodes = append(sub.Nodes, node)
		if like >= 0 {
			offers[node.Name] = s.Offers[before.Nodes[like].Name]
		}
		added = append(added, node)
	}
	s.Offers = offers
	return sub, added, nil
}

// linksOf are the links of a node that comes: those of the one that it is like, or one to each.
func linksOf(before, sub model.Substrate, name string, like int,
	bandwidth model.Bandwidth) (links []model.SubstrateLink) {
	add := func(to string, of model.SubstrateLink) {
		if !slices.Contains(nodeNames(sub), to) {
			return // it would be down
		}
		of.A, of.B = name, to
		if bandwidth > 0 {
			of.Bandwidth = bandwidth
		}
		links = append(links, of)
	}
	if like < 0 {
		for i := range sub.Nodes {
			add(sub.Nodes[i].Name, model.SubstrateLink{})
		}
		return links
	}
	of := before.Nodes[like].Name
	for _, l := range before.Links {
		switch of {
		case l.A:
			add(l.B, l)
		case l.B:
			add(l.A, l)
		}
	}
	return links
}

// rooms are what nodes and links have left now and would have.
func rooms(before, after model.Substrate, now, then embedding.Usage) (nodes []model.NodeRoom, links []model.LinkRoom) {
	here := nodeNames(before)
	for _, n := range after.Nodes {
		was, is := now.Nodes[n.Name], then.Nodes[n.Name]
		room := model.NodeRoom{Name: n.Name, CPU: n.CPU, Memory: n.Memory, CPULeft: n.CPU - min(n.CPU, is.CPU),
			MemoryLeft: n.Memory - min(n.Memory, is.Memory)}
		if slices.Contains(here, n.Name) {
			room.CPUNow, room.MemoryNow = n.CPU-min(n.CPU, was.CPU), n.Memory-min(n.Memory, was.Memory)
		}
		nodes = append(nodes, room)
	}
	existed := map[embedding.Direction]bool{}
	for _, l := range before.Links {
		existed[embedding.Direction{From: l.A, To: l.B}], existed[embedding.Direction{From: l.B, To: l.A}] = true, true
	}
	for _, l := range after.Links {
		if l.Bandwidth == 0 {
			continue
		}
		d := embedding.Direction{From: l.A, To: l.B}
		room := model.LinkRoom{A: l.A, B: l.B, Bandwidth: l.Bandwidth,
			Left: l.Bandwidth - min(l.Bandwidth, then.Links[d])}
		if existed[d] {
			room.Now = l.Bandwidth - min(l.Bandwidth, now.Links[d])
		}
		links = append(links, room)
	}
	return nodes, links
}
