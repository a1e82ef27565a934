package agent

import (
	"encoding/binary"
	"maps"
	"net"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// other is a device of the node that is no port.
type other struct {
	name, kind, alias string
	mac               [6]byte
	mtu               uint32
	master            uint32 // the bridge or bond that it belongs to
	lower             uint32 // the device that it is on; of a veth it is the far end's number
	far               bool   // lower is a number in another namespace
	running           bool   // it is on and has carrier
}

func (o *other) hardware() net.HardwareAddr { return o.mac[:] }

// parseOther reads an RTM_NEWLINK.
func parseOther(payload []byte) (o other) {
	const on = unix.IFF_UP | unix.IFF_LOWER_UP
	o.running = binary.NativeEndian.Uint32(payload[8:])&on == on
	for kind, v := range linux.Attrs(payload[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			o.name = unix.ByteSliceToString(v)
		case unix.IFLA_IFALIAS:
			o.alias = unix.ByteSliceToString(v)
		case unix.IFLA_ADDRESS:
			if len(v) == len(o.mac) {
				o.mac = [6]byte(v)
			}
		case unix.IFLA_MTU:
			o.mtu = linux.Uint32Of(v)
		case unix.IFLA_MASTER:
			o.master = linux.Uint32Of(v)
		case unix.IFLA_LINK:
			o.lower = linux.Uint32Of(v)
		case unix.IFLA_LINK_NETNSID:
			o.far = true
		case unix.IFLA_LINKINFO:
			for k, v := range linux.Attrs(v) {
				if k == unix.IFLA_INFO_KIND {
					o.kind = unix.ByteSliceToString(v)
				}
			}
		}
	}
	return o
}

// otherwise tells that a device that is no port has changed. The caller holds the lock.
func (l *links) otherwise() {
	if l.othersChanged != nil {
		l.othersChanged()
	}
}

// onOthers has f called whenever a device that is no port has changed. f must not wait for anything.
func (l *links) onOthers(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.othersChanged = f
}

// noPorts are the devices that are no ports, by index.
func (l *links) noPorts() map[int32]other {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.others)
}
