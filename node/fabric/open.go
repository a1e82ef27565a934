package fabric

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// DefaultTunnelPort is VXLAN's UDP port (RFC 7348).
const DefaultTunnelPort = model.TunnelPort

// tunnelMTU lets the tunnel device carry whatever a link may carry. The elements' interfaces and the underlay decide
// how long a packet may be.
const tunnelMTU = 65000

// Fabric is the patch panel of one node. Its methods may be called by several goroutines, on any thread.
//
// There are three locks. mu is held over a whole pass, which may take seconds in a large node. While it is held, each
// of the others may be taken: pacing, and that of captures. Those are held for moments only, and never both at once.
type Fabric struct {
	// mu guards all fields but paced and pacer. The tables' words may change without it: the programs count there, Pace
	// sets a flag and captures set Snap, each by one atomic operation that leaves the other bits as they are.
	mu       sync.Mutex
	dirs     instance.NodeDirs
	underlay netip.Addr
	port     uint16
	netlink  *linux.Rtnetlink
	pipe     *pipeline.Pipeline
	slots    map[model.PortID]uint32       // also those that an element has and the last State did not name (Place)
	links    map[uint32]pipeline.Link      // as written last, by slot, to distinguish a change from an alteration
	ended    map[uint32]pipeline.TunnelEnd // what comes by tunnels, as it was written last, by VNI
	relayed  map[uint32]pipeline.Relay     // as they were written last, by VNI
	past     map[uint32]uint64             // drops of queues that are gone, by slot
	beside   map[uint32]beside             // whose queues are about to be replaced, by slot
	rated    bool                          // there are queues
	swept    bool                          // pins of other binaries are gone
	steered  map[model.ID]*steered
	cut      map[model.ID]bool // elements in quarantine
	// pacing guards the two below. Pace takes it and not mu, since it must not wait for a pass.
	pacing   sync.Mutex
	paced    map[model.ID]bool    // elements with a limit
	pacer    *pipeline.Pipeline   // as pipe; nil once it is closed
	freed    map[int]time.Time    // when routers' numbers became free
	resting  map[uint32]time.Time // since when slots that cannot be used again yet are free
	captures captures
	routes   *netlink.Handle   // in the node's namespace
	refusals map[int]refusal   // of drivers, by interface index
	told     map[string]string // reasons why a driver's hook is asked for and not used, by place
}

// New opens the fabric of a node. The calling thread must be in the node's network namespace. What an earlier process
// of the same node left running runs on unchanged. underlay is the node's address for tunnels; without one there are
// none. The data path needs no sysctl of the node's namespace, since packets of elements never reach its stack. If
// there is a firewall, it must accept UDP to the tunnel port.
func New(dirs instance.NodeDirs, underlay netip.Addr) (*Fabric, error) {
	f := &Fabric{dirs: dirs, underlay: underlay.Unmap(), port: DefaultTunnelPort, slots: map[model.PortID]uint32{},
		links: map[uint32]pipeline.Link{}, relayed: map[uint32]pipeline.Relay{},
		ended: map[uint32]pipeline.TunnelEnd{}, past: map[uint32]uint64{},
		steered: map[model.ID]*steered{},
		cut:     map[model.ID]bool{}, paced: map[model.ID]bool{}, freed: map[int]time.Time{},
		resting: map[uint32]time.Time{}, beside: map[uint32]beside{},
		refusals: map[int]refusal{}, told: map[string]string{}}
	if err := mountBPF(dirs.BPF()); err != nil {
		return nil, err
	}
	var err error
	if f.netlink, err = linux.DialRtnetlink(); err != nil {
		return nil, fmt.Errorf("fabric of node %s: %w", dirs.Node, err)
	}
	if f.routes, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(fmt.Errorf("fabric of node %s: %w", dirs.Node, err), f.netlink.Close())
	}
	if f.pipe, err = pipeline.Open(dirs.BPF()); err != nil {
		f.routes.Close()
		return nil, errors.Join(fmt.Errorf("fabric of node %s: %w", dirs.Node, err), f.netlink.Close())
	}
	if err := f.remember(); err != nil {
		return nil, errors.Join(fmt.Errorf("fabric of node %s: %w", dirs.Node, err), f.Close())
	}
	f.pacing.Lock()
	f.pacer = f.pipe
	f.pacing.Unlock()
	f.captures.start(f)
	return f, nil
}

// remember reads which slot belongs to which port, and ends the captures of an earlier process.
func (f *Fabric) remember() error {
	identities, err := pipeline.All[pipeline.IdentityKey, pipeline.Identity](f.pipe.Identities)
	if err != nil {
		return err
	}
	if f.slots, err = f.claimed(); err != nil {
		return err
	}
	taken := map[uint32]bool{0: true}
	for _, slot := range f.slots {
		taken[slot] = true
	}
	for key, e := range identities {
		var id model.PortID
		id.UnmarshalText([]byte(pipeline.NameOf(&e)))
		own, _ := pipeline.NewIdentity(id.String(), e.Slot)
		if slot, ok := f.slots[id]; own == key && ok && slot == e.Slot {
			continue // as its device says
		}
		if own != key || taken[e.Slot] || int(e.Slot) >= len(f.pipe.Ports) {
			if err := f.pipe.Identities.Delete(key); err != nil { // spoilt
				return fmt.Errorf("remove an unusable entry of the identities' table: %w", err)
			}
			continue
		}
		taken[e.Slot] = true
		f.slots[id] = e.Slot
	}
	for id, slot := range f.slots {
		key, value := pipeline.NewIdentity(id.String(), slot)
		if identities[key] == value {
			continue
		}
		if err := f.pipe.Identities.Put(key, value); err != nil {
			return fmt.Errorf("restore port %s in the identities' table: %w", id, err)
		}
	}
	for i := range f.pipe.Ports {
		if p := &f.pipe.Ports[i]; atomic.LoadUint32(&p.Snap)&^pipeline.Copied != 0 {
			atomic.AndUint32(&p.Snap, pipeline.Copied)
		}
	}
	for id, slot := range f.slots {
		f.links[slot] = pipeline.LinkOf(&f.pipe.Ports[slot])
		if atomic.LoadUint32(&f.pipe.Ports[slot].Flags)&pipeline.Cut != 0 {
			f.cut[id.ID] = true // until somebody says what is
		}
	}
	f.rememberSteering()
	return nil
}

// claimed finds slots whose port has a device, says whose port it is, and stands in both the devices' table and the
// port's own entry. So even if the table of identities is spoilt or gone, no slot becomes another port's while frames
// flow.
func (f *Fabric) claimed() (map[model.PortID]uint32, error) {
	slots := map[model.PortID]uint32{}
	known, err := pipeline.All[uint32, uint32](f.pipe.Devices)
	if err != nil || len(known) == 0 {
		return slots, err
	}
	k, err := f.look()
	if err != nil {
		return nil, err
	}
	for index, slot := range known {
		if slot == 0 || int(slot) >= len(f.pipe.Ports) || atomic.LoadUint32(&f.pipe.Ports[slot].Ifindex) != index {
			continue
		}
		d := k.devices[int(index)]
		name, ours := strings.CutPrefix(d.alias, f.dirs.AliasPrefix())
		var id model.PortID
		if id.UnmarshalText([]byte(name)); ours && f.dirs.PortDevice(id) == d.name {
			slots[id] = slot
		}
	}
	return slots, nil
}

func mountBPF(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make the mount point of the node's bpffs: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err == nil && fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", path, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount a bpffs at %s (needs root): %w", path, err)
	}
	return nil
}

// Close releases the data path and leaves it running. Captures end.
func (f *Fabric) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.captures.stop()
	if f.pipe == nil {
		return nil
	}
	pipe := f.pipe
	f.pipe = nil
	f.pacing.Lock()
	f.pacer = nil
	f.pacing.Unlock()
	f.routes.Close()
	return errors.Join(pipe.Close(), f.netlink.Close())
}

// Destroy removes everything that the fabric made (the tunnel device, the filters, tables and programs) and closes it.
// The ports' own devices stay, since others made them.
func (f *Fabric) Destroy() error {
	err := f.detach()
	err = errors.Join(err, f.Close())
	if e := unix.Unmount(f.dirs.BPF(), unix.MNT_DETACH); e != nil {
		err = errors.Join(err, fmt.Errorf("unmount the node's bpffs at %s: %w", f.dirs.BPF(), e))
	}
	if e := os.Remove(f.dirs.BPF()); e != nil {
		err = errors.Join(err, fmt.Errorf("remove the mount point of the node's bpffs: %w", e))
	}
	return err
}

// number is a number that is always the same for this node and purpose, and hardly ever another node's.
func (f *Fabric) number(purpose string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(purpose + "\x00" + f.dirs.Instance + "\x00" + f.dirs.Node))
	return h.Sum32()&0x3fffffff | 0x40000000
}

// block is the tc block that all ports share, so that they have one filter together.
func (f *Fabric) block() uint32 { return f.number("block") }

// TunnelDevice is the name of the node's tunnel device.
func (f *Fabric) TunnelDevice() string { return fmt.Sprintf("ppvx%08x", f.number("tunnel")) }

// tunnelMAC is a locally administered address. It is set so that udev does not choose one.
func (f *Fabric) tunnelMAC() net.HardwareAddr {
	h := sha256.Sum256([]byte(f.TunnelDevice()))
	mac := net.HardwareAddr(binary.BigEndian.AppendUint32([]byte{0x02, h[4]}, binary.BigEndian.Uint32(h[:])))
	return mac
}
