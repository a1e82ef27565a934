package resolve

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// mostDoubts is how many doubts about one network are told one by one.
const mostDoubts = 20

// Doubts tells what is possible and yet cannot work: neighbours that can never be. It may be meant – a lesson may be to
// find it –, so nothing is refused. The network is complete, and resolved is what it was resolved to.
func Doubts(net *model.Network, resolved *model.Resolved) []string {
	d := doubts{layout: newLayout(net), resolved: resolved, owner: map[spaced]int{}}
	for i := range resolved.Elements {
		e := &resolved.Elements[i]
		for _, p := range e.Loopback {
			d.owner[d.ownPlace(i, p.Addr())] = i
		}
		for _, f := range e.Interfaces {
			for _, p := range f.Addresses {
				d.owner[d.placeOf(i, f.Name, p.Addr())] = i
			}
		}
	}
	for i := range d.segments {
		d.ospf(&d.segments[i])
		d.unnumbered(&d.segments[i])
	}
	d.bgp()
	d.policies()
	d.expected()
	if more := len(d.told) - mostDoubts; more > 0 {
		d.told = append(d.told[:mostDoubts:mostDoubts], fmt.Sprintf("and %d more like these", more))
	}
	return d.told
}

type doubts struct {
	*layout
	resolved *model.Resolved
	owner    map[spaced]int // elements by their addresses
	told     []string
}

func (d *doubts) tell(format string, args ...any) {
	d.told = append(d.told, fmt.Sprintf(format, args...))
}

// generated tells whether an element's configuration is made from what the file says of its protocols.
func generated(e *model.ResolvedElement) bool { return e.Kind == model.Router && len(e.Config) == 0 }

// ospf compares what a segment's routers do there with what the first of them does.
func (d *doubts) ospf(s *segment) {
	for _, v := range []struct {
		name string
		v4   bool
		of   func(*model.Routing) *model.OSPF
		at   func(*model.ResolvedInterface) *model.OSPFPort
	}{
		{"OSPF", true, func(r *model.Routing) *model.OSPF { return r.OSPF },
			func(f *model.ResolvedInterface) *model.OSPFPort { return f.OSPF }},
		{"OSPFv3", false, func(r *model.Routing) *model.OSPF { return r.OSPF6 },
			func(f *model.ResolvedInterface) *model.OSPFPort { return f.OSPF6 }},
	} {
		var first *model.ResolvedElement
		var was model.OSPFThere
		for _, m := range s.members {
			e := &d.resolved.Elements[m.element]
			f := &e.Interfaces[m.iface]
			routing := routingAt(e, f.VRF)
			o := v.of(&routing)
			if o == nil || !v.at(f).Runs() || !generated(e) || v.v4 && !hasIPv4(f.Addresses) || e == first {
				continue
			}
			is := o.There(v.at(f), len(s.switches) == 0 && !s.edge, false)
			if is.Passive {
				continue // it is meant to speak to nobody
			}
			if first == nil {
				first, was = e, is
				continue
			}
			if a, b := first.Routing.BGP, e.Routing.BGP; a != nil && b != nil && a.AS != b.AS {
				continue // two systems meet here by BGP, each with an OSPF of its own
			}
			switch {
			case was.Area != is.Area:
				d.tell("%s: %s is in %s area %s and %s in area %s, so they will not be neighbours there; "+
					"give both the same area", d.where(s), first.Name, v.name, was.Area, e.Name, is.Area)
			case was.Hello != is.Hello || was.Dead != is.Dead:
				d.tell("%s: %s says hello every %d s by %s and is dead after %d s, %s every %d s and after %d s, "+
					"so they will not be neighbours there; give both the same hello and dead", d.where(s), first.Name,
					was.Hello, v.name, was.Dead, e.Name, is.Hello, is.Dead)
			case was.PointToPoint != is.PointToPoint:
				d.tell("%s: to %s of %s the network there is %s, to %s it is %s, so no routes will lead over it; give "+
					"both the same network", d.where(s), v.name, first.Name, networkOf(was), e.Name, networkOf(is))
			}
		}
	}
}

func networkOf(t model.OSPFThere) model.OSPFNetwork {
	if t.PointToPoint {
		return model.PointToPoint
	}
	return model.Broadcast
}

func hasIPv4(addresses []netip.Prefix) bool {
	return slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return p.Addr().Is4() })
}

// where names a segment: its link, or its first switch.
func (d *doubts) where(s *segment) string {
	if len(s.switches) > 0 {
		return "switch " + d.net.Elements[s.switches[0]].Name
	}
	if len(s.links) > 0 {
		return "link " + d.net.Links[s.links[0]].Name
	}
	return "network " + d.net.Name
}

// expected looks for expectations of protocols that nobody speaks by what the file says. Who is given none at all may
// be configured inside.
func (d *doubts) expected() {
	for _, x := range d.net.Expect {
		if x.What == "" || x.Protocol == "" {
			continue
		}
		names := []string{x.From}
		if x.What == model.KnownNeighbour {
			names = append(names, x.To)
		}
		for _, name := range names {
			i, known := d.elements[name]
			if !known {
				continue
			}
			e := &d.resolved.Elements[i]
			speaks := e.Spoken()
			if generated(e) && len(speaks) > 0 && !slices.Contains(speaks, x.Protocol) {
				d.tell("expect: %q: %s speaks %s, and no %s", x.String(), name, strings.Join(speaks, " and "),
					x.Protocol)
			}
		}
	}
}
