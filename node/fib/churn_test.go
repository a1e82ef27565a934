package fib_test

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gaissmai/bart"

	"github.com/polyplane/polyplane/node/fib"
)

// churn changes a table while readers look, and knows for each moment what was right. A version is the state after a
// change; a reader notes which version was complete when it began and which had begun when it ended, and its answer
// must be right in one of these.
type churn struct {
	*lab
	states   []atomic.Pointer[bart.Table[fib.ID]]
	begun    atomic.Int64
	complete atomic.Int64
	probes   []netip.Addr
	stop     atomic.Bool
	readers  []churnReader
	group    sync.WaitGroup
}

type churnReader struct {
	rounds atomic.Int64 // look-ups that have ended
	_      [56]byte
}

func (c *churn) read(t *testing.T, me *churnReader, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	for !c.stop.Load() {
		a := c.probes[random.IntN(len(c.probes))]
		from := c.complete.Load()
		hop, length := c.table.Lookup(a)
		to := c.begun.Load()
		if me.rounds.Add(1)%64 == 0 {
			runtime.Gosched()
		}
		if hop == fib.PuntID && length == 0 {
			continue // it gave up, which is right, and slow
		}
		right := false
		for v := from; v <= to && !right; v++ {
			want, hopWant, _ := c.states[v].Load().LookupPrefixLPM(netip.PrefixFrom(a, a.BitLen()))
			right = hop == hopWant && (hop == 0 || length == want.Bits())
		}
		if !right {
			t.Errorf("%s: next hop %d by a prefix of length %d was right in no version from %d to %d", a,
				hop, length, from, to)
			c.stop.Store(true)
		}
	}
}

// next makes the next versions: one for each change, or one for all of them.
func (c *churn) next(do func() error, changes []fib.Change, once bool) {
	v := c.begun.Load()
	state := c.states[v].Load()
	for _, change := range changes {
		if change.NextHop == 0 {
			state = state.DeletePersist(change.Prefix)
		} else {
			state = state.InsertPersist(change.Prefix, change.NextHop)
		}
		if !once {
			v++
			c.states[v].Store(state)
		}
	}
	if once {
		v++
		c.states[v].Store(state)
	}
	c.begun.Store(v)
	c.must(do())
	c.complete.Store(v)
}

// grace waits until each reader has ended a look-up that it may have begun by now, and lets the pool use again what
// rests.
func (c *churn) grace() {
	mark := c.pool.Mark()
	for i := range c.readers {
		r := &c.readers[i]
		for was := r.rounds.Load(); r.rounds.Load() < was+2 && !c.stop.Load(); {
			runtime.Gosched()
		}
	}
	c.pool.Release(mark)
}

// TestReadersSeeOnlyWhatWasRight churns routes, defaults, shapes and whole tables under readers, with memory used again
// as soon as it may be.
func TestReadersSeeOnlyWhatWasRight(t *testing.T) {
	for _, family := range []fib.Family{fib.IPv4, fib.IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			const rounds = 1000
			c := &churn{lab: newLab(family, fib.Quota{}, t.Fatalf), readers: make([]churnReader, 2)}
			c.states = make([]atomic.Pointer[bart.Table[fib.ID]], rounds*40)
			c.states[0].Store(new(bart.Table[fib.ID]))
			random := rand.New(rand.NewPCG(7, uint64(family)))
			var known []netip.Prefix
			for len(known) < 60 {
				known = append(known, nested(random, family))
			}
			for _, p := range known {
				c.probes = append(c.probes, probes(p)...)
			}
			for i := range c.readers {
				c.group.Go(func() { c.read(t, &c.readers[i], uint64(i)) })
			}
			defer c.group.Wait()
			defer c.stop.Store(true)

			shapes := map[fib.Shape]int{}
			fill, filled := filler(family, 600, c.hops[0]), false
			for i := 0; i < rounds && !c.stop.Load(); i++ {
				var changes []fib.Change
				for range 1 + random.IntN(6) {
					change := fib.Change{Prefix: known[random.IntN(len(known))]}
					if random.IntN(3) > 0 {
						change.NextHop = c.hops[random.IntN(len(c.hops))]
					}
					if random.IntN(4) == 0 {
						change.Prefix = netip.PrefixFrom(change.Prefix.Addr(), 0).Masked()
					}
					changes = append(changes, change)
				}
				switch random.IntN(40) {
				case 0: // the other shape
					filled = !filled
					for i := range fill {
						fill[i].NextHop = 0
						if filled {
							fill[i].NextHop = c.hops[0]
						}
					}
					c.next(func() error { _, err := c.table.Apply(fill); return err }, fill, true)
				case 1, 2: // a new table
					next := c.slice.NewTable(family)
					for p, id := range c.states[c.begun.Load()].Load().All() {
						changes = append(changes, fib.Change{Prefix: p, NextHop: id})
					}
					random.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
					_, err := next.Apply(changes)
					c.must(err)
					c.next(func() error { return c.table.Swap(next) }, changes, true)
				default:
					c.next(func() error { _, err := c.table.Apply(changes); return err }, changes,
						c.table.Usage().Shape != fib.ShapeTrie)
				}
				shapes[c.table.Usage().Shape]++
				if random.IntN(4) == 0 {
					c.grace()
				}
			}
			c.oracle = c.states[c.complete.Load()].Load()
			if !t.Failed() {
				c.checkAll()
			}
			read := int64(0)
			for i := range c.readers {
				read += c.readers[i].rounds.Load()
			}
			t.Logf("%d look-ups during %d changes; shapes %v", read, c.complete.Load(), shapes)
			if shapes[fib.ShapeTrie] == 0 || shapes[fib.ShapeRanges] == 0 || read == 0 {
				t.Errorf("%d look-ups in shapes %v: ranges and tries should be seen", read, shapes)
			}
		})
	}
}

// nested draws a prefix within few patterns, so that many lie within each other.
func nested(random *rand.Rand, f fib.Family) netip.Prefix {
	b := make([]byte, (32+96*int(f))/8)
	for i := range b {
		b[i] = []byte{0, 0, 0xff, 0x80}[random.IntN(4)]
	}
	b[0] = 10
	b[1] &= 0x80
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, 4+random.IntN(8*len(b)-3)).Masked()
}
