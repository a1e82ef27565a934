package model

// SliceMode says whether a slice is reserved. A shared one (the default) is bounded by what it states, and competes for
// the rest. A strict one is bounded in everything, and what it may take is reserved for it.
type SliceMode string

const (
	Shared SliceMode = "shared"
	Strict SliceMode = "strict"
)

// MinPackets is the least that a slice may be bounded to, in packets a second on each node.
const MinPackets = 100

// Reserves is the bandwidth that a link between nodes takes of the substrate's links, in each direction. It is the
// link's own or, where that has none and the slice is strict, the slice's.
func (s *Slice) Reserves(l *Link) Bandwidth {
	if l.Bandwidth == 0 && s.Mode == Strict {
		return s.Bandwidth
	}
	return l.Bandwidth
}
