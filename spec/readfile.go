package spec

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// readConfig reads a configuration file: a regular one, and at most one byte beyond MaxConfigSize, so that the caller
// sees that it is too large. Somebody else wrote the file that names it, and a device or a pipe would take for ever.
func readConfig(path string) ([]byte, error) {
	// Without O_NONBLOCK opening a pipe waits for its other end.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is %s; a regular file is expected", path, kindOfFile(info.Mode()))
	}
	return io.ReadAll(io.LimitReader(f, MaxConfigSize+1))
}

func kindOfFile(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}
