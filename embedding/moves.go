package embedding

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/polyplane/polyplane/embedding/search"
	"github.com/polyplane/polyplane/model"
)

// Move is one step of a plan: an element goes to another node, or, where no element is named, links take other paths.
type Move struct {
	Network  string
	Element  string
	From, To string
	// Paths are those that links of the network have afterwards, of all that the step changes; none where both ends
	// are on one node.
	Paths map[string][]model.LinkPath
}

// Stay is what a plan leaves where it is, although it should not be there.
type Stay struct {
	Network string
	Element string // or
	Link    string
	Why     string // in words
}

// Plan is an order of moves. Each is possible when those before it are made: while it is made, the element's nodes both
// hold it, and each of its links has its old path and its new one, and nothing is given more than it has. What is
// overbooked already does not become more so.
type Plan struct {
	Moves []Move
	Stays []Stay
	// Spent tells that the steps had an end before everything was tried.
	Spent bool
}

// Running is all that is placed.
type Running struct {
	Substrate model.Substrate
	Offers    map[string]model.Offers // as for Embed
	Networks  []model.ResolvedRecord
	// Shut are the nodes that take nothing new, and why.
	Shut map[string]string
	// Taken is what others have, which do not move.
	Taken Usage
}

// Limit bounds a plan. Zeros are DefaultMoves and DefaultSteps.
type Limit struct {
	Moves int
	Steps int // of the search
}

// Usual bounds of a plan. Its steps take some tenths of a second.
const (
	DefaultMoves = 1_000
	DefaultSteps = 20_000_000
)

// Drain tells in which order elements leave a node, and where they go, and which links no longer lead through it.
// Others move where nothing else makes room. What must stay is told, with the reason. The same question has the same
// answer.
func Drain(r Running, node string, limit Limit) (Plan, error) {
	f := newFleet(r)
	n := slices.IndexFunc(r.Substrate.Nodes, func(n model.SubstrateNode) bool { return n.Name == node })
	if n < 0 {
		return Plan{}, fmt.Errorf("there is no node %s to be drained", node)
	}
	return f.plan(search.Drain(&f.problem, int32(n), f.limit(limit))), nil
}

// Rebalance tells the few moves that save the most: of bandwidth on the substrate's links, and of load on nodes that
// have much more than their share. Each saves more than a quarter of what the element's links take on one substrate
// link, or brings a node nearer to its share by a twentieth. None is made for the sake of a later one.
func Rebalance(r Running, limit Limit) Plan {
	f := newFleet(r)
	return f.plan(search.Rebalance(&f.problem, f.limit(limit)))
}

// fleet puts everything that runs by numbers.
type fleet struct {
	Running
	problem search.Problem
	element []of // the search's elements
	link    []of // its links
	pins    []string
}

// of is an element or a link of one of the networks.
type of struct{ network, index int }

func newFleet(r Running) *fleet {
	f := &fleet{Running: r}
	g := newGraph(r.Substrate)
	numbers := f.ground(g)
	for k := range r.Networks {
		f.add(k, g, numbers)
	}
	var all, cpu int64
	for i := range f.problem.Elements {
		all += f.problem.Elements[i].Load
	}
	for n := range r.Substrate.Nodes {
		all += f.problem.Nodes[n].Load
		cpu += int64(r.Substrate.Nodes[n].CPU)
	}
	for n := range r.Substrate.Nodes {
		f.problem.Nodes[n].Fair = fairLoad(all, cpu, r.Substrate.Nodes[n].CPU, len(r.Substrate.Nodes))
	}
	return f
}

// ground takes over nodes and wires, and tells the wires by their ends.
func (f *fleet) ground(g *graph) map[[2]int32]int32 {
	regions := regionsOf(f.Substrate.Nodes)
	for n := range f.Substrate.Nodes {
		node := &f.Substrate.Nodes[n]
		taken := f.Taken.Nodes[node.Name]
		f.problem.Nodes = append(f.problem.Nodes, search.Node{CPU: int64(minus(node.CPU, taken.CPU)),
			Memory: int64(minus(node.Memory, taken.Memory)), Load: int64(taken.Weight), Region: regions[n]})
	}
	for d, bw := range f.Taken.Links {
		g.take(d.From, d.To, bw)
	}
	var numbers map[[2]int32]int32
	f.problem.Wires, numbers = g.wires()
	return numbers
}

// add takes over a network. What is on no node that there is has no part in it.
func (f *fleet) add(k int, g *graph, numbers map[[2]int32]int32) {
	r := &f.Networks[k]
	placed := r.Assigned.Placement
	e := g.embedder(f.Substrate, Usage{}, r.Network)
	e.constrain(model.Placement{})
	group := int32(len(f.problem.Groups))
	f.problem.Groups = append(f.problem.Groups, e.group())
	number := map[string]int32{}
	j := &judge{e, f.Offers, map[asked][]string{}}
	for i, wants := range model.Wants(&e.net) {
		el := &e.net.Elements[i]
		n, ok := g.index[placed.Elements[el.Name]]
		if !ok {
			continue
		}
		var may []bool
		for _, w := range wants {
			if whys := j.lacks(w); whys != nil {
				may = without(may, whys)
			}
		}
		if len(f.Shut) > 0 {
			may = e.open(may, f.Shut)
		}
		if e.location[i] != "" {
			may = e.inLocation(may, e.location[i])
		}
		pin := ""
		if e.pin[i] >= 0 {
			pin = e.why(i)
		}
		if m := r.Moving; m != nil {
			pin = fmt.Sprintf("%s is being moved from %s to %s, and its network is left alone meanwhile", m.Element,
				m.From, m.To)
		}
		number[el.Name] = int32(len(f.problem.Elements))
		f.element, f.pins = append(f.element, of{k, i}), append(f.pins, pin)
		f.problem.Elements = append(f.problem.Elements, search.Element{CPU: int64(el.CPU), Memory: int64(el.Memory),
			Load: int64(max(el.CPU, DefaultWeight)), Group: group, At: int32(n), Pinned: pin != "", May: may})
	}
	for i := range e.net.Links {
		l := &e.net.Links[i]
		a, okA := number[l.Ends[0].Element]
		b, okB := number[l.Ends[1].Element]
		paths := placed.Links[l.Name]
		if okA && okB && len(paths) <= 1 && r.Moving == nil {
			asked := search.Link{A: a, B: b, Demand: int64(e.net.Slice.Reserves(l))}
			if len(paths) == 1 {
				asked.Way = wayOf(g, numbers, paths[0].Nodes, f.problem.Elements[a].At, f.problem.Elements[b].At)
			}
			if len(paths) == 0 || asked.Way != nil {
				f.link = append(f.link, of{k, i})
				f.problem.Links = append(f.problem.Links, asked)
				continue
			}
		}
		// It has a path that is none, or several: these keep what they have, and so do its ends.
		f.take(paths, g, numbers)
		if !okA || !okB {
			continue
		}
		why := "link " + l.Name + "'s path does not lead between its ends"
		if len(paths) > 1 {
			why = "link " + l.Name + " has several paths"
		}
		for _, n := range []int32{a, b} {
			f.problem.Elements[n].Pinned = true
			f.pins[n] = cmp.Or(f.pins[n], why)
		}
	}
	f.reserve(r, g, numbers)
}

// reserve keeps what a move that is under way will need.
func (f *fleet) reserve(r *model.ResolvedRecord, g *graph, numbers map[[2]int32]int32) {
	m := r.Moving
	if m == nil || m.Step != model.MoveCopying {
		return
	}
	if n := g.number(m.To); n >= 0 {
		for i := range r.Network.Elements {
			if el := &r.Network.Elements[i]; el.Name == m.Element {
				node := &f.problem.Nodes[n]
				node.CPU, node.Memory = node.CPU-int64(el.CPU), node.Memory-int64(el.Memory)
				node.Load += int64(max(el.CPU, DefaultWeight))
			}
		}
	}
	for _, paths := range moved(m, r.Assigned.Placement) {
		f.take(paths, g, numbers)
	}
}

// take counts paths that are nobody's to change.
func (f *fleet) take(paths []model.LinkPath, g *graph, numbers map[[2]int32]int32) {
	for _, p := range paths {
		for x := 1; x < len(p.Nodes); x++ {
			if w, ok := numbers[[2]int32{g.number(p.Nodes[x-1]), g.number(p.Nodes[x])}]; ok {
				f.problem.Wires[w].Taken += int64(p.Bandwidth)
			}
		}
	}
}

// wayOf are the wires of a path; nil where it does not lead from a to b.
func wayOf(g *graph, numbers map[[2]int32]int32, path []string, a, b int32) (way []int32) {
	if len(path) < 2 || g.number(path[0]) != a || g.number(path[len(path)-1]) != b {
		return nil
	}
	for k := 1; k < len(path); k++ {
		w, ok := numbers[[2]int32{g.number(path[k-1]), g.number(path[k])}]
		if !ok {
			return nil
		}
		way = append(way, w)
	}
	return way
}

// why says what keeps an element on its node, in words.
func (e *embedder) why(i int) string {
	el := &e.net.Elements[i]
	if el.Node != "" {
		return el.Name + " is pinned to " + el.Node + " (node:)"
	}
	return "the device of its edge " + e.edgeOf(el.Name) + " is on " + e.nodes[e.pin[i]].Name
}

func (f *fleet) limit(l Limit) search.Limit {
	s := search.Limit{Moves: l.Moves, Steps: l.Steps}
	if s.Moves == 0 {
		s.Moves = DefaultMoves
	}
	if s.Steps == 0 {
		s.Steps = DefaultSteps
	}
	return s
}

// plan puts the search's answer into names.
func (f *fleet) plan(s search.Plan) Plan {
	p := Plan{Spent: s.Spent}
	for _, m := range s.Moves {
		move := Move{}
		if m.Element >= 0 {
			of := f.element[m.Element]
			net := &f.Networks[of.network].Network
			move = Move{Network: net.Name, Element: net.Elements[of.index].Name,
				From: f.Substrate.Nodes[m.From].Name, To: f.Substrate.Nodes[m.To].Name}
		}
		for k, l := range m.Links {
			of := f.link[l]
			net := &f.Networks[of.network].Network
			move.Network = net.Name
			if move.Paths == nil {
				move.Paths = map[string][]model.LinkPath{}
			}
			var paths []model.LinkPath
			if way := m.Ways[k]; len(way) > 0 {
				link := &net.Links[of.index]
				paths = []model.LinkPath{{Nodes: f.along(way, m.First[k]), Bandwidth: net.Slice.Reserves(link)}}
			}
			move.Paths[net.Links[of.index].Name] = paths
		}
		p.Moves = append(p.Moves, move)
	}
	for _, stuck := range s.Stays {
		if stuck.Element < 0 {
			of := f.link[stuck.Link]
			net := &f.Networks[of.network].Network
			p.Stays = append(p.Stays, Stay{Network: net.Name, Link: net.Links[of.index].Name,
				Why: "no other way with its bandwidth was found"})
			continue
		}
		of := f.element[stuck.Element]
		net := &f.Networks[of.network].Network
		stay := Stay{Network: net.Name, Element: net.Elements[of.index].Name, Why: f.pins[stuck.Element]}
		if stay.Why == "" {
			stay.Why = f.reasons(&stuck)
		}
		p.Stays = append(p.Stays, stay)
	}
	return p
}

// along are the names of the nodes on a way that begins at one.
func (f *fleet) along(way []int32, at int32) []string {
	nodes := append(make([]string, 0, len(way)+1), f.Substrate.Nodes[at].Name)
	for _, w := range way {
		at = f.problem.Wires[w].A + f.problem.Wires[w].B - at
		nodes = append(nodes, f.Substrate.Nodes[at].Name)
	}
	return nodes
}

// reasons say why an element found no other node.
func (f *fleet) reasons(s *search.Stay) string {
	var out []string
	for n, why := range s.Whys {
		name := f.Substrate.Nodes[n].Name
		switch why {
		case search.Itself:
		case search.Unfit:
			word := "lacks what it wants"
			if f.Shut[name] != "" {
				word = "takes nothing new"
			}
			out = append(out, name+" "+word)
		case search.NoCPU:
			out = append(out, name+" has "+cores(model.CPU(s.Free[n].CPU))+" free")
		case search.NoMemory:
			out = append(out, name+" has "+model.Bytes(s.Free[n].Memory).Rounded()+" free")
		case search.Taken:
			out = append(out, name+" has another of its network (placement distinct)")
		case search.Full:
			out = append(out, name+" is in a location that has its share of the network (placement spread)")
		case search.NoWay:
			out = append(out, name+" has room, but no ways were found for its links")
		}
	}
	if len(out) == 0 {
		return "there is no other node"
	}
	return list(out)
}
