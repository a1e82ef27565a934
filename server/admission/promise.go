package admission

import (
	"fmt"

	"github.com/polyplane/polyplane/model"
)

// protocols are routing protocols' names in the field, and what becomes of a router's neighbours that speak them when
// it stands still. The links of an element that stands still have no carrier at their other ends, by which routing
// software notices at once.
var protocols = map[string]struct{ name, neighbours string }{
	"ospf":  {"OSPF", "neighbours lose the adjacency at once, and route around it where there is another way"},
	"ospf6": {"OSPFv3", "neighbours lose the adjacency at once, and route around it where there is another way"},
	"isis":  {"IS-IS", "neighbours lose the adjacency at once, and route around it where there is another way"},
	"bgp": {"BGP", "neighbours on its links drop the session at once; those that reach it over others do when their " +
		"hold time is over"},
	"rip": {"RIP", "neighbours drop its routes with the link's carrier, and have them again with the next updates"},
}

// PromiseOf tells what a cold move of an element keeps, interrupts, and loses. A dry run, the command line and the
// documents say it in these words.
func PromiseOf(n *Network, element string) (p model.MovePromise) {
	var e *model.ResolvedElement
	for i := range n.Resolved.Elements {
		if n.Resolved.Elements[i].Name == element {
			e = &n.Resolved.Elements[i]
		}
	}
	if e == nil {
		return p
	}
	p.Keeps = append(p.Keeps, "names, addresses, MAC addresses, and what was set and decided")
	switch o := n.Record.Overrides[element]; {
	case o.Stopped:
		p.Keeps = append(p.Keeps, "it is stopped, and stays so")
	case o.Suspended:
		p.Keeps = append(p.Keeps, "it is suspended, and is again")
	case o.Quarantined:
		p.Keeps = append(p.Keeps, "its quarantine")
	}
	if e.Kind == model.Switch {
		p.Interrupts = append(p.Interrupts, "everything on its segment: its ports have no carrier meanwhile")
		p.Loses = append(p.Loses, "the MAC addresses that it has learnt, which it learns anew")
		if e.STP != "" {
			p.Interrupts = append(p.Interrupts, "its spanning tree, which is worked out anew: ports forward after its "+
				"delays only")
		}
		return p
	}
	p.Keeps = append(p.Keeps, "its disk: files, configuration, logs")
	if e.Kind == model.Router {
		p.Interrupts = append(p.Interrupts, "all traffic through it")
	} else {
		p.Interrupts = append(p.Interrupts, "all traffic from it and to it")
	}
	for _, name := range e.Spoken() {
		is := protocols[name]
		p.Interrupts = append(p.Interrupts, is.name+": "+is.neighbours)
	}
	if len(e.Config) > 0 {
		p.Interrupts = append(p.Interrupts, "whatever its own configuration makes it speak with its neighbours")
	}
	switch {
	case e.Run != "" || e.Image != "":
		p.Loses = append(p.Loses, "what its programs have in memory: they are ended, and started again")
	case len(e.Start) > 0:
		p.Loses = append(p.Loses, "what its commands at the start have changed, until they are run again")
	}
	p.Loses = append(p.Loses, "what was started or set by hand inside (`exec`): processes, routes, rules; TCP "+
		"connections that end at it")
	if len(e.Tmpfs) > 0 {
		p.Loses = append(p.Loses, "what is in its file systems in memory (tmpfs)")
	}
	if e.FastRouter() {
		p.Loses = append(p.Loses, fmt.Sprintf("counters of `forwarding: %s`, which begin at zero", e.Forwarding))
	}
	for i := range n.Resolved.Edges {
		edge := &n.Resolved.Edges[i]
		switch {
		case edge.End.Element != element:
		case edge.Internet != nil:
			p.Loses = append(p.Loses, "connections through its internet edge "+edge.Name+
				": they get another machine's address, or another port")
		default:
			p.Interrupts = append(p.Interrupts, "what passes its edge "+edge.Name)
		}
	}
	return p
}
