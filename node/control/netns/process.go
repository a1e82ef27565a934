package netns

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

// process is what is remembered of an element's container. The container itself outlives the agent.
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
	again    int       // how often it was started again, by whomever
	queued   bool      // it shall be started or restarted, and waits for its turn
	restarts bool      // it runs, and must be restarted

	readiness
}

// lasting is how long a start must hold to count as one that succeeded; the waits between others double up to slowest.
const (
	lasting = 10 * time.Second
	slowest = time.Minute
)

// running tells whether the container's first process lives.
func (p *process) running() bool { return p.known && p.pidfd > 0 && !ended(p.pidfd) }

// asWanted tells whether the processes are there, or absent, as they shall be, or wait for their turn.
func (p *process) asWanted() bool { return p.running() == p.wanted || p.queued }

// due tells whether there is something to do about the processes now.
func (p *process) due() bool { return !p.asWanted() && !time.Now().Before(p.next) }

// unproven tells whether they run after several starts in a row that did not last, and not for long enough yet. One death
// is an accident: what kills them once is not held against them.
func (p *process) unproven(now time.Time) bool { return p.failures > 2 && now.Sub(p.began) < lasting }

func (p *process) forget() {
	if p.pidfd > 0 {
		unix.Close(p.pidfd)
	}
	p.pidfd, p.pid, p.known = 0, 0, false
	p.readiness = readiness{news: p.news}
}

// find looks for the element's container, as after a restart of the agent.
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
			p.began = state.began() // one that another agent had just started has its turn still
		}
	}
	return nil
}

// applyProcesses starts, stops and changes what runs in the elements.
func (d *Driver) applyProcesses(ctx context.Context, jobs []control.Job, todo []*work, turns map[model.ID]bool) {
	hosts := map[string]func() string{}
	var queue []*work
	for _, w := range todo {
		if len(w.errs) > 0 || w.e == nil {
			continue
		}
		network := w.job.ID.Network
		if hosts[network] == nil {
			hosts[network] = sync.OnceValue(func() string { return hostsOf(jobs, network) })
		}
		plan, err := software.Render(network, w.job.Element.Element)
		if err != nil {
			w.fail(err)
			continue
		}
		p := &w.e.process
		if w.p = p; d.shifts[w.job.ID] != nil {
			continue // what it is for comes next
		}
		p.plan, p.wanted, p.queued = plan, plan.NeedsProcesses && !w.job.Element.Stopped, false
		if p.wanted || p.known || w.e.shells > 0 {
			queue = append(queue, w)
		} else {
			w.e.last = nil
		}
	}
	queue = d.queue(queue, turns)
	ids := make([]model.ID, 0, len(queue))
	for _, w := range queue {
		d.handProcess(ctx, w, hosts[w.job.ID.Network])
		ids = append(ids, w.job.ID)
	}
	d.await(ctx, ids)
}

func (d *Driver) applyProcess(ctx context.Context, w *work, hosts func() string) error {
	id, p := w.job.ID, w.p
	container, bundle := containerID(id), d.dirs.Bundle(id)
	p.restarts = false
	if !p.wanted {
		wasRunning := p.running()
		if err := d.removeContainer(ctx, container, true); err != nil {
			return fmt.Errorf("stop its processes: %w", err)
		}
		p.forget()
		p.failures, p.next = 0, time.Time{}
		if wasRunning {
			w.did(control.ElementStopped, "stopped")
		}
		if w.job.Element.Stopped {
			return nil
		}
		return d.suspend(ctx, w) // people's commands
	}
	notes, err := bundleNotes(bundle)
	if err != nil {
		return err
	}
	if w.job.Element.Suspended && p.running() {
		// Nothing else can be done with processes that do not run; what has changed is seen to when they do.
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
	restarts, _ := strconv.ParseUint(notes[noteRestarts], 10, 32)
	asked := uint64(w.job.Element.Restarts) > restarts
	later, err := d.ensureDisk(&w.job, p.running())
	if err != nil {
		return err
	}
	if later {
		w.done("its disk grows at its next start: %s", noRaise)
	}
	files, err := d.openFiles(&w.job, asked || !p.running())
	if err != nil {
		return err
	}
	defer func() {
		for _, words := range files.moved {
			w.done("%s", words)
		}
		files.close()
	}()
	if err := files.makeDirs(&p.plan); err != nil {
		return err
	}
	seeding, err := d.seed(id, files, &p.plan, w.job.Element.Overwrites, p.running())
	if err != nil {
		return err
	}
	if len(seeding.write) > 0 && p.running() {
		if err := d.check(ctx, w, seeding.write); err != nil {
			return fmt.Errorf("%w; it goes on with what it has", err)
		}
	}
	w.result.Warning = seeding.warning()
	kept := len(seeding.kept) > 0
	otherChanged, err := files.writePlan(&p.plan, kept)
	if err != nil {
		return err
	}
	if err := d.sow(id, files, seeding); err != nil {
		return err
	}
	for _, path := range seeding.lost {
		w.done("%s was damaged, and is the network's again", path)
	}
	configChanged := len(seeding.write) > 0
	if asked || configChanged {
		p.failures, p.next = 0, time.Time{} // somebody has done something about it
	}
	spec := d.newSpec(&w.job, container, p.plan.Command, p.plan.Capabilities)
	d.showPrograms(spec, &p.plan)
	if err := d.noteContents(id, spec, &p.plan); err != nil {
		return err
	}
	if was, ok := notes[noteFiles]; ok && kept {
		spec.Annotations[noteFiles] = was // they are left too, so what runs has read them
	}
	p.again, _ = strconv.Atoi(notes[noteAgain])
	spec.Annotations[noteAgain] = strconv.Itoa(p.again)
	if !p.running() {
		if err := d.startAgain(ctx, w, files, spec, hosts()); err != nil || !w.job.Element.Suspended {
			return err
		}
		return d.suspend(ctx, w)
	}
	why, loaded := "", false
	switch {
	case asked:
		why = "as requested"
	case notes[noteSpec] != spec.Annotations[noteSpec]:
		why = "its command or its surroundings changed"
	case otherChanged, notes[noteFiles] != spec.Annotations[noteFiles]:
		why = "its daemons changed"
	case configChanged, notes[noteConfig] != spec.Annotations[noteConfig]:
		if err := d.reload(w); err == nil {
			loaded = true
			w.done("configuration loaded")
		} else if w.shift.wish.Err() != nil {
			return fmt.Errorf("load the new configuration: %w", err) // something else is wanted by now
		} else {
			d.log.Warn("load the new configuration; restarting instead", "element", id, "error", err)
			why = "its configuration changed"
		}
	}
	if why != "" {
		if !d.mayRestart(w, p) {
			return nil
		}
		if err := d.roomToStart(); err != nil {
			return fmt.Errorf("%w; it goes on with what it has", err)
		}
		if err := d.check(ctx, w, nil); err != nil {
			return fmt.Errorf("%w; it goes on with what it has", err)
		}
		if err := d.removeContainer(ctx, container, true); err != nil {
			return fmt.Errorf("stop its processes: %w", err)
		}
		p.forget()
		p.again++
		p.failures, p.next = 1, time.Now().Add(time.Second)
		files.close() // nothing runs on them now: they may move, or their disk grow
		if _, err := d.ensureDisk(&w.job, false); err != nil {
			return err
		}
		again, err := d.openFiles(&w.job, true)
		if err != nil {
			return err
		}
		again.moved = append(files.moved, again.moved...)
		files = again
		if err := d.start(ctx, w, files, spec, hosts()); err != nil {
			return err
		}
		w.did(control.ElementRestarted, "restarted: %s", why)
		return nil
	}
	// Noted last: what was cut short is done again.
	if notes[noteResources] != spec.Annotations[noteResources] {
		if err := d.limit(ctx, w, notes[noteOpenFiles], spec); err != nil {
			return err
		}
	} else if loaded {
		if err := writeBundle(bundle, spec); err != nil {
			return err
		}
	}
	if p.unproven(time.Now()) {
		return d.crashed(w, p.failures-1)
	}
	return nil
}

// startAgain starts processes that do not run, unless they died so often that they must wait.
func (d *Driver) startAgain(ctx context.Context, w *work, files *elementFiles, spec *specs.Spec, hosts string) error {
	id, p, now := w.job.ID, w.p, time.Now()
	died := p.known
	if died && now.Before(p.next) {
		return d.crashed(w, p.failures)
	}
	if died {
		if err := d.removeContainer(ctx, containerID(w.job.ID), false); err != nil {
			return fmt.Errorf("clear away what is left of its processes: %w", err)
		}
		p.forget()
		p.again++
	}
	if err := d.check(ctx, w, nil); err != nil {
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
	if err := d.start(ctx, w, files, spec, hosts); err != nil {
		return err
	}
	if died {
		w.did(control.ElementRestarted, "restarted: its processes had ended")
		if p.unproven(p.began) {
			return d.crashed(w, p.failures-1)
		}
	} else {
		w.did(control.ElementStarted, "started")
	}
	return nil
}

// start starts the container.
func (d *Driver) start(ctx context.Context, w *work, files *elementFiles, spec *specs.Spec, hosts string) error {
	id := w.job.ID
	if err := files.hostsFile(hosts); err != nil {
		return fmt.Errorf("write /etc/hosts: %w", err)
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

// launch runs a container in the background. What an earlier try left of it goes first.
func (d *Driver) launch(ctx context.Context, container, bundle string, memory model.Bytes, log *os.File) error {
	if err := d.removeContainer(ctx, container, false); err != nil {
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

// reload makes running software read its configuration again, without dropping what did not change.
func (d *Driver) reload(w *work) error {
	if len(w.p.plan.Reload) == 0 {
		return fmt.Errorf("%s cannot load a configuration while it runs", w.job.Element.Software)
	}
	return d.runRunc(w.shift.wish, nil, nil, append([]string{"exec", containerID(w.job.ID)}, w.p.plan.Reload...)...)
}

// endShells ends the containers that an agent which is no more used for exec and for checks. One that stays is ended when
// its element is used again, or removed.
func (d *Driver) endShells(ctx context.Context) {
	entries, _ := os.ReadDir(d.dirs.Runc())
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, shellSuffix) && !strings.HasSuffix(name, checkSuffix) {
			continue
		}
		if err := d.removeContainer(ctx, name, false); err != nil {
			d.log.Warn("end a container that was made for one command", "container", name, "error", err)
		}
	}
}
