package model

// Modes of a slice. A shared one (the default) is bounded where it says so, and competes for the rest. A strict one is
// bounded in everything, and what it may take is reserved for it.
const (
	Shared = "shared"
	Strict = "strict"
)

// MinPackets is the least that a slice may be bounded to, in packets a second on each node.
const MinPackets = 100

// Reserves is the bandwidth that a link between nodes takes of the substrate's links, in each direction: its own, or,
// in a strict slice, that of the slice where it has none.
func (s *Slice) Reserves(l *Link) Bandwidth {
	if l.Bandwidth == 0 && s.Mode == Strict {
		return s.Bandwidth
	}
	return l.Bandwidth
}
