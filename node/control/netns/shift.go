package netns

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// Work on an element's processes takes as long as these, or runc, make it take. So the crew does it in shifts, and
// in the agent Apply and Remove do not wait for one. Rules for shifts:
//
//   - An element has at most one. Whoever holds the driver's lock and finds none may work on the element's processes.
//   - A worker gets a value and returns a value. It neither reads nor writes what the driver remembers, and never takes
//     the driver's lock. It touches only the element's own files, its container and its bundle.
//   - A shift begins, and its result is taken over, while the driver's lock is held. The result belongs to the job that
//     the shift was for. If another job is wanted by then, the next shift is for that.
//   - Removing an element begins with a shift that ends its processes. The rest of the element goes after that. So a
//     removal and another start never overlap.
//   - An agent that is killed during a shift leaves what any killed agent leaves: the next one looks at everything
//     anew. runc's commands run to their end, and the next agent waits for that.

var _ control.Hurrier = (*Driver)(nil)

// Hurry is control.Hurrier's.
func (d *Driver) Hurry() { d.hurried = true }

// shift is one piece of work on an element's processes.
type shift struct {
	work
	process process // as it was, and then as it is
	cookie  uint64  // the element's
	starts  bool    // it has a turn; the turns' lock guards this
	began   time.Time
	ends    bool // the element is being removed
	again   bool // its container was looked for again
	apart   bool // it is not there to make the element as job says; whoever asked for it is told the result

	wish  context.Context // its context ends when the job is no longer wanted: nobody waits for the result any more
	cut   context.CancelFunc
	ended chan struct{} // closed when process and outcome may be read
	late  atomic.Bool   // nobody waits for its end, so Watch has to signal it
}

// outcome is what a shift came to.
type outcome struct {
	job     control.Job
	errs    []error
	warning control.Warning
}

func (s *shift) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// hand gives a shift to the crew. The caller holds the lock.
func (d *Driver) hand(ctx context.Context, id model.ID, s *shift, do func(context.Context) error) {
	s.ended, s.began = make(chan struct{}), time.Now()
	s.wish, s.cut = context.WithCancel(ctx)
	s.work.shift, s.p = s, &s.process
	s.result = &control.Result{ID: id}
	d.shifts[id] = s
	others := d.others
	d.crew.do(id.Network, s.ends || s.job.Element.Stopped || s.job.Element.Suspended, func(h *hand) {
		ctx, err := withHand(ctx, h), error(nil)
		if others != nil && !closed(others) {
			resting(ctx, func() { <-others })
			s.again, err = true, d.find(id, &s.process) // they may have made it, or ended it
		}
		if err == nil {
			err = do(ctx)
		}
		if err != nil {
			s.fail(fmt.Errorf("element %s: %w", id, err))
		}
		s.cut()
		close(s.ended)
		if s.late.Load() {
			d.wake()
		}
	})
}

// handProcess begins a shift that makes an element's processes as wanted. The caller holds the lock.
func (d *Driver) handProcess(ctx context.Context, w *work) {
	s := &shift{work: *w, process: w.e.process.copy()}
	s.starts = w.needsTurn(time.Now())
	s.errs, s.e, s.roll = nil, nil, d.rollOf(&w.job)
	if err := d.knowSockets(w.e); err != nil {
		w.fail(fmt.Errorf("element %s: start its processes: %w", w.job.ID, err))
		s.process.forget()
		return
	}
	s.cookie = w.e.cookie
	if !w.e.process.running() {
		w.e.roll = s.roll // it is started with these
	}
	d.elements[w.job.ID] = w.e // takeIn needs the element there; Apply enters new elements only at its end
	d.hand(ctx, w.job.ID, s, func(ctx context.Context) error {
		err := d.applyProcess(ctx, &s.work)
		if errors.Is(err, unix.EROFS) && s.process.running() {
			err = d.mendDisk(ctx, &s.work, err)
		}
		return err
	})
}

// wake has Watch signal that shifts have ended.
func (d *Driver) wake() {
	select {
	case d.woken <- struct{}{}:
	default: // that is told already
	}
}

// await waits for shifts, unless the driver is in a hurry. It takes in those that have ended; Watch will signal the
// others. The caller holds the lock.
func (d *Driver) await(ids []model.ID) {
	for _, id := range ids {
		s := d.shifts[id]
		if s == nil {
			continue
		}
		if !d.hurried {
			<-s.ended
		}
		if s.hasEnded() {
			d.takeIn(id, s)
		} else {
			d.leave(s)
		}
	}
}

// leave has it told when the shift ends.
func (d *Driver) leave(s *shift) {
	if s.late.Store(true); s.hasEnded() { // it may have looked just before
		d.wake()
	}
}

// takeIn takes over the result of a shift that has ended. The next Apply tells what was done. The caller holds the
// lock.
func (d *Driver) takeIn(id model.ID, s *shift) {
	delete(d.shifts, id)
	if s.ends {
		if delete(d.stuck, id); len(s.errs) > 0 {
			d.stuck[id] = joinErrors(s.errs)
		}
	}
	e := d.elements[id]
	if e == nil {
		s.process.forget()
		return
	}
	p, news := &e.process, append(e.process.news, s.result.Changed...)
	if p.pidfd > 0 && p.pid == s.process.pid { // if it is still the same container, it was looked at meanwhile
		s.process.readiness, s.process.again = p.readiness, max(p.again, s.process.again)
	}
	p.forget()
	*p = s.process
	p.news = news
	if s.again {
		e.roll = nil // nobody knows what the container was started with
	}
	if s.ends {
		e.verified, e.last = false, nil // should it be wanted after all
	}
	if s.apart {
		return
	}
	e.last = &outcome{job: s.job, errs: s.errs, warning: s.result.Warning}
	e.verified = !e.faulty && len(s.errs) == 0 && s.result.Warning == (control.Warning{}) && sameJob(&s.job, &e.job)
}

// alone waits until nobody works on an element's processes. The caller holds the lock, which is released while it
// waits.
func (d *Driver) alone(ctx context.Context, id model.ID) error {
	for {
		s := d.shifts[id]
		switch {
		case s == nil:
			return nil
		case s.hasEnded():
			d.takeIn(id, s)
			continue
		}
		d.mu.Unlock()
		select {
		case <-s.ended:
		case <-ctx.Done():
		}
		d.mu.Lock()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for work on it to end: %w", err)
		}
	}
}

// besides does something else with an element's processes and files than making them as wanted, when nobody else works
// on them. The caller holds the lock, which is released meanwhile.
func (d *Driver) besides(ctx context.Context, id model.ID,
	do func(context.Context, *control.Job, *process) error) error {
	if err := d.alone(ctx, id); err != nil {
		return err
	}
	e := d.elements[id]
	if e == nil {
		return errors.New("it is not on this node")
	}
	var err error
	s := &shift{work: work{job: e.job}, process: e.process.copy(), apart: true}
	d.hand(ctx, id, s, func(ctx context.Context) error {
		err = do(ctx, &s.job, &s.process)
		return err
	})
	d.mu.Unlock()
	<-s.ended
	d.mu.Lock()
	if d.shifts[id] == s {
		d.takeIn(id, s)
	}
	return err
}

// copy returns a process that a worker may change. It has its own pidfd.
func (p *process) copy() process {
	c := *p
	c.news = nil
	if p.pidfd > 0 {
		if c.pidfd, _ = unix.FcntlInt(uintptr(p.pidfd), unix.F_DUPFD_CLOEXEC, 3); c.pidfd <= 0 {
			c.pidfd, c.pid = 0, 0
		}
	}
	return c
}

// tellBusy returns the last result of an element whose processes are being worked on. The caller holds the lock.
func (d *Driver) tellBusy(e *element, job *control.Job, res *control.Result) {
	s := d.shifts[res.ID]
	if s != nil && !s.ends && e.last != nil && sameJob(&e.last.job, job) { // it is only tried again, or looked at
		d.tellLast(e, res)
		return
	}
	res.Devices, res.Restarts, res.Busy = e.devices, e.process.again, true
	gone := s != nil && s.ends || job.Element.HasProcesses() && !e.process.running()
	shall := !job.Element.Stopped && !job.Element.Suspended
	switch {
	case shall && (gone || e.told != "" && e.told != model.PhaseRunning):
		res.Phase = model.PhaseStarting
	case e.told == model.PhaseFailed:
		res.Phase, res.Err = e.told, e.toldErr
	case e.told != "":
		res.Phase = e.told
	default:
		d.tell(e, res)
	}
	if res.Phase == model.PhaseStarting && res.Message == "" {
		res.Message = "is being started"
	}
	res.Changed, e.process.news = append(res.Changed, e.process.news...), nil
}

// tellLast returns the last result of an element, except for what has changed by itself since. The caller holds the
// lock.
func (d *Driver) tellLast(e *element, res *control.Result) {
	res.Devices = e.devices
	d.tell(e, res)
	var errs []error
	if e.last != nil {
		errs, res.Warning = e.last.errs, e.last.warning
	}
	if len(errs) == 0 {
		if err := e.process.troubleOf(res.ID); err != nil {
			errs = []error{err}
		}
	}
	if len(errs) > 0 {
		res.Err, res.Phase = joinErrors(errs), model.PhaseFailed
	}
}
