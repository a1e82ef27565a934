package fabric

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// roundTrips are those of pings, the shortest first.
func (e *element) roundTrips(t *testing.T, to string) []time.Duration {
	t.Helper()
	out, err := e.run("ping", "-c", "50", "-i", "0.01", "-W", "60", to)
	if err != nil {
		t.Fatalf("ping %s from %s: %v\n%s", to, e.name, err, out)
	}
	var all []time.Duration
	for line := range strings.Lines(out) {
		if _, text, ok := strings.Cut(line, " time="); ok {
			d, err := time.ParseDuration(strings.ReplaceAll(strings.TrimSpace(text), " ", ""))
			if err != nil {
				t.Fatalf("ping said %q", line)
			}
			all = append(all, d)
		}
	}
	slices.Sort(all)
	return all
}

// keeps tells whether a queue keeps a shape, bandwidth to a kbit/s.
func keeps(q linux.Queue, s model.Shape) bool {
	is := shapeOf(q, 1500, 0)
	off := max(is.Bandwidth, s.Bandwidth) - min(is.Bandwidth, s.Bandwidth)
	is.Bandwidth = s.Bandwidth
	return is == s && off < 1000
}

// TestDelay: a delay is refused in words, or kept. However slow the machine is, no packet comes earlier, and one of
// fifty not much later.
func TestDelay(t *testing.T) {
	n, a, b := twoElements(t)
	shape := &n.port("b:eth0").Shape
	*shape = model.Shape{Delay: model.Duration(20 * time.Millisecond),
		Jitter: model.Duration(5 * time.Millisecond), Bandwidth: 10e6}
	if linux.ProbeDelay() != nil {
		err := n.fabric.Apply(t.Context(), n.state).Failed[portID("net/b:eth0")]
		if err == nil || !strings.Contains(err.Error(), "no netem") {
			t.Errorf("this kernel has no netem: %v", err)
		}
		a.ping(t, "10.0.0.2") // what was there still works
		return
	}
	straight := a.roundTrips(t, "10.0.0.2")
	n.apply()
	if q, _ := n.queue(t, "b:eth0"); !keeps(q.Queue, *shape) {
		t.Errorf("the queue is %+v", q)
	}
	if changed := n.apply(); len(changed) != 0 {
		t.Errorf("once more it says %q", changed)
	}
	delayed := a.roundTrips(t, "10.0.0.2")
	first, last := delayed[0], delayed[len(delayed)-1]
	t.Logf("%s to %s without a delay, %s to %s with 20 ms ± 5 ms", straight[0], straight[len(straight)-1], first, last)
	// ping's clock tells microseconds.
	if least := 15*time.Millisecond - time.Microsecond; first < least || first > 25*time.Millisecond+
		straight[len(straight)-1] {
		t.Errorf("the shortest round trip takes %s", first)
	}
	if last-first < 2*time.Millisecond {
		t.Errorf("round trips take %s to %s: where is the jitter?", first, last)
	}
	offer(t, a, b, "10.0.0.2", 20e6)
	capped(t, 10e6, b)
	for deadline := time.Now().Add(time.Minute); n.counters()[portID("net/b:eth0")].Drops[OverBandwidth] == 0; {
		if time.Now().After(deadline) {
			t.Fatal("twice the bandwidth was offered for a minute, and nothing dropped")
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.reset()
	if _, ok := n.queue(t, "b:eth0"); ok {
		t.Error("the fabric was destroyed and left its queue")
	}
}

// TestDelayChangesWithoutLoss gives a flow's links delays, changes them and takes them away.
func TestDelayChangesWithoutLoss(t *testing.T) {
	if err := linux.ProbeDelay(); err != nil {
		t.Skip(err)
	}
	local, a, b := twoElements(t)
	n1, n2, c, d := twoNodes(t, 1600)
	flows := []*flow{startFlow(t, a, b, "10.0.0.2"), startFlow(t, c, d, "10.0.0.2")}
	wait := func(packets uint32) {
		for _, f := range flows {
			f.wait(packets)
		}
	}
	wait(50) // the neighbours are known
	const ms = model.Duration(time.Millisecond)
	for _, s := range []model.Shape{
		{Delay: 20 * ms}, {Delay: 60 * ms}, {Delay: 10 * ms}, {}, {}, // at the second one the unused queue goes
		{Bandwidth: 10e6}, {Bandwidth: 10e6, Delay: 20 * ms}, {Bandwidth: 10e6, Delay: 60 * ms, Jitter: 10 * ms},
		{Bandwidth: 5e6, Delay: 5 * ms}, {Bandwidth: 20e6}, {}, {},
		{Bandwidth: 10e6, Delay: 20 * ms, Jitter: 20 * ms}, {}, {},
	} {
		for _, n := range []*node{local, n1, n2} {
			for i := range n.state.Ports {
				n.state.Ports[i].Shape = s
			}
			n.apply()
		}
		wait(200) // in which the longest delay is over
		q, has := local.queue(t, "b:eth0")
		if s != (model.Shape{}) && (!has || !keeps(q.Queue, s)) {
			t.Errorf("with %s, the queue is %+v, %v", s, q, has)
		}
	}
	if q, has := local.queue(t, "b:eth0"); has {
		t.Errorf("without delay and bandwidth there is still %+v", q)
	}
	for i, f := range flows {
		if lost := f.lost(); len(lost) > 0 {
			t.Errorf("flow %d: %d of %d packets were lost: %v…", i, len(lost), f.sent.Load(), lost[:min(len(lost), 10)])
		}
	}
}

// TestNobodyWaitsForAQueue: a queue that is to be replaced by one of another kind is left alone until no program sends
// anything through it. What else is asked for is done meanwhile, by the same Apply. Where the kernel does not have the
// other kind, that is told as long as it is so.
func TestNobodyWaitsForAQueue(t *testing.T) {
	n, a, _ := twoElements(t)
	shape, other := &n.port("b:eth0").Shape, &n.port("a:eth0").Shape
	*shape = model.Shape{Bandwidth: 100e6}
	n.apply()
	flags := &n.fabric.pipe.Ports[n.fabric.slots[portID("net/b:eth0")]].Flags
	id, lacks := portID("net/b:eth0"), linux.ProbeDelay()
	for again := range 3 {
		*shape, *other = model.Shape{Bandwidth: 100e6, Delay: model.Duration(time.Millisecond)},
			model.Shape{Bandwidth: model.Bandwidth(again+1) * 10e6}
		r := n.fabric.Apply(t.Context(), n.state)
		q, has := n.queue(t, "b:eth0")
		if !has || q.Netem() || r.Again == 0 || r.Problem != nil || atomic.LoadUint32(flags)&pipeline.Queue != 0 {
			t.Errorf("the queue is replaced at once: %v %+v, %+v, flags %x", has, q, r, atomic.LoadUint32(flags))
		}
		if q, _ := n.queue(t, "a:eth0"); !keeps(q.Queue, *other) {
			t.Errorf("another port's queue is not set meanwhile: %+v", q)
		}
		a.ping(t, "10.0.0.2")
		if tried := again > 0 && lacks != nil; (r.Failed[id] != nil) != tried {
			t.Errorf("what was tried before: %v; told is %v", tried, r.Failed)
		}
		time.Sleep(r.Again)
		r = n.fabric.Apply(t.Context(), n.state)
		if q, _ := n.queue(t, "b:eth0"); r.Again != 0 || q.Netem() != (lacks == nil) ||
			(r.Failed[id] != nil) != (lacks != nil) || atomic.LoadUint32(flags)&pipeline.Queue == 0 {
			t.Errorf("later the queue is %+v, and told %+v", q, r)
		}
		a.ping(t, "10.0.0.2")
		if lacks == nil {
			*shape = model.Shape{}
			n.apply() // unused now, it goes with the next one
			n.apply()
			*shape = model.Shape{Bandwidth: 100e6}
			n.apply()
		}
	}
}
