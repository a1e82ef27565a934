package mirror

import (
	"math/bits"
	"math/rand/v2"
)

// table holds the routes of one of the kernel's tables: an open-addressed hash by prefix, without pointers. A slot is
// the address (one word for IPv4, two for IPv6) and a word with the rest:
//
//	bits  0…15  dump that saw the prefix last; bit 16 used; bit 17 dirty; bits 24…31 length; bits 32…63 routes
//
// Routes are a way's number, or, with the highest bit set, that of a list of ways; 0 is none any more.
type table struct {
	family  Family
	words   []uint64
	width   int
	n       int
	lengths [129]int32 // how many prefixes there are of each length
	seed    uint64     // so that nobody can choose prefixes that collide
	epoch   uint16     // the last dump
}

// Bits of a slot's last word, as table describes it; isList is one of the routes' number in it.
const (
	slotUsed  = 1 << 16
	slotDirty = 1 << 17
	tableMin  = 8 // slots

	isList = 1 << 31
)

func newTable(f Family) *table {
	return &table{family: f, width: [...]int{2, 3}[f], seed: rand.Uint64()}
}

// start is the word at which the search for a prefix begins.
func (t *table) start(k key) int {
	h := k.hi ^ uint64(k.length)*0x9e3779b97f4a7c15 ^ t.seed
	if t.width == 3 {
		h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
		h ^= k.lo
	}
	h = (h ^ h>>32) * 0x94d049bb133111eb
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	slot, _ := bits.Mul64(h, uint64(len(t.words)/t.width))
	return int(slot) * t.width
}

// find gives the first word of a prefix's slot, or of the free one where it would go. There must be one.
func (t *table) find(k key) (at int, found bool) {
	at = t.start(k)
	for {
		last := t.words[at+t.width-1]
		if last&slotUsed == 0 {
			return at, false
		}
		if t.words[at] == k.hi && uint8(last>>24) == k.length && (t.width == 2 || t.words[at+1] == k.lo) {
			return at, true
		}
		if at += t.width; at == len(t.words) {
			at = 0
		}
	}
}

// get gives a prefix's routes, 0 if it has none.
func (t *table) get(k key) uint32 {
	if t.n == 0 || t.lengths[k.length] == 0 {
		return 0
	}
	at, found := t.find(k)
	if !found {
		return 0
	}
	return t.routes(at)
}

// has tells whether a prefix has a slot.
func (t *table) has(k key) bool {
	if t.n == 0 {
		return false
	}
	_, found := t.find(k)
	return found
}

// add finds a prefix's slot or makes one without routes.
func (t *table) add(k key) (at int) {
	if 4*(t.n+1)*t.width > 3*len(t.words) {
		t.resize(max(tableMin, (len(t.words)/t.width)*3/2))
	}
	at, found := t.find(k)
	if !found {
		t.n++
		t.lengths[k.length]++
		t.words[at] = k.hi
		if t.width == 3 {
			t.words[at+1] = k.lo
		}
		t.words[at+t.width-1] = uint64(k.length)<<24 | slotUsed
	}
	return at
}

func (t *table) key(at int) key {
	k := key{address{hi: t.words[at]}, uint8(t.words[at+t.width-1] >> 24)}
	if t.width == 3 {
		k.lo = t.words[at+1]
	}
	return k
}

func (t *table) last(at int) *uint64 { return &t.words[at+t.width-1] }

func (t *table) routes(at int) uint32 { return uint32(t.words[at+t.width-1] >> 32) }

func (t *table) setRoutes(at int, routes uint32) {
	w := t.last(at)
	*w = *w&(1<<32-1) | uint64(routes)<<32
}

func (t *table) seen(at int) uint16 { return uint16(*t.last(at)) }

func (t *table) setSeen(at int) {
	w := t.last(at)
	*w = *w&^0xffff | uint64(t.epoch)
}

// remove takes a slot away; what was pushed on by it moves back.
func (t *table) remove(at int) {
	t.n--
	t.lengths[t.key(at).length]--
	n, hole := len(t.words), at
	for i := hole; ; {
		if i += t.width; i == n {
			i = 0
		}
		if *t.last(i)&slotUsed == 0 {
			break
		}
		from := t.start(t.key(i))
		if (i-from+n)%n >= (i-hole+n)%n {
			copy(t.words[hole:hole+t.width], t.words[i:i+t.width])
			hole = i
		}
	}
	clear(t.words[hole : hole+t.width])
	if slots := n / t.width; slots > tableMin && 16*t.n < 3*slots {
		t.resize(max(tableMin, slots/2))
	}
}

// clean notes that a table's prefix is dirty no more, and forgets it if it has no routes. It answers whether it was
// dirty.
func (t *table) clean(k key) (was bool) {
	if t.n == 0 || t.lengths[k.length] == 0 {
		return false
	}
	at, found := t.find(k)
	if !found {
		return false
	}
	last := t.last(at)
	was = *last&slotDirty != 0
	*last &^= slotDirty
	if t.routes(at) == 0 {
		t.remove(at)
	}
	return was
}

// resize makes the hash anew with so many slots. Positions of slots are valid only until then.
func (t *table) resize(slots int) {
	old := t.words
	t.words = make([]uint64, slots*t.width)
	for i := 0; i < len(old); i += t.width {
		slot := old[i : i+t.width]
		if slot[t.width-1]&slotUsed == 0 {
			continue
		}
		k := key{address{hi: slot[0]}, uint8(slot[t.width-1] >> 24)}
		if t.width == 3 {
			k.lo = slot[1]
		}
		at, _ := t.find(k)
		copy(t.words[at:], slot)
	}
}

// each calls for every slot; nothing may be added or removed meanwhile.
func (t *table) each(do func(at int)) {
	for at := 0; at < len(t.words); at += t.width {
		if *t.last(at)&slotUsed != 0 {
			do(at)
		}
	}
}
