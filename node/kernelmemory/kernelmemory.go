// Package kernelmemory bounds what elements put into tables of the kernel that it charges to nobody – next-hop objects,
// forwarding entries of bridges and tunnels, proxy neighbours, traffic control, multicast addresses, address labels,
// exceptions of routes –, what their raw, packet and netlink sockets buffer, and how many network devices they make.
//
// To read the tables of a thousand namespaces takes a third of a second. So nobody's are read before the kernel's own
// account of its memory, three lines of /proc/meminfo, has grown by more than can be overlooked.
package kernelmemory

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// Table is one of those that are bounded, as people read it.
type Table string

const (
	NextHops       Table = "next-hop objects"
	Proxies        Table = "proxy neighbours"
	Forwarding     Table = "forwarding entries of bridges, tunnels and devices"
	TrafficControl Table = "queueing disciplines, classes, filters and actions"
	Multicast      Table = "multicast addresses of devices"
	AddressLabels  Table = "address labels"
	Devices        Table = "network devices of its own"
	Exceptions     Table = "exceptions of routes"
	Buffers        Table = "buffers of raw, packet and netlink sockets"
)

// Element is what is to be known of one.
type Element struct {
	Path    string // where its network namespace is mounted
	Ports   []int  // the indices, on the node, of its links' other ends
	Memory  int64  // that it may have
	Devices int    // that it may have beside the ends of its links
}

// What an element may have of each of them.
const (
	// tablePart is the part of its memory that the entries of one table may take beside it.
	tablePart = 16
	// bufferPart is the same of what its sockets buffer.
	bufferPart = 2
)

// limit is in bytes, of devices their number.
func (e *Element) limit(t Table) int64 {
	switch t {
	case Devices:
		return int64(e.Devices)
	case Buffers:
		return e.Memory / bufferPart
	}
	return e.Memory / tablePart
}

// Verdict is what was taken from an element that had too much.
type Verdict[ID comparable] struct {
	ID      ID
	Table   Table
	Removed int   // entries, devices, or processes whose sockets buffered too much
	Limit   int64 // as limit says
	Err     error
}

// unmovable is how much memory the kernel has for itself that it cannot give back, in bytes: of its object caches, by
// pages, and for processors. What is charged to somebody is in it, too.
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
