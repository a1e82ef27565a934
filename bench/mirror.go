package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

const (
	mirrorLinks    = 4    // of the router
	mirrorGateways = 15   // of each family on each link
	mirrorPieces   = 20   // of a full table, as many times the two writers are compared
	mirrorChanges  = 1000 // changes of single routes whose delay is taken
)

// mirroring measures how a control plane's tables come into the fast path.
func mirroring(ctx context.Context, o options) (tables []table, err error) {
	v4, v6, from, err := prefixes()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ppbench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	all := append(append([]netip.Prefix{}, v4...), v6...)
	rng := rand.New(rand.NewPCG(uint64(o.seed), 11))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	pieces, err := writePieces(dir, all)
	if err != nil {
		return nil, err
	}
	var with, without *mirrored
	for _, m := range []**mirrored{&with, &without} {
		if *m, err = newMirrored(); err != nil {
			return nil, err
		}
		defer (*m).close()
	}
	if err := with.start(); err != nil {
		return nil, err
	}
	t := table{Name: "mirror", Title: "From a router's tables into the fast path's",
		Columns: []string{"what", "measured", "asked for"}}
	live, err := with.live(ctx, rng, without, pieces)
	if err != nil {
		return nil, err
	}
	slower, err := stats.PairedRatio(live.without, live.with, stats.BootstrapOptions{Seed: uint64(o.seed)})
	if err != nil {
		return nil, err
	}
	usage := with.mirror.Usage()
	got := [2]fib.TableUsage{with.tables[0].Usage(), with.tables[1].Usage()}
	dump, resync, err := with.resync(o.rounds)
	if err != nil {
		return nil, err
	}
	if err := with.stop(); err != nil {
		return nil, err
	}
	replayed, err := with.replay(3)
	if err != nil {
		return nil, err
	}
	changes, err := changes(ctx, pieces)
	if err != nil {
		return nil, err
	}
	milli := func(s float64) string { return fmt.Sprintf("%.1f ms", 1000*s) }
	t.Rows = [][]string{
		{fmt.Sprintf("%d routes written by ip(8): the fast path has the last one after the writer's end (median, "+
			"worst of %d pieces)", len(all), mirrorPieces),
			milli(stats.Median(live.late)) + ", " + milli(stats.Quantile(live.late, 1)), "≤ 200 ms"},
		{"overruns of the netlink socket meanwhile", fmt.Sprint(usage.Overruns), "0"},
		{fmt.Sprintf("the writer's time, mirrored / not mirrored (%.0f routes/s)", float64(len(all))/sum(live.without)),
			ratio(slower), "≤ 1.10"},
		{"the kernel's own dump of both tables", fmt.Sprintf("%.2f s", stats.Median(dump)), ""},
		{"resync of both", fmt.Sprintf("%.2f s", stats.Median(resync)), fmt.Sprintf("≤ %.2f s", stats.Median(dump)+1)},
		{"replay of recorded netlink, IPv4", fmt.Sprintf("%.0f routes/s of one core", stats.Median(replayed[0])),
			"≥ 500,000"},
		{"replay of recorded netlink, IPv6", fmt.Sprintf("%.0f routes/s of one core", stats.Median(replayed[1])),
			"≥ 500,000"},
		{"one route's change while others are written, from the kernel's acknowledgement to the fast path: median",
			milli(stats.Median(changes)), ""},
		{"the same: 99 %", milli(stats.Quantile(changes, 0.99)), "< 5 ms"},
	}
	t.Raw = map[string]any{"late, s": live.late, "mirrored, s": live.with, "not mirrored, s": live.without,
		"dump, s": dump, "resync, s": resync, "changes, s": changes, "replay, routes/s": replayed}
	t.Note = fmt.Sprintf("A full table of %d IPv4 and %d IPv6 routes (%s) in random order, in %d pieces that ip(8) "+
		"writes into a mirrored namespace and into one that is not, in random order of the two: the ratio "+
		"is of the pieces, with a 95 %% bootstrap interval. %d changes. Replayed are the messages of the kernel's "+
		"dumps, as notifications; what is counted there is this process's CPU time.", len(v4), len(v6), from,
		mirrorPieces, mirrorChanges)
	memory, err := memoryTable(usage, got)
	return []table{t, memory}, err
}

func sum(list []float64) (s float64) {
	for _, v := range list {
		s += v
	}
	return s
}

// writePieces writes ip(8)'s commands, each piece with a marker at its end.
func writePieces(dir string, all []netip.Prefix) (paths []string, err error) {
	for n := range mirrorPieces {
		path := filepath.Join(dir, fmt.Sprint(n))
		file, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		out := bufio.NewWriter(file)
		for i, p := range all[len(all)*n/mirrorPieces : len(all)*(n+1)/mirrorPieces] {
			gateway := fmt.Sprintf("10.0.%d.%d", i%mirrorLinks, 2+i%mirrorGateways)
			if p.Addr().Is6() {
				gateway = fmt.Sprintf("2001:db8:%d::%x", i%mirrorLinks, 2+i%mirrorGateways)
			}
			fmt.Fprintf(out, "route replace %s via %s\n", p, gateway)
		}
		fmt.Fprintln(out, "route add blackhole", markerAt(n))
		if err := errors.Join(out.Flush(), file.Close()); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

type liveResult struct{ with, without, late []float64 } // seconds, by piece

// live writes each piece of a full table into both namespaces, and measures how much longer the one takes that is
// mirrored.
func (m *mirrored) live(ctx context.Context, rng *rand.Rand, plain *mirrored,
	pieces []string) (r liveResult, err error) {
	write := func(to *mirrored, path string) (float64, error) {
		file, err := os.Open(path)
		if err != nil {
			return 0, err
		}
		defer file.Close()
		start := time.Now()
		err = to.batch(file)
		return time.Since(start).Seconds(), err
	}
	for n, path := range pieces {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		for _, mirrors := range []bool{rng.IntN(2) == 0, false} {
			if len(r.without) > n {
				mirrors = true // the other one was first
			}
			if !mirrors {
				took, err := write(plain, path)
				if err != nil {
					return r, err
				}
				r.without = append(r.without, took)
				continue
			}
			took, err := write(m, path)
			ended := time.Now()
			if err == nil {
				err = m.wait("the last route is there", func() bool { return m.seen[markerAt(n)] })
			}
			if err != nil {
				return r, err
			}
			r.with, r.late = append(r.with, took), append(r.late, max(0, m.seenAt.Sub(ended).Seconds()))
		}
		fmt.Fprintf(os.Stderr, "piece %d: %.2f s mirrored, %.2f s not\n", n+1, r.with[n], r.without[n])
	}
	return r, nil
}

// dumpAll reads what the kernel's dumps tell; each gets whole messages, as they come.
func dumpAll(c *linux.Rtnetlink, d mirror.Dump, each func(message []byte)) error {
	var r linux.Batch
	r.Request(d.Kind, 0)
	switch d.Kind {
	case unix.RTM_GETLINK:
		r.Raw(make([]byte, unix.SizeofIfInfomsg))
	case unix.RTM_GETROUTE:
		r.Raw([]byte{d.Family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		r.Uint32(unix.RTA_TABLE, d.Table)
	case unix.RTM_GETADDR, unix.RTM_GETNEXTHOP:
		r.Raw([]byte{d.Family, 0, 0, 0, 0, 0, 0, 0})
	case unix.RTM_GETNETCONF:
		r.Raw([]byte{d.Family, 0, 0, 0})
	default: // rules and neighbours
		r.Raw([]byte{d.Family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	}
	err := c.Dump(&r, func(kind uint16, payload []byte) error {
		if each != nil {
			m := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(payload))
			binary.NativeEndian.PutUint32(m, uint32(cap(m)))
			binary.NativeEndian.PutUint16(m[4:], kind)
			each(append(m, payload...))
		}
		return nil
	})
	if errors.Is(err, linux.ErrDumpInterrupted) || errors.Is(err, unix.ENOENT) { // there may be no such table
		return nil
	}
	return err
}

func (m *mirrored) dial() (*linux.Rtnetlink, error) { return linux.DialRtnetlinkOf(int(m.handle.Fd())) }

// resync measures the kernel's dump of the main tables and a mirror's resync, in turn.
func (m *mirrored) resync(times int) (dump, resync []float64, err error) {
	c, err := m.dial()
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	for range times {
		start := time.Now()
		for _, f := range []uint8{unix.AF_INET, unix.AF_INET6} {
			if err := dumpAll(c, mirror.Dump{Kind: unix.RTM_GETROUTE, Family: f, Table: unix.RT_TABLE_MAIN},
				nil); err != nil {
				return nil, nil, err
			}
		}
		dump = append(dump, time.Since(start).Seconds())
		before := m.mirror.Usage().Resyncs
		start = time.Now()
		m.mirror.Resync()
		for m.mirror.Usage().Resyncs == before {
			if time.Since(start) > time.Minute {
				return nil, nil, errors.New("a resync takes more than a minute")
			}
			time.Sleep(time.Millisecond)
		}
		resync = append(resync, time.Since(start).Seconds())
	}
	return dump, resync, nil
}

// pieceBytes is how much is read at once.
const pieceBytes = 128 << 10

// replay feeds what the kernel tells of the main tables, as notifications, into a mirror with tables of its own. It
// returns routes a second of CPU time.
func (m *mirrored) replay(times int) (rates [2][]float64, err error) {
	c, err := m.dial()
	if err != nil {
		return rates, err
	}
	defer c.Close()
	var ground [][]byte // of each dump, without the main tables' routes
	var recorded [2][][]byte
	var routes [2]int
	for _, d := range mirror.Dumps {
		family := 0
		if d.Family == unix.AF_INET6 {
			family = 1
		}
		main, told := d.Kind == unix.RTM_GETROUTE && d.Table == unix.RT_TABLE_MAIN, []byte(nil)
		if err := dumpAll(c, d, func(message []byte) {
			into := &told
			if main {
				pieces := &recorded[family]
				if n := len(*pieces); n == 0 || len((*pieces)[n-1]) > pieceBytes {
					*pieces = append(*pieces, nil)
				}
				into = &(*pieces)[len(*pieces)-1]
				routes[family]++
			}
			*into = append(*into, message...)
		}); err != nil {
			return rates, err
		}
		ground = append(ground, told)
	}
	for range times {
		for family := range recorded {
			f, err := m.newFeed()
			if err != nil {
				return rates, err
			}
			v := mirror.NewView(mirror.DefaultLimits)
			var b mirror.Batch
			drain := func() error {
				for v.Next(&b) {
					if err := f.Apply(&b); err != nil {
						return err
					}
				}
				return nil
			}
			for i, d := range mirror.Dumps {
				v.Begin(d, 0)
				v.Dumped(ground[i])
				v.End(true)
			}
			v.SetSynced(true)
			if err := drain(); err != nil {
				return rates, err
			}
			runtime.GC()
			start := processTime()
			for _, piece := range recorded[family] {
				v.Notify(piece)
				if err := drain(); err != nil {
					return rates, err
				}
			}
			took := processTime() - start
			if n := m.tables[family].Usage().Routes; n < routes[family]*99/100 {
				return rates, fmt.Errorf("of %d recorded routes %d are in the table", routes[family], n)
			}
			rates[family] = append(rates[family], float64(routes[family])/took.Seconds())
		}
	}
	return rates, nil
}

// processTime is the CPU time of this process.
func processTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic("this process's CPU time cannot be read: " + err.Error()) // it exists on every Linux
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// changes measures how soon one route's changes are seen, in a namespace into which ip(8) writes others without end.
func changes(ctx context.Context, pieces []string) (took []float64, err error) {
	m, err := newMirrored()
	if err != nil {
		return nil, err
	}
	defer m.close()
	if err := m.start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	written := make(chan error, 1)
	go func() {
		for n := 0; ctx.Err() == nil; n++ {
			file, err := os.Open(pieces[n%len(pieces)])
			if err != nil {
				written <- err
				return
			}
			m.batch(file) //nolint:errcheck // markers of an earlier time are there
			file.Close()
		}
		written <- nil
	}()
	defer func() { cancel(); err = errors.Join(err, <-written) }()
	c, err := m.dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	changing := markerAt(1<<16 + 1)
	for i := range mirrorChanges {
		kind, flags, there := uint16(unix.RTM_NEWROUTE), uint16(unix.NLM_F_CREATE|unix.NLM_F_REPLACE), i%2 == 0
		if !there {
			kind, flags = unix.RTM_DELROUTE, 0
		}
		var r linux.Batch
		r.Request(kind, flags)
		r.Raw([]byte{unix.AF_INET, 32, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, 0, unix.RTN_BLACKHOLE, 0, 0, 0, 0})
		r.Attr(unix.RTA_DST, changing.Addr().AsSlice())
		if errs := c.Do(&r); errs != nil {
			return nil, errors.Join(errs...)
		}
		acknowledged := time.Now()
		if err := m.wait("a change is there", func() bool { return m.seen[changing] == there }); err != nil {
			return nil, err
		}
		m.mu.Lock()
		took = append(took, max(0, m.seenAt.Sub(acknowledged)).Seconds())
		m.mu.Unlock()
		if _, length := m.tables[0].Lookup(changing.Addr()); (length == 32) != there {
			return nil, fmt.Errorf("the fast path answers by /%d although the change was told", length)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return took, nil
}

// Routers that a node's tables are filled with.
const (
	manyRouters = 4000
	fewRoutes   = 10
)

// memoryTable tells what tables take: the full ones, and those of many routers with few routes.
func memoryTable(own mirror.Usage, full [2]fib.TableUsage) (table, error) {
	t := table{Name: "mirror-memory", Title: "Memory of forwarding tables",
		Columns: []string{"what", "measured", "asked for"}}
	const chunks = 1024 // as many as the fabric's map of chunks has
	pool, err := fib.New(fib.NewHeap(2*4096, 1<<16, chunks))
	if err != nil {
		return t, err
	}
	for r := range manyRouters {
		slice := pool.NewSlice(fmt.Sprint(r), fib.Quota{})
		hop, err := slice.AddNextHop(fib.NextHop{Kind: fib.KindForward, Port: uint32(r)})
		if err != nil {
			return t, err
		}
		for f := range 2 {
			one := slice.NewTable(fib.Family(f))
			if err := one.Publish(2*r + f); err != nil {
				return t, err
			}
			for n := range fewRoutes {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r >> 4), byte(r<<4 | n), 0}), 24)
				if f == 1 {
					p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(r >> 8), byte(r), byte(n)}),
						56)
				}
				if err := one.Insert(p, hop); err != nil {
					return t, err
				}
			}
		}
		pool.Release(pool.Mark())
	}
	u := pool.Usage()
	each := func(bytes, n int) string { return fmt.Sprintf("%.1f B", float64(bytes)/float64(n)) }
	t.Rows = [][]string{
		{fmt.Sprintf("the fast path's, a route of a full IPv4 table (%d)", full[0].Routes),
			each(full[0].Bytes, full[0].Routes), "≤ 40 B"},
		{fmt.Sprintf("the fast path's, a route of a full IPv6 table (%d)", full[1].Routes),
			each(full[1].Bytes, full[1].Routes), "≤ 90 B"},
		{fmt.Sprintf("the fast path's, a router with %d IPv4 and %[1]d IPv6 routes", fewRoutes),
			each(u.Live, manyRouters), "≤ 1 KB"},
		{fmt.Sprintf("%d such routers: chunks of 256 KiB that they take, of %d", manyRouters, chunks),
			fmt.Sprint(u.Chunks), "they fit"},
		{"the agent's own copy, a route: the mirror's", each(own.Bytes, own.Routes), "bounded, reported"},
		{"the agent's own copy, a route: the tables', IPv4, IPv6", each(full[0].Copy, full[0].Routes) + ", " +
			each(full[1].Copy, full[1].Routes), "bounded, reported"},
	}
	quota := new(model.Slice).TableQuota()
	t.Note = fmt.Sprintf("The full tables are those of the comparison above, after they were mirrored. Next hops are "+
		"not in it: 32 bytes each, shared by routes. Bounds: a network may have tables of %s with %d routes on a node "+
		"unless it states others; `get fib` and `describe` report what a router takes.", quota.Tables, quota.Routes)
	return t, nil
}
