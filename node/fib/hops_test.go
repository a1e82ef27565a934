package fib_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/node/fib"
)

func newPool(t *testing.T, hops, chunks int) *fib.Pool {
	t.Helper()
	pool, err := fib.New(fib.NewHeap(10_000, hops, chunks))
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestNextHopsAreReadAsWritten(t *testing.T) {
	pool := newPool(t, 16, 1)
	slice := pool.NewSlice("a", fib.Quota{})
	want := fib.NextHop{Kind: fib.KindForward, Port: 1<<24 - 1, MTU: 9000, Destination: fib.MAC{2, 0x80, 3, 4, 5, 0xff},
		Source: fib.MAC{0xfe, 1, 0, 0, 0, 9}}
	id := must[fib.ID](t)(slice.AddNextHop(want))
	if got := pool.Resolve(id, 7); got.NextHop != want || got.ID != id {
		t.Errorf("%+v was read as %+v", want, got)
	}
	want.Kind = fib.KindUnresolved
	if err := slice.SetNextHop(id, want); err != nil {
		t.Fatal(err)
	}
	if got := pool.Resolve(id, 7); got.NextHop != want {
		t.Errorf("%+v was read as %+v", want, got)
	}
	for id, kind := range map[fib.ID]fib.Kind{0: fib.KindNone, fib.LocalID: fib.KindLocal, fib.PuntID: fib.KindPunt,
		fib.ConnectedID: fib.KindConnected, fib.BlackholeID: fib.KindBlackhole, fib.UnreachableID: fib.KindUnreachable,
		fib.ProhibitID: fib.KindProhibit, 15: fib.KindNone, 1 << 30: fib.KindNone} {
		if got := pool.Resolve(id, 0).Kind; got != kind {
			t.Errorf("next hop %d is of kind %s, should be %s", id, got, kind)
		}
	}
}

// TestNextHopsAreNeverReadTorn changes one next hop while others read it: what they read was written in one call.
func TestNextHopsAreNeverReadTorn(t *testing.T) {
	pool := newPool(t, 16, 1)
	slice := pool.NewSlice("a", fib.Quota{})
	state := func(i int) fib.NextHop {
		b := byte(i)
		return fib.NextHop{Kind: fib.KindForward, Port: uint32(b), MTU: uint16(b),
			Destination: fib.MAC{b, b, b, b, b, b},
			Source:      fib.MAC{b, 0, b, 0, b, 0}}
	}
	id := must[fib.ID](t)(slice.AddNextHop(state(0)))
	var stop atomic.Bool
	var readers sync.WaitGroup
	var read atomic.Int64
	for range 3 {
		readers.Go(func() {
			for !stop.Load() {
				got := pool.Resolve(id, 0)
				if got.Kind == fib.KindPunt {
					continue
				}
				if want := state(int(got.Port)); got.NextHop != want {
					t.Errorf("read %+v, which was never written", got)
					return
				}
				read.Add(1)
			}
		})
	}
	for i := 0; (i < 1_000_000 || read.Load() < 100_000) && !t.Failed(); i++ {
		if err := slice.SetNextHop(id, state(i)); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	readers.Wait()
}

// TestGroupsShareByWeight draws groups, changes them, and counts a group's answers over many hashes.
func TestGroupsShareByWeight(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		pool, err := fib.New(fib.NewHeap(1, 64, 2))
		if err != nil {
			r.Fatal(err)
		}
		slice := pool.NewSlice("a", fib.Quota{})
		var hops []fib.ID
		for range 20 {
			id, err := slice.AddNextHop(fib.NextHop{Kind: fib.KindForward})
			if err != nil {
				r.Fatal(err)
			}
			hops = append(hops, id)
		}
		draw := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) fib.Member {
			return fib.Member{NextHop: rapid.SampledFrom(hops).Draw(r, "hop"),
				Weight: rapid.IntRange(1, 20).Draw(r, "weight")}
		}), 1, 12)
		members := draw.Draw(r, "members")
		group, err := slice.AddGroup(members)
		if err != nil {
			r.Fatal(err)
		}
		checkShares(r, pool, group, members)
		members = draw.Draw(r, "changed members")
		if err := slice.SetGroup(group, members); err != nil {
			r.Fatal(err)
		}
		checkShares(r, pool, group, members)
		for _, id := range append(hops, group) {
			if err := slice.Drop(id); err != nil {
				r.Fatal(err)
			}
		}
		pool.Release(pool.Mark())
		if u := pool.Usage(); u.Live+u.Resting+u.NextHops != 0 || slice.Usage() != (fib.Usage{}) {
			r.Fatalf("after everything was dropped: %+v, the slice %+v", u, slice.Usage())
		}
	})
}

func checkShares(r *rapid.T, pool *fib.Pool, group fib.ID, members []fib.Member) {
	const n = 1 << 12
	weights, got, sum := map[fib.ID]int{}, map[fib.ID]int{}, 0
	for _, m := range members {
		weights[m.NextHop] += m.Weight
		sum += m.Weight
	}
	for hash := range uint32(n) {
		got[pool.Resolve(group, hash).ID]++
	}
	for id, count := range got {
		if d := count*sum - n*weights[id]; max(d, -d)*50 > n*weights[id]+50*sum {
			r.Fatalf("next hop %d of a group gets %d of %d flows for weight %d of %d", id, count, n, weights[id], sum)
		}
	}
	if len(got) != len(weights) {
		r.Fatalf("%d next hops of %d in a group are used", len(got), len(weights))
	}
}

func TestAGroupThatLosesAMemberKeepsTheOthersFlows(t *testing.T) {
	pool := newPool(t, 32, 1)
	slice := pool.NewSlice("a", fib.Quota{})
	var members []fib.Member
	for range 4 {
		members = append(members,
			fib.Member{NextHop: must[fib.ID](t)(slice.AddNextHop(fib.NextHop{Kind: fib.KindForward})), Weight: 1})
	}
	group := must[fib.ID](t)(slice.AddGroup(members))
	before := map[uint32]fib.ID{}
	for hash := range uint32(4096) {
		before[hash] = pool.Resolve(group, hash).ID
	}
	if err := slice.SetGroup(group, members[:3]); err != nil {
		t.Fatal(err)
	}
	moved := 0
	for hash, id := range before {
		if now := pool.Resolve(group, hash).ID; now != id && id != members[3].NextHop {
			moved++
		}
	}
	if moved > 4096/50 {
		t.Errorf("%d of 4,096 flows moved from a member that stayed", moved)
	}
}

func TestFlowHashSpreads(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, bits := range []int{4, 16} {
		var counts [16]int
		for i := range 16_000 {
			a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			b := netip.MustParseAddr("2001:db8::1")
			if bits == 4 {
				b = netip.AddrFrom4([4]byte{10, 1, 0, 1})
			} else {
				a = netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i), 14: byte(i >> 8)})
			}
			counts[fib.FlowHash(random.Uint32N(2), a, b, 1000, 80, 6)&15]++
		}
		for bucket, n := range counts {
			if n < 850 || n > 1150 {
				t.Errorf("%d of 16,000 flows are in bucket %d of 16", n, bucket)
			}
		}
	}
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	if got := fib.FlowHash(1, a, b, 2, 3, 17); got != 0xfc5aecb3 {
		t.Errorf("the hash that eBPF computes too has changed: %#x", got)
	}
}

// TestFlowsDivideByChance looks at how flows that differ in little – a port, the end of an address – divide among next
// hops by weight, and, at a second router, among its: as if by chance, whatever the first chose.
func TestFlowsDivideByChance(t *testing.T) {
	const n = 20_000
	four, six := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8:1::3")
	last := func(a netip.Addr, i int) netip.Addr {
		b := a.AsSlice()
		b[len(b)-1], b[len(b)-2] = byte(i), b[len(b)-2]+byte(i>>8)
		a, _ = netip.AddrFromSlice(b)
		return a
	}
	patterns := map[string]func(seed uint32, i int) uint32{
		"source ports": func(s uint32, i int) uint32 {
			return fib.FlowHash(s, four, four.Next(),
				uint16(32768+i), 443, 6)
		},
		"destination ports": func(s uint32, i int) uint32 {
			return fib.FlowHash(s, four, four.Next(),
				4000, uint16(i), 17)
		},
		"IPv4 sources": func(s uint32, i int) uint32 {
			return fib.FlowHash(s, last(four, i),
				four, 5000, 80, 6)
		},
		"IPv4 destinations": func(s uint32, i int) uint32 { return fib.FlowHash(s, four, last(four, i), 0, 0, 1) },
		"IPv6 destinations": func(s uint32, i int) uint32 { return fib.FlowHash(s, six, last(six, i), 0, 0, 58) },
		"IPv6 sources and ports": func(s uint32, i int) uint32 {
			return fib.FlowHash(s, last(six, i%100), six,
				uint16(i/100*2), 53, 17)
		},
	}
	weights := []int{1, 1, 2, 4}
	pool := newPool(t, 32, 4)
	slice := pool.NewSlice("a", fib.Quota{})
	place := map[fib.ID]int{}
	var members []fib.Member
	for i, w := range weights {
		id := must[fib.ID](t)(slice.AddNextHop(fib.NextHop{Kind: fib.KindForward}))
		place[id], members = i, append(members, fib.Member{NextHop: id, Weight: w})
	}
	group := must[fib.ID](t)(slice.AddGroup(members))
	random := rand.New(rand.NewPCG(15, 16))
	for name, hash := range patterns {
		for range 5 {
			first, second := random.Uint32(), random.Uint32()
			var counts [4][4]float64
			for i := range n {
				counts[place[pool.Resolve(group, hash(first, i)).ID]][place[pool.Resolve(group, hash(second, i)).ID]]++
			}
			chi := 0.0 // of 15 degrees of freedom: one in a million is beyond 58
			for i, a := range weights {
				for j, b := range weights {
					expected := float64(n*a*b) / 64
					chi += (counts[i][j] - expected) * (counts[i][j] - expected) / expected
				}
			}
			if chi > 58 {
				t.Errorf("flows that differ in %s, seeds %#x, %#x: chi square %.0f, %v", name, first,
					second, chi, counts)
			}
		}
	}
}

// TestNextHopsLiveAsLongAsTheyAreUsed drops next hops that routes and groups still use.
func TestNextHopsLiveAsLongAsTheyAreUsed(t *testing.T) {
	pool := newPool(t, 9, 4) // two beside those built in
	slice := pool.NewSlice("a", fib.Quota{})
	add := func() (fib.ID, error) { return slice.AddNextHop(fib.NextHop{Kind: fib.KindForward, Port: 5}) }
	hop := must[fib.ID](t)(add())
	group := must[fib.ID](t)(slice.AddGroup([]fib.Member{{NextHop: hop, Weight: 1}}))
	table := slice.NewTable(fib.IPv4)
	p := netip.MustParsePrefix("10.0.0.0/8")
	if err := errors.Join(table.Publish(0), table.Insert(p, group), slice.Drop(hop), slice.Drop(group)); err != nil {
		t.Fatal(err)
	}
	id, _ := table.Lookup(netip.MustParseAddr("10.1.2.3"))
	if got := pool.Resolve(id, 1); got.Port != 5 || got.ID != hop {
		t.Errorf("a route's next hop is %+v after it was dropped", got)
	}
	if err := table.Insert(netip.MustParsePrefix("11.0.0.0/8"), hop); err == nil {
		t.Error("a route took a next hop that was dropped")
	}
	if err := table.Delete(p); err != nil {
		t.Fatal(err)
	}
	if _, err := add(); !errors.Is(err, fib.ErrFull) ||
		!strings.Contains(err.Error(), "2 of them until readers are done") {
		t.Errorf("a next hop's number came back before readers were done: %v", err)
	}
	if got := pool.Resolve(id, 1); got.Port != 5 {
		t.Errorf("what a reader still has changed before it was done: %+v", got)
	}
	pool.Release(pool.Mark())
	must[fib.ID](t)(add())
	must[fib.ID](t)(add())
}

func TestWrongNextHopsAreRefused(t *testing.T) {
	pool := newPool(t, 32, 4)
	a, b := pool.NewSlice("a", fib.Quota{NextHops: 2}), pool.NewSlice("b", fib.Quota{})
	forward := fib.NextHop{Kind: fib.KindForward}
	hop := must[fib.ID](t)(a.AddNextHop(forward))
	group := must[fib.ID](t)(a.AddGroup([]fib.Member{{NextHop: hop, Weight: 1}}))
	table := b.NewTable(fib.IPv4)
	p := netip.MustParsePrefix("10.0.0.0/8")
	for what, c := range map[string]struct {
		err  error
		says string
	}{
		"another slice's":    {table.Insert(p, hop), "slice b has no next hop"},
		"none":               {table.Insert(p, 0), "next hop 0 is none"},
		"unknown":            {table.Insert(p, 31), "slice b has no next hop 31"},
		"other family":       {table.Insert(netip.MustParsePrefix("::/0"), fib.PuntID), "no IPv4 prefix"},
		"invalid prefix":     {table.Insert(netip.Prefix{}, fib.PuntID), "no IPv4 prefix"},
		"over quota":         {second(a.AddNextHop(forward)), "slice a: one next hop more would exceed its quota of 2"},
		"group in group":     {a.SetGroup(group, []fib.Member{{NextHop: group, Weight: 1}}), "is a group"},
		"empty group":        {a.SetGroup(group, nil), "1 to 512"},
		"weight 0":           {a.SetGroup(group, []fib.Member{{NextHop: hop}}), "weight 0"},
		"group as hop":       {a.SetNextHop(group, forward), "is a group"},
		"hop as group":       {a.SetGroup(hop, []fib.Member{{NextHop: hop, Weight: 1}}), "is no group"},
		"kind":               {a.SetNextHop(hop, fib.NextHop{Kind: fib.KindGroup}), `kind "group"`},
		"port":               {a.SetNextHop(hop, fib.NextHop{Kind: fib.KindForward, Port: 1 << 24}), "below 2^24"},
		"dropping another's": {b.Drop(hop), "slice b has no next hop"},
		"dropping built-in":  {a.Drop(fib.PuntID), "slice a has no next hop 3"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: the error should say %q: %v", what, c.says, c.err)
		}
	}
	if table.Usage().Routes != 0 {
		t.Errorf("refused routes are in the table: %+v", table.Usage())
	}
}

func second[T any](_ T, err error) error { return err }
