package linux

import (
	"errors"

	"github.com/vishvananda/netlink"
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
