package source

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/measure/frame"
)

// sprints tells whether the short program can send this: one stream without a pace, to destinations in a row.
func (o Options) sprints() bool {
	if len(o.Streams) != 1 || o.paced() {
		return false
	}
	_, ok := row(o.Streams[0].Destinations)
	return ok
}

// keeps tells whether pages can hold the payload already: it is at one place in all frames.
func (o Options) keeps() bool {
	for _, s := range o.Streams {
		if s.Headers.Kind.HeaderSize() != o.Streams[0].Headers.Kind.HeaderSize() {
			return false
		}
	}
	return o.KeepPayload
}

// constants sets what is constant while a program is loaded, so that the verifier drops the code of all other cases.
func constants(o Options, spec *ebpf.CollectionSpec) error {
	s := o.Streams[0]
	word := func(b bool) uint32 {
		if b {
			return 1
		}
		return 0
	}
	for name, v := range map[string]uint32{
		"kept": word(o.keeps()), "sprint_kind": uint32(s.Headers.Kind), "sprint_sizes": uint32(len(s.Sizes.Of)),
		"sprint_ports": uint32(s.ports()), "sprint_random": word(!s.InOrder),
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// row tells whether addresses follow each other in their last 32 bits, and the first one's.
func row(d []netip.Addr) (base uint32, ok bool) {
	if len(d) == 0 {
		return 0, true
	}
	first := d[0].AsSlice()
	at := len(first) - 4
	base = binary.BigEndian.Uint32(first[at:])
	for i, a := range d {
		b := a.AsSlice()
		if !bytes.Equal(b[:at], first[:at]) || uint64(binary.BigEndian.Uint32(b[at:])) != uint64(base)+uint64(i) {
			return 0, false
		}
	}
	return base, true
}

// sprintOf turns the one stream into what the short program reads.
func sprintOf(o Options) programSprinter {
	s := o.Streams[0]
	st := describe(s, o, 0)
	p := programSprinter{Count: st.Count, Rng: st.Rng, Dsts: st.Dsts, Sport: uint32(st.Sport), Sports: uint32(st.Sports), IpSum: st.IpSum, UdpSum: st.UdpSum,
		First: st.Base}
	words := unsafe.Slice((*byte)(unsafe.Pointer(&p.Words)), unsafe.Sizeof(p.Words))
	copy(words, unsafe.Slice((*byte)(unsafe.Pointer(&st.Header)), 64))
	header := s.Headers.Kind.HeaderSize()
	binary.BigEndian.PutUint16(words[header:], o.Run) // the only stream is stream 0
	p.TagSum = sumNative(words[header:][:2])
	if len(s.Sizes.Of) != 1 {
		return p
	}
	length := func(at int, v int) uint32 {
		binary.BigEndian.PutUint16(words[at:], uint16(v))
		return sumNative(words[at:][:2])
	}
	size := s.Sizes.Of[0] - frame.FCS
	switch s.Headers.Kind {
	case frame.IPv4:
		p.IpSum += length(16, size-14)
		p.UdpSum += 2 * length(38, size-34)
	case frame.IPv6:
		p.UdpSum += 2 * length(58, size-54)
		length(18, size-54)
	}
	p.TagSum += uint32(frame.FillerSums()[size-header-frame.TagSize])
	return p
}

// sprinted reads what the short program sent.
func (x *XDP) sprinted(st *programStream) error {
	var p programSprinter
	if err := x.objects.SprintState.Get(&p); err != nil {
		return fmt.Errorf("source: read the stream: %w", err)
	}
	st.Sent, st.Bytes = uint64(p.Seq), p.Bytes
	if of := x.o.Streams[0].Sizes.Of; len(of) == 1 {
		st.Bytes = st.Sent * uint64(of[0])
	}
	return nil
}
