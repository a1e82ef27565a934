package netns

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/port"
)

// work is one element that may have to be repaired, on its way through Apply.
type work struct {
	job    control.Job
	result *control.Result
	want   *want
	e      *element
	fresh  bool             // its namespace was made in this Apply
	made   []int            // interfaces whose pairs were made in this Apply
	loud   []*wantInterface // ports on which IPv6 is not switched off
	lost   []int            // interfaces whose element end was found nowhere
	errs   []error
	turn   bool // it may be started, or restarted
	later  bool // its namespace is made in another Apply
	roll   *roll

	strangers bool // it is stopped, and has devices that somebody made in it

	p     *process // the element's, or the shift's own copy
	shift *shift   // that does this work, nil in Apply itself
}

func (w *work) fail(err error) { w.errs = append(w.errs, err) }

// did notes what was done.
func (w *work) did(kind change.Kind, parts ...any) {
	w.result.Changed = append(w.result.Changed, kind.Of(parts...))
}

// Apply makes the elements as they are wanted. It leaves alone the addresses, routes and devices that somebody made
// inside an element.
func (d *Driver) Apply(ctx context.Context, jobs []control.Job) []control.Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	results := make([]control.Result, len(jobs))
	for i := range jobs {
		results[i].ID = jobs[i].ID
	}
	if err := d.apply(ctx, jobs, results); err != nil {
		for i := range results {
			if results[i].Err == nil {
				results[i].Err, results[i].Phase = err, model.PhaseFailed
			}
		}
	}
	return results
}

// apply does the work of Apply. It returns an error that concerns all elements.
func (d *Driver) apply(ctx context.Context, jobs []control.Job, results []control.Result) error {
	if err := d.prepare(ctx); err != nil {
		return err
	}
	there, names, err := d.findPorts()
	if err != nil {
		return err
	}
	looked := map[string]bool{}
	for i := range jobs {
		if network := jobs[i].ID.Network; !looked[network] {
			looked[network] = true
			if restored, err := d.restoreUserNamespace(network); err != nil {
				return err
			} else if restored {
				results[i].Changed = append(results[i].Changed, change.UsersMounted.Of(network))
			}
		}
	}
	d.updateRolls(jobs)
	d.keepImages(jobs)
	defer d.renameAll(ctx, jobs)
	stale := stalePorts(jobs, there, d.elements)
	turns := d.turnsForQueued()
	defer func() {
		d.news = d.isNews(results)
		for i := range results {
			e := d.elements[jobs[i].ID]
			if e != nil && e.clearing != nil && !closed(e.clearing.down) {
				results[i].Busy = true
			}
			if e != nil && !results[i].Busy {
				e.told, e.toldErr = results[i].Phase, results[i].Err
			}
		}
	}()
	var todo []*work
	for i := range jobs {
		s := d.shifts[jobs[i].ID]
		if s != nil && s.hasEnded() {
			d.takeIn(jobs[i].ID, s)
			s = nil
		}
		e := d.elements[jobs[i].ID]
		if e != nil {
			if d.cleared(e); e.clearing != nil && !jobs[i].Element.Stopped {
				d.tellClearing(e, &results[i])
				continue
			}
		}
		if s != nil && !s.ends && !sameJob(&s.job, &jobs[i]) {
			s.cut()
		}
		switch {
		case e == nil || stale[jobs[i].ID] || s != nil && s.apart && !s.ends && d.asBefore(e, &jobs[i], there):
		case s != nil && (control.Glancing(ctx) || d.surroundedAsBefore(e, &jobs[i], there)):
			d.leave(s)
			d.tellBusy(e, &jobs[i], &results[i])
			continue
		case s == nil && control.Glancing(ctx) && e.last != nil && sameJob(&e.last.job, &jobs[i]) &&
			!e.verified && !e.process.queued:
			d.tellLast(e, &results[i])
			continue
		}
		if e != nil && (s == nil || s.apart && !s.ends) && !stale[jobs[i].ID] && !turns[jobs[i].ID] &&
			d.asBefore(e, &jobs[i], there) && !d.fallsShort(&jobs[i], &e.process) {
			results[i].Devices = e.devices
			d.tell(e, &results[i])
			if results[i].Err = e.process.troubleOf(jobs[i].ID); results[i].Err != nil {
				results[i].Phase = model.PhaseFailed
			}
			continue
		}
		todo = append(todo, &work{job: jobs[i], result: &results[i], e: e})
	}
	if len(todo) == 0 {
		return nil
	}
	d.news = d.isNews(results)
	if todo = d.repairAll(ctx, todo, there, names); len(todo) == 0 {
		return nil
	}
	if now, _, err := d.findPorts(); err == nil {
		there = now
	} else {
		for _, w := range todo {
			w.fail(err)
		}
	}
	d.applyProcesses(ctx, todo, turns)
	d.clearAll(ctx, todo)
	for _, w := range todo {
		d.finish(w, there)
	}
	return nil
}

// isNews returns whether any result so far differs from what was told last.
func (d *Driver) isNews(results []control.Result) bool {
	return slices.ContainsFunc(results, func(r control.Result) bool {
		e := d.elements[r.ID]
		return len(r.Changed) > 0 || e != nil && !r.Busy && r.Phase != "" && r.Phase != e.told
	})
}

// prepare is done once, before the first element is touched: an earlier agent's commands may still be at work on
// containers. They end by themselves, and are waited for beside the loop.
func (d *Driver) prepare(ctx context.Context) error {
	if d.prepared {
		return nil
	}
	if err := d.openLock(); err != nil {
		return err
	}
	if err := d.writePrograms(); err != nil {
		return err
	}
	// Commands of an earlier agent may have left files. A command that is still at work needs only the files that it
	// has open.
	if err := os.RemoveAll(d.temporaryDir()); err != nil {
		d.log.Warn("clear away what an earlier agent's commands left", "error", err)
	}
	others := make(chan struct{})
	d.others = others
	d.crew.all.Go(func() {
		d.awaitOthers(ctx)
		d.endShells(ctx)
		close(others)
		d.wake()
	})
	if !d.hurried {
		<-others
	}
	d.prepared = ctx.Err() == nil
	return ctx.Err()
}

// othersWork tells whether runc commands of an earlier agent may still be at work.
func (d *Driver) othersWork() bool { return d.others != nil && !closed(d.others) }

// asBefore finds out cheaply whether nothing has changed: what is wanted, the ports, the namespace's mount, the
// processes.
func (d *Driver) asBefore(e *element, job *control.Job, there port.Ports) bool {
	return e.verified && d.surroundedAsBefore(e, job, there) && e.process.asWanted() &&
		(!job.Element.Suspended || !e.process.running() || d.frozen(containerID(job.ID)))
}

func sameJob(a, b *control.Job) bool {
	return a.Index == b.Index && a.Title == b.Title && a.Owner == b.Owner && reflect.DeepEqual(&a.Element, &b.Element)
}

// surroundedAsBefore does the same for everything but the processes.
func (d *Driver) surroundedAsBefore(e *element, job *control.Job, there port.Ports) bool {
	if e.want == nil || e.faulty || !sameJob(&e.job, job) {
		return false
	}
	for i := range e.devices {
		w := &e.want.interfaces[i]
		if l := there[w.Key]; l == nil || l.Index != e.devices[i].Index || !w.Is(l) {
			return false
		}
	}
	return d.namespaceOf(d.dirs.Namespace(job.ID)) == e.inode
}

// stalePorts finds the elements that have ports they should not have.
func stalePorts(jobs []control.Job, there port.Ports, known map[model.ID]*element) map[model.ID]bool {
	count := 0
	for i := range jobs {
		count += len(jobs[i].Element.Interfaces)
	}
	stale := map[model.ID]bool{}
	wanted := make(map[string]bool, count)
	for i := range jobs {
		e := known[jobs[i].ID]
		if e == nil || e.want == nil || len(e.want.interfaces) != len(jobs[i].Element.Interfaces) {
			stale[jobs[i].ID] = true // looked at anyway
			continue
		}
		for j := range e.want.interfaces {
			wanted[e.want.interfaces[j].Key] = true
		}
	}
	if len(wanted) == len(there) {
		return stale
	}
	for key := range there {
		if !wanted[key] {
			stale[portOf(key).ID] = true
		}
	}
	return stale
}

// repairAll takes the elements through three stages: namespaces, ports, and insides. Each stage works while the one
// before it goes on. Of the elements without a namespace it takes one portion, and it returns those that it took.
func (d *Driver) repairAll(ctx context.Context, todo []*work, there port.Ports, names map[string]*port.Link) []*work {
	// No stage gets far ahead of the next, so a portion that has reached its end is soon done.
	ready, linked := make(chan *work, linkBatch), make(chan *work, linkBatch/2)
	var present, missing []*work
	byElement := map[model.ID][]string{}
	for key := range there {
		id := portOf(key).ID
		byElement[id] = append(byElement[id], key)
	}
	for _, w := range todo {
		var err error
		if w.want, err = newWant(d.dirs, w.job); err == nil {
			err = d.attach(w)
		}
		switch {
		case err != nil:
			w.fail(err)
		case w.e == nil:
			missing = append(missing, w)
		default:
			for i := range w.want.interfaces {
				there.Adopt(&w.want.interfaces[i].Port, names)
			}
			present = append(present, w)
		}
	}
	var stages sync.WaitGroup
	stages.Go(func() {
		defer close(ready)
		for _, w := range present {
			ready <- w
		}
		d.makeMissing(ctx, missing, ready)
	})
	stages.Go(func() {
		defer close(linked)
		if err := d.inNode(func() error { return d.linkAll(ready, linked, there, names, byElement) }); err != nil {
			for w := range ready {
				w.fail(err)
			}
		}
	})
	for range min(runtime.NumCPU(), 4) {
		stages.Go(func() {
			onThread(func() error {
				var sysctls sysctlReader
				defer sysctls.close()
				for w := range linked {
					control.Progress(ctx)
					d.repairInside(w, there, &sysctls)
				}
				return nil
			})
		})
	}
	stages.Wait()
	todo = slices.DeleteFunc(todo, func(w *work) bool { return w.later })
	d.replaceLost(todo, there)
	return todo
}

// repairInside puts right what is in an element's namespace. The calling thread stays in that namespace.
func (d *Driver) repairInside(w *work, there port.Ports, sysctl *sysctlReader) {
	if len(w.errs) > 0 {
		return
	}
	err := func() error {
		if err := unix.Setns(w.e.fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter its network namespace: %w", err)
		}
		c, err := linux.DialRtnetlink()
		if err != nil {
			return err
		}
		defer c.Close()
		in, err := inspect(c, w.fresh, w.want, w.want.protocols(true))
		if err != nil {
			return err
		}
		var r repair
		if w.lost = in.match(&r, w, there); len(w.lost) > 0 {
			return nil // once they are made anew, this is done again
		}
		if !w.fresh {
			differ, err := sysctl.repair(sysctls(w.want.kind))
			if err != nil {
				return err
			}
			for _, s := range differ {
				w.did(change.SysctlSet, dotted(s.name), s.value)
			}
		}
		for _, i := range w.made {
			if l := in.links[w.want.interfaces[i].Pair.Name]; l != nil {
				l.raise = true
			}
		}
		if err := in.makeVLANs(c, w); err != nil {
			return err
		}
		again, err := in.makeVRFs(c, w)
		if err != nil {
			return err
		}
		if err := w.takeLabels(sysctl); err != nil { // before the routes of labels
			return err
		}
		in.plan(&r, w.want, w.e.want, d.forceUp(w))
		for _, i := range w.made { // that the pair was made says it all
			r.hush(w.want.interfaces[i].Pair.Name)
		}
		done, err := r.do(c)
		if !w.fresh {
			w.result.Changed = append(w.result.Changed, done...)
		}
		if err == nil && again && !w.fresh {
			if in, err = inspect(c, false, w.want, w.want.protocols(true)); err != nil {
				return err
			}
			var r repair
			in.plan(&r, w.want, w.e.want, d.forceUp(w))
			_, err = r.do(c)
		}
		w.strangers = in.hasStrangers(w.want)
		if err == nil && in.lacksVirtual(w.want) {
			if err = in.finishVirtuals(c, w.want, d.forceUp(w)); err == nil {
				err = w.takeLabels(sysctl)
			}
		}
		return err
	}()
	if err != nil {
		w.fail(fmt.Errorf("element %s: %w", w.job.ID, err))
	}
}

// forceUp returns whether devices that are down are to be taken up although routing software runs.
func (d *Driver) forceUp(w *work) bool {
	return w.fresh || !w.e.process.running() || w.e.want != nil && !w.e.want.up
}

// match finds the element's ends of its ports, and gives renamed ones their name back. It returns the interfaces whose
// end is not there.
func (in *inside) match(r *repair, w *work, there port.Ports) (lost []int) {
	made := each.Set(w.made)
	for i := range w.want.interfaces {
		ifc := &w.want.interfaces[i]
		p := there[ifc.Key]
		if made[i] || p == nil {
			continue
		}
		if l := in.links[ifc.Pair.Name]; l != nil && l.Index == p.Peer && l.Peer == p.Index {
			continue
		}
		l := in.byIndex(p.Peer)
		if l == nil || l.Peer != p.Index {
			lost = append(lost, i)
			continue
		}
		r.request(unix.RTM_SETLINK, 0, step{doing: fmt.Sprintf("take %s down to rename it", l.Name)})
		r.Link(l.Index, 0, unix.IFF_UP)
		r.request(unix.RTM_SETLINK, 0, step{doing: fmt.Sprintf("rename %s to %s", l.Name, ifc.Pair.Name),
			done: change.DeviceRenamed.Of(ifc.label, l.Name)})
		r.Link(l.Index, 0, 0)
		r.String(unix.IFLA_IFNAME, ifc.Pair.Name)
		delete(in.links, l.Name)
		l.Name, l.raise, l.Flags = ifc.Pair.Name, l.Up(), l.Flags&^unix.IFF_UP
		in.links[l.Name] = l
	}
	return lost
}

func (in *inside) byIndex(index int) *link {
	for _, l := range in.links {
		if l.Index == index {
			return l
		}
	}
	return nil
}

// replaceLost makes those pairs anew whose element end was taken out of the element.
func (d *Driver) replaceLost(todo []*work, there port.Ports) {
	var r nodeRepair
	var again []*work
	for _, w := range todo {
		for _, i := range w.lost {
			ifc := &w.want.interfaces[i]
			port.Delete(&r.Batch, there[ifc.Key])
			ifc.Make(&r.Batch, w.e.fd)
			r.own(w, "make anew port "+ifc.Key)
			w.made = append(w.made, i)
		}
		if len(w.lost) > 0 {
			again = append(again, w)
		}
	}
	if len(again) == 0 {
		return
	}
	r.do(d.node)
	if err := d.inNode(func() error {
		silent, err := port.NewSilencer()
		if err != nil {
			return err
		}
		defer silent.Close()
		d.silenceNew(again, silent)
		var sysctls sysctlReader
		defer sysctls.close()
		for _, w := range again {
			d.repairInside(w, there, &sysctls)
		}
		return nil
	}); err != nil {
		for _, w := range again {
			w.fail(err)
		}
	}
}
