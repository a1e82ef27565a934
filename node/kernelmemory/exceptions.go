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

// Exceptions of routes – path MTUs and redirects – are kept at next hops. The first one makes the kernel allocate a
// table of 16 KiB there, separately for IPv4 and IPv6, which stays until the next hop goes. Nobody is charged for it.
// The kernel does not say how many there are: it lists only exceptions that packets have used and that are neither old
// nor flushed, and no empty tables. So this computes how much they can be at most: a table for each next hop, and one
// exception for each message of the kinds that cause one. If that is too much, the next hops are made anew, which
// removes the exceptions. Routes stay, since somebody else may have sent the messages.

// Bytes, as the kernel's object caches had them (Linux 6.18, amd64).
const (
	exceptionTable = 16 << 10
	// exceptionBytes is the size of an exception, with the two routes that it keeps for packets in and out.
	exceptionBytes = 512
	// fullTable is the largest number of exceptions in one table (2,048 lists of ten).
	fullTable = 20480
	// mostRenewed is how many IPv4 routes, and how many IPv6 routes, one look makes anew, which takes half a second.
	mostRenewed = 30000
	// manyAddresses is how many IPv6 addresses may keep the exceptions of their own routes. addressesRenewed is how
	// many addresses one look makes anew; the kernel takes a millisecond for each.
	manyAddresses    = 256
	addressesRenewed = 512
)

// exceptional is what is remembered of an element's exceptions from look to look.
type exceptional struct {
	messages, packets int64 // how many had come when its next hops were made anew
	read              int64 // how many causes had come since then when its routes were read
	rest              time.Duration
	until             time.Time // until then tunnels are left out: the last time, looking at them was in vain
}

// since is how far a counter has moved since an earlier state. A counter begins anew with its namespace or tunnel.
func since(is, was int64) int64 {
	if is < was {
		return is
	}
	return is - was
}

// trimExceptions makes an element's next hops anew if, after so many messages, they can have more exceptions than the
// element may. Tunnels' packets are so many that their number says little. So what is done because of them is told, and
// done again soon, only if it freed memory.
func (w *Watcher[ID]) trimExceptions(s *space, id ID, limit, messages int64, tunnels bool) error {
	m := w.remembered(id)
	causes, packets := since(messages, m.messages), m.packets
	if tunnels && time.Now().After(m.until) {
		var err error
		if packets, err = s.tunnelled(); err != nil {
			return err
		}
		causes += since(packets, m.packets)
	}
	// The routes are read again when there may be a sixteenth more exceptions.
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
			linux.Grace(context.Background()) // the kernel frees the memory a little later
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

// possibly is how many bytes of exceptions this many next hops have at most after this many messages.
func possibly(hops, messages int64) int64 {
	return min(messages, hops)*exceptionTable + min(messages, hops*fullTable)*exceptionBytes
}

// messages counts the messages of the namespace that cause exceptions: ICMP messages that change the MTU or gateway of
// routes. For IPv4 that means all that say "unreachable", since the kernel counts those together. The calling thread
// must be in the namespace.
func messages() (sum int64, err error) {
	buf := make([]byte, 16<<10)
	four, err := readCounters("/proc/thread-self/net/snmp", buf)
	if err != nil {
		return 0, fmt.Errorf("read its counters of ICMP: %w", err)
	}
	// a line of titles and one of numbers; neither if there were no messages
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

// tunnelKinds are the kinds of devices that give a path MTU to the route of each packet that they send.
var tunnelKinds = []string{"amt", "bareudp", "erspan", "geneve", "gre", "gretap", "gtp", "ip6erspan", "ip6gre",
	"ip6gretap", "ip6tnl", "ipip", "sit", "vti", "vti6", "vxlan", "xfrm"}

// isTunnel decides by a device's IFLA_LINKINFO.
func isTunnel(info []byte) bool { return slices.Contains(tunnelKinds, kindOf(info)) }

func kindOf(info []byte) string {
	for kind, v := range linux.Attrs(info) {
		if kind == unix.IFLA_INFO_KIND {
			return unix.ByteSliceToString(v)
		}
	}
	return ""
}

// tunnelled counts the packets that were given to the namespace's tunnels.
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
				for _, at := range []int{8, 40, 56, 72} { // sent, not sent because of an error, dropped, too long
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

// A hopGroup is a set of IPv4 routes that share next hops, and with them the exceptions.
type hopGroup struct {
	key    uint64
	hops   int64
	routes int
}

// hops counts a namespace's next hops, and finds which IPv4 routes share them. It stops when it has found more than
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
