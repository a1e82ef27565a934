package watch

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// Frame is a frame that a sample saw at a port.
type Frame struct {
	At        time.Duration // since the sample began
	ToElement bool
	Length    int    // of the whole frame
	Data      []byte // its first bytes
}

// SnapLen is how many bytes of each frame a sample needs: the headers, and within an ICMP error those of the packet it
// is about.
const SnapLen = 128

// Sampled is what passed one port during a sample. All ports of an element are sampled at the same time, so that frames
// which it passes on can be distinguished from those that it makes itself.
type Sampled struct {
	Interface string
	MAC       [6]byte // of the element's interface
	Frames    []Frame // in the order in which they passed
	// Span is the time in which Frames are everything that passed. The sample of a busy port becomes full early.
	Span time.Duration
	// Sent and Received are packets from and to the element, counted at the port for some time after a sample that
	// became full early. Both are zero if nobody counted.
	Sent, Received uint64
}

// Brief: in a span this short, everything that leaves an element may have arrived before it. A queue on the way in
// holds tens of thousands of packets, and a busy machine lets them through in bursts. To judge such a sample of several
// ports, Sent and Received are needed as well.
const Brief = 50 * time.Millisecond

// least is the shortest time over which a rate is computed.
const least = 5 * time.Millisecond

// answerTime: a question counts as unanswered only if it was asked at least this long before the sample's end.
const answerTime = 50 * time.Millisecond

// routine returns whether ordinary programs try many peers at this port, whether these exist or not: BGP, MSDP and LDP,
// traceroute, and the platform's own probes. Trying only these makes nobody a scanner.
func routine(port uint16) bool {
	switch {
	case port == 179, port == 639, port == 646, port == model.ProbePort:
		return true
	}
	return port >= 33434 && port <= 33534
}

// few is how many different sources or targets an honest element may have.
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
	span  time.Duration // the shortest span: what is compared must have been seen at all ports
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

// passesOn returns whether the counters show that an element with a brief sample passes on what it gets. Then what
// leaves it in that time need not be its own doing.
func (s *sample) passesOn() bool {
	var sent, received uint64
	for i := range s.ports {
		sent, received = sent+s.ports[i].Sent, received+s.ports[i].Received
	}
	return s.span < Brief && len(s.ports) > 1 && sent > 0 && 2*received*uint64(len(s.ports)-1) >= sent
}

// rate converts a number of frames in the sample into frames a second.
func (s *sample) rate(n int) float64 { return float64(n) / max(s.span, least).Seconds() }

// passable is how many frames may have left because so many came. Something that passes frames on, such as a switch or
// a bridge, sends each to all of its other ports, and with a single port sends nothing back. Frames that waited in a
// queue when the sample began are not seen to come; but while a queue is full, about as many frames come as leave.
func (s *sample) passable(in int) int { return in * (len(s.ports) - 1) }

// own is the least number of frames with a flag that the element must have made itself. If most of them may have been
// passed on, all are taken to be. provoked tells that as many came to an element that passes nothing on.
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

// sources counts frames whose source address belongs to none of the element's interfaces, if there are many such
// addresses. A few belong to a bridge, a virtual router or a container.
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

// asking counts neighbours that were asked for, did not answer, and that nobody else asked for through this element. A
// kernel asks for each once a second. So if somebody pings twenty absent hosts at once, it asks for twenty within a
// moment, and again a second later. That is twenty a second, and not the much higher rate that a quarter of a second
// with all of them in it suggests. To distinguish what goes on all the time from such a moment, the sample is divided
// into fifths, and the median fifth counts.
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
	v.asked = asked
	slices.Sort(fifths[:])
	atOnce := float64(len(asked)) / max(s.span, time.Second).Seconds()
	v.Value = min(v.Value, max(s.rate(len(fifths)*fifths[len(fifths)/2]), atOnce))
	return v
}

// services is what a sample shows about connections and datagrams.
type services struct {
	// tried says how often the element itself tried a service. accepted and refused are services that answered, in one
	// way or the other.
	tried             map[netip.AddrPort]int
	accepted, refused map[netip.AddrPort]bool
	// passed are services that others tried through the element, or at it, with the time of the last try. taken are
	// those of them whose packets did not leave it unchanged: they were for the element itself, or translated
	// (destination NAT).
	passed map[netip.AddrPort]time.Duration
	taken  map[netip.AddrPort]int
}

// services finds out what the element itself tried; an answer may take some time. It leaves out what others make it
// pass on, including what they sent before the sample. If that is a large part of everything, it takes everything to be
// passed on, since frames that the element holds back for a while look like its own.
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
		// Nobody has to answer a datagram, so it counts only if it was refused. What was sent last had no time for
		// that.
		case p.is(datagram) && r.refused[p.peer], p.is(begins) && (p.at <= s.span-answer || s.span < 2*answer):
			r.tried[p.peer]++
		}
	}
	if 4*len(others) > len(r.tried) || s.span < answer && len(r.tried) <= s.passable(len(r.passed)) {
		clear(r.tried)
	}
	return r
}

// alone are services that the element tried and that refused or did not answer. An answer without a try shows nothing,
// since others can send the element whatever they like.
func (r *services) alone() map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for peer := range r.tried {
		if !r.accepted[peer] && !routine(peer.Port()) {
			all[peer] = true
		}
	}
	return all
}

// provoked returns whether the element may have tried so many services because others tried as many at it. A gateway
// translates their destinations in this way for the ports that it forwards.
func (r *services) provoked(tried int) bool { return tried > 0 && 4*len(r.taken) >= tried }

// scan counts services that the element tried and that refused or did not answer.
func (s *sample) scan() Value {
	r := s.services(answerTime, nil)
	in := r.alone()
	v := s.distinct(Scan, in, "services")
	v.Provoked = r.provoked(len(in))
	return v
}

// flood counts attempts at a few services that answered none of them.
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

// distinct is a value of things of which each is counted once, in words.
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
