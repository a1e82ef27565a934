package watch

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/polyplane/polyplane/model"
)

// what a port's sample is judged to be: which signals are suspicious by their floor, whoever it is.
func suspiciousOf(ports ...Sampled) []Signal {
	var all []Signal
	for s, v := range judged(ports...) {
		if v >= RuleOf(s).Floor {
			all = append(all, s)
		}
	}
	slices.Sort(all)
	return all
}

func TestJudge(t *testing.T) {
	syn := tcpFlags{syn: true}
	for name, c := range map[string]struct {
		make func(f *traffic)
		want []Signal
	}{
		"nothing": {func(*traffic) {}, nil},
		"scan of closed ports": {func(f *traffic) {
			spread(60, func(i int, at time.Duration) {
				f.sends(at, tcp(t, macA, macB, addrA, addrB, 4000, uint16(1000+i), syn))
				f.gets(at+time.Millisecond, tcp(t, macB, macA, addrB, addrA, uint16(1000+i), 4000,
					tcpFlags{rst: true, ack: true}))
			})
		}, []Signal{Scan}},
		"scan of filtered ports": {func(f *traffic) {
			spread(60, func(i int, at time.Duration) {
				f.sends(at, tcp(t, macA, macB, addrA, addrB, 4000, uint16(1000+i), syn))
			})
		}, []Signal{Scan}},
		"sweep of addresses": {func(f *traffic) {
			spread(60, func(i int, at time.Duration) {
				f.sends(at,
					tcp(t, macA, macB, addrA, address(i+20), 4000, 22, syn))
			})
		}, []Signal{Scan}},
		"scan without SYN": {func(f *traffic) {
			spread(60, func(i int, at time.Duration) {
				f.sends(at, tcp(t, macA, macB, addrA, addrB, 4000, uint16(1000+i), tcpFlags{fin: true}))
			})
		}, []Signal{Scan}},
		"scan by UDP": {func(f *traffic) {
			spread(60, func(i int, at time.Duration) {
				p := udp(t, addrA, addrB, uint16(1000+i))
				f.sends(at, p)
				f.gets(at+time.Millisecond, unreachable(t, p))
			})
		}, []Signal{Scan}},
		"SYN flood": {func(f *traffic) {
			spread(300, func(i int, at time.Duration) {
				f.sends(at,
					tcp(t, macA, macB, addrA, addrB, uint16(4000+i), 80, syn))
			})
		}, []Signal{Flood}},
		"a web client, a thousand connections a second": {func(f *traffic) {
			spread(250, func(i int, at time.Duration) {
				f.sends(at, tcp(t, macA, macB, addrA, addrB, uint16(4000+i), 80, syn))
				f.gets(at+time.Millisecond, tcp(t, macB, macA, addrB, addrA, 80, uint16(4000+i),
					tcpFlags{syn: true, ack: true}))
				f.sends(at+2*time.Millisecond, tcp(t, macA, macB, addrA, addrB, uint16(4000+i), 80,
					tcpFlags{ack: true, fin: true}))
			})
		}, nil},
		"a crawler of many services that answer": {func(f *traffic) {
			spread(100, func(i int, at time.Duration) {
				f.sends(at, tcp(t, macA, macB, addrA, address(i+20), 4000, 80, syn))
				f.gets(at+time.Millisecond, tcp(t, macB, macA, address(i+20), addrA, 80, 4000,
					tcpFlags{syn: true, ack: true}))
			})
		}, nil},
		"UDP to thousands of addresses, one way": {func(f *traffic) {
			spread(500, func(i int, at time.Duration) { f.sends(at, udp(t, addrA, address(1000+i), 9)) })
		}, nil},
		"traceroute": {func(f *traffic) {
			spread(6, func(i int, at time.Duration) {
				p := udp(t, addrA, addrB, uint16(33434+i))
				f.sends(at, p)
				f.gets(at+time.Millisecond, unreachable(t, p))
			})
		}, nil},
		"BGP with a hundred neighbours that are down": {func(f *traffic) {
			spread(100, func(i int, at time.Duration) {
				f.sends(at,
					tcp(t, macA, macB, addrA, address(i+20), 4000, 179, syn))
			})
		}, nil},
		"SYN flood at BGP": {func(f *traffic) {
			spread(300, func(i int, at time.Duration) {
				f.sends(at,
					tcp(t, macA, macB, addrA, addrB, uint16(4000+i), 179, syn))
			})
		}, []Signal{Flood}},
		"check, of a hundred hosts that are down": {func(f *traffic) {
			spread(100, func(i int, at time.Duration) {
				p := udp(t, addrA, address(20+i), model.ProbePort)
				f.sends(at, p)
				f.gets(at+time.Millisecond, unreachable(t, p))
			})
		}, nil},
		"broadcast storm": {func(f *traffic) {
			spread(500, func(i int, at time.Duration) {
				f.sends(at,
					frame(t, ether(macA, all, 0x88b5), gopacket.Payload("x")))
			})
		}, []Signal{Storm}},
		"multicast storm": {func(f *traffic) {
			spread(500, func(i int, at time.Duration) {
				f.sends(at, frame(t, ether(macA, mac{1, 0, 0x5e, 0, 0, 5}, layers.EthernetTypeIPv4),
					ip4(addrA, addrB, 89), gopacket.Payload("x")))
			})
		}, []Signal{Storm}},
		"routing protocols converge": {func(f *traffic) {
			spread(40, func(i int, at time.Duration) {
				f.sends(at, frame(t, ether(macA, mac{1, 0, 0x5e, 0, 0, 5}, layers.EthernetTypeIPv4),
					ip4(addrA, addrB, 89), gopacket.Payload("x")))
			})
		}, nil},
		"MAC flood": {func(f *traffic) {
			spread(300, func(i int, at time.Duration) {
				f.sends(at, frame(t, ether(mac{2, 1, 1, 1, byte(i >> 8), byte(i)}, macB, 0x88b5),
					gopacket.Payload("x")))
			})
		}, []Signal{Sources}},
		"a virtual router's address beside its own": {func(f *traffic) {
			spread(300, func(i int, at time.Duration) {
				f.sends(at, tcp(t, mac{0, 0, 0x5e, 0, 1, byte(i % 2)}, macB, addrA, addrB, 4000, 80,
					tcpFlags{ack: true}))
			})
		}, nil},
		"ARP for everybody": {func(f *traffic) {
			spread(200, func(i int, at time.Duration) { f.sends(at, arp(t, 1, macA, addrA, address(1000+i))) })
		}, []Signal{Asking}},
		"hosts that are not there are pinged at once": {func(f *traffic) {
			for i := range 40 {
				f.sends(100*time.Millisecond+time.Duration(i)*time.Millisecond, arp(t, 1, macA, addrA, address(1000+i)))
			}
		}, nil},
		"most of a subnet is pinged at once": {func(f *traffic) {
			for i := range 200 {
				f.sends(100*time.Millisecond+time.Duration(i)*100*time.Microsecond,
					arp(t, 1, macA, addrA, address(1000+i)))
			}
		}, []Signal{Asking}},
		"a subnet is asked for, address by address": {func(f *traffic) {
			spread(20, func(i int, at time.Duration) { f.sends(at, arp(t, 1, macA, addrA, address(1000+i))) })
		}, []Signal{Asking}},
		"ARP that is answered": {func(f *traffic) {
			spread(200, func(i int, at time.Duration) {
				f.sends(at, arp(t, 1, macA, addrA, address(1000+i)))
				f.gets(at+time.Millisecond, arp(t, 2, macB, address(1000+i), addrA))
			})
		}, nil},
		"wrong headers": {func(f *traffic) {
			spread(100, func(i int, at time.Duration) {
				b := tcp(t, macA, macB, addrA, addrB, 4000, 80, tcpFlags{ack: true})
				b[14] = byte(i) // version and header length
				f.sends(at, b)
			})
		}, []Signal{Malformed}},
		"frames that the kernel will segment": {func(f *traffic) {
			spread(300, func(i int, at time.Duration) {
				b := frame(t, ether(macA, macB, layers.EthernetTypeIPv4), ip4(addrA, addrB, layers.IPProtocolTCP),
					&layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}, gopacket.Payload(make([]byte, 40_000)))
				f.sends(at, b)
			})
		}, nil},
		// What others send one says nothing of it.
		"refusals that it did not ask for": {func(f *traffic) {
			spread(200, func(i int, at time.Duration) {
				f.gets(at, tcp(t, macB, macA, address(20+i), addrA, uint16(1000+i), 4000, tcpFlags{rst: true}))
				f.gets(at, unreachable(t, udp(t, addrA, addrB, uint16(1000+i))))
			})
		}, nil},
		"being scanned": {func(f *traffic) {
			spread(100, func(i int, at time.Duration) {
				f.gets(at, tcp(t, macB, macA, addrB, addrA, 4000, uint16(1000+i), syn))
				f.sends(at, tcp(t, macA, macB, addrA, addrB, uint16(1000+i), 4000, tcpFlags{rst: true, ack: true}))
			})
		}, nil},
		"answers to connections with forged senders": {func(f *traffic) {
			spread(200, func(i int, at time.Duration) {
				f.gets(at, tcp(t, macB, macA, address(20+i), addrA, 4000, 80, syn))
				f.sends(at, tcp(t, macA, macB, addrA, address(20+i), 80, 4000, tcpFlags{syn: true, ack: true}))
			})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTraffic(t)
			c.make(f)
			if got := suspiciousOf(f.Sampled); !slices.Equal(got, c.want) {
				t.Errorf("suspicious are %v, want %v: %v", got, c.want, judged(f.Sampled))
			}
		})
	}
}

// Whatever somebody sends through a router, a switch or a bridge with k ports, what passes these is not the router's
// doing.
func TestWhatIsPassedOnIsSomebodyElses(t *testing.T) {
	attacks := map[string]func(i int) []byte{
		"scan": func(i int) []byte {
			return tcp(t, macB, macA, addrA, addrB, 4000, uint16(1000+i),
				tcpFlags{syn: true})
		},
		"flood": func(i int) []byte { return tcp(t, macB, macA, address(i), addrB, 4000, 80, tcpFlags{syn: true}) },
		"storm": func(i int) []byte { return frame(t, ether(macB, all, 0x88b5), gopacket.Payload("x")) },
		"MACs": func(i int) []byte {
			return frame(t, ether(mac{2, 1, 1, 1, byte(i >> 8), byte(i)}, macA, 0x88b5), gopacket.Payload("x"))
		},
		"wrong": func(i int) []byte {
			b := tcp(t, macB, macA, addrA, addrB, 4000, 80, tcpFlags{ack: true})
			b[14] = 0x4f
			return b
		},
		"asking": func(i int) []byte { return arp(t, 1, macB, addrB, address(1000+i)) },
	}
	for name, packet := range attacks {
		for _, ports := range []int{2, 3, 5} {
			f := make([]*traffic, ports)
			for i := range f {
				f[i] = newTraffic(t)
			}
			spread(400, func(i int, at time.Duration) {
				b := packet(i)
				f[0].gets(at, b)
				copies := 1
				if b[0]&1 != 0 {
					copies = ports - 1 // flooded
				}
				for k := range copies {
					f[1+k].sends(at+50*time.Microsecond, b)
				}
			})
			var all []Sampled
			for _, x := range f {
				all = append(all, x.Sampled)
			}
			if got := suspiciousOf(all...); len(got) != 0 {
				t.Errorf("%s through %d ports: suspicious are %v, %v", name, ports, got, judged(all...))
			}
			// What leaves at first waited in a queue when the sample began, so it is not seen to come.
			queued := slices.Clone(all)
			for i := range queued {
				queued[i].Frames = nil
			}
			const waiting, sampled = 240, 250
			for i := range sampled {
				at := 4 * time.Millisecond * time.Duration(i) / sampled
				queued[0].Frames = append(queued[0].Frames, Frame{At: at, ToElement: true, Length: 60,
					Data: packet(i + waiting)})
				copies := 1
				if packet(i)[0]&1 != 0 {
					copies = ports - 1
				}
				for k := range copies {
					queued[1+k].Frames = append(queued[1+k].Frames, Frame{At: at, Length: 60, Data: packet(i)})
				}
			}
			for i := range queued {
				queued[i].Span = 4 * time.Millisecond
			}
			if got := suspiciousOf(queued...); len(got) != 0 {
				t.Errorf("%s through the queues of %d ports: suspicious are %v, %v", name, ports,
					got, judged(queued...))
			}
			// All of it waited, and nothing comes in the moment in which it leaves; what was counted tells who it is.
			queued[0].Frames, queued[0].Received = nil, 50_000
			for i := range queued[1:] {
				queued[1+i].Sent = 50_000
			}
			if got := suspiciousOf(queued...); len(got) != 0 {
				t.Errorf("%s out of the queues of %d ports: suspicious are %v, %v", name, ports, got, judged(queued...))
			}
			// One that sends much more than it gets is the one who makes it.
			queued[0].Received = 1000
			if got := suspiciousOf(queued...); len(got) == 0 && name != "flood" {
				t.Errorf("%s made by an element of %d ports: nothing is suspicious, %v", name, ports, judged(queued...))
			}
			// A port that was full early says nothing of what came later.
			all[0].Span = 20 * time.Millisecond
			all[0].Frames = slices.DeleteFunc(slices.Clone(all[0].Frames),
				func(f Frame) bool { return f.At > all[0].Span })
			if got := suspiciousOf(all...); len(got) != 0 {
				t.Errorf("%s through %d ports, one of which was full early: suspicious are %v, %v", name, ports,
					got, judged(all...))
			}
		}
	}
}

// A gateway that forwards ports, or all that comes, to another host is not punished for what somebody does through it;
// who attacks is not helped by being a server.
func TestTranslatedIsProvoked(t *testing.T) {
	syn := tcpFlags{syn: true}
	value := func(signal Signal, ports ...Sampled) (found Value) {
		for _, v := range Judge(ports) {
			if v.Signal == signal {
				found = v
			}
		}
		return found
	}
	for signal, port := range map[Signal]func(i int) uint16{
		Scan:  func(i int) uint16 { return uint16(1000 + i) },
		Flood: func(int) uint16 { return 80 },
	} {
		outside, inside := newTraffic(t), newTraffic(t)
		spread(300, func(i int, at time.Duration) {
			outside.gets(at, tcp(t, macB, macA, addrB, address(9), uint16(4000+i), port(i), syn))
			inside.sends(at, tcp(t, macA, macB, addrB, addrA, uint16(4000+i), port(i), syn))
		})
		if v := value(signal, outside.Sampled, inside.Sampled); v.Value < RuleOf(signal).Floor || !v.Provoked {
			t.Errorf("%s through a gateway: %+v, want it seen, and as others' doing", signal, v)
		}
	}
	server := newTraffic(t)
	spread(100, func(i int, at time.Duration) {
		server.sends(at, tcp(t, macA, macB, addrA, addrB, 4000, uint16(1000+i), syn))
		server.gets(at, tcp(t, macB, macA, address(20+i), addrA, 4000, 80, syn))
		server.gets(at, tcp(t, macB, macA, address(20+i), addrA, 4000, 443, syn))
	})
	if v := value(Scan, server.Sampled); v.Value < RuleOf(Scan).Floor || v.Provoked {
		t.Errorf("a web server that scans: %+v", v)
	}
}

// Those who attack one segment together see as much of each other's frames as they send. That neither hides nor excuses
// anybody, whether they send the same or not, and whether they have another port or not.
func TestAttackersDoNotHideEachOther(t *testing.T) {
	number := func(from mac, i int) uint32 { return uint32(from[5])<<24 | uint32(i) }
	for _, c := range []struct {
		name   Signal
		attack func(from mac, i int) []byte
	}{
		{Storm, func(from mac, _ int) []byte { return frame(t, ether(from, all, 0x88b5), gopacket.Payload("x")) }},
		{Storm, func(from mac, i int) []byte { // of datagrams, as a name service's
			return frame(t, ether(from, all, layers.EthernetTypeIPv4), ip4(addrA, addrB, layers.IPProtocolUDP),
				&layers.UDP{SrcPort: 5353, DstPort: 5353}, gopacket.Payload("hello"))
		}},
		{Storm, func(from mac, i int) []byte { return arp(t, 1, from, addrA, address(i)) }},
		{Malformed, func(from mac, _ int) []byte { return frame(t, ether(from, all, 0x0800), gopacket.Payload("x")) }},
		{Malformed, func(from mac, _ int) []byte { // at each other
			to := macB
			if from == macB {
				to = macA
			}
			b := tcp(t, from, to, addrA, addrB, 4000, 80, tcpFlags{syn: true, fin: true})
			return b
		}},
		{Asking, func(from mac, i int) []byte { return arp(t, 1, from, addrA, address(1000*(1+int(from[5]))+i)) }},
		{Asking, func(from mac, i int) []byte { return arp(t, 1, from, addrA, address(1000+i)) }},
		{Sources, func(from mac, i int) []byte {
			return frame(t, ether(mac{2, 1, from[5], 1, byte(i >> 8), byte(i)}, macB, 0x88b5), gopacket.Payload("x"))
		}},
		{Sources, func(_ mac, i int) []byte {
			return frame(t, ether(mac{2, 1, 1, 1, byte(i >> 8), byte(i)}, mac{2, 9}, 0x88b5), gopacket.Payload("x"))
		}},
		// The switch does not know the victim, and delivers what is for it to both.
		{Scan, func(from mac, i int) []byte {
			return tcp(t, from, mac{2, 9}, addrA, address(9), 4000, uint16(1000+i), tcpFlags{syn: true})
		}},
		{Flood, func(from mac, i int) []byte {
			return tcp(t, from, mac{2, 9}, addrA, address(9), uint16(4000+i), 80, tcpFlags{syn: true})
		}},
		{Scan, func(from mac, i int) []byte { // each other
			to := addrB
			if from == macB {
				to = addrA
			}
			return frame(t, ether(from, mac{2, 0, 0, 0, 0, 0xa ^ 0xb ^ from[5]}, layers.EthernetTypeIPv4),
				ip4(address(77), to, layers.IPProtocolTCP),
				&layers.TCP{SrcPort: 4000, DstPort: layers.TCPPort(1000 + i), SYN: true, Seq: number(from, i)})
		}},
	} {
		for _, ports := range []int{1, 2} {
			if ports > 1 && (c.name == Scan || c.name == Flood) {
				continue // who has two ports may route what comes by one of them
			}
			for _, others := range []int{1, 3} {
				f, idle := newTraffic(t), newTraffic(t)
				spread(400, func(i int, at time.Duration) {
					f.sends(at, c.attack(macA, i))
					for range others {
						f.gets(at, c.attack(macB, i))
					}
				})
				found := false
				for _, v := range Judge([]Sampled{f.Sampled, idle.Sampled}[:ports]) {
					if v.Signal == c.name && v.Value >= RuleOf(c.name).Floor {
						found = true
						if v.Provoked || v.May(2000*float64(others)) {
							t.Errorf("%s beside %d others, with %d ports: excused, at %g", c.name, others, ports, v.Value)
						}
					}
				}
				if !found {
					t.Errorf("%s beside %d others, with %d ports: suspicious are only %v", c.name, others, ports,
						judged([]Sampled{f.Sampled, idle.Sampled}[:ports]...))
				}
			}
		}
	}
}

// Who answers everybody, since it was asked, or passes on by the port by which it came, is not punished for what others
// send it. It is one without them.
func TestWhoAnswersIsExcused(t *testing.T) {
	tagged := func(vlan uint16, b []byte) []byte {
		return slices.Concat(b[:12], []byte{0x81, 0, byte(vlan >> 8), byte(vlan)}, b[12:])
	}
	datagram := func(from mac, source, target, n, ttl int) []byte {
		ip := ip4(addrA, netip.AddrFrom4([4]byte{224, 0, 1, 9}), layers.IPProtocolUDP)
		ip.TTL, ip.Id = uint8(ttl), uint16(n)
		return frame(t, ether(from, all, layers.EthernetTypeIPv4), ip,
			&layers.UDP{SrcPort: layers.UDPPort(source), DstPort: layers.UDPPort(target)}, gopacket.Payload("hello"))
	}
	wrong := func(from, to mac, n, ttl int) []byte {
		ip := ip4(addrA, address(9), layers.IPProtocolTCP)
		ip.TTL, ip.Id = uint8(ttl), uint16(n)
		return frame(t, ether(from, to, layers.EthernetTypeIPv4), ip, &layers.TCP{SYN: true, FIN: true})
	}
	for name, c := range map[string]struct {
		signal Signal
		gets   func(i int) []byte
		sends  func(i int) []byte
	}{
		"a service that answers everybody": {Storm,
			func(i int) []byte { return datagram(macB, 68, 67, i, 64) },
			func(i int) []byte { return datagram(macA, 67, 68, 7000+i, 64) }},
		"a bridge of two VLANs of one port": {Storm,
			func(i int) []byte { return tagged(10, datagram(macB, 5000, 5000, i, 64)) },
			func(i int) []byte { return tagged(20, datagram(macB, 5000, 5000, i, 64)) }},
		"a router of groups between two VLANs of one port": {Storm,
			func(i int) []byte { return tagged(10, datagram(macB, 5000, 5000, i, 64)) },
			func(i int) []byte { return tagged(20, datagram(macA, 5000, 5000, i, 63)) }},
		"a host that has to ask for those whom it shall answer": {Storm,
			func(i int) []byte { return tcp(t, macB, macA, address(1000+i), addrA, 4000, 80, tcpFlags{syn: true}) },
			func(i int) []byte { return arp(t, 1, macA, addrA, address(1000+i)) }},
		"a router with one port": {Malformed,
			func(i int) []byte { return wrong(macB, macA, i, 64) },
			func(i int) []byte { return wrong(macA, mac{2, 9}, i, 63) }},
	} {
		value := func(provoked bool) (found Value) {
			f := newTraffic(t)
			spread(400, func(i int, at time.Duration) {
				if provoked {
					f.gets(at, c.gets(i))
				}
				f.sends(at+50*time.Microsecond, c.sends(i))
			})
			for _, v := range Judge([]Sampled{f.Sampled}) {
				if v.Signal == c.signal {
					found = v
				}
			}
			return found
		}
		if v := value(true); v.Value < RuleOf(c.signal).Floor || !v.Provoked {
			t.Errorf("%s: %+v, want it seen, and as others' doing", name, v)
		}
		if v := value(false); v.Value < RuleOf(c.signal).Floor || v.Provoked {
			t.Errorf("%s, with nothing that came: %+v, want it seen, and as its own doing", name, v)
		}
	}
	// A proxy accepts connections, and tries those behind it, which do not answer.
	f := newTraffic(t)
	spread(300, func(i int, at time.Duration) {
		f.gets(at, tcp(t, macB, macA, addrB, addrA, uint16(4000+i), 80, tcpFlags{syn: true}))
		f.sends(at, tcp(t, macA, macB, addrA, addrB, 80, uint16(4000+i), tcpFlags{syn: true, ack: true}))
		f.sends(at, frame(t, ether(macA, mac{2, 9}, layers.EthernetTypeIPv4),
			ip4(addrA, address(9), layers.IPProtocolTCP),
			&layers.TCP{SrcPort: layers.TCPPort(4000 + i), DstPort: 8080, SYN: true, Seq: uint32(i) * 99991}))
	})
	for _, v := range Judge([]Sampled{f.Sampled}) {
		if v.Signal == Flood && (v.Value < RuleOf(Flood).Floor || !v.Provoked) {
			t.Errorf("a proxy: %+v, want it seen, and as others' doing", v)
		}
	}
}

// An attacker changes where its packets say they come from: the judgement does not change, since it is the port's.
func TestWhatSendersClaimChangesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	of := func(from func() netip.Addr) map[Signal]float64 {
		f := newTraffic(t)
		spread(100, func(i int, at time.Duration) {
			f.sends(at, tcp(t, macA, macB, from(), addrB, 4000, uint16(1000+i), tcpFlags{syn: true}))
		})
		return judged(f.Sampled)
	}
	own := of(func() netip.Addr { return addrA })
	others := of(func() netip.Addr { return address(random.IntN(1 << 20)) })
	if !maps.Equal(own, others) || own[Scan] == 0 {
		t.Errorf("with its own address %v, with others' %v", own, others)
	}
}

// No bytes break the parser, and what it says of a frame does not depend on what lies behind it.
func FuzzParse(f *testing.F) {
	f.Add(tcp(f, macA, macB, addrA, addrB, 1, 2, tcpFlags{syn: true}), 60)
	f.Add(arp(f, 1, macA, addrA, addrB), 60)
	f.Add(unreachable(f, udp(f, addrA, addrB, 53)), 70)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, length int) {
		length = max(length, len(b))
		is := parse(b, length)
		if again := parse(append(slices.Clone(b), make([]byte, 40)...)[:len(b)], length); again != is {
			t.Errorf("%x is %+v, and %+v", b, is, again)
		}
		Judge([]Sampled{{Span: time.Second, Frames: []Frame{{Length: length, Data: b},
			{Length: length, Data: b, ToElement: true}}}})
	})
}
