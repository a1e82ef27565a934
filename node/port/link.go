package port

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Link is a device as the kernel describes it.
type Link struct {
	Index int
	Peer  int // the other end's index in its own namespace; zero for none
	// Master is the index of the bridge or VRF that the device is in; zero for none.
	Master int
	Group  uint32
	Name   string
	Alias  string
	MAC    [6]byte
	MTU    int
	// Segments is the largest number of segments that a GSO packet may have.
	Segments uint32
	Flags    uint32 // IFF_*
	IPv6     bool   // not switched off
	Lax      bool   // accepts IPv4 packets whatever their source address is: rp_filter is 0
	Bridge   bool   // and no port of one
	// Held tells that somebody said that it shall have no carrier (IFLA_PROTO_DOWN).
	Held bool
	VLAN int // whose frames it is for, on the device Peer of the same namespace; zero for others
	// VRF is the table of a VRF; zero for other devices.
	VRF uint32
}

// Up tells whether the device itself is set up, whether its other end is or not.
func (l *Link) Up() bool { return l.Flags&unix.IFF_UP != 0 }

// Attributes of linux/if_link.h that golang.org/x/sys/unix does not have.
const (
	// IFLA_INET_CONF: in answers an array of uint32 that begins with setting 1, in requests nested attributes
	iflaInetConf         = 1
	devconfRPFilter      = 8  // IPV4_DEVCONF_RP_FILTER, of linux/ip.h
	iflaInet6Conf        = 2  // IFLA_INET6_CONF, an array of int32
	devconfDisableIPv6   = 26 // DEVCONF_DISABLE_IPV6, of linux/ipv6.h
	rtextFilterSkipStats = 1 << 3
)

// Links reads the devices of c's namespace. If a change disturbs the dump, it reads them again. Where somebody changes
// devices without end, the error is linux.ErrDumpInterrupted, and what was read last is returned with it: some devices
// may be missing.
func Links(c *linux.Rtnetlink) ([]Link, error) {
	var links []Link
	err := linux.Undisturbed(func() error {
		links = links[:0]
		return c.Links(rtextFilterSkipStats, func(payload []byte) { links = append(links, parse(payload)) })
	})
	if err != nil {
		return links, fmt.Errorf("read the network devices: %w", err)
	}
	return links, nil
}

func parse(payload []byte) Link {
	l := Link{Index: int(int32(binary.NativeEndian.Uint32(payload[4:]))),
		Flags: binary.NativeEndian.Uint32(payload[8:])}
	for kind, v := range linux.Attrs(payload[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = unix.ByteSliceToString(v)
		case unix.IFLA_IFALIAS:
			l.Alias = unix.ByteSliceToString(v)
		case unix.IFLA_MTU:
			l.MTU = int(linux.Uint32Of(v))
		case unix.IFLA_GSO_MAX_SEGS:
			l.Segments = linux.Uint32Of(v)
		case unix.IFLA_LINK:
			l.Peer = int(linux.Uint32Of(v))
		case unix.IFLA_MASTER:
			l.Master = int(linux.Uint32Of(v))
		case unix.IFLA_GROUP:
			l.Group = linux.Uint32Of(v)
		case unix.IFLA_PROTO_DOWN:
			l.Held = len(v) > 0 && v[0] != 0
		case unix.IFLA_ADDRESS:
			copy(l.MAC[:], v)
		case unix.IFLA_AF_SPEC:
			l.parseFamilies(v)
		case unix.IFLA_LINKINFO:
			l.VLAN, l.VRF = linux.VLANOf(v), linux.TableOfVRF(v)
			for k, x := range linux.Attrs(v) {
				l.Bridge = l.Bridge || k == unix.IFLA_INFO_KIND && unix.ByteSliceToString(x) == "bridge"
			}
		}
	}
	return l
}

func (l *Link) parseFamilies(spec []byte) {
	for family, af := range linux.Attrs(spec) {
		for k, x := range linux.Attrs(af) {
			switch {
			case family == unix.AF_INET && k == iflaInetConf && len(x) >= 4*devconfRPFilter:
				l.Lax = linux.Uint32Of(x[4*(devconfRPFilter-1):]) == 0
			case family == unix.AF_INET6 && k == iflaInet6Conf && len(x) >= 4*(devconfDisableIPv6+1):
				l.IPv6 = linux.Uint32Of(x[4*devconfDisableIPv6:]) == 0
			}
		}
	}
}
