package netns

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/port"
)

// linkBatch is how many elements get their ports with one batch of requests.
const linkBatch = 16

// linkAll makes missing ports, puts the others right, and passes the elements on.
func (d *Driver) linkAll(ready <-chan *work, linked chan<- *work, there port.Ports, names map[string]*port.Link,
	byElement map[model.ID][]string) error {
	silent, err := port.NewSilencer()
	if err != nil {
		return err
	}
	defer silent.Close()
	for first := range ready {
		batch := []*work{first}
	collect:
		for len(batch) < linkBatch {
			select {
			case w, ok := <-ready:
				if !ok {
					break collect
				}
				batch = append(batch, w)
			default:
				break collect
			}
		}
		var r nodeRepair
		for _, w := range batch {
			r.plan(w, there, names, byElement[w.job.ID])
		}
		r.do(d.node)
		d.silenceNew(batch, silent)
		for _, w := range batch {
			linked <- w
		}
	}
	return nil
}

// silenceNew prepares new ports: IPv6 off, GRO on, and up. With GRO a port takes what an element sends in rounds
// (NAPI), and an element's end does the same with what it is sent through the queue. docs/performance.md says what a
// TCP stream gains by that.
func (d *Driver) silenceNew(batch []*work, silent *port.Silencer) {
	var r nodeRepair
	for _, w := range batch {
		for _, i := range w.made {
			if len(w.errs) > 0 {
				break
			}
			ifc := &w.want.interfaces[i]
			if err := silent.Silence(ifc.Name); err != nil {
				w.fail(fmt.Errorf("element %s: %w", w.job.ID, err))
			}
			if err := d.node.SetGRO(ifc.Name, true); err != nil {
				w.fail(fmt.Errorf("element %s: %w", w.job.ID, err))
			}
			ifc.Raise(&r.Batch)
			r.own(w, "take up port "+ifc.Key)
		}
		for _, ifc := range w.loud {
			if err := silent.Silence(ifc.Name); err != nil {
				w.fail(fmt.Errorf("element %s: %w", w.job.ID, err))
			}
		}
	}
	r.do(d.node)
}

// nodeRepair collects the requests for the node's side of elements.
type nodeRepair struct {
	linux.Batch
	owners []nodeStep
}

// nodeStep says for whom a request is, and what it does: "make port lab/r1:eth0 (device …)".
type nodeStep struct {
	w     *work
	doing string
}

func (r *nodeRepair) own(w *work, doing string) {
	for len(r.owners) < r.Len() {
		r.owners = append(r.owners, nodeStep{w, doing})
	}
}

func (r *nodeRepair) do(c *linux.Rtnetlink) {
	for i, err := range c.Do(&r.Batch) {
		if err == nil {
			continue
		}
		s := r.owners[i]
		if errors.Is(err, unix.EEXIST) {
			err = errors.New("a device of that name is there already")
		}
		s.w.fail(fmt.Errorf("element %s: %s: %w", s.w.job.ID, s.doing, err))
	}
}

// plan appends the requests that an element's ports need.
func (r *nodeRepair) plan(w *work, there port.Ports, names map[string]*port.Link, has []string) {
	wanted := make(map[string]bool, len(w.want.interfaces))
	for i := range w.want.interfaces {
		wanted[w.want.interfaces[i].Key] = true
	}
	for _, key := range has {
		if wanted[key] && !w.fresh {
			continue
		}
		// A port that is no longer wanted, or that leads into a lost namespace.
		port.Delete(&r.Batch, there[key])
		r.own(w, "remove port "+key)
		if !wanted[key] {
			w.did(change.PortRemoved, portOf(key).Interface)
		}
	}
	for i := range w.want.interfaces {
		r.planPort(w, i, there, names)
	}
}

// planPort makes a port, or puts it right where it differs. A device that has the port's name and is not it goes first.
func (r *nodeRepair) planPort(w *work, i int, there port.Ports, names map[string]*port.Link) {
	ifc := &w.want.interfaces[i]
	l := there[ifc.Key]
	if l == nil || w.fresh {
		if x := names[ifc.Name]; x != nil && l == nil {
			port.Delete(&r.Batch, x)
			r.own(w, "remove a device in the place of port "+ifc.Key)
		}
		ifc.Make(&r.Batch, w.e.fd)
		r.own(w, fmt.Sprintf("make port %s (device %s)", ifc.Key, ifc.Name))
		w.made = append(w.made, i)
		return
	}
	if ifc.Is(l) {
		return
	}
	if l.IPv6 {
		w.loud = append(w.loud, ifc)
	}
	ifc.Restore(&r.Batch, l)
	r.own(w, "put right port "+ifc.Key)
	w.did(change.PortMended, ifc.label)
}
