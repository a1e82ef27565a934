package substrate

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
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
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
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

func firstAddress(link netlink.Link) netip.Addr {
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
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

// neighbourLimits are the host-wide limits of the kernel's neighbour tables: below the first nothing is collected, the
// third is never exceeded. The defaults (128, 512, 1024) are for one host, not for thousands of routers in one kernel.
var neighbourLimits = []struct {
	name  string
	value uint64
}{{"gc_thresh3", 262144}, {"gc_thresh2", 131072}, {"gc_thresh1", 65536}}

// PrepareHost raises those limits of the host that many networks in one kernel run into; nothing is ever lowered. It
// must run in the host's own network namespace. The changes are returned in words.
func PrepareHost() ([]string, error) {
	var changed []string
	for _, family := range []string{"ipv4", "ipv6"} {
		for _, l := range neighbourLimits {
			path := filepath.Join("/proc/sys/net", family, "neigh/default", l.name)
			b, err := os.ReadFile(path)
			if os.IsNotExist(err) {
				continue // no IPv6, or inside a container's network namespace, where the host's limits count
			}
			if err != nil {
				return changed, err
			}
			now, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
			if err != nil {
				return changed, fmt.Errorf("%s: %w", path, err)
			}
			if now >= l.value {
				continue
			}
			if err := os.WriteFile(path, strconv.AppendUint(nil, l.value, 10), 0); err != nil {
				return changed, fmt.Errorf("raise the limit of the neighbour tables: %w", err)
			}
			changed = append(changed, fmt.Sprintf("net.%s.neigh.default.%s %d → %d", family, l.name, now, l.value))
		}
	}
	return changed, nil
}

// IsNamespace tells whether a network namespace is mounted at path.
func IsNamespace(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}
