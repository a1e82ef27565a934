package netns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/port"
)

// repair is a list of requests that make a namespace as wanted, and what each of them does.
type repair struct {
	linux.Batch
	steps []step // one a request
}

// step is what one request does.
type step struct {
	doing string // "add address 10.0.0.1/24 to eth0"
	// done is what the step does, for events. If several steps belong together, one tells it and the others leave it
	// empty.
	done     change.Change
	device   string     // the device inside that it concerns, if any
	harmless unix.Errno // an error that means that this was done already
}

func (r *repair) request(kind, flags uint16, s step) {
	r.Request(kind, flags)
	r.steps = append(r.steps, s)
}

// hush keeps what concerns one device out of events.
func (r *repair) hush(device string) {
	for i := range r.steps {
		if r.steps[i].device == device {
			r.steps[i].done = change.Change{}
		}
	}
}

// do sends the requests, and returns what was done.
func (r *repair) do(c *linux.Rtnetlink) ([]change.Change, error) {
	if r.Len() == 0 {
		return nil, nil
	}
	failures := c.Do(&r.Batch)
	var done []change.Change
	var errs []error
	for i, s := range r.steps {
		if failures != nil && failures[i] != nil && !(s.harmless != 0 && errors.Is(failures[i], s.harmless)) {
			errs = append(errs, fmt.Errorf("%s: %w", s.doing, failures[i]))
		} else if s.done != (change.Change{}) {
			done = append(done, s.done)
		}
	}
	return done, errors.Join(errs...)
}

// plan compares what is inside with what is wanted. before is what was wanted last, or nil if that is not known.
// forceUp takes devices up even where routing software may have taken them down: `shutdown` in vtysh is the user's
// wish.
func (in *inside) plan(r *repair, w, before *want, forceUp bool) {
	in.planLoopback(r, w)
	for ifc := range w.devices() {
		in.planDevice(r, w, ifc, forceUp)
	}
	in.planVirtuals(r, w, forceUp)
	in.planNeighbours(r, w, before, forceUp)
	if w.up {
		in.planRoutes(r, w) // those that were wanted before, where routing software has taken over
		in.planLabels(r, w)
	}
}

func (in *inside) planLoopback(r *repair, w *want) {
	lo := in.links["lo"]
	if lo == nil {
		return
	}
	if !lo.Up() {
		r.request(unix.RTM_SETLINK, 0, step{doing: "take lo up", done: change.DeviceUp.Of("lo")})
		r.Link(lo.Index, unix.IFF_UP, unix.IFF_UP)
	}
	in.planAddresses(r, "lo", lo.Index, w.loopback)
	if w.up {
		in.planConnected(r, lo, "lo", w.loopback)
	}
}

// planDevice puts an element's end of a link right. It is taken up last, and its addresses follow: routes that software
// learns by a device with a wrong MTU or MAC address would be wrong as well.
func (in *inside) planDevice(r *repair, w *want, ifc *wantInterface, forceUp bool) {
	l := in.links[ifc.Pair.Name]
	if l == nil {
		return // the caller makes sure that pairs exist
	}
	if ifc.Pair.MAC != nil && !bytes.Equal(l.MAC[:], ifc.Pair.MAC) {
		r.request(unix.RTM_SETLINK, 0, step{doing: "set the MAC address of " + ifc.Pair.Name,
			done: change.MACSet.Of(ifc.label)})
		r.Link(l.Index, 0, 0)
		r.Attr(unix.IFLA_ADDRESS, ifc.Pair.MAC)
	}
	if l.MTU != ifc.MTU {
		r.request(unix.RTM_SETLINK, 0, step{doing: fmt.Sprintf("set the MTU of %s to %d", ifc.Pair.Name, ifc.MTU),
			done: change.MTUSet.Of(ifc.label)})
		r.Link(l.Index, 0, 0)
		r.Uint32(unix.IFLA_MTU, uint32(ifc.MTU))
	}
	if single := l.Segments == 1; single != ifc.Pair.Single {
		most := uint32(port.GSOMaxSegments)
		if ifc.Pair.Single {
			most = 1
		}
		r.request(unix.RTM_SETLINK, 0,
			step{doing: fmt.Sprintf("let GSO packets of %s have %d segments", ifc.Pair.Name, most),
				done: change.SegmentsSet.Of(ifc.label)})
		r.Link(l.Index, 0, 0)
		r.Uint32(unix.IFLA_GSO_MAX_SEGS, most)
	}
	if ifc.label != ifc.Pair.Name && l.Alias != ifc.label {
		r.request(unix.RTM_SETLINK, 0, step{doing: "name " + ifc.Pair.Name})
		r.Link(l.Index, 0, 0)
		r.String(unix.IFLA_IFALIAS, ifc.label)
	}
	if w.raises(l, forceUp) {
		r.request(unix.RTM_SETLINK, 0, step{doing: "take " + ifc.Pair.Name + " up",
			done: change.DeviceUp.Of(ifc.label), device: ifc.Pair.Name,
			harmless: unix.ENETDOWN}) // one of a VLAN comes up with the one that it is on
		r.Link(l.Index, unix.IFF_UP, unix.IFF_UP)
	}
	if !w.up && l.Up() {
		r.request(unix.RTM_SETLINK, 0, step{doing: "take " + ifc.Pair.Name + " down",
			done: change.DeviceDown.Of(ifc.label)})
		r.Link(l.Index, 0, unix.IFF_UP)
	}
	in.planAddresses(r, ifc.Pair.Name, l.Index, ifc.addresses)
	in.planLinkLocal(r, l, ifc)
	if w.up {
		in.planConnected(r, l, ifc.Pair.Name, ifc.addresses)
	}
}

// raises returns whether a device that is down is to be taken up.
func (w *want) raises(l *link, forceUp bool) bool {
	return w.up && !l.Up() && (w.ownRoutes || forceUp || l.raise)
}

// planLinkLocal gives a device with IPv6 addresses its link-local address back. The kernel makes the first one, but no
// other while the device stays up. Without one the device resolves no neighbour for packets that it forwards.
func (in *inside) planLinkLocal(r *repair, l *link, ifc *wantInterface) {
	is6 := func(p netip.Prefix) bool { return p.Addr().Is6() }
	if !l.IPv6 || !l.Up() || l.Flags&unix.IFF_LOWER_UP == 0 || !slices.ContainsFunc(ifc.addresses, is6) {
		return
	}
	for key := range in.addresses {
		if key.index == l.Index && key.prefix.Addr().Is6() && key.prefix.Addr().IsLinkLocalUnicast() {
			return
		}
	}
	a := model.LinkLocal(l.MAC)
	if slices.ContainsFunc(ifc.addresses, func(p netip.Prefix) bool {
		return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()
	}) {
		return // the wanted one was just planned
	}
	r.request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, step{
		doing: fmt.Sprintf("add the link-local address %s to %s", a, ifc.Pair.Name),
		done:  change.LinkLocalAdded.Of(ifc.label), device: ifc.Pair.Name, harmless: unix.EEXIST})
	r.Address(l.Index, unix.AF_INET6, 64, unix.RT_SCOPE_LINK, unix.IFA_F_NODAD)
	r.Attr(unix.IFA_LOCAL, a.AsSlice())
	r.Attr(unix.IFA_ADDRESS, a.AsSlice())
}

// planAddresses adds the wanted addresses and removes those that bear this driver's mark (IFA_PROTO). Others are the
// element's own.
func (in *inside) planAddresses(r *repair, device string, index int, wanted []netip.Prefix) {
	for key, a := range in.addresses {
		if a.ours() && key.index == index && !slices.Contains(wanted, key.prefix) {
			r.request(unix.RTM_DELADDR, 0, step{doing: fmt.Sprintf("remove address %s from %s", key.prefix, device),
				done: change.AddressRemoved.Of(device, key.prefix), harmless: unix.EADDRNOTAVAIL})
			addressRequest(r, index, key.prefix, false)
		}
	}
	for _, p := range wanted {
		if _, there := in.addresses[addressKey{index, p}]; there {
			continue
		}
		r.request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, step{
			doing: fmt.Sprintf("add address %s to %s", p, device),
			done:  change.AddressAdded.Of(device, p), device: device, harmless: unix.EEXIST})
		addressRequest(r, index, p, true)
	}
}

// addressRequest says an address as ip(8) does: its scope follows from its kind, and an IPv4 subnet of more than two
// addresses has its last one as broadcast (RFC 3021: those of /31 have none). IPv6 addresses are good at once: the
// platform itself gives them, so duplicates need not be looked for.
func addressRequest(r *repair, index int, p netip.Prefix, add bool) {
	a := p.Addr()
	family, scope, flags := uint8(unix.AF_INET), uint8(unix.RT_SCOPE_UNIVERSE), uint8(0)
	if a.Is6() {
		family, flags = unix.AF_INET6, unix.IFA_F_NODAD
	}
	if a.IsLoopback() {
		scope = unix.RT_SCOPE_HOST
	} else if a.IsLinkLocalUnicast() {
		scope = unix.RT_SCOPE_LINK
	}
	r.Address(index, family, uint8(p.Bits()), scope, flags)
	r.Attr(unix.IFA_LOCAL, a.AsSlice())
	r.Attr(unix.IFA_ADDRESS, a.AsSlice())
	if !add {
		return
	}
	r.Uint8(ifaProto, ownProtocol)
	if a.Is4() && p.Bits() < 31 && !a.IsLoopback() {
		r.Attr(unix.IFA_BROADCAST, lastOf(p).AsSlice())
	}
}

// planRoutes adds the wanted routes and removes others of this driver's. Those of routing software and of people bear
// other protocol numbers, and are not seen here.
func (in *inside) planRoutes(r *repair, w *want) {
	there := make([]bool, len(w.routes))
	wanted := make(map[netip.Prefix][]int, len(w.routes))
	for i := range w.routes {
		wanted[w.routes[i].to] = append(wanted[w.routes[i].to], i)
	}
	for i := range in.routes {
		have := &in.routes[i]
		same := wanted[have.to]
		if k := slices.IndexFunc(same, func(j int) bool { return have.is(&w.routes[j], in) }); k >= 0 {
			there[same[k]] = true
			continue
		}
		r.request(unix.RTM_DELROUTE, 0, step{doing: fmt.Sprintf("remove the route to %s", have.to),
			done: change.RouteRemoved.Of(have.to), harmless: unix.ESRCH})
		family := uint8(unix.AF_INET)
		if have.to.Addr().Is6() {
			family = unix.AF_INET6
		}
		r.Raw(inTable(rtMsg(family, uint8(have.to.Bits()), ownProtocol, unix.RT_SCOPE_NOWHERE, have.kind)))
		r.Uint32(unix.RTA_TABLE, have.table)
		r.Attr(unix.RTA_DST, have.to.Addr().AsSlice())
		r.Uint32(unix.RTA_PRIORITY, have.metric)
	}
	for i := range w.routes {
		if !there[i] {
			in.addRoute(r, &w.routes[i])
		}
	}
}

// addRoute asks for a route, with one next hop, or with several as struct rtnexthop says them.
func (in *inside) addRoute(r *repair, w *wantRoute) {
	family, scope := uint8(unix.AF_INET), uint8(unix.RT_SCOPE_UNIVERSE)
	if w.to.Addr().Is6() {
		family = unix.AF_INET6
	}
	if w.kind == unix.RTN_UNICAST && len(w.via) == 0 && family == unix.AF_INET {
		scope = unix.RT_SCOPE_LINK
	}
	table := in.tableOf(w.vrf)
	if table == 0 {
		return // the caller makes sure that VRFs exist
	}
	done := change.RouteAdded.Of(w.to)
	if w.metric == lastMetric && w.vrf != "" {
		done = change.Change{} // it is a part of the VRF
	}
	r.request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE,
		step{doing: fmt.Sprintf("add the route to %s", w.to), done: done})
	r.Raw(inTable(rtMsg(family, uint8(w.to.Bits()), ownProtocol, scope, w.kind)))
	r.Uint32(unix.RTA_TABLE, table)
	r.Attr(unix.RTA_DST, w.to.Addr().AsSlice())
	r.Uint32(unix.RTA_PRIORITY, w.metric)
	if w.kind != unix.RTN_UNICAST {
		return
	}
	index := 0
	if l := in.links[w.device]; l != nil {
		index = l.Index
	}
	if len(w.labels) > 0 {
		r.Labelled(w.labels)
	}
	if len(w.via) <= 1 {
		if index != 0 {
			r.Uint32(unix.RTA_OIF, uint32(index))
		}
		if len(w.via) == 1 {
			r.Attr(gatewayValue(family, w.via[0]))
		}
		return
	}
	r.Begin(unix.RTA_MULTIPATH)
	for _, via := range w.via {
		kind, value := gatewayValue(family, via)
		length := unix.SizeofRtNexthop + unix.SizeofRtAttr + (len(value)+3)&^3
		head := binary.NativeEndian.AppendUint16(nil, uint16(length))
		head = append(head, 0, 0)
		r.Raw(binary.NativeEndian.AppendUint32(head, uint32(index)))
		r.Attr(kind, value)
	}
	r.End()
}

// inTable is a struct rtmsg of a route whose table is told by an attribute: numbers of VRFs' tables are too large for
// it.
func inTable(head []byte) []byte {
	head[4] = unix.RT_TABLE_UNSPEC
	return head
}

// gatewayValue is a next hop's address as an attribute. A next hop of the other family (RFC 8950) has its own kind of
// attribute.
func gatewayValue(family uint8, via netip.Addr) (kind uint16, value []byte) {
	if via.Is4() == (family == unix.AF_INET) {
		return unix.RTA_GATEWAY, via.AsSlice()
	}
	return unix.RTA_VIA, append(binary.NativeEndian.AppendUint16(nil, unix.AF_INET6), via.AsSlice()...)
}
