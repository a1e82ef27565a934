package spec

import (
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// mergeBGP takes each field from a, else from b; of lists and policies by their names.
func mergeBGP(a, b *form.BGP) form.BGP {
	m := form.BGP{Off: a.Off, AS: first(a.AS, b.AS), Networks: a.Networks, Neighbors: a.Neighbors,
		Reflector: first(a.Reflector, b.Reflector), Unnumbered: first(a.Unnumbered, b.Unnumbered),
		PrefixLists: byName(a.PrefixLists, b.PrefixLists), Policies: byName(a.Policies, b.Policies),
		Said: a.Said.Over(&b.Said)}
	if m.Networks == nil {
		m.Networks = b.Networks
	}
	if m.Neighbors.None() {
		m.Neighbors = b.Neighbors
	}
	return m
}

// bgp is a router's part in BGP.
func bgp(g *form.BGP) *model.BGP {
	b := &model.BGP{AS: g.AS, Networks: g.Networks, Reflector: deref(g.Reflector), Unnumbered: deref(g.Unnumbered),
		PrefixLists: g.PrefixLists, BGPTimers: g.Said.Value}
	for _, n := range g.Neighbors.List {
		b.Neighbors = append(b.Neighbors, model.BGPNeighbor(n))
	}
	for _, item := range g.Neighbors.By {
		if b.Toward == nil {
			b.Toward = map[string]model.BGPToward{}
		}
		b.Toward[item.Name] = model.BGPToward(item.Value)
	}
	for name, rules := range g.Policies {
		if b.Policies == nil {
			b.Policies = map[string][]model.BGPRule{}
		}
		all := make([]model.BGPRule, len(rules))
		for i, r := range rules {
			match, set := deref(r.Match), deref(r.Set)
			all[i] = model.BGPRule{Deny: r.Deny,
				Match: model.BGPMatch{Prefixes: match.Prefixes, Community: match.Community},
				Set: model.BGPSet{LocalPreference: set.LocalPreference, MED: set.MED, Prepend: set.Prepend,
					Community: set.Community, AddCommunity: set.AddCommunity, DeleteCommunity: set.DeleteCommunity}}
		}
		b.Policies[name] = all
	}
	return b
}

// neighbors reads a list of sessions, or a mapping by name.
func (d *decoder) neighbors(n ast.Node, what string) (all form.Neighbors) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	default:
		d.value(n, reflect.ValueOf(&all.List).Elem(), what)
		return all
	}
	all.By = []form.Item[form.Toward]{}
	for _, v := range d.entries(n, what) {
		item := form.Item[form.Toward]{Key: v.Key, Node: v.Value}
		item.Name, _ = d.scalar(v.Key, what)
		d.enter(item.Name)
		d.structure(v.Value, reflect.ValueOf(&item.Value).Elem(), item.Name+" of "+what)
		d.leave()
		all.By = append(all.By, item)
	}
	return all
}

// prefixLists reads lists by name.
func (d *decoder) prefixLists(n ast.Node, what string) form.PrefixLists {
	all := form.PrefixLists{}
	for _, v := range d.entries(n, what) {
		name, _ := d.scalar(v.Key, what)
		d.enter(name)
		all[name] = several(d, v.Value, name+" of "+what, func(s string) (string, error) {
			r, err := model.ParsePrefixRange(s)
			return r.String(), err
		})
		d.leave()
	}
	return all
}

// policies reads lists of rules by name.
func (d *decoder) policies(n ast.Node, what string) form.Policies {
	all := form.Policies{}
	for _, v := range d.entries(n, what) {
		name, _ := d.scalar(v.Key, what)
		var rules []form.PolicyRule
		d.enter(name)
		d.value(v.Value, reflect.ValueOf(&rules).Elem(), "policy "+name)
		d.leave()
		all[name] = rules
	}
	return all
}

// kept has a rule whose match cannot be read match something, so that nobody takes it for one that matches everything.
func (d *decoder) kept(r *form.PolicyRule, number int) {
	if d.blanks.has(append(slices.Clone(d.path), strconv.Itoa(number), "match")...) {
		r.Match = &form.PolicyMatch{Community: form.Communities{"0:0"}}
	}
}

// putBGP says what a router does in BGP; policies are left out where they have been said for all.
func putBGP(b *model.BGP, policies bool) yamlNode {
	m := yamlNode{kind: yamlMapping}
	if b.AS != 0 {
		m.put("as", integer(b.AS))
	}
	putPrefixes(&m, "networks", b.Networks)
	if len(b.Neighbors) > 0 {
		all := yamlNode{kind: yamlList}
		for _, x := range b.Neighbors {
			var one yamlNode
			if x.Interface != "" {
				one.set("interface", x.Interface)
			} else {
				one.set("address", x.Address.String())
			}
			one.put("as", integer(x.AS))
			one.set("name", x.Name)
			if x.Client {
				one.put("client", raw("true"))
			}
			one.set("in", x.In)
			one.set("out", x.Out)
			all.list = append(all.list, one)
		}
		m.put("neighbors", all)
	}
	if len(b.Toward) > 0 {
		var all yamlNode
		for _, name := range slices.Sorted(maps.Keys(b.Toward)) {
			one := yamlNode{kind: yamlMapping}
			one.set("in", b.Toward[name].In)
			one.set("out", b.Toward[name].Out)
			all.put(name, one)
		}
		m.put("neighbors", all)
	}
	if b.Reflector {
		m.put("reflector", raw("true"))
	}
	if b.Unnumbered {
		m.put("unnumbered", raw("true"))
	}
	putSaid(&m, &b.BGPTimers, &model.BGPTimers{})
	if policies {
		putPolicies(&m, b)
	}
	return m
}

// putPolicies says the prefix lists and the policies, a rule a line.
func putPolicies(n *yamlNode, b *model.BGP) {
	var lists, policies yamlNode
	for _, name := range slices.Sorted(maps.Keys(b.PrefixLists)) {
		lists.put(name, list(b.PrefixLists[name], func(s string) string { return s }))
	}
	if lists.kind == yamlMapping {
		n.put("prefix-lists", lists.spread())
	}
	for _, name := range slices.Sorted(maps.Keys(b.Policies)) {
		all := yamlNode{kind: yamlList, wide: true}
		all.list = append(all.list, each.Of(b.Policies[name], ruleNode)...)
		policies.put(name, all)
	}
	if policies.kind == yamlMapping {
		n.put("policies", policies.spread())
	}
}

// commonPolicies are the lists and policies of routers that all have the same; nil if there are none. Without a number
// of an autonomous system it is no router's part in BGP.
func commonPolicies(routers []*model.Element) *model.BGP {
	var c *model.BGP
	for _, e := range routers {
		b := e.Routing.BGP
		if b == nil || len(b.Policies)+len(b.PrefixLists) == 0 {
			return nil
		}
		if c == nil {
			c = &model.BGP{Policies: b.Policies, PrefixLists: b.PrefixLists}
		}
		if !reflect.DeepEqual(c.Policies, b.Policies) || !reflect.DeepEqual(c.PrefixLists, b.PrefixLists) {
			return nil
		}
	}
	return c
}

// ruleNode writes one rule of a policy, with what it says only.
func ruleNode(r model.BGPRule) yamlNode {
	one, match, set := yamlNode{kind: yamlMapping}, yamlNode{}, yamlNode{}
	match.set("prefixes", r.Match.Prefixes)
	putWords(&match, "community", r.Match.Community)
	if match.kind == yamlMapping {
		one.put("match", match)
	}
	if r.Deny {
		one.put("deny", raw("true"))
	}
	if v := r.Set.LocalPreference; v != nil {
		set.put("local-preference", integer(*v))
	}
	if v := r.Set.MED; v != nil {
		set.put("med", integer(*v))
	}
	if r.Set.Prepend != 0 {
		set.put("prepend", integer(r.Set.Prepend))
	}
	putWords(&set, "community", r.Set.Community)
	putWords(&set, "add-community", r.Set.AddCommunity)
	putWords(&set, "delete-community", r.Set.DeleteCommunity)
	if set.kind == yamlMapping {
		one.put("set", set)
	}
	return one
}
