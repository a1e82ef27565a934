package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// `ip netns exec` gives a command a mount namespace of its own, without the control groups, whose mounts stay private:
// no element could be started there, and what the platform mounts (namespaces, disks, pinned maps) would go with its
// last process. Whoever begins there wants another network, and not other mounts.

// KeepMounts makes sure that this process has the machine's mounts. If control groups are not mounted here, it starts
// this program again in the mount namespace of the nearest ancestor that has them, and does not return. The network
// namespace stays. Call it on the main thread, before anything else has begun.
func KeepMounts() error {
	if os.Geteuid() != 0 || hasControlGroups("self") {
		return nil
	}
	pid, err := mountsOf(os.Getppid())
	if err == nil {
		err = again(pid)
	}
	return &RefusedError{fmt.Sprintf("no control groups are mounted at /sys/fs/cgroup here, so no element could be "+
		"started (`ip netns exec` hides them, for one): %s. Start it where they are mounted; in a network namespace "+
		"that is nsenter --net=/run/netns/NAME polyplane …", err)}
}

// hasControlGroups tells whether a process sees control groups where they belong, of either version.
func hasControlGroups(pid string) bool {
	for _, pattern := range []string{"cgroup.procs", "*/cgroup.procs"} {
		if found, _ := filepath.Glob("/proc/" + pid + "/root/sys/fs/cgroup/" + pattern); len(found) > 0 {
			return true
		}
	}
	return false
}

// mountsOf finds the nearest of a process and those that started it that has control groups.
func mountsOf(pid int) (int, error) {
	for ; pid > 0; pid = parentOf(pid) {
		if hasControlGroups(strconv.Itoa(pid)) {
			return pid, nil
		}
	}
	return 0, errors.New("none of the processes that started this one has any")
}

// parentOf is the process that started another one; 0 where nobody knows.
func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	fields := strings.Fields(rest) // the state, the parent
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// again starts this program anew with the mounts of a process. The kernel lets only a thread change them that shares
// its directory with no other one, and this thread is then the process.
func again(pid int) error {
	runtime.LockOSThread()
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	program, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open this program: %w", err)
	}
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	mounts, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the mounts of process %d: %w", pid, err)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("have a working directory of its own: %w", err)
	}
	if err := unix.Setns(mounts, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mounts of process %d: %w", pid, err)
	}
	if !hasControlGroups("thread-self") {
		return fmt.Errorf("the mounts of process %d have no control groups any more", pid)
	}
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("the working directory is not there in the mounts of process %d: %w", pid, err)
	}
	var here, there unix.Stat_t
	if unix.Fstat(program, &here) != nil || unix.Stat(path, &there) != nil || here.Dev != there.Dev ||
		here.Ino != there.Ino {
		return fmt.Errorf("%s is not there, or another program, in the mounts of process %d", path, pid)
	}
	return fmt.Errorf("start %s again: %w", path, syscall.Exec(path, os.Args, os.Environ()))
}
