package kernelmemory

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Routes are charged to who makes them, but not what hangs at them (an encapsulation), nor those that a packet makes (a
// router advertisement). Both are seen only by reading all routes, of which a router may have a million. So those of an
// element are read the less often, the more it has.

const (
	rtaEncap = 22 // RTA_ENCAP
	nhaEncap = 8  // NHA_ENCAP

	// advertisedBytes is a route that a router advertisement made (Linux 6.18).
	advertisedBytes = 448
)

// reading is what is remembered of how an element's routes were read.
type reading struct {
	many  int64         // how many there were
	took  time.Duration // of a processor's time
	ended time.Time
	// rest is how long they are not read again, and least how long even if the kernel's memory grows by hurry.
	rest, least time.Duration
	floor       int64     // what the kernel had of memory then, or less since
	always      time.Time // until then they are read at each look, since too much hung at them
}

// due tells whether an element's routes are to be read, while the kernel has so much memory.
func (r *reading) due(now time.Time, is int64) bool {
	rested := now.Sub(r.ended)
	return now.Before(r.always) || rested >= r.rest || is-r.floor > hurry && rested >= r.least
}

// restOfRoutes says for each element how long its routes are not read: twenty times what it takes to read those of all
// elements that have no more routes than it. So who has few routes does not wait for who has many, and elements that
// have about as many take a twentieth of a processor's time together; where the kernel's memory grows, half.
func (w *Watcher[ID]) restOfRoutes() {
	all := make([]*reading, 0, len(w.past))
	for _, m := range w.past {
		all = append(all, &m.routes)
	}
	slices.SortFunc(all, func(a, b *reading) int { return cmp.Compare(a.many, b.many) })
	var sum time.Duration
	for i := 0; i < len(all); {
		end := i
		for ; end < len(all) && all[end].many == all[i].many; end++ {
			sum += all[end].took
		}
		for ; i < end; i++ {
			all[i].rest, all[i].least = share*sum, sum
		}
	}
}

// measured is how much processor time something takes.
func measured(do func() error) (took time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() (used time.Duration) {
		var t unix.Timespec
		if failed := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); failed != nil {
			err = fmt.Errorf("read a thread's clock: %w", failed)
		}
		return time.Duration(t.Nano())
	}
	began := now()
	failed := do()
	took = now() - began
	return took, errors.Join(failed, err)
}

// encapsulated is how many bytes an encapsulation takes, by what is told of it.
func encapsulated(value []byte) int64 { return encapSize.bytes() + 2*int64(len(value)) }

// encapsulationOf is the same of a next hop, where it has one.
func encapsulationOf(hop []byte) (size int64) {
	end := max(unix.SizeofRtNexthop, min(len(hop), int(binary.NativeEndian.Uint16(hop))))
	for kind, v := range linux.Attrs(hop[unix.SizeofRtNexthop:end]) {
		if kind == rtaEncap {
			size += encapsulated(v)
		}
	}
	return size
}

// encapsulations and advertised are not among readers: both come by one reading, and not at each look.
var (
	encapsulations = reader{table: Encapsulations, passes: 1, read: readEncapsulations}
	advertised     = reader{table: Advertised, passes: 1, read: readAdvertised}
)

// dumpEncapsulated calls each for all routes, with the bytes of their encapsulations. IPv4 routes that have all but the
// destination in common share one: only the first of them has a size.
func (s *space) dumpEncapsulated(family uint8, each func(r *route, size int64) error) error {
	shared := map[uint64]bool{}
	return s.dumpRoutes(family, func(r *route) error {
		if r.object { // next-hop objects are counted by themselves
			r.encap = 0
		}
		size := r.encap
		if size > 0 && family == unix.AF_INET {
			if shared[r.shared] {
				size = 0
			}
			shared[r.shared] = true
		}
		return each(r, size)
	})
}

func readEncapsulations(s *space, _ int, each visit) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := s.dumpEncapsulated(family, func(r *route, size int64) error {
			if r.encap == 0 {
				return nil
			}
			return each(size, r.remove)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func readAdvertised(s *space, _ int, each visit) error {
	had, err := s.prefixes()
	if err != nil {
		return err
	}
	return s.dumpRoutes(unix.AF_INET6, func(r *route) error {
		if !r.advertised && (!r.onLink || had[r.prefix]) {
			return nil
		}
		return each(advertisedBytes, r.remove)
	})
}

// prefixes are those of the namespace's IPv6 addresses. The kernel makes a route for each of them.
func (s *space) prefixes() (map[prefix]bool, error) {
	had := map[prefix]bool{}
	var ask linux.Batch
	ask.Request(unix.RTM_GETADDR, 0)
	ask.Address(0, unix.AF_INET6, 0, 0, 0)
	err := s.dump(&ask, func(p []byte) error {
		if len(p) < unix.SizeofIfAddrmsg {
			return nil
		}
		device := binary.NativeEndian.Uint32(p[4:])
		for kind, v := range linux.Attrs(p[unix.SizeofIfAddrmsg:]) {
			if a, ok := netip.AddrFromSlice(v); ok && (kind == unix.IFA_ADDRESS || kind == unix.IFA_LOCAL) {
				for _, bits := range []int{int(p[1]), a.BitLen()} { // one with a peer has a route to each by itself
					if of, err := a.Prefix(bits); err == nil {
						had[prefix{device, of}] = true
					}
				}
			}
		}
		return nil
	})
	if err != nil && !missing(err) {
		return nil, fmt.Errorf("read its IPv6 addresses: %w", err)
	}
	return had, nil
}

// remove writes the request that removes the route.
func (r *route) remove(b *linux.Batch) {
	b.Request(unix.RTM_DELROUTE, 0)
	m := append([]byte(nil), r.message[:unix.SizeofRtMsg]...)
	clear(m[8:]) // flags, which tell of a state
	b.Raw(m)
	for kind, v := range linux.Attrs(r.message[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_DST, unix.RTA_SRC, unix.RTA_TABLE, unix.RTA_PRIORITY, unix.RTA_GATEWAY, unix.RTA_OIF:
			b.Attr(kind, v)
		}
	}
}

// hanging is how many bytes a namespace has of encapsulations, and of routes that router advertisements made. It reads
// no further than where one of both has more than most. An advertised route that lasts for ever looks like one of an
// address. So where there are many such, the addresses are read, and the routes again.
func (s *space) hanging(most int64) (encapsulations, made, read int64, err error) {
	onLink := int64(0)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := s.dumpEncapsulated(family, func(r *route, size int64) error {
			read++
			switch encapsulations += size; {
			case r.advertised:
				made += advertisedBytes
			case r.onLink:
				onLink += advertisedBytes
			}
			if encapsulations > most || made > most {
				return linux.ErrEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, linux.ErrEnough) {
			return 0, 0, read, fmt.Errorf("read its routes: %w", err)
		}
	}
	if made <= most && made+onLink > most {
		read *= 2
		more, err := advertised.exceeds(s, most)
		if err != nil {
			return 0, 0, read, err
		}
		if more {
			made += onLink
		}
	}
	return encapsulations, made, read, nil
}

// trimRoutes takes away the routes with encapsulations, or those that router advertisements made, where they take too
// much.
func (w *Watcher[ID]) trimRoutes(s *space, id ID, e *Element) error {
	m := &w.remembered(id).routes
	if !m.due(time.Now(), w.floor) {
		return nil
	}
	var hangs, made int64
	took, err := measured(func() (err error) {
		hangs, made, m.many, err = s.hanging(e.limit(Encapsulations))
		return err
	})
	m.took, m.ended, m.floor = took, time.Now(), w.floor
	m.rest, m.least = max(m.rest, share*took), max(m.least, took)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		r  *reader
		is int64
	}{{&encapsulations, hangs}, {&advertised, made}} {
		limit := e.limit(c.r.table)
		if c.is <= limit {
			continue
		}
		m.always = time.Now().Add(follow)
		w.holding(id, func(until time.Time) {
			w.verdict(id, c.r.table, limit, func() (int, bool, error) { return c.r.empty(s, until) })
		})
	}
	return nil
}
