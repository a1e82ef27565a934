package bridge

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// A switch's bridge filters by VLANs (Documentation/networking/bridge.rst), where the switch has some. A port is a
// member of some VLANs, and at most one of them is its PVID: that of frames without a tag, which leave without one. No
// VLAN is given to ports by default.

// Of linux/if_bridge.h.
const (
	iflaBridgeVLANInfo = 2 // IFLA_BRIDGE_VLAN_INFO

	vlanPVID       = 1 << 1 // BRIDGE_VLAN_INFO_PVID
	vlanUntagged   = 1 << 2 // BRIDGE_VLAN_INFO_UNTAGGED
	vlanRangeBegin = 1 << 3 // BRIDGE_VLAN_INFO_RANGE_BEGIN
	vlanRangeEnd   = 1 << 4 // BRIDGE_VLAN_INFO_RANGE_END

	rtextFilterVLANs = 1 << 2 // RTEXT_FILTER_BRVLAN_COMPRESSED, of linux/rtnetlink.h
)

// members are a port's VLANs, with their flags.
type members map[uint16]uint16

// vlans is what a switch's bridge shall do about VLANs.
type vlans struct{ aware bool }

func newVLANs(job *forward.Job) vlans {
	return vlans{aware: slices.ContainsFunc(job.Element.Interfaces, func(i model.PlacedInterface) bool {
		return i.HasVLANs()
	})}
}

// prepare has a bridge that is being made heed VLANs before it has a port. While it does not, no default is taken.
func (v *vlans) prepare(b *linux.Batch) {
	if v.aware {
		setting(b, 0, func() { b.Uint16(iflaBrVLANDefault, 0) })
		setting(b, 0, func() { b.Uint8(iflaBrVLANFiltering, 1) })
	}
}

// setting appends a request that sets something about the bridge, by its index or else by its name.
func setting(b *linux.Batch, index int, set func()) {
	b.Request(unix.RTM_NEWLINK, 0)
	b.Link(index, 0, 0)
	if index == 0 {
		b.String(unix.IFLA_IFNAME, device)
	}
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "bridge")
	b.Begin(unix.IFLA_INFO_DATA)
	set()
	b.End()
	b.End()
}

// before takes away the VLAN that ports get by default.
func (v *vlans) before(b *linux.Batch, doing *[]string, bridge link) {
	if !v.aware || bridge.pvid == 0 {
		return
	}
	if bridge.vlans { // somebody changed it: the kernel takes no default meanwhile
		*doing = append(*doing, "have its bridge heed no VLANs for a moment")
		setting(b, bridge.index, func() { b.Uint8(iflaBrVLANFiltering, 0) })
	}
	*doing = append(*doing, "have its bridge give ports no VLAN by itself")
	setting(b, bridge.index, func() { b.Uint16(iflaBrVLANDefault, 0) })
}

// after has the bridge heed VLANs, or not, once its ports have theirs.
func (v *vlans) after(b *linux.Batch, doing *[]string, bridge link) {
	switch {
	case v.aware && (!bridge.vlans || bridge.pvid != 0):
		*doing = append(*doing, "have its bridge heed VLANs")
		setting(b, bridge.index, func() { b.Uint8(iflaBrVLANFiltering, 1) })
	case !v.aware && bridge.vlans:
		*doing = append(*doing, "have its bridge heed no VLANs")
		setting(b, bridge.index, func() { b.Uint8(iflaBrVLANFiltering, 0) })
	}
}

// wanted are the VLANs that a port shall be a member of.
func wanted(ifc *model.PlacedInterface) members {
	m := members{}
	for _, n := range ifc.Tagged.List() {
		m[uint16(n)] = 0
	}
	if ifc.Untagged != 0 {
		m[uint16(ifc.Untagged)] = vlanPVID | vlanUntagged
	}
	return m
}

// port appends what makes a port a member of its VLANs, and of no others. First it gets new ones, so that a port that
// moves to another VLAN is never without one.
func (v *vlans) port(b *linux.Batch, doing *[]string, ifc *model.PlacedInterface, index int, has members) {
	if !v.aware {
		return
	}
	want := wanted(ifc)
	add, remove := members{}, members{}
	for vlan, flags := range want {
		if is, there := has[vlan]; !there || is != flags {
			add[vlan] = flags
		}
	}
	for vlan := range has {
		if _, is := want[vlan]; !is {
			remove[vlan] = 0
		}
	}
	for _, c := range []struct {
		kind uint16
		what string
		of   members
	}{{unix.RTM_SETLINK, "make interface %s a member of its VLANs", add},
		{unix.RTM_DELLINK, "take interface %s out of VLANs", remove}} {
		if len(c.of) == 0 {
			continue
		}
		*doing = append(*doing, fmt.Sprintf(c.what, ifc.Name))
		b.Request(c.kind, 0)
		head := make([]byte, unix.SizeofIfInfomsg)
		head[0] = unix.AF_BRIDGE
		binary.NativeEndian.PutUint32(head[4:], uint32(index))
		b.Raw(head)
		b.Begin(unix.IFLA_AF_SPEC)
		c.of.attributes(b)
		b.End()
	}
}

// attributes appends VLANs, as ranges where several have the same flags.
func (m members) attributes(b *linux.Batch) {
	all := make([]uint16, 0, len(m))
	for vlan := range m {
		all = append(all, vlan)
	}
	slices.Sort(all)
	info := func(flags, vlan uint16) {
		value := binary.NativeEndian.AppendUint16(nil, flags)
		b.Attr(iflaBridgeVLANInfo, binary.NativeEndian.AppendUint16(value, vlan))
	}
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last+1] == all[last]+1 && m[all[last+1]] == m[all[i]] {
			last++
		}
		if last == i {
			info(m[all[i]], all[i])
		} else {
			info(m[all[i]]|vlanRangeBegin, all[i])
			info(m[all[i]]|vlanRangeEnd, all[last])
		}
		i = last + 1
	}
}

// read reads the VLANs of all ports of the namespace, by their indices.
func (v *vlans) read(c *linux.Rtnetlink, bridge link) (map[int]members, error) {
	if !v.aware {
		return nil, nil
	}
	var all map[int]members
	err := linux.Undisturbed(func() error {
		all = map[int]members{}
		var b linux.Batch
		b.Request(unix.RTM_GETLINK, 0)
		head := make([]byte, unix.SizeofIfInfomsg)
		head[0] = unix.AF_BRIDGE
		b.Raw(head)
		b.Uint32(unix.IFLA_EXT_MASK, rtextFilterVLANs)
		return c.Dump(&b, func(kind uint16, p []byte) error {
			if kind == unix.RTM_NEWLINK && len(p) >= unix.SizeofIfInfomsg {
				all[int(int32(binary.NativeEndian.Uint32(p[4:])))] = parseMembers(p[unix.SizeofIfInfomsg:])
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the VLANs of its ports: %w", err)
	}
	return all, nil
}

// parseMembers reads a port's VLANs. The kernel says VLANs in a row as two entries, the first and the last
// (RTEXT_FILTER_BRVLAN_COMPRESSED of linux/rtnetlink.h).
func parseMembers(attributes []byte) members {
	m := members{}
	for kind, spec := range linux.Attrs(attributes) {
		if kind != unix.IFLA_AF_SPEC {
			continue
		}
		first := uint16(0)
		for k, v := range linux.Attrs(spec) {
			if k != iflaBridgeVLANInfo || len(v) < 4 {
				continue
			}
			flags, vlan := binary.NativeEndian.Uint16(v), binary.NativeEndian.Uint16(v[2:])
			has := flags & (vlanPVID | vlanUntagged)
			switch {
			case flags&vlanRangeBegin != 0:
				first = vlan
				continue
			case flags&vlanRangeEnd == 0:
				first = vlan
			}
			for n := int(first); n <= int(vlan) && first > 0; n++ {
				m[uint16(n)] = has
			}
		}
	}
	return m
}
