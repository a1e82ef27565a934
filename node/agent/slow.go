package agent

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/watch"
)

// Slow scans need longer samples than the watch's short looks. Elements that send little are sampled for ten seconds,
// sixteen at a time and in turn. That copies little, since they send and receive little.
const (
	slowSpan = 10 * time.Second
	slowMost = 16
	// slowBelow: above so many packets a second of one port, a sample would be full too early to tell anything.
	slowBelow = 200
	// slowSpoke is how long an element keeps its turn after it sent something.
	slowSpoke = time.Minute
)

// slowly connects three parties: the loop says who may be watched, a goroutine watches, and the judge takes what was
// seen.
type slowly struct {
	wanted *atomic.Bool   // the goroutine is free: else the loop need not look for elements to offer
	offers chan []watched // holds one, the latest
	seen   chan slowSeen
}

// slowSeen is what was seen of some elements from a time on.
type slowSeen struct {
	at       time.Time
	elements []watched
	samples  map[model.PortID]fabric.Sample
}

func newSlowly() slowly {
	return slowly{new(atomic.Bool), make(chan []watched, 1), make(chan slowSeen)}
}

// offer says who may be watched. It never waits.
func (s *slowly) offer(elements []watched) {
	select {
	case s.offers <- elements:
	default:
	}
}

// watchSlowly watches until the context ends.
func (a *Agent) watchSlowly(ctx context.Context) error {
	sampler, ok := a.Drivers.Fabric.(Sampler)
	if !ok {
		return nil
	}
	watchedAt := map[model.ID]time.Time{}
	for {
		select {
		case <-a.watcher.slow.offers: // it is of ten seconds ago
		default:
		}
		a.watcher.slow.wanted.Store(true)
		var elements []watched
		select {
		case <-ctx.Done():
			return nil
		case elements = <-a.watcher.slow.offers:
		}
		a.watcher.slow.wanted.Store(false)
		if len(watchedAt) > 2*len(elements)+64 { // most of it belongs to elements that are gone, or silent
			clear(watchedAt)
		}
		// Who waited longest has the next turn.
		slices.SortStableFunc(elements, func(x, y watched) int { return watchedAt[x.id].Compare(watchedAt[y.id]) })
		elements = elements[:min(len(elements), slowMost)]
		var ports []model.PortID
		at := time.Now()
		for _, e := range elements {
			watchedAt[e.id] = at
			ports = append(ports, e.ports...)
		}
		samples, err := sampler.Sample(ctx, ports, slowSpan, watch.SnapLen)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				a.Log.Warn("look for slow scans", "error", err)
			}
			if !sleep(ctx, slowSpan) {
				return nil
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case a.watcher.slow.seen <- slowSeen{at, elements, samples}:
		}
	}
}

// lookSlowly judges what was seen, and acts on it.
func (a *Agent) lookSlowly(w *watch.Watch, slow *watch.Slow, seen slowSeen) {
	for _, e := range seen.elements {
		if a.cuts.is(e.id) {
			slow.Forget(e.id)
			continue
		}
		v := slow.Take(e.id, seen.at, sampledOf(e, seen.samples))
		found := w.Look(e.id, time.Now(), []watch.Value{v})
		if v.Value > 0 || len(found) > 0 {
			a.watcher.record(watchLook{At: time.Now(), ID: e.id, Values: []watch.Value{v}, Found: found})
		}
		if len(found) == 0 {
			continue
		}
		a.watcher.remember(e, seen.at, seen.samples)
		if a.suspect(e, found) {
			w.Forgive(e.id)
			slow.Forget(e.id)
		}
	}
}
