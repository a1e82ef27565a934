package watch

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/polyplane/polyplane/each"
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
	routed := s
	if s.passesOn(true) {
		routed = newSample(nil)
	}
	if s.passesOn(false) {
		s = newSample(nil)
	}
	return []Value{s.storm(), s.sources(), s.malformed(), s.asking(), routed.scan(), routed.flood()}
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
	macs  map[mac]bool // what others address frames to that are for the element
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
	s.macs = map[mac]bool{}
	for i := range ports {
		s.macs[ports[i].MAC] = true
	}
	for _, p := range s.out { // a bridge's address, or a virtual router's
		s.macs[p.from] = true
	}
	return s
}

// exceeded returns whether more different things left by a port than may have been passed on. What came may have been
// before the sample began, but as much as leaves goes on coming by the other ports.
func (c came[K]) exceeded(s *sample, left []int) bool {
	for port, n := range left {
		others := 0
		if n == 0 {
			continue
		}
		for _, ways := range c {
			if slices.ContainsFunc(ways, func(h heard) bool { return h.port != port }) {
				others++
			}
		}
		if n > s.passable(others) {
			return true
		}
	}
	return false
}

// addressed returns whether a frame that came was for the element, and not for everybody, a group or somebody else.
// Only such a frame is routed, or is a question that the element has to answer.
func (s *sample) addressed(p seen) bool { return s.macs[p.to] && p.to[0]&1 == 0 }

// heard says how frames came that may have been passed on.
type heard struct {
	port      int
	tags      uint64
	addressed bool
}

// mostHeard bounds the ways in which the same comes: an honest element has fewer VLANs on one port.
const mostHeard = 16

// came are the ways in which something came: a service that was tried, a neighbour that was asked for, an address.
type came[K comparable] map[K][]heard

func (c came[K]) add(s *sample, k K, p seen) {
	if h := (heard{p.port, p.tags, s.addressed(p)}); len(c[k]) < mostHeard && !slices.Contains(c[k], h) {
		c[k] = append(c[k], h)
	}
}

// passes returns whether a frame that leaves may be one that came. A frame leaves by another port, or in another VLAN.
// By the way by which it came it leaves only if it is routed, so it came to the element's own address. Who merely hears
// what others send to everybody in its segment sends none of it there.
func (c came[K]) passes(k K, p seen, routed bool) bool {
	return slices.ContainsFunc(c[k], func(h heard) bool {
		return h.port != p.port || h.tags != p.tags || routed && h.addressed
	})
}

// passesOn returns whether the counters show that an element with a brief sample passes on what it gets. Then what
// leaves it in that time need not be its own doing. What is routed may leave by the port by which it came.
func (s *sample) passesOn(routed bool) bool {
	var sent, received, passed uint64
	for i := range s.ports {
		sent, received = sent+s.ports[i].Sent, received+s.ports[i].Received
	}
	for i := range s.ports {
		passed += min(s.ports[i].Sent, received-s.ports[i].Received)
	}
	if routed {
		passed = received * uint64(len(s.ports)-1)
	}
	return s.span < Brief && len(s.ports) > 1 && sent > 0 && 2*passed >= sent
}

// rate converts a number of frames in the sample into frames a second.
func (s *sample) rate(n int) float64 { return float64(n) / max(s.span, least).Seconds() }

// passable is how many frames may have left because so many came. Something that passes frames on, such as a switch or
// a bridge, sends each to all of its other ports, and with a single port sends nothing back. Frames that waited in a
// queue when the sample began are not seen to come; but while a queue is full, about as many frames come as leave.
func (s *sample) passable(in int) int { return in * (len(s.ports) - 1) }

// own is the least number of frames with a flag that the element must have made itself. If most of them may have been
// passed on, all are taken to be. What leaves by a port came by the others.
func (s *sample) own(f func(packet) bool) (own int) {
	all := 0
	out, in, heard := make([]int, len(s.ports)), make([]int, len(s.ports)), 0
	for _, p := range s.out {
		if f(p.packet) {
			out[p.port]++
			all++
		}
	}
	for _, p := range s.in {
		if f(p.packet) {
			in[p.port]++
			heard++
		}
	}
	for i := range out {
		own += max(0, out[i]-(heard-in[i]))
	}
	if own <= all/2 {
		return 0
	}
	return own
}

// turned says which frames an element passes on by the port by which they came: from one of its VLANs to another, as
// they are or routed, or routed to another neighbour.
type turned map[uint64][]seen

func (s *sample) turned(f func(packet) bool) turned {
	t := turned{}
	for _, p := range s.in {
		if f(p.packet) && len(t[p.content]) < mostHeard {
			t[p.content] = append(t[p.content], p)
		}
	}
	return t
}

func (t turned) is(s *sample, out seen) bool {
	return slices.ContainsFunc(t[out.content], func(in seen) bool {
		switch routed := in.ttl == out.ttl+1; {
		case in.tags != out.tags:
			return in.from == out.from || routed
		default:
			return routed && s.addressed(in) && out.to != in.from
		}
	})
}

// storm counts frames to everybody. What others send to everybody does not make an element do the same: it may have
// been provoked only by frames from one VLAN to another, by questions that a service answers to everybody, and by
// packets whose senders or targets it has to ask for.
func (s *sample) storm() Value {
	everybody := func(p packet) bool { return p.is(group) }
	n := s.own(everybody)
	if n == 0 {
		return Value{Signal: Storm}
	}
	turned, questions, named, asked, explained := s.turned(everybody), map[[2]uint16]bool{}, s.named(), 0, 0
	for _, p := range s.in {
		// Of two that only speak by turns, the one with the larger number asks.
		if p.is(datagram) && p.source > p.target {
			questions[[2]uint16{p.target, p.source}] = true
		}
	}
	for _, p := range s.out {
		switch {
		case !everybody(p.packet):
		case turned.is(s, p), p.is(datagram) && questions[[2]uint16{p.source, p.target}]:
			explained++
		case p.is(asks):
			asked++
		}
	}
	explained += min(asked, 4*named)
	return Value{Signal: Storm, Value: s.rate(n), Provoked: 2*explained >= n}
}

// named is how many addresses were named, as the sender or the target, by packets for the element. It may have to ask
// for each of them.
func (s *sample) named() int {
	all := map[netip.Addr]bool{}
	for _, p := range s.in {
		if s.addressed(p) && p.sender.IsValid() {
			all[p.sender], all[p.receiver] = true, true
		}
	}
	return len(all)
}

// malformed counts wrong packets. Nobody answers with such. They may have been provoked only where they are passed on.
func (s *sample) malformed() Value {
	wrong := func(p packet) bool { return p.is(broken) }
	n := s.own(wrong)
	if n == 0 {
		return Value{Signal: Malformed}
	}
	turned, explained := s.turned(wrong), 0
	for _, p := range s.out {
		if wrong(p.packet) && turned.is(s, p) {
			explained++
		}
	}
	return Value{Signal: Malformed, Value: s.rate(n), Provoked: 2*explained >= n}
}

// sources counts frames whose source address belongs to none of the element's interfaces, if there are many such
// addresses. A few belong to a bridge, a virtual router or a container.
func (s *sample) sources() Value {
	passed := came[mac]{}
	for _, p := range s.in {
		passed.add(s, p.from, p)
	}
	known := each.SetOf(s.ports, func(p Sampled) mac { return p.MAC })
	count, distinct, by := 0, map[mac]bool{}, make([]int, len(s.ports))
	for _, p := range s.out {
		if !known[p.from] && !passed.passes(p.from, p, false) && p.from != (mac{}) {
			if count++; !distinct[p.from] {
				by[p.port]++
			}
			distinct[p.from] = true
		}
	}
	if len(distinct) <= few || !passed.exceeded(s, by) {
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
	others, by := came[netip.AddrPort]{}, make([]int, len(s.ports))
	for _, p := range s.in {
		if p.is(answers) {
			known[p.peer] = true
		}
		if p.is(asks) {
			others.add(s, p.peer, p)
		}
	}
	for _, p := range s.out {
		if p.is(asks) && !known[p.peer] && !asked[p.peer] && !others.passes(p.peer, p, false) {
			asked[p.peer] = true
			by[p.port]++
			fifths[min(len(fifths)-1, int(int64(len(fifths))*int64(p.at)/max(1, int64(s.span))))]++
		}
	}
	if !others.exceeded(s, by) {
		return Value{Signal: Asking}
	}
	v := s.distinct(Asking, asked, "neighbours")
	v.asked = asked
	if n := len(s.in); n > 0 {
		v.came, v.named = s.rate(n), float64(s.named())/float64(n)
	}
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
	// translated are services that others tried at the element and that it tried elsewhere, in the same packets. served
	// are those that it accepted itself, and how often: a proxy does so before it tries others.
	translated map[netip.AddrPort]bool
	served     map[netip.AddrPort]int
	copies     int // of the tries that were translated
}

// services finds out what the element itself tried; an answer may take some time. It leaves out what others make it
// pass on, including what they sent before the sample. If that is a large part of everything, it takes everything to be
// passed on, since frames that the element holds back for a while look like its own.
func (s *sample) services(answer time.Duration, before map[netip.AddrPort]bool) services {
	r := services{map[netip.AddrPort]int{}, map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{},
		map[netip.AddrPort]time.Duration{}, map[netip.AddrPort]int{},
		map[netip.AddrPort]bool{}, map[netip.AddrPort]int{}, 0}
	passed, contents := came[netip.AddrPort]{}, map[uint64][]seen{}
	for _, p := range s.in {
		switch {
		case p.is(begins | datagram):
			// Somebody else's packets that a segment delivers to everybody do not leave by the only port again.
			if len(s.ports) == 1 && p.tags == 0 && !s.addressed(p) {
				continue
			}
			passed.add(s, p.peer, p)
			r.passed[p.peer] = max(r.passed[p.peer], p.at)
			r.taken[p.peer]++
			contents[p.content] = append(contents[p.content], p)
		case p.is(accepts):
			r.accepted[p.peer] = true
		case p.is(refuses):
			r.refused[p.peer] = true
		}
	}
	others := map[netip.AddrPort]bool{}
	var own []seen
	for _, p := range s.out {
		if p.is(accepts) && r.taken[p.peer] > 0 {
			r.served[p.peer]++
		}
		if !p.is(begins | datagram) {
			continue
		}
		switch {
		case passed.passes(p.peer, p, true), before[p.peer]:
			others[p.peer] = true
			delete(r.taken, p.peer)
		// Nobody has to answer a datagram, so it counts only if it was refused. What was sent last had no time for
		// that.
		case p.is(datagram) && r.refused[p.peer], p.is(begins) && (p.at <= s.span-answer || s.span < 2*answer):
			r.tried[p.peer]++
			own = append(own, p)
		}
	}
	for _, p := range own { // each of what came explains one of what left after it
		before := contents[p.content]
		if len(before) == 0 || before[0].at > p.at {
			continue
		}
		contents[p.content] = before[1:]
		if r.taken[before[0].peer] > 0 {
			r.translated[before[0].peer] = true
			r.copies++
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

// provoked returns whether the element may have tried so many services because others tried as many at it: a gateway
// translates the destinations of their packets for the ports that it forwards, a proxy accepts them. Who is tried, and
// tries others for a reason of its own, does neither.
func (r *services) provoked(tried int) bool {
	return tried > 0 && 4*(len(r.translated)+len(r.served)) >= tried
}

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
	served := 0
	for _, count := range r.served {
		served += count
	}
	v := Value{Signal: Flood, Value: s.rate(n), Provoked: n > 0 && 4*(r.copies+served) >= n}
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
