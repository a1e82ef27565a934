package feed_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/node/fib"
)

// kernel asks a namespace's kernel what it would do: the oracle. It reads messages by other code than the mirror's.
type kernel struct {
	t          testing.TB
	fd         int
	answer     []byte // to the last question
	dump       *linux.Rtnetlink
	links      map[int]kernelLink
	neighbours map[string]fib.MAC        // "index address" of those that may be used
	objects    map[uint32][]byte         // next-hop objects' attributes
	listed     map[netip.Prefix][]uint32 // the objects of IPv6 routes that it lists
}

type kernelLink struct {
	mtu     int
	mac     fib.MAC
	carrier bool
}

func newKernel(t testing.TB, ns *os.File) *kernel {
	k := &kernel{t: t}
	in(t, ns, func() (err error) {
		if k.dump, err = linux.DialRtnetlink(); err != nil {
			return err
		}
		k.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err == nil {
			err = unix.SetsockoptInt(k.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
		}
		return err
	})
	t.Cleanup(func() {
		unix.Close(k.fd)
		k.dump.Close()
	})
	return k
}

// look reads what the answers refer to.
func (k *kernel) look() {
	k.links, k.neighbours, k.objects = map[int]kernelLink{}, map[string]fib.MAC{}, map[uint32][]byte{}
	k.listed = map[netip.Prefix][]uint32{}
	k.all(unix.RTM_GETLINK, 16, 0, func(p []byte) {
		l := kernelLink{carrier: binary.NativeEndian.Uint32(p[8:])&unix.IFF_LOWER_UP != 0}
		for kind, v := range linux.Attrs(p[16:]) {
			switch kind {
			case unix.IFLA_MTU:
				l.mtu = int(binary.NativeEndian.Uint32(v))
			case unix.IFLA_ADDRESS:
				copy(l.mac[:], v)
			}
		}
		k.links[int(int32(binary.NativeEndian.Uint32(p[4:])))] = l
	})
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		k.all(unix.RTM_GETNEIGH, 12, family, func(p []byte) {
			const usable = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE | unix.NUD_PROBE |
				unix.NUD_STALE | unix.NUD_DELAY
			var address netip.Addr
			var mac fib.MAC
			for kind, v := range linux.Attrs(p[12:]) {
				switch kind {
				case unix.NDA_DST:
					address, _ = netip.AddrFromSlice(v)
				case unix.NDA_LLADDR:
					copy(mac[:], v)
				}
			}
			if binary.NativeEndian.Uint16(p[8:])&usable != 0 && mac != (fib.MAC{}) {
				k.neighbours[fmt.Sprint(binary.NativeEndian.Uint32(p[4:]), " ", address)] = mac
			}
		})
	}
	k.all(unix.RTM_GETNEXTHOP, 8, 0, func(p []byte) {
		for kind, v := range linux.Attrs(p[8:]) {
			if kind == 1 {
				k.objects[binary.NativeEndian.Uint32(v)] = slices.Clone(p)
			}
		}
	})
	k.all(unix.RTM_GETROUTE, unix.SizeofRtMsg, unix.AF_INET6, func(p []byte) {
		to, object := netip.IPv6Unspecified(), uint32(0)
		for kind, v := range linux.Attrs(p[unix.SizeofRtMsg:]) {
			switch kind {
			case unix.RTA_DST:
				to, _ = netip.AddrFromSlice(v)
			case 30: // RTA_NH_ID
				object = binary.NativeEndian.Uint32(v)
			}
		}
		if object != 0 {
			prefix := netip.PrefixFrom(to, int(p[1]))
			k.listed[prefix] = append(k.listed[prefix], object)
		}
	})
}

// lists tells whether the kernel lists a route of an address's prefix that goes these ways through a next-hop object.
func (k *kernel) lists(a netip.Addr, way answer) bool {
	p, err := a.Prefix(way.length)
	return err == nil && slices.ContainsFunc(k.listed[p], func(id uint32) bool {
		listed := answer{}
		k.throughObject(&listed, id, a, 0)
		slices.Sort(listed.ways)
		return slices.Equal(slices.Compact(listed.ways), way.ways)
	})
}

func (k *kernel) all(kind uint16, size int, family byte, each func(p []byte)) {
	k.t.Helper()
	for {
		var b linux.Batch
		b.Request(kind, 0)
		fixed := make([]byte, size)
		fixed[0] = family
		b.Raw(fixed)
		err := k.dump.Dump(&b, func(_ uint16, p []byte) error {
			each(p)
			return nil
		})
		if err == nil {
			return
		}
		if err != linux.ErrDumpInterrupted {
			k.t.Fatal(err)
		}
	}
}

// answer is what becomes of packets to an address: the ways out as a sorted set of texts.
type answer struct {
	ways   []string
	length int // of the matching prefix, -1 if not known
	object bool
	// carried are the ways without those of several through links without carrier: the kernel marks such a way some
	// time after its link lost the carrier, and now and then goes on using one that it has not marked.
	carried []string
}

func (a answer) String() string { return fmt.Sprintf("%v by /%d", a.ways, a.length) }

// ask has the kernel look an address up, by the matching route (fib) or for one flow.
func (k *kernel) ask(a netip.Addr, match bool, sport uint16) answer {
	k.t.Helper()
	fixed := make([]byte, unix.SizeofRtMsg)
	fixed[0], fixed[1] = unix.AF_INET, 32
	if a.Is6() {
		fixed[0], fixed[1] = unix.AF_INET6, 128
	}
	if match {
		binary.NativeEndian.PutUint32(fixed[8:], unix.RTM_F_FIB_MATCH)
	}
	request := attribute(append(make([]byte, unix.SizeofNlMsghdr), fixed...), unix.RTA_DST, a.AsSlice())
	if !match {
		request = attribute(request, unix.RTA_IP_PROTO, []byte{unix.IPPROTO_UDP})
		request = attribute(request, unix.RTA_SPORT, binary.BigEndian.AppendUint16(nil, sport))
		request = attribute(request, unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, 9))
	}
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	kind, p := k.request(request)
	if kind == unix.NLMSG_ERROR {
		switch errno := unix.Errno(-int32(binary.NativeEndian.Uint32(p))); errno {
		case unix.ENETUNREACH:
			return answer{ways: []string{"none"}, length: -1}
		case unix.EHOSTUNREACH:
			return answer{ways: []string{"unreachable"}, length: -1}
		case unix.EACCES:
			return answer{ways: []string{"prohibit"}, length: -1}
		case unix.EINVAL:
			return answer{ways: []string{"blackhole"}, length: -1}
		default:
			k.t.Fatalf("look-up of %s: %v", a, errno)
		}
	}
	return k.read(a, p, match)
}

func attribute(to []byte, kind uint16, value []byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(4+len(value)))
	to = append(binary.NativeEndian.AppendUint16(to, kind), value...)
	return append(to, make([]byte, -len(value)&3)...)
}

// request sends one request and reads the one answer.
func (k *kernel) request(data []byte) (uint16, []byte) {
	k.t.Helper()
	if err := unix.Sendto(k.fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		k.t.Fatal(err)
	}
	if k.answer == nil {
		k.answer = make([]byte, 64<<10)
	}
	n, _, err := unix.Recvfrom(k.fd, k.answer, 0)
	if err != nil || n < 16 {
		k.t.Fatal("answer to a look-up: ", n, " ", err)
	}
	return binary.NativeEndian.Uint16(k.answer[4:]), bytes.Clone(k.answer[16:n])
}

// read turns an answer into ways out.
func (k *kernel) read(a netip.Addr, p []byte, match bool) answer {
	r := answer{length: -1}
	if match {
		r.length = int(p[1])
	}
	switch p[7] {
	case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST:
		r.ways = []string{"local"}
		return r
	case unix.RTN_BLACKHOLE:
		r.ways = []string{"blackhole"}
		return r
	case unix.RTN_UNREACHABLE:
		r.ways = []string{"unreachable"}
		return r
	case unix.RTN_PROHIBIT:
		r.ways = []string{"prohibit"}
		return r
	}
	mtu, object := 0, uint32(0)
	var gateway netip.Addr
	index := 0
	var multipath []byte
	for kind, v := range linux.Attrs(p[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_GATEWAY:
			gateway, _ = netip.AddrFromSlice(v)
		case unix.RTA_VIA:
			gateway, _ = netip.AddrFromSlice(v[2:])
		case unix.RTA_OIF:
			index = int(binary.NativeEndian.Uint32(v))
		case unix.RTA_MULTIPATH:
			multipath = v
		case 30: // RTA_NH_ID
			object = binary.NativeEndian.Uint32(v)
		case unix.RTA_METRICS:
			for kind, v := range linux.Attrs(v) {
				if kind == unix.RTAX_MTU {
					mtu = int(binary.NativeEndian.Uint32(v))
				}
			}
		}
	}
	switch {
	case object != 0 && match:
		r.object = true
		k.throughObject(&r, object, a, mtu)
	case multipath != nil:
		for len(multipath) >= 8 {
			n := int(binary.NativeEndian.Uint16(multipath))
			flags, index := multipath[2], int(binary.NativeEndian.Uint32(multipath[4:]))
			var gateway netip.Addr
			for kind, v := range linux.Attrs(multipath[8:n]) {
				switch kind {
				case unix.RTA_GATEWAY:
					gateway, _ = netip.AddrFromSlice(v)
				case unix.RTA_VIA:
					gateway, _ = netip.AddrFromSlice(v[2:])
				}
			}
			if flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0 {
				before := len(r.ways)
				if k.way(&r, index, gateway, a, mtu, true); k.links[index].carrier {
					r.carried = append(r.carried, r.ways[before:]...)
				}
			}
			multipath = multipath[(n+3)&^3:]
		}
	default:
		k.way(&r, index, gateway, a, mtu, false)
	}
	for _, ways := range []*[]string{&r.ways, &r.carried} {
		slices.Sort(*ways)
		*ways = slices.Compact(*ways)
	}
	return r
}

func (k *kernel) throughObject(r *answer, id uint32, a netip.Addr, mtu int) {
	p, ok := k.objects[id]
	if !ok {
		r.ways = append(r.ways, "gone")
		return
	}
	index := 0
	var gateway netip.Addr
	for kind, v := range linux.Attrs(p[8:]) {
		switch kind {
		case 2:
			for ; len(v) >= 8; v = v[8:] {
				member := answer{}
				k.throughObject(&member, binary.NativeEndian.Uint32(v), netip.Addr{}, mtu)
				r.ways = append(r.ways, member.ways...)
			}
			return
		case 4:
			r.ways = append(r.ways, "blackhole")
			return
		case 5:
			index = int(binary.NativeEndian.Uint32(v))
		case 6:
			gateway, _ = netip.AddrFromSlice(v)
		}
	}
	k.way(r, index, gateway, a, mtu, !a.IsValid())
}

// way adds one way out.
func (k *kernel) way(r *answer, index int, gateway, a netip.Addr, mtu int, several bool) {
	l := k.links[index]
	if mtu == 0 || mtu > l.mtu {
		mtu = l.mtu
	}
	if !gateway.IsValid() {
		mac, known := k.neighbours[fmt.Sprint(index, " ", a)]
		if several || !known {
			r.ways = append(r.ways, "connected")
			return
		}
		r.ways = append(r.ways, fmt.Sprintf("%d %x from %x mtu %d", index, mac, l.mac, mtu))
		return
	}
	if mac, known := k.neighbours[fmt.Sprint(index, " ", gateway)]; known {
		r.ways = append(r.ways, fmt.Sprintf("%d %x from %x mtu %d", index, mac, l.mac, mtu))
	} else {
		r.ways = append(r.ways, fmt.Sprintf("%d unresolved", index))
	}
}

// fast is the fast path's answer in the same words.
func (l *lab) fastAnswer(a netip.Addr) answer {
	family := 0
	if a.Is6() {
		family = 1
	}
	id, length := l.tables[family].Lookup(a)
	r := answer{length: length}
	seen := map[fib.NextHop]bool{}
	for hash := range uint32(4096) { // as many buckets as a group can have
		h := l.pool.Resolve(id, hash)
		if seen[h.NextHop] {
			continue
		}
		seen[h.NextHop] = true
		switch h.Kind {
		case fib.KindForward:
			r.ways = append(r.ways, fmt.Sprintf("%d %x from %x mtu %d", h.Port, h.Destination, h.Source, h.MTU))
		case fib.KindUnresolved:
			r.ways = append(r.ways, fmt.Sprintf("%d unresolved", h.Port))
		default:
			r.ways = append(r.ways, h.Kind.String())
		}
		if h.ID == id {
			break // no group
		}
	}
	slices.Sort(r.ways)
	r.ways = slices.Compact(r.ways)
	return r
}

// same compares the fast path with the kernel at an address: "" if they agree, and whether the fast path punts.
func (l *lab) same(k *kernel, a netip.Addr) (differs string, punts bool) {
	fast := l.fastAnswer(a)
	if slices.Equal(fast.ways, []string{"punt"}) {
		return "", true
	}
	if a.Is4() {
		want := k.ask(a, true, 0)
		if !slices.Equal(fast.ways, want.ways) && (len(want.carried) == 0 || !slices.Equal(fast.ways, want.carried)) ||
			want.length >= 0 && fast.length != want.length && !strings.Contains(want.ways[0], "from") {
			return fmt.Sprintf("%s: %s, the kernel %s", a, fast, want), false
		}
		return "", false
	}
	// The kernel's own search by matching route does not look at carriers, so that it is asked for flows, too.
	for sport := range uint16(6) {
		want := k.ask(a, false, 1000+sport)
		if slices.Equal(want.ways, []string{"unreachable"}) {
			// Through a next-hop object that it lists, and whose route matches, it now and then finds no way.
			if listed := k.ask(a, true, 0); listed.object && slices.Equal(listed.ways, fast.ways) {
				continue
			}
		}
		// Now and then it does not even find the route that it lists, for either question and for good.
		if slices.Equal(want.ways, []string{"none"}) && k.lists(a, fast) {
			return "", false
		}
		for _, way := range want.ways {
			if !slices.Contains(fast.ways, way) {
				return fmt.Sprintf("%s: %s, the kernel %s", a, fast, want), false
			}
		}
	}
	for _, link := range k.links {
		if !link.carrier {
			return "", false
		}
	}
	// It keeps what it made of a next-hop object for one route, and tells that route for others through the object.
	if want := k.ask(a, true, 0); !want.object && !slices.Equal(fast.ways, want.ways) {
		return fmt.Sprintf("%s: %s, the kernel's route %s", a, fast, want), false
	}
	return "", false
}
