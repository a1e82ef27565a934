package fib

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

// The readers here look at the shared words only, as the eBPF program does, and take no lock.

// attempts is how often a reader loads words that change under it before it punts the packet. It is bounded since the
// eBPF program, which does the same, must end.
const attempts = 4

// Hop is where a packet goes in the end.
type Hop struct {
	ID ID // the next hop, after a group's choice
	NextHop
}

// Lookup searches the published table number index for the longest prefix around a, and answers its next hop and
// length: 0, 0 if there is no route.
func (p *Pool) Lookup(index int, f Family, a netip.Addr) (hop ID, length int, err error) {
	if index < 0 || index >= len(p.tables) {
		return 0, 0, fmt.Errorf("there is no table %d: 0 to %d are possible", index, len(p.tables)-1)
	}
	bits, ok := f.address(a)
	if !ok {
		return 0, 0, fmt.Errorf("%s is no %s address", a, f)
	}
	hop, length = p.lookup(&p.tables[index], f, bits)
	return hop, length, nil
}

// Lookup searches the table for the longest prefix around a, and answers its next hop and length: 0, 0 if there is no
// route or a is of the other family. While the table was never published only its writer may call it.
func (t *Table) Lookup(a netip.Addr) (hop ID, length int) {
	bits, ok := t.family.address(a)
	if !ok {
		return 0, 0
	}
	return t.pool.lookup(t.cell.Load(), t.family, bits)
}

// lookup is the search that doc.go describes; the C of the eBPF programs (fib.h) is the same.
func (p *Pool) lookup(cell *uint64, f Family, a address) (ID, int) {
	for range attempts {
		table := atomic.LoadUint64(cell)
		shape, root := int(table>>24&15), uint32(table>>28&childMask)
		entry := uint32(0)
		switch {
		case shape == shapeTrie:
			entry = p.walk(f, root, a)
		case shape == shapeNone:
		case f == IPv4:
			entry = search(p.known(root, 2<<shape), shape, uint32(a.hi>>32))
		default:
			entry = searchWide(p.known(root, 5<<shape), shape, a)
		}
		if entry != 0 {
			return ID(entry & idMask), leafLength(entry)
		}
		if shape != shapeTrie || atomic.LoadUint64(cell) == table {
			return ID(table & idMask), 0
		}
	}
	return PuntID, 0
}

func (p *Pool) walk(f Family, root uint32, a address) uint32 {
	entry := uint32(childBit | root)
	for depth := 0; entry&childBit != 0; {
		bits := stride(depth)
		node := p.known(entry&childMask, 1<<bits)
		if node == nil || depth == f.bits() {
			return 0
		}
		entry = atomic.LoadUint32(&node[a.slot(depth, bits)])
		depth += bits
	}
	return entry
}

// known returns the words of a run, or none if there cannot be such a run. Spoilt words may name one: readers look at
// what the fast path really has, whatever that is.
func (p *Pool) known(unit uint32, n int) []uint32 {
	chunks, at := *p.chunks.Load(), int(unit%chunkUnits)*unitWords
	if int(unit/chunkUnits) >= len(chunks) || at+n > ChunkWords {
		return nil
	}
	return chunks[unit/chunkUnits][at : at+n : at+n]
}

func search(w []uint32, order int, a uint32) uint32 {
	if w == nil {
		return 0
	}
	i := 0
	for step := 1 << order >> 1; step > 0; step >>= 1 {
		if w[i+step] <= a {
			i += step
		}
	}
	return w[1<<order+i]
}

func searchWide(w []uint32, order int, a address) uint32 {
	if w == nil {
		return 0
	}
	i := 0
	for step := 1 << order >> 1; step > 0; step >>= 1 {
		if !a.less(getWide(w[4*(i+step):])) {
			i += step
		}
	}
	return w[4<<order+i]
}

// getWide reads what putWide wrote.
func getWide(w []uint32) address {
	if bigEndian {
		return address{uint64(w[0])<<32 | uint64(w[1]), uint64(w[2])<<32 | uint64(w[3])}
	}
	return address{uint64(w[1])<<32 | uint64(w[0]), uint64(w[3])<<32 | uint64(w[2])}
}

// Resolve follows a next hop, through a group by the flow's hash, to what becomes of the packet.
func (p *Pool) Resolve(id ID, hash uint32) Hop {
	if id == 0 || hopWords*int(id) >= len(p.hopWords) {
		return Hop{}
	}
	h, group := p.read(id)
	if h.Kind != KindGroup {
		return h
	}
	order, unit := group>>4&15, uint32(group>>16&childMask)
	buckets := p.known(unit, 1<<order)
	if buckets == nil {
		return Hop{}
	}
	member := ID(atomic.LoadUint32(&buckets[hash&(1<<order-1)]))
	if h, _ = p.read(member); h.Kind == KindGroup {
		return Hop{ID: PuntID, NextHop: NextHop{Kind: KindPunt}}
	}
	return h
}

// read loads a next hop's words, which belong together if their versions are equal.
func (p *Pool) read(id ID) (h Hop, group uint64) {
	if hopWords*int(id) >= len(p.hopWords) {
		return Hop{}, 0
	}
	w := p.hopWords[hopWords*int(id):][:hopWords:hopWords]
	for range attempts {
		w0, w1, w2 := atomic.LoadUint64(&w[0]), atomic.LoadUint64(&w[1]), atomic.LoadUint64(&w[2])
		kind := Kind(w0 & 15)
		if kind == KindGroup {
			return Hop{ID: id, NextHop: NextHop{Kind: kind}}, w0
		}
		if w0>>48 == w1>>48 && w0>>48 == w2>>48 {
			return Hop{id, NextHop{kind, uint32(w0 >> 8 & idMask), uint16(w0 >> 32), macOf(w1), macOf(w2)}}, 0
		}
	}
	return Hop{ID: PuntID, NextHop: NextHop{Kind: KindPunt}}, 0
}

// FlowHash is the hash that chooses among a group's members: the same for all packets of a flow. Each 32-bit word of
// the source address, then of the destination address (as numbers, first word first), then the ports (source in the
// upper half; 0 for packets without, and for all fragments), then the protocol number goes in: h = (h ^ word) ·
// 0x9e3779b1, and h ^= h >> 15. It starts with seed, which differs between routers, so that they do not all choose
// alike.
func FlowHash(seed uint32, source, destination netip.Addr, sourcePort, destinationPort uint16, protocol uint8) uint32 {
	h := seed
	mix := func(w uint32) {
		h = (h ^ w) * 0x9e3779b1
		h ^= h >> 15
	}
	for _, a := range []netip.Addr{source, destination} {
		b := a.AsSlice()
		for i := 0; i+4 <= len(b); i += 4 {
			mix(uint32(b[i])<<24 | uint32(b[i+1])<<16 | uint32(b[i+2])<<8 | uint32(b[i+3]))
		}
	}
	mix(uint32(sourcePort)<<16 | uint32(destinationPort))
	mix(uint32(protocol))
	return h
}

// Share is a next hop of a group and the part of all flows that it has.
type Share struct {
	Hop
	Part float64
}

// Shares reads what a next hop's number stands for: itself, or the members of a group.
func (p *Pool) Shares(id ID) []Share {
	if id == 0 || hopWords*int(id) >= len(p.hopWords) {
		return nil
	}
	h, group := p.read(id)
	if h.Kind != KindGroup {
		return []Share{{h, 1}}
	}
	order, unit := group>>4&15, uint32(group>>16&childMask)
	buckets := p.known(unit, 1<<order)
	counts := map[ID]int{}
	var members []ID
	for i := range buckets {
		member := ID(atomic.LoadUint32(&buckets[i]))
		if counts[member] == 0 {
			members = append(members, member)
		}
		counts[member]++
	}
	shares := make([]Share, 0, len(members))
	for _, member := range members {
		h, _ := p.read(member)
		shares = append(shares, Share{h, float64(counts[member]) / float64(len(buckets))})
	}
	return shares
}
