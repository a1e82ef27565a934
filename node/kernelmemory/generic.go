package kernelmemory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// What an element's root can make by generic netlink: peers of WireGuard's devices, and sessions of L2TP.

// Bytes of each: what object caches had on Linux 6.1 (amd64), rounded up. A session or tunnel of L2TP takes a tenth of
// what it counts. The kernel's time for listing them grows with the square of their number, so there shall be few.
const (
	allowedIPBytes = 128 // at most two nodes of a tree
	sessionBytes   = 16384
	// mostSessions is how many sessions and tunnels an element may have, whatever its memory.
	mostSessions = 2048
)

// Of linux/genetlink.h, wireguard.h and l2tp.h.
const (
	genericMsg = 4 // sizeof(struct genlmsghdr)

	getFamily  = 3 // CTRL_CMD_GETFAMILY
	familyID   = 1 // CTRL_ATTR_FAMILY_ID
	familyName = 2 // CTRL_ATTR_FAMILY_NAME

	getGuard       = 0 // WG_CMD_GET_DEVICE
	setGuard       = 1 // WG_CMD_SET_DEVICE
	guardIndex     = 1 // WGDEVICE_A_IFINDEX
	guardFlags     = 5 // WGDEVICE_A_FLAGS
	guardPeers     = 8 // WGDEVICE_A_PEERS
	replacePeers   = 1 // WGDEVICE_F_REPLACE_PEERS
	peerKey        = 1 // WGPEER_A_PUBLIC_KEY
	peerAllowedIPs = 9 // WGPEER_A_ALLOWEDIPS

	deleteTunnel = 2 // L2TP_CMD_TUNNEL_DELETE
	getTunnels   = 4 // L2TP_CMD_TUNNEL_GET
	getSessions  = 8 // L2TP_CMD_SESSION_GET
	connectionID = 9 // L2TP_ATTR_CONN_ID
)

// family is one of generic netlink's, in a namespace.
type family struct {
	c  *linux.Rtnetlink
	id uint16
}

// family opens one by its name. It asks for all: a question for one name would make the kernel load its module.
func (s *space) family(name string) (*family, error) {
	c, err := linux.DialNetlinkOf(s.fd, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	f := &family{c: c, id: unix.GENL_ID_CTRL}
	id := uint16(0)
	err = f.dump(getFamily, nil, func(p []byte) error {
		is, found := uint16(0), false
		for kind, v := range linux.Attrs(p) {
			switch {
			case kind == familyID && len(v) >= 2:
				is = binary.NativeEndian.Uint16(v)
			case kind == familyName:
				found = unix.ByteSliceToString(v) == name
			}
		}
		if found {
			id = is
		}
		return nil
	})
	if err == nil && id == 0 {
		err = unix.ENOENT
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	f.id = id
	return f, nil
}

func (f *family) close() { f.c.Close() }

// request begins a request of the family's.
func (f *family) request(b *linux.Batch, command uint8) {
	b.Request(f.id, 0)
	b.Raw([]byte{command, 1, 0, 0})
}

// dump calls each with the attributes of each answer.
func (f *family) dump(command uint8, ask func(*linux.Batch), each func([]byte) error) error {
	var b linux.Batch
	f.request(&b, command)
	if ask != nil {
		ask(&b)
	}
	err := f.c.Dump(&b, func(_ uint16, p []byte) error {
		if len(p) < genericMsg {
			return nil
		}
		return each(p[genericMsg:])
	})
	if errors.Is(err, linux.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// do carries out a batch, and returns one of its errors.
func (f *family) do(b *linux.Batch) (err error) {
	for _, failed := range f.c.Do(b) {
		if failed != nil && !missing(failed) {
			err = failed
		}
	}
	return err
}

// guarded tells whether there are devices of WireGuard.
func guarded(all []device) bool {
	return slices.ContainsFunc(all, func(d device) bool { return d.guard })
}

// guards are the indices of the devices of WireGuard.
func (s *space) guards() (indices []uint32, err error) {
	all, err := s.devices()
	for _, d := range all {
		if d.guard {
			indices = append(indices, uint32(d.index))
		}
	}
	return indices, err
}

func readPeers(s *space, _ int, each visit) error {
	indices, err := s.guards()
	if err != nil || len(indices) == 0 {
		return err
	}
	f, err := s.family("wireguard")
	if err != nil {
		return err
	}
	defer f.close()
	for _, index := range indices {
		var last []byte // a peer with many addresses comes in several messages
		err := f.dump(getGuard, func(b *linux.Batch) { b.Uint32(guardIndex, index) }, func(p []byte) error {
			for kind, peers := range linux.Attrs(p) {
				if kind != guardPeers {
					continue
				}
				for _, peer := range linux.Attrs(peers) {
					size := peerSize.bytes()
					for kind, v := range linux.Attrs(peer) {
						switch kind {
						case peerKey:
							if bytes.Equal(v, last) {
								size = 0
							}
							last = bytes.Clone(v)
						case peerAllowedIPs:
							for range linux.Attrs(v) {
								size += allowedIPBytes
							}
						}
					}
					if err := each(size, nil); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// flushPeers removes all peers. The devices stay, with their keys.
func flushPeers(s *space) error {
	indices, err := s.guards()
	if err != nil {
		return err
	}
	f, err := s.family("wireguard")
	if err != nil {
		return err
	}
	defer f.close()
	var b linux.Batch
	for _, index := range indices {
		f.request(&b, setGuard)
		b.Uint32(guardIndex, index)
		b.Uint32(guardFlags, replacePeers)
	}
	return f.do(&b)
}

// l2tp opens L2TP's family, if the kernel has loaded it.
func (s *space) l2tp() (*family, error) {
	if _, err := os.Stat("/sys/module/l2tp_netlink"); err != nil {
		return nil, unix.ENOENT
	}
	return s.family("l2tp")
}

// readSessions reads L2TP's sessions and tunnels. Its Ethernet sessions are network devices, too.
func readSessions(s *space, _ int, each visit) error {
	f, err := s.l2tp()
	if err != nil {
		return err
	}
	defer f.close()
	return countSessions(func(command uint8, each func([]byte) error) error { return f.dump(command, nil, each) }, each)
}

// countSessions counts by dumps. It reads no further than one more than there may be, which is more than any limit.
func countSessions(dump func(command uint8, each func([]byte) error) error, each visit) error {
	for _, command := range []uint8{getTunnels, getSessions} {
		n := 0
		err := dump(command, func([]byte) error {
			err := each(sessionBytes, nil)
			if n++; n > mostSessions {
				return linux.ErrEnough
			}
			return err
		})
		if err != nil && !missing(err) && n <= mostSessions {
			return err
		}
		if n > mostSessions { // the rest of the answer is in the socket
			return nil
		}
	}
	return nil
}

// flushSessions removes all tunnels, with which their sessions go.
func flushSessions(s *space) error {
	f, err := s.l2tp()
	if err != nil {
		return err
	}
	defer f.close()
	var b linux.Batch
	err = f.dump(getTunnels, nil, func(p []byte) error {
		for kind, v := range linux.Attrs(p) {
			if kind == connectionID {
				f.request(&b, deleteTunnel)
				b.Attr(connectionID, v)
			}
		}
		return nil
	})
	if err != nil && !missing(err) {
		return err
	}
	return f.do(&b)
}
