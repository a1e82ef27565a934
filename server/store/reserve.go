package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// On a full disk the store refuses writes, since etcd ends its process when it cannot write. But whoever has filled the
// disk must still be stopped. So a file beside the store holds blocks while there is room for them, and gives them up
// for writes that say they are urgent. It gives up only what one write needs: another's program that goes on filling
// the disk does not get all of it at once.
//
// The file has no contents. If a power cut brings back what was given up, or takes away what was held, the next write
// puts it right.
const (
	reserveSize = 64 << 20
	// urgentRoom is what shall be free for an urgent write, in bytes: one more segment of the log, and what is changed
	// in the database. The log has its next segment ready, so when the reserve is used up leastUrgent is enough.
	urgentRoom  = segmentSize + leastUrgent
	leastUrgent = 4 << 20
	// ownersShare is the part of the reserve, one of so many, that those who are no administrators may use up.
	ownersShare = 2
	// giveTries is how often a write asks for room that somebody else takes meanwhile.
	giveTries = 3
)

// urgency tells which part of the reserve a write may use.
type urgency int

const (
	ordinary urgency = iota
	urgent           // an owner's
	mostUrgent
)

type urgencyKey struct{}

// Urgent has writes with the context use the reserve on a full disk. They make room, or end what somebody does, and are
// small. Administrators may use all of the reserve, others a part.
func Urgent(ctx context.Context, administrator bool) context.Context {
	u := urgent
	if administrator {
		u = mostUrgent
	}
	return context.WithValue(ctx, urgencyKey{}, u)
}

func urgencyOf(ctx context.Context) urgency {
	u, _ := ctx.Value(urgencyKey{}).(urgency)
	return u
}

// reserve is such a file.
type reserve struct {
	dir  string // the store's
	path string // the file's; empty where there is none

	mu sync.Mutex // one at a time measures the room and changes the file
}

// room tells that the disk is too full for a write of this urgency, or nil.
func (r *reserve) room(u urgency) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	full := fullDisk(r.dir)
	if full == nil {
		r.fillHoles()
		r.take()
		return nil
	}
	if u != ordinary && r.give(u) {
		return nil
	}
	return fmt.Errorf("%w, since %w (%s): make room there; what runs goes on running", ErrFull, full, r.dir)
}

// give makes room for an urgent write, and tells whether there is.
func (r *reserve) give(u urgency) bool {
	least := int64(0)
	if u != mostUrgent {
		least = reserveSize / ownersShare
	}
	for range giveTries {
		free, held := bytesForRoot(r.dir), r.held()
		if free >= urgentRoom || held <= least || shrink(r.path, max(least, held-(urgentRoom-free))) != nil {
			break
		}
	}
	r.fillHoles()
	return bytesForRoot(r.dir) >= leastUrgent
}

// fillHoles has the file system promise all blocks of etcd's database, which grows by holes. etcd writes into them a
// second after it has answered, and ends its process when the disk is full by then.
func (r *reserve) fillHoles() {
	path := filepath.Join(r.dir, "member", "snap", "db")
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil || s.Blocks*512 >= s.Size {
		return
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, s.Size) //nolint:errcheck // where it can
}

// shrink gives up the file's blocks beyond a size.
func shrink(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	// File systems with a journal let nobody have the blocks before it is written.
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

// held is how much of the disk the reserve takes.
func (r *reserve) held() int64 { return heldBy(r.path) }

func heldBy(path string) int64 {
	var s unix.Stat_t
	if path == "" || unix.Stat(path, &s) != nil {
		return 0
	}
	return min(s.Size, s.Blocks*512)
}

// Reserved is how many bytes a file that reserves room gives up when they are needed.
func Reserved(path string) int64 { return heldBy(path) }

// take fills the reserve, or a part of it, while the disk has more than enough room. Where the file system cannot
// promise blocks, there is no reserve.
func (r *reserve) take() {
	held := r.held()
	if r.path == "" || held >= reserveSize {
		return
	}
	free, ok := freeBytes(r.dir)
	more := min(reserveSize-held, free-2*walRoom)
	if !ok || more < reserveSize-held && more < urgentRoom {
		return
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Fallocate(int(f.Fd()), 0, 0, held+more) != nil {
		f.Truncate(held) //nolint:errcheck // it takes what it took
	}
}

// freeBytes is what a directory's disk has left; false where nobody knows.
func freeBytes(dir string) (int64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}

// bytesForRoot is what root can have of a directory's disk. Of ext4 a part is for root alone; elements' disks fill that
// part as well, since the kernel writes them. Another part, a fiftieth and at most 4,096 blocks, is for nobody's data.
func bytesForRoot(dir string) int64 {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return math.MaxInt64 // etcd will find out more
	}
	if s.Type == unix.EXT4_SUPER_MAGIC {
		return (int64(s.Bfree) - min(int64(s.Blocks)/50, 4096)) * s.Bsize
	}
	return int64(s.Bavail) * s.Bsize
}

// newReserve is the reserve of a store. What a store in another place had is left alone.
func newReserve(o EmbeddedOptions) *reserve {
	r := &reserve{dir: o.Dir}
	if o.Reserve != "" {
		r.path = filepath.Clean(o.Reserve)
	}
	return r
}
