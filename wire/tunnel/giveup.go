package tunnel

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// giveUpAfter is how long sent data may go without an acknowledgement, in milliseconds, before a connection counts as
// dead. TCP itself would hope for a quarter of an hour that a host comes back that has lost its power.
const giveUpAfter = 15_000

// GiveUp is for net.Dialer and net.ListenConfig, whose accepted connections inherit it (tcp(7), TCP_USER_TIMEOUT).
func GiveUp(_, _ string, c syscall.RawConn) error {
	var err error
	if controlled := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, giveUpAfter)
	}); controlled != nil {
		return controlled
	}
	return err
}
