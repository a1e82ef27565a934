package store

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyplane/polyplane/system/attack"
)

// between passes connections on to a cluster, and takes none, or says nothing, while it is told so.
type between struct {
	to    string
	tried atomic.Int32
	mu    sync.Mutex
	mode  string // refuses, or stalls; passes all when empty
	conns map[net.Conn]struct{}
}

func (b *between) is() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mode
}

func (b *between) set(mode string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mode = mode; mode == "refuses" {
		for c := range b.conns {
			c.Close()
		}
	}
}

func (b *between) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	p := make([]byte, 64<<10)
	for {
		n, err := from.Read(p)
		for b.is() == "stalls" {
			time.Sleep(10 * time.Millisecond)
		}
		if _, failed := to.Write(p[:n]); failed != nil || err != nil {
			return
		}
	}
}

func (b *between) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b.tried.Add(1)
		far, err := net.Dial("unix", b.to)
		if err != nil || b.is() == "refuses" {
			c.Close()
			continue
		}
		b.mu.Lock()
		b.conns[c], b.conns[far] = struct{}{}, struct{}{}
		b.mu.Unlock()
		go b.pass(c, far)
		go b.pass(far, c)
	}
}

// behind connects to a cluster through something that can stall and cut the connections.
func behind(t *testing.T, socket url.URL, aside string) (*between, *Store) {
	t.Helper()
	b := &between{to: socket.Path, conns: map[net.Conn]struct{}{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go b.serve(l)
	s, err := OpenExternal(t.Context(), ExternalOptions{URLs: []string{"http://" + l.Addr().String()}, Aside: aside})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.set("")
		s.Close()
	})
	return b, s
}

// A cluster that takes requests and never answers, and one that is cut off: after a while nobody is made to wait for it
// any more, all are told why, and when it is back all goes on soon.
func TestASilentClusterHoldsNobodyUp(t *testing.T) {
	t.Parallel() // it waits
	attack.Tell(t, "somebody stalls and cuts the connections to the external etcd",
		"changes are refused at once with the reason, and go on within seconds after it is back")
	socket, _ := served(t, 0)
	b, s := behind(t, socket, "")
	ctx := t.Context()
	if _, err := s.Put(ctx, record("lab", 1, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.Look(ctx); err != nil || s.Silent() != nil {
		t.Fatalf("it answers, and is said to be silent: %v, %v", err, s.Silent())
	}
	for _, mode := range []string{"stalls", "refuses"} {
		b.set(mode)
		for s.Silent() == nil {
			if s.Look(ctx) == nil {
				t.Fatalf("a cluster that %s answers", mode)
			}
		}
		// Its context says that it is refused without being tried.
		tried, cancel := context.WithTimeout(ctx, requestTimeout/2)
		_, err := s.Put(tried, record("lab", 2, 3))
		if !errors.Is(err, ErrSilent) || tried.Err() != nil || !strings.Contains(err.Error(), "has not answered since") ||
			!strings.Contains(err.Error(), "what runs goes on") {
			t.Errorf("while it %s, a change is refused with: %v", mode, err)
		}
		cancel()
		if mode == "refuses" { // how soon it would be found again: gRPC by itself would wait ever longer
			before := b.tried.Load()
			time.Sleep(10 * time.Second)
			if n := b.tried.Load() - before; n < 4 {
				t.Errorf("the cluster that was away is looked for %d times within ten seconds", n)
			}
		}
		b.set("")
		for s.Silent() != nil {
			s.Look(ctx) //nolint:errcheck // it is tried again
		}
		if _, err := s.Put(ctx, record("lab", 2, 3)); err != nil {
			t.Errorf("after it %s, it is back, and: %v", mode, err)
		}
	}
}
