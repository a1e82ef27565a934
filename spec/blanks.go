package spec

import (
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// blanks are the places of a document that are wrong by their form. What stood there is left out of the network, and
// whatever else is wrong is told all the same. So that nothing is told which only follows from what was left out, it is
// kept where that was, and which names were in it.
type blanks struct {
	paths                  [][]string // keys from the document's root: routers, r1, ospf, hello
	elements, links, edges resolve.Names
}

// enter and leave tell the decoder's place in the document.
func (d *decoder) enter(key string) { d.path = append(d.path, key) }
func (d *decoder) leave()           { d.path = d.path[:len(d.path)-1] }

// blank notes that something is wrong at the present place, or below it.
func (d *decoder) blank(below ...string) {
	d.blanks.add(append(slices.Clone(d.path), below...)...)
}

func (b *blanks) add(path ...string) {
	if len(path) > 0 && len(b.paths) < maxErrors {
		b.paths = append(b.paths, path)
	}
}

// has tells whether something is wrong at the place, within it, or with what it is in.
func (b *blanks) has(path ...string) bool {
	return slices.ContainsFunc(b.paths, func(p []string) bool {
		n := min(len(p), len(path))
		return slices.Equal(p[:n], path[:n])
	})
}

// whole tells whether the place itself is wrong, or what it is in.
func (b *blanks) whole(path ...string) bool {
	return slices.ContainsFunc(b.paths, func(p []string) bool {
		return len(p) <= len(path) && slices.Equal(p, path[:len(p)])
	})
}

// lost notes what may have been in a part that is left out, by the part of the document that it stands in.
func (d *decoder) lost(n ast.Node) {
	if n == nil || len(d.errs) > maxErrors {
		return
	}
	top := ""
	if len(d.path) > 0 {
		top = d.path[0]
	}
	d.blanks.lose(top, n.String())
}

var (
	nameWord = regexp.MustCompile(`[\pL\pN._-]+`)
	// manyWord is what a range in a name looks like, also one that is wrong.
	manyWord = regexp.MustCompile(`([\pL\pN._-]+)\[|\[\s*\d+\s*-`)
)

// lose notes the words of a text. The names that a range or a shape stands for are any.
func (b *blanks) lose(top, text string) {
	words := map[string]struct{}{}
	all, shape := false, false
	prefixes := each.Of(manyWord.FindAllStringSubmatch(text, maxErrors), func(m []string) string { return m[1] })
	for _, w := range nameWord.FindAllString(text, -1) {
		words[w] = struct{}{}
		shape = shape || isShape(w)
	}
	all = all || shape
	add := func(n *resolve.Names) {
		if n.All = n.All || all; n.Of == nil {
			n.Of = map[string]struct{}{}
		}
		for w := range words {
			n.Of[w] = struct{}{}
		}
		n.Prefixes = append(n.Prefixes, prefixes...)
	}
	switch top {
	case "routers", "hosts", "switches":
		add(&b.elements)
	case "links":
		add(&b.links)
		if shape {
			add(&b.elements)
		}
	case "edges", "mirrors":
		add(&b.edges)
	case "expect", "faults", "pools", "slice", "policy", "defaults":
	default:
		add(&b.elements)
		add(&b.links)
		add(&b.edges)
	}
}

// ofDefaults are those keys among elementKeys that defaults and the document itself may have.
var ofDefaults = []string{"software", "control", "forwarding", "cpu", "memory", "bgp/as", "ospf/hello", "ospf6/hello",
	"isis/hello", "bgp/keepalive", "rip/update", "bgp/policies", "bgp/prefix-lists"}

// elementKeys are those keys of elements without which a reader draws other conclusions.
var elementKeys = append([]string{"interfaces", "addresses", "prefixes", "stp", "vrrp", "vlans", "vrfs"}, ofDefaults...)

// sections are the keys that elements stand below, by kind.
var sections = map[model.Kind]string{model.Router: "routers", model.Host: "hosts", model.Switch: "switches"}

// unknown is what the network lacks because of blanks; nil where there are none.
func (b *builder) unknown() *resolve.Unknown {
	bl := &b.blanks
	if len(bl.paths) == 0 {
		return nil
	}
	u := &resolve.Unknown{Name: bl.has("network"), Elements: bl.elements, Links: bl.links, Edges: bl.edges,
		Families: len(b.net.Pools) == 0 || bl.has("pools")}
	for _, k := range (model.Slice{}).Keys() {
		if bl.has("slice", k.Name) {
			u.Add(model.AboutNetwork, 0, "slice/"+k.Name)
		}
	}
	for _, k := range (model.Placing{}).Keys() {
		if bl.has("placement", k.Name) {
			u.Add(model.AboutNetwork, 0, "placement/"+k.Name)
		}
	}
	for i, at := range b.faultsAt {
		if bl.has("faults", at, "at") {
			u.Add(model.AboutNetwork, 0, resolve.FaultKey(i, "at"))
		}
		for _, k := range (model.Link{}).Keys() {
			if bl.has("faults", at, k.Name) {
				u.Add(model.AboutNetwork, 0, resolve.FaultKey(i, "values"))
			}
		}
	}
	for i := range b.net.Elements {
		b.unknownOf(u, i)
	}
	for i := range b.net.Links {
		at := b.links[i]
		for _, k := range []string{"mtu", "delay", "prefixes"} {
			if bl.has("links", at.path, k) || child(at.node, k) == nil && bl.has("defaults", "links", k) {
				u.Add(model.AboutLink, i, k)
			}
		}
	}
	for i := range b.net.Edges {
		at := b.edges[i]
		for _, k := range []string{"end", "to", "link", "device", "vlan", "node", "internet"} {
			section := "edges"
			if b.net.Edges[i].Mirror != nil {
				section = "mirrors"
			}
			if bl.has(section, at.path, k) {
				u.Add(model.AboutEdge, i, k)
			}
		}
	}
	return u
}

// unknownOf adds what is not known of an element: what is wrong with it, and with what it has by default.
func (b *builder) unknownOf(u *resolve.Unknown, i int) {
	bl, e, at := &b.blanks, &b.net.Elements[i], b.elements[i]
	section := sections[e.Kind]
	if at.path != "" && bl.whole(section, at.path) {
		u.Add(model.AboutElement, i, resolve.AllKeys)
		return
	}
	unknown := func(key string) bool {
		path := strings.Split(key, "/")
		if at.path != "" && bl.has(append([]string{section, at.path}, path...)...) {
			return true
		}
		if states(at.node, path) || !slices.Contains(ofDefaults, key) {
			return false
		}
		return bl.has(append([]string{"defaults", section}, path...)...) ||
			e.Kind == model.Router && bl.has(path...)
	}
	for _, key := range elementKeys {
		if key == "vrfs" && unknown(key) && !bl.losesInterfaces(section, at.path) {
			continue // what is wrong in it is something else
		}
		if unknown(key) {
			u.Add(model.AboutElement, i, key)
		}
	}
	// What a router runs follows from what it speaks and from its configuration, if it does not say so.
	if e.Kind != model.Router || e.Software != "" {
		return
	}
	open := func(key string) bool {
		return bl.whole(section, at.path, key) || bl.whole(key) || bl.whole("defaults", section, key)
	}
	speaks := slices.ContainsFunc(e.Spoken(), func(key string) bool { return !open(key) })
	if open("config") || !speaks && slices.ContainsFunc(protocols, open) {
		u.Add(model.AboutElement, i, "software")
	}
}

// losesInterfaces tells whether it is not known which interfaces are in an element's VRFs: vrfs is wrong as a whole, or
// one of them, or its interfaces.
func (b *blanks) losesInterfaces(section, said string) bool {
	return slices.ContainsFunc(b.paths, func(p []string) bool {
		return len(p) > 2 && slices.Equal(p[:3], []string{section, said, "vrfs"}) &&
			(len(p) < 5 || p[4] == "interfaces")
	})
}

// protocols are the keys of routing protocols.
var protocols = []string{"ospf", "ospf6", "isis", "bgp", "rip"}

// states tells whether a mapping has a key, and what stands there has the next one.
func states(n ast.Node, path []string) bool {
	for _, key := range path {
		next := child(n, key)
		if next == nil {
			return false
		}
		n = next.Value
	}
	return true
}

// nearest is the key that an unknown one was probably meant to be.
func nearest[T any](word string, known map[string]T) string {
	_, name, ok := strings.Cut(suggest(word, known), `did you mean "`)
	if name, _, found := strings.Cut(name, `"`); ok && found {
		return name
	}
	return ""
}
