package netns

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/software"
)

// process is what the driver remembers of an element's container. The container outlives the agent.
type process struct {
	plan   software.Plan
	wanted bool
	known  bool // a container is there, running or not
	pidfd  int  // of its first process, when it runs
	pid    int

	began    time.Time // when it was last started
	failures int       // starts in a row that did not last
	next     time.Time // no start before
	logFrom  int64     // where in the log that start begins
	said     string    // the last words of the start before
	again    int       // how often it was started again, by the driver or by a person
	queued   bool      // it is to be started or restarted, and waits for its turn
	restarts bool      // it runs, and must be restarted
	// imageWaits says, for people, how far its image is, as long as this node does not have it.
	imageWaits string

	readiness
}

// lasting is how long processes must run for their start to count as successful. After other starts the wait doubles,
// up to slowest.
const (
	lasting = 10 * time.Second
	slowest = time.Minute
)

// running returns whether the container's first process is alive.
func (p *process) running() bool { return p.known && p.pidfd > 0 && !ended(p.pidfd) }

// asWanted returns whether processes run if they are wanted, or not if they are not, or wait for their turn.
func (p *process) asWanted() bool {
	return p.imageWaits == "" && (p.running() == p.wanted || p.queued)
}

// due returns whether the processes need something now.
func (p *process) due() bool { return !p.asWanted() && !time.Now().Before(p.next) }

// unproven returns whether the processes run after several starts in a row that did not last, and have not run for long
// enough yet. A single death is an accident and does not count.
func (p *process) unproven(now time.Time) bool { return p.failures > 2 && now.Sub(p.began) < lasting }

func (p *process) forget() {
	if p.pidfd > 0 {
		unix.Close(p.pidfd)
	}
	p.pidfd, p.pid, p.known = 0, 0, false
	p.readiness = readiness{news: p.news}
}

// find looks for the element's container, as is necessary after a restart of the agent.
func (d *Driver) find(id model.ID, p *process) error {
	p.forget()
	state, ok, err := d.readContainer(containerID(id))
	if err != nil || !ok {
		return err
	}
	p.known = true
	if fd := state.open(); fd > 0 {
		p.pidfd, p.pid = fd, state.pid
		if p.began.IsZero() {
			p.began = state.began() // if another agent had just started it, its turn is not over
		}
	}
	return nil
}

// applyProcesses starts, stops and changes what runs in the elements.
func (d *Driver) applyProcesses(ctx context.Context, todo []*work, turns map[model.ID]bool) {
	var queue []*work
	for _, w := range todo {
		if len(w.errs) > 0 || w.e == nil {
			continue
		}
		plan, err := software.Render(w.job.ID.Network, w.job.Element.Resolved())
		if err != nil {
			w.fail(err)
			continue
		}
		waits := ""
		if w.job.Element.Image != "" && !w.job.Element.Stopped {
			if plan, waits, err = d.withImage(&w.job.Element, plan); err != nil {
				w.fail(fmt.Errorf("element %s: %w", w.job.ID, err))
				continue
			}
		}
		if waits == "" && !w.job.Element.Stopped {
			if waits, err = d.withTrees(&plan); err != nil {
				w.fail(fmt.Errorf("element %s: %w", w.job.ID, err))
				continue
			}
		}
		p := &w.e.process
		if w.p = p; d.shifts[w.job.ID] != nil {
			continue // what it is for comes next
		}
		p.plan, p.wanted, p.queued = plan, plan.NeedsProcesses && !w.job.Element.Stopped, false
		if p.imageWaits != "" && waits == "" {
			p.waits = "" // for what is over
		}
		if p.imageWaits = waits; waits != "" {
			w.e.last = nil
			if p.ready = false; !p.running() {
				p.readiness = readiness{news: p.news, waits: waits}
			}
			continue
		}
		if plan.Service != nil && plan.Service.Hash != p.served {
			p.ready = false // with what it has; the next look finds out about what is wanted now
		}
		if w.e.kept && (w.job.Element.Stopped || !d.isKept(w.job.ID)) {
			w.e.kept = false
			queue = append(queue, w)
		} else if p.wanted || p.known || w.e.shells > 0 || w.e.kept {
			queue = append(queue, w)
		} else {
			w.e.last = nil
			if err := d.checkImage(w.job.ID); err != nil && !w.job.Element.Stopped {
				w.fail(err)
			}
		}
	}
	queue = d.queue(queue, turns)
	ids := make([]model.ID, 0, len(queue))
	for _, w := range queue {
		d.handProcess(ctx, w)
		ids = append(ids, w.job.ID)
	}
	d.await(ids)
}

// applyProcess makes an element's processes as wanted: it ends, starts, restarts or reloads them, or leaves them alone.
func (d *Driver) applyProcess(ctx context.Context, w *work) error {
	p := w.p
	p.restarts = false
	if err := d.endDetached(ctx, w); err != nil {
		return err
	}
	if !p.wanted {
		return d.endUnwanted(ctx, w)
	}
	// Nothing else can be done with processes that are held. Other changes are applied when they run.
	if w.job.Element.Suspended && p.running() {
		if err := d.suspend(ctx, w); err != nil {
			return fmt.Errorf("suspend its processes: %w", err)
		}
		return nil
	}
	if err := d.suspend(ctx, w); err != nil {
		return fmt.Errorf("resume its processes: %w", err)
	}
	if d.fallsShort(&w.job, p) {
		return fmt.Errorf("its software has failed (%s), and its disk cannot be written to: %w", p.trouble, unix.EROFS)
	}
	noted, err := bundleNotes(d.dirs.Bundle(w.job.ID))
	if err != nil {
		return err
	}
	now, err := d.prepareProcess(ctx, w, noted)
	if err == nil {
		err = d.carryOut(ctx, w, decide(p.running(), now.asked, now.wrote, noted, now.spec.Annotations), noted, &now)
	}
	if now.files != nil {
		w.result.Changed = append(w.result.Changed, now.files.moved...)
		now.files.close()
	}
	return err
}

// prepared is what an element's processes are to be started with, or to be changed to.
type prepared struct {
	files *elementFiles // open, also after an error; nil if they could not be opened
	wrote written
	spec  *specs.Spec
	asked bool // for a restart
}

// prepareProcess writes what the processes read, and works out what their container is to be.
func (d *Driver) prepareProcess(ctx context.Context, w *work, noted map[string]string) (now prepared, err error) {
	p := w.p
	now.asked = asksRestart(w.job.Element.Restarts, noted)
	later, err := d.ensureDisk(&w.job, p.running())
	if err != nil {
		return now, err
	}
	if later && !now.asked {
		w.did(change.DiskLater, noRaise)
	}
	if now.files, err = d.openFiles(&w.job, now.asked || !p.running()); err != nil {
		return now, err
	}
	if err := now.files.hasSoftware(&w.job.Element); err != nil {
		return now, err
	}
	if now.wrote, err = d.writeFiles(ctx, w, now.files); err != nil {
		return now, err
	}
	if now.asked || now.wrote.config {
		p.failures, p.next = 0, time.Time{} // somebody has done something about it
	}
	now.spec = d.newSpec(&w.job, containerID(w.job.ID), p.plan.Command, capabilitiesOf(&p.plan))
	d.showPrograms(now.spec, &p.plan)
	if err := d.noteContents(w.job.ID, now.spec, &p.plan); err != nil {
		return now, err
	}
	if was, ok := noted[noteFiles]; ok && now.wrote.kept {
		now.spec.Annotations[noteFiles] = was // they stay as they are as well, so what runs has read them
	}
	p.again, _ = strconv.Atoi(noted[noteAgain])
	now.spec.Annotations[noteAgain] = strconv.Itoa(p.again)
	return now, nil
}

// carryOut does what was decided. What cannot be changed while the processes run is changed by a restart.
func (d *Driver) carryOut(ctx context.Context, w *work, todo deed, noted map[string]string, now *prepared) error {
	if todo.start {
		if err := d.startAgain(ctx, w, now.files, now.spec); err != nil || !w.job.Element.Suspended {
			return err
		}
		return d.suspend(ctx, w)
	}
	why, err := todo.restart, error(nil)
	if todo.load {
		if why, err = d.load(w); err != nil {
			return err
		}
	}
	if todo.serve && why == "" {
		if why, err = d.loadService(w, w.p.plan.Service.Reload, change.ServiceChanged); err != nil {
			return err
		}
	}
	if todo.again && why == "" {
		w.p.served, w.p.ready = "", false // that it has another start is no news
		if why, err = d.loadService(w, w.p.plan.Service.Again, change.ServiceAgain); err != nil {
			return err
		}
	}
	// What they have is noted last, so that an interrupted change is made again.
	switch {
	case why != "":
		now.files, err = d.restart(ctx, w, now.files, now.spec, why)
		return err
	case todo.limit:
		err = d.limit(ctx, w, noted[noteOpenFiles], now.spec)
	case todo.load || todo.serve || todo.again:
		err = writeBundle(d.dirs.Bundle(w.job.ID), now.spec)
	}
	if err == nil && w.p.unproven(time.Now()) {
		return d.crashed(w, w.p.failures-1)
	}
	return err
}

// endUnwanted ends the processes of an element that is to have none. People's commands in it go on unless the element
// is stopped.
func (d *Driver) endUnwanted(ctx context.Context, w *work) error {
	p := w.p
	wasRunning := p.running()
	d.takeBackOf(ctx, w) // first: whoever is killed in between does it again
	if err := d.removeContainer(ctx, containerID(w.job.ID), d.graceOf(w.job.ID)); err != nil {
		return fmt.Errorf("stop its processes: %w", err)
	}
	p.forget()
	p.failures, p.next = 0, time.Time{}
	if wasRunning {
		w.did(change.ElementStopped)
		d.tellStopFailed(w)
	}
	if w.job.Element.Stopped {
		return nil
	}
	return d.suspend(ctx, w)
}

// writeFiles writes what an element's processes read. It does not write a configuration that they would refuse.
func (d *Driver) writeFiles(ctx context.Context, w *work, files *elementFiles) (written, error) {
	id, p := w.job.ID, w.p
	if err := files.makeDirs(&p.plan); err != nil {
		return written{}, err
	}
	seeding, err := d.seed(id, files, &p.plan, w.job.Element.Overwrites, p.running())
	if err != nil {
		return written{}, err
	}
	if len(seeding.write) > 0 && p.running() {
		if err := d.check(ctx, w, files, seeding.write); err != nil {
			return written{}, fmt.Errorf("%w; it goes on with what it has", err)
		}
	}
	trees := d.treesOf(id, &p.plan, &seeding.seeds)
	planting, err := files.plant(w.shift.wish, &p.plan, &seeding, trees, p.running())
	if err != nil {
		return written{}, err
	}
	if err := d.plantTrees(w.shift.wish, files, trees, &planting, &seeding, p.running()); err != nil {
		return written{}, err
	}
	w.result.Warning = seeding.warning(planting.kept)
	kept := len(seeding.kept) > 0
	other, err := files.writePlan(&p.plan, kept)
	if err != nil {
		return written{}, err
	}
	if err := d.carryOutPlanting(w.shift.wish, id, files, &planting, &seeding, p.running()); err != nil {
		return written{}, err
	}
	if err := d.sow(id, files, seeding); err != nil {
		return written{}, err
	}
	if s := p.plan.Service; s != nil {
		if err := files.writeFile(&s.Definition); err != nil {
			return written{}, err
		}
	}
	for _, path := range slices.Concat(seeding.lost, planting.lost) {
		w.did(change.FileRestored, path)
	}
	return written{config: len(seeding.write) > 0, other: other, kept: kept}, nil
}

// load has processes read their new configuration. If they must be restarted for that, it returns why.
func (d *Driver) load(w *work) (why string, err error) {
	err = d.reload(w)
	switch {
	case err == nil:
		w.did(change.ConfigLoaded)
		return "", nil
	case w.shift.wish.Err() != nil:
		return "", fmt.Errorf("load the new configuration: %w", err) // something else is wanted by now
	}
	d.log.Warn("load the new configuration; restarting instead", "element", w.job.ID, "error", err)
	return "its configuration changed", nil
}

// loadService has what its owner has run be as it is wanted now. If the processes must be restarted for that, it
// returns why.
func (d *Driver) loadService(w *work, command []string, done change.Kind) (why string, err error) {
	err = d.runRunc(w.shift.wish, nil, nil, append([]string{"exec", containerID(w.job.ID)}, command...)...)
	switch {
	case err == nil:
		w.did(done)
		return "", nil
	case w.shift.wish.Err() != nil:
		return "", fmt.Errorf("change what is run in it: %w", err) // something else is wanted by now
	}
	d.log.Warn("change what is run in it; restarting instead", "element", w.job.ID, "error", err)
	return "what is run in it changed", nil
}

// restart ends processes and starts them again when it is their turn. It closes the given files and returns those that
// are open afterwards.
func (d *Driver) restart(ctx context.Context, w *work, files *elementFiles, spec *specs.Spec,
	why string) (*elementFiles, error) {
	p := w.p
	if !d.mayRestart(w, p) {
		return files, nil
	}
	if err := d.roomToStart(); err != nil {
		return files, fmt.Errorf("%w; it goes on with what it has", err)
	}
	if err := d.check(ctx, w, files, nil); err != nil {
		return files, fmt.Errorf("%w; it goes on with what it has", err)
	}
	if err := d.removeContainer(ctx, containerID(w.job.ID), d.graceOf(w.job.ID)); err != nil {
		return files, fmt.Errorf("stop its processes: %w", err)
	}
	p.forget()
	d.tellStopFailed(w)
	had := linux.IsMount(d.rootfs(w.job.ID)) // an image
	p.again++
	p.failures, p.next = 1, time.Now().Add(time.Second)
	files.close() // nothing uses them now: they may move, or their disk may grow
	switch later, err := d.ensureDisk(&w.job, false); {
	case err != nil:
		return files, err
	case later:
		w.did(change.DiskLater, "something else uses it now")
	}
	again, err := d.openFiles(&w.job, true)
	if err != nil {
		return files, err
	}
	again.moved = append(files.moved, again.moved...)
	// These may be other files than were written before, and what was deleted inside comes back.
	if had || w.job.Element.Image != "" || len(p.plan.Contents) > 0 {
		if _, err := d.writeFiles(ctx, w, again); err != nil {
			return again, err
		}
	}
	if err := d.start(ctx, w, again, spec); err != nil {
		return again, err
	}
	w.did(change.ElementRestarted, why)
	return again, nil
}

// startAgain starts processes that do not run. If they died too often, they must wait first.
func (d *Driver) startAgain(ctx context.Context, w *work, files *elementFiles, spec *specs.Spec) error {
	id, p, now := w.job.ID, w.p, time.Now()
	died := p.known
	if died && now.Before(p.next) {
		return d.crashed(w, p.failures)
	}
	if died {
		if err := d.removeContainer(ctx, containerID(w.job.ID), 0); err != nil {
			return fmt.Errorf("clear away what is left of its processes: %w", err)
		}
		p.forget()
		p.again++
	}
	if err := d.check(ctx, w, files, nil); err != nil {
		return err
	}
	if !died || p.began.IsZero() || now.Sub(p.began) >= lasting {
		p.failures = 0
	}
	p.failures++
	p.next = now.Add(min(slowest, time.Second<<min(p.failures-1, 10)))
	if died {
		p.said = d.lastWords(id, p.logFrom)
	}
	if err := d.start(ctx, w, files, spec); err != nil {
		return err
	}
	if died {
		w.did(change.ElementRestarted, "its processes had ended")
		if p.unproven(p.began) {
			return d.crashed(w, p.failures-1)
		}
	} else {
		w.did(change.ElementStarted)
	}
	return nil
}

// start starts the container.
func (d *Driver) start(ctx context.Context, w *work, files *elementFiles, spec *specs.Spec) error {
	id := w.job.ID
	if err := files.writeNames(w.roll, w.job.ID.Element, w.job.Element.Contents); err != nil {
		return err
	}
	spec.Annotations[noteAgain] = strconv.Itoa(w.p.again)
	if err := writeBundle(d.dirs.Bundle(id), spec); err != nil {
		return err
	}
	log, err := openLog(d.logPath(id))
	if err != nil {
		return err
	}
	defer log.Close()
	if err := d.boundSockets(w.shift.cookie, w.job.Element.Limits().Memory); err != nil {
		return fmt.Errorf("start its processes: %w", err)
	}
	if info, err := log.Stat(); err == nil {
		w.p.logFrom = info.Size()
	}
	p := w.p
	if err := d.launch(ctx, containerID(id), d.dirs.Bundle(id), w.job.Element.Limits().Memory, log); err != nil {
		return fmt.Errorf("start its processes: %w", err)
	}
	if err := d.find(id, p); err != nil {
		return err
	}
	p.expectConfig(files)
	p.began = time.Now()
	return nil
}

// launch runs a container in the background. It first removes what is left of an earlier try.
func (d *Driver) launch(ctx context.Context, container, bundle string, memory model.Bytes, log *os.File) error {
	if err := d.removeContainer(ctx, container, 0); err != nil {
		return err
	}
	if err := os.MkdirAll(d.dirs.Runc(), 0o711); err != nil {
		return fmt.Errorf("make runc's directory: %w", err)
	}
	if err := d.limitSockets(container, memory); err != nil {
		return err
	}
	return d.runRunc(ctx, nil, log, "run", "--detach", "--no-new-keyring", "--bundle", bundle, container)
}

// logLimit is the size in bytes above which an element's log is set aside at the next start.
const logLimit = 1 << 20

func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("set the log aside: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return f, nil
}

// reload makes running software read its configuration again without interrupting what did not change.
func (d *Driver) reload(w *work) error {
	if len(w.p.plan.Reload) == 0 {
		return fmt.Errorf("%s cannot load a configuration while it runs", w.job.Element.Software)
	}
	return d.runRunc(w.shift.wish, nil, nil, append([]string{"exec", containerID(w.job.ID)}, w.p.plan.Reload...)...)
}

// endShells ends the containers that an earlier agent used for exec and for checks. If one stays, it is ended when its
// element is used again or removed.
func (d *Driver) endShells(ctx context.Context) {
	entries, _ := os.ReadDir(d.dirs.Runc())
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, shellSuffix) && !strings.HasSuffix(name, checkSuffix) {
			continue
		}
		if id, ok := elementOfShell(name); ok && d.isKept(id) {
			continue // an element's own
		}
		if err := d.removeContainer(ctx, name, 0); err != nil {
			d.log.Warn("end a container that was made for one command", "container", name, "error", err)
		}
	}
}
