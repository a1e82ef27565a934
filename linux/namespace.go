package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Inside runs f in the network namespace that fd stands for, on a thread of its own, which ends with f. Sockets that f
// opens speak to that namespace for good.
func Inside(fd int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread dies with the goroutine
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter a network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// InsideWith is Inside with a connection to that namespace.
func InsideWith(fd int, f func(c *Rtnetlink) error) error {
	return Inside(fd, func() error {
		c, err := DialRtnetlink()
		if err != nil {
			return err
		}
		defer c.Close()
		return f(c)
	})
}

// DialRtnetlinkOf makes a connection to the network namespace that fd stands for.
func DialRtnetlinkOf(fd int) (c *Rtnetlink, err error) { return DialNetlinkOf(fd, unix.NETLINK_ROUTE) }

// DialNetlinkOf is DialRtnetlinkOf for another of netlink's protocols, whose messages are put together likewise.
func DialNetlinkOf(fd, protocol int) (c *Rtnetlink, err error) {
	err = Inside(fd, func() error {
		c, err = dialNetlink(protocol)
		return err
	})
	return c, err
}

// InsideOf is Inside, for the network namespace that is mounted at path.
func InsideOf(path string, f func() error) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the network namespace %s: %w", path, err)
	}
	defer unix.Close(fd)
	return Inside(fd, f)
}

// MountNamespace mounts a new network namespace at path, unless one is there.
func MountNamespace(path string) (made bool, err error) {
	if IsNamespace(path) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o400)
	if err != nil {
		return false, err
	}
	f.Close()
	done := make(chan error)
	go func() {
		// The thread is not given back: it ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			done <- fmt.Errorf("mount the network namespace at %s: %w", path, err)
			return
		}
		done <- nil
	}()
	return true, <-done
}

// IsNamespace tells whether a namespace is mounted at path.
func IsNamespace(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}
