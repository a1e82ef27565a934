package feed_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// TestManyNextHops has routes with more next hops than ip(8) can ask for, and than a group here holds: the fast path
// has all of them, each with its own MAC address, or leaves the packets to the kernel; and it has them again when they
// become few.
func TestManyNextHops(t *testing.T) {
	t.Parallel()
	l := newRouter(t)
	l.start(mirror.Options{NoLooks: true}, fib.Quota{}, 400)
	l.waitSynced()
	// hop is the nth address of many on a link.
	hop := func(family, n int) string {
		if family == 6 {
			return fmt.Sprintf("2001:db8:%d::%x", 1+n%2, 0x100+n)
		}
		return fmt.Sprintf("10.%d.%d.%d", 100+n%2, n/200, 2+n%200)
	}
	const most = 600
	prefixes := map[int]string{4: "20.1.0.0/16", 6: "2001:db9:1::/48"}
	objects := []string{"addr add 10.101.0.1/16 dev e2", "addr add 10.100.0.1/16 dev e1"}
	for i := range most {
		for family, base := range map[int]int{4: 1, 6: 1001} {
			objects = append(objects, fmt.Sprintf("neigh replace %s lladdr 02:00:00:%02x:%02x:%02x dev e%d",
				hop(family, i), family, i>>8, i&255, 1+i%2),
				fmt.Sprintf("nexthop replace id %d via %s dev e%d", base+i, hop(family, i), 1+i%2))
		}
	}
	ip(t, l.router, false, objects...)
	device := func(n int) int {
		for index, name := range l.index {
			if name == fmt.Sprintf("e%d", n) {
				return index
			}
		}
		return 0
	}
	step := 0
	for _, way := range []string{"multipath", "objects"} {
		for _, n := range []int{1, 125, 256, 300, 500, 600, 2} {
			var b linux.Batch
			for family, base := range map[int]int{4: 1, 6: 1001} {
				var paths, members []byte
				for i := range n {
					gateway := netip.MustParseAddr(hop(family, i)).AsSlice()
					paths = binary.NativeEndian.AppendUint16(paths, uint16(8+4+len(gateway))) // struct rtnexthop
					paths = binary.NativeEndian.AppendUint32(append(paths, 0, byte(i%3)), uint32(device(1+i%2)))
					paths = binary.NativeEndian.AppendUint16(paths, uint16(4+len(gateway)))
					paths = append(binary.NativeEndian.AppendUint16(paths, unix.RTA_GATEWAY), gateway...)
					// struct nexthop_grp
					members = append(binary.NativeEndian.AppendUint32(members, uint32(base+i)), byte(i%3), 0, 0, 0)
				}
				if way == "objects" {
					b.Request(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
					b.Raw(make([]byte, 8)) // struct nhmsg
					b.Uint32(1, uint32(9000+family))
					b.Attr(2, members)
				}
				prefix := netip.MustParsePrefix(prefixes[family])
				b.Request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
				b.Raw([]byte{map[int]byte{4: unix.AF_INET, 6: unix.AF_INET6}[family], byte(prefix.Bits()), 0,
					0, unix.RT_TABLE_MAIN,
					unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0})
				b.Attr(unix.RTA_DST, prefix.Addr().AsSlice())
				if way == "objects" {
					b.Uint32(30, uint32(9000+family)) // RTA_NH_ID
				} else {
					b.Attr(unix.RTA_MULTIPATH, paths)
				}
			}
			in(t, l.router, func() error {
				c, err := linux.DialRtnetlink()
				if err != nil {
					return err
				}
				defer c.Close()
				return errors.Join(c.Do(&b)...)
			})
			l.settled(step)
			step++
			for family, address := range map[int]string{4: "20.1.0.1", 6: "2001:db9:1::1"} {
				want := map[string]bool{}
				for i := range n {
					want[fmt.Sprintf("%d 020000%02x%04x", device(1+i%2), family, i)] = true
				}
				var got []string
				l.wait(fmt.Sprintf("the fast path has %d next hops by %s, or leaves them to the kernel",
					n, way), func() bool {
					got = l.fastAnswer(netip.MustParseAddr(address)).ways
					if len(got) == 1 && got[0] == "punt" {
						return n > fib.MaxMembers
					}
					for _, w := range got {
						if to, _, _ := strings.Cut(w, " from"); !want[to] {
							return false
						}
					}
					return len(got) == n
				})
				t.Logf("IPv%d: %d next hops by %s: %d ways (%s …)", family, n, way, len(got), got[0])
			}
		}
	}
}
