package kernelmemory

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNextHopsBeginAtFours: the next hop after one whose length is no multiple of four begins behind its padding.
func TestNextHopsBeginAtFours(t *testing.T) {
	hop := func(length int, flags byte) []byte {
		b := make([]byte, (length+3)&^3)
		binary.NativeEndian.PutUint16(b, uint16(length))
		b[2] = flags
		return b
	}
	all := append(append(hop(unix.SizeofRtNexthop+5, unix.RTNH_F_DEAD), hop(unix.SizeofRtNexthop, onlink)...),
		hop(unix.SizeofRtNexthop+8, onlink|unix.RTNH_F_LINKDOWN)...)
	var lengths []int
	for hop := range nextHops(withoutStates(all)) {
		lengths = append(lengths, int(binary.NativeEndian.Uint16(hop)))
		if hop[2]&^onlink != 0 {
			t.Errorf("hop %d has state %#x", len(lengths), hop[2])
		}
	}
	if len(lengths) != 3 || lengths[0] != unix.SizeofRtNexthop+5 || lengths[2] != unix.SizeofRtNexthop+8 {
		t.Errorf("hops of %v bytes", lengths)
	}
	for range nextHops([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1}) { // a length that leads nowhere
	}
}
