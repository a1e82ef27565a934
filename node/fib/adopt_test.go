package fib_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/node/fib"
)

func familyOf(f fib.Family) func(int) fib.Family { return func(int) fib.Family { return f } }

// TestAPoolThatDiedIsAdopted leaves a pool as it is at any moment, adopts its words, puts a new table in the old one's
// place while both answer alike, and asserts that nothing of the old one is left in the end.
func TestAPoolThatDiedIsAdopted(t *testing.T) {
	for _, family := range []fib.Family{fib.IPv4, fib.IPv6} {
		t.Run(family.String(), rapid.MakeCheck(func(t *rapid.T) {
			l := newLab(family, fib.Quota{}, t.Fatalf)
			group, err := l.slice.AddGroup([]fib.Member{{NextHop: l.hops[0], Weight: 1},
				{NextHop: l.hops[1], Weight: 3}})
			l.must(err)
			old := append(l.hops, group)
			l.hops = old
			if rapid.Bool().Draw(t, "trie") {
				l.apply(filler(family, 600, group))
			}
			for range rapid.IntRange(0, 5).Draw(t, "batches") {
				l.apply(rapid.SliceOfN(aChange(l), 1, 20).Draw(t, "batch"))
			}
			used := l.table.Usage()
			choices := func() (list []fib.Hop) {
				for hash := range uint32(64) {
					list = append(list, l.pool.Resolve(group, hash))
				}
				return list
			}
			before := choices()

			l.pool, err = fib.Adopt(l.mem, len(l.mem.chunks), familyOf(family))
			l.must(err)
			if got := choices(); fmt.Sprint(got) != fmt.Sprint(before) {
				t.Fatalf("the group chooses %v, before %v", got, before)
			}
			if u := l.pool.Usage(); u.NextHops != 6 || u.Live != used.Bytes+64 || u.Resting != 0 {
				t.Fatalf("6 next hops, a table of %d bytes and a group were found as %+v", used.Bytes, u)
			}
			for p := range l.oracle.All() {
				l.check(p)
			}
			l.takeOver(t, old)
		}))
	}
}

func (l *lab) takeOver(t *rapid.T, old []fib.ID) {
	l.slice = l.pool.NewSlice("new", fib.Quota{})
	l.table = l.slice.NewTable(l.family)
	if err := l.table.Insert(netip.PrefixFrom(netip.IPv4Unspecified(), 0), old[0]); l.family == fib.IPv4 && err == nil {
		t.Fatal("a route took a next hop that was found")
	}
	became := map[fib.ID]fib.ID{fib.BlackholeID: fib.BlackholeID, fib.LocalID: fib.LocalID}
	for _, id := range old[:5] {
		var err error
		became[id], err = l.slice.AddNextHop(fib.NextHop{Kind: fib.KindForward})
		l.must(err)
	}
	group := old[len(old)-1]
	var err error
	became[group], err = l.slice.AddGroup([]fib.Member{{NextHop: became[old[0]], Weight: 1}})
	l.must(err)
	var all []fib.Change
	for p, id := range l.oracle.All() {
		all = append(all, fib.Change{Prefix: p, NextHop: became[id]})
	}
	_, err = l.table.Apply(all)
	l.must(err)
	for p := range l.oracle.All() {
		l.check(p) // still the old one
	}
	l.must(l.table.Publish(2))
	l.pool.Forget()
	l.tell(all)
	l.groups = 64
	l.checkAll()
	l.pool.Release(l.pool.Mark())
	if u := l.pool.Usage(); u.Live != l.slice.Usage().Bytes ||
		u.NextHops != l.slice.Usage().NextHops || u.Resting != 0 {
		t.Fatalf("the pool has %+v, its only slice %+v", u, l.slice.Usage())
	}
	l.must(l.slice.Drop(became[group]))
	l.hops, l.groups = nil, 0
	for _, id := range old[:5] {
		l.hops = append(l.hops, became[id])
	}
	l.empty()
}

func TestWhatNothingReplacedIsForgotten(t *testing.T) {
	l := newLab(fib.IPv4, fib.Quota{}, t.Fatalf)
	l.apply(filler(fib.IPv4, 20, l.hops[0]))
	pool := must[*fib.Pool](t)(fib.Adopt(l.mem, len(l.mem.chunks), familyOf(fib.IPv4)))
	pool.Forget()
	pool.Forget()
	if hop, _, err := pool.Lookup(2, fib.IPv4, netip.MustParseAddr("203.0.0.1")); hop != 0 || err != nil {
		t.Errorf("a table that was forgotten answers %d, %v", hop, err)
	}
	pool.Release(pool.Mark())
	if u := pool.Usage(); u.Live+u.Resting+u.NextHops != 0 {
		t.Errorf("after all was forgotten: %+v", u)
	}
}

// TestDamageIsFound: what a reader could stumble over is refused, whatever bits were turned.
func TestDamageIsFound(t *testing.T) {
	for _, family := range []fib.Family{fib.IPv4, fib.IPv6} {
		l := newLab(family, fib.Quota{}, t.Fatalf)
		group := must[fib.ID](t)(l.slice.AddGroup([]fib.Member{{NextHop: l.hops[0], Weight: 1}}))
		l.apply(filler(family, 30, group))
		adopt := func() error {
			return second(fib.Adopt(l.mem, len(l.mem.chunks), familyOf(family)))
		}
		table := &l.mem.Tables()[2]
		for what, damage := range map[string]struct {
			word *uint64
			to   uint64
		}{
			"is not there":                  {table, *table | 63},
			"not within a chunk":            {table, *table | 0xfffffff<<28},
			"shape 13 is not known":         {table, *table&^(15<<24) | 13<<24},
			"is in use twice":               {table, *table&^(0xfffffff<<28) | l.mem.NextHops()[4*group]>>16<<28},
			"is of kind 12":                 {&l.mem.NextHops()[4*8], 12},
			"next hop 3 is built in":        {&l.mem.NextHops()[4*3], 4},
			"next hop 7 is named, and is n": {&l.mem.NextHops()[4*7], 0},
		} {
			was := *damage.word
			*damage.word = damage.to
			if err := adopt(); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("the error should say %q: %v", what, err)
			}
			*damage.word = was
		}
		if err := adopt(); err != nil {
			t.Errorf("what is whole: %v", err)
		}

		l.apply(filler(family, 600, group))
		random, found := rand.New(rand.NewPCG(1, 1)), 0
		for range 500 { // either it is found or it is harmless to readers
			word := &l.mem.chunks[random.IntN(len(l.mem.chunks))][random.IntN(1<<16)]
			was := *word
			*word ^= 1 << random.IntN(32)
			pool, err := fib.Adopt(l.mem, len(l.mem.chunks), familyOf(family))
			if err != nil {
				found++
			} else {
				for p := range l.oracle.All() {
					for _, a := range probes(p) {
						if hop, _, err := pool.Lookup(2, family, a); err != nil ||
							pool.Resolve(hop, 3).Kind == fib.KindNone && hop != 0 {
							t.Fatalf("%s: next hop %d, %v", a, hop, err)
						}
					}
				}
			}
			*word = was
		}
		if found < 50 {
			t.Errorf("%d of 500 damages found", found)
		}
	}
}
