package feed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// writeTable writes ip(8)'s commands for a table, and a route that is last.
func writeTable(b *testing.B, list []netip.Prefix) (path string) {
	path = filepath.Join(b.TempDir(), "routes")
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	for n, p := range list {
		i := n % links
		if p.Addr().Is4() {
			fmt.Fprintf(out, "route add %s via 10.0.%d.%d\n", p, i, 2+n%60)
		} else {
			fmt.Fprintf(out, "route add %s via 2001:db8:%d::%x\n", p, i, 2+n%60)
		}
	}
	fmt.Fprintln(out, "route add blackhole", last)
	if err := out.Flush(); err != nil {
		b.Fatal(err)
	}
	return path
}

var last = netip.MustParsePrefix("198.18.0.1/32")

// batch has ip(8) carry commands out and tells how long it took.
func batch(b *testing.B, l *lab, path string) time.Duration {
	start := time.Now()
	in(b, l.router, func() error {
		if out, err := exec.Command("ip", "-force", "-batch", path).CombinedOutput(); err != nil && len(out) > 1<<16 {
			return fmt.Errorf("%w: %.1000s", err, out)
		}
		return nil
	})
	return time.Since(start)
}

// BenchmarkLive has ip(8) write a full table while it is mirrored, and while it is not.
func BenchmarkLive(b *testing.B) {
	v4, v6 := fullTable(b, 1)
	path := writeTable(b, append(v4, v6...))
	n := float64(len(v4) + len(v6))
	var alone, with, late []float64
	for range b.N {
		alone = append(alone, batch(b, newRouter(b), path).Seconds())

		l := newRouter(b)
		l.start(mirror.Options{}, fib.Quota{}, 1000)
		l.waitSynced()
		with = append(with, batch(b, l, path).Seconds())
		ended := time.Now()
		l.wait("the last route", func() bool { return l.seen[last] })
		late = append(late, time.Since(ended).Seconds())
		l.waitSynced()
		if u := l.mirror.Usage(); u.Overruns > 0 {
			b.Errorf("%d overruns", u.Overruns)
		} else {
			b.ReportMetric(float64(u.Bytes)/float64(u.Routes), "B/route")
			if u.Routes < len(v4)+len(v6) || l.tables[0].Usage().Routes < len(v4) ||
				l.tables[1].Usage().Routes < len(v6) {
				b.Errorf("of %d routes the mirror has %d, the fast path %d and %d", len(v4)+len(v6), u.Routes,
					l.tables[0].Usage().Routes, l.tables[1].Usage().Routes)
			}
		}
		dump := kernelDump(b, l)
		start := time.Now()
		resyncs := l.mirror.Usage().Resyncs
		l.mirror.Resync()
		for l.mirror.Usage().Resyncs == resyncs {
			time.Sleep(time.Millisecond)
		}
		b.ReportMetric(dump.Seconds(), "s-dump")
		b.ReportMetric(time.Since(start).Seconds(), "s-resync")

		// A second mirror takes its first snapshot of the full table.
		second := newLab(b)
		second.router = l.router
		start = time.Now()
		second.start(mirror.Options{}, fib.Quota{}, 1000)
		second.waitSynced()
		b.ReportMetric(time.Since(start).Seconds(), "s-snapshot")
	}
	b.ReportMetric(median(alone), "s-writer-alone")
	b.ReportMetric(median(with), "s-writer")
	b.ReportMetric(n/median(with), "routes/s")
	b.ReportMetric(1000*median(late), "ms-late")
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// kernelDump reads both main tables and does nothing with them.
func kernelDump(b *testing.B, l *lab) time.Duration {
	var c *linux.Rtnetlink
	in(b, l.router, func() (err error) {
		c, err = linux.DialRtnetlink()
		return err
	})
	defer c.Close()
	start := time.Now()
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		var r linux.Batch
		r.Request(unix.RTM_GETROUTE, 0)
		r.Raw([]byte{family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		r.Uint32(unix.RTA_TABLE, unix.RT_TABLE_MAIN)
		if err := c.Dump(&r, func(uint16, []byte) error { return nil }); err != nil &&
			!errors.Is(err, linux.ErrDumpInterrupted) {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

// BenchmarkChange measures from the kernel's acknowledgement of one route's change to when the fast path has it, while
// ip(8) writes others.
func BenchmarkChange(b *testing.B) {
	v4, _ := fullTable(b, 1)
	path := writeTable(b, v4)
	l := newRouter(b)
	l.start(mirror.Options{}, fib.Quota{}, 1000)
	l.waitSynced()
	ctx, cancel := context.WithCancel(context.Background())
	var writer *exec.Cmd
	in(b, l.router, func() error {
		writer = exec.CommandContext(ctx, "ip", "-force", "-batch", path)
		return writer.Start()
	})
	defer writer.Wait() //nolint:errcheck // it is killed
	defer cancel()
	var c *linux.Rtnetlink
	in(b, l.router, func() (err error) {
		c, err = linux.DialRtnetlink()
		return err
	})
	defer c.Close()
	var took []float64
	changing := netip.MustParsePrefix("198.19.0.1/32")
	for i := range b.N {
		var r linux.Batch
		kind, flags := uint16(unix.RTM_NEWROUTE), uint16(unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
		want := fib.BlackholeID
		if i%2 == 1 {
			kind, flags, want = unix.RTM_DELROUTE, 0, 0
		}
		r.Request(kind, flags)
		r.Raw([]byte{unix.AF_INET, 32, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, 0, unix.RTN_BLACKHOLE, 0, 0, 0, 0})
		r.Attr(unix.RTA_DST, changing.Addr().AsSlice())
		if errs := c.Do(&r); errs != nil {
			b.Fatal(errs)
		}
		acknowledged := time.Now()
		l.wait("the change", func() bool { return l.seen[changing] == (i%2 == 0) })
		if id, length := l.tables[0].Lookup(changing.Addr()); want != 0 && (id != want || length != 32) {
			b.Fatalf("the fast path answers %d by /%d", id, length)
		}
		l.mu.Lock()
		took = append(took, max(0, l.seenAt.Sub(acknowledged)).Seconds()*1000)
		l.mu.Unlock()
		time.Sleep(2 * time.Millisecond)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "ms-p50")
	b.ReportMetric(took[len(took)*99/100], "ms-p99")
}
