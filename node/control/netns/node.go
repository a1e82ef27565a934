package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// link is a device as the kernel describes it.
type link struct {
	index int
	peer  int // the other end's index in its own namespace; zero for none
	// master is the index of the bridge or VRF that the device is in; zero for none.
	master int
	name   string
	alias  string
	mac    [6]byte
	mtu    int
	// segments is the most that a GSO packet may have.
	segments uint32
	flags    uint32
	ipv6     bool // not switched off
	lax      bool // takes IPv4 packets whatever their source: rp_filter is 0
	bridge   bool // and no port of one
	raise    bool // down because it is new, or was taken down to be renamed: not by anybody's wish
}

func (l *link) up() bool { return l.flags&unix.IFF_UP != 0 }

// Attributes of linux/if_link.h that golang.org/x/sys/unix does not have.
const (
	iflaInetConf         = 1  // IFLA_INET_CONF, an array of uint32 that begins with setting 1; nested attributes when set
	devconfRPFilter      = 8  // IPV4_DEVCONF_RP_FILTER, of linux/ip.h
	iflaInet6Conf        = 2  // IFLA_INET6_CONF, an array of int32
	devconfDisableIPv6   = 26 // DEVCONF_DISABLE_IPV6, of linux/ipv6.h
	vethInfoPeer         = 1  // VETH_INFO_PEER
	rtextFilterSkipStats = 1 << 3
)

// dumpLinks reads the devices of c's namespace. A dump that a change disturbed is read again.
func dumpLinks(c *linux.Rtnetlink, each func(l *link)) error {
	var b linux.Batch
	var err error
	for range 20 {
		b.Reset()
		b.Request(unix.RTM_GETLINK, 0)
		b.Link(0, 0, 0)
		b.Uint32(unix.IFLA_EXT_MASK, rtextFilterSkipStats)
		var links []link
		err = c.Dump(&b, func(kind uint16, payload []byte) error {
			if kind == unix.RTM_NEWLINK && len(payload) >= unix.SizeofIfInfomsg {
				links = append(links, parseLink(payload))
			}
			return nil
		})
		if errors.Is(err, linux.ErrDumpInterrupted) {
			continue
		}
		if err == nil {
			for i := range links {
				each(&links[i])
			}
		}
		break
	}
	if err != nil {
		return fmt.Errorf("read the network devices: %w", err)
	}
	return nil
}

func parseLink(payload []byte) link {
	l := link{index: int(int32(binary.NativeEndian.Uint32(payload[4:]))), flags: binary.NativeEndian.Uint32(payload[8:])}
	for kind, v := range linux.Attrs(payload[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.name = unix.ByteSliceToString(v)
		case unix.IFLA_IFALIAS:
			l.alias = unix.ByteSliceToString(v)
		case unix.IFLA_MTU:
			l.mtu = int(number(v))
		case unix.IFLA_GSO_MAX_SEGS:
			l.segments = number(v)
		case unix.IFLA_LINK:
			l.peer = int(number(v))
		case unix.IFLA_MASTER:
			l.master = int(number(v))
		case unix.IFLA_ADDRESS:
			copy(l.mac[:], v)
		case unix.IFLA_AF_SPEC:
			l.parseFamilies(v)
		case unix.IFLA_LINKINFO:
			for k, x := range linux.Attrs(v) {
				l.bridge = l.bridge || k == unix.IFLA_INFO_KIND && unix.ByteSliceToString(x) == "bridge"
			}
		}
	}
	return l
}

func (l *link) parseFamilies(spec []byte) {
	for family, af := range linux.Attrs(spec) {
		for k, x := range linux.Attrs(af) {
			switch {
			case family == unix.AF_INET && k == iflaInetConf && len(x) >= 4*devconfRPFilter:
				l.lax = number(x[4*(devconfRPFilter-1):]) == 0
			case family == unix.AF_INET6 && k == iflaInet6Conf && len(x) >= 4*(devconfDisableIPv6+1):
				l.ipv6 = number(x[4*devconfDisableIPv6:]) == 0
			}
		}
	}
}

func number(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(v)
}

// ports are the devices of this node's elements, by what their alias says.
type ports map[string]*link // by "net/element:interface"

// dumpPorts reads the ports, and every device of the node by name.
func (d *Driver) dumpPorts() (ports, map[string]*link, error) {
	prefix := d.dirs.AliasPrefix()
	found, names := make(ports, d.lastPorts+16), make(map[string]*link, d.lastPorts+16)
	err := dumpLinks(d.node, func(l *link) {
		names[l.name] = l
		if port, ours := strings.CutPrefix(l.alias, prefix); ours {
			found[port] = l
		}
	})
	d.lastPorts = len(found)
	return found, names, err
}

// adopt finds the ports of an element that lost their alias: they still have their name, which nobody else would choose.
func (p ports) adopt(w *work, names map[string]*link) {
	for i := range w.want.interfaces {
		ifc := &w.want.interfaces[i]
		if l := names[ifc.port]; l != nil && p[ifc.key] == nil {
			p[ifc.key] = l
		}
	}
}

func portOf(text string) model.PortID {
	var p model.PortID
	p.UnmarshalText([]byte(text)) // never fails
	return p
}

// makePort appends the requests for one interface: both ends of the pair at once, the element's end in the namespace
// that fd is, both still down.
func makePort(b *linux.Batch, w *wantInterface, fd int) {
	b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.Link(0, unix.IFF_NOARP, unix.IFF_NOARP)
	b.String(unix.IFLA_IFNAME, w.port)
	b.Uint32(unix.IFLA_MTU, uint32(w.mtu))
	oneQueue(b)
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "veth")
	b.Begin(unix.IFLA_INFO_DATA)
	b.Begin(vethInfoPeer)
	b.Link(0, 0, 0) // the kernel cannot take it up yet
	b.String(unix.IFLA_IFNAME, w.device)
	b.Uint32(unix.IFLA_MTU, uint32(w.mtu))
	if w.single {
		b.Uint32(unix.IFLA_GSO_MAX_SEGS, 1)
	}
	oneQueue(b)
	if w.mac != nil {
		b.Attr(unix.IFLA_ADDRESS, w.mac)
	}
	b.Uint32(unix.IFLA_NET_NS_FD, uint32(fd))
	b.End()
	b.End()
	b.End()
	markPort(b, 0, w)
}

// gsoMaxSegments is the kernel's default of IFLA_GSO_MAX_SEGS (GSO_MAX_SEGS of linux/netdevice.h).
const gsoMaxSegments = 65535

// oneQueue asks for one queue each way. The kernel would make as many as there are CPUs and use one, after waiting for an
// RCU grace period an end to say so (netif_set_real_num_tx_queues): a third of a pair's time.
func oneQueue(b *linux.Batch) {
	b.Uint32(unix.IFLA_NUM_TX_QUEUES, 1)
	b.Uint32(unix.IFLA_NUM_RX_QUEUES, 1)
}

// markPort appends the request that makes a port recognisable as ours and keeps the node's own stack off it: no ARP, and
// no IPv4 packet – a port has no address, so every source fails the reverse path filter. The fabric's filter takes all
// frames before that; but it comes after the port, and an element's root can have its port made anew at any time by
// deleting its own end, and must not get a word in meanwhile with the node or, through it, the underlay. Without an index
// the port is found by its name.
func markPort(b *linux.Batch, index int, w *wantInterface) {
	b.Request(unix.RTM_SETLINK, 0)
	b.Link(index, unix.IFF_NOARP, unix.IFF_NOARP)
	if index == 0 {
		b.String(unix.IFLA_IFNAME, w.port)
	}
	b.String(unix.IFLA_IFALIAS, w.portAlias)
	b.Begin(unix.IFLA_AF_SPEC)
	b.Begin(unix.AF_INET)
	b.Begin(iflaInetConf)
	b.Uint32(devconfRPFilter, 1)
	b.End()
	b.End()
	b.End()
}

// raisePort appends the request that takes a port up.
func raisePort(b *linux.Batch, w *wantInterface) {
	b.Request(unix.RTM_SETLINK, 0)
	b.Link(0, unix.IFF_UP, unix.IFF_UP)
	b.String(unix.IFLA_IFNAME, w.port)
}

// silencer switches IPv6 off on ports, for one thread in the node's namespace: the node's own stack would send multicast
// listener reports into every element, each after a walk over a route of every port.
type silencer struct {
	reader sysctlReader
	conf   int // the directory of the devices' settings
}

func newSilencer() (*silencer, error) {
	s := &silencer{}
	t, err := s.reader.tree()
	if err != nil {
		return nil, err
	}
	defer t.close()
	if s.conf, err = t.open("ipv6/conf", unix.O_PATH|unix.O_DIRECTORY); err != nil {
		s.reader.close()
		return nil, fmt.Errorf("open the sysctls of the node's devices: %w", err)
	}
	return s, nil
}

func (s *silencer) close() {
	unix.Close(s.conf)
	s.reader.close()
}

// silence switches IPv6 off on one device.
func (s *silencer) silence(device string) error {
	fd, err := unix.Openat(s.conf, device+"/disable_ipv6", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte("1"))
		unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("switch IPv6 off on %s: %w", device, err)
	}
	return nil
}
