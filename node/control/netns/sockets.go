package netns

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/control/sockets"
)

// ringsPart is the part of an element's memory that the rings of its packet sockets may take beside it.
const ringsPart = 2

// socketGuard bounds what the sockets of elements take that the kernel charges to nobody. It is there while the node
// has elements with processes.
type socketGuard struct {
	mu      sync.Mutex
	guard   *sockets.Guard
	lacking error // why this kernel cannot

	asked  uint64 // when the accounts were looked at last
	swept  bool   // accounts of namespaces that were gone before this driver's time
	watch  bool   // somebody's sockets have something
	counts map[model.ID]sockets.Account
	untold []*element // that run without bounds
}

func (d *Driver) socketsDir() string { return filepath.Join(d.dirs.Run, "sockets") }

// boundSockets has what an element's sockets take bounded, as it must be before anything runs in it. Its cookie is
// known.
func (d *Driver) boundSockets(cookie uint64, memory model.Bytes) error {
	d.sockets.mu.Lock()
	defer d.sockets.mu.Unlock()
	if d.sockets.guard == nil {
		return nil // this kernel cannot, which was told
	}
	return d.sockets.guard.Bound(cookie, uint64(memory)/ringsPart)
}

// boundElement does so for an element whose cookie may not be known.
func (d *Driver) boundElement(e *element, memory model.Bytes) error {
	if err := d.knowSockets(e); err != nil {
		return err
	}
	return d.boundSockets(e.cookie, memory)
}

// knowSockets learns the kernel's number of the element's namespace, and has the program there that bounds. The lock is
// held.
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
			// As with other features of the kernel that only bound: what is there works, and Trim tells.
			d.log.Warn("the rings of elements' packet sockets are not bounded", "error", err)
			d.sockets.lacking = err
			d.sockets.unbounded(e)
			return errors.Join(sockets.Destroy(d.socketsDir()))
		}
		if guard.Lacking != nil { // who takes much there is ended by looks (node/kernelmemory)
			d.log.Warn("what elements ask of netfilter's log, ipset, nfacct and the like is not refused",
				"error", guard.Lacking)
		}
		d.sockets.guard, d.sockets.watch = guard, true
	}
	if e.cookie == 0 {
		err := onThread(func() (err error) {
			if err := unix.Setns(e.fd, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter its network namespace: %w", err)
			}
			e.cookie, err = sockets.Cookie()
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unbounded notes that something of an element's is about to run without bounds, which is told once.
func (s *socketGuard) unbounded(e *element) {
	if !e.unbounded {
		e.unbounded, s.untold = true, append(s.untold, e)
	}
}

// trimSockets puts the accounts of sockets right by what they really have, and finds who wanted more than it may.
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
		err = onThread(func() error {
			if err := unix.Setns(e.fd, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter its network namespace: %w", err)
			}
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

// sweepSockets drops the accounts of namespaces that are no more. Who has an account is no matter of what this driver
// was told since it began: an element that it was not told of yet, or is not told of any more, goes on and stays
// bounded.
func (d *Driver) sweepSockets() error {
	known, err := d.sockets.guard.Known()
	if err != nil {
		return err
	}
	gone := map[uint64]bool{}
	for _, cookie := range known {
		gone[cookie] = true
	}
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

// cookieOf is the kernel's number of a network namespace that is mounted.
func cookieOf(path string) (cookie uint64, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a network namespace: %w", err)
	}
	defer unix.Close(fd)
	err = onThread(func() (err error) {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter %s: %w", path, err)
		}
		cookie, err = sockets.Cookie()
		return err
	})
	return cookie, err
}

// forgetSockets drops the account of an element that goes.
func (d *Driver) forgetSockets(id model.ID, e *element) {
	if d.sockets.guard != nil && e.cookie != 0 {
		d.sockets.guard.Forget(e.cookie)
	}
	delete(d.sockets.counts, id)
}

// endSockets takes the program away when the node's last element is gone, whether this driver was told of it or not.
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

// closeSockets lets go of the program, which goes on.
func (d *Driver) closeSockets() (err error) {
	d.sockets.mu.Lock()
	defer d.sockets.mu.Unlock()
	if d.sockets.guard != nil {
		err = d.sockets.guard.Close()
		d.sockets.guard = nil
	}
	return err
}
