// Package durable replaces files so that a crash or a power cut leaves the old one or the new one, and never a part.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces a file in one step, and returns when it is on the disk.
func Replace(path string, content []byte, mode fs.FileMode) error {
	if err := Put(path, content, mode); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Put is Replace for several files of a directory: their contents are on the disk, and so are their names when the
// caller has synced the directory.
func Put(path string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// Sync returns when a file, or a directory with its names, is on the disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
