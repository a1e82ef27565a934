package resolve

import (
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// checkUnnumbered finds what cannot work because links are given no addresses: routing protocols of routers that have
// an address on none of their interfaces, and expectations of elements that have none at all.
func (ps *problems) checkUnnumbered(n *model.Resolved) {
	none := make(map[string]bool, len(n.Links))
	any := false
	l := newLayout(ps.net)
	for i := range n.Links {
		if a := n.Links[i].Addressing; a == model.AddressingNone || a == "" && l.unnumbered(i) {
			none[n.Links[i].Name], any = true, true
		}
	}
	if !any {
		return
	}
	bare := map[string]bool{} // elements without any address, for want of addresses on their links
	for i := range n.Elements {
		e := &n.Elements[i]
		lacks, has := false, false
		for k := range e.Interfaces {
			f := &e.Interfaces[k]
			there := slices.ContainsFunc(f.Addresses,
				func(a netip.Prefix) bool { return !a.Addr().IsLinkLocalUnicast() })
			has = has || there
			lacks = lacks || none[f.Link] && !there
		}
		if !lacks || has {
			continue
		}
		bare[e.Name] = len(e.Loopback) == 0
		for _, name := range e.Routing.Protocols() {
			switch {
			case name != "bgp":
				ps.element(i, "routing/"+name, "%s has no address to speak from: its links have addressing: none, or "+
					"need none for BGP, and it states none; state addresses of its interfaces, or leave %s to whoever "+
					"configures it inside", name, name)
			case !slices.ContainsFunc(e.Routing.BGP.Neighbors, overInterface):
				ps.element(i, "routing/bgp", "bgp has no address to speak from: its links have addressing: none, and "+
					"it states none; state addresses of its interfaces, write bgp: {unnumbered: true} for the routers "+
					"at both ends, or leave bgp to whoever configures it inside")
			}
		}
	}
	for i, x := range ps.net.Expect {
		if x.What != "" {
			continue // somebody may give them addresses inside
		}
		for _, name := range []string{x.From, x.To} {
			if bare[name] {
				ps.add(model.AboutExpect, i, x.From+" "+x.To, "", "expect: %s has no address by which it could be "+
					"reached or reach others: its links have none; state one, or leave the expectation "+
					"out", name)
				break
			}
		}
	}
}
