package linux

import (
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"
)

// Numbers of linux/if_link.h.
const (
	vxlanLearning        = 7
	vxlanPort            = 15
	vxlanUDPZeroCsum6Rx  = 20
	vxlanCollectMetadata = 25
	inet6AddrGenMode     = 8
	addrGenModeNone      = 1
)

// VXLAN is a VXLAN device (RFC 7348) in metadata mode. It accepts every VNI. For each packet that it sends, a program
// says the VNI and the other end.
type VXLAN struct {
	Name string
	MAC  net.HardwareAddr // set, so that nothing on the host chooses one
	MTU  int
	Port uint16 // UDP
}

// AddVXLAN requests the device. It is down.
func (b *Batch) AddVXLAN(v VXLAN) int {
	i := b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.Link(0, 0, 0)
	b.String(unix.IFLA_IFNAME, v.Name)
	b.Attr(unix.IFLA_ADDRESS, v.MAC)
	b.Uint32(unix.IFLA_MTU, uint32(v.MTU))
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "vxlan")
	b.Begin(unix.IFLA_INFO_DATA)
	b.Uint8(vxlanCollectMetadata, 1)
	b.Uint8(vxlanLearning, 0)
	b.Uint16BE(vxlanPort, v.Port)
	b.Uint8(vxlanUDPZeroCsum6Rx, 1)
	b.End()
	b.End()
	return i
}

// Mark requests an alias (IFLA_IFALIAS) for a device, and that the device gets no IPv6 address by itself. The device
// must exist and be down: neither can be said when it is made, and both come too late when it is up.
func (b *Batch) Mark(name, alias string) int {
	i := b.Request(unix.RTM_SETLINK, 0)
	b.Link(0, 0, 0)
	b.String(unix.IFLA_IFNAME, name)
	b.Attr(unix.IFLA_IFALIAS, []byte(alias))
	b.Begin(unix.IFLA_AF_SPEC)
	b.Begin(unix.AF_INET6)
	b.Uint8(inet6AddrGenMode, addrGenModeNone)
	b.End()
	b.End()
	return i
}

// VXLANInfo is the content of IFLA_INFO_DATA of a vxlan device in a dump of links.
type VXLANInfo struct {
	Metadata bool
	Learning bool
	Port     uint16
}

// ParseVXLAN reads IFLA_INFO_DATA of a vxlan device.
func ParseVXLAN(data []byte) VXLANInfo {
	var v VXLANInfo
	for kind, value := range Attrs(data) {
		switch {
		case kind == vxlanCollectMetadata:
			v.Metadata = len(value) > 0 && value[0] != 0
		case kind == vxlanLearning && len(value) > 0:
			v.Learning = value[0] != 0
		case kind == vxlanPort && len(value) >= 2:
			v.Port = binary.BigEndian.Uint16(value)
		}
	}
	return v
}
