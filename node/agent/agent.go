// Package agent is the one loop of a node: it takes what the manager wants of the node, has the control drivers, the
// forwarding planes and the fabric make it so, keeps it so, and reports. Everything that happens – a new wish, a device
// that vanished, a tick – only marks that there is something to do; one goroutine programs the kernel, in batches.
package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/edge"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/forward"
)

// Fabric is what the agent needs of the node's fabric.
type Fabric interface {
	Offers(ctx context.Context) model.Offers
	Apply(ctx context.Context, s fabric.State) fabric.Report
	Counters(ctx context.Context) (map[model.PortID]fabric.Counters, error)
	// Forwarded tells what the data path did for the routers that it forwards for.
	Forwarded(ctx context.Context) (map[model.ID]fabric.Forwarded, error)
	// Cut says which elements are in quarantine.
	Cut(elements map[model.ID]bool, hold []string) error
	// Pace lets an element have so many packets a second by its ports with these devices, less than none: as many as
	// come.
	Pace(id model.ID, devices []int, rate int) error
	// Capture streams what passes the port, as pcapng, until the context ends or the reader is closed.
	Capture(ctx context.Context, port model.PortID, snaplen int) (io.ReadCloser, error)
}

// Edges is what the agent needs of the driver of internet edges; edge.Driver is one.
type Edges interface {
	Offers(ctx context.Context) model.Offers
	Apply(ctx context.Context, edges []edge.Edge, nodes []netip.Addr) edge.Report
	// Audit tells whether anything is no longer as it was applied.
	Audit() bool
	List() ([]edge.ID, error)
	Remove(ctx context.Context, ids []edge.ID) error
}

// Drivers are the parts that do the work, by the words that elements choose them with.
type Drivers struct {
	Controls map[model.Control]control.Driver
	Planes   map[model.Forwarding]forward.Plane
	Fabric   Fabric
	Edges    Edges // nil where there are none
}

// Manager is what the agent needs of the manager; client.Client is one.
type Manager interface {
	Register(ctx context.Context, node string, r model.Registration) error
	WatchDesired(ctx context.Context, node string, f func(model.NodeState) error) error
	Report(ctx context.Context, report model.Report) error
	Measure(ctx context.Context, measures model.Measures) error
	Beat(ctx context.Context, beat model.Beat) error
}

// Config is what an agent is made of.
type Config struct {
	Dirs    instance.NodeDirs
	Drivers Drivers
	Manager Manager
	Log     *slog.Logger
	// Outpost is set on machines that joined.
	Outpost *Outpost
}

// The agent's clock.
const (
	// settle is how long a change may be followed by others before they are looked at together.
	settle = 50 * time.Millisecond
	// quiet is how long nothing must have happened for the next change to be looked at so soon again.
	quiet = 3 * time.Second
	// patience is how long a pass waits for slow work on elements' processes: what is done by then need not be come
	// back to.
	patience = 50 * time.Millisecond
	// auditEvery is how often a part of the elements is looked into; fullEvery how often everything is applied again
	// although nothing told of a change.
	auditEvery = 2 * time.Second
	fullEvery  = 5 * time.Second
	// thrift bounds what that costs: the next full pass comes after so many times what it takes when all is right,
	// and at most after fullMost.
	thrift   = 1000
	fullMost = 2 * time.Minute
	// firstRetry and lastRetry bound the wait before what failed is tried again; it doubles in between.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Agent is one node at work.
type Agent struct {
	Config
	wishes chan model.NodeState // the latest one, from the manager
	// elements have become ready, or no longer are, planes are in sync, or slow work is done
	ready    chan struct{}
	mending  map[model.ID]bool // elements that failed and are starting
	links    *links
	reporter *reporter
	elements *elements
	probes   *responders
	work     *work
	courier  *courier
	ground   *neighbours
	watcher  *watcher
	cuts     *cuts
	cutting  sync.Mutex                      // one at a time says what is cut off
	isCut    map[model.ID]bool               // what is cut off; with cutting held
	wanted   atomic.Pointer[model.NodeState] // the latest that was told, made so or not
	pulse    pulse
	kernel   kernel
	hoards   hoards
	offered  offered

	// The loop's own.
	desired   *model.NodeState
	complete  bool // desired came from the manager in this life of the agent
	memory    model.StoreMemory
	held      []model.HeldNetwork // why the manager's latest word is not followed
	plan      plan
	removing  removing
	meter     meter
	usage     usages
	noUplink  string                                // why internet edges lead nowhere, as last told
	hooks     map[model.ID]map[string]model.HookUse // in use, by interface
	underlay  map[string]model.HookUse
	retry     time.Duration
	saved     *instance.Desired
	lastWrite int64 // its revision
}

// Run works until the context ends. What the agent has made stays.
func Run(ctx context.Context, c Config) error {
	// The agent's memory is nearly all garbage of the last pass: collecting early is cheap, and the pages go back.
	debug.SetGCPercent(50)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	for _, dir := range []string{c.Dirs.Run, c.Dirs.Data} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("node %s: %w", c.Dirs.Node, err)
		}
	}
	a := &Agent{Config: c, wishes: make(chan model.NodeState, 1), elements: &elements{},
		ready: make(chan struct{}, 1), mending: map[model.ID]bool{}, meter: meter{cgroup: c.Dirs.Cgroup()},
		pulse: pulse{node: c.Dirs.Node}}
	var err error
	if a.links, err = watchLinks(); err != nil {
		return fmt.Errorf("node %s: %w", c.Dirs.Node, err)
	}
	a.reporter = newReporter(c.Manager, c.Dirs.Node, c.Log)
	a.probes = newResponders(a.enter)
	a.work, a.courier = newWork(c.Dirs.Node), newCourier(c.Manager)
	a.ground = newNeighbours(a.work, c.Log, a.courier.send)
	a.watcher, a.cuts = newWatcher(), readCuts(a.Dirs.Incidents(), c.Log)
	a.kernel.prepare(a)
	a.hoards.prepare(a)
	defer a.probes.close()
	a.saved = instance.NewDesired(a.Dirs)
	if a.desired, err = a.saved.Read(); err != nil {
		// The manager will tell; until then nothing is known of it.
		c.Log.Warn("the kept desired state cannot be used, or not all of it", "error", err)
	}
	if a.memory, err = readMemory(a.memoryFile()); err != nil {
		c.Log.Warn("what store the node follows is not known", "error", err)
		a.memory.ID = "unknown" // so it asks before it removes anything
	}
	if a.desired != nil {
		a.cut(a.desired, true)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.serve(ctx) })
	g.Go(func() error { return a.links.run(ctx) })
	g.Go(func() error { return a.follow(ctx) })
	g.Go(func() error { return a.offer(ctx) })
	g.Go(func() error { return a.reporter.run(ctx) })
	g.Go(func() error { return a.courier.run(ctx) })
	g.Go(func() error { return a.ground.run(ctx) })
	g.Go(func() error { return a.pulse.tell(ctx, a.Manager) })
	g.Go(func() error { return a.kernel.Run(ctx) })
	g.Go(func() error { return a.hoards.Run(ctx) })
	g.Go(func() error { return a.tendTrash(ctx) })
	if c.Outpost != nil {
		g.Go(func() error { return a.holdTunnel(ctx) })
		g.Go(func() error { return a.renew(ctx) })
	}
	g.Go(func() error { return a.watch(ctx) })
	g.Go(func() error { return a.watchSlowly(ctx) })
	for _, driver := range c.Drivers.Controls {
		if h, ok := driver.(control.Hurrier); ok {
			h.Hurry(patience)
		}
		if w, ok := driver.(control.Watcher); ok {
			g.Go(func() error { return w.Watch(ctx, a.changed) })
		}
	}
	for _, plane := range c.Drivers.Planes {
		if w, ok := plane.(forward.Watcher); ok {
			g.Go(func() error { return w.Watch(ctx, a.changed) })
		}
	}
	g.Go(func() error { return a.loop(ctx) })
	return g.Wait()
}

// changed has the loop look at what the elements' software, what forwards for them, and work beside the loop have come
// to.
func (a *Agent) changed() {
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// loop is where everything comes together.
func (a *Agent) loop(ctx context.Context) error {
	audit := time.NewTicker(auditEvery)
	defer audit.Stop()
	full, retry, count := newTimer(), newTimer(), newTimer()
	defer full.Stop()
	defer retry.Stop()
	defer count.Stop()

	settled := newTimer()
	defer settled.Stop()
	var wait, lastWait, look time.Duration
	var lastHeard time.Time
	settling := false
	passIn := func(ctx context.Context) {
		began := time.Now()
		failed := a.pass(ctx)
		a.work.passed(time.Since(began))
		full.Reset(min(max(fullEvery, thrift*look), fullMost))
		switch {
		case !failed:
			a.retry = 0
			retry.Stop()
		case a.retry == 0:
			a.retry = firstRetry
			retry.Reset(a.retry)
		case control.Glancing(ctx): // nothing was tried again
		default:
			a.retry = min(2*a.retry, lastRetry)
			retry.Reset(a.retry)
		}
		count.Reset(a.countEvery())
	}
	ctx = control.WithProgress(ctx, a.pulse.progress)
	ctx = control.WithAwaited(ctx, func() bool { return len(a.wishes) > 0 || len(a.ready) > 0 })
	pass := func() { passIn(ctx) }
	follow := func(s *model.NodeState) {
		a.take(ctx, s)
		pass()
		a.keep()
	}
	if a.desired != nil {
		a.ground.set(a.desired.Links)
		pass()
	}
	for {
		a.pulse.rest()
		select {
		case <-ctx.Done():
			return nil
		case s := <-a.wishes:
			follow(&s)
		case <-a.links.changed:
			// A device that goes takes others along, and what put it back sends events of its own. Somebody who keeps
			// undoing our work is answered ever more slowly, which nobody else waits for.
			if settling {
				continue
			}
			if wait = settle; time.Since(lastHeard) < quiet {
				wait = min(2*lastWait, quiet)
			}
			settling = true
			settled.Reset(wait)
		case <-settled.C:
			settling, lastWait, lastHeard = false, wait, time.Now()
			a.links.settled()
			pass()
		case <-a.ready:
			select {
			case s := <-a.wishes: // what people ask for comes first
				follow(&s)
			default:
				passIn(control.Glance(ctx))
			}
		case <-audit.C:
			if a.audit(ctx) {
				pass()
			}
		case <-full.C:
			began := time.Now()
			pass()
			// One pass that was disturbed, or had something to do, says little of what looking takes.
			look = min(time.Since(began), 4*max(look, fullEvery/thrift))
		case <-retry.C:
			a.offered.doubt.Store(true) // a machine that lost what a driver needs is one reason for it
			pass()
		case <-count.C:
			a.count(ctx)
			count.Reset(a.countEvery())
		}
	}
}

func (a *Agent) now() time.Time { return time.Now() }

func newTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// sleep tells whether the time passed before the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// audit looks into a part of the elements and tells whether any differs.
func (a *Agent) audit(ctx context.Context) bool {
	if a.desired == nil {
		return false
	}
	a.pulse.at("look into elements")
	findings := 0
	for name, d := range a.Drivers.Controls {
		auditor, ok := d.(control.Auditor)
		if !ok {
			continue
		}
		ids, err := auditor.Audit(ctx)
		if err != nil {
			a.Log.Warn("audit", "control", name, "error", err)
		}
		findings += len(ids)
	}
	if a.Drivers.Edges != nil && a.Drivers.Edges.Audit() {
		findings++
	}
	a.work.audited(findings)
	a.trim(ctx)
	return findings > 0
}

// keep writes the desired state to the file that a later life of the agent begins with.
func (a *Agent) keep() {
	if len(a.held) > 0 || a.desired.Revision == a.lastWrite && a.lastWrite != 0 {
		return
	}
	if err := a.saved.Write(a.desired); err != nil {
		a.Log.Warn("keep the desired state", "error", err)
		return
	}
	a.lastWrite = a.desired.Revision
}
