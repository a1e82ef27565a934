package kernelmemory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// space is a network namespace that is being looked at.
type space struct {
	fd    int
	ports []int
	c     *linux.Rtnetlink
	had   []device // what the namespace's devices were when the look began
}

// devices are what links was when the look began.
func (s *space) devices() (_ []device, err error) {
	if s.had == nil {
		s.had, err = s.links()
	}
	return s.had, err
}

// open opens the namespace that is mounted at path.
func open(path string, ports []int) (*space, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	s := &space{fd: fd, ports: ports}
	if err := s.dial(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return s, nil
}

func (s *space) dial() (err error) {
	s.c, err = linux.DialRtnetlinkOf(s.fd)
	return err
}

func (s *space) close() {
	if s.c != nil {
		s.c.Close()
	}
	unix.Close(s.fd)
}

// dump asks for a table. Changes in the middle of it do not matter. If each stops it with linux.ErrEnough, the rest of
// the answer is still in the socket, so the socket is replaced.
func (s *space) dump(b *linux.Batch, each func(payload []byte) error) error {
	err := s.c.Dump(b, func(_ uint16, payload []byte) error { return each(payload) })
	switch {
	case errors.Is(err, linux.ErrDumpInterrupted):
		return nil
	case errors.Is(err, linux.ErrEnough):
		s.c.Close()
		s.c = nil
		if failed := s.dial(); failed != nil {
			return failed
		}
	}
	return err
}

// visit gets an entry: how many bytes the kernel uses for it, and how to write the request that removes it. It returns
// linux.ErrEnough when it needs no more entries.
type visit func(size int64, remove func(*linux.Batch)) error

// reader reads a table. Entries that must be removed before others are read in an earlier pass.
type reader struct {
	table  Table
	passes int
	read   func(s *space, pass int, each visit) error
	// flush, if there is one, removes all entries at once. It says how many stay without what was in them, and whether
	// its time was over before it had seen all.
	flush func(s *space, until time.Time) (emptied int, left bool, err error)
	// before, if there is one, is what the kernel needs to let entries be removed. after ends that.
	before func(s *space) (after func() error, err error)
	// only, if there is one, tells by the namespace's devices whether there can be any entries.
	only func([]device) bool
}

var readers = []reader{
	{table: NextHops, passes: 2, read: readNextHops},
	{table: Proxies, passes: 1, read: readProxies},
	{table: Forwarding, passes: 1, read: readForwarding},
	{table: TrafficControl, passes: 2, read: readTrafficControl},
	{table: AddressLabels, passes: 1, read: readAddressLabels},
	{table: MPLSRoutes, passes: 1, read: readMPLS},
	{table: MulticastRoutes, passes: 1, read: readMulticastRoutes, flush: whole(flushMulticastRoutes)},
	{table: BridgeGroups, passes: 1, read: readBridgeGroups, before: wakeBridges, only: bridged},
	{table: TunnelGroups, passes: 1, read: readTunnelGroups, only: tunnelled},
	{table: BridgeVLANs, passes: 1, read: readBridgeVLANs, only: bridged},
	{table: Peers, passes: 1, read: readPeers, flush: whole(flushPeers), only: guarded},
	{table: Sessions, passes: 1, read: readSessions, flush: whole(flushSessions)},
	{table: Parts, passes: 1, read: readParts, flush: flushParts},
	{table: PacketSets, passes: 1, read: readPacketSets, flush: flushPacketSets},
}

// whole is a flush after which nothing stays.
func whole(flush func(*space) error) func(*space, time.Time) (int, bool, error) {
	return func(s *space, _ time.Time) (int, bool, error) { return 0, false, flush(s) }
}

// missing returns whether the error means that the kernel has no such table.
func missing(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}

// exceeds returns whether a table takes more bytes than most. It reads no further than that.
func (r *reader) exceeds(s *space, most int64) (bool, error) {
	sum := int64(0)
	for pass := range r.passes {
		err := r.read(s, pass, func(size int64, _ func(*linux.Batch)) error {
			if sum += size; sum > most {
				return linux.ErrEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, linux.ErrEnough) && !missing(err) {
			return false, fmt.Errorf("read its %s: %w", r.table, err)
		}
		if sum > most {
			return true, nil
		}
	}
	return false, nil
}

// count counts the entries of a table that is read in one pass.
func (r *reader) count(s *space) (n int, err error) {
	err = r.read(s, 0, func(int64, func(*linux.Batch)) error {
		n++
		return nil
	})
	if err != nil && missing(err) {
		err = nil
	}
	return n, err
}

// atOnce is how many entries one batch removes.
const atOnce = 16384

// empty removes what is in a table until its time is over. left tells that some is left.
func (r *reader) empty(s *space, until time.Time) (removed int, left bool, err error) {
	if r.flush != nil {
		before, err := r.count(s)
		emptied := 0
		if err == nil {
			emptied, left, err = r.flush(s, until)
		}
		after := 0
		if err == nil { // what something uses may stay
			after, err = r.count(s)
		}
		if err != nil {
			return 0, true, fmt.Errorf("remove its %s: %w", r.table, err)
		}
		return max(0, before-after) + emptied, left, nil
	}
	if r.before != nil {
		after, failed := r.before(s)
		if after != nil {
			defer func() {
				if failed := after(); failed != nil && err == nil {
					err = fmt.Errorf("remove its %s: %w", r.table, failed)
				}
			}()
		}
		if failed != nil {
			return 0, true, fmt.Errorf("remove its %s: %w", r.table, failed)
		}
	}
	for pass := range r.passes {
		for more := true; more; {
			if time.Now().After(until) {
				return removed, true, nil
			}
			var b linux.Batch
			more = false
			err := r.read(s, pass, func(_ int64, remove func(*linux.Batch)) error {
				if remove == nil {
					return nil
				}
				if remove(&b); b.Len() >= atOnce {
					more = true
					return linux.ErrEnough
				}
				return nil
			})
			if err != nil && !errors.Is(err, linux.ErrEnough) && !missing(err) {
				return removed, true, fmt.Errorf("read its %s: %w", r.table, err)
			}
			refused, gone := error(nil), b.Len()
			for _, err := range s.c.Do(&b) {
				if err != nil {
					gone-- // gone by itself, gone with what was above it, or something that the kernel keeps
					refused = err
				}
			}
			removed += gone
			if more && gone == 0 {
				return removed, true, fmt.Errorf("remove its %s: %w", r.table, refused)
			}
		}
	}
	return removed, false, nil
}

// Of linux/nexthop.h and rtnetlink.h.
const (
	rtmNewNextHop = 104
	rtmDelNextHop = 105
	rtmGetNextHop = 106
	nhaID         = 1
	nhaGroup      = 2 // NHA_GROUP, of struct nexthop_grp
	nhaResGroup   = 12
	resBuckets    = 1 // NHA_RES_GROUP_BUCKETS
	nhMsg         = 8 // sizeof(struct nhmsg)
)

// Bytes of an entry, as the kernel's object caches had them (Linux 6.18, amd64), rounded up.
const (
	bucketBytes  = 32
	proxyBytes   = 64
	forwardBytes = 128
	tunnelBytes  = 224
	labelBytes   = 64
	groupBytes   = 128 // a device's multicast address
	classBytes   = 4096

	multicastRouteBytes = 256
	memberOfGroupBytes  = 448 // of a bridge's multicast group, and the group itself
	sourceOfGroupBytes  = 192 // struct net_bridge_group_src
	hostOfGroupBytes    = 512 // struct net_bridge_group_eht_host, and of a source's set of hosts
)

// readNextHops reads groups first: removing a next hop that is in a group makes the kernel wait for all readers (RCU).
func readNextHops(s *space, pass int, each visit) error {
	var b linux.Batch
	b.Request(rtmGetNextHop, 0)
	b.Raw(make([]byte, nhMsg))
	return s.dump(&b, func(p []byte) error {
		if len(p) < nhMsg {
			return nil
		}
		var id []byte
		group, size := false, nextHopSize.bytes()
		for kind, v := range linux.Attrs(p[nhMsg:]) {
			switch kind {
			case nhaID:
				id = v
			case nhaEncap:
				size += encapsulated(v)
			case nhaGroup:
				group = true
				size += int64(len(v)/8) * memberSize.bytes()
			case nhaResGroup: // its table of buckets may take two megabytes
				for kind, v := range linux.Attrs(v) {
					if kind == resBuckets && len(v) >= 2 {
						size += int64(binary.NativeEndian.Uint16(v)) * bucketBytes
					}
				}
			}
		}
		if group != (pass == 0) {
			return nil
		}
		return each(size, func(b *linux.Batch) {
			b.Request(rtmDelNextHop, 0)
			b.Raw(make([]byte, nhMsg))
			b.Attr(nhaID, id)
		})
	})
}

// neighbourRequest writes a struct ndmsg.
func neighbourRequest(b *linux.Batch, kind uint16, family, flags uint8, index, state []byte) {
	b.Request(kind, 0)
	m := make([]byte, unix.SizeofNdMsg)
	m[0], m[10] = family, flags
	copy(m[4:8], index)
	copy(m[8:10], state)
	b.Raw(m)
}

func readProxies(s *space, _ int, each visit) error {
	var b linux.Batch
	neighbourRequest(&b, unix.RTM_GETNEIGH, unix.AF_UNSPEC, unix.NTF_PROXY, nil, nil)
	return s.dump(&b, func(p []byte) error {
		if len(p) < unix.SizeofNdMsg || p[10]&unix.NTF_PROXY == 0 {
			return nil
		}
		return each(proxyBytes, func(b *linux.Batch) {
			neighbourRequest(b, unix.RTM_DELNEIGH, p[0], unix.NTF_PROXY, p[4:8], nil)
			for kind, v := range linux.Attrs(p[unix.SizeofNdMsg:]) {
				if kind == unix.NDA_DST {
					b.Attr(unix.NDA_DST, v)
				}
			}
		})
	})
}

// readForwarding reads what bridges and tunnels have learnt, and further addresses of devices, except multicast ones,
// which other devices have as well.
func readForwarding(s *space, _ int, each visit) error {
	own := map[[6]byte]bool{} // kinds of devices: these entries belong to the bridges themselves
	links, err := s.devices()
	if err != nil {
		return err
	}
	for _, l := range links {
		own[l.mac] = true
	}
	var b linux.Batch
	neighbourRequest(&b, unix.RTM_GETNEIGH, unix.AF_BRIDGE, 0, nil, nil)
	return s.dump(&b, func(p []byte) error {
		if len(p) < unix.SizeofNdMsg {
			return nil
		}
		var mac, to []byte
		bridged := false
		size := int64(forwardBytes)
		for kind, v := range linux.Attrs(p[unix.SizeofNdMsg:]) {
			switch kind {
			case unix.NDA_LLADDR:
				mac = v
			case unix.NDA_MASTER:
				bridged = true
			case unix.NDA_DST:
				to, size = v, tunnelBytes
			}
		}
		if len(mac) == 6 && to == nil && (mac[0]&1 != 0 && !bridged || own[[6]byte(mac)]) {
			return nil
		}
		return each(size, func(b *linux.Batch) {
			flags := p[10] & (unix.NTF_SELF | unix.NTF_MASTER)
			if flags == 0 && bridged {
				flags = unix.NTF_MASTER
			}
			neighbourRequest(b, unix.RTM_DELNEIGH, unix.AF_BRIDGE, flags, p[4:8], p[8:10])
			for kind, v := range linux.Attrs(p[unix.SizeofNdMsg:]) {
				switch kind {
				case unix.NDA_LLADDR, unix.NDA_DST, unix.NDA_VLAN, unix.NDA_PORT, unix.NDA_VNI,
					unix.NDA_IFINDEX, ndaSrcVNI:
					b.Attr(kind, v)
				}
			}
		})
	})
}

// Of linux/neighbour.h and linux/if_addrlabel.h.
const (
	ndaSrcVNI   = 11
	ifalAddress = 1
	ifalLabel   = 2
	ifalMsg     = 12 // sizeof(struct ifaddrlblmsg)
)

// firstLabels are those that the kernel gives to each namespace.
var firstLabels = func() map[netip.Prefix]bool {
	all := map[netip.Prefix]bool{}
	for _, p := range []string{"::/0", "fc00::/7", "fec0::/10", "2002::/16", "3ffe::/16", "2001::/32",
		"2001:10::/28", "::ffff:0:0/96", "::/96", "::1/128"} {
		all[netip.MustParsePrefix(p)] = true
	}
	return all
}()

func readAddressLabels(s *space, _ int, each visit) error {
	var b linux.Batch
	b.Request(unix.RTM_GETADDRLABEL, 0)
	message := make([]byte, ifalMsg)
	message[0] = unix.AF_INET6
	b.Raw(message)
	return s.dump(&b, func(p []byte) error {
		if len(p) < ifalMsg {
			return nil
		}
		for kind, v := range linux.Attrs(p[ifalMsg:]) {
			if a, ok := netip.AddrFromSlice(v); kind == ifalAddress && ok &&
				firstLabels[netip.PrefixFrom(a, int(p[2]))] {
				return nil
			}
		}
		return each(labelBytes, func(b *linux.Batch) {
			b.Request(unix.RTM_DELADDRLABEL, 0)
			m := make([]byte, ifalMsg)
			copy(m, p[:8]) // not the number of the change
			b.Raw(m)
			for kind, v := range linux.Attrs(p[ifalMsg:]) {
				if kind == ifalAddress || kind == ifalLabel {
					b.Attr(kind, v)
				}
			}
		})
	})
}
