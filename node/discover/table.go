package discover

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// The clock of announcements: the defaults of IEEE Std 802.1AB-2016, 9.2.5.
const (
	announceEvery = 30 * time.Second // msgTxInterval
	fastEvery     = time.Second      // msgFastTx
	fastTimes     = 3                // txFastInit is 4
	timeToLive    = 4*announceEvery + time.Second
	// settledAfter is how long who listens has heard everybody who is there and whose frames are not lost.
	settledAfter = announceEvery + 5*time.Second
)

// How what comes and goes is told: who was lost counts as heard again only after a hold. That is firstHold after the
// first time, and doubles with each further one, up to lastHold. After calm without a loss it begins anew.
const (
	firstHold = time.Second
	lastHold  = time.Minute
	calm      = 5 * time.Minute
)

// staleAfter is how far the clock of a node that is heard for the first time may be from this one's. What was recorded
// earlier may have been said by that node, but not now.
const staleAfter = 2 * time.Minute

// longestLife bounds for how long a frame counts, whatever it says. Many are not signed.
const longestLife = 5 * time.Minute

// maxClaims bounds the frames that wait for a key, one for each node that they claim to be of.
const maxClaims = model.MaxUnknownNodes

// table is who is heard, on which device. It has no clock, no socket and no goroutine of its own.
type table struct {
	self   string
	tag    tag
	peers  map[string]bool              // the substrate's nodes
	keys   map[string]ed25519.PublicKey // of those that were asked for
	wires  map[string]*wire             // by device
	claims map[string]claim             // by the node that they claim to be of
	refuse func(refusal)
}

// wire is one device of the underlay.
type wire struct {
	nodes    map[model.HeardNode]*heard
	switches map[model.HeardSwitch]*heard
}

// heard is somebody at the other end of a wire.
type heard struct {
	key      string    // that of the node's present life
	sequence uint64    // of its latest frame
	at       time.Time // of its latest frame
	until    time.Time
	from     time.Time // from when on it counts; zero while it is lost
	losses   int
	lost     time.Time // the last time
}

// claim is a frame whose sender's key is not known, or is another one than it was.
type claim struct {
	device string
	frame  frame
	seal   seal
}

// refusal is a frame that is not believed.
type refusal struct{ device, source, node, why string }

func newTable(self string, refuse func(refusal)) *table {
	return &table{self: self, keys: map[string]ed25519.PublicKey{}, wires: map[string]*wire{},
		claims: map[string]claim{}, refuse: refuse}
}

// listen says which devices there are. What was heard on others is forgotten.
func (t *table) listen(devices []string) {
	maps.DeleteFunc(t.wires, func(d string, _ *wire) bool { return !slices.Contains(devices, d) })
	for _, d := range devices {
		if t.wires[d] == nil {
			t.wires[d] = &wire{nodes: map[model.HeardNode]*heard{}, switches: map[model.HeardSwitch]*heard{}}
		}
	}
}

// take takes a frame that came by a device. It returns whether it is of somebody who was not heard before.
func (t *table) take(device string, b []byte, now time.Time) (fresh bool) {
	if t.wires[device] == nil {
		return false
	}
	f, err := parse(b)
	if err != nil {
		t.doubt(device, &f, "", err.Error())
		return false
	}
	if f.private == nil {
		if t.peers[f.name] || t.peers[f.chassis] || f.name == t.self {
			t.doubt(device, &f, cmp.Or(f.name, f.chassis), "it is not signed")
			return false
		}
		return t.hearSwitch(device, &f, now)
	}
	s, err := f.seal()
	switch {
	case err != nil:
		t.doubt(device, &f, f.chassis, err.Error())
		return false
	case s.tag != t.tag, f.chassis == t.self, !t.peers[f.chassis]:
		// It is of another instance, or our own, which somebody sends back, or of a node that may have joined just now.
		return false
	}
	c := claim{device, f, s}
	if f.signedBy(t.keys[f.chassis]) {
		return t.believe(c, now)
	}
	if _, waits := t.claims[f.chassis]; waits || len(t.claims) < maxClaims {
		c.frame.private, c.frame.signed = slices.Clone(f.private), slices.Clone(f.signed) // b is the reader's
		t.claims[f.chassis] = c
	}
	return false
}

func (t *table) doubt(device string, f *frame, node, why string) {
	t.refuse(refusal{device, f.source.String(), node, why})
}

// unknown are the nodes whose keys are to be asked for.
func (t *table) unknown() []string { return slices.Sorted(maps.Keys(t.claims)) }

// learn takes keys that were asked for, and judges the frames that waited for them.
func (t *table) learn(asked []string, keys map[string][]byte, now time.Time) (fresh bool) {
	for _, node := range asked {
		key := keys[node]
		known := len(key) == ed25519.PublicKeySize
		if known { // otherwise what was known stays: anybody can have it asked for
			t.keys[node] = key
		}
		c, waits := t.claims[node]
		delete(t.claims, node)
		switch {
		case !waits, !known: // without a key nobody can tell who sent it: the node may be starting
		case !c.frame.signedBy(t.keys[node]):
			t.doubt(c.device, &c.frame, node, "it is not signed with the node's key")
		default:
			fresh = t.believe(c, now) || fresh
		}
	}
	return fresh
}

// believe takes a frame that its node has signed, unless it comes a second time.
func (t *table) believe(c claim, now time.Time) (fresh bool) {
	w := t.wires[c.device]
	if w == nil {
		return false
	}
	key := string(t.keys[c.frame.chassis])
	id := model.HeardNode{Node: c.frame.chassis, Port: c.frame.port}
	h := w.nodes[id]
	switch {
	case h != nil && h.key == key:
		if c.seal.sequence <= h.sequence {
			t.doubt(c.device, &c.frame, id.Node, "it comes a second time")
			return false
		}
	case now.Sub(c.seal.time).Abs() > staleAfter:
		t.doubt(c.device, &c.frame, id.Node, fmt.Sprintf("it says that it is of %s: it is old, or the node's clock "+
			"is not this one's", c.seal.time.UTC().Format(time.DateTime)))
		return false
	case h == nil:
		if h = room(w.nodes, model.MaxHeardNodes); h == nil {
			return false
		}
		w.nodes[id] = h
	}
	fresh = h.key != key
	h.key, h.sequence = key, c.seal.sequence
	h.hear(now, c.frame.ttl)
	return fresh
}

// hearSwitch takes a frame of somebody who is no node. It proves nothing.
func (t *table) hearSwitch(device string, f *frame, now time.Time) bool {
	w := t.wires[device]
	id := model.HeardSwitch{Chassis: f.chassis, Port: f.port, Name: f.name, Address: f.management}
	h := w.switches[id]
	if h == nil {
		if f.ttl == 0 {
			return false
		}
		if h = room(w.switches, model.MaxHeardSwitches); h == nil {
			// Nothing proves that those who are there are true ones.
			delete(w.switches, slices.MinFunc(slices.Collect(maps.Keys(w.switches)), func(a, b model.HeardSwitch) int {
				return w.switches[a].at.Compare(w.switches[b].at)
			}))
			h = &heard{}
		}
		w.switches[id] = h
	}
	h.hear(now, f.ttl)
	return false
}

// room makes room for one more in a table that is bounded: who was lost gives way.
func room[K comparable](all map[K]*heard, most int) *heard {
	for k, h := range all {
		if len(all) >= most && h.from.IsZero() {
			delete(all, k)
		}
	}
	if len(all) >= most {
		return nil
	}
	return &heard{}
}

// hear notes a frame.
func (h *heard) hear(now time.Time, ttl uint16) {
	h.at = now
	if h.until = now.Add(min(time.Duration(ttl)*time.Second, longestLife)); ttl == 0 { // it says that it goes
		h.lose(now)
		return
	}
	if !h.from.IsZero() {
		return
	}
	h.from = now
	if h.losses > 0 {
		h.from = now.Add(min(firstHold<<min(h.losses-1, 10), lastHold))
	}
}

func (h *heard) lose(now time.Time) {
	if h.from.IsZero() {
		return
	}
	if now.Sub(h.lost) > calm {
		h.losses = 0
	}
	h.from, h.lost = time.Time{}, now
	h.losses++
}

// cut notes that a device has no carrier: nobody is heard by it any more.
func (t *table) cut(device string, now time.Time) {
	if w := t.wires[device]; w != nil {
		for _, h := range w.all() {
			h.lose(now)
		}
	}
}

func (w *wire) all() []*heard {
	return slices.Concat(slices.Collect(maps.Values(w.nodes)), slices.Collect(maps.Values(w.switches)))
}

// expire forgets who was not heard for as long as it said. It returns when it is to be called again.
func (t *table) expire(now time.Time) (next time.Time) {
	next = now.Add(announceEvery)
	sooner := func(at time.Time) {
		if at.After(now) && at.Before(next) {
			next = at
		}
	}
	for _, w := range t.wires {
		for _, h := range w.all() {
			if !h.from.IsZero() && !h.until.After(now) {
				h.lose(now)
			}
			if !h.from.IsZero() {
				sooner(h.until)
				sooner(h.from)
			}
		}
		over := func(h *heard) bool { return h.from.IsZero() && now.Sub(h.lost) > calm }
		maps.DeleteFunc(w.nodes, func(_ model.HeardNode, h *heard) bool { return over(h) })
		maps.DeleteFunc(w.switches, func(_ model.HeardSwitch, h *heard) bool { return over(h) })
	}
	return next
}

// heard returns who counts as heard by a device.
func (t *table) heard(device string, now time.Time) (nodes []model.HeardNode, switches []model.HeardSwitch) {
	w := t.wires[device]
	if w == nil {
		return nil, nil
	}
	counts := func(h *heard) bool { return !h.from.IsZero() && !h.from.After(now) }
	for id, h := range w.nodes {
		if counts(h) && t.peers[id.Node] {
			nodes = append(nodes, id)
		}
	}
	for id, h := range w.switches {
		if counts(h) {
			switches = append(switches, id)
		}
	}
	slices.SortFunc(nodes, func(a, b model.HeardNode) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Port, b.Port))
	})
	slices.SortFunc(switches, func(a, b model.HeardSwitch) int {
		return cmp.Or(cmp.Compare(a.Chassis, b.Chassis), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Name, b.Name),
			a.Address.Compare(b.Address))
	})
	return nodes, switches
}
