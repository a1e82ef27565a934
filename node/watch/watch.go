// Package watch judges whether what an element does is an attack: measured values in, verdicts out. It is pure: no
// clock, no kernel. Each signal of each element is held against what is usual for it, and against a floor below which
// it is of no interest whoever does it.
package watch

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// Signal is one thing that is measured of an element.
type Signal string

// The signals. Those of packets are of what the element itself sends, as samples of its ports show (see Sample).
const (
	Storm     Signal = "storm"     // frames a second to everybody or to groups
	Sources   Signal = "sources"   // frames a second from addresses of the link layer that are made up
	Malformed Signal = "malformed" // packets a second whose headers are wrong
	// questions a second for neighbours that do not answer, by ARP or neighbour discovery
	Asking Signal = "asking"
	Scan   Signal = "scan"  // attempts a second at services that refuse or do not answer, one each
	Flood  Signal = "flood" // connections a second that are begun at few services and that nobody answers
	// services that refuse or do not answer, one each, within five minutes that were watched (see Slow)
	SlowScan    Signal = "slow-scan"
	Neighbours  Signal = "neighbours"  // new entries a second in the kernel's neighbour tables
	Connections Signal = "connections" // new tracked connections a second
	Refused     Signal = "refused"     // processes a second that its limit kept from being started
	Killed      Signal = "killed"      // processes a second that its memory limit ended
	Demand      Signal = "demand"      // threads that want a processor, on average
	Writing     Signal = "writing"     // how often it turns from filling its disk to emptying it, or back (see Turns)
	// how often its own packets took more of the kernel's time than they may (node/kerneltime)
	Kernel Signal = "kernel"
	Tables Signal = "tables" // how often what it had in the kernel's tables beyond its limits was taken away
	// requests a second for memory of the kernel's, for its sockets, that were refused
	Sockets   Signal = "sockets"
	Forbidden Signal = "forbidden" // packets a second that the fabric dropped since no element may send such
	Punts     Signal = "punts"     // exceptional packets a second beyond what the slice's routers may get of them
)

// Rule says when a value of a signal is suspicious: when it is at least Floor, and at least Times what is usual, at
// Looks looks in a row.
type Rule struct {
	Signal Signal
	Floor  float64
	Times  float64
	Looks  int
	// Unit reads behind a value: "%s frames a second to everybody".
	Unit string
}

// Rules are all of them. The floors are what no example, test of routing or measurement of ours comes near to
// (measured: docs/decisions/0035), and what an attack that takes anything from anybody is far beyond.
var Rules = []Rule{
	{Storm, 1000, 10, 2, "frames a second to everybody or to groups"},
	{Sources, 100, 10, 2, "frames a second from made-up MAC addresses"},
	{Malformed, 50, 10, 2, "packets a second with wrong headers"},
	{Asking, 50, 10, 2, "questions a second for neighbours that do not answer"},
	{Scan, 30, 10, 2, "attempts a second at services that refuse or do not answer"},
	{Flood, 200, 10, 2, "connections a second that are begun and not answered"},
	{SlowScan, 30, 3, 1, "services within five minutes, slowly, that refuse or do not answer"},
	{Neighbours, 500, 10, 2, "new neighbours a second"},
	{Connections, 5000, 10, 2, "new tracked connections a second"},
	{Refused, 20, 10, 2, "processes a second refused by its limit"},
	{Killed, 0.5, 10, 2, "processes a second ended by its memory limit"},
	{Demand, 20, 4, 2, "threads that want a processor at a time"},
	{Writing, 12, 3, 1, "turns between filling and emptying its disk within a minute"},
	{Kernel, 3, 3, 1, "times within a minute that packets of its own making took more of the kernel's time than they " +
		"may"},
	{Tables, 3, 3, 1, "times within a minute that it had more in the kernel's tables than its limits allow"},
	{Sockets, 20, 10, 2, "requests a second for more of the kernel's memory for sockets than it may have"},
	{Forbidden, 50, 10, 2, "packets a second that were dropped since no element may send such"},
	{Punts, 1000, 10, 2, "packets a second that were dropped since routers would have to answer more than they may"},
}

var rules = func() map[Signal]*Rule {
	m := map[Signal]*Rule{}
	for i := range Rules {
		m[Rules[i].Signal] = &Rules[i]
	}
	return m
}()

// RuleOf is a signal's rule, nil for a signal that there is none of.
func RuleOf(s Signal) *Rule { return rules[s] }

// Value is a signal as it was measured.
type Value struct {
	Signal Signal
	Value  float64
	// Detail says more of it: "212 services of 10.0.0.2 in 250ms".
	Detail string
	// Provoked tells that others may have made the element do so, by what they sent it: see May.
	Provoked bool
}

// May tells whether what an element received, in packets a second, may be what made it do so much of a signal. Then it
// is told of and nothing is done to it, or one element could have another punished. A neighbour is asked for three
// times when a packet comes that is for it, or whose answer is; a connection is tracked for any packet that comes;
// processes are started, memory is taken and disks are written for whoever asks. The other signals are worked out from
// what the element sent beyond what it received.
func May(s Signal, value, received float64) bool {
	switch s {
	case Asking, Neighbours, Connections:
		return received >= value/4
	case Refused, Killed, Demand, Writing, Kernel, Tables, Sockets:
		return received >= busy
	}
	return false
}

// busy is how many packets a second may make an element do more than it would by itself.
const busy = 200

// Verdict is that something is an attack, or is likely to be.
type Verdict struct {
	Signal Signal
	Value  float64
	Usual  float64
	// Limit is what would have had to be exceeded.
	Limit  float64
	Since  time.Time // the first of the looks
	Detail string
	// Provoked tells that others may have made the element do so.
	Provoked bool
}

const (
	// halfLife is the time in which what is usual forgets half of what was.
	halfLife = 30 * time.Minute
	// warmUp is how long a signal must have been looked at for what is usual to count; until then only the floor does,
	// which is the stricter.
	warmUp = 10 * time.Minute
	// most is how far above the floor what is usual may come: an attacker who begins slowly teaches no more than that.
	most = 3.0
	// calm is how long a signal must have been below its limit for the next time to be news; until then, what goes on
	// is told once every reminder.
	calm     = time.Minute
	reminder = 10 * time.Minute
	// gap is the longest time between two looks that counts as in a row.
	gap = 40 * time.Second
)

// Usual is what is usual for one signal of one element: a running median, and how far values usually are from it. Both
// move by a bounded step towards each new value, so that no single one, however large, moves them far.
type Usual struct {
	Median float64 `json:"m"`
	Spread float64 `json:"s"`
	// Seen is how long it has been looked at.
	Seen time.Duration `json:"t"`
}

// learn takes in a value that stood for a time.
func (u *Usual) learn(v float64, span time.Duration, floor float64) {
	span = min(span, gap)
	if span <= 0 {
		return // it stood for no time
	}
	u.Seen += span
	share := 1 - math.Exp2(-float64(span)/float64(halfLife))
	if u.Seen < warmUp { // the first minutes are learnt faster
		share = max(share, min(1, float64(span)/float64(u.Seen)))
	}
	v = min(v, most*floor)
	// A step is at most what values usually differ by, or a tenth of the floor where they hardly do.
	off := v - u.Median
	bound := max(3*u.Spread, floor/10)
	u.Median += share * min(max(off, -bound), bound)
	u.Spread += share * (min(math.Abs(off), bound) - u.Spread)
	if u.Median < floor*1e-6 {
		u.Median = 0
	}
}

// High is the upper end of what is usual.
func (u *Usual) High() float64 { return u.Median + 3*u.Spread }

// state is what is remembered of one signal of one element.
type state struct {
	Usual
	at    time.Time // of the last look
	over  int       // looks in a row
	since time.Time // of the first of them
	high  time.Time // the last look that was over
	told  time.Time
	// provoked tells that it may have been others' doing at one of these looks.
	provoked bool
}

type key struct {
	id     model.ID
	signal Signal
}

// Watch remembers all elements of a node. It is not safe for concurrent use.
type Watch struct {
	states map[key]*state
}

// New returns a watch that knows nothing.
func New() *Watch { return &Watch{states: map[key]*state{}} }

// Look takes in what was measured of an element at a time, and returns what is suspicious and has not been told.
// Signals that were not measured are left as they are; those that were measured as nothing count as such.
func (w *Watch) Look(id model.ID, at time.Time, values []Value) (verdicts []Verdict) {
	for _, v := range values {
		rule := rules[v.Signal]
		if rule == nil || math.IsNaN(v.Value) || v.Value < 0 {
			continue
		}
		k := key{id, v.Signal}
		s := w.states[k]
		if s == nil {
			if v.Value == 0 {
				continue // nothing is remembered of what has never happened
			}
			s = &state{at: at}
			w.states[k] = s
		}
		span := at.Sub(s.at)
		s.at = at
		limit := rule.limit(&s.Usual)
		if v.Value < limit {
			if s.over = 0; s.told.IsZero() || at.Sub(s.high) >= calm {
				s.told = time.Time{}
			}
			s.learn(v.Value, span, rule.Floor)
			continue
		}
		// What is suspicious teaches nothing: an attack that lasts does not become usual.
		if s.over == 0 || span > gap {
			s.over, s.since, s.provoked = 0, at, false
		}
		s.provoked = s.provoked || v.Provoked
		s.over++
		s.high = at
		if s.over < rule.Looks || !s.told.IsZero() && at.Sub(s.told) < reminder {
			continue
		}
		s.told = at
		verdicts = append(verdicts, Verdict{Signal: v.Signal, Value: v.Value, Usual: s.Median,
			Limit: limit, Since: s.since,
			Detail: v.Detail, Provoked: s.provoked})
	}
	slices.SortStableFunc(verdicts, func(a, b Verdict) int { return cmp.Compare(b.Value/b.Limit, a.Value/a.Limit) })
	return verdicts
}

// limit is what a value must reach to be suspicious.
func (r *Rule) limit(u *Usual) float64 {
	if u.Seen < warmUp {
		return r.Floor
	}
	return max(r.Floor, r.Times*u.Median, u.High())
}

// Forgive forgets that an element was suspicious, but not what is usual for it: it has been cut off, and if it goes on
// when it is released that is news.
func (w *Watch) Forgive(id model.ID) {
	for i := range Rules {
		if s := w.states[key{id, Rules[i].Signal}]; s != nil {
			*s = state{Usual: s.Usual, at: s.at}
		}
	}
}

// Turns counts how often shares of a disk that are used, one after the other, turn from growing to shrinking or back,
// each time by a fifth of the disk at least, in however many steps: who fills it once, or empties it once, does not
// turn.
func Turns(shares []float64) (turns int) {
	const step = 0.2
	if len(shares) == 0 {
		return 0
	}
	low, high, direction := shares[0], shares[0], 0
	for _, v := range shares {
		low, high = min(low, v), max(high, v)
		switch {
		case direction <= 0 && v-low >= step:
			turns -= direction // the first way that it takes is no turn
			direction, high = 1, v
		case direction >= 0 && high-v >= step:
			turns += direction
			direction, low = -1, v
		}
	}
	return turns
}

// Of returns what is usual for an element, by signal.
func (w *Watch) Of(id model.ID) map[Signal]Usual {
	all := map[Signal]Usual{}
	for k, s := range w.states {
		if k.id == id {
			all[k.signal] = s.Usual
		}
	}
	return all
}

// Keep forgets the elements that are not wanted any more.
func (w *Watch) Keep(wanted func(model.ID) bool) {
	for k := range w.states {
		if !wanted(k.id) {
			delete(w.states, k)
		}
	}
}

// Memory is what is usual for one signal of one element, as it is kept over restarts.
type Memory struct {
	ID     model.ID `json:"id"`
	Signal Signal   `json:"signal"`
	Usual
}

// Memories are all that there are, in order.
func (w *Watch) Memories() []Memory {
	all := make([]Memory, 0, len(w.states))
	for k, s := range w.states {
		all = append(all, Memory{k.id, k.signal, s.Usual})
	}
	slices.SortFunc(all, func(a, b Memory) int {
		return cmp.Or(cmp.Compare(a.ID.String(), b.ID.String()), cmp.Compare(a.Signal, b.Signal))
	})
	return all
}

// Remember takes in what was kept; what cannot have been measured is left out.
func (w *Watch) Remember(all []Memory, at time.Time) {
	for _, m := range all {
		rule := rules[m.Signal]
		sane := func(f float64) bool { return f >= 0 && f <= 10*most*math.Max(1, floorOf(rule)) }
		if rule == nil || !sane(m.Median) || !sane(m.Spread) || m.Seen < 0 {
			continue
		}
		w.states[key{m.ID, m.Signal}] = &state{Usual: m.Usual, at: at}
	}
}

func floorOf(r *Rule) float64 {
	if r == nil {
		return 0
	}
	return r.Floor
}

// Suspicious tells whether anything of an element is being suspicious and has not been told: it is worth a look soon.
func (w *Watch) Suspicious(id model.ID) bool {
	for i := range Rules {
		if s := w.states[key{id, Rules[i].Signal}]; s != nil && s.over > 0 && s.told.IsZero() {
			return true
		}
	}
	return false
}
