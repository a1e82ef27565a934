package spec

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/polyplane/polyplane/model"
)

// keys are the file's names of the model's fields, where they differ.
var keys = map[string]string{"gateways": "gateway", "routerID": "router-id", "routing": "", "ends": ""}

// Locate finds the line of the file that a problem is about. Somebody else, such as the manager, has found the problem,
// so the object is looked up by its name.
func (d Document) Locate(p model.Problem) *Error {
	is := func(name string) bool { return name == p.Name }
	p.Index = -1
	switch p.About {
	case model.AboutElement:
		p.Index = slices.IndexFunc(d.Network.Elements, func(e model.Element) bool { return is(e.Name) })
	case model.AboutLink:
		p.Index = slices.IndexFunc(d.Network.Links, func(l model.Link) bool { return is(l.Name) })
	case model.AboutEdge:
		p.Index = slices.IndexFunc(d.Network.Edges, func(e model.Edge) bool { return is(e.Name) })
	}
	if p.Index < 0 && p.About != model.AboutNetwork {
		p.Field = ""
	}
	if p.Index < 0 {
		p.About, p.Index = model.AboutNetwork, 0
	}
	return d.builder.at(d.builder.locate(p), "%s", p.Message)
}

// locate finds a problem's place in the file: as deep as the file says something about it.
func (b *builder) locate(p model.Problem) *token.Token {
	places := map[model.Subject][]place{model.AboutElement: b.elements, model.AboutLink: b.links,
		model.AboutEdge: b.edges}[p.About]
	at := place{node: b.form.Node}
	switch {
	case p.About == model.AboutExpect && p.Index < len(b.form.Expect):
		return tokenOf(b.form.Expect[p.Index].Node)
	case p.Index < len(places):
		at = places[p.Index]
	}
	var path []string
	for _, k := range strings.Split(p.Field, "/") {
		if name, differs := keys[k]; differs {
			k = name
		}
		if k != "" {
			path = append(path, k)
		}
	}
	// Short forms: a link's prefixes behind its colon, an element's addresses without its interface's name.
	if p.About == model.AboutLink && p.Field == "prefixes" {
		switch at.node.(type) {
		case nil, *ast.NullNode, *ast.MappingNode, *ast.MappingValueNode:
		default:
			return tokenOf(at.node)
		}
	}
	if len(path) > 1 && path[0] == "interfaces" && child(at.node, "interfaces") == nil {
		path = []string{"addresses"}
	}
	// What a router has of its network's policies stands there.
	if len(path) > 2 && path[0] == "bgp" && !states(at.node, path[:3]) {
		for _, above := range [][]string{{"defaults", "routers"}, nil} {
			if p := slices.Concat(above, path); states(b.form.Node, p[:len(above)+3]) {
				at, path = place{node: b.form.Node}, p
				break
			}
		}
	}
	if t := locateIn(at, path); t != nil {
		return t
	}
	return tokenOf(b.form.Node)
}

// locateIn follows the path as far as it leads: to a value where it ends in one, else to the last key.
func locateIn(at place, path []string) *token.Token {
	found := at.key
	node := at.node
	for _, k := range path {
		next := child(node, k)
		if next == nil {
			break
		}
		found, node = next.Key, next.Value
		if len(path) > 0 && k == path[len(path)-1] {
			switch node.(type) {
			case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, *ast.NullNode, *ast.LiteralNode:
			default:
				found = node
			}
		}
	}
	if found == nil {
		return tokenOf(at.node)
	}
	return tokenOf(found)
}

func child(n ast.Node, key string) *ast.MappingValueNode {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	}
	for _, v := range values {
		if v.Key.GetToken().Value == key {
			return v
		}
	}
	return nil
}
