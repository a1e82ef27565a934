package netns

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// begun are the seeds of trees while files of some are written: what is there then is no tree that is known.
func (p *planting) begun(seeds map[string]treeSeed) map[string]treeSeed {
	now := maps.Clone(seeds)
	if now == nil {
		now = map[string]treeSeed{}
	}
	for _, t := range p.trees {
		if t.changes() && !t.mends {
			now[t.at] = treeSeed{Kept: now[t.at].Kept}
		}
	}
	return now
}

// beginTrees notes which files of trees are about to be written.
func (d *Driver) beginTrees(id model.ID, p *planting) error {
	p.time = time.Now()
	all := &treesOf{path: d.treePath(id)}
	for _, t := range p.trees {
		if len(t.write) == 0 {
			continue
		}
		begun := &treeBegun{Time: p.time.UnixNano(), Files: t.write}
		if err := all.write(t.at, &treeNote{Files: t.was, Begun: begun}); err != nil {
			return err
		}
	}
	return nil
}

// ways are the directories that must be there for what is written.
func (p *planting) ways() map[string]bool {
	all := map[string]bool{}
	add := func(at string) {
		for dir := path.Dir(rel(at)); dir != "." && !all[dir]; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	for _, file := range p.write {
		add(file.Path)
	}
	for _, t := range p.trees {
		for _, below := range t.write {
			add(t.full(below))
		}
	}
	return all
}

// removeOfTrees removes files of trees, after beginTrees: something else may be about to be written in their places.
func (f *elementFiles) removeOfTrees(p *planting) error {
	for _, t := range p.trees {
		if err := t.clear(f); err != nil {
			return err
		}
	}
	return nil
}

// carryOutTrees writes files of trees, after beginTrees. What is interrupted is found as it is by the next one, which
// compares contents.
func (d *Driver) carryOutTrees(ctx context.Context, id model.ID, f *elementFiles, p *planting) error {
	if len(p.trees) == 0 {
		return p.taking.end()
	}
	for _, t := range p.trees {
		if err := t.writeAll(ctx, f, p); err != nil {
			d.noteInterrupted(id, p)
			return err
		}
	}
	if err := d.syncFiles(id); err != nil {
		return err
	}
	return d.noteTrees(id, p)
}

// clear removes what is to be removed, and what is left of an interruption.
func (t *planted) clear(f *elementFiles) error {
	for _, below := range t.left {
		half := rel(t.full(below)) + model.SuffixBeingWritten
		if info, err := f.root.Lstat(half); err == nil && info.Mode().IsRegular() {
			f.root.Remove(half) //nolint:errcheck // it is in nobody's way
		}
	}
	for _, below := range t.remove {
		if err := f.removeGiven(t.full(below)); err != nil {
			return err
		}
		delete(t.was, below)
	}
	f.removeEmpty(t)
	return nil
}

// syncFiles has an element's files on its disk. Else the notes may outlive what they tell of.
func (d *Driver) syncFiles(id model.ID) error {
	dir, err := os.Open(d.dirs.Files(id))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("have its files on its disk: %w", err)
	}
	return nil
}

// noteInterrupted notes what was written until something failed. Where that fails as well, what was noted at the
// beginning tells enough, and the next one has more to read.
func (d *Driver) noteInterrupted(id model.ID, p *planting) {
	if d.syncFiles(id) != nil {
		return
	}
	all := &treesOf{path: d.treePath(id)}
	for _, t := range p.trees {
		if t.note != nil {
			maps.Copy(t.was, t.note.Files)
		}
		if all.write(t.at, &treeNote{Files: t.was}) != nil {
			return
		}
	}
}

// writeAll writes a tree's files that are to be written.
func (t *planted) writeAll(ctx context.Context, f *elementFiles, p *planting) error {
	if len(t.write) == 0 {
		return nil
	}
	from, err := openTree(t.dir)
	if err != nil {
		return fmt.Errorf("write the files at %s: %w", t.at, err)
	}
	defer from.close()
	for _, below := range t.write {
		mark, err := f.writeFrom(ctx, t.full(below), from, below, p)
		if err != nil {
			return fmt.Errorf("write %s: %w", t.full(below), err)
		}
		p.taking.next()
		t.note.Files[below] = mark
	}
	return nil
}

// noteTrees notes what is there of trees.
func (d *Driver) noteTrees(id model.ID, p *planting) error {
	all := &treesOf{path: d.treePath(id)}
	for _, t := range p.trees {
		if t.dir == "" {
			if err := os.Remove(all.path(t.at)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		} else if err := all.write(t.at, t.note); err != nil {
			return err
		}
	}
	return nil
}

// removeEmpty removes the directories of a tree in which nothing is left. Its own is one of those above (dirs.go).
func (f *elementFiles) removeEmpty(t *planted) {
	dirs := map[string]bool{}
	for _, below := range t.remove {
		if below == "" {
			continue
		}
		for dir := path.Dir(t.full(below)); len(dir) > len(t.at); dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(dirs))) {
		if info, err := f.root.Lstat(rel(dir)); err == nil && info.IsDir() {
			f.root.Remove(rel(dir)) //nolint:errcheck // something is in it
		}
	}
}

// setTime sets when a file was written.
func setTime(file *os.File, when time.Time) error {
	at := unix.NsecToTimespec(when.UnixNano())
	return unix.UtimesNanoAt(int(file.Fd()), "", []unix.Timespec{at, at}, unix.AT_EMPTY_PATH)
}

// writeFrom replaces a file by a copy of one of a tree.
func (f *elementFiles) writeFrom(ctx context.Context, at string, tree *treeFiles, below string,
	p *planting) (mark treeMark, err error) {
	from, err := tree.open(below)
	if err != nil {
		return mark, err
	}
	defer from.Close()
	first, err := from.Stat()
	if err != nil {
		return mark, err
	}
	if err := f.makeWay(path.Dir(rel(at))); err != nil {
		return mark, err
	}
	at = rel(at)
	temporary := at + model.SuffixBeingWritten
	if err := f.clear(temporary); err != nil {
		return mark, err
	}
	f.removeHollow(at)
	if f.isDir(at) {
		if err := f.setAside(at, "a directory"); err != nil {
			return mark, err
		}
	}
	file, err := f.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return mark, err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, sum, p.taking), &untilEnd{ctx, from})
	err = errors.Join(err, file.Chown(f.base, f.base), file.Chmod(first.Mode().Perm()), setTime(file, p.time))
	var info fs.FileInfo
	if err == nil {
		info, err = file.Stat()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = f.root.Rename(temporary, at)
	}
	if err != nil {
		f.root.Remove(temporary) //nolint:errcheck // the first error counts; a disk that is full needs the room
		return mark, err
	}
	return treeMark{Sum: hex.EncodeToString(sum.Sum(nil)), Size: info.Size(), Mode: first.Mode().Perm(),
		Time: info.ModTime().UnixNano()}, nil
}
