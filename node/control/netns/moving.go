package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/wire/sparse"
)

// An element that is moved takes its disk along. At the old node the element stands still, and nobody mounts its disk,
// until it is the other node's or goes on here. At the new node the disk that comes lies in arriving/NET/ELEMENT@MOVE.
// That directory is there as long as the node is told of the move. Marks in it say what has become of the disk, so an
// element that has come never begins with an empty one in its place. What is no longer asked for goes to the trash.

var _ control.Mover = (*Driver)(nil)

// errMoving refuses what would change the disk of an element that is being moved.
var errMoving = errors.New("it is being moved to another node; try again when that is done (`polyplane get moves`)")

const (
	arrivingSuffix = ".new"
	// The marks: no disk came, since the element had none; the disk that came was taken up; the element begins with a
	// new disk.
	noneMark, takenMark, newMark = "none", "taken", "new"
)

// errTaken refuses a disk that comes late.
var errTaken = errors.New("the element has taken up the disk of this move already")

func exists(path ...string) bool {
	_, err := os.Lstat(filepath.Join(path...))
	return err == nil
}

// mark puts a mark into a directory.
func mark(dir, name string) error {
	err := os.WriteFile(filepath.Join(dir, name), nil, 0o600)
	if err == nil {
		err = durable.Sync(dir)
	}
	return err
}

func (d *Driver) arrivingDir() string { return filepath.Join(d.dirs.Data, "arriving") }

func (d *Driver) arrivalPath(id model.ID, move string) string {
	return filepath.Join(d.arrivingDir(), id.Network, id.Element+"@"+move)
}

// checkMove tells why an element's disk must not be mounted now, or nil.
func (d *Driver) checkMove(job *control.Job) error {
	switch e := &job.Element; {
	case e.Leaving != "":
		return errMoving
	case e.Arrived != "":
		path := d.arrivalPath(job.ID, e.Arrived)
		switch {
		case exists(path, trashDisk), exists(path, noneMark):
			return errors.New("the disk that came with its move has not been taken up yet")
		case exists(path, newMark), exists(d.dirs.Disk(job.ID)):
			return nil
		}
		return fmt.Errorf("the disk that was sent with its move is not on this node any more (%s): what it had on its "+
			"old node is in the trash there, unless that was emptied since; `polyplane restart --new-disk %s` has it "+
			"begin with an empty one", path, job.ID)
	}
	return nil
}

// Depart is control.Mover's.
func (d *Driver) Depart(ctx context.Context, id model.ID, move string, w io.Writer) error {
	f, err := d.openDeparting(ctx, id, move)
	if err != nil {
		return fmt.Errorf("send the disk of element %s: %w", id, err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err == nil {
		err = sparse.Send(contextWriter{ctx, w}, f, func() error {
			after, err := f.Stat()
			if err == nil && (!after.ModTime().Equal(before.ModTime()) || after.Size() != before.Size()) {
				err = errors.New("it has changed meanwhile")
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("send the disk of element %s: %w", id, err)
	}
	return nil
}

// contextWriter ends a long copy with its context.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

// openDeparting opens the image of a disk that nobody uses any more.
func (d *Driver) openDeparting(ctx context.Context, id model.ID, move string) (f *os.File, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.elements[id]
	if e == nil || e.job.Element.Leaving != move {
		return nil, fmt.Errorf("%w: this node has not stopped it for that", control.ErrNotYet)
	}
	image := d.dirs.Disk(id)
	err = d.besides(ctx, id, func(_ context.Context, job *control.Job, p *process) error {
		if job.Element.Leaving != move || p.running() {
			return fmt.Errorf("%w: it still runs", control.ErrNotYet)
		}
		// Whoever was ever started has this directory. Without an image its disk is lost, or still there only because
		// it is mounted: nothing may be sent in its place, nor unmounted.
		if dir := d.dirs.Files(id); !exists(image) && exists(dir) {
			if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 && !linux.IsMount(dir) {
				return errors.New("its files are on no disk of their own, as an earlier polyplane made them: " +
					"restart it first")
			}
			return &missingDiskError{id, image}
		}
		if err := d.unmountDisk(id, unix.MNT_DETACH); err != nil {
			return err
		}
		if !awaitRelease(image) {
			return fmt.Errorf("%w: something on this machine still uses the disk; who reads its logs may",
				control.ErrNotYet)
		}
		if f, err = os.Open(image); errors.Is(err, fs.ErrNotExist) {
			f, err = os.Open(os.DevNull) // of no size
		}
		if err == nil && f.Name() == image {
			err = errors.Join(f.Sync(), damaged(image))
		}
		return err
	})
	if e := d.elements[id]; e != nil {
		e.verified, e.last = false, nil
	}
	if err != nil && f != nil {
		f.Close()
	}
	return f, err
}

// damaged tells of a disk on which the kernel has noted errors: what is wrong with it would go along.
func damaged(image string) error {
	faulty, err := hasErrors(image)
	if err == nil && faulty {
		err = errors.New("its disk has errors, which its next start mends: restart it first")
	}
	return err
}

// Arrive is control.Mover's.
func (d *Driver) Arrive(ctx context.Context, network, owner string, a model.Arrival, r io.Reader) error {
	id := model.ID{Network: network, Element: a.Element}
	if err := d.arrive(ctx, id, owner, a, r); err != nil {
		return fmt.Errorf("take the disk of element %s: %w", id, err)
	}
	return nil
}

func (d *Driver) arrive(ctx context.Context, id model.ID, owner string, a model.Arrival, r io.Reader) error {
	if _, already := d.arriving.LoadOrStore(id, true); already {
		return fmt.Errorf("%w: it is being taken already", control.ErrNotYet)
	}
	defer d.arriving.Delete(id)
	dir := d.arrivalPath(id, a.Move)
	fresh := filepath.Join(dir, trashDisk+arrivingSuffix)
	if exists(dir, takenMark) || exists(dir, newMark) {
		return errTaken
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = linux.RemoveTree(fresh)
	}
	if err != nil {
		return err
	}
	var f *os.File
	defer func() {
		if f != nil {
			f.Close()
			os.Remove(fresh) //nolint:errcheck // it has another name by then, or is swept
		}
	}()
	var room *linux.Promise
	defer func() { room.End() }()
	size, err := sparse.Receive(r, func(size sparse.Size) (sparse.Into, error) {
		if size.File > int64(a.Disk) {
			return nil, fmt.Errorf("it is one of %s, and the element's may have %s", model.Bytes(size.File), a.Disk)
		}
		var err error
		room, err = d.rooms.Promise(d.dirs.Data, size.Content, fresh)
		if errors.Is(err, linux.ErrNoRoom) {
			return nil, fmt.Errorf("the machine's disk is too full: the element's takes %s of it: make room in %s",
				model.Bytes(size.Content).Rounded(), d.dirs.Data)
		}
		if err != nil {
			return nil, err
		}
		f, err = os.OpenFile(fresh, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		return f, err
	})
	if err != nil {
		return err
	}
	if size.File > 0 {
		if err := f.Sync(); err != nil {
			return err
		}
		// Another machine's kernel has written it, and this one's is about to read it.
		if err := checkArrived(ctx, fresh); err != nil {
			return fmt.Errorf("what came is no sound file system: %w", err)
		}
		if owner != "" && len(owner) <= model.MaxOwnerNoted {
			unix.Setxattr(fresh, ownerNote, []byte(owner), 0) //nolint:errcheck // without it an administrator decides
		}
	}
	if err := d.keepArrived(dir, fresh, size.File > 0); err != nil {
		return err
	}
	for at := dir; at != d.dirs.Data; at = filepath.Dir(at) {
		if err := durable.Sync(at); err != nil {
			return err
		}
	}
	return nil
}

// keepArrived has what came count, unless the element is here already: it may have written to its disk since.
func (d *Driver) keepArrived(dir, fresh string, disk bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case exists(dir, takenMark) || exists(dir, newMark):
		return errTaken
	case disk:
		return os.Rename(fresh, filepath.Join(dir, trashDisk))
	}
	return mark(dir, noneMark)
}

// mostChecking is how long the check of a disk that came may take.
const mostChecking = 10 * time.Minute

// checkArrived tells what is wrong with a file system that came.
func checkArrived(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, mostChecking)
	defer cancel()
	var out lastWords
	c := exec.CommandContext(ctx, "e2fsck", "-n", "-f", image)
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return programError("e2fsck", err, string(out))
}

// lastWords keeps the end of what a program writes, which may be much for a hostile file system.
type lastWords []byte

func (t *lastWords) Write(p []byte) (int, error) {
	all := append(*t, p...)
	*t = append(lastWords(nil), all[max(0, len(all)-4096):]...)
	return len(p), nil
}

// Settle is control.Mover's.
func (d *Driver) Settle(ctx context.Context, id model.ID, move string) (bool, error) {
	dir, image := d.arrivalPath(id, move), d.dirs.Disk(id)
	came := filepath.Join(dir, trashDisk)
	d.mu.Lock()
	defer d.mu.Unlock()
	none := exists(dir, noneMark)
	if !none && !exists(came) {
		return exists(dir, newMark) || exists(image), nil
	}
	if err := d.makeWay(ctx, id); err != nil {
		return false, fmt.Errorf("have element %s take up the disk that came with its move: %w", id, err)
	}
	var err error
	if none {
		if err = mark(dir, newMark); err == nil {
			err = errors.Join(os.Remove(filepath.Join(dir, noneMark)), durable.Sync(dir))
		}
	} else {
		if err = mark(dir, takenMark); err == nil {
			err = os.MkdirAll(filepath.Dir(image), 0o700)
		}
		if err == nil {
			err = os.Rename(came, image)
		}
		if err == nil {
			err = errors.Join(durable.Sync(filepath.Dir(image)), durable.Sync(dir))
		}
	}
	if err != nil {
		return false, fmt.Errorf("have element %s take up the disk that came with its move: %w", id, err)
	}
	return true, nil
}

// makeWay puts into the trash what a node still has of an element that was here before and has come again. The caller
// holds the lock.
func (d *Driver) makeWay(ctx context.Context, id model.ID) error {
	if d.elements[id] != nil {
		err := d.besides(ctx, id, func(ctx context.Context, _ *control.Job, p *process) error {
			if err := d.removeContainer(ctx, containerID(id), d.graceOf(id)); err != nil {
				return fmt.Errorf("stop its processes: %w", err)
			}
			p.forget()
			return nil
		})
		if err != nil {
			return err
		}
		e := d.elements[id]
		e.verified, e.last = false, nil
	}
	if err := d.unmountDisk(id, unix.MNT_DETACH); err != nil {
		return err
	}
	return d.throwAway(id)
}

// KeepArrivals is control.Mover's.
func (d *Driver) KeepArrivals(_ context.Context, moves map[model.ID]string) error {
	paths, err := filepath.Glob(filepath.Join(d.arrivingDir(), "*", "*@*"))
	if err != nil || len(paths) == 0 {
		return err
	}
	var errs []error
	for _, path := range paths {
		element, move, _ := strings.Cut(filepath.Base(path), "@")
		id := model.ID{Network: filepath.Base(filepath.Dir(path)), Element: element}
		if moves[id] != move {
			errs = append(errs, d.dropArrival(id, path))
		}
	}
	return errors.Join(errs...)
}

func (d *Driver) dropArrival(id model.ID, path string) error {
	if _, already := d.arriving.LoadOrStore(id, true); already {
		return nil // it is just being written; the next pass looks again
	}
	defer d.arriving.Delete(id)
	if exists(path, trashDisk) {
		if err := d.trashArrived(id, path); err != nil {
			return fmt.Errorf("put the disk of element %s, which was sent here, into the trash: %w", id, err)
		}
	}
	err := linux.RemoveTree(path)
	os.Remove(filepath.Dir(path)) //nolint:errcheck // when it is empty
	os.Remove(d.arrivingDir())    //nolint:errcheck // when it is empty
	return err
}

// beginAnew has an element that has come begin with a new disk. What came and was not taken up goes to the trash.
func (d *Driver) beginAnew(job *control.Job) error {
	if job.Element.Arrived == "" {
		return nil
	}
	dir := d.arrivalPath(job.ID, job.Element.Arrived)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := mark(dir, newMark); err != nil {
		return err
	}
	os.Remove(filepath.Join(dir, noneMark)) //nolint:errcheck // it means the same
	if exists(dir, trashDisk) {
		return d.trashArrived(job.ID, dir)
	}
	return nil
}

func (d *Driver) trashArrived(id model.ID, dir string) error {
	to, err := d.trashFor(id)
	if err == nil {
		err = os.Rename(filepath.Join(dir, trashDisk), filepath.Join(to, trashDisk))
	}
	return err
}
