package companion

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// MostRoutes is the largest number of routes of a family that are counted to see whether one is missing: the kernel
// lists 200,000 a second.
const MostRoutes = 10_000

// right tells whether the kernel has what was written: next hops, neighbours and, if wanted knows how many, the routes.
// A difference may be a change that is under way, so it counts only when it is seen a second time.
func (r *Routes) right(wanted func() (int, bool)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.audit(wanted)
	told := !is && r.doubtful
	r.doubtful = !is && !told
	return !told
}

// audit counts what the kernel has, and compares. It says nothing while a snapshot is being told, or while something
// waits to be taken away: then the counts differ rightly.
func (r *Routes) audit(wanted func() (int, bool)) bool {
	select {
	case <-r.synced:
	default:
		return true // nothing is known yet
	}
	if r.filling || !r.young.empty() || !r.old.empty() {
		return true
	}
	objects, err := r.objects()
	if err != nil {
		return true
	}
	hops, neighbours := len(families), 0
	for _, h := range r.hops {
		hops += len(families)
		if h.device != 0 {
			neighbours += len(families)
		}
	}
	there, err := r.count(unix.RTM_GETNEIGH, make([]byte, unix.SizeofNdMsg), func(p []byte) bool {
		return len(p) >= unix.SizeofNdMsg && binary.NativeEndian.Uint16(p[8:])&unix.NUD_PERMANENT != 0
	})
	if err != nil {
		return true
	}
	// What forwards no more keeps its neighbour until it is dropped.
	if len(objects) != hops || there < neighbours {
		return false
	}
	routes, known := wanted()
	if !known {
		return true
	}
	found := 0
	for _, family := range families {
		m := make([]byte, unix.SizeofRtMsg)
		m[0], m[4] = family, unix.RT_TABLE_MAIN
		n, err := r.count(unix.RTM_GETROUTE, m,
			func(p []byte) bool { return len(p) >= unix.SizeofRtMsg && p[5] == protocol })
		if err != nil {
			return true
		}
		found += n
	}
	return found == routes
}

// count counts what a dump tells.
func (r *Routes) count(kind uint16, request []byte, counts func([]byte) bool) (n int, err error) {
	err = linux.Undisturbed(func() error {
		n = 0
		var b linux.Batch
		b.Request(kind, 0)
		b.Raw(request)
		return r.c.Dump(&b, func(_ uint16, p []byte) error {
			if counts(p) {
				n++
			}
			return nil
		})
	})
	return n, err
}
