// Package port makes and keeps ports: the node's ends of elements' interfaces. The fabric's programs work at ports.
// What is behind one – the other end of a device pair in a namespace, a virtual machine behind a tap, Xen's vif –
// concerns only the control-plane driver. The fabric has of it what the driver gives: a Behind.
//
// Requests are collected in a batch of the caller's, so that many ports are made at once.
package port

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Port says how a port shall be.
type Port struct {
	Key   string // "net/element:interface"
	Name  string // the device on the node
	Alias string // the mark by which it is recognised as ours, whatever its name is
	MTU   int    // bytes
	// Pair is what Make makes behind the port. Without one, somebody else makes the device, as a hypervisor makes its
	// tap.
	Pair *End
}

// End is the other end of a device pair.
type End struct {
	Name   string
	MAC    net.HardwareAddr // the kernel chooses one if there is none
	Single bool             // it sends no packet that stands for several (GSO): its link loses each separately
}

// Make appends the requests that make a port together with the other end of its pair, which is in the namespace of fd.
// Both are down: nothing may pass before Silence and the fabric's programs are in place.
func (p *Port) Make(b *linux.Batch, fd int) {
	segments := uint32(0)
	if p.Pair.Single {
		segments = 1
	}
	b.AddVethInto(p.Name, fd, p.Pair.Name, p.Pair.MAC, p.MTU, segments)
	p.mark(b, 0)
}

// GSOMaxSegments is the kernel's default of IFLA_GSO_MAX_SEGS (GSO_MAX_SEGS of linux/netdevice.h).
const GSOMaxSegments = 65535

// mark appends the requests that make a port recognisable as ours and keep the node's own stack off it: no ARP, and no
// IPv4 packet. (A port has no address, so every source fails the reverse path filter.) The fabric's filter takes all
// frames before that, but it is attached after the port exists. An element's root can have its port made anew at any
// time by deleting its own end. Meanwhile it must not be able to speak to the node or, through it, to the underlay.
// Without an index the port is found by its name.
func (p *Port) mark(b *linux.Batch, index int) {
	b.Request(unix.RTM_SETLINK, 0)
	b.Link(index, unix.IFF_NOARP, unix.IFF_NOARP)
	if index == 0 {
		b.String(unix.IFLA_IFNAME, p.Name)
	}
	b.String(unix.IFLA_IFALIAS, p.Alias)
	b.Begin(unix.IFLA_AF_SPEC)
	b.Begin(unix.AF_INET)
	b.Begin(iflaInetConf)
	b.Uint32(devconfRPFilter, 1)
	b.End()
	b.End()
	b.End()
}

// Is returns whether a device is as the port is to be. The fabric decides whether it is up.
func (p *Port) Is(l *Link) bool {
	return l.Name == p.Name && l.Alias == p.Alias && l.MTU == p.MTU && !l.IPv6 && !l.Lax && l.Flags&unix.IFF_NOARP != 0
}

// Restore appends the requests that repair an existing port. If IPv6 is on, the caller must call Silence afterwards.
func (p *Port) Restore(b *linux.Batch, l *Link) {
	if l.Name != p.Name {
		// Older kernels rename only what is down.
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(l.Index, 0, unix.IFF_UP)
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(l.Index, 0, 0)
		b.String(unix.IFLA_IFNAME, p.Name)
		if l.Up() {
			b.Request(unix.RTM_SETLINK, 0)
			b.Link(l.Index, unix.IFF_UP, unix.IFF_UP)
		}
	}
	if l.MTU != p.MTU {
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(l.Index, 0, 0)
		b.Uint32(unix.IFLA_MTU, uint32(p.MTU))
	}
	p.mark(b, l.Index)
}

// Raise appends the request that takes a port up.
func (p *Port) Raise(b *linux.Batch) {
	b.Request(unix.RTM_SETLINK, 0)
	b.Link(0, unix.IFF_UP, unix.IFF_UP)
	b.String(unix.IFLA_IFNAME, p.Name)
}

// Delete appends the request that removes a device, and with it the other end of a pair.
func Delete(b *linux.Batch, l *Link) {
	b.Request(unix.RTM_DELLINK, 0)
	b.Link(l.Index, 0, 0)
}

// Ports are the ports of this node's elements, by their keys.
type Ports map[string]*Link

// Find reads the ports, by what follows the prefix in their aliases, and every device of the node by its name. expected
// is about how many there are.
func Find(c *linux.Rtnetlink, prefix string, expected int) (Ports, map[string]*Link, error) {
	found, names := make(Ports, expected+16), make(map[string]*Link, expected+16)
	links, err := Links(c)
	for i := range links {
		l := &links[i]
		names[l.Name] = l
		if key, ours := strings.CutPrefix(l.Alias, prefix); ours {
			found[key] = l
		}
	}
	return found, names, err
}

// Adopt takes a device for a port that has no other. The device may have lost its alias, or somebody else has made it
// for the port. Nobody chooses such a name by chance.
func (p Ports) Adopt(want *Port, names map[string]*Link) {
	if l := names[want.Name]; l != nil && p[want.Key] == nil {
		p[want.Key] = l
	}
}

// Silencer keeps the node's own stack from speaking to elements through new ports. It is for one thread in the node's
// namespace.
type Silencer struct{ conf int } // the directory of the devices' settings

// NewSilencer opens the settings of the devices of the calling thread's namespace.
func NewSilencer() (*Silencer, error) {
	proc, err := linux.OpenProc()
	if err != nil {
		return nil, err
	}
	defer unix.Close(proc)
	conf, err := unix.Openat(proc, "sys/net/ipv6/conf", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the sysctls of the node's devices: %w", err)
	}
	return &Silencer{conf}, nil
}

// Close must follow the last use.
func (s *Silencer) Close() { unix.Close(s.conf) }

// Silence switches IPv6 off on one device. Otherwise the node's own stack would send multicast listener reports into
// every element, and walk over a route of every port for each of them.
func (s *Silencer) Silence(device string) error {
	fd, err := unix.Openat(s.conf, device+"/disable_ipv6", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte("1"))
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("switch IPv6 off on %s: %w", device, err)
	}
	return nil
}
