package companion

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/node/mirror"
)

// Attributes of linux/nexthop.h that golang.org/x/sys/unix does not have.
const (
	nhaID        = 1
	nhaGroup     = 2
	nhaBlackhole = 4
	nhaOIF       = 5
	nhaGateway   = 6

	routeNextHop = 30 // RTA_NH_ID
	protocol     = 112
)

// grace is how long a companion keeps what the tables no longer say, for packets that were handed to it before.
const grace = 100 * time.Millisecond

// Routes writes what the mirror tells into a companion's kernel. The fabric's tables get the same batch, and the order
// matters, so that packets never meet a companion that lacks their route: first Before makes what is new here, then the
// tables are written, then After takes away, some time later, what is no longer used. In between both the old and the
// new are right.
//
// A next hop is two objects, one for each family. Its gateway is an address on the link that exists nowhere else, with
// a permanent neighbour entry. So routes, neighbours and interfaces change independently of each other. Every snapshot
// has objects of its own, a generation: routes move over to them one by one. When the snapshot is whole the other
// objects are deleted, and the kernel deletes with them the routes that nobody told of.
type Routes struct {
	c *linux.Rtnetlink

	// mu guards what stands below it and the use of c. It is held while a batch is written, so Settle, which others
	// call, never comes between the requests of one.
	mu         sync.Mutex
	devices    map[uint32]int                         // by the fabric's port
	port       func(index int) (port uint32, ok bool) // of the router's interface
	generation uint32                                 // of the snapshot that is followed
	next       uint32                                 // number of a next hop
	hops       map[mirror.ID]*hop
	groups     map[mirror.ID]*hop // those of hops that are one
	filling    bool               // a snapshot is being told
	synced     chan struct{}      // closed while the kernel has what was told; Restart makes another
	young, old rest               // what waits for the grace: since the last rotation, and since the one before
	rotated    time.Time          // when the last rotation was
	b          linux.Batch        // scratch
	doubtful   bool               // what right saw last was wrong
	closed     bool
}

// rest is what waits to be taken away.
type rest struct {
	routes  map[netip.Prefix]bool
	dropped []uint32 // numbers of next hops
	sweep   bool
}

func (r *rest) empty() bool { return len(r.routes) == 0 && len(r.dropped) == 0 && !r.sweep }

// hop is a next hop as it was told last.
type hop struct {
	mirror.NextHop
	number uint32 // no other of its generation has had it
	device int    // that it leads to; 0: the fabric does not hand over what would go there
	made   bool
	// Of a group: its members, and what was written of them.
	members []mirror.Member
	written string
}

// A next-hop object's number is the highest bit, the generation, the next hop's number, and one bit for the family
// (object).
const (
	generations = 8
	numberBits  = 21
)

var families = [...]uint8{unix.AF_INET, unix.AF_INET6}

func newRoutes(c *linux.Rtnetlink) *Routes {
	return &Routes{c: c, hops: map[mirror.ID]*hop{}, groups: map[mirror.ID]*hop{}, synced: make(chan struct{}),
		young: rest{routes: map[netip.Prefix]bool{}}, old: rest{routes: map[netip.Prefix]bool{}}}
}

// close may be called while a batch is being told. What is told after it is lost with the companion's kernel.
func (r *Routes) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return r.c.Close()
}

// Follow sets how interfaces of the router are found.
func (r *Routes) Follow(port func(index int) (port uint32, ok bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.port = port
}

// Synced returns a channel that is closed when the kernel has everything that was told, now or at some time since
// Restart.
func (r *Routes) Synced() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced
}

// Restart says that a snapshot must be told before the companion can be relied on.
func (r *Routes) Restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.filling = false
	select {
	case <-r.synced:
		r.synced = make(chan struct{})
	default:
	}
}

func (r *Routes) setDevices(devices map[uint32]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices = devices
}

func (r *Routes) portOf(device int) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for port, d := range r.devices {
		if d == device {
			return port
		}
	}
	return 0
}

// object is the number of a next hop's object.
func (r *Routes) object(number uint32, family int) uint32 {
	return 1<<31 | r.generation<<(numberBits+1) | number<<1 | uint32(family)
}

func generationOf(object uint32) uint32 { return object >> (numberBits + 1) & (generations - 1) }

func numberOf(object uint32) uint32 { return object >> 1 & (1<<numberBits - 1) }

// nowhere is the number of what is not forwarded; first is the number of the first next hop.
const (
	nowhere = 1
	first   = 2
)

// gateway is the made-up address of a next hop.
func (r *Routes) gateway(number uint32, family int) []byte {
	n := r.generation<<numberBits | number
	if families[family] == unix.AF_INET {
		return binary.BigEndian.AppendUint32(nil, 10<<24|n)
	}
	a := [16]byte{0: 0xfe, 1: 0x80, 8: 2}
	binary.BigEndian.PutUint32(a[12:], n)
	return a[:]
}

// Before makes what a batch brings. It must get every batch since one with Reset.
func (r *Routes) Before(b *mirror.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.rotate()
	if b.Reset {
		if err := r.begin(); err != nil {
			return err
		}
	}
	r.b.Reset()
	for i := range b.NextHops {
		if err := r.told(&b.NextHops[i]); err != nil {
			return err
		}
	}
	for i := range b.Routes {
		p, id := b.Routes[i].Prefix, b.Routes[i].NextHop
		h := r.hops[id]
		if h == nil {
			continue
		}
		delete(r.young.routes, p)
		delete(r.old.routes, p)
		r.route(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, p)
		r.b.Uint32(routeNextHop, r.object(h.number, familyOf(p)))
	}
	return r.do()
}

// After takes away what a batch made superfluous. Call it when the tables have the batch.
func (r *Routes) After(b *mirror.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.b.Reset()
	for i := range b.Routes {
		// What a snapshot does not bring goes with the other generations.
		if r.hops[b.Routes[i].NextHop] == nil && !r.filling {
			r.young.routes[b.Routes[i].Prefix] = true
		}
	}
	for i := range b.NextHops {
		r.regroup(b.NextHops[i].ID, true)
	}
	for _, id := range b.Dropped {
		if h := r.hops[id]; h != nil {
			r.young.dropped = append(r.young.dropped, h.number)
		}
		delete(r.hops, id)
		delete(r.groups, id)
	}
	if b.Synced && r.filling {
		r.filling, r.young.sweep = false, true
		select {
		case <-r.synced:
		default:
			close(r.synced)
		}
	}
	return r.do()
}

// Settle takes away what nobody uses any more. Call it now and then.
func (r *Routes) Settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rotate()
}

// rotate takes away what has waited for the grace, and lets what came since wait. So a thing waits between one and two
// times the grace.
func (r *Routes) rotate() {
	if time.Since(r.rotated) < grace || r.young.empty() && r.old.empty() {
		return
	}
	r.flush(&r.old)
	r.young, r.old, r.rotated = r.old, r.young, time.Now()
}

// begin chooses the numbers of a new snapshot's objects.
func (r *Routes) begin() error {
	used, err := r.objects()
	if err != nil {
		return err
	}
	// Snapshots that never came to an end may have left objects of every generation, which routes still name. Then the
	// generation with the fewest objects is used again. Objects that are left over of it are noticed when the companion
	// is looked into (right).
	var next [generations]uint32
	for _, object := range used {
		g := generationOf(object)
		next[g] = max(next[g], numberOf(object)+1)
	}
	chosen := slices.Index(next[:], slices.Min(next[:]))
	r.generation, r.next, r.filling = uint32(chosen), max(first, next[chosen]), true
	clear(r.hops)
	clear(r.groups)
	for _, rest := range []*rest{&r.young, &r.old} {
		clear(rest.routes)
		rest.dropped, rest.sweep = nil, false
	}
	r.b.Reset()
	for family := range families {
		nextHop(&r.b, r.object(nowhere, family), families[family], 0)
		r.b.Flag(nhaBlackhole)
	}
	return r.do()
}

// told makes or changes a next hop.
func (r *Routes) told(told *mirror.NextHop) error {
	h := r.hops[told.ID]
	if h == nil {
		if r.next == 1<<numberBits {
			return fmt.Errorf("its companion has had %d next hops, and begins anew", r.next)
		}
		h = &hop{number: r.next}
		r.next++
		r.hops[told.ID] = h
	}
	h.NextHop = *told
	h.Members, h.members = nil, slices.Clone(told.Members)
	if len(h.members) > 0 {
		r.groups[h.ID] = h
		r.group(h, false)
		return nil
	}
	h.device = r.leads(h)
	switch {
	case h.device != 0:
		for family := range families {
			b := &r.b
			b.Request(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
			neighbour(b, families[family], h.device, unix.NUD_PERMANENT)
			b.Attr(unix.NDA_DST, r.gateway(h.number, family))
			b.Attr(unix.NDA_LLADDR, h.MAC[:])
			nextHop(b, r.object(h.number, family), families[family], unix.RTNH_F_ONLINK)
			b.Uint32(nhaOIF, uint32(h.device))
			b.Attr(nhaGateway, r.gateway(h.number, family))
		}
	case !h.made: // else it stays as it was until it is dropped: the tables send nobody there
		for family := range families {
			nextHop(&r.b, r.object(h.number, family), families[family], 0)
			r.b.Flag(nhaBlackhole)
		}
	}
	h.made = true
	r.regroup(h.ID, false)
	return nil
}

// leads returns the companion's device that a next hop leads to; 0 if packets by it are not handed to the companion.
func (r *Routes) leads(h *hop) int {
	if h.Kind != mirror.KindForward || r.port == nil {
		return 0
	}
	port, ok := r.port(h.Interface)
	if !ok {
		return 0
	}
	return r.devices[port]
}

// regroup writes the groups that a next hop is a member of and, with after, the group that it is itself.
func (r *Routes) regroup(id mirror.ID, after bool) {
	if h := r.groups[id]; h != nil {
		if after {
			r.group(h, true)
		}
		return
	}
	for _, h := range r.groups {
		if slices.ContainsFunc(h.members, func(m mirror.Member) bool { return m.NextHop == id }) {
			r.group(h, after)
		}
	}
}

// group writes the members that forward. The tables looked at one member, but the kernel may choose another. So members
// that take less than the longest packet are left out. A group without any member stays as it is until the tables have
// it.
func (r *Routes) group(h *hop, after bool) {
	longest := 0
	for _, m := range h.members {
		if to := r.hops[m.NextHop]; to != nil && to.device != 0 {
			longest = max(longest, limit(to.MTU))
		}
	}
	if longest == 0 && h.made && !after {
		return
	}
	most := 0
	for _, m := range h.members {
		most = max(most, m.Weight)
	}
	var lists [len(families)][]byte // of struct nexthop_grp
	for family := range families {
		list := &lists[family]
		for _, m := range h.members {
			to := r.hops[m.NextHop]
			if to == nil || to.device == 0 || limit(to.MTU) < longest {
				continue
			}
			weight := m.Weight
			if most > 256 { // older kernels' bound
				weight = max(1, weight*256/most)
			}
			*list = binary.NativeEndian.AppendUint32(*list, r.object(to.number, family))
			*list = append(*list, byte(weight-1), 0, 0, 0)
		}
		if len(*list) == 0 {
			*list = append(binary.NativeEndian.AppendUint32(nil, r.object(nowhere, family)), 0, 0, 0, 0)
		}
	}
	if h.made && h.written == string(lists[0]) {
		return
	}
	for family, list := range lists {
		nextHop(&r.b, r.object(h.number, family), unix.AF_UNSPEC, 0)
		r.b.Attr(nhaGroup, list)
	}
	h.made, h.written = true, string(lists[0])
}

// limit is an MTU, or, where none is known, more than any packet has.
func limit(mtu int) int {
	return cmp.Or(mtu, 1<<16)
}

// PortsChanged asks anew where the next hops lead.
func (r *Routes) PortsChanged() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b.Reset()
	for _, h := range r.hops {
		if len(h.members) == 0 && r.leads(h) != h.device {
			again := h.NextHop
			if err := r.told(&again); err != nil {
				return err
			}
		}
	}
	return r.do()
}

// do sends the batch. Each request in it is carried out whatever becomes of the others.
func (r *Routes) do() error {
	defer r.b.Reset()
	if errs := r.c.Do(&r.b); errs != nil {
		return fmt.Errorf("write its routes into the companion: %w", errors.Join(errs...))
	}
	return nil
}

func familyOf(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}

func (r *Routes) route(kind, flags uint16, p netip.Prefix) {
	r.b.Request(kind, flags)
	r.b.Raw([]byte{families[familyOf(p)], byte(p.Bits()), 0, 0, unix.RT_TABLE_MAIN, protocol, unix.RT_SCOPE_UNIVERSE,
		unix.RTN_UNICAST, 0, 0, 0, 0})
	if p.Bits() > 0 {
		r.b.Attr(unix.RTA_DST, p.Masked().Addr().AsSlice())
	}
}

// nextHop begins the request for a next-hop object.
func nextHop(b *linux.Batch, object uint32, family uint8, flags uint32) {
	b.Request(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	b.Raw(binary.NativeEndian.AppendUint32([]byte{family, 0, protocol, 0}, flags))
	b.Uint32(nhaID, object)
}

func neighbour(b *linux.Batch, family uint8, device int, state uint16) {
	m := make([]byte, unix.SizeofNdMsg)
	m[0] = family
	binary.NativeEndian.PutUint32(m[4:], uint32(device))
	binary.NativeEndian.PutUint16(m[8:], state)
	b.Raw(m)
}

// flush takes away what has waited. It is no error if something is gone already. If anything else goes wrong, things
// are left that nobody uses.
func (r *Routes) flush(rest *rest) {
	if rest.empty() {
		return
	}
	r.b.Reset()
	for p := range rest.routes {
		r.route(unix.RTM_DELROUTE, 0, p)
	}
	for _, number := range rest.dropped {
		for family := range families {
			r.remove(r.object(number, family))
		}
	}
	r.c.Do(&r.b) //nolint:errcheck // as said
	r.b.Reset()
	gateways := map[string]bool{}
	for _, number := range rest.dropped {
		for family := range families {
			gateways[string(r.gateway(number, family))] = true
		}
	}
	sweep := rest.sweep
	clear(rest.routes)
	rest.dropped, rest.sweep = rest.dropped[:0], false
	if sweep {
		r.sweep()
	}
	if sweep || len(gateways) > 0 {
		r.forgetNeighbours(func(gateway []byte) bool {
			return gateways[string(gateway)] || sweep &&
				binary.BigEndian.Uint32(gateway[len(gateway)-4:])>>numberBits&(generations-1) != r.generation
		})
	}
}

func (r *Routes) remove(object uint32) {
	r.b.Request(unix.RTM_DELNEXTHOP, 0)
	r.b.Raw(make([]byte, 8))
	r.b.Uint32(nhaID, object)
}

// sweep deletes the objects of other snapshots, and with them the routes that are still theirs.
func (r *Routes) sweep() {
	objects, err := r.objects()
	if err != nil {
		return // the next snapshot does
	}
	r.b.Reset()
	for _, object := range objects {
		if generationOf(object) != r.generation {
			r.remove(object)
		}
	}
	r.c.Do(&r.b) //nolint:errcheck // likewise
	r.b.Reset()
}

// objects lists the next-hop objects that are there.
func (r *Routes) objects() (all []uint32, err error) {
	err = linux.Undisturbed(func() error {
		all = all[:0]
		var b linux.Batch
		b.Request(unix.RTM_GETNEXTHOP, 0)
		b.Raw(make([]byte, 8))
		return r.c.Dump(&b, func(kind uint16, p []byte) error {
			if kind == unix.RTM_NEWNEXTHOP && len(p) >= 8 {
				for kind, v := range linux.Attrs(p[8:]) {
					if kind == nhaID && len(v) == 4 {
						all = append(all, binary.NativeEndian.Uint32(v))
					}
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list its next hops: %w", err)
	}
	return all, nil
}

// forgetNeighbours removes the entries of gateways.
func (r *Routes) forgetNeighbours(gone func(gateway []byte) bool) {
	var list, b linux.Batch
	list.Request(unix.RTM_GETNEIGH, 0)
	list.Raw(make([]byte, unix.SizeofNdMsg))
	r.c.Dump(&list, func(kind uint16, p []byte) error { //nolint:errcheck // those left out are nobody's
		if kind != unix.RTM_NEWNEIGH || len(p) < unix.SizeofNdMsg {
			return nil
		}
		for kind, v := range linux.Attrs(p[unix.SizeofNdMsg:]) {
			if kind == unix.NDA_DST && len(v) >= 4 && binary.NativeEndian.Uint16(p[8:])&unix.NUD_PERMANENT != 0 &&
				gone(v) {
				b.Request(unix.RTM_DELNEIGH, 0)
				neighbour(&b, p[0], int(int32(binary.NativeEndian.Uint32(p[4:]))), 0)
				b.Attr(unix.NDA_DST, v)
			}
		}
		return nil
	})
	r.c.Do(&b) //nolint:errcheck // likewise
}
