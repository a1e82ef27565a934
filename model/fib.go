package model

import "net/netip"

// FIB is what the fast path of a node knows of a router that it forwards for (forwarding: xdp).
type FIB struct {
	Tables []FIBTable `json:"tables"`
	// Entries are sorted by prefix: those that were asked for, at most as many as were asked for.
	Entries []FIBEntry `json:"entries,omitempty"`
	// Matching counts all entries that were asked for.
	Matching int `json:"matching"`
}

// FIBTable is one family's table.
type FIBTable struct {
	Family Family `json:"family"`
	Shape  string `json:"shape"` // empty, ranges, trie or punt
	Routes int    `json:"routes"`
	Bytes  int    `json:"bytes"` // that the programs read
	Copy   int    `json:"copy"`  // bytes of the agent's own copy
}

// FIBEntry is a prefix and where its packets go.
type FIBEntry struct {
	Prefix netip.Prefix `json:"prefix"`
	Ways   []FIBWay     `json:"ways"` // several share the flows
}

// FIBWay is one next hop as the fast path has it.
type FIBWay struct {
	// Kind is forward, or why the guest gets the packet: local, connected, unresolved, punt, unreachable, prohibit; or
	// blackhole.
	Kind string `json:"kind"`
	// Interface is the user's name of the one that it leaves by. MAC is the next hop's address, Source the interface's.
	Interface string  `json:"interface,omitempty"`
	MAC       string  `json:"mac,omitempty"`
	Source    string  `json:"source,omitempty"`
	MTU       int     `json:"mtu,omitempty"`   // of IP packets; no limit when zero
	Share     float64 `json:"share,omitempty"` // of the flows; zero where there is one way only
}

// FIBRequest asks for entries.
type FIBRequest struct {
	Family Family       `json:"family,omitempty"`
	Prefix netip.Prefix `json:"prefix,omitzero"` // only those that lie in it
	Limit  int          `json:"limit,omitempty"` // 1,000 when zero
}

// TraceRequest is a packet, by what counts for its way.
type TraceRequest struct {
	Destination netip.Addr `json:"destination"`
	Source      netip.Addr `json:"source,omitzero"`
	In          string     `json:"in,omitempty"` // the interface that it comes in by
	Protocol    int        `json:"protocol,omitempty"`
	SourcePort  int        `json:"sourcePort,omitempty"`
	Port        int        `json:"port,omitempty"` // the destination's
	TTL         int        `json:"ttl,omitempty"`  // 64 when zero
	Bytes       int        `json:"bytes,omitempty"`
}

// Verdict is what the fast path does with a packet.
type Verdict string

const (
	Forwarded Verdict = "forwarded" // by the fast path
	ToGuest   Verdict = "guest"     // handed to the router's own stack, which does what is right
	Blackhole Verdict = "dropped"
)

// Trace is what becomes of a packet at one router.
type Trace struct {
	Verdict Verdict `json:"verdict"`
	// Reason is why the guest gets it, or it is dropped.
	Reason string `json:"reason,omitempty"`
	// Prefix is the entry that matched, if any did; Way what it says for this flow, Ways how many it has.
	Prefix netip.Prefix `json:"prefix,omitzero"`
	Way    *FIBWay      `json:"way,omitempty"`
	Ways   int          `json:"ways,omitempty"`
}
