// Package netns is the driver of `control: netns`. Every element has a network namespace of its own, owned by a user
// namespace of its network. If it runs routing software, it also has an OCI container. An element without processes
// costs no process and no program start, and thousands of them are made in a few batches.
package netns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/images"
)

var (
	_ control.Driver   = (*Driver)(nil)
	_ control.Auditor  = (*Driver)(nil)
	_ control.Executor = (*Driver)(nil)
	_ control.Enterer  = (*Driver)(nil)
)

// Options change how a driver works. The zero value is right for production.
type Options struct {
	// Log gets what cannot be told in another way; slog.Default() if it is nil.
	Log *slog.Logger
	// Images are what elements are made from that name one. Without it there are no such elements.
	Images *images.Store
	// Rooms is the account of what is promised of the machine's disk.
	Rooms *linux.Rooms
}

// Driver makes elements as namespaces and containers. It lives in the node's network namespace, where it makes the
// ports. Its methods may be called from several goroutines.
//
// The order of its locks: mu first, then one of turning, those of the crew, of sockets and of holds. Workers of the
// crew do not hold mu while they work on an element's processes. What they may change meanwhile is in their shift,
// which the driver takes in when it has ended.
type Driver struct {
	dirs instance.NodeDirs
	log  *slog.Logger
	node *linux.Rtnetlink // in the node's namespace
	home int              // that namespace
	nsfs uint64           // the device number of the kernel's namespace files

	mounts mountWatch // tells whether the elements' mounts may have changed

	arriving sync.Map             // by element: there while a disk of its is taken that another node sends
	disks    sync.Mutex           // held while an empty disk is made or looked at; guards sound
	sound    map[model.Bytes]bool // empty images that were found whole in this life
	holds    holds
	rooms    *linux.Rooms

	crew    *crew
	hurried bool          // Apply and Remove wait for nobody
	others  chan struct{} // closed when no runc command of an earlier agent is at work; nil before prepare
	grace   int           // how long processes have to end by themselves, in milliseconds
	asked   time.Duration // how long routing software has to say its configuration
	woken   chan struct{} // shifts have ended that nobody waited for, or the next portion can begin

	turning sync.Mutex // guards left and the shifts' starts
	left    int        // free turns that were kept for elements that run and must be restarted

	mu        sync.Mutex // guards all below
	elements  map[model.ID]*element
	shifts    map[model.ID]*shift // at work
	stuck     map[model.ID]error  // why an element's processes could not be ended at the last try
	news      bool                // Apply has something to tell, or will soon
	prepared  bool
	working   *os.File // the lock that runc's commands hold; see awaitOthers
	lastPorts int
	auditAt   int
	looked    time.Time // when an audit last looked into an element
	census    census
	rolls     map[string]*roll // by network
	sockets   socketGuard
	images    *images.Store
}

// element is what the driver remembers of an element. It could find all of it out again.
type element struct {
	job   control.Job
	want  *want
	fd    int    // its network namespace
	inode uint64 // the same
	// verified tells that the element was seen to be as job says. An audit or an error clears it.
	verified bool
	rest     time.Time // no audit looks inside before
	devices  []control.Device
	process  process
	last     *outcome    // of the last shift, if it was no removal
	faulty   bool        // something other than its processes could not be put right
	told     model.Phase // what Apply returned last when nobody was working on the element
	toldErr  error
	shells   int       // how many commands run in its shell container
	roll     *roll     // the names that it was told last
	kept     bool      // its shell container stays, since something was detached in it
	clearing *clearing // of the devices that were made in it
	cookie   uint64    // the kernel's number of its namespace; known once something runs in it
	// unbounded tells that something runs in it whose sockets are not bounded.
	unbounded bool
}

// New returns the driver of a node. The calling thread must be in the node's network namespace, the process in the
// machine's mount namespace, and both run as root.
func New(dirs instance.NodeDirs, options Options) (*Driver, error) {
	d := &Driver{dirs: dirs, log: options.Log, elements: map[model.ID]*element{},
		rolls: map[string]*roll{}, shifts: map[model.ID]*shift{},
		stuck: map[model.ID]error{}, crew: newCrew(), grace: termGrace, asked: askedFor,
		woken: make(chan struct{}, 1), sound: map[model.Bytes]bool{}, images: options.Images, rooms: options.Rooms}
	if d.images != nil {
		d.images.Serve(nil, d.wake)
	}
	if d.log == nil {
		d.log = slog.Default()
	}
	raiseOpenFiles()
	var err error
	if d.home, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("node %s: open its network namespace: %w", dirs.Node, err)
	}
	var s unix.Stat_t
	if err := unix.Fstat(d.home, &s); err != nil {
		return nil, fmt.Errorf("node %s: look at its network namespace: %w", dirs.Node, err)
	}
	d.nsfs = s.Dev
	if d.node, err = linux.DialRtnetlink(); err != nil {
		unix.Close(d.home)
		return nil, fmt.Errorf("node %s: %w", dirs.Node, err)
	}
	if d.mounts, err = watchMounts(); err != nil {
		unix.Close(d.home)
		d.node.Close()
		return nil, fmt.Errorf("node %s: %w", dirs.Node, err)
	}
	return d, nil
}

// openFiles is how many files this process must be able to open: one for each element, and some more.
const openFiles = 1 << 16

// raiseOpenFiles raises this process's limit. Without it the driver could not hold thousands of elements; if it cannot
// be raised, that fails with an error of its own.
func raiseOpenFiles() {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur < openFiles {
		limit.Cur, limit.Max = openFiles, max(limit.Max, openFiles)
		unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
}

// Close releases what the driver holds in this process. The elements stay as they are.
func (d *Driver) Close() error {
	d.crew.all.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, s := range d.shifts {
		d.takeIn(id, s)
	}
	for id, e := range d.elements {
		d.forget(id, e)
	}
	d.census.close()
	d.closeSockets() //nolint:errcheck // it only lets go
	if d.working != nil {
		d.working.Close()
	}
	return errors.Join(d.node.Close(), unix.Close(d.home), unix.Close(d.mounts.info))
}

// forget drops what is remembered of an element.
func (d *Driver) forget(id model.ID, e *element) {
	unix.Close(e.fd)
	e.process.forget()
	delete(d.elements, id)
}

// namespaces returns the places where elements' namespaces are, or were, mounted.
func (d *Driver) namespaces() ([]string, error) {
	return filepath.Glob(d.dirs.Namespace(model.ID{Network: "*", Element: "*"}))
}

// List tells which elements exist on this node.
func (d *Driver) List(context.Context) ([]control.Found, error) {
	paths, err := d.namespaces()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	found := make([]control.Found, 0, len(paths))
	for _, path := range paths {
		id := model.ID{Network: filepath.Base(filepath.Dir(filepath.Dir(path))), Element: filepath.Base(path)}
		f := control.Found{ID: id, Phase: model.PhasePending}
		if e := d.elements[id]; e != nil {
			f.Phase = e.phase()
		} else if d.namespaceOf(path) != 0 {
			f.Phase = model.PhaseRunning
		}
		found = append(found, f)
	}
	return found, nil
}

// phase is the element's own phase, after an Apply.
func (e *element) phase() model.Phase {
	if !e.job.Element.Stopped && !e.verified {
		return model.PhasePending
	}
	return e.settled()
}

// settled is the phase of an element whose namespace and files are as wanted.
func (e *element) settled() model.Phase {
	p := settledPhase(&e.job.Element)
	if p == model.PhaseRunning && e.process.wanted && !e.process.ready {
		return model.PhaseStarting
	}
	return p
}

// settledPhase is the phase of an element that is as wanted.
func settledPhase(e *model.NodeElement) model.Phase {
	switch {
	case e.Stopped:
		return model.PhaseStopped
	case e.Suspended:
		return model.PhaseSuspended
	}
	return model.PhaseRunning
}
