package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrSilent tells that the store has not answered for so long that nobody is made to wait for it any more.
var ErrSilent = errors.New("it has not answered")

const (
	// lookWithin is how long Look waits for an answer.
	lookWithin = 5 * time.Second
	// silentAfter is how long the store may answer nothing before requests are refused at once. An election takes less.
	silentAfter = 10 * time.Second
)

// silence is what is known of whether the store answers.
type silence struct {
	mu    sync.Mutex // guards all below; it is not held while the store is asked
	heard time.Time  // when it last answered Look
	why   error      // why it is taken for silent; nil while it is not
	// asked are the requests that have no answer yet, by when they were made.
	asked map[*time.Time]struct{}
}

// asks takes note of a request, until answered is called.
func (s *silence) asks() (answered func()) {
	at := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = map[*time.Time]struct{}{}
	}
	s.asked[&at] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.asked, &at)
	}
}

// waitsTold is how long a request may have no answer before whoever waits is told.
const waitsTold = time.Second

// Waits says for how long the store has owed an answer, if that is longer than usual; else it is empty.
func (s *Store) Waits() string {
	s.silence.mu.Lock()
	defer s.silence.mu.Unlock()
	longest := time.Duration(0)
	for at := range s.silence.asked {
		longest = max(longest, time.Since(*at))
	}
	if longest < waitsTold {
		return ""
	}
	return fmt.Sprintf("the store (%s), which has not answered for %s", s.place, longest.Round(time.Second))
}

// noted takes note of Look's answer, or of why there was none.
func (s *silence) noted(now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard.IsZero() || err == nil {
		s.heard = now
	}
	if s.why = nil; err != nil && now.Sub(s.heard) >= silentAfter {
		s.why = err
	}
}

// refuses says why a request is not made; nil if it is.
func (s *silence) refuses() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == nil {
		return nil
	}
	return fmt.Errorf("%w since %s; what runs goes on running, and nothing can be changed until it does (%w)",
		ErrSilent, s.heard.Local().Format(time.TimeOnly), s.why)
}

// Silent says since when the store has not answered, and why; nil while it answers. Look finds it out.
func (s *Store) Silent() error {
	if err := s.silence.refuses(); err != nil {
		return fmt.Errorf("the store (%s): %w", s.place, err)
	}
	return nil
}

// lookKey marks the requests of Look, which are made all the same.
type lookKey struct{}

func (s *silence) allows(ctx context.Context) error {
	if ctx.Value(lookKey{}) != nil {
		return nil
	}
	return s.refuses()
}
