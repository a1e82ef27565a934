package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// operation is one thing that a user asks for. It is valid in the world as it is.
type operation struct {
	kind  string
	args  []string            // of the program
	input string              // its standard input
	next  map[string]*network // what is wanted afterwards, by name; nil where the network is gone
}

func (o *operation) String() string { return strings.Join(o.args, " ") }

// The kinds of operations, in the order that they are shown in, with how often each is chosen.
var kinds = []struct {
	name   string
	weight int
	make   func(g *generator) *operation // nil where it is not possible now
}{
	{"apply new", 3, (*generator).applyNew},
	{"apply change", 3, (*generator).applyChange},
	{"apply two", 2, (*generator).applyTwo},
	{"delete", 2, (*generator).remove},
	{"set", 3, (*generator).set},
	{"stop/start", 2, (*generator).stopOrStart},
	{"suspend/resume", 1, (*generator).suspendOrResume},
	{"restart", 1, (*generator).restart},
	{"re-map", 3, (*generator).remap},
}

// The bounds of the world. They are small, since a run's time shall go into faults, not into size.
const (
	fewestNetworks, mostNetworks = 2, 4
	mostHosts                    = 4
)

// generator chooses operations. Its choices depend only on its random numbers and the world.
type generator struct {
	*rand.Rand
	world *world
}

// operation chooses one.
func (g *generator) operation() *operation {
	if len(g.world.networks) < fewestNetworks {
		if o := g.applyNew(); o != nil {
			return o
		}
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	for {
		at := g.IntN(total)
		for _, k := range kinds {
			if at -= k.weight; at < 0 {
				if o := k.make(g); o != nil {
					o.kind = k.name
					return o
				}
				break
			}
		}
	}
}

func one[T any](g *generator, of []T) (chosen T, ok bool) {
	if len(of) == 0 {
		return chosen, false
	}
	return of[g.IntN(len(of))], true
}

func (g *generator) node() string { n, _ := one(g, g.world.nodes); return n }

// some returns a copy of one of the networks, to be changed.
func (g *generator) some() *network {
	n, ok := one(g, g.world.sorted())
	if !ok {
		return nil
	}
	return n.clone()
}

// apply is an operation that makes networks as they are given.
func apply(networks ...*network) *operation {
	o := &operation{args: []string{"apply", "-f", "-"}, next: map[string]*network{}}
	var texts []string
	for _, n := range networks {
		texts = append(texts, n.text())
		o.next[n.name] = n
	}
	o.input = strings.Join(texts, "---\n")
	return o
}

// change is an operation on one network that takes words.
func change(n *network, words ...string) *operation {
	return &operation{args: words, next: map[string]*network{n.name: n}}
}

// newNetwork makes up a network of one of the sorts. If nothing runs anywhere, it is one with processes, since most
// faults need some.
func (g *generator) newNetwork() *network {
	if len(g.world.networks) >= mostNetworks || len(g.world.names) == 0 {
		return nil
	}
	name := g.world.names[g.IntN(len(g.world.names))]
	sorts := []sort{static, switched, bird, bird, frr}
	n := &network{name: name, sort: sorts[g.IntN(len(sorts))]}
	if !slices.ContainsFunc(g.world.sorted(), (*network).processes) {
		n.sort = bird // most faults want something that runs
	}
	switch {
	case n.sort == switched:
		n.elements = append(n.elements, &element{name: "s", kind: model.Switch, node: g.node()})
	case n.processes():
		for i := range 1 + g.IntN(2) {
			n.elements = append(n.elements, &element{name: fmt.Sprintf("r%d", i+1), kind: model.Router, node: g.node(),
				forwarding: g.forwarding()})
			if i > 0 {
				n.links = append(n.links, &link{a: fmt.Sprintf("r%d", i), b: fmt.Sprintf("r%d", i+1)})
			}
		}
	default:
		n.elements = append(n.elements, &element{name: "r1", kind: model.Router, node: g.node(),
			forwarding: g.forwarding()})
	}
	for range 2 + g.IntN(2) {
		g.addHost(n)
	}
	return n
}

// forwardings are the ways in which routers' packets can be forwarded; the first is the default.
var forwardings = []model.Forwarding{"", model.ForwardXDP, model.ForwardRouter, model.ForwardBridge}

// forwarding is the default for every other router.
func (g *generator) forwarding() model.Forwarding {
	if g.IntN(2) == 0 {
		return ""
	}
	return forwardings[1+g.IntN(len(forwardings)-1)]
}

func (g *generator) addHost(n *network) {
	name := ""
	for i := 1; ; i++ {
		if name = fmt.Sprintf("h%d", i); n.element(name) == nil {
			break
		}
	}
	at, _ := one(g, n.of(model.Router, model.Switch))
	n.elements = append(n.elements, &element{name: name, kind: model.Host, node: g.node()})
	n.links = append(n.links, &link{a: at.name, b: name})
}

func (g *generator) removeHost(n *network) {
	h, _ := one(g, n.of(model.Host))
	for i, e := range n.elements {
		if e == h {
			n.elements = append(n.elements[:i:i], n.elements[i+1:]...)
			break
		}
	}
	for i, l := range n.links {
		if l.b == h.name {
			n.links = append(n.links[:i:i], n.links[i+1:]...)
			break
		}
	}
}

func (g *generator) applyNew() *operation {
	n := g.newNetwork()
	if n == nil {
		return nil
	}
	o := apply(n)
	o.kind = "apply new"
	return o
}

// alter adds a host to a network, or takes one away.
func (g *generator) alter(n *network) *network {
	if n == nil {
		return nil
	}
	if hosts := len(n.of(model.Host)); hosts >= mostHosts || hosts > 2 && g.IntN(2) == 0 {
		g.removeHost(n)
	} else {
		g.addHost(n)
	}
	return n
}

func (g *generator) applyChange() *operation {
	if n := g.alter(g.some()); n != nil {
		return apply(n)
	}
	return nil
}

// applyTwo changes two networks by one file, or makes one of them.
func (g *generator) applyTwo() *operation {
	a, b := g.alter(g.some()), g.newNetwork()
	if b == nil {
		b = g.alter(g.some())
	}
	if a == nil || b == nil || a.name == b.name {
		return nil
	}
	return apply(a, b)
}

// remove deletes a network, unless too few would be left.
func (g *generator) remove() *operation {
	n, ok := one(g, g.world.sorted())
	if !ok || len(g.world.networks) <= fewestNetworks {
		return nil
	}
	return &operation{args: []string{"delete", n.name}, next: map[string]*network{n.name: nil}}
}

// set changes the memory or the forwarding of a router, or the bandwidth of a link.
func (g *generator) set() *operation {
	n := g.some()
	if n == nil {
		return nil
	}
	routers := n.of(model.Router)
	switch r, ok := one(g, routers); {
	case ok && n.processes() && g.IntN(2) == 0:
		r.memory = []int{64, 96, 128, 192}[g.IntN(4)]
		return change(n, "set", n.name+"/"+r.name, fmt.Sprintf("memory=%dMiB", r.memory))
	case ok && g.IntN(2) == 0:
		others := slices.DeleteFunc(slices.Clone(forwardings),
			func(f model.Forwarding) bool { return f == r.forwarding })
		r.forwarding = others[g.IntN(len(others))]
		return change(n, "set", n.name+"/"+r.name, "forwarding="+string(r.forwarding))
	}
	l, _ := one(g, n.links)
	l.bandwidth = []int{0, 10, 50, 200}[g.IntN(4)]
	if l.bandwidth == 0 {
		return change(n, "set", n.name+"/"+l.name(), "bandwidth=")
	}
	return change(n, "set", n.name+"/"+l.name(), fmt.Sprintf("bandwidth=%dMbit", l.bandwidth))
}

// stopOrStart starts what is stopped in a network or, if nothing is, stops something.
func (g *generator) stopOrStart() *operation {
	n := g.some()
	if n == nil {
		return nil
	}
	for _, e := range n.elements {
		if e.stopped {
			e.stopped = false
			return change(n, "start", n.name+"/"+e.name)
		}
	}
	e, _ := one(g, n.elements)
	e.stopped, e.suspended = true, false
	return change(n, "stop", n.name+"/"+e.name)
}

func (g *generator) suspendOrResume() *operation {
	n := g.some()
	if n == nil || !n.processes() {
		return nil
	}
	r, _ := one(g, n.of(model.Router))
	switch {
	case r.stopped:
		return nil
	case r.suspended:
		r.suspended = false
		return change(n, "resume", n.name+"/"+r.name)
	}
	r.suspended = true
	return change(n, "suspend", n.name+"/"+r.name)
}

func (g *generator) restart() *operation {
	n := g.some()
	if n == nil {
		return nil
	}
	e, _ := one(g, n.elements)
	e.stopped, e.suspended = false, false
	return change(n, "restart", n.name+"/"+e.name)
}

// remap moves an element to another node, and its links with it.
func (g *generator) remap() *operation {
	n := g.some()
	if n == nil || len(g.world.nodes) < 2 {
		return nil
	}
	e, _ := one(g, n.elements)
	was := e.node
	for e.node == was {
		e.node = g.node()
	}
	o := apply(n)
	o.args = append(o.args, "--lose-files") // else such a change is refused
	return o
}
