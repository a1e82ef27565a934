package linux

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Of linux/if_link.h.
const (
	vlanID              = 1 // IFLA_VLAN_ID
	bridgeVLANFiltering = 7 // IFLA_BR_VLAN_FILTERING
)

// AddVLAN requests a device for the frames of one VLAN (IEEE 802.1Q) on another device. It is down.
func (b *Batch) AddVLAN(name string, on, vlan, mtu int, group uint32) int {
	i := b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.Link(0, 0, 0)
	b.String(unix.IFLA_IFNAME, name)
	b.Uint32(unix.IFLA_LINK, uint32(on))
	b.Uint32(unix.IFLA_MTU, uint32(mtu))
	b.Uint32(unix.IFLA_GROUP, group)
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "vlan")
	b.Begin(unix.IFLA_INFO_DATA)
	b.Uint16(vlanID, uint16(vlan))
	b.End()
	b.End()
	return i
}

// VLANOf reads a device's IFLA_LINKINFO: the VLAN whose frames it is for, or 0.
func VLANOf(info []byte) int {
	if v := dataOf(info, "vlan", vlanID); len(v) >= 2 {
		return int(binary.NativeEndian.Uint16(v))
	}
	return 0
}

// dataOf reads one attribute of a device of a kind from its IFLA_LINKINFO; nil for a device of another kind. The kernel
// says the kind first (rtnl_link_fill of net/core/rtnetlink.c).
func dataOf(info []byte, kind string, attribute uint16) (value []byte) {
	is := ""
	for k, v := range Attrs(info) {
		switch k {
		case unix.IFLA_INFO_KIND:
			is = unix.ByteSliceToString(v)
		case unix.IFLA_INFO_DATA:
			for k, x := range Attrs(v) {
				if k == attribute && is == kind {
					value = x
				}
			}
		}
	}
	return value
}

// ProbeVLANs says why this kernel makes no devices for VLANs, in words that begin with "its kernel". It returns nil if
// it does.
func ProbeVLANs() error {
	return inScratch(func(c *Rtnetlink) error {
		var b Batch
		b.AddVeth("a", "b", 1500)
		if errs := c.Do(&b); errs != nil {
			return fmt.Errorf("its kernel %s could not be tried: %w", release(), errs[0])
		}
		on, err := numberOf(c, "a")
		if err != nil {
			return fmt.Errorf("its kernel %s could not be tried: %w", release(), err)
		}
		b.Reset()
		b.AddVLAN("c", on, 10, 1500, 0)
		return refused(c.Do(&b), "devices for VLANs", "CONFIG_VLAN_8021Q, the module 8021q")
	})
}

const bridgeVLANs, bridgeVLANsOption = "VLANs at bridges", "CONFIG_BRIDGE_VLAN_FILTERING"

// ProbeBridgeVLANs says why this kernel's bridges have no VLANs, in words that begin with "its kernel". It returns nil
// if they have.
func ProbeBridgeVLANs() error {
	return inScratch(func(c *Rtnetlink) error {
		var b Batch
		b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
		b.Link(0, 0, 0)
		b.String(unix.IFLA_IFNAME, "a")
		b.Begin(unix.IFLA_LINKINFO)
		b.String(unix.IFLA_INFO_KIND, "bridge")
		b.Begin(unix.IFLA_INFO_DATA)
		b.Uint8(bridgeVLANFiltering, 1)
		b.End()
		b.End()
		// Another one without VLANs takes the setting, and leaves it out of what it tells of the bridge.
		if err := refused(c.Do(&b), bridgeVLANs, bridgeVLANsOption); err != nil {
			return err
		}
		found := false
		b.Reset()
		b.Request(unix.RTM_GETLINK, 0)
		b.Link(0, 0, 0)
		err := c.Dump(&b, func(_ uint16, p []byte) error {
			if len(p) < unix.SizeofIfInfomsg {
				return nil
			}
			for kind, v := range Attrs(p[unix.SizeofIfInfomsg:]) {
				for k, data := range Attrs(v) {
					if kind != unix.IFLA_LINKINFO || k != unix.IFLA_INFO_DATA {
						continue
					}
					for k, x := range Attrs(data) {
						found = found || k == bridgeVLANFiltering && len(x) > 0 && x[0] == 1
					}
				}
			}
			return nil
		})
		switch {
		case err != nil && !errors.Is(err, ErrDumpInterrupted):
			return fmt.Errorf("its kernel %s could not be tried: %w", release(), err)
		case !found:
			return fmt.Errorf("its kernel %s has no %s (%s)", release(), bridgeVLANs, bridgeVLANsOption)
		}
		return nil
	})
}
