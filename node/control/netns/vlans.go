package netns

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/port"
)

// Interfaces of VLANs are devices (IEEE 802.1Q) on the element's end of a port. They have no ports: what passes them
// passes the port with a tag.

// vlanGroup marks those devices that this driver made. So it knows them when it comes back, and leaves alone VLANs that
// somebody made inside the element.
const vlanGroup = 0x706f6c76

// wantVLAN is a wanted device of a VLAN. It is treated as an element's end of a port but for how it is made.
type wantVLAN struct {
	wantInterface
	on   string // the device that it is on
	vlan int
}

// newWantVLAN is a VLAN's device: it has the MAC address and the MTU of the one that it is on, as Linux has it by
// itself.
func newWantVLAN(id model.ID, on *wantInterface, ifc *model.ResolvedInterface) (wantVLAN, error) {
	key := model.PortID{ID: id, Interface: ifc.Name}
	w := wantVLAN{on: on.Pair.Name, vlan: ifc.VLAN}
	w.label, w.addresses, w.vrf, w.MTU = ifc.Name, ifc.Addresses, ifc.VRF, on.MTU
	w.Pair = &port.End{Name: ifc.LinuxName(), MAC: on.Pair.MAC, Single: on.Pair.Single}
	if n := len(w.Pair.Name); n == 0 || n > maxDeviceName {
		return w, fmt.Errorf("interface %s: its device name %q has %d characters: want 1 to %d", key, w.Pair.Name, n,
			maxDeviceName)
	}
	if mac, err := net.ParseMAC(ifc.MAC); err == nil && len(mac) == 6 && on.Pair.MAC == nil {
		w.Pair.MAC = mac
	}
	if ifc.Far == nil {
		return w, nil
	}
	var err error
	w.neighbours, err = newNeighbours(key, ifc.Far.Peers)
	return w, err
}

// is returns whether a device is the wanted one.
func (w *wantVLAN) is(l *link, in *inside) bool {
	on := in.links[w.on]
	return l != nil && on != nil && l.VLAN == w.vlan && l.Peer == on.Index
}

// vlansToChange are the devices that are missing, and those that must go: what is in the place of a wanted one, and
// this driver's that are wanted no longer.
func (in *inside) vlansToChange(w *want) (add []*wantVLAN, remove []*link) {
	wanted := make(map[string]bool, len(w.vlans))
	for i := range w.vlans {
		v := &w.vlans[i]
		wanted[v.Pair.Name] = true
		switch l := in.links[v.Pair.Name]; {
		case v.is(l, in):
			continue
		case l != nil:
			remove = append(remove, l)
		}
		if in.links[v.on] != nil { // else the pair is made first
			add = append(add, v)
		}
	}
	for _, l := range in.links {
		if l.VLAN != 0 && l.Group == vlanGroup && !wanted[l.Name] {
			remove = append(remove, l)
		}
	}
	return add, remove
}

// makeVLANs makes the missing devices, and removes what must go. All else about them is planned as for other devices.
func (in *inside) makeVLANs(c *linux.Rtnetlink, w *work) error {
	add, remove := in.vlansToChange(w.want)
	if len(add)+len(remove) == 0 {
		return nil
	}
	var b linux.Batch
	var doing []string
	for _, l := range remove {
		port.Delete(&b, &l.Link)
		doing = append(doing, "remove the device "+l.Name)
		delete(in.links, l.Name)
		w.did(change.DeviceRemoved, l.Name)
	}
	for _, v := range add {
		b.AddVLAN(v.Pair.Name, in.links[v.on].Index, v.vlan, v.MTU, vlanGroup)
		doing = append(doing, fmt.Sprintf("make the device %s for the VLAN %d on %s", v.Pair.Name, v.vlan, v.on))
		w.did(change.VLANMade, v.label, v.vlan)
	}
	for i, err := range c.Do(&b) {
		if err != nil && !(i < len(remove) && err == unix.ENODEV) {
			return fmt.Errorf("%s: %w", doing[i], err)
		}
	}
	links, err := readLinks(c, w.want)
	if err != nil {
		return err
	}
	for _, v := range add {
		l := links[v.Pair.Name]
		if l == nil {
			return fmt.Errorf("the device %s, which was just made, is not there", v.Pair.Name)
		}
		l.raise = true
		in.links[v.Pair.Name] = l
	}
	return nil
}
