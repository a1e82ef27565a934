package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
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

// ready sets the offloads of a device so that they suit XDP, and first notes what they were.
func (p *pass) ready(c *linux.Rtnetlink, name string, index uint32, suit func(*linux.Offloads)) error {
	is, err := c.Offloads(name)
	if err != nil {
		return err
	}
	to := is
	suit(&to)
	e := p.drivers[index]
	for bit, differs := range map[uint32]bool{hadChecksum: is.Checksum && !to.Checksum,
		hadTxVLAN: is.TxVLAN && !to.TxVLAN,
		hadRxVLAN: is.RxVLAN && !to.RxVLAN, hadNoGRO: !is.GRO && to.GRO} {
		if differs {
			e.Restore |= bit
		}
	}
	if err := p.note(index, e); err != nil || to == is {
		return err
	}
	if err := c.SetOffloads(name, to); err != nil {
		return err
	}
	if is, err = c.Offloads(name); err == nil && is != to {
		err = fmt.Errorf("%s does not do without its offloads", name)
	}
	return err
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

// restore gives a device the offloads back that it had.
func restore(c *linux.Rtnetlink, name string, had uint32) error {
	if had == 0 {
		return nil
	}
	to, err := c.Offloads(name)
	if err != nil {
		return err
	}
	to.Checksum = to.Checksum || had&hadChecksum != 0
	to.TxVLAN = to.TxVLAN || had&hadTxVLAN != 0
	to.RxVLAN = to.RxVLAN || had&hadRxVLAN != 0
	to.GRO = to.GRO && had&hadNoGRO == 0
	return c.SetOffloads(name, to)
}

// inside calls f with a connection to an element's namespace, and the name of the port's other end there.
func (f *Fabric) inside(id model.ID, d device, call func(c *linux.Rtnetlink, name string) error) error {
	if !d.straight() {
		return fmt.Errorf("%s is no veth whose other end is in the element", d.name)
	}
	namespace, err := os.Open(f.dirs.Namespace(id))
	if err != nil {
		return fmt.Errorf("open its network namespace: %w", err)
	}
	defer namespace.Close()
	return linux.Inside(int(namespace.Fd()), func() error {
		c, err := linux.DialRtnetlink()
		if err != nil {
			return err
		}
		defer c.Close()
		end, err := net.InterfaceByIndex(d.peer)
		if err != nil {
			return fmt.Errorf("look for the other end of %s: %w", d.name, err)
		}
		return call(c, end.Name)
	})
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
		err := p.inside(w.port.ID.ID, d, func(c *linux.Rtnetlink, name string) error {
			return p.ready(c, name, w.index, func(o *linux.Offloads) {
				o.Checksum, o.TxVLAN,
					o.GRO = false, false, true
			})
		})
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
			p.changed("port %s: its driver's hook is used", w.port.ID)
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
			p.changed("%s: its driver's hook is no longer used", l.d.name)
		}
	}
	linux.Grace(context.Background()) // what waits in a veth's ring is received
	for _, l := range all {
		var err error
		if l.port == nil {
			err = restore(p.netlink, l.d.name, l.had)
		} else if l.had != 0 {
			err = p.inside(l.port.port.ID.ID, l.d,
				func(c *linux.Rtnetlink, name string) error { return restore(c, name, l.had) })
		}
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("give %s its offloads back: %w", l.d.name, err))
		}
	}
	return errors.Join(errs...)
}
