package spec

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		if _, err := netip.ParsePrefix(s); err == nil {
			return netip.Addr{}, fmt.Errorf("%q is a prefix; here an address without /… stands, like 10.0.0.1", s)
		}
		return netip.Addr{}, fmt.Errorf("%q is no address; write one like 10.0.0.1 or 2001:db8::1", s)
	}
	return a, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		if a, err := netip.ParseAddr(s); err == nil {
			return netip.Prefix{}, fmt.Errorf("%q has no prefix length; write it like %s/%d", s, a,
				map[bool]int{true: 24, false: 64}[a.Is4()])
		}
		return netip.Prefix{}, fmt.Errorf("%q is no prefix; write one like 10.0.0.0/30 or 2001:db8::/64", s)
	}
	return p, nil
}

func parseLoopback(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return parsePrefix(s)
}

func parseArea(s string) (form.Area, error) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return form.Area(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()), nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return form.Area(s), nil
	}
	return "", fmt.Errorf("%q is no area; write a number like 0, or the dotted form 0.0.0.0", s)
}

func parseForward(s string) (model.Forward, error) {
	f, ok := model.ParseForward(s)
	if !ok {
		return f, fmt.Errorf("%q is no forwarded port; write the machine's port, the element and its port, like "+
			"2222:h1:22 or 5353:h1:53/udp", s)
	}
	return f, nil
}

// edge reads `a -- eth1`, `a -- internet` or a mapping.
func (d *decoder) edge(n ast.Node, into *form.Edge, what string) {
	text, short := n.(*ast.StringNode)
	if !short {
		d.structure(n, reflect.ValueOf(into).Elem(), what)
		return
	}
	end, out, ok := strings.Cut(text.Value, " -- ")
	if end, out = strings.TrimSpace(end), strings.TrimSpace(out); !ok || end == "" || out == "" {
		d.fail(n, "%s: %q is no edge; write one like r1 -- internet or r1 -- eth1, or a mapping with end: and device:",
			what, text.Value)
		return
	}
	if into.End = end; out == "internet" {
		into.Internet = &form.Internet{}
		return
	}
	into.Device = out
}

// internet reads a mapping, or nothing, which is an empty one.
func (d *decoder) internet(n ast.Node, into **form.Internet, what string) {
	*into = &form.Internet{}
	if b, ok := n.(*ast.BoolNode); ok && b.Value {
		return
	}
	d.structure(n, reflect.ValueOf(*into).Elem(), what)
}

func parseRouteTo(s string) (form.RouteTo, error) {
	if s == "default" {
		return form.RouteTo{Default: true}, nil
	}
	p, err := parseLoopback(s)
	return form.RouteTo{Prefix: p}, err
}

// interfaces are a mapping; an address alone may stand for an interface's mapping.
func (d *decoder) interfaces(n ast.Node, what string) form.Interfaces {
	var all form.Interfaces
	for _, v := range d.entries(n, what) {
		item := form.Item[form.Interface]{Key: v.Key, Node: v.Value}
		item.Name, _ = d.scalar(v.Key, what)
		self := item.Name + " of " + what
		d.enter(item.Name)
		switch v.Value.(type) {
		case *ast.StringNode, *ast.SequenceNode:
			item.Value.Addresses = several(d, v.Value, "addresses of "+self, parsePrefix)
		default:
			d.structure(v.Value, reflect.ValueOf(&item.Value).Elem(), self)
		}
		d.leave()
		all = append(all, item)
	}
	return all
}

const linkHelp = "write a link like r1 -- r2, r1:eth0 -- r2:eth1, or r1 -- r2: 10.0.0.0/30"

// link reads "a[:if] -- b[:if]", perhaps with prefixes or a mapping behind it. It returns whether it is a link at all.
func (d *decoder) link(n ast.Node, l *form.Link) bool {
	l.Key = n
	var value ast.Node
	switch m := n.(type) {
	case *ast.MappingNode:
		if len(m.Values) != 1 {
			d.fail(n, "one entry of links is one link; %s", linkHelp)
			return false
		}
		l.Key, value = m.Values[0].Key, m.Values[0].Value
	case *ast.MappingValueNode:
		l.Key, value = m.Key, m.Value
	}
	text, ok := d.scalar(l.Key, "an entry of links")
	if !ok {
		return false
	}
	ends, prefixes, together := strings.Cut(text, ": ")
	words := strings.Fields(ends)
	l.Text = ends
	if isShape(ends) && !together {
		l.Shape, l.Node = words, value
		d.linkValue(value, l, "link "+ends)
		return true
	}
	if len(words) != 3 || words[1] != "--" {
		d.fail(l.Key, "%q is no link: %s", text, linkHelp)
		return false
	}
	l.A.Element, l.A.Interface, _ = strings.Cut(words[0], ":")
	l.B.Element, l.B.Interface, _ = strings.Cut(words[2], ":")
	what := "link " + ends
	l.Node = value
	if together { // the whole in quotes
		for s := range strings.SplitSeq(prefixes, ",") {
			p, err := parsePrefix(strings.TrimSpace(s))
			if err != nil {
				d.enter("prefixes")
				d.fail(l.Key, "%s: %v", what, err)
				d.leave()
				break
			}
			l.Value.Prefixes = append(l.Value.Prefixes, p)
		}
	}
	d.linkValue(value, l, what)
	return true
}

// linkValue reads what stands behind a link's ends.
func (d *decoder) linkValue(value ast.Node, l *form.Link, what string) {
	switch value.(type) {
	case nil, *ast.NullNode:
	case *ast.MappingNode, *ast.MappingValueNode:
		d.structure(value, reflect.ValueOf(&l.Value).Elem(), what)
	default:
		d.enter("prefixes")
		l.Value.Prefixes = several(d, value, "prefixes of "+what, parsePrefix)
		d.leave()
	}
}

const routeHelp = "write a route like 10.1.0.0/16 via 10.0.0.2, 10.1.0.0/16 dev eth0, or blackhole 10.1.0.0/16"

// route reads "[TYPE] TO [via A[,A]] [dev IF] [metric N]" or a mapping.
func (d *decoder) route(n ast.Node, r *form.Route, _ string) {
	r.Node = n
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		d.structure(n, reflect.ValueOf(r).Elem(), "a route")
	default:
		text, ok := d.scalar(n, "an entry of routes")
		if !ok {
			return
		}
		if err := parseRoute(text, r); err != nil {
			d.fail(n, "%q is no route: %v; %s", text, err, routeHelp)
			return
		}
	}
	if r.To.Default {
		switch {
		case len(r.Via) == 0:
			d.fail(n, "a default route needs a next hop here, which tells its address family; or write 0.0.0.0/0 or "+
				"::/0")
		case r.Via[0].Is4():
			r.To.Prefix = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		default:
			r.To.Prefix = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	} else if !r.To.Prefix.IsValid() {
		d.fail(n, "a route needs to:, where it leads; %s", routeHelp)
	}
}

// parseRoute reads a route as `ip route` writes it: [TYPE] PREFIX [via ADDRESS …] [dev INTERFACE] [metric NUMBER].
func parseRoute(text string, r *form.Route) (err error) {
	words := strings.Fields(strings.ReplaceAll(text, ",", " "))
	if len(words) > 1 {
		switch t := model.RouteType(words[0]); t {
		case model.RouteUnicast, model.RouteBlackhole, model.RouteUnreachable, model.RouteProhibit:
			r.Type, words = t, words[1:]
		}
	}
	if len(words) == 0 {
		return fmt.Errorf("it is empty")
	}
	if r.To, err = parseRouteTo(words[0]); err != nil {
		return err
	}
	words = words[1:]
	for len(words) > 0 {
		if len(words) < 2 {
			return fmt.Errorf("%q has nothing behind it", words[0])
		}
		switch words[0] {
		case "via":
			for words = words[1:]; len(words) > 0 && words[0] != "dev" && words[0] != "metric"; words = words[1:] {
				a, err := parseAddr(words[0])
				if err != nil {
					return err
				}
				r.Via = append(r.Via, a)
			}
			continue
		case "dev":
			r.Interface = words[1]
		case "metric":
			if r.Metric, err = strconv.Atoi(words[1]); err != nil {
				return fmt.Errorf("the metric %q is no whole number", words[1])
			}
		default:
			return fmt.Errorf("%q is unknown here; via, dev and metric are known", words[0])
		}
		words = words[2:]
	}
	return nil
}

// config reads text, {file: PATH}, or a mapping of file names to either.
func (d *decoder) config(n ast.Node, c *form.Config, what string) {
	text := func(n ast.Node, item *form.Item[form.ConfigText]) {
		item.Node = n
		switch n.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			for _, v := range d.entries(n, what) {
				key, _ := d.scalar(v.Key, what)
				if key != "file" {
					d.fail(v.Key, "%s has no key %q; write the text itself, or {file: PATH}", what, key)
					continue
				}
				item.Value.File, _ = d.scalar(v.Value, "file of "+what)
			}
		default:
			item.Value.Text, _ = d.scalar(n, what)
		}
	}
	entries, isMap := []*ast.MappingValueNode(nil), false
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		isMap, entries = true, d.entries(n, what)
	}
	if !isMap || len(entries) == 1 && entries[0].Key.String() == "file" {
		item := form.Item[form.ConfigText]{Key: n}
		text(n, &item)
		*c = append(*c, item)
		return
	}
	for _, v := range entries {
		item := form.Item[form.ConfigText]{Key: v.Key}
		item.Name, _ = d.scalar(v.Key, what)
		text(v.Value, &item)
		*c = append(*c, item)
	}
}

// vlans reads the subnets of VLANs by their numbers.
func (d *decoder) vlans(n ast.Node, what string) form.VLANs {
	all := form.VLANs{}
	for _, v := range d.entries(n, what) {
		name, _ := d.scalar(v.Key, what)
		var prefixes form.Prefixes
		d.enter(name)
		d.value(v.Value, reflect.ValueOf(&prefixes).Elem(), "VLAN "+name+" of "+what)
		d.leave()
		all[name] = prefixes
	}
	return all
}

// scalars reads a value of a list of keys as a text. VLANs may stand as a list.
func (d *decoder) scalars(n ast.Node, what string, list form.Keys, key string) (text string, ok bool) {
	all, is := n.(*ast.SequenceNode)
	if !is || !slices.ContainsFunc(list.Known(), func(k form.KnownKey) bool {
		return k.Name == key && k.Type == reflect.TypeFor[model.VLANs]()
	}) {
		return d.scalar(n, what)
	}
	var parts []string
	for _, n := range all.Values {
		part, ok := d.scalar(n, what)
		if !ok {
			return "", false
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ","), true
}
