package linux

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Rooms is an account of what of file systems is promised to whoever is about to write much there. Each promise is a
// file in one directory, locked by who has it: so all processes that name the directory share the account, and what
// was promised to one that is killed is free again. Without an account (nil), nobody knows of anybody's promises.
type Rooms struct{ dir string }

// NewRooms is the account in a directory, which need not be there yet.
func NewRooms(dir string) *Rooms { return &Rooms{dir} }

// Promise is room that somebody was promised. Nil is one of nothing.
type Promise struct {
	rooms *Rooms
	file  *os.File
	is    promised
}

type promised struct {
	Device uint64 `json:"device"` // of the file system
	Need   int64  `json:"need"`
	// Fills is a file on that file system which is being filled. What it takes already is not needed any more.
	Fills string `json:"fills,omitempty"`
}

// left is what is still to be written.
func (p *promised) left() int64 {
	var s unix.Stat_t
	if p.Fills == "" || unix.Stat(p.Fills, &s) != nil {
		return max(0, p.Need)
	}
	return max(0, p.Need-s.Blocks*512)
}

// Has tells whether the file system of a path has room for so many bytes more, beside what is promised. Where the
// account cannot be had, what is free counts.
func (r *Rooms) Has(at string, more int64) (has bool) {
	if !hasFree(at, more) { // nor does a disk that does not answer keep others from the account
		return false
	}
	if r.locked(func() (err error) {
		has, err = r.has(at, more)
		return err
	}) != nil {
		return hasFree(at, more)
	}
	return has
}

// hasFree tells whether so much is free, whatever is promised. What cannot be looked at refuses nothing.
func hasFree(at string, more int64) bool {
	room, err := RoomAt(at)
	return err != nil || room.Has(more)
}

// Promise promises so many bytes of the file system of a path, or fails with ErrNoRoom. It holds for what fills a file,
// if one is named, as long as that has not taken them; else until it is set or ended. Where it cannot be noted, it is
// one of nothing: what is free counts then.
func (r *Rooms) Promise(at string, need int64, fills string) (p *Promise, err error) {
	is := promised{Need: need, Fills: fills}
	more := is.left()
	if more <= 0 {
		return nil, nil
	}
	if !hasFree(at, more) {
		return nil, ErrNoRoom
	}
	err = r.locked(func() error {
		if has, err := r.has(at, more); err != nil {
			return err
		} else if !has {
			return ErrNoRoom
		}
		p, err = r.promise(at, is)
		return err
	})
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, ErrNoRoom) || !hasFree(at, more):
		return nil, ErrNoRoom
	}
	return nil, nil
}

// has is Has, under the lock.
func (r *Rooms) has(at string, more int64) (bool, error) {
	room, err := RoomAt(at)
	if err != nil {
		return true, err
	}
	if r == nil {
		return room.Has(more), nil
	}
	var s unix.Stat_t
	if err := unix.Stat(at, &s); err != nil {
		return true, err
	}
	paths, err := filepath.Glob(filepath.Join(r.dir, promisePattern))
	for _, path := range paths {
		more += leftOf(path, s.Dev)
	}
	return room.Has(more), err
}

const (
	promisePattern = "promise-*"
	roomsLock      = "lock"
)

// leftOf is what is left of a promise, if it is one of this file system. One that nobody holds any more is removed.
func leftOf(path string, device uint64) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		os.Remove(path) //nolint:errcheck // the next one does
		return 0
	}
	var is promised
	if json.NewDecoder(f).Decode(&is) != nil || is.Device != device {
		return 0
	}
	return is.left()
}

func (r *Rooms) promise(at string, is promised) (*Promise, error) {
	if r == nil {
		return nil, nil
	}
	var s unix.Stat_t
	if err := unix.Stat(at, &s); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(r.dir, promisePattern)
	if err != nil {
		return nil, err
	}
	is.Device = s.Dev
	p := &Promise{r, f, is}
	if err := errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), p.write()); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return p, nil
}

// write notes what is promised, under the lock. It is as long as any that the promise becomes, so that this takes no
// more room later on.
func (p *Promise) write() error {
	most := p.is
	most.Need = math.MinInt64
	longest, err := json.Marshal(most)
	if err != nil {
		return err
	}
	data, err := json.Marshal(p.is)
	if err == nil {
		_, err = p.file.WriteAt(append(data, bytes.Repeat([]byte(" "), len(longest)-len(data))...), 0)
	}
	return err
}

// Set tells how much is still to be written: what was, is on the disk. That is more than before where something went
// that gave room to others. Where it cannot be noted, what was promised before counts.
func (p *Promise) Set(need int64) {
	if p == nil {
		return
	}
	p.is.Need = need
	_ = p.rooms.locked(p.write) //nolint:errcheck // said above
}

// End ends it: all is on the disk, or nothing more is written.
func (p *Promise) End() {
	if p != nil {
		os.Remove(p.file.Name()) //nolint:errcheck // whoever looks next does, since nobody holds it
		p.file.Close()           //nolint:errcheck // it is gone
	}
}

// locked does something while nobody else changes the account.
func (r *Rooms) locked(do func() error) error {
	if r == nil {
		return do()
	}
	open := func() (*os.File, error) {
		return os.OpenFile(filepath.Join(r.dir, roomsLock), os.O_RDWR|os.O_CREATE, 0o600)
	}
	lock, err := open()
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(r.dir, 0o700); err == nil {
			lock, err = open()
		}
	}
	if err != nil {
		return fmt.Errorf("keep account of what is promised of disks: %w", err)
	}
	defer lock.Close()
	for until := time.Now().Add(lockPatience); ; time.Sleep(lockPause) {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return do()
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(until):
			return fmt.Errorf("keep account of what is promised of disks: %w", err)
		}
	}
}

// lockPatience is how long somebody waits for the account: whoever has it may wait for a disk that does not answer.
const (
	lockPatience = 3 * time.Second
	lockPause    = 5 * time.Millisecond
)

// ErrNoRoom tells that something ended since nothing but the spare room was left.
var ErrNoRoom = errors.New("there is no room left")

// Copy copies to a file in a directory as long as the file system there has room, beside what is promised.
func (r *Rooms) Copy(w io.Writer, from io.Reader, dir string) (n int64, err error) {
	const step = 16 << 20
	for {
		if !r.Has(dir, 0) {
			return n, ErrNoRoom
		}
		part, err := io.CopyN(w, from, step)
		n += part
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
