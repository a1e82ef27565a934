package agent

import (
	"context"
	"errors"
	"net/netip"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric"
)

// relay is a link that the node relays.
type relay struct {
	network string
	*model.Relay
}

// relays are the links that the node relays, for the fabric. Of nodes that it was not told of the fabric says that they
// are none.
func (a *Agent) relays() []fabric.Relay {
	relays := make([]fabric.Relay, 0, len(a.plan.relays))
	for _, r := range a.plan.relays {
		f := fabric.Relay{Link: r.network + "/" + r.Link, VNI: r.VNI, MTU: r.MTU,
			Nodes: [2]netip.Addr{a.plan.peers[r.Nodes[0]].Address, a.plan.peers[r.Nodes[1]].Address}}
		if r.Shape != nil {
			f.Shape = *r.Shape
		}
		relays = append(relays, f)
	}
	return relays
}

// relayed is what the node did for the links that it relays.
func (a *Agent) relayed(ctx context.Context) []model.RelayStatus {
	if len(a.plan.relays) == 0 {
		return nil
	}
	counters, err := a.Drivers.Fabric.Relayed(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			a.Log.Warn("read the relays' counters", "error", err)
		}
		return nil
	}
	all := make([]model.RelayStatus, 0, len(a.plan.relays))
	for _, r := range a.plan.relays {
		c, made := counters[r.VNI]
		if !made { // it is not told as one that relays
			continue
		}
		all = append(all, model.RelayStatus{Network: r.network, Link: r.Link, VNI: r.VNI, Packets: c.Packets,
			Bytes: c.Bytes, Over: c.Over, Foreign: c.Foreign, Lost: c.Lost})
	}
	return all
}
