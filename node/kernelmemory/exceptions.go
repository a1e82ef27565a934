package kernelmemory

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Exceptions of routes – path MTUs and redirects – hang at next hops. The first one makes the kernel keep a table of
// 16 KiB there, for IPv4 and for IPv6, until the next hop goes; nobody is charged for it. What there is of them
// cannot be read: the kernel lists exceptions that packets have used and that are neither old nor flushed, and tables
// without any it does not list at all. So this counts what they can be at most: a table for each next hop, and one
// exception for each message that the namespace has had of the kinds that make one. What is too much is taken away by
// making the next hops anew. Routes stay: the messages may be somebody else's.

// Bytes, as the kernel's object caches had them (Linux 6.18, amd64).
const (
	exceptionTable = 16 << 10
	// exceptionBytes are an exception's, with the two routes that it keeps for packets in and out.
	exceptionBytes = 512
	// fullTable is how many exceptions one table has at most (2,048 lists of ten).
	fullTable = 20480
	// mostRenewed is how many IPv4 routes, and how many IPv6 routes, are made anew by one look, which takes half a
	// second.
	mostRenewed = 30000
	// manyAddresses is how many IPv6 addresses may keep the exceptions of their own routes, addressesRenewed how many
	// are made anew by one look: the kernel takes a millisecond for each.
	manyAddresses    = 256
	addressesRenewed = 512
)

// exceptional is what is remembered of an element's exceptions between looks.
type exceptional struct {
	messages, packets int64 // that had come when its next hops were made anew
	read              int64 // causes since then, when its routes were read
	rest              time.Duration
	until             time.Time // while this lasts, tunnels are not thought of: last time it was for nothing
}

// since counts from an earlier state of a counter, which begins anew with the namespace, or with a tunnel.
func since(is, was int64) int64 {
	if is < was {
		return is
	}
	return is - was
}

// trimExceptions makes an element's next hops anew if they can have more exceptions than it may after so many
// messages. Packets in tunnels are so many that they say little: what is done for them is told, and done again soon,
// only if memory came back.
func (w *Watcher[ID]) trimExceptions(s *space, id ID, limit, messages int64, tunnels bool) error {
	m := w.exceptional[id]
	if m == nil {
		m = &exceptional{}
		w.exceptional[id] = m
	}
	causes, packets := since(messages, m.messages), m.packets
	if tunnels && time.Now().After(m.until) {
		var err error
		if packets, err = s.tunnelled(); err != nil {
			return err
		}
		causes += since(packets, m.packets)
	}
	// Routes are read again when there may be a sixteenth more.
	if possibly(math.MaxInt32, causes) <= limit || causes >= m.read && causes-m.read < limit/exceptionTable/16 {
		return nil
	}
	m.read = causes
	hops, _, err := s.hops(limit / exceptionTable)
	if err != nil || possibly(hops, causes) <= limit {
		return err
	}
	w.holding(id, func(until time.Time) {
		w.verdict(id, Exceptions, limit, func() (int, bool, error) {
			before, err := unmovable()
			if err != nil {
				return 0, false, err
			}
			_, groups, err := s.hops(math.MaxInt32)
			if err != nil {
				return 0, false, err
			}
			renewed, left, err := s.renew(groups, until)
			byMessages := possibly(hops, since(messages, m.messages)) > limit
			if m.read = 0; !left {
				m.messages, m.packets = messages, packets
			}
			if err != nil || byMessages {
				m.rest = 0
				return renewed, left, err
			}
			linux.Grace(context.Background()) // the kernel gives the memory back afterwards
			if after, err := unmovable(); err != nil || before-after > limit/4 {
				m.rest = 0
				return renewed, left, err
			}
			m.rest = min(max(5*time.Second, 2*m.rest), 5*time.Minute)
			m.until = time.Now().Add(m.rest)
			return 0, false, nil
		})
	})
	return nil
}

// possibly is how many bytes so many next hops have of exceptions at most after so many messages.
func possibly(hops, messages int64) int64 {
	return min(messages, hops)*exceptionTable + min(messages, hops*fullTable)*exceptionBytes
}

// messages counts what the namespace has had that makes exceptions: ICMP messages by which routes' MTUs and gateways
// change – of IPv4 all that say "unreachable", which are counted together. The calling thread must be in the
// namespace.
func messages() (sum int64, err error) {
	buf := make([]byte, 16<<10)
	four, err := readCounters("/proc/thread-self/net/snmp", buf)
	if err != nil {
		return 0, fmt.Errorf("read its counters of ICMP: %w", err)
	}
	// a line of titles and one of numbers; none without messages
	if at := bytes.Index(four, []byte("IcmpMsg:")); at >= 0 {
		titles, rest, _ := bytes.Cut(four[at:], []byte("\n"))
		numbers, _, _ := bytes.Cut(rest, []byte("\n"))
		n := bytes.Fields(numbers)
		for i, title := range bytes.Fields(titles) {
			if t := string(title); i < len(n) && (t == "InType3" || t == "InType5") {
				v, _ := strconv.ParseInt(string(n[i]), 10, 64)
				sum += v
			}
		}
	}
	six, err := readCounters("/proc/thread-self/net/snmp6", buf)
	if errors.Is(err, fs.ErrNotExist) {
		return sum, nil // a kernel without IPv6
	}
	if err != nil {
		return 0, fmt.Errorf("read its counters of ICMPv6: %w", err)
	}
	for _, title := range []string{"\nIcmp6InPktTooBigs", "\nIcmp6InRedirects"} {
		if at := bytes.Index(six, []byte(title)); at >= 0 {
			number, _, _ := bytes.Cut(six[at+len(title):], []byte("\n"))
			v, _ := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64)
			sum += v
		}
	}
	return sum, nil
}

// readCounters reads a file of the kernel's, which fits.
func readCounters(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	have := 0
	for {
		n, err := unix.Read(fd, buf[have:])
		if have += max(n, 0); err != nil || n == 0 {
			return buf[:have], err
		}
	}
}

// tunnelKinds are the devices that give a path MTU to the route of each packet that they send.
var tunnelKinds = []string{"amt", "bareudp", "erspan", "geneve", "gre", "gretap", "gtp", "ip6erspan", "ip6gre",
	"ip6gretap", "ip6tnl", "ipip", "sit", "vti", "vti6", "vxlan", "xfrm"}

// isTunnel tells by a device's IFLA_LINKINFO.
func isTunnel(info []byte) bool {
	for kind, v := range linux.Attrs(info) {
		if kind == unix.IFLA_INFO_KIND {
			return slices.Contains(tunnelKinds, unix.ByteSliceToString(v))
		}
	}
	return false
}

// tunnelled counts the packets that the namespace's tunnels were given.
func (s *space) tunnelled() (sum int64, err error) {
	var b linux.Batch
	b.Request(unix.RTM_GETLINK, 0)
	b.Link(0, 0, 0)
	err = s.dump(&b, func(p []byte) error {
		if len(p) < unix.SizeofIfInfomsg {
			return nil
		}
		tunnel, packets := false, int64(0)
		for kind, v := range linux.Attrs(p[unix.SizeofIfInfomsg:]) {
			switch {
			case kind == unix.IFLA_LINKINFO:
				tunnel = isTunnel(v)
			case kind == unix.IFLA_STATS64 && len(v) >= 80:
				for _, at := range []int{8, 40, 56, 72} { // sent, not for an error, dropped, too long
					packets += int64(binary.NativeEndian.Uint64(v[at:]))
				}
			}
		}
		if tunnel {
			sum += packets
		}
		return nil
	})
	return sum, err
}

// Of linux/nexthop.h.
const (
	nhaBlackhole = 4
	nhaFDB       = 11
	onlink       = 4 // RTNH_F_ONLINK
)

var hashed = maphash.MakeSeed()

// A hopGroup is IPv4 routes that share next hops, and with them the exceptions.
type hopGroup struct {
	key    uint64
	hops   int64
	routes int
}

// hops counts a namespace's next hops, and tells which IPv4 routes share them. It ends when it has found more than
// most.
func (s *space) hops(most int64) (sum int64, groups map[uint64]*hopGroup, err error) {
	groups = map[uint64]*hopGroup{}
	count := func(n int64) error {
		if sum += n; sum > most {
			return linux.ErrEnough
		}
		return nil
	}
	err = s.dumpRoutes(unix.AF_INET, func(r *route) error {
		if r.object {
			return nil
		}
		g := groups[r.shared]
		if g == nil {
			g = &hopGroup{key: r.shared, hops: r.hops}
			groups[r.shared] = g
			g.routes++
			return count(r.hops)
		}
		g.routes++
		return nil
	})
	if err == nil {
		err = s.dumpRoutes(unix.AF_INET6, func(r *route) error {
			if r.object {
				return nil
			}
			return count(r.hops)
		})
	}
	if err == nil {
		err = s.dumpObjects(func([]byte) error { return count(1) })
	}
	if errors.Is(err, linux.ErrEnough) || err != nil && missing(err) {
		err = nil
	}
	return sum, groups, err
}
