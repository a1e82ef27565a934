// Package impair is a real device under test whose faults are known exactly: an eBPF program that forwards from one
// device to another. Instruments are checked against it.
package impair

import (
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type fault program bpf/impair.c -- -O2 -mcpu=v3 -Wall -Werror -Wno-unused-variable

// Faults say what the device does to frames. Chances are 0…1 and independent.
type Faults struct {
	Rate        float64       // frames/s it forwards at most; 0: no limit
	Burst       int           // frames that may pass at once under the limit; at least 1
	Loss        float64       // chance of being lost
	Duplication float64       // … of being sent twice
	Corruption  float64       // … of one bit being flipped behind the IPv4 and UDP headers
	Detour      float64       // … of a longer way, on which other frames overtake
	Delay       time.Duration // spent with every frame, one after the other; below 1 ms
	Jitter      time.Duration // spent on top: uniform between 0 and this; below 1 ms
	Seed        uint64
}

// Device is attached until Close.
type Device struct {
	objects programObjects
	links   []link.Link
}

// Open makes a device that takes frames at in and sends them out of out, both in one namespace. The detour is a veth
// pair in the same namespace: frames leave through its first end and come back through its second.
func Open(in, out netdev.Ref, detour [2]netdev.Ref, f Faults) (*Device, error) {
	if in.Namespace != out.Namespace {
		return nil, errors.New("faulty device: its two sides are in different namespaces")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("faulty device: lift the locked-memory limit: %w", err)
	}
	d := new(Device)
	if err := loadProgramObjects(&d.objects, nil); err != nil {
		return nil, fmt.Errorf("faulty device: load the programs: %w", err)
	}
	if err := d.Set(f); err != nil {
		d.Close()
		return nil, err
	}
	if err := netdev.In(in.Namespace, func() error { return d.attach(in, out, detour) }); err != nil {
		d.Close()
		return nil, fmt.Errorf("faulty device: %w", err)
	}
	return d, nil
}

func (d *Device) attach(in, out netdev.Ref, detour [2]netdev.Ref) error {
	index := func(r netdev.Ref) (uint32, error) {
		i, err := net.InterfaceByName(r.Name)
		if err != nil {
			return 0, fmt.Errorf("%v: %w", r, err)
		}
		return uint32(i.Index), nil
	}
	var at [4]uint32
	for i, r := range []netdev.Ref{in, out, detour[0], detour[1]} {
		var err error
		if at[i], err = index(r); err != nil {
			return err
		}
	}
	for i, p := range map[uint32]uint32{0: at[1], 1: at[2]} {
		if err := d.objects.Ways.Put(i, p); err != nil {
			return fmt.Errorf("set way %d: %w", i, err)
		}
		if err := d.objects.Twice.Put(i, at[1]); err != nil {
			return fmt.Errorf("set the way out: %w", err)
		}
	}
	for _, a := range []link.XDPOptions{
		{Program: d.objects.Impair, Interface: int(at[0]), Flags: link.XDPDriverMode},
		{Program: d.objects.Forward, Interface: int(at[3]), Flags: link.XDPDriverMode},
	} {
		l, err := link.AttachXDP(a)
		if err != nil {
			return fmt.Errorf("attach to device %d: %w", a.Interface, err)
		}
		d.links = append(d.links, l)
	}
	return nil
}

// Set changes the faults, and begins counting anew.
func (d *Device) Set(f Faults) error {
	for name, p := range map[string]float64{"loss": f.Loss, "duplication": f.Duplication, "corruption": f.Corruption,
		"detour": f.Detour} {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("faulty device: a chance of %s of %v is not within 0…1", name, p)
		}
	}
	if f.Delay < 0 || f.Jitter < 0 || f.Delay >= time.Millisecond || f.Jitter >= time.Millisecond {
		return fmt.Errorf("faulty device: delay %v and jitter %v; each must be below 1 ms", f.Delay, f.Jitter)
	}
	chance := func(p float64) uint32 { return uint32(math.Min(p*(1<<32), math.MaxUint32)) }
	c := programFault{
		Loss: chance(f.Loss), Duplication: chance(f.Duplication), Corruption: chance(f.Corruption),
		Detour: chance(f.Detour),
		Delay:  uint32(f.Delay), Jitter: uint32(f.Jitter), CorruptFrom: uint32(frame.IPv4.HeaderSize()),
		Rng: f.Seed*2 + 1,
	}
	if f.Rate > 0 {
		c.Interval = uint64(math.Round(1e9 / f.Rate * 65536))
		c.Burst = c.Interval * uint64(max(f.Burst, 1)-1)
	}
	if err := d.objects.Faults.Put(uint32(0), &c); err != nil {
		return fmt.Errorf("faulty device: set the faults: %w", err)
	}
	return nil
}

// Close detaches the device.
func (d *Device) Close() error {
	errs := each.Of(d.links, func(l link.Link) error { return l.Close() })
	return errors.Join(append(errs, d.objects.Close())...)
}
