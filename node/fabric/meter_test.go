package fabric

import (
	"math"
	"math/bits"
	"testing"
	"time"

	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// passed are the packets that reached elements of a node.
func (n *node) passed(names ...string) (packets uint64) {
	c := n.counters()
	for _, name := range names {
		packets += c[portID("net/"+name+":eth0")].TxPackets
	}
	return packets
}

// TestPacketsOfASlice has two elements of one network send together, small packets and such as are many.
func TestPacketsOfASlice(t *testing.T) {
	n, a, b := twoElements(t)
	c, d := newElement(t, "c"), newElement(t, "d")
	n.plug(c, "eth0", "10.0.0.1/24")
	n.plug(d, "eth0", "10.0.0.2/24")
	n.local("c:eth0", "d:eth0")
	n.state.Packets = map[string]int{"elsewhere": 100}
	n.apply()
	offer(t, a, b, "10.0.0.2", 60e6) // some 5,000 packets a second
	offer(t, c, d, "10.0.0.2", 60e6)
	for _, rate := range []int{1000, 5000, 0, 2000} {
		n.state.Packets["net"] = rate
		if rate == 0 {
			delete(n.state.Packets, "net")
		}
		n.apply()
		if changed := n.apply(); len(changed) != 0 {
			t.Errorf("applied again, it changes %q", changed)
		}
		var best float64
		for range 40 {
			began := time.Now()
			first := n.passed("b", "d")
			read := time.Now()
			time.Sleep(500 * time.Millisecond)
			again := time.Now()
			got := n.passed("b", "d") - first
			// the last packet may be 44
			most := float64(rate)*(1.03*time.Since(began).Seconds()+meterBurst.Seconds()) + leastBurst + 64
			if rate > 0 && float64(got) > most {
				t.Errorf("%d packets a second: %d passed in %s, more than %.0f", rate, got, time.Since(began), most)
			}
			if best = max(best, float64(got)/again.Sub(read).Seconds()); best >= 0.97*float64(rate) &&
				(rate > 0 || best > 6000) {
				break
			}
		}
		if t.Logf("%d packets a second: up to %.0f passed", rate, best); best < 0.97*float64(rate) ||
			rate == 0 && best < 6000 {
			t.Errorf("%d packets a second: only %.0f passed", rate, best)
		}
		n.restart()
	}
	drops := n.counters()
	for _, name := range []string{"net/a:eth0", "net/c:eth0"} {
		if drops[portID(name)].Drops[OverPackets] == 0 {
			t.Errorf("%s: nothing is counted as dropped: %v", name, drops[portID(name)].Drops)
		}
	}
}

// TestPacketsChangeWithoutLoss sets a limit above what is sent, changes it, and takes it away.
func TestPacketsChangeWithoutLoss(t *testing.T) {
	n, a, b := twoElements(t)
	a.ping(t, "10.0.0.2")
	f := startFlow(t, a, b, "10.0.0.2")
	for i := range 40 {
		f.wait(10)
		n.state.Packets = map[string]int{"net": 5000 + i%3*10000}
		if i%5 == 4 {
			n.state.Packets = nil
		}
		n.apply()
	}
	f.wait(10)
	if lost := f.lost(); len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
}

// TestPacketsFromAnEdge limits what comes in from a real device as well.
func TestPacketsFromAnEdge(t *testing.T) {
	n := newNode(t, "")
	outside := newElement(t, "outside")
	n.pair(outside, "wire", "10.7.0.2/24")
	a := newElement(t, "a")
	n.plug(a, "eth0", "10.7.0.1/24").Edge = &Edge{Device: n.dirs.PortDevice(portID("net/outside:wire"))}
	n.state.Packets = map[string]int{"net": 100}
	n.apply()
	for try := 0; ; try++ { // the kernel takes a second to send through a device that has just been set up
		_, err := a.run("ping", "-c", "1", "-W", "1", "10.7.0.2")
		if err == nil {
			break
		}
		if try == 60 {
			t.Fatal("the edge's far side does not answer")
		}
	}
	burst(t, outside, a, "10.7.0.1", 500)
	c := n.counters()[portID("net/a:eth0")]
	if c.Drops[OverPackets] < 300 || c.TxPackets < leastBurst/2 {
		t.Errorf("of 500 packets at once %d passed; dropped: %v", c.TxPackets, c.Drops)
	}
}

// A meter's rate is one that the programs can reckon with: whatever it is, a second of it fits 64 bits.
func TestMetersDoNotWrap(t *testing.T) {
	for _, rate := range []int{1, 1e9, 18446744073, 18446744074, 10e12 / 8, math.MaxInt64} {
		var m pipeline.Meter
		setMeter(&m, rate, meterBurst)
		if over, _ := bits.Mul64(m.Rate, uint64(time.Second)); over != 0 || m.Rate > uint64(rate) ||
			m.Burst > m.Rate+leastBurst {
			t.Errorf("%d a second becomes %+v", rate, m)
		}
	}
}
