package fabric

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/forward"
)

// routed is a node with a router r between a (10.0.0.1) and b (10.1.0.1), with tables that say so.
type routed struct {
	*node
	a, b, r *element
	id      model.ID
	tables  int
}

func newRouted(t testing.TB) *routed {
	t.Helper()
	l := &routed{node: newNode(t, ""), a: newElement(t, "a"), b: newElement(t, "b"), r: newElement(t, "r"),
		id: portID("net/r:left").ID}
	l.plug(l.a, "eth0", "10.0.0.1/24")
	l.plug(l.b, "eth0", "10.1.0.1/24")
	l.plug(l.r, "left", "10.0.0.2/24")
	l.plug(l.r, "right", "10.1.0.2/24")
	l.local("a:eth0", "r:left")
	l.local("b:eth0", "r:right")
	l.r.must("sysctl", "-qw", "net.ipv4.ip_forward=1")
	l.a.must("ip", "route", "add", "default", "via", "10.0.0.2")
	l.b.must("ip", "route", "add", "default", "via", "10.1.0.2")
	l.apply()
	l.a.ping(t, "10.1.0.1")
	pool, err := fib.New(l.fabric.Tables())
	if err != nil {
		t.Fatal(err)
	}
	slice := pool.NewSlice("net", fib.Quota{})
	if l.tables, err = l.fabric.Place(l.id).Tables(); err != nil {
		t.Fatal(err)
	}
	table := slice.NewTable(fib.IPv4)
	for prefix, way := range map[string][2]string{"10.0.0.1/32": {"r:left", "a:eth0"},
		"10.1.0.1/32": {"r:right", "b:eth0"}} {
		from, to := l.port(way[0]), l.port(way[1])
		mac := func(m net.HardwareAddr) (a fib.MAC) { copy(a[:], m); return a }
		hop, err := slice.AddNextHop(fib.NextHop{Kind: fib.KindForward, Port: l.fabric.slots[from.ID],
			Source: mac(from.MAC), Destination: mac(to.MAC)})
		if err == nil {
			err = table.Insert(netip.MustParsePrefix(prefix), hop)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Insert(netip.MustParsePrefix("10.0.0.2/32"), fib.LocalID); err != nil {
		t.Fatal(err)
	}
	if err := table.Publish(pipeline.Table(l.tables, false)); err != nil {
		t.Fatal(err)
	}
	return l
}

// steer has the data path forward for the router, or its own stack.
func (l *routed) steer(on bool) {
	l.t.Helper()
	var s forward.Steering
	if on {
		n, err := l.fabric.Place(l.id).Tables() // after a restart, or once it was given back, it may be another's
		if err != nil {
			l.t.Fatal(err)
		}
		if n != l.tables {
			tables := l.fabric.pipe.FIB.Tables()
			tables[pipeline.Table(n, false)], tables[pipeline.Table(l.tables, false)],
				l.tables = tables[pipeline.Table(l.tables, false)], 0, n
		}
		s.Tables = n
	}
	l.state.Steering = map[model.ID]forward.Steering{l.id: s}
	l.apply()
}

func (l *routed) forwarded() Forwarded {
	l.t.Helper()
	all, err := l.fabric.Forwarded(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	return all[l.id]
}

// lanes counts devices of queues.
func (l *routed) lanes() int {
	return strings.Count(l.must("ip", "-o", "link"), l.fabric.queueAlias())
}

// TestBandwidthBeforeRouter has the data path forward what comes in by links with a bandwidth, at their rate, and
// nothing of it by the router's own stack.
func TestBandwidthBeforeRouter(t *testing.T) {
	for _, bandwidth := range []model.Bandwidth{10e6, 100e6} {
		l := newRouted(t)
		l.port("r:left").Shape.Bandwidth, l.port("r:right").Shape.Bandwidth = bandwidth, bandwidth
		l.steer(true)
		if again := l.apply(); len(again) != 0 {
			t.Errorf("applied again, it changes %q", again)
		}
		// On a busy machine TCP's ends may not get the processor in time: it is tried again, and never gets more than
		// the link has.
		best := 0.0
		for try := 0; best < 0.9 && try < 10; try++ {
			tcp := throughput(t, l.a, l.b, "10.1.0.1") / float64(bandwidth)
			t.Logf("%s: TCP got %.1f %%", bandwidth, 100*tcp)
			if best = max(best, tcp); tcp > 1.03 {
				t.Errorf("%s: TCP got %.1f %%", bandwidth, 100*tcp)
			}
		}
		if best < 0.9 {
			t.Errorf("%s: TCP never got more than %.1f %%", bandwidth, 100*best)
		}
		offer(t, l.a, l.b, "10.1.0.1", 2*bandwidth)
		offer(t, l.b, l.a, "10.0.0.1", 2*bandwidth)
		capped(t, bandwidth, l.a, l.b)
		c, punted := l.forwarded(), uint64(0)
		for reason, n := range c.Punted {
			if punted += n; reason == "into a queue" {
				t.Errorf("%d packets were given to the router because of a queue", n)
			}
		}
		if t.Logf("%s: %d forwarded, punted %v", bandwidth, c.Packets, c.Punted); c.Packets == 0 ||
			punted*100 > c.Packets {
			t.Errorf("%s: of %d packets %d were not forwarded by the data path", bandwidth, c.Packets+punted, punted)
		}
		for _, port := range []string{"r:left", "r:right"} {
			if bandwidth > 10e6 {
				continue // the queue is longer than what the sender's socket lets wait
			}
			if n := l.counters()[portID("net/"+port)].Drops[OverBandwidth]; n == 0 {
				t.Errorf("%s: nothing is counted as dropped", port)
			}
		}
		s, err := l.fabric.Observe(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Ports {
			if p.ID.Element == "r" && (p.Shape.Bandwidth < bandwidth*99/100 || p.Shape.Bandwidth > bandwidth*101/100) {
				t.Errorf("%s is seen with %s", p.ID, p.Shape)
			}
		}
	}
}

// TestBandwidthBeforeRouterChangesWithoutLoss changes the bandwidth, and who forwards, under a flow.
func TestBandwidthBeforeRouterChangesWithoutLoss(t *testing.T) {
	l := newRouted(t)
	f := startFlow(t, l.a, l.b, "10.1.0.1")
	f.wait(50)
	for range 2 {
		for _, step := range []struct {
			bandwidth model.Bandwidth
			on        bool
		}{{0, true}, {10e6, true}, {20e6, true}, {20e6, false}, {20e6, false}, {20e6, true}, {20e6, true}, {0, true},
			{0, true}, {10e6, true}, {10e6, false}, {0, false}, {0, false}} {
			l.port("r:left").Shape.Bandwidth = step.bandwidth
			l.steer(step.on)
			before := l.forwarded().Packets
			f.wait(50)
			want := 0
			if step.bandwidth > 0 && step.on {
				want = 2
			}
			if n := l.forwarded().Packets - before; step.on != (n > 0) {
				t.Errorf("%+v: the data path forwarded %d", step, n)
			}
			flags := l.fabric.pipe.Ports[l.fabric.slots[portID("net/r:left")]].Flags
			if (flags&pipeline.Rated != 0) != (want > 0) || l.lanes() < want {
				t.Errorf("%+v: flags %#x, %d devices", step, flags, l.lanes())
			}
		}
		if n := l.lanes(); n != 0 {
			t.Errorf("%d devices are left of queues that nobody needs", n)
		}
	}
	l.port("r:left").Shape.Bandwidth = 10e6
	l.steer(true)
	f.wait(50)
	l.restart()
	f.wait(50)
	if changed := l.apply(); len(changed) != 0 {
		t.Errorf("after a restart it changes %q", changed)
	}
	f.wait(50)
	if lost := f.lost(); len(lost) > 0 {
		t.Errorf("%d of %d packets were lost: %v…", len(lost), f.sent.Load(), lost[:min(len(lost), 10)])
	}
	// Somebody takes the devices away, and the port.
	in, _ := l.fabric.queueDevices(l.fabric.slots[portID("net/r:left")])
	l.must("ip", "link", "del", in)
	l.apply()
	l.a.ping(t, "10.1.0.1")
	if l.lanes() != 2 {
		t.Error("the queue's devices are not put right")
	}
	l.state.Ports, l.state.Steering = l.state.Ports[:2], nil
	l.apply()
	if l.apply(); l.lanes() != 0 {
		t.Error("the queue's devices outlive the port")
	}
}

// TestDelayBeforeRouter: a delay before a router is kept where the data path forwards.
func TestDelayBeforeRouter(t *testing.T) {
	if linux.ProbeDelay() != nil {
		t.Log("this kernel has no netem: TestDelay says that it is refused")
		return
	}
	l := newRouted(t)
	shape := &l.port("r:left").Shape
	l.steer(true)
	*shape = model.Shape{Delay: model.Duration(20e6), Bandwidth: 10e6}
	l.apply()
	if took := l.a.roundTrips(t, "10.1.0.1"); took[0] < 20e6 {
		t.Errorf("a round trip took %s", took[0])
	}
	if c := l.forwarded(); c.Packets < 100 || c.Punted["into a queue"] != 0 {
		t.Errorf("forwarded %+v", c)
	}
	shape.Delay = 0
	l.apply()
	l.a.ping(t, "10.1.0.1")
}

// TestPunts has a's packets with a TTL that ends metered, while what is for the router itself is not.
func TestPunts(t *testing.T) {
	t.Parallel()
	l := newRouted(t)
	l.state.Punts = map[string]int{"net": 100}
	l.steer(true)
	if again := l.apply(); len(again) != 0 {
		t.Errorf("applied again, it changes %q", again)
	}
	l.a.must("sysctl", "-qw", "net.ipv4.ip_default_ttl=1")
	burst(t, l.a, l.b, "10.1.0.1", 500)
	l.a.must("sysctl", "-qw", "net.ipv4.ip_default_ttl=64")
	c := l.forwarded()
	if c.Refused < 300 || c.Punted["TTL"] < leastBurst/2 || c.Refused+c.Punted["TTL"] != 500 {
		t.Errorf("of 500 packets %d were refused, punted %v", c.Refused, c.Punted)
	}
	if n := l.counters()[portID("net/a:eth0")].Drops[OverPunts]; n != c.Refused {
		t.Errorf("%d of %d are counted as drops of who sent them", n, c.Refused)
	}
	l.a.must("ping", "-c", "200", "-i", "0.001", "-q", "10.0.0.2")
	if now := l.forwarded(); now.Refused != c.Refused || now.Punted["to the router itself"] < 200 {
		t.Errorf("of 200 packets to the router itself %d were refused: %v", now.Refused-c.Refused, now.Punted)
	}
	l.state.Punts["net"] = 2000
	if changed := l.apply(); len(changed) != 1 || changed[0] != change.PuntsLimited.Of("net", 2000) {
		t.Errorf("a new rate is told as %q", changed)
	}
	l.restart()
	if changed := l.apply(); len(changed) != 0 {
		t.Errorf("after a restart it changes %q", changed)
	}
	l.state.Punts = nil
	l.apply()
	l.a.must("sysctl", "-qw", "net.ipv4.ip_default_ttl=1")
	burst(t, l.a, l.b, "10.1.0.1", 500)
	if now := l.forwarded(); now.Refused != c.Refused {
		t.Errorf("without a limit %d were refused", now.Refused-c.Refused)
	}
}
