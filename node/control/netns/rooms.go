package netns

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// Elements' disks are sparse files on one disk of the machine's. Files that are put into elements may be large, and
// many elements may get them at the same time: what each is going to take is taken into account before any of it is
// there. Of what is written to an element's disk, the machine's learns only once the kernel writes it back.

// rooms are what is promised to elements of the machine's disk.
type rooms struct {
	mu  sync.Mutex
	all map[string]promise // by the path of the element's disk
}

// promise is what a disk takes at most beyond what it took when it was given.
type promise struct{ need, was int64 }

// promise gives one to a disk, unless the machine's has no room for it. It is over when the caller says so.
func (r *rooms) promise(dir, disk string, need int64) (done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if need <= 0 {
		return func() {}, nil
	}
	promised := int64(0)
	for at, is := range r.all {
		if at != disk {
			promised += max(0, is.need-(takes(at)-is.was))
		}
	}
	if room, err := linux.RoomAt(dir); err == nil && !room.Has(promised+need) {
		// These words stay the same as long as it is so: it is tried again and again.
		return nil, fmt.Errorf("the machine's disk is too full: the files that are put into it take %s, and %s must "+
			"stay free: make room in %s, and they are put there then", model.Bytes(need).Rounded(),
			model.Bytes(room.Spare()).Rounded(), dir)
	}
	if r.all == nil {
		r.all = map[string]promise{}
	}
	r.all[disk] = promise{need, takes(disk)}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, disk)
	}, nil
}

// takes is how much a sparse file takes of the disk.
func takes(path string) int64 {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return 0
	}
	return s.Blocks * 512
}
