package kernelmemory

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Of linux/if_bridge.h and rtnetlink.h.
const (
	bridgeFlags    = 0 // IFLA_BRIDGE_FLAGS
	bridgeVLANInfo = 2 // IFLA_BRIDGE_VLAN_INFO

	onPort   = 1 << 0 // BRIDGE_FLAGS_MASTER
	onBridge = 1 << 1 // BRIDGE_FLAGS_SELF

	vlanPVID       = 1 << 1 // BRIDGE_VLAN_INFO_PVID
	vlanRangeBegin = 1 << 3 // BRIDGE_VLAN_INFO_RANGE_BEGIN
	vlanRangeEnd   = 1 << 4 // BRIDGE_VLAN_INFO_RANGE_END

	vlansInRanges = 1 << 2 // RTEXT_FILTER_BRVLAN_COMPRESSED
)

// bridged tells whether there is a bridge.
func bridged(all []device) bool {
	return slices.ContainsFunc(all, func(d device) bool { return d.bridge })
}

// tunnelled tells whether there is a VXLAN device.
func tunnelled(all []device) bool {
	return slices.ContainsFunc(all, func(d device) bool { return d.vxlan })
}

// vlanSet has a bit for each VLAN.
type vlanSet [64]uint64

func (v *vlanSet) add(first, last uint16) {
	for n := int(first); n <= int(last) && n < 4096; n++ {
		v[n/64] |= 1 << (n % 64)
	}
}

// beyond counts those that are not in another set.
func (v *vlanSet) beyond(other *vlanSet) (n int64) {
	for i := range v {
		n += int64(bits.OnesCount64(v[i] &^ other[i]))
	}
	return n
}

// readBridgeVLANs reads the VLANs of bridges and their ports. The one for frames without a tag stays, and is not
// counted: a port has one at most. A bridge has each VLAN of its ports as well, which the kernel does not list.
func readBridgeVLANs(s *space, _ int, each visit) error {
	type vlans struct{ own, ports vlanSet }
	all := map[uint32]*vlans{}
	at := func(bridge uint32) *vlans {
		if all[bridge] == nil {
			all[bridge] = &vlans{}
		}
		return all[bridge]
	}
	var b linux.Batch
	b.Request(unix.RTM_GETLINK, 0)
	b.Raw(bridgeHead(nil))
	b.Uint32(iflaExtMask, vlansInRanges)
	err := s.dump(&b, func(p []byte) error {
		if len(p) < unix.SizeofIfInfomsg {
			return nil
		}
		index := p[4:8]
		bridge, where := binary.NativeEndian.Uint32(index), uint16(onBridge)
		var spec []byte
		for kind, v := range linux.Attrs(p[unix.SizeofIfInfomsg:]) {
			switch {
			case kind == unix.IFLA_AF_SPEC:
				spec = v
			case kind == unix.IFLA_MASTER && len(v) >= 4 && !bytes.Equal(v, index): // a bridge is its own
				bridge, where = binary.NativeEndian.Uint32(v), onPort
			}
		}
		set := &at(bridge).own
		if where == onPort {
			set = &at(bridge).ports
		}
		return eachRange(spec, func(first, last, flags uint16) error {
			if set.add(first, last); flags&vlanPVID != 0 {
				return nil
			}
			return each(int64(last-first+1)*vlanSize.bytes(), func(b *linux.Batch) {
				b.Request(unix.RTM_DELLINK, 0)
				b.Raw(bridgeHead(index))
				b.Begin(unix.IFLA_AF_SPEC)
				b.Uint16(bridgeFlags, where)
				vlanInfo(b, vlanRangeBegin, first)
				vlanInfo(b, vlanRangeEnd, last)
				b.End()
			})
		})
	})
	if err != nil {
		return err
	}
	for _, v := range all {
		if err := each(v.ports.beyond(&v.own)*vlanSize.bytes(), nil); err != nil {
			return err
		}
	}
	return nil
}

// bridgeHead is the fixed part of a request about a bridge or a port.
func bridgeHead(index []byte) []byte {
	head := make([]byte, unix.SizeofIfInfomsg)
	head[0] = unix.AF_BRIDGE
	copy(head[4:8], index)
	return head
}

func vlanInfo(b *linux.Batch, flags, vlan uint16) {
	b.Attr(bridgeVLANInfo, binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, flags), vlan))
}

// eachRange is about the VLANs in an IFLA_AF_SPEC.
func eachRange(spec []byte, do func(first, last, flags uint16) error) error {
	first := uint16(0)
	for kind, v := range linux.Attrs(spec) {
		if kind != bridgeVLANInfo || len(v) < 4 {
			continue
		}
		flags, vlan := binary.NativeEndian.Uint16(v), binary.NativeEndian.Uint16(v[2:])
		switch {
		case flags&vlanRangeBegin != 0:
			first = vlan
			continue
		case flags&vlanRangeEnd == 0:
			first = vlan
		}
		if first == 0 || first > vlan {
			continue
		}
		if err := do(first, vlan, flags); err != nil {
			return err
		}
	}
	return nil
}
