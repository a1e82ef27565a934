package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The timers of generated configurations where the file says nothing. Virtual links lose their carrier at once, so
// hellos only have to find neighbours quickly. FRR and BIRD get the same values, since neighbours must agree on them
// (RFC 2328, appendix C.3).
const (
	// UsualHello is OSPF's and IS-IS's, in seconds.
	UsualHello = 1
	// Who says nothing for so long is dead: on a segment with a switch, where it is also the time after which a
	// designated router is elected, and on a link between two routers. On such a link nothing but a daemon that hangs
	// is found by it. With 4 s, 300 routers that started on a busy machine lost each other again and again, and each
	// loss made all of them compute.
	UsualSegmentDead = 4
	UsualLinkDead    = 12
	UsualKeepalive   = 3 // of BGP
	UsualHold        = 9
	// RIP's are a sixth and a twelfth of RFC 2453's (30, 180 and 120), so that a lab converges while somebody looks.
	UsualRIPUpdate  = 5
	UsualRIPTimeout = 15
	UsualRIPGarbage = 10
)

// OSPFTimers are those that neighbours must agree on.
type OSPFTimers struct {
	Hello Duration `json:"hello,omitempty"`
	Dead  Duration `json:"dead,omitempty"`
}

// Keys are what a file may say of the timers of OSPF.
func (OSPFTimers) Keys() []Key[OSPFTimers] { return ospfTimers }

var ospfTimers = []Key[OSPFTimers]{
	newKey("hello", func(t *OSPFTimers) *Duration { return &t.Hello }, parseSeconds, about[Duration]{example: "10s",
		meaning: "How often it says hello, in whole seconds; 1s when left out. Neighbours must have the same.",
		least:   second, few: "that OSPF can say",
		most: 16383 * second, many: "than leaves room for the dead interval"}),
	newKey("dead", func(t *OSPFTimers) *Duration { return &t.Dead }, parseSeconds, about[Duration]{example: "40s",
		meaning: "How long a neighbour may say nothing, in whole seconds: more than hello. Neighbours must have the " +
			"same. When left out, four times hello if that is said, else 12s on links between two routers and 4s on " +
			"segments with a switch.",
		least: 2 * second, few: "that a hello needs",
		most: 65535 * second, many: "than OSPF can say"}),
}

// Intervals are the hello and dead intervals, in seconds, on a link between two routers or on another segment.
func (t OSPFTimers) Intervals(pointToPoint bool) (hello, dead int) {
	hello, dead = seconds(t.Hello), seconds(t.Dead)
	switch {
	case dead != 0:
	case hello != 0:
		dead = 4 * hello
	case pointToPoint:
		dead = UsualLinkDead
	default:
		dead = UsualSegmentDead
	}
	return max(hello, UsualHello), dead
}

// ISISTimers need not be a neighbour's: each tells its own.
type ISISTimers struct {
	Hello Duration `json:"hello,omitempty"`
	Hold  Duration `json:"hold,omitempty"`
}

// Keys are what a file may say of the timers of IS-IS.
func (ISISTimers) Keys() []Key[ISISTimers] { return isisTimers }

var isisTimers = []Key[ISISTimers]{
	newKey("hello", func(t *ISISTimers) *Duration { return &t.Hello }, parseSeconds, about[Duration]{example: "3s",
		meaning: "How often it says hello, in whole seconds; 1s when left out.",
		least:   second, few: "that FRR can say",
		most: 600 * second, many: "than FRR takes"}),
	newKey("hold", func(t *ISISTimers) *Duration { return &t.Hold }, parseSeconds, about[Duration]{example: "30s",
		meaning: "How long neighbours wait for its next hello: 2 to 100 times hello. When left out, three times " +
			"hello if that is said, else 12s on links between two routers and 4s on segments with a switch.",
		least: 2 * second, few: "that a hello needs",
		most: 60000 * second, many: "than FRR takes"}),
}

// Intervals are the hello interval, in seconds, and how many of them neighbours wait.
func (t ISISTimers) Intervals(pointToPoint bool) (hello, multiplier int) {
	hello = max(seconds(t.Hello), UsualHello)
	switch {
	case t.Hold != 0:
		return hello, seconds(t.Hold) / hello
	case t.Hello != 0:
		return hello, 3
	case pointToPoint:
		return hello, UsualLinkDead
	}
	return hello, UsualSegmentDead
}

// BGPTimers are what a session begins with: of the two hold times the shorter one counts (RFC 4271, section 4.2).
type BGPTimers struct {
	Keepalive Duration `json:"keepalive,omitempty"`
	Hold      Duration `json:"hold,omitempty"`
}

// Keys are what a file may say of the timers of BGP.
func (BGPTimers) Keys() []Key[BGPTimers] { return bgpTimers }

var bgpTimers = []Key[BGPTimers]{
	newKey("keepalive", func(t *BGPTimers) *Duration { return &t.Keepalive }, parseSeconds,
		about[Duration]{example: "60s",
			meaning: "How often sessions say that they live, in whole seconds; a third of hold when left out, and 3s " +
				"if neither is said.",
			least: second, few: "that BGP can say",
			most: 21845 * second, many: "than a third of the longest hold time"}),
	newKey("hold", func(t *BGPTimers) *Duration { return &t.Hold }, parseSeconds, about[Duration]{example: "180s",
		meaning: "How long a session may say nothing, in whole seconds, at least three times keepalive; three times " +
			"keepalive when left out, and 9s if neither is said. Of two neighbours' the shorter counts.",
		least: 3 * second, few: "that RFC 4271 asks for",
		most: 65535 * second, many: "than BGP can say"}),
}

// Intervals are the keepalive and hold times in seconds.
func (t BGPTimers) Intervals() (keepalive, hold int) {
	keepalive, hold = seconds(t.Keepalive), seconds(t.Hold)
	switch {
	case keepalive == 0 && hold == 0:
		return UsualKeepalive, UsualHold
	case keepalive == 0:
		return hold / 3, hold
	case hold == 0:
		return keepalive, 3 * keepalive
	}
	return keepalive, hold
}

// RIPTimers are of RIP and RIPng.
type RIPTimers struct {
	Update  Duration `json:"update,omitempty"`
	Timeout Duration `json:"timeout,omitempty"`
	Garbage Duration `json:"garbage,omitempty"`
}

// Keys are what a file may say of the timers of RIP.
func (RIPTimers) Keys() []Key[RIPTimers] { return ripTimers }

var ripTimers = []Key[RIPTimers]{
	newKey("update", func(t *RIPTimers) *Duration { return &t.Update }, parseSeconds, about[Duration]{example: "30s",
		meaning: "How often it tells all its routes, in whole seconds; 5s when left out.",
		least:   UsualRIPUpdate * second, few: "that FRR takes",
		most: 65535 * second, many: "than anybody waits"}),
	newKey("timeout", func(t *RIPTimers) *Duration { return &t.Timeout }, parseSeconds, about[Duration]{example: "180s",
		meaning: "After how long a route that is not told again is gone, in whole seconds: more than update; three " +
			"times update when left out.",
		least: 6 * second, few: "that an update needs",
		most: 262140 * second, many: "than anybody waits"}),
	newKey("garbage", func(t *RIPTimers) *Duration { return &t.Garbage }, parseSeconds, about[Duration]{example: "120s",
		meaning: "How long a route that is gone is told as such, in whole seconds; two times update when left out.",
		least:   UsualRIPUpdate * second, few: "that FRR takes",
		most: 262140 * second, many: "than anybody waits"}),
}

// Intervals are the update, timeout and garbage collection times in seconds.
func (t RIPTimers) Intervals() (update, timeout, garbage int) {
	update = max(seconds(t.Update), UsualRIPUpdate)
	if timeout = seconds(t.Timeout); timeout == 0 {
		timeout = 3 * update
	}
	if garbage = seconds(t.Garbage); garbage == 0 {
		garbage = 2 * update
	}
	return update, timeout, garbage
}

const second = Duration(time.Second)

func seconds(d Duration) int { return int(d / second) }

// parseSeconds reads a time span that protocols say in whole seconds.
func parseSeconds(s string) (Duration, error) {
	d, err := ParseDuration(s)
	switch {
	case err != nil:
		return 0, err
	case d == 0 || d%second != 0:
		return 0, fmt.Errorf("%s is not a whole number of seconds; write it like 10s", d)
	}
	return d, nil
}

// CheckTimers calls report for each timer that is impossible by itself, or beside another one of its protocol.
func (r *Routing) CheckTimers(report func(protocol, key, beside, problem string)) {
	alone := func(protocol string) func(key, problem string) {
		return func(key, problem string) { report(protocol, key, "", problem) }
	}
	for i, o := range []*OSPF{r.OSPF, r.OSPF6} {
		if o == nil {
			continue
		}
		name := []string{"ospf", "ospf6"}[i]
		CheckKeys(ospfTimers, &o.OSPFTimers, alone(name))
		if hello, dead := o.Intervals(false); o.Dead != 0 && dead <= hello {
			report(name, "dead", "hello", fmt.Sprintf("dead %s is not longer than hello, which is %ds; OSPF usually "+
				"has four times hello", o.Dead, hello))
		}
	}
	if i := r.ISIS; i != nil {
		CheckKeys(isisTimers, &i.ISISTimers, alone("isis"))
		if hello, times := i.Intervals(false); i.Hold != 0 &&
			(times < 2 || times > 100 || i.Hold%(Duration(hello)*second) != 0) {
			report("isis", "hold", "hello", fmt.Sprintf("hold %s is not 2 to 100 times hello, which is %ds", i.Hold,
				hello))
		}
	}
	if b := r.BGP; b != nil {
		CheckKeys(bgpTimers, &b.BGPTimers, alone("bgp"))
		if b.Hold != 0 && b.Keepalive != 0 && b.Hold < 3*b.Keepalive {
			report("bgp", "hold", "keepalive", fmt.Sprintf("hold %s is less than three times keepalive %s: a session "+
				"would end by one message that is late", b.Hold, b.Keepalive))
		}
	}
	if p := r.RIP; p != nil {
		CheckKeys(ripTimers, &p.RIPTimers, alone("rip"))
		if update, timeout, _ := p.Intervals(); p.Timeout != 0 && timeout <= update {
			report("rip", "timeout", "update", fmt.Sprintf("timeout %s is not longer than update, which is %ds",
				p.Timeout, update))
		}
	}
}

// timerSettings are the timers of an element's protocols, as `set` knows them: ospf.hello and so on.
func timerSettings() []Key[Element] {
	return slices.Concat(
		spoken("ospf", func(e *Element) **OSPF { return &e.Routing.OSPF },
			within(func(o *OSPF) *OSPFTimers { return &o.OSPFTimers }, ospfTimers)),
		spoken("ospf6", func(e *Element) **OSPF { return &e.Routing.OSPF6 },
			within(func(o *OSPF) *OSPFTimers { return &o.OSPFTimers }, ospfTimers)),
		spoken("isis", func(e *Element) **ISIS { return &e.Routing.ISIS },
			within(func(i *ISIS) *ISISTimers { return &i.ISISTimers }, isisTimers)),
		spoken("bgp", func(e *Element) **BGP { return &e.Routing.BGP },
			within(func(b *BGP) *BGPTimers { return &b.BGPTimers }, bgpTimers)),
		spoken("rip", func(e *Element) **RIP { return &e.Routing.RIP },
			within(func(p *RIP) *RIPTimers { return &p.RIPTimers }, ripTimers)))
}

// spoken makes keys of an element out of those of a protocol that it may speak. Elements share what they say of a
// protocol, so a change is made to a copy.
func spoken[P any](protocol string, of func(*Element) **P, keys []Key[P]) []Key[Element] {
	all := make([]Key[Element], len(keys))
	for i, k := range keys {
		// changed makes a change to what the element says of the protocol, if it speaks it.
		changed := func(e *Element, change func(*P)) {
			if at := of(e); *at != nil {
				own := **at
				change(&own)
				*at = &own
			}
		}
		all[i] = Key[Element]{Name: protocol + "." + k.Name, Example: k.Example, Meaning: k.Meaning, Type: k.Type,
			Parse: func(e *Element, text string) (err error) {
				if *of(e) == nil {
					return fmt.Errorf("%s does not speak %s; a file that says `%[2]s:` for it changes that", e.Name,
						protocol)
				}
				changed(e, func(p *P) { err = k.Parse(p, text) })
				return err
			},
			Text: func(e *Element) string {
				if *of(e) == nil {
					return ""
				}
				return k.Text(*of(e))
			},
			Copy: func(to, from *Element) {
				if *of(from) != nil {
					changed(to, func(p *P) { k.Copy(p, *of(from)) })
				}
			},
			Clear: func(e *Element) { changed(e, k.Clear) },
			Zero:  func(e *Element) bool { return *of(e) == nil || k.Zero(*of(e)) },
			Same: func(a, b *Element) bool {
				x, y := new(P), new(P)
				return k.Same(cmp.Or(*of(a), x), cmp.Or(*of(b), y))
			},
			Check: func(e *Element) string {
				if *of(e) == nil {
					return ""
				}
				return k.Check(*of(e))
			},
			fill: func(e *Element) { changed(e, k.fill) },
		}
	}
	return all
}
