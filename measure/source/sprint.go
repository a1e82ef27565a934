package source

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/measure/frame"
)

// shapes is SHAPES in C.
const shapes = 1536

// sprints tells whether the short program can send this: one stream without a pace, to destinations in a row.
func (o Options) sprints() bool {
	if len(o.Streams) != 1 || o.paced() {
		return false
	}
	_, ok := row(o.Streams[0].Destinations)
	return ok
}

// program is what sends: the short one where it can, made for just this where there is one.
func (x *XDP) program() *ebpf.Program {
	if !x.o.sprints() {
		return x.objects.Source
	}
	s := x.o.Streams[0]
	if one := len(s.Sizes.Of) == 1; x.o.keeps() && !s.InOrder && s.ports() == 1 && near(s.Destinations) {
		switch {
		case s.Headers.Kind == frame.IPv4 && one:
			return x.objects.SprintIp4
		case s.Headers.Kind == frame.IPv4:
			return x.objects.SprintIp4Sizes
		case s.Headers.Kind == frame.IPv6 && one:
			return x.objects.SprintIp6
		case s.Headers.Kind == frame.IPv6:
			return x.objects.SprintIp6Sizes
		}
	}
	return x.objects.Sprint
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
		"kept": word(o.keeps()), "sprint_kind": uint32(s.Headers.Kind), "sprint_one": word(len(s.Sizes.Of) == 1),
		"sprint_ports": uint32(s.ports()), "sprint_random": word(!s.InOrder), "sprint_near": word(near(s.Destinations)),
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

// near tells whether addresses in a row differ in their last 16 bits only.
func near(d []netip.Addr) bool {
	base, ok := row(d)
	return ok && base&0xffff+uint32(len(d)) <= 0x10000
}

// sprintOf turns the one stream into what the short program reads.
func sprintOf(o Options) (programSprinter, [shapes]programShape) {
	s := o.Streams[0]
	st := describe(s, o, 0)
	p := programSprinter{Count: st.Count, Rng: st.Rng, Dsts: st.Dsts, Sport: uint32(st.Sport),
		Sports: uint32(st.Sports), First: st.Base}
	words := unsafe.Slice((*byte)(unsafe.Pointer(&p.Fixed)), unsafe.Sizeof(p.Fixed))
	copy(words, unsafe.Slice((*byte)(unsafe.Pointer(&st.Header)), 64))
	kind, header := s.Headers.Kind, s.Headers.Kind.HeaderSize()
	binary.BigEndian.PutUint16(words[header:], o.Run) // the only stream is stream 0
	p.TagSum = folded(sumNative(words[header:][:2]))
	var shared uint32 // what destinations and ports have in common
	if kind != frame.Raw && near(s.Destinations) {
		first := s.Destinations[0].AsSlice()
		upper := first[len(first)-4:][:2]
		copy(words[map[frame.Kind]int{frame.IPv4: 30, frame.IPv6: 50}[kind]:], upper)
		shared = sumNative(upper)
	}
	st.IpSum += shared
	st.UdpSum += shared
	if kind != frame.Raw && s.ports() == 1 {
		port := words[header-frame.UDPSize:][:2]
		binary.BigEndian.PutUint16(port, s.firstPort())
		st.UdpSum += sumNative(port)
	}
	of := s.Sizes.Of
	for size := s.Sizes.Min; len(s.Sizes.Of) == 0 && size <= s.Sizes.Max; size++ {
		of = append(of, size)
	}
	fillers := frame.FillerSums()
	room := slices.Max(of)
	var all [shapes]programShape
	for i, size := range of {
		all[i] = shape(kind, size, st)
		all[i].Cut = int32(size - room)
		all[i].TagSum = fillers[size-frame.FCS-header-frame.TagSize]
	}
	p.Shapes = uint32(len(of))
	if len(of) > 1 || len(s.Sizes.Of) == 0 {
		return p, all
	}
	one := all[0]
	p.Body = uint32(room - frame.FCS - header - frame.TagSize)
	p.IpSum, p.UdpSum, p.TagSum = uint32(one.IpSum), uint32(one.UdpSum), folded(p.TagSum+uint32(one.TagSum))
	put := func(at int, v uint16) { binary.NativeEndian.PutUint16(words[at:], v) }
	switch kind {
	case frame.IPv4:
		put(16, one.Total)
		put(38, one.Udp)
	case frame.IPv6:
		put(18, one.Udp)
		put(58, one.Udp)
	}
	return p, all
}

// shape is what a size adds to a stream's sums, and its lengths.
func shape(k frame.Kind, size int, st programStream) programShape {
	v := programShape{Size: uint16(size)}
	network := func(n int) uint16 {
		var b [2]byte
		binary.BigEndian.PutUint16(b[:], uint16(n))
		return binary.NativeEndian.Uint16(b[:])
	}
	if k == frame.IPv4 {
		v.Total = network(size - frame.FCS - frame.EthernetSize)
	}
	if k != frame.Raw {
		v.Udp = network(size - frame.FCS - k.HeaderSize() + frame.UDPSize)
	}
	v.IpSum = uint16(folded(st.IpSum + uint32(v.Total)))
	v.UdpSum = uint16(folded(st.UdpSum + 2*uint32(v.Udp)))
	return v
}

// folded is a ones' complement sum in 16 bits.
func folded(s uint32) uint32 {
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return s
}

// sprinted reads what the short program sent.
func (x *XDP) sprinted(st *programStream) error {
	var p programSprinter
	if err := x.objects.SprintState.Get(&p); err != nil {
		return fmt.Errorf("source: read the stream: %w", err)
	}
	st.Sent, st.Bytes, st.Failed = uint64(p.Seq), p.Bytes, p.Failed
	if of := x.o.Streams[0].Sizes.Of; len(of) == 1 {
		st.Bytes = st.Sent * uint64(of[0])
	}
	return nil
}
