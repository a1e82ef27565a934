package resolve

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/polyplane/polyplane/model"
)

// Redistributed is what protocols may be told to announce in addition to their own routes.
var Redistributed = []string{"connected", "static", "kernel", "ospf", "ospf6", "isis", "bgp", "rip"}

// checkSoftware looks at a router's software, its configuration, and whether it can do what is asked for. Others have
// none of these.
func (ps *problems) checkSoftware(i int) {
	e := &ps.net.Elements[i]
	ps.checkPorts(i)
	if e.Kind != model.Router {
		switch {
		case e.Software != "":
			ps.element(i, "software", "only routers have routing software")
		case e.Routing.Any():
			ps.element(i, "routing", "only routers have routing protocols")
		case len(e.Config) > 0:
			ps.element(i, "config", "only routers have a configuration")
		case e.RouterID.IsValid():
			ps.element(i, "routerID", "only routers have a router ID")
		}
		return
	}
	if !slices.Contains(model.Softwares, e.Software) {
		ps.element(i, "software", "the software %q is unknown; there are %s", e.Software, model.Either(model.Softwares))
		return
	}
	processes := e.Software == model.SoftwareFRR || e.Software == model.SoftwareBIRD
	known := !ps.ofElement(i, "software")
	if known && !processes && e.Routing.Any() {
		ps.element(i, "software",
			"software: %s speaks no routing protocol, but %s is asked for; take frr or bird, or take the protocol "+
				"away with false",
			e.Software, strings.Join(e.Routing.Protocols(), ", "))
	}
	if known && !processes && len(e.Config) > 0 {
		ps.element(i, "config", "software: %s runs no process that would read a configuration; take frr or bird",
			e.Software)
	}
	if known && e.Software == model.SoftwareNone && len(e.Routes) > 0 {
		ps.element(i, "routes", "software: none has no routes but the connected ones; take static")
	}
	if known && e.Software == model.SoftwareBIRD && e.Routing.ISIS != nil {
		ps.element(i, "routing/isis", "BIRD speaks no IS-IS; take frr")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Config)) {
		if name == "" || name == "file" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00\n ") ||
			len(name) > model.MaxName {
			ps.element(i, "config", "config: %q is no file name like frr.conf or bird.conf", name)
		} else if files := model.ConfigFiles(e.Software); known && processes && !slices.Contains(files, name) {
			ps.element(i, "config", "config: software: %s reads no file %s; it reads %s", e.Software, name,
				strings.Join(files, ", "))
		}
		if text := e.Config[name]; !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			ps.element(i, "config", "config: %s is not UTF-8 text", name)
		} else if looksLikePath(text) {
			path := strings.TrimSpace(text)
			ps.element(i, "config", "config: %q as the text of %s is no configuration, but looks like a file's name; "+
				"a file is named with {file: %s}", path, name, path)
		}
	}
	if e.RouterID.IsValid() && (!e.RouterID.Is4() || e.RouterID.IsUnspecified()) {
		ps.element(i, "routerID", "the router ID %s is not in dotted form, like 10.255.0.1", e.RouterID)
	}
	ps.checkIntents(i)
}

// checkIntents looks at the routing protocols that a document asks for.
func (ps *problems) checkIntents(i int) {
	r := &ps.net.Elements[i].Routing
	checkOSPF(r, func(field, format string, args ...any) { ps.element(i, "routing/"+field, format, args...) })
	redistribute := func(field string, words []string) {
		for _, w := range words {
			if !slices.Contains(Redistributed, w) || w == strings.TrimPrefix(field, "routing/") {
				ps.element(i, field+"/redistribute", "%s cannot redistribute %q; there are %s",
					strings.TrimPrefix(field, "routing/"), w,
					model.Either(slices.DeleteFunc(slices.Clone(Redistributed),
						func(s string) bool { return s == strings.TrimPrefix(field, "routing/") })))
			}
		}
	}
	for k, o := range []*model.OSPF{r.OSPF, r.OSPF6} {
		if o == nil {
			continue
		}
		redistribute([]string{"routing/ospf", "routing/ospf6"}[k], o.Redistribute)
	}
	r.CheckTimers(func(protocol, key, beside, problem string) {
		if beside == "" || !ps.ofElement(i, protocol+"/"+beside) {
			ps.element(i, "routing/"+protocol+"/"+key, "%s", problem)
		}
	})
	if s := r.ISIS; s != nil {
		if s.Level < 0 || s.Level > 2 {
			ps.element(i, "routing/isis/level", "the IS-IS level is 1 or 2, not %d; leave it out for both", s.Level)
		}
		if !isArea(s.Area) {
			ps.element(i, "routing/isis/area",
				"%q is no IS-IS area; write one like 49.0001: an even number of hexadecimal digits, at most 26", s.Area)
		}
	}
	if r.RIP != nil {
		redistribute("routing/rip", r.RIP.Redistribute)
	}
	b := r.BGP
	if b == nil {
		return
	}
	if b.AS == 0 && !ps.ofElement(i, "bgp/as") {
		ps.element(i, "routing/bgp", "BGP needs an autonomous system; write bgp: {as: 65001}")
	}
	for _, p := range b.Networks {
		if !p.IsValid() || p != p.Masked() {
			ps.element(i, "routing/bgp/networks", "BGP cannot announce %s; its prefix is %s", p, p.Masked())
		}
	}
	ps.checkNeighbours(i)
	ps.checkPolicies(i)
}

// checkOSPF looks at areas and costs.
func checkOSPF(r *model.Routing, report func(field, format string, args ...any)) {
	for k, o := range []*model.OSPF{r.OSPF, r.OSPF6} {
		if o == nil {
			continue
		}
		field := []string{"ospf", "ospf6"}[k]
		if a, err := netip.ParseAddr(o.Area); o.Area != "" && (err != nil || !a.Is4()) {
			report(field+"/area", "the area %q is not in dotted form, like 0.0.0.0", o.Area)
		}
		if o.Cost < 0 || o.Cost > 65535 {
			report(field+"/cost", "the cost %d is not between 1 and 65535", o.Cost)
		}
	}
}

// checkPorts looks at what interfaces say of OSPF.
func (ps *problems) checkPorts(i int) {
	e := &ps.net.Elements[i]
	in := e.InVRFs()
	for k := range e.Interfaces {
		f := &e.Interfaces[k]
		routing := routingAt(e, in[f.Name])
		for _, v := range []struct {
			name string
			at   *model.OSPFPort
			o    *model.OSPF
		}{{"ospf", f.OSPF, routing.OSPF}, {"ospf6", f.OSPF6, routing.OSPF6}} {
			if v.at == nil {
				continue
			}
			field := "interfaces/" + f.Name + "/" + v.name
			switch {
			case e.Kind != model.Router:
				ps.element(i, field, "interface %s: only routers speak %s", f.Name, model.ProtocolName(v.name))
				continue
			case v.o == nil && !ps.ofElement(i, v.name, "vrfs"):
				ps.element(i, field, "interface %s: it says what %s does there, which the router does not "+
					"speak; write %s: {} for the router", f.Name, model.ProtocolName(v.name), v.name)
			}
			if v.o == nil {
				v.o = &model.OSPF{}
			}
			v.o.CheckPort(v.at, func(key, problem string) {
				timer := key == "hello" || key == "dead"
				if !timer || !ps.ofElement(i, v.name+"/hello", v.name+"/dead") {
					ps.element(i, strings.TrimSuffix(field+"/"+key, "/"), "interface %s: %s", f.Name, problem)
				}
			})
		}
	}
}

// isArea returns whether this is the area part of an ISO 10589 network entity title.
func isArea(s string) bool {
	digits := strings.ReplaceAll(s, ".", "")
	return s == "" || len(digits)%2 == 0 && len(digits) <= 26 && digits != "" &&
		strings.Trim(digits, "0123456789abcdefABCDEF") == ""
}

func (ps *problems) checkRoutes(i int) {
	e := &ps.net.Elements[i]
	in := e.InVRFs()
	ps.checkRoutesIn(i, "", e.Gateways, e.Routes, in)
	for _, name := range e.VRFNames() {
		ps.checkRoutesIn(i, name, e.VRFs[name].Gateways, e.VRFs[name].Routes, in)
	}
}

// checkRoutesIn looks at the routes of one of an element's tables.
func (ps *problems) checkRoutesIn(i int, vrf string, gateways []netip.Addr, routes []model.Route,
	in map[string]string) {
	e := &ps.net.Elements[i]
	var v4, v6 bool
	for _, g := range gateways {
		seen := &v4
		if g.Is6() {
			seen = &v6
		}
		if !g.IsValid() || g.IsUnspecified() || g.IsMulticast() {
			ps.inVRF(i, vrf, "gateways", "%s is no gateway's address", g)
		} else if *seen {
			ps.inVRF(i, vrf, "gateways",
				"it has two gateways of one address family; write a route to 0.0.0.0/0 or ::/0 with several next "+
					"hops instead")
		}
		*seen = true
	}
	type place struct {
		to     netip.Prefix
		metric int
	}
	seen := make(map[place]bool, len(routes))
	for _, g := range gateways {
		seen[place{netip.PrefixFrom(unspecified(g), 0), 0}] = true
	}
	interfaces := make(map[string]struct{}, len(e.Interfaces))
	for _, f := range e.Interfaces {
		interfaces[f.Name] = struct{}{}
	}
	for _, r := range routes {
		if at := (place{r.To, r.Metric}); seen[at] {
			ps.inVRF(i, vrf, "routes", "it has two routes to %s with the same metric (a gateway is one to all); write "+
				"one with several next hops, or different metrics", r.To)
		} else {
			seen[at] = true
		}
		switch {
		case !r.To.IsValid():
			ps.inVRF(i, vrf, "routes", "a route leads nowhere")
			continue
		case r.To != r.To.Masked():
			ps.inVRF(i, vrf, "routes", "the route to %s has bits beyond its length; its prefix is %s", r.To,
				r.To.Masked())
		case r.Type != "" && !slices.Contains(model.RouteTypes, r.Type):
			ps.inVRF(i, vrf, "routes", "the route to %s: the type %q is unknown; there are %s", r.To, r.Type,
				model.Either(model.RouteTypes))
		case r.Type != "" && r.Type != model.RouteUnicast && (len(r.Via) > 0 || r.Interface != ""):
			ps.inVRF(i, vrf, "routes", "the route to %s is %s, so it has no next hop and no interface", r.To, r.Type)
		case (r.Type == "" || r.Type == model.RouteUnicast) && len(r.Via) == 0 && r.Interface == "":
			ps.inVRF(i, vrf, "routes", "the route to %s needs a next hop or an interface", r.To)
		case r.Metric < 0:
			ps.inVRF(i, vrf, "routes", "the route to %s: the metric %d is negative", r.To, r.Metric)
		}
		for _, v := range r.Via {
			if v.Is4() && r.To.Addr().Is6() {
				ps.inVRF(i, vrf, "routes", "the route to %s has the IPv4 next hop %s", r.To, v)
			}
			if v.Is6() && r.To.Addr().Is4() {
				ps.inVRF(i, vrf, "routes", "the route to %s has the IPv6 next hop %s", r.To, v)
			}
		}
		if _, is := interfaces[r.Interface]; r.Interface != "" && !is && !ps.mayHave(i, r.Interface) &&
			!ps.ofElement(i, "interfaces") {
			ps.inVRF(i, vrf, "routes", "the route to %s leaves by %s, which is none of its interfaces (%s)", r.To,
				r.Interface, interfaceNames(e))
		} else if r.Interface != "" && is && in[r.Interface] != vrf {
			ps.inVRF(i, vrf, "routes", "the route to %s leaves by %s, which is in %s; routes leave by interfaces of "+
				"their own table", r.To, r.Interface, vrfWords(in[r.Interface]))
		}
	}
}

func vrfWords(name string) string {
	if name == "" {
		return "no VRF"
	}
	return "the VRF " + name
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func interfaceNames(e *model.Element) string {
	var names []string
	for _, f := range e.Interfaces {
		if len(names) == model.MostNamed {
			return strings.Join(names, ", ") + " and others"
		}
		names = append(names, f.Name)
	}
	if len(names) == 0 {
		return "it has none"
	}
	return strings.Join(names, ", ")
}

// looksLikePath recognises a configuration's text that no routing software would take and that was probably meant as a
// path: a single word with a slash or a file extension, or a single line that begins like a path.
func looksLikePath(text string) bool {
	text = strings.TrimSpace(text)
	switch {
	case strings.ContainsAny(text, "\n{};#!"):
		return false
	case strings.HasPrefix(text, "./"), strings.HasPrefix(text, "../"), strings.HasPrefix(text, "/"),
		strings.HasPrefix(text, "~/"):
		return true
	}
	_, extension, dotted := strings.Cut(text, ".")
	return !strings.ContainsAny(text, " \t") && (strings.Contains(text, "/") || dotted && extension != "")
}
