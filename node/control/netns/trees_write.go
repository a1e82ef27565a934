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

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// carryOutTrees writes and removes files of trees. What is interrupted is found as it is by the next one, which
// compares contents.
func (d *Driver) carryOutTrees(ctx context.Context, id model.ID, f *elementFiles, p *planting) error {
	if len(p.trees) == 0 {
		return nil
	}
	for _, t := range p.trees {
		for _, below := range t.remove {
			if err := f.removeGiven(t.full(below)); err != nil {
				return err
			}
		}
		f.removeEmpty(t)
		if err := t.writeAll(ctx, f); err != nil {
			return err
		}
	}
	// Else the notes may outlive what they tell of.
	dir, err := os.Open(d.dirs.Files(id))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("have its files on its disk: %w", err)
	}
	return d.noteTrees(id, p)
}

// writeAll writes a tree's files that are to be written.
func (t *planted) writeAll(ctx context.Context, f *elementFiles) error {
	if len(t.write) == 0 {
		return nil
	}
	from, err := openTree(t.dir)
	if err != nil {
		return fmt.Errorf("write the files at %s: %w", t.at, err)
	}
	defer from.close()
	for _, below := range t.write {
		mark, err := f.writeFrom(ctx, t.full(below), from, below)
		if err != nil {
			return fmt.Errorf("write %s: %w", t.full(below), err)
		}
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

// roomForTrees refuses to begin what the element's disk has no room for.
func (d *Driver) roomForTrees(id model.ID, f *elementFiles, p *planting) error {
	var need, count int64
	for _, t := range p.trees {
		for _, below := range t.remove {
			if info, err := f.root.Lstat(rel(t.full(below))); err == nil {
				need, count = need-info.Size(), count-1
			}
		}
		for _, below := range t.write {
			need, count = need+t.sizes[below], count+1
			if info, err := f.root.Lstat(rel(t.full(below))); err == nil && info.Mode().IsRegular() {
				need, count = need-info.Size(), count-1
			}
		}
	}
	var s unix.Statfs_t
	if unix.Statfs(d.dirs.Files(id), &s) != nil {
		return nil
	}
	if count > int64(s.Ffree) {
		return fmt.Errorf("its disk has room for %d more files, and %d are put into it: `disk:` gives it a larger one",
			s.Ffree, count)
	}
	if need <= 0 || int64(s.Bavail)*s.Bsize >= need {
		return nil
	}
	return fmt.Errorf("its disk has %s free, and the files that are put into it need %s: `disk:` gives it a larger one",
		model.Bytes(int64(s.Bavail)*s.Bsize).Rounded(), model.Bytes(need).Rounded())
}

// removeEmpty removes the directories of a tree in which nothing is left.
func (f *elementFiles) removeEmpty(t *planted) {
	dirs := map[string]bool{}
	for _, below := range t.remove {
		if below == "" {
			continue
		}
		for dir := path.Dir(t.full(below)); len(dir) >= len(t.at); dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(dirs))) {
		if info, err := f.root.Lstat(rel(dir)); err == nil && info.IsDir() {
			f.root.Remove(rel(dir)) //nolint:errcheck // something is in it
		}
	}
}

// writeFrom replaces a file by a copy of one of a tree.
func (f *elementFiles) writeFrom(ctx context.Context, at string, tree *treeFiles, below string) (mark treeMark,
	err error) {
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
	if info, err := f.root.Lstat(at); err == nil && info.IsDir() {
		if err := f.setAside(at, "a directory"); err != nil {
			return mark, err
		}
	}
	file, err := f.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return mark, err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, sum), &untilEnd{ctx, from})
	var info fs.FileInfo
	if err == nil {
		info, err = file.Stat()
	}
	err = errors.Join(err, file.Chown(f.base, f.base), file.Chmod(first.Mode().Perm()), file.Close())
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
