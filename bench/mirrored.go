package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
	"github.com/polyplane/polyplane/node/mirror/feed"
)

// mirrored is a router's namespace with links, and, once it is mirrored, its fast path's tables.
type mirrored struct {
	router, peer *netdev.Namespace
	handle       *os.File
	pool         *fib.Pool
	tables       [2]*fib.Table
	mirror       *mirror.Mirror
	stop         func() error

	// The mirror's goroutine writes these, and the one that measures reads them: mu guards them.
	mu     sync.Mutex
	cond   *sync.Cond
	err    error
	synced bool
	seen   map[netip.Prefix]bool
	seenAt time.Time
}

// marker contains routes that mark an end: when one of them is seen, everything that was written before it has been.
var marker = netip.MustParsePrefix("198.18.0.0/15")

func markerAt(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18 + byte(n>>16), byte(n >> 8), byte(n)}), 32)
}

func newMirrored() (m *mirrored, err error) {
	m = &mirrored{seen: map[netip.Prefix]bool{}}
	m.cond = sync.NewCond(&m.mu)
	if m.router, err = netdev.NewNamespace(); err != nil {
		return nil, err
	}
	if m.peer, err = netdev.NewNamespace(); err != nil {
		return nil, err
	}
	if m.handle, err = os.Open(m.router.Path()); err != nil {
		return nil, err
	}
	// An element has these sysctls as well, and they decide what its tables hold.
	for name, value := range map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		"ipv4/nexthop_compat_mode": "1", "ipv6/route/max_size": "2147483647"} {
		if err := netdev.In(m.router.Path(),
			func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) }); err != nil {
			return nil, err
		}
	}
	var lines []string
	for i := range mirrorLinks {
		e := fmt.Sprintf("e%d", i)
		if err := netdev.NewVeth(netdev.Ref{Namespace: m.router.Path(), Name: e},
			netdev.Ref{Namespace: m.peer.Path(), Name: e}, byte(1+2*i)); err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("addr add 10.0.%d.1/24 dev %s", i, e),
			fmt.Sprintf("addr add 2001:db8:%d::1/64 dev %s nodad", i, e))
		for n := range mirrorGateways {
			lines = append(lines, fmt.Sprintf("neigh add 10.0.%d.%d lladdr 02:00:00:00:01:%02x dev %s nud permanent", i,
				2+n, n, e),
				fmt.Sprintf("neigh add 2001:db8:%d::%x lladdr 02:00:00:00:01:%02x dev %s nud permanent", i, 2+n, n, e))
		}
	}
	return m, m.batch(strings.NewReader(strings.Join(lines, "\n") + "\n"))
}

// batch runs commands of ip(8) in the router.
func (m *mirrored) batch(commands interface{ Read([]byte) (int, error) }) error {
	return netdev.In(m.router.Path(), func() error {
		c := exec.Command("ip", "-force", "-batch", "-")
		c.Stdin = commands
		var problem strings.Builder
		c.Stderr = &problem
		if err := c.Run(); err != nil {
			return fmt.Errorf("ip -batch: %w: %s", err, firstLine(problem.String()))
		}
		return nil
	})
}

func (m *mirrored) close() {
	if m.stop != nil {
		m.stop() //nolint:errcheck // it was told when it mattered
	}
	m.handle.Close()
	m.router.Close()
	m.peer.Close()
}

// newFeed makes empty tables in a pool of their own, publishes them, and gives the feed that fills them.
func (m *mirrored) newFeed() (*feed.Feed, error) {
	var err error
	if m.pool, err = fib.New(fib.NewHeap(2, 1<<16, 1000)); err != nil {
		return nil, err
	}
	slice := m.pool.NewSlice("bench", fib.Quota{})
	for f := range m.tables {
		m.tables[f] = slice.NewTable(fib.Family(f))
		if err := m.tables[f].Publish(f); err != nil {
			return nil, err
		}
	}
	return feed.New(feed.Config{Slice: slice, IPv4: m.tables[0], IPv6: m.tables[1],
		Port: func(index int) (uint32, bool) { return uint32(index), true }})
}

// start mirrors the router.
func (m *mirrored) start() error {
	f, err := m.newFeed()
	if err != nil {
		return err
	}
	if m.mirror, err = mirror.Open(int(m.handle.Fd()), mirror.Options{}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := m.mirror.Run(ctx, func(b *mirror.Batch) error {
			err := f.Apply(b)
			m.pool.Release(m.pool.Mark())
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, r := range b.Routes {
				if marker.Contains(r.Prefix.Addr()) {
					m.seen[r.Prefix], m.seenAt = r.NextHop != 0, time.Now()
				}
			}
			m.synced = b.Synced
			m.cond.Broadcast()
			return err
		})
		m.mu.Lock()
		m.err = err
		m.cond.Broadcast()
		m.mu.Unlock()
		ended <- err
	}()
	m.stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, m.mirror.Close())
	})
	return m.wait("the mirror is in sync", func() bool { return m.synced })
}

// wait waits until the condition holds. It is looked at after each batch.
func (m *mirrored) wait(what string, is func() bool) error {
	late := time.AfterFunc(time.Minute, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.err = fmt.Errorf("waited a minute until %s", what)
		m.cond.Broadcast()
	})
	defer late.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	for !is() && m.err == nil {
		m.cond.Wait()
	}
	return m.err
}
