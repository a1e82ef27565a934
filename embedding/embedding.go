// Package embedding maps virtual networks onto the substrate: elements onto nodes, virtual links onto substrate paths.
// It is pure and deterministic: the same question gets the same answer.
package embedding

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// DefaultWeight is the load, in thousandths of a core, that an element counts for that asks for no CPU, when load is
// balanced between nodes. It is never held against a node's capacity: elements that ask for nothing always fit.
const DefaultWeight model.CPU = 10

// nearby is how far above its fair share a node may be filled, as a factor, to keep an element beside a neighbour that
// is already there.
const nearby = 1.25

// gluings limits how often elements are placed anew because a link between them fits nowhere.
const gluings = 8

// Usage is what networks take of the substrate.
type Usage struct {
	Nodes map[string]NodeUsage
	Links map[Direction]model.Bandwidth
}

// NodeUsage is what is taken of one node. CPU and Memory are asked for. Weight is the load that balancing uses:
// DefaultWeight for each element that asks for less.
type NodeUsage struct {
	CPU      model.CPU
	Memory   model.Bytes
	Weight   model.CPU
	Elements int
}

// Direction is one direction of a substrate link.
type Direction struct{ From, To string }

// UsageOf sums up what the networks take as they are placed. To embed a network anew, leave its own record out.
func UsageOf(records []model.Record) Usage {
	u := Usage{Nodes: map[string]NodeUsage{}, Links: map[Direction]model.Bandwidth{}}
	for i := range records {
		u.Add(&records[i])
	}
	return u
}

// Add counts what a network takes, and what a move of one of its elements has reserved.
func (u *Usage) Add(r *model.Record) {
	u.place(r, 1)
	u.move(r, 1)
}

// Drop is Add taken back, of the same record.
func (u *Usage) Drop(r *model.Record) {
	u.place(r, -1)
	u.move(r, -1)
}

// AddMove counts what a move has reserved, alone, and DropMove takes that back.
func (u *Usage) AddMove(r *model.Record)  { u.move(r, 1) }
func (u *Usage) DropMove(r *model.Record) { u.move(r, -1) }

// place counts what a network takes once, or -1 times.
func (u *Usage) place(r *model.Record, times int) {
	placed := r.Assigned.Placement
	for i := range r.Network.Elements {
		el := &r.Network.Elements[i]
		if node, ok := placed.Elements[el.Name]; ok {
			u.count(node, el, times)
		}
	}
	for name := range placed.Links {
		u.reserve(placed.Links[name], times)
	}
}

// count adds an element to what a node has. Numbers without a sign wrap around, so that minus one times is exact.
func (u *Usage) count(node string, el *model.Element, times int) {
	n := u.Nodes[node]
	n.CPU += el.CPU * model.CPU(times)
	n.Memory += el.Memory * model.Bytes(times)
	n.Weight += max(el.CPU, DefaultWeight) * model.CPU(times)
	n.Elements += times
	u.Nodes[node] = n
}

func (u *Usage) reserve(paths []model.LinkPath, times int) {
	for _, p := range paths {
		for i := 1; i < len(p.Nodes); i++ {
			u.Links[Direction{p.Nodes[i-1], p.Nodes[i]}] += p.Bandwidth * model.Bandwidth(times)
			u.Links[Direction{p.Nodes[i], p.Nodes[i-1]}] += p.Bandwidth * model.Bandwidth(times)
		}
	}
}

// move counts what a network will take once an element has been moved, beside what it takes until then: the move may be
// taken back.
func (u *Usage) move(r *model.Record, times int) {
	m := r.Moving
	if m == nil || m.Step != model.MoveCopying {
		return
	}
	for i := range r.Network.Elements {
		if el := &r.Network.Elements[i]; el.Name == m.Element {
			u.count(m.To, el, times)
		}
	}
	for _, paths := range moved(m, r.Assigned.Placement) {
		u.reserve(paths, times)
	}
}

// moved are the paths that links will have by a move, and do not have yet.
func moved(m *model.Moving, now model.Placement) (paths [][]model.LinkPath) {
	for name, next := range m.Placement.Links {
		if !slices.EqualFunc(next, now.Links[name],
			func(a, b model.LinkPath) bool { return slices.Equal(a.Nodes, b.Nodes) }) {
			paths = append(paths, next)
		}
	}
	return paths
}

// Refusal is the error of a network that does not fit. It has everything that is wrong, one sentence each, about the
// first of the objects concerned.
type Refusal struct {
	Network  string
	Problems []model.Problem
}

func (r *Refusal) Error() string {
	if len(r.Problems) == 1 {
		return fmt.Sprintf("network %s does not fit onto the substrate: %s", r.Network, r.Problems[0].Message)
	}
	var b strings.Builder
	for _, p := range r.Problems {
		b.WriteString("\n  - " + p.Message)
	}
	return fmt.Sprintf("network %s does not fit onto the substrate:%s", r.Network, b.String())
}

// Current is how the network is now; the zero value for a new one.
type Current struct {
	model.Placement
	// Network is what was placed, resolved. What its elements ask for already is not asked of their nodes again. So a
	// network can be changed whatever has become of a node since.
	Network model.Resolved
	// Shut are the nodes that take nothing new, and why. What is on them already stays, and what is pinned to them is
	// put there: whoever asks says that it is refused.
	Shut map[string]string
	// Steps are what this and other embeddings may still take together; nil: nobody counts. Where they are used up, the
	// error is ErrSpent.
	Steps *int
}

// ErrSpent tells that an embedding was given up, since it had no steps left. Nothing is known of whether it fits.
var ErrSpent = errors.New("the steps of the search had an end")

// Embed places a resolved network beside what others use. used does not count this network.
//
// Elements go to nodes that offer what they, their links and their edges want. offers are by node; what they do not
// mention counts as offered. An element that is pinned to a node, a location or an edge's node goes there. One that
// current has placed stays, unless its node has gone or it is pinned elsewhere. The rest is placed by free CPU and
// memory, neighbours together, with the load balanced between nodes.
//
// Links between nodes take the shortest substrate path (by hops, then delay) with enough free bandwidth in both
// directions. They keep the path that they have while it serves. A link's MTU must be one that the underlay carries
// wherever its ends may be.
//
// The error is a *Refusal that tells everything that is missing.
func Embed(sub model.Substrate, offers map[string]model.Offers, used Usage, net model.Resolved,
	current Current) (model.Placement, error) {
	e := newEmbedder(sub, used, net)
	e.steps = current.Steps
	e.spend(len(e.sub.arcs) + len(net.Elements)*len(sub.Nodes))
	if e.spent() {
		return model.Placement{}, ErrSpent
	}
	if len(sub.Nodes) == 0 && len(net.Elements) > 0 {
		return model.Placement{},
			&Refusal{net.Name, []model.Problem{{About: model.AboutNetwork, Name: net.Name,
				Message: "there is no node in the substrate"}}}
	}
	e.constrain(current.Placement)
	if len(e.problems) == 0 {
		e.choose(offers, current)
		e.checkMTUs()
	}
	if len(e.problems) > 0 {
		return model.Placement{}, &Refusal{net.Name, e.problems}
	}
	if e.net.Placing.Distinct || e.net.Placing.Spread != "" {
		if e.checkPlacing(current); len(e.problems) > 0 {
			return model.Placement{}, &Refusal{net.Name, e.problems}
		}
		paths, problems := e.seek(current.Placement)
		if problems != nil {
			return model.Placement{}, e.refusal(problems)
		}
		return e.placement(paths), nil
	}
	pin, may, location := slices.Clone(e.pin), slices.Clone(e.may), slices.Clone(e.location)
	var first []model.Problem
	for range gluings {
		if e.spent() {
			return model.Placement{}, ErrSpent
		}
		e.spend(len(net.Elements) * len(sub.Nodes))
		e.place()
		if len(e.problems) > 0 {
			break
		}
		paths, failed := e.route(current.Placement)
		if len(failed) == 0 {
			return e.placement(paths), nil
		}
		if first == nil {
			for _, f := range failed {
				first = append(first, problem(model.AboutLink, e.net.Links[f.link].Name, "bandwidth", "%s", f.reason))
			}
		}
		if !e.glue(failed) {
			break
		}
	}
	if first == nil {
		return model.Placement{}, &Refusal{net.Name, e.problems}
	}
	// There is room for the elements, but not for the links where they are. Placing them by their links may do.
	e.pin, e.may, e.location = pin, may, location // those that were glued are apart again
	if e.spent() {
		return model.Placement{}, ErrSpent
	}
	if paths, problems := e.seek(current.Placement); problems == nil {
		return e.placement(paths), nil
	}
	return model.Placement{}, e.refusal(first)
}

// spend counts steps. One is about as long as the search's: it looks at a node for an element, or at an arc for a link.
func (e *embedder) spend(steps int) {
	if e.steps != nil {
		*e.steps -= steps
	}
}

func (e *embedder) spent() bool { return e.steps != nil && *e.steps <= 0 }

// refusal is that a search found nothing, unless that was for want of steps.
func (e *embedder) refusal(problems []model.Problem) error {
	if e.spent() {
		return ErrSpent
	}
	return &Refusal{e.net.Name, problems}
}

// embedder holds the state of one Embed: nodes and elements by number.
type embedder struct {
	sub      *graph
	net      model.Resolved
	index    map[string]int // element name → number
	adjacent [][]int32      // element → elements at the far ends of its links
	nodes    []nodeState
	totalCPU float64
	totalMem float64
	overhead int // of a tunnel

	pin      []int32 // element → node it must be on, or -1
	stays    []bool  // the pin is only where it is already
	location []string
	may      [][]bool // element → the nodes that it may be on as far as what they offer goes; nil: all
	parent   []int32  // union-find: elements that must share a node
	at       []int32  // element → node, or -1
	problems []model.Problem
	steps    *int // as Current has them
}

// nodeState is a node with what is used of it.
type nodeState struct {
	model.SubstrateNode
	base NodeUsage // others'
	used NodeUsage // with this network's elements so far
}

// newEmbedder numbers elements and nodes: placing looks at each pair of them many times, and names are slow to compare.
func newEmbedder(sub model.Substrate, used Usage, net model.Resolved) *embedder {
	return newGraph(sub).embedder(sub, used, net)
}

func (g *graph) embedder(sub model.Substrate, used Usage, net model.Resolved) *embedder {
	n := len(net.Elements)
	e := &embedder{sub: g, net: net, index: make(map[string]int, n), adjacent: make([][]int32, n),
		pin: make([]int32, n), stays: make([]bool, n), location: make([]string, n), may: make([][]bool, n),
		parent: make([]int32, n),
		at:     make([]int32, n), overhead: overhead(sub)}
	for i := range net.Elements {
		e.index[net.Elements[i].Name] = i
		e.pin[i] = -1
		e.parent[i] = int32(i)
	}
	for _, l := range net.Links {
		a, okA := e.index[l.Ends[0].Element]
		b, okB := e.index[l.Ends[1].Element]
		if okA && okB && a != b {
			e.adjacent[a] = append(e.adjacent[a], int32(b))
			e.adjacent[b] = append(e.adjacent[b], int32(a))
		}
	}
	for _, node := range sub.Nodes {
		e.nodes = append(e.nodes, nodeState{SubstrateNode: node, base: used.Nodes[node.Name]})
		e.totalCPU += float64(node.CPU)
		e.totalMem += float64(node.Memory)
	}
	for d, bw := range used.Links {
		e.sub.take(d.From, d.To, bw)
	}
	return e
}

// constrain works out where elements must be, from pins, edges and the current placement. It tells the pins that
// contradict each other or the substrate.
func (e *embedder) constrain(current model.Placement) {
	edges := make(map[string]string) // element → its edge's node
	for _, edge := range e.net.Edges {
		el, ok := e.index[edge.End.Element]
		if !ok {
			continue
		}
		node := edge.Node
		if node == "" {
			if edge.Internet != nil || edge.Mirror != nil || len(e.nodes) == 1 || e.net.Elements[el].Node != "" {
				continue // every node has a way out; the only node, or the element's own pin, says where the device is
			}
			e.refuse(model.AboutEdge, edge.Name, "node",
				"edge %s does not say which node its device %s is on; there are %s", edge.Name, edge.Device,
				e.nodeNames())
			continue
		}
		if was := edges[edge.End.Element]; was != "" && was != node {
			e.refuse(model.AboutEdge, edge.Name, "node", "%s has edges on two nodes, %s and %s; an element is on one",
				edge.End.Element, was, node)
		}
		edges[edge.End.Element] = node
	}
	for i := range e.net.Elements {
		el := &e.net.Elements[i]
		want, why := el.Node, ""
		if edge := edges[el.Name]; edge != "" {
			if want != "" && want != edge {
				e.refuse(model.AboutElement, el.Name, "node", "%s is pinned to %s, but its edge's device is on %s",
					el.Name, want, edge)
				continue
			}
			want, why = edge, " by its edge"
		}
		e.location[i] = el.Location
		if want != "" {
			n, ok := e.sub.index[want]
			switch {
			case !ok:
				about, name := model.AboutElement, el.Name
				if why != "" {
					about, name = model.AboutEdge, e.edgeOf(el.Name)
				}
				e.refuse(about, name, "node", "%s is pinned%s to node %s, which does not exist; there are %s", el.Name,
					why, want, e.nodeNames())
			case el.Location != "" && e.nodes[n].Location != el.Location:
				e.refuse(model.AboutElement, el.Name, "location",
					"%s is pinned%s to node %s, which is in %s, and to location %s", el.Name, why, want,
					placeName(e.nodes[n].Location), el.Location)
			}
			e.pin[i] = int32(n)
			continue
		}
		if el.Location != "" && !slices.ContainsFunc(e.nodes,
			func(n nodeState) bool { return n.Location == el.Location }) {
			e.refuse(model.AboutElement, el.Name, "location",
				"%s is pinned to location %s, where there is no node; there are %s", el.Name, el.Location,
				e.locationNames())
			continue
		}
		if n, ok := e.sub.index[current.Elements[el.Name]]; ok &&
			(el.Location == "" || e.nodes[n].Location == el.Location) {
			e.pin[i], e.stays[i] = int32(n), true
		}
	}
}

func (e *embedder) refuse(about model.Subject, name, field, format string, args ...any) {
	e.problems = append(e.problems, problem(about, name, field, format, args...))
}

func problem(about model.Subject, name, field, format string, args ...any) model.Problem {
	return model.Problem{About: about, Name: name, Field: field, Message: fmt.Sprintf(format, args...)}
}

// edgeOf is the first edge of an element that says its node.
func (e *embedder) edgeOf(element string) string {
	for _, edge := range e.net.Edges {
		if edge.End.Element == element && edge.Node != "" {
			return edge.Name
		}
	}
	return ""
}

func (e *embedder) nodeNames() string {
	names := make([]string, len(e.nodes))
	for i, n := range e.nodes {
		names[i] = n.Name
	}
	return list(names)
}

func (e *embedder) locationNames() string {
	names := e.locationsOf()
	if len(names) == 0 {
		return "no locations"
	}
	return list(names)
}

// list shortens long lists for people.
func list(names []string) string {
	const most = 8
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func placeName(location string) string {
	if location == "" {
		return "no location"
	}
	return "location " + location
}

func (e *embedder) placement(paths map[string][]model.LinkPath) model.Placement {
	p := model.Placement{Links: paths}
	if len(e.at) > 0 {
		p.Elements = make(map[string]string, len(e.at))
	}
	for i, n := range e.at {
		p.Elements[e.net.Elements[i].Name] = e.nodes[n].Name
	}
	return p
}
