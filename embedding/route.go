package embedding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// failure is a link that fits nowhere between its ends' nodes.
type failure struct {
	link   int
	reason string
}

// route finds a path for every link between nodes. Links that have a path which still serves keep it; of the others
// those that need the most bandwidth choose first.
func (e *embedder) route(current model.Placement) (map[string][]model.LinkPath, []failure) {
	e.sub.reset()
	paths := map[string][]model.LinkPath{}
	var open []int
	var failed []failure
	for k := range e.net.Links {
		l := &e.net.Links[k]
		a, b, ok := e.ends(l)
		if !ok || a == b {
			continue
		}
		rate := e.net.Slice.Reserves(l)
		if have := current.Links[l.Name]; len(have) == 1 && e.serves(l, have[0], a, b) {
			e.sub.reserve(have[0].Nodes, rate)
			paths[l.Name] = []model.LinkPath{{Nodes: have[0].Nodes, Bandwidth: rate}}
			continue
		}
		open = append(open, k)
	}
	slices.SortStableFunc(open, func(x, y int) int {
		return cmp.Or(cmp.Compare(e.net.Slice.Reserves(&e.net.Links[y]), e.net.Slice.Reserves(&e.net.Links[x])),
			strings.Compare(e.net.Links[x].Name, e.net.Links[y].Name))
	})
	for _, k := range open {
		l := &e.net.Links[k]
		a, b, _ := e.ends(l)
		rate := e.net.Slice.Reserves(l)
		e.spend(len(e.sub.arcs))
		nodes := e.sub.path(a, b, rate)
		if nodes == nil {
			failed = append(failed, failure{k, e.noPath(l, a, b)})
			continue
		}
		e.sub.reserve(nodes, rate)
		paths[l.Name] = []model.LinkPath{{Nodes: nodes, Bandwidth: rate}}
	}
	if len(paths) == 0 {
		paths = nil
	}
	return paths, failed
}

func (e *embedder) ends(l *model.Link) (a, b int32, ok bool) {
	i, okA := e.index[l.Ends[0].Element]
	j, okB := e.index[l.Ends[1].Element]
	if !okA || !okB {
		return 0, 0, false
	}
	return e.at[i], e.at[j], true
}

// serves tells whether a path from before still leads from a to b and has room.
func (e *embedder) serves(l *model.Link, p model.LinkPath, a, b int32) bool {
	if len(p.Nodes) < 2 || e.sub.number(p.Nodes[0]) != a || e.sub.number(p.Nodes[len(p.Nodes)-1]) != b {
		return false
	}
	for k, name := range p.Nodes {
		n := e.sub.number(name)
		if n < 0 || k > 0 && !e.sub.hasRoom(e.sub.number(p.Nodes[k-1]), n, e.net.Slice.Reserves(l)) {
			return false
		}
	}
	return true
}

// noPath tells why there is none: no connection at all, or no bandwidth.
func (e *embedder) noPath(l *model.Link, a, b int32) string {
	from, to := e.nodes[a].Name, e.nodes[b].Name
	shortest := e.sub.path(a, b, 0)
	if shortest == nil {
		return fmt.Sprintf("link %s (%s on %s, %s on %s) needs a substrate path, and %s and %s are not joined", l.Name,
			l.Ends[0].Element, from, l.Ends[1].Element, to, from, to)
	}
	var free []string
	for k := 1; k < len(shortest); k++ {
		x, y := e.sub.number(shortest[k-1]), e.sub.number(shortest[k])
		if !e.sub.hasRoom(x, y, e.net.Slice.Reserves(l)) {
			free = append(free, fmt.Sprintf("%s – %s has %s free", shortest[k-1], shortest[k], e.sub.room(x, y)))
		}
	}
	return fmt.Sprintf("link %s needs %s from %s (%s) to %s (%s), and no substrate path has that free: on the "+
		"shortest %s",
		l.Name, e.net.Slice.Reserves(l), from, l.Ends[0].Element, to, l.Ends[1].Element, strings.Join(free, ", "))
}

// glue makes the ends of links that fit nowhere share a node, where both may. It tells whether anything changed.
func (e *embedder) glue(failed []failure) bool {
	changed := false
	for _, f := range failed {
		l := &e.net.Links[f.link]
		a := e.find(int32(e.index[l.Ends[0].Element]))
		b := e.find(int32(e.index[l.Ends[1].Element]))
		may, ok := e.both(a, b)
		if a == b || e.pin[a] >= 0 && e.pin[b] >= 0 || !e.sameLocation(a, b) || !ok {
			continue
		}
		if a > b {
			a, b = b, a
		}
		e.parent[b], e.may[a] = a, may
		if e.pin[a] < 0 {
			e.pin[a] = e.pin[b]
		}
		if e.location[a] == "" {
			e.location[a] = e.location[b]
		}
		changed = true
	}
	return changed
}

// sameLocation tells whether two groups may share a node as far as locations go.
func (e *embedder) sameLocation(a, b int32) bool {
	fits := func(i, j int32) bool {
		return e.location[i] == "" || e.pin[j] < 0 || e.nodes[e.pin[j]].Location == e.location[i]
	}
	return (e.location[a] == "" || e.location[b] == "" || e.location[a] == e.location[b]) && fits(a, b) && fits(b, a)
}
