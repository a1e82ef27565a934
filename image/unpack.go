package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Unpack unpacks an image that was verified into an empty directory. Nobody else may change that meanwhile.
func (i *Image) Unpack(ctx context.Context, c *Counts, root *os.Root) error {
	if len(c.removals) != len(i.Layers) {
		return errors.New("it was not verified")
	}
	t := &tree{root: root}
	defer t.leave()
	var again Counts
	for k := range i.Layers {
		// What a layer removes is of the layers below it, never its own.
		for _, r := range c.removals[k] {
			if err := t.remove(r); err != nil {
				return fmt.Errorf("layer %d of %d: %w", k+1, len(i.Layers), err)
			}
		}
		if _, err := i.Layers[k].scan(ctx, &again, t.put); err != nil {
			return fmt.Errorf("layer %d of %d: %w", k+1, len(i.Layers), err)
		}
	}
	return nil
}

// tree is a directory that layers are unpacked into. Links in it lead where they would in an element: an absolute one
// begins at the root. os.Root makes sure besides that nothing leads out.
type tree struct {
	root *os.Root
	// The directory of the last file stays open: files come directory by directory.
	at   string
	open *os.Root

	buffer []byte
}

func (t *tree) leave() {
	if t.open != nil {
		t.open.Close()
	}
	t.open, t.at = nil, ""
}

// enter opens a directory. Where there is none it is made; create false leaves that.
func (t *tree) enter(dir string, create bool) (*os.Root, error) {
	if t.open != nil && t.at == dir {
		return t.open, nil
	}
	t.leave()
	real, err := t.resolve(dir, create)
	if err != nil {
		return nil, err
	}
	real = cmp.Or(real, ".")
	open, err := t.root.OpenRoot(real)
	if err != nil {
		return nil, err
	}
	t.open, t.at = open, dir
	return open, nil
}

// maxLinks is how many links a path leads over at most, as for the kernel.
const maxLinks = 40

// resolve follows links to a directory, and returns a path to it without any. With create, what is missing or no
// directory becomes one.
func (t *tree) resolve(dir string, create bool) (string, error) {
	var now []string
	left := strings.Split(dir, "/")
	for links := 0; len(left) > 0; {
		part := left[0]
		left = left[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			now = now[:max(0, len(now)-1)]
			continue
		}
		here := path.Join(path.Join(now...), part)
		info, err := t.root.Lstat(here)
		switch {
		case err == nil && info.IsDir():
		case err == nil && info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks || len(left) > maxDepth*maxLinks {
				return "", fmt.Errorf("its directory %.120q leads over more than %d links", dir, maxLinks)
			}
			target, err := t.root.Readlink(here)
			if err != nil {
				return "", err
			}
			if path.IsAbs(target) {
				now = nil
			}
			left = slices.Concat(strings.Split(target, "/"), left)
			continue
		case err != nil && !errors.Is(err, fs.ErrNotExist), !create && err != nil:
			return "", err
		case !create:
			return "", fs.ErrNotExist
		default:
			if err == nil {
				err = t.root.Remove(here)
			}
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				err = t.root.Mkdir(here, 0o755)
			}
			if err == nil {
				err = t.root.Lchown(here, 0, 0)
			}
			if err != nil {
				return "", err
			}
		}
		if now = append(now, part); len(now) > 2*maxDepth {
			return "", fmt.Errorf("its directory %.120q lies deeper than %d directories", dir, 2*maxDepth)
		}
	}
	return path.Join(now...), nil
}

// remove removes what a layer hides.
func (t *tree) remove(r removal) error {
	dir := r.path
	if !r.within {
		dir = parentOf(r.path)
	}
	if r.path == "" && !r.within {
		return nil
	}
	in, err := t.enter(dir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is nothing to hide
	}
	if err != nil {
		return err
	}
	defer t.leave() // it may be what was removed
	if !r.within {
		return in.RemoveAll(path.Base(r.path))
	}
	d, err := in.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	for _, name := range names {
		err = errors.Join(err, in.RemoveAll(name))
	}
	return err
}

// put makes a file. It takes the place of another one of its name, except that a directory keeps what is in it.
func (t *tree) put(e entry, content io.Reader) error {
	if err := t.make(e, content); err != nil {
		return fmt.Errorf("unpack its file %.120q: %w", e.path, err)
	}
	return nil
}

func (t *tree) make(e entry, content io.Reader) error {
	if e.path == "" {
		return settle(t.root, ".", e)
	}
	dir, err := t.enter(parentOf(e.path), true)
	if err != nil {
		return err
	}
	name := path.Base(e.path)
	info, err := dir.Lstat(name)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if there && (!info.IsDir() || e.kind != tar.TypeDir) {
		if e.kind == tar.TypeLink && e.link == e.path {
			return nil // a link to itself
		}
		if info.IsDir() {
			err = dir.RemoveAll(name)
		} else {
			err = dir.Remove(name)
		}
		if err != nil {
			return err
		}
		there = false
	}
	switch e.kind {
	case tar.TypeDir:
		if !there {
			if err := dir.Mkdir(name, 0o700); err != nil {
				return err
			}
		}
		return settle(dir, name, e)
	case tar.TypeSymlink:
		if err := dir.Symlink(e.link, name); err != nil {
			return err
		}
		return dir.Lchown(name, e.uid, e.gid)
	case tar.TypeLink:
		return t.link(e)
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if t.buffer == nil {
		t.buffer = make([]byte, len(zeroPart))
	}
	err = copySparse(f, content, t.buffer)
	if err = errors.Join(readable(err), f.Close()); err != nil {
		return err
	}
	return settle(dir, name, e)
}

var zeroPart [64 << 10]byte

// copySparse writes a file without the parts of it that are all zeros: they take no room then.
func copySparse(f *os.File, content io.Reader, buffer []byte) error {
	var size, written int64
	for {
		n, err := io.ReadFull(content, buffer)
		part := buffer[:n]
		if !bytes.Equal(part, zeroPart[:n]) {
			if _, err := f.WriteAt(part, size); err != nil {
				return err
			}
			written = size + int64(n)
		}
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			if written < size {
				return f.Truncate(size)
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// settle gives a file or directory its owner, mode and time.
func settle(dir *os.Root, name string, e entry) error {
	err := dir.Lchown(name, e.uid, e.gid)
	if err == nil {
		err = dir.Chmod(name, e.mode)
	}
	if err == nil {
		err = dir.Chtimes(name, e.time, e.time)
	}
	return err
}

// link makes a hard link to a file that is there.
func (t *tree) link(e entry) error {
	from, err := t.resolve(parentOf(e.link), false)
	if err == nil {
		from = path.Join(from, path.Base(e.link))
		var info fs.FileInfo
		if info, err = t.root.Lstat(from); err == nil && info.IsDir() {
			return fmt.Errorf("it is a hard link to the directory %.120q", e.link)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it is a hard link to %.120q, which is not there", e.link)
	}
	if err != nil {
		return err
	}
	to, err := t.resolve(parentOf(e.path), false)
	if err != nil {
		return err
	}
	return t.root.Link(from, path.Join(to, path.Base(e.path)))
}

// DiskSize is about how large a file system must be for what is unpacked, in bytes.
func (c *Counts) DiskSize() int64 {
	const inode, least = 256, 8 << 20
	size := c.blocks + int64(c.Files)*inode
	return (size + size/16 + least) &^ 4095
}

// Inodes is how many files it must be able to have.
func (c *Counts) Inodes() int { return c.Files + c.Files/8 + 256 }
