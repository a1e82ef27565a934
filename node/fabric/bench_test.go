package fabric

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

const benchPorts = 2000

// vethPeer is VETH_INFO_PEER of linux/veth.h.
const vethPeer = 1

// manyPorts makes a node with veth pairs whose other ends are all in one namespace, joined two by two.
func manyPorts(t testing.TB, ports int) *node {
	t.Helper()
	n := newNode(t, "192.0.2.1")
	far := newSpace(t)
	n.do(func() {
		c, err := linux.DialRtnetlink()
		n.check(err, "dial")
		defer c.Close()
		var b linux.Batch
		for i := range ports {
			b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
			b.Link(0, unix.IFF_UP, unix.IFF_UP)
			b.String(unix.IFLA_IFNAME, fmt.Sprintf("p%d", i))
			b.Begin(unix.IFLA_LINKINFO)
			b.String(unix.IFLA_INFO_KIND, "veth")
			b.Begin(unix.IFLA_INFO_DATA)
			b.Begin(vethPeer)
			b.Link(0, 0, 0)
			b.String(unix.IFLA_IFNAME, fmt.Sprintf("e%d", i))
			b.Uint32(unix.IFLA_NET_NS_FD, uint32(far.handle))
			b.End()
			b.End()
			b.End()
		}
		for i, err := range c.Do(&b) {
			n.check(err, "make veth pair %d", i)
		}
		links, err := linux.Whole(netlink.LinkList)
		n.check(err, "list links")
		index := map[string]int{}
		for _, l := range links {
			index[l.Attrs().Name] = l.Attrs().Index
		}
		id := func(i int) model.PortID { return portID(fmt.Sprintf("line/r%d:if%d", i/2, i%2)) }
		for i := range ports {
			n.state.Ports = append(n.state.Ports,
				Port{ID: id(i), Index: index[fmt.Sprintf("p%d", i)], Local: id(i ^ 1)})
		}
	})
	return n
}

// reset takes the fabric off, for the next attachment.
func (n *node) reset() {
	n.t.Helper()
	if err := n.fabric.Destroy(); err != nil {
		n.t.Fatal(err)
	}
	n.open()
}

// setAll sets all ports up or down.
func (n *node) setAll(flags uint32) {
	n.t.Helper()
	c, err := linux.DialRtnetlink()
	n.check(err, "dial")
	defer c.Close()
	var b linux.Batch
	for _, p := range n.state.Ports {
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(p.Index, flags, unix.IFF_UP)
	}
	for _, err := range c.Do(&b) {
		n.check(err, "set a port up or down")
	}
}

// BenchmarkAttach is the first Apply of 2,000 ports: slots, tables, filters, setting the ports up. What of it setting
// up costs is given beside it.
func BenchmarkAttach(b *testing.B) {
	n := manyPorts(b, benchPorts)
	n.do(func() { n.setAll(0) })
	var up, used time.Duration
	for b.Loop() {
		before := cpu(b)
		n.apply()
		used += cpu(b) - before
		b.StopTimer()
		n.reset()
		n.do(func() {
			n.setAll(0)
			before := cpu(b)
			n.setAll(unix.IFF_UP)
			up += cpu(b) - before
			n.setAll(0)
		})
		b.StartTimer()
	}
	perOp(b, used, "cpu-ms/op")
	perOp(b, up, "cpu-ms-setting-up/op")
}

// cpu is the processor time that this process has used, the kernel's part included: the figure that a busy machine
// does not spoil.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func perOp(b *testing.B, used time.Duration, unit string) {
	b.ReportMetric(used.Seconds()*1000/float64(b.N), unit)
}

// BenchmarkApplyUnchanged is an Apply that finds everything right.
func BenchmarkApplyUnchanged(b *testing.B) {
	n := manyPorts(b, benchPorts)
	n.apply()
	b.ResetTimer()
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		if changed := n.apply(); len(changed) != 0 {
			b.Fatalf("changed: %q", changed)
		}
	}
	perOp(b, cpu(b)-before, "cpu-ms/op")
}

// BenchmarkCounters reads the counters of 2,000 ports.
func BenchmarkCounters(b *testing.B) {
	n := manyPorts(b, benchPorts)
	n.apply()
	b.ResetTimer()
	b.ReportAllocs()
	for b.Loop() {
		c, err := n.fabric.Counters(context.Background())
		if err != nil || len(c) != benchPorts+1 {
			b.Fatalf("%d counters, %v", len(c), err)
		}
	}
}

// BenchmarkFilters compares the two ways to attach one program to 2,000 ports by batched netlink: a filter each, or a
// clsact each that share one block with one filter.
func BenchmarkFilters(b *testing.B) {
	for _, shared := range []bool{false, true} {
		name := "a filter each"
		if shared {
			name = "one shared block"
		}
		b.Run(name, func(b *testing.B) {
			n := manyPorts(b, benchPorts)
			n.do(func() {
				c, err := linux.DialRtnetlink()
				n.check(err, "dial")
				defer c.Close()
				n.setAll(0)
				var used time.Duration
				for b.Loop() {
					var add, del linux.Batch
					filter := linux.Filter{Priority: 1, Handle: 1, Name: "test", Program: n.fabric.pipe.FromPort.FD()}
					for i, p := range n.state.Ports {
						if !shared {
							add.AddClsact(p.Index, 0)
							add.ReplaceFilter(linux.Attachment{Index: p.Index}, filter)
						} else {
							add.AddClsact(p.Index, 77)
							if i == 0 {
								add.ReplaceFilter(linux.Attachment{Block: 77}, filter)
							}
						}
						del.RemoveClsact(p.Index)
					}
					before := cpu(b)
					for _, err := range c.Do(&add) {
						n.check(err, "attach")
					}
					used += cpu(b) - before
					b.StopTimer()
					for _, err := range c.Do(&del) {
						n.check(err, "detach")
					}
					b.StartTimer()
				}
				perOp(b, used, "cpu-ms/op")
			})
		})
	}
}

// BenchmarkAttachPortsUp is BenchmarkAttach for ports that are up already: the kernel then stops and starts the
// device's queue for each, which waits for readers (RCU).
func BenchmarkAttachPortsUp(b *testing.B) {
	n := manyPorts(b, benchPorts)
	n.do(func() { n.setAll(unix.IFF_UP) })
	var used time.Duration
	for b.Loop() {
		before := cpu(b)
		n.apply()
		used += cpu(b) - before
		b.StopTimer()
		n.reset()
		n.do(func() { n.setAll(unix.IFF_UP) })
		b.StartTimer()
	}
	perOp(b, used, "cpu-ms/op")
}

// BenchmarkTCP prints what iperf3 reaches between two elements over the fabric, and over a plain veth pair.
func BenchmarkTCP(b *testing.B) {
	measure := func(b *testing.B, from, to *element, address string) {
		b.Helper()
		for b.Loop() {
			b.ReportMetric(throughput(b, from, to, address)/1e9, "Gbit/s")
		}
	}
	b.Run("plain veth", func(b *testing.B) {
		x, y := newElement(b, "x"), newElement(b, "y")
		n := &node{space: y.space}
		n.pair(x, "eth0", "10.0.0.1/24")
		name := n.dirs.PortDevice(portID("net/x:eth0"))
		y.must("ip", "address", "add", "10.0.0.2/24", "dev", name)
		measure(b, x, y, "10.0.0.2")
	})
	b.Run("local link", func(b *testing.B) {
		_, x, y := twoElements(b)
		measure(b, x, y, "10.0.0.2")
	})
	b.Run("tunnel", func(b *testing.B) {
		_, _, x, y := twoNodes(b, 9000)
		measure(b, x, y, "10.0.0.2")
	})
}

// throughput is what one TCP connection carries in two seconds, in bit/s, unless more of iperf3's options say
// otherwise.
func throughput(t testing.TB, from, to *element, address string, more ...string) float64 {
	t.Helper()
	var server *exec.Cmd
	var out io.ReadCloser
	to.do(func() {
		server = exec.Command("iperf3", "-s", "-1", "--forceflush")
		var err error
		out, err = server.StdoutPipe()
		to.check(err, "read iperf3's output")
		to.check(server.Start(), "start iperf3")
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "listening") {
	}
	go io.Copy(io.Discard, out)
	text := from.must("iperf3", append([]string{"-c", address, "-t", "2", "-J"}, more...)...)
	if err := server.Wait(); err != nil {
		t.Fatalf("iperf3 -s: %v", err)
	}
	var result struct {
		End struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		t.Fatal(err)
	}
	return result.End.Received.BitsPerSecond
}
