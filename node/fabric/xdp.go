package fabric

import (
	"errors"
	"fmt"

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
	xdpNative      = 1 << 2 // XDP_FLAGS_DRV_MODE: the driver's hook, or an error
)

// setXDP appends the request that puts a program into a device's driver, in the place of the one that is there; none with
// -1.
func setXDP(b *linux.Batch, index, program int) {
	b.Request(unix.RTM_SETLINK, 0)
	b.Link(index, 0, 0)
	b.Begin(unix.IFLA_XDP)
	b.Uint32(iflaXDPFD, uint32(int32(program)))
	b.Uint32(iflaXDPFlags, xdpNative)
	b.End()
}

// hooks puts the program into the drivers of ports that shall use that hook, before any frame is sent to them that way.
func (p *pass) hooks() error {
	var b linux.Batch
	var owners []*want
	info, err := p.pipe.FromPortXDP.Info()
	if err != nil {
		return fmt.Errorf("ask about the XDP program: %w", err)
	}
	id, _ := info.ID()
	for i := range p.wants {
		w := &p.wants[i]
		if !w.port.XDP || w.index == 0 {
			continue
		}
		w.flags |= pipeline.XDP
		if d := p.kernel.devices[int(w.index)]; d.xdp != uint32(id) {
			setXDP(&b, d.index, p.pipe.FromPortXDP.FD())
			owners = append(owners, w)
			if w.known && d.xdp != 0 {
				p.changed("port %s: its XDP program replaced", w.port.ID)
			}
		}
	}
	for i, err := range p.netlink.Do(&b) {
		if err != nil {
			w := owners[i]
			w.flags &^= pipeline.XDP
			p.fail(w.port.ID, "its device %s takes no XDP program in its driver: %w", p.kernel.devices[int(w.index)].name, err)
		}
	}
	return nil
}

// unhook takes the program out of drivers that shall not have it any more, after the last frame was sent that way.
func (p *pass) unhook() error {
	var b linux.Batch
	var owners []model.PortID
	for i := range p.wants {
		w := &p.wants[i]
		if d := p.kernel.devices[int(w.index)]; w.index != 0 && d.xdp != 0 && !w.port.XDP {
			setXDP(&b, d.index, -1)
			owners = append(owners, w.port.ID)
		}
	}
	for i, err := range p.netlink.Do(&b) {
		if err != nil && !errors.Is(err, unix.ENODEV) {
			p.fail(owners[i], "take the XDP program out of its device's driver: %w", err)
		}
	}
	return nil
}
