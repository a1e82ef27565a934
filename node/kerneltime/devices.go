package kerneltime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Device is a network device inside an element.
type Device struct {
	Name    string
	Index   int
	Up      bool
	Port    bool // an end of one of the element's links; others were made by somebody in it, or by the kernel
	Packets uint64
	Outer   bool // an end of a link whose other end is on no element of this node
	// Received and Bytes count what came from outside by a port.
	Received, Bytes uint64
}

// iflaLinkNetNSID is IFLA_LINK_NETNSID of linux/if_link.h: the peer is in another namespace.
const iflaLinkNetNSID = 37

// in runs f with a route netlink socket of the namespace that is mounted at path.
func in(path string, f func(c *linux.Rtnetlink) error) error {
	fd, err := os.Open(path)
	if err != nil {
		return err
	}
	defer fd.Close()
	c, err := linux.DialRtnetlinkOf(int(fd.Fd()))
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// errUnknownEnds is returned for an element if the other ends of its ports are not known.
var errUnknownEnds = errors.New("the ends of its links are not known")

// here is the thread's network namespace. Only a goroutine that is locked to its thread and enters no other namespace
// may use it.
type here struct{ home *os.File }

func newHere() (here, error) {
	f, err := os.Open("/proc/thread-self/ns/net")
	return here{f}, err
}

// peek lists devices as devices does, but asks the kernel only for what it answers without its lock for changes of the
// network (RTNL). Others may hold that lock for seconds while they change much. It reads the list of counters
// (/proc/net/dev) and the indices' names, those of the ports and the given ones. It does not find out whether a device
// is up. The calling thread itself enters the namespace and comes back: a new thread would have to wait for a processor
// like everybody else.
func (h here) peek(e *Element, indices iter.Seq[int]) (all []Device, err error) {
	if len(e.Ports) == 0 || slices.Contains(e.Inner, 0) || len(e.Inner) != len(e.Ports) {
		return nil, errUnknownEnds
	}
	fd, err := os.Open(e.Path)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	if err := unix.Setns(int(fd.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter a network namespace: %w", err)
	}
	defer func() {
		if err := unix.Setns(int(h.home.Fd()), unix.CLONE_NEWNET); err != nil {
			// anything that follows would be done to an element
			panic(fmt.Sprintf("come back from a network namespace: %v", err))
		}
	}()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket to ask for devices: %w", err)
	}
	defer unix.Close(socket)
	names := func() map[string]int {
		found := map[string]int{}
		for _, index := range slices.Concat(e.Inner, []int{loopback}, slices.Collect(indices)) {
			if name := nameOf(socket, index); name != "" {
				found[name] = index
			}
		}
		return found
	}
	before := names()
	list, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return nil, fmt.Errorf("read the devices' counters: %w", err)
	}
	after := names()
	for line := range strings.Lines(string(list)) {
		d, ok := parseCounters(line)
		// A name that has moved from one device to another meanwhile is left out. Moving it gains nobody anything: it
		// turns no device into a port.
		if index := before[d.Name]; ok && index == after[d.Name] {
			d.Index = index
		}
		if !ok || d.Index == loopback {
			continue
		}
		if k := slices.Index(e.Inner, d.Index); k >= 0 {
			d.Port, d.Outer = true, slices.Contains(e.Outer, e.Ports[k])
		}
		all = append(all, d)
	}
	return all, nil
}

// loopback is the index of lo in every namespace.
const loopback = 1

// parseCounters reads a line of /proc/net/dev: "name: bytes packets errs drop fifo frame compressed multicast bytes
// packets …", what was received before what was sent (proc_pid_net(5)).
func parseCounters(line string) (d Device, ok bool) {
	name, rest, ok := strings.Cut(line, ":")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 10 {
		return d, false
	}
	var n [3]uint64
	for i, k := range []int{0, 1, 9} {
		var err error
		if n[i], err = strconv.ParseUint(fields[k], 10, 64); err != nil {
			return d, false
		}
	}
	return Device{Name: strings.TrimSpace(name), Bytes: n[0], Received: n[1], Packets: n[1] + n[2]}, true
}

// nameOf is the name of the device with an index, or empty (SIOCGIFNAME, netdevice(7)). In the opposite direction the
// kernel would load a module for a name that no device has.
func nameOf(socket, index int) string {
	var r struct {
		name  [unix.IFNAMSIZ]byte
		index int32
		_     [20]byte // struct ifreq of linux/if.h
	}
	r.index = int32(index)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCGIFNAME,
		uintptr(unsafe.Pointer(&r))); errno != 0 {
		return ""
	}
	return unix.ByteSliceToString(r.name[:])
}

// devices lists the devices of an element's namespace, except lo. If its ports are not known, every pair that leads out
// counts as one.
func devices(c *linux.Rtnetlink, e *Element) (all []Device, err error) {
	err = linux.Undisturbed(func() error {
		all = nil
		return c.Links(0, func(payload []byte) {
			if binary.NativeEndian.Uint16(payload[2:]) != unix.ARPHRD_LOOPBACK {
				all = append(all, parseDevice(payload, e))
			}
		})
	})
	if errors.Is(err, linux.ErrDumpInterrupted) {
		err = nil // somebody makes devices without end, and what was seen is enough
	}
	return all, err
}

func parseDevice(payload []byte, e *Element) Device {
	d := Device{Index: int(int32(binary.NativeEndian.Uint32(payload[4:]))),
		Up: binary.NativeEndian.Uint32(payload[8:])&unix.IFF_UP != 0}
	peer, outside := 0, false
	for kind, v := range linux.Attrs(payload[unix.SizeofIfInfomsg:]) {
		switch {
		case kind == unix.IFLA_IFNAME:
			d.Name = unix.ByteSliceToString(v)
		case kind == unix.IFLA_LINK && len(v) >= 4:
			peer = int(binary.NativeEndian.Uint32(v))
		case kind == iflaLinkNetNSID:
			outside = true
		case kind == unix.IFLA_STATS64 && len(v) >= 32: // struct rtnl_link_stats64: packets in, out, bytes in, out
			d.Received, d.Bytes = binary.NativeEndian.Uint64(v), binary.NativeEndian.Uint64(v[16:])
			d.Packets = d.Received + binary.NativeEndian.Uint64(v[8:])
		}
	}
	d.Port = outside && (len(e.Ports) == 0 || slices.Contains(e.Ports, peer))
	d.Outer = d.Port && slices.Contains(e.Outer, peer)
	return d
}

// remove removes devices. It takes down those that the kernel does not let go.
func remove(c *linux.Rtnetlink, all []Device) error {
	var b linux.Batch
	// A device that is down forwards nothing from that moment on; removing it takes the kernel longer.
	for _, d := range all {
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(d.Index, 0, unix.IFF_UP)
	}
	for _, d := range all {
		b.Request(unix.RTM_DELLINK, 0)
		b.Link(d.Index, 0, 0)
	}
	var errs []error
	failures := c.Do(&b)
	for i, d := range all {
		if failures == nil {
			break
		}
		down, gone := failures[i], failures[len(all)+i]
		if down != nil && gone != nil && !errors.Is(gone, unix.ENODEV) { // the other end of a pair goes with the first
			errs = append(errs, fmt.Errorf("take device %s away: %w", d.Name, gone))
		}
	}
	return errors.Join(errs...)
}
