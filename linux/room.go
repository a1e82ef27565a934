package linux

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Room is what a file system has, in bytes.
type Room struct{ Size, Free int64 }

// RoomAt is what the file system has that a path is on.
func RoomAt(path string) (Room, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Room{}, fmt.Errorf("look how much room %s has: %w", path, err)
	}
	return Room{int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize}, nil
}

const (
	spareMost  = 256 << 20
	spareShare = 4
)

// Spare is how much of it stays free for what everybody needs, whatever large things are brought there: 256 MiB, or a
// fourth of a small one.
func (r Room) Spare() int64 { return min(spareMost, r.Size/spareShare) }

// Has tells whether it has room for so many bytes more.
func (r Room) Has(more int64) bool { return more <= r.Free-r.Spare() }
