package netns

import (
	"fmt"
	"strings"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/port"
)

// finish remembers an element as it is now, and fills its result.
func (d *Driver) finish(w *work, there port.Ports) {
	res := w.result
	if w.fresh {
		res.Changed = append([]change.Change{change.ElementCreated.Of()}, res.Changed...)
	} else {
		for _, i := range w.made {
			ifc := &w.want.interfaces[i]
			if w.e.want != nil && !w.e.want.has(ifc.Key) {
				w.did(change.PortAdded, ifc.label)
			} else {
				w.did(change.PortRestored, ifc.label)
			}
		}
	}
	if w.want != nil {
		res.Devices = make([]control.Device, len(w.want.interfaces))
		namespace := d.dirs.Namespace(w.job.ID)
		for i := range w.want.interfaces {
			ifc := &w.want.interfaces[i]
			res.Devices[i] = control.Device{Interface: ifc.label, Name: ifc.Name}
			if l := there[ifc.Key]; l != nil {
				res.Devices[i].Index, res.Devices[i].Inner = l.Index, l.Peer
				res.Devices[i].Behind = port.Peer{Namespace: namespace, Index: l.Peer}
			} else if len(w.errs) == 0 {
				w.fail(fmt.Errorf("element %s: port %s (device %s) vanished again", w.job.ID, ifc.label, ifc.Name))
			}
		}
	}
	if e := w.e; e != nil {
		d.elements[w.job.ID] = e
		e.job, e.devices = w.job, res.Devices
		d.noteOwner(&e.job)
		if w.want != nil {
			e.want = w.want
		}
		e.faulty = len(w.errs) > 0
		if s := d.shifts[w.job.ID]; s != nil {
			d.leave(s)
			if e.verified = false; !e.faulty {
				d.tellBusy(e, &w.job, res)
				return
			}
		} else if e.last != nil && sameJob(&e.last.job, &w.job) {
			w.errs, res.Warning = append(w.errs, e.last.errs...), e.last.warning
		}
		// Somebody may give the element the network's configuration by hand after all. Only a look shows that.
		e.verified = len(w.errs) == 0 && res.Warning == (control.Warning{})
		d.tell(e, res)
		if err := e.process.troubleOf(w.job.ID); err != nil && len(w.errs) == 0 {
			w.fail(err)
		}
	}
	if len(w.errs) > 0 {
		res.Err, res.Phase = joinErrors(w.errs), model.PhaseFailed
	}
}

// tell enters the phase, how far the software is, and what has happened to it since the last time.
func (d *Driver) tell(e *element, res *control.Result) {
	p := &e.process
	if p.wanted && (p.queued || !p.ready) && p.running() && !e.job.Element.Suspended {
		d.look(e.job.ID, p)
	}
	res.Phase, res.Restarts = e.settled(), p.again
	res.Changed, p.news = append(res.Changed, p.news...), nil
	if res.Phase == model.PhaseRunning && p.wanted && !p.running() {
		res.Phase = model.PhaseStarting // it is about to be
	}
	if res.Phase == model.PhaseStarting {
		res.Message = p.waits
	}
}

// joinErrors makes one line of several errors.
func joinErrors(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return &manyErrors{errs}
}

// manyErrors says the first three of them: all addresses of a device that is gone fail alike.
type manyErrors struct{ errs []error }

func (m *manyErrors) Error() string {
	const shown = 3
	words := make([]string, 0, shown+1)
	for i, err := range m.errs {
		if i == shown {
			words = append(words, fmt.Sprintf("and %d more errors", len(m.errs)-shown))
			break
		}
		words = append(words, err.Error())
	}
	return strings.Join(words, "; ")
}

func (m *manyErrors) Unwrap() []error { return m.errs }
