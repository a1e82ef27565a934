package kernelmemory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Routes are charged to who makes them, but not what hangs at them (an encapsulation), nor those that a packet makes (a
// router advertisement). Both are seen only by reading all routes, of which a router may have a million. So this is
// read less often where there are many.

const (
	rtaEncap = 22 // RTA_ENCAP
	nhaEncap = 8  // NHA_ENCAP

	// encapBytes is what an encapsulation takes beside its labels, addresses or segments (struct lwtunnel_state, struct
	// dst_cache with its part for each processor). With three segments, 600 bytes were measured in all (Linux 6.1, two
	// processors).
	encapBytes = 512
	// advertisedBytes is a route that a router advertisement made (Linux 6.18).
	advertisedBytes = 448
	// routeTakes is what it takes to read a route, of which there may be many.
	routeTakes = time.Microsecond
)

// encapsulated is how many bytes an encapsulation takes, by what is told of it.
func encapsulated(value []byte) int64 { return encapBytes + 2*int64(len(value)) }

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
	m := w.remembered(id)
	if now := time.Now(); now.Before(w.routesRest) && now.After(m.routes) {
		return nil
	}
	hangs, made, read, err := s.hanging(e.limit(Encapsulations))
	w.routesRead += read
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
		m.routes = time.Now().Add(follow)
		w.holding(id, func(until time.Time) {
			w.verdict(id, c.r.table, limit, func() (int, bool, error) { return c.r.empty(s, until) })
		})
	}
	return nil
}
