package kernelmemory

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// multicastRouting is the routing of multicast packets of an IP version, of linux/mroute.h and mroute6.h.
type multicastRouting struct {
	family   uint8  // RTNL_FAMILY_IPMR, RTNL_FAMILY_IP6MR
	proof    string // exists if the kernel has it
	domain   int
	protocol int
	level    int
}

var multicastRoutings = []multicastRouting{
	{128, "/proc/net/ip_mr_cache", unix.AF_INET, unix.IPPROTO_IGMP, unix.IPPROTO_IP},
	{129, "/proc/net/ip6_mr_cache", unix.AF_INET6, unix.IPPROTO_ICMPV6, unix.IPPROTO_IPV6},
}

const (
	multicastFlush   = 212   // MRT_FLUSH, MRT6_FLUSH
	multicastEntries = 1 | 2 // MRT_FLUSH_MFC, MRT_FLUSH_MFC_STATIC
)

// readMulticastRoutes reads the routes of multicast packets. Kernels without them would answer with all other routes.
func readMulticastRoutes(s *space, _ int, each visit) error {
	for _, m := range multicastRoutings {
		if _, err := os.Stat(m.proof); err != nil {
			continue
		}
		var b linux.Batch
		b.Request(unix.RTM_GETROUTE, 0)
		b.Raw(append([]byte{m.family}, make([]byte, unix.SizeofRtMsg-1)...))
		err := s.dump(&b, func(p []byte) error {
			if len(p) < unix.SizeofRtMsg || p[0] != m.family {
				return nil
			}
			return each(multicastRouteBytes, nil)
		})
		if err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// flushMulticastRoutes removes all of them at once. Netlink can remove those of IPv4 only. Programs that route
// multicast packets stay what they are, and are asked by the kernel again where the next packets have to go.
func flushMulticastRoutes(s *space) error {
	return linux.Inside(s.fd, func() error {
		for _, m := range multicastRoutings {
			if _, err := os.Stat(m.proof); err != nil {
				continue
			}
			socket, err := unix.Socket(m.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, m.protocol)
			if err != nil {
				return fmt.Errorf("make a socket: %w", err)
			}
			err = unix.SetsockoptInt(socket, m.level, multicastFlush, multicastEntries)
			unix.Close(socket)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
