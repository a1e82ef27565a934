package kernelmemory

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/polyplane/polyplane/linux"
)

// When is looked.
const (
	readEvery = 50 * time.Millisecond
	// followEvery is how often an element is looked at that had too much.
	followEvery = 200 * time.Millisecond
	// All elements are looked at when the kernel's own memory has grown by step since the last time, or by hurry if
	// that was a short time ago.
	step  = 32 << 20
	hurry = 128 << 20
	// share is the part of a processor's time that looks may take if they find nothing; growth of the memory lifts this
	// bound. lookTakes is what a look takes at an element that has nothing. How long it took by the clock would rather
	// say how busy the machine is.
	share     = 20
	lookTakes = time.Millisecond
	// holdFor bounds how long an element's processes are held at a time while what is too much is removed.
	holdFor = time.Second
	// follow is how long an element that had too much is looked at every time.
	follow = 10 * time.Second
)

// Watcher finds elements that have too much of the kernel's memory, and takes it from them.
type Watcher[ID comparable] struct {
	// Elements returns the elements that exist. It must not wait for anything.
	Elements func() map[ID]Element
	// Hold holds the processes of an element until release is called. Otherwise they could add entries faster than the
	// watcher removes them.
	Hold func(ID) (release func())
	// Tell gets the verdicts. It must not wait.
	Tell func(Verdict[ID])
	Log  *slog.Logger

	floor   int64 // the kernel's memory when all elements were last looked at, or less
	rest    time.Time
	suspect map[ID]time.Time // looked at every time, until then
	told    string

	past map[ID]*past
}

// past is what is remembered of an element from look to look.
type past struct {
	exceptional
	routes reading
}

// Run watches until the context ends.
func (w *Watcher[ID]) Run(ctx context.Context) error {
	w.suspect, w.past = map[ID]time.Time{}, map[ID]*past{}
	tick := time.Tick(readEvery)
	first, followed := true, time.Time{}
	for {
		is, err := unmovable()
		w.warn("what the kernel has of memory cannot be read", err)
		switch now := time.Now(); {
		case err != nil:
		case first: // nobody has looked at what was there before this process
			w.floor = is
			if len(w.Elements()) > 0 {
				first = false
				w.everybody(ctx, is)
			}
		case is-w.floor > hurry, is-w.floor > step && now.After(w.rest):
			w.everybody(ctx, is)
		default:
			w.floor = min(w.floor, is)
			if now.Sub(followed) >= followEvery {
				followed = now
				w.suspects(now)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}

func (w *Watcher[ID]) warn(what string, err error) {
	if err != nil && err.Error() != w.told {
		w.told = err.Error()
		w.Log.Warn(what, "error", err)
	}
}

// all elements are looked at, beginning with those that had too much before
func (w *Watcher[ID]) everybody(ctx context.Context, is int64) {
	began := time.Now()
	elements := w.Elements()
	for id, m := range w.past {
		m.routes.floor = min(m.routes.floor, w.floor, is)
		if _, there := elements[id]; !there {
			delete(w.past, id)
		}
	}
	w.floor = is
	w.suspects(began)
	for id, e := range elements {
		if _, done := w.suspect[id]; !done {
			w.look(id, e)
		}
		if ctx.Err() != nil {
			return
		}
	}
	w.restOfRoutes()
	w.rest = began.Add(time.Duration(share*len(elements)) * lookTakes)
}

// remembered is what is remembered of an element.
func (w *Watcher[ID]) remembered(id ID) *past {
	m := w.past[id]
	if m == nil {
		m = &past{}
		w.past[id] = m
	}
	return m
}

func (w *Watcher[ID]) suspects(now time.Time) {
	if len(w.suspect) == 0 {
		return
	}
	elements := w.Elements()
	for id, until := range w.suspect {
		e, there := elements[id]
		if !there || now.After(until) {
			delete(w.suspect, id)
			continue
		}
		w.look(id, e)
	}
}

// look takes from an element what it has too much of.
func (w *Watcher[ID]) look(id ID, e Element) {
	s, err := open(e.Path, e.Ports)
	if err == nil {
		defer s.close()
		err = w.lookInto(s, id, &e)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.warn("look at what an element has of the kernel's memory", err)
	}
}

// lookInto looks at one table after another. One that cannot be read does not keep it from the others.
func (w *Watcher[ID]) lookInto(s *space, id ID, e *Element) error {
	var errs []error
	// Multicast addresses come first. Reading the forwarding entries has to skip them, and with many of them that takes
	// the kernel a time that grows with the square of their number.
	var listed groups
	var buffered, told int64
	err := linux.Inside(s.fd, func() (err error) {
		if listed, err = readGroups(e.limit(Multicast)); err == nil {
			_, buffered, err = buffers()
		}
		if err == nil {
			told, err = messages()
		}
		return err
	})
	errs = append(errs, err)
	if limit := e.limit(Multicast); listed.bytes > limit {
		w.holding(id, func(until time.Time) {
			w.verdict(id, Multicast, limit, func() (int, bool, error) {
				removed, joined, err := s.trimGroups(limit, until)
				if joined && err == nil {
					ended, failed := s.endMost()
					removed, err = removed+ended, failed
				}
				return removed, joined, err
			})
		})
	}
	all, failed := s.devices()
	for i := range readers {
		r := &readers[i]
		if failed == nil && r.only != nil && !r.only(all) {
			continue
		}
		limit := e.limit(r.table)
		if more, err := r.exceeds(s, limit); err != nil {
			errs = append(errs, err)
		} else if more {
			w.holding(id, func(until time.Time) {
				w.verdict(id, r.table, limit, func() (int, bool, error) { return r.empty(s, until) })
			})
		}
	}
	errs = append(errs, w.trimRoutes(s, id, e), failed)
	if len(foreign(all)) > e.Devices {
		w.holding(id, func(until time.Time) {
			w.verdict(id, Devices, e.limit(Devices),
				func() (int, bool, error) { return s.trimDevices(e.Devices, until) })
		})
	}
	tunnels := slices.ContainsFunc(all, func(d device) bool { return d.tunnel })
	errs = append(errs, w.trimExceptions(s, id, e.limit(Exceptions), told, tunnels))
	if limit := e.limit(Buffers); buffered > limit {
		w.verdict(id, Buffers, limit, func() (int, bool, error) {
			ended, err := s.trimBuffers(limit)
			return ended, false, err
		})
	}
	return errors.Join(errs...)
}

// holding does something while the element's processes are held.
func (w *Watcher[ID]) holding(id ID, do func(until time.Time)) {
	release := func() {}
	if w.Hold != nil {
		release = w.Hold(id)
	}
	defer release()
	do(time.Now().Add(holdFor))
}

// verdict tells what was taken away, and has the element looked at again soon.
func (w *Watcher[ID]) verdict(id ID, t Table, limit int64, take func() (int, bool, error)) {
	removed, left, err := take()
	if t != Exceptions || removed > 0 || left || err != nil { // of these it may have had none
		w.suspect[id] = time.Now().Add(follow)
	}
	if removed > 0 || err != nil {
		w.Tell(Verdict[ID]{ID: id, Table: t, Removed: removed, Limit: limit, Err: err})
	}
}
