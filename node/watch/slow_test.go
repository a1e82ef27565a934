package watch

import (
	"net/netip"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// slowly is an element's port over minutes, of which windows are watched.
type slowly struct {
	t     testing.TB
	until time.Duration
	// ports, by name, have what passed them, in the order of time.
	frames map[string][]Frame
}

func over(t testing.TB, until time.Duration) *slowly {
	return &slowly{t, until, map[string][]Frame{"eth0": nil}}
}

func (s *slowly) add(port string, at time.Duration, toElement bool, data []byte) {
	s.frames[port] = append(s.frames[port], Frame{At: at, ToElement: toElement, Length: len(data),
		Data: data[:min(len(data), SnapLen)]})
}

// each is something every so often.
func (s *slowly) each(every time.Duration, do func(i int, at time.Duration)) {
	for i := 0; time.Duration(i)*every < s.until; i++ {
		do(i, time.Duration(i)*every)
	}
}

// tries a service at eth0, which answers nothing.
func (s *slowly) tries(at time.Duration, to netip.Addr, port int) {
	s.add("eth0", at, false, tcp(s.t, macA, macB, addrA, to, 4000, uint16(port), tcpFlags{syn: true}))
}

// watch watches for span of every period, and returns when something was told, how much it was at most, and whether it
// was all provoked.
func (s *slowly) watch(span, period time.Duration) (told []time.Duration, most float64, provoked bool) {
	w, slow := New(), NewSlow()
	provoked = true
	for at := time.Duration(0); at+span <= s.until; at += period {
		var ports []Sampled
		for name, frames := range s.frames {
			p := Sampled{Interface: name, MAC: macA, Span: span}
			for _, f := range frames {
				if f.At >= at && f.At < at+span {
					f.At -= at
					p.Frames = append(p.Frames, f)
				}
			}
			ports = append(ports, p)
		}
		v := slow.Take(me, begin.Add(at), ports)
		most = max(most, v.Value)
		for _, found := range w.Look(me, begin.Add(at+span), []Value{v}) {
			told = append(told, at+span)
			provoked = provoked && found.Provoked
		}
	}
	return told, most, provoked
}

func TestSlowScans(t *testing.T) {
	syn := tcpFlags{syn: true}
	for name, c := range map[string]struct {
		make     func(s *slowly)
		by       time.Duration // it is told then; never, if 0
		provoked bool
	}{
		"one port a second, nothing answers": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) { s.tries(at, addrB, 1000+i) })
		}, by: 40 * time.Second},
		"two and a half a second, refused": {make: func(s *slowly) {
			s.each(400*time.Millisecond, func(i int, at time.Duration) {
				s.tries(at, addrB, 1000+i)
				s.add("eth0", at+time.Millisecond, true, tcp(t, macB, macA, addrB, addrA, uint16(1000+i), 4000,
					tcpFlags{rst: true, ack: true}))
			})
		}, by: 20 * time.Second},
		"one address every nine seconds": {make: func(s *slowly) {
			s.each(9*time.Second, func(i int, at time.Duration) { s.tries(at, address(20+i), 22) })
		}, by: 5 * time.Minute},
		"one UDP port every five seconds": {make: func(s *slowly) {
			s.each(5*time.Second, func(i int, at time.Duration) {
				p := udp(t, addrA, addrB, uint16(1000+i))
				s.add("eth0", at, false, p)
				s.add("eth0", at+time.Millisecond, true, unreachable(t, p))
			})
		}, by: 160 * time.Second},
		"among ordinary traffic": {make: func(s *slowly) {
			s.each(100*time.Millisecond, func(i int, at time.Duration) {
				s.add("eth0", at, false, tcp(t, macA, macB, addrA, addrB, 5000, 80, tcpFlags{ack: true}))
				s.add("eth0", at+time.Millisecond, true, tcp(t, macB, macA, addrB, addrA, 80, 5000,
					tcpFlags{ack: true}))
				if i%10 == 0 {
					s.tries(at, addrB, 1000+i)
				}
			})
		}, by: 40 * time.Second},
		"so slow that it is not found": {make: func(s *slowly) {
			s.each(12*time.Second, func(i int, at time.Duration) { s.tries(at, addrB, 1000+i) })
		}},
		"the same services again and again, which are down": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) { s.tries(at, address(20+i%20), 80) })
		}},
		"a crawler, whom all answer": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) {
				s.tries(at, address(20+i), 80)
				s.add("eth0", at+300*time.Millisecond, true, tcp(t, macB, macA, address(20+i), addrA, 80, 4000,
					tcpFlags{syn: true, ack: true}))
			})
		}},
		"a crawler over links with a long delay": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) {
				s.tries(at, address(20+i), 80)
				s.add("eth0", at+2500*time.Millisecond, true, tcp(t, macB, macA, address(20+i), addrA, 80, 4000,
					tcpFlags{syn: true, ack: true}))
			})
		}},
		"BGP with a hundred neighbours that are down": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) { s.tries(at, address(20+i%100), 179) })
		}},
		"traceroutes, refused by their targets": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) {
				p := udp(t, addrA, address(20+i/16), uint16(33434+i%16))
				s.add("eth0", at, false, p)
				s.add("eth0", at+time.Millisecond, true, unreachable(t, p))
			})
		}},
		"check, of hosts that are down": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) {
				p := udp(t, addrA, address(20+i), model.ProbePort)
				s.add("eth0", at, false, p)
				s.add("eth0", at+time.Millisecond, true, unreachable(t, p))
			})
		}},
		"names that a server is asked for, and logs that nobody takes": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) {
				s.add("eth0", at, false, udp(t, addrA, addrB, 53))
				s.add("eth0", at, false, udp(t, addrA, address(20+i), 514))
			})
		}},
		"being scanned": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) {
				s.add("eth0", at, true, tcp(t, macB, macA, addrB, addrA, 4000, uint16(1000+i), syn))
				s.add("eth0", at, false, tcp(t, macA, macB, addrA, addrB, uint16(1000+i), 4000,
					tcpFlags{rst: true, ack: true}))
			})
		}},
		"a router, through which somebody scans": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) {
				b := tcp(t, macB, macA, addrA, addrB, 4000, uint16(1000+i), syn)
				s.add("eth0", at, true, b)
				s.add("eth1", at+50*time.Microsecond, false, b)
			})
		}},
		"a router that waits for a neighbour while somebody scans through it": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) {
				b := tcp(t, macB, macA, addrA, addrB, 4000, uint16(1000+i), syn)
				s.add("eth0", at, true, b)
				s.add("eth1", at+2500*time.Millisecond, false, b)
			})
		}},
		"a gateway that translates the destinations of a scan": {make: func(s *slowly) {
			s.each(time.Second, func(i int, at time.Duration) {
				s.add("eth0", at, true, tcp(t, macB, macA, addrB, address(9), 4000, uint16(1000+i), syn))
				s.add("eth1", at+50*time.Microsecond, false,
					tcp(t, macA, macB, addrB, addrA, 4000, uint16(1000+i), syn))
			})
		}, by: 40 * time.Second, provoked: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := over(t, 12*time.Minute)
			c.make(s)
			told, most, provoked := s.watch(10*time.Second, 10*time.Second)
			switch {
			case c.by == 0 && len(told) > 0:
				t.Errorf("told at %v, at most %g", told, most)
			case c.by > 0 && (len(told) == 0 || told[0] > c.by):
				t.Errorf("told at %v, want it by %s; at most %g", told, c.by, most)
			case c.by > 0 && provoked != c.provoked:
				t.Errorf("others' doing: %v, want %v", provoked, c.provoked)
			}
		})
	}
}

// Where many elements share the turns, faster scans are needed for as much to be seen, and nothing else changes.
func TestSlowScansInTurns(t *testing.T) {
	for _, c := range []struct {
		period, every time.Duration
		want          bool
	}{
		{30 * time.Second, time.Second, true}, // 48 elements
		{30 * time.Second, 12 * time.Second, false},
		{10 * time.Minute, 500 * time.Millisecond, true}, // a thousand
		{10 * time.Minute, 2 * time.Second, false},
	} {
		s := over(t, 45*time.Minute)
		s.each(c.every, func(i int, at time.Duration) { s.tries(at, addrB, 1000+i) })
		told, most, _ := s.watch(10*time.Second, c.period)
		if len(told) > 0 != c.want {
			t.Errorf("one service in %s, watched for 10 s of %s: told at %v, at most %g; want it told: %v", c.every,
				c.period, told, most, c.want)
		}
	}
}

// What is remembered has a bound, whatever a thousand elements do, and is gone when they are or when it is old.
func TestSlowScansAreForgotten(t *testing.T) {
	slow := NewSlow()
	id := func(i int) model.ID { return model.ID{Network: "lab", Element: string(rune('a' + i))} }
	for i := range 1000 {
		f := newTraffic(t)
		f.Span = 10 * time.Second
		for k := range 500 {
			f.sends(0, tcp(t, macA, macB, addrA, address(k), 4000, 80, tcpFlags{syn: true}))
		}
		if v := slow.Take(id(i), begin, []Sampled{f.Sampled}); v.Value < RuleOf(SlowScan).Floor {
			t.Fatalf("of element %d, %g were seen", i, v.Value)
		}
	}
	total := 0
	for _, e := range slow.elements {
		total += len(e.tried)
	}
	if total > 1000*slowMost {
		t.Errorf("%d services are remembered", total)
	}
	slow.Forget(id(0))
	slow.Keep(begin, func(x model.ID) bool { return x != id(1) })
	if n := len(slow.elements); n != 998 {
		t.Errorf("%d elements are remembered, want 998", n)
	}
	slow.Keep(begin.Add(slowOld+time.Minute), func(model.ID) bool { return true })
	if n := len(slow.elements); n != 0 {
		t.Errorf("%d elements are remembered after a long time", n)
	}
}
