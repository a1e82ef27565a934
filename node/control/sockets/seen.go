package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Seen is what the packet sockets of a namespace really have.
type Seen struct {
	Sockets uint64
	Rings   uint64 // bytes
}

// Of linux/packet_diag.h.
const (
	sockDiagByFamily = 20
	packetShowRings  = 4 // PACKET_SHOW_RING_CFG
	packetDiagRX     = 2 // PACKET_DIAG_RX_RING, a struct packet_diag_ring
	packetDiagTX     = 3
	packetDiagLength = 16 // of struct packet_diag_msg
)

type packetRequest struct{ data [20]byte }

func (r *packetRequest) Len() int          { return len(r.data) }
func (r *packetRequest) Serialize() []byte { return r.data[:] }

// Look asks the kernel for the packet sockets of the calling thread's network namespace.
func Look() (Seen, error) {
	request := &packetRequest{}
	request.data[0] = unix.AF_PACKET
	binary.NativeEndian.PutUint32(request.data[8:], packetShowRings)
	r := nl.NewNetlinkRequest(sockDiagByFamily, unix.NLM_F_DUMP)
	r.AddData(request)
	messages, err := r.Execute(unix.NETLINK_SOCK_DIAG, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			err = errors.New("this kernel cannot tell (its module packet_diag is missing)")
		}
		return Seen{}, fmt.Errorf("look at packet sockets: %w", err)
	}
	var seen Seen
	for _, m := range messages {
		if len(m) < packetDiagLength {
			continue
		}
		seen.Sockets++
		attributes, err := nl.ParseRouteAttr(m[packetDiagLength:])
		if err != nil {
			return Seen{}, fmt.Errorf("look at packet sockets: %w", err)
		}
		for _, a := range attributes {
			if k := a.Attr.Type; (k == packetDiagRX || k == packetDiagTX) && len(a.Value) >= 8 {
				block, count := binary.NativeEndian.Uint32(a.Value), binary.NativeEndian.Uint32(a.Value[4:])
				seen.Rings += room(block, count)
			}
		}
	}
	return seen, nil
}

// room is how much memory a ring takes, as the program's function of that name computes it.
func room(block, blocks uint32) uint64 {
	if block == 0 {
		return 0
	}
	return uint64(1) << bits.Len32(block-1) * uint64(blocks)
}
