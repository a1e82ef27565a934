package netns

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

// Whether something at a path is somebody's work, or was put there and gives way to what is to be there now.

// isOurs tells whether a file was put there, by itself or with a tree, and nobody has edited it.
func (t *treesOf) isOurs(f *elementFiles, file string) bool {
	if mark, known := t.given[file]; known {
		now, err := f.read(file, model.MaxContentSize)
		return err == nil && hasMark(mark, now)
	}
	return t.has(f, file)
}

// wanted tells whether the element is to have a file at a path, by itself or in a tree.
func (t *treesOf) wanted(f *elementFiles, file string) (bool, error) {
	if t.other[file] {
		return true, nil
	}
	for at, tree := range t.now {
		below, in := belowTree(at, file)
		if !in {
			continue
		}
		if t.was[at].ID == tree.Tree { // it is there
			_, known := t.note(f, at).Files[below]
			return known, nil
		}
		paths, err := t.pathsOf(at, tree)
		return paths[below], err
	}
	return false, nil
}

// pathsOf are the paths of the files of a tree that the element is to have.
func (t *treesOf) pathsOf(at string, tree *software.File) (map[string]bool, error) {
	if paths := t.paths[at]; paths != nil {
		return paths, nil
	}
	dir, waits, err := t.dirOf(tree)
	if err == nil && waits != "" {
		err = errors.New(waits)
	}
	if err != nil {
		return nil, err
	}
	from, err := openTree(dir)
	if err != nil {
		return nil, err
	}
	defer from.close()
	paths := map[string]bool{}
	err = from.walk(func(below string, _ fs.FileInfo) error {
		paths[below] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.paths[at] = paths
	return paths, nil
}

// had tells whether the element was given something below a path.
func (t *treesOf) had(f *elementFiles, dir string) bool {
	below := func(file string) bool { return strings.HasPrefix(file, dir+"/") }
	for file := range t.given {
		if below(file) {
			return true
		}
	}
	for at := range t.was {
		if below(at) {
			return true
		}
		if _, in := belowTree(at, dir); !in {
			continue
		}
		for file := range t.note(f, at).Files {
			if below(path.Join(at, file)) {
				return true
			}
		}
	}
	return false
}

// givesWay tells whether what is at a path goes: a file of ours that is not wanted any more, or a directory that was
// made for such, and has nothing else.
func (t *treesOf) givesWay(f *elementFiles, at string) (bool, error) {
	info, err := f.root.Lstat(rel(at))
	if err != nil {
		return false, nil
	}
	if !info.IsDir() {
		return t.goes(f, at)
	}
	if !t.had(f, at) {
		return false, nil
	}
	all := true
	err = fs.WalkDir(f.root.FS(), rel(at), func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			all = false // somebody changes it meanwhile
			return fs.SkipAll
		}
		if entry.IsDir() {
			return nil
		}
		if all, err = t.goes(f, "/"+p); err != nil || !all {
			return errors.Join(err, fs.SkipAll)
		}
		return nil
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return all && err == nil, err
}

// goes tells whether a file is ours, and not wanted any more. One that the image has as well comes back.
func (t *treesOf) goes(f *elementFiles, file string) (bool, error) {
	if !t.isOurs(f, file) {
		return false, nil
	}
	wanted, err := t.wanted(f, file)
	return !wanted, err
}

// isMissing tells whether an error says that there is no file at a path: nothing is, or a file is above it.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// inTheWay returns whether something that is no directory is where one must be for a file, and stays there.
func (t *treesOf) inTheWay(f *elementFiles, at string) (bool, error) {
	for dir := path.Dir(rel(at)); dir != "."; dir = path.Dir(dir) {
		if info, err := f.root.Stat(dir); err == nil {
			if info.IsDir() {
				return false, nil
			}
		} else if _, err := f.root.Lstat(dir); err != nil {
			continue
		} // else it is a link that leads nowhere
		gone, err := t.goes(f, "/"+dir)
		return !gone, err
	}
	return false, nil
}

// removeHollow removes a directory with nothing but directories in it: it is where a file is to be.
func (f *elementFiles) removeHollow(at string) {
	var dirs []string
	err := fs.WalkDir(f.root.FS(), rel(at), func(p string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			err = fs.ErrExist
		}
		dirs = append(dirs, p)
		return err
	})
	if err != nil {
		return
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		f.root.Remove(dirs[i]) //nolint:errcheck // then it is set aside
	}
}

func (f *elementFiles) isDir(at string) bool {
	info, err := f.root.Lstat(rel(at))
	return err == nil && info.IsDir()
}

// hasLeft tells whether an element that is to have no files of the network's any more was given some.
func (d *Driver) hasLeft(job *control.Job) bool {
	was, err := d.readSeeds(job.ID)
	return err == nil && len(job.Element.Contents) == 0 && len(was.Given)+len(was.Trees) > 0
}

// takeBack removes them, as long as nobody has edited them. An element that runs nothing else does nothing with files:
// they go when its processes end, or before somebody looks at them. Where that fails, as on a broken disk, it is tried
// again by whoever looks next, and keeps nobody from looking.
func (d *Driver) takeBack(ctx context.Context, job *control.Job, f *elementFiles) {
	if !d.hasLeft(job) {
		return
	}
	if err := d.removeGivenFiles(ctx, job.ID, f); err != nil {
		d.log.Warn("remove the files that the network's file has no longer", "element", job.ID, "error", err)
	}
}

// takeBackOf does it for an element whose processes end, where its disk is there.
func (d *Driver) takeBackOf(ctx context.Context, w *work) {
	if w.job.Element.Stopped || !linux.IsMount(d.dirs.Files(w.job.ID)) || !d.hasLeft(&w.job) {
		return
	}
	f, err := d.openFiles(&w.job, false)
	if err != nil {
		d.log.Warn("remove the files that the network's file has no longer", "element", w.job.ID, "error", err)
		return
	}
	defer f.close()
	d.takeBack(ctx, &w.job, f)
}

func (d *Driver) removeGivenFiles(ctx context.Context, id model.ID, f *elementFiles) error {
	was, err := d.readSeeds(id)
	if err != nil {
		return err
	}
	plan, s := &software.Plan{}, seeding{seeds: was}
	trees := d.treesOf(id, plan, &was)
	p, err := f.plant(plan, &s, trees, false)
	if err == nil {
		err = d.plantTrees(ctx, f, trees, &p, &s, false)
	}
	if err == nil {
		err = d.carryOutPlanting(ctx, id, f, &p, &s, false)
	}
	if err == nil {
		err = d.writeSeeds(id, s.seeds)
	}
	return err
}
