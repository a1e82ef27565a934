package fib

import "math/bits"

const maxOrder = 12 // a block of order 12 is a chunk

// buddy hands out runs of units from chunks, each run within one chunk, and merges what comes back. A run of n units is
// taken from the smallest free power of two that holds it and the rest is given back, so nothing is lost to rounding.
type buddy struct {
	chunks []buddyChunk
	avail  [maxOrder + 1][]uint64 // by order: a bit for each chunk that has a free block of it
}

// buddyChunk has a bit for each free block: order 0 has 4,096 blocks in words 0…63, order 1 has 2,048 in words 64…95,
// …; from order 6 on each has a word of its own.
type buddyChunk struct {
	free  [133]uint64
	count [maxOrder + 1]uint16
}

var orderAt = func() (at [maxOrder + 1]int) {
	next := 0
	for o := range at {
		at[o] = next
		next += max(1, chunkUnits>>o/64)
	}
	return at
}()

// add adds a chunk behind the others, nothing of it free.
func (b *buddy) add() {
	b.chunks = append(b.chunks, buddyChunk{})
	if len(b.chunks) > 64*len(b.avail[0]) {
		for o := range b.avail {
			b.avail[o] = append(b.avail[o], 0)
		}
	}
}

// grow adds a free chunk behind the others.
func (b *buddy) grow() {
	b.add()
	b.put(len(b.chunks)-1, maxOrder, 0)
}

// alloc takes a run of n units, 1…4096, or says that no chunk has one.
func (b *buddy) alloc(n int) (unit uint32, ok bool) {
	order := bits.Len(uint(n - 1))
	for o := order; o <= maxOrder; o++ {
		for i, word := range b.avail[o] {
			if word == 0 {
				continue
			}
			chunk := 64*i + bits.TrailingZeros64(word)
			at := b.first(chunk, o)
			b.take(chunk, o, at)
			for at <<= o; o > order; {
				o--
				b.put(chunk, o, (at>>o)+1)
			}
			unit = uint32(chunk*chunkUnits + at)
			if rest := 1<<order - n; rest > 0 {
				b.release(unit+uint32(n), rest)
			}
			return unit, true
		}
	}
	return 0, false
}

// release gives a run back.
func (b *buddy) release(unit uint32, n int) {
	chunk, at := int(unit/chunkUnits), int(unit%chunkUnits)
	for n > 0 {
		o := min(bits.Len(uint(n))-1, bits.TrailingZeros(uint(at|chunkUnits)))
		size, block := 1<<o, at>>o
		for o < maxOrder && b.isFree(chunk, o, block^1) {
			b.take(chunk, o, block^1)
			block >>= 1
			o++
		}
		b.put(chunk, o, block)
		at += size
		n -= size
	}
}

func (b *buddy) isFree(chunk, order, block int) bool {
	return b.chunks[chunk].free[orderAt[order]+block/64]>>(block%64)&1 != 0
}

func (b *buddy) first(chunk, order int) int {
	at := orderAt[order]
	for i := 0; ; i++ {
		if word := b.chunks[chunk].free[at+i]; word != 0 {
			return 64*i + bits.TrailingZeros64(word)
		}
	}
}

func (b *buddy) put(chunk, order, block int) {
	c := &b.chunks[chunk]
	c.free[orderAt[order]+block/64] |= 1 << (block % 64)
	if c.count[order]++; c.count[order] == 1 {
		b.avail[order][chunk/64] |= 1 << (chunk % 64)
	}
}

func (b *buddy) take(chunk, order, block int) {
	c := &b.chunks[chunk]
	c.free[orderAt[order]+block/64] &^= 1 << (block % 64)
	if c.count[order]--; c.count[order] == 0 {
		b.avail[order][chunk/64] &^= 1 << (chunk % 64)
	}
}
