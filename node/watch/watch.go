// Package watch judges whether what an element does is an attack: measured values in, verdicts out. It is pure: no
// clock, no kernel. Each signal of each element is compared with what is usual for that element, and with a floor below
// which nobody cares.
package watch

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// Signal is something that is measured of an element.
type Signal string

// The signals. Signals about packets are about what the element itself sends, as samples of its ports show (see
// Sample).
const (
	Storm     Signal = "storm"     // frames a second to everybody or to groups
	Sources   Signal = "sources"   // frames a second from addresses of the link layer that are made up
	Malformed Signal = "malformed" // packets a second whose headers are wrong
	// questions a second for neighbours that do not answer, by ARP or neighbour discovery
	Asking Signal = "asking"
	Scan   Signal = "scan"  // services a second that are tried and refuse or do not answer
	Flood  Signal = "flood" // connections a second that are begun at few services and that nobody answers
	// services that were tried and refused or did not answer, within five watched minutes (see Slow)
	SlowScan    Signal = "slow-scan"
	Neighbours  Signal = "neighbours"  // new entries a second in the kernel's neighbour tables
	Connections Signal = "connections" // new tracked connections a second
	Refused     Signal = "refused"     // processes a second that its limit kept from being started
	Killed      Signal = "killed"      // processes a second that its memory limit ended
	Demand      Signal = "demand"      // threads that want a processor, on average
	Writing     Signal = "writing"     // how often it turns from filling its disk to emptying it, or back (see Turns)
	// how often its packets took more of the kernel's time than they may (node/kerneltime)
	Kernel Signal = "kernel"
	Tables Signal = "tables" // how often entries beyond its limits were removed from the kernel's tables
	// refused requests a second for kernel memory for its sockets
	Sockets   Signal = "sockets"
	Forbidden Signal = "forbidden" // dropped packets a second of kinds that no element may send
	Punts     Signal = "punts"     // exceptional packets a second beyond what the network's routers may get
)

// Rule says when a value of a signal is suspicious: when it has been at least Floor, and at least Times what is usual,
// at Looks looks in a row.
type Rule struct {
	Signal Signal
	Floor  float64
	Times  float64
	Looks  int
	// Unit follows a value in messages: "%s frames a second to everybody".
	Unit string
}

// Rules are all rules. No example, test of routing or measurement of ours comes near the floors, and an attack that
// harms anybody is far beyond them (measured: docs/decisions/0035).
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

// RuleOf is the rule of a signal, or nil if it has none.
func RuleOf(s Signal) *Rule { return rules[s] }

// Value is a signal as it was measured.
type Value struct {
	Signal Signal
	Value  float64
	// Detail says more: "212 services of 10.0.0.2 in 250ms".
	Detail string
	// Provoked tells that others may have caused this by what they sent to the element (see also May).
	Provoked bool
	// asked are the neighbours that a value of Asking counts.
	asked map[netip.AddrPort]bool
	// came is how many packets a second came in the sample of a value of Asking, and named which share of them named a
	// sender or target that was new in it, to an address of the element.
	came, named float64
}

// insistent is how many absent neighbours an element may ask for again and again. A kernel asks for each once a second
// as long as somebody sends there, and on a busy machine twenty that began at once can look like sixty a second, at one
// look after the other. Whoever fills tables of neighbours, or looks for hosts, asks for others each time.
const insistent = 64

// again leaves out of a value of Asking the neighbours that the element asked for at its last look as well.
func (v *Value) again(last map[netip.AddrPort]bool) {
	if len(v.asked) == 0 || len(v.asked) > insistent {
		return
	}
	others := 0
	for peer := range v.asked {
		if !last[peer] {
			others++
		}
	}
	v.Value *= float64(others) / float64(len(v.asked))
}

// May returns whether what an element received, in packets a second, may be the reason for so much of a signal. If so,
// the platform tells of it and does nothing to the element; otherwise one element could have another punished. A packet
// for an element makes it ask for a neighbour, three times, on its way or for its answer. Others' questions do not, so
// two who ask for everybody are no excuse for each other; nor do more packets of the same sender. Every packet that
// comes can have a connection tracked. Requests make servers start processes, use memory and write to disks. The other
// signals are computed from what the element sent in excess of what it received.
func (v *Value) May(received float64) bool {
	switch v.Signal {
	case Asking:
		// If much less came during the sample than shortly before, the sample does not show what came then.
		if v.came >= received/4 {
			received *= v.named
		}
		return received >= v.Value/4
	case Neighbours, Connections:
		return received >= v.Value/4
	case Refused, Killed, Demand, Writing, Kernel, Tables, Sockets:
		return received >= busy
	}
	return false
}

// busy: this many packets a second may make an element do more than it would by itself.
const busy = 200

// Verdict says that something is, or is likely to be, an attack.
type Verdict struct {
	Signal Signal
	Value  float64
	Usual  float64
	// Limit is the value from which on it is suspicious.
	Limit  float64
	Since  time.Time // the first of the looks
	Detail string
	// Provoked tells that others may have caused this.
	Provoked bool
}

const (
	// halfLife is the time in which half of what was usual is forgotten.
	halfLife = 30 * time.Minute
	// warmUp is how long a signal must have been looked at before what is usual counts. Until then only the floor does,
	// which is stricter.
	warmUp = 10 * time.Minute
	// most bounds what can become usual, as a multiple of the floor: an attacker who begins slowly gains no more than
	// that.
	most = 3.0
	// calm is how long a signal must have been below its limit before the next time is news. Until then a reminder
	// comes once in every reminder.
	calm     = time.Minute
	reminder = 10 * time.Minute
	// excused is how long others' packets may go on to have an effect on what an element does. Whoever goes on for
	// longer without such packets does so of its own accord: somebody else's attack has ended, or was ended, and
	// excuses nobody any more.
	excused = time.Minute
	// gap is the longest time between two looks that count as in a row.
	gap = 40 * time.Second
)

// Usual is what is usual for one signal of one element: a running median, and how far values usually are from it. Both
// move towards each new value by a bounded step, so that no single value, however large, moves them far.
type Usual struct {
	Median float64 `json:"m"`
	Spread float64 `json:"s"`
	// Seen is how long it has been looked at.
	Seen time.Duration `json:"t"`
}

// learn takes in a value that was measured over a time.
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
	// A step is at most the usual distance of values, or a tenth of the floor if that is very small.
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
	// provoked tells that others may have caused it at one of these looks. alone is when it was at the latest, or the
	// first look.
	provoked bool
	alone    time.Time
	mild     bool                    // what was told last was provoked
	asked    map[netip.AddrPort]bool // at the last look
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

// Look takes in what was measured of an element at a time. It returns what is suspicious and has not been told yet. A
// signal that was not measured keeps its state; one that was measured as zero counts as zero.
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
				continue // what has never happened need not be remembered
			}
			s = &state{at: at}
			w.states[k] = s
		}
		span := at.Sub(s.at)
		if span <= gap {
			v.again(s.asked)
		}
		s.at, s.asked = at, v.asked
		limit := rule.limit(&s.Usual)
		if v.Value < limit {
			if s.over = 0; s.told.IsZero() || at.Sub(s.high) >= calm {
				s.told = time.Time{}
			}
			s.learn(v.Value, span, rule.Floor)
			continue
		}
		// Suspicious values are not learnt: an attack that lasts does not become usual.
		if s.over == 0 || span > gap {
			s.over, s.since, s.provoked, s.alone = 0, at, false, at
		}
		if v.Provoked {
			s.provoked, s.alone = true, at
		} else if at.Sub(s.alone) >= excused {
			s.provoked = false
		}
		s.over++
		s.high = at
		if s.over < rule.Looks || !s.told.IsZero() && at.Sub(s.told) < reminder &&
			(s.provoked || !s.mild || at.Sub(s.alone) < excused) {
			continue
		}
		s.told, s.mild = at, s.provoked
		verdicts = append(verdicts, Verdict{Signal: v.Signal, Value: v.Value, Usual: s.Median,
			Limit: limit, Since: s.since, Detail: v.Detail, Provoked: s.provoked})
	}
	slices.SortStableFunc(verdicts, func(a, b Verdict) int { return cmp.Compare(b.Value/b.Limit, a.Value/a.Limit) })
	return verdicts
}

// limit is the value from which on it is suspicious.
func (r *Rule) limit(u *Usual) float64 {
	if u.Seen < warmUp {
		return r.Floor
	}
	return max(r.Floor, r.Times*u.Median, u.High())
}

// Forgive forgets that an element was suspicious, but not what is usual for it. It has been cut off; if it goes on
// after its release, that is news.
func (w *Watch) Forgive(id model.ID) {
	for i := range Rules {
		if s := w.states[key{id, Rules[i].Signal}]; s != nil {
			*s = state{Usual: s.Usual, at: s.at}
		}
	}
}

// Forget forgets an element, which is gone.
func (w *Watch) Forget(id model.ID) {
	for i := range Rules {
		delete(w.states, key{id, Rules[i].Signal})
	}
}

// Turns counts how often a series of used shares of a disk turns from growing to shrinking or back, each time by at
// least a fifth of the disk, in however many steps. Filling a disk once, or emptying it once, is no turn.
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

// Keep forgets the elements that are no longer wanted.
func (w *Watch) Keep(wanted func(model.ID) bool) {
	for k := range w.states {
		if !wanted(k.id) {
			delete(w.states, k)
		}
	}
}

// Memory is what is usual for one signal of one element, in the form in which it survives restarts.
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

// Remember takes over what was kept. It leaves out what cannot have been measured.
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

// Suspicious returns whether anything about an element is suspicious and has not been told yet, so that it is worth
// another look soon.
func (w *Watch) Suspicious(id model.ID) bool {
	for i := range Rules {
		if s := w.states[key{id, Rules[i].Signal}]; s != nil && s.over > 0 && s.told.IsZero() {
			return true
		}
	}
	return false
}
