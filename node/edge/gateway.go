package edge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
)

// gateway is the namespace of one edge.
type gateway struct {
	namespace
	path   string
	rules  rules
	number int // of its device in the outlet, and of its addresses on the way there
}

// firstNumber and lastNumber bound the gateways' numbers, which are the lower 16 bits of their addresses.
const (
	firstNumber = 16
	lastNumber  = 0xfefe
)

// whole tells whether the gateway's devices are there.
func (g *gateway) whole() bool {
	for _, name := range []string{"in", "out"} {
		if link, err := g.h.LinkByName(name); err != nil || link.Attrs().Flags&net.FlagUp == 0 ||
			link.Attrs().RawFlags&unix.IFF_NOARP != 0 {
			return false
		}
	}
	return true
}

// maxNeighbours is how many neighbours (ARP, neighbour discovery) a gateway may have: as many as an element by default.
// The kernel has no limit for one namespace. trimTime is how long one look for gateways that have more may take.
const (
	maxNeighbours = model.DefaultNeighbours
	trimTime      = 50 * time.Millisecond
)

// trim makes gateways forget all their neighbours when these are more than they may be. An element made up most of
// them; the others are found again.
func (d *Driver) trim() {
	began := time.Now()
	for _, g := range d.gateways { // in another order each time
		if time.Since(began) > trimTime {
			return
		}
		in, err := g.h.LinkByName("in")
		if err != nil {
			continue // the audit tells
		}
		if all, err := g.h.NeighList(in.Attrs().Index, netlink.FAMILY_ALL); err != nil || len(all) <= maxNeighbours {
			continue
		}
		// The kernel forgets the neighbours of a device that changes between having ARP and having none
		// (arp_netdev_event, ndisc_netdev_event), all in one step, those included that were entered meanwhile.
		g.h.LinkSetARPOff(in) //nolint:errcheck // the next look tries again
		g.h.LinkSetARPOn(in)  //nolint:errcheck // whole tells
	}
}

// ensureGateway makes a gateway or puts it right, and tells what was wrong. The caller holds the lock.
func (d *Driver) ensureGateway(e *Edge, s *sight) (*gateway, []change.Change, error) {
	dir := d.dirs.Gateway(e.ID.Network, e.ID.Edge)
	path := filepath.Join(dir, "net")
	fresh, err := linux.MountNamespace(path)
	if err != nil {
		return nil, nil, err
	}
	g := d.gateways[e.ID]
	if g != nil && !g.is(path) {
		g.close()
		delete(d.gateways, e.ID)
		g = nil
	}
	if g == nil {
		ns, err := openNamespace(path)
		if err != nil {
			return nil, nil, err
		}
		g = &gateway{namespace: ns, path: path, rules: openRules(filepath.Join(dir, "rules"))}
		d.gateways[e.ID] = g
	}
	if err := linux.Inside(g.fd, func() error { return setSysctls(routerSysctls) }); err != nil {
		return g, nil, err
	}
	var c changes
	if lo, err := g.h.LinkByName("lo"); err != nil {
		return g, nil, err
	} else if _, err := up(g.h, lo); err != nil {
		return g, nil, err
	}
	in, err := d.innerPair(g, e, &c)
	if err != nil {
		return g, c, err
	}
	out, err := d.outerPair(g, e, &c)
	if err != nil {
		return g, c, err
	}
	if err := g.configure(e, s, in, out, &c); err != nil {
		return g, c, err
	}
	before := g.rules.current(g.fd)
	if err := g.rules.apply(g.fd, map[string]string{"inet polyplane": gatewayRules(&e.Internet, s),
		"arp polyplane": gatewayARP(&e.Internet)}); err != nil {
		return g, c, err
	}
	if !before {
		c.add(change.GatewayRules)
	}
	if err := d.outlet.rules.apply(d.outlet.fd,
		map[string]string{d.table(e.ID): forwardRules(&e.Internet, d.device(e.ID), g.number, s)}); err != nil {
		return g, c, err
	}
	if fresh {
		c = changes{change.GatewayMade.Of()} // which says it all
	}
	return g, c, nil
}

// innerPair finds or makes the pair between the node's namespace, where the fabric has its end, and the gateway.
func (d *Driver) innerPair(g *gateway, e *Edge, c *changes) (netlink.Link, error) {
	name := d.device(e.ID)
	outside, err := find(d.node.h, name)
	if err != nil {
		return nil, err
	}
	in, err := find(g.h, "in")
	if err != nil {
		return nil, err
	}
	if outside == nil || in == nil || outside.Attrs().ParentIndex != in.Attrs().Index ||
		in.Attrs().ParentIndex != outside.Attrs().Index {
		for h, link := range map[*netlink.Handle]netlink.Link{d.node.h: outside, g.h: in} {
			if link != nil {
				h.LinkDel(link) //nolint:errcheck // making it anew tells
			}
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = name, e.MTU
		mac, _ := net.ParseMAC(model.MAC(model.PortID{ID: model.ID{Network: e.ID.Network, Element: e.ID.Edge},
			Interface: "internet edge"}))
		err := d.node.h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "in", PeerMTU: uint32(e.MTU),
			PeerNamespace: netlink.NsFd(g.fd), PeerHardwareAddr: mac})
		if err != nil {
			return nil, fmt.Errorf("make its gateway's device: %w", err)
		}
		if outside, err = d.node.h.LinkByName(name); err != nil {
			return nil, err
		}
		if in, err = g.h.LinkByName("in"); err != nil {
			return nil, err
		}
		if err := shut(d.node, outside); err != nil {
			return nil, err
		}
		c.add(change.GatewayInner)
	}
	if alias := d.dirs.OutletAlias() + e.ID.String(); outside.Attrs().Alias != alias {
		if err := d.node.h.LinkSetAlias(outside, alias); err != nil {
			return nil, err
		}
	}
	for h, link := range map[*netlink.Handle]netlink.Link{d.node.h: outside, g.h: in} {
		if link.Attrs().MTU != e.MTU {
			if err := h.LinkSetMTU(link, e.MTU); err != nil {
				return nil, fmt.Errorf("set the MTU of its gateway: %w", err)
			}
		}
	}
	return in, nil
}

// outerPair finds or makes the pair between the outlet and the gateway.
func (d *Driver) outerPair(g *gateway, e *Edge, c *changes) (netlink.Link, error) {
	o, name := d.outlet, d.device(e.ID)
	far, err := find(o.h, name)
	if err != nil {
		return nil, err
	}
	out, err := find(g.h, "out")
	if err != nil {
		return nil, err
	}
	if far == nil || out == nil || far.Attrs().ParentIndex != out.Attrs().Index ||
		out.Attrs().ParentIndex != far.Attrs().Index {
		for h, link := range map[*netlink.Handle]netlink.Link{o.h: far, g.h: out} {
			if link != nil {
				h.LinkDel(link) //nolint:errcheck // making it anew tells
			}
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = name, 1500
		if attrs.Index, err = o.free(); err != nil {
			return nil, err
		}
		err := o.h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "out", PeerMTU: 1500,
			PeerNamespace: netlink.NsFd(g.fd)})
		if err != nil {
			return nil, fmt.Errorf("join its gateway to the outlet: %w", err)
		}
		if far, err = o.h.LinkByName(name); err != nil {
			return nil, err
		}
		if out, err = g.h.LinkByName("out"); err != nil {
			return nil, err
		}
		c.add(change.GatewayOuter)
	}
	g.number = far.Attrs().Index
	if alias := d.dirs.OutletAlias() + e.ID.String(); far.Attrs().Alias != alias {
		if err := o.h.LinkSetAlias(far, alias); err != nil {
			return nil, err
		}
	}
	if _, err := up(o.h, far); err != nil {
		return nil, err
	}
	addresses, err := o.h.AddrList(far, netlink.FAMILY_V6)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(addresses, func(a netlink.Addr) bool { return prefixOf(a.IPNet).Addr() == outlet6 }) {
		if _, err := setAddresses(o.h, far, []netip.Prefix{netip.PrefixFrom(outlet6, 64)}); err != nil {
			return nil, err
		}
	}
	v4, v6 := transitAddresses(g.number)
	for _, a := range []netip.Addr{v4, v6} {
		to := &netlink.Route{Dst: ipNet(netip.PrefixFrom(a, a.BitLen())), LinkIndex: g.number, Protocol: routeProtocol,
			Scope: netlink.SCOPE_LINK}
		if err := o.h.RouteReplace(to); err != nil {
			return nil, fmt.Errorf("route to its gateway: %w", err)
		}
	}
	return out, nil
}

// free is the lowest number that no gateway has.
func (o *outlet) free() (int, error) {
	links, err := linux.Whole(o.h.LinkList)
	if err != nil {
		return 0, err
	}
	taken := each.SetOf(links, func(l netlink.Link) int { return l.Attrs().Index })
	for n := firstNumber; n <= lastNumber; n++ {
		if !taken[n] {
			return n, nil
		}
	}
	return 0, errors.New("the outlet has no room for another gateway")
}

// configure gives the gateway its addresses and routes.
func (g *gateway) configure(e *Edge, s *sight, in, out netlink.Link, c *changes) error {
	v4, v6 := transitAddresses(g.number)
	own := []netip.Prefix{netip.PrefixFrom(v4, 32), netip.PrefixFrom(v6, 128)}
	for _, x := range []struct {
		link netlink.Link
		want []netip.Prefix
	}{{in, e.Internet.Gateway}, {out, own}} {
		if x.link.Attrs().RawFlags&unix.IFF_NOARP != 0 {
			if err := g.h.LinkSetARPOn(x.link); err != nil {
				return err
			}
		}
		raised, err := up(g.h, x.link)
		if err != nil {
			return err
		}
		changed, err := setAddresses(g.h, x.link, x.want)
		if err != nil {
			return err
		}
		if raised || changed {
			c.add(change.GatewayAddresses)
		}
	}
	routes := map[netip.Prefix]hop{default4: {}, default6: {}}
	if s.uplinks[0].address.IsValid() {
		routes[default4] = hop{out.Attrs().Index, outlet4}
	}
	if s.uplinks[1].address.IsValid() {
		routes[default6] = hop{out.Attrs().Index, outlet6}
	}
	for _, p := range e.Internet.Sources {
		connected := slices.ContainsFunc(e.Internet.Gateway, func(own netip.Prefix) bool { return own.Masked() == p })
		via := slices.IndexFunc(e.Internet.Via, func(a netip.Addr) bool { return a.Is4() == p.Addr().Is4() })
		if !connected && via >= 0 {
			routes[p] = hop{in.Attrs().Index, e.Internet.Via[via]}
		}
	}
	changed, err := setRoutes(g.h, routes)
	if changed {
		c.add(change.GatewayRoutes)
	}
	return err
}
