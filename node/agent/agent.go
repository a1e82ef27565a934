// Package agent is the one loop of a node. It takes the desired state from the manager, has the control drivers, the
// forwarding planes and the fabric make it so, keeps it so, and reports. Whatever happens – a new desired state, a
// device that vanished, a tick – only notes that there is something to do; one goroutine then programs the kernel, in
// batches.
package agent

import (
	"cmp"
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
	"github.com/polyplane/polyplane/node/discover"
	"github.com/polyplane/polyplane/node/edge"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/images"
)

// Fabric is what the agent needs of the node's fabric.
type Fabric interface {
	Offers(ctx context.Context) model.Offers
	Apply(ctx context.Context, s fabric.State) fabric.Report
	Counters(ctx context.Context) (map[model.PortID]fabric.Counters, error)
	// Forwarded returns what the data path did for the routers that it forwards for.
	Forwarded(ctx context.Context) (map[model.ID]fabric.Forwarded, error)
	// Relayed returns what the data path did for the links that it relays, by VNI.
	Relayed(ctx context.Context) (map[uint32]fabric.RelayCounters, error)
	// Place is where a forwarding plane gets ready what the data path needs for an element.
	Place(id model.ID) forward.Place
	// Steered tells where the packets of elements go now.
	Steered() map[model.ID]forward.Steering
	// Cut says which elements are in quarantine. It replaces what earlier calls said.
	Cut(elements map[model.ID]bool, hold []string) error
	// Pace limits how many packets a second an element may send by its ports with these devices. A negative limit is
	// none.
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

// Drivers are the parts that do the work, by the words with which a file chooses them.
type Drivers struct {
	Controls map[model.Control]control.Driver
	Planes   map[PlaneOf]forward.Plane
	Fabric   Fabric
	Edges    Edges // nil where there are none
	Images   *images.Store
}

// PlaneOf says whom a plane forwards for: elements with a forwarding, and for switches among them there may be another
// plane.
type PlaneOf struct {
	Forwarding model.Forwarding
	Switches   bool
}

func (o PlaneOf) String() string {
	if o.Switches {
		return string(o.Forwarding) + " of switches"
	}
	return string(o.Forwarding)
}

// planeOf is the key of the plane that forwards for an element.
func (d *Drivers) planeOf(e *model.NodeElement) PlaneOf {
	of := PlaneOf{e.Forwarding, e.Kind == model.Switch}
	if d.Planes[of] == nil {
		of.Switches = false
	}
	return of
}

// Manager is what the agent needs of the manager; client.Client is one.
type Manager interface {
	Register(ctx context.Context, node string, r model.Registration) error
	WatchDesired(ctx context.Context, node string, f func(model.NodeState) error) error
	Report(ctx context.Context, report model.Report) error
	Measure(ctx context.Context, measures model.Measures) error
	// Discover tells what the agent has found, and returns the keys of other nodes that it asks for.
	Discover(ctx context.Context, found model.Discovery) (model.DiscoveryAnswer, error)
	Beat(ctx context.Context, beat model.Beat) error
	// Image opens an image for the node, in the form in which images are kept.
	Image(ctx context.Context, node, id string) (r io.ReadCloser, size int64, err error)
}

// Config is what an agent is made of.
type Config struct {
	Dirs    instance.NodeDirs
	Drivers Drivers
	Manager Manager
	Log     *slog.Logger
	// Address is the node's in the underlay; zero where there is none. Silent has the node neither announce itself
	// there nor listen.
	Address netip.Addr
	Silent  bool
	// Outpost is set on machines that joined.
	Outpost *Outpost
}

// The agent's clock.
const (
	// settle is how long the loop waits after a change for others, so that one pass does for all of them.
	settle = 50 * time.Millisecond
	// quiet is how long nothing must happen before the next change is answered after settle again. Until then the wait
	// doubles from change to change, up to quiet.
	quiet = 3 * time.Second
	// auditEvery is the time between two audits, each of which looks into a part of the elements. fullEvery is the time
	// after which the whole desired state is applied again although nothing told of a change.
	auditEvery = 2 * time.Second
	fullEvery  = 5 * time.Second
	// thrift bounds the cost of full passes: the next one waits at least this many times as long as a pass takes that
	// finds nothing to do, but never longer than fullMost.
	thrift   = 1000
	fullMost = 2 * time.Minute
	// While elements are starting, many of them become ready one after the other, and each look at the whole node takes
	// processor time from them. So after such a look the loop rests restTimes as long as it took, at most restMost.
	// What people ask for does not wait for that.
	restTimes = 10
	restMost  = 250 * time.Millisecond
	// What failed is tried again after firstRetry. The wait doubles with each failure, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Agent is one node at work.
type Agent struct {
	Config
	wishes chan model.NodeState // the latest one, from the manager
	// an element became ready or stopped being so, a plane came in sync, or slow work ended
	ready     chan struct{}
	mending   map[model.ID]bool // elements that failed and are starting
	links     *links
	reporter  *reporter
	elements  *elements
	probes    *responders
	work      *work
	courier   *courier
	ground    *neighbours
	discovery *discover.Discoverer
	towards   atomic.Pointer[[]netip.Addr] // the addresses of the substrate's neighbours
	watcher   *watcher
	cuts      *cuts
	cutting   sync.Mutex                      // one at a time says what is cut off
	isCut     map[model.ID]bool               // what is cut off; with cutting held
	wanted    atomic.Pointer[model.NodeState] // the latest desired state, whether it was made so or not
	pulse     pulse
	kernel    kernel
	hoards    hoards
	moves     moves
	offered   offered

	// The loop's own.
	desired   *model.NodeState
	complete  bool // whether desired came from the manager in this life of the agent
	memory    model.StoreMemory
	held      []model.HeldNetwork // why the agent does not follow the manager's latest desired state
	deleted   map[string]bool     // networks that the node lets go of even while it holds others
	plan      plan
	removing  removing
	retiring  []model.ID // elements that planes are still letting go of
	meter     meter
	usage     usages
	noUplink  string                                // why internet edges lead nowhere, as it was last told
	hooks     map[model.ID]map[string]model.HookUse // in use, by interface
	underlay  map[string]model.HookUse
	laid      laid
	retry     time.Duration
	starting  bool // the last pass left nothing to be done but to wait for elements that are starting
	saved     *instance.Desired
	lastWrite int64 // its revision
	unkept    bool  // the latest could not be written
}

// Run works until the context ends. What the agent has made stays in place.
func Run(ctx context.Context, c Config) error {
	// Nearly all of the agent's memory is garbage of the last pass. Collecting it early is cheap, and gives the pages
	// back.
	debug.SetGCPercent(50)
	c.Log = cmp.Or(c.Log, slog.Default())
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
	a.discovery = a.newDiscoverer()
	a.watcher, a.cuts = newWatcher(), readCuts(a.Dirs.Incidents(), c.Log)
	a.kernel.prepare(a)
	a.hoards.prepare(a)
	defer a.probes.close()
	if c.Drivers.Images != nil {
		c.Drivers.Images.Serve(func(ctx context.Context, id string) (io.ReadCloser, int64, error) {
			return c.Manager.Image(ctx, c.Dirs.Node, id)
		}, nil)
		defer c.Drivers.Images.Close()
	}
	a.saved = instance.NewDesired(a.Dirs)
	if a.desired, err = a.saved.Read(); err != nil {
		// The manager will say what is desired. Until then nobody knows it.
		c.Log.Warn("the kept desired state cannot be used, or not all of it", "error", err)
	}
	if a.memory, err = readMemory(a.memoryFile()); err != nil {
		c.Log.Warn("what store the node follows is not known", "error", err)
		a.memory.ID = "unknown" // so it asks before it removes anything
	}
	if a.desired != nil {
		a.cut(a.desired, true)
		a.moves.note(a.desired)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.serve(ctx) })
	g.Go(func() error { return a.links.run(ctx) })
	g.Go(func() error { return a.follow(ctx) })
	g.Go(func() error { return a.offer(ctx) })
	g.Go(func() error { return a.reporter.run(ctx) })
	g.Go(func() error { return a.courier.run(ctx) })
	g.Go(func() error { return a.ground.run(ctx) })
	g.Go(func() error { return a.discovery.Run(ctx) })
	g.Go(func() error { return a.pulse.tell(ctx, a.Manager) })
	g.Go(func() error { return a.kernel.Run(ctx) })
	g.Go(func() error { return a.hoards.Run(ctx) })
	g.Go(func() error { return a.tendDisk(ctx) })
	g.Go(func() error { return a.confirm(ctx) })
	if c.Outpost != nil {
		g.Go(func() error { return a.holdTunnel(ctx) })
		g.Go(func() error { return a.renew(ctx) })
	}
	g.Go(func() error { return a.watch(ctx) })
	g.Go(func() error { return a.watchSlowly(ctx) })
	for _, driver := range c.Drivers.Controls {
		if h, ok := driver.(control.Hurrier); ok {
			h.Hurry()
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

// changed makes the loop look at the elements again: their software, a plane, or work beside the loop has changed
// something.
func (a *Agent) changed() {
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// loop decides when to apply, audit, count and report. All that this file describes comes together here.
func (a *Agent) loop(ctx context.Context) error {
	audit := time.NewTicker(auditEvery)
	defer audit.Stop()
	full, retry, count, rested := newTimer(), newTimer(), newTimer(), newTimer()
	defer rested.Stop()
	defer full.Stop()
	defer retry.Stop()
	defer count.Stop()

	settled := newTimer()
	defer settled.Stop()
	var wait, lastWait, look time.Duration
	var lastHeard time.Time
	settling, ready := false, a.ready
	passIn := func(ctx context.Context) {
		began := time.Now()
		failed := a.pass(ctx)
		took := time.Since(began)
		a.work.passed(took)
		if ready = a.ready; a.starting {
			ready = nil
			rested.Reset(min(restTimes*took, restMost))
		}
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
	pass := func() {
		passIn(ctx)
		if a.unkept {
			a.keep()
		}
	}
	follow := func(s *model.NodeState) {
		a.take(ctx, s)
		pass()
		a.keep()
	}
	if a.desired != nil {
		a.standOn(a.desired)
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
			// A device that goes takes others along, and putting it back causes events of its own. If somebody keeps
			// undoing our work, the answers come ever more slowly; nobody else waits for that.
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
		case <-rested.C:
			ready = a.ready
		case <-ready:
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
			// A pass that was disturbed, or had something to do, says little about the cost of a look.
			look = min(time.Since(began), 4*max(look, fullEvery/thrift))
		case <-retry.C:
			a.offered.doubt.Store(true) // the machine may have lost something that a driver needs
			pass()
		case <-count.C:
			a.count(ctx)
			count.Reset(a.countEvery())
		}
	}
}

func newTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// sleep waits. It returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// audit looks into a part of the elements and returns whether any of them differs from what is desired.
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

// keep writes the desired state to the file from which a later life of the agent begins.
func (a *Agent) keep() {
	if len(a.held) > 0 || a.desired.Revision == a.lastWrite && a.lastWrite != 0 {
		return
	}
	err := a.saved.Write(a.desired)
	if a.unkept = err != nil; a.unkept {
		a.Log.Warn("keep the desired state", "error", err)
		return
	}
	a.lastWrite = a.desired.Revision
	a.moves.note(a.desired)
}
