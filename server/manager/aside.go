package manager

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
)

// settling has the store take what it has not taken, or not answered. Nothing else waits for that, and only its own
// goroutine uses it: looks at the store go on, and changes wait for one short write at most.
type settling struct {
	*known
	after   time.Time     // when writes are taken back again
	wait    time.Duration // after one that was not
	refused string        // what StoreAside was last refused with
	told    map[string]bool
}

func (k *known) settling() *settling { return &settling{known: k, told: map[string]bool{}} }

// run goes on until the context ends.
func (s *settling) run(ctx context.Context) {
	tick := time.Tick(storeLook)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			s.settle(ctx, time.Now())
		}
	}
}

func (s *settling) settle(ctx context.Context, now time.Time) {
	s.asideStored(ctx)
	s.takeBack(ctx, now)
}

// asideStored has the store take what was decided while it took nothing, and tells of it.
func (s *settling) asideStored(ctx context.Context) {
	defer s.tellOvertaken()
	if s.store.Aside() == "" {
		return
	}
	err := s.store.StoreAside(ctx)
	switch {
	case err == nil:
		s.refused = ""
		s.event(model.Info, "manager", "AsideStored", "the store has taken what was decided while it took nothing", "")
	case s.store.TakesNothing(err):
		slog.Debug("the store does not take what was laid aside yet", "error", err)
	case err.Error() != s.refused:
		s.refused = err.Error()
		slog.Warn("the store has not taken all that was laid aside", "error", err)
	}
}

// tellOvertaken tells of decisions that were laid aside and do not count. Nobody would notice otherwise: they were
// answered as done.
func (k *known) tellOvertaken() {
	networks, documents := k.store.Overtaken()
	for _, network := range networks {
		k.mu.Lock()
		k.networkEvent(model.Error, network, "AsideOvertaken", "what was decided of it while the store took nothing "+
			"does not count, since it was changed in the store by somebody else: see whether somebody runs who was "+
			"stopped or cut off", "")
		k.mu.Unlock()
	}
	for _, document := range documents {
		what, owner, is := strings.Cut(document, "/")
		if is {
			what = fmt.Sprintf("%s on deleted elements of %s", what, owner)
		}
		k.event(model.Error, "manager", "AsideOvertaken", fmt.Sprintf("what was decided of the %s while the "+
			"store took nothing does not count, since that was changed in the store by somebody else: see what "+
			"counts, and decide it again", what), "")
	}
}

// tellAside tells of a network of which the store has not taken the last change. The caller holds the lock.
func (k *known) tellAside(network string) {
	if why := k.store.AsideOf(network); why != "" {
		k.networkEvent(model.Warning, network, "LaidAside", "what was decided last is not in the store: "+why, "")
	}
}

// mostWait is how long a write without an answer is left alone at most after it could not be taken back.
const mostWait = time.Minute

// takeBack has the store keep what the manager knows of networks of which a write got no answer: whoever asked for it
// was told that it has failed.
func (s *settling) takeBack(ctx context.Context, now time.Time) {
	unsure := s.store.Unsure()
	if len(unsure) == 0 {
		clear(s.told)
		s.wait = 0
	}
	if len(unsure) == 0 || now.Before(s.after) || s.store.Silent() != nil {
		return
	}
	// What only reads, or has no room, is not written to while others wait for this.
	err := s.store.Takes(ctx)
	for _, name := range unsure {
		if err != nil {
			break
		}
		if s.store.AsideOf(name) == "" { // else StoreAside settles it
			err = s.takeBackOf(ctx, name)
		}
	}
	if err == nil {
		s.wait = 0
		return
	}
	s.wait = min(max(2*s.wait, storeLook), mostWait)
	s.after = now.Add(s.wait)
}

// takeBackOf takes back what was written of one network. Of what cannot be taken back yet, people are told once.
func (s *settling) takeBackOf(ctx context.Context, name string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.RLock()
	n := s.networks[name]
	var is *model.Record
	if n != nil {
		is = &n.record
	}
	damaged := n != nil && n.damaged != nil
	s.mu.RUnlock()
	if damaged {
		return nil
	}
	err := s.store.TakeBack(ctx, name, is)
	if err != nil && !s.told[name] {
		s.told[name] = true
		slog.Error("a write without an answer is not taken back yet", "network", name, "error", err)
	}
	return err
}
