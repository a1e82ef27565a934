package fabric

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// offer sends UDP of 1,472-byte datagrams at so many bit/s of payload, or as fast as it can, until the test ends.
func offer(t testing.TB, from, to *element, address string, rate model.Bandwidth) {
	t.Helper()
	const payload = 1472
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), flowPort+1))
	var in, out *net.UDPConn
	to.do(func() { // takes the packets, so that nothing is sent back; nobody reads them
		var err error
		in, err = net.ListenUDP("udp", at)
		to.check(err, "listen at %s", at)
	})
	// about 1,000 calls a second: larger batches are GSO packets
	batch := max(1, min(40, int(uint64(rate)/8/payload/1000)))
	from.do(func() {
		var err error
		out, err = net.DialUDP("udp", nil, at)
		from.check(err, "dial %s", at)
		raw, err := out.SyscallConn()
		from.check(err, "reach the socket")
		raw.Control(func(fd uintptr) {
			from.check(unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, payload),
				"set the segments' size")
		})
	})
	ended := make(chan struct{})
	t.Cleanup(func() {
		out.Close()
		<-ended
		in.Close()
	})
	go func() {
		defer close(ended)
		data := make([]byte, batch*payload)
		began, sent := time.Now(), 0.0
		for {
			due := time.Since(began).Seconds() * float64(rate) / 8
			if sent > due {
				time.Sleep(time.Duration((sent - due) / float64(rate) * 8e9))
			}
			if _, err := out.Write(data); errors.Is(err, net.ErrClosed) {
				return
			}
			sent += float64(len(data))
		}
	}()
}

// received is what the kernel counts at an element's interface.
func (e *element) received(t testing.TB, ifc string) (bytes uint64) {
	t.Helper()
	e.do(func() {
		l, err := netlink.LinkByName(ifc)
		e.check(err, "find %s", ifc)
		bytes = l.Attrs().Statistics.RxBytes
	})
	return bytes
}

// window measures for a while what is received at interfaces. Whatever holds the test up, at least the time least has
// passed while these bytes came, and at most the time most.
func window(t testing.TB, length time.Duration, at ...*element) (bytes []uint64, least, most time.Duration) {
	t.Helper()
	read := func() (all []uint64, began, ended time.Time) {
		began = time.Now()
		for _, e := range at {
			all = append(all, e.received(t, "eth0"))
		}
		return all, began, time.Now()
	}
	first, began1, ended1 := read()
	time.Sleep(length)
	second, began2, ended2 := read()
	for i := range second {
		bytes = append(bytes, second[i]-first[i])
	}
	return bytes, began2.Sub(ended1), ended2.Sub(began1)
}

// capped measures until a window had at least 97 % of the rate, and none may have more than 103 %, what may pass at
// once after a pause aside. Above a limit of the rate that any machine generates, nothing is asked for but the cap.
func capped(t *testing.T, rate model.Bandwidth, at ...*element) {
	t.Helper()
	const most, generated = 40, 100e6
	q, _ := queueFor(model.Shape{Bandwidth: rate}, 1500, false)
	best := make([]float64, len(at))
	for n := range most {
		bytes, least, longest := window(t, 500*time.Millisecond, at...)
		reached := true
		for i, b := range bytes {
			if limit := 1.03*float64(rate)/8*longest.Seconds() + float64(q.Burst); float64(b) > limit {
				t.Errorf("%s: %s received %d bytes in at most %s: more than %.0f", rate, at[i].name, b, longest, limit)
			}
			best[i] = max(best[i], float64(b)*8/least.Seconds()/float64(rate))
			reached = reached && best[i] >= 0.97
		}
		if reached || rate > generated && n == 3 {
			break
		}
	}
	for i := range at {
		t.Logf("%s: %s received up to %.1f %%", rate, at[i].name, best[i]*100)
		if best[i] < 0.97 && rate <= generated {
			t.Errorf("%s: %s never received more than %.1f %%", rate, at[i].name, best[i]*100)
		}
	}
}

var rates = []model.Bandwidth{1e6, 10e6, 100e6, 1e9, 5e9}

// rate sets the bandwidth of links to all ports of the nodes.
func rate(bandwidth model.Bandwidth, nodes ...*node) {
	for _, n := range nodes {
		for i := range n.state.Ports {
			n.state.Ports[i].Shape.Bandwidth = bandwidth
		}
		n.apply()
	}
}

func TestBandwidth(t *testing.T) {
	run := func(t *testing.T, rated model.Bandwidth, a, b *element, nodes ...*node) {
		rate(rated, nodes...)
		offer(t, a, b, "10.0.0.2", 2*rated)
		offer(t, b, a, "10.0.0.1", 2*rated)
		capped(t, rated, a, b)
		for _, n := range nodes {
			if again := n.apply(); len(again) != 0 {
				t.Errorf("applied again, it changes %q", again)
			}
		}
	}
	for _, bandwidth := range rates {
		t.Run("local link/"+bandwidth.String(), func(t *testing.T) {
			if bandwidth <= 100e6 { // two of them together are no load
				t.Parallel()
			}
			n, a, b := twoElements(t)
			run(t, bandwidth, a, b, n)
			if bandwidth <= 100e6 {
				n.restrained(t, "a:eth0", "b:eth0")
			}
		})
		t.Run("tunnel/"+bandwidth.String(), func(t *testing.T) {
			if bandwidth <= 100e6 { // two of them together are no load
				t.Parallel()
			}
			n1, n2, a, b := twoNodes(t, 1600)
			run(t, bandwidth, a, b, n1, n2)
			if bandwidth <= 100e6 {
				n1.restrained(t, "a:eth0")
				n2.restrained(t, "b:eth0")
			}
			for bandwidth <= 100e6 && (n1.counters()[portID("net/a:eth0")].Drops[OverBandwidth] == 0 ||
				n2.counters()[portID("net/b:eth0")].Drops[OverBandwidth] == 0) {
				time.Sleep(10 * time.Millisecond) // the queues fill: what is too much is counted
			}
		})
	}
}

// queue is a port's queue as the kernel has it.
func (n *node) queue(t testing.TB, port string) (linux.QueueInfo, bool) {
	t.Helper()
	found, err := n.fabric.netlink.Qdiscs()
	if err != nil {
		t.Fatal(err)
	}
	q, ok := found.Queues[n.port(port).Index]
	return q, ok
}

// restrained checks that the ports' queues were what limited.
func (n *node) restrained(t *testing.T, ports ...string) {
	t.Helper()
	for _, port := range ports {
		if q, ok := n.queue(t, port); !ok || q.Overlimits == 0 {
			t.Errorf("nothing waited for the rate at %s: %+v", port, q)
		}
	}
}

// TestBandwidthChangesWithoutLoss changes the bandwidth under a flow of 1.1 Mbit/s.
func TestBandwidthChangesWithoutLoss(t *testing.T) {
	local, a, b := twoElements(t)
	n1, n2, c, d := twoNodes(t, 1600)
	flows := []*flow{startFlow(t, a, b, "10.0.0.2"), startFlow(t, c, d, "10.0.0.2")}
	wait := func() {
		for _, f := range flows {
			f.wait(50)
		}
	}
	wait()
	for range 3 {
		for _, bandwidth := range []model.Bandwidth{10e6, 1e9, 3e6, 0, 0} { // at the second 0 the unused queue goes
			rate(bandwidth, local, n1, n2)
			wait()
			q, has := local.queue(t, "b:eth0")
			if bandwidth != 0 && (!has || shapeOf(q.Queue, 1500, 0).Bandwidth/1000 != bandwidth/1000) {
				t.Errorf("with %s, the queue is %+v, %v", bandwidth, q, has)
			}
		}
		if q, has := local.queue(t, "b:eth0"); has {
			t.Errorf("without a bandwidth there is still %+v", q)
		}
	}
	for i, f := range flows {
		if lost := f.lost(); len(lost) > 0 {
			t.Errorf("flow %d: %d of %d packets were lost: %v…", i, len(lost), f.sent.Load(), lost[:min(len(lost), 10)])
		}
	}
}

func TestAlteredQueuesArePutRight(t *testing.T) {
	t.Parallel()
	n, a, _ := twoElements(t)
	rate(10e6, n)
	device := n.dirs.PortDevice(portID("net/b:eth0"))
	want, _ := n.queue(t, "b:eth0")
	for _, how := range []string{
		"tc qdisc del dev " + device + " root",
		"tc qdisc change dev " + device + " handle 7070: root tbf rate 5mbit burst 10k limit 100k",
		"tc qdisc replace dev " + device + " handle 9: root pfifo",
	} {
		n.must("sh", "-c", how)
		if changed := n.apply(); len(changed) != 1 || changed[0].Object != "net/b:eth0" {
			t.Errorf("after %q: %q", how, changed)
		}
		if q, ok := n.queue(t, "b:eth0"); !ok || !q.Same(want.Queue) {
			t.Errorf("after %q: %+v, want %+v", how, q, want)
		}
	}
	n.restart()
	if changed := n.apply(); len(changed) != 0 {
		t.Errorf("after a restart: %q", changed)
	}
	a.ping(t, "10.0.0.2")
	n.reset()
	if _, ok := n.queue(t, "b:eth0"); ok {
		t.Error("the fabric was destroyed and left its queue")
	}
}

// TestLoss sends 100,000 packets each; the number of those lost may be five standard deviations off, which happens once
// in 1.7 million runs. Where none or all are lost, there is no deviation, and fewer do.
func TestLoss(t *testing.T) {
	t.Parallel()
	local, a, b := twoElements(t)
	n1, n2, c, d := twoNodes(t, 1600)
	a.ping(t, "10.0.0.2") // neighbours are known now
	c.ping(t, "10.0.0.2")
	for _, link := range []struct {
		name      string
		from, to  *element
		near, far *node // of the sender and of the receiver
		dropped   string
	}{
		{name: "local link", from: a, to: b, near: local, far: local, dropped: "a:eth0"},
		{name: "tunnel", from: c, to: d, near: n1, far: n2, dropped: "b:eth0"},
	} {
		for _, loss := range []float64{0, 0.001, 0.01, 0.5, 1} {
			packets := 100_000.0
			if loss == 0 || loss == 1 {
				packets = 20_000
			}
			link.far.port("b:eth0").Shape.Loss = loss
			link.far.apply()
			count := func() (lost, arrived uint64) {
				all := link.far.counters()
				return all[portID("net/"+link.dropped)].Drops[pipeline.DropLoss], all[portID("net/b:eth0")].TxPackets
			}
			lost, arrived := count()
			burst(t, link.from, link.to, "10.0.0.2", int(packets))
			var nowLost, nowArrived uint64
			for { // those in the underlay still come
				nowLost, nowArrived = count()
				if nowLost-lost+nowArrived-arrived >= uint64(packets) {
					break
				}
				time.Sleep(time.Millisecond)
			}
			got := float64(nowLost - lost)
			deviation := math.Sqrt(packets * loss * (1 - loss))
			t.Logf("%s, loss %g: %.0f of %.0f lost", link.name, loss, got, packets)
			if math.Abs(got-packets*loss) > 5*deviation+2 {
				t.Errorf("%s, loss %g: %.0f of %.0f lost, want %.0f ± %.0f", link.name, loss, got, packets,
					packets*loss, 5*deviation)
			}
		}
	}
}

// burst sends so many small packets.
func burst(t testing.TB, from, to *element, address string, packets int) {
	t.Helper()
	// Any port: a child of another test that has not executed its program yet may still hold the last one.
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0))
	var in *net.UDPConn
	to.do(func() { // so that nothing is sent back
		var err error
		in, err = net.ListenUDP("udp", at)
		to.check(err, "listen at %s", at)
		at = in.LocalAddr().(*net.UDPAddr)
	})
	defer in.Close()
	from.do(func() {
		out, err := net.DialUDP("udp", nil, at)
		from.check(err, "dial")
		defer out.Close()
		for range packets {
			_, err := out.Write([]byte("x"))
			from.check(err, "send")
		}
	})
}

// TestSliceBandwidth has two elements of one network, and one of another, send from one node to another.
func TestSliceBandwidth(t *testing.T) {
	const bandwidth = model.Bandwidth(20e6)
	n1, n2, a, b := twoNodes(t, 1600)
	c, d := newElement(t, "c"), newElement(t, "d")
	n1.plug(c, "eth0", "10.0.0.1/24").Tunnel = &Tunnel{VNI: 78, Peer: n2.under}
	n2.plug(d, "eth0", "10.0.0.2/24").Tunnel = &Tunnel{VNI: 78, Peer: n1.under}
	n1.state.Slices = map[string]model.Bandwidth{"net": bandwidth, "elsewhere": bandwidth}
	n1.apply()
	n2.apply()
	if changed := n1.apply(); len(changed) != 0 {
		t.Errorf("applied again, it changes %q", changed)
	}
	a.ping(t, "10.0.0.2")
	offer(t, a, b, "10.0.0.2", bandwidth)
	offer(t, c, d, "10.0.0.2", bandwidth)
	var best float64
	q, _ := queueFor(model.Shape{Bandwidth: bandwidth}, 1500, false)
	for range 40 {
		bytes, least, most := window(t, 500*time.Millisecond, b, d)
		sum := float64(bytes[0] + bytes[1])
		if limit := 1.03*float64(bandwidth)/8*most.Seconds() + float64(q.Burst); sum > limit {
			t.Errorf("%.0f bytes passed in at most %s: more than %.0f", sum, most, limit)
		}
		if best = max(best, sum*8/least.Seconds()/float64(bandwidth)); best >= 0.97 && min(bytes[0], bytes[1]) > 0 {
			break
		}
	}
	if t.Logf("up to %.1f %% passed", best*100); best < 0.97 {
		t.Errorf("only %.1f %% passed", best*100)
	}
}

// TestSliceBandwidthChangesWithoutLoss does so under a flow, up to its end, and looks for what is left.
func TestSliceBandwidthChangesWithoutLoss(t *testing.T) {
	n1, n2, a, b := twoNodes(t, 1600)
	devices := func() string { return n1.must("ip", "-o", "link") }
	before := strings.Count(devices(), "\n")
	f := startFlow(t, a, b, "10.0.0.2")
	for range 3 {
		for _, bandwidth := range []model.Bandwidth{10e6, 100e6, 5e6, 0, 0} {
			f.wait(50)
			n1.state.Slices = map[string]model.Bandwidth{"net": bandwidth}
			n1.apply()
			if now := strings.Count(devices(), "\n"); bandwidth != 0 && now != before+2 {
				t.Errorf("with %s there are %d devices, want %d", bandwidth, now, before+2)
			}
		}
		if now := devices(); strings.Count(now, "\n") != before {
			t.Errorf("devices are left:\n%s", now)
		}
	}
	f.wait(50)
	if lost := f.lost(); len(lost) > 0 {
		t.Errorf("%d of %d packets were lost: %v…", len(lost), f.sent.Load(), lost[:min(len(lost), 10)])
	}
	n1.state.Slices = map[string]model.Bandwidth{"net": 1e6}
	n1.apply()
	in, _ := n1.fabric.shaperDevices("net")
	n1.must("ip", "link", "delete", in)
	if changed := n1.apply(); !slices.ContainsFunc(changed,
		func(c change.Change) bool { return c.Kind == change.SliceShaped }) {
		t.Errorf("after its devices were deleted: %q", changed)
	}
	a.ping(t, "10.0.0.2")
	n1.reset()
	if now := devices(); strings.Contains(now, in) {
		t.Errorf("the fabric was destroyed and left\n%s", now)
	}
	_ = n2
}

// TestSliceBandwidthAtEdges has an element send out of a VLAN of a real device, and the node end.
func TestSliceBandwidthAtEdges(t *testing.T) {
	n := newNode(t, "")
	outside := newElement(t, "outside")
	n.pair(outside, "wire")
	wire := n.dirs.PortDevice(portID("net/outside:wire"))
	a, c := newElement(t, "a"), newElement(t, "c")
	n.plug(a, "eth0", "10.7.0.1/24").Edge = &Edge{Device: wire, VLAN: 42}
	n.state.Slices = map[string]model.Bandwidth{"net": 10e6}
	n.apply()
	n2 := &node{space: outside.space, dirs: n.dirs} // the far side is a fabric too
	n2.dirs.Node, n2.dirs.Run = "n2", n.dirs.Run+"/n2"
	n2.open()
	t.Cleanup(func() { n2.fabric.Destroy() })
	n2.plug(c, "eth0", "10.7.0.2/24").Edge = &Edge{Device: "wire", VLAN: 42}
	n2.apply()
	a.ping(t, "10.7.0.2")
	in, _ := n.fabric.shaperDevices("net")
	found, err := n.fabric.netlink.Qdiscs()
	if err != nil {
		t.Fatal(err)
	}
	var index int
	n.do(func() {
		l, err := netlink.LinkByName(in)
		n.check(err, "find %s", in)
		index = l.Attrs().Index
	})
	if q := found.Queues[index]; q.Packets < 3 {
		t.Errorf("three packets went out of the edge, and %d through the slice's queue", q.Packets)
	}
	if c := n.counters()[portID("net/a:eth0")]; len(c.Drops) > 0 {
		t.Errorf("dropped: %v", c.Drops)
	}
	n.do(func() { n.check(ReleaseEdges(n.dirs), "release the edges") })
	if out := n.must("ip", "link"); strings.Contains(out, in) {
		t.Errorf("the node ended and left\n%s", out)
	}
}
