package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// world is what is wanted. It is the harness's own account, which it never asks anybody for.
type world struct {
	nodes    []string
	networks map[string]*network
	names    []string // free ones
}

// network is one of the networks that operations change.
type network struct {
	name     string
	sort     sort
	elements []*element
	links    []*link
}

// sort is what a network is made of.
type sort string

const (
	static   sort = "static" // one router without processes, and hosts
	switched sort = "switch" // one switch, and hosts
	bird     sort = "bird"   // routers with BIRD in a line, and hosts
	frr      sort = "frr"    // the same with FRR
)

// element is one element, and how it is wanted to be.
type element struct {
	name, node         string
	kind               model.Kind
	forwarding         model.Forwarding // the guest's own where empty
	memory             int              // MiB; the default where zero
	stopped, suspended bool
}

// link joins two elements by their names; interfaces are called after the far end.
type link struct {
	a, b      string
	bandwidth int // Mbit/s; not limited where zero
}

func (l *link) name() string { return l.a + "--" + l.b }

// processes tells whether something runs in the network's routers.
func (n *network) processes() bool { return n.sort == bird || n.sort == frr }

func (n *network) clone() *network {
	c := &network{name: n.name, sort: n.sort}
	for _, e := range n.elements {
		copied := *e
		c.elements = append(c.elements, &copied)
	}
	for _, l := range n.links {
		copied := *l
		c.links = append(c.links, &copied)
	}
	return c
}

func (n *network) element(name string) *element {
	for _, e := range n.elements {
		if e.name == name {
			return e
		}
	}
	return nil
}

func (n *network) of(kinds ...model.Kind) []*element {
	return slices.DeleteFunc(slices.Clone(n.elements), func(e *element) bool { return !slices.Contains(kinds, e.kind) })
}

// whole tells whether all hosts must reach each other.
func (n *network) whole() bool {
	return !slices.ContainsFunc(n.elements, func(e *element) bool { return e.stopped || e.suspended })
}

// interfaces are an element's, called after the elements at their other ends.
func (n *network) interfaces(e *element) []string {
	var all []string
	for _, l := range n.links {
		switch e.name {
		case l.a:
			all = append(all, l.b)
		case l.b:
			all = append(all, l.a)
		}
	}
	return all
}

// text is the network as a user writes it into a file.
func (n *network) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "network: %s\n", n.name)
	if n.sort != switched {
		fmt.Fprintf(&b, "software: %s\n", n.sort)
	}
	if n.processes() {
		b.WriteString("ospf: {}\n")
	}
	for _, kind := range []struct {
		kind  model.Kind
		field string
	}{{model.Router, "routers"}, {model.Switch, "switches"}, {model.Host, "hosts"}} {
		of := n.of(kind.kind)
		if len(of) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s:\n", kind.field)
		for _, e := range of {
			fields := []string{"node: " + e.node}
			if e.kind == model.Switch {
				fields = append(fields, "prefixes: [10.9.0.0/24]")
			}
			if e.forwarding != "" {
				fields = append(fields, "forwarding: "+string(e.forwarding))
			}
			if e.memory > 0 {
				fields = append(fields, fmt.Sprintf("memory: %dMiB", e.memory))
			}
			fmt.Fprintf(&b, "  %s: {%s}\n", e.name, strings.Join(fields, ", "))
		}
	}
	b.WriteString("links:\n")
	for _, l := range n.links {
		fmt.Fprintf(&b, "  - %s -- %s", l.a, l.b)
		if l.bandwidth > 0 {
			fmt.Fprintf(&b, ": {bandwidth: %dMbit}", l.bandwidth)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// print is the part of a network that can be compared with a record of the manager's.
func (n *network) print() string {
	lines := each.Of(n.elements, func(e *element) string {
		return elementLine(e.name, e.kind, e.node, e.node, e.forwarding, e.memory,
			e.stopped, e.suspended)
	})
	lines = append(lines, each.Of(n.links, func(l *link) string { return linkLine(l.name(), l.bandwidth) })...)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// printOf is the same of a record.
func printOf(r model.Record) string {
	var lines []string
	for i := range r.Network.Elements {
		e := &r.Network.Elements[i]
		o := r.Overrides[e.Name]
		f := e.Forwarding
		if e.Kind != model.Router || f == model.ForwardGuest {
			f = ""
		}
		lines = append(lines, elementLine(e.Name, e.Kind, e.Node, r.Assigned.Placement.Elements[e.Name],
			f, int(e.Memory>>20), o.Stopped, o.Suspended))
	}
	for _, l := range r.Network.Links {
		lines = append(lines, linkLine(l.Name, int(l.Bandwidth/1e6)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func elementLine(name string, kind model.Kind, pinned, placed string, forwarding model.Forwarding, memory int,
	stopped, suspended bool) string {
	return fmt.Sprintf("%s %s pinned to %s on %s, forwarding %q, memory %d, stopped %t, suspended %t", kind,
		name, pinned, placed, forwarding, memory, stopped, suspended)
}

func linkLine(name string, bandwidth int) string {
	return fmt.Sprintf("link %s bandwidth %d", name, bandwidth)
}

// sorted are the networks in the order of their names, so that choices among them repeat.
func (w *world) sorted() []*network {
	return each.Of(slices.Sorted(maps.Keys(w.networks)), func(name string) *network { return w.networks[name] })
}

// newWorld is one without networks.
func newWorld(nodes int) *world {
	w := &world{networks: map[string]*network{}}
	for i := range nodes {
		w.nodes = append(w.nodes, fmt.Sprintf("n%d", i+1))
	}
	for i := range 3 * mostNetworks {
		w.names = append(w.names, fmt.Sprintf("c%d", i+1))
	}
	return w
}

// take makes networks wanted, or gone. The names of networks that are gone are not used again before reuse.
func (w *world) take(next map[string]*network) {
	for name, n := range next {
		w.names = slices.DeleteFunc(w.names, func(s string) bool { return s == name })
		if n == nil {
			delete(w.networks, name)
			continue
		}
		w.networks[name] = n
	}
}

// reuse lets the names of networks that are gone be given again.
func (w *world) reuse() {
	w.names = nil
	for i := range 3 * mostNetworks {
		if name := fmt.Sprintf("c%d", i+1); w.networks[name] == nil {
			w.names = append(w.names, name)
		}
	}
}
