package netns

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

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

// dirsOf are the directories that are there for what the element was given, sorted: those above each of it.
func (t *treesOf) dirsOf(f *elementFiles) []string {
	if t.dirs != nil {
		return t.dirs
	}
	all := map[string]bool{}
	add := func(file string) {
		for dir := path.Dir(file); dir != "/" && dir != "." && !all[dir]; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	for file := range t.given {
		add(file)
	}
	for at := range t.was {
		for below := range t.note(f, at).Files {
			add(path.Join(at, below))
		}
	}
	t.dirs = append([]string{}, slices.Sorted(maps.Keys(all))...)
	return t.dirs
}

// dirsAt are those of sorted directories that are at a path, and below it.
func dirsAt(dirs []string, at string) (is []string) {
	if _, there := slices.BinarySearch(dirs, at); there {
		is = append(is, at)
	}
	first, _ := slices.BinarySearch(dirs, at+"/")
	for _, dir := range dirs[first:] {
		if !strings.HasPrefix(dir, at+"/") {
			break
		}
		is = append(is, dir)
	}
	return is
}

// givesWay tells whether what is at a path goes: a file of ours that is not wanted any more, or a directory that was
// made for such, and has nothing else. Only directories that were made for such are looked into, and only as far as the
// first name that is unknown: what an element's root makes may be as deep and as wide as its disk allows.
func (t *treesOf) givesWay(ctx context.Context, f *elementFiles, at string) (bool, error) {
	info, err := f.root.Lstat(rel(at))
	if err != nil {
		return false, nil
	}
	if !info.IsDir() {
		return t.goes(f, at)
	}
	dirs := dirsAt(t.dirsOf(f), at)
	if len(dirs) == 0 || dirs[0] != at {
		return false, nil
	}
	for _, dir := range dirs {
		if all, err := t.allGoes(ctx, f, dir, dirs); err != nil || !all {
			return false, err
		}
	}
	return true, nil
}

// allGoes tells whether a directory has nothing but files that go, and directories that are looked at as well.
func (t *treesOf) allGoes(ctx context.Context, f *elementFiles, at string, looked []string) (bool, error) {
	// Somebody may put something else there meanwhile, such as a pipe for which opening waits.
	dir, err := f.root.OpenFile(rel(at), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return isMissing(err), nil // a directory that was removed inside is in nobody's way
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(ownChunk)
		for _, entry := range entries {
			p := path.Join(at, entry.Name())
			if entry.IsDir() {
				if _, known := slices.BinarySearch(looked, p); !known {
					return false, nil
				}
				continue
			}
			if all, err := t.goes(f, p); err != nil || !all {
				return false, err
			}
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return false, ctx.Err() // else somebody changes it meanwhile
		}
	}
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

// removeHollow removes a directory with nothing in it but directories that are there for what the element was given: it
// is where a file is to be. What is left of it, as directories that were made inside, is set aside afterwards.
func (f *elementFiles) removeHollow(at string) {
	at = path.Join("/", at)
	var real []string
	is := map[string]bool{} // never below a link: that leads to something else
	for _, dir := range dirsAt(f.made, at) {
		if (dir == at || is[path.Dir(dir)]) && f.isDir(dir) {
			is[dir], real = true, append(real, dir)
		}
	}
	for _, dir := range slices.Backward(real) {
		f.root.Remove(rel(dir)) //nolint:errcheck // then it is set aside
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
	p, err := f.plant(ctx, plan, &s, trees, false)
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
