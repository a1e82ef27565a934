package netns

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/control/sockets"
)

// ringsPart is the part of an element's memory that the rings of its packet sockets may take in addition to it.
const ringsPart = 2

// socketGuard bounds what the sockets of elements take and the kernel charges to nobody. It exists while the node has
// elements with processes.
type socketGuard struct {
	mu      sync.Mutex
	guard   *sockets.Guard
	lacking error // why this kernel cannot

	asked  uint64 // when the accounts were looked at last
	swept  bool   // accounts of namespaces that were gone before this driver began
	watch  bool   // somebody's sockets have something
	counts map[model.ID]sockets.Account
	untold []*element // that run without bounds
	// modules are names of what was refused, and told.
	modules map[string]bool
}

func (d *Driver) socketsDir() string { return filepath.Join(d.dirs.Run, "sockets") }

// boundSockets bounds what an element's sockets take. That must happen before anything runs in it. The cookie of its
// namespace is known.
func (d *Driver) boundSockets(cookie uint64, memory model.Bytes) error {
	d.sockets.mu.Lock()
	defer d.sockets.mu.Unlock()
	if d.sockets.guard == nil {
		return nil // this kernel cannot, which was told
	}
	return d.sockets.guard.Bound(cookie, uint64(memory)/ringsPart)
}

// boundElement does the same for an element whose cookie may not be known yet.
func (d *Driver) boundElement(e *element, memory model.Bytes) error {
	if err := d.knowSockets(e); err != nil {
		return err
	}
	return d.boundSockets(e.cookie, memory)
}

// knowSockets reads the cookie of the element's namespace, and loads the program that bounds. The caller holds the
// lock.
func (d *Driver) knowSockets(e *element) error {
	d.sockets.mu.Lock()
	defer d.sockets.mu.Unlock()
	if d.sockets.lacking != nil {
		d.sockets.unbounded(e)
		return nil
	}
	if d.sockets.guard == nil {
		guard, err := sockets.Open(d.socketsDir())
		if err != nil {
			// As with other features of the kernel that only bound: without them the element works all the same, and
			// Trim tells.
			d.log.Warn("the rings of elements' packet sockets are not bounded", "error", err)
			d.sockets.lacking = err
			d.sockets.unbounded(e)
			return errors.Join(sockets.Destroy(d.socketsDir()))
		}
		if guard.Lacking != nil { // if an element takes much there, looks of node/kernelmemory find and end it
			d.log.Warn("what elements ask of netfilter's log, ipset, nfacct and the like is not refused",
				"error", guard.Lacking)
		}
		if guard.LackingModules != nil {
			d.log.Warn("elements can have the kernel load any of its modules", "error", guard.LackingModules)
		}
		d.sockets.guard, d.sockets.watch = guard, true
	}
	if e.cookie == 0 {
		return linux.Inside(e.fd, func() (err error) {
			e.cookie, err = sockets.Cookie()
			return err
		})
	}
	return nil
}

// unbounded notes that something is about to run without bounds in an element, which is told once.
func (s *socketGuard) unbounded(e *element) {
	if !e.unbounded {
		e.unbounded, s.untold = true, append(s.untold, e)
	}
}

// trimSockets corrects the accounts of sockets by what these really have, and finds elements that wanted more than they
// may have.
func (d *Driver) trimSockets(ids []model.ID) (trimmed []control.Trimmed, err error) {
	s := &d.sockets
	s.mu.Lock()
	for _, id := range ids {
		if slices.Contains(s.untold, d.elements[id]) {
			trimmed = append(trimmed, control.Trimmed{ID: id, Table: control.Unbounded, Had: 1, Why: s.lacking})
		}
	}
	s.untold = nil
	s.mu.Unlock()
	if s.guard == nil {
		return trimmed, nil
	}
	if err := d.tellModules(); err != nil {
		return nil, err
	}
	asked, err := s.guard.Asked()
	if err != nil {
		return nil, err
	}
	if asked == s.asked && !s.watch {
		return nil, nil
	}
	if !s.swept {
		if err := d.sweepSockets(); err != nil {
			return nil, err
		}
		s.swept = true
	}
	s.asked, s.watch = asked, false
	if s.counts == nil {
		s.counts = map[model.ID]sockets.Account{}
	}
	for _, id := range ids {
		e := d.elements[id]
		if e.cookie == 0 {
			continue
		}
		a, err := s.guard.Account(e.cookie)
		if err != nil {
			return trimmed, fmt.Errorf("element %s: %w", id, err)
		}
		was := s.counts[id]
		s.counts[id] = a
		if n := a.RingsRefused - was.RingsRefused; n > 0 {
			trimmed = append(trimmed, control.Trimmed{ID: id, Table: control.Rings, Had: int(n),
				Limit: int(a.RingsLimit)})
		}
		if n := a.FiltersRefused - was.FiltersRefused; n > 0 {
			trimmed = append(trimmed, control.Trimmed{ID: id, Table: control.Filters, Had: int(n),
				Limit: sockets.Filters})
		}
		if a.Rings == 0 && a.Filters == 0 {
			continue
		}
		s.watch = true
		err = linux.Inside(e.fd, func() error {
			seen, err := sockets.Look()
			if err != nil {
				return err
			}
			return s.guard.Settle(e.cookie, a, seen)
		})
		if err != nil {
			return trimmed, fmt.Errorf("element %s: %w", id, err)
		}
	}
	return trimmed, nil
}

// tellModules tells, once for each, what modules the kernel did not load for elements.
func (d *Driver) tellModules() error {
	names, err := d.sockets.guard.RefusedModules()
	for _, name := range names {
		if d.sockets.modules[name] {
			continue
		}
		if d.sockets.modules == nil {
			d.sockets.modules = map[string]bool{}
		}
		d.sockets.modules[name] = true
		d.log.Warn("an element has asked for what is in a module of the kernel that elements may not have loaded; if "+
			"all of this node may use it, load it by modprobe", "module", name)
	}
	return err
}

// sweepSockets drops the accounts of namespaces that no longer exist. It does not matter which elements this driver
// knows: one that it does not know yet, or no longer, stays bounded as long as it runs.
func (d *Driver) sweepSockets() error {
	known, err := d.sockets.guard.Known()
	if err != nil {
		return err
	}
	gone := each.Set(known)
	seen := map[uint64]bool{} // inodes of namespaces
	for _, e := range d.elements {
		if e.cookie != 0 {
			delete(gone, e.cookie)
			seen[e.inode] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	paths, err := d.namespaces()
	if err != nil {
		return err
	}
	for _, path := range paths {
		if inode := d.namespaceOf(path); inode == 0 || seen[inode] {
			continue
		}
		cookie, err := cookieOf(path)
		if err != nil {
			return err
		}
		delete(gone, cookie)
	}
	for cookie := range gone {
		d.sockets.guard.Forget(cookie)
	}
	return nil
}

// cookieOf is the cookie of a mounted network namespace, the number by which eBPF programs know it.
func cookieOf(path string) (cookie uint64, err error) {
	err = linux.InsideOf(path, func() (err error) {
		cookie, err = sockets.Cookie()
		return err
	})
	return cookie, err
}

// forgetSockets drops the account of an element that is going.
func (d *Driver) forgetSockets(id model.ID, e *element) {
	if d.sockets.guard != nil && e.cookie != 0 {
		d.sockets.guard.Forget(e.cookie)
	}
	delete(d.sockets.counts, id)
}

// endSockets removes the program when the node's last element is gone, whether this driver knew that element or not.
func (d *Driver) endSockets() error {
	if len(d.elements) > 0 {
		return nil
	}
	if paths, err := d.namespaces(); err != nil ||
		slices.ContainsFunc(paths, func(path string) bool { return d.namespaceOf(path) != 0 }) {
		return err
	}
	err := d.closeSockets()
	return errors.Join(err, sockets.Destroy(d.socketsDir()))
}

// closeSockets releases the program, which keeps running.
func (d *Driver) closeSockets() (err error) {
	d.sockets.mu.Lock()
	defer d.sockets.mu.Unlock()
	if d.sockets.guard != nil {
		err = d.sockets.guard.Close()
		d.sockets.guard = nil
	}
	return err
}
