package substrate

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/vishvananda/netlink"
)

// Machine is what this host is.
type Machine struct {
	Name    string // as a node: the host name's first label
	CPU     model.CPU
	Memory  model.Bytes
	Address netip.Addr // the one that leads out; invalid without a default route
	MTU     int        // of the device that leads out
}

// ThisMachine looks at the host.
func ThisMachine() (Machine, error) {
	m := Machine{Name: "host", CPU: model.CPU(runtime.NumCPU() * 1000), MTU: 1500}
	if h, err := os.Hostname(); err == nil {
		h, _, _ = strings.Cut(strings.ToLower(h), ".")
		if CheckName(h) == nil {
			m.Name = h
		}
	}
	var err error
	if m.Memory, err = memTotal(); err != nil {
		return m, err
	}
	routes, err := linux.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
	})
	if err != nil {
		return m, fmt.Errorf("read the host's default route: %w", err)
	}
	for _, r := range routes {
		link, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			continue
		}
		m.MTU = link.Attrs().MTU
		if r.Src != nil {
			m.Address, _ = netip.AddrFromSlice(r.Src.To4())
		} else {
			m.Address = firstAddress(link)
		}
		if m.Address.IsValid() {
			break
		}
	}
	return m, nil
}

// At is the machine as others reach it at one of its addresses.
func (m Machine) At(address netip.Addr) (Machine, error) {
	m.Address = address.Unmap()
	if !m.Address.Is4() || m.Address.IsLoopback() {
		return m, fmt.Errorf("%s is no address for other nodes to reach this machine at: an IPv4 address of one of "+
			"its devices was expected", address)
	}
	links, err := linux.Whole(netlink.LinkList)
	if err != nil {
		return m, fmt.Errorf("list the machine's devices: %w", err)
	}
	var there []string
	for _, link := range links {
		addrs, err := linux.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V4) })
		if err != nil {
			continue // it has gone meanwhile
		}
		for _, a := range addrs {
			ip, _ := netip.AddrFromSlice(a.IP.To4())
			if ip == m.Address {
				m.MTU = link.Attrs().MTU
				return m, nil
			}
			if !ip.IsLoopback() {
				there = append(there, ip.String())
			}
		}
	}
	return m, fmt.Errorf("%s is no address of this machine; it has %s", address,
		cmp.Or(strings.Join(there, ", "), "none"))
}

func firstAddress(link netlink.Link) netip.Addr {
	addrs, err := linux.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V4) })
	if err != nil {
		return netip.Addr{}
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(net.IP(a.IP).To4()); ok {
			return ip
		}
	}
	return netip.Addr{}
}

func memTotal() (model.Bytes, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseUint(fields[1], 10, 54)
			if err != nil {
				return 0, fmt.Errorf("/proc/meminfo: MemTotal: %w", err)
			}
			return model.Bytes(kib << 10), nil
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemTotal")
}

// IsNamespace tells whether a network namespace is mounted at path.
func IsNamespace(path string) bool { return linux.IsNamespace(path) }
