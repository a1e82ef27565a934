package watch

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// Frame is one that a sample saw at a port.
type Frame struct {
	At        time.Duration // since the sample began
	ToElement bool
	Length    int    // of the whole frame
	Data      []byte // its first bytes
}

// SnapLen is how much of each frame a sample needs: headers, and within an ICMP error those of the packet that it tells
// of.
const SnapLen = 128

// Sampled is what passed one port during a sample. All ports of an element are sampled at the same time, so that what
// it passes on can be told from what it says itself.
type Sampled struct {
	Interface string
	MAC       [6]byte // of the element's interface
	Frames    []Frame // in the order in which they passed
	// Span is how long all that passed is in Frames: a sample of a busy port is full early.
	Span time.Duration
	// Sent and Received are packets from and to the element that were counted at the port for some time after a sample
	// that was full early; both are zero where nobody counted.
	Sent, Received uint64
}

// Brief is a span in which what leaves an element may all have come before it: a queue on the way in holds ten
// thousands of packets, and a busy machine lets them through in bursts. What several ports show in so short a time
// needs Sent and Received beside it.
const Brief = 50 * time.Millisecond

// least is the shortest time that a rate is worked out over.
const least = 5 * time.Millisecond

// answerTime is how long before a sample's end a question must have been asked for its lack of an answer to count.
const answerTime = 50 * time.Millisecond

// routine tells whether a port is one that ordinary programs try many peers at, whether these are there or not: BGP,
// MSDP and LDP, traceroute, and the platform's own probes. Who tries only these is no scanner.
func routine(port uint16) bool {
	switch {
	case port == 179, port == 639, port == 646, port == model.ProbePort:
		return true
	}
	return port >= 33434 && port <= 33534
}

// few is how many different sources or targets are still those of an honest element.
const few = 16

// Judge measures what an element sends of its own accord, in frames a second, by signal.
func Judge(ports []Sampled) []Value {
	s := newSample(ports)
	if s.passesOn() {
		s = newSample(nil)
	}
	return []Value{s.storm(), s.sources(), s.malformed(), s.asking(), s.scan(), s.flood()}
}

type seen struct {
	packet
	at   time.Duration
	port int
}

type sample struct {
	ports []Sampled
	span  time.Duration // the shortest: what is compared must have been seen everywhere
	out   []seen
	in    []seen
}

func newSample(ports []Sampled) *sample {
	s := &sample{ports: ports}
	for i := range ports {
		if i == 0 || ports[i].Span < s.span {
			s.span = ports[i].Span
		}
	}
	for i := range ports {
		for _, f := range ports[i].Frames {
			if f.At > s.span {
				continue
			}
			is := seen{parse(f.Data, f.Length), f.At, i}
			if f.ToElement {
				s.in = append(s.in, is)
			} else {
				s.out = append(s.out, is)
			}
		}
	}
	return s
}

// passesOn tells whether a brief sample is one of an element that passes on what it gets, by what was counted: then
// what leaves it in that time need not be its own doing.
func (s *sample) passesOn() bool {
	var sent, received uint64
	for i := range s.ports {
		sent, received = sent+s.ports[i].Sent, received+s.ports[i].Received
	}
	return s.span < Brief && len(s.ports) > 1 && sent > 0 && 2*received*uint64(len(s.ports)-1) >= sent
}

// rate is how many a second so many within the sample are.
func (s *sample) rate(n int) float64 { return float64(n) / max(s.span, least).Seconds() }

// passable is how many frames may have left since so many came: one that passes frames on – a switch, a bridge – sends
// each to all its other ports, and nothing back by its only one. Those that waited in a queue when the sample began are
// not seen to come; while a queue is full, about as many come as leave.
func (s *sample) passable(in int) int { return in * (len(s.ports) - 1) }

// own is how many of the frames with a flag the element made itself, at the least. Where most may have been passed on,
// all are taken to be. provoked tells that as many came to an element that passes nothing on.
func (s *sample) own(f func(packet) bool) (own int, provoked bool) {
	out, in := 0, 0
	for _, p := range s.out {
		if f(p.packet) {
			out++
		}
	}
	for _, p := range s.in {
		if f(p.packet) {
			in++
		}
	}
	if own = out - s.passable(in); own <= out/2 {
		return 0, false
	}
	return own, in > 0 && in >= out/2
}

func (s *sample) storm() Value {
	n, provoked := s.own(func(p packet) bool { return p.is(group) })
	return Value{Signal: Storm, Value: s.rate(n), Provoked: provoked}
}

func (s *sample) malformed() Value {
	n, provoked := s.own(func(p packet) bool { return p.is(broken) })
	return Value{Signal: Malformed, Value: s.rate(n), Provoked: provoked}
}

// sources counts frames whose sender's address is none of an interface of the element's, where these are many: a few
// more are a bridge's, a virtual router's or a container's.
func (s *sample) sources() Value {
	passed := map[mac]bool{}
	for _, p := range s.in {
		passed[p.from] = true
	}
	came := len(passed)
	for _, p := range s.ports {
		passed[p.MAC] = true
	}
	count, distinct := 0, map[mac]bool{}
	for _, p := range s.out {
		if !passed[p.from] && p.from != (mac{}) {
			count++
			distinct[p.from] = true
		}
	}
	if len(distinct) <= max(few, s.passable(came)) {
		return Value{Signal: Sources}
	}
	return Value{Signal: Sources, Value: s.rate(count), Detail: fmt.Sprintf("%d addresses in %s", len(distinct),
		s.span.Round(time.Millisecond))}
}

// asking counts neighbours that were asked for, answered nothing, and were asked for by nobody else through this
// element. A kernel asks for each once a second: whoever pings twenty hosts at once that are not there has it ask
// twenty times within a moment, and again a second later. That is twenty a second, not what a quarter of a second with
// all of them in it says. So what goes on all through the sample is told from a moment of it: of its fifths, the one in
// the middle counts.
func (s *sample) asking() Value {
	asked, known := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	var fifths [5]int
	came := map[netip.AddrPort]bool{}
	for _, p := range s.in {
		if p.is(asks | answers) {
			known[p.peer] = true
		}
		if p.is(asks) {
			came[p.peer] = true
		}
	}
	for _, p := range s.out {
		if p.is(asks) && !known[p.peer] && !asked[p.peer] {
			asked[p.peer] = true
			fifths[min(len(fifths)-1, int(int64(len(fifths))*int64(p.at)/max(1, int64(s.span))))]++
		}
	}
	if len(asked) <= s.passable(len(came)) {
		return Value{Signal: Asking}
	}
	v := s.distinct(Asking, asked, "neighbours")
	slices.Sort(fifths[:])
	atOnce := float64(len(asked)) / max(s.span, time.Second).Seconds()
	v.Value = min(v.Value, max(s.rate(len(fifths)*fifths[len(fifths)/2]), atOnce))
	return v
}

// services are what a sample tells of connections and datagrams.
type services struct {
	// tried are those that the element itself tried, how often; accepted and refused those that answered, well or
	// badly.
	tried             map[netip.AddrPort]int
	accepted, refused map[netip.AddrPort]bool
	// passed are those that others tried through the element, or at it, when they did last, and taken those of them
	// that did not leave it again as they were: at the element itself, or translated (destination NAT).
	passed map[netip.AddrPort]time.Duration
	taken  map[netip.AddrPort]int
}

// services works out what the element itself tried, where an answer may take some time. What others have it pass on is
// left out, also what they sent before the sample; where that is a good part of all, all is taken to be, since what it
// holds back for a while looks like its own.
func (s *sample) services(answer time.Duration, before map[netip.AddrPort]bool) services {
	r := services{map[netip.AddrPort]int{}, map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{},
		map[netip.AddrPort]time.Duration{},
		map[netip.AddrPort]int{}}
	for _, p := range s.in {
		switch {
		case p.is(begins | datagram):
			r.passed[p.peer] = max(r.passed[p.peer], p.at)
			r.taken[p.peer]++
		case p.is(accepts):
			r.accepted[p.peer] = true
		case p.is(refuses):
			r.refused[p.peer] = true
		}
	}
	others := map[netip.AddrPort]bool{}
	for _, p := range s.out {
		if !p.is(begins | datagram) {
			continue
		}
		_, passed := r.passed[p.peer]
		switch {
		case passed, before[p.peer]:
			others[p.peer] = true
			delete(r.taken, p.peer)
		// A datagram need not be answered: only where it was refused does it count. What was sent last had no time for
		// it.
		case p.is(datagram) && r.refused[p.peer], p.is(begins) && (p.at <= s.span-answer || s.span < 2*answer):
			r.tried[p.peer]++
		}
	}
	if 4*len(others) > len(r.tried) || s.span < answer && len(r.tried) <= s.passable(len(r.passed)) {
		clear(r.tried)
	}
	return r
}

// alone are those that the element tried and that refused or did not answer. What it is told without having tried says
// nothing: others can send it whatever they like.
func (r *services) alone() map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for peer := range r.tried {
		if !r.accepted[peer] && !routine(peer.Port()) {
			all[peer] = true
		}
	}
	return all
}

// provoked tells whether so many services may have been tried because others tried as many at the element, which
// translates their destinations, as a gateway does with the ports that it forwards.
func (r *services) provoked(tried int) bool { return tried > 0 && 4*len(r.taken) >= tried }

// scan counts services that the element tried and that refused or did not answer.
func (s *sample) scan() Value {
	r := s.services(answerTime, nil)
	in := r.alone()
	v := s.distinct(Scan, in, "services")
	v.Provoked = r.provoked(len(in))
	return v
}

// flood counts attempts at few services that did not answer any.
func (s *sample) flood() Value {
	r := s.services(answerTime, nil)
	n, services := 0, 0
	for peer, count := range r.tried {
		if !r.accepted[peer] && !r.refused[peer] && count > 1 {
			n += count
			services++
		}
	}
	taken := 0
	for _, count := range r.taken {
		taken += count
	}
	v := Value{Signal: Flood, Value: s.rate(n), Provoked: n > 0 && 4*taken >= n}
	if n > 0 {
		v.Detail = fmt.Sprintf("%d services, %d attempts in %s", services, n, s.span.Round(time.Millisecond))
	}
	return v
}

// distinct is a value of things that are counted once each, in words.
func (s *sample) distinct(signal Signal, all map[netip.AddrPort]bool, what string) Value {
	if len(all) <= few/2 {
		return Value{Signal: signal}
	}
	addresses := map[netip.Addr]bool{}
	var one netip.Addr
	for p := range all {
		addresses[p.Addr()] = true
		one = p.Addr()
	}
	v := Value{Signal: signal, Value: s.rate(len(all))}
	if len(addresses) == 1 {
		v.Detail = fmt.Sprintf("%d %s of %s in %s", len(all), what, one, s.span.Round(time.Millisecond))
	} else {
		v.Detail = fmt.Sprintf("%d %s at %d addresses in %s", len(all), what, len(addresses),
			s.span.Round(time.Millisecond))
	}
	return v
}
