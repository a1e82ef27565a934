package kernelmemory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// route is one of a dump.
type route struct {
	message []byte // a struct rtmsg and attributes
	family  uint8
	object  bool   // it has a next-hop object
	shared  uint64 // stands for everything that the IPv4 routes with one next hop have in common
	place   string // destination, table and so on: if these are the same, the kernel takes two routes for one
	hops    int64
	kernel  bool
	encap   int64 // bytes of its encapsulations
	// advertised: a router advertisement made it. onLink: it is the kernel's own, of a prefix; an advertisement made it
	// unless an address of the same device has that prefix.
	advertised, onLink bool
	prefix             prefix
}

// prefix is one of IPv6 at a device.
type prefix struct {
	device uint32
	netip.Prefix
}

// dumpRoutes reads the routes of a family, without those that the kernel has only remembered (cloned).
func (s *space) dumpRoutes(family uint8, each func(*route) error) error {
	var b linux.Batch
	b.Request(unix.RTM_GETROUTE, 0)
	m := make([]byte, unix.SizeofRtMsg)
	m[0] = family
	b.Raw(m)
	var h maphash.Hash
	h.SetSeed(hashed)
	err := s.dump(&b, func(p []byte) error {
		if len(p) < unix.SizeofRtMsg || binary.NativeEndian.Uint32(p[8:])&unix.RTM_F_CLONED != 0 {
			return nil
		}
		r := route{message: p, family: family, hops: 1, kernel: p[5] == unix.RTPROT_KERNEL}
		h.Reset()
		h.Write(p[4:8]) // table, protocol, scope, type
		place, expires := []byte{p[1], p[3], p[4]}, false
		to := netip.IPv6Unspecified()
		for kind, v := range linux.Attrs(p[unix.SizeofRtMsg:]) {
			switch kind {
			case rtaNHID:
				r.object = true
			case unix.RTA_MULTIPATH:
				r.hops = 0
				for hop := range nextHops(v) {
					r.hops++
					r.encap += encapsulationOf(hop)
				}
			case rtaEncap:
				r.encap += encapsulated(v)
			case unix.RTA_CACHEINFO:
				expires = len(v) >= 12 && binary.NativeEndian.Uint32(v[8:]) != 0
			case unix.RTA_DST:
				to, _ = netip.AddrFromSlice(v)
			case unix.RTA_OIF:
				r.prefix.device = binary.NativeEndian.Uint32(v)
			}
			switch kind {
			case unix.RTA_DST, unix.RTA_TABLE, unix.RTA_PRIORITY, unix.RTA_SRC:
				place = append(append(place, byte(kind)), v...)
			}
			if kind != unix.RTA_DST && kind != unix.RTA_MULTIPATH {
				h.Write([]byte{byte(kind)})
				h.Write(v)
			}
			if kind == unix.RTA_MULTIPATH {
				h.Write(withoutStates(v))
			}
		}
		r.shared, r.place = h.Sum64(), string(place)
		if r.prefix.Prefix = netip.PrefixFrom(to, int(p[1])); family == unix.AF_INET6 {
			r.advertised = p[5] == unix.RTPROT_RA || r.kernel && expires
			r.onLink = r.kernel && !expires && p[7] == unix.RTN_UNICAST && !to.IsLinkLocalUnicast()
		}
		return each(&r)
	})
	if err != nil && missing(err) {
		return nil
	}
	return err
}

// withoutStates is a value of RTA_MULTIPATH without the states of its next hops. The kernel reports these, but takes
// them from nobody.
func withoutStates(v []byte) []byte {
	v = bytes.Clone(v)
	for hop := range nextHops(v) {
		hop[2] &= onlink
	}
	return v
}

// nextHops are those of a value of RTA_MULTIPATH. Each begins with a struct rtnexthop, at a multiple of four bytes
// (RTNH_ALIGN of linux/rtnetlink.h).
func nextHops(v []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(v) >= unix.SizeofRtNexthop && yield(v) {
			length := int(binary.NativeEndian.Uint16(v))
			v = v[min(len(v), max(unix.SizeofRtNexthop, (length+3)&^3)):]
		}
	}
}

// dumpObjects reads the next-hop objects that routes may use.
func (s *space) dumpObjects(each func(message []byte) error) error {
	var b linux.Batch
	b.Request(rtmGetNextHop, 0)
	b.Raw(make([]byte, nhMsg))
	err := s.dump(&b, func(p []byte) error {
		if len(p) < nhMsg {
			return nil
		}
		for kind := range linux.Attrs(p[nhMsg:]) {
			if kind == nhaGroup || kind == nhaBlackhole || kind == nhaFDB {
				return nil
			}
		}
		return each(p)
	})
	if err != nil && missing(err) {
		return nil
	}
	return err
}

const rtaNHID = 30

// write writes a route as it was read, or one that differs from it only in something that no packet notices.
func (r *route) write(b *linux.Batch, kind, flags uint16, changed bool) {
	b.Request(kind, flags)
	m := bytes.Clone(r.message[:unix.SizeofRtMsg])
	binary.NativeEndian.PutUint32(m[8:], binary.NativeEndian.Uint32(m[8:])&onlink)
	b.Raw(m)
	metrics := []byte(nil)
	for kind, v := range linux.Attrs(r.message[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_CACHEINFO:
		case unix.RTA_METRICS:
			metrics = v
		case unix.RTA_MULTIPATH:
			b.Attr(kind, withoutStates(v))
		default:
			b.Attr(kind, v)
		}
	}
	if metrics == nil && !changed {
		return
	}
	b.Begin(unix.RTA_METRICS)
	reordering := uint32(3) // what TCP begins with
	for kind, v := range linux.Attrs(metrics) {
		if kind == unix.RTAX_REORDERING && len(v) >= 4 && changed {
			reordering = binary.NativeEndian.Uint32(v)
			continue
		}
		b.Attr(kind, v)
	}
	if changed {
		b.Uint32(unix.RTAX_REORDERING, reordering+1)
	}
	b.End()
}

// renew makes next hops anew until its time is over, beginning with those that few routes share. left tells that some
// are left.
func (s *space) renew(groups map[uint64]*hopGroup, until time.Time) (renewed int, left bool, err error) {
	some := make([]*hopGroup, 0, len(groups))
	for _, g := range groups {
		some = append(some, g)
	}
	slices.SortFunc(some, func(a, b *hopGroup) int { return a.routes - b.routes })
	chosen, sum := map[uint64]bool{}, 0
	for _, g := range some {
		if sum += g.routes; sum > mostRenewed && len(chosen) > 0 {
			left = true
			break
		}
		chosen[g.key] = true
	}
	renewed, err = s.renewRoutes(chosen, until)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return renewed, true, nil
	}
	if err != nil {
		return renewed, true, err
	}
	var b linux.Batch
	err = s.dumpObjects(func(p []byte) error {
		b.Request(rtmNewNextHop, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
		m := bytes.Clone(p[:nhMsg])
		m[1], m[4] = 0, m[4]&onlink // scope; flags
		clear(m[5:])
		b.Raw(m)
		for kind, v := range linux.Attrs(p[nhMsg:]) {
			b.Attr(kind, v)
		}
		return nil
	})
	if err != nil {
		return renewed, true, err
	}
	return renewed + s.done(&b), left, nil
}

// done sends a batch, and returns how many of its requests succeeded. A request fails if its object has gone or changed
// meanwhile.
func (s *space) done(b *linux.Batch) int {
	done := b.Len()
	for _, err := range s.c.Do(b) {
		if err != nil {
			done--
		}
	}
	b.Reset()
	return done
}

// renewRoutes makes the next hops of routes anew: of the chosen IPv4 routes and of all IPv6 ones. IPv4 routes that are
// the same in everything share their next hops. So all of them are first replaced by slightly different ones, and then
// replaced back. Each replacement is a single step: no packet is without a route.
func (s *space) renewRoutes(chosen map[uint64]bool, until time.Time) (renewed int, err error) {
	var there, back linux.Batch
	seen := map[string]bool{}
	err = s.dumpRoutes(unix.AF_INET, func(r *route) error {
		switch {
		case r.object || !chosen[r.shared]:
		// Another route has the same destination and priority, and a replacement would hit the first of them.
		case seen[r.place]:
			r.write(&there, unix.RTM_DELROUTE, 0, false)
			r.write(&back, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, false)
		default:
			r.write(&there, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, true)
			r.write(&back, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, false)
		}
		seen[r.place] = true
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read its routes: %w", err)
	}
	s.done(&there)
	renewed = s.done(&back) // even if the time is over: a route must not stay changed
	if time.Now().After(until) {
		return renewed, os.ErrDeadlineExceeded
	}
	places := map[string]int{}
	var routes []route
	err = s.dumpRoutes(unix.AF_INET6, func(r *route) error {
		if !r.object && !r.kernel && r.message[5] != unix.RTPROT_RA {
			r.message = bytes.Clone(r.message)
			routes = append(routes, *r)
		}
		places[r.place]++
		if len(routes) >= mostRenewed {
			return linux.ErrEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, linux.ErrEnough) {
		return renewed, fmt.Errorf("read its IPv6 routes: %w", err)
	}
	for i := range routes {
		if r := &routes[i]; places[r.place] > 1 {
			r.write(&there, unix.RTM_DELROUTE, 0, false)
			r.write(&there, unix.RTM_NEWROUTE, unix.NLM_F_CREATE, false)
		} else {
			r.write(&there, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, false)
		}
	}
	renewed += s.done(&there)
	if err := s.dropListed(); err != nil {
		return renewed, err
	}
	addresses, left, err := s.renewAddresses()
	if left && err == nil {
		err = os.ErrDeadlineExceeded
	}
	return renewed + addresses, err
}

// dropListed removes the IPv6 exceptions that the kernel lists and that belong to its own routes.
func (s *space) dropListed() error {
	var ask, b linux.Batch
	ask.Request(unix.RTM_GETROUTE, 0)
	m := make([]byte, unix.SizeofRtMsg)
	m[0] = unix.AF_INET6
	binary.NativeEndian.PutUint32(m[8:], unix.RTM_F_CLONED)
	ask.Raw(m)
	err := s.dump(&ask, func(p []byte) error {
		if len(p) < unix.SizeofRtMsg || binary.NativeEndian.Uint32(p[8:])&unix.RTM_F_CLONED == 0 {
			return nil
		}
		b.Request(unix.RTM_DELROUTE, 0)
		m := bytes.Clone(p[:unix.SizeofRtMsg])
		binary.NativeEndian.PutUint32(m[8:], unix.RTM_F_CLONED)
		b.Raw(m)
		for kind, v := range linux.Attrs(p[unix.SizeofRtMsg:]) {
			if kind != unix.RTA_CACHEINFO {
				b.Attr(kind, v)
			}
		}
		if b.Len() >= mostRenewed {
			return linux.ErrEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, linux.ErrEnough) && !missing(err) {
		return fmt.Errorf("read the exceptions of its IPv6 routes: %w", err)
	}
	s.done(&b)
	return nil
}

// renewAddresses removes IPv6 addresses and adds them again if there are many: their routes belong to the kernel. left
// tells that some are left.
func (s *space) renewAddresses() (renewed int, left bool, err error) {
	var ask, b linux.Batch
	ask.Request(unix.RTM_GETADDR, 0)
	ask.Address(0, unix.AF_INET6, 0, 0, 0)
	var all [][]byte
	err = s.dump(&ask, func(p []byte) error {
		if len(p) >= unix.SizeofIfAddrmsg && p[3] < unix.RT_SCOPE_LINK {
			all = append(all, bytes.Clone(p))
		}
		return nil
	})
	if err != nil && !missing(err) {
		return 0, false, fmt.Errorf("read its IPv6 addresses: %w", err)
	}
	if len(all) <= manyAddresses {
		return 0, false, nil
	}
	if len(all) > addressesRenewed {
		all, left = all[len(all)-addressesRenewed:], true // the oldest: what is added comes first
	}
	for _, p := range slices.Backward(all) { // and so all are in the same order again
		for _, kind := range []uint16{unix.RTM_DELADDR, unix.RTM_NEWADDR} {
			flags := uint16(0)
			if kind == unix.RTM_NEWADDR {
				flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
			}
			b.Request(kind, flags)
			b.Raw(p[:unix.SizeofIfAddrmsg])
			for kind, v := range linux.Attrs(p[unix.SizeofIfAddrmsg:]) {
				if kind == unix.IFA_FLAGS && len(v) >= 4 {
					b.Uint32(kind, binary.NativeEndian.Uint32(v)|unix.IFA_F_NODAD)
				} else {
					b.Attr(kind, v)
				}
			}
		}
	}
	return s.done(&b) / 2, left, nil
}
