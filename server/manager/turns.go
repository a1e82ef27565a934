package manager

import (
	"context"
	"sync"
	"time"
)

// turns is a lock that users get in turn: one request of each, the user who has waited longest first. So a thousand
// requests of one user hold up another user's by one of them. The platform itself is a user without a name.
//
// Nobody may have the lock all the time. Each user may hold it for a share of the time, and may save up a second of
// that for a burst. Users who have used up their share wait while others go first. The platform, and root, who is
// nobody's tenant, have no such bound.
type turns struct {
	mu     sync.Mutex // guards all below; it is held for moments only
	held   bool
	holder string              // the user who has the lock
	since  time.Time           // when the holder got it
	users  map[string]*waiting // by name; those who neither wait nor have used up anything have no entry
	order  []string            // users who wait, the next one first
	timer  *time.Timer
	now    func() time.Time // time.Now when nil
}

// waiting are one user's requests.
type waiting struct {
	queue []*turn
	// spent is how much of the lock's time the user has had beyond the share, as of at.
	spent time.Duration
	at    time.Time
}

// turn is one request that waits, or has the lock.
type turn struct {
	got chan struct{} // closed when it is this one's
}

const (
	// turnShare is the part of the lock's time that one user may have while it goes on, as one in so many.
	turnShare = 4
	// turnBurst is how much of it a user may have at once who has had none for a while.
	turnBurst = time.Second
)

// Lock waits for a turn of the platform's own.
func (t *turns) Lock() { _ = t.LockFor(context.Background(), "") }

// LockFor waits for a turn of a user, until the context ends: whoever has gone needs none.
func (t *turns) LockFor(ctx context.Context, user string) error {
	t.mu.Lock()
	w := t.user(user)
	mine := &turn{got: make(chan struct{})}
	if len(w.queue) == 0 {
		t.order = append(t.order, user)
	}
	w.queue = append(w.queue, mine)
	t.next()
	t.mu.Unlock()
	select {
	case <-mine.got:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine.got: // meanwhile
		t.release()
		return ctx.Err()
	default:
	}
	for i := range w.queue {
		if w.queue[i] == mine {
			w.queue = append(w.queue[:i], w.queue[i+1:]...)
			break
		}
	}
	if len(w.queue) == 0 {
		t.leave(user)
	}
	return ctx.Err()
}

// Unlock gives the lock to the next one.
func (t *turns) Unlock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.release()
}

func (t *turns) clock() time.Time {
	if t.now != nil {
		return t.now()
	}
	return time.Now()
}

func (t *turns) user(name string) *waiting {
	if t.users == nil {
		t.users = map[string]*waiting{}
	}
	w := t.users[name]
	if w == nil {
		w = &waiting{at: t.clock()}
		t.users[name] = w
	}
	return w
}

// owes is how long a user has to wait for the share to have come round again.
func (t *turns) owes(name string, w *waiting) time.Duration {
	if name == "" {
		return 0
	}
	now := t.clock()
	w.spent = max(0, w.spent-now.Sub(w.at)/turnShare)
	w.at = now
	return max(0, w.spent-turnBurst) * turnShare
}

func (t *turns) release() {
	now := t.clock()
	if w := t.users[t.holder]; w != nil && t.holder != "" {
		t.owes(t.holder, w)
		w.spent += now.Sub(t.since)
	}
	t.held = false
	t.forget()
	t.next()
}

// forget drops users who neither wait nor owe.
func (t *turns) forget() {
	if len(t.users) < 1024 {
		return
	}
	for name, w := range t.users {
		if len(w.queue) == 0 && t.owes(name, w) == 0 && w.spent == 0 {
			delete(t.users, name)
		}
	}
}

func (t *turns) leave(user string) {
	for i, name := range t.order {
		if name == user {
			t.order = append(t.order[:i], t.order[i+1:]...)
			return
		}
	}
}

// next hands the lock to the first who waits and may have it, or comes back when the first may.
func (t *turns) next() {
	if t.held {
		return
	}
	soonest := time.Duration(0)
	for i, name := range t.order {
		w := t.users[name]
		if wait := t.owes(name, w); wait > 0 {
			if soonest == 0 || wait < soonest {
				soonest = wait
			}
			continue
		}
		first := w.queue[0]
		w.queue = w.queue[1:]
		t.order = append(t.order[:i], t.order[i+1:]...)
		if len(w.queue) > 0 {
			t.order = append(t.order, name)
		}
		t.held, t.holder, t.since = true, name, t.clock()
		close(first.got)
		return
	}
	if soonest == 0 {
		return
	}
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer = time.AfterFunc(soonest, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.next()
	})
}
