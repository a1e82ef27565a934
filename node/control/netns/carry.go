package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/archive"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

var _ control.Carrier = (*Driver)(nil)

// Pack is control.Carrier's.
func (d *Driver) Pack(ctx context.Context, id model.ID, w io.Writer) error {
	d.mu.Lock()
	e := d.elements[id]
	if e == nil {
		d.mu.Unlock()
		return fmt.Errorf("element %s is not on this node", id)
	}
	job := e.job
	d.mu.Unlock()
	plan, err := software.Render(id.Network, job.Element.Resolved())
	if err != nil {
		return err
	}
	tree := archive.NewTree(w)
	err = d.withFiles(ctx, id, func() error {
		f, err := d.openOwn(&job)
		if f == nil {
			return err // or it has no files
		}
		defer f.root.Close()
		f.trees = d.treesGiven(id, &plan)
		var failure error
		more := f.walkOwn(&plan, func(file model.OwnFile, info fs.FileInfo) {
			if failure == nil && ctx.Err() == nil && info.Mode().IsRegular() {
				failure = f.pack(tree, file.Path)
			}
		})
		switch {
		case failure != nil:
			return failure
		case more:
			return fmt.Errorf("it has more than %d files, or some more than %d directories deep, than are looked at",
				ownVisits, ownDepth)
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("element %s: take its files along: %w", id, err)
	}
	return tree.Close()
}

// pack adds a file to a tree. One that is gone meanwhile is left out.
func (f *elementFiles) pack(tree *archive.Tree, name string) error {
	file, err := openRegular(f.root, name)
	if err != nil {
		if _, err := f.root.Lstat(rel(name)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	uid, gid := ownerOf(info)-f.base, groupOf(info)-f.base
	if !isOf(uid, 0) || !isOf(gid, 0) {
		uid, gid = 0, 0 // it came from elsewhere
	}
	return tree.Add(archive.File{Path: rel(name), Size: info.Size(), Mode: info.Mode(), UID: uid, GID: gid,
		Modified: info.ModTime()}, file)
}

// Unpack is control.Carrier's.
func (d *Driver) Unpack(ctx context.Context, id model.ID, r io.Reader) error {
	tree, err := os.CreateTemp(d.dirs.Data, ".files-")
	if err != nil {
		return fmt.Errorf("element %s: put files into it: %w", id, err)
	}
	defer tree.Close()
	if err := os.Remove(tree.Name()); err != nil { // nothing is left of it, whatever happens
		return err
	}
	d.mu.Lock()
	is := &elementFiles{}
	if e := d.elements[id]; e != nil {
		is.image = e.job.Element.Image != ""
	}
	d.mu.Unlock()
	size, err := io.Copy(tree, io.LimitReader(r, archive.MaxTree+1))
	if err == nil {
		err = archive.ReadTree(io.NewSectionReader(tree, 0, size), func(f archive.File, _ io.Reader) error {
			for p := f.Path; p != "."; p = path.Dir(p) {
				if is.isNotOwn(p) {
					return fmt.Errorf("%q is not the element's own", "/"+f.Path)
				}
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("element %s: the files for it are refused: %w", id, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.elements[id] == nil {
		return fmt.Errorf("element %s is not on this node", id)
	}
	err = d.besides(ctx, id, func(ctx context.Context, job *control.Job, p *process) error {
		there := linux.IsMount(d.dirs.Files(id))
		if !there {
			if _, err := d.ensureDisk(job, p.running()); err != nil {
				return err
			}
		}
		f, err := d.openFiles(job, !p.running())
		if err != nil {
			return err
		}
		d.takeBack(ctx, job, f)
		err = archive.ReadTree(io.NewSectionReader(tree, 0, size), func(file archive.File, content io.Reader) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f.unpack(file, content); err != nil {
				return fmt.Errorf("write /%s: %w", file.Path, err)
			}
			return nil
		})
		f.close()
		if !there && !p.running() && linux.IsMount(d.dirs.Files(id)) {
			if busy := d.unmountDisk(id, 0); !errors.Is(busy, unix.EBUSY) { // somebody reads its logs
				err = errors.Join(err, busy)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("element %s: put files into it: %w", id, err)
	}
	return nil
}

// unpack writes a file. The directories on its way that are not there belong to the element's root.
func (f *elementFiles) unpack(file archive.File, content io.Reader) error {
	var dirs []string
	for dir := path.Dir(file.Path); dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		err := f.root.Mkdir(dirs[i], 0o755)
		if err == nil {
			err = f.root.Lchown(dirs[i], f.base, f.base)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	temporary := filepath.Join(path.Dir(file.Path), ".polyplane-new")
	if err := f.clear(temporary); err != nil {
		return err
	}
	w, err := f.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	err = errors.Join(err, w.Chown(f.base+file.UID, f.base+file.GID), w.Chmod(file.Mode), w.Close())
	if err == nil {
		err = f.root.Chtimes(temporary, file.Modified, file.Modified)
	}
	if err == nil {
		err = f.root.Rename(temporary, file.Path)
	}
	if err != nil && strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		err = fmt.Errorf("%w (`disk:` gives the element more room)", err)
	}
	return err
}
