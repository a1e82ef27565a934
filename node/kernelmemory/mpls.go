package kernelmemory

import (
	"encoding/binary"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Bytes of a route of labels (struct mpls_route, struct mpls_nh of Linux 6.1, amd64).
const (
	mplsRouteBytes = 32
	mplsHopBytes   = 16 // with its labels and its next hop's address behind
)

// readMPLS reads the routes of labels. Kernels without them would answer with all other routes.
func readMPLS(s *space, _ int, each visit) error {
	if _, err := os.Stat("/proc/sys/net/mpls"); err != nil {
		return nil
	}
	var b linux.Batch
	b.Request(unix.RTM_GETROUTE, 0)
	b.Raw(append([]byte{unix.AF_MPLS}, make([]byte, unix.SizeofRtMsg-1)...))
	return s.dump(&b, func(p []byte) error {
		if len(p) < unix.SizeofRtMsg || p[0] != unix.AF_MPLS {
			return nil
		}
		var label []byte
		hops, longest := int64(1), hopBytes(p[unix.SizeofRtMsg:])
		for kind, v := range linux.Attrs(p[unix.SizeofRtMsg:]) {
			switch kind {
			case unix.RTA_DST:
				label = v
			case unix.RTA_MULTIPATH:
				hops = 0
				for hop := range nextHops(v) {
					end := max(unix.SizeofRtNexthop, min(len(hop), int(binary.NativeEndian.Uint16(hop))))
					// The kernel has room for the longest of them in each.
					longest = max(longest, hopBytes(hop[unix.SizeofRtNexthop:end]))
					hops++
				}
			}
		}
		// Object caches have sizes of powers of two.
		return each(1<<bits.Len64(uint64(mplsRouteBytes+hops*longest-1)), func(b *linux.Batch) {
			b.Request(unix.RTM_DELROUTE, 0)
			m := make([]byte, unix.SizeofRtMsg)
			m[0], m[1], m[4], m[7] = unix.AF_MPLS, 20, unix.RT_TABLE_MAIN, unix.RTN_UNICAST // labels have 20 bits
			b.Raw(m)
			b.Attr(unix.RTA_DST, label)
		})
	})
}

// hopBytes is how long a next hop with these attributes is.
func hopBytes(attributes []byte) int64 {
	size := int64(mplsHopBytes)
	for kind, v := range linux.Attrs(attributes) {
		if kind == unix.RTA_NEWDST || kind == unix.RTA_VIA {
			size += int64(len(v)+7) &^ 7
		}
	}
	return size
}
