package fib

import "sync/atomic"

// The parts of an entry that names a child node (doc.go).
const (
	childBit  = 1 << 31
	childMask = 1<<28 - 1
)

// leaf returns the entry of route r. The length is stored less one, so that 1…128 fit into seven bits.
func leaf(r route) uint32 {
	return uint32(r.length-1)<<24 | uint32(r.hop)
}

// leafLength is the length of the prefix that a leaf is of, 0 for no route.
func leafLength(entry uint32) int {
	if entry == 0 {
		return 0
	}
	return int(entry>>24&0x7f) + 1
}

// stride is how many bits a node at this depth looks at.
func stride(depth int) int {
	switch {
	case depth == 0:
		return 16
	case depth < 32:
		return 8
	}
	return 4
}

// maxDepth is the most nodes on a way: three, and one for every four bits from 32 on.
const maxDepth = 3 + (128-32)/4

func (t *Table) node(unit uint32, depth int) []uint32 {
	return t.pool.words(unit, 1<<stride(depth))
}

func nodeUnits(depth int) int { return 1 << stride(depth) / unitWords }

// newNode makes a node all of whose entries are the same.
func (t *Table) newNode(depth int, entry uint32) (uint32, error) {
	unit, err := t.alloc(nodeUnits(depth), 0)
	if err != nil {
		return 0, err
	}
	node := t.node(unit, depth)
	if entry == 0 {
		clear(node)
		return unit, nil
	}
	for i := range node {
		node[i] = entry
	}
	return unit, nil
}

// trieSet makes r's next hop the answer wherever no longer prefix has one. If memory does not suffice nothing changes.
func (t *Table) trieSet(r route) error {
	depth := 0
	node := t.node(t.root, depth)
	for bits := 16; depth+bits < r.length; bits = stride(depth) {
		slot := r.addr.slot(depth, bits)
		depth += bits
		if node[slot]&childBit == 0 {
			unit, err := t.chain(r, depth, node[slot])
			if err != nil {
				return err
			}
			atomic.StoreUint32(&node[slot], childBit|unit)
			return nil
		}
		node = t.node(node[slot]&childMask, depth)
	}
	bits := stride(depth)
	first := r.addr.slot(depth, bits)
	t.cover(node[first:first+1<<(depth+bits-r.length)], depth+bits, r.length, leaf(r))
	return nil
}

// chain makes the nodes that r needs from this depth on. Up to now the answer there was entry; the new nodes repeat it
// everywhere but at r. No reader sees them before the caller stores the first of them into its parent.
func (t *Table) chain(r route, depth int, entry uint32) (uint32, error) {
	unit, err := t.newNode(depth, entry)
	if err != nil {
		return 0, err
	}
	bits := stride(depth)
	node, slot := t.node(unit, depth), r.addr.slot(depth, bits)
	if depth+bits < r.length {
		child, err := t.chain(r, depth+bits, entry)
		if err != nil {
			t.free(unit, nodeUnits(depth), false)
			return 0, err
		}
		node[slot] = childBit | child
		return unit, nil
	}
	for i := range 1 << (depth + bits - r.length) {
		node[slot+i] = leaf(r)
	}
	return unit, nil
}

// cover writes entry, which is of a prefix of this length, over all entries of shorter ones, and of the same, down to
// the leaves. depth is that of the entries' children.
func (t *Table) cover(entries []uint32, depth, length int, entry uint32) {
	for i, e := range entries {
		if e&childBit != 0 {
			t.cover(t.node(e&childMask, depth), depth+stride(depth), length, entry)
		} else if leafLength(e) <= length && e != entry {
			atomic.StoreUint32(&entries[i], entry)
		}
	}
}

// uncover writes entry over all entries of a prefix of this length.
func (t *Table) uncover(entries []uint32, depth, length int, entry uint32) {
	for i, e := range entries {
		if e&childBit != 0 {
			t.uncover(t.node(e&childMask, depth), depth+stride(depth), length, entry)
		} else if leafLength(e) == length {
			atomic.StoreUint32(&entries[i], entry)
		}
	}
}

// trieDelete takes r out of the trie. r must be in the trie, and no longer in the rib, where trieDelete looks for what
// covers r. It needs no memory, so that removing a route never fails.
func (t *Table) trieDelete(r route) {
	instead := uint32(0)
	if c := t.rib.cover(r.addr, r.length); c.hop != 0 {
		instead = leaf(c)
	}
	var units [maxDepth]uint32
	var depths, slots [maxDepth]int
	n, depth := 0, 0
	units[0] = t.root
	for bits := 16; depth+bits < r.length; bits = stride(depth) {
		slots[n] = r.addr.slot(depth, bits)
		units[n+1] = t.node(units[n], depth)[slots[n]] & childMask
		depth += bits
		n++
		depths[n] = depth
	}
	bits := stride(depth)
	first := r.addr.slot(depth, bits)
	t.uncover(t.node(units[n], depth)[first:first+1<<(depth+bits-r.length)], depth+bits, r.length, instead)
	for ; n > 0; n-- { // nodes that no longer have a prefix longer than their depth go
		node := t.node(units[n], depths[n])
		for _, e := range node {
			if e&childBit != 0 || leafLength(e) > depths[n] {
				return
			}
		}
		atomic.StoreUint32(&t.node(units[n-1], depths[n-1])[slots[n-1]], node[0])
		t.free(units[n], nodeUnits(depths[n]), t.seen)
	}
}

// freeTrie frees the node and all below it.
func (t *Table) freeTrie(unit uint32, depth int, seen bool) {
	for _, e := range t.node(unit, depth) {
		if e&childBit != 0 {
			t.freeTrie(e&childMask, depth+stride(depth), seen)
		}
	}
	t.free(unit, nodeUnits(depth), seen)
}

// buildTrie makes a trie of all routes, while readers go on with what the table is now.
func (t *Table) buildTrie() (root uint32, err error) {
	root, err = t.newNode(0, 0)
	if err != nil {
		return 0, err
	}
	was := t.root
	t.root = root
	t.rib.each(func(r route) bool {
		err = t.trieSet(r)
		return err == nil
	})
	t.root = was
	if err != nil {
		t.freeTrie(root, 0, false)
		return 0, err
	}
	return root, nil
}
