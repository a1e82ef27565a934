package netns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/node/change"
)

// All namespaces of a machine share the kernel's neighbour tables, one for IPv4 and one for IPv6. When a table is full,
// nobody gets a new entry, and who cannot resolve neighbours has no network. Entries marked as learnt from outside
// (NTF_EXT_LEARNED) do not count, and are not thrown out. So the driver enters the interfaces that the model knows to
// be on an element's segments with this mark, in the state "stale". ARP and neighbour discovery confirm, correct and
// remove such entries like any other, and nothing has to be resolved before the first packet.

// neighbourKey is what an entry is for.
type neighbourKey struct {
	index int
	to    netip.Addr
}

// presentNeighbour is what the kernel says of one (struct ndmsg of linux/neighbour.h).
type presentNeighbour struct {
	state    uint16
	learnt   bool // NTF_EXT_LEARNED
	protocol uint8
	mac      [6]byte
}

// stays tells that an entry stays when the table is full.
func (n *presentNeighbour) stays() bool { return n.learnt || n.state&unix.NUD_PERMANENT != 0 }

// wantNeighbour is an address of another interface on an interface's segment.
type wantNeighbour struct {
	to  netip.Addr
	mac net.HardwareAddr
}

// nudValid are the states in which the kernel uses an entry's MAC address.
const nudValid = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE | unix.NUD_PROBE |
	unix.NUD_STALE | unix.NUD_DELAY

// maxStrays bounds how many entries are read that bear this driver's mark and are not wanted. An element can make any
// number of them.
const maxStrays = 1024

// ndaProtocol is NDA_PROTOCOL of linux/neighbour.h, which says who made the entry, as with routes.
const ndaProtocol = 12

// neighbourMessage is a struct ndmsg as bytes. Without an address, it is for all families.
func neighbourMessage(to netip.Addr, index int, state uint16, flags uint8) []byte {
	m := make([]byte, unix.SizeofNdMsg)
	switch {
	case to.Is4():
		m[0] = unix.AF_INET
	case to.Is6():
		m[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(m[4:], uint32(index))
	binary.NativeEndian.PutUint16(m[8:], state)
	m[10] = flags
	return m
}

// wantedNeighbours are those wanted on devices that exist.
func (in *inside) wantedNeighbours(w *want) map[neighbourKey]bool {
	wanted := map[neighbourKey]bool{}
	for ifc := range w.devices() {
		if l := in.links[ifc.Pair.Name]; l != nil {
			for _, n := range ifc.neighbours {
				wanted[neighbourKey{l.Index, n.to}] = true
			}
		}
	}
	return wanted
}

// readNeighbours reads the wanted entries, and those that bear this driver's mark.
func (in *inside) readNeighbours(c *linux.Rtnetlink, w *want) error {
	wanted := in.wantedNeighbours(w)
	strays := 0
	err := linux.Undisturbed(func() error {
		in.neighbours = make(map[neighbourKey]presentNeighbour, len(wanted))
		strays = 0
		var b linux.Batch
		b.Request(unix.RTM_GETNEIGH, 0)
		b.Raw(neighbourMessage(netip.Addr{}, 0, 0, 0))
		return c.Dump(&b, func(kind uint16, p []byte) error {
			if kind != unix.RTM_NEWNEIGH || len(p) < unix.SizeofNdMsg {
				return nil
			}
			key, n := parseNeighbour(p)
			switch {
			case wanted[key]:
			case n.protocol == ownProtocol && n.learnt && strays < maxStrays:
				strays++
			default:
				return nil
			}
			in.neighbours[key] = n
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("read the neighbours: %w", err)
	}
	return nil
}

func parseNeighbour(p []byte) (neighbourKey, presentNeighbour) {
	key := neighbourKey{index: int(binary.NativeEndian.Uint32(p[4:]))}
	n := presentNeighbour{state: binary.NativeEndian.Uint16(p[8:]), learnt: p[10]&unix.NTF_EXT_LEARNED != 0}
	for kind, v := range linux.Attrs(p[unix.SizeofNdMsg:]) {
		switch kind {
		case unix.NDA_DST:
			key.to, _ = netip.AddrFromSlice(v)
		case unix.NDA_LLADDR:
			copy(n.mac[:], v)
		case ndaProtocol:
			if len(v) > 0 {
				n.protocol = v[0]
			}
		}
	}
	return key, n
}

// planNeighbours enters the neighbours on all devices that are up or being taken up, and removes this driver's entries
// that are no longer wanted.
func (in *inside) planNeighbours(r *repair, w, before *want, forceUp bool) {
	in.dropNeighbours(r, w)
	for ifc := range w.devices() {
		l := in.links[ifc.Pair.Name]
		if l == nil || len(ifc.neighbours) == 0 || !w.up || !l.Up() && !w.raises(l, forceUp) {
			continue
		}
		var last []wantNeighbour
		if before != nil {
			for was := range before.devices() {
				if was.Pair.Name == ifc.Pair.Name {
					last = was.neighbours
				}
			}
		}
		in.enterNeighbours(r, l, ifc, last)
	}
}

// enterNeighbours enters missing neighbours so that they stay. It leaves entries that somebody made permanent, and MAC
// addresses that ARP or neighbour discovery learnt. An entry gets a new MAC address only if it still has the one that
// was wanted last.
func (in *inside) enterNeighbours(r *repair, l *link, ifc *wantInterface, last []wantNeighbour) {
	// If something empties the table, the event tells of that: another MAC address, the device going up, the loss of
	// the last IPv4 address.
	emptied := ifc.Pair.MAC != nil && !bytes.Equal(l.MAC[:], ifc.Pair.MAC) || !l.Up()
	emptied4 := emptied || in.losesIPv4(l, ifc)
	told := change.NeighboursEntered.Of(ifc.label)
	if emptied4 {
		told = change.Change{}
	}
	for i := range ifc.neighbours {
		n := &ifc.neighbours[i]
		if n.to.Is6() && !l.IPv6 {
			continue
		}
		mac := n.mac
		if have, there := in.neighbours[neighbourKey{l.Index, n.to}]; there && !emptied && !(emptied4 && n.to.Is4()) {
			moved := slices.ContainsFunc(last, func(o wantNeighbour) bool {
				return o.to == n.to && !bytes.Equal(o.mac, n.mac) && bytes.Equal(o.mac, have.mac[:])
			})
			if have.stays() && !moved {
				continue
			}
			if have.state&nudValid != 0 && !moved {
				mac = have.mac[:]
			}
		}
		r.request(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, step{
			doing: fmt.Sprintf("enter the neighbour %s of %s", n.to, ifc.Pair.Name), done: told, device: ifc.Pair.Name})
		told = change.Change{} // once for all of them
		r.Raw(neighbourMessage(n.to, l.Index, unix.NUD_STALE, unix.NTF_EXT_LEARNED))
		r.Attr(unix.NDA_DST, n.to.AsSlice())
		r.Attr(unix.NDA_LLADDR, mac)
		r.Uint8(ndaProtocol, ownProtocol)
	}
}

// losesIPv4 returns whether the device loses all IPv4 addresses that it has now, if only for a moment.
func (in *inside) losesIPv4(l *link, ifc *wantInterface) bool {
	had := false
	for key, a := range in.addresses {
		if key.index != l.Index || !key.prefix.Addr().Is4() {
			continue
		}
		if !a.ours() || slices.Contains(ifc.addresses, key.prefix) {
			return false
		}
		had = true
	}
	return had
}

// dropNeighbours removes this driver's entries that are no longer wanted.
func (in *inside) dropNeighbours(r *repair, w *want) {
	for key := range in.neighbours {
		if !in.wantsNeighbour(w, key) {
			r.request(unix.RTM_DELNEIGH, 0, step{doing: fmt.Sprintf("remove the neighbour %s", key.to),
				done: change.NeighbourRemoved.Of(key.to), harmless: unix.ENOENT})
			r.Raw(neighbourMessage(key.to, key.index, 0, 0))
			r.Attr(unix.NDA_DST, key.to.AsSlice())
		}
	}
}

func (in *inside) wantsNeighbour(w *want, key neighbourKey) bool {
	for ifc := range w.devices() {
		if l := in.links[ifc.Pair.Name]; l == nil || l.Index != key.index {
			continue
		}
		for _, n := range ifc.neighbours {
			if n.to == key.to {
				return true
			}
		}
	}
	return false
}
