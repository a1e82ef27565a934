package netns

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/mirror"
)

// onThread runs f on a thread of its own, which ends with f. So no other code runs in the namespaces that f enters.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread dies with the goroutine
		done <- f()
	}()
	return <-done
}

// inNamespaceOf runs f inside the network namespace at path.
func inNamespaceOf(path string, f func() error) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the network namespace %s: %w", path, err)
	}
	defer unix.Close(fd)
	return onThread(func() error {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace %s: %w", path, err)
		}
		return f()
	})
}

// Enter runs f on a thread of its own inside the element's network namespace.
func (d *Driver) Enter(id model.ID, f func() error) error {
	return inNamespaceOf(d.dirs.Namespace(id), f)
}

// Routes says where an element's routes are.
func (d *Driver) Routes(id model.ID) mirror.Source { return mirror.Namespace(d.dirs.Namespace(id)) }

// inNode runs f on a thread of its own in the node's namespace, wherever the caller is.
func (d *Driver) inNode(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(d.home, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the node's network namespace: %w", err)
		}
		return f()
	})
}
