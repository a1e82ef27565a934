package edge

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
)

// outlet is the namespace in which packets that leave get the machine's address. An instance has one.
type outlet struct {
	namespace
	rules rules
	up    int // the device that leads to the uplink
}

// routerSysctls are the sysctls of gateways and of the outlet. Both route, and believe nobody's announcements. They use
// their link-local addresses without asking whether somebody else has them.
var routerSysctls = map[string]string{
	"ipv4/ip_forward":                  "1",
	"ipv6/conf/all/forwarding":         "1",
	"ipv4/conf/all/rp_filter":          "0",
	"ipv4/conf/default/rp_filter":      "0",
	"ipv4/conf/all/accept_redirects":   "0",
	"ipv4/conf/all/send_redirects":     "0",
	"ipv4/conf/default/send_redirects": "0",
	"ipv4/conf/all/arp_accept":         "0",
	"ipv4/conf/default/arp_accept":     "0",
	"ipv6/conf/all/accept_ra":          "0",
	"ipv6/conf/default/accept_ra":      "0",
	"ipv6/conf/all/accept_dad":         "0",
	"ipv6/conf/default/accept_dad":     "0",
	// A connection that is silent for so long is forgotten: two hours and four minutes is the least that RFC 5382
	// (REQ-5) allows. The kernel's default is five days.
	"netfilter/nf_conntrack_tcp_timeout_established": "7440",
}

// upDevice is the name of the machine's end of the pair that leads to the outlet.
func upDevice(d instance.NodeDirs) string {
	h := fnv.New64a()
	h.Write([]byte(d.Instance + "\x00outlet"))
	return fmt.Sprintf("%s%013x", instance.PortDevicePrefix, h.Sum64()>>12)
}

// ensureOutlet makes the outlet, or puts it right. The lock is held.
func (d *Driver) ensureOutlet(s *sight) error {
	path := d.dirs.Outlet()
	if _, err := linux.MountNamespace(path); err != nil {
		return fmt.Errorf("make the outlet of internet edges: %w", err)
	}
	if d.outlet != nil && !d.outlet.is(path) {
		d.outlet.close()
		d.outlet = nil
	}
	if d.outlet == nil {
		ns, err := openNamespace(path)
		if err != nil {
			return err
		}
		d.outlet = &outlet{namespace: ns, rules: openRules(path + ".rules")}
	}
	if err := d.makeOutlet(s); err != nil {
		return fmt.Errorf("the outlet of internet edges: %w", err)
	}
	return nil
}

// makeOutlet puts the outlet's devices, addresses, routes and rules right. The caller holds the lock.
func (d *Driver) makeOutlet(s *sight) error {
	o := d.outlet
	if err := linux.Inside(o.fd, func() error { return setSysctls(routerSysctls) }); err != nil {
		return err
	}
	lo, err := o.h.LinkByName("lo")
	if err != nil {
		return err
	}
	if _, err := up(o.h, lo); err != nil {
		return err
	}
	if _, err := setAddresses(o.h, lo, []netip.Prefix{netip.PrefixFrom(outlet4, 32)}); err != nil {
		return err
	}
	host, inner, err := d.upPair(s)
	if err != nil {
		return err
	}
	o.up = host.Attrs().Index
	if mtu := s.mtu(); inner.Attrs().MTU != mtu {
		if err := o.h.LinkSetMTU(inner, mtu); err != nil {
			return fmt.Errorf("set the MTU of the way to the uplink: %w", err)
		}
	}
	if _, err := up(o.h, inner); err != nil {
		return err
	}
	routes, err := o.h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{LinkIndex: inner.Attrs().Index,
		Protocol: routeProtocol}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	if len(routes) < len(s.uplinks) {
		for _, p := range []netip.Prefix{default4, default6} {
			err := o.h.RouteReplace(&netlink.Route{Dst: ipNet(p), LinkIndex: inner.Attrs().Index,
				Scope: netlink.SCOPE_LINK, Protocol: routeProtocol})
			if err != nil {
				return fmt.Errorf("the default route: %w", err)
			}
		}
	}
	return o.rules.apply(o.fd, map[string]string{"inet polyplane": outletRules(s)})
}

// upPair finds or makes the pair between the machine's namespace and the outlet. Its end in the machine's namespace has
// no address, no ARP and no IPv6. It is set up only when its filter is attached, so that nothing that leaves by it ever
// reaches the machine's own stack.
func (d *Driver) upPair(s *sight) (host, inner netlink.Link, err error) {
	o, name := d.outlet, upDevice(d.dirs)
	if host, err = find(d.machine.h, name); err == nil {
		inner, err = find(o.h, "up")
	}
	if err != nil {
		return nil, nil, err
	}
	ok := false
	if host != nil {
		s.low, s.high, ok = portsOf(host.Attrs().Alias)
	}
	if ok && inner != nil && host.Attrs().ParentIndex == inner.Attrs().Index &&
		inner.Attrs().ParentIndex == host.Attrs().Index {
		return host, inner, nil
	}
	if host != nil {
		d.machine.h.LinkDel(host) //nolint:errcheck // making it anew tells
	}
	if inner, err = find(o.h, "up"); err == nil && inner != nil {
		o.h.LinkDel(inner) //nolint:errcheck // likewise
	}
	if !ok {
		if s.low, s.high, err = d.choosePorts(); err != nil {
			return nil, nil, err
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, 1500
	if err := d.machine.h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "up", PeerMTU: 1500,
		PeerNamespace: netlink.NsFd(o.fd)}); err != nil {
		return nil, nil, fmt.Errorf("make the way to the machine's uplink: %w", err)
	}
	if host, err = d.machine.h.LinkByName(name); err != nil {
		return nil, nil, err
	}
	if inner, err = o.h.LinkByName("up"); err != nil {
		return nil, nil, err
	}
	if err := d.machine.h.LinkSetAlias(host, fmt.Sprintf("%sports %d-%d", d.dirs.OutletAlias(), s.low,
		s.high)); err != nil {
		return nil, nil, err
	}
	if err := o.h.LinkSetARPOff(inner); err != nil {
		return nil, nil, err
	}
	return host, inner, shut(d.machine, host)
}

// shut keeps the stack of a namespace from taking part in what a device of ours receives.
func shut(ns namespace, link netlink.Link) error {
	if err := ns.h.LinkSetARPOff(link); err != nil {
		return err
	}
	name := link.Attrs().Name
	return linux.Inside(ns.fd, func() error {
		return setSysctls(map[string]string{"ipv6/conf/" + name + "/disable_ipv6": "1", "ipv4/conf/" +
			name + "/rp_filter": "1"})
	})
}

// removeOutlet removes the outlet if no gateway leads to it any more, of any node. The lock is held.
func (d *Driver) removeOutlet() error {
	path := d.dirs.Outlet()
	if !linux.IsNamespace(path) {
		return nil
	}
	o, err := openNamespace(path)
	if err != nil {
		return err
	}
	links, err := linux.Whole(o.h.LinkList)
	if err != nil {
		o.close()
		return err
	}
	for _, l := range links {
		if a := l.Attrs(); a.Flags&net.FlagLoopback == 0 && a.Name != "up" {
			o.close()
			return nil
		}
	}
	if inner, err := find(o.h, "up"); err == nil && inner != nil {
		o.h.LinkDel(inner) //nolint:errcheck // it goes with the namespace
	}
	o.close()
	if d.outlet != nil {
		d.outlet.close()
		d.outlet = nil
	}
	if err := release(d.machine, d.dirs.Instance); err != nil {
		return err
	}
	for _, mount := range []string{path, d.pins()} {
		if err := unix.Unmount(mount, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
			!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount the outlet of internet edges: %w", err)
		}
	}
	os.Remove(d.pins())        //nolint:errcheck // it may not be there
	os.Remove(path + ".rules") //nolint:errcheck // of no meaning any more
	return os.Remove(path)
}
