package fabric

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// Where a port sends and what it takes are two things: its own word says the first, and the table of tunnels, by VNI,
// the second. So while a link gets another path, or its far end moves, packets are taken from both, and none that is
// under way is lost.

// MostTunnels is how many tunnels a port may have packets from, beside the one that it sends by.
const MostTunnels = 8

// tunnelEnd is what the table of tunnels is to say of a VNI.
type tunnelEnd struct {
	entry pipeline.TunnelEnd
	port  model.PortID
	link  pipeline.Link // of the port
}

// taker notes that tunnels' numbers and edges belong to a port, and refuses what is another's.
func (p *pass) taker(port *Port, ends map[uint64]model.PortID) func(pipeline.Link, uint64, string) pipeline.Link {
	return func(l pipeline.Link, key uint64, what string) pipeline.Link {
		if other, taken := ends[key]; taken {
			p.fail(port.ID, "%s already belongs to %s", what, other)
			return 0
		}
		ends[key] = port.ID
		return l
	}
}

// tunnelOf is the word of a tunnel, 0 if there cannot be such a one.
func (p *pass) tunnelOf(port *Port, t Tunnel, named map[netip.Addr]bool,
	take func(pipeline.Link, uint64, string) pipeline.Link) pipeline.Link {
	t.Peer = t.Peer.Unmap()
	number, ok := p.peers[t.Peer]
	switch {
	case t.VNI == 0 || t.VNI >= 1<<24:
		p.fail(port.ID, "VNI %d is not between 1 and 16777215", t.VNI)
	case !named[t.Peer]:
		p.fail(port.ID, "%s, the tunnel's far end, is no node's address", t.Peer)
	case !ok:
		p.fail(port.ID, "no room for another peer: the table holds %d", pipeline.MaxPeers)
	case t.Peer.Is4() != p.underlay.Is4() || !p.underlay.IsValid():
		p.fail(port.ID, "%s, the tunnel's far end, cannot be reached from this node's address %s", t.Peer, p.underlay)
	default:
		return take(pipeline.NewLink(pipeline.Tunnel, t.VNI, number), uint64(t.VNI), fmt.Sprintf("VNI %d", t.VNI))
	}
	return 0
}

// alsoOf are the words of the tunnels from which a port takes packets beside the one that it sends by.
func (p *pass) alsoOf(port *Port, named map[netip.Addr]bool, ends map[uint64]model.PortID) (links []pipeline.Link) {
	switch {
	case len(port.Also) == 0:
	case port.Tunnel == nil:
		p.fail(port.ID, "tunnels are named whose packets it takes as well, and its link leads by none")
	case len(port.Also) > MostTunnels:
		p.fail(port.ID, "%d tunnels beside its own are too many: at most %d", len(port.Also), MostTunnels)
	default:
		for _, t := range port.Also {
			if l := p.tunnelOf(port, t, named, p.taker(port, ends)); l != 0 {
				links = append(links, l)
			}
		}
	}
	return links
}

// tunnelEnds writes the table of tunnels. What a port took before and no longer does goes at once, also while it is not
// certain that all ports are known: of those that are, all is known.
func (p *pass) tunnelEnds() error {
	is, err := pipeline.All[uint32, pipeline.TunnelEnd](p.pipe.Tunnels)
	if err != nil {
		return err
	}
	p.ends = map[uint32]tunnelEnd{}
	own := make(map[uint32]bool, len(p.wants))
	for i := range p.wants {
		w := &p.wants[i]
		own[w.slot] = true
		if w.link.Kind() != pipeline.Tunnel {
			continue
		}
		for _, l := range append([]pipeline.Link{w.link}, w.comes...) {
			p.ends[l.Label()] = tunnelEnd{pipeline.TunnelEnd{Slot: w.slot, Peer: l.Target()}, w.port.ID, w.link}
		}
	}
	var vnis []uint32
	var entries []pipeline.TunnelEnd
	for vni, end := range p.ends {
		last, known := p.ended[vni]
		if before, there := is[vni]; there && before == end.entry {
			p.ended[vni] = end.entry
			continue
		}
		vnis, entries = append(vnis, vni), append(entries, end.entry)
		unaltered := end.link.Label() == vni && pipeline.LinkOf(&p.pipe.Ports[end.entry.Slot]) == end.link
		if unaltered || known && last == end.entry {
			p.changed(change.TunnelRestored, end.port, vni)
		}
	}
	if len(vnis) > 0 {
		if _, err := p.pipe.Tunnels.BatchUpdate(vnis, entries, nil); err != nil {
			return fmt.Errorf("write %d entries into the table of tunnels: %w", len(vnis), err)
		}
		for i, vni := range vnis {
			p.ended[vni] = entries[i]
		}
	}
	return p.dropTunnels(is, func(end pipeline.TunnelEnd) bool { return own[end.Slot] })
}

// sweepTunnels removes all that no port takes.
func (p *pass) sweepTunnels() error {
	is, err := pipeline.All[uint32, pipeline.TunnelEnd](p.pipe.Tunnels)
	if err != nil {
		return err
	}
	return p.dropTunnels(is, func(pipeline.TunnelEnd) bool { return true })
}

// dropTunnels removes those of the entries that may go and that no port takes.
func (p *pass) dropTunnels(is map[uint32]pipeline.TunnelEnd, may func(pipeline.TunnelEnd) bool) error {
	var stale []uint32
	for vni, end := range is {
		if _, wanted := p.ends[vni]; !wanted && may(end) {
			stale = append(stale, vni)
			delete(p.ended, vni)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	if _, err := p.pipe.Tunnels.BatchDelete(stale, nil); err != nil {
		return fmt.Errorf("remove %d entries from the table of tunnels: %w", len(stale), err)
	}
	return nil
}

// observeAlso tells of ports what they take beside the tunnel that they send by.
func (f *Fabric) observeAlso(ports []Port) error {
	all, err := pipeline.All[uint32, pipeline.TunnelEnd](f.pipe.Tunnels)
	if err != nil {
		return err
	}
	for i := range ports {
		p := &ports[i]
		for vni, end := range all {
			if end.Slot == f.slots[p.ID] && p.Tunnel != nil && vni != p.Tunnel.VNI &&
				int(end.Peer) < len(f.pipe.Peers) {
				p.Also = append(p.Also, Tunnel{VNI: vni, Peer: pipeline.AddressOf(&f.pipe.Peers[end.Peer])})
			}
		}
		slices.SortFunc(p.Also, func(a, b Tunnel) int { return int(a.VNI) - int(b.VNI) })
	}
	return nil
}
