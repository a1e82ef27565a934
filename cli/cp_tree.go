package cli

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// checkTree refuses what is too large to be copied, or is neither a file, a directory nor a link.
func checkTree(local string) error {
	var size int64
	files := 0
	err := filepath.WalkDir(local, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if p == local { // a link that was named is followed
			if info, err = os.Stat(local); err != nil {
				return err
			}
		}
		switch {
		case info.Mode().IsRegular():
			size += info.Size()
		case !info.IsDir() && info.Mode()&fs.ModeSymlink == 0:
			return fmt.Errorf("%s is neither a file, a directory nor a link", p)
		}
		files++
		return nil
	})
	switch {
	case err != nil:
		return err
	case size > maxCopied:
		return fmt.Errorf("it has %s, and at most %s are copied", model.Bytes(size).Rounded(),
			model.Bytes(maxCopied).Rounded())
	case files > maxCopiedFiles:
		return fmt.Errorf("it has %d files, and at most %d are copied", files, maxCopiedFiles)
	}
	return nil
}

// writeTree writes a file, or a directory with all that is in it, as name. Somebody else may change it meanwhile:
// nothing is read that is not in it, and no file in the place of the one that was looked at.
func writeTree(w io.Writer, local string, info fs.FileInfo, name string) error {
	out := tar.NewWriter(w)
	if !info.IsDir() {
		if err := writeEntry(out, nil, local, info, name); err != nil { // a link that was named is followed
			return err
		}
		return out.Close()
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := root.Lstat(p)
		if err != nil {
			return err
		}
		return writeEntry(out, root, p, info, path.Join(name, p))
	})
	if err != nil {
		return err
	}
	return out.Close()
}

// writeEntry writes what is at a path of a directory, or anywhere without one. info is what was seen there.
func writeEntry(out *tar.Writer, root *os.Root, at string, info fs.FileInfo, name string) error {
	target := ""
	var err error
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = root.Readlink(at); err != nil {
			return err
		}
	}
	head, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	// Who owns it here is nobody there.
	*head = tar.Header{Typeflag: head.Typeflag, Name: name, Linkname: target, Size: head.Size,
		Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(1e9), Format: tar.FormatPAX}
	if !info.Mode().IsRegular() {
		return out.WriteHeader(head)
	}
	// Without O_NONBLOCK opening a pipe waits for its other end.
	const flags = os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	local, open := at, os.OpenFile
	if root != nil {
		local, open = filepath.Join(root.Name(), at), root.OpenFile
	}
	file, err := open(at, flags, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	now, err := file.Stat()
	switch {
	case err != nil:
		return err
	case !os.SameFile(info, now):
		return &os.PathError{Op: "read", Path: local, Err: errors.New("it became another file meanwhile")}
	}
	if err := out.WriteHeader(head); err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(file, head.Size))
	if err == nil && n < head.Size {
		err = &os.PathError{Op: "read", Path: local, Err: errors.New("it became shorter meanwhile")}
	}
	return err
}

// readTree takes what an element sends: a file, a directory or a link of this name, which becomes `as` in root. The
// element's root may send anything at all: what is written stays in what becomes `as`, and is bounded. No link is
// followed there, be it one that was sent just now, or by an earlier copy.
func readTree(r io.Reader, root *os.Root, name, as string) error {
	in := tar.NewReader(r)
	left, files := int64(maxCopied), 0
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			if files == 0 {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what the element sends: %w", err)
		}
		if files++; files > maxCopiedFiles {
			return fmt.Errorf("it has more than %d files", maxCopiedFiles)
		}
		below, ok := strings.CutPrefix(path.Clean(head.Name), name)
		if name == "." {
			below, ok = path.Clean(head.Name), true
		}
		to := path.Join(as, below)
		if !ok || name != "." && below != "" && below[0] != '/' || to != as && !strings.HasPrefix(to, as+"/") ||
			!filepath.IsLocal(to) {
			return fmt.Errorf("the element sends %q, which was not asked for", model.Shorten(head.Name, 200))
		}
		if left -= head.Size; head.Size < 0 || left < 0 {
			return fmt.Errorf("with %s it has %s, and at most %s are copied", model.Shorten(head.Name, 200),
				model.Bytes(maxCopied-left).Rounded(), model.Bytes(maxCopied).Rounded())
		}
		if err := noLinkAbove(root, as, to); err != nil {
			return err
		}
		if err := takeEntry(root, in, head, to); err != nil {
			return err
		}
	}
}

// noLinkAbove refuses what would be written through a link: `to` is at `as` or below.
func noLinkAbove(root *os.Root, as, to string) error {
	for dir := path.Dir(to); dir == as || strings.HasPrefix(dir, as+"/"); dir = path.Dir(dir) {
		if info, err := root.Lstat(dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a link, and the element sends %s, which would be written through it: nothing "+
				"was; remove the link, or copy to another place", model.Shorten(dir, 200), model.Shorten(to, 200))
		}
	}
	return nil
}

func takeEntry(root *os.Root, in io.Reader, head *tar.Header, to string) error {
	mode := fs.FileMode(head.Mode) & fs.ModePerm
	switch head.Typeflag {
	case tar.TypeDir:
		err := root.Mkdir(to, mode|0o700)
		if info, statErr := root.Lstat(to); errors.Is(err, fs.ErrExist) && statErr == nil && info.IsDir() {
			return nil
		}
		return err
	case tar.TypeSymlink:
		if info, err := root.Lstat(to); err == nil && !info.IsDir() {
			if err := root.Remove(to); err != nil {
				return err
			}
		}
		return root.Symlink(head.Linkname, to)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%s is neither a file, a directory nor a link", model.Shorten(head.Name, 200))
	}
	// A file that is there is replaced, not written into: it may be a link that leads elsewhere, or a pipe.
	if info, err := root.Lstat(to); err == nil && !info.IsDir() {
		if err := root.Remove(to); err != nil {
			return err
		}
	}
	file, err := root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, in)
	err = errors.Join(err, file.Close())
	if err == nil && mode&0o200 == 0 {
		err = root.Chmod(to, mode)
	}
	if err == nil && !head.ModTime.IsZero() {
		err = root.Chtimes(to, head.ModTime, head.ModTime)
	}
	return err
}
