package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Elsewhere is something that a network takes from a file outside of the directory of the file that names it. Somebody
// else may have written that file, and whoever applies it may read what the other may not.
type Elsewhere struct {
	What string // what of the network it is: "config of router r1"
	Path string // where it lies, absolute, links resolved
}

func (e Elsewhere) String() string {
	return fmt.Sprintf("%s is read from %s, outside of the file's directory", e.What, e.Path)
}

// placed resolves the links of a file's path, and notes if it is not below the directory of the file that names it.
// What is read then is at the path that was looked at: openPlaced follows no further links, so nobody who changes one
// meanwhile leads it elsewhere. Links of the kernel whose text is no path (/proc/PID/fd) lead nowhere.
func (b *builder) placed(what, path string) (string, error) {
	if b.given {
		return path, nil
	}
	at, err := resolvePath(path)
	if err != nil {
		if of, ok := errors.AsType[*fs.PathError](err); ok { // which of the path's parts it is, is no matter
			err = &fs.PathError{Op: "open", Path: path, Err: of.Err}
		}
		return "", err
	}
	dir, err := resolvePath(b.dir)
	if err != nil || !below(dir, at) {
		b.outside = append(b.outside, Elsewhere{what, at})
	}
	return at, nil
}

// Below returns whether a path is a directory or below it, the links of both resolved.
func Below(dir, path string) (bool, error) {
	at, err := resolvePath(path)
	if err != nil {
		return false, err
	}
	dir, err = resolvePath(dir)
	return err == nil && below(dir, at), err
}

func below(dir, at string) bool {
	rel, err := filepath.Rel(dir, at)
	return err == nil && filepath.IsLocal(rel)
}

func resolvePath(path string) (string, error) {
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(at)
}

// openPlaced opens what is at a path whose links are resolved. It waits for no pipe's other end.
func openPlaced(path string, flags int) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   uint64(flags | unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY),
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openTree opens a directory as a root, likewise.
func openTree(path string) (*os.Root, error) {
	f, err := openPlaced(path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}
