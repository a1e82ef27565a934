package feed_test

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// writeThroughObjects writes ip(8)'s commands for a table whose routes go through next-hop objects, as FRR writes them.
func writeThroughObjects(b *testing.B, list []netip.Prefix) (path string) {
	path = filepath.Join(b.TempDir(), "objects")
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	for n, p := range list {
		object := 1 + n%64
		if p.Addr().Is6() {
			object += 100
		}
		fmt.Fprintf(out, "route replace %s nhid %d proto bgp metric 20\n", p, object)
	}
	fmt.Fprintln(out, "route add blackhole", last)
	if err := out.Flush(); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkObjects has ip(8) write routes through next-hop objects, and then replace one of the objects, with the
// kernel's two settings: compat_mode=1, which is every machine's, tells each route with its next hops, and tells it
// again when its object is replaced; compat_mode=0 does neither.
func BenchmarkObjects(b *testing.B) {
	v4, v6 := fullTable(b, 4)
	path := writeThroughObjects(b, append(v4, v6...))
	n := float64(len(v4) + len(v6))
	for _, mode := range []string{"0", "1"} {
		b.Run("compat_mode="+mode, func(b *testing.B) {
			var alone, with, cpu, dump, resync, replaced, replacedCPU []float64
			for range b.N {
				router := func() *lab {
					l := newRouter(b)
					sysctl(b, l.router, map[string]string{"ipv4/nexthop_compat_mode": mode})
					var lines []string
					for i := range 64 {
						lines = append(lines, fmt.Sprintf("nexthop add id %d via 10.0.%d.%d dev e%[2]d", 1+i, i%links, 2+i/links),
							fmt.Sprintf("nexthop add id %d via 2001:db8:%d::%x dev e%[2]d", 101+i, i%links, 2+i/links))
					}
					ip(b, l.router, false, lines...)
					return l
				}
				alone = append(alone, batch(b, router(), path).Seconds())
				l := router()
				l.start(mirror.Options{}, fib.Quota{}, 1000)
				l.waitSynced()
				before := cpuTime(b)
				with = append(with, batch(b, l, path).Seconds())
				l.wait("the last route", func() bool { return l.seen[last] })
				l.waitSynced()
				cpu = append(cpu, (cpuTime(b) - before).Seconds())
				dump = append(dump, kernelDump(b, l).Seconds())
				start, resyncs := time.Now(), l.mirror.Usage().Resyncs
				l.mirror.Resync()
				for l.mirror.Usage().Resyncs == resyncs {
					time.Sleep(time.Millisecond)
				}
				resync = append(resync, time.Since(start).Seconds())
				before, start = cpuTime(b), time.Now()
				l.mu.Lock()
				clear(l.seen)
				l.mu.Unlock()
				ip(b, l.router, false, "nexthop replace id 1 via 10.0.1.99 dev e1", "route replace blackhole "+last.String())
				ip(b, l.router, false, "route del blackhole "+last.String(), "route add blackhole "+last.String())
				l.wait("the last route again", func() bool { return l.seen[last] })
				replaced = append(replaced, time.Since(start).Seconds())
				replacedCPU = append(replacedCPU, (cpuTime(b) - before).Seconds())
				if u := l.mirror.Usage(); u.Overruns > 0 || u.Routes < int(n) {
					b.Errorf("%d overruns, %d of %.0f routes", u.Overruns, u.Routes, n)
				}
			}
			b.ReportMetric(median(alone), "s-writer-alone")
			b.ReportMetric(median(with), "s-writer")
			b.ReportMetric(1e6*median(cpu)/n, "µs-CPU/route")
			b.ReportMetric(median(dump), "s-dump")
			b.ReportMetric(median(resync), "s-resync")
			b.ReportMetric(1000*median(replaced), "ms-replaced")
			b.ReportMetric(1000*median(replacedCPU), "ms-CPU-replaced")
		})
	}
}
