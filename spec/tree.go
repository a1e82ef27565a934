package spec

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// What `files` names is a file or a directory of whoever applies. Somebody else may have written the network's file and
// what is in the directory. So all of it is looked at before any of it is read, and nothing is followed out of the
// directory.

// TreeFile is a file that is put into elements.
type TreeFile struct {
	Path    string // below the directory that is named; empty where a file is named
	Content []byte
	Perm    fs.FileMode
	// Tree is the path of all that is named, where that is too large for a network's document, and Size how many bytes
	// it has. There is no other file then. LargeFiles reads it.
	Tree string
	Size int64
}

const (
	// mostVisited is how many names below a directory are counted, mostDeep how deep they may be.
	mostVisited = 100_000
	mostDeep    = 64
)

// readTree reads a file, or all files below a directory. What is too large for a document is only looked at.
func readTree(name string) ([]TreeFile, error) {
	info, err := os.Lstat(name) // its links are resolved
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if info.Mode().IsRegular() && info.Size() > model.MaxContentSize {
			if err := checkLarge(name, info.Size(), 1); err != nil {
				return nil, err
			}
			return []TreeFile{{Tree: name, Size: info.Size()}}, nil
		}
		f, err := readContent(name, "", info, func(flag int) (*os.File, error) { return openPlaced(name, flag) })
		return []TreeFile{f}, err
	}
	root, err := openTree(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	t := tree{root: root, name: name}
	if err := t.walk(".", 0); err != nil {
		return nil, err
	}
	if t.size > model.MaxContentSize || t.files > model.MaxContents {
		return []TreeFile{{Tree: name, Size: t.size}}, t.checkLarge()
	}
	files := make([]TreeFile, 0, len(t.found))
	for _, is := range t.found {
		f, err := readContent(path.Join(name, is.path), is.path, is.info,
			func(flag int) (*os.File, error) { return root.OpenFile(is.path, flag, 0) })
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("the directory %s has no files", name)
	}
	return files, nil
}

// tree is what a directory has.
type tree struct {
	root          *os.Root
	name          string
	found         []found // the first of its files
	files, visits int
	size          int64
}

// found is one file, with what it was when it was found.
type found struct {
	path string
	info fs.FileInfo
}

// walk finds the files below a directory. How many are looked at is bounded, and so is the depth: somebody may name /
// by mistake.
func (t *tree) walk(dir string, depth int) error {
	if depth > mostDeep {
		return fmt.Errorf("%s has directories that are more than %d deep", t.name, mostDeep)
	}
	entries, err := fs.ReadDir(t.root.FS(), dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if t.visits++; t.visits >= mostVisited {
			return nil
		}
		p := path.Join(dir, entry.Name())
		if entry.IsDir() {
			if err := t.walk(p, depth+1); err != nil {
				return err
			}
			continue
		}
		info, err := t.root.Stat(p) // follows links that stay in the directory
		whole := path.Join(t.name, p)
		switch {
		case err != nil && entry.Type()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s is a link that leads to no file in %s; links within it are followed", whole, t.name)
		case err != nil:
			return err
		case info.IsDir():
			return fmt.Errorf("%s is a link to a directory; links to files are followed", whole)
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is %s; regular files and directories are taken", whole, kindOfFile(info.Mode()))
		}
		t.size += info.Size()
		if t.files++; t.files <= model.MaxTreeFiles {
			t.found = append(t.found, found{p, info})
		}
	}
	return nil
}

// readContent reads a regular file that is not larger than what may be put into an element.
func readContent(name, at string, info fs.FileInfo, open func(flag int) (*os.File, error)) (TreeFile, error) {
	tooLarge := func(size int64) error {
		return fmt.Errorf("%s has %s by now: it has grown while it was read", name, model.Bytes(size).Rounded())
	}
	switch {
	case !info.Mode().IsRegular():
		return TreeFile{}, fmt.Errorf("%s is %s; a regular file or a directory is expected", name,
			kindOfFile(info.Mode()))
	case info.Size() > model.MaxContentSize:
		return TreeFile{}, tooLarge(info.Size())
	}
	// It may have become something else meanwhile. Without O_NONBLOCK opening a pipe waits for its other end.
	f, err := open(os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY)
	if err != nil {
		return TreeFile{}, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return TreeFile{}, err
	}
	if !info.Mode().IsRegular() {
		return TreeFile{}, fmt.Errorf("%s is %s; a regular file is expected", name, kindOfFile(info.Mode()))
	}
	data, err := io.ReadAll(io.LimitReader(f, model.MaxContentSize+1))
	if err != nil {
		return TreeFile{}, err
	}
	if len(data) > model.MaxContentSize {
		return TreeFile{}, tooLarge(max(info.Size(), int64(len(data))))
	}
	return TreeFile{Path: at, Content: data, Perm: info.Mode().Perm()}, nil
}
