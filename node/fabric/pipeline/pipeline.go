// Package pipeline is the fabric's data path: the eBPF programs (c/), their tables, and how both are found again after
// the agent's restart, by pins in a bpffs.
//
// A directory a layout ("v4") holds the tables, and the programs under names that begin with a digest of their object:
// a newer binary finds the tables, loads its own programs beside the running ones and, once it has put them in their
// place (Fabric.Apply), removes the old pins (Sweep).
package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Layout is the version of the tables: their names, sizes and meaning, the words of package fib among them. Of tables
// of another layout only whose slots are whose and the ports' counters are read, if these look as they do here
// (inherit).
const Layout = "v4"

// Limits of the tables.
const (
	slotBits = 14
	MaxPorts = 16384 - 1 // slot 0 is no port
	MaxPeers = 4096 - 1  // number 0 is this node
)

// Pipeline is the programs and tables of one node.
type Pipeline struct {
	// Ports, by slot, and Peers, by number, are the kernel's memory itself: fields are read and written by atomic
	// operations.
	Ports []Port
	Peers []Peer
	// Shapers, by slot, are the same kind of memory: the device that what a port sends off the node passes first.
	Shapers []uint64
	// Metered, by slot, is the number of the meter of the port's network, and Meters, by number, are those.
	Metered []uint64
	Meters  []Meter
	// Queues, by slot, are the devices that what is delivered to a port passes first, where it is Rated.
	Queues []uint64
	// Generations, by slot, count the ports that have had it: what waits in queues says its port by both.
	Generations []uint64
	// Mirrors, by slot, say where copies go of what passes a port's link, where its Snap is Copied.
	Mirrors []Mirror
	// Paces, by slot, bound what comes to and from the element of a port that is Paced.
	Paces []Pace
	// PuntMeters, by the lowest number of a network's routers, are the meters of what its routers get as exceptions.
	PuntMeters []Meter
	// Companions, by slot, is the index of the device by which the port's companion gets packets, and in the upper half
	// that of the one before it; CompanionDevices (interface index → slot) is the way back.
	Companions       []uint64
	CompanionDevices *ebpf.Map
	// Devices (interface index → slot), Tunnels (VNI → TunnelEnd) and Edges (EdgeKey → slot) are hash tables.
	Devices, Tunnels, Edges *ebpf.Map
	// Nodes (NodeKey) has the nodes' addresses.
	Nodes *ebpf.Map
	// Relays (VNI → Relay) says what is done with packets of links whose path leads through the node.
	Relays *ebpf.Map
	// Drivers (interface index → Driver) tells of the devices that have a program in their driver's hook.
	Drivers *ebpf.Map
	// Identities (IdentityKey → Identity) is the agent's memory of which slot is whose.
	Identities *ebpf.Map
	// Traffic (slot → TrafficCount) and Drops (slot → DropCount) are per processor.
	Traffic, Drops *ebpf.Map
	// Copies is the ring that captures read.
	Copies *ebpf.Map
	// FIB is the memory of the forwarding tables. Routers, by number, are mapped too; RouterCounts (number →
	// RouterCount) is per processor.
	FIB          *FIB
	Routers      []Router
	RouterCounts *ebpf.Map
	// FromPort, FromTunnel, FromEdge, FromShaper and FromQueue are the programs for the ingress of ports, the tunnel
	// device, edges and the far ends of slices' and of ports' queues.
	FromPort, FromTunnel, FromEdge, FromShaper, FromQueue *ebpf.Program
	// FromMirror is for the far ends of mirrors' queues.
	FromMirror *ebpf.Program
	// FromUnderlay is for the ingress of the underlay's devices, where the node relays anything.
	FromUnderlay *ebpf.Program
	// FromCompanion is for the node's ends of companions' devices.
	FromCompanion *ebpf.Program
	// FromPortXDP is for the driver's hook of ports, FromWireXDP for that of the underlay's devices and of edges.
	FromPortXDP, FromWireXDP *ebpf.Program

	root                             string // on the bpffs
	scratches, ports, peers, shapers *ebpf.Map
	metered, meters, advances        *ebpf.Map
	queues, puntMeters, companions   *ebpf.Map
	generations, mirrors, paces      *ebpf.Map
	fibChunks, fibTables, fibHops    *ebpf.Map
	routers, packets, recent         *ebpf.Map
	memory                           [][]byte
	pins                             map[string]pin // by path
}

// pin is what is pinned.
type pin interface {
	Pin(path string) error
	Unpin() error
}

// Open returns the programs and tables pinned under root, a directory on a bpffs, and makes what is missing there or
// unusable. Packets flow on through running programs meanwhile.
func Open(root string) (*Pipeline, error) {
	spec, err := loadTc()
	if err != nil {
		return nil, fmt.Errorf("read the embedded eBPF programs: %w", err)
	}
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count the processors: %w", err)
	}
	spec.Maps[tcMapScratches].MaxEntries = uint32(processors)
	spec.Programs[tcProgFromWireXdp].Name = WireName(root)
	p := &Pipeline{root: root}
	if err := os.MkdirAll(p.directory(), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of pinned eBPF objects: %w", err)
	}
	if err := p.open(spec); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// WireName is what the kernel calls the program in the drivers of real devices, so that it is known to be this node's.
func WireName(root string) string {
	sum := sha256.Sum256([]byte(root))
	return "ppwire" + hex.EncodeToString(sum[:4])
}

func (p *Pipeline) directory() string { return filepath.Join(p.root, Layout) }

// tables are where the tables are held, by name.
func (p *Pipeline) tables() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		tcMapDevices: &p.Devices, tcMapTunnels: &p.Tunnels, tcMapEdges: &p.Edges, tcMapDrivers: &p.Drivers,
		tcMapIdentities: &p.Identities,
		tcMapTraffic:    &p.Traffic, tcMapDrops: &p.Drops, tcMapCopies: &p.Copies, tcMapScratches: &p.scratches,
		tcMapPorts: &p.ports, tcMapPeers: &p.peers, tcMapShapers: &p.shapers,
		tcMapMetered: &p.metered, tcMapMeters: &p.meters, tcMapAdvances: &p.advances, tcMapQueues: &p.queues,
		tcMapPuntMeters: &p.puntMeters, tcMapGenerations: &p.generations, tcMapMirrors: &p.mirrors,
		tcMapPaces: &p.paces, tcMapNodes: &p.Nodes, tcMapRelays: &p.Relays,
		tcMapCompanions: &p.companions, tcMapCompanionDevices: &p.CompanionDevices,
		tcMapFibChunks: &p.fibChunks, tcMapFibTables: &p.fibTables, tcMapFibHops: &p.fibHops,
		tcMapRouters: &p.routers, tcMapPackets: &p.packets, tcMapRecent: &p.recent,
		tcMapRouterCounts: &p.RouterCounts,
	}
}

// byName are where the programs are held, by name.
func (p *Pipeline) byName() map[string]**ebpf.Program {
	return map[string]**ebpf.Program{
		tcProgFromPort: &p.FromPort, tcProgFromTunnel: &p.FromTunnel, tcProgFromEdge: &p.FromEdge,
		tcProgFromShaper: &p.FromShaper, tcProgFromQueue: &p.FromQueue, tcProgFromCompanion: &p.FromCompanion,
		tcProgFromUnderlay: &p.FromUnderlay,
		tcProgFromMirror:   &p.FromMirror, tcProgFromPortXdp: &p.FromPortXDP,
		tcProgFromWireXdp: &p.FromWireXDP,
	}
}

// open opens or makes the tables, takes over what outlives a layout, and then opens or loads the programs: these begin
// to run only when Fabric.Apply attaches them, with the tables filled.
func (p *Pipeline) open(spec *ebpf.CollectionSpec) error {
	p.pins = map[string]pin{}
	all := map[string]*ebpf.Map{}
	for name, to := range p.tables() {
		m, err := p.table(spec.Maps[name])
		if err != nil {
			return err
		}
		*to, all[name], p.pins[filepath.Join(p.directory(), name)] = m, m, m
	}
	if err := mapped(p, p.generations, &p.Generations); err != nil {
		return err
	}
	if err := p.inherit(spec); err != nil {
		return err
	}
	p.begin()
	if err := errors.Join(mapped(p, p.ports, &p.Ports), mapped(p, p.peers, &p.Peers), mapped(p, p.shapers, &p.Shapers),
		mapped(p, p.metered, &p.Metered), mapped(p, p.meters, &p.Meters), mapped(p, p.companions, &p.Companions),
		mapped(p, p.queues, &p.Queues), mapped(p, p.mirrors, &p.Mirrors), mapped(p, p.paces, &p.Paces),
		mapped(p, p.puntMeters, &p.PuntMeters), mapped(p, p.routers, &p.Routers),
		p.openFIB(spec.Maps[tcMapFibChunks])); err != nil {
		return err
	}
	if err := p.programs(spec, all); err != nil {
		return err
	}
	for name, program := range p.byName() {
		p.pins[p.programPath(name)] = *program
	}
	return nil
}

// Repin pins again what somebody unpinned, so that a later process finds it, and returns what that was. The directory
// given to Open must be on a bpffs.
func (p *Pipeline) Repin() (restored []string, err error) {
	var errs []error
	for path, what := range p.pins {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.MkdirAll(p.directory(), 0o700); err != nil {
			return restored, fmt.Errorf("make the directory of pinned eBPF objects: %w", err)
		}
		what.Unpin() //nolint:errcheck // it only forgets where it was: it is not there
		if err := what.Pin(path); err != nil {
			errs = append(errs, fmt.Errorf("pin %s again: %w", path, err))
			continue
		}
		restored = append(restored, filepath.Base(path))
	}
	slices.Sort(restored)
	return restored, errors.Join(errs...)
}

// table opens the pinned map, or makes and pins it.
func (p *Pipeline) table(spec *ebpf.MapSpec) (*ebpf.Map, error) {
	path := filepath.Join(p.directory(), spec.Name)
	m, err := found(path, spec)
	if err == nil {
		return m, nil
	}
	if !errors.Is(err, fs.ErrNotExist) { // of no use: filled again by the next Apply
		if err := os.RemoveAll(path); err != nil {
			return nil, fmt.Errorf("remove the unusable table %s: %w", path, err)
		}
	}
	if m, err = ebpf.NewMap(spec); err != nil {
		return nil, fmt.Errorf("make the table %s (needs Linux ≥ 6.1 and CAP_BPF): %w", spec.Name, err)
	}
	if err := m.Pin(path); err != nil {
		m.Close()
		return nil, fmt.Errorf("pin the table %s: %w", path, err)
	}
	return m, nil
}

// found opens a pinned map that is as it should be.
func found(path string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return nil, err
	}
	if err := spec.Compatible(m); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// mapped maps a table into this process's memory, until Close: the agent writes single words there, without system
// calls.
func mapped[T any](p *Pipeline, m *ebpf.Map, to *[]T) error {
	var one T
	n := int(m.MaxEntries())
	data, err := unix.Mmap(m.FD(), 0, n*int(unsafe.Sizeof(one)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the table %v into memory: %w", m, err)
	}
	p.memory = append(p.memory, data)
	*to = unsafe.Slice((*T)(unsafe.Pointer(&data[0])), n)
	return nil
}

// programs opens the pinned programs of this binary, or loads and pins them.
func (p *Pipeline) programs(spec *ebpf.CollectionSpec, tables map[string]*ebpf.Map) error {
	programs := p.byName()
	if p.pinned(programs, tables) {
		return nil
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: tables})
	if err != nil {
		return fmt.Errorf("load the eBPF programs (need Linux ≥ 6.1 and CAP_BPF): %w", err)
	}
	defer loaded.Close()
	for name, to := range programs {
		path := p.programPath(name)
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove the unusable program %s: %w", path, err)
		}
		if err := loaded.Programs[name].Pin(path); err != nil {
			return fmt.Errorf("pin the program %s: %w", path, err)
		}
		*to = loaded.DetachProgram(name)
	}
	return nil
}

// pinned opens the pinned programs if all are there and work on these tables.
func (p *Pipeline) pinned(programs map[string]**ebpf.Program, tables map[string]*ebpf.Map) bool {
	ours := map[ebpf.MapID]bool{}
	for _, m := range tables {
		info, err := m.Info()
		if err != nil {
			return false
		}
		if id, ok := info.ID(); ok {
			ours[id] = true
		}
	}
	for name, to := range programs {
		program, err := ebpf.LoadPinnedProgram(p.programPath(name), nil)
		if err != nil {
			return false
		}
		*to = program
		info, err := program.Info()
		if err != nil {
			return false
		}
		ids, ok := info.MapIDs()
		if !ok || slices.ContainsFunc(ids, func(id ebpf.MapID) bool { return !ours[id] }) {
			return false
		}
	}
	return true
}

// digest tells the programs of different binaries apart.
var digest = func() string {
	sum := sha256.Sum256(_TcBytes)
	return hex.EncodeToString(sum[:6])
}()

func (p *Pipeline) programPath(name string) string {
	return filepath.Join(p.directory(), digest+"-"+name)
}

// Sweep removes the pins of other layouts and of other binaries' programs: call it when nothing uses them any more.
func (p *Pipeline) Sweep() error {
	roots, err := os.ReadDir(p.root)
	if err != nil {
		return fmt.Errorf("list pinned eBPF objects: %w", err)
	}
	var errs []error
	for _, e := range roots {
		if e.IsDir() && e.Name() != Layout { // the kernel has files of its own here
			errs = append(errs, os.RemoveAll(filepath.Join(p.root, e.Name())))
		}
	}
	pins, err := os.ReadDir(p.directory())
	if err != nil {
		return fmt.Errorf("list pinned eBPF objects: %w", err)
	}
	for _, e := range pins {
		if owner, _, program := strings.Cut(e.Name(), "-"); program && owner != digest {
			errs = append(errs, os.RemoveAll(filepath.Join(p.directory(), e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Close lets go of everything and leaves it running. Ports and Peers must not be used any more.
func (p *Pipeline) Close() error {
	var errs []error
	for _, m := range p.tables() {
		errs = append(errs, (*m).Close())
	}
	for _, program := range p.byName() {
		errs = append(errs, (*program).Close())
	}
	for _, data := range p.memory {
		errs = append(errs, unix.Munmap(data))
	}
	p.Ports, p.Peers, p.Shapers, p.Metered, p.Meters, p.Queues, p.PuntMeters = nil, nil, nil, nil, nil, nil, nil
	p.Generations, p.Mirrors, p.Paces = nil, nil, nil
	p.Companions = nil
	p.Routers, p.FIB, p.memory, p.pins = nil, nil, nil, nil
	return errors.Join(errs...)
}
