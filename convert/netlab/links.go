package netlab

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/convert/internal/lab"
	"github.com/polyplane/polyplane/each"
)

// attachment is a node at a link, with what is said of its interface.
type attachment struct {
	node *node
	data *lab.Node
}

// link carries over an entry of the links; outer is the group that it is in.
func (r *reader) link(item, outer *lab.Node) {
	if members := item.Get("members"); item.Has("group") && members != nil {
		for _, m := range entries(members) {
			r.link(m, item)
		}
		return
	}
	ends, ok := r.attachments(item)
	if !ok {
		return
	}
	get := func(key string) *lab.Node {
		if v := item.Get(key); v != nil {
			return v
		}
		return outer.Get(key)
	}
	names := []string{"interfaces", "prefix", "type", "name", "linkindex", "bridge", "role", "mtu", "tc", "group",
		"members"}
	names = append(names, each.Of(ends, func(e attachment) string { return e.node.name })...)
	r.notes.Rest(item, "the link", names...)
	r.notes.Rest(outer, "the links' group", names...)
	kind := get("type").String()
	switch kind {
	case "", "p2p", "lan", "stub":
	default:
		r.notes.Add(item.Line, "a link of type %s is not carried over", kind)
		return
	}
	prefixes, none := r.prefixes(get("prefix"), len(ends))
	settings := r.shape(get("mtu"), get("tc"))
	bridged := slices.ContainsFunc(ends, func(e attachment) bool { return e.node.is == "switches" })
	if len(ends) == 2 && (kind != "lan" && kind != "stub" || bridged) {
		if len(prefixes) > 0 {
			settings.Set("prefixes", prefixes)
		}
		if none {
			r.unaddressed(item, settings)
		}
		r.join(item, ends[0], ends[1], settings)
		return
	}
	r.lans++
	lan := &node{name: "lan" + strconv.Itoa(r.lans), is: "switches", line: item.Line, said: &lab.Map{}}
	for r.find(lan.name) != nil {
		r.lans++
		lan.name = "lan" + strconv.Itoa(r.lans)
	}
	if len(prefixes) > 0 {
		lan.said.Set("prefixes", prefixes)
	}
	r.nodes = append(r.nodes, lan)
	for _, e := range ends {
		own := r.shape(get("mtu"), get("tc"))
		if none {
			r.unaddressed(item, own)
		}
		r.join(item, e, attachment{node: lan}, own)
	}
}

func (r *reader) unaddressed(item *lab.Node, settings *lab.Map) {
	if r.words.Unaddressed {
		settings.Set("addressing", "none")
		return
	}
	r.notes.Add(item.Line, "the link gets addresses of polyplane's pools")
}

// attachments are the nodes of a link: of "a-b", of a list, of a mapping.
func (r *reader) attachments(item *lab.Node) (all []attachment, ok bool) {
	unknown := func(line int, name string) ([]attachment, bool) {
		r.notes.Add(line, "the link is not carried over: there is no node %q", name)
		return nil, false
	}
	switch item.Kind {
	case lab.Scalar:
		for _, name := range r.split(item.Text) {
			n := r.named(name)
			if n == nil {
				return unknown(item.Line, name)
			}
			all = append(all, attachment{node: n})
		}
	case lab.List:
		for _, e := range item.Items {
			name, data := e.Text, (*lab.Node)(nil)
			if e.Kind == lab.Mapping {
				name, data = e.Get("node").String(), e
			}
			n := r.named(name)
			if n == nil {
				return unknown(e.Line, name)
			}
			all = append(all, attachment{n, data})
		}
	case lab.Mapping:
		if list := item.Get("interfaces"); list != nil && list.Kind == lab.List {
			return r.attachments(list)
		}
		for _, p := range item.Pairs {
			if n := r.named(p.Key); n != nil {
				all = append(all, attachment{n, p.Value})
			}
		}
	}
	if len(all) == 0 {
		r.notes.Add(item.Line, "the link is not carried over: it has no nodes")
	}
	return all, len(all) > 0
}

// split divides a-b into nodes, whose names may have dashes as well.
func (r *reader) split(text string) (names []string) {
	parts := strings.Split(text, "-")
	for at := 0; at < len(parts); {
		end := at + 1
		for k := len(parts); k > at; k-- {
			if r.named(strings.Join(parts[at:k], "-")) != nil {
				end = k
				break
			}
		}
		names = append(names, strings.TrimSpace(strings.Join(parts[at:end], "-")))
		at = end
	}
	return names
}

// prefixes are those of a link with so many interfaces; none tells that it shall have no addresses.
func (r *reader) prefixes(v *lab.Node, ends int) (all []any, none bool) {
	switch {
	case v == nil:
		return nil, false
	case v.False():
		return nil, true
	case v.Kind == lab.Mapping:
		r.notes.Rest(v, "the prefix", "ipv4", "ipv6")
		for _, key := range []string{"ipv4", "ipv6"} {
			if p := v.Get(key); p != nil {
				more, _ := r.prefix(p, ends)
				all = append(all, more...)
			}
		}
		return all, false
	}
	if named := r.root.Get("prefix").Get(v.Text); named != nil && named.Kind == lab.Mapping {
		return r.prefixes(named, ends)
	}
	return r.prefix(v, ends)
}

func (r *reader) prefix(v *lab.Node, ends int) ([]any, bool) {
	p, err := netip.ParsePrefix(v.Text)
	if err != nil {
		r.notes.Add(v.Line, "the prefix %q is not understood; the link gets one of the pools", v.Text)
		return nil, false
	}
	p = p.Masked()
	host := p.Addr().BitLen() - p.Bits()
	fits := host > 30 || host > 0 && ends <= 1<<host // an IPv4 subnet of more than two keeps its first and last address
	if p.Addr().Is4() && host > 1 && host <= 30 {
		fits = ends <= 1<<host-2
	}
	switch {
	case !fits:
		r.notes.Add(v.Line, "the prefix %s has no room for %d interfaces; the link gets one of the pools", p, ends)
		return nil, false
	case slices.ContainsFunc(r.prefixed, p.Overlaps):
		r.notes.Add(v.Line, "the prefix %s is another link's, too; the link gets one of the pools", p)
		return nil, false
	}
	r.prefixed = append(r.prefixed, p)
	return []any{p.String()}, false
}

// shape is what a link does to packets.
func (r *reader) shape(mtu, tc *lab.Node) *lab.Map {
	settings := &lab.Map{}
	if mtu != nil {
		if n, err := strconv.Atoi(mtu.Text); err == nil && n >= 68 && n <= 9000 {
			settings.Set("mtu", lab.Raw(mtu.Text))
		} else {
			r.notes.Add(mtu.Line, "the MTU %s is none that a link has: 68 to 9000", mtu.Text)
		}
	}
	if tc == nil {
		return settings
	}
	r.notes.Rest(tc, "the link's tc", "delay", "jitter", "loss", "rate")
	var delay, jitter time.Duration
	for _, p := range tc.Pairs {
		text := p.Value.String()
		switch p.Key {
		case "delay", "jitter":
			if p.Value.Number {
				text += "ms"
			}
			if d, err := time.ParseDuration(text); err == nil && d >= 0 && d <= time.Minute {
				settings.Set(p.Key, d.String())
				if p.Key == "jitter" {
					jitter = d
				} else {
					delay = d
				}
			} else {
				r.notes.Add(p.Line, "the %s %q is not understood", p.Key, text)
			}
		case "loss":
			r.notes.Loss(settings, p.Line, text)
		case "rate": // in kbit/s
			if n, err := strconv.ParseUint(text, 10, 32); err == nil && n >= 8 {
				settings.Set("bandwidth", strconv.FormatUint(n, 10)+"kbit")
			} else {
				r.notes.Add(p.Line, "the rate %q is no number of kbit/s from 8 on", text)
			}
		}
	}
	if jitter > delay {
		r.notes.Add(tc.Line, "the jitter %s is more than the delay %s and is left out", jitter, delay)
		settings.Drop("jitter")
	}
	return settings
}

// join adds a link between two nodes.
func (r *reader) join(item *lab.Node, a, b attachment, settings *lab.Map) {
	if a.node == b.node {
		r.notes.Add(item.Line, "the link from %s to itself is not carried over", a.node.name)
		return
	}
	text := r.end(a) + " -- " + r.end(b)
	if settings.Len() == 0 {
		r.links = append(r.links, text)
		return
	}
	made := &lab.Map{}
	made.Set(text, settings)
	r.links = append(r.links, made)
}

// end is a node's end of a link. Its interface has a name where something is said of it.
func (r *reader) end(a attachment) string {
	a.node.links++
	if a.data == nil || a.data.Kind != lab.Mapping || a.node.is == "switches" {
		return a.node.name
	}
	what := "the interface of " + a.node.name
	r.notes.Rest(a.data, what, "node", "ipv4", "ipv6", "ifname")
	name := "eth" + strconv.Itoa(a.node.links)
	if v := a.data.Get("ifname"); v != nil {
		quiet := &lab.Notes{}
		if name = quiet.Name(v.Line, "", v.Text); name != v.Text {
			r.notes.Add(v.Line, "%s is called %s, not %s", what, name, v.Text)
		}
	}
	var addresses []any
	for _, key := range []string{"ipv4", "ipv6"} {
		v := a.data.Get(key)
		if v == nil {
			continue
		}
		p, err := netip.ParsePrefix(v.Text)
		if err != nil {
			r.notes.Add(v.Line, "%s: %s %q is none with a prefix length; it gets one of its link", what, key, v.Text)
			continue
		}
		if r.take(v.Line, what, p.Addr()) {
			addresses = append(addresses, p.String())
		}
	}
	switch {
	case len(addresses) == 1:
		a.node.said.Child("interfaces").Set(name, addresses[0])
	case len(addresses) > 1:
		a.node.said.Child("interfaces").Set(name, addresses)
	case a.data.Get("ifname") == nil:
		return a.node.name
	}
	return a.node.name + ":" + name
}
