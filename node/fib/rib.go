package fib

import (
	"math/bits"
	"math/rand/v2"
)

// rib is a table's own copy of its routes, except the default route. A trie needs it, since its words do not have the
// prefixes that longer ones hide; when a longer one goes, the hidden one must come back. It is an open-addressed hash.
// An IPv4 route takes one 64-bit word (address 32 bits, length 8, next hop 24), an IPv6 route three. The last word of a
// used slot is never 0. The hash is between 3/16 and 3/4 full.
type rib struct {
	words   []uint64
	n       int
	width   int       // words in a slot: 1 or 3
	lengths [3]uint64 // a bit for each prefix length that there may be
	seed    uint64    // so that nobody can choose routes that collide
}

// route is a prefix and its next hop; 0 for none.
type route struct {
	addr   address
	length int
	hop    ID
}

const ribMin = 8 // slots

func newRIB(f Family) rib {
	if f == IPv4 {
		return rib{width: 1, seed: rand.Uint64()}
	}
	return rib{width: 3, seed: rand.Uint64()}
}

func (r *rib) slots() int { return len(r.words) / r.width }

// start is where the search for a prefix begins. The multipliers are those of SplitMix64 (Steele, Lea and Flood, 2014),
// whose products have well-mixed upper bits; these choose the slot.
func (r *rib) start(a address, length int) int {
	h := a.hi ^ uint64(length)*0x9e3779b97f4a7c15 ^ r.seed
	if r.width == 3 {
		h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
		h ^= a.lo
	}
	h = (h ^ h>>32) * 0x94d049bb133111eb
	hi, _ := bits.Mul64(h, uint64(r.slots()))
	return int(hi)
}

// find gives the slot of a prefix, or the free one where it would go. There must be a slot.
func (r *rib) find(a address, length int) (slot int, found bool) {
	i := r.start(a, length)
	if r.width == 1 {
		key := a.hi>>32<<8 | uint64(length)
		for {
			w := r.words[i]
			if w == 0 || w>>24 == key {
				return i, w != 0
			}
			if i++; i == len(r.words) {
				i = 0
			}
		}
	}
	for {
		s := r.words[3*i : 3*i+3 : 3*i+3]
		if s[2] == 0 || s[0] == a.hi && s[1] == a.lo && s[2]>>24 == uint64(length) {
			return i, s[2] != 0
		}
		if i++; 3*i == len(r.words) {
			i = 0
		}
	}
}

// at reads a used slot.
func (r *rib) at(slot int) (e route, used bool) {
	if r.width == 1 {
		w := r.words[slot]
		return route{address{hi: w >> 32 << 32}, int(w >> 24 & 0xff), ID(w & idMask)}, w != 0
	}
	s := r.words[3*slot:]
	return route{address{s[0], s[1]}, int(s[2] >> 24), ID(s[2] & idMask)}, s[2] != 0
}

func (r *rib) write(slot int, e route) {
	low := uint64(e.length)<<24 | uint64(e.hop)
	if r.width == 1 {
		r.words[slot] = e.addr.hi | low
		return
	}
	s := r.words[3*slot:]
	s[0], s[1], s[2] = e.addr.hi, e.addr.lo, low
}

func (r *rib) get(a address, length int) ID {
	if r.n == 0 {
		return 0
	}
	slot, found := r.find(a, length)
	if !found {
		return 0
	}
	e, _ := r.at(slot)
	return e.hop
}

// set gives a prefix this next hop, 0 to remove it, and says what it had before.
func (r *rib) set(e route) (old ID) {
	if e.hop == 0 {
		return r.remove(e)
	}
	if 4*(r.n+1) > 3*r.slots() {
		r.resize(max(ribMin, 2*r.slots()))
	}
	slot, found := r.find(e.addr, e.length)
	if found {
		was, _ := r.at(slot)
		old = was.hop
	} else {
		r.n++
		r.lengths[e.length>>6] |= 1 << (e.length & 63)
	}
	r.write(slot, e)
	return old
}

// remove leaves no mark where a prefix was: routes that come and go would fill the hash with marks (Knuth, The Art of
// Computer Programming 3, 6.4, algorithm R).
func (r *rib) remove(e route) (old ID) {
	if r.n == 0 {
		return 0
	}
	hole, found := r.find(e.addr, e.length)
	if !found {
		return 0
	}
	was, _ := r.at(hole)
	n := r.slots()
	for i := hole; ; { // what was pushed on by this slot moves back
		if i++; i == n {
			i = 0
		}
		next, used := r.at(i)
		if !used {
			break
		}
		from := r.start(next.addr, next.length)
		if (i-from+n)%n >= (i-hole+n)%n {
			r.write(hole, next)
			hole = i
		}
	}
	clear(r.words[hole*r.width : (hole+1)*r.width])
	if r.n--; r.n == 0 {
		r.lengths = [3]uint64{}
	}
	if n > ribMin && 16*r.n < 3*n {
		r.resize(n / 2)
	}
	return was.hop
}

func (r *rib) resize(slots int) {
	old := *r
	r.words = make([]uint64, slots*r.width)
	for i := range old.slots() {
		if e, used := old.at(i); used {
			slot, _ := r.find(e.addr, e.length)
			r.write(slot, e)
		}
	}
}

// cover returns the longest of the shorter prefixes around this one; its hop is 0 if there is none.
func (r *rib) cover(a address, length int) route {
	for l := length - 1; l > 0; l-- {
		if r.lengths[l>>6]>>(l&63)&1 == 0 {
			continue
		}
		a = a.first(l)
		if hop := r.get(a, l); hop != 0 {
			return route{a, l, hop}
		}
	}
	return route{}
}

// each calls for every route, in no order, until told false.
func (r *rib) each(do func(route) bool) {
	for i := range r.slots() {
		if e, used := r.at(i); used && !do(e) {
			return
		}
	}
}
