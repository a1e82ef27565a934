package netns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// What a removed element owned on disk goes to the node's trash. trash/NET/ELEMENT@TIME holds the image of its disk, or
// its files if it had no disk of its own. Moving it there is a rename, which takes neither time nor room. After each
// step a file is in one of the two places. Whose a disk is stands in an attribute of its image, and so goes with it
// wherever that goes, with no room and no step of its own.

var _ control.Trash = (*Driver)(nil)

const (
	trashDisk, trashFiles = "disk.ext4", "files"
	trashTime             = "20060102T150405.000000Z"
)

func (d *Driver) trashDir() string { return filepath.Join(d.dirs.Data, "trash") }

// trashFor makes the directory into which an element's files go now.
func (d *Driver) trashFor(id model.ID) (string, error) {
	for {
		dir := filepath.Join(d.trashDir(), id.Network, id.Element+"@"+time.Now().UTC().Format(trashTime))
		err := os.MkdirAll(filepath.Dir(dir), 0o700)
		if err == nil {
			err = os.Mkdir(dir, 0o700)
		}
		if !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}

// ownerNote is the extended attribute of a disk's image that tells whose the disk is. Those that begin with "trusted."
// are the machine's root's (xattr(7)).
const ownerNote = "trusted.polyplane.owner"

// movedNote is on what an element left behind that was moved away.
const movedNote = "trusted.polyplane.moved"

// noteOwner notes whose an element's disk is, if it has one. Without the note only administrators give it back from the
// trash, so nothing fails for the lack of it: where the file system has no attributes, or there is no room.
func (d *Driver) noteOwner(job *control.Job) {
	image, owner := d.dirs.Disk(job.ID), job.Owner
	if len(owner) > model.MaxOwnerNoted {
		owner = ""
	}
	was, err := diskOwner(image)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && was == owner:
		return
	case owner == "":
		err = unix.Removexattr(image, ownerNote)
	default:
		err = unix.Setxattr(image, ownerNote, []byte(owner), 0)
	}
	if err == nil && was != "" {
		err = durable.Sync(image) // else a power cut may give it back to whose it was
	}
	if err != nil && !errors.Is(err, unix.ENOTSUP) {
		d.log.Warn("note whose an element's disk is", "element", job.ID, "error", err)
	}
}

// diskOwner reads whose an image is; empty where nobody noted it.
func diskOwner(image string) (string, error) {
	var b [model.MaxOwnerNoted]byte
	n, err := unix.Getxattr(image, ownerNote, b[:])
	switch {
	case errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP):
		return "", nil
	case err != nil:
		return "", err
	}
	return string(b[:n]), nil
}

// throwAway puts what an element owns on disk into the trash. The disk is no longer mounted.
func (d *Driver) throwAway(id model.ID) error {
	dir, image := d.dirs.Files(id), d.dirs.Disk(id)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = os.Stat(image)
	if len(entries) == 0 && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	to, terr := d.trashFor(id)
	if terr != nil {
		return terr
	}
	if e := d.elements[id]; e != nil && e.job.Element.Leaving != "" {
		unix.Setxattr(to, movedNote, []byte("1"), 0) //nolint:errcheck // without it, it is thrown away earlier
	}
	if err == nil {
		if err := os.Rename(image, filepath.Join(to, trashDisk)); err != nil {
			return err
		}
	}
	if len(entries) > 0 {
		return os.Rename(dir, filepath.Join(to, trashFiles))
	}
	return nil
}

// Trashed lists what is in the trash, oldest first.
func (d *Driver) Trashed(context.Context) ([]model.TrashItem, error) {
	paths, err := filepath.Glob(filepath.Join(d.trashDir(), "*", "*@*"))
	if err != nil {
		return nil, err
	}
	var all []model.TrashItem
	for _, path := range paths {
		item, ok := d.trashItem(path)
		if !ok {
			continue
		}
		if entries, err := os.ReadDir(path); err == nil && len(entries) == 0 {
			os.Remove(path) //nolint:errcheck // what a removal that was cut short had begun with
			continue
		}
		all = append(all, item)
	}
	slices.SortFunc(all, func(a, b model.TrashItem) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// trashItem reads what is at a path of the trash.
func (d *Driver) trashItem(path string) (model.TrashItem, bool) {
	network, name := filepath.Base(filepath.Dir(path)), filepath.Base(path)
	at := strings.LastIndexByte(name, '@')
	if at < 1 {
		return model.TrashItem{}, false
	}
	t, err := time.Parse(trashTime, name[at+1:])
	if err != nil {
		return model.TrashItem{}, false
	}
	owner, _ := diskOwner(filepath.Join(path, trashDisk)) // what cannot be read is nobody's
	moved, _ := unix.Getxattr(path, movedNote, nil)
	return model.TrashItem{ID: network + "/" + name, Element: model.ID{Network: network, Element: name[:at]},
		Owner: owner, Node: d.dirs.Node, Time: t, Size: taken(path), Moved: moved > 0}, true
}

// taken is how much of the disk the files below a path take.
func taken(path string) (size model.Bytes) {
	filepath.WalkDir(path, func(p string, _ fs.DirEntry, err error) error { //nolint:errcheck // what is there counts
		var s unix.Stat_t
		if err == nil && unix.Lstat(p, &s) == nil {
			size += model.Bytes(s.Blocks) * 512
		}
		return nil
	})
	return size
}

// pathOf returns where an item is. The ID comes from a user and is checked.
func (d *Driver) pathOf(item string) (string, error) {
	network, name, found := strings.Cut(item, "/")
	path := filepath.Join(d.trashDir(), network, name)
	if _, ok := d.trashItem(path); !found || !ok || strings.Contains(name, "/") || network == ".." {
		return "", fmt.Errorf("%q is nothing in the trash: NET/ELEMENT@TIME was expected, as `polyplane trash list` "+
			"shows it", item)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("there is no %s in the trash of node %s", item, d.dirs.Node)
	}
	return path, nil
}

// EmptyTrash deletes items for good.
func (d *Driver) EmptyTrash(_ context.Context, items []string) error {
	var errs []error
	for _, item := range items {
		path, err := d.pathOf(item)
		if err == nil {
			err = linux.RemoveTree(path)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		os.Remove(filepath.Dir(path)) //nolint:errcheck // when it is empty
	}
	os.Remove(d.trashDir()) //nolint:errcheck // when it is empty
	return errors.Join(errs...)
}

// Untrash gives an element back what it had. The element must exist and not run, have room for it, and be of whose the
// item was, unless it may be anybody's. What it has now goes to the trash.
func (d *Driver) Untrash(ctx context.Context, item string, to model.ID, anyOwner bool) error {
	path, err := d.pathOf(item)
	if err != nil {
		return err
	}
	is, _ := d.trashItem(path)
	if to != (model.ID{}) {
		is.Element = to
	}
	disk := filepath.Join(path, trashDisk)
	info, err := os.Stat(disk)
	if err != nil {
		return fmt.Errorf("%s has no disk: its files are in %s", item, filepath.Join(path, trashFiles))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err = d.mayHave(&is, model.Bytes(info.Size()), anyOwner)
	if err == nil {
		err = d.takeDisk(ctx, is.Element)
	}
	if err != nil {
		return fmt.Errorf("give %s its disk of %s back: %w", is.Element, is.Time.Local().Format(time.DateTime), err)
	}
	image := d.dirs.Disk(is.Element)
	if err := os.MkdirAll(filepath.Dir(image), 0o700); err != nil {
		return err
	}
	if err := os.Rename(disk, image); err != nil {
		return err
	}
	if err := errors.Join(durable.Sync(filepath.Dir(image)), durable.Sync(path)); err != nil {
		return err
	}
	if e := d.elements[is.Element]; e != nil {
		d.noteOwner(&e.job)
	}
	if os.Remove(path) == nil {
		os.Remove(filepath.Dir(path)) //nolint:errcheck // when it is empty
	}
	return nil
}

// mayHave tells why an element cannot be given an item of its name. Of an element that is not here the caller finds out
// more. The caller holds the lock.
func (d *Driver) mayHave(is *model.TrashItem, size model.Bytes, anyOwner bool) error {
	e := d.elements[is.Element]
	if e == nil {
		return nil
	}
	if is.Owner != e.job.Owner && !anyOwner {
		return fmt.Errorf("it was %s, and network %s is somebody else's now: an administrator may give it to them all "+
			"the same (`polyplane trash restore --any-owner`)", cmp.Or(is.Owner, "nobody")+"'s", is.Element.Network)
	}
	if most := e.job.Element.Limits().Disk; size > most {
		return fmt.Errorf("it is a disk of %s, and the element's is one of %s: `polyplane set %s disk=%s` first", size,
			most, is.Element, size)
	}
	return nil
}

// RenewDisk puts an element's disk into the trash. The element gets a new one when it is started.
func (d *Driver) RenewDisk(ctx context.Context, id model.ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.elements[id]
	if e == nil {
		return fmt.Errorf("there is no element %s on node %s", id, d.dirs.Node)
	}
	if e.job.Element.Leaving != "" {
		return fmt.Errorf("give %s a new disk: %w", id, errMoving)
	}
	err := d.besides(ctx, id, func(ctx context.Context, job *control.Job, p *process) error {
		d.doubtDisks()
		if err := d.removeContainer(ctx, containerID(id), d.graceOf(id)); err != nil {
			return fmt.Errorf("stop its processes: %w", err)
		}
		p.forget()
		p.failures, p.next = 0, time.Time{}
		if err := d.unmountDisk(id, unix.MNT_DETACH); err != nil {
			return err
		}
		if err := d.throwAway(id); err != nil {
			return err
		}
		os.Remove(d.dirs.Files(id)) //nolint:errcheck // when it is empty; it says that the element has a disk
		return d.beginAnew(job)
	})
	if e := d.elements[id]; e != nil {
		e.verified, e.last = false, nil
	}
	if err != nil {
		return fmt.Errorf("give %s a new disk: %w", id, err)
	}
	return nil
}

// takeDisk puts an element's disk into the trash, if it has one. Its processes must not run. The caller holds the lock.
func (d *Driver) takeDisk(ctx context.Context, id model.ID) error {
	if err := d.alone(ctx, id); err != nil {
		return err
	}
	e := d.elements[id]
	switch {
	case e == nil:
		return fmt.Errorf("there is no element %s on node %s: apply its network again (with `node: %s`, if it has "+
			"another place now), stop the "+
			"element, and restore its disk then", id, d.dirs.Node, d.dirs.Node)
	case e.job.Element.Leaving != "" || e.job.Element.Arrived != "":
		return errMoving
	case e.process.running():
		return fmt.Errorf("it runs on the disk that it has: `polyplane stop %s` first", id)
	}
	if err := d.unmountDisk(id, unix.MNT_DETACH); err != nil {
		return err
	}
	e.verified, e.last = false, nil
	return d.throwAway(id)
}

// damagedDiskError tells of an image that no program can mend.
type damagedDiskError struct {
	id    model.ID
	cause error
}

func (e *damagedDiskError) Error() string {
	return fmt.Sprintf("its disk is damaged and cannot be mended (%v): `polyplane restart --new-disk %s` gives it a "+
		"new one, without what was "+
		"on this, and keeps this one in the trash", e.cause, e.id)
}

func (e *damagedDiskError) Unwrap() error { return e.cause }

// missingDiskError tells of an image that is gone from under a mounted disk.
type missingDiskError struct {
	id    model.ID
	image string
}

func (e *missingDiskError) Error() string {
	return fmt.Sprintf("the image of its disk, %s, is gone: what is on it is there until the element is stopped. Copy "+
		"what is needed (`polyplane cp`); then `polyplane restart --new-disk %s` gives it a new one", e.image, e.id)
}
