package linux

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// OpenProc opens a proc file system of the caller's own, mounted nowhere (fsmount(2)). In each proc file system the
// kernel keeps the sysctl directories of all namespaces that have the same name in one chain of its cache
// (fs/proc/proc_sysctl.c, proc_sys_compare). With a thousand namespaces every look-up of /proc/sys/net/ipv4 takes some
// 100 µs, for everybody. A file system that is soon thrown away stays fast, and leaves no trace in the machine's own.
func OpenProc() (fd int, err error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open a proc file system: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make a proc file system: %w", err)
	}
	fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make a proc file system: %w", err)
	}
	return fd, nil
}
