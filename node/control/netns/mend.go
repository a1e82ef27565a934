package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/polyplane/polyplane/node/change"
)

// An element's root may replace the directories that its container needs. While it runs, that is its own business.
// Before the next start, what is in their place is set aside, so that nobody has to delete an element to get it back.

// replacedError tells that there is something else where a directory must be.
type replacedError struct {
	id         string
	path, what string
}

func (e *replacedError) Error() string {
	return fmt.Sprintf("its /%s is %s now and must be a directory: `polyplane restart %s` makes it anew and keeps "+
		"what is there as /%s%s", e.path, e.what, e.id, e.path, asideSuffix)
}

const asideSuffix = ".replaced"

// maxAside bounds how often something is set aside from the same path.
const maxAside = 100

// mountPoints are where runc mounts something. None of them may be a link.
var mountPoints = map[string]bool{"usr": true, "proc": true, "sys": true, "dev": true, "run": true, "tmp": true}

// ensureNoOther makes sure that there is a directory at path, or nothing. A link to a directory of the element is as
// good as a directory.
func (f *elementFiles) ensureNoOther(path string) error {
	info, err := f.root.Lstat(path)
	if err != nil || info.IsDir() {
		return nil //nolint:nilerr // making it tells what is wrong
	}
	what := "a file"
	if info.Mode()&fs.ModeSymlink != 0 {
		if to, err := f.root.Stat(path); err == nil && to.IsDir() && !mountPoints[path] {
			return nil
		}
		what = "a symbolic link"
		if target, err := f.root.Readlink(path); err == nil {
			what = fmt.Sprintf("a symbolic link to %q", target)
		}
	}
	if !f.mend {
		return &replacedError{id: f.id.String(), path: path, what: what}
	}
	return f.setAside(path, what)
}

// setAside renames what is at path.
func (f *elementFiles) setAside(path, what string) error {
	aside := path + asideSuffix
	for n := 2; f.exists(aside); n++ {
		if n > maxAside {
			return fmt.Errorf("set /%s aside, which is %s: there are %d of its kind already; remove some",
				path, what, maxAside)
		}
		aside = fmt.Sprintf("%s%s.%d", path, asideSuffix, n)
	}
	if err := f.root.Rename(path, aside); err != nil {
		return fmt.Errorf("set /%s aside, which is %s: %w", path, what, err)
	}
	f.moved = append(f.moved, change.FileMoved.Of("/"+path, what, "/"+aside))
	return nil
}

// clear makes way for a file. A directory is set aside and not removed, unless it is empty: removing takes a descriptor
// for each level, of which the element could make more than the agent has for all of the node.
func (f *elementFiles) clear(path string) error {
	err := f.root.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if info, lstat := f.root.Lstat(path); lstat != nil || !info.IsDir() {
		return err
	}
	return f.setAside(path, "a directory")
}

// clearMounts sets aside whatever keeps runc from mounting the machine's shared files.
func (f *elementFiles) clearMounts() error {
	if !f.mend {
		return nil
	}
	for _, path := range sharedFiles {
		theirs, err := os.Stat(path)
		if err != nil {
			continue
		}
		own, err := f.root.Lstat(rel(path))
		if err != nil || own.IsDir() == theirs.IsDir() && own.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		what := "a file"
		switch {
		case own.Mode()&fs.ModeSymlink != 0:
			what = "a symbolic link"
		case own.IsDir():
			what = "a directory"
		}
		if err := f.setAside(rel(path), what); err != nil {
			return err
		}
	}
	return nil
}
