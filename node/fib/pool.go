package fib

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrFull is in every error that says that memory, next hops or a quota are used up; Lacking says which. The table is
// then as it was before the change that failed. The caller has what it cannot hold forwarded by the guest (Table.Punt).
var ErrFull = errors.New("full")

// Pool is the words of one node: the tables, nodes and next hops of all its routers, and what Go must know about them.
// mu is held by every writer. Readers of the words hold no lock: they rely on the order of stores that doc.go
// describes.
type Pool struct {
	mu       sync.Mutex
	tables   []uint64
	hopWords []uint64
	memory   Memory
	chunks   atomic.Pointer[[][]uint32] // the list is replaced when memory grows, so readers need no lock
	buddy    buddy
	live     int // units that tables use
	resting  int // units that wait for Release

	hops      []hop // Go's side of the next hops, as far as ever used
	freeHops  []ID
	restHops  int    // next hops that wait for Release
	published []bool // by number of table

	found *found // by Adopt

	shares Shares
	owners map[*Slice]struct{} // whose quotas are their own

	// rest is a queue in the order in which things became unreachable. Each thing has a number, counted from the pool's
	// beginning, and a Mark is such a number: Release frees all things with a smaller one.
	rest     []resting
	restHead uint64 // the number of rest[0]

	routes []route // scratch memory for sorting
	undo   []route // what a batch has replaced, in case it fails
	gone   []ID    // next hops that routes no longer use; unref'd once no word names them
}

// resting is something that readers may still look at: a run of units, or, if units is 0, a next hop.
type resting struct {
	what  uint32
	units uint32
}

// Mark is a moment in a pool's life: how many things had become unreachable by then.
type Mark uint64

// Slice is a share of the pool. The tables and next hops of one virtual network count against it.
type Slice struct {
	pool  *Pool
	name  string
	quota Quota
	usage Usage
}

// Quota bounds a slice; 0 means that nothing but the pool bounds it.
type Quota struct {
	Bytes    int // of nodes and blocks
	NextHops int // groups count like others
	Routes   int // bounds the copy of the routes that the pool keeps for itself
	// Owned keeps the pool from giving others what the slice may have and does not use.
	Owned bool
}

// Usage is what a slice has. What rests until readers are done is no longer counted here, but in PoolUsage.
type Usage struct {
	Bytes    int // nodes and blocks in the shared words
	NextHops int
	Routes   int
	Copy     int // bytes of the pool's own copies of the routes, not in the shared words
}

// PoolUsage is what the whole pool has.
type PoolUsage struct {
	Chunks   int // each 256 KiB
	Live     int // bytes of nodes and blocks in use
	Resting  int // bytes that wait for Release
	NextHops int // in use or resting, without the built-in ones
}

// New makes a pool on mem, and overwrites its words.
func New(mem Memory) (*Pool, error) {
	p, err := newPool(mem)
	if err != nil {
		return nil, err
	}
	for i := range p.tables {
		atomic.StoreUint64(&p.tables[i], 0)
	}
	for i := range p.hopWords {
		atomic.StoreUint64(&p.hopWords[i], 0)
	}
	for id := range builtins {
		atomic.StoreUint64(&p.hopWords[hopWords*int(id)], uint64(id))
	}
	return p, nil
}

func newPool(mem Memory) (*Pool, error) {
	p := &Pool{memory: mem, tables: mem.Tables(), hopWords: mem.NextHops(), hops: make([]hop, builtins),
		owners: map[*Slice]struct{}{}}
	if len(p.hopWords) < hopWords*int(builtins) {
		return nil, fmt.Errorf("memory for next hops has %d words: %d is the least", len(p.hopWords),
			hopWords*int(builtins))
	}
	p.published = make([]bool, len(p.tables))
	p.chunks.Store(new([][]uint32))
	return p, nil
}

// NewSlice opens a share of the pool. The name is for errors.
func (p *Pool) NewSlice(name string, quota Quota) *Slice {
	s := &Slice{pool: p, name: name}
	s.SetQuota(quota)
	return s
}

// SetQuota changes the slice's quota. Being over it keeps what there is, and refuses more.
func (s *Slice) SetQuota(q Quota) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.quota = q
	if q.Owned {
		s.pool.owners[s] = struct{}{}
	} else {
		delete(s.pool.owners, s)
	}
}

// Usage tells what the slice has.
func (s *Slice) Usage() Usage {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.usage
}

// Usage tells what the pool has.
func (p *Pool) Usage() PoolUsage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PoolUsage{
		Chunks: len(p.buddy.chunks), Live: p.live * unitBytes, Resting: p.resting * unitBytes,
		NextHops: len(p.hops) - int(builtins) - len(p.freeHops),
	}
}

// Mark names this moment for Release.
func (p *Pool) Mark() Mark {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Mark(p.restHead + uint64(len(p.rest)))
}

// Release makes everything that became unreachable before m usable again. Before the call, each reader that was
// searching at m must have finished. For eBPF programs that holds after an RCU grace period, or after more time than a
// program can run.
func (p *Pool) Release(m Mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(uint64(m)-min(p.restHead, uint64(m)), uint64(len(p.rest)))
	for _, r := range p.rest[:n] {
		if r.units > 0 {
			p.resting -= int(r.units)
			p.buddy.release(r.what, int(r.units))
			continue
		}
		atomic.StoreUint64(&p.hopWords[hopWords*r.what], 0)
		p.freeHops = append(p.freeHops, ID(r.what))
		p.restHops--
	}
	p.rest = p.rest[n:]
	p.restHead += n
	if len(p.rest) == 0 {
		p.rest = nil
	}
}

// alloc takes a run of units for s. Its words still have what their last user wrote. credit is how many units of s the
// run replaces and will retire next: these do not count against the quota, or a slice at its quota could change
// nothing.
func (p *Pool) alloc(s *Slice, units, credit int) (uint32, error) {
	if q := s.quota.Bytes; q > 0 && units > credit && s.usage.Bytes+(units-credit)*unitBytes > q {
		return 0, fmt.Errorf("%w: %w",
			lacking(LackBytes, false, "slice %s: %d bytes more for its tables would exceed its quota of %d (%d in use)",
				s.name, (units-credit)*unitBytes, q, s.usage.Bytes), ErrFull)
	}
	if more := (units - credit) * unitBytes; more > 0 && !p.hasBytes(s, more) {
		return 0, fmt.Errorf("%w: %w", lacking(LackBytes, true,
			"slice %s: %d bytes more for its tables: the pool has %d for all slices (%d in use)",
			s.name, more, p.shares.Bytes, p.live*unitBytes), ErrFull)
	}
	unit, ok := p.buddy.alloc(units)
	if !ok {
		if err := p.grow(); err != nil {
			return 0, fmt.Errorf("%w: %w: %w", lacking(LackBytes, true,
				"slice %s: %d bytes more for its tables (%d bytes rest until readers are done)",
				s.name, units*unitBytes, p.resting*unitBytes), ErrFull, err)
		}
		unit, _ = p.buddy.alloc(units)
	}
	p.live += units
	s.usage.Bytes += units * unitBytes
	return unit, nil
}

func (p *Pool) grow() error {
	chunks := *p.chunks.Load()
	if len(chunks) == maxUnits/chunkUnits {
		return errors.New("unit numbers have 28 bits")
	}
	chunk, err := p.memory.Chunk(len(chunks))
	if err != nil {
		return err
	}
	if len(chunk) != ChunkWords {
		return fmt.Errorf("chunk %d has %d words instead of %d", len(chunks), len(chunk), ChunkWords)
	}
	chunks = append(chunks[:len(chunks):len(chunks)], chunk)
	p.chunks.Store(&chunks)
	p.buddy.grow()
	return nil
}

// free takes a run away from s: at once if no reader can know it, else when readers are done.
func (p *Pool) free(s *Slice, unit uint32, units int, seen bool) {
	s.usage.Bytes -= units * unitBytes
	p.live -= units
	if !seen {
		p.buddy.release(unit, units)
		return
	}
	p.resting += units
	p.rest = append(p.rest, resting{unit, uint32(units)})
}

// words returns the words of a run. A chunk is in the list before any word names a unit of it. So a reader must load
// the list after the word that names the unit.
func (p *Pool) words(unit uint32, n int) []uint32 {
	at := int(unit%chunkUnits) * unitWords
	return (*p.chunks.Load())[unit/chunkUnits][at : at+n : at+n]
}
