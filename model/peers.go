package model

import (
	"net"
	"net/netip"
	"slices"
)

// MaxPeers is how many peers an interface knows at most: with more members than that on a segment, routers and hosts know
// its routers, and the routers as many of its members as there is room for. What is known grows with the members, not with
// their square.
const MaxPeers = 64

// peers tells the interfaces of each segment whom they reach there.
func (r *resolver) peers() {
	for _, s := range r.segments {
		members := slices.DeleteFunc(slices.Clone(s.members), func(m member) bool {
			f := r.interfaceOf(m)
			return f.Far == nil || len(f.Addresses) == 0
		})
		router := func(m member) bool { return r.out.Elements[m.element].Kind == Router }
		all := make([]LinkPeer, 0, len(members))
		// Routers first: they are the ones that everybody speaks to.
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
			all = append(all, linkPeer(r.interfaceOf(m)))
		}
		for _, m := range members {
			known := all
			if len(all) > MaxPeers+1 && !router(m) {
				known = all[:routers]
			}
			peers := make([]LinkPeer, 0, min(len(known), MaxPeers))
			for k := range known {
				if members[k].element != m.element && len(peers) < MaxPeers {
					peers = append(peers, known[k])
				}
			}
			if len(peers) > 0 {
				r.interfaceOf(m).Far.Peers = peers
			}
		}
	}
}

func linkPeer(f *ResolvedInterface) LinkPeer {
	p := LinkPeer{MAC: f.MAC, Addresses: make([]netip.Addr, 0, len(f.Addresses)+1)}
	v6 := false
	for _, a := range f.Addresses {
		p.Addresses = append(p.Addresses, a.Addr())
		v6 = v6 || a.Addr().Is6()
	}
	if mac, err := net.ParseMAC(f.MAC); v6 && err == nil && len(mac) == 6 {
		if own := LinkLocal([6]byte(mac)); !slices.Contains(p.Addresses, own) {
			p.Addresses = append(p.Addresses, own)
		}
	}
	return p
}

// LinkLocal is the IPv6 link-local address that Linux gives an interface of that MAC address: of the modified EUI-64
// (RFC 4291, appendix A).
func LinkLocal(m [6]byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}
