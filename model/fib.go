package model

import (
	"net/netip"
	"time"
)

// FIB is what the fast path of a node knows of a router that it forwards for (forwarding: xdp, router or bridge).
type FIB struct {
	Tables []FIBTable `json:"tables"`
	// Punted says for a family why the router itself forwards all of it.
	Punted map[Family]string `json:"punted,omitempty"`
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

// FastTables are the tables by which a node forwards for a router.
type FastTables struct {
	// InSync tells that they are what the router's own were a moment ago.
	InSync   bool       `json:"inSync"`
	Families []FIBTable `json:"families"`
	NextHops int        `json:"nextHops"` // groups of several among them
	Groups   int        `json:"groups,omitempty"`
	// Lack is what does not fit, and nil if everything does. The router itself forwards what does not fit.
	Lack *TableLack `json:"lack,omitempty"`
	// Punted says for a family why the router itself forwards all of it.
	Punted map[Family]string `json:"punted,omitempty"`
	// Quota is what the network's routers may have together on the node, Used what they have.
	Quota TableQuota `json:"quota"`
	Used  TableUse   `json:"used"`
	// Busy is how long the node's agent has been writing changes into the tables.
	Busy time.Duration `json:"-"`
}

// TableUse is what a network's routers have of a node's forwarding tables.
type TableUse struct {
	Tables   Bytes `json:"tables"`
	NextHops int   `json:"nexthops"`
	Routes   int   `json:"routes"`
}

// TableLack is what of a table's memory is used up.
type TableLack struct {
	// Quota names the slice's quota that is used up: tables, nexthops, or routes, of which there is one for each 32
	// bytes of tables.
	Quota string `json:"quota"`
	// Node tells that what the node has for all slices is used up, and not the slice's own quota.
	Node  bool `json:"node,omitempty"`
	Limit int  `json:"limit"` // bytes of tables, or a number
}

// FIBEntry is a prefix and where its packets go.
type FIBEntry struct {
	Prefix netip.Prefix `json:"prefix"`
	Ways   []FIBWay     `json:"ways"` // several share the flows
}

// FIBWay is one next hop as the fast path has it.
type FIBWay struct {
	// Kind is forward, blackhole, or why the guest gets the packet: local, connected, unresolved, punt, unreachable,
	// prohibit.
	Kind string `json:"kind"`
	// Interface is the one by which packets leave, under the user's name for it. MAC is the next hop's address, Source
	// the interface's.
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

// TraceRequest is a packet: what counts for the way that it takes.
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
	Forwarded Verdict = "forwarded" // by the fast path, or by the node's kernel in the router's companion
	ToGuest   Verdict = "guest"     // handed to the router's own stack, which does what is right
	Blackhole Verdict = "dropped"
)

// Trace is what becomes of a packet at one router.
type Trace struct {
	Verdict Verdict `json:"verdict"`
	// By is who forwards it: xdp, or the node's kernel (router, bridge). For the kernel, Kernel is the interface by
	// which the kernel itself says that the packet leaves, or why it names none. The kernel is not asked where there
	// are several ways, since it may choose another one than Way.
	By     Forwarding `json:"by,omitempty"`
	Kernel string     `json:"kernel,omitempty"`
	// Reason says why the guest gets it, or why it is dropped.
	Reason string `json:"reason,omitempty"`
	// Prefix is the entry that matched, if any did. Way is what the entry says for this flow, and Ways is how many ways
	// it has.
	Prefix netip.Prefix `json:"prefix,omitzero"`
	Way    *FIBWay      `json:"way,omitempty"`
	Ways   int          `json:"ways,omitempty"`
}
