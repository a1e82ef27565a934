package resolve

import (
	"net"
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// peers tells the interfaces of each segment whom they reach there.
func (r *resolver) peers() {
	for _, s := range r.segments {
		over := r.meetOverInterfaces(&s)
		members := slices.DeleteFunc(slices.Clone(s.members), func(m member) bool {
			f := r.interfaceOf(m)
			return f.Far == nil || len(f.Addresses) == 0 && !over
		})
		router := func(m member) bool { return r.out.Elements[m.element].Kind == model.Router }
		all := make([]model.LinkPeer, 0, len(members))
		// Routers first, since everybody speaks to them.
		slices.SortStableFunc(members, func(a, b member) int {
			switch {
			case router(a) == router(b):
				return 0
			case router(a):
				return -1
			}
			return 1
		})
		routers := 0
		for _, m := range members {
			if router(m) {
				routers++
			}
			all = append(all, linkPeer(r.interfaceOf(m), over))
		}
		for _, m := range members {
			known := all
			if len(all) > model.MaxPeers+1 && !router(m) {
				known = all[:routers]
			}
			peers := append(make([]model.LinkPeer, 0, min(len(known), model.MaxPeers)), r.virtualPeers(&s, m)...)
			for k := range known {
				if members[k].element != m.element && len(peers) < model.MaxPeers {
					peers = append(peers, known[k])
				}
			}
			if len(peers) > 0 {
				r.interfaceOf(m).Far.Peers = peers
			}
		}
	}
}

// linkPeer is an interface as others know it; v6 tells that it speaks IPv6 whatever addresses it is given.
func linkPeer(f *model.ResolvedInterface, v6 bool) model.LinkPeer {
	p := model.LinkPeer{MAC: f.MAC, Addresses: make([]netip.Addr, 0, len(f.Addresses)+1)}
	for _, a := range f.Addresses {
		p.Addresses = append(p.Addresses, a.Addr())
		v6 = v6 || a.Addr().Is6()
	}
	if mac, err := net.ParseMAC(f.MAC); v6 && err == nil && len(mac) == 6 {
		if own := model.LinkLocal([6]byte(mac)); !slices.Contains(p.Addresses, own) {
			p.Addresses = append(p.Addresses, own)
		}
	}
	return p
}
