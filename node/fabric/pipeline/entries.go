package pipeline

//go:generate go run ./internal/numbers

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/cilium/ebpf"
)

// The tables' entries, as c/tables.h describes them.
type (
	Port         = tcPort
	Peer         = tcPeer
	EdgeKey      = tcEdgeKey
	IdentityKey  = tcIdentityKey
	Identity     = tcIdentity
	TrafficCount = tcTrafficCount
	DropCount    = tcDropCount
	Copy         = tcCopy
	Router       = tcRouter
	RouterCount  = tcRouterCount
	Meter        = tcMeter
	Driver       = tcDriver
	Mirror       = tcMirror
	Pace         = tcPace
	NodeKey      = tcNodeKey
	TunnelEnd    = tcTunnelEnd
	Relay        = tcRelay
	RelayWay     = tcRelayWay
)

// RoutedBy are the flags of a router's port.
func RoutedBy(router int) uint32 { return Routed | uint32(router)<<routerShift }

// RouterOf is the number of the router that a port with these flags belongs to, 0 if it belongs to none.
func RouterOf(flags uint32) int {
	if flags&Routed == 0 {
		return 0
	}
	return int(flags >> routerShift)
}

// Link is where a port's link ends, in one word.
type Link uint64

// Kind is what a Link ends at.
type Kind uint8

// NewLink makes a Link. label has 24 bits.
func NewLink(kind Kind, label, target uint32) Link {
	return Link(kind)<<56 | Link(label&0xffffff)<<32 | Link(target)
}

func (l Link) Kind() Kind     { return Kind(l >> 56) }
func (l Link) Label() uint32  { return uint32(l >> 32 & 0xffffff) }
func (l Link) Target() uint32 { return uint32(l) }

// LinkOf reads where the port's link ends.
func LinkOf(p *Port) Link { return Link(atomic.LoadUint64(&p.Link)) }

// Drop is why a packet was dropped: its index in DropCount, which also counts what is Uncaptured. That was not dropped:
// it is missing in a capture.
type Drop int

// DropQueue is the reason of drops that a queue counts, and no program: too much waits there for the link's bandwidth.
const DropQueue Drop = -1

// Drops are what drops are called, by their index in DropCount.
var Drops = [...]string{
	DropNowhere: "link ends nowhere",
	DropDown:    "port is down",
	DropGone:    "far port has no device",
	DropOutput:  "header could not be written",
	DropUnknown: "belongs to no port",
	DropSource:  "not from the tunnel's far end",
	DropLoss:    "loss",
	DropMeter:   "more than the slice's packets a second",
	DropPunts:   "more than the slice's punts a second",
	DropCut:     "in quarantine",
	DropStale:   "its port is gone",
	DropTag:     "VLAN tag, or for bridges alone, where no trunk is",
	DropCopies:  "sent by an interface that gets copies only",
	DropNode:    "to a node's tunnels by an edge",
	DropPace:    "its element's packets take too much of the node",
}

func (d Drop) String() string {
	if d == DropQueue {
		return "more than the link's bandwidth"
	}
	return Drops[d]
}

// Punts are what the reasons are called why the guest gets a packet of a router that forwards here, by their index in
// RouterCount.
var Punts = [...]string{
	PuntFrame:       "not addressed to the router, or not IP",
	PuntHeader:      "wrong or cut header",
	PuntOptions:     "options",
	PuntAddress:     "address that is not forwarded",
	PuntTTL:         "TTL",
	PuntLocal:       "to the router itself",
	PuntNoRoute:     "no route",
	PuntUnreachable: "unreachable or prohibited",
	PuntUnresolved:  "next hop not resolved",
	PuntTable:       "left to the guest by the tables",
	PuntMTU:         "larger than the MTU",
	PuntBack:        "leaves where it came from",
	PuntHops:        "too many routers in a row",
	PuntQueue:       "into a queue",
	PuntOff:         "interface does not forward",
}

// Loss is how a Port's Loss has a share of frames, 0…1: to the next 2⁻³², but of what is more than nothing at least
// two.
func Loss(share float64) uint32 {
	if share <= 0 {
		return 0
	}
	return uint32(min(max(math.Round(share*(1<<32)), 2), 1<<32) - 1)
}

// ShareOf is the opposite of Loss.
func ShareOf(loss uint32) float64 {
	if loss == 0 {
		return 0
	}
	return (float64(loss) + 1) / (1 << 32)
}

// NewPeer makes the entry of an address in the underlay.
func NewPeer(a netip.Addr) Peer {
	a = a.Unmap()
	if a.Is4() {
		b := a.As4()
		return Peer{Family: 4, Address: [4]uint32{binary.BigEndian.Uint32(b[:])}}
	}
	b := a.As16()
	p := Peer{Family: 6}
	for i := range p.Address {
		p.Address[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return p
}

// AddressOf is the entry's address; invalid when the entry is free.
func AddressOf(p *Peer) netip.Addr {
	switch atomic.LoadUint32(&p.Family) {
	case 4:
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, p.Address[0])))
	case 6:
		var b [16]byte
		for i, w := range p.Address {
			binary.LittleEndian.PutUint32(b[4*i:], w)
		}
		return netip.AddrFrom16(b)
	}
	return netip.Addr{}
}

// RelayBetween makes the entry of a relay between two nodes with IPv4 addresses. rate and burst, in bytes, bound each
// direction.
func RelayBetween(a, b netip.Addr, rate, burst uint64) Relay {
	var r Relay
	for i, to := range []netip.Addr{a, b} {
		r.Nodes[i] = NewPeer(to).Address[0]
		r.Ways[i].Meter = Meter{Rate: rate, Burst: burst, Tokens: burst}
	}
	return r
}

// MAC is how a Port's Mac has an address: 0 for none.
func MAC(a net.HardwareAddr) uint64 {
	if len(a) != 6 {
		return 0
	}
	return uint64(binary.LittleEndian.Uint32(a)) | uint64(binary.LittleEndian.Uint16(a[4:]))<<32
}

// NewIdentity makes the key and the entry of a port's name.
func NewIdentity(name string, slot uint32) (IdentityKey, Identity) {
	sum := sha256.Sum256([]byte(name))
	k := IdentityKey{Hash: [16]uint8(sum[:16])}
	e := Identity{Slot: slot}
	e.Length = uint32(copy(e.Name[:], name))
	return k, e
}

// NameOf is the port's name in the entry.
func NameOf(e *Identity) string { return string(e.Name[:min(int(e.Length), len(e.Name))]) }

// All reads a whole hash table, some thousand entries a system call.
func All[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	const chunk = 4096
	keys, values := make([]K, chunk), make([]V, chunk)
	all := map[K]V{}
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			all[keys[i]] = values[i]
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the table %v: %w", m, err)
		}
	}
}

// PerCPU reads the first n entries of a per-CPU array; entry i of processor c stands at i*processors+c.
func PerCPU[V any](m *ebpf.Map, n int) (values []V, processors int, err error) {
	processors, err = ebpf.PossibleCPU()
	if err != nil {
		return nil, 0, fmt.Errorf("count the processors: %w", err)
	}
	keys := make([]uint32, n)
	values = make([]V, n*processors)
	var cursor ebpf.MapBatchCursor
	for done := 0; done < n; {
		got, err := m.BatchLookup(&cursor, keys[done:], values[done*processors:], nil)
		done += got
		if err != nil && !(errors.Is(err, ebpf.ErrKeyNotExist) && done == n) {
			return nil, 0, fmt.Errorf("read the table %v: %w", m, err)
		}
	}
	return values, processors, nil
}

// Zero clears entries of a per-CPU array.
func Zero[V any](m *ebpf.Map, slots []uint32) error {
	if len(slots) == 0 {
		return nil
	}
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count the processors: %w", err)
	}
	if _, err := m.BatchUpdate(slots, make([]V, len(slots)*processors), nil); err != nil {
		return fmt.Errorf("clear counters in the table %v: %w", m, err)
	}
	return nil
}

// HardwareAddr is the opposite of MAC: nil for 0.
func HardwareAddr(mac uint64) net.HardwareAddr {
	if mac == 0 {
		return nil
	}
	return net.HardwareAddr(binary.LittleEndian.AppendUint64(nil, mac)[:6])
}
