package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/forward"
)

// maxEvents is how many events wait for a manager that is away. When there are more, the oldest are dropped.
const maxEvents = 4096

// reporter sends the latest report to the manager. It has its own goroutine, so that a slow manager holds nobody up.
type reporter struct {
	manager Manager
	node    string
	log     *slog.Logger
	wake    chan struct{} // holds one: there is something to deliver

	mu     sync.Mutex    // guards all below, and is not held while the manager is spoken to
	latest *model.Report // not yet delivered
	last   *model.Report // the latest, delivered or not
	events []model.Event // not yet delivered
}

func newReporter(m Manager, node string, log *slog.Logger) *reporter {
	return &reporter{manager: m, node: node, log: log, wake: make(chan struct{}, 1)}
}

func (r *reporter) event(e model.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == maxEvents {
		r.events = r.events[1:]
	}
	r.events = append(r.events, e)
}

// set makes this the report to deliver.
func (r *reporter) set(report *model.Report) {
	r.mu.Lock()
	r.latest, r.last = report, report
	r.mu.Unlock()
	r.signal()
}

// again sends the last report once more, to a manager that may have lost it.
func (r *reporter) again() {
	r.mu.Lock()
	r.latest = r.last
	r.mu.Unlock()
	r.signal()
}

func (r *reporter) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reporter) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events) > 0
}

// run sends reports until the context ends, and then the last one, if that is possible at once.
func (r *reporter) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			for r.deliver(ctx) != nil {
				if !sleep(ctx, time.Second) {
					return nil
				}
			}
		}
	}
}

// deliver sends the latest report with all events. What came meanwhile stays for the next one.
func (r *reporter) deliver(ctx context.Context) error {
	r.mu.Lock()
	report := r.latest
	events := r.events
	r.mu.Unlock()
	if report == nil {
		return nil
	}
	send := *report
	send.Events = events
	if err := r.manager.Report(ctx, send); err != nil {
		if ctx.Err() == nil {
			r.log.Debug("report", "error", err)
		}
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest == report {
		r.latest = nil
	}
	// The oldest may have been dropped. The events that were sent are older than all that came since.
	if len(events) > 0 {
		last := events[len(events)-1]
		for i := len(r.events) - 1; i >= 0; i-- {
			if r.events[i] == last {
				r.events = append([]model.Event(nil), r.events[i+1:]...)
				break
			}
		}
	}
	return nil
}

// report composes the node's report after a pass.
func (a *Agent) report(ctx context.Context, outcomes map[model.ID]*outcome, problem error) {
	a.pulse.at("put a report together")
	report := &model.Report{Node: a.Dirs.Node, Elements: make([]model.ElementStatus, 0, len(outcomes))}
	if problem != nil {
		report.Problem = problem.Error()
	}
	if a.complete {
		report.Revision = a.desired.Revision
	}
	report.Held, report.AtWork = a.held, a.atWork()
	before := map[model.ID]model.ElementStatus{}
	if a.reporter.last != nil {
		for _, e := range a.reporter.last.Elements {
			before[e.ID] = e
		}
	}
	for _, id := range a.plan.order {
		o := outcomes[id]
		if o == nil {
			continue
		}
		s := model.ElementStatus{ID: id, Node: a.Dirs.Node, Phase: o.phase, AtWork: o.busy || o.waits,
			Restarts: o.restarts, Message: o.warning.Message, Usage: a.usage.now[id]}
		if a.moves.settled[id] {
			s.Arrived = o.job.Element.Arrived
		}
		if o.phase == model.PhaseStarting {
			s.Message = cmp.Or(s.Message, o.message)
		}
		if o.err != nil {
			s.Phase, s.Message = model.PhaseFailed, o.err.Error()
		}
		s.Incident, s.Attacks = a.cuts.of(id), a.watcher.attacks(id)
		a.phaseEvent(before[id], s, o.warning)
		report.Elements = append(report.Elements, s)
	}
	counters, err := a.Drivers.Fabric.Counters(ctx)
	if err != nil {
		a.Log.Warn("read the ports' counters", "error", err)
	}
	report.Ports = a.ports(outcomes, counters)
	report.Relays = a.relayed(ctx)
	a.fast(ctx, report.Elements)
	a.kernel.packetTime(report.Elements)
	report.Underlay = a.underlay
	a.useOf(report)
	a.reporter.set(report)
}

// useOf enters what the node uses.
func (a *Agent) useOf(r *model.Report) {
	r.CPUUsed, r.MemUsed = a.meter.read()
	if disk, free, err := a.roomOnDisk(); err == nil {
		r.Disk, r.DiskFree = model.Bytes(disk), model.Bytes(free)
	}
}

// phaseEvent emits an event when an element gets worse or recovers, and for a new warning.
func (a *Agent) phaseEvent(was, is model.ElementStatus, warning control.Warning) {
	switch {
	case is.Phase == model.PhaseFailed && (was.Phase != is.Phase || was.Message != is.Message):
		a.event(model.Error, is.ID.String(), "ElementFailed", is.Message)
	case is.Phase == model.PhaseStarting:
		if was.Phase == model.PhaseFailed {
			a.mending[is.ID] = true // it has not recovered before it is ready
		}
	case is.Phase != model.PhaseFailed && (was.Phase == model.PhaseFailed || a.mending[is.ID]):
		a.event(model.Info, is.ID.String(), "ElementRecovered", "works again")
	case is.Phase == model.PhaseRunning && was.Phase == model.PhaseStarting:
		a.event(model.Info, is.ID.String(), "ElementReady", "its software runs with its configuration")
	}
	if is.Phase != model.PhaseStarting {
		delete(a.mending, is.ID)
	}
	if warning.Message != "" && is.Message == warning.Message && was.Message != is.Message {
		a.event(model.Warning, is.ID.String(), warning.Reason, warning.Message)
	}
}

// ports returns the state of all ports, in the order of the elements.
func (a *Agent) ports(outcomes map[model.ID]*outcome, counters map[model.PortID]fabric.Counters) []model.PortStatus {
	all := make([]model.PortStatus, 0, len(counters))
	for _, id := range a.plan.order {
		o := outcomes[id]
		if o == nil {
			continue
		}
		for _, d := range o.devices {
			p := model.PortStatus{ID: model.PortID{ID: id, Interface: d.Interface}, Device: d.Name, Index: d.Index,
				Up: a.links.running(d.Index)}
			enter(&p, counters[p.ID])
			all = append(all, p)
		}
	}
	return all
}

// enter copies a port's counters into its state.
func enter(p *model.PortStatus, c fabric.Counters) {
	p.RxPackets, p.RxBytes, p.TxPackets, p.TxBytes = c.RxPackets, c.RxBytes, c.TxPackets, c.TxBytes
	p.Copied, p.Uncopied = c.Copied, c.Uncopied
	p.Drops, p.Dropped = nil, 0
	for reason, n := range c.Drops {
		if p.Drops == nil {
			p.Drops = make(map[string]uint64, len(c.Drops))
		}
		p.Drops[reason.String()] += n
		p.Dropped += n
	}
}

// fast enters what the data path did for the routers that it forwards for. It returns whether anything has changed.
func (a *Agent) fast(ctx context.Context, elements []model.ElementStatus) (changed bool) {
	forwarded, err := a.Drivers.Fabric.Forwarded(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			a.Log.Warn("read what the data path forwarded", "error", err)
		}
		return false
	}
	tables := a.tables()
	a.lacks(tables, time.Now())
	a.churn(tables, time.Now())
	for i := range elements {
		e := &elements[i]
		was := e.Fast
		e.Fast = nil
		if f, ok := forwarded[e.ID]; ok {
			e.Fast = &model.FastPath{Packets: f.Packets, Bytes: f.Bytes, Companion: f.Companion,
				Blackholed: f.Blackholed,
				Refused:    f.Refused, Punted: f.Punted, Driver: f.Driver, Hooks: a.hooks[e.ID]}
			if t, ok := tables[e.ID]; ok {
				t.Busy = 0
				e.Fast.Tables = &t
			}
		}
		changed = changed || !reflect.DeepEqual(was, e.Fast)
	}
	return changed
}

// confirmEvery is how often neighbours are confirmed of elements that the data path forwards for. A kernel asks a
// neighbour anew when it sends to it and has not heard of it for some 30 s (RFC 4861, section 7.3). The kernels of
// these elements do not send, since the data path does it for them.
const confirmEvery = 30 * time.Second

// confirm has the planes confirm neighbours until the context ends.
func (a *Agent) confirm(ctx context.Context) error {
	for sleep(ctx, confirmEvery) {
		a.confirmNow(ctx)
	}
	return nil
}

func (a *Agent) confirmNow(ctx context.Context) {
	counts, err := a.Drivers.Fabric.Forwarded(ctx)
	if err != nil {
		return // the next count tells of it
	}
	forwarded := make(map[model.ID]uint64, len(counts))
	for id, c := range counts {
		forwarded[id] = c.Packets
	}
	for _, plane := range a.Drivers.Planes {
		if c, ok := plane.(forward.Confirmer); ok {
			c.Confirm(ctx, forwarded)
		}
	}
}

// countEvery is how often the counters are read: every second for up to 200 ports, and proportionally less often for
// more, so that the work stays the same.
func (a *Agent) countEvery() time.Duration {
	n := 0
	if a.reporter.last != nil {
		n = len(a.reporter.last.Ports)
	}
	return min(max(time.Second, time.Duration(n)*5*time.Millisecond), 15*time.Second)
}

// count reads the counters and reports them if any has changed.
func (a *Agent) count(ctx context.Context) {
	last := a.reporter.last
	if last == nil {
		return
	}
	a.pulse.at("read counters")
	counters, err := a.Drivers.Fabric.Counters(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			a.Log.Warn("read the ports' counters", "error", err)
		}
		return
	}
	a.overPackets(counters, a.countEvery())
	a.strangers(counters, time.Now())
	measured := a.measure(ctx)
	a.watching(time.Now(), counters, measured)
	next := *last
	next.Events = nil
	next.Ports = make([]model.PortStatus, len(last.Ports))
	changed := a.reporter.pending()
	for i, p := range last.Ports {
		p.Up = a.links.running(p.Index)
		enter(&p, counters[p.ID])
		was := &last.Ports[i]
		changed = changed || p.Up != was.Up || p.RxPackets != was.RxPackets || p.TxPackets != was.TxPackets ||
			p.Dropped != was.Dropped
		next.Ports[i] = p
	}
	next.Relays = a.relayed(ctx)
	changed = changed || !slices.Equal(next.Relays, last.Relays)
	next.Elements = slices.Clone(last.Elements)
	for i := range next.Elements {
		was := next.Elements[i].Incident
		next.Elements[i].Incident = a.cuts.of(next.Elements[i].ID)
		changed = changed || was != next.Elements[i].Incident
		next.Elements[i].Attacks = a.watcher.attacks(next.Elements[i].ID)
	}
	if measured {
		for i := range next.Elements {
			next.Elements[i].Usage = a.usage.now[next.Elements[i].ID]
		}
	}
	changed = a.kernel.packetTime(next.Elements) || changed
	if changed = a.fast(ctx, next.Elements) || changed || measured; !changed {
		return
	}
	a.useOf(&next)
	a.reporter.set(&next)
}
