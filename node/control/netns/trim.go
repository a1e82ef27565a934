package netns

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// An element's root can fill the kernel's tables of neighbours and of tracked connections. The kernel charges that
// memory to nobody, and its limit per namespace is large (connections) or missing (permanent neighbours). So when all
// namespaces of the machine together have more entries than one element may have, the driver looks at the elements. One
// that has too much loses all entries that the file does not make known.

// trimTime bounds how long one Trim looks for elements that have too much. A namespace with a full table takes some 20
// ms.
const trimTime = 50 * time.Millisecond

var _ control.Trimmer = (*Driver)(nil)

// slabEvery is how many Trims share one look at /proc/slabinfo, as long as less than half of what one element may have
// is tracked. The look makes the kernel walk over all of its caches.
const slabEvery = 5

// census counts the entries of the machine's tables.
type census struct {
	empty *linux.Rtnetlink // a socket in a namespace without devices; opened when it is needed
	at    int              // the element that was looked at last
	rest  int              // how many Trims are left until tracked connections are looked at again
}

// Trim is control.Trimmer's.
func (d *Driver) Trim(ctx context.Context) ([]control.Trimmed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known, least := 0, model.Limits{Neighbours: model.MaxNeighbours, Connections: model.MaxConnections}
	ids := make([]model.ID, 0, len(d.elements))
	for id, e := range d.elements {
		if e.want == nil || e.fd < 0 {
			continue
		}
		l := e.job.Element.Limits()
		least.Neighbours, least.Connections = min(least.Neighbours, l.Neighbours), min(least.Connections, l.Connections)
		for ifc := range e.want.devices() {
			known += len(ifc.neighbours)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	slices.SortFunc(ids, compareIDs)
	trimmed, err := d.trimSockets(ids)
	if err != nil {
		return trimmed, err
	}
	neighbours, err := d.census.neighbours()
	if err != nil {
		return trimmed, err
	}
	look := tables{neighbours: neighbours-known > least.Neighbours}
	look.connections = d.census.connections(least.Connections)
	if !look.neighbours && !look.connections {
		return trimmed, nil
	}
	err = onThread(func() (err error) {
		if look.proc, err = newProcfs(); err != nil {
			return err
		}
		defer look.proc.close()
		for n, began := 0, time.Now(); n < len(ids) && (n == 0 || time.Since(began) < trimTime) &&
			ctx.Err() == nil; n++ {
			d.census.at++
			id := ids[d.census.at%len(ids)]
			found, err := d.trim(d.elements[id], look)
			if err != nil {
				return fmt.Errorf("look at the kernel's tables of element %s: %w", id, err)
			}
			for i := range found {
				found[i].ID = id
			}
			trimmed = append(trimmed, found...)
		}
		return nil
	})
	return trimmed, err
}

// tables says which are to be looked at.
type tables struct {
	neighbours, connections bool
	proc                    *procfs
}

// trim looks at one element. The calling thread stays in its namespace.
func (d *Driver) trim(e *element, look tables) (trimmed []control.Trimmed, err error) {
	if err := unix.Setns(e.fd, unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	limits := e.job.Element.Limits()
	if look.connections {
		n, err := look.proc.connectionsHere()
		if err != nil {
			return nil, err
		}
		if n > limits.Connections {
			if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
				return nil, fmt.Errorf("forget its tracked connections: %w", err)
			}
			trimmed = append(trimmed, control.Trimmed{Table: control.Connections, Had: n, Limit: limits.Connections})
		}
	}
	if !look.neighbours {
		return trimmed, nil
	}
	c, err := linux.DialRtnetlink()
	if err != nil {
		return trimmed, err
	}
	defer c.Close()
	n, err := trimNeighbours(c, e.want, limits.Neighbours)
	if n > limits.Neighbours {
		trimmed = append(trimmed, control.Trimmed{Table: control.Neighbours, Had: n, Limit: limits.Neighbours})
	}
	return trimmed, err
}

// trimNeighbours counts the neighbours that are not wanted, and removes them if there are more than most.
func trimNeighbours(c *linux.Rtnetlink, w *want, most int) (int, error) {
	links, err := readLinks(c, w)
	if err != nil {
		return 0, err
	}
	in := inside{links: links}
	wanted := in.wantedNeighbours(w)
	var others []neighbourKey
	err = linux.Undisturbed(func() error {
		others = others[:0]
		var b linux.Batch
		b.Request(unix.RTM_GETNEIGH, 0)
		b.Raw(neighbourMessage(neighbourKey{}.to, 0, 0, 0))
		return c.Dump(&b, func(kind uint16, p []byte) error {
			if kind == unix.RTM_NEWNEIGH && len(p) >= unix.SizeofNdMsg {
				if key, _ := parseNeighbour(p); !wanted[key] && key.to.IsValid() {
					others = append(others, key)
				}
			}
			return nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("read the neighbours: %w", err)
	}
	if len(others) <= most {
		return len(others), nil
	}
	var b linux.Batch
	for chunk := range slices.Chunk(others, 4096) {
		b.Reset()
		for _, key := range chunk {
			b.Request(unix.RTM_DELNEIGH, 0)
			b.Raw(neighbourMessage(key.to, key.index, 0, 0))
			b.Attr(unix.NDA_DST, key.to.AsSlice())
		}
		c.Do(&b) // some may have vanished by themselves; what comes back is found by the next look
	}
	return len(others), nil
}

// neighbours counts those of the whole machine: all namespaces share the tables.
func (n *census) neighbours() (int, error) {
	sum := 0
	for _, table := range []string{"arp_cache", "ndisc_cache"} {
		entries, ok := tableEntries("/proc/1/net/stat/" + table)
		if !ok {
			return n.askNeighbours()
		}
		sum += entries
	}
	return sum, nil
}

// tableEntries reads how many entries a neighbour table has: the first column of the first processor's line, in
// hexadecimal (net/core/neighbour.c, neigh_stat_seq_show). Only the machine's first network namespace has these files.
func tableEntries(path string) (int, bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	var buf [512]byte // the title and the beginning of the first line
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return 0, false
	}
	title, line, _ := bytes.Cut(buf[:n], []byte("\n"))
	entries, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(rest) == 0 || !bytes.HasPrefix(title, []byte("entries ")) {
		return 0, false
	}
	count, err := strconv.ParseUint(string(entries), 16, 31)
	return int(count), err == nil
}

// askNeighbours asks for the tables' parameters, which contain the counts (neightbl_fill_info: ndtc_entries). The
// kernel walks over the parameters of all devices of all namespaces, which takes a millisecond with thousands of them.
// But it returns only those of the asking namespace. So a namespace without devices asks.
func (n *census) askNeighbours() (int, error) {
	if n.empty == nil {
		err := onThread(func() (err error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			n.empty, err = linux.DialRtnetlink()
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("make a namespace to count neighbours from: %w", err)
		}
	}
	sum := 0
	err := linux.Undisturbed(func() error {
		sum = 0
		var b linux.Batch
		b.Request(unix.RTM_GETNEIGHTBL, 0)
		b.Raw(make([]byte, 4)) // struct ndtmsg
		return n.empty.Dump(&b, func(_ uint16, p []byte) error {
			if len(p) < 4 {
				return nil
			}
			for kind, v := range linux.Attrs(p[4:]) {
				if kind == ndtaConfig && len(v) >= ndtConfigEntries+4 {
					sum += int(binary.NativeEndian.Uint32(v[ndtConfigEntries:]))
				}
			}
			return nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("count the neighbours of the machine: %w", err)
	}
	return sum, nil
}

// connections returns whether more connections are tracked on the machine than one element may have.
func (n *census) connections(most int) bool {
	if n.rest--; n.rest > 0 {
		return false
	}
	tracked := trackedConnections()
	n.rest = 0
	if tracked < most/2 {
		n.rest = slabEvery
	}
	return tracked > most
}

func (n *census) close() {
	if n.empty != nil {
		n.empty.Close()
	}
}

// Of linux/neighbour.h.
const (
	ndtaConfig       = 5 // NDTA_CONFIG, a struct ndt_config
	ndtConfigEntries = 4 // where its ndtc_entries is, a uint32
)

// trackedConnections counts those of the whole machine by the kernel's own account of its memory (slabinfo(5)). If that
// cannot be read, it returns more than any element may have.
func trackedConnections() int {
	data, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		return model.MaxConnections + 1
	}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("nf_conntrack ")); ok {
			fields := bytes.Fields(rest)
			if len(fields) == 0 {
				return model.MaxConnections + 1
			}
			if n, err := strconv.Atoi(string(fields[0])); err == nil {
				return n
			}
			return model.MaxConnections + 1
		}
	}
	return 0 // nothing in the kernel tracks
}

// connectionsHere counts those of the calling thread's namespace; zero where the kernel tracks none.
func (p *procfs) connectionsHere() (int, error) {
	fd, err := unix.Openat(p.fd, "sys/net/netfilter/nf_conntrack_count", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return 0, nil
	}
	var buf [32]byte
	n := 0
	if err == nil {
		n, err = unix.Read(fd, buf[:])
		unix.Close(fd)
	}
	if err == nil {
		n, err = strconv.Atoi(string(bytes.TrimSpace(buf[:n])))
	}
	if err != nil {
		return 0, fmt.Errorf("read how many connections it tracks: %w", err)
	}
	return n, nil
}
