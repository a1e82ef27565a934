package manager

import (
	"context"
	"sync"
	"testing"
	"time"
)

// A user's many requests hold up another's by one of them, and nobody is forgotten.
func TestTurnsAreOfUsers(t *testing.T) {
	var l turns
	l.Lock()
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	ask := func(who string) {
		wg.Go(func() {
			if err := l.LockFor(t.Context(), who); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, who)
			mu.Unlock()
			l.Unlock()
		})
	}
	for range 50 {
		ask("mallory")
	}
	waitFor(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		w := l.users["mallory"]
		return w != nil && len(w.queue) == 50
	})
	ask("alice")
	waitFor(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.users["alice"] != nil && len(l.users["alice"].queue) == 1
	})
	l.Unlock()
	wg.Wait()
	at := -1
	for i, who := range order {
		if who == "alice" {
			at = i
		}
	}
	if at < 0 || at > 1 || len(order) != 51 {
		t.Errorf("alice, who asked last, was number %d of %d", at+1, len(order))
	}
}

// Who goes away while waiting takes nothing along.
func TestTurnsOfThoseWhoGo(t *testing.T) {
	var l turns
	l.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 2)
	for range 2 {
		go func() { gone <- l.LockFor(ctx, "bob") }()
	}
	waitFor(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		w := l.users["bob"]
		return w != nil && len(w.queue) == 2
	})
	cancel()
	for range 2 {
		if err := <-gone; err == nil {
			t.Error("bob got it")
		}
	}
	l.Unlock()
	if err := l.LockFor(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	l.Unlock()
	if len(l.order) != 0 || l.held {
		t.Errorf("left over: %v %v", l.order, l.held)
	}
}

// Who has had more than a share of the time waits for it, while others do not.
func TestTurnsAreShared(t *testing.T) {
	var l turns
	var mu sync.Mutex
	now := time.Unix(1000, 0)
	l.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	pass := func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	if err := l.LockFor(t.Context(), "mallory"); err != nil {
		t.Fatal(err)
	}
	pass(1500 * time.Millisecond)
	l.Unlock()
	got := make(chan struct{})
	go func() {
		if l.LockFor(t.Context(), "mallory") == nil {
			l.Unlock()
		}
		close(got)
	}()
	waitFor(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.order) == 1 })
	select {
	case <-got:
		t.Fatal("mallory did not wait, half a second beyond what may be saved up")
	default:
	}
	for range 3 {
		if err := l.LockFor(t.Context(), "alice"); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Millisecond)
		l.Unlock()
	}
	l.Lock()
	l.Unlock() //nolint:staticcheck // that the platform gets it is what is tested
	pass(3 * time.Second)
	l.Lock()
	l.Unlock() //nolint:staticcheck // likewise; it looks who is next
	<-got
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come to pass within 10 s")
		}
	}
}
