package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// Links that have neither end on this node, but a path that leads through it, are relayed: a program at the ingress of
// the underlay's devices passes their tunnels' packets on to the next node. Nodes that relay nothing have no such
// program. The way to a node is the underlay's, and leads over the link that joins the two, since that is the shortest.

const underlayName = "polyplane underlay"

// Relay is a link whose path leads through this node.
type Relay struct {
	Link string // for people: NETWORK/LINK
	VNI  uint32
	// Nodes are the addresses of those before and behind this one on the path. What comes from one of them goes on to
	// the other.
	Nodes [2]netip.Addr
	// Shape and MTU are the link's. Its bandwidth is kept where it ends. A relay drops only what would be dropped there
	// as well, so that the nodes in between carry no more than is reserved on them.
	Shape model.Shape
	MTU   int
}

// RelayCounters are what a relay did since the node first had it. The first of each pair is of what came from the first
// of the relay's nodes. A packet that is segmented later counts as its segments.
type RelayCounters struct {
	Packets, Bytes [2]uint64 // passed on; bytes are those of the frames in the tunnel
	Over           [2]uint64 // packets dropped: more than the link's bandwidth
	Foreign        uint64    // packets dropped: from an address that is neither node's
	Lost           uint64    // packets dropped: there was no way on
}

// bounds are the bytes a second, and at once, that a relay passes on. Only what would find the link's own queue full at
// its end is beyond them: that queue takes as much at once, and is drained no faster.
func (r *Relay) bounds() (rate, burst uint64) {
	if r.Shape.Bandwidth == 0 {
		return 0, 0
	}
	q, _ := queueFor(r.Shape, r.MTU, false)
	frame := uint64(max(r.MTU, 68) + etherHeader)
	rate = min(q.Rate+q.Rate/100+1, mostRate) // the clocks of two nodes are not the same
	// The meter is filled at the kernel's ticks.
	slack := rate / uint64(time.Second/meterBurst)
	return rate, uint64(q.Burst) + uint64(q.Bytes) + uint64(q.Frames)*frame + slack
}

// relay works out what the table is to say of one.
func (p *pass) relay(r *Relay, nodes map[netip.Addr]bool, ends map[uint32]model.PortID) (pipeline.Relay, error) {
	a, b := r.Nodes[0].Unmap(), r.Nodes[1].Unmap()
	switch {
	case r.VNI == 0 || r.VNI >= 1<<24:
		return pipeline.Relay{}, fmt.Errorf("VNI %d is not between 1 and 16777215", r.VNI)
	case ends[r.VNI] != model.PortID{}:
		return pipeline.Relay{}, fmt.Errorf("VNI %d belongs to port %s of this node", r.VNI, ends[r.VNI])
	case !p.underlay.Is4():
		return pipeline.Relay{}, fmt.Errorf("this node's address is not IPv4")
	}
	for _, n := range []netip.Addr{a, b} {
		if !nodes[n] || !n.Is4() || a == b || n == p.underlay {
			return pipeline.Relay{}, fmt.Errorf("its path leads from %s to %s: two other nodes' IPv4 addresses were "+
				"expected", a, b)
		}
	}
	rate, burst := r.bounds()
	return pipeline.RelayBetween(a, b, rate, burst), nil
}

// relays writes the table of relays. One that is wrong fails alone.
func (p *pass) relays() error {
	is, err := pipeline.All[uint32, pipeline.Relay](p.pipe.Relays)
	if err != nil {
		return err
	}
	nodes := make(map[netip.Addr]bool, len(p.state.Peers))
	for _, n := range addressesOf(p.state.Peers) {
		nodes[n] = true
	}
	ends := map[uint32]model.PortID{}
	for vni, end := range p.ends {
		ends[vni] = end.port
	}
	// What came to be a port's own is relayed no longer, also while nothing else is removed: a relay comes first.
	if err := p.dropRelays(is, func(vni uint32) bool { return ends[vni] != model.PortID{} }); err != nil {
		return err
	}
	p.relaying = make(map[uint32]bool, len(p.state.Relays))
	made := 0
	for i := range p.state.Relays {
		r := &p.state.Relays[i]
		want, err := p.relay(r, nodes, ends)
		if err == nil && p.relaying[r.VNI] {
			err = fmt.Errorf("VNI %d is another link's too", r.VNI)
		}
		if err != nil {
			p.unrelayed = append(p.unrelayed, fmt.Errorf("relay link %s: %w", r.Link, err))
			continue
		}
		p.relaying[r.VNI] = true
		was, there := is[r.VNI]
		last, before := p.relayed[r.VNI]
		if there && sameRelay(&was, &want) {
			p.relayed[r.VNI] = want
			continue
		}
		for k := range want.Ways { // it goes on counting
			to, from := &want.Ways[k], &was.Ways[k]
			to.Packets, to.Bytes, to.Over = from.Packets, from.Bytes, from.Over
		}
		want.Foreign, want.Lost = was.Foreign, was.Lost
		if err := p.pipe.Relays.Put(r.VNI, want); err != nil {
			p.unrelayed = append(p.unrelayed, fmt.Errorf("relay link %s: write the table of relays: %w", r.Link, err))
			continue
		}
		p.relayed[r.VNI] = want
		switch {
		case before && sameRelay(&last, &want):
			p.changed(change.RelayRestored, r.Link)
		case before:
			p.changed(change.RelayChanged, r.Link)
		default:
			made++
		}
	}
	if made > 0 {
		p.changed(change.RelaysMade, made)
	}
	return nil
}

// sameRelay tells whether two entries relay the same, and the first has meters that its programs could have written.
func sameRelay(is, want *pipeline.Relay) bool {
	for k := range want.Ways {
		m, w := &is.Ways[k].Meter, &want.Ways[k].Meter
		if m.Rate != w.Rate || m.Burst != w.Burst || !sane(m) {
			return false
		}
	}
	return is.Nodes == want.Nodes
}

// attachUnderlay attaches the relays' program to the devices that lead to other nodes, if anything is relayed. A device
// that cannot be had ends what is relayed there, and nothing else on the node.
func (p *pass) attachUnderlay() error {
	p.relayers = map[string]bool{}
	if len(p.relaying) > 0 {
		for _, index := range p.underlays() {
			p.relayers[p.kernel.devices[index].name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.relayers)) {
		d := p.kernel.devices[p.kernel.names[name]]
		if _, ok := p.kernel.Ingress[d.index]; !ok {
			var b linux.Batch
			b.AddClsact(d.index, 0)
			if errs := p.netlink.Do(&b); errs != nil {
				p.unrelayed = append(p.unrelayed, fmt.Errorf("relay what comes by %s: %w", name, errs[0]))
				continue
			}
			p.kernel.Ingress[d.index] = linux.Ingress{Kind: "clsact"}
		}
		changed, err := p.filterAt(edgePlace(d.index, p.kernel), underlayName, p.pipe.FromUnderlay)
		if err != nil {
			p.unrelayed = append(p.unrelayed, fmt.Errorf("relay what comes by %s: %w", name, err))
			continue
		}
		if changed {
			p.changed(change.UnderlayFilterSet, name)
		}
	}
	return nil
}

// sweepRelays removes what is no longer relayed.
func (p *pass) sweepRelays() error {
	all, err := pipeline.All[uint32, pipeline.Relay](p.pipe.Relays)
	if err != nil {
		return err
	}
	return p.dropRelays(all, func(vni uint32) bool { return !p.relaying[vni] })
}

// dropRelays removes entries from the table.
func (p *pass) dropRelays(all map[uint32]pipeline.Relay, gone func(vni uint32) bool) error {
	var stale []uint32
	for vni := range all {
		if gone(vni) {
			stale = append(stale, vni)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	if _, err := p.pipe.Relays.BatchDelete(stale, nil); err != nil {
		return fmt.Errorf("remove %d entries from the table of relays: %w", len(stale), err)
	}
	for _, vni := range stale {
		delete(p.relayed, vni)
		delete(all, vni)
	}
	p.changed(change.RelaysRemoved, len(stale))
	return nil
}

// Relayed reads what the relays did, by VNI.
func (f *Fabric) Relayed(ctx context.Context) (map[uint32]RelayCounters, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return nil, errClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all, err := pipeline.All[uint32, pipeline.Relay](f.pipe.Relays)
	if err != nil {
		return nil, err
	}
	counters := make(map[uint32]RelayCounters, len(all))
	for vni, r := range all {
		c := RelayCounters{Foreign: r.Foreign, Lost: r.Lost}
		for k, w := range r.Ways {
			c.Packets[k], c.Bytes[k], c.Over[k] = w.Packets, w.Bytes, w.Over
		}
		counters[vni] = c
	}
	return counters, nil
}

// observeRelays tells what is relayed, by VNI. Of bounds the table does not say what they follow from.
func (f *Fabric) observeRelays() ([]Relay, error) {
	all, err := pipeline.All[uint32, pipeline.Relay](f.pipe.Relays)
	if err != nil {
		return nil, err
	}
	var relays []Relay
	for vni, r := range all {
		relay := Relay{VNI: vni}
		for k, n := range r.Nodes {
			relay.Nodes[k] = pipeline.AddressOf(&pipeline.Peer{Family: 4, Address: [4]uint32{n}})
		}
		relays = append(relays, relay)
	}
	slices.SortFunc(relays, func(a, b Relay) int { return int(a.VNI) - int(b.VNI) })
	return relays, nil
}

// relayProblem is what could not be relayed.
func (p *pass) relayProblem() error { return errors.Join(p.unrelayed...) }
