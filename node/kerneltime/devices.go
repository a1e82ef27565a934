package kerneltime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Device is a network device inside an element.
type Device struct {
	Name    string
	Index   int
	Up      bool
	Port    bool // an end of one of the element's links; all others somebody in it has made, or the kernel
	Packets uint64
	Outer   bool // such a link's other end is on no element of this node
	// Received and Bytes are what came from outside, of a port.
	Received, Bytes uint64
}

// iflaLinkNetNSID is IFLA_LINK_NETNSID of linux/if_link.h: the peer is in another namespace.
const iflaLinkNetNSID = 37

// in runs f with a route netlink socket of the namespace that is mounted at path.
func in(path string, f func(c *linux.Rtnetlink) error) error {
	fd, err := os.Open(path)
	if err != nil {
		return err
	}
	defer fd.Close()
	var c *linux.Rtnetlink
	err = linux.Inside(int(fd.Fd()), func() (err error) {
		c, err = linux.DialRtnetlink()
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// devices lists those of an element's namespace but for lo. Where its ports are not known, every pair that leads out is one.
func devices(c *linux.Rtnetlink, e *Element) (all []Device, err error) {
	for range 8 {
		all = nil
		var b linux.Batch
		b.Request(unix.RTM_GETLINK, 0)
		b.Link(0, 0, 0)
		err = c.Dump(&b, func(kind uint16, payload []byte) error {
			if kind == unix.RTM_NEWLINK && len(payload) >= unix.SizeofIfInfomsg && binary.NativeEndian.Uint16(payload[2:]) != unix.ARPHRD_LOOPBACK {
				all = append(all, parseDevice(payload, e))
			}
			return nil
		})
		if !errors.Is(err, linux.ErrDumpInterrupted) {
			break
		}
		err = nil // somebody makes devices without end: what was seen is enough
	}
	return all, err
}

func parseDevice(payload []byte, e *Element) Device {
	d := Device{Index: int(int32(binary.NativeEndian.Uint32(payload[4:]))),
		Up: binary.NativeEndian.Uint32(payload[8:])&unix.IFF_UP != 0}
	peer, outside := 0, false
	for kind, v := range linux.Attrs(payload[unix.SizeofIfInfomsg:]) {
		switch {
		case kind == unix.IFLA_IFNAME:
			d.Name = unix.ByteSliceToString(v)
		case kind == unix.IFLA_LINK && len(v) >= 4:
			peer = int(binary.NativeEndian.Uint32(v))
		case kind == iflaLinkNetNSID:
			outside = true
		case kind == unix.IFLA_STATS64 && len(v) >= 32: // struct rtnl_link_stats64: packets in, out, bytes in, out
			d.Received, d.Bytes = binary.NativeEndian.Uint64(v), binary.NativeEndian.Uint64(v[16:])
			d.Packets = d.Received + binary.NativeEndian.Uint64(v[8:])
		}
	}
	d.Port = outside && (len(e.Ports) == 0 || slices.Contains(e.Ports, peer))
	d.Outer = d.Port && slices.Contains(e.Outer, peer)
	return d
}

// remove takes devices away, and down where the kernel lets none go.
func remove(c *linux.Rtnetlink, all []Device) error {
	var b linux.Batch
	for _, d := range all { // what is down forwards nothing, at once; to go takes the kernel longer
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(d.Index, 0, unix.IFF_UP)
	}
	for _, d := range all {
		b.Request(unix.RTM_DELLINK, 0)
		b.Link(d.Index, 0, 0)
	}
	var errs []error
	failures := c.Do(&b)
	for i, d := range all {
		if failures == nil {
			break
		}
		down, gone := failures[i], failures[len(all)+i]
		if down != nil && gone != nil && !errors.Is(gone, unix.ENODEV) { // the other end of a pair goes with the first
			errs = append(errs, fmt.Errorf("take device %s away: %w", d.Name, gone))
		}
	}
	return errors.Join(errs...)
}
