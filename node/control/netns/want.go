package netns

import (
	"cmp"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/port"
)

// want is what an element is to have in the kernel, in the kernel's terms.
type want struct {
	kind       model.Kind
	up         bool
	interfaces []wantInterface
	virtuals   []wantVirtual
	vlans      []wantVLAN
	mpls       bool // it switches labels
	labels     []wantLabel
	vrfs       []wantVRF
	loopback   []netip.Prefix
	routes     []wantRoute // where routing software makes the others, those with labels and those that end VRFs
	ownRoutes  bool        // static routes are this driver's; of others those with labels are
}

// wantInterface is an end of a link: the port on the node, the device in the element, and what that has.
type wantInterface struct {
	port.Port
	label     string // the user's name for it
	addresses []netip.Prefix
	vrf       string // that it is in; empty for none
	// neighbours are the addresses that it reaches without a router.
	neighbours []wantNeighbour
}

// wantRoute is a route as the kernel has it. With several in via it is one route by all of them.
type wantRoute struct {
	to     netip.Prefix
	kind   uint8 // RTN_*
	metric uint32
	via    []netip.Addr
	device string
	labels []int  // that packets get
	vrf    string // in whose table it is; empty for the main one
}

// maxDeviceName is Linux's limit (IFNAMSIZ less the final zero).
const maxDeviceName = 15

// has returns whether there is an interface with that key.
func (w *want) has(key string) bool {
	for i := range w.interfaces {
		if w.interfaces[i].Key == key {
			return true
		}
	}
	return false
}

// hasDevice returns whether there is to be a device with that name.
func (w *want) hasDevice(name string) bool {
	for i := range w.devices() {
		if i.Pair.Name == name {
			return true
		}
	}
	return slices.ContainsFunc(w.virtuals, func(v wantVirtual) bool { return v.device == name }) ||
		slices.Contains(w.vrfs, wantVRF{name})
}

// devices are the element's ends of its ports, and the devices of VLANs on them.
func (w *want) devices() iter.Seq[*wantInterface] {
	return func(yield func(*wantInterface) bool) {
		for i := range w.interfaces {
			if !yield(&w.interfaces[i]) {
				return
			}
		}
		for i := range w.vlans {
			if !yield(&w.vlans[i].wantInterface) {
				return
			}
		}
	}
}

// protocols are those whose routes are examined. With before, these include the ones that this driver used before
// routing software took over.
func (w *want) protocols(before bool) []uint8 {
	switch {
	case w.kind == model.Switch:
		return nil
	case w.ownRoutes || before || w.mpls || len(w.vrfs) > 0:
		return []uint8{unix.RTPROT_KERNEL, ownProtocol}
	}
	return []uint8{unix.RTPROT_KERNEL}
}

// newWant translates one job.
func newWant(dirs instance.NodeDirs, job control.Job) (*want, error) {
	el := &job.Element
	switch el.Kind {
	case model.Router, model.Host, model.Switch:
	default:
		return nil, fmt.Errorf("element %s is of kind %q: want router, host or switch", job.ID, el.Kind)
	}
	w := &want{kind: el.Kind, up: !el.Stopped, interfaces: make([]wantInterface, len(el.Interfaces))}
	devices := make(map[string]bool, len(el.Interfaces))
	for i := range el.Interfaces {
		ifc, err := newWantInterface(dirs, job.ID, &el.Interfaces[i])
		if err != nil {
			return nil, err
		}
		if devices[ifc.Pair.Name] {
			return nil, fmt.Errorf("element %s has two interfaces whose device is %q: give one another name",
				job.ID, ifc.Pair.Name)
		}
		devices[ifc.Pair.Name] = true
		w.interfaces[i] = ifc
	}
	for i := range el.Interfaces {
		for k := range el.Interfaces[i].VLANs {
			v, err := newWantVLAN(job.ID, &w.interfaces[i], &el.Interfaces[i].VLANs[k])
			if err != nil {
				return nil, err
			}
			if devices[v.Pair.Name] {
				return nil, fmt.Errorf("element %s has two interfaces whose device is %q: give one another name",
					job.ID, v.Pair.Name)
			}
			devices[v.Pair.Name] = true
			w.vlans = append(w.vlans, v)
		}
	}
	if el.Kind == model.Switch {
		for i := range w.interfaces {
			w.interfaces[i].addresses = nil
		}
		return w, nil
	}
	for i := range el.Interfaces {
		for k := range el.Interfaces[i].VRRP {
			v := newWantVirtual(w.interfaces[i].Pair.Name, &el.Interfaces[i].VRRP[k])
			if w.hasDevice(v.device) {
				return nil, fmt.Errorf("element %s has two devices that are called %q: give the interface another name",
					job.ID, v.device)
			}
			w.virtuals = append(w.virtuals, v)
		}
	}
	w.loopback = el.Loopback
	if err := w.addLabels(job.ID, el); err != nil {
		return nil, err
	}
	w.ownRoutes = el.Kind == model.Host || el.Software == model.SoftwareStatic || el.Software == model.SoftwareNone ||
		el.Software == ""
	if err := w.addVRFs(job.ID, el); err != nil {
		return nil, err
	}
	if !w.ownRoutes {
		return w, nil
	}
	routes, err := wantRoutes(job.ID, el, el.Gateways, el.Routes)
	w.routes = append(w.routes, routes...)
	return w, err
}

// wantRoutes are the routes of one of an element's tables.
func wantRoutes(id model.ID, el *model.NodeElement, gateways []netip.Addr, routes []model.Route) (all []wantRoute,
	err error) {
	for _, g := range gateways {
		to := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if g.Is4() {
			to = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		all = append(all, wantRoute{to: to, kind: unix.RTN_UNICAST, metric: metric(to, 0), via: []netip.Addr{g}})
	}
	for i := range routes {
		r, err := newWantRoute(id, el, &routes[i])
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func newWantInterface(dirs instance.NodeDirs, id model.ID, ifc *model.PlacedInterface) (wantInterface, error) {
	key := model.PortID{ID: id, Interface: ifc.Name}
	w := wantInterface{label: ifc.Name, addresses: ifc.Addresses, vrf: ifc.VRF,
		Port: port.Port{Key: key.String(), Name: dirs.PortDevice(key),
			Alias: dirs.Alias(key), MTU: ifc.MTU, Pair: &port.End{Name: ifc.LinuxName(), Single: ifc.Shape != nil &&
				ifc.Shape.Loss > 0}}}
	if n := len(w.Pair.Name); n == 0 || n > maxDeviceName {
		return w, fmt.Errorf("interface %s: its device name %q has %d characters: want 1 to %d", key, w.Pair.Name, n,
			maxDeviceName)
	}
	w.MTU = cmp.Or(w.MTU, model.DefaultMTU)
	if ifc.MAC != "" {
		mac, err := net.ParseMAC(ifc.MAC)
		if err != nil || len(mac) != 6 {
			return w, fmt.Errorf("interface %s: %q is no Ethernet address: want one like 02:00:00:00:00:01", key,
				ifc.MAC)
		}
		w.Pair.MAC = mac
	}
	if ifc.Far == nil || len(ifc.Far.Peers) == 0 {
		return w, nil
	}
	var err error
	w.neighbours, err = newNeighbours(key, ifc.Far.Peers)
	return w, err
}

// newNeighbours are the addresses that an interface reaches without a router.
func newNeighbours(key model.PortID, peers []model.LinkPeer) ([]wantNeighbour, error) {
	all := make([]wantNeighbour, 0, 2*len(peers))
	for _, p := range peers {
		mac, err := net.ParseMAC(p.MAC)
		if err != nil || len(mac) != 6 {
			return nil, fmt.Errorf("interface %s: its neighbour's %q is no Ethernet address: want one like "+
				"02:00:00:00:00:01", key, p.MAC)
		}
		all = append(all, each.Of(p.Addresses, func(a netip.Addr) wantNeighbour { return wantNeighbour{a, mac} })...)
	}
	return all, nil
}

var routeKinds = map[model.RouteType]uint8{"": unix.RTN_UNICAST, model.RouteUnicast: unix.RTN_UNICAST,
	model.RouteBlackhole: unix.RTN_BLACKHOLE, model.RouteUnreachable: unix.RTN_UNREACHABLE,
	model.RouteProhibit: unix.RTN_PROHIBIT}

func newWantRoute(id model.ID, el *model.NodeElement, r *model.Route) (wantRoute, error) {
	w := wantRoute{to: r.To.Masked(), metric: metric(r.To, r.Metric), via: r.Via}
	kind, ok := routeKinds[r.Type]
	if !ok {
		return w, fmt.Errorf("element %s: route to %s has type %q: want unicast, blackhole, unreachable or prohibit",
			id, r.To, r.Type)
	}
	w.kind = kind
	if r.Interface != "" {
		for i := range el.Interfaces {
			if el.Interfaces[i].Name == r.Interface {
				w.device = el.Interfaces[i].LinuxName()
			}
			for _, v := range el.Interfaces[i].VLANs {
				if v.Name == r.Interface {
					w.device = v.LinuxName()
				}
			}
		}
		if w.device == "" {
			return w, fmt.Errorf("element %s: route to %s leads out of %q, which is none of its interfaces", id, r.To,
				r.Interface)
		}
	}
	if kind == unix.RTN_UNICAST && len(r.Via) == 0 && r.Interface == "" {
		return w, fmt.Errorf("element %s: route to %s leads nowhere: it needs a next hop, an interface, or a type "+
			"like blackhole", id, r.To)
	}
	return w, nil
}

// metric is the kernel's metric for a route: IPv6 has no zero.
func metric(to netip.Prefix, m int) uint32 {
	if m == 0 && to.Addr().Is6() {
		return 1024 // IP6_RT_PRIO_USER
	}
	return uint32(m)
}
