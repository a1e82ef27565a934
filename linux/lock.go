package linux

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Locked calls f while no other process does so with the same directory.
func Locked(path string, f func() error) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX)
		if err == nil {
			return f()
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", path, err)
		}
	}
}
