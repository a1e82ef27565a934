// Package companion makes the namespaces in which the node's own kernel forwards for routers. The node owns them: one
// for each router, with a device for each of the router's interfaces. By netlink it gets the router's routes, next hops
// and neighbours.
//
// A companion has no addresses. The fabric's tables follow the same router, and packets come to the companion only
// where they say that these are forwarded for certain (pipeline.ToCompanion). So the companion needs only what such
// packets need, and sends nothing of its own.
package companion

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// mtu lets every packet through: the fabric has already seen to it that none is too long.
const mtu = 65535

// checkEvery is how often a companion that should be right is looked into.
const checkEvery = 5 * time.Second

// Home is the node's namespace, where companions' devices have their other ends.
type Home struct {
	dirs instance.NodeDirs
	fd   int
	c    *linux.Rtnetlink
	h    *netlink.Handle
	once sync.Once
}

// NewHome opens the network namespace that the calling thread is in.
func NewHome(dirs instance.NodeDirs) (*Home, error) {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the node's network namespace: %w", err)
	}
	h := &Home{dirs: dirs, fd: fd}
	if h.c, err = linux.DialRtnetlink(); err == nil {
		h.h, err = netlink.NewHandleAt(netns.NsHandle(fd), unix.NETLINK_ROUTE)
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Close lets go of the namespace. Companions can still be listed and removed.
func (h *Home) Close() (err error) {
	h.once.Do(func() {
		if h.h != nil {
			h.h.Close()
		}
		if h.c != nil {
			err = h.c.Close()
		}
		err = errors.Join(err, unix.Close(h.fd))
	})
	return err
}

// Probe tells whether the kernel has what a way of forwarding needs.
func (h *Home) Probe(way model.Forwarding) error {
	return linux.Inside(h.fd, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		c, err := linux.DialRtnetlink()
		if err != nil {
			return err
		}
		defer c.Close()
		var b linux.Batch
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(1, unix.IFF_UP, unix.IFF_UP) // lo, where such next hops lead
		nextHop(&b, 1, unix.AF_INET, 0)
		b.Flag(nhaBlackhole)
		if errs := c.Do(&b); errs != nil {
			return fmt.Errorf("this kernel has no next-hop objects (it needs Linux ≥ 5.3): %w", errors.Join(errs...))
		}
		if way != model.ForwardBridge {
			return nil
		}
		b.Reset()
		b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
		b.Link(0, 0, 0)
		b.Begin(unix.IFLA_LINKINFO)
		b.String(unix.IFLA_INFO_KIND, "bridge")
		b.End()
		if errs := c.Do(&b); errs != nil {
			return fmt.Errorf("this kernel makes no bridges (it needs CONFIG_BRIDGE): %w", errs[0])
		}
		return nil
	})
}

// List tells which routers have a companion of that way.
func (h *Home) List(way model.Forwarding) ([]model.ID, error) {
	paths, err := filepath.Glob(filepath.Join(h.dirs.Companions(), string(way), "*", "*"))
	if err != nil {
		return nil, err
	}
	return each.Of(paths, func(path string) model.ID {
		return model.ID{Network: filepath.Base(filepath.Dir(path)), Element: filepath.Base(path)}
	}), nil
}

// Remove takes a router's companion away, with its devices. Nobody may use it any more.
func (h *Home) Remove(id model.ID, way model.Forwarding) error {
	path := h.dirs.Companion(id, way)
	// The devices at once: the namespace goes when the last who looks into it has gone.
	if ns, err := netns.GetFromPath(path); err == nil {
		if inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err == nil {
			links, _ := linux.Whole(inside.LinkList) // what is not found goes with the namespace
			for _, l := range links {
				if l.Type() == "veth" {
					inside.LinkDel(l) //nolint:errcheck // likewise
				}
			}
			inside.Close()
		}
		ns.Close()
	}
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount the companion of %s: %w", id, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the companion of %s: %w", id, err)
	}
	os.Remove(filepath.Dir(path)) // when it is empty
	return nil
}

// Interface is one of the router's.
type Interface struct {
	Name   string // the user's
	Device string // its name in the router's namespace
	MAC    net.HardwareAddr
	Port   uint32 // the fabric's number
}

// Companion is one router's.
type Companion struct {
	*Routes
	home *Home
	id   model.ID
	way  model.Forwarding
	path string

	inode   uint64
	fd      int
	inside  *netlink.Handle
	wanted  []Interface
	ends    map[string]int // devices in the node's namespace, by the user's interface
	exits   map[uint32]int // devices by which packets leave its stack, by the fabric's port
	stale   bool           // routes may be missing that were told
	checked time.Time
}

// Open returns a router's companion, and makes its namespace if there is none. One that an earlier process left goes on
// working.
func (h *Home) Open(id model.ID, way model.Forwarding) (*Companion, error) {
	c := &Companion{home: h, id: id, way: way, path: h.dirs.Companion(id, way), fd: -1}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("companion of %s: %w", id, err), c.Close())
	}
	return c, nil
}

// open makes the namespace, or opens the one that is there, with its sysctls. They come before any device, since a
// device takes the settings that are `default` when it is made.
func (c *Companion) open() error {
	if _, err := linux.MountNamespace(c.path); err != nil {
		return err
	}
	var err error
	if c.fd, err = unix.Open(c.path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(c.fd, &st); err != nil {
		return err
	}
	c.inode = st.Ino
	if c.inside, err = netlink.NewHandleAt(netns.NsHandle(c.fd), unix.NETLINK_ROUTE); err != nil {
		return err
	}
	var inside *linux.Rtnetlink
	if err := linux.Inside(c.fd, func() (err error) {
		if err = settle(); err == nil {
			inside, err = linux.DialRtnetlink()
		}
		return err
	}); err != nil {
		return err
	}
	c.Routes = newRoutes(inside)
	lo, err := c.inside.LinkByName("lo") // up, or the kernel has no local table, and takes no gateway for one
	if err == nil {
		err = c.inside.LinkSetUp(lo)
	}
	return err
}

// Close lets go of it, and leaves it as it is.
func (c *Companion) Close() error {
	if c.inside != nil {
		c.inside.Close()
	}
	var err error
	if c.Routes != nil {
		err = c.Routes.close()
	}
	if c.fd >= 0 {
		err = errors.Join(err, unix.Close(c.fd))
	}
	return err
}

// Same tells whether its namespace is still the one at its place.
func (c *Companion) Same() bool {
	var st unix.Stat_t
	return unix.Stat(c.path, &st) == nil && st.Ino == c.inode
}

// Ends are the devices in the node's namespace, by interface.
func (c *Companion) Ends() map[string]int { return maps.Clone(c.ends) }

// Way is how it forwards: between devices (router) or between bridges.
func (c *Companion) Way() model.Forwarding { return c.way }

// Look makes the next Ensure look into the companion, however short ago the last one did.
func (c *Companion) Look() { c.checked = time.Time{} }

// State is what Ensure found.
type State int

const (
	Unchanged State = iota
	// Waits says that a device has no carrier yet (Carried). Until it has, nothing may be told to the companion.
	Waits
	// Changed says that routes may be missing, so that all must be told anew.
	Changed
)

// Ensure makes the companion's devices, or puts them right. It calls join with new ones before they are up, so that no
// packet comes out of them before the fabric knows them. It waits for nothing. routes returns how many routes there
// must be, if that is known.
func (c *Companion) Ensure(interfaces []Interface, join func(map[string]int) error,
	routes func() (int, bool)) (State, error) {
	if time.Since(c.checked) < checkEvery && same(c.wanted, interfaces) && c.whole() {
		return Unchanged, nil
	}
	c.checked = time.Time{}
	changed, err := c.ensure(interfaces, join)
	c.stale = c.stale || changed
	if err != nil {
		return Unchanged, fmt.Errorf("companion of %s: %w", c.id, err)
	}
	if !c.Carried() {
		c.stale = true
		return Waits, nil
	}
	c.setDevices(c.exits)
	c.wanted, c.checked = interfaces, time.Now()
	if c.stale || !c.right(routes) {
		c.stale = false
		return Changed, nil
	}
	return Unchanged, nil
}

// Carried tells whether all of its devices have a carrier. The kernel refuses next hops that lead to one without, and a
// bridge gets its carrier some time after its port.
func (c *Companion) Carried() bool {
	for _, index := range c.exits {
		l, err := c.inside.LinkByIndex(index)
		if err == nil && l.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 {
			return false
		}
	}
	return true // also if one is gone: then there is nothing to wait for, and the next Ensure makes it
}

func same(a, b []Interface) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Device != b[i].Device || a[i].Port != b[i].Port ||
			a[i].MAC.String() != b[i].MAC.String() {
			return false
		}
	}
	return true
}

// whole tells whether all of its ends are there.
func (c *Companion) whole() bool {
	for _, index := range c.ends {
		if _, err := c.home.h.LinkByIndex(index); err != nil {
			return false
		}
	}
	return true
}

func (c *Companion) port(ifc *Interface) model.PortID {
	return model.PortID{ID: c.id, Interface: ifc.Name}
}

// inner is the name of an interface's device in the companion that is one end of a pair.
func inner(ifc *Interface) string { return fmt.Sprintf("p%d", ifc.Port) }

// ensure removes devices that are not wanted, makes those that are missing, tells join of them, and only then sets them
// up.
func (c *Companion) ensure(interfaces []Interface, join func(map[string]int) error) (changed bool, err error) {
	links, err := c.links()
	if err != nil {
		return false, err
	}
	wanted := map[string]bool{"lo": true}
	for i := range interfaces {
		wanted[inner(&interfaces[i])] = true
		if c.way == model.ForwardBridge {
			wanted[interfaces[i].Device] = true
		}
	}
	for name, l := range links {
		if !wanted[name] {
			if err := c.inside.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) &&
				!errors.Is(err, unix.EOPNOTSUPP) {
				return changed, fmt.Errorf("remove device %s: %w", name, err)
			}
			changed = true
		}
	}
	ends, exits := map[string]int{}, map[uint32]int{}
	var b linux.Batch
	for i := range interfaces {
		ifc := &interfaces[i]
		end := c.home.dirs.CompanionDevice(c.port(ifc), c.way)
		if l, there := links[inner(ifc)]; there && l.Attrs().HardwareAddr.String() == ifc.MAC.String() {
			continue
		} else if there {
			if err := c.inside.LinkDel(l); err != nil {
				return changed, fmt.Errorf("remove device %s, whose MAC address is wrong: %w", inner(ifc), err)
			}
		} else if l, err := c.home.h.LinkByName(end); err == nil { // its peer is elsewhere
			if err := c.home.h.LinkDel(l); err != nil {
				return changed, fmt.Errorf("remove device %s, whose peer was moved: %w", end, err)
			}
		}
		b.AddVethInto(end, c.fd, inner(ifc), ifc.MAC, mtu, 0)
		b.Mark(end, c.home.dirs.CompanionAlias(c.port(ifc), c.way))
	}
	changed = changed || b.Len() > 0
	if errs := c.home.c.Do(&b); errs != nil {
		return changed, fmt.Errorf("make its devices: %w", errors.Join(errs...))
	}
	for i := range interfaces {
		ifc := &interfaces[i]
		end := c.home.dirs.CompanionDevice(c.port(ifc), c.way)
		l, err := c.home.h.LinkByName(end)
		if err != nil {
			return changed, fmt.Errorf("device %s: %w", end, err)
		}
		ends[ifc.Name] = l.Attrs().Index
	}
	if changed || !maps.Equal(ends, c.ends) {
		if err := join(ends); err != nil {
			return changed, err
		}
		c.ends = ends
	}
	for i := range interfaces {
		ifc := &interfaces[i]
		done, index, err := c.raise(ifc, ends[ifc.Name])
		if changed = changed || done; err != nil {
			return changed, fmt.Errorf("interface %s: %w", ifc.Name, err)
		}
		exits[ifc.Port] = index
	}
	c.exits = exits
	return changed, nil
}

// raise sets the devices of an interface up, and tells by which of them packets leave the companion's stack.
func (c *Companion) raise(ifc *Interface, end int) (changed bool, index int, err error) {
	inside, err := c.inside.LinkByName(inner(ifc))
	if err != nil {
		return false, 0, err
	}
	outside, err := c.home.h.LinkByIndex(end)
	if err != nil {
		return false, 0, err
	}
	up := func(h *netlink.Handle, l netlink.Link) {
		if err == nil && l.Attrs().Flags&net.FlagUp == 0 {
			changed, err = true, h.LinkSetUp(l)
		}
	}
	index = inside.Attrs().Index
	if c.way == model.ForwardBridge {
		var made bool
		if made, index, err = c.bridge(ifc, inside); err != nil {
			return made, 0, err
		}
		changed = made
	}
	up(c.home.h, outside)
	up(c.inside, inside)
	return changed, index, err
}

// bridge puts an interface's device on a bridge of its own, whose MAC address is the router's.
func (c *Companion) bridge(ifc *Interface, port netlink.Link) (changed bool, index int, err error) {
	no := false
	l, err := c.inside.LinkByName(ifc.Device)
	var missing netlink.LinkNotFoundError
	if err == nil && (l.Type() != "bridge" || l.Attrs().HardwareAddr.String() != ifc.MAC.String()) {
		if err := c.inside.LinkDel(l); err != nil {
			return true, 0, err
		}
		err = missing
	}
	if errors.As(err, &missing) {
		changed = true
		a := netlink.NewLinkAttrs()
		a.Name, a.HardwareAddr, a.MTU = ifc.Device, ifc.MAC, mtu
		if err := c.inside.LinkAdd(&netlink.Bridge{LinkAttrs: a, MulticastSnooping: &no}); err != nil {
			return true, 0, fmt.Errorf("make its bridge: %w", err)
		}
		l, err = c.inside.LinkByName(ifc.Device)
	}
	if err != nil {
		return changed, 0, err
	}
	if port.Attrs().MasterIndex != l.Attrs().Index {
		changed = true
		if err := c.inside.LinkSetMaster(port, l); err != nil {
			return true, 0, fmt.Errorf("put it on its bridge: %w", err)
		}
		// It has one port: nothing is to be learnt, and who sends from many addresses fills no memory.
		if err := c.inside.LinkSetLearning(port, false); err != nil {
			return true, 0, fmt.Errorf("have its bridge learn nothing: %w", err)
		}
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		changed = true
		if err := c.inside.LinkSetUp(l); err != nil {
			return true, 0, fmt.Errorf("set its bridge up: %w", err)
		}
	}
	return changed, l.Attrs().Index, nil
}

func (c *Companion) links() (map[string]netlink.Link, error) {
	list, err := linux.Whole(c.inside.LinkList)
	if err != nil {
		return nil, fmt.Errorf("read its devices: %w", err)
	}
	return each.By(list, func(l netlink.Link) string { return l.Attrs().Name }), nil
}

// Lookup returns the interface by which packets to an address leave, as the companion's kernel says.
func (c *Companion) Lookup(to netip.Addr) (string, error) {
	routes, err := c.inside.RouteGet(to.AsSlice())
	if err != nil {
		return "", err
	}
	if len(routes) != 1 {
		return "", fmt.Errorf("%d routes", len(routes))
	}
	port := c.portOf(routes[0].LinkIndex)
	for i := range c.wanted {
		if c.wanted[i].Port == port {
			return c.wanted[i].Name, nil
		}
	}
	return "", fmt.Errorf("its device %d is none of the router's", routes[0].LinkIndex)
}
