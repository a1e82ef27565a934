package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// Remove removes the elements. An element that does not exist is no error. A driver in a hurry does not wait for
// their processes to end: it has to be called again when Watch signals, and List says what is left.
func (d *Driver) Remove(ctx context.Context, ids []model.ID, keepFiles bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	// Elements whose processes still run keep their namespaces as well, by which List finds them.
	ids, err := d.endProcesses(ctx, ids)
	if err != nil {
		errs = append(errs, err)
	}
	p := d.newPortion(ctx, ids)
	d.news = false // Apply is not asked for these elements any more
	for batch := p.batch(); len(batch) > 0; batch = p.batch() {
		if err := d.removeEnded(ctx, batch, keepFiles); err != nil {
			errs = append(errs, err)
		}
	}
	if p.over {
		d.wake()
	}
	if err := d.endSockets(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeEnded removes elements in which nothing runs any more.
func (d *Driver) removeEnded(ctx context.Context, ids []model.ID, keepFiles bool) error {
	var errs []error
	gone := make(map[model.ID]bool, len(ids))
	networks := map[string]bool{}
	for _, id := range ids {
		gone[id], networks[id.Network] = true, true
	}
	// The veth pairs go first, all at once. So the kernel waits for its readers (RCU) once for all of them, and not
	// again for each namespace.
	if err := d.removePorts(gone); err != nil {
		errs = append(errs, err)
	}
	for _, id := range ids {
		if e := d.elements[id]; e != nil {
			d.forgetSockets(id, e)
			d.forget(id, e)
		} else {
			d.sockets.swept = false // its account is not known by its name
		}
	}
	for _, id := range ids {
		// Without a disk an element never had a process that could have made any device.
		if _, err := os.Lstat(d.dirs.Disk(id)); err == nil {
			d.part(d.dirs.Namespace(id))
		}
	}
	// The namespaces, by which List finds elements, go last, so that an interrupted removal is begun again.
	for _, id := range ids {
		control.Progress(ctx)
		err := d.unmountDisk(id, unix.MNT_DETACH)
		if err == nil && !keepFiles {
			err = d.removeFiles(id)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	for network := range networks {
		control.Progress(ctx)
		if err := d.removeNamespaces(network, gone); err != nil {
			errs = append(errs, err)
		}
		if !d.hasElements(network) {
			delete(d.rolls, network)
		}
	}
	return errors.Join(errs...)
}

// endProcesses ends everything that runs in the elements, and returns the elements in which nothing runs any more. The
// caller holds the lock.
func (d *Driver) endProcesses(ctx context.Context, ids []model.ID) (ended []model.ID, err error) {
	if d.othersWork() { // and make a container, perhaps; Watch signals when it is over
		ids = slices.DeleteFunc(slices.Clone(ids), func(id model.ID) bool {
			_, err := os.Lstat(d.dirs.Disk(id)) // without a disk an element never had a process
			return err == nil
		})
	}
	entries, _ := os.ReadDir(d.dirs.Runc()) // without it no container was ever made
	there := each.SetOf(entries, func(entry os.DirEntry) string { return entry.Name() })
	var begun []model.ID
	for _, id := range ids {
		s := d.shifts[id]
		if s != nil && s.hasEnded() {
			d.takeIn(id, s)
			s = nil
		}
		containers := d.containersOf(id, there)
		switch {
		case s != nil:
			s.cut()
			d.leave(s)
		case len(containers) == 0:
			delete(d.stuck, id)
		case control.Glancing(ctx) && d.stuck[id] != nil: // it is time for that later
		default:
			d.handEnd(ctx, id, containers)
			begun = append(begun, id)
		}
	}
	d.await(begun)
	var errs []error
	for _, id := range ids {
		switch {
		case d.shifts[id] != nil:
		case d.stuck[id] != nil:
			errs = append(errs, d.stuck[id])
		default:
			ended = append(ended, id)
		}
	}
	if len(d.shifts) == 0 && !d.othersWork() { // otherwise somebody may just be making a container there
		d.removeCgroups()
		os.Remove(d.dirs.Runc()) //nolint:errcheck // when it is empty
	}
	return ended, errors.Join(errs...)
}

// handEnd begins the shift that ends what runs in an element which is being removed. The caller holds the lock.
func (d *Driver) handEnd(ctx context.Context, id model.ID, containers []string) {
	s := &shift{ends: true, apart: true}
	if e := d.elements[id]; e != nil {
		s.process = e.process.copy()
	}
	d.hand(ctx, id, s, func(ctx context.Context) error {
		for _, container := range containers {
			grace := 0
			if container == containerID(id) && d.serves(id) {
				grace = serviceGrace // it may have commands that are run before its end
			}
			if err := d.removeContainer(ctx, container, grace); err != nil {
				return fmt.Errorf("end its processes: %w", err)
			}
		}
		s.process.forget()
		return nil
	})
}

// containersOf returns the element's existing containers.
func (d *Driver) containersOf(id model.ID, there map[string]bool) (containers []string) {
	return each.That([]string{containerID(id), shellID(id), checkID(id)}, func(container string) bool {
		return there[container]
	})
}

// removePorts removes the elements' ports, and with them the other ends. It returns when the kernel has released them.
func (d *Driver) removePorts(gone map[model.ID]bool) error {
	there, _, err := d.findPorts()
	if err != nil {
		return err
	}
	group := rand.Uint32() | 1<<31 // no group that anybody else would choose
	var b linux.Batch
	count := 0
	for key, l := range there {
		if !gone[portOf(key).ID] {
			continue
		}
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(l.Index, 0, 0)
		b.Uint32(unix.IFLA_GROUP, group)
		count++
	}
	if count == 0 {
		return nil
	}
	b.Request(unix.RTM_DELLINK, 0)
	b.Link(0, 0, 0)
	b.Uint32(unix.IFLA_GROUP, group)
	for i, err := range d.node.Do(&b) {
		// The device vanished meanwhile, which is what was wanted.
		if err != nil && !errors.Is(err, unix.ENODEV) {
			if i == count {
				return fmt.Errorf("remove %d ports: %w", count, err)
			}
			return fmt.Errorf("remove a port: %w", err)
		}
	}
	return nil
}

// removeNamespaces removes the elements' namespaces, and the network's with its last element.
func (d *Driver) removeNamespaces(network string, gone map[model.ID]bool) error {
	dir := d.namespacesDir(network)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the namespaces of network %s: %w", network, err)
	}
	var stay, go_ []string
	for _, entry := range entries {
		if id := (model.ID{Network: network, Element: entry.Name()}); gone[id] {
			go_ = append(go_, d.dirs.Namespace(id))
		} else {
			stay = append(stay, entry.Name())
		}
	}
	if len(stay) > 0 {
		return errors.Join(each.Of(go_, unmount)...)
	}
	if err := errors.Join(unmount(dir), unmount(d.dirs.UserNamespace(network))); err != nil {
		return err
	}
	if err := linux.RemoveTree(d.networkDir(network)); err != nil {
		return fmt.Errorf("remove the run-time files of network %s: %w", network, err)
	}
	return nil
}
