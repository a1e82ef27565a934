package mirror

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Namespace is a network namespace, by the path where it is mounted.
type Namespace string

var _ Source = Namespace("")

// Open makes a mirror of it.
func (n Namespace) Open() (stream Stream, err error) {
	err = n.open(func(fd int) error {
		m, err := Open(fd, Options{})
		if err == nil {
			m.path, stream = string(n), m
		}
		return err
	})
	return stream, err
}

// Identity is its inode.
func (n Namespace) Identity() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(string(n), &st); err != nil {
		return 0, fmt.Errorf("look at the network namespace %s: %w", string(n), err)
	}
	return st.Ino, nil
}

func (n Namespace) open(f func(fd int) error) error {
	fd, err := unix.Open(string(n), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the network namespace %s: %w", string(n), err)
	}
	defer unix.Close(fd)
	return f(fd)
}

// maxConfirmed bounds how many neighbours one call of Confirm asks.
const maxConfirmed = 1000

// Confirm makes the namespace's kernel ask the neighbours that it has not heard of lately, as it does when it sends to
// them (RFC 4861, section 7.3). The fast path sends past that kernel, so nothing else would. The mirror learns whether
// they answer, and with which MAC address.
func (m *Mirror) Confirm() error {
	var c *linux.Rtnetlink
	err := Namespace(m.path).open(func(fd int) (err error) {
		c, err = linux.DialRtnetlinkOf(fd)
		return err
	})
	if err != nil {
		return fmt.Errorf("ask neighbours: %w", err)
	}
	defer c.Close()
	var b linux.Batch
	b.Request(unix.RTM_GETNEIGH, 0)
	b.Raw(make([]byte, unix.SizeofNdMsg))
	var use linux.Batch
	err = c.Dump(&b, func(kind uint16, p []byte) error {
		if kind != unix.RTM_NEWNEIGH || len(p) < unix.SizeofNdMsg || use.Len() == maxConfirmed {
			return nil
		}
		if family := p[0]; family != unix.AF_INET && family != unix.AF_INET6 ||
			binary.NativeEndian.Uint16(p[8:])&unix.NUD_STALE == 0 {
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
		return fmt.Errorf("read neighbours: %w", err)
	}
	c.Do(&use) //nolint:errcheck // one that is gone meanwhile needs no asking
	return nil
}
