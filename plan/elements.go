package plan

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// diffElements compares the elements, and the interfaces of those that stay.
func diffElements(old, new model.Network, emit func(Change)) {
	before := make(map[string]*model.Element, len(old.Elements))
	for i := range old.Elements {
		before[old.Elements[i].Name] = &old.Elements[i]
	}
	after := make(map[string]bool, len(new.Elements))
	wasJoined, isJoined := joined(old), joined(new)
	for i := range new.Elements {
		n := &new.Elements[i]
		after[n.Name] = true
		o := before[n.Name]
		if o == nil {
			emit(Change{Action: Create, Kind: string(n.Kind), Object: n.Name,
				Details: withInterfaces(n), Effect: inPlace})
			continue
		}
		if d := fields(*o, *n); len(d) > 0 {
			c := Change{Action: Modify, Kind: string(n.Kind), Object: n.Name, Details: d}
			c.Effect, c.Disturbs = elementEffect(o, n, d)
			emit(c)
		}
		diffInterfaces(o, n, wasJoined, isJoined, emit)
	}
	for i := range old.Elements {
		if o := &old.Elements[i]; !after[o.Name] {
			emit(Change{Action: Delete, Kind: string(o.Kind), Object: o.Name,
				Effect: "ends it and what it keeps on disk", Disturbs: true})
		}
	}
}

// ends are those that links and edges use, and whether their links are trunks.
type ends map[model.End]bool

func joined(net model.Network) ends {
	all := make(ends, 2*len(net.Links))
	for _, l := range net.Links {
		for _, end := range l.Ends {
			all[end] = l.VLANs != ""
		}
	}
	for _, e := range net.Edges {
		all[e.End] = false
	}
	return all
}

// isVLAN tells whether an interface is that of a VLAN on one of the ends: it comes and goes with the link's VLANs.
func (all ends) isVLAN(end model.End) bool {
	at := strings.LastIndexByte(end.Interface, '.')
	if _, itself := all[end]; at < 0 || itself {
		return false
	}
	vlan, err := strconv.Atoi(end.Interface[at+1:])
	return err == nil && vlan > 0 && vlan <= model.MaxVLAN &&
		all[model.End{Element: end.Element, Interface: end.Interface[:at]}]
}

// has tells whether an interface is one of the ends, or that of a VLAN on one.
func (all ends) has(end model.End) bool {
	_, is := all[end]
	return is || all.isVLAN(end)
}

// diffInterfaces compares two elements' interfaces. If one comes or goes with its link and states nothing itself, only
// the link is told.
func diffInterfaces(old, new *model.Element, wasJoined, isJoined ends, emit func(Change)) {
	object := func(i model.Interface) string { return new.Name + ":" + i.Name }
	before := each.By(old.Interfaces, func(o model.Interface) string { return o.Name })
	after := make(map[string]bool, len(new.Interfaces))
	for _, n := range new.Interfaces {
		after[n.Name] = true
		o, was := before[n.Name]
		if !was {
			d := set(n)
			end := model.End{Element: new.Name, Interface: n.Name}
			if len(d) > 0 || !isJoined.has(end) || wasJoined.has(end) && !isJoined.isVLAN(end) {
				emit(Change{Action: Create, Kind: "interface", Object: object(n), Details: d, Effect: inPlace})
			}
			continue
		}
		if d := fields(o, n); len(d) > 0 {
			effect, disturbs := interfaceEffect(&o, &n, d)
			emit(Change{Action: Modify, Kind: "interface", Object: object(n), Details: d, Effect: effect,
				Disturbs: disturbs})
		}
	}
	for _, o := range old.Interfaces {
		if after[o.Name] {
			continue
		}
		end := model.End{Element: old.Name, Interface: o.Name}
		if len(set(o)) > 0 || !wasJoined.has(end) || isJoined.has(end) && !wasJoined.isVLAN(end) {
			emit(Change{Action: Delete, Kind: "interface", Object: object(o),
				Effect: "cuts what goes over it", Disturbs: true})
		}
	}
}

// interfaceEffect says what traffic notices when an interface becomes another one in these fields.
func interfaceEffect(old, new *model.Interface, details []Detail) (string, bool) {
	for _, d := range details {
		if protocol, _, _ := strings.Cut(d.Field, "."); protocol != "ospf" && protocol != "ospf6" {
			return "renumbers it", true
		}
	}
	for _, p := range [][2]*model.OSPFPort{{old.OSPF, new.OSPF}, {old.OSPF6, new.OSPF6}} {
		var was, is model.OSPFPort
		if p[0] != nil {
			was = *p[0]
		}
		if p[1] != nil {
			is = *p[1]
		}
		if was.Off != is.Off || was.Area != is.Area || was.Network != is.Network || was.Passive != is.Passive {
			return "finds its OSPF neighbours there anew", true
		}
	}
	return inPlace, false
}

// withInterfaces are the fields of a new element, with those of its interfaces.
func withInterfaces(n *model.Element) []Detail {
	details := slices.DeleteFunc(set(*n), func(d Detail) bool { return d.Field == "kind" })
	for _, i := range n.Interfaces {
		for _, d := range set(i) {
			d.Field = i.Name + "." + d.Field
			details = append(details, d)
		}
	}
	return details
}

// elementEffect says what traffic notices when these fields of an element change: the worst effect of any of them.
func elementEffect(old, new *model.Element, details []Detail) (string, bool) {
	software := new.Software == model.SoftwareFRR || new.Software == model.SoftwareBIRD
	rank, effect := 0, inPlace
	worst := func(r int, e string) {
		if r > rank {
			rank, effect = r, e
		}
	}
	for _, d := range details {
		first, _, _ := strings.Cut(d.Field, ".")
		if model.InPlace(first) {
			continue
		}
		switch first {
		case "prefixes":
		case "mpls": // the kernel's
		case "vrrp":
			worst(1, "its routers load it; FRR is restarted where it begins or ends with VRRP")
		case "vrfs":
			vrfEffect(old, new, software, worst)
		case "stp":
			worst(1, "its ports pass nothing for some seconds")
		case "kind":
			worst(4, "makes "+new.Name+" anew")
		case "node", "location":
			if new.Node != "" || new.Location != "" {
				worst(3, "may move "+new.Name+" to another node")
			}
		case "control", "software", "tmpfs":
			if first != "tmpfs" || old.HasProcesses() && new.HasProcesses() {
				worst(2, "restarts "+new.Name)
			}
		case "image":
			if old.HasProcesses() {
				worst(2, "restarts "+new.Name)
			}
		case "stop", "restart", "ready":
			serviceEffect(old, new, worst)
		case "start", "run", "env":
			serviceEffect(old, new, worst)
			if old.IsServed() && new.IsServed() && (first == "run" || first == "env" && new.HasService()) {
				worst(1, "restarts the service of "+new.Name)
			}
		case "files": // routing software does not read them
			if old.HasProcesses() && new.HasProcesses() && old.HasService() && new.HasService() {
				worst(1, "restarts the service of "+new.Name)
			}
			serviceEffect(old, new, worst)
		// loopback, gateways, routes, routing, config, routerID: the kernel's, or in the software's configuration
		default:
			switch {
			case software && otherDaemons(new, d):
				worst(2, "restarts "+new.Name)
			case software:
				worst(1, "reloads "+new.Name)
			}
		}
	}
	return effect, rank > 0
}

// vrfEffect says what it is to a router that its VRFs change.
func vrfEffect(old, new *model.Element, software bool, worst func(int, string)) {
	in := func(e *model.Element) map[string]string {
		of := map[string]string{}
		for _, name := range e.VRFNames() {
			for _, f := range e.VRFs[name].Interfaces {
				of[f] = name
			}
		}
		return of
	}
	switch {
	case new.Software == model.SoftwareFRR && !slices.Equal(old.Spoken(), new.Spoken()):
		worst(2, "restarts "+new.Name)
	case !maps.Equal(in(old), in(new)):
		worst(1, "cuts for a moment what goes over interfaces that enter or leave a VRF")
	case software:
		worst(1, "reloads "+new.Name)
	}
}

// serviceEffect says what it is to an element that something begins to be run in it, or nothing is run in it any more.
// Routing software has to be restarted for that. As long as something is run, another command changes nothing but that.
func serviceEffect(old, new *model.Element, worst func(int, string)) {
	switch {
	case old.IsServed() == new.IsServed():
	case new.RunsRouting():
		worst(2, "restarts "+new.Name)
	case !new.IsServed():
		worst(1, "ends the service of "+new.Name)
	}
}

// otherDaemons returns whether FRR must run other daemons than before, or may have to: because a protocol comes or
// goes, or because the document's own configuration changes.
func otherDaemons(new *model.Element, d Detail) bool {
	if new.Software != model.SoftwareFRR {
		return false
	}
	return strings.HasPrefix(d.Field, "config.") && (d.Old == "" || d.New == "" || d.Field == "config.daemons") ||
		strings.HasPrefix(d.Field, "routing.") && strings.Count(d.Field, ".") == 1 && (d.Old == "" || d.New == "")
}
