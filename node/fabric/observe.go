package fabric

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// device is what a dump says about a link in the node's namespace.
type device struct {
	index     int
	name      string
	flags     uint32
	mtu       int
	alias     string
	kind      string
	elsewhere bool // its peer is in another namespace
	vxlan     linux.VXLANInfo
	xdp       uint32 // ID of the program in its driver's hook
	mac       net.HardwareAddr
}

func (d device) up() bool { return d.flags&unix.IFF_UP != 0 }

// straight tells that frames can be handed to the device's peer, past the device's queue.
func (d device) straight() bool { return d.kind == "veth" && d.elsewhere }

// kernel is what the node's namespace contains, read at one time.
type kernel struct {
	devices map[int]device
	names   map[string]int
	linux.Qdiscs
}

const (
	skipStats    = 1 << 3 // RTEXT_FILTER_SKIP_STATS
	ifinfomsgLen = unix.SizeofIfInfomsg
)

// look reads the devices and their qdiscs.
func (f *Fabric) look() (kernel, error) {
	var k kernel
	err := linux.Undisturbed(func() (err error) {
		if k.devices, err = f.dumpLinks(); err == nil {
			k.Qdiscs, err = f.netlink.Qdiscs()
		}
		return err
	})
	if err != nil {
		return k, fmt.Errorf("look at the node's devices: %w", err)
	}
	k.names = make(map[string]int, len(k.devices))
	for i, d := range k.devices {
		k.names[d.name] = i
	}
	return k, nil
}

// dumpLinks reads all devices of the node's namespace at once: to ask for each port would be thousands of system calls.
func (f *Fabric) dumpLinks() (map[int]device, error) {
	devices := make(map[int]device, len(f.slots)+8)
	err := f.netlink.Links(skipStats, func(payload []byte) {
		d := device{index: int(int32(binary.NativeEndian.Uint32(payload[4:]))),
			flags: binary.NativeEndian.Uint32(payload[8:])}
		for kind, value := range linux.Attrs(payload[ifinfomsgLen:]) {
			switch kind {
			case unix.IFLA_IFNAME:
				d.name = unix.ByteSliceToString(value)
			case unix.IFLA_IFALIAS:
				d.alias = unix.ByteSliceToString(value)
			case unix.IFLA_ADDRESS:
				d.mac = bytes.Clone(value)
			case unix.IFLA_MTU:
				d.mtu = int(binary.NativeEndian.Uint32(value))
			case unix.IFLA_LINK_NETNSID:
				d.elsewhere = true
			case unix.IFLA_XDP:
				for k, v := range linux.Attrs(value) {
					if k == iflaXDPProgram {
						d.xdp = binary.NativeEndian.Uint32(v)
					}
				}
			case unix.IFLA_LINKINFO:
				for k, v := range linux.Attrs(value) {
					switch {
					case k == unix.IFLA_INFO_KIND && string(v) == "veth\x00":
						d.kind = "veth"
					case k == unix.IFLA_INFO_KIND:
						d.kind = unix.ByteSliceToString(v)
					case k == unix.IFLA_INFO_DATA && d.kind == "vxlan":
						d.vxlan = linux.ParseVXLAN(v)
					}
				}
			}
		}
		devices[d.index] = d
	})
	return devices, err
}

// Observe tells what the fabric does now, from the kernel's own tables. A port without a device has index 0.
func (f *Fabric) Observe(ctx context.Context) (State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return State{}, errClosed
	}
	if err := ctx.Err(); err != nil {
		return State{}, err
	}
	k, err := f.look()
	if err != nil {
		return State{}, err
	}
	names := make(map[uint32]model.PortID, len(f.slots))
	for id, slot := range f.slots {
		names[slot] = id
	}
	var s State
	for id, slot := range f.slots {
		entry := &f.pipe.Ports[slot]
		p := Port{ID: id, Index: int(atomic.LoadUint32(&entry.Ifindex)),
			Down: atomic.LoadUint32(&entry.Flags)&pipeline.Down != 0,
			MAC:  pipeline.HardwareAddr(atomic.LoadUint64(&entry.Mac))}
		queue := p.Index
		if atomic.LoadUint32(&entry.Flags)&pipeline.Rated != 0 {
			queue = int(atomic.LoadUint64(&f.pipe.Queues[slot]))
		}
		p.Shape = shapeOf(k.Queues[queue].Queue, k.devices[p.Index].mtu, atomic.LoadUint32(&entry.Loss))
		link := pipeline.LinkOf(entry)
		switch link.Kind() {
		case pipeline.Local:
			p.Local = names[link.Target()]
		case pipeline.Tunnel:
			if int(link.Target()) < len(f.pipe.Peers) {
				p.Tunnel = &Tunnel{VNI: link.Label(), Peer: pipeline.AddressOf(&f.pipe.Peers[link.Target()])}
			}
		case pipeline.Edge:
			p.Edge = &Edge{Device: k.devices[int(link.Target())].name, VLAN: int(link.Label()),
				Trunk: atomic.LoadUint32(&entry.Flags)&pipeline.Trunk != 0}
		}
		s.Ports = append(s.Ports, p)
	}
	slices.SortFunc(s.Ports, func(a, b Port) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	for i := 1; i < len(f.pipe.Peers); i++ {
		if a := pipeline.AddressOf(&f.pipe.Peers[i]); a.IsValid() {
			s.Peers = append(s.Peers, model.Peer{Address: a})
		}
	}
	if err := f.observeAlso(s.Ports); err != nil {
		return s, err
	}
	s.Relays, err = f.observeRelays()
	return s, err
}

var errClosed = errors.New("the fabric is closed")
