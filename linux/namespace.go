package linux

import (
	"fmt"
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
