package netlab

import (
	"strconv"

	"github.com/polyplane/polyplane/convert/internal/lab"
)

// protocols carries over the modules of a router.
func (r *reader) protocols(n *node) {
	modules := r.of(n, "module")
	for _, m := range modules.Strings() {
		switch m.Text {
		case "ospf":
			said := &lab.Map{}
			if v := r.of(n, "ospf", "area"); v != nil {
				said.Set("area", v.Text)
			}
			n.said.Set("ospf", said)
			if r.ipv6 {
				n.said.Set("ospf6", said)
			}
			r.rest(n, "ospf", "area")
		case "isis":
			said := &lab.Map{}
			if v := r.of(n, "isis", "area"); v != nil {
				said.Set("area", v.Text)
			}
			switch v := r.of(n, "isis", "type"); v.String() {
			case "level-1":
				said.Set("level", lab.Raw("1"))
			case "level-1-2":
			default: // netlab's own
				said.Set("level", lab.Raw("2"))
			}
			n.said.Set("isis", said)
			r.rest(n, "isis", "area", "type")
		case "bgp":
			r.bgp(n, m)
		case "ripv2":
			n.said.Set("rip", &lab.Map{})
			r.rest(n, "ripv2")
		default:
			r.notes.Add(m.Line, "the module %s is not carried over", m.Text)
		}
	}
}

// rest notes what is said of a protocol, in the file or of a node, that there is no word for.
func (r *reader) rest(n *node, module string, known ...string) {
	r.notes.Rest(r.root.Get(module), module, known...)
	r.notes.Rest(n.data.Get(module), "node "+n.name+": "+module, known...)
	for _, g := range n.groups {
		r.notes.Rest(g.Get("node_data").Get(module), "a group's "+module, known...)
	}
}

func (r *reader) bgp(n *node, module *lab.Node) {
	as := r.of(n, "bgp", "as")
	if list := r.root.Get("bgp").Get("as_list"); n.data.Get("bgp").Get("as") == nil && list != nil {
		for _, p := range list.Pairs {
			for _, m := range p.Value.Get("members").Strings() {
				if m.Text == n.name {
					as = &lab.Node{Kind: lab.Scalar, Line: p.Line, Text: p.Key}
				}
			}
			if v := p.Value.Get("rr"); v != nil {
				r.notes.Add(v.Line, "AS %s: route reflectors are not carried over", p.Key)
			}
		}
	}
	r.rest(n, "bgp", "as", "as_list")
	if number, err := strconv.ParseUint(as.String(), 10, 32); err != nil || number == 0 {
		r.notes.Add(n.line, "node %s: the module bgp is not carried over: its AS is not said, or not "+
			"understood", n.name)
		return
	}
	said := &lab.Map{}
	said.Set("as", lab.Raw(as.Text))
	n.said.Set("bgp", said)
	r.notes.Add(module.Line, "BGP speaks to all routers at the far ends of links, also within an AS: there are no "+
		"sessions between loopbacks")
}
