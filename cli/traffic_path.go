package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	frames "github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
	generator "github.com/polyplane/polyplane/measure/source"
	"github.com/polyplane/polyplane/model"
)

func needRoot() error {
	if os.Geteuid() != 0 {
		return failed("this must be run as root: it opens the elements' devices and loads eBPF programs")
	}
	return nil
}

// trafficPath is a pair of elements with everything that a trial needs to know of the way between them.
type trafficPath struct {
	From        model.PortID     `json:"from"`
	To          model.PortID     `json:"to"`
	Source      netip.Addr       `json:"source"`
	Destination netip.Addr       `json:"destination"`
	NextHop     netip.Addr       `json:"next_hop"` // the destination itself on the same subnet
	SourceMAC   net.HardwareAddr `json:"-"`
	NextHopMAC  net.HardwareAddr `json:"-"`
	Device      netdev.Ref       `json:"device"`      // A's
	SinkDevice  netdev.Ref       `json:"sink_device"` // B's
	Port        netdev.Ref       `json:"port"`        // A's port on its node: where frames are received first
	SinkPort    netdev.Ref       `json:"sink_port"`   // B's port on its node
	Queued      bool             `json:"queued"`      // B's link has a rate or a delay, kept by a queue at B's port
}

// label is a path as results name it.
func (p trafficPath) label() string { return p.From.ID.String() + " → " + p.To.ID.String() }

// endpoint is an element as the kernel knows it.
type endpoint struct {
	id        model.ID
	element   *model.ResolvedElement
	node      instance.NodeDirs
	namespace string // the element's
	ports     string // the node's; empty: our own
}

// trafficPaths finds the elements of all pairs, and how packets get from one to the other.
func (c *CLI) trafficPaths(ctx context.Context, p *trafficPlan, dirs instance.Dirs) ([]trafficPath, error) {
	cl, err := c.connect()
	if err != nil {
		return nil, err
	}
	var paths []trafficPath
	for _, pair := range p.pairs {
		elements, err := cl.Elements(ctx, pair.from.network)
		if err != nil {
			return nil, wrap(ctx, cl, err, pair.from)
		}
		if len(elements) == 0 {
			if err := lookUp(ctx, cl, pair.from); err != nil {
				return nil, err
			}
		}
		for _, r := range []ref{pair.from, pair.to} {
			view, err := findElement(elements, r.id())
			if err == nil && r.iface != "" {
				_, err = findInterface(view, r.iface)
			}
			if err != nil {
				return nil, err
			}
		}
		key := p.named.key(pair.from.network)
		from, err := findEndpoint(elements, pair.from, dirs, key)
		if err != nil {
			return nil, err
		}
		to, err := findEndpoint(elements, pair.to, dirs, key)
		if err != nil {
			return nil, err
		}
		path, err := resolvePath(ctx, p, pair, from, to)
		if err != nil {
			return nil, failed("from %s to %s: %w", from.id, to.id, err)
		}
		for _, other := range paths {
			if p.mode == modeTrial && other.To == path.To {
				return nil, usageError(nil, "two pairs end at %s: give the second one as a stream of its own trial",
					path.To)
			}
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func findEndpoint(elements []model.ElementView, r ref, dirs instance.Dirs, key string) (endpoint, error) {
	view, err := findElement(elements, r.id())
	if err != nil {
		return endpoint{}, err
	}
	e := endpoint{id: view.ID, element: &view.Element, node: dirs.Node(view.Node)}
	switch {
	case view.Phase == model.PhaseStopped:
		return e, failed("%s is stopped; start it with `polyplane start %s`", e.id, e.id)
	case view.Phase == model.PhaseSuspended:
		return e, failed("%s is suspended; `polyplane resume %s` lets it go on", e.id, e.id)
	case view.Node == "":
		return e, failed("%s is on no node yet; `polyplane get elements %s -w` shows when it is", e.id, e.id.Network)
	case view.Element.Kind == model.Switch:
		return e, failed("%s is a switch: it has no addresses to send from or to; name hosts or routers", e.id)
	}
	e.namespace = e.node.Namespace(model.ID{Network: key, Element: e.id.Element})
	if _, err := os.Stat(e.namespace); err != nil {
		return e, failed("%s is on node %s, and its namespace is not on this machine (%w): run this command there, "+
			"with both elements there", e.id, view.Node, err)
	}
	if _, err := os.Stat(e.node.NodeNamespace()); err == nil {
		e.ports = e.node.NodeNamespace()
	}
	return e, nil
}

// resolvePath asks the kernel in A for the way to B, as `ip route get` does, and makes all neighbours on the way known.
// Otherwise the first frames would be lost while their addresses are resolved.
func resolvePath(ctx context.Context, p *trafficPlan, pair trafficPair, from, to endpoint) (trafficPath, error) {
	var path trafficPath
	var err error
	if path.Destination, path.To, err = arrival(p, pair.to, from, to); err != nil {
		return path, err
	}
	target := path.Destination
	if p.prefix.IsValid() {
		target = p.prefix.Addr()
	}
	err = netdev.In(from.namespace, func() error {
		options := &netlink.RouteGetOptions{}
		if pair.from.iface != "" {
			i, _ := findInterface(&model.ElementView{ElementStatus: model.ElementStatus{ID: from.id},
				Element: *from.element}, pair.from.iface)
			options.Oif = i.LinuxName()
		}
		routes, err := netlink.RouteGetWithOptions(target.AsSlice(), options)
		if err != nil || len(routes) == 0 {
			return fmt.Errorf("%s has no route to %s: %w", from.id, target, err)
		}
		r := routes[0]
		l, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			return err
		}
		if path.Source, path.NextHop, err = sourceAndHop(r, target); err != nil {
			return err
		}
		path.SourceMAC, path.Device = l.Attrs().HardwareAddr,
			netdev.Ref{Namespace: from.namespace, Name: l.Attrs().Name}
		if most := largest(p.sizes); most > l.Attrs().MTU+frames.MaxSize-1500 {
			return fmt.Errorf("frames of %d bytes do not fit %s, whose MTU is %d", most,
				path.Device.Name, l.Attrs().MTU)
		}
		path.NextHopMAC, err = resolveNeighbour(ctx, r.LinkIndex, path.Device.Name, path.NextHop)
		return err
	})
	if err != nil {
		return path, err
	}
	name, err := interfaceOf(from, path.Device.Name)
	if err != nil {
		return path, err
	}
	path.From = model.PortID{ID: from.id, Interface: name}
	path.Port = netdev.Ref{Namespace: from.ports, Name: from.node.PortDevice(path.From)}
	path.SinkDevice = netdev.Ref{Namespace: to.namespace, Name: deviceOf(to, path.To.Interface)}
	path.SinkPort = netdev.Ref{Namespace: to.ports, Name: to.node.PortDevice(path.To)}
	path.Queued, err = queued(path.SinkPort)
	return path, err
}

// queued tells whether the fabric has a queue at a port.
func queued(port netdev.Ref) (found bool, err error) {
	err = netdev.In(port.Namespace, func() error {
		l, err := netlink.LinkByName(port.Name)
		if err != nil {
			return err
		}
		queues, err := linux.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
		for _, q := range queues {
			if q.Attrs().Parent == netlink.HANDLE_ROOT && q.Type() != "noqueue" {
				found = true
			}
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for a queue at %v: %w", port, err)
	}
	return found, nil
}

// arrival picks B's interface and address: the one that the user named, one in a subnet that A is in as well, or the
// one from which B itself would answer.
func arrival(p *trafficPlan, wanted ref, from, to endpoint) (netip.Addr, model.PortID, error) {
	family := model.IPv4
	if p.ipv6 {
		family = model.IPv6
	}
	back := ""
	if wanted.iface == "" {
		back = backwards(from, to, family)
	}
	var best netip.Addr
	var at string
	rank := 0
	for _, i := range to.element.Interfaces {
		for _, a := range i.Addresses {
			if !isFamily(a.Addr(), family) || a.Addr().IsLinkLocalUnicast() {
				continue
			}
			r := 1
			switch {
			case wanted.iface == i.Name:
				r = 4
			case wanted.iface != "":
				r = 0
			case hasAddressIn(from.element, a.Masked()):
				r = 3
			case back == i.LinuxName():
				r = 2
			}
			if r > rank {
				best, at, rank = a.Addr(), i.Name, r
			}
		}
	}
	what := to.id.String()
	if wanted.iface != "" {
		what += ":" + wanted.iface
	}
	if rank == 0 {
		return best, model.PortID{}, fmt.Errorf("%s has no %s address; `polyplane describe %s` shows what it has", what,
			p.kindName(), to.id)
	}
	return best, model.PortID{ID: to.id, Interface: at}, nil
}

func (p *trafficPlan) kindName() string {
	if p.ipv6 {
		return "IPv6"
	}
	return "IPv4"
}

// backwards is the device by which B would send to A; empty if that cannot be told.
func backwards(from, to endpoint, family model.Family) (device string) {
	for _, i := range from.element.Interfaces {
		for _, a := range i.Addresses {
			if device != "" || !isFamily(a.Addr(), family) {
				continue
			}
			_ = netdev.In(to.namespace, func() error { // no route is no answer
				routes, err := netlink.RouteGet(a.Addr().AsSlice())
				if err != nil || len(routes) == 0 {
					return err
				}
				l, err := netlink.LinkByIndex(routes[0].LinkIndex)
				if err == nil && l.Attrs().Flags&net.FlagLoopback == 0 {
					device = l.Attrs().Name
				}
				return err
			})
		}
	}
	return device
}

func largest(s frames.Sizes) int {
	most := s.Max
	for _, v := range s.Of {
		most = max(most, v)
	}
	return most
}

func sourceAndHop(r netlink.Route, target netip.Addr) (src, hop netip.Addr, err error) {
	src, ok := netip.AddrFromSlice(r.Src)
	if !ok {
		return src, hop, errors.New("the route names no source address")
	}
	hop = target
	via := r.Gw
	if v, ok := r.Via.(*netlink.Via); ok && via == nil {
		via = v.Addr
	}
	if len(via) > 0 {
		if hop, ok = netip.AddrFromSlice(via); !ok {
			return src, hop, fmt.Errorf("the route's next hop %v is no address", via)
		}
	}
	return src.Unmap(), hop.Unmap(), nil
}

// neighbourPatience is how long ARP and neighbour discovery need at most: three requests, a second apart (RFC 4861,
// section 10).
const neighbourPatience = 4 * time.Second

// resolveNeighbour makes the kernel find out the MAC address of the next hop, in the calling thread's namespace.
func resolveNeighbour(ctx context.Context, device int, name string, hop netip.Addr) (net.HardwareAddr, error) {
	family := netlink.FAMILY_V4
	if hop.Is6() {
		family = netlink.FAMILY_V6
	}
	const usable = netlink.NUD_REACHABLE | netlink.NUD_PERMANENT | netlink.NUD_NOARP | netlink.NUD_STALE |
		netlink.NUD_DELAY | netlink.NUD_PROBE
	probed := time.Time{}
	for deadline := time.Now().Add(neighbourPatience); ; {
		known, err := linux.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(device, family) })
		if err != nil {
			return nil, fmt.Errorf("read the neighbours: %w", err)
		}
		for _, n := range known {
			if a, ok := netip.AddrFromSlice(n.IP); ok && a.Unmap() == hop && n.State&usable != 0 &&
				len(n.HardwareAddr) == 6 {
				return n.HardwareAddr, nil
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("nobody at %s has the next hop's address %s (ARP and neighbour discovery get no "+
				"answer)", name, hop)
		}
		if time.Since(probed) > time.Second {
			probed = time.Now()
			if err := probe(device, hop); err != nil {
				return nil, fmt.Errorf("probe the next hop %s: %w", hop, err)
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// probe sends one datagram to the discard port, which makes the kernel resolve the neighbour.
func probe(device int, to netip.Addr) error {
	domain, at := unix.AF_INET,
		unix.Sockaddr(&unix.SockaddrInet4{Port: frames.DestinationPort, Addr: [4]byte(to.AsSlice()[:4])})
	if to.Is6() {
		domain, at = unix.AF_INET6, &unix.SockaddrInet6{Port: frames.DestinationPort, Addr: to.As16(),
			ZoneId: uint32(device)}
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte{0}, unix.MSG_DONTWAIT, at)
}

func interfaceOf(e endpoint, device string) (string, error) {
	for _, i := range e.element.Interfaces {
		if i.LinuxName() == device {
			return i.Name, nil
		}
	}
	return "", fmt.Errorf("the way leads through %s's device %s, which is none of its interfaces on a link", e.id,
		device)
}

func deviceOf(e endpoint, name string) string {
	for _, i := range e.element.Interfaces {
		if i.Name == name {
			return i.LinuxName()
		}
	}
	return name
}

// streamsOf returns the streams of a path, with equal shares of a rate.
func (p *trafficPlan) streamsOf(path trafficPath) []generator.Stream {
	to, ports := p.spread(path.Destination)
	var out []generator.Stream
	for i := range p.streams {
		out = append(out, generator.Stream{
			Headers: frames.Headers{Kind: p.kind, SourceMAC: path.SourceMAC, DestMAC: path.NextHopMAC,
				Source: path.Source},
			Sizes: p.sizes, Destinations: to, SourcePort: uint16(1024 + i*ports),
			SourcePorts: ports, Poisson: p.poisson,
		})
	}
	return out
}
