package netns

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
)

// The first stage of Apply: each element has its network namespace, which is mounted at a path and held open by this
// process.

// attach finds the namespace of an element: the one that is remembered, or else the one that is mounted. Without either
// it leaves w.e nil.
func (d *Driver) attach(w *work) error {
	path := d.dirs.Namespace(w.job.ID)
	inode := d.namespaceOf(path)
	if e := w.e; e != nil {
		if inode == e.inode {
			return nil
		}
		// The mount is gone, or is another's, but the namespace lives: this process holds it.
		if err := unmount(path); err != nil {
			return fmt.Errorf("element %s: take away what is in the place of its namespace: %w", w.job.ID, err)
		}
		if _, err := d.ensureNetwork(w.job.ID.Network, model.UIDBase(w.job.Index)); err != nil {
			return err
		}
		if err := bindNamespace(fmt.Sprintf("/proc/self/fd/%d", e.fd), path); err != nil {
			return fmt.Errorf("element %s: %w", w.job.ID, err)
		}
		w.did(change.NamespaceMounted)
		return nil
	}
	if inode == 0 {
		return nil
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("element %s: open its network namespace: %w", w.job.ID, err)
	}
	w.e = &element{fd: fd, inode: inode}
	d.elements[w.job.ID] = w.e
	w.e.kept = d.isKept(w.job.ID)
	if err := d.find(w.job.ID, &w.e.process); err != nil || !w.e.process.running() && !w.e.kept {
		return err
	}
	return d.boundElement(w.e, w.job.Element.Limits().Memory) // as another agent's life, or version, left it
}

// makeMissing makes namespaces for those elements of a portion that have none, network by network, and passes them on.
func (d *Driver) makeMissing(ctx context.Context, missing []*work, ready chan<- *work) {
	networks := map[string][]*work{}
	ids := make([]model.ID, len(missing))
	for i, w := range missing {
		ids[i], w.later = w.job.ID, true
		networks[w.job.ID.Network] = append(networks[w.job.ID.Network], w)
	}
	p := d.newPortion(ctx, ids)
	for _, network := range p.networks() {
		if p.ends(network) {
			break
		}
		works := networks[network]
		if err := d.makeNetwork(ctx, p, network, works, ready); err != nil {
			for _, w := range works {
				if w.e == nil {
					w.later = false
					w.fail(fmt.Errorf("element %s: make its network namespace: %w", w.job.ID, err))
				}
			}
		}
	}
	if p.over {
		d.wake()
	}
	for _, w := range missing {
		if w.later {
			w.result.Phase, w.result.Busy = model.PhasePending, true
		}
	}
}

// makeNetwork makes the missing namespaces of one network, as far as its part of this portion goes; the others come
// with later ones. Each element goes on as soon as its namespace is there.
func (d *Driver) makeNetwork(ctx context.Context, p *portion, network string, works []*work, ready chan<- *work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	base := model.UIDBase(works[0].job.Index)
	there, err := d.ensureNetwork(network, base)
	if err != nil {
		return err
	}
	user := ""
	if there {
		user = d.dirs.UserNamespace(network)
	}
	kinds := each.Of(works, func(w *work) model.Kind { return w.want.kind })
	keep := func(path string) error { return d.keepUserNamespace(network, base, path) }
	more := func(n int) bool {
		works[n].later = !p.takes(network)
		return !works[n].later
	}
	return makeNamespaces(user, base, kinds, keep, more, func(i, fd int) {
		control.Progress(ctx)
		w := works[i]
		e, err := d.keepNamespace(w.job.ID, fd)
		if err != nil {
			unix.Close(fd)
			w.fail(fmt.Errorf("element %s: %w", w.job.ID, err))
			return
		}
		w.e, w.fresh = e, true
		ready <- w
	})
}

func (d *Driver) keepNamespace(id model.ID, fd int) (*element, error) {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return nil, fmt.Errorf("look at its network namespace: %w", err)
	}
	if err := bindNamespace(fmt.Sprintf("/proc/self/fd/%d", fd), d.dirs.Namespace(id)); err != nil {
		return nil, err
	}
	return &element{fd: fd, inode: s.Ino}, nil
}
