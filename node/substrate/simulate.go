package substrate

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// routeProtocol marks the underlay's routes as ours (rtnetlink(7), RTA_PROTOCOL; a number that nobody is registered for
// in iproute2's rt_protos).
const routeProtocol = 112

// sysctls of a simulated node. It has no IPv6 of its own: ports would else get a link-local address each.
var sysctls = [][2]string{
	{"net/ipv4/ip_forward", "1"},
	{"net/ipv4/conf/all/rp_filter", "0"},
	{"net/ipv4/conf/default/rp_filter", "0"},
	{"net/ipv6/conf/all/disable_ipv6", "1"},
	{"net/ipv6/conf/default/disable_ipv6", "1"},
}

// The queue of a simulated link's end: first in, first out, so many packets.
const (
	underlayQueue  = "pfifo"
	underlayQueued = 10_000
)

// node is a simulated node at work.
type node struct {
	model.SubstrateNode
	dirs instance.NodeDirs
	ns   netns.NsHandle
	h    *netlink.Handle
}

// Simulate makes the nodes' namespaces, links, addresses and routes, and returns what it changed, in words. It may be
// repeated at any time: what is right is not touched. The nodes must have addresses (see Number).
func Simulate(dirs instance.Dirs, s model.Substrate) ([]string, error) {
	return simulate(dirs, s, true)
}

// Tend is Simulate for nodes that are at work: it puts right what somebody altered, and makes no node anew, since its
// agent and its ports would be in the old one.
func Tend(dirs instance.Dirs, s model.Substrate) ([]string, error) {
	return simulate(dirs, s, false)
}

// simulate makes nodes and removes what is left of a former substrate only if it may.
func simulate(dirs instance.Dirs, s model.Substrate, anew bool) ([]string, error) {
	var changed []string
	nodes := map[string]*node{}
	defer func() {
		for _, n := range nodes {
			n.h.Close()
			n.ns.Close()
		}
	}()
	for _, sn := range s.Nodes {
		n := &node{SubstrateNode: sn, dirs: dirs.Node(sn.Name)}
		if !anew && !IsNamespace(n.dirs.NodeNamespace()) {
			return changed, fmt.Errorf("node %s: its namespace is no longer mounted at %s: `down`, then `up`, makes "+
				"it anew", n.Name, n.dirs.NodeNamespace())
		}
		made, err := linux.MountNamespace(n.dirs.NodeNamespace())
		if err != nil {
			return changed, fmt.Errorf("node %s: %w", n.Name, err)
		}
		if made {
			changed = append(changed, "node "+n.Name)
		}
		if n.ns, err = netns.GetFromPath(n.dirs.NodeNamespace()); err != nil {
			return changed, fmt.Errorf("node %s: open its namespace: %w", n.Name, err)
		}
		if n.h, err = netlink.NewHandleAt(n.ns, unix.NETLINK_ROUTE); err != nil {
			n.ns.Close()
			return changed, fmt.Errorf("node %s: %w", n.Name, err)
		}
		nodes[sn.Name] = n
		if err := n.prepare(); err != nil {
			return changed, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	wanted := map[*node]map[string]bool{}
	for _, l := range s.Links {
		a, b := nodes[l.A], nodes[l.B]
		if a == nil || b == nil {
			return changed, fmt.Errorf("link %s -- %s: there is no such node", l.A, l.B)
		}
		made, err := join(a, b)
		if err != nil {
			return changed, fmt.Errorf("link %s -- %s: %w", l.A, l.B, err)
		}
		if made {
			changed = append(changed, "link "+l.A+" -- "+l.B)
		}
		for _, e := range [][2]*node{{a, b}, {b, a}} {
			if wanted[e[0]] == nil {
				wanted[e[0]] = map[string]bool{}
			}
			wanted[e[0]][deviceTo(e[1].Name)] = true
		}
	}
	hops := map[string]map[string]string{}
	if len(s.Links) > 0 {
		// The same paths that links between elements are placed on.
		hops = embedding.ShortestPaths(s)
	}
	for _, sn := range s.Nodes {
		n := nodes[sn.Name]
		if anew { // it looks at every port
			if err := n.sweep(wanted[n]); err != nil {
				return changed, fmt.Errorf("node %s: %w", n.Name, err)
			}
		}
		if err := n.route(nodes, hops[n.Name]); err != nil {
			return changed, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return changed, nil
}

// prepare sets the node's sysctls and its own address.
func (n *node) prepare() error {
	err := linux.Inside(int(n.ns), func() error {
		for _, s := range sysctls {
			path := filepath.Join("/proc/sys", s[0])
			b, err := os.ReadFile(path)
			if os.IsNotExist(err) && strings.HasPrefix(s[0], "net/ipv6") {
				continue // a kernel without IPv6
			}
			if err != nil {
				return err
			}
			if strings.TrimSpace(string(b)) == s[1] {
				continue
			}
			if err := os.WriteFile(path, []byte(s[1]), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	lo, err := n.h.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := n.h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return n.setAddress(lo, netip.PrefixFrom(n.Address, 32))
}

// setAddress leaves the device with exactly this global address, and lo with 127.0.0.1 beside it.
func (n *node) setAddress(link netlink.Link, want netip.Prefix) error {
	addrs, err := n.h.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	there := false
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.IP.To4())
		ones, _ := a.Mask.Size()
		switch {
		case ip == want.Addr() && ones == want.Bits():
			there = true
		case ip.IsLoopback():
		default:
			if err := n.h.AddrDel(link, &a); err != nil {
				return fmt.Errorf("remove address %s of %s: %w", a.IPNet, link.Attrs().Name, err)
			}
		}
	}
	if there {
		return nil
	}
	if err := n.h.AddrAdd(link, &netlink.Addr{IPNet: ipNet(want)}); err != nil {
		return fmt.Errorf("give %s the address %s: %w", link.Attrs().Name, want, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// deviceTo is the name of the underlay device that leads to a neighbour.
func deviceTo(neighbour string) string {
	if name := "to-" + neighbour; len(name) < unix.IFNAMSIZ {
		return name
	}
	h := sha256.Sum256([]byte(neighbour))
	return "to-" + strings.ToLower(base32.StdEncoding.EncodeToString(h[:]))[:12]
}

// end returns the node's device to the neighbour when it is there and right enough to be kept.
func (n *node) end(to *node) (netlink.Link, error) {
	link, err := n.h.LinkByName(deviceTo(to.Name))
	if _, ok := errors.AsType[netlink.LinkNotFoundError](err); ok {
		return nil, nil
	}
	return link, err
}

// join makes the link between two nodes, or puts right what is wrong with it.
func join(a, b *node) (made bool, err error) {
	la, err := a.end(b)
	if err != nil {
		return false, err
	}
	lb, err := b.end(a)
	if err != nil {
		return false, err
	}
	// The ends are each other's when each tells the other's index as its peer's.
	if la == nil || lb == nil || la.Attrs().ParentIndex != lb.Attrs().Index ||
		lb.Attrs().ParentIndex != la.Attrs().Index {
		for _, e := range []struct {
			n *node
			l netlink.Link
		}{{a, la}, {b, lb}} {
			if e.l == nil {
				continue
			}
			var missing netlink.LinkNotFoundError
			if err := e.n.h.LinkDel(e.l); err != nil && !errors.As(err, &missing) && !errors.Is(err, unix.ENODEV) {
				return false, fmt.Errorf("remove a leftover: %w", err)
			}
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = deviceTo(b.Name), UnderlayMTU
		v := &netlink.Veth{LinkAttrs: attrs, PeerName: deviceTo(a.Name), PeerMTU: UnderlayMTU,
			PeerNamespace: netlink.NsFd(b.ns)}
		if err := a.h.LinkAdd(v); err != nil {
			return false, fmt.Errorf("make the veth pair: %w", err)
		}
		made = true
		if la, err = a.h.LinkByName(deviceTo(b.Name)); err != nil {
			return made, err
		}
		if lb, err = b.h.LinkByName(deviceTo(a.Name)); err != nil {
			return made, err
		}
	}
	pa, pb := linkAddresses(a.SubstrateNode, b.SubstrateNode)
	if err := a.setEnd(la, pa, b.Name); err != nil {
		return made, err
	}
	return made, b.setEnd(lb, pb, a.Name)
}

// setEnd gives one end of a link what it must have.
func (n *node) setEnd(link netlink.Link, address netip.Prefix, to string) error {
	at := link.Attrs()
	alias := n.dirs.UnderlayAlias() + n.Name + "--" + to
	if at.Alias != alias {
		if err := n.h.LinkSetAlias(link, alias); err != nil {
			return fmt.Errorf("mark %s as ours: %w", at.Name, err)
		}
	}
	if at.MTU != UnderlayMTU {
		if err := n.h.LinkSetMTU(link, UnderlayMTU); err != nil {
			return fmt.Errorf("set the MTU of %s: %w", at.Name, err)
		}
	}
	if err := n.offloads(at.Name, func(o *linux.Offloads) { o.Checksum = false }); err != nil {
		return err
	}
	if at.Flags&net.FlagUp == 0 {
		if err := n.h.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", at.Name, err)
		}
	}
	if err := n.setQueue(link); err != nil {
		return fmt.Errorf("give %s a queue: %w", at.Name, err)
	}
	// Of a device that is down, the far end is not told that frames may be redirected here.
	if err := n.offloads(at.Name, func(o *linux.Offloads) { o.GRO = true }); err != nil {
		return err
	}
	return n.setAddress(link, address)
}

// setQueue gives a device a queue, as a real one has. What is sent to a veth with GRO waits in a ring of 256 frames
// (VETH_RING_SIZE of drivers/net/veth.c), which all networks share: a burst of one network would have those of others
// dropped. Since Linux 6.16 a full ring stops the queue instead, and frames wait there.
func (n *node) setQueue(link netlink.Link) error {
	queues, err := linux.Whole(func() ([]netlink.Qdisc, error) { return n.h.QdiscList(link) })
	if err != nil {
		return err
	}
	for _, q := range queues {
		if q.Attrs().Parent == netlink.HANDLE_ROOT && q.Type() == underlayQueue {
			return nil
		}
	}
	// Its limit is taken from the device's (tc-pfifo(8)).
	if err := n.h.LinkSetTxQLen(link, underlayQueued); err != nil {
		return err
	}
	return n.h.QdiscReplace(&netlink.GenericQdisc{QdiscType: underlayQueue,
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_ROOT,
			Handle: netlink.MakeHandle(1, 0)}})
}

// offloads changes a device's: transmit checksum offload is off – a veth passes on packets whose checksum is still to
// be made, and an XDP program at the far end that strips a tunnel header would lose the note that says so – and GRO on,
// with which a veth takes frames that an XDP program at the far end sends.
func (n *node) offloads(device string, change func(*linux.Offloads)) error {
	return linux.InsideWith(int(n.ns), func(c *linux.Rtnetlink) error {
		return c.ChangeOffloads(device, func(o *linux.Offloads) error { change(o); return nil })
	})
}

// sweep removes underlay devices that are not wanted.
func (n *node) sweep(wanted map[string]bool) error {
	links, err := linux.Whole(n.h.LinkList)
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}
	for _, l := range links {
		at := l.Attrs()
		if strings.HasPrefix(at.Alias, n.dirs.UnderlayAlias()) && !wanted[at.Name] {
			if err := n.h.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
				return fmt.Errorf("remove %s: %w", at.Name, err)
			}
		}
	}
	return nil
}

// route sets the routes to the other nodes; hops are the neighbours that lead to them.
func (n *node) route(nodes map[string]*node, hops map[string]string) error {
	filter := &netlink.Route{Protocol: routeProtocol}
	there, err := n.h.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	old := map[netip.Prefix]netlink.Route{}
	for _, r := range there {
		if r.Dst == nil {
			continue
		}
		ip, _ := netip.AddrFromSlice(r.Dst.IP.To4())
		ones, _ := r.Dst.Mask.Size()
		old[netip.PrefixFrom(ip, ones)] = r
	}
	for name, hop := range hops {
		if name == n.Name {
			continue
		}
		far, neighbour := nodes[name], nodes[hop].SubstrateNode
		to := netip.PrefixFrom(far.Address, 32)
		_, via := linkAddresses(n.SubstrateNode, neighbour)
		link, err := n.h.LinkByName(deviceTo(neighbour.Name))
		if err != nil {
			return err
		}
		r, ok := old[to]
		delete(old, to)
		if ok && r.LinkIndex == link.Attrs().Index && r.Gw.Equal(via.Addr().AsSlice()) &&
			r.Src.Equal(n.Address.AsSlice()) {
			continue
		}
		err = n.h.RouteReplace(&netlink.Route{Dst: ipNet(to), Gw: via.Addr().AsSlice(), Src: n.Address.AsSlice(),
			LinkIndex: link.Attrs().Index, Protocol: routeProtocol})
		if err != nil {
			return fmt.Errorf("route to %s via %s: %w", far.Name, neighbour.Name, err)
		}
	}
	for to, r := range old {
		if err := n.h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove the route to %s: %w", to, err)
		}
	}
	return nil
}
