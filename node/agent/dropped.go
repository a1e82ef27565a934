package agent

import (
	"fmt"
	"time"

	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/watch"
)

// dropRates are the packets a second of an element's ports that the fabric dropped for reasons that tell of attacks.
type dropRates struct{ tagged, tunnels, copies, punts float64 }

// add takes in what a port's counters say, and what they said a time ago.
func (d *dropRates) add(is, was map[string]uint64, span time.Duration) {
	if len(is) == 0 {
		return
	}
	for reason, to := range map[string]*float64{fabric.Tagged: &d.tagged, fabric.ToTunnels: &d.tunnels,
		fabric.ByCopies:  &d.copies,
		fabric.OverPunts: &d.punts} {
		if is[reason] > was[reason] {
			*to += float64(is[reason]-was[reason]) / span.Seconds()
		}
	}
}

// values are the watch's signals of that. An element is acted on only for what nobody else can have it blamed for:
// frames with tags come from an edge's wire as well, what a router drops others sent through it, and packets become
// exceptional by what routers do, as in a loop of routes that have not settled.
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
