package xdp

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// refreshEvery is how often neighbours of routers that forward here are confirmed. The kernel asks a neighbour anew when it
// sends to it and has not heard of it for some 30 s (RFC 4861, section 7.3); to neighbours of these routers it does not send.
var refreshEvery = 30 * time.Second

// maxRefreshed bounds how many neighbours of a router are asked in one go.
const maxRefreshed = 1000

// refresh has the namespace's kernel do what it does on sending, for the neighbours that it has not heard of lately: whether
// they answer, and with which MAC address, the mirror learns.
func (r *router) refresh() error {
	fd, err := unix.Open(r.plane.dirs.Namespace(r.id), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("router %s: ask its neighbours: %w", r.id, err)
	}
	defer unix.Close(fd)
	var c *linux.Rtnetlink
	if err := linux.Inside(fd, func() (err error) { c, err = linux.DialRtnetlink(); return err }); err != nil {
		return fmt.Errorf("router %s: ask its neighbours: %w", r.id, err)
	}
	defer c.Close()
	var b linux.Batch
	b.Request(unix.RTM_GETNEIGH, 0)
	b.Raw(make([]byte, unix.SizeofNdMsg))
	var use linux.Batch
	err = c.Dump(&b, func(kind uint16, p []byte) error {
		if kind != unix.RTM_NEWNEIGH || len(p) < unix.SizeofNdMsg || use.Len() == maxRefreshed {
			return nil
		}
		if family := p[0]; family != unix.AF_INET && family != unix.AF_INET6 || binary.NativeEndian.Uint16(p[8:])&unix.NUD_STALE == 0 {
			return nil
		}
		for kind, v := range linux.Attrs(p[unix.SizeofNdMsg:]) {
			if kind != unix.NDA_DST {
				continue
			}
			m := make([]byte, unix.SizeofNdMsg)
			m[0] = p[0]
			copy(m[4:8], p[4:8])
			// Without the mark it would be lost, and the entry thrown out when the kernel's table is full.
			m[10] = unix.NTF_USE | p[10]&unix.NTF_EXT_LEARNED
			use.Request(unix.RTM_NEWNEIGH, 0)
			use.Raw(m)
			use.Attr(unix.NDA_DST, v)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("router %s: read its neighbours: %w", r.id, err)
	}
	c.Do(&use) //nolint:errcheck // one that is gone meanwhile needs no asking
	return nil
}
