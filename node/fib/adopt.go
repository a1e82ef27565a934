package fib

import "fmt"

// Adopt makes a pool on words that an earlier pool left behind: its process died, and readers went on using the words.
// Nothing that readers see changes. chunks is how many chunks the earlier pool had; family tells which family a table
// is of. Adopt checks everything that readers can reach. Memory that they cannot reach becomes free. An error says what
// is damaged; the words are not touched then.
//
// What Adopt found belongs to no slice, and cannot be changed. Publish puts a new table in the place of one that was
// found. When all are replaced, Forget frees the rest.
func Adopt(mem Memory, chunks int, family func(index int) Family) (*Pool, error) {
	p, err := newPool(mem)
	if err != nil {
		return nil, err
	}
	var list [][]uint32
	for i := range chunks {
		chunk, err := mem.Chunk(i)
		if err != nil {
			return nil, fmt.Errorf("chunk %d of %d: %w", i, chunks, err)
		}
		if len(chunk) != ChunkWords {
			return nil, fmt.Errorf("chunk %d has %d words instead of %d", i, len(chunk), ChunkWords)
		}
		list = append(list, chunk)
	}
	p.chunks.Store(&list)
	p.found = &found{tables: map[int]*Table{}, slice: &Slice{pool: p, name: "(found)"}}
	s := survey{pool: p, used: make([]bool, chunks*chunkUnits)}
	if err := s.nextHops(); err != nil {
		return nil, err
	}
	for i := range p.tables {
		if err := s.table(i, family(i)); err != nil {
			return nil, fmt.Errorf("table %d: %w", i, err)
		}
	}
	s.freeTheRest()
	return p, nil
}

// Forget frees what Adopt found and nothing has replaced: tables and next hops. Packets of these tables are punted from
// then on.
func (p *Pool) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		return
	}
	for index, t := range p.found.tables {
		t.flipTo(&p.tables[index], 0, shapeNone, 0)
		t.freeBody(t.shape, t.root)
	}
	for _, id := range p.found.hops {
		p.hops[id].held = false
		p.freeHop(id, true)
	}
	p.found = nil
}

// found is what Adopt found.
type found struct {
	slice  *Slice
	tables map[int]*Table
	hops   []ID
}

// survey walks all that readers can reach.
type survey struct {
	pool *Pool
	used []bool // by unit
}

// claim marks a run of units as in use. If one of them is already, the words are damaged: two tables would share it.
func (s *survey) claim(unit uint32, units int) error {
	if int(unit)+units > len(s.used) || unit/chunkUnits != (unit+uint32(units)-1)/chunkUnits {
		return fmt.Errorf("%d units at %d are not within a chunk of the memory", units, unit)
	}
	for i := range units {
		if s.used[int(unit)+i] {
			return fmt.Errorf("unit %d is in use twice", int(unit)+i)
		}
		s.used[int(unit)+i] = true
	}
	s.pool.live += units
	s.pool.found.slice.usage.Bytes += units * unitBytes
	return nil
}

// nextHops reads which next hops there are, and the groups' members. The words do not say whose a next hop was: all
// count as the found slice's, and stay until Forget, since tables that are not replaced yet lead to them.
func (s *survey) nextHops() error {
	p := s.pool
	last := 0
	for id := range min(len(p.hopWords)/hopWords, idMask+1) {
		if p.hopWords[hopWords*id] != 0 {
			last = id
		}
	}
	for id := ID(len(p.hops)); int(id) <= last; id++ {
		w := p.hopWords[hopWords*int(id)]
		if w == 0 {
			p.hops = append(p.hops, hop{})
			p.freeHops = append(p.freeHops, id)
			continue
		}
		h := hop{slice: p.found.slice, held: true, version: uint16(w >> 48)}
		switch kind := Kind(w & 15); {
		case kind == KindGroup:
			h.group, h.unit, h.order, h.version = []Member{}, uint32(w>>16&childMask), int(w>>4&15), 0
			if err := s.claim(h.unit, groupUnits(h.order)); err != nil {
				return fmt.Errorf("group %d: %w", id, err)
			}
			for _, member := range p.words(h.unit, 1<<h.order) {
				if err := s.hop(member); err != nil {
					return fmt.Errorf("group %d: %w", id, err)
				}
			}
		case kind > KindForward || kind == KindNone:
			return fmt.Errorf("next hop %d is of %s", id, kind)
		}
		p.hops = append(p.hops, h)
		p.found.hops = append(p.found.hops, id)
		p.found.slice.usage.NextHops++
	}
	for id := range builtins {
		if p.hopWords[hopWords*int(id)] != uint64(id) {
			return fmt.Errorf("next hop %d is built in, and has another's word %#x", id, p.hopWords[hopWords*int(id)])
		}
	}
	return nil
}

// hop checks that the next hop that a word names exists.
func (s *survey) hop(id uint32) error {
	if id == 0 || int(id) >= len(s.pool.hopWords)/hopWords || s.pool.hopWords[hopWords*id] == 0 {
		return fmt.Errorf("next hop %d is named, and is not there", id)
	}
	return nil
}

// table reads a table's word and walks what is below it.
func (s *survey) table(index int, f Family) error {
	p, word := s.pool, s.pool.tables[index]
	t := &Table{pool: p, slice: p.found.slice, family: f, index: index, seen: true, generation: uint8(word >> 56)}
	t.shape, t.root = int(word>>24&15), uint32(word>>28&childMask)
	if t.shape == shapeNone && t.root != 0 {
		return fmt.Errorf("it has unit %d, and no shape", t.root)
	}
	if def := uint32(word & idMask); def != 0 {
		if err := s.hop(def); err != nil {
			return err
		}
	} else if t.shape == shapeNone {
		return nil
	}
	before := p.live
	var err error
	switch {
	case t.shape == shapeTrie:
		err = s.node(f, t.root, 0)
	case t.shape >= minOrder && t.shape <= smallOrder:
		err = s.block(f, t.root, t.shape)
	case t.shape != shapeNone:
		err = fmt.Errorf("shape %d is not known", t.shape)
	}
	t.units = p.live - before
	p.found.tables[index] = t
	return err
}

// block checks sorted ranges. Their order matters most: a reader's search relies on it, and would answer wrongly.
func (s *survey) block(f Family, unit uint32, order int) error {
	if err := s.claim(unit, smallUnits(f, order)); err != nil {
		return err
	}
	n, width := 1<<order, 1+3*int(f)
	w := s.pool.words(unit, (width+1)*n)
	before := address{}
	for i := range n {
		start := address{hi: uint64(w[i]) << 32}
		if f == IPv6 {
			start = getWide(w[4*i:])
		}
		if start.less(before) || i == 0 && start != before {
			return fmt.Errorf("range %d of %d begins before its place", i, n)
		}
		before = start
		if err := s.entry(w[width*n+i], f.bits()); err != nil {
			return err
		}
	}
	return nil
}

// node walks a trie. A child lies deeper than its node, and nothing is claimed twice: so damaged words, even a circle
// of them, end the walk with an error.
func (s *survey) node(f Family, unit uint32, depth int) error {
	if err := s.claim(unit, nodeUnits(depth)); err != nil {
		return err
	}
	below := depth + stride(depth)
	for _, e := range s.pool.words(unit, 1<<stride(depth)) {
		if e&childBit == 0 {
			if err := s.entry(e, below); err != nil {
				return err
			}
			continue
		}
		if below >= f.bits() || e&^(childBit|childMask) != 0 {
			return fmt.Errorf("unit %d has an entry %#x at depth %d", unit, e, depth)
		}
		if err := s.node(f, e&childMask, below); err != nil {
			return err
		}
	}
	return nil
}

// entry checks a leaf.
func (s *survey) entry(e uint32, longest int) error {
	if e == 0 {
		return nil
	}
	if e&childBit != 0 || leafLength(e) > longest {
		return fmt.Errorf("an entry %#x where prefixes have %d bits at most", e, longest)
	}
	return s.hop(e & idMask)
}

// freeTheRest gives the allocator what nothing leads to. Each run ends with its chunk: chunks are pieces of memory
// apart.
func (s *survey) freeTheRest() {
	b := &s.pool.buddy
	for range len(s.used) / chunkUnits {
		b.add()
	}
	for unit := 0; unit < len(s.used); {
		if s.used[unit] {
			unit++
			continue
		}
		end := unit
		for end < len(s.used) && end/chunkUnits == unit/chunkUnits && !s.used[end] {
			end++
		}
		b.release(uint32(unit), end-unit)
		unit = end
	}
}
