package fast_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// members are the next hops that a router's routes get in TestManyNextHopsForwarded: all of them behind one device,
// each with a MAC address of its own, which tells whom a packet was for.
const members = 600

// member is the nth of them, with the address and the weight that it has.
func member(family, n int) (gateway netip.Addr, mac [6]byte, weight int) {
	mac = [6]byte{2, 0, 0, byte(family), byte(n >> 8), byte(n)}
	if family == 6 {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:1::1:%x", 1+n)), mac, 1 + n%3
	}
	return netip.AddrFrom4([4]byte{10, 100, byte(n / 250), byte(2 + n%250)}), mac, 1 + n%3
}

// byMany is r1's route to a prefix by so many of the members, from one of them on.
func (l *lab) byMany(family, device, from, n int) {
	l.Helper()
	prefix := netip.MustParsePrefix(map[int]string{4: "20.1.0.0/16", 6: "2001:db9:1::/48"}[family])
	var paths []byte
	for i := range n {
		gateway, _, weight := member(family, (from+i)%members)
		paths = binary.NativeEndian.AppendUint16(paths, uint16(8+4+gateway.BitLen()/8)) // struct rtnexthop
		paths = binary.NativeEndian.AppendUint32(append(paths, 0, byte(weight-1)), uint32(device))
		paths = binary.NativeEndian.AppendUint16(paths, uint16(4+gateway.BitLen()/8))
		paths = append(binary.NativeEndian.AppendUint16(paths, unix.RTA_GATEWAY), gateway.AsSlice()...)
	}
	var b linux.Batch
	b.Request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	b.Raw([]byte{map[int]byte{4: unix.AF_INET, 6: unix.AF_INET6}[family], byte(prefix.Bits()), 0, 0, unix.RT_TABLE_MAIN,
		unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0})
	b.Attr(unix.RTA_DST, prefix.Addr().AsSlice())
	b.Attr(unix.RTA_MULTIPATH, paths)
	if err := l.driver.Enter(id("r1"), func() error {
		c, err := linux.DialRtnetlink()
		if err != nil {
			return err
		}
		defer c.Close()
		return errors.Join(c.Do(&b)...)
	}); err != nil {
		l.Errorf("a route by %d next hops: %v", n, err)
	}
}

// spreading is packets of as many flows, to addresses behind the members, counted by whom they came for.
type spreading struct {
	l      *lab
	family int
	send   *net.UDPConn
	sent   int

	failed bool

	mu         sync.Mutex
	came       map[uint64]bool
	by         map[[6]byte]int
	duplicated int
}

func (l *lab) spreading(family int) *spreading {
	l.Helper()
	s := &spreading{l: l, family: family, came: map[uint64]bool{}, by: map[[6]byte]int{}}
	if err := l.driver.Enter(id("h1"),
		func() (err error) { s.send, err = net.ListenUDP("udp", nil); return err }); err != nil {
		l.Fatal(err)
	}
	kind, head := uint16(unix.ETH_P_IP), 14+20+8
	if family == 6 {
		kind, head = unix.ETH_P_IPV6, 14+40+8
	}
	var fd int
	if err := l.driver.Enter(id("h2"), func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(kind<<8|kind>>8)); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	}); err != nil {
		l.Fatal(err)
	}
	ended, done := make(chan struct{}), make(chan struct{})
	l.Cleanup(func() { close(ended); <-done; unix.Close(fd); s.send.Close() })
	go func() {
		defer close(done)
		frame := make([]byte, 2048)
		for {
			select {
			case <-ended:
				return
			default:
			}
			n, err := unix.Read(fd, frame)
			if err != nil || n < head+16 || string(frame[head+8:head+16]) != "ecmpecmp" {
				continue
			}
			s.mu.Lock()
			number := binary.BigEndian.Uint64(frame[head:])
			if s.came[number] {
				s.duplicated++
			}
			s.came[number] = true
			s.by[[6]byte(frame[:6])]++
			s.mu.Unlock()
		}
	}()
	return s
}

// run sends n packets, burst by burst, each burst when the one before has come.
func (s *spreading) run(n int) {
	s.l.Helper()
	if s.failed {
		return // what is lost stays lost
	}
	packet := append(make([]byte, 8), "ecmpecmp"...)
	for end := s.sent + n; s.sent < end; {
		for range min(256, end-s.sent) {
			to := netip.AddrFrom4([4]byte{20, 1, byte(rand.Uint32()), byte(rand.Uint32())})
			if s.family == 6 {
				raw := netip.MustParseAddr("2001:db9:1::").As16()
				binary.BigEndian.PutUint64(raw[8:], rand.Uint64())
				to = netip.AddrFrom16(raw)
			}
			binary.BigEndian.PutUint64(packet, uint64(s.sent))
			if _, err := s.send.WriteToUDPAddrPort(packet,
				netip.AddrPortFrom(to, uint16(1024+rand.IntN(60000)))); err != nil {
				s.l.Error(err)
				return
			}
			s.sent++
		}
		for patience := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Microsecond) {
			s.mu.Lock()
			came := len(s.came)
			s.mu.Unlock()
			if came == s.sent {
				break
			}
			if time.Now().After(patience) {
				s.l.Errorf("IPv%d: of %d packets, %d came", s.family, s.sent, came)
				s.failed = true
				return
			}
		}
	}
}

// TestManyNextHopsForwarded sends packets by routes with more next hops than a group of the kernel's has by ip(8),
// through the data path: each next hop gets its share by weight; and while the routes change, to fewer, to others, to
// more than the data path has room for and back, no packet is lost and none comes twice.
func TestManyNextHopsForwarded(t *testing.T) {
	attack.Tell(t, "routes with up to 600 next hops, which change while packets go by them",
		"no packet is lost or comes twice")
	l := newChain(t, 1)
	var device int
	out := l.in("r1", "cat /sys/class/net/h2/ifindex 2>/dev/null || ip -o link show dev h2 | cut -d: -f1")
	if _, err := fmt.Sscan(out, &device); err != nil {
		t.Fatal(out)
	}
	var commands strings.Builder
	fmt.Fprintln(&commands, "addr add 10.100.0.1/16 dev h2")
	for i := range members {
		for _, family := range []int{4, 6} {
			gateway, mac, _ := member(family, i)
			fmt.Fprintf(&commands, "neigh replace %s lladdr %s dev h2\n", gateway, net.HardwareAddr(mac[:]))
		}
	}
	batch := exec.Command("nsenter", "--net="+l.dirs.Namespace(id("r1")), "ip", "-batch", "-")
	batch.Stdin = strings.NewReader(commands.String())
	if out, err := batch.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l.slice = model.Slice{}
	l.prepare("r1")
	for _, family := range []int{4, 6} {
		l.byMany(family, device, 0, 2)
		s := l.spreading(family)
		fast := func() uint64 { return l.forwarded("r1").Packets }
		follows := func(n int) {
			t.Helper()
			l.await(fmt.Sprintf("the data path to forward by %d next hops", n), func() bool {
				before := fast()
				s.run(64)
				return fast()-before >= 64
			})
		}
		follows(2)
		for _, n := range []int{126, 500} {
			l.byMany(family, device, 0, n)
			follows(n)
			// The last of them gets packets: the route is there whole.
			_, last, _ := member(family, n-1)
			l.await("the last next hop to get packets", func() bool {
				s.run(1000)
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.by[last] > 0
			})
			s.mu.Lock()
			clear(s.by)
			s.mu.Unlock()
			weights := 0
			for i := range n {
				_, _, w := member(family, i)
				weights += w
			}
			const each = 60
			before := fast()
			s.run(each * weights)
			if got := fast() - before; got < uint64(each*weights) {
				t.Errorf("IPv%d: of %d packets by %d next hops the data path forwarded %d", family,
					each*weights, n, got)
			}
			s.mu.Lock()
			lowest, highest := 10.0, 0.0
			for i := range n {
				_, mac, w := member(family, i)
				share := float64(s.by[mac]) / float64(each*w)
				lowest, highest = min(lowest, share), max(highest, share)
			}
			if len(s.by) != n {
				t.Errorf("IPv%d: packets came for %d next hops, want %d", family, len(s.by), n)
			}
			s.mu.Unlock()
			t.Logf("IPv%d, %d next hops: each got %.2f to %.2f of its share of %d packets", family, n, lowest,
				highest, each*weights)
			if lowest < 0.4 || highest > 2 { // chance, and 4,096 buckets, make it differ
				t.Errorf("IPv%d, %d next hops: each got %.2f to %.2f of its share", family, n, lowest, highest)
			}
		}
		began, before := s.sent, fast()
		changes, changed := 0, make(chan struct{})
		go func() {
			defer close(changed)
			for range 2 {
				for _, n := range []int{500, 130, 256, members, 126, 2, 512} {
					time.Sleep(20 * time.Millisecond)
					l.byMany(family, device, changes*37%members, n)
					changes++
				}
			}
		}()
		for flowing := true; flowing; {
			select {
			case <-changed:
				flowing = false
			default:
			}
			s.run(1000)
		}
		if s.duplicated != 0 {
			t.Errorf("IPv%d: %d packets came twice", family, s.duplicated)
		}
		t.Logf("IPv%d: %d changes of the route, %d packets meanwhile, %d of them by the data path", family, changes,
			s.sent-began, fast()-before)
		l.byMany(family, device, 0, 126)
		follows(126)
	}
}
