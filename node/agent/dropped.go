package agent

import (
	"fmt"
	"time"

	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/watch"
)

// dropRates are packets a second that the fabric dropped at an element's ports, for reasons that hint at attacks.
type dropRates struct{ tagged, tunnels, copies, punts float64 }

// add computes the rates from a port's counters now and some time ago.
func (d *dropRates) add(is, was map[fabric.Drop]uint64, span time.Duration) {
	if len(is) == 0 {
		return
	}
	for reason, to := range map[fabric.Drop]*float64{fabric.Tagged: &d.tagged, fabric.ToTunnels: &d.tunnels,
		fabric.ByCopies: &d.copies, fabric.OverPunts: &d.punts} {
		if is[reason] > was[reason] {
			*to += float64(is[reason]-was[reason]) / span.Seconds()
		}
	}
}

// values returns the rates as signals of the watch. It leaves out what others could have caused, so that nobody can
// have an element punished: frames with tags also come from an edge's wire, a router drops what others sent through it,
// and a router can make packets exceptional, as in a loop of routes that have not settled.
func (d *dropRates) values(e *watched) []watch.Value {
	own := d.tunnels + d.copies
	v := watch.Value{Signal: watch.Forbidden, Value: d.tagged + own, Provoked: d.tagged > own || !e.host ||
		e.received >= own/4}
	switch {
	case v.Value == 0:
	case d.tagged > own:
		v.Detail = fmt.Sprintf("%s of them with a %s", amount(d.tagged), fabric.Tagged)
	case d.tunnels >= d.copies:
		v.Detail = fmt.Sprintf("%s of them %s", amount(d.tunnels), fabric.ToTunnels)
	default:
		v.Detail = fmt.Sprintf("%s of them %s", amount(d.copies), fabric.ByCopies)
	}
	return []watch.Value{v, {Signal: watch.Punts, Value: d.punts, Provoked: true}}
}
