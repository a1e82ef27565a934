package netns

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// crew does slow work on processes – starting, stopping, checking, reloading – so that nobody has to wait for it. It is
// fair among networks: they take turns, and a network whose work waits or hangs keeps no other from beginning. A worker
// needs a "hand" to go on, and there are only so many hands: more would only make all of them slower. Work that says it
// is waiting gives its hand back until it goes on. Work that has held a hand for slowAfter probably waits as well, and
// loses it. So there may be more workers than hands, but both are bounded.
type crew struct {
	hands int // there are so many

	mu    sync.Mutex       // guards all below; it is not held while any work is done
	lanes map[string]*lane // by network; those with work only
	order []string         // the networks, in the order of their turns
	held  int              // hands
	begun int              // workers
	all   sync.WaitGroup
}

// lane is one network's work.
type lane struct {
	urgent  []func(*hand) // begins first: people wait for it, and it does not wait long for elements
	waiting []func(*hand)
	back    []chan struct{} // workers that have begun, and want a hand again
	held    int
	begun   int
}

const (
	slowAfter = time.Second
	// laneMost and crewMost bound how many workers one network has, and all together. urgentMost is the bound for one
	// network if its next work is urgent. Every network has at least one.
	laneMost   = 32
	urgentMost = 128
	crewMost   = 256
)

func newCrew() *crew {
	return &crew{hands: 2 * max(2, runtime.NumCPU()), lanes: map[string]*lane{}}
}

// do queues work for a network.
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

// dispatch gives out the free hands, one to each network in turn. The caller holds the lock.
func (c *crew) dispatch() {
	for given := true; given; {
		given = false
		for range len(c.order) {
			name := c.order[0]
			l := c.lanes[name]
			c.order = append(c.order[1:], name)
			// A network that has no hand gets one even if all are given out: it must not wait for other networks' work.
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

// begin begins a network's next work. The caller holds the lock.
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

// drop gives the hand back. The caller holds the crew's lock.
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

// handKey is where a context has the hand that its work uses.
type handKey struct{}

// withHand tells work, by its context, whose hand it uses.
func withHand(ctx context.Context, h *hand) context.Context {
	return context.WithValue(ctx, handKey{}, h)
}

// resting waits, and gives the hand back meanwhile.
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
