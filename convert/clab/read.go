// Package clab reads containerlab's topology files, and writes networks as such.
package clab

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/convert/internal/lab"
)

// Is tells whether a file is one of containerlab's.
func Is(root *lab.Node) bool {
	t := root.Get("topology")
	return t.Get("nodes") != nil && t.Get("nodes").Kind == lab.Mapping
}

type reader struct {
	words      lab.Words
	read       lab.Reader
	notes      *lab.Notes
	doc        *lab.Map
	elements   map[string]*lab.Map            // of routers, hosts and switches
	said       map[string]*lab.Map            // of each node
	names      map[string]string              // the file's to ours
	configured map[string]*lab.Configured     // by node
	macs       map[string]map[string]string   // by node and interface
	used       map[string]map[string]struct{} // the interfaces that links have
}

// Read makes a document of the file, and notes what it could not carry over.
func Read(root *lab.Node, words lab.Words, read lab.Reader) (*lab.Map, []lab.Note) {
	r := &reader{words: words, read: read, notes: &lab.Notes{}, doc: &lab.Map{}, elements: map[string]*lab.Map{},
		said: map[string]*lab.Map{}, names: map[string]string{}, configured: map[string]*lab.Configured{},
		macs: map[string]map[string]string{}, used: map[string]map[string]struct{}{}}
	name := root.Get("name")
	if name.String() == "" {
		name = &lab.Node{Line: root.Line, Text: "lab"}
		r.notes.Add(root.Line, "the lab has no name; it is called lab")
	}
	r.doc.Set("network", r.notes.Name(name.Line, "the lab", name.Text))
	r.notes.Rest(root, "the file", "name", "topology", "prefix", "mgmt")
	if m := root.Get("mgmt"); m != nil {
		r.notes.Add(m.Line, "the management network is not carried over: `polyplane exec` and `console` need none, "+
			"and edges lead out (docs/edges.md)")
	}
	topology := root.Get("topology")
	r.notes.Rest(topology, "the topology", "defaults", "kinds", "groups", "nodes", "links")
	for _, kind := range []string{"routers", "hosts", "switches"} {
		r.elements[kind] = &lab.Map{}
	}
	for _, p := range topology.Get("nodes").Pairs {
		n := r.resolve(topology, p)
		r.configured[n.name] = &lab.Configured{}
		if r.element(n) != "" {
			r.names[p.Key] = n.name
		}
	}
	var links []any
	if l := topology.Get("links"); l != nil {
		for _, item := range l.Items {
			if made := r.link(item); made != nil {
				links = append(links, made)
			}
		}
	}
	r.interfaces()
	for _, kind := range []string{"routers", "hosts", "switches"} {
		if r.elements[kind].Len() > 0 {
			r.doc.Set(kind, lab.Elements(r.elements[kind]))
		}
	}
	if len(links) > 0 {
		r.doc.Set("links", lab.Lines(links))
	}
	return r.doc, r.notes.Sorted()
}

// resolve finds what a node has of defaults, its kind and its group.
func (r *reader) resolve(topology *lab.Node, p lab.Pair) *node {
	n := &node{name: r.notes.Name(p.Line, "node", p.Key), line: p.Line, own: p.Value}
	for _, taken := range r.names {
		if taken == n.name {
			n.name += "-2"
		}
	}
	defaults := topology.Get("defaults")
	group := topology.Get("groups").Get(firstOf(p.Value.Get("group"), defaults.Get("group")))
	n.kind = firstOf(p.Value.Get("kind"), group.Get("kind"), defaults.Get("kind"))
	n.levels = []*lab.Node{p.Value, group, topology.Get("kinds").Get(n.kind), defaults}
	n.levels = slices.DeleteFunc(n.levels, func(l *lab.Node) bool { return l == nil || l.Kind != lab.Mapping })
	return n
}

func firstOf(nodes ...*lab.Node) string {
	for _, n := range nodes {
		if n.String() != "" {
			return n.Text
		}
	}
	return ""
}

// end is one end of a link.
type end struct {
	node, device string
	line         int
}

// link makes a link of an entry; nil where it leads to what there is not.
func (r *reader) link(item *lab.Node) any {
	kind := item.Get("type").String()
	endpoints := item.Get("endpoints")
	if endpoints == nil {
		endpoints = item.Get("endpoint")
	}
	if kind != "" && kind != "veth" || endpoints == nil || len(endpoints.Items) != 2 {
		what := cmp.Or(kind, "without two endpoints")
		hint := ""
		if slices.Contains([]string{"host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch"}, kind) {
			hint = ": what is outside of the network is reached by edges (docs/edges.md)"
		}
		r.notes.Add(item.Line, "a link %s is not carried over%s", strings.TrimSpace(what), hint)
		return nil
	}
	r.notes.Rest(item, "the link", "type", "endpoints", "mtu", "labels", "vars", "impairments")
	settings := &lab.Map{}
	var ends [2]end
	for i, e := range endpoints.Items {
		var ok bool
		if ends[i], ok = r.end(e, settings); !ok {
			return nil
		}
	}
	if v := item.Get("mtu"); v != nil {
		if mtu, err := strconv.Atoi(v.Text); err == nil && mtu >= 68 && mtu <= 9000 {
			settings.Set("mtu", lab.Raw(v.Text))
		} else {
			r.notes.Add(v.Line, "the MTU %s is none that a link has: 68 to 9000", v.Text)
		}
	}
	r.impairments(item.Get("impairments"), settings)
	if !r.addressed(ends) {
		if r.words.Unaddressed {
			settings.Set("addressing", "none")
		} else {
			r.notes.Add(item.Line, "the link gets addresses of polyplane's pools")
		}
	}
	text := ends[0].node + ":" + ends[0].device + " -- " + ends[1].node + ":" + ends[1].device
	if settings.Len() == 0 {
		return text
	}
	made := &lab.Map{}
	made.Set(text, settings)
	return made
}

// end reads an endpoint, in the brief form NODE:INTERFACE or the extended one.
func (r *reader) end(e *lab.Node, settings *lab.Map) (end, bool) {
	node, device := e.Get("node").String(), e.Get("interface").String()
	if e.Kind == lab.Scalar {
		at := strings.IndexByte(e.Text, ':')
		if at < 0 {
			r.notes.Add(e.Line, "the endpoint %q is not understood: NODE:INTERFACE was expected; its link is not "+
				"carried over", e.Text)
			return end{}, false
		}
		node, device = e.Text[:at], e.Text[at+1:]
	}
	name, there := r.names[node]
	if !there || device == "" {
		hint := "there is no such node"
		if slices.Contains([]string{"host", "mgmt-net", "macvlan", "vxlan"}, node) {
			hint = "what is outside of the network is reached by edges (docs/edges.md)"
		}
		r.notes.Add(e.Line, "the link to %s:%s is not carried over: %s", node, device, hint)
		return end{}, false
	}
	if fixed := r.device(e.Line, name, device); fixed != device {
		device = fixed
	}
	if _, twice := r.used[name][device]; twice {
		r.notes.Add(e.Line, "the interface %s:%s has a link already; this one is not carried over", node, device)
		return end{}, false
	}
	if r.used[name] == nil {
		r.used[name] = map[string]struct{}{}
	}
	r.used[name][device] = struct{}{}
	r.notes.Rest(e, "the endpoint", "node", "interface", "mac", "ipv4", "ipv6", "vars", "impairments")
	for _, key := range []string{"ipv4", "ipv6"} {
		if v := e.Get(key); v != nil && !r.configured[name].Command(v.Line, "ip address add "+v.Text+" dev "+device) {
			r.notes.Add(v.Line, "the address %q of %s:%s is none with a prefix length", v.Text, node, device)
		}
	}
	if v := e.Get("mac"); v != nil {
		if mac, err := net.ParseMAC(v.Text); err == nil && len(mac) == 6 && mac[0]&1 == 0 {
			if r.macs[name] == nil {
				r.macs[name] = map[string]string{}
			}
			r.macs[name][device] = mac.String()
		} else {
			r.notes.Add(v.Line, "%q is no MAC address of an interface", v.Text)
		}
	}
	if v := e.Get("impairments"); v != nil {
		r.notes.Add(v.Line, "what impairs %s:%s holds for both directions of the link here", node, device)
		r.impairments(v, settings)
	}
	return end{name, device, e.Line}, true
}

// device is an interface's name that polyplane takes.
func (r *reader) device(line int, node, device string) string {
	var b strings.Builder
	for _, c := range device {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if (alnum || b.Len() > 0 && strings.ContainsRune("_.-/:", c)) && b.Len() < 63 {
			b.WriteRune(c)
		}
	}
	name := strings.TrimRight(b.String(), "/:")
	if name == "" || slices.Contains([]string{"lo", "all", "default"}, name) {
		name = "if-" + name
	}
	if name = strings.TrimSuffix(name, "-"); name != device {
		r.notes.Add(line, "the interface %s:%s is called %s", node, device, name)
	}
	return name
}

func (r *reader) impairments(m *lab.Node, settings *lab.Map) {
	if m == nil {
		return
	}
	r.notes.Rest(m, "the link's impairments", "delay", "jitter", "loss", "packet-loss", "packet_loss", "rate")
	for _, p := range m.Pairs {
		text := p.Value.String()
		switch p.Key {
		case "delay", "jitter":
			if d, err := time.ParseDuration(text); err == nil && d >= 0 && d <= time.Minute {
				settings.Set(p.Key, d.String())
			} else {
				r.notes.Add(p.Line, "the %s %q is not understood", p.Key, text)
			}
		case "loss", "packet-loss", "packet_loss":
			r.notes.Loss(settings, p.Line, text)
		case "rate": // in kbit/s
			if n, err := strconv.ParseUint(text, 10, 32); err == nil && n >= 8 {
				settings.Set("bandwidth", strconv.FormatUint(n, 10)+"kbit")
			} else if text != "0" {
				r.notes.Add(p.Line, "the rate %q is no number of kbit/s from 8 on", text)
			}
		}
	}
}

// addressed tells whether an end of a link has an address that was said.
func (r *reader) addressed(ends [2]end) bool {
	return slices.ContainsFunc(ends[:], func(e end) bool { return len(r.configured[e.node].Addresses[e.device]) > 0 })
}

// interfaces gives the elements the addresses that were found, and notes those of interfaces without a link.
func (r *reader) interfaces() {
	for name, c := range r.configured {
		said := r.said[name]
		if said == nil || r.elements["switches"].Get(name) != nil {
			continue
		}
		for _, device := range slices.Sorted(maps.Keys(c.Addresses)) {
			if _, linked := r.used[name][device]; !linked {
				for _, a := range c.Addresses[device] {
					r.start(&node{name: name}, said, c.Lines[device], "ip address add "+a+" dev "+device)
				}
			}
		}
		for _, device := range slices.Sorted(maps.Keys(r.used[name])) {
			addresses, mac := c.Addresses[device], r.macs[name][device]
			switch {
			case mac != "":
				m := &lab.Map{}
				m.Set("mac", mac)
				if len(addresses) > 0 {
					m.Set("addresses", texts(addresses))
				}
				said.Child("interfaces").Set(device, m)
			case len(addresses) == 1:
				said.Child("interfaces").Set(device, addresses[0])
			case len(addresses) > 1:
				said.Child("interfaces").Set(device, texts(addresses))
			}
		}
	}
}
