package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/watch"
)

// The watch also learns from others than its own looks: the watcher of the kernel's time and the bounds of the kernel's
// tables. What they tell is counted here, over a minute.

const (
	// tallySpan is how long an occurrence counts.
	tallySpan = time.Minute
	// tallyMost bounds how many occurrences are remembered for one signal of one element.
	tallyMost = 1024
)

// happened is how often something occurred at one moment.
type happened struct {
	at time.Time
	n  int
}

// tallyKey is one signal of one element.
type tallyKey struct {
	id     model.ID
	signal watch.Signal
}

// tally counts what others than the samples of packets tell of elements. Drivers and watchers add to it from goroutines
// of their own, and who judges reads it.
type tally struct {
	mu  sync.Mutex // guards all; it may be taken under any other lock
	all map[tallyKey][]happened
}

func newTally() tally { return tally{all: map[tallyKey][]happened{}} }

// add counts n times more of a signal.
func (t *tally) add(id model.ID, signal watch.Signal, n int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := tallyKey{id, signal}
	all := append(t.all[k], happened{now, n})
	if len(all) > tallyMost { // the oldest are dropped: a thousand occurrences are far beyond any limit
		all = slices.Delete(all, 0, len(all)-tallyMost)
	}
	t.all[k] = all
}

// sum counts the occurrences within tallySpan before now, and forgets the older ones.
func (t *tally) sum(id model.ID, signal watch.Signal, now time.Time, span time.Duration) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := tallyKey{id, signal}
	all := slices.DeleteFunc(t.all[k], func(h happened) bool { return now.Sub(h.at) > tallySpan })
	if t.all[k] = all; len(all) == 0 {
		delete(t.all, k)
	}
	for _, h := range all {
		if now.Sub(h.at) < span {
			n += h.n
		}
	}
	return n
}

// keep forgets those who are gone.
func (t *tally) keep(wanted func(model.ID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.all {
		if !wanted(k.id) {
			delete(t.all, k)
		}
	}
}

// values returns the signals that are counted here.
func (t *tally) values(id model.ID, now time.Time) []watch.Value {
	requests := float64(t.sum(id, watch.Sockets, now, 2*usageEvery))
	return []watch.Value{
		{Signal: watch.Kernel, Value: float64(t.sum(id, watch.Kernel, now, tallySpan))},
		{Signal: watch.Tables, Value: float64(t.sum(id, watch.Tables, now, tallySpan))},
		{Signal: watch.Sockets, Value: requests / (2 * usageEvery).Seconds()},
	}
}

// trimmed counts how much an element had, or wanted, beyond its bound of one of the kernel's tables.
func (w *watcher) trimmed(x control.Trimmed, now time.Time) {
	if w == nil {
		return
	}
	switch x.Table {
	case control.Rings, control.Filters:
		w.tally.add(x.ID, watch.Sockets, x.Had, now)
	case control.Neighbours, control.Connections:
		w.tally.add(x.ID, watch.Tables, 1, now)
	}
}

// disks is what was seen of the elements' disks within the last minute.
type disks map[model.ID]*disk

// disk is how full an element's disk was, in time's order.
type disk struct {
	at       []time.Time
	shares   []float64 // at these times, 0…1
	restless time.Time // when the disk was last worth frequent looks
}

func (d *disk) add(now time.Time, share float64) {
	d.at, d.shares = append(d.at, now), append(d.shares, share)
	old := 0
	for old < len(d.at) && now.Sub(d.at[old]) > diskSpan {
		old++
	}
	d.at, d.shares = slices.Delete(d.at, 0, old), slices.Delete(d.shares, 0, old)
}

// turns enters the fill level of an element's disk, and returns how often the disk turned from filling to emptying or
// back within the minute.
func (all disks) turns(id model.ID, now time.Time, share float64, busy bool) float64 {
	d := all[id]
	if d == nil {
		if share == 0 && !busy {
			return 0
		}
		d = &disk{}
		all[id] = d
	}
	if n := len(d.shares); busy || n > 0 && max(share-d.shares[n-1], d.shares[n-1]-share) >= diskStep {
		d.restless = now
	}
	d.add(now, share)
	return float64(watch.Turns(d.shares))
}

// look reads the disks that are worth it, and forgets those that were not counted for a minute.
func (all disks) look(now time.Time, share func(model.ID) float64) {
	for id, d := range all {
		switch n := len(d.at); {
		case n == 0 || now.Sub(d.at[n-1]) > diskSpan:
			delete(all, id)
		case now.Sub(d.restless) < 3*usageEvery:
			d.add(now, share(id))
		}
	}
}

// diskShare is the used share of an element's disk; zero for an element without a disk.
func (a *Agent) diskShare(id model.ID) float64 {
	d, err := driver[control.Disks](a, id, "tell how full its disk is")
	if err != nil {
		return 0
	}
	return d.DiskShare(id)
}
