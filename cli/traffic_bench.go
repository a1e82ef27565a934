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
	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/trial"
)

// trafficLock is a file that records what a running trial has changed at the instance's devices. It is locked, so that
// one trial runs at a time. If a trial is killed, the next one reads the file and puts everything back. eBPF programs
// are not recorded: the kernel takes them off when their process ends.
type trafficLock struct {
	file    *os.File
	changed []changedDevice
}

// changedDevice is a port that was given a receive queue of its own (GRO on), and perhaps a thread for it.
type changedDevice struct {
	Device netdev.Ref `json:"device"`
	GRO    bool       `json:"gro"` // as it was
}

// openTrafficLock fails while another trial runs. It puts back what a killed trial left.
func openTrafficLock(dirs instance.Dirs) (*trafficLock, error) {
	f, err := os.OpenFile(filepath.Join(dirs.Run, "traffic.json"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the record of running trials: %w", err)
	}
	l := &trafficLock{file: f}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, refused(fmt.Errorf("another trial is running in instance %s; two at a time would disturb "+
				"each other", dirs.Name))
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

// queue switches on a device's GRO, by which it gets its receive queue: without it, frames that XDP sends to the device
// vanish. The order matters: the change is recorded before it is made.
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

// restore puts all devices back as they were, the latest change first. Devices that are gone need nothing.
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
	if err := withEthtool(d,
		func(e *ethtool.Ethtool) error { return e.Change(d.Name, map[string]bool{groFeature: on}) }); err != nil {
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

// The sink is usually in the generic hook. The fabric hands frames to an element's end of the veth without passing its
// ring (bpf_redirect_peer), so that a program in the driver would never see them. Frames from a queue at the port do
// pass the ring, and for them the kernel does not run the generic hook after a redirection: there the sink is in the
// driver.
func openPathBench(l *trafficLock, p trafficPath, o trial.Options) (*trial.Bench, error) {
	if err := l.queue(p.Port); err != nil {
		return nil, err
	}
	o.Path, o.Generic = trial.Path{From: p.Device, To: p.SinkDevice}, !p.Queued
	if p.Queued {
		o.Path.Before = p.SinkPort
	}
	b, err := trial.Open(o)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("%s has an XDP program already: the sink finds no place there", p.To)
	}
	return b, err
}

// fabricPrograms returns the loaded programs that forward: tc classifiers and XDP programs, by name and number.
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
