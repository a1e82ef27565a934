package fib_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gaissmai/bart"

	"github.com/polyplane/polyplane/node/fib"
)

// FuzzSpoiltWords turns bits in all that a pool left behind, and goes on as an agent does: adopt it or begin anew, read
// it, put new tables in the place of what was found. Whatever was spoilt, nothing panics, and the new tables are right,
// take no other's memory and give all of it back.
func FuzzSpoiltWords(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 11))
		family := fib.Family(random.IntN(2))
		l := newLab(family, fib.Quota{}, t.Fatalf)
		group, err := l.slice.AddGroup([]fib.Member{{NextHop: l.hops[0], Weight: 1}, {NextHop: l.hops[1], Weight: 2}})
		l.must(err)
		l.hops = append(l.hops, group)
		l.apply(filler(family, []int{3, 30, 600}[random.IntN(3)], group))
		for range random.IntN(30) {
			l.apply([]fib.Change{{Prefix: nested(random, family), NextHop: l.hops[random.IntN(len(l.hops))]}})
		}
		l.spoil(random, 1+random.IntN(1<<random.IntN(9)))

		l.pool, err = fib.Adopt(l.mem, len(l.mem.chunks), familyOf(family))
		if err != nil {
			l.pool, err = fib.New(l.mem)
			l.must(err)
		}
		l.readAll(random)
		l.slice = l.pool.NewSlice("new", fib.Quota{})
		l.table = l.slice.NewTable(family)
		one, err := l.slice.AddNextHop(fib.NextHop{Kind: fib.KindForward, Port: 7})
		l.must(err)
		old := l.oracle
		l.oracle = new(bart.Table[fib.ID])
		for p := range old.All() {
			l.apply([]fib.Change{{Prefix: p, NextHop: one}})
		}
		l.must(l.table.Publish(2))
		l.pool.Forget()
		l.checkAll()
		l.pool.Release(l.pool.Mark())
		if u := l.pool.Usage(); u.Live != l.slice.Usage().Bytes || u.NextHops != 1 || u.Resting != 0 {
			t.Fatalf("the pool has %+v, its only slice %+v", u, l.slice.Usage())
		}
		for index, word := range l.mem.Tables() {
			if index != 2 && word&(1<<56-1) != 0 {
				t.Errorf("table %d of nobody is %#x", index, word)
			}
		}
		l.table.Close()
		l.must(l.slice.Drop(one))
		l.pool.Release(l.pool.Mark())
		if u := l.pool.Usage(); u.Live+u.Resting+u.NextHops != 0 {
			t.Fatalf("the empty pool has %+v", u)
		}
	})
}

// spoil turns n bits, most of them in words that mean something.
func (l *lab) spoil(random *rand.Rand, n int) {
	for range n {
		switch random.IntN(4) {
		case 0:
			l.mem.Tables()[random.IntN(4)] ^= 1 << random.IntN(64)
		case 1:
			hops := l.mem.NextHops()
			hops[random.IntN(min(len(hops), 4*14))] ^= 1 << random.IntN(64)
		default:
			chunk := l.mem.chunks[random.IntN(len(l.mem.chunks))]
			at := random.IntN(len(chunk))
			for try := 0; try < 50 && (chunk[at] == 0 || chunk[at] == 0xdeadbeef); try++ {
				at = random.IntN(len(chunk))
			}
			chunk[at] ^= 1 << random.IntN(32)
		}
	}
}

// readAll reads as those do who show tables to somebody.
func (l *lab) readAll(random *rand.Rand) {
	for index := range l.mem.Tables() {
		for range 50 {
			b := make([]byte, 4+12*int(l.family))
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			a, _ := netip.AddrFromSlice(b)
			hop, _, err := l.pool.Lookup(index, l.family, a)
			l.must(err)
			l.pool.Resolve(hop, random.Uint32())
			l.pool.Shares(hop)
		}
	}
	for id := range fib.ID(70) {
		l.pool.Resolve(id, random.Uint32())
		l.pool.Shares(id)
	}
}

// TestReadingSpoiltWords turns bits under a pool that is in use: who looks gets an answer, whatever it says.
func TestReadingSpoiltWords(t *testing.T) {
	random := rand.New(rand.NewPCG(12, 13))
	for range 100 {
		family := fib.Family(random.IntN(2))
		l := newLab(family, fib.Quota{}, t.Fatalf)
		group, err := l.slice.AddGroup([]fib.Member{{NextHop: l.hops[0], Weight: 1}, {NextHop: l.hops[1], Weight: 2}})
		l.must(err)
		l.apply(filler(family, []int{30, 600}[random.IntN(2)], group))
		l.spoil(random, 1+random.IntN(300))
		l.readAll(random)
	}
}
