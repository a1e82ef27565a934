package netns

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// linkBatch is how many elements get their ports in one go.
const linkBatch = 16

// linkAll makes missing ports and puts the others right, and passes the elements on.
func (d *Driver) linkAll(ready <-chan *work, linked chan<- *work, there ports, names map[string]*link,
	byElement map[model.ID][]string) error {
	silent, err := newSilencer()
	if err != nil {
		return err
	}
	defer silent.close()
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

// silenceNew switches IPv6 off and GRO on on new ports and takes them up. With GRO a port takes what an element sends in
// rounds (NAPI), and an element's end what it is sent through the queue: docs/performance.md says what a TCP stream gains.
func (d *Driver) silenceNew(batch []*work, silent *silencer) {
	var r nodeRepair
	for _, w := range batch {
		for _, i := range w.made {
			if len(w.errs) > 0 {
				break
			}
			ifc := &w.want.interfaces[i]
			if err := silent.silence(ifc.port); err != nil {
				w.fail(fmt.Errorf("element %s: %w", w.job.ID, err))
			}
			if err := d.node.SetGRO(ifc.port, true); err != nil {
				w.fail(fmt.Errorf("element %s: %w", w.job.ID, err))
			}
			raisePort(&r.Batch, ifc)
			r.own(w, "take up port "+ifc.key)
		}
		for _, ifc := range w.loud {
			if err := silent.silence(ifc.port); err != nil {
				w.fail(fmt.Errorf("element %s: %w", w.job.ID, err))
			}
		}
	}
	r.do(d.node)
}

// nodeRepair collects requests on the node's side of elements.
type nodeRepair struct {
	linux.Batch
	owners []nodeStep
}

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

// plan appends what an element's ports need.
func (r *nodeRepair) plan(w *work, there ports, names map[string]*link, has []string) {
	wanted := make(map[string]bool, len(w.want.interfaces))
	for i := range w.want.interfaces {
		wanted[w.want.interfaces[i].key] = true
	}
	for _, key := range has {
		if wanted[key] && !w.fresh {
			continue
		}
		// A port that is no longer wanted, or one that leads into a namespace that is lost.
		r.Request(unix.RTM_DELLINK, 0)
		r.Link(there[key].index, 0, 0)
		r.own(w, "remove port "+key)
		if !wanted[key] {
			w.done("port %s removed", portOf(key).Interface)
		}
	}
	for i := range w.want.interfaces {
		r.planPort(w, i, there, names)
	}
}

func (r *nodeRepair) planPort(w *work, i int, there ports, names map[string]*link) {
	ifc := &w.want.interfaces[i]
	l := there[ifc.key]
	if l == nil || w.fresh {
		if x := names[ifc.port]; x != nil && l == nil {
			r.Request(unix.RTM_DELLINK, 0)
			r.Link(x.index, 0, 0)
			r.own(w, "remove a device in the place of port "+ifc.key)
		}
		makePort(&r.Batch, ifc, w.e.fd)
		r.own(w, fmt.Sprintf("make port %s (device %s)", ifc.key, ifc.port))
		w.made = append(w.made, i)
		return
	}
	if l.is(ifc) && l.alias == ifc.portAlias {
		return
	}
	if l.name != ifc.port {
		// Older kernels rename only what is down.
		r.Request(unix.RTM_SETLINK, 0)
		r.Link(l.index, 0, unix.IFF_UP)
		r.Request(unix.RTM_SETLINK, 0)
		r.Link(l.index, 0, 0)
		r.String(unix.IFLA_IFNAME, ifc.port)
		if l.up() {
			r.Request(unix.RTM_SETLINK, 0)
			r.Link(l.index, unix.IFF_UP, unix.IFF_UP)
		}
	}
	if l.mtu != ifc.mtu {
		r.Request(unix.RTM_SETLINK, 0)
		r.Link(l.index, 0, 0)
		r.Uint32(unix.IFLA_MTU, uint32(ifc.mtu))
	}
	if l.ipv6 {
		w.loud = append(w.loud, ifc)
	}
	markPort(&r.Batch, l.index, ifc)
	r.own(w, "put right port "+ifc.key)
	w.done("port %s put right", ifc.name)
}
