package fib

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// ID is a next hop's number. 0 is none.
type ID uint32

const idMask = 1<<24 - 1

// The next hops that every pool has, for all slices. They count against no quota. Their numbers equal their kinds, so
// that the eBPF program need not look at the array for them.
const (
	LocalID = ID(iota + 1)
	ConnectedID
	PuntID
	BlackholeID
	UnreachableID
	ProhibitID

	builtins // one more than the last
)

// Kind says what becomes of a packet.
type Kind uint8

// The kinds. Packets of all kinds but Forward and Blackhole go to the guest, whose own stack does what is right. These
// kinds differ only in the counter that they add to.
const (
	KindNone        Kind = iota // no route, or a next hop that is gone
	KindLocal                   // the router's own address
	KindConnected               // on a link of the router, and the neighbour is unknown: the guest resolves it
	KindPunt                    // what the fast path can't do
	KindBlackhole               // dropped without a word
	KindUnreachable             // the guest answers with ICMP
	KindProhibit                // likewise
	KindUnresolved              // a gateway whose MAC is unknown: the guest resolves it
	KindForward                 // to Destination through Port

	KindGroup Kind = 15 // one of several next hops, chosen by the flow
)

func (k Kind) String() string {
	names := [...]string{"none", "local", "connected", "punt", "blackhole", "unreachable", "prohibit",
		"unresolved", "forward"}
	if int(k) < len(names) {
		return names[k]
	}
	if k == KindGroup {
		return "group"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// MAC is an Ethernet address.
type MAC [6]byte

// NextHop says where a packet goes on. Only KindForward uses Port, MTU and the MACs; Port and MTU are kept for every
// kind.
type NextHop struct {
	Kind        Kind
	Port        uint32 // the caller's number for the port it leaves by, below 2^24
	MTU         uint16 // bytes of the largest IP packet; 0 means no limit
	Destination MAC
	Source      MAC
}

// Member is one of a group's next hops.
type Member struct {
	NextHop ID
	Weight  int // its share is this over the sum; at least 1
}

// MaxMembers bounds a group: with so many, a member has 8 of the 4,096 buckets on average.
const MaxMembers = 512

const maxGroupOrder = 12 // 4,096 buckets, 16 KiB

// hop is Go's side of a next hop.
type hop struct {
	slice   *Slice
	refs    int32 // routes and groups that use it
	held    bool  // the caller still has it
	version uint16
	group   []Member // if it is a group
	unit    uint32   // the group's buckets
	order   int
}

// AddNextHop takes a number for h. The number stays taken until Drop was called and nothing uses it any more.
func (s *Slice) AddNextHop(h NextHop) (ID, error) {
	if err := h.check(); err != nil {
		return 0, err
	}
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	id, err := p.newHop(s)
	if err != nil {
		return 0, err
	}
	p.writeHop(id, h)
	return id, nil
}

// SetNextHop changes a next hop, for all routes and groups that use it at once. It cannot turn it into a group.
func (s *Slice) SetNextHop(id ID, h NextHop) error {
	if err := h.check(); err != nil {
		return err
	}
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := s.owns(id, true); err != nil {
		return err
	}
	if p.hops[id].group != nil {
		return fmt.Errorf("next hop %d is a group: change its members instead", id)
	}
	p.writeHop(id, h)
	return nil
}

// AddGroup takes a number for a group: a packet's flow chooses one of the members, in proportion to their weights,
// within 2 % where 4,096 buckets allow it. The same next hop may be named twice; groups can't be members.
func (s *Slice) AddGroup(members []Member) (ID, error) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := s.checkMembers(members); err != nil {
		return 0, err
	}
	id, err := p.newHop(s)
	if err != nil {
		return 0, err
	}
	if err := p.writeGroup(id, members); err != nil {
		p.hops[id].held = false
		p.freeHop(id, false)
		return 0, err
	}
	return id, nil
}

// SetGroup changes a group's members by one store. Flows stay with their member as far as the weights allow.
func (s *Slice) SetGroup(id ID, members []Member) error {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := s.owns(id, true); err != nil {
		return err
	}
	if p.hops[id].group == nil {
		return fmt.Errorf("next hop %d is no group", id)
	}
	if err := s.checkMembers(members); err != nil {
		return err
	}
	return p.writeGroup(id, members)
}

// Drop says that the caller no longer needs the number. Routes and groups that use it keep it until they are gone.
func (s *Slice) Drop(id ID) error {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := s.owns(id, true); err != nil {
		return err
	}
	p.hops[id].held = false
	if p.hops[id].refs == 0 {
		p.freeHop(id, true)
	}
	return nil
}

func (h NextHop) check() error {
	if h.Kind == KindNone || h.Kind > KindForward {
		return fmt.Errorf("a next hop of kind %q: %q to %q are possible", h.Kind, KindLocal, KindForward)
	}
	if h.Port > idMask {
		return fmt.Errorf("a next hop's port %d: numbers below 2^24 are possible", h.Port)
	}
	return nil
}

// checkMembers checks a group. Weights are as the kernel's next-hop objects have them (struct nexthop_grp of
// linux/nexthop.h: 16 bits, less one). A reader does not follow groups in groups.
func (s *Slice) checkMembers(members []Member) error {
	if len(members) == 0 || len(members) > MaxMembers {
		return fmt.Errorf("a group of %d next hops: 1 to %d are possible", len(members), MaxMembers)
	}
	for _, m := range members {
		if err := s.owns(m.NextHop, false); err != nil {
			return err
		}
		if s.pool.hops[m.NextHop].group != nil {
			return fmt.Errorf("next hop %d is a group and can't be in another", m.NextHop)
		}
		if m.Weight < 1 || m.Weight > 1<<16 {
			return fmt.Errorf("next hop %d has weight %d in its group: 1 to 65,536 are possible", m.NextHop, m.Weight)
		}
	}
	return nil
}

// owns says whether s may use a next hop, or, if held, change it.
func (s *Slice) owns(id ID, held bool) error {
	if id > 0 && id < builtins && !held {
		return nil
	}
	if id < builtins || int(id) >= len(s.pool.hops) || s.pool.hops[id].slice != s || !s.pool.hops[id].held {
		return fmt.Errorf("slice %s has no next hop %d", s.name, id)
	}
	return nil
}

// newHop finds a free number for a next hop of a slice. Its words stay as they are: with the version of the one before,
// which the next change raises, so that a reader never takes words of both for one next hop.
func (p *Pool) newHop(s *Slice) (ID, error) {
	if q := s.quota.NextHops; q > 0 && s.usage.NextHops >= q {
		return 0, fmt.Errorf("%w: %w",
			lacking(LackNextHops, false, "slice %s: one next hop more would exceed its quota of %d",
				s.name, q), ErrFull)
	}
	if !p.hasNextHop(s) {
		return 0, fmt.Errorf("%w: %w",
			lacking(LackNextHops, true, "slice %s: one next hop more: the pool has %d for all slices", s.name,
				p.shares.NextHops), ErrFull)
	}
	var id ID
	if n := len(p.freeHops); n > 0 {
		id, p.freeHops = p.freeHops[n-1], p.freeHops[:n-1]
	} else if n := len(p.hops); n < min(len(p.hopWords)/hopWords, idMask+1) {
		id, p.hops = ID(n), append(p.hops, hop{})
	} else {
		return 0, fmt.Errorf("%w: %w", lacking(LackNextHops, true,
			"slice %s: one next hop more: all %d are in use, %d of them until readers are done",
			s.name, n, p.restHops), ErrFull)
	}
	p.hops[id] = hop{slice: s, held: true, version: p.hops[id].version}
	s.usage.NextHops++
	return id, nil
}

// freeHop takes a next hop that nobody uses away from its slice; its number comes back when readers are done.
func (p *Pool) freeHop(id ID, seen bool) {
	h := &p.hops[id]
	h.slice.usage.NextHops--
	if h.group != nil {
		p.free(h.slice, h.unit, groupUnits(h.order), seen)
		for _, m := range h.group {
			p.unref(m.NextHop)
		}
	}
	*h = hop{version: h.version}
	if !seen {
		p.freeHops = append(p.freeHops, id)
		return
	}
	p.restHops++
	p.rest = append(p.rest, resting{what: uint32(id)})
}

func (p *Pool) ref(id ID) {
	if id >= builtins {
		p.hops[id].refs++
	}
}

func (p *Pool) unref(id ID) {
	if id < builtins {
		return
	}
	h := &p.hops[id]
	if h.refs--; h.refs == 0 && !h.held {
		p.freeHop(id, true)
	}
}

// writeHop is the one place where a next hop's words change. The same version in all three tells readers that they
// belong together.
func (p *Pool) writeHop(id ID, h NextHop) {
	p.hops[id].version++
	version := uint64(p.hops[id].version) << 48
	w := p.hopWords[hopWords*int(id):]
	atomic.StoreUint64(&w[1], version|h.Destination.bits())
	atomic.StoreUint64(&w[2], version|h.Source.bits())
	atomic.StoreUint64(&w[0], version|uint64(h.MTU)<<32|uint64(h.Port)<<8|uint64(h.Kind))
}

func (m MAC) bits() (b uint64) {
	for _, x := range m {
		b = b<<8 | uint64(x)
	}
	return b
}

func macOf(b uint64) (m MAC) {
	for i := range m {
		m[i] = byte(b >> (40 - 8*i))
	}
	return m
}

func groupUnits(order int) int { return max(1, 1<<order/unitWords) }

// writeGroup gives a group its members. The buckets are written anew beside the old ones, and then one store leads
// there: readers see the old group or the new one. deal leaves as many buckets as it can with their old members, since
// with another next hop a flow's packets may overtake each other (RFC 2992).
func (p *Pool) writeGroup(id ID, members []Member) error {
	h := &p.hops[id]
	counts, order := shares(members)
	old, credit := []uint32(nil), 0
	if h.group != nil {
		old, credit = p.words(h.unit, 1<<h.order), groupUnits(h.order)
	}
	unit, err := p.alloc(h.slice, groupUnits(order), credit)
	if err != nil {
		return fmt.Errorf("group %d: %w", id, err)
	}
	deal(p.words(unit, 1<<order), old, members, counts)
	for _, m := range members {
		p.ref(m.NextHop)
	}
	atomic.StoreUint64(&p.hopWords[hopWords*int(id)], uint64(unit)<<16|uint64(order)<<4|uint64(KindGroup))
	oldMembers, oldUnit, oldOrder := h.group, h.unit, h.order
	h.group, h.unit, h.order = slices.Clone(members), unit, order
	if oldMembers != nil {
		p.free(h.slice, oldUnit, groupUnits(oldOrder), true)
		for _, m := range oldMembers {
			p.unref(m.NextHop)
		}
	}
	return nil
}

// shares distributes hash buckets among the members, at least one each. The number of buckets, 2^order, is the smallest
// power of two (16 or more) with which each share is right within 2 %, or the largest if none is.
func shares(members []Member) (counts []int, order int) {
	sum := 0
	for _, m := range members {
		sum += m.Weight
	}
	counts = make([]int, len(members))
	for order = 4; ; order++ {
		n := 1 << order
		if n < len(members) {
			continue
		}
		fits, before, dealt := true, 0, 0
		for i, m := range members { // bucket boundaries are the rounded running sums
			before += m.Weight
			end := max((2*before*n+sum)/(2*sum), dealt+1)
			end = min(end, n-(len(members)-1-i))
			counts[i], dealt = end-dealt, end
			if d := counts[i]*sum - n*m.Weight; 50*max(d, -d) > n*m.Weight {
				fits = false
			}
		}
		if fits || order == maxGroupOrder {
			return counts, order
		}
	}
}

// deal fills buckets. One that had a next hop which still has a claim keeps it.
func deal(buckets, old []uint32, members []Member, counts []int) {
	left := make(map[ID]int, len(members))
	for i, m := range members {
		left[m.NextHop] += counts[i]
	}
	clear(buckets)
	if len(old) > 0 {
		for i := range buckets {
			if id := old[i%len(old)]; left[ID(id)] > 0 {
				buckets[i] = id
				left[ID(id)]--
			}
		}
	}
	m := 0
	for i := range buckets {
		if buckets[i] != 0 {
			continue
		}
		for left[members[m].NextHop] == 0 {
			m++
		}
		buckets[i] = uint32(members[m].NextHop)
		left[members[m].NextHop]--
	}
}
