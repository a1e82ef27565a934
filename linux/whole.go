package linux

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Whole lists what a table of the kernel contains. On a busy machine the table often changes while it is read, and the
// kernel says so: then something may be missing, or be there twice, and it is read again. If it changes all the time,
// the error says that, and what was read last comes with it.
func Whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range 20 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// Undisturbed is Whole for what is read with Dump. look begins anew each time.
func Undisturbed(look func() error) (err error) {
	for range 20 {
		if err = look(); !errors.Is(err, ErrDumpInterrupted) {
			break
		}
	}
	return err
}

// Links dumps the devices of the connection's namespace. each gets a struct ifinfomsg and the attributes behind it;
// mask is an IFLA_EXT_MASK.
func (c *Rtnetlink) Links(mask uint32, each func(payload []byte)) error {
	var b Batch
	b.Request(unix.RTM_GETLINK, 0)
	b.Link(0, 0, 0)
	if mask != 0 {
		b.Uint32(unix.IFLA_EXT_MASK, mask)
	}
	return c.Dump(&b, func(kind uint16, payload []byte) error {
		if kind == unix.RTM_NEWLINK && len(payload) >= unix.SizeofIfInfomsg {
			each(payload)
		}
		return nil
	})
}
