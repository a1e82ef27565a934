// Package netlab reads netlab's topology files.
package netlab

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/convert/internal/lab"
	"github.com/polyplane/polyplane/each"
)

// Is tells whether a file is one of netlab's.
func Is(root *lab.Node) bool {
	n := root.Get("nodes")
	return (n != nil && (n.Kind == lab.List || n.Kind == lab.Mapping) || makesNodes(root.Get("groups"))) &&
		!root.Has("network") && !root.Has("topology")
}

// autoCreate is the key by which the members of groups are nodes, without being among the nodes.
const autoCreate = "_auto_create"

// makesNodes tells whether the members of the groups, or of one of them, are nodes.
func makesNodes(groups *lab.Node) bool {
	return groups != nil && slices.ContainsFunc(groups.Pairs, func(p lab.Pair) bool {
		return p.Key == autoCreate && isTrue(p.Value) || isTrue(p.Value.Get(autoCreate))
	})
}

func isTrue(n *lab.Node) bool {
	return n != nil && n.Kind == lab.Scalar && strings.EqualFold(n.Text, "true")
}

type reader struct {
	notes    *lab.Notes
	root     *lab.Node
	words    lab.Words
	doc      *lab.Map
	elements map[string]*lab.Map
	nodes    []*node
	links    []any
	lans     int
	ipv6     bool                // the lab has it
	prefixed []netip.Prefix      // of links
	given    map[netip.Addr]bool // of interfaces and loopbacks
}

// node is one of the file's.
type node struct {
	name, is string // is: routers, hosts or switches
	line     int
	data     *lab.Node
	groups   []*lab.Node
	said     *lab.Map
	links    int
}

// Read makes a document of the file, and notes what it could not carry over.
func Read(root *lab.Node, words lab.Words) (*lab.Map, []lab.Note) {
	root.ExpandDots()
	r := &reader{notes: &lab.Notes{}, root: root, words: words, doc: &lab.Map{}, elements: map[string]*lab.Map{},
		given: map[netip.Addr]bool{}}
	name := root.Get("name")
	if name.String() == "" {
		name = &lab.Node{Line: root.Line, Text: "lab"}
	}
	r.doc.Set("network", r.notes.Name(name.Line, "the lab", name.Text))
	r.notes.Rest(root, "the file", "name", "nodes", "links", "groups", "defaults", "module", "addressing", "prefix",
		"provider", "version", "message", "ospf", "bgp", "isis", "ripv2")
	r.notes.Rest(root.Get("defaults"), "defaults", "device", "provider", "devices", "const", "ospf", "bgp", "isis",
		"ripv2", "addressing")
	r.pools()
	for _, kind := range []string{"routers", "hosts", "switches"} {
		r.elements[kind] = &lab.Map{}
	}
	r.addNodes()
	if l := root.Get("links"); l != nil {
		for _, item := range entries(l) {
			r.link(item, nil)
		}
	}
	for _, n := range r.nodes {
		if n.is == "routers" {
			r.protocols(n)
		}
		if n.is != "" {
			r.elements[n.is].Set(n.name, n.said)
		}
	}
	for _, kind := range []string{"routers", "hosts", "switches"} {
		if r.elements[kind].Len() > 0 {
			r.doc.Set(kind, lab.Elements(r.elements[kind]))
		}
	}
	if len(r.links) > 0 {
		r.doc.Set("links", lab.Lines(r.links))
	}
	return r.doc, r.notes.Sorted()
}

// entries are a list's, or the values of a mapping.
func entries(n *lab.Node) []*lab.Node {
	if n.Kind == lab.List {
		return n.Items
	}
	return each.Of(n.Pairs, func(p lab.Pair) *lab.Node { return p.Value })
}

// pools are the prefixes that links without their own are numbered from.
func (r *reader) pools() {
	r.ipv6 = mentionsIPv6(r.root)
	var pools []any
	addressing := r.root.Get("addressing")
	if addressing == nil {
		addressing = r.root.Get("defaults").Get("addressing")
	}
	if addressing == nil {
		return
	}
	for _, p := range addressing.Pairs {
		switch p.Key {
		case "p2p", "lan":
			for _, family := range []string{"ipv4", "ipv6"} {
				v := p.Value.Get(family)
				if v == nil || v.False() {
					continue
				}
				prefix, err := netip.ParsePrefix(v.Text)
				overlaps := slices.ContainsFunc(pools, func(q any) bool {
					return err == nil && netip.MustParsePrefix(q.(string)).Overlaps(prefix)
				})
				switch {
				case err != nil:
					r.notes.Add(v.Line, "the pool %s has no prefix that is understood: %q", p.Key, v.Text)
				case overlaps:
					r.notes.Add(v.Line, "the pool %s overlaps with another one and is left out", prefix)
				default:
					pools = append(pools, prefix.Masked().String())
				}
			}
			r.notes.Rest(p.Value, "the pool "+p.Key, "ipv4", "ipv6")
		case "mgmt", "router_id":
		default:
			r.notes.Add(p.Line, "the pool %s is not carried over: loopbacks are numbered from 10.255.0.0/16, and all "+
				"links from the pools of p2p and lan", p.Key)
		}
	}
	if len(pools) > 0 {
		r.doc.Set("pools", pools)
		r.notes.Add(addressing.Line, "links are numbered from these pools, one after the other: the numbers are "+
			"others than netlab's")
	}
}

// mentionsIPv6 tells whether a key or a prefix anywhere says IPv6.
func mentionsIPv6(n *lab.Node) bool {
	if n == nil {
		return false
	}
	if p, err := netip.ParsePrefix(n.Text); n.Kind == lab.Scalar && err == nil && p.Addr().Is6() {
		return true
	}
	return slices.ContainsFunc(n.Items, mentionsIPv6) || slices.ContainsFunc(n.Pairs, func(p lab.Pair) bool {
		return mentionsIPv6(p.Value) || p.Key == "ipv6" && !p.Value.False()
	})
}

func (r *reader) addNodes() {
	nodes, groups := r.root.Get("nodes"), r.root.Get("groups")
	add := func(name string, line int, data *lab.Node) {
		n := &node{name: r.notes.Name(line, "node", name), line: line, data: data, said: &lab.Map{}}
		if name == "" || r.find(n.name) != nil {
			r.notes.Add(line, "node %q is there twice, or has no name", name)
			return
		}
		r.nodes = append(r.nodes, n)
	}
	if nodes == nil {
		nodes = &lab.Node{}
	}
	for _, item := range nodes.Items {
		if item.Kind == lab.Scalar {
			add(item.Text, item.Line, nil)
		} else {
			add(item.Get("name").String(), item.Line, item)
		}
	}
	for _, p := range nodes.Pairs {
		add(p.Key, p.Line, p.Value)
	}
	if groups != nil {
		for _, p := range groups.Pairs {
			if !isTrue(groups.Get(autoCreate)) && !isTrue(p.Value.Get(autoCreate)) {
				continue
			}
			for _, m := range members(p) {
				if !groups.Has(m.Text) && r.named(m.Text) == nil {
					add(m.Text, m.Line, nil)
				}
			}
		}
	}
	for _, n := range r.nodes {
		n.groups = r.groupsOf(n)
		r.kind(n)
		r.settings(n)
	}
	if groups != nil {
		for _, p := range groups.Pairs {
			r.notes.Rest(p.Value, "the group "+p.Key, "members", "device", "module", "node_data", "role", autoCreate)
		}
	}
}

func (r *reader) find(name string) *node {
	for _, n := range r.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// members are a group's.
func members(p lab.Pair) []*lab.Node {
	if p.Value.Kind == lab.List {
		return p.Value.Strings()
	}
	return p.Value.Get("members").Strings()
}

// groupsOf are the groups that a node is in, those first that it is in by itself.
func (r *reader) groupsOf(n *node) (all []*lab.Node) {
	groups := r.root.Get("groups")
	if groups == nil {
		return nil
	}
	names := each.Of(n.data.Get("group").Strings(), func(g *lab.Node) string { return g.Text })
	is := func(members []*lab.Node, name string) bool {
		return slices.ContainsFunc(members, func(m *lab.Node) bool { return m.Text == name })
	}
	for _, p := range groups.Pairs {
		if is(members(p), n.name) && !slices.Contains(names, p.Key) {
			names = append(names, p.Key)
		}
	}
	for i := 0; i < len(names); i++ { // groups are in groups
		for _, p := range groups.Pairs {
			if is(members(p), names[i]) && !slices.Contains(names, p.Key) {
				names = append(names, p.Key)
			}
		}
	}
	for _, name := range append(names, "all") {
		if g := groups.Get(name); g != nil {
			all = append(all, g)
		}
	}
	return all
}

// of is the value at a path for a node: its own, its groups', or that of the whole file.
func (r *reader) of(n *node, path ...string) *lab.Node {
	at := func(v *lab.Node) *lab.Node {
		for _, key := range path {
			v = v.Get(key)
		}
		if v == nil || v.Kind == lab.Nothing {
			return nil
		}
		return v
	}
	if v := at(n.data); v != nil {
		return v
	}
	for _, g := range n.groups {
		if v := at(g.Get("node_data")); v != nil {
			return v
		}
		if v := at(g); v != nil && len(path) == 1 {
			return v
		}
	}
	if len(path) == 1 && path[0] != "module" {
		return at(r.root.Get("defaults"))
	}
	if v := at(r.root); v != nil {
		return v
	}
	return at(r.root.Get("defaults"))
}

// kind decides what a node is.
func (r *reader) kind(n *node) {
	device, role := r.of(n, "device").String(), r.of(n, "role").String()
	switch {
	case role == "bridge":
		n.is = "switches"
	case role == "host", device == "linux" && role != "router", device == "dnsmasq":
		n.is = "hosts"
	default:
		n.is = "routers"
	}
	switch device {
	case "frr", "linux", "cumulus", "bird", "":
		if device == "bird" && n.is == "routers" {
			n.said.Set("software", "bird")
		}
	default:
		line := n.line
		if v := r.of(n, "device"); v != nil {
			line = v.Line
		}
		r.notes.Add(line, "there is no %s here: its routers run FRR", device)
	}
	if n.is == "routers" && device == "linux" && r.of(n, "module") == nil {
		n.said.Set("software", "static")
	}
}

// settings carries over what a node says of itself beside its protocols.
func (r *reader) settings(n *node) {
	what := "node " + n.name
	r.notes.Rest(n.data, what, "name", "device", "role", "module", "group", "id", "box", "loopback", "ospf",
		"bgp", "isis", "ripv2", "cpu", "memory", "provider", "libvirt", "mtu")
	if n.is == "switches" {
		return
	}
	if v := n.data.Get("memory"); v != nil && v.Number {
		n.said.Set("memory", lab.Raw(v.Text+"MiB"))
	}
	if v := n.data.Get("cpu"); v != nil && v.Number {
		n.said.Set("cpu", lab.Raw(v.Text))
	}
	if v := n.data.Get("mtu"); v != nil {
		r.notes.Add(v.Line, "%s: an MTU is said of links", what)
	}
	if loopback := n.data.Get("loopback"); loopback != nil {
		for _, key := range []string{"ipv4", "ipv6"} {
			v := loopback.Get(key)
			if v == nil {
				continue
			}
			p, err := netip.ParsePrefix(v.Text)
			a := p.Addr()
			if err != nil {
				a, err = netip.ParseAddr(v.Text)
			}
			switch {
			case err != nil:
				r.notes.Add(v.Line, "%s: the loopback address %q is not understood", what, v.Text)
			case r.take(v.Line, what, a):
				n.said.Append("loopback", v.Text)
			}
		}
	}
}

// take notes an address as somebody's. It returns false, and tells, where it is one already: an address belongs to one
// interface here.
func (r *reader) take(line int, what string, a netip.Addr) bool {
	if r.given[a] {
		r.notes.Add(line, "%s: the address %s is given twice in this lab; this one is not carried over", what, a)
		return false
	}
	r.given[a] = true
	return true
}

// strictly is the node's name in the file if there is such a node.
func (r *reader) named(text string) *node {
	quiet := &lab.Notes{}
	return r.find(quiet.Name(0, "", strings.TrimSpace(text)))
}
