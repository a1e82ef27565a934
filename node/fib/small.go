package fib

import (
	"encoding/binary"
	"slices"
)

// A table is sorted ranges while there are at most maxRanges of them. It becomes a trie when there are more, or when
// sorting the routes for every change is no longer cheap. It goes back only when its ranges surely fit twice, so that a
// table at the border does not change its shape with every route.
const (
	minOrder   = 3
	smallOrder = 9
	maxRanges  = 1 << smallOrder
	maxSorted  = 2 * maxRanges   // routes
	demoteAt   = maxRanges/4 - 1 // routes; n routes make 2n+1 ranges at most
)

var bigEndian = binary.NativeEndian.Uint16([]byte{1, 0}) != 1

// span is a range of addresses: from start to the next one's.
type span struct {
	start address
	entry uint32
}

// smallUnits is the size of a block of 2^order ranges.
func smallUnits(f Family, order int) int {
	bytes := 8 << order
	if f == IPv6 {
		bytes = 20 << order
	}
	return (bytes + unitBytes - 1) / unitBytes
}

// spans cuts the family's addresses into ranges with one answer each; neighbouring ranges differ. It sorts routes in
// place. If there are more than maxRanges ranges, it gives up and returns nil.
func spans(routes []route) []span {
	slices.SortFunc(routes, func(a, b route) int {
		switch {
		case a.addr.less(b.addr):
			return -1
		case b.addr.less(a.addr):
			return 1
		}
		return a.length - b.length
	})
	list := make([]span, 1, min(2*len(routes)+1, maxRanges+2))
	emit := func(start address, entry uint32) {
		if last := &list[len(list)-1]; last.start == start {
			last.entry = entry
			if n := len(list); n > 1 && list[n-2].entry == entry {
				list = list[:n-1]
			}
		} else if last.entry != entry {
			list = append(list, span{start, entry})
		}
	}
	var open [129]route // around the current address, outermost first
	depth := 0
	closeUntil := func(start address, all bool) {
		for depth > 0 {
			end := open[depth-1].addr.last(open[depth-1].length)
			if !all && !end.less(start) {
				return
			}
			depth--
			outer := uint32(0)
			if depth > 0 {
				outer = leaf(open[depth-1])
			}
			if next, ok := end.next(); ok {
				emit(next, outer)
			}
		}
	}
	for _, r := range routes {
		closeUntil(r.addr, false)
		emit(r.addr, leaf(r))
		open[depth] = r
		depth++
		if len(list) > maxRanges+1 {
			return nil
		}
	}
	closeUntil(address{}, true)
	if len(list) > maxRanges {
		return nil
	}
	return list
}

// buildSmall makes the block for these ranges.
func (t *Table) buildSmall(list []span, credit int) (unit uint32, order int, err error) {
	order = minOrder
	for 1<<order < len(list) {
		order++
	}
	unit, err = t.alloc(smallUnits(t.family, order), credit)
	if err != nil {
		return 0, 0, err
	}
	n, last := 1<<order, list[len(list)-1]
	if t.family == IPv4 {
		w := t.pool.words(unit, 2*n)
		for i := range n {
			w[i], w[n+i] = ^uint32(0), last.entry
		}
		for i, s := range list {
			w[i], w[n+i] = uint32(s.start.hi>>32), s.entry
		}
		return unit, order, nil
	}
	w := t.pool.words(unit, 5*n)
	for i := range n {
		putWide(w[4*i:], address{^uint64(0), ^uint64(0)})
		w[4*n+i] = last.entry
	}
	for i, s := range list {
		putWide(w[4*i:], s.start)
		w[4*n+i] = s.entry
	}
	return unit, order, nil
}

// putWide writes a as two 64-bit words into four of 32 bits.
func putWide(w []uint32, a address) {
	w[0], w[1], w[2], w[3] = uint32(a.hi), uint32(a.hi>>32), uint32(a.lo), uint32(a.lo>>32)
	if bigEndian {
		w[0], w[1], w[2], w[3] = w[1], w[0], w[3], w[2]
	}
}
