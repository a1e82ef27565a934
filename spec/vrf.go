package spec

import (
	"reflect"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// vrfs are a mapping; its interfaces alone may stand for a VRF's mapping.
func (d *decoder) vrfs(n ast.Node, what string) form.VRFs {
	var all form.VRFs
	for _, v := range d.entries(n, what) {
		item := form.Item[form.VRF]{Key: v.Key, Node: v.Value}
		item.Name, _ = d.scalar(v.Key, what)
		self := item.Name + " of " + what
		d.enter(item.Name)
		switch v.Value.(type) {
		case *ast.MappingNode, *ast.MappingValueNode, *ast.NullNode, nil:
			d.structure(v.Value, reflect.ValueOf(&item.Value).Elem(), self)
		default:
			item.Value.Interfaces = several(d, v.Value, "interfaces of "+self,
				func(s string) (string, error) { return s, nil })
		}
		d.leave()
		all = append(all, item)
	}
	return all
}

func (b *builder) vrfsOf(all form.VRFs) map[string]model.VRF {
	if len(all) == 0 {
		return nil
	}
	out := make(map[string]model.VRF, len(all))
	for _, item := range all {
		v := item.Value
		r := b.routing(form.Intents{OSPF: v.OSPF, OSPF6: v.OSPF6})
		out[item.Name] = model.VRF{Interfaces: v.Interfaces, Gateways: v.Gateway, Routes: routesOf(v.Routes),
			OSPF: r.OSPF, OSPF6: r.OSPF6, RouterID: v.RouterID}
	}
	return out
}

// putVRFs writes a router's VRFs.
func putVRFs(n *yamlNode, e *model.Element) {
	if len(e.VRFs) == 0 {
		return
	}
	var all yamlNode
	for _, name := range e.VRFNames() {
		v := e.VRFs[name]
		one := yamlNode{kind: yamlMapping}
		putWords(&one, "interfaces", v.Interfaces)
		putRouting(&one, v.Routing(), model.Routing{})
		if v.RouterID.IsValid() {
			one.set("router-id", v.RouterID.String())
		}
		putAddrs(&one, "gateway", v.Gateways)
		if len(v.Routes) > 0 {
			one.put("routes", list(v.Routes, routeText))
		}
		if len(one.pairs) == 1 && one.pairs[0].key == "interfaces" {
			one = one.pairs[0].value
		}
		all.put(name, one)
	}
	n.put("vrfs", all)
}
