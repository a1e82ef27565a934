package resolve

import (
	"cmp"
	"slices"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// checkExpectations looks at what is to be checked of the running network: it must be about elements that there are,
// and be something that they can do or say.
func (ps *problems) checkExpectations(l *layout) {
	for i, x := range ps.net.Expect {
		report := func(format string, args ...any) {
			ps.add(model.AboutExpect, i, x.From+" "+x.To, "", "expect: "+format, args...)
		}
		if x.OfSwitch() {
			ps.checkTreeExpectation(&x, l, report)
			continue
		}
		names := []string{x.From, x.To}
		if x.What != "" && x.What != model.KnownNeighbour && x.To == "" {
			names = names[:1] // by whomever, or by an address
		}
		for _, name := range names {
			e, ok := l.elements[name]
			switch {
			case !ok && ps.mayBe(name):
			case !ok:
				report("there is no router or host %s%s", name, ps.near(name))
			case ps.net.Elements[e].Kind == model.Switch && x.What != "":
				report("%s is a switch, which has no routes and is nobody's neighbour; name a router", name)
			case ps.net.Elements[e].Kind == model.Switch:
				report("%s is a switch, which has no address to reach or to be reached; name a host or a router", name)
			}
		}
		if x.From == x.To {
			if x.What == "" {
				report("%s always reaches itself; name two elements", x.From)
			} else {
				report("%s is not its own neighbour; name two elements", x.From)
			}
		}
		if x.Family != model.AnyFamily && x.Family != model.IPv4 && x.Family != model.IPv6 {
			report("the address family %q is unknown; there are ipv4 and ipv6", x.Family)
		}
		if x.What != "" {
			ps.checkKnown(i, l, report)
		}
	}
}

// checkKnown looks at what is expected to be known of an element's routing: its software must be able to say it.
func (ps *problems) checkKnown(i int, l *layout, report func(format string, args ...any)) {
	x := &ps.net.Expect[i]
	if problem := x.Known.Problem(); problem != "" {
		report("%s", problem)
		return
	}
	if x.Family != model.AnyFamily && (x.What != model.KnownNeighbour || x.Protocol != "bgp") {
		report("over is for what is reached, and for sessions of BGP")
	}
	e, ok := l.elements[x.From]
	if ok && x.VRF != "" && !ps.ofElement(e, "vrfs") {
		if from := &ps.net.Elements[e]; !slices.Contains(from.VRFNames(), x.VRF) {
			report("%s has no VRF %s; there is %s", x.From, x.VRF, cmp.Or(model.Either(from.VRFNames()), "none"))
			return
		}
	}
	if ok && x.What == model.KnownVirtual {
		ps.checkVirtualExpected(e, x, l, report)
		return
	}
	if !ok || x.Protocol == "" || ps.net.Elements[e].Kind == model.Switch || ps.ofElement(e, "software") {
		return
	}
	switch from := &ps.net.Elements[e]; {
	case from.Kind != model.Router:
		report("%s is a host, which speaks no %s; a route without a protocol is the kernel's: %s route …", x.From,
			model.ProtocolName(x.Protocol), x.From)
	case from.Software != model.SoftwareFRR && from.Software != model.SoftwareBIRD:
		report("%s has software: %s, which speaks no %s; take frr or bird, or expect a route of the kernel: %s route …",
			x.From, from.Software, model.ProtocolName(x.Protocol), x.From)
	case from.Software == model.SoftwareBIRD && x.Protocol == "isis":
		report("%s runs BIRD, which speaks no IS-IS; take frr", x.From)
	}
}

// checkTreeExpectation looks at what is expected of a spanning tree: its switches must run one.
func (ps *problems) checkTreeExpectation(x *model.Expectation, l *layout, report func(format string, args ...any)) {
	if problem := x.Known.Problem(); problem != "" {
		report("%s", problem)
		return
	}
	if x.Family != model.AnyFamily {
		report("a spanning tree has no address family")
	}
	for _, name := range []string{x.From, x.To} {
		if name == "" {
			continue
		}
		i, ok := l.elements[name]
		switch {
		case !ok && ps.mayBe(name):
		case !ok:
			report("there is no switch %s%s", name, ps.near(name))
		case ps.net.Elements[i].Kind != model.Switch:
			report("%s is a %s, which is in no spanning tree; name a switch", name, ps.net.Elements[i].Kind)
		case ps.net.Elements[i].STP == "" && !ps.ofElement(i, "stp"):
			report("%s runs no spanning tree; give it stp: true", name)
		}
	}
	i, ok := l.elements[x.From]
	if x.What != model.KnownTreePort || !ok || ps.mayHave(i, x.Interface) {
		return
	}
	e := &ps.net.Elements[i]
	if !slices.ContainsFunc(e.Interfaces, func(f model.Interface) bool { return f.Name == x.Interface }) {
		names := each.Of(e.Interfaces, func(f model.Interface) string { return f.Name })
		report("%s has no port %s; there is %s", x.From, x.Interface, cmp.Or(model.Either(names), "none"))
	}
}
