package model

import (
	"maps"
	"slices"
)

// NumberedPath is a path and the tunnels' identifier that stands for it.
type NumberedPath struct {
	LinkPath
	VNI uint32 `json:"vni"`
}

// Turn is a link that gets another path while packets flow. First the new path is made, with an identifier of its own,
// and the ends take packets from both. Then the ends send by the new one. When nothing can be on the one before any
// more, that goes, and with it the Turn.
type Turn struct {
	// Before are the paths whose packets are taken as well, the latest first. It is the one in use until the link is
	// Turned.
	Before []NumberedPath `json:"before"`
	Turned bool           `json:"turned,omitempty"`
}

// MostBefore is how many paths a link is on at the same time at most, beside its new one.
const MostBefore = 3

// Turn has links that got another path between the same nodes as before be turned onto it. number gives identifiers
// that nobody has.
func (a *Assigned) Turn(was *Assigned, s Substrate, number func() (uint32, error)) error {
	nodes := s.simulated()
	a.Turns = nil
	for _, name := range slices.Sorted(maps.Keys(a.Placement.Links)) {
		now, before, turn := a.Placement.Links[name], was.Placement.Links[name], was.Turns[name]
		if len(now) != 1 || len(before) != 1 || !now[0].joins(before[0]) {
			continue
		}
		if slices.Equal(now[0].way(nodes), before[0].way(nodes)) {
			a.turn(name, turn)
			continue
		}
		if turn.Turned || len(turn.Before) == 0 { // else its packets never took that one
			turn.Before = slices.Concat([]NumberedPath{{before[0], was.Links[name].VNI}}, turn.Before)
		}
		l := a.Links[name]
		var err error
		if l.VNI, err = number(); err != nil {
			return ProblemOf(AboutLink, name, "", "%v", err)
		}
		a.Links[name] = l
		a.turn(name, Turn{Before: turn.Before[:min(len(turn.Before), MostBefore)]})
	}
	return nil
}

func (a *Assigned) turn(link string, t Turn) {
	if len(t.Before) == 0 {
		return
	}
	if a.Turns == nil {
		a.Turns = map[string]Turn{}
	}
	a.Turns[link] = t
}

// VNIs are all tunnels' identifiers that the network has.
func (a *Assigned) VNIs() []uint32 {
	all := make([]uint32, 0, len(a.Links))
	for _, l := range a.Links {
		if l.VNI != 0 {
			all = append(all, l.VNI)
		}
	}
	for _, t := range a.Turns {
		for _, p := range t.Before {
			all = append(all, p.VNI)
		}
	}
	return all
}

// AllPaths are the link's path, and those that it leaves.
func (a *Assigned) AllPaths(link string) []NumberedPath {
	var all []NumberedPath
	for _, p := range a.Placement.Links[link] {
		all = append(all, NumberedPath{p, a.Links[link].VNI})
	}
	return append(all, a.Turns[link].Before...)
}

// paths are the path that a link's packets take, and those whose packets are taken as well. A path over a node that is
// gone is none.
func (a *Assigned) paths(link string, nodes map[string]bool) (in NumberedPath, also []NumberedPath) {
	in.VNI = a.Links[link].VNI
	if paths := a.Placement.Links[link]; len(paths) == 1 {
		in.LinkPath = paths[0]
	}
	turn := a.Turns[link]
	for i, p := range turn.Before {
		switch {
		case slices.ContainsFunc(p.Nodes, func(n string) bool { _, there := nodes[n]; return !there }):
		case i == 0 && !turn.Turned:
			in, also = p, append(also, in)
		default:
			also = append(also, p)
		}
	}
	return in, also
}

// joins tells whether two paths join the same nodes.
func (p LinkPath) joins(o LinkPath) bool {
	return len(p.Nodes) > 1 && len(o.Nodes) > 1 && p.Nodes[0] == o.Nodes[0] &&
		p.Nodes[len(p.Nodes)-1] == o.Nodes[len(o.Nodes)-1]
}

// way is the path's nodes, if its packets lead through nodes that relay them; nil if they go from one end to the other
// directly. Only simulated nodes relay: machines of their own reach each other over one uplink each.
func (p LinkPath) way(simulated map[string]bool) []string {
	if len(p.Nodes) < 3 || slices.ContainsFunc(p.Nodes, func(n string) bool { return !simulated[n] }) {
		return nil
	}
	return p.Nodes
}

// via is the node next to one end on the path; empty if nobody relays between the two.
func (p LinkPath) via(from, to string, simulated map[string]bool) string {
	way := p.way(simulated)
	if way == nil {
		return ""
	}
	switch last := len(way) - 1; {
	case way[0] == from && way[last] == to:
		return way[1]
	case way[last] == from && way[0] == to:
		return way[last-1]
	}
	return ""
}

// simulated has all nodes, and of each whether it is simulated.
func (s *Substrate) simulated() map[string]bool {
	nodes := make(map[string]bool, len(s.Nodes))
	for i := range s.Nodes {
		nodes[s.Nodes[i].Name] = s.Nodes[i].Simulated
	}
	return nodes
}
