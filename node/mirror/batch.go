package mirror

import (
	"context"
	"fmt"
	"net/netip"
)

// Source is where a control plane has its tables. A Namespace is one. For a control plane in a virtual machine it would
// be another: whatever streams what that machine's kernel has.
type Source interface {
	// Open begins to follow the tables. The stream misses nothing that happens from here on.
	Open() (Stream, error)
	// Identity changes when what is there was made anew, such as another namespace at the same path.
	Identity() (uint64, error)
}

// Stream tells what a control plane's tables say. A Mirror is one.
type Stream interface {
	// Run calls consume with batches until ctx ends (it then returns nil), the source is gone, or consume returns an
	// error.
	Run(ctx context.Context, consume func(*Batch) error) error
	// Restart tells everything anew, beginning with a Reset.
	Restart()
	// Confirm asks neighbours that were not heard of lately whether they are still there.
	Confirm() error
	// Close lets go of the source. Run must have ended.
	Close() error
}

// ID is a next hop's number; 0 is none. The kinds from Local to Prohibit are always there as next hops of the same
// number. Other numbers are told in Batch.NextHops before a route or a group names them. They may be used again after
// Batch.Dropped named them.
type ID uint32

// Kind says what becomes of a packet. The numbers are those of fib.Kind; a test compares the two.
type Kind uint8

// The kinds. Local to Prohibit are IDs, too.
const (
	KindNone        Kind = iota
	KindLocal            // for the router itself
	KindConnected        // to a neighbour on a link that is not known
	KindPunt             // the guest knows what is right
	KindBlackhole        // dropped
	KindUnreachable      // answered with ICMP
	KindProhibit         // likewise
	KindUnresolved       // to a gateway whose MAC is not known
	KindForward          // to a known MAC
)

// The next hops that are always there have the numbers of their kinds; firstID is the first that is told.
const (
	localID       = ID(KindLocal)
	connectedID   = ID(KindConnected)
	puntID        = ID(KindPunt)
	blackholeID   = ID(KindBlackhole)
	unreachableID = ID(KindUnreachable)
	prohibitID    = ID(KindProhibit)
	firstID       = prohibitID + 1
)

func (k Kind) String() string {
	names := [...]string{"none", "local", "connected", "punt", "blackhole", "unreachable", "prohibit",
		"unresolved", "forward"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// MAC is an Ethernet address.
type MAC [6]byte

// Family is an address family.
type Family uint8

// The families.
const (
	IPv4 Family = iota
	IPv6
)

func (f Family) String() string { return [...]string{"IPv4", "IPv6"}[f&1] }

// Batch is what changed. Its parts must be applied in this order: next hops, then routes, then what is dropped.
// Otherwise a route would name a next hop that is not there yet, or not any more. The batch and all it holds are valid
// only during the call.
type Batch struct {
	// Reset says that everything told before is void, next hops' numbers included: a snapshot begins.
	Reset bool
	// Synced says that what was told, this batch included, is everything that the namespace had at some moment after
	// the batch before. It is false while a snapshot or a resynchronisation is under way.
	Synced bool
	// Punt tells, for each family, why the guest must forward all of its packets; "" if it need not.
	Punt [2]string

	Interfaces []Interface // new and changed ones; gone ones have no name
	NextHops   []NextHop   // new and changed ones; those that are members come before their groups
	Routes     []Route     // a prefix that comes twice has the same next hop both times
	Dropped    []ID        // next hops that nothing names any more; groups before their members
}

// Route is a prefix and the next hop that it has from now on, 0 if it has none any more.
type Route struct {
	Prefix  netip.Prefix
	NextHop ID
}

// NextHop is what a next hop is from now on. A next hop that once had members keeps having members, if only one.
type NextHop struct {
	ID        ID
	Members   []Member // its flows are shared among these; none of them has members
	Kind      Kind     // without members: Connected, Punt, Blackhole, Unresolved or Forward
	Interface int      // index of the interface; 0 where Kind needs none
	Gateway   netip.Addr
	MAC       MAC // of the gateway, for Forward
	Source    MAC // the interface's
	MTU       int // bytes of the largest IP packet; 0 if unknown
}

// Member is one of a group's next hops.
type Member struct {
	NextHop ID
	Weight  int // 1…65,536: its share is this over the sum
}

// Interface is what the consumer must know of the interface that a packet comes in by.
type Interface struct {
	Index   int
	Name    string // "" if it is gone
	MAC     MAC
	MTU     int
	Up      bool    // administratively
	Carrier bool    // and can send
	Forward [2]bool // the kernel forwards packets that come in here, as this interface's, by family
}

// Neighbour is a host on a link.
type Neighbour struct {
	Interface int // index
	Address   netip.Addr
	MAC       MAC
}

// Limits bound what is kept of one namespace, since root in that namespace could otherwise fill the node's memory.
// Where one is exceeded, both families are punted until, at a later look, everything fits.
type Limits struct {
	Routes     int // of all tables
	NextHops   int // next-hop objects, and different ways of routes
	Neighbours int
	Interfaces int
	Members    int // of one group or multipath route; one with more is punted
}

// DefaultLimits are enough for several full Internet tables.
var DefaultLimits = Limits{Routes: 4 << 20, NextHops: 1 << 18, Neighbours: 1 << 16, Interfaces: 1 << 14, Members: 512}

// Usage tells how much is kept.
type Usage struct {
	Routes     int // of all tables, with hidden ones
	NextHops   int // told and not dropped
	Neighbours int
	Bytes      int // of the copies of the routes: what grows with them
	Resyncs    int // snapshots after the first
	Overruns   int // times that the kernel's messages did not fit into the receive buffer
}
