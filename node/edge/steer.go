package edge

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// Our filters are found again by their names and handles.
const (
	filterPriority = 1
	outletName     = "polyplane outlet"
	uplinkName     = "polyplane uplink"
)

// handleOf is the handle of an instance's filters. Each instance has its own, since several share an uplink.
func handleOf(instance string) uint32 {
	h := fnv.New32a()
	h.Write([]byte("uplink\x00" + instance))
	return h.Sum32()&0x3fffffff | 0x40000000
}

// version tells the programs of different binaries apart.
var version = func() string {
	sum := sha256.Sum256(_ProgramBytes)
	return hex.EncodeToString(sum[:6])
}()

func serviceOf(f model.Forward) programService {
	protocol := uint8(unix.IPPROTO_TCP)
	if f.Network() == model.UDP {
		protocol = unix.IPPROTO_UDP
	}
	return programService{Port: f.Port, Protocol: protocol}
}

// programs are the two that run, and their maps.
type programs struct {
	fromOutlet, fromUplink *ebpf.Program
	current, services      *ebpf.Map
}

func (p *programs) close() {
	for _, x := range []*ebpf.Program{p.fromOutlet, p.fromUplink} {
		x.Close() //nolint:errcheck // it goes on running where it is attached
	}
	for _, m := range []*ebpf.Map{p.current, p.services} {
		m.Close() //nolint:errcheck // likewise
	}
}

// steer makes the machine's uplink and the outlet exchange packets, and makes the ports of our edges lead to the
// outlet. It tells whether it had to attach anything.
func (d *Driver) steer(s *sight, services map[programService]uint32, mine map[uint32]bool) (changed bool, err error) {
	err = d.inMachine(func(c *linux.Rtnetlink) error {
		changed, err = d.steerHere(c, s, services, mine)
		return err
	})
	if err != nil {
		return changed, fmt.Errorf("the way to the machine's uplink: %w", err)
	}
	return changed, nil
}

// inMachine calls f with a socket in the machine's namespace.
func (d *Driver) inMachine(f func(*linux.Rtnetlink) error) error {
	return inNamespace(d.machine, f)
}

func inNamespace(ns namespace, f func(*linux.Rtnetlink) error) error {
	c, err := linux.DialRtnetlinkOf(ns.fd)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// steerHere writes the programs' tables before it attaches the programs, and attaches the outlet's before it sets the
// device up: no packet meets a program without its tables, or the machine's stack.
func (d *Driver) steerHere(c *linux.Rtnetlink, s *sight, services map[programService]uint32,
	mine map[uint32]bool) (bool, error) {
	p, err := d.load()
	if err != nil {
		return false, err
	}
	defer p.close()
	w := programWay{Device: uint32(d.outlet.up), Low: uint32(s.low), High: uint32(s.high)}
	for i, u := range s.uplinks {
		switch {
		case !u.address.IsValid():
		case i == 0:
			b := u.address.As4()
			w.Uplink4, w.Address4 = uint32(u.index), binary.NativeEndian.Uint32(b[:])
		default:
			b := u.address.As16()
			w.Uplink6 = uint32(u.index)
			for k := range w.Address6 {
				w.Address6[k] = binary.NativeEndian.Uint32(b[4*k:])
			}
		}
	}
	var was programWay
	if err := p.current.Lookup(uint32(0), &was); err != nil {
		return false, fmt.Errorf("read the table of the way: %w", err)
	}
	if was != w {
		if err := p.current.Put(uint32(0), &w); err != nil {
			return false, fmt.Errorf("write the table of the way: %w", err)
		}
	}
	if err := setServices(p.services, services, mine); err != nil {
		return false, err
	}
	changed, err := attach(c, d.outlet.up, outletName, d.dirs.Instance, p.fromOutlet)
	if err != nil {
		return changed, err
	}
	if err := d.raise(); err != nil {
		return changed, err
	}
	for i, u := range s.uplinks {
		if !u.address.IsValid() || i == 1 && u.index == s.uplinks[0].index {
			continue
		}
		now, err := attach(c, u.index, uplinkName, d.dirs.Instance, p.fromUplink)
		if err != nil {
			return changed, fmt.Errorf("uplink %s: %w", u.name, err)
		}
		changed = changed || now
	}
	return changed, d.detachOthers(c, s)
}

// raise sets the machine's end of the outlet's pair up. It must have its filter by then.
func (d *Driver) raise() error {
	link, err := d.machine.h.LinkByIndex(d.outlet.up)
	if err == nil {
		_, err = up(d.machine.h, link)
	}
	return err
}

// setServices writes the ports that lead to our edges; those of other agents' edges are theirs.
func setServices(m *ebpf.Map, want map[programService]uint32, mine map[uint32]bool) error {
	var key programService
	var owner uint32
	there := map[programService]uint32{}
	var stale []programService
	for it := m.Iterate(); it.Next(&key, &owner); {
		there[key] = owner
		if _, wanted := want[key]; mine[owner] && !wanted {
			stale = append(stale, key)
		}
	}
	for _, k := range stale {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("take a port back: %w", err)
		}
	}
	for k, owner := range want {
		if is, ok := there[k]; ok && is == owner {
			continue
		}
		if err := m.Put(k, owner); err != nil {
			return fmt.Errorf("lead port %d to its edge: %w", k.Port, err)
		}
	}
	return nil
}

// forget takes back the ports that lead to a gateway.
func (d *Driver) forget(number uint32) error {
	p, err := d.load()
	if err != nil {
		return err
	}
	defer p.close()
	return setServices(p.services, nil, map[uint32]bool{number: true})
}

// attach makes program the filter of that name at a device's ingress, if it is not there yet.
func attach(c *linux.Rtnetlink, index int, name, instance string, program *ebpf.Program) (changed bool, err error) {
	info, err := program.Info()
	if err != nil {
		return false, fmt.Errorf("ask about the eBPF program of the %s: %w", name, err)
	}
	id, _ := info.ID()
	qdiscs, err := c.Qdiscs()
	if err != nil {
		return false, err
	}
	at := linux.Attachment{Index: index}
	q, ok := qdiscs.Ingress[index]
	if q.Block != 0 {
		at = linux.Attachment{Block: q.Block}
	}
	if ok {
		found, _, err := c.Filters(at)
		if err != nil {
			return false, err
		}
		for _, f := range found {
			if f.Priority == filterPriority && f.Handle == handleOf(instance) && f.ID == uint32(id) {
				return false, nil
			}
		}
	}
	var b linux.Batch
	if !ok {
		b.AddClsact(index, 0)
	}
	b.ReplaceFilter(at, linux.Filter{Priority: filterPriority, Handle: handleOf(instance), Name: name,
		Program: program.FD()})
	if errs := c.Do(&b); errs != nil {
		return false, fmt.Errorf("attach the filter %q: %w", name, errors.Join(errs...))
	}
	return true, nil
}

// steered tells whether the filters are where they belong.
func (d *Driver) steered(s *sight) bool {
	ok := true
	err := d.inMachine(func(c *linux.Rtnetlink) error {
		places := []int{d.outlet.up}
		for _, u := range s.uplinks {
			if u.address.IsValid() {
				places = append(places, u.index)
			}
		}
		qdiscs, err := c.Qdiscs()
		if err != nil {
			return err
		}
		for _, index := range places {
			at := linux.Attachment{Index: index, Block: qdiscs.Ingress[index].Block}
			found, _, err := c.Filters(at)
			if err != nil {
				return err
			}
			ours := false
			for _, f := range found {
				ours = ours || f.Handle == handleOf(d.dirs.Instance)
			}
			ok = ok && ours
		}
		return nil
	})
	return ok && err == nil
}

// detachOthers takes the uplink's filter off devices that are the uplink no longer.
func (d *Driver) detachOthers(c *linux.Rtnetlink, s *sight) error {
	keep := map[int]bool{}
	for _, u := range s.uplinks {
		keep[u.index] = u.address.IsValid()
	}
	return detach(c, d.dirs.Instance, keep)
}

// detach takes the uplink's filter of an instance off all devices except the kept ones. Where nobody else has a filter,
// it removes the clsact qdisc as well.
func detach(c *linux.Rtnetlink, instance string, keep map[int]bool) error {
	qdiscs, err := c.Qdiscs()
	if err != nil {
		return err
	}
	for index, q := range qdiscs.Ingress {
		if keep[index] {
			continue
		}
		at := linux.Attachment{Index: index, Block: q.Block}
		found, others, err := c.Filters(at)
		if err != nil {
			return err
		}
		for _, f := range found {
			if f.Name != uplinkName || f.Handle != handleOf(instance) {
				continue
			}
			var b linux.Batch
			b.RemoveFilter(at, f.Priority, f.Handle)
			out, outOthers, err := c.Filters(linux.Attachment{Index: index, Egress: true})
			if err == nil && at.Block == 0 && q.Kind == "clsact" && len(found) == 1 && others+len(out)+outOthers == 0 {
				b.RemoveClsact(index)
			}
			if errs := c.Do(&b); errs != nil {
				return fmt.Errorf("take the filter off the uplink: %w", errors.Join(errs...))
			}
		}
	}
	return nil
}

// release takes away what an instance has in the machine's namespace: its filter at the uplink, and its end of the pair
// that leads to the outlet.
func release(machine namespace, name string) error {
	err := inNamespace(machine, func(c *linux.Rtnetlink) error { return detach(c, name, nil) })
	if err != nil {
		return err
	}
	link, err := find(machine.h, upDevice(instance.NodeDirs{Instance: name}))
	if err == nil && link != nil {
		err = machine.h.LinkDel(link)
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// Release makes the machine's uplink as it was, in the network namespace that the calling process is in. It is for the
// end of an instance, whose agents may be gone. It is no error if there is nothing.
func Release(dirs instance.Dirs) error {
	machine, err := openNamespace(Own)
	if err != nil {
		return err
	}
	defer machine.close()
	if err := release(machine, dirs.Name); err != nil {
		return fmt.Errorf("give the machine's uplink back: %w", err)
	}
	return nil
}

// pins is the directory where the programs and their maps are pinned, a mount of its own. All agents of the instance
// use them.
func (d *Driver) pins() string { return d.dirs.Outlet() + ".bpf" }

// load opens the programs and maps that are pinned, or loads and pins this binary's.
func (d *Driver) load() (*programs, error) {
	var fs unix.Statfs_t
	if err := os.MkdirAll(d.pins(), 0o700); err != nil {
		return nil, err
	}
	if err := unix.Statfs(d.pins(), &fs); err != nil || fs.Type != unix.BPF_FS_MAGIC {
		if err := unix.Mount("bpf", d.pins(), "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
			"mode=0700"); err != nil {
			return nil, fmt.Errorf("mount a BPF file system at %s: %w", d.pins(), err)
		}
	}
	dir := filepath.Join(d.pins(), version)
	p := &programs{}
	if p.open(dir) == nil {
		return p, nil
	}
	p.close()
	entries, err := os.ReadDir(d.pins())
	if err != nil {
		return nil, err
	}
	for _, e := range entries { // another version's, or half of ours
		if e.IsDir() {
			if err := os.RemoveAll(filepath.Join(d.pins(), e.Name())); err != nil {
				return nil, err
			}
		}
	}
	var loaded programObjects
	if err := loadProgramObjects(&loaded, nil); err != nil {
		return nil, fmt.Errorf("load the eBPF programs of the way to the uplink (need Linux ≥ 5.10 and CAP_BPF): %w",
			err)
	}
	loaded.Datagrams.Close()
	loaded.Echoes.Close()
	p = &programs{loaded.FromOutlet, loaded.FromUplink, loaded.Current, loaded.Services}
	if err := p.pin(dir); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// Names of the pins.
const (
	pinOutlet, pinUplink, pinCurrent, pinServices = "from_outlet", "from_uplink", "current", "services"
)

func (p *programs) open(dir string) (err error) {
	if p.fromOutlet, err = ebpf.LoadPinnedProgram(filepath.Join(dir, pinOutlet), nil); err != nil {
		return err
	}
	if p.fromUplink, err = ebpf.LoadPinnedProgram(filepath.Join(dir, pinUplink), nil); err != nil {
		return err
	}
	if p.current, err = ebpf.LoadPinnedMap(filepath.Join(dir, pinCurrent), nil); err != nil {
		return err
	}
	p.services, err = ebpf.LoadPinnedMap(filepath.Join(dir, pinServices), nil)
	return err
}

func (p *programs) pin(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of pinned eBPF objects: %w", err)
	}
	for name, x := range map[string]interface{ Pin(string) error }{pinOutlet: p.fromOutlet, pinUplink: p.fromUplink,
		pinCurrent: p.current, pinServices: p.services} {
		if err := x.Pin(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	return nil
}
