package spec

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// checkLarge says why something cannot be put into elements.
func checkLarge(name string, size int64, files int) error {
	if size <= int64(model.MaxTree) && files <= model.MaxTreeFiles {
		return nil
	}
	word := "files"
	if files == 1 {
		word = "file"
	}
	const unit = 1 << 20 // what is a little too large is seen to be that
	return fmt.Errorf("%s has %d MiB in %d %s; what is put into elements at a path has %d MiB in %d files at most: "+
		"name less of it, or make an image of it (image:)", name, (size+unit-1)/unit, files, word, model.MaxTree/unit,
		model.MaxTreeFiles)
}

// checkLarge says why what was found cannot be put into elements. What is in a document is checked there.
func (t *tree) checkLarge() error {
	if t.visits >= mostVisited {
		return fmt.Errorf("%s has more than %d files and directories (%s in %d files until then); what is put into "+
			"elements at a path has %d files at most: name less of it", t.name, mostVisited,
			model.Bytes(t.size).Rounded(), t.files, model.MaxTreeFiles)
	}
	if err := checkLarge(t.name, t.size, t.files); err != nil {
		return err
	}
	for _, is := range t.found {
		if err := model.CheckTreePath(is.path); err != nil {
			return fmt.Errorf("%s in %s: %w", model.Shorten(is.path, model.MaxName), t.name, err)
		}
	}
	return nil
}

// LargeFile is one of those that LargeFiles finds.
type LargeFile struct {
	Path string // below the directory; empty where a file is named
	Size int64
	Perm fs.FileMode
	Open func() (io.ReadCloser, error)
}

// LargeFiles are those of a tree that a document names by its path, in their order, with the tree's permissions where
// it has any. They are open to whoever reads them until they are closed.
func LargeFiles(of model.File) (files []LargeFile, closeAll func() error, err error) {
	info, err := os.Lstat(of.Tree)
	if err != nil {
		return nil, nil, err
	}
	perm := func(is fs.FileMode) fs.FileMode {
		if of.Mode != "" {
			is, _ = of.Perm()
		}
		return is.Perm()
	}
	if !info.IsDir() {
		open := func() (io.ReadCloser, error) { return openPlaced(of.Tree, 0) }
		if !info.Mode().IsRegular() {
			return nil, nil, fmt.Errorf("%s is %s; a regular file or a directory is expected", of.Tree,
				kindOfFile(info.Mode()))
		}
		return []LargeFile{{Size: info.Size(), Perm: perm(info.Mode()), Open: open}}, func() error { return nil },
			checkLarge(of.Tree, info.Size(), 1)
	}
	root, err := openTree(of.Tree)
	if err != nil {
		return nil, nil, err
	}
	t := tree{root: root, name: of.Tree}
	if err = t.walk(".", 0); err == nil {
		err = t.checkLarge()
	}
	if err != nil {
		root.Close()
		return nil, nil, err
	}
	for _, is := range t.found {
		files = append(files, LargeFile{is.path, is.info.Size(), perm(is.info.Mode()), func() (io.ReadCloser, error) {
			return root.OpenFile(is.path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		}})
	}
	return files, root.Close, nil
}
