// Package kernelmemory bounds memory of the kernel that is charged to nobody. It is about what elements put into the
// kernel's tables (next-hop objects, forwarding entries of bridges and tunnels, proxy neighbours, traffic control,
// multicast addresses, address labels, routes of MPLS labels and of multicast packets, multicast groups and VLANs of
// bridges, peers of WireGuard, sessions of L2TP, sets and counters of netfilter, encapsulations and exceptions of
// routes, routes that router advertisements make), what their raw, packet and netlink sockets buffer, and how many
// network devices they make. Reading the tables of a thousand namespaces takes a second. So nothing is read until the
// kernel's own account of its memory, three lines of /proc/meminfo, has grown by more than can be ignored.
package kernelmemory

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// Table is one of the bounded tables, in words for people.
type Table string

const (
	NextHops        Table = "next-hop objects"
	Proxies         Table = "proxy neighbours"
	Forwarding      Table = "forwarding entries of bridges, tunnels and devices"
	TrafficControl  Table = "queueing disciplines, classes, filters and actions"
	Multicast       Table = "multicast addresses of devices"
	AddressLabels   Table = "address labels"
	MPLSRoutes      Table = "routes of MPLS labels"
	MulticastRoutes Table = "routes of multicast packets"
	BridgeGroups    Table = "multicast groups of bridges"
	TunnelGroups    Table = "multicast groups of tunnels"
	BridgeVLANs     Table = "VLANs of bridges and their ports"
	Peers           Table = "peers of WireGuard"
	Sessions        Table = "sessions of L2TP"
	Parts           Table = "sets, counters and time limits of netfilter"
	PacketSets      Table = "elements that packets put into sets of nftables"
	Encapsulations  Table = "encapsulations of routes"
	Advertised      Table = "routes that router advertisements made"
	Devices         Table = "network devices of its own"
	Exceptions      Table = "exceptions of routes"
	Buffers         Table = "buffers of raw, packet and netlink sockets"
)

// Element is what is to be known of one.
type Element struct {
	Path    string // where its network namespace is mounted
	Ports   []int  // the indices, on the node, of the other ends of its links
	Memory  int64  // that it may have
	Devices int    // how many it may have beside the ends of its links
	VLANs   int    // of the ports of a bridge, that its network's file asks for
}

// What an element may have of each table.
const (
	// tablePart: the entries of one table may take this part of the element's memory, in addition to it.
	tablePart = 16
	// bufferPart: the same for what its sockets buffer.
	bufferPart = 2
)

// limit is in bytes; for devices it is their number.
func (e *Element) limit(t Table) int64 {
	switch t {
	case Devices:
		return int64(e.Devices)
	case Buffers:
		return e.Memory / bufferPart
	case Sessions:
		return min(e.Memory/tablePart, mostSessions*sessionBytes)
	case BridgeVLANs: // the bridge has each of them as well
		return e.Memory/tablePart + 2*int64(e.VLANs)*vlanSize.bytes()
	}
	return e.Memory / tablePart
}

// Verdict says what was taken from an element that had too much.
type Verdict[ID comparable] struct {
	ID      ID
	Table   Table
	Removed int   // entries, devices, or processes whose sockets buffered too much
	Limit   int64 // as limit says
	Err     error
}

// unmovable is the kernel's own memory that it cannot free, in bytes: object caches, page tables, and memory of
// processors. It includes memory that is charged to somebody.
func unmovable() (int64, error) {
	fd, err := unix.Open("/proc/meminfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("read how much memory the kernel has: %w", err)
	}
	defer unix.Close(fd)
	var buf [4096]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return 0, fmt.Errorf("read how much memory the kernel has: %w", err)
	}
	sum, found := int64(0), 0
	for line := range bytes.Lines(buf[:n]) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "SUnreclaim", "VmallocUsed", "Percpu":
			value, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
			kib, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/meminfo says %q", line)
			}
			sum, found = sum+kib<<10, found+1
		}
	}
	if found < 2 { // Percpu is younger than the others
		return 0, fmt.Errorf("/proc/meminfo tells nothing of the kernel's own memory")
	}
	return sum, nil
}
