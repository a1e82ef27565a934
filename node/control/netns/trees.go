package netns

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/software"
)

// Trees are files and directories that are too large for a network's document. The node has each once, as it has
// images, and its files are copied onto the disks of the elements that are given it. What holds for other files that
// are given (given.go) holds for each file of a tree. There may be a gigabyte in it, so a file counts as edited when it
// has another size or time than it was written with; nobody reads all of it to find out.

// treeSeed is what is noted among the seeds of a tree that an element was given.
type treeSeed struct {
	ID   string   `json:"id"`
	Kept []string `json:"kept,omitempty"` // the first of those that were edited inside, and that the tree has otherwise
}

// treeNote says how each file of a tree was written. It stands in a file of its own beside the element's root, since it
// is long, and read only when something changes.
type treeNote struct {
	Files map[string]treeMark `json:"files"` // by path below the tree's; "" where that is a file
	// Begun is noted before the first file is written, and gone after the last: who is interrupted between leaves
	// no file that would count as edited inside.
	Begun *treeBegun `json:"begun,omitempty"`
	left  []string   // those of Begun when it was read
}

// treeBegun are files that were about to be written. All get one time, which no other file has, so it tells which were.
type treeBegun struct {
	Time  int64    `json:"time"`
	Files []string `json:"files"`
}

// treeMark is a file as it was given. By size and time it is seen that nobody has edited it, without reading it.
type treeMark struct {
	Sum  string      `json:"sum"` // of the content; empty where it is not known after an interruption
	Size int64       `json:"size"`
	Mode fs.FileMode `json:"mode"`
	Time int64       `json:"time"` // when it was written, in ns since 1970
}

func (m *treeMark) isAs(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() == m.Size && info.ModTime().UnixNano() == m.Time
}

// treesOf are an element's trees: those that it was given, and those that it is to have.
type treesOf struct {
	was   map[string]treeSeed
	now   map[string]*software.File
	given map[string]string          // the marks of files that it was given by themselves
	other map[string]bool            // files that it is to have by themselves
	paths map[string]map[string]bool // of what it is to have of a tree, as far as they were asked for
	dirOf func(*software.File) (dir, waits string, err error)
	path  func(at string) string
	notes map[string]*treeNote // as far as they were read
	dirs  []string             // those above what it was given, once they were asked for
}

func (d *Driver) treePath(id model.ID) func(at string) string {
	return func(at string) string {
		sum := sha256.Sum256([]byte(at))
		return filepath.Join(d.dirs.Files(id), "tree-"+hex.EncodeToString(sum[:8])+".json")
	}
}

// treesOf are the trees of an element that was seeded so.
func (d *Driver) treesOf(id model.ID, plan *software.Plan, s *seeds) *treesOf {
	t := &treesOf{was: s.Trees, now: map[string]*software.File{}, given: s.Given, other: map[string]bool{},
		paths: map[string]map[string]bool{}, dirOf: d.treeDir, path: d.treePath(id), notes: map[string]*treeNote{}}
	for i := range plan.Contents {
		if file := &plan.Contents[i]; file.Tree != "" {
			t.now[file.Path] = file
		} else {
			t.other[file.Path] = true
		}
	}
	return t
}

// treesGiven are the trees that an element was given.
func (d *Driver) treesGiven(id model.ID, plan *software.Plan) *treesOf {
	s, err := d.readSeeds(id)
	if err != nil {
		s = seeds{} // then all that is there counts as made inside
	}
	return d.treesOf(id, plan, &s)
}

// note is how the tree at a path was written; nothing is known where the note is lost. What was interrupted counts as
// written where it was.
func (t *treesOf) note(f *elementFiles, at string) *treeNote {
	if n := t.notes[at]; n != nil {
		return n
	}
	n := &treeNote{}
	data, err := os.ReadFile(t.path(at))
	if err != nil || json.Unmarshal(data, n) != nil || n.Files == nil {
		n = &treeNote{Files: map[string]treeMark{}}
	}
	if n.Begun != nil {
		for _, below := range n.Begun.Files {
			info, err := f.root.Lstat(rel(path.Join(at, below)))
			if err == nil && info.Mode().IsRegular() && info.ModTime().UnixNano() == n.Begun.Time {
				n.Files[below] = treeMark{Size: info.Size(), Mode: info.Mode().Perm(), Time: n.Begun.Time}
			}
		}
		n.left, n.Begun = n.Begun.Files, nil
	}
	t.notes[at] = n
	return n
}

// write notes it. What tells of files that are yet to be written must be on the disk before they are.
func (t *treesOf) write(at string, n *treeNote) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if was, err := os.ReadFile(t.path(at)); err == nil && bytes.Equal(was, data) {
		return nil // a full disk must not keep the element from being started
	}
	if err := durable.Replace(t.path(at), data, 0o600); err != nil {
		os.Remove(t.path(at) + ".new") //nolint:errcheck // a disk that is full needs the room
		return fmt.Errorf("note which files were put at %s: %w", at, err)
	}
	return nil
}

// has tells whether a file was put there with a tree, and nobody has edited it.
func (t *treesOf) has(f *elementFiles, file string) bool {
	for at := range t.was {
		below, in := belowTree(at, file)
		if !in {
			continue
		}
		if mark, known := t.note(f, at).Files[below]; known {
			info, err := f.root.Lstat(rel(file))
			return err == nil && mark.isAs(info)
		}
	}
	return false
}

// belowTree is a file's path below that of a tree.
func belowTree(at, file string) (below string, in bool) {
	if file == at {
		return "", true
	}
	return strings.CutPrefix(file, at+"/")
}

// withTrees has the trees of an element brought to this node. As long as one is not there, waits says so.
func (d *Driver) withTrees(plan *software.Plan) (waits string, err error) {
	for i := range plan.Contents {
		if file := &plan.Contents[i]; file.Tree != "" {
			if _, w, err := d.treeDir(file); err != nil {
				return "", err
			} else if w != "" {
				waits = w
			}
		}
	}
	return waits, nil
}

// treeDir is where the node has a tree mounted. An image that was not verified to be one is none.
func (d *Driver) treeDir(file *software.File) (dir, waits string, err error) {
	if d.images == nil {
		return "", "", errors.New("this node has no place for large files of elements")
	}
	about, waits, err := d.images.Get(file.Tree)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("what is to be at %s cannot be had: %w", file.Path, err)
	case about == nil:
		return "", "waits for its files at " + file.Path + ": " + waits, nil
	}
	if !about.Tree {
		_, id, _ := strings.Cut(file.Tree, ":")
		return "", "", fmt.Errorf("what is to be at %s is %.12s, an image that elements are made from, and not files "+
			"that are put into them: name the files, and `polyplane apply` sends them; or make an element from it "+
			"(image:)", file.Path, id)
	}
	return about.Dir, "", nil
}

// planted is what is to be done with a tree.
type planted struct {
	at     string
	dir    string // where the node has it; empty where the element is to have it no longer
	note   *treeNote
	was    map[string]treeMark // as it is noted before
	mends  bool                // the tree is the one that it was given
	left   []string            // of files whose writing was interrupted there may be a half
	write  []string            // paths below
	remove []string
	sizes  map[string]int64 // of those to be written
}

func (t *planted) changes() bool { return len(t.write)+len(t.remove)+len(t.left) > 0 }

func (t *planted) full(below string) string { return path.Join(t.at, below) }

// mostNoted is how many files of a tree are noted that were kept.
const mostNoted = 20

// plantTrees works out what is to be done with trees, and notes it in the seeds as done.
func (d *Driver) plantTrees(ctx context.Context, f *elementFiles, t *treesOf, p *planting, s *seeding,
	runs bool) error {
	next := map[string]treeSeed{}
	for _, at := range slices.Sorted(maps.Keys(t.now)) {
		file := t.now[at]
		was, known := t.was[at]
		settled := known && was.ID == file.Tree && !s.force
		if settled {
			was.Kept = slices.DeleteFunc(slices.Clone(was.Kept), func(p string) bool {
				blocked, err := t.inTheWay(f, p)
				return err == nil && !blocked && !f.exists(p)
			})
			p.kept = append(p.kept, was.Kept...)
			next[at] = was
			if runs {
				continue
			}
		}
		dir, waits, err := d.treeDir(file)
		if err == nil && waits != "" {
			err = errors.New(waits)
		}
		if err != nil {
			return err
		}
		noted := t.note(f, at)
		is := &planted{at: at, dir: dir, sizes: map[string]int64{}, was: maps.Clone(noted.Files), left: noted.left,
			mends: settled, note: &treeNote{Files: map[string]treeMark{}}}
		if settled {
			is.mend(f, noted, p)
		} else {
			kept, err := is.compare(ctx, f, t, p, s.force)
			if err != nil {
				return fmt.Errorf("compare the files at %s with what the network gives: %w", at, err)
			}
			next[at] = treeSeed{file.Tree, kept[:min(len(kept), mostNoted)]}
			p.kept = append(p.kept, kept...)
		}
		p.trees = append(p.trees, is)
	}
	for _, at := range slices.Sorted(maps.Keys(t.was)) {
		if t.now[at] == nil {
			noted := t.note(f, at)
			is := &planted{at: at, was: maps.Clone(noted.Files), left: noted.left}
			if err := is.drop(f, t, noted); err != nil {
				return fmt.Errorf("find which files at %s are the network's: %w", at, err)
			}
			p.trees = append(p.trees, is)
		}
	}
	if s.seeds.Trees = next; len(next) == 0 {
		s.seeds.Trees = nil
	}
	return nil
}

// mend writes again what was deleted inside, or lost, before the next start.
func (t *planted) mend(f *elementFiles, note *treeNote, p *planting) {
	t.note = &treeNote{Files: note.Files}
	for _, below := range slices.Sorted(maps.Keys(note.Files)) {
		mark := note.Files[below]
		info, err := f.root.Lstat(rel(t.full(below)))
		lost := err == nil && f.damaged && info.Mode().IsRegular() && info.Size() == 0 && mark.Size > 0
		if lost {
			p.lost = append(p.lost, t.full(below))
		}
		if lost || errors.Is(err, fs.ErrNotExist) || err == nil && mark.Sum == "" && mark.isAs(info) {
			t.write, t.sizes[below] = append(t.write, below), mark.Size
		}
	}
}

// compare finds which files are to be written and removed, and which were edited inside.
func (t *planted) compare(ctx context.Context, f *elementFiles, all *treesOf, p *planting, force bool) (kept []string,
	err error) {
	was := all.note(f, t.at)
	there := map[string]bool{}
	from, err := openTree(t.dir)
	if err != nil {
		return nil, err
	}
	defer from.close()
	err = from.walk(func(below string, info fs.FileInfo) error {
		there[below] = true
		c := &comparison{f: f, from: from, below: below, all: all, was: was, force: force}
		keep, err := t.compareFile(ctx, c, info)
		if keep {
			kept = append(kept, t.full(below))
			if mark, known := was.Files[below]; known {
				t.note.Files[below] = mark
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	gone := &treeNote{Files: map[string]treeMark{}}
	for below, mark := range was.Files {
		if !there[below] {
			gone.Files[below] = mark
		}
	}
	return kept, t.drop(f, all, gone)
}

// comparison is what a file is compared with, and by.
type comparison struct {
	f     *elementFiles
	from  *treeFiles
	below string
	all   *treesOf
	was   *treeNote
	force bool
}

// compareFile compares one file. keep tells that it is somebody's work inside, or that there is something else.
func (t *planted) compareFile(ctx context.Context, c *comparison, info fs.FileInfo) (keep bool, err error) {
	f, below, force := c.f, c.below, c.force
	want := treeMark{Size: info.Size(), Mode: info.Mode().Perm()}
	write := func() { t.write, t.sizes[below] = append(t.write, below), want.Size }
	at := t.full(below)
	is, err := f.root.Lstat(rel(at))
	if isMissing(err) {
		if !f.mend && !force {
			if blocked, err := c.all.inTheWay(f, at); err != nil || blocked {
				return true, err
			}
		}
		write()
		return false, nil
	}
	if err != nil {
		return true, nil //nolint:nilerr // it was made inside as well
	}
	if is.IsDir() && !force {
		gone, err := c.all.givesWay(ctx, f, at)
		if gone {
			write()
		}
		return !gone, err
	}
	mark, known := c.was.Files[below]
	untouched := known && mark.isAs(is)
	if untouched && (mark.Size != want.Size || mark.Mode != want.Mode) {
		write()
		return false, nil
	}
	if untouched || is.Mode().IsRegular() && is.Size() == want.Size {
		if want.Sum, err = sumOf(ctx, c.from.open, below); err != nil {
			return false, err
		}
	}
	switch {
	case untouched && mark.Sum == want.Sum:
		t.note.Files[below] = mark
		return false, nil
	case untouched && mark.Sum != "" || force:
	case want.Sum != "":
		now, err := sumOf(ctx, func(at string) (*os.File, error) { return openPlain(f.root, at) }, at)
		if err == nil && now == want.Sum && f.has(rel(at), want.Mode, 0, 0) {
			want.Time = is.ModTime().UnixNano()
			t.note.Files[below] = want
			return false, nil
		}
		if err != nil || now != want.Sum && !untouched && !c.isNobodys(at) {
			return true, ctx.Err()
		}
	case !c.isNobodys(at):
		return true, nil
	}
	write()
	return false, nil
}

// isNobodys tells whether a file was put there by itself or with another tree, or is the image's, and nobody has edited
// it.
func (c *comparison) isNobodys(at string) bool {
	return c.all.isOurs(c.f, at) || c.f.image && c.f.isOfImage(at)
}

// drop has files removed that nobody has edited, unless the element is to have others in their place.
func (t *planted) drop(f *elementFiles, all *treesOf, note *treeNote) error {
	for _, below := range slices.Sorted(maps.Keys(note.Files)) {
		at, mark := t.full(below), note.Files[below]
		info, err := f.root.Lstat(rel(at))
		if err != nil || !mark.isAs(info) {
			continue
		}
		wanted, err := all.wanted(f, at)
		if err != nil {
			return err
		}
		if !wanted {
			t.remove = append(t.remove, below)
		}
	}
	return nil
}

// sumOf is the digest of a file's content.
func sumOf(ctx context.Context, open func(string) (*os.File, error), at string) (string, error) {
	file, err := open(at)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, &untilEnd{ctx, file}); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// untilEnd reads until a context ends.
type untilEnd struct {
	ctx  context.Context
	from io.Reader
}

func (u *untilEnd) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.from.Read(p)
}
