package fabric

import (
	"context"
	"fmt"
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
		links, err := netlink.LinkList()
		n.check(err, "list links")
		index := map[string]int{}
		for _, l := range links {
			index[l.Attrs().Name] = l.Attrs().Index
		}
		id := func(i int) model.PortID { return portID(fmt.Sprintf("line/r%d:if%d", i/2, i%2)) }
		for i := range ports {
			n.state.Ports = append(n.state.Ports, Port{ID: id(i), Index: index[fmt.Sprintf("p%d", i)], Local: id(i ^ 1)})
		}
	})
	return n
}

// BenchmarkAttach is the first Apply of 2,000 ports: slots, tables, filters.
func BenchmarkAttach(b *testing.B) {
	n := manyPorts(b, benchPorts)
	b.ResetTimer()
	for b.Loop() {
		n.apply()
		b.StopTimer()
		if err := n.fabric.Destroy(); err != nil {
			b.Fatal(err)
		}
		n.open()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/attach")
}

// BenchmarkApplyUnchanged is an Apply that finds everything right.
func BenchmarkApplyUnchanged(b *testing.B) {
	n := manyPorts(b, benchPorts)
	n.apply()
	b.ResetTimer()
	b.ReportAllocs()
	for b.Loop() {
		if changed := n.apply(); len(changed) != 0 {
			b.Fatalf("changed: %q", changed)
		}
	}
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
					for _, err := range c.Do(&add) {
						n.check(err, "attach")
					}
					b.StopTimer()
					start := time.Now()
					for _, err := range c.Do(&del) {
						n.check(err, "detach")
					}
					b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/detach")
					b.StartTimer()
				}
			})
		})
	}
}
