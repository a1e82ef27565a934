package discover

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// Device is one of the underlay's.
type Device struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	Up    bool // it has carrier
	Speed model.Bandwidth
}

// View is what there is on the machine now.
type View struct {
	Underlay   []Device
	Problem    string // why there are no devices of the underlay, in words
	Processor  string
	Interfaces []model.NodeInterface
}

// Ground is what the manager says of the substrate.
type Ground struct {
	Store string   // the identity of the manager's store
	Nodes []string // all other nodes
}

// Config is what a Discoverer works with.
type Config struct {
	Node    string
	Address netip.Addr // the node's in the underlay
	Off     string     // why it shall neither announce itself nor listen; empty if it shall
	Look    func() View
	// Tell tells the manager what was found, and returns the keys that were asked for. Another goroutine calls it.
	Tell func(context.Context, model.Discovery) (model.DiscoveryAnswer, error)
	// Refused is called for a frame that is not believed, Failed for what keeps the node from announcing itself. Both
	// are told in words, and seldom.
	Refused, Failed func(device, what string)
	Log             *slog.Logger
}

// The loop's clock.
const (
	lookAfter = 200 * time.Millisecond // after a change of devices, for others that come with it
	tellEvery = time.Second            // at most
	tellAgain = 5 * time.Second        // after a failure
	// Keys are asked for at once, and ever less often while that brings nothing.
	firstAsk = time.Second
	lastAsk  = 30 * time.Second
	// refusedEvery is how often the same refusal is told, and refusedMost how many different ones.
	refusedEvery = 10 * time.Minute
	refusedMost  = 8
)

// Discoverer announces a node and hears others. One goroutine, that of Run, does all of the work.
type Discoverer struct {
	Config
	grounds chan Ground
	changed chan struct{}
	again   chan struct{}
	frames  chan received
	done    chan answer

	key      ed25519.PrivateKey
	public   []byte
	table    *table
	view     View
	ports    map[string]*port // by device
	problems map[string]string
	said     map[string]time.Time // refusals, by device and node
	refused  uint64
	sequence uint64
	known    bool // the manager knows the key
	fast     int  // so many more announcements are quick ones
	began    time.Time

	lookAt, announceAt, tellAt, askAt time.Time
	ask                               time.Duration
	telling                           bool
	told                              *model.Discovery
	toldAt                            time.Time
}

// answer is what the manager answered.
type answer struct {
	told  model.Discovery
	asked []string
	keys  map[string][]byte
	err   error
}

// New returns a Discoverer.
func New(c Config) *Discoverer {
	d := &Discoverer{Config: c, grounds: make(chan Ground, 1), changed: make(chan struct{}, 1),
		again: make(chan struct{}, 1), frames: make(chan received, 16), done: make(chan answer, 1),
		ports: map[string]*port{}, problems: map[string]string{}, said: map[string]time.Time{}, ask: firstAsk}
	d.table = newTable(c.Node, d.doubts)
	return d
}

// Set says what the manager says of the substrate. Only the latest counts. Only one goroutine may call it.
func (d *Discoverer) Set(g Ground) {
	select {
	case <-d.grounds:
	default:
	}
	d.grounds <- g
}

// Changed says that the machine's devices may have changed.
func (d *Discoverer) Changed() { signal(d.changed) }

// Again has everything be told again: the manager may be another one.
func (d *Discoverer) Again() { signal(d.again) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run works until the context ends.
func (d *Discoverer) Run(ctx context.Context) error {
	var err error
	if d.public, d.key, err = ed25519.GenerateKey(nil); err != nil {
		return fmt.Errorf("make a key for announcements: %w", err)
	}
	defer func() {
		for _, p := range d.ports {
			p.close()
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	d.began = time.Now()
	d.lookAt, d.announceAt = d.began, d.began
	for {
		timer.Reset(time.Until(d.step(ctx, time.Now())))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case g := <-d.grounds:
			d.ground(g)
		case <-d.changed:
			if at := time.Now().Add(lookAfter); at.Before(d.lookAt) {
				d.lookAt = at
			}
		case <-d.again:
			d.told, d.tellAt = nil, time.Time{}
		case r := <-d.frames:
			if d.table.take(r.device, r.frame, time.Now()) {
				d.hurry()
			}
		case a := <-d.done:
			d.answered(a, time.Now())
		}
	}
}

// ground takes what the manager says of the substrate.
func (d *Discoverer) ground(g Ground) {
	was := d.table.peers
	d.table.tag = tagOf(g.Store)
	d.table.peers = make(map[string]bool, len(g.Nodes))
	for _, n := range g.Nodes {
		if d.table.peers[n] = true; !was[n] {
			d.hurry() // it has not believed that it heard a node which it did not know
		}
	}
	d.lookAt = time.Now() // there may be a way to others now
}

// hurry announces the node at once and a few times quickly: somebody is new, and does not know it.
func (d *Discoverer) hurry() { d.announceAt, d.fast = time.Now(), fastTimes }

// step does what is due, and returns when something will be.
func (d *Discoverer) step(ctx context.Context, now time.Time) (next time.Time) {
	if !now.Before(d.lookAt) {
		d.look(now)
		d.lookAt = now.Add(announceEvery)
	}
	next = d.table.expire(now)
	if d.known && !now.Before(d.announceAt) {
		d.announce(now)
		d.announceAt = now.Add(announceEvery)
		if d.fast > 0 {
			d.fast--
			d.announceAt = now.Add(fastEvery)
		}
	}
	sooner := func(at time.Time) {
		if at.After(now) && at.Before(next) {
			next = at
		}
	}
	sooner(d.lookAt)
	sooner(d.announceAt)
	sooner(d.began.Add(settledAfter))
	if at := d.tell(ctx, now); !at.IsZero() {
		sooner(at)
	}
	return next
}

// look looks at the devices, and listens on those of the underlay.
func (d *Discoverer) look(now time.Time) {
	d.view = d.Look()
	if d.Off != "" || d.table.peers == nil {
		d.view.Underlay = nil
	}
	d.view.Underlay = d.view.Underlay[:min(len(d.view.Underlay), model.MaxWires)]
	names := make([]string, len(d.view.Underlay))
	for i, is := range d.view.Underlay {
		names[i] = is.Name
		p := d.ports[is.Name]
		if p != nil && (p.index != is.Index || p.ended()) {
			p.close()
			p = nil
			d.table.cut(is.Name, now)
		}
		if p == nil {
			var err error
			if p, err = openPort(is.Name, is.Index, d.frames); err != nil {
				d.problem(is.Name, "listen for other nodes: "+err.Error())
				delete(d.ports, is.Name)
				continue
			}
			d.ports[is.Name] = p
			delete(d.problems, is.Name)
		}
		if p.up != is.Up {
			if p.up = is.Up; is.Up {
				d.hurry()
			} else {
				d.table.cut(is.Name, now)
			}
		}
	}
	for name, p := range d.ports {
		if !slices.Contains(names, name) {
			p.close()
			delete(d.ports, name)
			delete(d.problems, name)
		}
	}
	d.table.listen(names)
}

// announce sends one frame by each device that has carrier.
func (d *Discoverer) announce(now time.Time) {
	for _, is := range d.view.Underlay {
		p := d.ports[is.Name]
		if p == nil || !is.Up || len(is.MAC) != 6 {
			continue
		}
		d.sequence++
		f := frame{source: is.MAC, chassis: d.Node, port: is.Name, ttl: uint16(timeToLive / time.Second), name: d.Node,
			management: d.Address}
		err := p.send(f.sign(seal{d.table.tag, d.sequence, now}, d.key))
		if err == nil {
			delete(d.problems, is.Name)
			continue
		}
		d.Changed() // it may have gone down just now
		if !lacksCarrier(err) {
			d.problem(is.Name, "announce the node: "+err.Error())
		}
	}
}

// problem notes why a device cannot be used, and tells of it once.
func (d *Discoverer) problem(device, what string) {
	if d.problems[device] != what {
		d.problems[device] = what
		d.Failed(device, what)
	}
}

// doubts counts a frame that is not believed, and tells of it unless that was told lately.
func (d *Discoverer) doubts(r refusal) {
	d.refused++
	now := time.Now()
	for k, at := range d.said {
		if now.Sub(at) > refusedEvery {
			delete(d.said, k)
		}
	}
	about := r.device + " " + r.node
	if _, told := d.said[about]; told || len(d.said) >= refusedMost {
		return
	}
	d.said[about] = now
	whose := "an announcement"
	if r.node != "" {
		whose = fmt.Sprintf("an announcement as node %s", model.Shorten(r.node, maxText))
	}
	d.Refused(r.device, fmt.Sprintf("%s came by %s from %s, and is not believed: %s", whose, r.device,
		r.source, r.why))
}

// found is all that is to be told.
func (d *Discoverer) found(now time.Time) model.Discovery {
	is := model.Discovery{Node: d.Node, Key: d.public, Off: cmp.Or(d.Off, d.view.Problem),
		Settled: !now.Before(d.began.Add(settledAfter)), Refused: d.refused,
		Processor: d.view.Processor, Interfaces: d.view.Interfaces}
	for _, u := range d.view.Underlay {
		w := model.Wire{Device: u.Name, Up: u.Up, Speed: u.Speed, Problem: d.problems[u.Name]}
		w.Nodes, w.Switches = d.table.heard(u.Name, now)
		is.Wires = append(is.Wires, w)
	}
	return is
}

// tell tells the manager if there is news, and asks for keys. It returns when it is to be called again, if it waits.
func (d *Discoverer) tell(ctx context.Context, now time.Time) time.Time {
	if d.telling {
		return time.Time{}
	}
	is := d.found(now)
	asks := d.table.unknown()
	if now.Before(d.askAt) {
		asks = nil
	}
	news := d.told == nil || d.news(is, now)
	switch {
	case news && now.Before(d.tellAt):
		return d.tellAt
	case !news && len(asks) == 0:
		return d.askAt
	}
	sent := is
	sent.Unknown = asks
	d.telling = true
	go func() {
		answered, err := d.Tell(ctx, sent)
		d.done <- answer{is, asks, answered.Keys, err}
	}()
	return time.Time{}
}

// news tells whether what is to be told differs from what was. Others than this node can have the count of refusals and
// the machine's devices change as often as they like: that is not told at once.
func (d *Discoverer) news(is model.Discovery, now time.Time) bool {
	if now.Sub(d.toldAt) < announceEvery {
		is.Refused, is.Interfaces = d.told.Refused, d.told.Interfaces
	}
	return !reflect.DeepEqual(*d.told, is)
}

// answered takes the manager's answer.
func (d *Discoverer) answered(a answer, now time.Time) {
	d.telling = false
	if d.tellAt = now.Add(tellEvery); a.err != nil {
		d.tellAt = now.Add(tellAgain) // Again comes first, if the manager is back earlier
		d.askAt = d.tellAt
		d.Log.Debug("tell what was discovered", "error", a.err)
		return
	}
	d.told, d.toldAt = &a.told, now
	if len(a.asked) > 0 {
		if d.ask = min(2*d.ask, lastAsk); d.table.learn(a.asked, a.keys, now) {
			d.ask = firstAsk
			d.hurry()
		}
		d.askAt = now.Add(d.ask)
	}
	if !d.known {
		d.known = true
		d.hurry()
	}
}
