package resolve

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// table is one of a router's tables: that of a VRF, or with "" its own. Elements of other kinds have one.
type table struct {
	element int
	vrf     string
}

// vrfs is what VRFs a network has. Segments are in one space with each other where somebody routes between them, or has
// an interface on both: what is in another space may have the same addresses.
type vrfs struct {
	of     map[model.End]string // interfaces that are in one
	unsure func(element int) bool
	spaces map[table]int // 0 stands for what no VRF is in
}

// newVRFs reads it of a network; the segments are its layout's. Where it is not known which VRFs an element has, each
// of its interfaces is in a table of its own: what is in one space then is so for certain.
func (l *layout) newVRFs(unsure func(element int) bool) {
	some := false
	for i := range l.net.Elements {
		some = some || len(l.net.Elements[i].VRFs) > 0 || unsure != nil && unsure(i)
	}
	if !some {
		return
	}
	l.vrfs = vrfs{of: map[model.End]string{}, unsure: unsure, spaces: map[table]int{}}
	for i := range l.net.Elements {
		e := &l.net.Elements[i]
		for _, name := range e.VRFNames() {
			for _, f := range e.VRFs[name].Interfaces {
				l.vrfs.of[model.End{Element: e.Name, Interface: f}] = name
			}
		}
	}
	joined := sets[table]{}
	for _, s := range l.segments {
		for _, m := range s.members {
			joined.join(l.tableOf(s.members[0]), l.tableOf(m))
		}
	}
	numbers := map[table]int{} // by root
	number := func(t table) {
		if root := joined.root(t); numbers[root] == 0 {
			numbers[root] = len(numbers) + 1
		}
	}
	var all []table
	for i := range l.net.Elements {
		e := &l.net.Elements[i]
		all = append(all, table{i, ""})
		for _, name := range e.VRFNames() {
			all = append(all, table{i, name})
			number(table{i, name})
		}
		if unsure != nil && unsure(i) {
			for _, f := range e.Interfaces {
				all = append(all, l.tableAt(i, f.Name))
				number(l.tableAt(i, f.Name))
			}
		}
	}
	for _, t := range all {
		l.vrfs.spaces[t] = numbers[joined.root(t)]
	}
}

// vrfOf is the VRF that a member's interface is in; empty if it is in none.
func (l *layout) vrfOf(m member) string {
	if l.vrfs.of == nil {
		return ""
	}
	e := &l.net.Elements[m.element]
	return l.vrfs.of[model.End{Element: e.Name, Interface: e.Interfaces[m.iface].Name}]
}

// tableAt is the table that an element's interface is in.
func (l *layout) tableAt(i int, iface string) table {
	if l.vrfs.unsure != nil && l.vrfs.unsure(i) {
		return table{i, "?" + iface}
	}
	return table{i, l.vrfs.of[model.End{Element: l.net.Elements[i].Name, Interface: iface}]}
}

func (l *layout) tableOf(m member) table {
	if l.vrfs.of == nil {
		return table{m.element, ""}
	}
	return l.tableAt(m.element, l.net.Elements[m.element].Interfaces[m.iface].Name)
}

// spaceOf is the space of a segment.
func (l *layout) spaceOf(s *segment) int {
	if l.vrfs.spaces == nil || len(s.members) == 0 {
		return 0
	}
	return l.vrfs.spaces[l.tableOf(s.members[0])]
}

// spaced is an address in a space.
type spaced struct {
	space int
	addr  netip.Addr
}

// placeOf is an address of an element's interface.
func (l *layout) placeOf(i int, iface string, a netip.Addr) spaced {
	if l.vrfs.spaces == nil {
		return spaced{0, a}
	}
	return spaced{l.vrfs.spaces[l.tableAt(i, iface)], a}
}

// ownPlace is an address of an element that is in none of its VRFs.
func (l *layout) ownPlace(i int, a netip.Addr) spaced { return spaced{l.vrfs.spaces[table{i, ""}], a} }

// spacesOf are the spaces of the elements themselves, by name, where there is more than one.
func (l *layout) spacesOf() map[string]int {
	var all map[string]int
	for i := range l.net.Elements {
		if n := l.vrfs.spaces[table{i, ""}]; n != 0 {
			if all == nil {
				all = map[string]int{}
			}
			all[l.net.Elements[i].Name] = n
		}
	}
	return all
}

// inVRFs tells interfaces which VRF they are in.
func (r *resolver) inVRFs() {
	for i := range r.out.Elements {
		e := &r.out.Elements[i]
		for k := range e.Interfaces {
			e.Interfaces[k].VRF = r.vrfs.of[model.End{Element: e.Name, Interface: e.Interfaces[k].Name}]
		}
	}
	r.out.Spaces = r.spacesOf()
}

// routingAt is what an element speaks in one of its tables.
func routingAt[I any](e *model.ElementOf[I], vrf string) model.Routing {
	if vrf == "" {
		return e.Routing
	}
	return e.VRFs[vrf].Routing()
}

// unsureVRFs tells whether an element may have VRFs that are not known, or other interfaces in them.
func (ps *problems) unsureVRFs(i int) bool {
	return ps.net.Elements[i].Kind == model.Router && ps.ofElement(i, "vrfs")
}

// inVRF reports what is wrong in one of an element's tables; with "" it is the element's own.
func (ps *problems) inVRF(i int, vrf, field, format string, args ...any) {
	if vrf != "" {
		field, format, args = "vrfs/"+vrf+"/"+field, "VRF %s: "+format, append([]any{vrf}, args...)
	}
	ps.element(i, field, format, args...)
}

// checkVRFs looks at the VRFs of one element. Its routes are checkRoutes's.
func (ps *problems) checkVRFs(i int) {
	e := &ps.net.Elements[i]
	if len(e.VRFs) == 0 {
		return
	}
	if e.Kind != model.Router {
		ps.element(i, "vrfs", "a %s has no VRFs: vrfs is for routers", e.Kind)
		return
	}
	if e.Forwarding != model.ForwardGuest && !ps.ofElement(i, "forwarding") {
		ps.element(i, "vrfs", "who forwards for a router from outside knows one table: vrfs takes forwarding: guest, "+
			"and not %s", e.Forwarding)
	}
	if e.Software == model.SoftwareBIRD && !ps.ofElement(i, "software") {
		ps.element(i, "vrfs", "BIRD's tables have numbers, which VRFs get in the router only; take frr or static")
	}
	if len(e.MPLS) > 0 {
		ps.element(i, "vrfs", "where labels are taken off, packets go by the router's own table, and leave a VRF; a "+
			"router has mpls or vrfs")
	}
	owner, devices := map[string]string{}, map[string]string{}
	for _, f := range e.Interfaces {
		devices[model.DeviceName(f.Name)] = f.Name
	}
	for _, name := range e.VRFNames() {
		v := e.VRFs[name]
		if err := model.CheckVRF(name); err != nil {
			ps.element(i, "vrfs/"+name, "%v", err)
		}
		if f := devices[name]; f != "" {
			ps.element(i, "vrfs/"+name, "VRF %s: it would be called like the interface %s, and both are devices; "+
				"rename one", name, f)
		}
		for _, f := range v.Interfaces {
			other, twice := owner[f]
			switch owner[f] = name; {
			case twice && other == name:
				ps.inVRF(i, name, "interfaces", "it has the interface %s twice", f)
			case twice:
				ps.inVRF(i, name, "interfaces", "its interface %s is in the VRF %s already; an interface is in one", f,
					other)
			case devices[model.DeviceName(f)] != f && !ps.mayHave(i, f) && !ps.ofElement(i, "interfaces"):
				ps.inVRF(i, name, "interfaces", "%s is none of the router's interfaces (%s)", f, interfaceNames(e))
			}
		}
		ps.checkVRFRouting(i, name)
	}
	if b := e.Routing.BGP; b != nil {
		for _, n := range b.Neighbors {
			if owner[n.Interface] != "" && n.Interface != "" {
				ps.element(i, "routing/bgp/neighbors", "its BGP neighbour is at %s, which is in the VRF %s; BGP is "+
					"spoken in none", n.Interface, owner[n.Interface])
			}
		}
	}
}

// checkVRFRouting looks at routing in one VRF, as checkSoftware and checkIntents do for the whole router. Less can be
// redistributed: BGP, IS-IS and RIP run in none.
func (ps *problems) checkVRFRouting(i int, name string) {
	e := &ps.net.Elements[i]
	v := e.VRFs[name]
	r := v.Routing()
	known := !ps.ofElement(i, "software")
	if known && r.Any() && e.Software != model.SoftwareFRR && e.Software != model.SoftwareBIRD {
		ps.inVRF(i, name, r.Protocols()[0], "software: %s speaks no routing protocol, but %s is asked for; take frr",
			e.Software, strings.Join(r.Protocols(), ", "))
	}
	if known && e.Software == model.SoftwareNone && len(v.Routes) > 0 {
		ps.inVRF(i, name, "routes", "software: none has no routes but the connected ones; take static")
	}
	if v.RouterID.IsValid() && (!v.RouterID.Is4() || v.RouterID.IsUnspecified()) {
		ps.inVRF(i, name, "routerID", "the router ID %s is not in dotted form, like 10.255.0.1", v.RouterID)
	}
	checkOSPF(&r, func(field, format string, args ...any) { ps.inVRF(i, name, field, format, args...) })
	for k, o := range []*model.OSPF{v.OSPF, v.OSPF6} {
		self := []string{"ospf", "ospf6"}[k]
		if o == nil {
			continue
		}
		for _, w := range o.Redistribute {
			if !slices.Contains([]string{"connected", "static", "kernel", "ospf", "ospf6"}, w) || w == self {
				ps.inVRF(i, name, self+"/redistribute", "%s cannot redistribute %q in a VRF; there are %s", self, w,
					model.Either([]string{"connected", "static", "kernel"}))
			}
		}
	}
	r.CheckTimers(func(protocol, key, beside, problem string) {
		if beside == "" || !ps.ofElement(i, "vrfs") {
			ps.inVRF(i, name, protocol+"/"+key, "%s", problem)
		}
	})
}

// checkInVRFs looks for what there is at interfaces of VRFs that cannot be there.
func (ps *problems) checkInVRFs(l *layout) {
	if l.vrfs.of == nil {
		return
	}
	for k := range l.segments {
		s := &l.segments[k]
		for _, m := range s.members {
			vrf := l.vrfOf(m)
			if vrf == "" {
				continue
			}
			f := l.interfaceOf(m)
			report := func(format string, args ...any) { ps.inVRF(m.element, vrf, "interfaces", format, args...) }
			if len(s.internet) > 0 {
				report("on the segment of %s is the internet edge %s, whose way out is a route that is in no VRF; "+
					"take an interface that is in none", f.Name, ps.net.Edges[s.internet[0]].Name)
			}
			if m.link >= 0 && ps.net.Links[m.link].BFD != "" && !ps.ofLink(m.link, "bfd") {
				report("link %s has bfd, and %s is in a VRF, where BFD is not spoken; write bfd: false there",
					ps.net.Links[m.link].Name, f.Name)
			}
			for _, sw := range s.switches {
				for n := range ps.net.Elements[sw].VRRP {
					if slices.ContainsFunc(l.partners(s, &ps.net.Elements[sw].VRRP[n]),
						func(p member) bool { return p == m }) {
						report("%s would take part in VRRP at switch %s, and is in a VRF, where VRRP is not spoken; "+
							"name others under priority", f.Name, ps.net.Elements[sw].Name)
					}
				}
			}
		}
	}
}
