package spec

import (
	"cmp"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// place is where an object of the network stands in the file.
type place struct {
	key, node ast.Node
	path      string // its key below that of its kind, as blanks have it; empty where it has none
}

// builder makes a network of a document.
type builder struct {
	*decoder
	form     *form.Network
	readFile func(string) ([]byte, error)
	readTree func(string) ([]TreeFile, error)
	dir      string
	trees    map[string][]TreeFile // what was read, since many elements may be given the same
	outside  []Elsewhere           // what is read from elsewhere than below dir
	given    bool                  // files are read by the caller's means, which decide what may be read

	net                    model.Network
	elements, links, edges []place
	faultsAt               []string              // the paths of net.Faults
	short                  map[int]form.Prefixes // elements' addresses without an interface's name
}

// network makes the document of what the file says. What elements say comes before the defaults, and the defaults
// before what stands at the top. Interfaces that only links name are there in the end; addresses that name no interface
// wait until then.
func (b *builder) network() model.Network {
	f := b.form
	b.net = model.Network{Name: f.Network, Owner: f.Owner, Pools: f.Pools}
	if f.Slice != nil {
		b.net.Slice = f.Slice.Said.Value
	}
	if f.Placement != nil {
		b.net.Placing = f.Placement.Said.Value
	}
	b.net.Attack = deref(f.Policy).Attack
	b.short = map[int]form.Prefixes{}
	b.expandLinks()
	defaults := f.Defaults.Routers
	defaults.Control = first(defaults.Control, f.Control)
	defaults.Forwarding = first(defaults.Forwarding, f.Forwarding)
	defaults.Software = first(defaults.Software, f.Software)
	defaults.Intents = mergeIntents(defaults.Intents, f.Intents)
	given := b.contents("routers by default", defaults.Files)
	for _, item := range f.Routers {
		r := &item.Value
		e := b.common(model.Router, item.Name, r.Common, defaults.Common)
		e.Software = first(r.Software, defaults.Software)
		e.Hook = first(r.Hook, defaults.Hook)
		e.Routing = b.routing(mergeIntents(r.Intents, defaults.Intents))
		e.RouterID, e.MPLS, e.VRFs = r.RouterID, lsps(r.MPLS), b.vrfsOf(r.VRFs)
		e.Config = b.config(item.Name, item.Said, r.Config, e.Software)
		e.Service = b.service("router "+item.Name, r.Service, defaults.Service, given)
		b.endpoint(&e, r.Interfaces, r.Addresses, r.Loopback, r.Gateway, r.Routes)
		b.add(e, place{item.Key, item.Node, item.Said})
	}
	given = b.contents("hosts by default", f.Defaults.Hosts.Files)
	for _, item := range f.Hosts {
		h := &item.Value
		e := b.common(model.Host, item.Name, h.Common, f.Defaults.Hosts.Common)
		e.Service = b.service("host "+item.Name, h.Service, f.Defaults.Hosts.Service, given)
		b.endpoint(&e, h.Interfaces, h.Addresses, h.Loopback, h.Gateway, h.Routes)
		b.add(e, place{item.Key, item.Node, item.Said})
	}
	for _, item := range f.Switches {
		e := b.common(model.Switch, item.Name, item.Value.Common, f.Defaults.Switches)
		e.Prefixes, e.STP, e.VRRP = item.Value.Prefixes, item.Value.STP, vrrp(item.Value.VRRP)
		for vlan, prefixes := range item.Value.VLANs {
			if e.VLANs == nil {
				e.VLANs = model.VLANSubnets{}
			}
			e.VLANs[vlan] = prefixes
		}
		b.add(e, place{item.Key, item.Node, item.Said})
	}
	b.addLinks()
	b.checkZeros()
	b.net.Expect = append(b.net.Expect, each.Of(f.Expect, func(x form.Expect) model.Expectation { return x.Value })...)
	b.faults()
	b.net = resolve.WithInterfaces(b.net)
	b.addShort()
	return b.net
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// first is the first value that is not its type's zero.
func first[T comparable](values ...T) (zero T) {
	for _, v := range values {
		if v != zero {
			return v
		}
	}
	return zero
}

func (b *builder) common(kind model.Kind, name string, c, d form.Common) model.Element {
	b.zeros(&b.net.Zeros.Elements, name, c.Said.Zeros())
	return model.Element{Name: name, Kind: kind,
		Control: first(c.Control, d.Control), Forwarding: first(c.Forwarding, d.Forwarding),
		Amounts: c.Said.Or(&d.Said),
		Attack:  deref(first(c.Policy, d.Policy)).Attack,
		Node:    first(c.Node, d.Node), Location: first(c.Location, d.Location)}
}

// zeros notes which keys of an object are stated as zero.
func (b *builder) zeros(all *map[string][]string, object string, keys []string) {
	if len(keys) == 0 {
		return
	}
	if *all == nil {
		*all = map[string][]string{}
	}
	(*all)[object] = keys
}

func (b *builder) add(e model.Element, at place) {
	b.net.Elements = append(b.net.Elements, e)
	b.elements = append(b.elements, at)
}

func (b *builder) endpoint(e *model.Element, interfaces form.Interfaces, addresses form.Prefixes,
	loopback form.Loopbacks,
	gateway form.Addrs, routes []form.Route) {
	for _, i := range interfaces {
		e.Interfaces = append(e.Interfaces, model.Interface{Name: i.Name, MAC: i.Value.MAC,
			Addresses: i.Value.Addresses, OSPF: ospfPort(i.Value.OSPF), OSPF6: ospfPort(i.Value.OSPF6)})
	}
	e.Loopback, e.Gateways = []netip.Prefix(loopback), []netip.Addr(gateway)
	e.Routes = routesOf(routes)
	if len(addresses) > 0 {
		b.short[len(b.net.Elements)] = addresses
	}
}

func routesOf(routes []form.Route) (all []model.Route) {
	return each.Of(routes, func(r form.Route) model.Route {
		return model.Route{To: r.To.Prefix, Via: r.Via, Interface: r.Interface, Type: r.Type,
			Metric: r.Metric}
	})
}

// ospfPort is what OSPF does at an interface.
func ospfPort(f *form.OSPFPort) *model.OSPFPort {
	if f == nil {
		return nil
	}
	p := model.OSPFPort{Off: f.Off, Area: string(f.Area), OSPFPortKeys: f.Said.Value}
	if f.Passive != nil {
		p.Passive = map[bool]model.YesNo{true: model.Yes, false: model.No}[*f.Passive]
	}
	if p == (model.OSPFPort{}) {
		return nil // {} says nothing
	}
	return &p
}

// addShort gives the addresses of elements with one interface to that interface.
func (b *builder) addShort() {
	for i, addresses := range b.short {
		e := &b.net.Elements[i]
		if len(e.Interfaces) == 1 && len(e.Interfaces[0].Addresses) == 0 {
			e.Interfaces[0].Addresses = addresses
			continue
		}
		section, said := sections[e.Kind], b.elements[i].path
		lost := b.blanks.links.Has(e.Name) || b.blanks.edges.Has(e.Name) || b.blanks.has(section, said, "interfaces")
		b.blanks.add(section, said, "addresses")
		if lost { // the interface that it is for, or the others
			continue
		}
		names := each.Of(e.Interfaces, func(f model.Interface) string { return f.Name })
		b.failAt(locateIn(b.elements[i], []string{"addresses"}),
			"%s %s: addresses is for an element with one interface, and it has %d (%s); write interfaces: {NAME: "+
				"ADDRESS}",
			e.Kind, e.Name, len(names), strings.Join(names, ", "))
	}
}

// mergeIntents takes each field from a, else from b.
func mergeIntents(a, b form.Intents) form.Intents {
	a.OSPF = mergeOSPF(a.OSPF, b.OSPF)
	a.OSPF6 = mergeOSPF(a.OSPF6, b.OSPF6)
	switch {
	case a.ISIS == nil:
		a.ISIS = b.ISIS
	case b.ISIS != nil:
		a.ISIS = &form.ISIS{Off: a.ISIS.Off, Area: first(a.ISIS.Area, b.ISIS.Area),
			Level: first(a.ISIS.Level, b.ISIS.Level), Said: a.ISIS.Said.Over(&b.ISIS.Said)}
	}
	switch {
	case a.BGP == nil:
		a.BGP = b.BGP
	case b.BGP != nil:
		merged := mergeBGP(a.BGP, b.BGP)
		a.BGP = &merged
	}
	switch {
	case a.RIP == nil:
		a.RIP = b.RIP
	case b.RIP != nil:
		merged := form.RIP{Off: a.RIP.Off, Redistribute: a.RIP.Redistribute, Said: a.RIP.Said.Over(&b.RIP.Said)}
		if merged.Redistribute == nil {
			merged.Redistribute = b.RIP.Redistribute
		}
		a.RIP = &merged
	}
	return a
}

func mergeOSPF(a, b *form.OSPF) *form.OSPF {
	if a == nil || b == nil {
		return first(a, b)
	}
	m := form.OSPF{Off: a.Off, Area: first(a.Area, b.Area), Cost: first(a.Cost, b.Cost), Redistribute: a.Redistribute,
		Said: a.Said.Over(&b.Said)}
	if m.Redistribute == nil {
		m.Redistribute = b.Redistribute
	}
	return &m
}

// routing are the protocols that are asked for. One that is off is there only to take back a default.
func (b *builder) routing(in form.Intents) (r model.Routing) {
	ospf := func(o *form.OSPF) *model.OSPF {
		if o == nil || o.Off {
			return nil
		}
		return &model.OSPF{Area: string(o.Area), Cost: o.Cost, Redistribute: o.Redistribute,
			OSPFTimers: o.Said.Value}
	}
	r.OSPF, r.OSPF6 = ospf(in.OSPF), ospf(in.OSPF6)
	if i := in.ISIS; i != nil && !i.Off {
		r.ISIS = &model.ISIS{Area: i.Area, Level: i.Level, ISISTimers: i.Said.Value}
	}
	if g := in.BGP; g != nil && !g.Off {
		r.BGP = bgp(g)
	}
	if p := in.RIP; p != nil && !p.Off {
		r.RIP = &model.RIP{Redistribute: p.Redistribute, RIPTimers: p.Said.Value}
	}
	return r
}

// config reads the configuration files. A single one goes by its software's name for it.
func (b *builder) config(router, said string, c form.Config, software model.Software) map[string]string {
	if len(c) == 0 {
		return nil
	}
	all := make(map[string]string, len(c))
	b.path = []string{"routers", said, "config"}
	defer func() { b.path = nil }()
	for _, item := range c {
		text := item.Value.Text
		if item.Value.File != "" {
			path := item.Value.File
			if !filepath.IsAbs(path) {
				path = filepath.Join(b.dir, path)
			}
			var data []byte
			path, err := b.placed("config of router "+router, path)
			if err == nil {
				data, err = b.readFile(path)
			}
			if err != nil {
				b.fail(item.Node, "config of router %s: %v; paths are relative to the file that names them", router,
					err)
				continue
			}
			text = string(data)
		}
		if len(text) > MaxConfigSize {
			b.fail(item.Node, "config of router %s: it is larger than the %d bytes that are allowed",
				router, MaxConfigSize)
			continue
		}
		name := item.Name
		switch {
		case name != "":
		case software == model.SoftwareBIRD:
			name = "bird.conf"
		default:
			name = "frr.conf"
		}
		all[name] = text
	}
	return all
}

// addLinks names the links and their interfaces, and joins the edges.
func (b *builder) addLinks() {
	d := b.form.Defaults.Links
	names, ends := nameLinks(b.form.Links)
	for i, l := range b.form.Links {
		link := l.Value.Said.Or(&d.Said)
		link.Addressing = first(link.Addressing, b.form.Addressing)
		link.Name, link.Ends, link.Prefixes = names[i], ends[i], l.Value.Prefixes
		b.zeros(&b.net.Zeros.Links, link.Name, l.Value.Said.Zeros())
		b.net.Links = append(b.net.Links, link)
		b.links = append(b.links, place{l.Key, l.Node, strconv.Itoa(l.Entry)})
	}
	for _, item := range b.form.Edges {
		v := item.Value
		e := model.Edge{Name: item.Name, Node: v.Node, Device: v.Device, VLAN: v.VLAN, Trunk: v.Trunk}
		if v.Internet != nil {
			e.Internet = &model.Internet{Forwards: v.Internet.Forwards,
				Unannounced: v.Internet.Announce != nil && !*v.Internet.Announce}
		}
		e.End.Element, e.End.Interface = cutEnd(v.End)
		e.End.Interface = cmp.Or(e.End.Interface, item.Name)
		b.net.Edges = append(b.net.Edges, e)
		b.edges = append(b.edges, place{item.Key, item.Node, item.Said})
	}
	b.mirrors()
}

// mirrors are edges in the model; they have the names of their interfaces.
func (b *builder) mirrors() {
	taken := each.SetOf(b.net.Edges, func(e model.Edge) string { return e.Name })
	for _, v := range b.form.Mirrors {
		_, ifc := cutEnd(v.To)
		taken[ifc] = true
	}
	next := 0
	for i, v := range b.form.Mirrors {
		e := model.Edge{Mirror: &model.Mirror{Link: strings.Join(strings.Fields(v.Link), ""),
			Bandwidth: deref(v.Bandwidth)}}
		e.End.Element, e.End.Interface = cutEnd(v.To)
		for e.End.Interface == "" {
			if name := "mirror" + strconv.Itoa(next); !taken[name] {
				e.End.Interface = name
			}
			next++
		}
		e.Name = e.End.Interface
		b.net.Edges = append(b.net.Edges, e)
		b.edges = append(b.edges, place{v.Node, v.Node, strconv.Itoa(i)})
	}
}

// nameLinks names links and their interfaces: what the file names is taken first; the rest is named after what it
// leads to, in the file's order.
func nameLinks(links []form.Link) (names []string, ends [][2]model.End) {
	takenNames := counted[string]{}
	takenEnds := make(counted[model.End], 2*len(links))
	for _, l := range links {
		if l.Value.Name != "" {
			takenNames[l.Value.Name]++
		}
		for _, e := range []form.End{l.A, l.B} {
			if e.Interface != "" {
				takenEnds[model.End(e)]++
			}
		}
	}
	end := func(own, far form.End) model.End {
		if own.Interface != "" {
			return model.End(own)
		}
		return takenEnds.free(model.End{Element: own.Element, Interface: far.Element}, func(n int) model.End {
			return model.End{Element: own.Element, Interface: far.Element + "." + strconv.Itoa(n)}
		})
	}
	names, ends = make([]string, len(links)), make([][2]model.End, len(links))
	for i, l := range links {
		ends[i] = [2]model.End{end(l.A, l.B), end(l.B, l.A)}
		if names[i] = l.Value.Name; names[i] == "" {
			base := l.A.Element + "--" + l.B.Element
			names[i] = takenNames.free(base, func(n int) string { return base + "." + strconv.Itoa(n) })
		}
	}
	return names, ends
}

// counted tells how often a name has been asked for. Every name in it is taken.
type counted[K comparable] map[K]int

// free takes the name itself, or the first free one of nth(2), nth(3)…
func (c counted[K]) free(name K, nth func(int) K) K {
	if c[name]++; c[name] == 1 {
		return name
	}
	for ; ; c[name]++ {
		if k := nth(c[name]); c[k] == 0 {
			c[k] = 1
			return k
		}
	}
}

func cutEnd(s string) (element, iface string) {
	for i, c := range s {
		if c == ':' {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
