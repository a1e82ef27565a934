package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/trial"
)

// trafficLock is what a running trial has changed at the instance's devices, in a file: one trial at a time, and what a
// killed one left is put back by the next. eBPF programs are no part of it: the kernel takes them off when their process ends.
type trafficLock struct {
	file    *os.File
	changed []changedDevice
}

// changedDevice is a port that was given a receive queue of its own (GRO on), and perhaps a thread for it.
type changedDevice struct {
	Device netdev.Ref `json:"device"`
	GRO    bool       `json:"gro"` // as it was
}

// openTrafficLock refuses while another trial runs, and puts back what a killed one left.
func openTrafficLock(dirs instance.Dirs) (*trafficLock, error) {
	f, err := os.OpenFile(filepath.Join(dirs.Run, "traffic.json"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the record of running trials: %w", err)
	}
	l := &trafficLock{file: f}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, refused(fmt.Errorf("another trial runs in instance %s; two at a time would disturb each other", dirs.Name))
		}
		return nil, fmt.Errorf("lock the record of running trials: %w", err)
	}
	b, err := os.ReadFile(f.Name())
	if err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &l.changed)
	}
	if err != nil { // a record cut short names nothing that was changed: it is written first
		l.changed = nil
	}
	return l, l.restore()
}

func (l *trafficLock) write() error {
	b, err := json.Marshal(l.changed)
	if err != nil {
		return err
	}
	if len(l.changed) == 0 {
		b = nil
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(b, 0)
	return err
}

// queue gives a device its receive queue, without which frames that XDP sends to it vanish.
func (l *trafficLock) queue(d netdev.Ref) error {
	for _, c := range l.changed {
		if c.Device == d {
			return nil
		}
	}
	was, err := gro(d)
	if err != nil {
		return err
	}
	l.changed = append(l.changed, changedDevice{d, was})
	if err := l.write(); err != nil {
		return fmt.Errorf("record what is changed: %w", err)
	}
	return setGRO(d, true)
}

// restore puts all devices back; those that are gone need nothing.
func (l *trafficLock) restore() error {
	var errs []error
	for _, c := range slices.Backward(l.changed) {
		if !exists(c.Device) {
			continue
		}
		_, err := netdev.SetThreaded(c.Device, false)
		if !c.GRO {
			err = errors.Join(err, setGRO(c.Device, false))
		}
		if err != nil && exists(c.Device) {
			errs = append(errs, err)
		}
	}
	l.changed = nil
	return errors.Join(append(errs, l.write())...)
}

func (l *trafficLock) close() error { return errors.Join(l.restore(), l.file.Close()) }

func exists(d netdev.Ref) bool {
	return netdev.In(d.Namespace, func() error {
		_, err := net.InterfaceByName(d.Name)
		return err
	}) == nil
}

const groFeature = "rx-gro"

func gro(d netdev.Ref) (on bool, err error) {
	err = withEthtool(d, func(e *ethtool.Ethtool) error {
		all, err := e.Features(d.Name)
		on = all[groFeature]
		return err
	})
	if err != nil {
		return false, fmt.Errorf("read the offloads of %v: %w", d, err)
	}
	return on, nil
}

func setGRO(d netdev.Ref, on bool) error {
	if err := withEthtool(d, func(e *ethtool.Ethtool) error { return e.Change(d.Name, map[string]bool{groFeature: on}) }); err != nil {
		return fmt.Errorf("set GRO of %v: %w", d, err)
	}
	return nil
}

func withEthtool(d netdev.Ref, f func(*ethtool.Ethtool) error) error {
	return netdev.In(d.Namespace, func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return f(e)
	})
}

// pathBench is a bench whose sink sits in an element.
//
// The fabric hands frames to an element's end of the veth without passing its ring (bpf_redirect_peer), so an XDP program in
// the driver there never sees them; one in the generic hook, behind the ring, sees every frame however it came. The bench
// attaches its sink to a device of its own, and its program is attached to the element's interface besides.
type pathBench struct {
	*trial.Bench
	device *netdev.Namespace
	far    *netdev.Namespace
	hook   link.Link
}

// openPathBench opens the bench of one path.
func openPathBench(l *trafficLock, p trafficPath, o trial.Options) (_ *pathBench, err error) {
	b := &pathBench{}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if err = l.queue(p.Port); err != nil {
		return nil, err
	}
	if b.device, err = netdev.NewNamespace(); err != nil {
		return nil, err
	}
	if b.far, err = netdev.NewNamespace(); err != nil {
		return nil, err
	}
	own, other := netdev.Ref{Namespace: b.device.Path(), Name: "sink"}, netdev.Ref{Namespace: b.far.Path(), Name: "far"}
	if err = netdev.NewVeth(own, other, 1); err != nil {
		return nil, err
	}
	o.Path = trial.Path{From: p.Device, To: own}
	if b.Bench, err = trial.Open(o); err != nil {
		return nil, err
	}
	program, err := programOf(own)
	if err != nil {
		return nil, fmt.Errorf("find the sink's program: %w", err)
	}
	defer program.Close()
	err = netdev.In(p.SinkDevice.Namespace, func() error {
		d, err := net.InterfaceByName(p.SinkDevice.Name)
		if err != nil {
			return err
		}
		b.hook, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: d.Index, Flags: link.XDPGenericMode})
		return err
	})
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("%s has an XDP program already: the sink finds no place there", p.To)
	}
	if err != nil {
		return nil, fmt.Errorf("attach the sink to %s: %w", p.To, err)
	}
	return b, nil
}

// programOf is the XDP program on a device.
func programOf(d netdev.Ref) (p *ebpf.Program, err error) {
	err = netdev.In(d.Namespace, func() error {
		l, err := netlink.LinkByName(d.Name)
		if err != nil {
			return err
		}
		x := l.Attrs().Xdp
		if x == nil || !x.Attached {
			return fmt.Errorf("%s has none", d.Name)
		}
		p, err = ebpf.NewProgramFromID(ebpf.ProgramID(x.ProgId))
		return err
	})
	return p, err
}

// Close takes the sink away.
func (b *pathBench) Close() error {
	var errs []error
	if b.hook != nil {
		errs = append(errs, b.hook.Close())
	}
	if b.Bench != nil {
		errs = append(errs, b.Bench.Close())
	}
	for _, n := range []*netdev.Namespace{b.device, b.far} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// fabricPrograms are the loaded programs that forward: tc classifiers and XDP programs, by name and number.
func fabricPrograms() (map[string]*ebpf.Program, error) {
	found := map[string]*ebpf.Program{}
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("list the loaded eBPF programs: %w", err)
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // unloaded meanwhile
		}
		info, err := p.Info()
		if err != nil || info.Type != ebpf.SchedCLS && info.Type != ebpf.XDP || strings.TrimSpace(info.Name) == "" {
			p.Close()
			continue
		}
		found[fmt.Sprintf("%s#%d", info.Name, id)] = p
	}
}
