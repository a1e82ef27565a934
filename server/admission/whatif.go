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

// whatIfSteps are what may be taken for one question, however many networks it concerns: some seconds of a processor.
const whatIfSteps = 100_000_000

// WhatIf tells what would become of the networks if nodes went and others came. Networks that a node's going concerns
// are placed again in the order of their names, as they would be if they were applied again: what is elsewhere stays,
// and so does what is being moved. The Situation's Others are what counts beside the networks, and its Refusing are
// nodes that take nothing. gone tells why whoever asked does not wait for it any longer.
func (s Situation) WhatIf(networks []Network, ask model.WhatIf, gone func() error) (model.WhatIfResult, error) {
	return s.whatIf(networks, ask, gone, whatIfSteps)
}

func (s Situation) whatIf(networks []Network, ask model.WhatIf, gone func() error,
	steps int) (result model.WhatIfResult, err error) {
	before := s.Substrate
	sub, added, err := s.afterwards(ask)
	if err != nil {
		return result, err
	}
	result.Added, result.Notes = added, unjoined(before, sub, added)
	s.Substrate = sub
	networks = slices.Clone(networks)
	slices.SortFunc(networks, func(a, b Network) int {
		return strings.Compare(a.Record.Network.Name, b.Record.Network.Name)
	})
	p := prospect{Situation: &s, down: ask.Down, steps: steps, used: embedding.UsageOf(s.Others),
		tables: model.ReservedTables(s.Others)}
	now := embedding.UsageOf(s.Others)
	records := make([]model.Record, len(networks))
	var concerned []int
	for i := range networks {
		if len(before.Nodes) == 1 {
			networks[i].Resolved = onOneNode(networks[i].Resolved, before.Nodes[0].Name)
		}
		stripped, other := without(networks[i].Record, ask.Down)
		if records[i] = stripped; other {
			concerned = append(concerned, i)
		}
		now.Add(&networks[i].Record)
		p.count(&stripped, 1)
	}
	for _, i := range concerned {
		if err := gone(); err != nil {
			return result, err
		}
		var would model.WouldBe
		would, records[i] = p.again(&networks[i], records[i])
		result.Networks = append(result.Networks, would)
	}
	if err := gone(); err != nil {
		return result, err
	}
	if len(added) > 0 && p.steps > 0 {
		result.Moves = p.worthIt(networks, records)
	}
	result.Spent = p.steps <= 0
	result.Nodes, result.Links = rooms(before, sub, now, p.used)
	return result, nil
}

// prospect is what would be, as far as it is worked out.
type prospect struct {
	*Situation
	down   []string
	steps  int // that are left
	used   embedding.Usage
	tables map[string]model.TableQuota
}

// count adds what a network takes, or takes it away: -1 times.
func (p *prospect) count(r *model.Record, times int) {
	if times > 0 {
		p.used.Add(r)
	} else {
		p.used.Drop(r)
	}
	model.CountReservedTables(p.tables, r, times)
}

// onOneNode says of edges which node their devices are on, where there is no other to be named.
func onOneNode(r model.Resolved, node string) model.Resolved {
	r.Edges = slices.Clone(r.Edges)
	for i := range r.Edges {
		if e := &r.Edges[i]; e.Node == "" && e.Internet == nil && e.Mirror == nil {
			e.Node = node
		}
	}
	return r
}

// without is a record without what was on nodes, or led over them. A move from such a node or to it would be taken
// back.
func without(r model.Record, nodes []string) (stripped model.Record, other bool) {
	down := func(n string) bool { return slices.Contains(nodes, n) }
	elements := map[string]string{}
	for name, node := range r.Assigned.Placement.Elements {
		if down(node) {
			other = true
		} else {
			elements[name] = node
		}
	}
	off := func(links map[string][]model.LinkPath) map[string][]model.LinkPath {
		left := map[string][]model.LinkPath{}
		for name, paths := range links {
			if !slices.ContainsFunc(paths, func(p model.LinkPath) bool { return slices.ContainsFunc(p.Nodes, down) }) {
				left[name] = paths
			}
		}
		return left
	}
	links := off(r.Assigned.Placement.Links)
	other = other || len(links) < len(r.Assigned.Placement.Links)
	if m := r.Moving; m != nil {
		moving := *m
		moving.Placement.Links = off(m.Placement.Links)
		if r.Moving = &moving; down(m.From) && m.Step == model.MoveCopying || down(m.To) {
			r.Moving = nil
		}
	}
	if other {
		r.Assigned.Placement = model.Placement{Elements: elements, Links: links}
	}
	return r, other
}

// again places a network anew without what has no place by itself.
func (p *prospect) again(n *Network, record model.Record) (model.WouldBe, model.Record) {
	would := model.WouldBe{Network: n.Record.Network.Name}
	rest, lost := left(n.Resolved, p.down)
	would.Lost = lost
	p.count(&record, -1)
	p.used.AddMove(&record) // it is held while the others find their places
	placed, err := embedding.Embed(p.Substrate, p.Offers, p.used, rest, embedding.Current{
		Placement: record.Assigned.Placement, Network: n.Resolved, Shut: p.Refusing, Steps: &p.steps})
	p.used.DropMove(&record)
	defer func() { p.count(&record, 1) }()
	if errors.Is(err, embedding.ErrSpent) {
		would.Unknown = true
		return would, record
	}
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
	for _, err := range model.CheckReservedTables(&record.Network, placed.Elements, p.tables, nodeNames(p.Substrate)) {
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

// worthIt are the moves that would save most, by network.
func (p *prospect) worthIt(networks []Network, records []model.Record) (moves []model.WouldBe) {
	running := embedding.Running{Substrate: p.Substrate, Offers: p.Offers, Shut: p.Refusing,
		Taken: embedding.UsageOf(p.Others)}
	for i := range records {
		running.Networks = append(running.Networks, model.ResolvedRecord{Network: networks[i].Resolved,
			Assigned: records[i].Assigned, Moving: records[i].Moving})
	}
	plan := embedding.Rebalance(running, embedding.Limit{Moves: mostWorthIt,
		Steps: min(p.steps, embedding.DefaultSteps)})
	if plan.Spent {
		p.steps = 0
	}
	at := map[string]int{}
	for _, m := range plan.Moves {
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
			return wrong("there is no node %s that could be down; there are %s", called(name),
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
	offers := maps.Clone(s.Offers)
	for _, a := range ask.Add {
		if err := checkToCome(a, known(a.Name) >= 0); err != nil {
			return wrong("%v", err)
		}
		node := model.SubstrateNode{Name: a.Name}
		like := known(a.Like)
		switch {
		case a.Like != "" && like < 0:
			return wrong("node %s would be like %s, and there is no such node; there are %s", a.Name, called(a.Like),
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
	if len(before.Links) > 0 && len(sub.Links) == 0 && len(sub.Nodes) > 1 {
		// No link at all would mean that each reaches each.
		return wrong("no link would be left between %s; ask about fewer nodes that go, or, of those that come, leave "+
			"like= out", model.FewNames(12, nodeNames(sub)))
	}
	s.Offers = offers
	return sub, added, nil
}

// called is a name as it is told to whoever asks, if it may be none.
func called(name string) string {
	if model.CheckNodeName(name) != nil {
		return fmt.Sprintf("%.64q", name)
	}
	return name
}

// checkToCome tells what cannot be said of a node that comes, as of one that joins. known tells that there is a node of
// its name.
func checkToCome(a model.NodeToCome, known bool) error {
	if !known && model.CheckNodeName(a.Name) != nil {
		return fmt.Errorf("a node cannot be called %.64q: use lower-case letters, digits and '-', at most 63", a.Name)
	}
	switch {
	case a.CPU > model.MaxMachineCPU || a.CPU > 0 && a.CPU < model.MinCPU:
		return fmt.Errorf("node %s cannot have %s cores; from %s to %s were expected", a.Name, a.CPU, model.MinCPU,
			model.MaxMachineCPU)
	case a.Memory > model.MaxMachineMemory || a.Memory > 0 && a.Memory < model.MinMemory:
		return fmt.Errorf("node %s cannot have %s of memory; from %s to %s were expected", a.Name, a.Memory.Rounded(),
			model.MinMemory, model.MaxMachineMemory)
	case a.Bandwidth > model.MaxMachineBandwidth:
		return fmt.Errorf("links of node %s cannot have %s; at most %s was expected", a.Name, a.Bandwidth,
			model.MaxMachineBandwidth)
	case a.Location != "" && model.CheckNodeName(a.Location) != nil:
		return fmt.Errorf("node %s cannot be at %.64q: a location has lower-case letters, digits and '-', at most 63",
			a.Name, a.Location)
	}
	return nil
}

// unjoined tells which of the nodes that come would have no link, where nodes are joined by links.
func unjoined(before, after model.Substrate, added []model.SubstrateNode) (notes []string) {
	if len(before.Links) == 0 || len(after.Nodes) == 1 {
		return nil
	}
	for _, n := range added {
		joins := func(l model.SubstrateLink) bool { return l.A == n.Name || l.B == n.Name }
		if !slices.ContainsFunc(after.Links, joins) {
			notes = append(notes, fmt.Sprintf("node %s would be joined to no other: the node that it is like has no "+
				"neighbour that would be left", n.Name))
		}
	}
	return notes
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
