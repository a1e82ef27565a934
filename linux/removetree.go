package linux

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mostLevels is how many levels of directories RemoveTree has open at a time. removeBatch is how many names it reads at
// once.
const (
	mostLevels  = 32
	removeBatch = 1024
)

// RemoveTree removes what is at a path, with all that is below it, whoever made that. Unlike os.RemoveAll it has a
// bounded number of files open however deep the tree is, and it does not go into what is mounted below: that is an
// error, which names it. It follows no link. A path where nothing is is no error.
func RemoveTree(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // no directory, or a link
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	case err != nil:
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	top := os.NewFile(uintptr(fd), path)
	defer top.Close()
	r := treeRemover{top: top}
	// Somebody may put something there meanwhile.
	for range 3 {
		r.first = nil
		r.empty(top, 0)
		if r.first != nil {
			return r.first
		}
		err := os.Remove(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return fmt.Errorf("remove %s: something is put there again and again", path)
}

type treeRemover struct {
	top   *os.File
	moved int   // how many directories were moved up
	first error // what went wrong first
}

func (r *treeRemover) fail(dir *os.File, name string, err error) {
	if r.first == nil {
		r.first = &fs.PathError{Op: "remove", Path: filepath.Join(dir.Name(), name), Err: err}
	}
}

// empty removes what is in a directory, again until a look at all of it removes nothing any more: those that are too
// deep come to the top meanwhile.
func (r *treeRemover) empty(dir *os.File, level int) {
	for progress := true; progress; {
		progress = false
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			r.fail(dir, "", err)
			return
		}
		for {
			names, err := dir.Readdirnames(removeBatch)
			for _, name := range names {
				if r.remove(dir, name, level) {
					progress = true
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					r.fail(dir, "", err)
				}
				break
			}
		}
	}
}

// remove removes one name of a directory, or moves it to the top. It returns whether it did.
func (r *treeRemover) remove(dir *os.File, name string, level int) bool {
	at := int(dir.Fd())
	err := unix.Unlinkat(at, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) { // POSIX.1 has EPERM for directories
		err = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return err == nil
	case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST):
	case errors.Is(err, unix.EBUSY):
		r.fail(dir, name, errors.New("something is mounted there"))
		return false
	default:
		r.fail(dir, name, err)
		return false
	}
	if level == mostLevels {
		return r.lift(dir, name)
	}
	fd, err := unix.Openat2(at, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return true // it has become something else, which the next look removes
	case errors.Is(err, unix.EXDEV):
		r.fail(dir, name, errors.New("something is mounted there"))
		return false
	case err != nil:
		r.fail(dir, name, err)
		return false
	}
	child := os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name))
	failed := r.first
	r.empty(child, level+1)
	child.Close()
	if r.first != failed {
		return false
	}
	if err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		r.fail(dir, name, err)
		return false
	}
	return true
}

// lift moves a directory to the top, so that it needs no more levels.
func (r *treeRemover) lift(dir *os.File, name string) bool {
	for {
		r.moved++
		err := unix.Renameat2(int(dir.Fd()), name, int(r.top.Fd()), fmt.Sprintf(".removed-%d", r.moved),
			unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			r.fail(dir, name, err)
		}
		return err == nil
	}
}
