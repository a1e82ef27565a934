package fib_test

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/gaissmai/bart"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/fib/internet"
)

// prefixes are those of the file that POLYPLANE_PREFIXES names, else as many generated ones as scale allows.
func prefixes(t testing.TB, scale int) (v4, v6 []netip.Prefix) {
	if path := os.Getenv("POLYPLANE_PREFIXES"); path != "" {
		v4, v6, err := internet.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		return v4, v6
	}
	return internet.Generate(1, internet.FullIPv4/scale, internet.FullIPv6/scale)
}

type fullTable struct {
	pool    *fib.Pool
	slice   *fib.Slice
	table   *fib.Table
	changes []fib.Change
}

// newFullTable has an empty published table, and changes that fill it, with 64 next hops and in random order.
func newFullTable(t testing.TB, family fib.Family, list []netip.Prefix) *fullTable {
	pool, err := fib.New(fib.NewHeap(1, 128, 1000))
	if err != nil {
		t.Fatal(err)
	}
	f := &fullTable{pool: pool, slice: pool.NewSlice("full", fib.Quota{})}
	var hops []fib.ID
	for i := range 64 {
		id, err := f.slice.AddNextHop(fib.NextHop{Kind: fib.KindForward, Port: uint32(i)})
		if err != nil {
			t.Fatal(err)
		}
		hops = append(hops, id)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, p := range list {
		f.changes = append(f.changes, fib.Change{Prefix: p, NextHop: hops[random.IntN(len(hops))]})
	}
	random.Shuffle(len(f.changes), func(i, j int) { f.changes[i], f.changes[j] = f.changes[j], f.changes[i] })
	f.table = f.slice.NewTable(family)
	if err := f.table.Publish(0); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fullTable) apply(t testing.TB, changes []fib.Change) {
	for len(changes) > 0 {
		n := min(len(changes), 1000)
		if _, err := f.table.Apply(changes[:n]); err != nil {
			t.Fatal(err)
		}
		changes = changes[n:]
	}
}

// TestFullTable fills a table with a full Internet table, or a sixteenth of it, and compares every answer at every
// prefix's borders with the oracle's; then half of the routes go and come back.
func TestFullTable(t *testing.T) {
	v4, v6 := prefixes(t, 16)
	for _, c := range []struct {
		family fib.Family
		list   []netip.Prefix
		most   int // bytes a route
	}{{fib.IPv4, v4, 40}, {fib.IPv6, v6, 90}} {
		t.Run(c.family.String(), func(t *testing.T) {
			f := newFullTable(t, c.family, c.list)
			oracle := new(bart.Fast[fib.ID])
			compare := func() {
				for _, p := range c.list {
					for _, a := range probes(p) {
						want, _ := oracle.Lookup(a)
						if got, _ := f.table.Lookup(a); got != want {
							t.Fatalf("%s: next hop %d, should be %d", a, got, want)
						}
					}
				}
			}
			tell := func(list []fib.Change) {
				for _, c := range list {
					if c.NextHop == 0 {
						oracle.Delete(c.Prefix)
					} else {
						oracle.Insert(c.Prefix, c.NextHop)
					}
				}
			}
			f.apply(t, f.changes)
			tell(f.changes)
			compare()
			full := f.table.Usage()
			t.Logf("%d routes: %.1f bytes a route in shared words, %.1f in the own copy", full.Routes,
				float64(full.Bytes)/float64(full.Routes), float64(full.Copy)/float64(full.Routes))
			if os.Getenv("POLYPLANE_PREFIXES") != "" && full.Bytes > c.most*full.Routes {
				t.Errorf("%d bytes for %d routes: more than %d a route", full.Bytes, full.Routes, c.most)
			}
			half := f.changes[:len(f.changes)/2]
			gone := make([]fib.Change, len(half))
			for i, c := range half {
				gone[i].Prefix = c.Prefix
			}
			f.apply(t, gone)
			tell(gone)
			compare()
			f.pool.Release(f.pool.Mark())
			f.apply(t, half)
			tell(half)
			compare()
			if now := f.table.Usage(); now != full {
				t.Errorf("after half of the routes went and came back: %+v, before %+v", now, full)
			}
		})
	}
}

// BenchmarkBuild fills a published table in batches of 1,000 routes.
func BenchmarkBuild(b *testing.B) {
	v4, v6 := prefixes(b, 1)
	for _, c := range []struct {
		family fib.Family
		list   []netip.Prefix
	}{{fib.IPv4, v4}, {fib.IPv6, v6}} {
		b.Run(c.family.String(), func(b *testing.B) {
			var took time.Duration // of CPU, so that it counts what one core does, also on a busy machine
			for range b.N {
				f := newFullTable(b, c.family, c.list)
				runtime.GC()
				start := cpuTime(b)
				f.apply(b, f.changes)
				took += cpuTime(b) - start
				u := f.table.Usage()
				b.ReportMetric(float64(u.Bytes)/float64(u.Routes), "B/route")
				b.ReportMetric(float64(u.Copy)/float64(u.Routes), "copyB/route")
			}
			b.ReportMetric(float64(b.N*len(c.list))/took.Seconds(), "routes/s-CPU")
		})
	}
}

// cpuTime is what this process has used.
func cpuTime(t testing.TB) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkChange deletes and inserts a route of a full table, a batch for each.
func BenchmarkChange(b *testing.B) {
	v4, v6 := prefixes(b, 1)
	for _, c := range []struct {
		family fib.Family
		list   []netip.Prefix
	}{{fib.IPv4, v4}, {fib.IPv6, v6}, {fib.IPv4, v4[:200]}} {
		f := newFullTable(b, c.family, c.list)
		f.apply(b, f.changes)
		b.Run(c.family.String()+"/"+string(f.table.Usage().Shape), func(b *testing.B) {
			for i := range b.N {
				change := f.changes[i%len(f.changes)]
				f.apply(b, []fib.Change{{Prefix: change.Prefix}})
				f.apply(b, []fib.Change{change})
				if i%1000 == 0 {
					f.pool.Release(f.pool.Mark())
				}
			}
		})
	}
}

// BenchmarkLookup searches for 4,096 and for a million random addresses that have routes.
func BenchmarkLookup(b *testing.B) {
	v4, v6 := prefixes(b, 1)
	for _, c := range []struct {
		name   string
		family fib.Family
		list   []netip.Prefix
	}{{"IPv4/full", fib.IPv4, v4}, {"IPv6/full", fib.IPv6, v6}, {"IPv4/10", fib.IPv4, v4[:10]},
		{"IPv6/10", fib.IPv6, v6[:10]},
		{"IPv4/200", fib.IPv4, v4[:200]}} {
		f := newFullTable(b, c.family, c.list)
		f.apply(b, f.changes)
		for _, n := range []int{1 << 12, 1 << 20} {
			random := rand.New(rand.NewPCG(3, 4))
			addresses := make([]netip.Addr, n)
			for i := range addresses {
				addresses[i] = f.changes[random.IntN(len(f.changes))].Prefix.Addr()
			}
			b.Run(c.name+map[int]string{1 << 12: "/4Ki", 1 << 20: "/1Mi"}[n], func(b *testing.B) {
				for i := range b.N {
					f.table.Lookup(addresses[i&(n-1)])
				}
			})
		}
	}
}
