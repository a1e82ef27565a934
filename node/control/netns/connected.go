package netns

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/node/change"
)

// The kernel makes routes for an address: to its subnet (the connected route), to the address itself, to the subnet's
// broadcast address, and to the multicast groups of a device with IPv6. Flushing a table removes them. The kernel makes
// them again only when the device goes down and up, which would remove all other routes by the device. So the driver
// puts them back one by one, exactly as the kernel makes them.

// Metrics of IPv6 (IP6_RT_PRIO_ADDRCONF of net/ip6_route.h) and flags of an address that has no connected route, or is
// not in use yet (linux/if_addr.h).
const (
	connectedMetric6 = 256
	unsettled        = unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC | unix.IFA_F_DADFAILED
)

// kernelRoute is what distinguishes the kernel's own routes from each other.
type kernelRoute struct {
	table, kind uint8
	to          netip.Prefix
	index       int
	metric      uint32
	source      netip.Addr // IPv4's
}

func parseKernelRoute(family uint8, p []byte) kernelRoute {
	r := parseRoute(family, p)
	k := kernelRoute{table: p[4], kind: r.kind, to: r.to, metric: r.metric}
	if len(r.hops) == 1 {
		k.index = r.hops[0].index
	}
	for kind, v := range linux.Attrs(p[unix.SizeofRtMsg:]) {
		if kind == unix.RTA_PREFSRC && family == unix.AF_INET {
			k.source, _ = netip.AddrFromSlice(v)
		}
	}
	return k
}

// planConnected puts back what the kernel made for a device's addresses: the wanted ones, and those that the kernel
// gave the device itself. Routes for addresses that somebody added are that person's to remove. For a device that is
// down, or one in a VRF (its routes are in another table), there is nothing to put back.
func (in *inside) planConnected(r *repair, l *link, device string, wanted []netip.Prefix) {
	if in.kernel == nil || !l.Up() || l.Master != 0 {
		return
	}
	var missing []kernelRoute
	miss := func(k kernelRoute) {
		if !in.kernel[k] && !slices.Contains(missing, k) { // several addresses may have it in common
			missing = append(missing, k)
		}
	}
	multicast := false
	for key, a := range in.addresses {
		if key.index != l.Index || !slices.Contains(wanted, key.prefix) && !key.prefix.Addr().IsLoopback() &&
			!(key.prefix.Addr().Is6() && key.prefix.Addr().IsLinkLocalUnicast()) {
			continue
		}
		if key.prefix.Addr().Is4() {
			in.connected4(l, key.prefix.Addr(), a, miss)
			continue
		}
		in.connected6(r, l, device, key.prefix, a, miss)
		multicast = multicast || key.prefix.Addr().IsLinkLocalUnicast()
	}
	// The kernel makes this one when the device first has carrier, before the link-local address.
	const ready = unix.IFF_RUNNING | unix.IFF_LOWER_UP
	if multicast && l.Flags&unix.IFF_LOOPBACK == 0 && l.Flags&ready == ready {
		miss(kernelRoute{unix.RT_TABLE_LOCAL, unix.RTN_MULTICAST,
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xff}), 8), l.Index, connectedMetric6, netip.Addr{}})
	}
	// A route's source must be a local address by then.
	slices.SortFunc(missing, func(a, b kernelRoute) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.to.Addr().Compare(b.to.Addr()),
			cmp.Compare(a.to.Bits(), b.to.Bits()))
	})
	for _, k := range missing {
		k.restore(r, device)
	}
}

func (k *kernelRoute) rank() int {
	switch {
	case k.to.Addr() == k.source && k.to.IsSingleIP():
		return 0
	case k.table == unix.RT_TABLE_LOCAL:
		return 1
	}
	return 2
}

// connected4 follows fib_add_ifaddr in the kernel's net/ipv4/fib_frontend.c. Of several addresses in one subnet, the
// first has the connected route, and the routes of the others name it as their source.
func (in *inside) connected4(l *link, local netip.Addr, a presentAddress, miss func(kernelRoute)) {
	first := local
	if a.flags&unix.IFA_F_SECONDARY != 0 {
		for key, b := range in.addresses {
			if key.index == l.Index && b.network == a.network && b.flags&unix.IFA_F_SECONDARY == 0 {
				first, a.flags, a.metric = key.prefix.Addr(), b.flags, b.metric
			}
		}
		if first == local {
			return // the kernel has just let go of the first one
		}
		miss(kernelRoute{unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, netip.PrefixFrom(first, 32), l.Index, 0, first})
	}
	add := func(table, kind uint8, to netip.Prefix, metric uint32) {
		miss(kernelRoute{table, kind, to, l.Index, metric, first})
	}
	add(unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, netip.PrefixFrom(local, 32), 0)
	if a.broadcast.IsValid() && a.broadcast != netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		add(unix.RT_TABLE_LOCAL, unix.RTN_BROADCAST, netip.PrefixFrom(a.broadcast, 32), 0)
	}
	n := a.network
	if !n.IsValid() || n.Addr().AsSlice()[0] == 0 || n == netip.PrefixFrom(first, 32) {
		return // a peer 0.0.0.0 is not told
	}
	if a.flags&unix.IFA_F_NOPREFIXROUTE == 0 {
		table, kind := uint8(unix.RT_TABLE_MAIN), uint8(unix.RTN_UNICAST)
		if l.Flags&unix.IFF_LOOPBACK != 0 {
			table, kind = unix.RT_TABLE_LOCAL, unix.RTN_LOCAL
		}
		add(table, kind, n, a.metric)
	}
	if n.Bits() < 31 {
		if last := lastOf(n); last != a.broadcast {
			add(unix.RT_TABLE_LOCAL, unix.RTN_BROADCAST, netip.PrefixFrom(last, 32), 0)
		}
	}
}

// lastOf is the last address of an IPv4 subnet.
func lastOf(p netip.Prefix) netip.Addr {
	v := p.Addr().As4()
	last := binary.BigEndian.Uint32(v[:]) | (uint32(1)<<(32-p.Bits()) - 1)
	binary.BigEndian.PutUint32(v[:], last)
	return netip.AddrFrom4(v)
}

// connected6 follows inet6_addr_add and addrconf_dad_completed in the kernel's net/ipv6/addrconf.c.
func (in *inside) connected6(r *repair, l *link, device string, p netip.Prefix, a presentAddress,
	miss func(kernelRoute)) {
	if !l.IPv6 || a.flags&unsettled != 0 || a.network != p.Masked() {
		return
	}
	// The route to the address itself has metric 0, and no request can ask for that. Only adding the address makes it.
	itself := kernelRoute{table: unix.RT_TABLE_LOCAL, kind: unix.RTN_LOCAL,
		to: netip.PrefixFrom(p.Addr(), 128), index: l.Index}
	if !in.kernel[itself] {
		in.addAgain(r, l, device, p, a)
		return
	}
	if a.flags&unix.IFA_F_NOPREFIXROUTE != 0 || p.Addr().IsLoopback() {
		return
	}
	metric := cmp.Or(a.metric, connectedMetric6)
	miss(kernelRoute{unix.RT_TABLE_MAIN, unix.RTN_UNICAST, a.network, l.Index, metric, netip.Addr{}})
}

// restore appends the requests that make the route.
func (k *kernelRoute) restore(r *repair, device string) {
	what, flags, family, scope := "connected route to "+k.to.String(), uint16(unix.NLM_F_CREATE|unix.NLM_F_APPEND),
		uint8(unix.AF_INET),
		uint8(unix.RT_SCOPE_LINK)
	if k.table == unix.RT_TABLE_LOCAL {
		what = "local route to " + k.to.String()
	}
	if k.kind == unix.RTN_LOCAL {
		scope = unix.RT_SCOPE_HOST
	}
	if k.to.Addr().Is6() {
		// A route that somebody put in its place would keep it out: IPv6 takes two routes with the same target for the
		// same.
		flags, family, scope = unix.NLM_F_CREATE, unix.AF_INET6, unix.RT_SCOPE_UNIVERSE
		r.request(unix.RTM_DELROUTE, 0, step{doing: fmt.Sprintf("make room for the %s out of %s", what, device),
			harmless: unix.ESRCH})
		k.write(r, []byte{family, uint8(k.to.Bits()), 0, 0, k.table, unix.RTPROT_UNSPEC,
			unix.RT_SCOPE_NOWHERE, 0, 0, 0, 0, 0})
	}
	r.request(unix.RTM_NEWROUTE, flags, step{doing: fmt.Sprintf("put back the %s out of %s", what, device),
		done: change.ConnectedAdded.Of(device, what), device: device, harmless: unix.EEXIST})
	k.write(r, []byte{family, uint8(k.to.Bits()), 0, 0, k.table, unix.RTPROT_KERNEL, scope, k.kind, 0, 0, 0, 0})
}

// write writes the attributes of a request about the route, which follow a struct rtmsg.
func (k *kernelRoute) write(r *repair, head []byte) {
	r.Raw(head)
	r.Attr(unix.RTA_DST, k.to.Addr().AsSlice())
	r.Uint32(unix.RTA_OIF, uint32(k.index))
	if k.metric != 0 {
		r.Uint32(unix.RTA_PRIORITY, k.metric)
	}
	if k.source.IsValid() {
		r.Attr(unix.RTA_PREFSRC, k.source.AsSlice())
	}
}

// addAgain removes an address and adds it as it was.
func (in *inside) addAgain(r *repair, l *link, device string, p netip.Prefix, a presentAddress) {
	flags, scope := uint32(unix.IFA_F_NODAD), uint8(unix.RT_SCOPE_UNIVERSE)
	switch {
	case p.Addr().IsLoopback():
		scope = unix.RT_SCOPE_HOST
		flags |= unix.IFA_F_NOPREFIXROUTE // the kernel makes none for this one
	case p.Addr().IsLinkLocalUnicast():
		scope = unix.RT_SCOPE_LINK
	}
	flags |= a.flags & unix.IFA_F_NOPREFIXROUTE
	r.request(unix.RTM_DELADDR, 0, step{doing: fmt.Sprintf("remove address %s from %s for a moment", p, device),
		harmless: unix.EADDRNOTAVAIL})
	r.Address(l.Index, unix.AF_INET6, uint8(p.Bits()), scope, 0)
	r.Attr(unix.IFA_LOCAL, p.Addr().AsSlice())
	r.request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		step{doing: fmt.Sprintf("add address %s to %s again", p, device),
			done: change.AddressAddedAgain.Of(device, p), device: device, harmless: unix.EEXIST})
	r.Address(l.Index, unix.AF_INET6, uint8(p.Bits()), scope, 0)
	r.Attr(unix.IFA_LOCAL, p.Addr().AsSlice())
	r.Uint32(unix.IFA_FLAGS, flags)
	if a.metric != 0 {
		r.Uint32(unix.IFA_RT_PRIORITY, a.metric)
	}
	if a.protocol != 0 {
		r.Uint8(ifaProto, a.protocol)
	}
}
