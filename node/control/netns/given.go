package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/software"
)

// Files that an owner puts into an element are treated as configurations are (seed.go): they seed it. What is edited
// inside stays and is told of, until an apply is to overwrite it. Here that holds for each file by itself.

// planting says how to bring them in line with the document's.
type planting struct {
	write  []*software.File
	remove []string          // the document has them no longer, and nobody edited them
	kept   []string          // edited inside, or something else is in the way; the document's have changed
	lost   []string          // damaged; they are among those to be written
	was    map[string]string // the marks of all of them before
	trees  []*planted        // what is done with those that are large (trees.go)
	time   time.Time         // that the files of trees get
	taking *taking           // what is promised of the machine's disk
	all    *treesOf          // what it was given, and is to have
}

// markOf is how it is noted that a file was written.
func markOf(f *software.File) string {
	return contentHash([]byte(f.Content)) + fmt.Sprintf(" %04o", f.Mode)
}

// hasMark returns whether a content is the one that was noted.
func hasMark(mark string, content []byte) bool {
	hash, _, _ := strings.Cut(mark, " ")
	return hash == contentHash(content)
}

// plant works out what is to be done, and notes it in the seeds as done.
func (f *elementFiles) plant(ctx context.Context, plan *software.Plan, s *seeding, trees *treesOf,
	runs bool) (p planting, err error) {
	p.was, p.all = s.seeds.Given, trees
	was := maps.Clone(p.was)
	given := make(map[string]string, len(plan.Contents))
	var unknown error // whether something is anybody's work
	gives := func(path string) bool {
		gone, err := trees.givesWay(ctx, f, path)
		unknown = errors.Join(unknown, err)
		return gone
	}
	for i := range plan.Contents {
		file := &plan.Contents[i]
		if file.Tree != "" {
			continue
		}
		want := markOf(file)
		seeded, known := was[file.Path]
		delete(was, file.Path)
		settled := known && seeded == want && !s.force
		if settled && runs { // also if it was deleted inside: it comes back at the next start
			given[file.Path] = want
			continue
		}
		now, err := f.read(file.Path, model.MaxContentSize)
		switch {
		case isMissing(err):
			blocked := false
			if !f.mend && !s.force {
				if blocked, err = trees.inTheWay(f, file.Path); err != nil {
					return p, err
				}
			}
			if blocked {
				p.kept = append(p.kept, file.Path)
				continue
			}
		case err == nil && isLost(file, now, f.damaged):
			p.lost = append(p.lost, file.Path)
		case settled:
			given[file.Path] = want
			continue
		case err == nil && string(now) == file.Content:
			if given[file.Path] = want; f.has(rel(file.Path), file.Mode, 0, 0) {
				continue
			}
		case s.force, err == nil && known && hasMark(seeded, now), !known && f.isFirst(file.Path, now),
			trees.has(f, file.Path):
			// nobody's work, or it is to be overwritten
		case err != nil && f.isDir(file.Path) && gives(file.Path):
			// a directory with what the document had before
		default: // what cannot be read, as a link or a directory, was made inside as well
			p.kept = append(p.kept, file.Path)
			if known {
				given[file.Path] = seeded
			}
			continue
		}
		p.write = append(p.write, file)
		given[file.Path] = want
	}
	for _, path := range slices.Sorted(maps.Keys(was)) {
		if wanted, err := trees.wanted(f, path); err != nil {
			return p, err
		} else if wanted {
			continue
		}
		if now, err := f.read(path, model.MaxContentSize); err == nil && hasMark(was[path], now) {
			p.remove = append(p.remove, path)
		}
	}
	s.seeds.Given = given
	return p, unknown
}

// isLost returns whether the machine lost a file's content: it is nothing but zeros, or nothing. Zeros among other
// bytes may be what a program has written there.
func isLost(file *software.File, now []byte, damaged bool) bool {
	if len(now) == 0 {
		return file.Content != "" && damaged
	}
	return len(bytes.Trim(now, "\x00")) == 0 && string(now) != file.Content
}

// isFirst returns whether a file is one that every element has, as it was at first.
func (f *elementFiles) isFirst(path string, now []byte) bool {
	if f.image {
		return f.isOfImage(path)
	}
	first, known := etcOnce(f.called)[rel(path)]
	return known && first == string(now)
}

// carryOutPlanting writes and removes files. Whoever is interrupted has the next one finish the work: that a running
// service is to be started again is noted before the first file is changed, and what was written before something
// failed does not count as edited inside.
func (d *Driver) carryOutPlanting(ctx context.Context, id model.ID, f *elementFiles, p *planting, s *seeding,
	runs bool) error {
	if len(p.write)+len(p.remove) == 0 && !slices.ContainsFunc(p.trees, (*planted).changes) {
		return d.noteTrees(id, p)
	}
	var err error
	if p.taking, err = d.roomFor(id, f, p); err != nil {
		return err
	}
	defer p.taking.room.End()
	noted, err := d.readSeeds(id)
	if err != nil {
		return err
	}
	if err := d.beginTrees(id, p); err != nil {
		return err
	}
	f.ways, f.made = p.ways(), p.all.dirsOf(f)
	noted.Dirs = f.dirsToMake(p, noted.Dirs)
	if !noted.Lost {
		if runs {
			noted.Planted++
			s.seeds.Planted = noted.Planted
		}
		noted.Trees = p.begun(noted.Trees)
		if err := d.writeSeeds(id, noted); err != nil {
			return err
		}
	}
	if err = f.removeOfTrees(p); err == nil {
		err = f.carryOut(p, s.seeds.Given)
	}
	if err == nil {
		err = d.carryOutTrees(ctx, id, f, p)
	}
	if err != nil {
		if noted.Given = s.seeds.Given; !noted.Lost {
			err = errors.Join(err, d.writeSeeds(id, noted))
		}
		return err
	}
	s.seeds.Dirs = f.removeMade(noted.Dirs, &s.seeds)
	return nil
}

// carryOut writes and removes files. Where that fails, the marks of what is not done are what they were before.
func (f *elementFiles) carryOut(p *planting, marks map[string]string) error {
	undone := slices.Clone(p.remove)
	undone = append(undone, each.Of(p.write, func(file *software.File) string { return file.Path })...)
	for i := range undone {
		var err error
		if n := i - len(p.remove); n < 0 {
			err = f.removeGiven(undone[i])
		} else {
			err = f.writeGiven(p.write[n])
		}
		if err == nil {
			continue
		}
		for _, path := range undone[i:] {
			delete(marks, path)
			if mark, known := p.was[path]; known {
				marks[path] = mark
			}
		}
		return err
	}
	return nil
}

// isOfImage returns whether a file, or a link, is the image's: whatever is written inside has another time.
func (f *elementFiles) isOfImage(path string) bool {
	root, err := os.OpenRoot(f.below)
	if err != nil {
		return false
	}
	defer root.Close()
	first, err := root.Lstat(rel(path))
	if err != nil || first.IsDir() {
		return false
	}
	now, err := f.root.Lstat(rel(path))
	return err == nil && now.Mode() == first.Mode() && now.Size() == first.Size() &&
		now.ModTime().Equal(first.ModTime())
}

// isDirOfImage returns whether a directory has the owners and the mode that it has in the image. Those of routing
// software may be root's there, if nobody has installed its package as a whole.
func (f *elementFiles) isDirOfImage(path string) bool {
	if f.below == "" {
		return false
	}
	root, err := os.OpenRoot(f.below)
	if err != nil {
		return false
	}
	defer root.Close()
	first, err := root.Lstat(rel(path))
	if err != nil || !first.IsDir() {
		return false
	}
	now, err := f.root.Lstat(rel(path))
	return err == nil && now.Mode() == first.Mode() && ownerOf(now) == f.base+ownerOf(first) &&
		groupOf(now) == f.base+groupOf(first)
}

// ofImage reads a file of the element's image.
func (f *elementFiles) ofImage(path string) ([]byte, fs.FileInfo, error) {
	root, err := os.OpenRoot(f.below)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	info, err := root.Stat(rel(path))
	if err != nil {
		return nil, nil, err
	}
	data, err := (&elementFiles{root: root}).read(path, model.MaxContentSize)
	return data, info, err
}

// removeGiven removes a file that the network's file has no longer. Where the image has one at its place, that comes
// back.
func (f *elementFiles) removeGiven(at string) error {
	if f.image && !f.ways[rel(at)] {
		if first, info, err := f.ofImage(at); err == nil {
			mode := info.Mode() & (fs.ModePerm | fs.ModeSticky)
			if err := f.write(at, string(first), mode, ownerOf(info), groupOf(info)); err != nil {
				return fmt.Errorf("write the image's own %s again: %w", at, err)
			}
			return nil
		}
	}
	if err := f.root.Remove(rel(at)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s, which the network's file has no longer: %w", at, err)
	}
	return nil
}

func (f *elementFiles) writeGiven(file *software.File) error {
	if err := f.makeWay(path.Dir(rel(file.Path))); err != nil {
		return fmt.Errorf("make the directories of %s: %w", file.Path, err)
	}
	f.removeHollow(file.Path)
	return f.writeFile(file)
}

// makeWay makes a directory and those above it.
func (f *elementFiles) makeWay(dir string) error {
	if dir == "." {
		return nil
	}
	if info, err := f.root.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := f.makeWay(path.Dir(dir)); err != nil {
		return err
	}
	was := f.mend
	f.mend = true // what is in the way was found before, and is to be set aside
	defer func() { f.mend = was }()
	return f.dir(dir, 0o755, 0, 0)
}
