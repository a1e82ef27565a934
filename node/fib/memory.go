package fib

import "fmt"

// Sizes of the word space.
const (
	ChunkWords = 1 << 16 // 32-bit words in a chunk
	unitWords  = 16      // 32-bit words in a unit, the smallest piece
	unitBytes  = 4 * unitWords
	chunkUnits = ChunkWords / unitWords
	maxUnits   = 1 << 28
	hopWords   = 4 // 64-bit words of a next hop
)

// Memory is where the words live. It must not move as long as the pool and its readers live. New ignores and overwrites
// its content; Adopt takes it over.
type Memory interface {
	// Tables has one word for each table that can be published.
	Tables() []uint64
	// NextHops has four words for each next hop; the first seven are the pool's own. At most 2^24 next hops are used.
	NextHops() []uint64
	// Chunk gives chunk i, ChunkWords long and 64-byte aligned. It is asked for chunks 0, 1, 2… as they are needed,
	// each once, and answers an error when there is no more.
	Chunk(i int) ([]uint32, error)
}

// Heap is Memory on Go's heap.
type Heap struct {
	tables, nextHops []uint64
	chunks           int
}

// NewHeap gives memory for so many tables and next hops, which grows up to so many chunks.
func NewHeap(tables, nextHops, chunks int) *Heap {
	return &Heap{make([]uint64, tables), make([]uint64, hopWords*nextHops), chunks}
}

// Tables is Memory's.
func (h *Heap) Tables() []uint64 { return h.tables }

// NextHops is Memory's.
func (h *Heap) NextHops() []uint64 { return h.nextHops }

// Chunk is Memory's.
func (h *Heap) Chunk(i int) ([]uint32, error) {
	if i >= h.chunks {
		return nil, fmt.Errorf("all %d chunks of %d KiB are in use", h.chunks, ChunkWords*4/1024)
	}
	return make([]uint32, ChunkWords), nil
}
