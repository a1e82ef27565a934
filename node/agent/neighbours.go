package agent

import (
	"context"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// How neighbours are probed.
const (
	// probeEvery is the time between two probes of a link, where the node has few; probeRate bounds what a node sends,
	// in probes a second.
	probeEvery = 500 * time.Millisecond
	probeRate  = 20
	// roundEvery is the time between two accounts of the links.
	roundEvery = time.Second
	// lostAfter is how long an answer is waited for.
	lostAfter = 2 * time.Second
	// tellEvery is the longest time between two messages to the manager although nothing has changed.
	tellEvery = 10 * time.Second
)

// rttBounds are the classes of round-trip times, in seconds.
var rttBounds = []float64{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
	0.1, 0.25, 0.5, 1, 2}

// neighbours measures the substrate's links that end at this node, and tells what was measured. One goroutine calls its
// methods; set alone may be called by others.
type neighbours struct {
	work *work
	log  *slog.Logger
	tell func(model.Measures)
	port uint16

	wishes chan []model.NodeLink // the latest

	echo    *echo
	devices *devices
	links   []*neighbour
	round   uint64
	problem string // why nothing can be measured, in words
	told    model.Measures
	toldAt  time.Time
	// again: what was told last is told again with the next round, since whether a neighbour answers has changed.
	again  bool
	every  time.Duration // from round to round
	ticked time.Time     // when the latest round was closed
	steady time.Time     // since when all rounds were closed in time
}

// neighbour is one link.
type neighbour struct {
	model.NodeLink
	measure model.LinkMeasure
	use     use
	rtts    []time.Duration // of this round's answers
	heard   time.Time       // when the last answer came
}

func newNeighbours(w *work, log *slog.Logger, tell func(model.Measures)) *neighbours {
	return &neighbours{work: w, log: log, tell: tell, port: model.LinkProbePort, wishes: make(chan []model.NodeLink, 1)}
}

// set says which links there are. Only one goroutine may call it.
func (n *neighbours) set(links []model.NodeLink) {
	select {
	case <-n.wishes:
	default:
	}
	n.wishes <- links
}

// run measures until the context ends.
func (n *neighbours) run(ctx context.Context) error {
	defer n.close()
	probe, round := time.NewTicker(time.Hour), time.NewTicker(tellEvery)
	n.every = tellEvery
	defer probe.Stop()
	defer round.Stop()
	for {
		var answers <-chan echoed
		if n.echo != nil {
			answers = n.echo.answers
		}
		select {
		case <-ctx.Done():
			return nil
		case links := <-n.wishes:
			if !n.take(links) {
				continue
			}
			if len(n.links) == 0 {
				probe.Reset(time.Hour)
				round.Reset(tellEvery)
				n.every = tellEvery
				continue
			}
			probe.Reset(max(probeEvery, time.Duration(len(n.links))*time.Second/probeRate))
			round.Reset(roundEvery)
			n.every = roundEvery
		case a := <-answers:
			n.answered(a)
		case <-probe.C:
			n.probe()
		case <-round.C:
			n.tick(time.Now())
		}
	}
}

// take begins with new links, or goes on with those there were, and tells whether they are others than before.
func (n *neighbours) take(links []model.NodeLink) bool {
	same := slices.EqualFunc(links, n.links, func(a model.NodeLink, b *neighbour) bool { return a == b.NodeLink })
	if same && (len(links) == 0 || n.echo != nil) {
		return false
	}
	was := each.By(n.links, func(l *neighbour) string { return l.To })
	n.links = nil
	var addresses []netip.Addr
	for _, l := range links {
		x := was[l.To]
		if x == nil || x.Address != l.Address {
			x = &neighbour{measure: model.LinkMeasure{To: l.To, RTT: model.NewHistogram(rttBounds...)}}
		}
		x.NodeLink = l
		n.links = append(n.links, x)
		addresses = append(addresses, l.Address)
	}
	n.close()
	n.problem = ""
	if len(links) == 0 {
		return true
	}
	var err error
	if n.echo, err = openEcho(n.port, addresses); err == nil {
		n.devices, err = openDevices()
	}
	if err != nil {
		n.log.Warn("links to neighbours cannot be measured", "error", err)
		n.problem = err.Error()
		n.close()
	}
	return true
}

func (n *neighbours) close() {
	if n.echo != nil {
		n.echo.close()
		n.echo = nil
	}
	if n.devices != nil {
		n.devices.close()
		n.devices = nil
	}
}

// probe asks every neighbour.
func (n *neighbours) probe() {
	if n.echo == nil {
		return
	}
	for i, l := range n.links {
		l.measure.Sent++
		// What is not sent is not answered, and so counts as lost.
		n.echo.ask(i, l.Address)
	}
}

// answered takes an answer to a probe, or that none came.
func (n *neighbours) answered(a echoed) {
	if a.link >= len(n.links) || n.links[a.link].Address != a.from {
		return // of a link that has gone
	}
	l := n.links[a.link]
	if a.lost {
		l.measure.Lost++
		return
	}
	l.measure.RTT.Observe(a.rtt)
	l.rtts = append(l.rtts, a.rtt)
	l.heard = a.at
}

// tick closes a round, unless it comes late. Then this process had no processor, or the machine stood still: it neither
// asked nor took answers meanwhile. So nothing is said of such a round, and for as long as an answer is waited for no
// neighbour is said to have stopped answering.
func (n *neighbours) tick(now time.Time) {
	late := !n.ticked.IsZero() && now.Sub(n.ticked) > n.every+roundEvery/2
	n.ticked = now
	if late {
		n.steady = now
		return
	}
	n.account(now)
}

// account closes a round: it sums up what came in it, and tells the manager if that is news.
func (n *neighbours) account(now time.Time) {
	m := n.work.measures()
	if len(n.links) > 0 {
		n.round++
		m.Round = n.round
	}
	if n.echo != nil {
		for _, lost := range n.echo.expire(now.Add(-lostAfter)) {
			n.answered(lost)
		}
	}
	for _, l := range n.links {
		l.sum(now, n.steady)
		l.measure.Problem = n.problem
		if n.devices != nil {
			if err := l.use.read(n.devices, l, now); err != nil {
				l.measure.Problem = err.Error()
			}
		}
		is := l.measure
		is.RTT = is.RTT.Clone()
		m.Links = append(m.Links, is)
	}
	if n.again || now.Sub(n.toldAt) > tellEvery-roundEvery/2 || isNews(n.told.Links, m.Links) {
		n.again = !slices.EqualFunc(n.told.Links, m.Links, func(a, b model.LinkMeasure) bool { return a.Up == b.Up })
		n.told, n.toldAt = m, now
		n.tell(m)
	}
}

// sum is what a round's answers come to; a round without any leaves what was. steady is since when rounds were closed
// in time.
func (l *neighbour) sum(now, steady time.Time) {
	heard := !l.heard.IsZero() && now.Sub(l.heard) < lostAfter
	l.measure.Up = heard || l.measure.Up && now.Sub(steady) < lostAfter
	if len(l.rtts) == 0 {
		return
	}
	slices.Sort(l.rtts)
	l.measure.RTTMin = l.rtts[0]
	middle := len(l.rtts) / 2
	l.measure.RTTMedian = l.rtts[middle]
	if len(l.rtts)%2 == 0 {
		l.measure.RTTMedian = (l.rtts[middle-1] + l.rtts[middle]) / 2
	}
	l.rtts = l.rtts[:0]
}

// isNews tells whether links differ from what was told last by more than they do from one moment to the next.
func isNews(was, is []model.LinkMeasure) bool {
	return !slices.EqualFunc(was, is, func(a, b model.LinkMeasure) bool {
		// A twentieth of what the link carries, or of what was sent where that is not known.
		step := max(float64(b.Capacity)/20, 1e6)
		if b.Capacity == 0 {
			step = max(float64(max(a.Used, b.Used))/5, 1e6)
		}
		return a.To == b.To && a.Up == b.Up && a.Problem == b.Problem && a.Device == b.Device &&
			a.Capacity == b.Capacity && math.Abs(float64(a.Used)-float64(b.Used)) < step && near(a.RTTMin, b.RTTMin) &&
			near(a.RTTMedian, b.RTTMedian)
	})
}

// near tells that two round-trip times differ by less than a fifth, or than 200 µs.
func near(a, b time.Duration) bool {
	return (a - b).Abs() <= max(200*time.Microsecond, max(a, b)/5)
}
