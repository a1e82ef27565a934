// Package feed writes what node/mirror tells into node/fib's tables. A snapshot is filled into tables that no reader
// knows. Once all of it is told, these replace the tables that readers know, by one store. Later changes are made in
// place. Where memory or a quota does not suffice for both tables, the old ones give way, and their packets are punted
// meanwhile. Where it still does not suffice, a next hop becomes Punt, or the whole table does: the guest forwards what
// the fast path cannot hold. Status says so, and Retry tries again.
package feed

import (
	"errors"
	"fmt"
	"sync"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// Config is what a feed writes to.
type Config struct {
	Slice *fib.Slice // next hops and the tables that are being filled
	// IPv4 and IPv6 are the tables that readers know, of the same slice. They may be published before. Or publish them
	// when Status first says Synced: then readers use until then what an earlier process left behind.
	IPv4, IPv6 *fib.Table
	// Port returns the number of the port behind an interface index of the namespace. Packets to other interfaces are
	// punted. Apply and PortsChanged call it.
	Port func(index int) (port uint32, ok bool)
	// Apply, PortsChanged and Retry call Changed, if it is not nil, with each new status. It must not call the feed.
	Changed func(Status)
}

// Status tells how a feed stands.
type Status struct {
	Synced bool // the tables are what the namespace's were at some moment not long ago
	// Punted tells, for each family, why the guest forwards all of its packets; "" if it does not.
	Punted [2]string
	// Full says what there was not enough of; some routes are punted for that reason. It is nil if there was enough.
	Full error
}

func (s Status) same(o Status) bool {
	return s.Synced == o.Synced && s.Punted == o.Punted && (s.Full == nil) == (o.Full == nil)
}

// Feed is one control plane's way into the fast path. Its methods may be called by any goroutine.
type Feed struct {
	config Config

	// mu guards what stands below it. It is held for a whole batch, and while Port and Changed are called: these must
	// not call the feed.
	mu      sync.Mutex
	ids     []fib.ID         // by mirror.ID
	groups  []bool           // likewise, whether it is one
	hops    []mirror.NextHop // likewise, without members
	targets [2]target
	filling bool
	gaveWay bool // the live tables are empty and punt, for the snapshot's sake
	full    error
	status  Status
	members []fib.Member
}

// target is a family's table.
type target struct {
	live    *fib.Table
	next    *fib.Table // while a snapshot is being told
	changes []fib.Change

	reason string // why the mirror wants all packets punted
	short  bool   // memory did not suffice
	broken bool   // changes were left out: only a new snapshot helps
	punts  bool   // the table that is written to
}

// New makes a feed. The tables stay as they are until a snapshot is whole.
func New(c Config) (*Feed, error) {
	if c.Slice == nil || c.IPv4 == nil || c.IPv6 == nil || c.Port == nil {
		return nil, errors.New("a feed needs a slice, a table of each family and port numbers")
	}
	f := &Feed{config: c}
	f.targets[fib.IPv4].live, f.targets[fib.IPv6].live = c.IPv4, c.IPv6
	return f, nil
}

// Apply makes a batch's changes. mirror.Stream's Run calls it. An error says that the batch does not fit what was told
// before, or that a table is closed.
func (f *Feed) Apply(b *mirror.Batch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.Reset {
		f.begin()
	}
	for i := range b.NextHops {
		if err := f.nextHop(&b.NextHops[i]); err != nil {
			return err
		}
	}
	for i := range b.Routes {
		r := &b.Routes[i]
		id, err := f.id(r.NextHop)
		if err != nil {
			return fmt.Errorf("route %s: %w", r.Prefix, err)
		}
		t := &f.targets[fib.IPv4]
		if !r.Prefix.Addr().Is4() {
			t = &f.targets[fib.IPv6]
		}
		t.changes = append(t.changes, fib.Change{Prefix: r.Prefix, NextHop: id})
	}
	for i := range f.targets {
		t := &f.targets[i]
		t.reason = b.Punt[i]
		if err := f.write(t); err != nil {
			return err
		}
	}
	if b.Synced && f.filling {
		if err := f.swap(); err != nil {
			return err
		}
	}
	for _, id := range b.Dropped {
		if held := f.ids[id]; held > fib.ProhibitID {
			if err := f.config.Slice.Drop(held); err != nil {
				return err
			}
		}
		f.ids[id] = 0
	}
	f.report(b.Synced)
	return nil
}

// begin prepares for a snapshot. Next hops that the live tables use stay with them until these are replaced.
func (f *Feed) begin() {
	f.dropAll()
	f.filling, f.gaveWay, f.full = true, false, nil
	for family := range f.targets {
		t := &f.targets[family]
		if t.next != nil {
			t.next.Close()
		}
		t.next = f.config.Slice.NewTable(fib.Family(family))
		t.short, t.broken, t.punts = false, false, false
	}
}

// dropAll gives back all next hops that the mirror has told. Tables that use them keep them.
func (f *Feed) dropAll() {
	for _, id := range f.ids {
		if id > fib.ProhibitID {
			f.config.Slice.Drop(id) //nolint:errcheck // it is ours
		}
	}
	f.ids, f.hops, f.groups = nil, nil, nil
}

// id is the fast path's number for the mirror's.
func (f *Feed) id(id mirror.ID) (fib.ID, error) {
	if id <= mirror.ID(fib.ProhibitID) {
		return fib.ID(id), nil
	}
	if int(id) >= len(f.ids) || f.ids[id] == 0 {
		return 0, fmt.Errorf("next hop %d was not told", id)
	}
	return f.ids[id], nil
}

// nextHop makes or changes one.
func (f *Feed) nextHop(h *mirror.NextHop) error {
	if h.ID <= mirror.ID(fib.ProhibitID) {
		return fmt.Errorf("next hop %d is the same in every table", h.ID)
	}
	for int(h.ID) >= len(f.ids) {
		f.ids, f.hops, f.groups = append(f.ids, 0), append(f.hops, mirror.NextHop{}), append(f.groups, false)
	}
	f.groups[h.ID] = len(h.Members) > 0
	f.hops[h.ID] = *h
	f.hops[h.ID].Members = nil
	held := f.ids[h.ID]
	if held == fib.PuntID {
		return nil // there was no room for it, and its users have another number
	}
	err := f.put(h, held)
	if errors.Is(err, fib.ErrFull) && held == 0 && f.filling && !f.gaveWay {
		if err = f.giveWay(); err == nil {
			err = f.put(h, held)
		}
	}
	if errors.Is(err, fib.ErrFull) && held == 0 {
		f.full = err
		f.ids[h.ID], err = fib.PuntID, nil
	}
	return err
}

// giveWay empties the live tables to make room for the snapshot. Their packets are punted until it is there. Otherwise
// a router with more than half of its quota would find too little room for the new tables beside the old ones.
func (f *Feed) giveWay() error {
	f.gaveWay = true
	for i := range f.targets {
		empty := f.config.Slice.NewTable(fib.Family(i))
		if err := empty.Punt(); err != nil {
			return err
		}
		if err := f.targets[i].live.Swap(empty); err != nil {
			empty.Close()
			return err
		}
	}
	return nil
}

// put writes a next hop, into the number that is held for it or into a new one.
func (f *Feed) put(h *mirror.NextHop, held fib.ID) error {
	var err error
	switch {
	case len(h.Members) > 0:
		f.members = f.members[:0]
		for _, m := range h.Members {
			id, err := f.id(m.NextHop)
			if err != nil {
				return fmt.Errorf("next hop %d: %w", h.ID, err)
			}
			f.members = append(f.members, fib.Member{NextHop: id, Weight: m.Weight})
		}
		if held != 0 {
			err = f.config.Slice.SetGroup(held, f.members)
			if errors.Is(err, fib.ErrFull) { // what it was is wrong now
				f.full = err
				err = f.config.Slice.SetGroup(held, []fib.Member{{NextHop: fib.PuntID, Weight: 1}})
			}
			if errors.Is(err, fib.ErrFull) { // not even that: its users can't be told apart from others
				for i := range f.targets {
					f.targets[i].short, f.targets[i].broken = true, true
				}
				err = nil
			}
		} else {
			f.ids[h.ID], err = f.config.Slice.AddGroup(f.members)
		}
	case held != 0:
		err = f.config.Slice.SetNextHop(held, f.convert(h))
	default:
		f.ids[h.ID], err = f.config.Slice.AddNextHop(f.convert(h))
	}
	return err
}

// convert returns a next hop without members in the fast path's form.
func (f *Feed) convert(h *mirror.NextHop) fib.NextHop {
	n := fib.NextHop{Kind: fib.Kind(h.Kind), MTU: uint16(min(h.MTU, 1<<16-1)), Destination: fib.MAC(h.MAC),
		Source: fib.MAC(h.Source)}
	if h.Interface != 0 {
		port, ok := f.config.Port(h.Interface)
		if !ok {
			return fib.NextHop{Kind: fib.KindPunt}
		}
		n.Port = port
	}
	return n
}

// write makes a family's changes in the table that is being filled, or, if none is, in the live one.
func (f *Feed) write(t *target) error {
	table := t.live
	if f.filling {
		table = t.next
	}
	changes := t.changes
	t.changes = t.changes[:0]
	for len(changes) > 0 && !t.broken {
		done, err := table.Apply(changes)
		changes = changes[done:]
		switch {
		case err == nil:
		case !errors.Is(err, fib.ErrFull):
			return err
		case f.filling && !f.gaveWay:
			if err := f.giveWay(); err != nil {
				return err
			}
		case !t.punts:
			f.full, t.short = err, true
			if err := f.punt(t, table); err != nil {
				return err
			}
		default:
			f.full, t.short, t.broken = err, true, true
		}
	}
	switch want := t.reason != "" || t.short; {
	case want && !t.punts:
		return f.punt(t, table)
	case !want && t.punts:
		return f.resume(t, table)
	}
	return nil
}

// punt makes a table punt, and notes that it does, so that write goes on with the routes that the table keeps.
func (f *Feed) punt(t *target, table *fib.Table) error {
	t.punts = true
	return table.Punt()
}

func (f *Feed) resume(t *target, table *fib.Table) error {
	err := table.Resume()
	if errors.Is(err, fib.ErrFull) {
		f.full, t.short = err, true
		return nil
	}
	t.punts = err != nil
	return err
}

// swap puts the snapshot in place.
func (f *Feed) swap() error {
	for i := range f.targets {
		t := &f.targets[i]
		if err := t.live.Swap(t.next); err != nil {
			return err
		}
		t.next = nil
	}
	f.filling = false
	return nil
}

// report tells the status if it is another than before.
func (f *Feed) report(synced bool) {
	s := Status{Synced: synced && !f.filling, Full: f.full}
	for i := range f.targets {
		switch t := &f.targets[i]; {
		case t.reason != "":
			s.Punted[i] = t.reason
		case t.short:
			s.Punted[i] = "its table does not fit"
		}
	}
	was := f.status
	f.status = s
	if f.config.Changed != nil && !s.same(was) {
		f.config.Changed(s)
	}
}

// Status tells how it stands.
func (f *Feed) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// NextHops counts those that the feed has in the slice, and how many of them are groups.
func (f *Feed) NextHops() (all, groups int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, held := range f.ids {
		if held > fib.ProhibitID {
			all++
			if f.groups[id] {
				groups++
			}
		}
	}
	return all, groups
}

// PortsChanged asks for the port numbers anew and writes them into the next hops.
func (f *Feed) PortsChanged() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.hops {
		h := &f.hops[id]
		if h.Interface == 0 || f.ids[id] <= fib.ProhibitID {
			continue
		}
		if err := f.config.Slice.SetNextHop(f.ids[id], f.convert(h)); err != nil {
			return err
		}
	}
	return nil
}

// Retry tries again, after Status said Full, to get what was missing. restart says that for this the mirror must tell
// everything anew (mirror.Mirror.Restart).
func (f *Feed) Retry() (restart bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.filling || f.full == nil {
		return false
	}
	for i := range f.targets {
		if t := &f.targets[i]; t.short && !t.broken {
			t.short = false
			if t.reason == "" {
				if err := f.resume(t, t.live); err != nil {
					return false // closed
				}
			}
		}
	}
	for i := range f.targets {
		if t := &f.targets[i]; t.broken {
			return true
		}
	}
	for id, held := range f.ids {
		if held == fib.PuntID && mirror.ID(id) > mirror.ID(fib.ProhibitID) {
			return true
		}
	}
	short := f.targets[0].short || f.targets[1].short
	if !short {
		f.full = nil
	}
	f.report(f.status.Synced)
	return false
}

// Close lets go of the next hops, and of a snapshot that is not whole. The tables are the caller's, who must close them
// too.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.targets {
		if t := &f.targets[i]; t.next != nil {
			t.next.Close()
			t.next = nil
		}
	}
	f.dropAll()
}
