package fabric

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/system/attack"
)

// watched is a router's lab with copies of what passes the link between a and the router going to an element ids, on
// the same node or on another.
type watchedLab struct {
	*routed
	ids *element
	far *node // nil: on the same node
}

func newWatched(t testing.TB, remote bool) *watchedLab {
	t.Helper()
	l := &watchedLab{routed: newRouted(t), ids: newElement(t, "ids")}
	to := l.node
	if remote {
		l.fabric.Close() // it gets an address in the underlay
		l.under = netip.MustParseAddr("192.0.2.1")
		l.open()
		l.far = newNode(t, "192.0.2.2")
		underlay(t, l.node, l.far, 1600)
		l.state.Peers = []model.Peer{{Name: "far", Address: l.far.under}}
		l.far.state.Peers = []model.Peer{{Name: "near", Address: l.under}}
		to = l.far
	}
	p := to.plug(l.ids, "mirror0")
	p.Copies, p.MAC = true, nil
	if remote {
		p.Tunnel = &Tunnel{VNI: 99, Peer: l.under}
		l.far.apply()
	}
	return l
}

func (l *watchedLab) mirror(bandwidth model.Bandwidth) {
	c := &Copy{Local: portID("net/ids:mirror0"), Bandwidth: bandwidth}
	if l.far != nil {
		c = &Copy{Tunnel: &Tunnel{VNI: 99, Peer: l.far.under}, Bandwidth: bandwidth}
	}
	if bandwidth == 0 {
		c = nil
	}
	l.port("r:left").Copy = c
	l.apply()
}

// copies counts the flows' packets, by the second byte of where they go and sequence number, that arrive at ids until
// the flows have ended.
func (l *watchedLab) copies(stop <-chan struct{}) <-chan [2]map[uint32]int {
	got := make(chan [2]map[uint32]int, 1)
	var fd int
	l.ids.do(func() {
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0x0300)
		l.ids.check(err, "open a packet socket")
		l.ids.check(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20), "set its buffer")
		l.ids.check(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 300000}),
			"bound the wait")
	})
	go func() {
		defer unix.Close(fd)
		all := [2]map[uint32]int{{}, {}}
		frame := make([]byte, 70000)
		for ended := false; ; {
			n, _, err := unix.Recvfrom(fd, frame, 0)
			if err != nil {
				if ended {
					got <- all
					return
				}
				select {
				case <-stop:
					ended = true
				default:
				}
				continue
			}
			if at := 14 + 20 + 8; n > at+4 && frame[12] == 8 && frame[23] == unix.IPPROTO_UDP &&
				binary.BigEndian.Uint16(frame[36:]) == flowPort {
				all[frame[31]&1][binary.BigEndian.Uint32(frame[at:])]++
			}
		}
	}()
	return got
}

// TestMirror has what passes a link copied, whoever forwards and with and without a queue, to this node and another,
// changed under a flow: the flow loses nothing, each of its packets is copied once while there is a mirror, both ways,
// and the link's own counters are as without it. What the element sends by that interface goes nowhere.
func TestMirror(t *testing.T) {
	t.Parallel()
	for _, remote := range []bool{false, true} {
		for _, how := range []struct {
			name      string
			fast      bool
			bandwidth model.Bandwidth
		}{{"guest", false, 0}, {"fast", true, 0}, {"queues", true, 100e6}, {"guest's queues", false, 100e6}} {
			t.Run(map[bool]string{false: "here, ", true: "elsewhere, "}[remote]+how.name, func(t *testing.T) {
				t.Parallel()
				l := newWatched(t, remote)
				l.port("r:left").Shape.Bandwidth, l.port("r:right").Shape.Bandwidth = how.bandwidth, how.bandwidth
				l.steer(how.fast)
				l.a.ping(t, "10.1.0.1")
				stop := make(chan struct{})
				copies := l.copies(stop)
				there, back := startFlow(t, l.a, l.b, "10.1.0.1"), startFlow(t, l.b, l.a, "10.0.0.1")
				there.wait(50)
				flows := [2]*flow{back, there}
				var windows [2][][2]uint32 // in which each packet must be copied
				for i := range 2 {
					l.mirror(50e6)
					there.wait(20) // the way to the other node gets known
					var begin [2]uint32
					for k, f := range flows {
						begin[k] = f.sent.Load()
					}
					there.wait(150)
					for k, f := range flows {
						// what is under way apart
						windows[k] = append(windows[k], [2]uint32{begin[k], f.sent.Load() - 20})
					}
					if i == 0 {
						l.mirror(100e6) // the bandwidth alone
						l.restart()
						l.mirror(0)
						there.wait(50)
					}
				}
				if again := l.apply(); len(again) != 0 {
					t.Errorf("applied again, it changes %q", again)
				}
				for name, f := range map[string]*flow{"there": there, "back": back} {
					if lost := f.lost(); len(lost) != 0 {
						t.Errorf("%s: lost %v", name, lost)
					}
				}
				close(stop)
				got := <-copies
				total := 0
				for k, all := range got {
					missing := 0
					for _, w := range windows[k] {
						for seq := w[0]; seq < w[1]; seq++ {
							if all[seq] == 0 {
								missing++
							}
						}
					}
					delete(all, last)
					for seq, n := range all {
						if total++; n > 1 {
							t.Errorf("packet %d was copied %d times", seq, n)
						}
					}
					if missing != 0 {
						t.Errorf("way %d: %d packets of %v were not copied", k, missing, windows[k])
					}
				}
				c := l.counters()
				if left := c[portID("net/r:left")]; left.Uncopied != 0 || left.Copied < uint64(total/2) {
					t.Errorf("told are %d packets copied and %d not", left.Copied, left.Uncopied)
				}
				if a, r := c[portID("net/a:eth0")], c[portID("net/r:left")]; a.RxPackets != r.TxPackets ||
					a.TxPackets != r.RxPackets {
					t.Errorf("the link's ends count %+v and %+v", a, r)
				}
				// What ids sends there, also as somebody else, goes nowhere.
				before := l.counters()[portID("net/a:eth0")]
				sendTagged(l.ids, "mirror0", "forged", nil)
				home := l.node
				if remote {
					home = l.far
				}
				if n := home.counters()[portID("net/ids:mirror0")].Drops[ByCopies]; n == 0 {
					t.Error("what the copies' interface sends is not dropped")
				}
				if after := l.counters()[portID("net/a:eth0")]; after.TxPackets != before.TxPackets {
					t.Error("something came to the link")
				}
				l.mirror(0)
				l.apply()
				if out := l.must("ip", "-o", "link"); bytes.Contains([]byte(out), []byte(l.fabric.mirrorAlias())) {
					t.Errorf("the mirror's devices are still there:\n%s", out)
				}
			})
		}
	}
}

// TestMirrorStarvesNobody has TCP pass a link whose mirror has less than a hundredth of what passes: TCP's segments
// stay large, what is beyond the mirror's bandwidth is told as not copied, and what is copied keeps to it.
func TestMirrorStarvesNobody(t *testing.T) {
	attack.Tell(t, "a mirror of a link that is flooded",
		"what passes the link is not held up")
	for _, remote := range []bool{false, true} {
		l := newWatched(t, remote)
		l.steer(true)
		with, without := 0.0, 0.0
		for try := 0; try == 0 || with < without/2 && try < 5; try++ { // other work on the machine may slow one of them down
			l.mirror(0)
			without = throughput(t, l.a, l.b, "10.1.0.1", "-t", "1")
			l.mirror(10e6)
			with = throughput(t, l.a, l.b, "10.1.0.1", "-t", "1")
		}
		c := l.counters()[portID("net/r:left")]
		t.Logf("elsewhere %v: TCP %.2f Gb/s without a mirror, %.2f with one of 10 Mbit (ratio %.2f); %d packets "+
			"copied, %d not", remote,
			without/1e9, with/1e9, with/without, c.Copied, c.Uncopied)
		if c.Uncopied == 0 || c.Copied == 0 {
			t.Errorf("told are %d packets copied and %d not", c.Copied, c.Uncopied)
		}
		if with < without/2 {
			t.Errorf("TCP got %.2f of what it gets without the mirror", with/without)
		}
	}
}

// TestMirrorFlagsSurvive has a capture come and go beside a mirror.
func TestMirrorFlagsSurvive(t *testing.T) {
	t.Parallel()
	l := newWatched(t, false)
	l.mirror(1e6)
	slot := l.fabric.slots[portID("net/r:left")]
	seen := l.capture(t, "r:left")
	l.a.ping(t, "10.1.0.1")
	if n := len(seen.packets(t)); n == 0 {
		t.Error("a capture beside a mirror shows nothing")
	}
	if l.fabric.pipe.Ports[slot].Snap != pipeline.Copied {
		t.Errorf("after a capture the port's word is %#x", l.fabric.pipe.Ports[slot].Snap)
	}
}
