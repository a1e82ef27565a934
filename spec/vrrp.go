package spec

import (
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// vrrp reads one virtual router, or a list of them.
func (d *decoder) vrrp(n ast.Node, what string) form.VRRPs {
	if list, ok := n.(*ast.SequenceNode); ok {
		var all []form.VRRP
		d.value(list, reflect.ValueOf(&all).Elem(), what)
		return all
	}
	one := form.VRRP{}
	switch b, ok := n.(*ast.BoolNode); {
	case !ok:
		d.structure(n, reflect.ValueOf(&one).Elem(), what)
	case !b.Value:
		return nil
	} // true says no more than {}
	return form.VRRPs{one}
}

// vrrp are a switch's virtual routers.
func vrrp(all form.VRRPs) []model.VRRP {
	var out []model.VRRP
	for _, v := range all {
		m := model.VRRP{Address: v.Address, Priority: v.Priority, VRRPKeys: v.Said.Value}
		if v.Preempt != nil && !*v.Preempt {
			m.Preempt = model.No
		}
		out = append(out, m)
	}
	return out
}

// putVRRP writes a switch's virtual routers.
func putVRRP(n *yamlNode, all []model.VRRP) {
	if len(all) == 0 {
		return
	}
	l := yamlNode{kind: yamlList}
	for i := range all {
		v := &all[i]
		one := yamlNode{kind: yamlMapping}
		if v.Address.IsValid() {
			one.set("address", v.Address.String())
		}
		if len(v.Priority) > 0 {
			var p yamlNode
			for _, name := range slices.Sorted(maps.Keys(v.Priority)) {
				p.put(name, raw(strconv.Itoa(v.Priority[name])))
			}
			one.put("priority", p)
		}
		if v.Preempt == model.No {
			one.put("preempt", raw("false"))
		}
		putSaid(&one, &v.VRRPKeys, &model.VRRPKeys{})
		l.list = append(l.list, one)
	}
	if len(all) == 1 {
		l = l.list[0]
	}
	n.put("vrrp", l)
}
