package feed_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
	"github.com/polyplane/polyplane/node/mirror/feed"
)

// lab is a router's namespace with some links to another namespace, and its mirror in a fast path.
type lab struct {
	t            testing.TB
	router, peer *os.File // namespaces
	pool         *fib.Pool
	slice        *fib.Slice
	tables       [2]*fib.Table
	feed         *feed.Feed
	mirror       *mirror.Mirror
	index        map[int]string // of the router's links

	mu     sync.Mutex
	cond   *sync.Cond
	err    error
	synced bool
	seen   map[netip.Prefix]bool // routes that are there, of those that are waited for
	seenAt time.Time             // when one of them changed
	batch  int
}

// newNamespace makes a network namespace that lives as long as the file.
func newNamespace(t testing.TB) *os.File {
	t.Helper()
	type result struct {
		file *os.File
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		file, err := os.Open("/proc/thread-self/ns/net")
		done <- result{file, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.file.Close() })
	return r.file
}

// in runs f inside a namespace.
func in(t testing.TB, ns *os.File, f func() error) {
	t.Helper()
	if err := linux.Inside(int(ns.Fd()), f); err != nil {
		t.Fatal(err)
	}
}

// ip runs lines as ip(8) would, inside a namespace. It goes on after errors, if it may.
func ip(t testing.TB, ns *os.File, force bool, lines ...string) {
	t.Helper()
	in(t, ns, func() error {
		args := []string{"-batch", "-"}
		if force {
			args = []string{"-force", "-batch", "-"}
		}
		c := exec.Command("ip", args...)
		c.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		if out, err := c.CombinedOutput(); err != nil && !force {
			return fmt.Errorf("%s: %w: %s", lines, err, out)
		}
		return nil
	})
}

// sysctl writes settings below /proc/sys/net inside a namespace.
func sysctl(t testing.TB, ns *os.File, settings map[string]string) {
	t.Helper()
	in(t, ns, func() error {
		for name, value := range settings {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

const links = 4

// routerSettings are those of an element that bear on its tables.
var routerSettings = map[string]string{
	"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/nexthop_compat_mode": "1",
	"ipv4/conf/default/ignore_routes_with_linkdown": "1", "ipv6/conf/default/ignore_routes_with_linkdown": "1",
	"ipv6/conf/default/keep_addr_on_down": "1", "ipv6/conf/default/accept_dad": "0",
	"ipv6/conf/default/dad_transmits": "0",
	"ipv6/conf/default/addr_gen_mode": "1", "ipv6/conf/default/accept_ra": "0",
	"ipv4/conf/default/promote_secondaries": "1",
	"ipv6/route/max_size":                   "2147483647",
}

func newLab(t testing.TB) *lab {
	l := &lab{t: t, index: map[int]string{}, seen: map[netip.Prefix]bool{}}
	l.cond = sync.NewCond(&l.mu)
	return l
}

// newRouter makes the two namespaces: links e0… of the router with addresses 10.0.i.1/24 and 2001:db8:i::1/64.
func newRouter(t testing.TB) *lab {
	l := newLab(t)
	l.router, l.peer = newNamespace(t), newNamespace(t)
	sysctl(t, l.router, routerSettings)
	// ip moves the peers' ends by a process's number.
	sleeper := exec.Command("sleep", "infinity")
	in(t, l.peer, sleeper.Start)
	defer sleeper.Wait() //nolint:errcheck // it is killed
	defer sleeper.Process.Kill()
	lines := []string{"link set lo up"}
	for i := range links {
		lines = append(lines,
			fmt.Sprintf("link add e%d type veth peer name p%d netns %d", i, i, sleeper.Process.Pid),
			fmt.Sprintf("link set e%d up", i),
			fmt.Sprintf("addr add 10.0.%d.1/24 dev e%d", i, i),
			fmt.Sprintf("addr add 2001:db8:%d::1/64 dev e%d nodad", i, i))
	}
	ip(t, l.router, false, lines...)
	lines = nil
	for i := range links {
		lines = append(lines, fmt.Sprintf("link set p%d up", i))
	}
	ip(t, l.peer, false, lines...)
	in(t, l.router, func() error {
		for i := range links {
			name := fmt.Sprintf("e%d", i)
			data, err := os.ReadFile("/sys/class/net/" + name + "/ifindex")
			if err != nil { // sysfs is of another namespace
				out, err := exec.Command("ip", "-o", "link", "show", name).Output()
				if err != nil {
					return err
				}
				data = out[:bytes.IndexByte(out, ':')]
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(data)))
			if err != nil {
				return err
			}
			l.index[n] = name
		}
		return nil
	})
	return l
}

// start mirrors the router into a fast path of its own.
func (l *lab) start(o mirror.Options, quota fib.Quota, chunks int) {
	l.t.Helper()
	l.fast(quota, chunks)
	var err error
	l.mirror, err = mirror.Open(int(l.router.Fd()), o)
	l.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		err := l.mirror.Run(ctx, l.apply)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.err = err
		}
		l.cond.Broadcast()
	})
	l.t.Cleanup(func() {
		cancel()
		done.Wait()
		l.mirror.Close()
		l.feed.Close()
		if l.err != nil {
			l.t.Error(l.err)
		}
	})
}

// fast makes the fast path.
func (l *lab) fast(quota fib.Quota, chunks int) {
	l.t.Helper()
	var err error
	l.pool, err = fib.New(fib.NewHeap(2, 1<<16, chunks))
	l.must(err)
	l.slice = l.pool.NewSlice("lab", quota)
	for f := range l.tables {
		l.tables[f] = l.slice.NewTable(fib.Family(f))
		l.must(l.tables[f].Publish(f))
	}
	l.feed, err = feed.New(feed.Config{Slice: l.slice, IPv4: l.tables[0], IPv6: l.tables[1],
		Port: func(index int) (uint32, bool) { return uint32(index), true }})
	l.must(err)
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// apply is the consumer.
func (l *lab) apply(b *mirror.Batch) error {
	if err := l.feed.Apply(b); err != nil {
		return err
	}
	l.pool.Release(l.pool.Mark()) // nobody reads meanwhile but who can bear it
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.Reset {
		clear(l.seen)
	}
	for _, r := range b.Routes {
		if marker.Contains(r.Prefix.Addr()) {
			l.seen[r.Prefix], l.seenAt = r.NextHop != 0, time.Now()
		}
	}
	l.synced = b.Synced
	l.batch++
	l.cond.Broadcast()
	return nil
}

// marker is where routes are that tell that what came before is done.
var marker = netip.MustParsePrefix("198.18.0.0/15")

// wait waits until the condition holds, which is looked at after each batch.
func (l *lab) wait(what string, is func() bool) {
	l.t.Helper()
	late := time.AfterFunc(time.Minute, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.err = fmt.Errorf("waited a minute: %s", what)
		l.cond.Broadcast()
	})
	defer late.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !is() && l.err == nil {
		l.cond.Wait()
	}
	if l.err != nil {
		err := l.err
		l.err = nil
		l.t.Fatalf("%v\nin sync: %t, after %d batches; %+v; %+v\nmarkers that are told: %v\n%s", err, l.synced, l.batch,
			l.mirror.Usage(), l.feed.Status(), l.seen, l.show())
	}
}

func (l *lab) waitSynced() {
	l.t.Helper()
	l.wait("the mirror is in sync", func() bool { return l.synced })
}

// settled waits until all that was written before is told.
func (l *lab) settled(n int) {
	l.t.Helper()
	a := netip.AddrFrom4([4]byte{198, 18 + byte(n>>16&1), byte(n >> 8), byte(n)})
	p := netip.PrefixFrom(a, 32)
	ip(l.t, l.router, false, "route add blackhole "+p.String())
	l.wait("route "+p.String(), func() bool { return l.seen[p] && l.synced })
	ip(l.t, l.router, false, "route del blackhole "+p.String())
	l.wait("no route "+p.String(), func() bool { return !l.seen[p] && l.synced })
}
