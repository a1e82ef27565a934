package edge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
)

// routeProtocol marks our routes (rtnetlink(7), RTA_PROTOCOL), as in the underlay of simulated nodes.
const routeProtocol = 112

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, _ := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones)
}

// find returns a device, nil when there is none of that name.
func find(h *netlink.Handle, name string) (netlink.Link, error) {
	link, err := h.LinkByName(name)
	if _, ok := errors.AsType[netlink.LinkNotFoundError](err); ok {
		return nil, nil
	}
	return link, err
}

func up(h *netlink.Handle, link netlink.Link) (changed bool, err error) {
	if link.Attrs().Flags&net.FlagUp != 0 {
		return false, nil
	}
	if err := h.LinkSetUp(link); err != nil {
		return false, fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
	}
	return true, nil
}

// setAddresses leaves the device with exactly these addresses, link-local and loopback ones beside them.
func setAddresses(h *netlink.Handle, link netlink.Link, want []netip.Prefix) (changed bool, err error) {
	there, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("list the addresses of %s: %w", link.Attrs().Name, err)
	}
	missing := each.Set(want)
	for _, a := range there {
		p := prefixOf(a.IPNet)
		if missing[p] {
			delete(missing, p)
			continue
		}
		if p.Addr().IsLoopback() || p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if err := h.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return changed, fmt.Errorf("remove address %s of %s: %w", p, link.Attrs().Name, err)
		}
		changed = true
	}
	for _, p := range want {
		if !missing[p] {
			continue
		}
		flags := 0
		if p.Addr().Is6() {
			flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p), Flags: flags}); err != nil &&
			!errors.Is(err, unix.EEXIST) {
			return changed, fmt.Errorf("give %s the address %s: %w", link.Attrs().Name, p, err)
		}
		changed = true
	}
	return changed, nil
}

// hop is where a route leads: a device and perhaps a next hop there, or nowhere.
type hop struct {
	device int
	via    netip.Addr
}

var (
	default4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	default6 = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
)

// setRoutes leaves the namespace with exactly these routes of ours.
func setRoutes(h *netlink.Handle, want map[netip.Prefix]hop) (changed bool, err error) {
	there := map[netip.Prefix]hop{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := h.RouteListFiltered(family, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return false, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			p := prefixOf(r.Dst)
			if r.Dst == nil {
				p = map[int]netip.Prefix{netlink.FAMILY_V4: default4, netlink.FAMILY_V6: default6}[family]
			}
			via, _ := netip.AddrFromSlice(r.Gw)
			x := hop{r.LinkIndex, via.Unmap()}
			if r.Type == unix.RTN_UNREACHABLE {
				x = hop{}
			}
			if w, ok := want[p]; ok && w == x {
				there[p] = x
				continue
			}
			// Never without a route between: the old one goes by being replaced, if it can be.
			if _, ok := want[p]; ok && family == netlink.FAMILY_V4 {
				continue
			}
			if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return changed, fmt.Errorf("remove the route to %s: %w", p, err)
			}
			changed = true
		}
	}
	for p, w := range want {
		if _, ok := there[p]; ok {
			continue
		}
		r := netlink.Route{Dst: ipNet(p), Protocol: routeProtocol, LinkIndex: w.device}
		switch {
		case w.device == 0:
			r.Type = unix.RTN_UNREACHABLE
		case w.via.IsValid():
			r.Gw, r.Flags = w.via.AsSlice(), int(netlink.FLAG_ONLINK)
		default:
			r.Scope = netlink.SCOPE_LINK
		}
		if err := h.RouteReplace(&r); err != nil {
			return changed, fmt.Errorf("route to %s: %w", p, err)
		}
		changed = true
	}
	return changed, nil
}
