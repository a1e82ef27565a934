// Package edge makes the internet edges of a node: gateways by which a virtual network reaches the world through this
// machine's uplink, and by which ports of the machine lead into the network. Each gateway is a network namespace of its
// own, so that networks may have the same addresses. What leaves it passes a second namespace, the outlet, where it
// gets the machine's address. From there the tc hook takes it to the uplink's device. The machine's own stack, its
// forwarding and its firewall have no part in this and are not changed. See docs/decisions/0017-internet-edges.md.
package edge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
)

// ID names an edge on a node.
type ID struct{ Network, Edge string }

func (id ID) String() string { return id.Network + "/" + id.Edge }

// Edge is one internet edge that must exist.
type Edge struct {
	ID       ID
	MTU      int // of the interface that it is joined to
	Internet model.ResolvedInternet
}

// Report tells what Apply did and could not do.
type Report struct {
	// Devices are the gateways' ends in the node's namespace, by edge. The fabric joins them to the elements'
	// interfaces. A gateway that failed may have a device all the same: what still works is not cut.
	Devices map[ID]string
	Failed  map[ID]error
	Changed map[ID][]change.Change // for events
	// Warning says why edges that are right lead nowhere: the machine has no uplink. It is empty when they lead
	// somewhere.
	Warning string
	Problem error
}

// Driver makes the internet edges of one node. The outlet belongs to the whole instance, so every change is made under
// a lock of the machine (locked).
type Driver struct {
	dirs    instance.NodeDirs
	machine namespace // whose uplink is used
	node    namespace // of the agent
	// simulated says that these two namespaces differ. Then the underlay's addresses belong to nobody, or to others, in
	// the machine's network, and need not be kept out of reach.
	simulated bool

	// mu guards what stands below it, and is taken before the lock of the machine (locked).
	mu       sync.Mutex
	gateways map[ID]*gateway
	wanted   []Edge
	nodes    []netip.Addr // of other nodes, in the underlay
	seen     sight        // of the machine, when the edges were last made so
	outlet   *outlet
	relays   map[string]*relay
	taken    map[string]error // why forwards have no relay, by name: the port was found to be somebody else's
}

// namespace is a network namespace with a handle on it.
type namespace struct {
	fd int
	h  *netlink.Handle
}

func openNamespace(path string) (namespace, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return namespace{}, fmt.Errorf("open the network namespace %s: %w", path, err)
	}
	h, err := netlink.NewHandleAt(netns.NsHandle(fd), unix.NETLINK_ROUTE)
	if err != nil {
		unix.Close(fd)
		return namespace{}, fmt.Errorf("open a route netlink socket in %s: %w", path, err)
	}
	return namespace{fd, h}, nil
}

func (n namespace) close() {
	if n.h != nil {
		n.h.Close()
		unix.Close(n.fd)
	}
}

// is tells whether the namespace that is mounted at path is this one.
func (n namespace) is(path string) bool {
	var a, b unix.Stat_t
	return n.h != nil && unix.Fstat(n.fd, &a) == nil && unix.Stat(path, &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev
}

// Own is the path of the calling process's network namespace.
const Own = "/proc/self/ns/net"

// New opens the driver of a node whose agent the calling process is. machine is the path of the network namespace that
// has the uplink: the node's own, or that of the machine on which the node is simulated.
func New(dirs instance.NodeDirs, machine string) (*Driver, error) { return open(dirs, machine, Own) }

// open is New with the agent's namespace said, for tests.
func open(dirs instance.NodeDirs, machine, node string) (*Driver, error) {
	d := &Driver{dirs: dirs, gateways: map[ID]*gateway{}, relays: map[string]*relay{}, taken: map[string]error{}}
	var err error
	if d.machine, err = openNamespace(machine); err == nil {
		d.node, err = openNamespace(node)
	}
	if err != nil {
		d.machine.close()
		return nil, fmt.Errorf("node %s: internet edges: %w", dirs.Node, err)
	}
	d.simulated = !d.machine.is(node)
	return d, nil
}

// Close ends the relays and lets go of everything else, which stays.
func (d *Driver) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applyRelays(nil)
	d.letGo()
	d.node.close()
	d.machine.close()
}

// letGo forgets the gateways and the outlet, which are opened again when they are needed.
func (d *Driver) letGo() {
	for id, g := range d.gateways {
		g.close()
		delete(d.gateways, id)
	}
	if d.outlet != nil {
		d.outlet.close()
		d.outlet = nil
	}
}

// Apply makes exactly these edges and puts right what was altered; it does not touch what is right. It may be repeated
// at any time. nodes are other nodes' addresses in the underlay, which no edge leads to.
func (d *Driver) Apply(ctx context.Context, edges []Edge, nodes []netip.Addr) Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := Report{Devices: map[ID]string{}, Failed: map[ID]error{}, Changed: map[ID][]change.Change{}}
	d.wanted, d.nodes = edges, nodes
	if d.simulated {
		d.nodes = nil
	}
	if len(edges) == 0 || ctx.Err() != nil {
		d.applyRelays(nil)
		return r
	}
	r.Problem = d.locked(func() error { return d.apply(&r) })
	if r.Problem != nil {
		for _, e := range edges {
			if r.Failed[e.ID] == nil {
				r.Failed[e.ID] = fmt.Errorf("edge %s: %w", e.ID.Edge, r.Problem)
			}
		}
		return r
	}
	return r
}

// apply is Apply's work, under both locks. The order matters. The outlet comes first, since gateways lead to it. Relays
// come before the table of services: a port is forwarded from outside only if its relay could listen on it, so that
// nobody else has it. Steering comes last, when there is something to steer to. A gateway that fails does not stop the
// others.
func (d *Driver) apply(r *Report) error {
	seen, err := d.look()
	if err != nil {
		return err
	}
	seen.nodes = d.nodes
	if err := d.ensureOutlet(&seen); err != nil {
		return err
	}
	services := map[programService]uint32{}
	var relays []relayed
	mine := map[uint32]bool{}
	for i := range d.wanted {
		e := &d.wanted[i]
		r.Devices[e.ID] = d.device(e.ID)
		g, changed, err := d.ensureGateway(e, &seen)
		if err != nil {
			r.Failed[e.ID] = fmt.Errorf("edge %s: %w", e.ID.Edge, err)
			continue
		}
		r.Changed[e.ID] = changed
		mine[uint32(g.number)] = true
		for _, f := range e.Internet.Forwards {
			relays = append(relays, relayed{e, g, f})
		}
	}
	for key, err := range d.applyRelays(relays) {
		if r.Failed[key.edge.ID] == nil {
			r.Failed[key.edge.ID] = fmt.Errorf("edge %s: forward %s: %w", key.edge.ID.Edge, key.forward, err)
		}
	}
	for _, x := range relays {
		if d.relays[x.key()] == nil {
			continue // somebody else's port
		}
		for _, family := range seen.uplinks {
			if a := x.forward.Address; family.address.IsValid() && (!a.IsValid() || a == family.address) {
				services[serviceOf(x.forward)] = uint32(x.gateway.number)
			}
		}
	}
	changed, err := d.steer(&seen, services, mine)
	if err != nil {
		return err
	}
	if changed {
		for _, e := range d.wanted {
			if !slices.Contains(r.Changed[e.ID], change.GatewayMade.Of()) {
				r.Changed[e.ID] = append(r.Changed[e.ID], change.UplinkChanged.Of())
			}
		}
	}
	r.Warning = seen.warning()
	d.seen = seen
	return nil
}

// Audit tells, at little cost, whether something is no longer as Apply left it. It also bounds the gateways'
// neighbours.
func (d *Driver) Audit() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.wanted) == 0 || d.outlet == nil {
		return false
	}
	d.trim()
	seen, err := d.look()
	if err != nil || !seen.equal(&d.seen) {
		return true
	}
	if !d.outlet.is(d.dirs.Outlet()) || !d.outlet.rules.current(d.outlet.fd) || !d.steered(&seen) {
		return true
	}
	for _, g := range d.gateways {
		if !g.is(g.path) || !g.rules.current(g.fd) || !g.whole() {
			return true
		}
	}
	return false
}

// List tells which edges there are.
func (d *Driver) List() ([]ID, error) {
	paths, err := filepath.Glob(filepath.Join(d.dirs.Gateways(), "*", "*"))
	if err != nil {
		return nil, err
	}
	return each.Of(paths, func(p string) ID { return ID{filepath.Base(filepath.Dir(p)), filepath.Base(p)} }), nil
}

// Remove removes edges. When the last edge goes, the outlet goes too, and the uplink's device is as it was before.
func (d *Driver) Remove(_ context.Context, ids []ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locked(func() error {
		errs := each.Of(ids, d.remove)
		return errors.Join(append(errs, d.removeOutlet())...)
	})
}

// remove takes one edge away: its device in the node first, so that nothing more comes in; then its forwarded ports,
// its device and its rules in the outlet; then its namespace.
func (d *Driver) remove(id ID) error {
	if g := d.gateways[id]; g != nil {
		g.close()
		delete(d.gateways, id)
	}
	// Removing one end of each pair removes both at once. The namespace itself ends only when the kernel gets to it.
	if link, err := d.node.h.LinkByName(d.device(id)); err == nil {
		d.node.h.LinkDel(link) //nolint:errcheck // it may be going
	}
	if linux.IsNamespace(d.dirs.Outlet()) {
		o, err := openNamespace(d.dirs.Outlet())
		if err != nil {
			return err
		}
		defer o.close()
		if link, err := o.h.LinkByName(d.device(id)); err == nil {
			if err := d.forget(uint32(link.Attrs().Index)); err != nil {
				return fmt.Errorf("edge %s: %w", id, err)
			}
			o.h.LinkDel(link) //nolint:errcheck // it may be going
		}
		if err := openRules(d.dirs.Outlet()+".rules").apply(o.fd, map[string]string{d.table(id): ""}); err != nil {
			return fmt.Errorf("edge %s: %w", id, err)
		}
		if d.outlet != nil {
			delete(d.outlet.rules.own, d.table(id))
		}
	}
	dir := d.dirs.Gateway(id.Network, id.Edge)
	if path := filepath.Join(dir, "net"); linux.IsNamespace(path) {
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("edge %s: unmount its gateway's namespace: %w", id, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("edge %s: %w", id, err)
	}
	os.Remove(filepath.Dir(dir)) //nolint:errcheck // only if the network has no other
	return nil
}

// device is the name of a gateway's end in the node's namespace, and of its end in the outlet.
func (d *Driver) device(id ID) string {
	return d.dirs.PortDevice(model.PortID{ID: model.ID{Network: id.Network, Element: id.Edge},
		Interface: "internet edge"})
}

// table is the name of the edge's own table in the outlet.
func (d *Driver) table(id ID) string { return "inet edge_" + d.device(id) }

// locked calls f while no other agent of this machine does so. Agents share the outlet of their instance, and all
// instances of a machine share the ports that outlets speak from.
func (d *Driver) locked(f func() error) error {
	// the directory of all instances' run directories
	return linux.Locked(filepath.Dir(filepath.Dir(d.dirs.Outlet())), f)
}

// changes is a list of what was put right.
type changes []change.Change

func (c *changes) add(kind change.Kind) { *c = append(*c, kind.Of()) }

// setSysctls writes what differs, in the namespace that the calling thread is in.
func setSysctls(values map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		path := filepath.Join("/proc/sys/net", key)
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6, or older than the setting
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(b)) == values[key] {
			continue
		}
		if err := os.WriteFile(path, []byte(values[key]), 0); err != nil {
			return err
		}
	}
	return nil
}
