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

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// Remove removes the elements; those that do not exist are no error.
func (d *Driver) Remove(ctx context.Context, ids []model.ID, keepFiles bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	stuck, err := d.removeProcesses(ctx, ids)
	if err != nil {
		errs = append(errs, err)
		// Its namespace, by which List finds it, stays as well.
		ids = slices.DeleteFunc(slices.Clone(ids), func(id model.ID) bool { return stuck[id] })
	}
	gone := make(map[model.ID]bool, len(ids))
	networks := map[string]bool{}
	for _, id := range ids {
		gone[id], networks[id.Network] = true, true
	}
	// The pairs go first, all at once: the kernel waits for its readers once for all of them, and not once again for
	// each namespace.
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
	// The namespaces, by which List finds elements, go last: a removal that is cut short is begun again.
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
	}
	if err := d.endSockets(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removePorts removes the elements' ports and with them their pairs, and returns when the kernel has let go of them.
func (d *Driver) removePorts(gone map[model.ID]bool) error {
	there, _, err := d.dumpPorts()
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
		b.Link(l.index, 0, 0)
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
		// A device that went away meanwhile is what was wanted.
		if err != nil && !errors.Is(err, unix.ENODEV) {
			if i == count {
				return fmt.Errorf("remove %d ports: %w", count, err)
			}
			return fmt.Errorf("remove a port: %w", err)
		}
	}
	return nil
}

// removeNamespaces takes away the elements' namespaces, and with the last one the network's.
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
		var errs []error
		for _, path := range go_ {
			errs = append(errs, unmount(path))
		}
		return errors.Join(errs...)
	}
	if err := errors.Join(unmount(dir), unmount(d.dirs.UserNamespace(network))); err != nil {
		return err
	}
	if err := os.RemoveAll(d.networkDir(network)); err != nil {
		return fmt.Errorf("remove the run-time files of network %s: %w", network, err)
	}
	return nil
}
