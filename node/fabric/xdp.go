package fabric

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/node/port"
)

// Attributes and flags of linux/if_link.h that golang.org/x/sys/unix does not have.
const (
	iflaXDPFD      = 1      // IFLA_XDP_FD
	iflaXDPFlags   = 3      // IFLA_XDP_FLAGS
	iflaXDPProgram = 4      // IFLA_XDP_PROG_ID
	xdpNoExist     = 1 << 0 // XDP_FLAGS_UPDATE_IF_NOEXIST
	xdpNative      = 1 << 2 // XDP_FLAGS_DRV_MODE: the driver's hook, or an error
)

// setXDP appends the request that attaches a program to a device's driver, or detaches it with -1.
func setXDP(b *linux.Batch, index, program int, flags uint32) {
	b.Request(unix.RTM_SETLINK, 0)
	b.Link(index, 0, 0)
	b.Begin(unix.IFLA_XDP)
	b.Uint32(iflaXDPFD, uint32(int32(program)))
	b.Uint32(iflaXDPFlags, flags)
	b.End()
}

// attachXDP attaches a program to a device's driver, and replaces one of ours that is there.
func (f *Fabric) attachXDP(d device, program *ebpf.Program) (changed bool, err error) {
	info, err := program.Info()
	if err != nil {
		return false, fmt.Errorf("ask about the XDP program: %w", err)
	}
	if id, _ := info.ID(); d.xdp == uint32(id) {
		return false, nil
	}
	flags := uint32(xdpNative)
	if d.xdp == 0 {
		flags |= xdpNoExist // another one may have come since
	}
	var b linux.Batch
	setXDP(&b, d.index, program.FD(), flags)
	if errs := f.netlink.Do(&b); errs != nil {
		return false, fmt.Errorf("its driver takes no XDP program: %w", errs[0])
	}
	return true, nil
}

// detachXDP detaches the program from a device's driver.
func (f *Fabric) detachXDP(d device) error {
	var b linux.Batch
	setXDP(&b, d.index, -1, xdpNative)
	if errs := f.netlink.Do(&b); errs != nil && !errors.Is(errs[0], unix.ENODEV) {
		return fmt.Errorf("take the XDP program out of the driver of %s: %w", d.name, errs[0])
	}
	return nil
}

// ours returns whether the program in a real device's driver belongs to this node.
func (f *Fabric) ours(d device) bool {
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(d.xdp))
	if err != nil {
		return false
	}
	defer program.Close()
	info, err := program.Info()
	return err == nil && info.Name == pipeline.WireName(f.dirs.BPF())
}

// What Driver.Restore keeps: the settings that a device had before.
const (
	hadChecksum = 1 << 0
	hadTxVLAN   = 1 << 1
	hadRxVLAN   = 1 << 2
	hadNoGRO    = 1 << 3
)

// ready sets the offloads of what the device of an index is for so that they suit XDP, and first notes what they were.
func (p *pass) ready(at port.Behind, index uint32, suit func(*linux.Offloads)) error {
	var is, to linux.Offloads
	err := at.Offloads(func(o *linux.Offloads) error {
		is = *o
		suit(o)
		to = *o
		e := p.drivers[index]
		for bit, differs := range map[uint32]bool{hadChecksum: is.Checksum && !to.Checksum,
			hadTxVLAN: is.TxVLAN && !to.TxVLAN, hadRxVLAN: is.RxVLAN && !to.RxVLAN, hadNoGRO: !is.GRO && to.GRO} {
			if differs {
				e.Restore |= bit
			}
		}
		return p.note(index, e)
	})
	if err != nil || to == is {
		return err
	}
	return at.Offloads(func(o *linux.Offloads) error {
		if *o != to {
			return errors.New("it does not do without its offloads")
		}
		return nil
	})
}

// note writes what is known of a device.
func (p *pass) note(index uint32, e pipeline.Driver) error {
	if is, ok := p.drivers[index]; ok && is == e {
		return nil
	}
	if err := p.pipe.Drivers.Put(index, e); err != nil {
		return fmt.Errorf("write the table of drivers: %w", err)
	}
	p.drivers[index] = e
	return nil
}

// restore gives back the offloads that were there.
func restore(at port.Behind, had uint32) error {
	if had == 0 {
		return nil
	}
	return at.Offloads(func(o *linux.Offloads) error {
		o.Checksum = o.Checksum || had&hadChecksum != 0
		o.TxVLAN = o.TxVLAN || had&hadTxVLAN != 0
		o.RxVLAN = o.RxVLAN || had&hadRxVLAN != 0
		o.GRO = o.GRO && had&hadNoGRO == 0
		return nil
	})
}

// behind returns what is at the other side of a port.
func behind(p *Port, d device) (port.Behind, error) {
	if p.Behind == nil {
		return nil, fmt.Errorf("nothing is known of what is behind %s", d.name)
	}
	if d.kind == "veth" && !d.straight() {
		return nil, fmt.Errorf("the other end of %s is not in the element", d.name)
	}
	return p.Behind, nil
}

// hookPorts attaches the ports' program to the drivers of ports that are to use that hook, before any frame is sent to
// them that way. Before that it sets up the elements' ends: they leave no checksum and no tag to be filled in, and
// receive by NAPI.
func (p *pass) hookPorts() error {
	for i := range p.wants {
		w := &p.wants[i]
		h := p.hooked[w.slot]
		if w.index == 0 || h == nil {
			continue
		}
		d := p.kernel.devices[int(w.index)]
		at, err := behind(w.port, d)
		if err == nil {
			err = p.ready(at, w.index, func(o *linux.Offloads) { o.Checksum, o.TxVLAN, o.GRO = false, false, true })
		}
		var changed bool
		if err == nil {
			changed, err = p.attachXDP(d, p.pipe.FromPortXDP)
		}
		if err != nil {
			h.refused = err.Error()
			continue
		}
		w.flags |= pipeline.XDP
		if changed {
			p.changed(change.HookUsed, "port "+w.port.ID.String())
		}
	}
	return nil
}

// unhook detaches programs from drivers that are no longer to have them, after the last frame was sent that way, and
// gives the devices their offloads back.
func (p *pass) unhook() error {
	byIndex := make(map[uint32]*want, len(p.wants))
	for i := range p.wants {
		byIndex[p.wants[i].index] = &p.wants[i]
	}
	type left struct {
		d    device
		had  uint32
		port *want
	}
	var all []left
	for index, e := range p.drivers {
		d, there := p.kernel.devices[int(index)]
		w := byIndex[index]
		switch {
		case p.wires.uses(int(index)) || w != nil && w.flags&pipeline.XDP != 0:
			continue
		case p.state.Incomplete && there && w == nil:
			continue
		}
		if err := p.pipe.Drivers.Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("write the table of drivers: %w", err)
		}
		if there {
			all = append(all, left{d, e.Restore, w})
		}
	}
	for i := range p.wants { // somebody else's, on devices of ours
		w := &p.wants[i]
		if d := p.kernel.devices[int(w.index)]; w.index != 0 && d.xdp != 0 && w.flags&pipeline.XDP == 0 {
			if _, noted := p.drivers[w.index]; !noted {
				all = append(all, left{d, 0, w})
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	linux.Grace(context.Background())
	var errs []error
	for _, l := range all {
		if l.d.xdp != 0 && (l.port != nil || p.ours(l.d)) {
			errs = append(errs, p.detachXDP(l.d))
			p.changed(change.HookLeft, l.d.name)
		}
	}
	linux.Grace(context.Background()) // what waits in a veth's ring is received
	for _, l := range all {
		at, err := port.Behind(port.Device{Rtnetlink: p.netlink, Name: l.d.name}), error(nil)
		if l.port != nil && l.had != 0 {
			at, err = behind(l.port.port, l.d)
		}
		if err == nil {
			err = restore(at, l.had)
		}
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("give %s its offloads back: %w", l.d.name, err))
		}
	}
	return errors.Join(errs...)
}
