package edge

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// sight is what was seen of the machine: the devices and addresses by which it reaches the world, and all that it has.
type sight struct {
	uplinks   [2]uplink // IPv4's and IPv6's
	addresses []netip.Addr
	nodes     []netip.Addr // other nodes' addresses in the underlay, where it is the machine's network
	// low and high are the ports that the outlet speaks from; zero while it has none.
	low, high int
}

// uplink is where packets of one address family leave to the world. Its address is invalid if there is no uplink.
type uplink struct {
	index   int
	name    string
	address netip.Addr
	mtu     int
	reason  string // why there is none, in words
}

// equal tells whether everything that edges depend on is the same.
func (s *sight) equal(o *sight) bool {
	return s.uplinks == o.uplinks && slices.Equal(s.addresses, o.addresses)
}

// warning says why edges lead nowhere; it is empty when they lead somewhere.
func (s *sight) warning() string {
	for _, u := range s.uplinks {
		if u.address.IsValid() {
			return ""
		}
	}
	return "internet edges lead nowhere: " + s.uplinks[0].reason
}

// mtu is the MTU for packets that leave, in bytes.
func (s *sight) mtu() int {
	m := 1500
	for _, u := range s.uplinks {
		if u.address.IsValid() {
			m = min(m, u.mtu)
		}
	}
	return max(m, 1280) // RFC 8200
}

// Addresses that belong to nobody, since they are for documentation (RFC 5737, RFC 3849). The way to them is the way to
// the world. Nothing is sent to them.
var world = [2]netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1")}

// look looks at the machine.
func (d *Driver) look() (sight, error) {
	var s sight
	for i, to := range world {
		s.uplinks[i] = d.uplink(to)
	}
	list, err := d.machine.h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return s, fmt.Errorf("list the machine's addresses: %w", err)
	}
	for _, a := range list {
		if p := prefixOf(a.IPNet); !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() &&
			!slices.Contains(s.addresses, p.Addr()) {
			s.addresses = append(s.addresses, p.Addr())
		}
	}
	slices.SortFunc(s.addresses, netip.Addr.Compare)
	return s, nil
}

// uplink finds by which device and from which address the machine reaches the world.
func (d *Driver) uplink(to netip.Addr) uplink {
	none := func(format string, a ...any) uplink { return uplink{reason: fmt.Sprintf(format, a...)} }
	routes, err := d.machine.h.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return none("the machine has no default route")
	}
	link, err := d.machine.h.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return none("the machine has no default route")
	}
	at := link.Attrs()
	source, _ := netip.AddrFromSlice(routes[0].Src)
	switch source = source.Unmap(); {
	case at.Flags&net.FlagLoopback != 0:
		return none("the machine has no default route")
	case at.EncapType != "ether":
		return none("the machine's uplink %s is no Ethernet device (%s)", at.Name, at.EncapType)
	case !source.IsValid() || source.IsLinkLocalUnicast() || source.Is4() != to.Is4():
		return none("the machine has no address on its uplink %s", at.Name)
	}
	return uplink{index: at.Index, name: at.Name, address: source, mtu: at.MTU}
}

// The ports that outlets speak from. Each instance on the machine has a block of its own, above the ports that the
// machine's own connections take: else an answer could be for either.
const (
	firstBlock = 61000
	blockPorts = 1024
	blocks     = 4
)

// choosePorts finds a block of ports that neither the machine's own connections nor another instance's outlet uses.
func (d *Driver) choosePorts() (low, high int, err error) {
	var from, to int
	err = linux.Inside(d.machine.fd, func() error {
		b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
		if err == nil {
			_, err = fmt.Sscan(string(b), &from, &to)
		}
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("read the range of the machine's own ports: %w", err)
	}
	links, err := linux.Whole(d.machine.h.LinkList)
	if err != nil {
		return 0, 0, fmt.Errorf("list the machine's devices: %w", err)
	}
	taken := map[int]bool{}
	for _, l := range links {
		if n, _, ok := portsOf(l.Attrs().Alias); ok {
			taken[n] = true
		}
	}
	for i := range blocks {
		low = firstBlock + i*blockPorts
		high = low + blockPorts - 1
		if !taken[low] && (high < from || low > to) {
			return low, high, nil
		}
	}
	if len(taken) == blocks {
		return 0, 0, fmt.Errorf("%d other instances on this machine have internet edges, which is as many as there "+
			"is room for", blocks)
	}
	return 0, 0, fmt.Errorf("the machine's own connections may use the ports %d to %d (net.ipv4.ip_local_port_range), "+
		"and leave none of the blocks of %d from %d on: lower the upper end to 60999", from, to, blockPorts, firstBlock)
}

// portsOf reads the ports from the alias of an outlet's device: "polyplane NAME outlet: ports 61000-62023".
func portsOf(alias string) (low, high int, ok bool) {
	_, text, ok := strings.Cut(alias, " outlet: ports ")
	if !ok || !strings.HasPrefix(alias, "polyplane ") {
		return 0, 0, false
	}
	n, err := fmt.Sscanf(text, "%d-%d", &low, &high)
	return low, high, n == 2 && err == nil
}
