package netns

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/polyplane/polyplane/node/images"
)

// The files of a tree came from somebody, and the agent reads them as the machine's root. That there are only regular
// files was verified when the node had them, and is made sure again here: nothing is followed, and nothing else opened.

// treeFiles are those of a tree, as the node has them.
type treeFiles struct{ root *os.Root }

// openTree opens a tree that is mounted at a directory.
func openTree(dir string) (*treeFiles, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &treeFiles{root}, nil
}

func (t *treeFiles) close() { t.root.Close() } //nolint:errcheck // nothing was written

// open opens one by its path below the tree's, which is "" where that is a file.
func (t *treeFiles) open(below string) (*os.File, error) {
	at := path.Join(images.FilesName, below)
	info, err := t.root.Lstat(at)
	if err == nil {
		err = regularInTree(below, info.Mode())
	}
	if err != nil {
		return nil, err
	}
	return openPlain(t.root, at)
}

func regularInTree(below string, mode fs.FileMode) error {
	if mode.IsRegular() {
		return nil
	}
	below = cmp.Or(below, images.FilesName)
	return fmt.Errorf("%.120q is no regular file there, and only such are put into elements", below)
}

// walk calls do for each of them.
func (t *treeFiles) walk(do func(below string, info fs.FileInfo) error) error {
	info, err := t.root.Lstat(images.FilesName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is none of the files that are put into elements")
	case err != nil:
		return err
	case !info.IsDir():
		if err := regularInTree("", info.Mode()); err != nil {
			return err
		}
		return do("", info)
	}
	top, err := t.root.OpenRoot(images.FilesName)
	if err != nil {
		return err
	}
	defer top.Close()
	return fs.WalkDir(top.FS(), ".", func(below string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			err = regularInTree(below, info.Mode())
		}
		if err != nil {
			return err
		}
		return do(below, info)
	})
}
