package fabric

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// flow is a sequence-numbered UDP flow of 1,000 packets/s.
type flow struct {
	t        testing.TB
	sent     atomic.Uint32
	stop     chan struct{}
	finished chan struct{}
	got      chan []bool   // by sequence number
	twice    atomic.Uint32 // packets that came again
}

const (
	flowPort = 9000
	last     = 0xffffffff // the sequence number of the packets after the end
)

// startFlow sends from one element to an address of another until it is stopped. The receiver may have a filter.
func startFlow(t testing.TB, from, to *element, address string, filter ...unix.SockFilter) *flow {
	t.Helper()
	f := &flow{t: t, stop: make(chan struct{}), finished: make(chan struct{}), got: make(chan []bool, 1)}
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), flowPort))
	var in, out *net.UDPConn
	to.do(func() {
		var err error
		in, err = net.ListenUDP("udp", at)
		to.check(err, "listen at %s", at)
		raw, err := in.SyscallConn()
		to.check(err, "reach the socket")
		raw.Control(func(fd uintptr) {
			// A receiver that gets no processor for a while must not be what loses packets. Without force, the kernel
			// gives less.
			to.check(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
				"set the receive buffer")
			if len(filter) == 0 {
				return
			}
			to.check(unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
				&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}), "set the filter")
		})
	})
	from.do(func() {
		var err error
		out, err = net.DialUDP("udp", nil, at)
		from.check(err, "dial %s", at)
	})
	t.Cleanup(func() { in.Close(); out.Close() })
	go f.receive(in)
	go f.send(out)
	return f
}

func (f *flow) receive(in *net.UDPConn) {
	var got []bool
	buf := make([]byte, 2000)
	for {
		n, err := in.Read(buf)
		if err != nil || n < 4 {
			break
		}
		seq := binary.BigEndian.Uint32(buf)
		if seq == last {
			break
		}
		for int(seq) >= len(got) {
			got = append(got, false)
		}
		if got[seq] {
			f.twice.Add(1)
		}
		got[seq] = true
	}
	close(f.finished)
	f.got <- got
}

func (f *flow) send(out *net.UDPConn) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	packet := make([]byte, 100)
	var stopped bool
	for {
		select {
		case <-f.finished:
			return
		case <-f.stop:
			stopped = true
		default:
		}
		seq := uint32(last)
		if !stopped {
			seq = f.sent.Add(1) - 1
		}
		binary.BigEndian.PutUint32(packet, seq)
		if _, err := out.Write(packet); err != nil && !stopped {
			f.t.Errorf("send: %v", err)
		}
		<-tick.C
	}
}

// lost ends the flow and tells which packets did not arrive.
func (f *flow) lost() []int {
	close(f.stop)
	got := <-f.got
	var lost []int
	for i := range int(f.sent.Load()) {
		if i >= len(got) || !got[i] {
			lost = append(lost, i)
		}
	}
	if f.sent.Load() < 100 {
		f.t.Errorf("the flow had only %d packets", f.sent.Load())
	}
	return lost
}

// wait lets so many packets be sent.
func (f *flow) wait(packets uint32) {
	for until := f.sent.Load() + packets; f.sent.Load() < until; {
		time.Sleep(time.Millisecond)
	}
}

// twoNodes is a tunnel between two nodes: a:eth0 at the first, b:eth0 at the second.
func twoNodes(t testing.TB, mtu int) (n1, n2 *node, a, b *element) {
	t.Helper()
	n1, n2 = newNode(t, "192.0.2.1"), newNode(t, "192.0.2.2")
	underlay(t, n1, n2, mtu)
	a, b = newElement(t, "a"), newElement(t, "b")
	n1.plug(a, "eth0", "10.0.0.1/24", "fd00::1/64").Tunnel = &Tunnel{VNI: 77, Peer: n2.under}
	n2.plug(b, "eth0", "10.0.0.2/24", "fd00::2/64").Tunnel = &Tunnel{VNI: 77, Peer: n1.under}
	n1.state.Peers = []model.Peer{{Name: "n2", Address: n2.under}}
	n2.state.Peers = []model.Peer{{Name: "n1", Address: n1.under}}
	n1.apply()
	n2.apply()
	return n1, n2, a, b
}

// twoElements is a local link between two elements.
func twoElements(t testing.TB) (n *node, a, b *element) {
	t.Helper()
	n = newNode(t, "")
	a, b = newElement(t, "a"), newElement(t, "b")
	n.plug(a, "eth0", "10.0.0.1/24", "fd00::1/64")
	n.plug(b, "eth0", "10.0.0.2/24", "fd00::2/64")
	n.local("a:eth0", "b:eth0")
	n.apply()
	return n, a, b
}

// TestFlowNoticesALoss is the control run: exactly one packet is dropped, by a filter of the receiver's socket.
func TestFlowNoticesALoss(t *testing.T) {
	_, a, b := twoElements(t)
	// after UDP's header
	f := startFlow(t, a, b, "10.0.0.2", unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 8},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: 123},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff})
	f.wait(200)
	if lost := f.lost(); len(lost) != 1 || lost[0] != 123 {
		t.Errorf("packet 123 was dropped; the flow noticed %v", lost)
	}
}

func TestRestartLosesNothing(t *testing.T) {
	n1, n2, a, b := twoNodes(t, 9000)
	c := newElement(t, "c")
	n1.plug(c, "eth0", "10.0.1.2/24")
	n1.plug(a, "eth1", "10.0.1.1/24")
	n1.local("a:eth1", "c:eth0")
	n1.apply()
	local, remote := startFlow(t, a, c, "10.0.1.2"), startFlow(t, a, b, "fd00::2")
	local.wait(50)
	remote.wait(50)
	for range 5 {
		for _, n := range []*node{n1, n2} {
			before := n.counters()
			n.restart()
			if changed := n.apply(); len(changed) != 0 {
				t.Errorf("Apply after a restart changed %q", changed)
			}
			for id, c := range n.counters() {
				if c.RxPackets < before[id].RxPackets || c.TxPackets < before[id].TxPackets {
					t.Errorf("%s lost its counts: %+v, before %+v", id, c, before[id])
				}
			}
		}
		local.wait(20)
	}
	if lost := append(local.lost(), remote.lost()...); len(lost) != 0 {
		t.Errorf("lost %v", lost)
	}
}

// TestUpgradeLosesNothing replaces the programs, and then the tables too, under traffic.
func TestUpgradeLosesNothing(t *testing.T) {
	n1, n2, a, b := twoNodes(t, 9000)
	f := startFlow(t, a, b, "10.0.0.2")
	f.wait(50)
	for _, n := range []*node{n1, n2} {
		for _, newLayout := range []bool{false, true} {
			before := n.filterID()
			if err := n.fabric.Close(); err != nil {
				t.Fatal(err)
			}
			old := n.dirs.BPF() + "/" + pipeline.Layout
			if newLayout {
				if err := os.Rename(old, n.dirs.BPF()+"/v0"); err != nil {
					t.Fatal(err)
				}
			} else {
				pins, err := os.ReadDir(old)
				if err != nil {
					t.Fatal(err)
				}
				for _, pin := range pins {
					if len(pin.Name()) > 13 && pin.Name()[12] == '-' {
						if err := os.Rename(old+"/"+pin.Name(), old+"/0123456789ab-"+pin.Name()[13:]); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			n.open()
			if n.filterID() != before {
				t.Error("New replaced a running program; only Apply knows what the new one's tables shall say")
			}
			f.wait(20)
			n.apply()
			if n.filterID() == before {
				t.Error("the old program still runs")
			}
			if left, _ := os.ReadDir(n.dirs.BPF() + "/v0"); len(left) != 0 {
				t.Error("the old layout's pins are still there")
			}
			f.wait(20)
		}
	}
	if lost := f.lost(); len(lost) != 0 {
		t.Errorf("lost %v", lost)
	}
}

// filterID is the ID of the program that the ports run.
func (n *node) filterID() uint32 {
	n.t.Helper()
	found, _, err := n.fabric.netlink.Filters(attachmentOf(n.fabric))
	if err != nil || len(found) != 1 {
		n.t.Fatalf("filters of the ports: %v, %v", found, err)
	}
	return found[0].ID
}

// TestRemapLosesNothing moves a's end of a link to and fro between two ports of b, and to another node.
func TestRemapLosesNothing(t *testing.T) {
	n, a, b := twoElements(t)
	n.plug(b, "eth1")
	b.do(func() {
		first, err := netlink.LinkByName("eth0")
		b.check(err, "find eth0")
		second, err := netlink.LinkByName("eth1")
		b.check(err, "find eth1")
		b.check(netlink.LinkSetHardwareAddr(second, first.Attrs().HardwareAddr), "set eth1's address")
	})
	n.port("b:eth1").MAC = n.port("b:eth0").MAC
	n.apply()
	b.must("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.eth1.rp_filter=0",
		"net.ipv4.conf.default.rp_filter=0")
	f := startFlow(t, a, b, "10.0.0.2")
	f.wait(50)
	bystander := n.port("b:eth0").Index
	for i := range 40 {
		to := fmt.Sprintf("b:eth%d", (i+1)%2)
		n.port("a:eth0").Local = portID("net/" + to)
		if changed := n.apply(); len(changed) != 1 {
			t.Errorf("one link was moved; changed: %q", changed)
		}
		f.wait(5)
	}
	if lost := f.lost(); len(lost) != 0 {
		t.Errorf("lost %v", lost)
	}
	c := n.counters()
	if c[portID("net/b:eth0")].TxPackets < 50 || c[portID("net/b:eth1")].TxPackets < 50 {
		t.Errorf("not both ports were used: %+v", c)
	}
	s, err := n.fabric.Observe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Ports {
		if p.ID == portID("net/b:eth0") && p.Index != bystander {
			t.Errorf("b:eth0 has index %d, had %d", p.Index, bystander)
		}
	}
}
