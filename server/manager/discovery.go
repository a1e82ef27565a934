package manager

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// Bounds of what a node tells of what it found.
const (
	maxToldWord   = 128  // bytes of a switch's or a processor's name
	maxToldSpeed  = 1e15 // bits a second
	maxToldMTU    = 1 << 24
	maxToldHeard  = 4096 // nodes and switches on all devices together
	maxVertices   = 256  // switches that are links' ends
	maxFoundLinks = 65_536
)

// foundLink is what is remembered of a link between two nodes that was once found.
type foundLink struct {
	is      bool
	devices [2]string
	speed   model.Bandwidth // zero while that of either end is not known
	last    model.Bandwidth // the latest that was known
}

// Discover takes over what a node's agent has found, and answers with the keys that it asked for. Of its own key and
// devices it alone can tell; what it says of others counts only where they say the same.
func (k *known) Discover(d model.Discovery) (model.DiscoveryAnswer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := k.nodes.named(d.Node)
	if err != nil {
		return model.DiscoveryAnswer{}, err
	}
	keys := map[string][]byte{}
	for _, name := range d.Unknown[:min(len(d.Unknown), model.MaxUnknownNodes)] {
		if of := k.nodes[name]; of != nil && of.found != nil {
			keys[name] = of.found.Key
		}
	}
	d.Unknown = nil
	k.believeDiscovery(n, &d)
	first := n.found == nil
	if first || !reflect.DeepEqual(*n.found, d) {
		k.touch()
	}
	n.found, n.hearing = &d, hearing(&d)
	var about []string
	for other := range k.nodes {
		id := [2]string{min(n.Name, other), max(n.Name, other)}
		if other != n.Name && (n.hearing[other] != nil || k.found[id].is) {
			about = append(about, other)
		}
	}
	slices.Sort(about)
	for _, other := range about {
		k.foundEvent(n, k.nodes[other], first && d.Settled)
	}
	return model.DiscoveryAnswer{Keys: keys}, nil
}

// believeDiscovery keeps of what a node says it found what is possible.
func (k *known) believeDiscovery(n *node, d *model.Discovery) {
	if len(d.Key) != ed25519.PublicKeySize {
		d.Key = nil
	}
	d.Off, d.Processor = model.Shorten(d.Off, maxToldText), model.Shorten(d.Processor, maxToldWord)
	d.Interfaces = d.Interfaces[:min(len(d.Interfaces), model.MaxToldInterfaces)]
	for i := range d.Interfaces {
		o := &d.Interfaces[i]
		o.Name, o.Kind, o.MAC, o.Master = model.Shorten(o.Name, maxToldName), model.Shorten(o.Kind, maxToldName),
			model.Shorten(o.MAC, maxToldName), model.Shorten(o.Master, maxToldName)
		o.MTU, o.Speed = min(max(o.MTU, 0), maxToldMTU), min(o.Speed, maxToldSpeed)
	}
	d.Wires = d.Wires[:min(len(d.Wires), model.MaxWires)]
	refused, first, heard := uint64(0), "", 0
	seen := map[string]bool{}
	d.Wires = slices.DeleteFunc(d.Wires, func(w model.Wire) bool {
		twice := seen[w.Device] || w.Device == "" || len(w.Device) > maxToldName
		seen[w.Device] = true
		return twice
	})
	for i := range d.Wires {
		w := &d.Wires[i]
		w.Problem, w.Speed = model.Shorten(w.Problem, maxToldText), min(w.Speed, maxToldSpeed)
		w.Nodes = w.Nodes[:min(len(w.Nodes), model.MaxHeardNodes)]
		here := map[model.HeardNode]bool{}
		w.Nodes = slices.DeleteFunc(w.Nodes, func(h model.HeardNode) bool {
			if h.Node == n.Name || len(h.Port) > maxToldName {
				refused, first = refused+1, cmp.Or(first, "a node that it hears: "+model.Shorten(h.Node, maxToldName))
				return true
			}
			if here[h] {
				return true
			}
			here[h] = true
			heard++
			return k.nodes[h.Node] == nil || heard > maxToldHeard // it may just have gone
		})
		w.Switches = w.Switches[:min(len(w.Switches), model.MaxHeardSwitches)]
		for k := range w.Switches {
			h := &w.Switches[k]
			h.Chassis, h.Port, h.Name = model.Shorten(h.Chassis, maxToldWord), model.Shorten(h.Port, maxToldWord),
				model.Shorten(h.Name, maxToldWord)
		}
		if heard += len(w.Switches); heard > maxToldHeard {
			w.Switches = nil
		}
	}
	n.tellRefused(refused, first)
}

// heardBy is a wire on which a node hears another one, and the port that it hears.
type heardBy struct {
	wire *model.Wire
	port string
}

// hearing is what a node hears, by the node that it hears.
func hearing(d *model.Discovery) map[string][]heardBy {
	all := map[string][]heardBy{}
	for i := range d.Wires {
		for _, h := range d.Wires[i].Nodes {
			all[h.Node] = append(all[h.Node], heardBy{&d.Wires[i], h.Port})
		}
	}
	return all
}

// wire is a device of the node's underlay; nil where it has told of none such.
func (n *node) wire(device string) *model.Wire {
	if n.found == nil {
		return nil
	}
	i := slices.IndexFunc(n.found.Wires, func(w model.Wire) bool { return w.Device == device })
	if i < 0 {
		return nil
	}
	return &n.found.Wires[i]
}

// bothHear finds the link between two nodes: each hears the other by the device that the other says it is.
func bothHear(a, b *node) (l foundLink) {
	forth := a.hearing[b.Name]
	if len(forth) == 0 {
		return l
	}
	back := map[[2]string]*model.Wire{} // by its device, and the one that is heard on it
	for _, h := range b.hearing[a.Name] {
		back[[2]string{h.wire.Device, h.port}] = h.wire
	}
	for _, h := range forth {
		w, v := h.wire, back[[2]string{h.port, h.wire.Device}]
		if v == nil {
			continue
		}
		speed := min(w.Speed, v.Speed)
		if !l.is {
			l = foundLink{is: true, devices: [2]string{w.Device, v.Device}, speed: speed}
		} else if l.speed > 0 && speed > 0 {
			l.speed += speed // another one beside it
		} else {
			l.speed = 0
		}
	}
	return l
}

// foundEvent notes what was found between two nodes, and tells of it if it is news. What a node says for the first time
// to a manager that has just started is none.
func (k *known) foundEvent(n, other *node, known bool) {
	a, b := n, other
	if b.Name < a.Name {
		a, b = b, a
	}
	id := [2]string{a.Name, b.Name}
	was, is := k.found[id], bothHear(a, b)
	object := a.Name + " -- " + b.Name
	tell := func(severity model.Severity, reason, message string) {
		if !known && n.takesEvent() {
			k.event(severity, object, reason, message, n.Name)
		}
	}
	is.last = cmp.Or(is.speed, was.last)
	switch {
	case !was.is && !is.is:
		return
	case was.is && !is.is && !k.over(a, b, was):
		return
	case is.is && !was.is:
		if k.found == nil {
			k.found = map[[2]string]foundLink{}
		}
		if len(k.found) >= maxFoundLinks {
			return
		}
		tell(model.Info, "LinkFound", fmt.Sprintf("nodes %s and %s hear each other, by %s and %s%s", a.Name, b.Name,
			is.devices[0], is.devices[1], carries(is.speed)))
	case was.is && !is.is:
		tell(model.Warning, "LinkLost", fmt.Sprintf("nodes %s and %s no longer hear each other by %s and %s", a.Name,
			b.Name, was.devices[0], was.devices[1]))
		is.devices, is.speed = was.devices, was.speed
	case was.last != is.last && was.last > 0:
		severity := model.Info
		if is.last < was.last {
			severity = model.Warning
		}
		tell(severity, "CapacityChanged", fmt.Sprintf("what %s of node %s and %s of node %s can send was %s, and is "+
			"%s; what networks reserve follows from what the substrate states, and is as before", is.devices[0], a.Name,
			is.devices[1], b.Name, was.last, is.last))
	}
	if is != was {
		k.found[id] = is
		k.touch()
	}
}

func carries(speed model.Bandwidth) string {
	if speed == 0 {
		return ""
	}
	return ", which can send " + speed.String()
}

// over tells whether a link that both ends no longer tell of has gone. An agent that has just started has not heard
// everybody yet, and of one that is away nothing is known.
func (k *known) over(a, b *node, was foundLink) bool {
	for i, n := range []*node{a, b} {
		if n.found == nil || n.mute() != "" {
			return false
		}
		if w := n.wire(was.devices[i]); w != nil && !w.Up {
			return true
		}
	}
	return a.found.Settled && b.found.Settled
}

// foundBetween is what is known of a link between two nodes; nil when that is nothing.
func (k *known) foundBetween(a, b string) *model.FoundLink {
	x, y := k.nodes[a], k.nodes[b]
	if x == nil || y == nil || x.found == nil || y.found == nil || x.mute() != "" || y.mute() != "" {
		return nil
	}
	id, swapped := [2]string{a, b}, b < a
	if swapped {
		id = [2]string{b, a}
	}
	l, was := k.found[id]
	if swapped {
		l.devices[0], l.devices[1] = l.devices[1], l.devices[0]
	}
	is := &model.FoundLink{State: model.FoundLost, Devices: l.devices, Speed: l.speed}
	forth, back := x.hearing[b], y.hearing[a]
	switch {
	case l.is:
		is.State = model.FoundBoth
	case len(forth)+len(back) > 0:
		is.State = model.FoundOne
		if len(forth) > 0 {
			is.Devices[0] = forth[0].wire.Device
		}
		if len(back) > 0 {
			is.Devices[1] = back[0].wire.Device
		}
	case was:
	case x.found.Off != "" || y.found.Off != "" || !x.found.Settled || !y.found.Settled:
		return nil
	default:
		is.State = model.FoundNone
	}
	return is
}

// foundLinks are links that the substrate does not state: between nodes, and to switches that several nodes hear.
func (k *known) foundLinks() (all []model.SubstrateLinkStatus) {
	stated := map[[2]string]bool{}
	for _, l := range k.substrate.Links {
		stated[[2]string{l.A, l.B}], stated[[2]string{l.B, l.A}] = true, true
	}
	ids := slices.SortedFunc(maps.Keys(k.found), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, id := range ids {
		if f := k.foundBetween(id[0], id[1]); f != nil && !stated[id] {
			all = append(all, model.SubstrateLinkStatus{SubstrateLink: model.SubstrateLink{A: id[0], B: id[1]},
				Found: f, Unstated: true})
		}
	}
	type port struct {
		node string
		wire *model.Wire
		is   model.HeardSwitch
	}
	by := map[string][]port{} // by chassis
	nodes := map[string]map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(k.nodes)) {
		n := k.nodes[name]
		if n.found == nil || n.mute() != "" {
			continue
		}
		for i := range n.found.Wires {
			w := &n.found.Wires[i]
			for _, s := range w.Switches {
				if by[s.Chassis] = append(by[s.Chassis], port{name, w, s}); nodes[s.Chassis] == nil {
					nodes[s.Chassis] = map[string]bool{}
				}
				nodes[s.Chassis][name] = true
			}
		}
	}
	vertices := 0
	for _, chassis := range slices.Sorted(maps.Keys(by)) {
		if len(nodes[chassis]) < 2 || vertices == maxVertices {
			continue
		}
		vertices++
		for _, p := range by[chassis] {
			all = append(all, model.SubstrateLinkStatus{
				SubstrateLink: model.SubstrateLink{A: p.node, B: cmp.Or(p.is.Name, p.is.Chassis)}, Unstated: true,
				Found: &model.FoundLink{State: model.FoundSwitch, Devices: [2]string{p.wire.Device, p.is.Port},
					Speed: p.wire.Speed, Switch: &p.is}})
		}
	}
	return all
}

// forgetFound forgets what was found of a node that the substrate no longer has.
func (k *known) forgetFound(name string) {
	maps.DeleteFunc(k.found, func(id [2]string, _ foundLink) bool { return id[0] == name || id[1] == name })
}
