package spec

import (
	"reflect"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// putRouting says the intents that have not been said.
func putRouting(n *yamlNode, r, said model.Routing) {
	ospf := func(key string, o, said *model.OSPF) {
		if o == nil || said != nil {
			return
		}
		m := yamlNode{kind: yamlMapping}
		m.set("area", o.Area)
		if o.Cost != 0 {
			m.put("cost", integer(o.Cost))
		}
		putWords(&m, "redistribute", o.Redistribute)
		putSaid(&m, &o.OSPFTimers, &model.OSPFTimers{})
		n.put(key, m)
	}
	ospf("ospf", r.OSPF, said.OSPF)
	ospf("ospf6", r.OSPF6, said.OSPF6)
	if i := r.ISIS; i != nil && said.ISIS == nil {
		m := yamlNode{kind: yamlMapping}
		m.set("area", i.Area)
		if i.Level != 0 {
			m.put("level", integer(i.Level))
		}
		putSaid(&m, &i.ISISTimers, &model.ISISTimers{})
		n.put("isis", m)
	}
	if b := r.BGP; b != nil && (said.BGP == nil || said.BGP.AS == 0) {
		n.put("bgp", putBGP(b, said.BGP == nil))
	}
	if p := r.RIP; p != nil && said.RIP == nil {
		m := yamlNode{kind: yamlMapping}
		putWords(&m, "redistribute", p.Redistribute)
		putSaid(&m, &p.RIPTimers, &model.RIPTimers{})
		n.put("rip", m)
	}
}

// putOSPFPort says what OSPF does at an interface.
func putOSPFPort(n *yamlNode, key string, p *model.OSPFPort) {
	if p == nil {
		return
	}
	if p.Off {
		n.put(key, raw("false"))
		return
	}
	m := yamlNode{kind: yamlMapping}
	m.set("area", p.Area)
	if p.Passive != "" {
		m.put("passive", raw(string(p.Passive)))
	}
	putSaid(&m, &p.OSPFPortKeys, &model.OSPFPortKeys{})
	n.put(key, m)
}

// arrangeLinks finds out which names of links and interfaces need not be said, since Parse gives the same.
func (f *formatter) arrangeLinks() {
	f.links = make([]form.Link, len(f.net.Links))
	for i, l := range f.net.Links {
		f.links[i].A.Element, f.links[i].B.Element = l.Ends[0].Element, l.Ends[1].Element
	}
	for settled := false; !settled; {
		settled = true
		names, ends := nameLinks(f.links)
		for i, l := range f.net.Links {
			if names[i] != l.Name {
				f.links[i].Value.Name, settled = l.Name, false
			}
			if ends[i][0] != l.Ends[0] {
				f.links[i].A.Interface, settled = l.Ends[0].Interface, false
			}
			if ends[i][1] != l.Ends[1] {
				f.links[i].B.Interface, settled = l.Ends[1].Interface, false
			}
		}
	}
}

// listInterfaces tells whose interfaces must be listed: those of elements where one has something to say. Then all of
// the element's are listed, which also keeps their order. Elsewhere the links tell it.
func (f *formatter) listInterfaces() map[string]bool {
	listed := map[string]bool{}
	implied := model.Network{Elements: make([]model.Element, len(f.net.Elements)),
		Links: f.net.Links, Edges: f.net.Edges}
	for i, e := range f.net.Elements {
		implied.Elements[i] = model.Element{Name: e.Name, Kind: e.Kind}
	}
	for i, e := range resolve.WithInterfaces(implied).Elements {
		own := f.net.Elements[i].Interfaces
		if e.Kind != model.Switch && !reflect.DeepEqual(e.Interfaces, own) && len(own) > 0 {
			listed[e.Name] = true
		}
	}
	return listed
}
