package watch

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// A scan that tries a service only now and then stands out from the other traffic, but a sample of a quarter of a
// second misses it. So elements that send little are also watched for ten seconds at a time, in turn, and what they
// tried in vain is remembered over minutes. Only watched time counts: if many elements share the turns, their minutes
// are put together from more windows.

const (
	// slowWatched is the watched time over which services are counted, slowOld the greatest age of what is counted.
	slowWatched = 5 * time.Minute
	slowOld     = 30 * time.Minute
	// slowAnswer is how long a service may take to answer.
	slowAnswer = time.Second
	// slowHeld is how long a packet of somebody else may wait in an element for a neighbour's answer before it is
	// passed on.
	slowHeld = 3 * time.Second
	// slowMost bounds how many services are remembered of one element: more than is suspicious, and still little for a
	// thousand elements.
	slowMost = 100
)

// Slow remembers what elements tried in vain. It is not safe for concurrent use.
type Slow struct{ elements map[model.ID]*slow }

// NewSlow remembers nothing.
func NewSlow() *Slow { return &Slow{map[model.ID]*slow{}} }

type slow struct {
	windows []window // the oldest first
	tried   map[netip.AddrPort]time.Time
	// passed are services that others tried through the element or at it, at the end of the latest window.
	passed map[netip.AddrPort]bool
}

// window is a time that was watched.
type window struct {
	from     time.Time
	span     time.Duration
	provoked bool
}

// Take takes what passed an element's ports from a time on, and returns how many services the element has tried in vain
// lately. Samples that were full before an answer had its time are not used.
func (w *Slow) Take(id model.ID, from time.Time, ports []Sampled) Value {
	s := newSample(ports)
	e := w.elements[id]
	if s.span >= 2*slowAnswer {
		e = w.learn(id, e, from, s)
	}
	if e == nil {
		return Value{Signal: SlowScan}
	}
	e.forget(from.Add(s.span))
	if len(e.tried) == 0 && len(e.passed) == 0 {
		delete(w.elements, id)
	}
	return e.value()
}

func (w *Slow) learn(id model.ID, e *slow, from time.Time, s *sample) *slow {
	var before map[netip.AddrPort]bool
	if e != nil && len(e.windows) > 0 {
		if last := e.windows[len(e.windows)-1]; from.Sub(last.from.Add(last.span)) < slowHeld {
			before = e.passed
		}
	}
	r := s.services(slowAnswer, before)
	alone := r.alone()
	if e == nil {
		if len(alone) == 0 && len(r.passed) == 0 {
			return nil
		}
		e = &slow{tried: map[netip.AddrPort]time.Time{}}
		w.elements[id] = e
	}
	e.passed = map[netip.AddrPort]bool{}
	for peer, at := range r.passed {
		if at >= s.span-slowHeld {
			e.passed[peer] = true
		}
	}
	e.windows = append(e.windows, window{from, s.span, r.provoked(len(alone))})
	for peer := range r.accepted { // late is not never
		delete(e.tried, peer)
	}
	for peer := range alone {
		if _, known := e.tried[peer]; known || len(e.tried) < slowMost {
			e.tried[peer] = from
		}
	}
	return e
}

// forget keeps slowWatched of watched time, and nothing older than slowOld.
func (e *slow) forget(now time.Time) {
	watched, first := time.Duration(0), len(e.windows)
	for first > 0 && watched < slowWatched && now.Sub(e.windows[first-1].from) <= slowOld {
		first--
		watched += e.windows[first].span
	}
	e.windows = slices.Delete(e.windows, 0, first)
	for peer, at := range e.tried {
		if len(e.windows) == 0 || at.Before(e.windows[0].from) {
			delete(e.tried, peer)
		}
	}
}

func (e *slow) value() Value {
	v := Value{Signal: SlowScan, Value: float64(len(e.tried))}
	if len(e.tried) == 0 {
		return v
	}
	v.Provoked = slices.ContainsFunc(e.windows, func(w window) bool { return w.provoked })
	addresses := map[netip.Addr]bool{}
	var one netip.Addr
	for p := range e.tried {
		one = p.Addr()
		addresses[one] = true
	}
	last := e.windows[len(e.windows)-1]
	span := last.from.Add(last.span).Sub(e.windows[0].from).Round(time.Second)
	if len(addresses) == 1 {
		v.Detail = fmt.Sprintf("%d services of %s in %s", len(e.tried), one, span)
	} else {
		v.Detail = fmt.Sprintf("%d services at %d addresses in %s", len(e.tried), len(addresses), span)
	}
	return v
}

// Forget forgets an element. It has been cut off, and what it did before that does not count when it is released.
func (w *Slow) Forget(id model.ID) { delete(w.elements, id) }

// Keep forgets the elements that are no longer wanted, and what is too old.
func (w *Slow) Keep(now time.Time, wanted func(model.ID) bool) {
	for id, e := range w.elements {
		if e.forget(now); !wanted(id) || len(e.tried) == 0 {
			delete(w.elements, id)
		}
	}
}
