package pipeline

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/fib/internet"
)

var _ fib.Memory = (*FIB)(nil)

// walker answers queries with the C code that the pipeline uses, on the pipeline's own tables.
type walker struct {
	*Pipeline
	*ebpf.Collection
	queries []walkQuery
}

func newWalker(t testing.TB) *walker {
	t.Helper()
	w := &walker{Pipeline: open(t, mount(t))}
	spec, err := loadWalk()
	if err != nil {
		t.Fatal(err)
	}
	w.Collection, err = ebpf.NewCollectionWithOptions(spec,
		ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{
			walkMapFibChunks: w.fibChunks, walkMapFibTables: w.fibTables, walkMapFibHops: w.fibHops}})
	if err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			t.Fatalf("%+v", refused)
		}
		t.Fatal(err)
	}
	t.Cleanup(w.Collection.Close)
	m := w.Maps[walkMapQueries]
	size := int(m.MaxEntries()) * int(unsafe.Sizeof(walkQuery{}))
	data, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(data) })
	w.queries = unsafe.Slice((*walkQuery)(unsafe.Pointer(&data[0])), m.MaxEntries())
	return w
}

func (w *walker) pool(t testing.TB) *fib.Pool {
	t.Helper()
	p, err := fib.New(w.FIB)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var programOf = map[fib.Family]string{fib.IPv4: walkProgLook4, fib.IPv6: walkProgLook6}

// look answers the first queries, count of them in turn.
func (w *walker) look(t testing.TB, program string, queries, count int, hops bool) {
	t.Helper()
	for name, value := range map[string]uint32{"count": uint32(count), "mask": uint32(queries - 1),
		"hops": uint32(b2i(hops))} {
		if err := w.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Programs[program].Run(&ebpf.RunOptions{}); err != nil {
		t.Fatal(err)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func queryOf(a netip.Addr, table int, hash uint32) walkQuery {
	q := walkQuery{Table: uint32(table), Hash: hash}
	if a.Is4() {
		b := a.As4()
		q.Hi = uint64(binary.BigEndian.Uint32(b[:])) << 32
		return q
	}
	b := a.As16()
	q.Hi, q.Lo = binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
	return q
}

// about gives addresses in, at the edges of and just beside prefixes.
func about(random *rand.Rand, prefixes []netip.Prefix, n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	for i := range addrs {
		p := prefixes[random.IntN(len(prefixes))]
		b := p.Masked().Addr().AsSlice()
		fill := random.IntN(3) // zeros: the first; ones: the last; anything
		for j := p.Bits(); j < len(b)*8; j++ {
			if fill == 1 || fill == 2 && random.IntN(2) == 0 {
				b[j/8] |= 0x80 >> (j % 8)
			}
		}
		a, _ := netip.AddrFromSlice(b)
		switch random.IntN(8) {
		case 0:
			a = a.Next()
		case 1:
			a = a.Prev()
		}
		if !a.IsValid() {
			a = p.Addr()
		}
		addrs[i] = a
	}
	return addrs
}

// check compares the answers for addresses with Go's own look-up and next hops.
func (w *walker) check(t *testing.T, pool *fib.Pool, f fib.Family, tables []int, addrs []netip.Addr,
	random *rand.Rand) {
	t.Helper()
	n := 1
	for n < len(addrs) {
		n *= 2
	}
	for i := range n {
		w.queries[i] = queryOf(addrs[i%len(addrs)], tables[i%len(tables)], random.Uint32())
	}
	w.look(t, programOf[f], n, n, true)
	for i := range n {
		q, a := &w.queries[i], addrs[i%len(addrs)]
		found, _, err := pool.Lookup(int(q.Table), f, a)
		if err != nil {
			t.Fatal(err)
		}
		want := pool.Resolve(found, q.Hash)
		got := fib.NextHop{Kind: fib.Kind(q.Kind), Port: q.Port, MTU: uint16(q.Mtu), Destination: macOf(q.Destination),
			Source: macOf(q.Source)}
		if fib.ID(q.Found) != found || got != want.NextHop {
			t.Fatalf("table %d, %s, hash %#x: next hop %d %+v, and by Go %d %+v", q.Table, a, q.Hash,
				q.Found, got, found,
				want.NextHop)
		}
	}
}

func macOf(v uint64) (m fib.MAC) {
	for i := range m {
		m[i] = byte(v >> (40 - 8*i))
	}
	return m
}

// hops makes next hops of every kind and groups of them.
func someHops(t testing.TB, s *fib.Slice, random *rand.Rand) []fib.ID {
	t.Helper()
	ids := []fib.ID{fib.LocalID, fib.ConnectedID, fib.PuntID, fib.BlackholeID, fib.UnreachableID, fib.ProhibitID}
	for range 64 {
		h := fib.NextHop{Kind: fib.KindForward, Port: random.Uint32N(1 << 24), MTU: uint16(random.Uint32())}
		if random.IntN(8) == 0 {
			h.Kind = fib.KindUnresolved
		}
		for i := range 6 {
			h.Destination[i], h.Source[i] = byte(random.Uint32()), byte(random.Uint32())
		}
		id, err := s.AddNextHop(h)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	singles := len(ids)
	for size := 1; size <= fib.MaxMembers; size *= 2 {
		members := make([]fib.Member, size)
		for i := range members {
			members[i] = fib.Member{NextHop: ids[random.IntN(singles)], Weight: 1 + random.IntN(9)}
		}
		id, err := s.AddGroup(members)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func fill(t testing.TB, table *fib.Table, prefixes []netip.Prefix, ids []fib.ID, random *rand.Rand) {
	t.Helper()
	changes := make([]fib.Change, len(prefixes))
	for i, p := range prefixes {
		changes[i] = fib.Change{Prefix: p, NextHop: ids[random.IntN(len(ids))]}
	}
	for len(changes) > 0 {
		n := min(len(changes), 10_000)
		if _, err := table.Apply(changes[:n]); err != nil {
			t.Fatal(err)
		}
		changes = changes[n:]
	}
}

// prefixes are the Internet's, or such that look like them.
func prefixes(t testing.TB) map[fib.Family][]netip.Prefix {
	t.Helper()
	v4, v6 := internet.Generate(1, internet.FullIPv4, internet.FullIPv6)
	if path := os.Getenv("POLYPLANE_PREFIXES"); path != "" {
		var err error
		if v4, v6, err = internet.Read(path); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, l := range [][]netip.Prefix{v4, v6} {
		random.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
	}
	return map[fib.Family][]netip.Prefix{fib.IPv4: v4, fib.IPv6: v6}
}

// TestWalk compares what the C code finds in tables of every shape with what Go finds, and the same after the tables
// were found again by another process.
func TestWalk(t *testing.T) {
	w := newWalker(t)
	pool := w.pool(t)
	random := rand.New(rand.NewPCG(3, 4))
	slice := pool.NewSlice("net", fib.Quota{})
	ids := someHops(t, slice, random)
	all := prefixes(t)
	sizes := []int{0, 1, 2, 3, 7, 30, 100, 200, 400, 3000, 0}
	published := map[fib.Family][]int{}
	for f, l := range all {
		sizes[len(sizes)-1] = len(l)
		for i, n := range sizes {
			table := slice.NewTable(f)
			number := Table(i+1, f == fib.IPv6)
			if err := table.Publish(number); err != nil {
				t.Fatal(err)
			}
			published[f] = append(published[f], number)
			fill(t, table, l[:n], ids, random)
			if i%2 == 0 {
				def := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
				if f == fib.IPv6 {
					def = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
				}
				fill(t, table, []netip.Prefix{def}, ids, random)
			}
			w.check(t, pool, f, []int{number}, about(random, l[:max(n, 1)], 20_000), random)
		}
		w.check(t, pool, f, []int{Table(MaxRouters, f == fib.IPv6)}, about(random, l, 10), random)
	}
	if t.Failed() {
		return
	}
	chunks, err := w.FIB.Chunks()
	if err != nil || chunks != pool.Usage().Chunks {
		t.Errorf("%d chunks are found, and the pool has %d: %v", chunks, pool.Usage().Chunks, err)
	}
	// Another process finds all of it.
	again := open(t, w.root)
	if chunks, err = again.FIB.Chunks(); err != nil {
		t.Fatal(err)
	}
	adopted, err := fib.Adopt(again.FIB, chunks, func(table int) fib.Family { return fib.Family(table % 2) })
	if err != nil {
		t.Fatal(err)
	}
	for f, l := range all {
		w.check(t, adopted, f, published[f], about(random, l, 20_000), random)
	}
}

// BenchmarkWalk measures look-ups in eBPF; what the loop and the queries cost is in "none".
func BenchmarkWalk(b *testing.B) {
	w := newWalker(b)
	all := prefixes(b)
	random := rand.New(rand.NewPCG(5, 6))
	run := func(name, program string, queries int) {
		b.Run(name, func(b *testing.B) {
			w.look(b, program, queries, queries, false)
			b.ResetTimer()
			for rest := b.N; rest > 0; rest -= 1 << 21 {
				w.look(b, program, queries, min(rest, 1<<21), false)
			}
		})
	}
	run("none", walkProgLookNone, 4096)
	for _, k := range []struct {
		name            string
		f               fib.Family
		routes, routers int
		queries         int
	}{
		{"IPv4/10", fib.IPv4, 10, 1, 4096}, {"IPv4/200", fib.IPv4, 200, 1, 4096},
		{"IPv4/10/4000 routers", fib.IPv4, 10, 4000, 1 << 16},
		{"IPv4/full/4096 addresses", fib.IPv4, 1 << 30, 1, 4096},
		{"IPv4/full/1M addresses", fib.IPv4, 1 << 30, 1, 1 << 20},
		{"IPv6/10", fib.IPv6, 10, 1, 4096}, {"IPv6/full/4096 addresses", fib.IPv6, 1 << 30, 1, 4096},
		{"IPv6/full/1M addresses", fib.IPv6, 1 << 30, 1, 1 << 20},
	} {
		pool := w.pool(b)
		slice := pool.NewSlice("net", fib.Quota{})
		ids := someHops(b, slice, random)
		l := all[k.f][:min(k.routes, len(all[k.f]))]
		for r := range k.routers {
			table := slice.NewTable(k.f)
			if err := table.Publish(Table(r+1, k.f == fib.IPv6)); err != nil {
				b.Fatal(err)
			}
			fill(b, table, l, ids, random)
		}
		for i, a := range about(random, l, k.queries) {
			w.queries[i] = queryOf(a, Table(1+random.IntN(k.routers), k.f == fib.IPv6), 0)
		}
		run(k.name, programOf[k.f], k.queries)
	}
}
