package netns

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// crew works off what is slow – starting, stopping, checking and reloading processes – beside whoever asks for it. It
// is fair among networks: they have their turns one after the other, and what one has waiting, or has that hangs, keeps
// no other from beginning.
//
// Whoever works has a hand, and there are only so many: more would only make all of them slower. Whoever waits needs
// none. Work that says that it waits gives its hand back until it goes on; work that holds one for slowAfter waits for
// something too, as a rule, and has it taken away. So there may be more workers than hands, but neither are without
// bounds.
type crew struct {
	hands int // there are so many

	mu    sync.Mutex
	lanes map[string]*lane // by network; those with work only
	order []string         // the lanes, in the order in which they have their turns
	held  int              // hands
	begun int              // workers
	all   sync.WaitGroup
}

// lane is one network's work.
type lane struct {
	urgent  []func(*hand) // the first to begin: people wait for it, and it does not wait for elements for long
	waiting []func(*hand)
	back    []chan struct{} // those that have begun, and want a hand again
	held    int
	begun   int
}

const (
	slowAfter = time.Second
	// laneMost and crewMost are how many workers there are at most, of one network and of all; urgentMost how many
	// there are of one network if the next work is urgent. A network has one in any case.
	laneMost   = 32
	urgentMost = 128
	crewMost   = 256
)

func newCrew() *crew {
	return &crew{hands: 2 * max(2, runtime.NumCPU()), lanes: map[string]*lane{}}
}

// do has work done for a network, some time.
func (c *crew) do(network string, urgent bool, work func(*hand)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[network]
	if l == nil {
		l = &lane{}
		c.lanes[network] = l
		c.order = append(c.order, network)
	}
	if urgent {
		l.urgent = append(l.urgent, work)
	} else {
		l.waiting = append(l.waiting, work)
	}
	c.dispatch()
}

// dispatch gives out what hands there are, one a network in turn. The lock is held.
func (c *crew) dispatch() {
	for given := true; given; {
		given = false
		for range len(c.order) {
			name := c.order[0]
			l := c.lanes[name]
			c.order = append(c.order[1:], name)
			// Who has none gets one although all are given out: it does not wait for those of others.
			if c.held >= c.hands && (l.held > 0 || c.held >= c.hands+crewMost) {
				continue
			}
			switch {
			case len(l.back) > 0:
				close(l.back[0])
				l.back = l.back[1:]
			case len(l.urgent) > 0 && l.begun < urgentMost:
				c.begin(name, l, &l.urgent)
			case len(l.waiting) > 0 && (l.begun == 0 || l.begun < laneMost && c.begun < crewMost):
				c.begin(name, l, &l.waiting)
			default:
				continue
			}
			l.held++
			c.held++
			given = true
		}
	}
}

// begin begins a network's next work. The lock is held.
func (c *crew) begin(network string, l *lane, list *[]func(*hand)) {
	work := (*list)[0]
	*list = (*list)[1:]
	l.begun++
	c.begun++
	h := &hand{crew: c, lane: l, holds: true}
	h.slow = time.AfterFunc(slowAfter, h.give)
	c.all.Go(func() {
		work(h)
		h.slow.Stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		h.drop()
		l.begun--
		c.begun--
		if l.begun == 0 && len(l.waiting) == 0 && len(l.urgent) == 0 {
			delete(c.lanes, network)
			c.order = slices.DeleteFunc(c.order, func(name string) bool { return name == network })
		}
		c.dispatch()
	})
}

// hand is what a worker needs to work.
type hand struct {
	crew  *crew
	lane  *lane
	slow  *time.Timer
	holds bool
}

// drop lets go of the hand. The crew's lock is held.
func (h *hand) drop() {
	if h.holds {
		h.holds = false
		h.lane.held--
		h.crew.held--
	}
}

func (h *hand) give() {
	h.crew.mu.Lock()
	defer h.crew.mu.Unlock()
	h.drop()
	h.crew.dispatch()
}

// take waits for a hand.
func (h *hand) take() {
	given := make(chan struct{})
	h.crew.mu.Lock()
	h.lane.back = append(h.lane.back, given)
	h.crew.dispatch()
	h.crew.mu.Unlock()
	<-given
	h.crew.mu.Lock()
	h.holds = true
	h.crew.mu.Unlock()
	h.slow.Reset(slowAfter)
}

type handKey struct{}

// withHand has what works with the context know whose hand it uses.
func withHand(ctx context.Context, h *hand) context.Context {
	return context.WithValue(ctx, handKey{}, h)
}

// resting waits, without a hand meanwhile.
func resting(ctx context.Context, wait func()) {
	h, ok := ctx.Value(handKey{}).(*hand)
	if !ok {
		wait()
		return
	}
	h.slow.Stop()
	h.give()
	wait()
	h.take()
}
