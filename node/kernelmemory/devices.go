package kernelmemory

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// device is a network device of a namespace.
type device struct {
	index   int
	port    bool // an end of one of the element's links
	tunnel  bool // packets that it sends may create exceptions of routes
	guard   bool // WireGuard's
	vxlan   bool
	bridge  bool
	hosts   int64 // of which a bridge knows, of this port, what groups they are in
	queue   int64 // how many packets it may have waiting
	filters bool  // by VLAN
	mac     [6]byte
}

// Of linux/if_link.h.
const (
	iflaLinkNetNSID = 37
	iflaExtMask     = 29
	skipStatistics  = 1 << 3
	ofPort          = 5  // IFLA_INFO_SLAVE_DATA
	portHosts       = 38 // IFLA_BRPORT_MCAST_EHT_HOSTS_CNT
)

// links are all but lo.
func (s *space) links() (all []device, err error) {
	var b linux.Batch
	b.Request(unix.RTM_GETLINK, 0)
	b.Link(0, 0, 0)
	b.Uint32(iflaExtMask, skipStatistics)
	err = s.dump(&b, func(p []byte) error {
		if len(p) < unix.SizeofIfInfomsg || binary.NativeEndian.Uint16(p[2:]) == unix.ARPHRD_LOOPBACK {
			return nil
		}
		d := device{index: int(int32(binary.NativeEndian.Uint32(p[4:])))}
		peer, outside := 0, false
		for kind, v := range linux.Attrs(p[unix.SizeofIfInfomsg:]) {
			switch {
			case kind == unix.IFLA_ADDRESS && len(v) == 6:
				d.mac = [6]byte(v)
			case kind == unix.IFLA_LINK && len(v) >= 4:
				peer = int(binary.NativeEndian.Uint32(v))
			case kind == iflaLinkNetNSID:
				outside = true
			case kind == unix.IFLA_TXQLEN && len(v) >= 4:
				d.queue = int64(binary.NativeEndian.Uint32(v))
			case kind == unix.IFLA_LINKINFO:
				kind := kindOf(v)
				d.tunnel, d.bridge, d.guard = isTunnel(v), kind == "bridge", kind == "wireguard"
				d.vxlan = kind == "vxlan"
				d.filters = d.bridge && filtersByVLAN(v)
				d.hosts = hostsOf(v)
			}
		}
		d.port = outside && (len(s.ports) == 0 || slices.Contains(s.ports, peer))
		all = append(all, d)
		return nil
	})
	return all, err
}

// hostsOf decides by an IFLA_LINKINFO. Ports of other devices than bridges have other attributes, no number as high.
func hostsOf(info []byte) int64 {
	for kind, v := range linux.Attrs(info) {
		if kind != ofPort {
			continue
		}
		for kind, v := range linux.Attrs(v) {
			if kind == portHosts && len(v) == 4 {
				return int64(binary.NativeEndian.Uint32(v))
			}
		}
	}
	return 0
}

// foreign returns the devices that somebody in the element made.
func foreign(all []device) []device {
	return slices.DeleteFunc(slices.Clone(all), func(d device) bool { return d.port })
}

// trimDevices removes the latest of the devices that somebody made, if there are more than most.
func (s *space) trimDevices(most int, until time.Time) (removed int, left bool, err error) {
	all, err := s.links()
	if err != nil {
		return 0, false, fmt.Errorf("read its network devices: %w", err)
	}
	own := foreign(all)
	if len(own) <= most {
		return 0, false, nil
	}
	slices.SortFunc(own, func(a, b device) int { return a.index - b.index })
	// In small batches: the kernel waits a little for each device, and others wait for the kernel.
	for piece := range slices.Chunk(own[most:], 64) {
		if time.Now().After(until) {
			return removed, true, nil
		}
		var b linux.Batch
		for _, d := range piece {
			b.Request(unix.RTM_DELLINK, 0)
			b.Link(d.index, 0, 0)
		}
		gone := len(piece)
		for _, failed := range s.c.Do(&b) {
			if failed != nil {
				if gone--; !errors.Is(failed, unix.ENODEV) {
					err = failed
				}
			}
		}
		removed += gone
	}
	if removed == 0 && err != nil {
		return 0, true, fmt.Errorf("remove its network devices: %w", err)
	}
	return removed, false, nil
}

// mostGroups bounds how many multicast addresses one reading remembers. For a reading, the kernel writes down all
// addresses of a device.
const mostGroups = 1 << 18

// groups are the multicast addresses of a namespace's devices.
type groups struct {
	bytes  int64
	joined int     // by sockets, or the kernel
	set    []group // by hand
}

// group is an address that one can remove again by itself: no socket has joined it.
type group struct {
	device  string
	address []byte
}

// readGroups reads until there are more bytes than most. It remembers only some of the addresses that were set by hand.
// The calling thread must be in the namespace.
func readGroups(most int64) (g groups, err error) {
	f, err := os.Open("/proc/thread-self/net/dev_mcast")
	if err != nil {
		return g, fmt.Errorf("read its multicast addresses: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // index, name, users, whether it was set by hand, address
		if len(fields) != 5 {
			continue
		}
		g.bytes += groupBytes
		if address, err := hex.DecodeString(fields[4]); fields[3] == "0" || err != nil {
			g.joined++
		} else if len(g.set) < mostGroups {
			g.set = append(g.set, group{fields[1], address})
		}
		if g.bytes > most && len(g.set) >= mostGroups {
			break
		}
	}
	return g, nil
}

// drop removes an address that was set by hand. Netlink cannot do that (SIOCDELMULTI of netdevice(7)).
func (g *group) drop(socket int) error {
	var request struct {
		name    [unix.IFNAMSIZ]byte
		family  uint16
		address [14]byte
		_       [8]byte
	}
	copy(request.name[:unix.IFNAMSIZ-1], g.device)
	copy(request.address[:], g.address)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCDELMULTI,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}

// trimGroups removes all addresses that were set by hand if there are more bytes than most. The rest then belongs to
// sockets.
func (s *space) trimGroups(most int64, until time.Time) (removed int, joined bool, err error) {
	err = linux.Inside(s.fd, func() error {
		for {
			g, err := readGroups(most)
			if err != nil || g.bytes <= most && removed == 0 {
				return err
			}
			if joined = int64(g.joined)*groupBytes > most; len(g.set) == 0 || time.Now().After(until) {
				return nil
			}
			socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			gone := 0
			for i := range g.set {
				if g.set[i].drop(socket) == nil {
					gone++
				}
			}
			unix.Close(socket)
			if removed += gone; gone == 0 {
				return nil
			}
		}
	})
	return removed, joined, err
}
