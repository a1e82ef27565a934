package netns

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
)

// A router that takes part in VRRP has, above its interface, a device with the virtual router's MAC address and its
// address: a macvlan. FRR's vrrpd finds it by that MAC address, and gives it a carrier as long as the router is the
// master (docs.frrouting.org/en/latest/vrrp.html). The driver makes it without one: until vrrpd says otherwise, nobody
// answers for the virtual router here. Its address has no subnet, so that what the router sends to the segment goes by
// the interface itself.
//
// When the interface below gets its carrier back, the kernel gives the device one as well, although vrrpd has said that
// it shall have none, and vrrpd does not say so again (netif_stacked_transfer_operstate of net/core/dev.c looks at
// nothing else). Then two routers answer for the address. So the driver takes it away again.
//
// Who answers for an address, and from which MAC address, is decided by settings that all elements have (sysctl.go): by
// arp_ignore the interface does not answer for the device above it, and by arp_announce a router that answers a packet
// to the virtual address does not ask for the way back in the name of that address and from its own MAC address, which
// neighbours would take for the virtual router's.

// wantVirtual is such a device.
type wantVirtual struct {
	device, parent string
	mac            [6]byte
	address        netip.Prefix
}

// virtualAlias marks the devices that were made for virtual routers.
const virtualAlias = "polyplane virtual router"

// inet6AddrGenMode is IFLA_INET6_ADDR_GEN_MODE of linux/if_link.h, addrGenNone its IN6_ADDR_GEN_MODE_NONE.
const (
	inet6AddrGenMode = 8
	addrGenNone      = 1
)

func newWantVirtual(parent string, v *model.VirtualRouter) wantVirtual {
	return wantVirtual{device: v.Device, parent: parent, mac: v.MAC(),
		address: netip.PrefixFrom(v.Address, v.Address.BitLen())}
}

// is returns whether a device may be the one that is wanted.
func (v *wantVirtual) is(l, parent *link) bool { return l.MAC == v.mac && l.Peer == parent.Index }

// lacksVirtual returns whether a device is still to be made, or to be finished.
func (in *inside) lacksVirtual(w *want) bool {
	return w.up && slices.ContainsFunc(w.virtuals, func(v wantVirtual) bool {
		l, parent := in.links[v.device], in.links[v.parent]
		return parent != nil && (l == nil || !v.is(l, parent) || l.Alias != virtualAlias)
	})
}

func (in *inside) planVirtuals(r *repair, w *want, forceUp bool) {
	for name, l := range in.links {
		if l.Alias == virtualAlias && !slices.ContainsFunc(w.virtuals,
			func(v wantVirtual) bool { return v.device == name }) {
			in.removeVirtual(r, l)
		}
	}
	for i := range w.virtuals {
		in.planVirtual(r, w, &w.virtuals[i], forceUp)
	}
}

func (in *inside) removeVirtual(r *repair, l *link) {
	r.request(unix.RTM_DELLINK, 0, step{doing: "remove the virtual router's device " + l.Name,
		done: change.DeviceRemoved.Of(l.Name), harmless: unix.ENODEV})
	r.Link(l.Index, 0, 0)
}

// planVirtual makes a device, or puts it right. What is made has to be looked at again, since its number is not known
// here: see lacksVirtual.
func (in *inside) planVirtual(r *repair, w *want, v *wantVirtual, forceUp bool) {
	parent, l := in.links[v.parent], in.links[v.device]
	if parent == nil {
		return // the caller makes sure that pairs exist
	}
	if l != nil && !v.is(l, parent) {
		in.removeVirtual(r, l)
		l = nil
	}
	if l == nil {
		if w.up {
			r.request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, step{
				doing: "make the virtual router's device " + v.device, done: change.DeviceMade.Of(v.device)})
			r.AddMacvlan(v.device, parent.Index, v.mac)
		}
		return
	}
	up := w.up && !l.Up() && forceUp
	held := l.Held && (up || l.Up() && l.Flags&unix.IFF_LOWER_UP != 0)
	if l.Alias != virtualAlias {
		r.request(unix.RTM_SETLINK, 0, step{doing: "prepare the virtual router's device " + v.device})
		r.Link(l.Index, 0, 0)
		r.String(unix.IFLA_IFALIAS, virtualAlias)
		r.Begin(unix.IFLA_AF_SPEC)
		r.Begin(unix.AF_INET6)
		r.Uint8(inet6AddrGenMode, addrGenNone)
		r.End()
		r.End()
		up, held = w.up, w.up
	}
	switch {
	case up:
		r.request(unix.RTM_SETLINK, 0, step{doing: "take " + v.device + " up"})
		r.Link(l.Index, unix.IFF_UP, unix.IFF_UP)
	case !w.up && l.Up():
		r.request(unix.RTM_SETLINK, 0, step{doing: "take " + v.device + " down", done: change.DeviceDown.Of(v.device)})
		r.Link(l.Index, 0, unix.IFF_UP)
	}
	if held { // once it is up, which gives it a carrier whatever was said before
		r.request(unix.RTM_SETLINK, 0, step{doing: "take the carrier from " + v.device})
		r.Link(l.Index, 0, 0)
		r.Uint8(unix.IFLA_PROTO_DOWN, 1)
	}
	in.planAddresses(r, v.device, l.Index, []netip.Prefix{v.address})
}

// finishVirtuals looks again at what was made, and goes on with it.
func (in *inside) finishVirtuals(c *linux.Rtnetlink, w *want, forceUp bool) error {
	links, err := readLinks(c, w)
	if err != nil {
		return err
	}
	now := inside{links: links, addresses: map[addressKey]presentAddress{}}
	if err := now.readAddresses(c); err != nil {
		return err
	}
	var r repair
	now.planVirtuals(&r, w, forceUp)
	_, err = r.do(c)
	return err
}
