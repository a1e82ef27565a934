package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
)

// The data directory is the user's: it may be a link, a disk may be mounted there or at what is in it, and it may have
// files of somebody else's. What polyplane made there goes, and nothing else. What is in a directory that it made there
// itself is polyplane's. Behind a link and on a disk of its own, only what has names of polyplane's is: all else stays,
// and is told.

// data is an instance's data directory.
type data struct {
	path, at string   // as it is called, and without links
	shared   bool     // it is a link, or a disk is mounted there: others may have something in it
	ours     []string // what polyplane made in there, by path
	foreign  []string // other names
	mounts   []string // where disks are mounted that purge has left so
	left     []string // where something is left that others may have made
	deleted  int      // how much of ours it has deleted
}

// dataOf finds out what there is; there need not be anything.
func dataOf(d instance.Dirs) (*data, error) {
	real, err := d.Real()
	if err != nil {
		return nil, err
	}
	is := &data{path: d.Data, at: real.Data}
	if err := is.read(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look into the data of polyplane '%s': %w", d.Name, err)
	}
	return is, nil
}

func (d *data) read() error {
	d.ours, d.foreign = nil, nil
	entries, err := os.ReadDir(d.at)
	for _, e := range entries {
		switch name := e.Name(); {
		case madeKind(name) != nil:
			d.ours = append(d.ours, filepath.Join(d.at, name))
		case name != lostAndFound:
			d.foreign = append(d.foreign, name)
		}
	}
	return err
}

// lostAndFound is a file system's own.
const lostAndFound = "lost+found"

// unmount takes away what polyplane has mounted: elements' disks, and what nodes have below their other directories.
// What is mounted above, or behind a link, somebody else has mounted. It must come before anything is deleted.
func (d *data) unmount() error {
	for _, path := range d.ours {
		if madeKind(filepath.Base(path)) != namedOf(dataKinds(), "nodes") {
			continue
		}
		for _, part := range nodeParts(path) {
			depth := 1
			if filepath.Base(part) == "networks" {
				depth = 2
			}
			at, err := filepath.EvalSymlinks(part)
			if info, lerr := os.Lstat(part); err != nil || lerr != nil || depth == 1 && !info.IsDir() {
				continue
			}
			if err := unmountBelow(at, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// purge deletes what is ours, and the directory, if nothing else is in it and no disk is mounted there.
func (d *data) purge() error {
	info, err := os.Lstat(d.path)
	if err != nil {
		return err
	}
	mounted, err := isMount(d.at)
	if err != nil {
		return err
	}
	d.shared = mounted || info.Mode().Type() == fs.ModeSymlink
	var failed []error
	for _, path := range d.ours {
		failed = append(failed, d.removeMade(path))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if mounted {
		d.mounts = append(d.mounts, d.at)
		return nil
	}
	err = unix.Rmdir(d.at)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) {
		return d.read() // somebody may have put something there meanwhile
	}
	if err == nil && d.at != d.path && info.Mode().Type() == fs.ModeSymlink {
		err = os.Remove(d.path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "remove", Path: d.path, Err: err}
	}
	d.deleted++
	return nil
}

// removeMade deletes one thing that polyplane made in the data directory. Behind a link it deletes what is surely
// polyplane's.
func (d *data) removeMade(path string) error {
	is := madeKind(filepath.Base(path))
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSymlink || !is.certain {
		return d.remove(path, is, d.shared, 0)
	}
	at, err := filepath.EvalSymlinks(path)
	if err == nil {
		info, err = os.Stat(at)
	}
	if err != nil || !info.IsDir() {
		return d.remove(path, is, true, 0)
	}
	if err := d.removeDir(at, is, true, 0); err != nil {
		return err
	}
	d.deleted++
	return os.Remove(path)
}

// nodeLevels is how deep below what is in the data directory there may be links and disks that a person put there:
// nodes/NODE/WHAT. Below, everything is elements'.
const nodeLevels = 2

// remove deletes what is at a path. Where others may have something there (shared), it does so only with what is of a
// kind.
func (d *data) remove(path string, is *kind, shared bool, level int) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return d.removeDir(path, is, shared, level)
	case shared && (is == nil || is.dir) && info.Mode().Type() != fs.ModeSymlink:
		d.leave(path)
		return nil
	case info.Mode().Type() == fs.ModeSymlink:
		if at, err := filepath.EvalSymlinks(path); err == nil {
			d.leave(at)
		}
	}
	err = os.Remove(path)
	switch {
	case errors.Is(err, unix.EBUSY): // something is mounted there
		d.mounts = append(d.mounts, path)
		return nil
	case err == nil:
		d.deleted++
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// removeDir deletes a directory. Where a disk is mounted, what polyplane made there goes, and the disk stays.
func (d *data) removeDir(at string, is *kind, shared bool, level int) error {
	mounted, err := isMount(at)
	if err != nil {
		return err
	}
	below, err := mountsBelow(at, 1)
	if err != nil {
		return err
	}
	shared = shared || mounted
	if shared && (is == nil || !is.dir) {
		d.leave(at)
	} else if !mounted && len(below) == 0 && (shared && is.all || !shared && level > nodeLevels) {
		if err = linux.RemoveTree(at); err == nil {
			d.deleted++
		}
		return err
	} else if err := d.removeIn(at, is, shared, level); err != nil {
		return err
	}
	if mounted {
		d.mounts = append(d.mounts, at)
		return nil
	}
	err = unix.Rmdir(at)
	switch {
	case err == nil:
		d.deleted++
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY):
		if !d.told(at) {
			d.leave(at)
		}
		return nil
	}
	return &fs.PathError{Op: "remove", Path: at, Err: err}
}

// removeIn deletes what polyplane made in a directory.
func (d *data) removeIn(at string, is *kind, shared bool, level int) error {
	entries, err := os.ReadDir(at)
	var kinds []kind
	if is != nil && (!shared || is.mayBe(entries)) {
		kinds = is.in
	}
	failed, others := []error{err}, false
	goesLast := func(e fs.DirEntry) int {
		if of := namedOf(kinds, e.Name()); of != nil && of.last {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(goesLast(a), goesLast(b)) })
	for _, e := range entries {
		of := namedOf(kinds, e.Name())
		switch {
		case shared && of == nil:
			others = others || e.Name() != lostAndFound
			continue
		case of != nil && of.last && errors.Join(failed...) != nil:
			continue
		}
		failed = append(failed, d.remove(filepath.Join(at, e.Name()), of, shared, level+1))
	}
	if others {
		d.leave(at)
	}
	return errors.Join(failed...)
}

// leave notes that something is left which others may have made.
func (d *data) leave(at string) {
	if !slices.Contains(d.left, at) {
		d.left = append(d.left, at)
	}
}

// told tells whether something that is left at or below a directory is told.
func (d *data) told(at string) bool {
	return slices.ContainsFunc(slices.Concat(d.left, d.mounts), func(left string) bool {
		return left == at || strings.HasPrefix(left, at+"/")
	})
}

// isMount tells whether something is mounted at a path without links, be it another directory of the same file system.
func isMount(path string) (bool, error) {
	at, err := mountAt(path)
	return at == path, err
}
