package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// All of a node's elements write to one disk, and each may take as much of it as its own disk is large. So the agent
// looks how much is left, and tells before there is nothing.
const (
	diskLook = 2 * time.Second
	// The disk is low when less than one part in so many of it is free: at least what stays free of whatever is
	// copied there, so that it is told before, and at most lowMost.
	lowShare = 10
	lowMost  = 20 << 30
)

// isLow tells of a disk that is nearly used up.
func isLow(disk, free uint64) bool {
	return free < min(max(disk/lowShare, uint64(linux.Room{Size: int64(disk)}.Spare())), lowMost)
}

// tendDisk looks at the node's disk until the context ends, and keeps the trash within its bounds. While the disk is
// nearly full, it looks at the trash each time, so that what is removed to make room makes room.
func (a *Agent) tendDisk(ctx context.Context) error {
	var told lowDisk
	for looked := (time.Time{}); ; {
		disk, free, err := a.roomOnDisk()
		if err != nil {
			a.Log.Warn("the disk", "error", err)
		} else {
			a.tellDisk(ctx, &told, disk, free, time.Now())
		}
		if time.Since(looked) >= trashLook || err == nil && free < leastOf(disk) {
			looked = time.Now()
			for _, t := range a.trashes() {
				if err := a.boundTrash(ctx, t, looked, a.roomOnDisk); err != nil {
					a.Log.Warn("the trash", "error", err)
				}
			}
		}
		if !sleep(ctx, diskLook) {
			return nil
		}
	}
}

// roomOnDisk is how large the disk is that the node's data is on, and what is free of it.
func (a *Agent) roomOnDisk() (disk, free uint64, err error) {
	room, err := linux.RoomAt(a.Dirs.Data)
	return uint64(room.Size), uint64(room.Free), err
}

// lowDisk is what was told of a disk that is low.
type lowDisk struct {
	free uint64 // when it was told; zero when it was not
	at   time.Time
}

// tellDisk tells when little is free. It tells again when half of that is used up.
func (a *Agent) tellDisk(ctx context.Context, told *lowDisk, disk, free uint64, now time.Time) {
	if !isLow(disk, free) {
		if !isLow(disk, free/5*4) { // a little more must be free, so that it is not told again and again
			*told = lowDisk{}
		}
		return
	}
	if !told.at.IsZero() && (free > told.free/2 || told.free == 0) {
		return
	}
	*told = lowDisk{free, now}
	message := fmt.Sprintf("%s of %s are free on its disk (%s): when nothing is left, what elements write fails, and "+
		"nothing can be applied or started; make room there", rounded(model.Bytes(free)).Rounded(),
		model.Bytes(disk).Rounded(), a.Dirs.Data)
	if most, takes := a.mostOnDisk(ctx); takes > 0 {
		message += fmt.Sprintf(". Of the elements %s takes most of it, %s: `polyplane stop %s` keeps it from writing "+
			"more", most, takes.Rounded(), most)
	}
	a.event(model.Warning, a.Dirs.Node, "DiskLow", message)
}

// mostOnDisk is the element that takes most of the node's disk.
func (a *Agent) mostOnDisk(ctx context.Context) (who string, takes model.Bytes) {
	for _, d := range a.Drivers.Controls {
		t, ok := d.(control.Taker)
		if !ok {
			continue
		}
		for id, n := range t.Takes(ctx) {
			if name := id.String(); n > takes || n == takes && name < who {
				who, takes = name, n
			}
		}
	}
	return who, takes
}
