package manager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// A schedule of faults runs here and not in a command, so that it goes on when whoever started it is gone. What is
// needed for it is stored with the network: a manager that takes over goes on with it, and what a stop puts back is
// known. A fault that is late, since no manager was there, is made up for at once.

// faultsRest is how long a schedule waits when its progress cannot be stored.
const faultsRest = time.Second

// Faults starts or stops a network's schedule of faults. A stop puts back what the schedule has changed.
func (m *Manager) Faults(ctx context.Context, name string, request model.FaultRequest) (model.Record, error) {
	if request.Action != model.ActionStart && request.Action != model.ActionStop {
		return model.Record{}, api.Invalid(fmt.Sprintf("%q is no action: start or stop was expected", request.Action))
	}
	if err := m.changing.LockFor(ctx, api.User(ctx)); err != nil {
		return model.Record{}, api.Unavailable(err)
	}
	defer m.changing.Unlock()
	old, err := m.alive(ctx, name)
	if err != nil {
		return model.Record{}, err
	}
	run := old.record.FaultRun
	start := request.Action == model.ActionStart
	switch {
	case start && len(old.record.Network.Faults) == 0:
		return model.Record{}, api.Invalid(fmt.Sprintf("network %s has no schedule of faults; write one under "+
			"faults: in its file, such as - {at: 30s, stop: r1 -- r2}, and apply it", name))
	case start && run != nil && !run.Over():
		return model.Record{}, api.Conflict("the faults of network %s run since %s; stop them first", name,
			run.Began.Format(time.RFC3339))
	case !start && run == nil:
		return old.record, nil
	}
	next, resolved := old.record, old.resolved
	if run != nil {
		if next, resolved, err = m.putBack(ctx, old, run); err != nil {
			return model.Record{}, err
		}
	}
	next.Revision, next.Modified = old.record.Revision+1, time.Now().UTC()
	c := &change{reason: "FaultsStopped",
		message: "the schedule of faults was stopped, and what it had changed is put back"}
	if next.FaultRun = nil; start {
		next.FaultRun = model.BeginFaults(&next, api.Only(ctx), next.Modified)
		c.reason = "FaultsStarted"
		c.message = fmt.Sprintf("the schedule of %d faults was started; the last is at %s", len(next.FaultRun.Faults),
			next.FaultRun.Faults[len(next.FaultRun.Faults)-1].At)
	}
	c.record, c.resolved = next, resolved
	if err := m.commit(ctx, c); err != nil {
		return model.Record{}, err
	}
	m.faults.look()
	return next, nil
}

// putBack works out the network as it was before a run. The caller holds changing.
func (m *Manager) putBack(ctx context.Context, old *network, run *model.FaultRun) (model.Record, model.Resolved,
	error) {
	doc, marks, overrides := run.PutBack(old.record.Network, old.record.Set, old.record.Overrides)
	blank := *old
	blank.record.Set = model.Settings{}
	d, err := draw(doc, &blank, "")
	if err != nil {
		return model.Record{}, model.Resolved{}, problemOf(err)
	}
	_, others, err := m.situations([]model.Document{{Network: d.Network()}})
	if err != nil {
		return model.Record{}, model.Resolved{}, err
	}
	next, resolved, err := m.workOut(d, others, api.Only(ctx) != "", false)
	next.Set, next.Overrides = marks, overrides
	return next, resolved, err
}

// schedule makes the faults of all networks' schedules when they are due.
type schedule struct {
	*known
	acts interface { // as users do
		Set(ctx context.Context, network string, request model.SetRequest) (model.SetResult, error)
		Act(ctx context.Context, id model.ID, action model.Action) (model.ActionResult, error)
		commit(ctx context.Context, changes ...*change) error
	}
	changed chan struct{} // has the schedules looked at
}

// look has the schedules looked at.
func (s *schedule) look() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// dueFault is a network whose next fault is due.
type dueFault struct {
	network string
	began   time.Time
	owner   string
	fault   model.Fault
	at      time.Time
}

// next is the earliest of all schedules' next faults.
func (s *schedule) next() (first dueFault, there bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, n := range s.networks {
		r := n.record.FaultRun
		if r == nil || r.Over() || n.damaged != nil || n.record.Deleting {
			continue
		}
		f := r.Faults[len(r.Done)]
		if at := r.Began.Add(time.Duration(f.At)); !there || at.Before(first.at) {
			first, there = dueFault{name, r.Began, r.Owner, f, at}, true
		}
	}
	return first, there
}

// run makes faults when they are due, until the context ends.
func (s *schedule) run(ctx context.Context) {
	for {
		wait := time.Duration(-1)
		due, there := s.next()
		if there {
			wait = max(0, time.Until(due.at))
		}
		if wait != 0 {
			if !s.rest(ctx, wait) {
				return
			}
			continue // what is next may have changed
		}
		err := s.make(ctx, due)
		if err := s.done(ctx, due, err); err != nil && !s.rest(ctx, faultsRest) {
			return
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// rest waits, without an end if it is less than nothing, or until schedules have changed.
func (s *schedule) rest(ctx context.Context, wait time.Duration) bool {
	var after <-chan time.Time
	if wait >= 0 {
		after = time.After(wait)
	}
	select {
	case <-ctx.Done():
		return false
	case <-s.changed:
	case <-after:
	}
	return true
}

// make does what a fault says, as whoever started the schedule may.
func (s *schedule) make(ctx context.Context, due dueFault) error {
	ctx = api.AsOwner(ctx, due.owner)
	f := due.fault
	s.mu.RLock()
	element := false
	if n := s.networks[due.network]; n != nil {
		_, element = n.index[f.Object]
	}
	s.mu.RUnlock()
	var err error
	switch {
	case f.Action == model.ActionSet:
		_, err = s.acts.Set(ctx, due.network, model.SetRequest{Object: f.Object, Values: f.Values})
	case element:
		_, err = s.acts.Act(ctx, model.ID{Network: due.network, Element: f.Object}, f.Action)
	default:
		state := map[model.Action]model.LinkState{model.ActionStop: model.LinkDown}[f.Action]
		_, err = s.acts.Set(ctx, due.network, model.SetRequest{Object: f.Object,
			Values: []model.Assignment{{Key: "state", Value: string(state)}}})
	}
	return err
}

// done stores that a fault was made, or what it failed by, and tells of it with the real time.
func (s *schedule) done(ctx context.Context, due dueFault, failed error) error {
	if err := s.changing.LockFor(ctx, ""); err != nil {
		return err
	}
	defer s.changing.Unlock()
	s.mu.RLock()
	n := s.networks[due.network]
	s.mu.RUnlock()
	if n == nil || n.record.FaultRun == nil || !n.record.FaultRun.Began.Equal(due.began) {
		return nil // stopped meanwhile, or gone
	}
	now := time.Now().UTC()
	done := model.FaultDone{At: model.Duration(now.Sub(due.began).Round(time.Millisecond))}
	run := *n.record.FaultRun
	next := n.record
	c := &change{reason: "FaultMade", resolved: n.resolved,
		message: fmt.Sprintf("%s: made after %s", due.fault, done.At)}
	if failed != nil {
		done.Problem = failed.Error()
		if p, ok := errors.AsType[*api.Problem](failed); ok {
			done.Problem = p.Error()
		}
		done.Problem = model.Shorten(strings.Join(strings.Fields(done.Problem), " "), model.MaxMessage)
		c.reason, c.message = "FaultFailed", fmt.Sprintf("%s: failed after %s: %s", due.fault, done.At, done.Problem)
	}
	run.Done = append(run.Done[:len(run.Done):len(run.Done)], done)
	next.FaultRun, next.Revision, next.Modified = &run, next.Revision+1, now
	c.record = next
	if err := s.acts.commit(ctx, c); err != nil {
		return err
	}
	if run.Over() {
		s.mu.Lock()
		s.networkEvent(model.Info, due.network, "FaultsOver",
			"the schedule of faults is over; `polyplane faults stop` puts back what it has changed", "")
		s.mu.Unlock()
	}
	return nil
}
