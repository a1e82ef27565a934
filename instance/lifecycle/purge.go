package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
)

// The data directory is the user's: it may be a link, a disk may be mounted there or at what is in it, and it may have
// files of somebody else's. What polyplane made there goes, and nothing else.

// made are the names that polyplane gives to what it makes in the data directory. What is made anew, damaged, or set
// aside has them with an ending.
var (
	made = []string{"aside", "authority", "backups", "etcd", "etcd.log", "etcd.reserve", "identity", "images", "log",
		"nodes", "restore.log", "self-test.json", instance.SettingsFile}
	madeEndings = []string{".new", ".damaged", ".damaged-", ".aside-"}
)

// isMade tells whether polyplane made what has a name.
func isMade(name string) bool {
	return slices.ContainsFunc(made, func(of string) bool {
		ending, is := strings.CutPrefix(name, of)
		return is && (ending == "" || slices.ContainsFunc(madeEndings, func(e string) bool {
			return ending == e || e[len(e)-1] == '-' && strings.HasPrefix(ending, e)
		}))
	})
}

// data is an instance's data directory.
type data struct {
	path, at string   // as it is called, and without links
	ours     []string // what polyplane made in there, by path
	foreign  []string // other names
	mounts   []string // where disks are mounted that purge has left so
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
	entries, err := os.ReadDir(d.at)
	for _, e := range entries {
		switch name := e.Name(); {
		case isMade(name):
			d.ours = append(d.ours, filepath.Join(d.at, name))
		case name != "lost+found": // a file system's own
			d.foreign = append(d.foreign, name)
		}
	}
	return err
}

// ownMounts is how deep below what is in the data directory everything lies that polyplane mounts: nodes/NODE/WHAT/…
// What is mounted above, somebody else has mounted.
const ownMounts = 3

// unmount takes away what polyplane has mounted. It must come before anything is deleted.
func (d *data) unmount() error {
	for _, path := range d.ours {
		if at, err := filepath.EvalSymlinks(path); err == nil {
			path = at
		}
		if err := unmountBelow(path, ownMounts); err != nil {
			return err
		}
	}
	return nil
}

// purge deletes what is ours, and the directory, if nothing else is in it and no disk is mounted there.
func (d *data) purge() error {
	var failed []error
	for _, path := range d.ours {
		stays, err := d.remove(path)
		if failed = append(failed, err); err == nil && !stays {
			d.deleted++
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if len(d.foreign) == 0 && len(d.mounts) == 0 {
		stays, err := d.remove(d.path)
		if err == nil && !stays {
			d.deleted++
		}
		return err
	}
	if mounted, err := isMount(d.at); err == nil && mounted {
		d.mounts = append(d.mounts, d.at)
	}
	return nil
}

// remove deletes what is at a path, or behind a link there. Where a disk is mounted, it is emptied, and stays.
func (d *data) remove(path string) (stays bool, err error) {
	at, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) { // a link that leads nowhere
		return false, linux.RemoveTree(path)
	}
	if err != nil {
		return false, err
	}
	if stays, err = isMount(at); err != nil {
		return false, err
	}
	if !stays {
		if err := linux.RemoveTree(at); err != nil || at == path {
			return false, err
		}
		return false, linux.RemoveTree(path)
	}
	d.mounts = append(d.mounts, at)
	entries, err := os.ReadDir(at)
	for _, e := range entries {
		if e.Name() != "lost+found" {
			err = errors.Join(err, linux.RemoveTree(filepath.Join(at, e.Name())))
			d.deleted++
		}
	}
	return true, err
}

// isMount tells whether something is mounted at a path without links, be it another directory of the same file system.
func isMount(path string) (bool, error) {
	at, err := mountAt(path)
	return at == path, err
}
