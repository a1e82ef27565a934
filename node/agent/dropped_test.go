package agent

import (
	"maps"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/watch"
)

// What the fabric drops since no element may send such, or since routers would have to answer too much, is told; what
// the file has it drop is not. Something is done only where nobody else can be behind it.
func TestDropsAreWatched(t *testing.T) {
	id := model.ID{Network: "lab", Element: "e"}
	port := model.PortID{ID: id, Interface: "eth0"}
	for name, c := range map[string]struct {
		kind     model.Kind
		drops    map[fabric.Drop]uint64 // a second
		received uint64                 // packets a second
		want     watch.Signal
		provoked bool
	}{
		"nothing":                             {model.Host, nil, 0, "", false},
		"a device of a VLAN, made by mistake": {model.Host, map[fabric.Drop]uint64{fabric.Tagged: 20}, 0, "", false},
		"more than its bandwidth and packets let through": {model.Host,
			map[fabric.Drop]uint64{fabric.OverPackets: 1e6, fabric.OverBandwidth: 1e6}, 0, "", false},
		"tagged frames": {model.Host, map[fabric.Drop]uint64{fabric.Tagged: 200}, 0,
			watch.Forbidden, true},
		"a host that speaks as a node": {model.Host, map[fabric.Drop]uint64{fabric.ToTunnels: 200}, 10,
			watch.Forbidden, false},
		"one that passes on what it gets": {model.Host, map[fabric.Drop]uint64{fabric.ToTunnels: 200}, 200,
			watch.Forbidden, true},
		"a router that passes on such": {model.Router, map[fabric.Drop]uint64{fabric.ToTunnels: 200}, 0,
			watch.Forbidden, true},
		"frames by a mirror's interface": {model.Host, map[fabric.Drop]uint64{fabric.ByCopies: 200}, 0,
			watch.Forbidden, false},
		"tagged ones, a few to tunnels": {model.Host, map[fabric.Drop]uint64{fabric.Tagged: 200, fabric.ToTunnels: 60},
			0, watch.Forbidden, true},
		"some exceptional packets too many": {model.Host, map[fabric.Drop]uint64{fabric.OverPunts: 900}, 0, "", false},
		"exceptional packets, far too many": {model.Host, map[fabric.Drop]uint64{fabric.OverPunts: 9000},
			0, watch.Punts, true},
		"what belongs to a port that is gone": {model.Host, map[fabric.Drop]uint64{fabric.Stale: 9000}, 0, "", false},
	} {
		w, judge := newWatcher(), watch.New()
		e := watchedOf(id, &model.NodeElement{PlacedElement: model.PlacedElement{Name: "e", Kind: c.kind,
			Interfaces: []model.PlacedInterface{{ResolvedInterface: model.ResolvedInterface{Name: "eth0"}}}}})
		at := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
		counters := fabric.Counters{TxPackets: 1, Drops: map[fabric.Drop]uint64{fabric.Tagged: 1 << 40}}
		var found []watch.Verdict
		for range 10 {
			w.counts(at, map[model.PortID]fabric.Counters{port: counters}, []watched{e})
			select {
			case job := <-w.jobs:
				values := job.elements[0].dropped
				for i := range values {
					values[i].Provoked = values[i].Provoked || values[i].May(job.elements[0].received)
				}
				found = append(found, judge.Look(id, at, values)...)
			default: // the first count has none before it
			}
			at = at.Add(time.Second)
			counters.TxPackets += c.received
			counters.Drops = maps.Clone(counters.Drops) // what was told before stays as it was
			for reason, n := range c.drops {
				counters.Drops[reason] += n
			}
		}
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || found[0].Signal != c.want ||
			found[0].Provoked != c.provoked) {
			t.Errorf("%s: found %+v, want %q, provoked %v", name, found, c.want, c.provoked)
		}
	}
}
