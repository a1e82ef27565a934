package kerneltime

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/linux"
)

// When to look. While packets take little of the processors, only the kernel's own count of soft interrupts is read.
const (
	glance    = 100 * time.Millisecond // at that account
	lookEvery = 400 * time.Millisecond
	againIn   = 60 * time.Millisecond // where somebody is suspected
	window    = 40 * time.Millisecond
	// little: while packets take less of the processors than this, in cores, nobody is looked at.
	little = 0.1
	// much: when they take this, elements are looked at every time; below that, every seldom-th time.
	much   = 0.5
	seldom = 5
	// barredFor is how long an element that has caused too much work for the second time may have no devices of its
	// own. barredEvery is how often that is checked.
	barredFor   = 10 * time.Minute
	barredEvery = 100 * time.Millisecond
	// mostPaced is the longest time that an element's packets are paced.
	mostPaced = 10 * time.Minute
	// mostEntries bounds at how many elements a look counts what comes into a network from elsewhere.
	mostEntries = 64
)

// PacedFor is how long an element's packets are paced the first time. Each further time within ten minutes it is twice
// as long.
const PacedFor = time.Minute

// Verdict says what was done to an element that caused more work than it may.
type Verdict[ID comparable] struct {
	ID ID
	Excess
	Removed int  // of its devices
	Barred  bool // it may have none for a time
	// Paced is how long it gets only Excess.Pace packets a second. It is zero if devices were removed instead.
	Paced time.Duration
	Err   error
}

// Watcher says how much the kernel works for elements, and ends what is excessive.
type Watcher[ID comparable] struct {
	// Elements returns the elements that exist. It must not wait for anything.
	Elements func() map[ID]Element
	// Pace limits an element to so many packets a second; a negative number is no limit. It must not wait for anything.
	Pace func(ID, Element, int) error
	// Tell gets the verdicts. It must not wait either.
	Tell func(Verdict[ID])
	Log  *slog.Logger

	mu   sync.Mutex // guards time, which is for others than Run
	time map[ID]Time

	// All below is Run's own.
	sampler *Sampler
	spaces  map[uint32]ID // by the inode of the network namespace
	last    map[ID]*look
	hurry   bool             // somebody is looked at for the first time
	rest    int              // how many times until elements are looked at although packets take little
	cut     map[ID]time.Time // when devices of it were removed last
	barred  map[ID]time.Time // until when
	paced   map[ID]pacing
	idle    map[ID]map[string]uint64 // devices of barred elements that were not up, and what they had counted
	guarded time.Time
	here    here
}

// pacing is the last pace that an element was held to.
type pacing struct {
	rate  int // less than none: it is over
	until time.Time
	span  time.Duration
}

// Times says how much of the processors each element's packets took at the latest looks. An element that is not in it
// took next to nothing.
func (w *Watcher[ID]) Times() map[ID]Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.time)
}

// Run watches until the context ends. What floods the processors must not keep it from them, so its thread goes before
// all others. The little work that it does is bounded.
func (w *Watcher[ID]) Run(ctx context.Context) error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	first := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	if unix.SchedSetAttr(0, &first, 0) != nil { // as with control groups v1, which reserve no time for such threads
		unix.Setpriority(unix.PRIO_PROCESS, 0, -20) //nolint:errcheck // then it waits its turn
	}
	w.last, w.cut, w.barred, w.paced = map[ID]*look{}, map[ID]time.Time{}, map[ID]time.Time{}, map[ID]pacing{}
	w.idle = map[ID]map[string]uint64{}
	defer func() {
		if w.sampler != nil {
			w.sampler.Close()
		}
	}()
	var err error
	if w.here, err = newHere(); err != nil {
		return fmt.Errorf("watch the time for packets: %w", err)
	}
	defer w.here.home.Close()
	spent, err := SoftInterrupts()
	if err != nil {
		w.Log.Warn("time for packets is not measured", "error", err)
		<-ctx.Done()
		return nil
	}
	at, looked, told := time.Now(), time.Now(), ""
	usual := 0.0 // how much packets took at the last look
	for {
		pause := glance
		if w.hurry {
			pause = againIn
		}
		if rest(pause); ctx.Err() != nil {
			return nil
		}
		w.guard(time.Now())
		now := time.Now()
		is, err := SoftInterrupts()
		if err == nil {
			cores := (is - spent).Seconds() / now.Sub(at).Seconds()
			spent, at = is, now
			sudden := cores > usual+much
			if due := now.Sub(looked) >= lookEvery; w.hurry || sudden || due {
				if looked, usual = now, cores; due {
					w.rest--
				}
				if w.hurry || cores > much || cores <= little || w.rest <= 0 {
					w.rest = seldom
					err = w.round(w.hurry || cores > little)
				}
			}
		}
		if err != nil && err.Error() != told {
			told = err.Error()
			w.Log.Warn("time for packets is not measured", "error", err)
		}
	}
}

// rest sleeps. The kernel wakes the thread. For Go's timers another thread of the runtime would have to run first, and
// that one has no priority.
func rest(span time.Duration) {
	t := unix.NsecToTimespec(int64(span))
	unix.Nanosleep(&t, nil) //nolint:errcheck // an early end is none that matters
}

// look lists an element's devices; of those with these indices it returns whatever is known. It avoids waiting for
// others if it can.
func (w *Watcher[ID]) look(e *Element, indices iter.Seq[int]) (all []Device, err error) {
	if all, err = w.here.peek(e, indices); !errors.Is(err, errUnknownEnds) {
		return all, err
	}
	err = in(e.Path, func(c *linux.Rtnetlink) error {
		all, err = devices(c, e)
		return err
	})
	return all, err
}

// round looks once at who takes time.
func (w *Watcher[ID]) round(busy bool) error {
	w.hurry = false
	if !busy {
		w.publish(nil)
		clear(w.last)
		return nil
	}
	elements := w.Elements()
	if len(elements) == 0 {
		w.publish(nil)
		return nil
	}
	if w.sampler == nil {
		var err error
		if w.sampler, err = New(); err != nil {
			return err
		}
	}
	work, err := w.sampler.Measure(window)
	if err != nil {
		return err
	}
	taken := work.Taken
	w.know(elements, taken)
	times, looks := map[ID]Time{}, map[ID]*look{}
	now := time.Now()
	for owner, t := range taken {
		id, ours := w.spaces[owner.Space]
		if !ours {
			continue
		}
		sum := times[id]
		sum.Taken, sum.Own = sum.Taken+t.Taken, sum.Own+t.Own
		times[id] = sum
		if looks[id] == nil {
			looks[id] = &look{at: now, cores: map[int]float64{}}
		}
		looks[id].cores[int(owner.Device)] += t.Taken
	}
	origins := map[string]float64{}
	for space, rate := range work.Origins {
		if id, ours := w.spaces[space]; ours {
			origins[elements[id].Network] += rate
		}
	}
	for id, l := range looks {
		l.origins = origins[elements[id].Network]
	}
	w.publish(times)
	w.judge(elements, looks)
	return nil
}

// know finds out which element has which namespace, when it meets a namespace that is not known.
func (w *Watcher[ID]) know(elements map[ID]Element, taken map[Owner]Time) {
	for owner := range taken {
		id, known := w.spaces[owner.Space]
		if _, there := elements[id]; known && there {
			continue
		}
		w.spaces = make(map[uint32]ID, len(elements))
		for id, e := range elements {
			var s unix.Stat_t
			if unix.Stat(e.Path, &s) == nil {
				w.spaces[uint32(s.Ino)] = id
			}
		}
		return
	}
}

// publish announces the latest times, as the mean of the last value and the new one: a single look is short.
func (w *Watcher[ID]) publish(times map[ID]Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := make(map[ID]Time, len(times))
	for id, is := range times {
		was := w.time[id]
		next[id] = Time{Taken: (was.Taken + is.Taken) / 2, Own: (was.Own + is.Own) / 2}
	}
	for id, was := range w.time {
		if _, there := times[id]; !there && was.Taken+was.Own > 0.01 {
			next[id] = Time{Taken: was.Taken / 2, Own: was.Own / 2}
		}
	}
	w.time = next
}

// judge looks into the elements that take more than they may. If one has done so twice in a row, it ends that.
func (w *Watcher[ID]) judge(elements map[ID]Element, looks map[ID]*look) {
	suspects := map[ID]*look{}
	entries := map[string]*look{}
	for id, is := range looks {
		e := elements[id]
		if is.total() <= e.allowed() {
			continue
		}
		from := entries[e.Network]
		if from == nil {
			from = w.entered(elements, e.Network)
			entries[e.Network] = from
		}
		is.entered, is.unknown = from.entered, from.unknown
		var err error
		if is.devices, err = w.look(&e, maps.Keys(is.cores)); err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				w.Log.Warn("look at the devices of an element", "element", id, "error", err)
			}
			continue
		}
		suspects[id] = is
		was := w.last[id]
		if was == nil {
			w.hurry = true
			continue
		}
		if x, guilty := judge(&e, was, is); guilty {
			w.end(id, e, x)
			delete(suspects, id)
		}
	}
	w.last = suspects
}

// entered counts what came into a network by links from elsewhere: from other nodes, and edges.
func (w *Watcher[ID]) entered(elements map[ID]Element, network string) *look {
	sum, n := &look{}, 0
	for _, e := range elements {
		if e.Network != network || len(e.Outer) == 0 {
			continue
		}
		if n++; n > mostEntries {
			sum.unknown = true
			return sum
		}
		all, err := w.look(&e, none)
		for _, d := range all {
			if d.Outer {
				sum.entered += d.Received
			}
		}
		sum.unknown = sum.unknown || err != nil && !errors.Is(err, os.ErrNotExist)
	}
	return sum
}

// pace holds an element to what it may cause, each time for longer.
func (w *Watcher[ID]) pace(id ID, e Element, rate int, now time.Time) (time.Duration, error) {
	p, before := w.paced[id]
	switch {
	case !before || now.Sub(p.until) > mostPaced:
		p.span = PacedFor
	case p.rate < 0:
		p.span = min(2*p.span, mostPaced)
	}
	p.rate, p.until = max(rate, 1), now.Add(p.span)
	w.paced[id] = p
	return p.span, w.Pace(id, e, p.rate)
}

// end removes an element's own devices. If it makes them again, it loses them at once, for a while. If none of them is
// the cause, the element gets fewer packets.
func (w *Watcher[ID]) end(id ID, e Element, x Excess) {
	v := Verdict[ID]{ID: id, Excess: x}
	now := time.Now()
	if len(x.Devices) == 0 {
		v.Paced, v.Err = w.pace(id, e, x.Pace, now)
	} else {
		v.Removed, v.Err = removeForeign(&e)
		if before, again := w.cut[id]; again && now.Sub(before) < barredFor {
			w.barred[id], v.Barred = now.Add(barredFor), true
		}
		w.cut[id] = now
	}
	w.Tell(v)
}

// none are no indices.
func none(func(int) bool) {}

// keepBare removes those of an element's own devices that are up. The others stay, and are looked at again when they
// count packets.
func (w *Watcher[ID]) keepBare(id ID, e *Element) error {
	all, err := w.look(e, none)
	if err != nil {
		return err
	}
	left, known := w.idle[id], 0
	for _, d := range all {
		if d.Port {
			continue
		}
		if packets, there := left[d.Name]; !there || packets != d.Packets {
			known = -1
			break
		}
		known++
	}
	if known == len(left) {
		return nil
	}
	if _, err = removeForeign(e); err != nil {
		return err
	}
	left = map[string]uint64{}
	if all, err = w.look(e, none); err != nil {
		return err
	}
	for _, d := range all {
		if !d.Port {
			left[d.Name] = d.Packets
		}
	}
	w.idle[id] = left
	return nil
}

// removeForeign removes devices that are up and are no ends of the element's links.
func removeForeign(e *Element) (n int, err error) {
	err = in(e.Path, func(c *linux.Rtnetlink) error {
		all, err := devices(c, e)
		others := foreign(all)
		if n = len(others); err == nil && n > 0 {
			err = remove(c, others)
		}
		return err
	})
	return n, err
}

// foreign returns the devices that somebody made and that can do anything.
func foreign(all []Device) (others []Device) {
	return each.That(all, func(d Device) bool { return !d.Port && d.Up })
}

// guard keeps the barred elements without devices of their own, and the paced ones at their pace, even at ports that
// were made since.
func (w *Watcher[ID]) guard(now time.Time) {
	if len(w.barred) == 0 && len(w.paced) == 0 {
		return
	}
	elements := w.Elements()
	for id, p := range w.paced {
		e, there := elements[id]
		switch {
		case p.rate < 0:
			if now.Sub(p.until) > mostPaced {
				delete(w.paced, id)
			}
			continue
		case !there:
			delete(w.paced, id)
			p.rate = -1
		case now.After(p.until):
			p.rate = -1
			w.paced[id] = p
		}
		if err := w.Pace(id, e, p.rate); err != nil {
			w.Log.Warn("pace the packets of an element", "element", id, "error", err)
		}
	}
	if now.Sub(w.guarded) < barredEvery-10*time.Millisecond {
		return
	}
	w.guarded = now
	for id, until := range w.barred {
		e, there := elements[id]
		if !there || now.After(until) {
			delete(w.barred, id)
			delete(w.idle, id)
			continue
		}
		err := w.keepBare(id, &e)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.Log.Warn("keep an element without devices of its own", "element", id, "error", err)
		}
	}
}
