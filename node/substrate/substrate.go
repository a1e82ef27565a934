// Package substrate is the ground under the virtual networks: what this machine has to offer, and – where one machine
// plays several – the simulated nodes: network namespaces joined by veth pairs, each with an address of its own that
// tunnels end at.
package substrate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// Topology is how simulated nodes are joined.
type Topology string

const (
	Line Topology = "line"
	Ring Topology = "ring"
	Mesh Topology = "mesh" // every node to every other
)

// Topologies are the known ones, the default first.
var Topologies = []Topology{Ring, Line, Mesh}

// Limits and constants of a simulated substrate.
const (
	// MaxNodes is what the addresses suffice for; MaxSimulated what one `up --nodes` makes (a file may have more).
	MaxNodes     = 1024
	MaxSimulated = 64
	// UnderlayMTU is that of simulated links, in bytes: virtual links of up to 8950 fit.
	UnderlayMTU = 9000
)

// The simulated underlay's addresses are from the shared address space of RFC 6598: a /32 a node, a /31 (RFC 3021) a
// link. They live in the nodes' namespaces only and are never seen by the host.
var (
	loopbacks = netip.MustParsePrefix("100.64.0.0/16")
	linkNets  = netip.MustParsePrefix("100.80.0.0/12")
)

// Simulated returns n nodes, n1…, which share the machine's CPU and memory evenly.
func Simulated(n int, topology Topology, m Machine) (model.Substrate, error) {
	if n < 1 || n > MaxSimulated {
		return model.Substrate{}, fmt.Errorf("%d simulated nodes: between 1 and %d are possible", n, MaxSimulated)
	}
	var s model.Substrate
	for i := range n {
		s.Nodes = append(s.Nodes, model.SubstrateNode{Name: fmt.Sprintf("n%d", i+1), CPU: m.CPU / model.CPU(n),
			Memory: m.Memory / model.Bytes(n)})
	}
	join := func(i, j int) {
		s.Links = append(s.Links, model.SubstrateLink{A: s.Nodes[i].Name, B: s.Nodes[j].Name})
	}
	switch topology {
	case Line, Ring:
		for i := range n - 1 {
			join(i, i+1)
		}
		if topology == Ring && n > 2 {
			join(0, n-1)
		}
	case Mesh:
		for j := range n {
			for i := range j {
				join(i, j)
			}
		}
	default:
		return model.Substrate{}, fmt.Errorf("unknown topology %q: known are %s", topology, known())
	}
	return s, nil
}

func known() string {
	return strings.Join(each.Of(Topologies, func(t Topology) string { return string(t) }), ", ")
}

// Real returns the substrate whose only node is this machine itself.
func Real(m Machine) model.Substrate {
	return model.Substrate{Nodes: []model.SubstrateNode{{Name: m.Name, CPU: m.CPU, Memory: m.Memory, Address: m.Address,
		MTU: m.MTU}}}
}

// Number gives simulated nodes their addresses. A node that previous has keeps the address from there.
func Number(s, previous model.Substrate) (model.Substrate, error) {
	if len(s.Nodes) > MaxNodes {
		return s, fmt.Errorf("%d simulated nodes: at most %d are possible", len(s.Nodes), MaxNodes)
	}
	s.Nodes = slices.Clone(s.Nodes)
	taken := map[netip.Addr]bool{}
	kept := map[string]netip.Addr{}
	for _, n := range previous.Nodes {
		if n.Simulated {
			kept[n.Name] = n.Address
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Simulated, n.MTU = true, UnderlayMTU
		if n.Address = kept[n.Name]; n.Address.IsValid() {
			taken[n.Address] = true
		}
	}
	next := loopbacks.Addr()
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for !n.Address.IsValid() {
			if next = next.Next(); !taken[next] {
				n.Address = next
			}
		}
	}
	return s, nil
}

// number is a simulated node's, from 0, as its address tells.
func number(n model.SubstrateNode) uint32 {
	return offset(loopbacks.Addr(), n.Address) - 1
}

// linkAddresses are the two ends' addresses on the link between two nodes. They follow from the nodes' numbers alone,
// so they stay when nodes and links are added.
func linkAddresses(a, b model.SubstrateNode) (netip.Prefix, netip.Prefix) {
	i, j := number(a), number(b)
	swap := i > j
	if swap {
		i, j = j, i
	}
	first := plus(linkNets.Addr(), 2*(j*(j-1)/2+i))
	x, y := netip.PrefixFrom(first, 31), netip.PrefixFrom(first.Next(), 31)
	if swap {
		x, y = y, x
	}
	return x, y
}

func offset(base, a netip.Addr) uint32 {
	x, y := base.As4(), a.As4()
	return be(y) - be(x)
}

func plus(base netip.Addr, n uint32) netip.Addr {
	v := be(base.As4()) + n
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

func be(b [4]byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// CheckName returns what is wrong with a node's name.
func CheckName(name string) error { return model.CheckNodeName(name) }
