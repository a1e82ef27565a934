package sandbox

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Within runs f in a network namespace, on a thread of its own.
func Within(namespace string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // not given back: the thread ends with the goroutine
		done <- func() error {
			fd, err := unix.Open(namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open %s: %w", namespace, err)
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter %s: %w", namespace, err)
			}
			return f()
		}()
	}()
	return <-done
}
