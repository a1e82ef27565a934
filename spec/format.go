package spec

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// Format writes a network as a file that Parse reads back to the same network. What many have in common is said once,
// and what Parse fills in by itself is left out. The network must be a document (not what package resolve made of it)
// in which model.Read finds nothing wrong. Elements come back in the order routers, hosts, switches.
func Format(net model.Network) ([]byte, error) {
	document, problems := resolve.Read(net)
	if len(problems) > 0 {
		return nil, fmt.Errorf("the network cannot be written as a file: %w", problems[0])
	}
	net = document.Network()
	f := formatter{net: &net, kinds: map[model.Kind][]*model.Element{}}
	for i := range net.Elements {
		e := &net.Elements[i]
		f.kinds[e.Kind] = append(f.kinds[e.Kind], e)
	}
	f.arrangeLinks()
	f.listed = f.listInterfaces()
	var doc yamlNode
	doc.set("network", net.Name)
	doc.set("owner", net.Owner)
	putPrefixes(&doc, "pools", net.Pools)
	f.slice(&doc)
	putPolicy(&doc, net.Attack)
	f.defaults(&doc)
	f.shared(&doc)
	f.elements(&doc, "routers", model.Router, f.router)
	f.elements(&doc, "hosts", model.Host, f.endpoint)
	f.elements(&doc, "switches", model.Switch, f.switchBody)
	f.linkList(&doc)
	f.edges(&doc)
	if len(net.Expect) > 0 {
		all := list(net.Expect, model.Expectation.String)
		all.wide = true
		doc.put("expect", all)
	}
	putFaults(&doc, net.Faults)
	var b strings.Builder
	doc.block(&b, "")
	return []byte(b.String()), nil
}

// formatter writes a document as a person would: what all have in common is said once, and what follows from something
// else is left out. Read again, the file is the same document.
type formatter struct {
	net    *model.Network
	kinds  map[model.Kind][]*model.Element
	links  []form.Link // what is left to be said of names
	listed map[string]bool

	common  map[model.Kind]model.Amounts // said under defaults
	link    model.Link                   // likewise
	routers model.Element                // control, forwarding, software, routing said for all routers
}

func raw(s string) yamlNode { return yamlNode{text: s, raw: true} }

func num[T fmt.Stringer](v T) yamlNode { return raw(v.String()) }

func integer[T ~int | ~uint32](v T) yamlNode { return raw(strconv.FormatInt(int64(v), 10)) }

func putPrefixes(n *yamlNode, key string, ps []netip.Prefix) {
	switch len(ps) {
	case 0:
	case 1:
		n.set(key, ps[0].String())
	default:
		n.put(key, list(ps, netip.Prefix.String))
	}
}

func putAddrs(n *yamlNode, key string, as []netip.Addr) {
	switch len(as) {
	case 0:
	case 1:
		n.set(key, as[0].String())
	default:
		n.put(key, list(as, netip.Addr.String))
	}
}

func putWords(n *yamlNode, key string, words []string) {
	if len(words) > 0 {
		n.put(key, list(words, func(s string) string { return s }))
	}
}

func (f *formatter) slice(doc *yamlNode) {
	var n yamlNode
	s := f.net.Slice
	putSaid(&n, &s, &model.Slice{})
	if n.kind == yamlMapping {
		doc.put("slice", n)
	}
	var placement yamlNode
	putSaid(&placement, &f.net.Placing, &model.Placing{})
	if placement.kind == yamlMapping {
		doc.put("placement", placement)
	}
}

// putSaid writes the keys of a list whose values differ from what was said already.
func putSaid[T interface{ Keys() []model.Key[T] }](n *yamlNode, is, said *T) {
	for _, k := range (*is).Keys() {
		if !k.Same(is, said) {
			n.put(k.Name, valueOf(&k, is))
		}
	}
}

// valueOf is a key's value: a list where it is several VLANs, since a comma between braces ends a value.
func valueOf[T any](k *model.Key[T], is *T) yamlNode {
	text := k.Text(is)
	if k.Type != reflect.TypeFor[model.VLANs]() || !strings.Contains(text, ",") {
		return raw(text)
	}
	n := yamlNode{kind: yamlList}
	n.list = append(n.list, each.Of(model.VLANs(text).Parts(), raw)...)
	return n
}

// byNumber has numbers that are texts in the order of the numbers.
func byNumber(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
}

// alike are those keys of the list for which all values agree.
func alike[T interface{ Keys() []model.Key[T] }, E any](all []E, of func(*E) *T) (c T) {
	for _, k := range c.Keys() {
		k.Copy(&c, of(&all[0]))
		for i := range all {
			if !k.Same(&c, of(&all[i])) {
				k.Clear(&c)
				break
			}
		}
	}
	return c
}

// defaults says once what all elements of a kind, or all links, have.
func (f *formatter) defaults(doc *yamlNode) {
	var n yamlNode
	f.common = map[model.Kind]model.Amounts{}
	for _, k := range []struct {
		kind model.Kind
		key  string
	}{{model.Router, "routers"}, {model.Host, "hosts"}, {model.Switch, "switches"}} {
		es := f.kinds[k.kind]
		if len(es) < 2 {
			continue
		}
		c := alike(es, func(e **model.Element) *model.Amounts { return &(*e).Amounts })
		f.common[k.kind] = c
		var of yamlNode
		if putSaid(&of, &c, &model.Amounts{}); of.kind == yamlMapping {
			n.put(k.key, of)
		}
	}
	if ls := f.net.Links; len(ls) > 1 {
		f.link = alike(ls, func(l *model.Link) *model.Link { return l })
		var of yamlNode
		if putSaid(&of, &f.link, &model.Link{}); of.kind == yamlMapping {
			n.put("links", of)
		}
	}
	if n.kind == yamlMapping {
		doc.put("defaults", n)
	}
}

// keep leaves only what is the same.
func keep[T comparable](v *T, other T) {
	if *v != other {
		*v = *new(T)
	}
}

// shared says once, at the top, what all routers have.
func (f *formatter) shared(doc *yamlNode) {
	rs := f.kinds[model.Router]
	if len(rs) == 0 {
		return
	}
	c := model.Element{Control: rs[0].Control, Forwarding: rs[0].Forwarding, Software: rs[0].Software,
		Routing: rs[0].Routing}
	usual := true // every router's software is its default
	for _, e := range rs {
		keep(&c.Control, e.Control)
		keep(&c.Forwarding, e.Forwarding)
		keep(&c.Software, e.Software)
		same(&c.Routing.OSPF, e.Routing.OSPF)
		same(&c.Routing.OSPF6, e.Routing.OSPF6)
		same(&c.Routing.ISIS, e.Routing.ISIS)
		same(&c.Routing.BGP, e.Routing.BGP)
		same(&c.Routing.RIP, e.Routing.RIP)
		usual = usual && e.Software == resolve.DefaultSoftware(*e)
	}
	if usual {
		c.Software = ""
	}
	keepUnlessDefault(&c.Control, model.ControlNetns)
	keepUnlessDefault(&c.Forwarding, model.ForwardGuest)
	if c.Routing.BGP == nil {
		c.Routing.BGP = commonPolicies(rs)
	}
	f.routers = c
	doc.set("control", string(c.Control))
	doc.set("forwarding", string(c.Forwarding))
	doc.set("software", string(c.Software))
	putRouting(doc, c.Routing, model.Routing{})
}

func keepUnlessDefault[T comparable](v *T, usual T) {
	if *v == usual {
		*v = *new(T)
	}
}

func same[T any](v **T, other *T) {
	if !reflect.DeepEqual(*v, other) {
		*v = nil
	}
}

// elements writes a list of names, or a mapping where any has more to say.
func (f *formatter) elements(doc *yamlNode, key string, kind model.Kind, body func(*yamlNode, *model.Element)) {
	names, full := yamlNode{kind: yamlList}, yamlNode{}
	short := true
	for _, e := range f.kinds[kind] {
		n := yamlNode{kind: yamlNothing}
		body(&n, e)
		short = short && n.kind == yamlNothing
		names.list = append(names.list, scalar(e.Name))
		full.put(e.Name, n)
	}
	switch {
	case len(names.list) == 0:
	case short:
		doc.put(key, names)
	default:
		doc.put(key, full.spread())
	}
}

// spread keeps a mapping from being written on one line.
func (n yamlNode) spread() yamlNode {
	n.wide = true
	return n
}

func (f *formatter) element(n *yamlNode, e *model.Element) {
	if e.Control != model.ControlNetns && f.routersSaid(e).Control == "" {
		n.set("control", string(e.Control))
	}
	if e.Forwarding != resolve.DefaultForwarding(e.Kind) && f.routersSaid(e).Forwarding == "" {
		n.set("forwarding", string(e.Forwarding))
	}
	common := f.common[e.Kind]
	putSaid(n, &e.Amounts, &common)
	n.set("node", e.Node)
	n.set("location", e.Location)
	putPolicy(n, e.Attack)
}

func putPolicy(n *yamlNode, attack model.AttackPolicy) {
	if attack != "" {
		var p yamlNode
		p.set("attack", string(attack))
		n.put("policy", p)
	}
}

func (f *formatter) routersSaid(e *model.Element) model.Element {
	if e.Kind == model.Router {
		return f.routers
	}
	return model.Element{}
}

// router writes what routers have beside what all elements have.
func (f *formatter) router(n *yamlNode, e *model.Element) {
	n.set("hook", string(e.Hook))
	if f.routers.Software == "" && e.Software != resolve.DefaultSoftware(*e) {
		n.set("software", string(e.Software))
	}
	putRouting(n, e.Routing, f.routers.Routing)
	if e.RouterID.IsValid() {
		n.set("router-id", e.RouterID.String())
	}
	f.endpoint(n, e)
	putMPLS(n, e.MPLS)
	putVRFs(n, e)
	if text, ok := e.Config["frr.conf"]; ok && len(e.Config) == 1 && e.Software != model.SoftwareBIRD {
		n.put("config", scalar(text))
	} else if len(e.Config) > 0 {
		var c yamlNode
		for _, name := range slices.Sorted(maps.Keys(e.Config)) {
			c.put(name, scalar(e.Config[name]))
		}
		n.put("config", c)
	}
}

// endpoint writes what routers and hosts have alike.
func (f *formatter) endpoint(n *yamlNode, e *model.Element) {
	f.element(n, e)
	if f.listed[e.Name] {
		var all yamlNode
		for _, i := range e.Interfaces {
			one := yamlNode{kind: yamlNothing}
			if i.MAC == "" && i.OSPF == nil && i.OSPF6 == nil && len(i.Addresses) > 0 {
				one = list(i.Addresses, netip.Prefix.String)
				if len(i.Addresses) == 1 {
					one = one.list[0]
				}
			} else {
				putPrefixes(&one, "addresses", i.Addresses)
				one.set("mac", i.MAC)
				putOSPFPort(&one, "ospf", i.OSPF)
				putOSPFPort(&one, "ospf6", i.OSPF6)
			}
			all.put(i.Name, one)
		}
		n.put("interfaces", all)
	}
	putPrefixes(n, "loopback", e.Loopback)
	putAddrs(n, "gateway", e.Gateways)
	if len(e.Routes) > 0 {
		n.put("routes", list(e.Routes, routeText))
	}
	putService(n, &e.Service)
}

func routeText(r model.Route) string {
	s := r.To.String()
	if r.Type != "" {
		s = string(r.Type) + " " + s
	}
	for i, v := range r.Via {
		s += []string{" via ", ", "}[min(i, 1)] + v.String()
	}
	if r.Interface != "" {
		s += " dev " + r.Interface
	}
	if r.Metric != 0 {
		s += " metric " + strconv.Itoa(r.Metric)
	}
	return s
}

func (f *formatter) switchBody(n *yamlNode, e *model.Element) {
	f.element(n, e)
	putPrefixes(n, "prefixes", e.Prefixes)
	if e.STP != "" {
		n.put("stp", raw(string(e.STP)))
	}
	putVRRP(n, e.VRRP)
	var vlans yamlNode
	for _, vlan := range slices.SortedFunc(maps.Keys(e.VLANs), byNumber) {
		if len(e.VLANs[vlan]) > 0 {
			putPrefixes(&vlans, vlan, e.VLANs[vlan])
		}
	}
	if vlans.numbers = true; vlans.kind == yamlMapping {
		n.put("vlans", vlans)
	}
}

// linkList writes each link in the shortest of its forms.
func (f *formatter) linkList(doc *yamlNode) {
	all := yamlNode{kind: yamlList}
	for i, l := range f.net.Links {
		said := f.links[i]
		ends := endText(said.A) + " -- " + endText(said.B)
		var body yamlNode
		body.set("name", said.Value.Name)
		putSaid(&body, &l, &f.link)
		if body.kind != yamlMapping {
			if len(l.Prefixes) == 0 {
				all.list = append(all.list, scalar(ends))
				continue
			}
			var one yamlNode
			putPrefixes(&one, ends, l.Prefixes)
			all.list = append(all.list, one.bare())
			continue
		}
		putPrefixes(&body, "prefixes", l.Prefixes)
		var one yamlNode
		one.put(ends, body)
		all.list = append(all.list, one.bare())
	}
	if len(all.list) > 0 {
		all.wide = true
		doc.put("links", all)
	}
}

// bare keeps a list's mapping that has one pair from being written in braces.
func (n yamlNode) bare() yamlNode {
	n.open = true
	return n
}

func endText(e form.End) string {
	if e.Interface == "" {
		return e.Element
	}
	return e.Element + ":" + e.Interface
}

// edges writes edges and mirrors, which the model keeps in one list: a mirror is a way out as well.
func (f *formatter) edges(doc *yamlNode) {
	var all yamlNode
	mirrors := yamlNode{kind: yamlList}
	for _, e := range f.net.Edges {
		var n yamlNode
		if e.Mirror != nil {
			n.set("link", e.Mirror.Link)
			n.set("to", endText(form.End(e.End)))
			if e.Mirror.Bandwidth != 0 {
				n.put("bandwidth", num(e.Mirror.Bandwidth))
			}
			mirrors.list = append(mirrors.list, n)
			continue
		}
		end := form.End(e.End)
		if end.Interface == e.Name {
			end.Interface = ""
		}
		if e.Internet != nil && len(e.Internet.Forwards) == 0 && !e.Internet.Unannounced && e.Node == "" {
			all.set(e.Name, endText(end)+" -- internet")
			continue
		}
		n.set("end", endText(end))
		n.set("device", e.Device)
		if e.Internet != nil {
			in := yamlNode{kind: yamlMapping}
			if len(e.Internet.Forwards) > 0 {
				in.put("forwards", list(e.Internet.Forwards, model.Forward.String))
			}
			if e.Internet.Unannounced {
				in.put("announce", raw("false"))
			}
			n.put("internet", in)
		}
		if e.VLAN != 0 {
			n.put("vlan", integer(e.VLAN))
		}
		if e.Trunk {
			n.put("trunk", raw("true"))
		}
		n.set("node", e.Node)
		all.put(e.Name, n)
	}
	if len(f.net.Edges) > len(mirrors.list) {
		doc.put("edges", all.spread())
	}
	if len(mirrors.list) > 0 {
		mirrors.wide = true
		doc.put("mirrors", mirrors)
	}
}
