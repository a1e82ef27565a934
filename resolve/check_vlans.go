package resolve

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// maxCarried is how many VLANs the links of a network may carry together.
const maxCarried = 1 << 16

// boundVLANs counts the VLANs of links before they are worked out.
func (ps *problems) boundVLANs() {
	var lists [model.MaxVLAN + 1]bool
	lists[model.DefaultVLAN] = true
	known, carried, all := 1, 0, 0
	for i := range ps.net.Links {
		l := &ps.net.Links[i]
		if len(l.VLANs) > maxVLANsText {
			ps.link(i, "vlans", "its VLANs take %s characters; %s are allowed", thousands(len(l.VLANs)),
				thousands(maxVLANsText))
			return
		}
		if l.VLANs == model.AllVLANs {
			all++
		}
		list := l.VLANs.List()
		carried += len(list)
		if l.VLAN > 0 && l.VLAN <= model.MaxVLAN {
			list = append(list, l.VLAN)
		}
		for _, n := range list {
			if !lists[n] {
				lists[n], known = true, known+1
			}
		}
	}
	if carried += all * known; carried > maxCarried {
		ps.network("links", "its links carry %s VLANs together; %s are allowed", thousands(carried),
			thousands(maxCarried))
	}
	for i := range ps.net.Elements {
		if n := len(ps.net.Elements[i].VLANs); n > model.MaxVLAN {
			ps.element(i, "vlans", "it has %s VLANs; %s are allowed", thousands(n), thousands(model.MaxVLAN))
		}
	}
}

// maxVLANsText is longer than all VLANs, each by itself.
const maxVLANsText = 6 * model.MaxVLAN

// unsureVLANs tells whether a part of what VLANs follow from is not known.
func (ps *problems) unsureVLANs() bool {
	if ps.unknown == nil {
		return false
	}
	u := ps.unknown
	if u.Links.All || len(u.Links.Of) > 0 || len(u.Links.Prefixes) > 0 {
		return true
	}
	for i := range ps.net.Links {
		if ps.ofLink(i, "vlan", "vlans") {
			return true
		}
	}
	return false
}

// checkVLANs tells what is wrong with the VLANs of links and switches.
func (ps *problems) checkVLANs(l *layout) {
	unsure := ps.unsureVLANs()
	for i := range ps.net.Links {
		ps.checkLinkVLANs(i, l, unsure)
	}
	at := map[int]map[int]bool{} // the VLANs of each switch
	for _, s := range l.segments {
		for _, e := range s.switches {
			if at[e] == nil {
				at[e] = map[int]bool{}
			}
			at[e][s.vlan] = true
		}
	}
	tagged := map[string][]taggedEnd{} // by element
	for n := range ps.net.Links {
		if c := &l.vlans.links[n]; len(c.tagged) > 0 {
			for _, end := range ps.net.Links[n].Ends {
				tagged[end.Element] = append(tagged[end.Element], taggedEnd{end, c})
			}
		}
	}
	for i := range ps.net.Elements {
		e := &ps.net.Elements[i]
		if e.Kind != model.Switch {
			if len(e.VLANs) > 0 {
				ps.element(i, "vlans", "vlans are the subnets of a switch's VLANs; a %s has addresses", e.Kind)
			}
			ps.checkVLANDevices(i, l, tagged[e.Name])
			continue
		}
		report := func(format string, args ...any) { ps.element(i, "vlans", format, args...) }
		for _, key := range slices.Sorted(maps.Keys(e.VLANs)) {
			ps.checkPrefixes(e.VLANs[key], func(format string, args ...any) {
				report("VLAN %s: %s", key, fmt.Sprintf(format, args...))
			})
			n, err := strconv.Atoi(key)
			switch {
			case err != nil || n < 1 || n > model.MaxVLAN || strconv.Itoa(n) != key:
				report("the VLAN %q is not between 1 and %d", key, model.MaxVLAN)
			case !unsure && !at[i][n]:
				report("none of its links carries the VLAN %d; a link has vlan: %d, or vlans: [%d, …]", n, n, n)
			}
		}
		aware := l.vlans.of[i] != nil
		if aware && len(e.Prefixes) > 0 && !at[i][model.DefaultVLAN] && !unsure {
			ps.element(i, "prefixes", "prefixes are those of VLAN %d where a switch has VLANs, and none of its links "+
				"is in it; state them by VLAN: vlans: {10: 10.0.10.0/24}", model.DefaultVLAN)
		}
		if aware && len(e.VRRP) > 0 {
			ps.element(i, "vrrp", "a switch with VLANs has no virtual routers: nobody could tell of which VLAN; "+
				"join the routers at a switch without VLANs")
		}
		if aware && e.Forwarding != model.ForwardBridge && !ps.ofElement(i, "forwarding") {
			ps.element(i, "forwarding", "VLANs are the kernel's bridge's: they take forwarding: bridge, and not %s",
				e.Forwarding)
		}
	}
}

// checkLinkVLANs tells what is wrong with one link's. Numbers are looked at with its other keys.
func (ps *problems) checkLinkVLANs(i int, l *layout, unsure bool) {
	link := &ps.net.Links[i]
	a, b, ok := l.ends(*link)
	if !ok || link.VLAN == 0 && link.VLANs == "" || ps.ofLink(i, "vlan", "vlans") {
		return
	}
	switched := isSwitch(ps.net, a) || isSwitch(ps.net, b)
	switch {
	case !switched && link.VLANs == "":
		ps.link(i, "vlan", "neither of its ends is a switch, whose port could be in the VLAN %d; name the VLANs of "+
			"its frames with tags: vlans: %d", link.VLAN, link.VLAN)
		return
	case !switched && link.VLANs == model.AllVLANs:
		ps.link(i, "vlans", "neither of its ends is a switch, whose VLANs could be all; name them: vlans: [10, 20]")
		return
	case len(l.vlans.links[i].tagged) == 0 && link.VLANs != "" && link.VLANs.Problem() == "" && !unsure:
		ps.link(i, "vlans", "its switches have no VLANs beside the one of frames without a tag; name some: "+
			"vlans: [10, 20]")
	case slices.Contains(link.VLANs.List(), link.VLAN):
		ps.link(i, "vlans", "the VLAN %d is that of frames without a tag (vlan) and of frames with one (vlans); leave "+
			"it out of one of them", link.VLAN)
	}
	if link.VLANs != "" && link.VLAN == 0 && len(link.Prefixes) > 0 {
		where := "with a switch, vlans: {10: 10.0.10.0/24}, or with a link that has vlan: 10"
		if !switched {
			where = "by the addresses of its interfaces, like " + model.VLANInterface(link.Ends[0].Interface, 10)
		}
		ps.link(i, "prefixes", "it states %s, and each of its VLANs has a subnet of its own; state it %s",
			link.Prefixes[0], where)
	}
}

// taggedEnd is the end of a link that carries VLANs with tags.
type taggedEnd struct {
	model.End
	carries *carriage
}

// checkVLANDevices looks at the interfaces of VLANs of a router or a host.
func (ps *problems) checkVLANDevices(i int, l *layout, ends []taggedEnd) {
	e := &ps.net.Elements[i]
	devices := 0
	for _, end := range ends {
		devices += len(end.carries.tagged)
		for _, name := range end.carries.impliedBy(end.End) {
			k, ok := l.interfaces[model.End{Element: e.Name, Interface: name}]
			if ok && e.Interfaces[k].MAC != "" {
				ps.element(i, "interfaces/"+name+"/mac", "interface %s: it is that of a VLAN, and has the MAC address "+
					"of %s; state it there", name, end.Interface)
			}
		}
	}
	if most := e.Limits().Devices; devices > most && !ps.ofElement(i, "devices") {
		ps.element(i, "devices", "its links carry %s VLANs, each of which is a network device, and it may have %s; "+
			"raise devices, or leave VLANs out", thousands(devices), thousands(most))
	}
}

// loopOf says which VLANs of a link close a loop.
func loopOf(c *carriage) string {
	if !c.aware() {
		return ""
	}
	words := strings.ReplaceAll(string(model.VLANsOf(slices.Clone(c.all()))), ",", ", ")
	return " of VLAN " + words
}
