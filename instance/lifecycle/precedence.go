package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// The platform's processes must answer while a machine is busy: somebody who starts three hundred routers, or computes
// on all processors, must not keep an agent from its loop. So each of them is a session, and by that a scheduling group
// of its own (sched(7), "The autogroup feature"), with this nice value. It then has nine times the weight of any other
// session, and of all elements together. A nice value of the process itself would do less: it counts only inside its
// group, and what an agent starts in elements would inherit it. Where systemd runs the platform there may be a control
// group instead; CPUWeight= in the unit is for that.
const precedence = "-10"

// prefer gives precedence to the group of a session's leader. It does nothing on a kernel without such groups.
func prefer(pid int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(precedence), 0)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) { // it may have ended
		return nil
	}
	return fmt.Errorf("give process %d precedence on a busy machine: %w", pid, err)
}

// preferSelf does so for this process, unless processes of somebody else are in its session and would get it, too.
func preferSelf() error {
	if sid, err := unix.Getsid(0); err != nil || sid != os.Getpid() {
		return nil
	}
	return prefer(os.Getpid())
}
