package resolve

import (
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// carriage is which VLANs a link carries. A link of switches without VLANs carries none, and all frames.
type carriage struct {
	untagged int   // 0: none
	tagged   []int // ascending
}

// aware tells whether there are VLANs on the link at all.
func (c *carriage) aware() bool { return c.untagged != 0 || len(c.tagged) > 0 }

// all are the link's VLANs; of one that has none the number 0 stands for all of its frames.
func (c *carriage) all() []int {
	if !c.aware() {
		return []int{0}
	}
	if c.untagged == 0 {
		return c.tagged
	}
	return append([]int{c.untagged}, c.tagged...)
}

// vlans is what VLANs a network has.
type vlans struct {
	links []carriage    // by index in Links
	of    map[int][]int // the VLANs of a switch that has some, by index in Elements: those of all that it is joined to
}

// vlansOf works out which VLANs links carry. Connected switches have VLANs together: once a link of one of them names
// any, the links that say nothing are in the VLAN 1, as at any switch.
func vlansOf(net *model.Network) vlans {
	v := vlans{links: make([]carriage, len(net.Links)), of: map[int][]int{}}
	if !slices.ContainsFunc(net.Links, func(l model.Link) bool { return l.VLAN != 0 || l.VLANs != "" }) {
		return v
	}
	elements := make(map[string]int, len(net.Elements))
	groups := sets[int]{}
	for i := range net.Elements {
		elements[net.Elements[i].Name] = i
	}
	isSwitch := func(name string) (int, bool) {
		i, ok := elements[name]
		return i, ok && net.Elements[i].Kind == model.Switch
	}
	for _, l := range net.Links {
		a, one := isSwitch(l.Ends[0].Element)
		if b, other := isSwitch(l.Ends[1].Element); one && other {
			groups.join(a, b)
		}
	}
	group := func(l model.Link) (int, bool) { // of the link's switches
		for _, end := range l.Ends {
			if i, is := isSwitch(end.Element); is {
				return groups.root(i), true
			}
		}
		return 0, false
	}
	type has struct {
		named  bool // a link names a VLAN
		silent bool // a link or an edge says nothing
		vlans  []int
	}
	known := map[int]*has{}
	of := func(g int) *has {
		if known[g] == nil {
			known[g] = &has{}
		}
		return known[g]
	}
	for _, l := range net.Links {
		g, ok := group(l)
		switch {
		case !ok:
		case l.VLAN == 0 && l.VLANs == "":
			of(g).silent = true
		default:
			h := of(g)
			h.named = true
			h.vlans = append(h.vlans, l.VLANs.List()...)
			if l.VLAN != 0 {
				h.vlans = append(h.vlans, l.VLAN)
			}
		}
	}
	for _, e := range net.Edges {
		if i, is := isSwitch(e.End.Element); is && !e.Trunk {
			of(groups.root(i)).silent = true
		}
	}
	for _, h := range known {
		if h.silent {
			h.vlans = append(h.vlans, model.DefaultVLAN)
		}
		slices.Sort(h.vlans)
		h.vlans = slices.Compact(h.vlans)
	}
	for i := range net.Elements {
		if h := known[groups.root(i)]; h != nil && h.named && net.Elements[i].Kind == model.Switch {
			v.of[i] = h.vlans
		}
	}
	for k, l := range net.Links {
		c := carriage{untagged: l.VLAN, tagged: l.VLANs.List()}
		if g, ok := group(l); ok {
			switch h := of(g); {
			case !h.named:
				continue
			case l.VLANs == model.AllVLANs:
				c.tagged = slices.Clone(h.vlans)
			case l.VLANs == "" && l.VLAN == 0:
				c.untagged = model.DefaultVLAN
			}
		}
		c.tagged = slices.DeleteFunc(c.tagged, func(n int) bool { return n == c.untagged })
		v.links[k] = c
	}
	return v
}

// sets are sets of things that are joined.
type sets[T comparable] map[T]T

func (s sets[T]) root(x T) T {
	for {
		next, ok := s[x]
		if !ok {
			return x
		}
		if over, ok := s[next]; ok {
			s[x] = over
		}
		x = next
	}
}

// join joins the sets of two. It returns whether they were two.
func (s sets[T]) join(x, y T) bool {
	x, y = s.root(x), s.root(y)
	if x != y {
		s[y] = x
	}
	return x != y
}

// impliedBy are the interfaces of VLANs at a link's end: those of a router or a host.
func (c *carriage) impliedBy(end model.End) []string {
	return each.Of(c.tagged, func(n int) string { return model.VLANInterface(end.Interface, n) })
}

// saysNothing tells whether an interface is only named.
func saysNothing(f *model.Interface) bool {
	return f.MAC == "" && len(f.Addresses) == 0 && f.OSPF == nil && f.OSPF6 == nil
}

// gone tells whether an interface is that of a VLAN which its link no longer carries, and says nothing: its link
// implied it.
func gone(f *model.Interface, ends map[string]bool, carried map[string]bool) bool {
	i := strings.LastIndexByte(f.Name, '.')
	if i < 0 || !saysNothing(f) || carried[f.Name] || ends[f.Name] || !ends[f.Name[:i]] {
		return false
	}
	n, err := strconv.Atoi(f.Name[i+1:])
	return err == nil && n >= 1 && n <= model.MaxVLAN
}

// end is the interface of a VLAN at a link's end: the end itself for frames without a tag.
func (c *carriage) end(end model.End, vlan int) model.End {
	if vlan != 0 && vlan != c.untagged {
		end.Interface = model.VLANInterface(end.Interface, vlan)
	}
	return end
}

// untagged is the VLAN of what says nothing at a switch; 0 where it has none.
func (v *vlans) untagged(sw int) int {
	if v.of[sw] != nil {
		return model.DefaultVLAN
	}
	return 0
}

// atEdge are the VLANs of an edge at a switch: all where it is a trunk.
func (v *vlans) atEdge(sw int, e *model.Edge) []int {
	if e.Trunk && v.of[sw] != nil {
		return v.of[sw]
	}
	return []int{v.untagged(sw)}
}

// Apart tells which elements only VLANs and VRFs keep apart: there are links and switches between them, but no router
// leads from one to the other, since it is in no VLAN of both, or has them in different VRFs. They must not reach each
// other. A router with VRFs is where it is in none.
func Apart(net *model.Resolved) func(a, b string) bool {
	if !slices.ContainsFunc(net.Elements, func(e model.ResolvedElement) bool {
		return len(e.VRFs) > 0 || slices.ContainsFunc(e.Interfaces, model.ResolvedInterface.HasVLANs)
	}) {
		return func(string, string) bool { return false }
	}
	// A place is an element, a router's VRF, or a switch in one VLAN. A host is in several places, which it does not
	// join.
	type place struct {
		element string
		vlan    int
		vrf     string
	}
	wires, ways := sets[string]{}, sets[place]{}
	of := map[string][]place{}
	kinds := map[string]model.Kind{}
	vrfs := map[model.End]string{}
	for i := range net.Elements {
		e := &net.Elements[i]
		kinds[e.Name] = e.Kind
		for k := range e.Interfaces {
			if f := &e.Interfaces[k]; f.VRF != "" {
				vrfs[model.End{Element: e.Name, Interface: f.Name}] = f.VRF
			}
		}
	}
	at := func(link string, end model.End, vlan int, c *carriage) place {
		switch kinds[end.Element] {
		case model.Switch:
			return place{end.Element, vlan, ""}
		case model.Router:
			return place{end.Element, 0, vrfs[c.end(end, vlan)]}
		}
		return place{end.Element + ":" + link, vlan, ""} // one end of a host
	}
	for i := range net.Elements {
		e := &net.Elements[i]
		if len(e.VRFs) > 0 {
			of[e.Name] = []place{{e.Name, 0, ""}}
		}
		for k := range e.Interfaces {
			f := &e.Interfaces[k]
			if f.Far == nil || f.VLAN != 0 {
				continue
			}
			wires.join(e.Name, f.Far.Element)
			c := carriage{untagged: f.Untagged, tagged: f.Tagged.List()}
			for _, vlan := range c.all() {
				own := at(f.Link, model.End{Element: e.Name, Interface: f.Name}, vlan, &c)
				ways.join(own, at(f.Link, model.End{Element: f.Far.Element, Interface: f.Far.Interface}, vlan, &c))
				if len(e.VRFs) == 0 {
					of[e.Name] = append(of[e.Name], own)
				}
			}
		}
	}
	return func(a, b string) bool {
		return wires.root(a) == wires.root(b) && !slices.ContainsFunc(of[a], func(x place) bool {
			return slices.ContainsFunc(of[b], func(y place) bool { return ways.root(x) == ways.root(y) })
		})
	}
}
