package spec

import (
	"fmt"
	"io"
	"io/fs"
)

// readConfig reads a configuration file: a regular one, and at most one byte beyond MaxConfigSize, so that the caller
// sees that it is too large. Somebody else wrote the file that names it, and a device or a pipe would take for ever.
func readConfig(path string) ([]byte, error) {
	f, err := openPlaced(path, 0)
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
