package mirror

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Options of a mirror.
type Options struct {
	Limits        Limits // the zero value means DefaultLimits
	ReceiveBuffer int    // bytes of messages, with what the kernel needs to keep them, that may wait; 0 means 32 MiB
	// NoLooks is for tests. The mirror concludes what happened in changes of which the kernel does not tell, and looks
	// at the kernel's tables soon after. With NoLooks it relies on the conclusions alone.
	NoLooks bool
}

const (
	defaultReceiveBuffer = 32 << 20 // bytes; see Options.ReceiveBuffer
	skipStatistics       = 1 << 3   // RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h
)

// Mirror follows one network namespace by route netlink.
type Mirror struct {
	path    string // where the namespace is mounted; empty if only its descriptor was known
	monitor *linux.Monitor
	filters *filters
	wake    chan struct{} // has Run look at the tables although no message came

	// mu guards what stands below it. Run does not hold it while it waits for messages, or while it calls consume:
	// consume may take locks of its own, and SetNeighbours and Usage must not wait for it.
	mu      sync.Mutex
	view    *View
	look    bool // was asked for
	noLooks bool
	resyncs int
	lost    int
}

var _ Stream = (*Mirror)(nil)

// groups are the groups of notifications that a mirror listens to.
var groups = []int{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	unix.RTNLGRP_NEXTHOP,
}

// Open makes a mirror of the network namespace that the file descriptor stands for; the descriptor may be closed
// afterwards. Nothing that happens from here on is missed; Run tells it.
func Open(namespace int, o Options) (*Mirror, error) {
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits
	}
	o.ReceiveBuffer = cmp.Or(o.ReceiveBuffer, defaultReceiveBuffer)
	m := &Mirror{view: NewView(o.Limits), noLooks: o.NoLooks, wake: make(chan struct{}, 1)}
	err := linux.Inside(namespace, func() (err error) {
		if m.monitor, err = linux.DialMonitor(o.ReceiveBuffer, groups...); err != nil {
			return err
		}
		if m.filters, err = watchFilters(); err != nil {
			m.monitor.Close() //nolint:errcheck // nothing was read from it
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("mirror a network namespace: %w", err)
	}
	return m, nil
}

// Close lets go of the namespace. Run must have ended.
func (m *Mirror) Close() error { return errors.Join(m.monitor.Close(), m.filters.close()) }

// SetNeighbours says which neighbours are known beforehand, and replaces those of the call before. What the kernel
// knows of a neighbour comes before this.
func (m *Mirror) SetNeighbours(list []Neighbour) {
	m.mu.Lock()
	m.view.SetNeighbours(list)
	m.mu.Unlock()
	m.poke()
}

// Restart tells everything anew, beginning with a Reset.
func (m *Mirror) Restart() {
	m.mu.Lock()
	m.view.Restart()
	m.mu.Unlock()
	m.poke()
}

// filter takes in for which families a packet filter must see what is forwarded, and why.
func (m *Mirror) filter(why [2]string, err error) error {
	if err != nil {
		return err
	}
	m.mu.Lock()
	for f, w := range why {
		m.view.SetFiltered(Family(f), w)
	}
	m.mu.Unlock()
	m.poke()
	return nil
}

// Resync compares with the kernel's tables anew, in case something is wrong.
func (m *Mirror) Resync() {
	m.mu.Lock()
	m.look = true
	m.mu.Unlock()
	m.poke()
}

// Usage tells what is kept.
func (m *Mirror) Usage() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.view.Usage()
	u.Resyncs, u.Overruns = m.resyncs, m.lost
	return u
}

// poke wakes Run, which looks at what has changed. It does not wait: one wake-up stands for all.
func (m *Mirror) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// chunk is some datagrams.
type chunk struct {
	buf  []byte
	ends []int
	linux.Received
}

const (
	chunkBytes  = 256 << 10 // what one chunk holds
	chunksAhead = 16        // chunks that are read while one is worked on
)

// chunks is shared by all mirrors: a mirror that waits for messages holds none. So a thousand idle mirrors take little
// memory.
var chunks = sync.Pool{New: func() any { return &chunk{buf: make([]byte, chunkBytes)} }}

// A look reads all of the kernel's tables. These times lie between an event that makes a look worth while and the look
// itself, and so bound what looks cost.
const (
	lookAfter  = 20 * time.Millisecond
	lookShare  = 10 // after a look, this many times its duration pass before the next
	againAfter = 30 * time.Second
	againMost  = 10 * time.Minute
	attempts   = 3 // of a dump

	// While messages follow one another, the reader lets them gather for this long. Waking it for each message would
	// slow down the routing software that causes them.
	gather = 300 * time.Microsecond

	refusedAfter = 100 * time.Millisecond
	stalledAfter = 2 * time.Second
)

// Run is Source's.
func (m *Mirror) Run(ctx context.Context, consume func(*Batch) error) error {
	m.monitor.Resume()
	m.filters.resume()
	if err := m.filter(m.filters.look()); err != nil {
		return err
	}
	r := &run{Mirror: m, consume: consume, again: againAfter}
	incoming := make(chan *chunk, chunksAhead)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	var readErr error
	reader.Go(func() {
		defer close(incoming)
		readErr = m.read(incoming, stop)
	})
	filterErr := make(chan error, 1)
	reader.Go(func() { filterErr <- m.filters.follow(m.filter) })
	defer reader.Wait()
	defer m.monitor.Interrupt()
	defer m.filters.interrupt()
	defer close(stop)

	m.mu.Lock()
	m.view.SetSynced(false)
	m.view.Restart()
	err := r.start()
	m.mu.Unlock()
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case c, more := <-incoming:
			if !more {
				return readErr
			}
			err = r.chunk(c)
			chunks.Put(c)
		case err = <-filterErr: // nil when it was interrupted, which nobody does before this ends
		case <-m.wake:
		case <-r.timer():
			err = r.woken()
		}
		if err == nil {
			err = r.settle()
		}
		if err != nil {
			return err
		}
	}
}

// read reads what comes until told to stop.
func (m *Mirror) read(to chan<- *chunk, stop <-chan struct{}) error {
	var last time.Time
	for {
		if time.Since(last) < gather {
			time.Sleep(gather)
		}
		if err := m.monitor.Wait(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return err
		}
		last = time.Now()
		c := chunks.Get().(*chunk)
		var err error
		if c.Received, c.ends, err = m.monitor.Read(c.buf, c.ends[:0]); err != nil {
			return err
		}
		select {
		case to <- c:
		case <-stop:
			return nil
		}
	}
}

// run is a Run.
type run struct {
	*Mirror
	consume func(*Batch) error
	batch   Batch

	looking  bool // dumps are under way
	step     int  // which of Dumps
	attempt  int
	seq      uint32
	began    time.Time
	took     time.Duration // the last look
	overrun  bool          // messages were lost, and all that waited has not been read yet
	lostAny  bool          // messages were lost, and no look has begun since that ended well
	doubtful bool          // a dump of this look ended in doubt
	stallAt  time.Time     // when a dump that does not go on is given up
	wakeAt   time.Time
	again    time.Duration // wait before a view that was too large is tried again
}

// timer fires when there may be something to do.
func (r *run) timer() <-chan time.Time {
	at := r.wakeAt
	if r.looking && (at.IsZero() || r.stallAt.Before(at)) {
		at = r.stallAt
	}
	if at.IsZero() {
		return nil
	}
	return time.After(time.Until(at))
}

// woken does what is due. If the receive buffer is full, the kernel's answer to a request may be lost, also the one
// that refuses a dump: then stallAt gives the dump up.
func (r *run) woken() error {
	now := time.Now()
	if r.looking && !now.Before(r.stallAt) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.dumped(true)
	}
	if r.wakeAt.IsZero() || now.Before(r.wakeAt) {
		return nil
	}
	r.wakeAt = time.Time{}
	return r.lookAgain()
}

func (r *run) wakeIn(d time.Duration) {
	if at := time.Now().Add(d); r.wakeAt.IsZero() || at.Before(r.wakeAt) {
		r.wakeAt = at
	}
}

// start begins a look at everything.
func (r *run) start() error {
	r.looking, r.step, r.attempt, r.began, r.doubtful = true, 0, 0, time.Now(), false
	r.look = false
	r.view.WantsLook() // what was wanted is done now
	return r.ask()
}

// ask sends the request for the dump that is next.
func (r *run) ask() error {
	d := Dumps[r.step]
	r.view.Begin(d, r.attempt)
	var b linux.Batch
	d.request(&b)
	var err error
	r.seq, err = r.monitor.Dump(&b)
	r.stallAt = time.Now().Add(stalledAfter)
	return err
}

// request writes the dump's request, in the form that the kernel's strict checking wants (NETLINK_GET_STRICT_CHK).
func (d Dump) request(b *linux.Batch) {
	b.Request(d.Kind, 0)
	sizes := map[uint16]int{unix.RTM_GETLINK: unix.SizeofIfInfomsg, unix.RTM_GETNETCONF: 4,
		unix.RTM_GETADDR: unix.SizeofIfAddrmsg,
		unix.RTM_GETRULE: 12, unix.RTM_GETNEIGH: sizeofNdmsg, unix.RTM_GETNEXTHOP: sizeofNhmsg,
		unix.RTM_GETROUTE: unix.SizeofRtMsg}
	fixed := make([]byte, sizes[d.Kind])
	fixed[0] = d.Family
	b.Raw(fixed)
	switch d.Kind {
	case unix.RTM_GETLINK:
		b.Uint32(unix.IFLA_EXT_MASK, skipStatistics)
	case unix.RTM_GETROUTE:
		b.Uint32(unix.RTA_TABLE, d.Table)
	}
}

// chunk takes in what was read.
func (r *run) chunk(c *chunk) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Overrun {
		r.lost++
		r.overrun, r.lostAny = true, true
		r.view.SetSynced(false)
	}
	start := 0
	for _, end := range c.ends {
		data := c.buf[start:end]
		start = end
		if len(data) < unix.SizeofNlMsghdr {
			continue
		}
		if !r.monitor.Own(data) {
			r.view.Notify(data)
			continue
		}
		if !r.looking || !r.monitor.Answers(data, r.seq) {
			continue // of a dump that was given up
		}
		r.stallAt = time.Now().Add(stalledAfter)
		interrupted, done, refused := answer(data)
		r.view.Dumped(data)
		if interrupted {
			r.view.Doubt()
		}
		if done {
			if err := r.dumped(refused); err != nil {
				return err
			}
		}
	}
	if c.Recovered {
		r.overrun = false
	}
	return nil
}

// answer looks for the end of a dump.
func answer(data []byte) (interrupted, done, refused bool) {
	for len(data) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(data))
		if n < unix.SizeofNlMsghdr || n > len(data) {
			break
		}
		kind, flags := binary.NativeEndian.Uint16(data[4:]), binary.NativeEndian.Uint16(data[6:])
		interrupted = interrupted || flags&unix.NLM_F_DUMP_INTR != 0
		if kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR {
			done = true
			if n >= unix.SizeofNlMsghdr+4 {
				switch unix.Errno(-int32(binary.NativeEndian.Uint32(data[unix.SizeofNlMsghdr:]))) {
				// no such table, or nothing of this kind in this kernel
				case 0, unix.ENOENT, unix.EOPNOTSUPP, unix.EAFNOSUPPORT:
				default:
					refused = true
				}
			}
		}
		data = data[min((n+3)&^3, len(data)):]
	}
	return interrupted, done, refused
}

// dumped goes on after the end of a dump.
func (r *run) dumped(refused bool) error {
	if refused { // for want of memory, or because a Run before this one had begun another
		r.view.Cancel()
		r.looking = false
		r.wakeIn(refusedAfter)
		return nil
	}
	last := r.attempt == attempts-1
	clean := r.view.End(last)
	switch {
	case r.view.Overflow() != "":
		r.looking = false
		r.view.SetSynced(true) // nothing is forwarded here, and that is all there is to tell
		return nil
	case !clean && !last:
		r.attempt++
		return r.ask()
	case !clean:
		r.doubtful = true
	}
	r.attempt = 0
	if r.step++; r.step < len(Dumps) {
		return r.ask()
	}
	r.looking = false
	r.took = time.Since(r.began)
	r.resyncs++
	if r.doubtful {
		r.wakeIn(max(time.Second, lookShare*r.took))
	}
	if !r.lostAny {
		r.view.SetSynced(true)
	}
	return nil
}

// lookAgain is called when the time has come.
func (r *run) lookAgain() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looking || r.overrun {
		r.wakeIn(lookAfter)
		return nil
	}
	if r.view.Overflow() != "" {
		r.view.Again()
		r.view.SetSynced(false)
	}
	return r.start()
}

// settle tells the consumer what changed, and arranges what comes next.
func (r *run) settle() error {
	for {
		r.mu.Lock()
		more := r.view.Next(&r.batch)
		r.mu.Unlock()
		if !more {
			break
		}
		if err := r.consume(&r.batch); err != nil {
			return fmt.Errorf("take in what a network namespace says: %w", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.view.Overflow() != "":
		if r.wakeAt.IsZero() {
			r.wakeIn(r.again)
			r.again = min(2*r.again, againMost)
		}
	case r.looking:
	case r.lostAny && !r.overrun:
		r.lostAny = false
		return r.start()
	case r.look:
		return r.start()
	case r.wakeAt.IsZero() && r.view.WantsLook() && !r.noLooks:
		r.wakeIn(max(lookAfter, lookShare*r.took))
	}
	return nil
}
