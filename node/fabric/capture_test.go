package fabric

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"
)

// capturing is a capture that runs until its packets are asked for.
type capturing struct {
	cancel context.CancelFunc
	file   io.ReadCloser
	done   chan []captured

	mu    sync.Mutex
	all   []captured // so far
	stats chan pcapgo.NgInterfaceStatistics
}

type captured struct {
	data     []byte
	info     gopacket.CaptureInfo
	outbound bool
}

func (n *node) capture(t testing.TB, port string) *capturing { return n.captureSnap(t, port, 0) }

func (n *node) captureSnap(t testing.TB, port string, snaplen int) *capturing {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	file, err := n.fabric.Capture(ctx, portID("net/"+port), snaplen)
	if err != nil {
		t.Fatal(err)
	}
	c := &capturing{cancel: cancel, file: file, done: make(chan []captured, 1),
		stats: make(chan pcapgo.NgInterfaceStatistics, 1)}
	t.Cleanup(func() { cancel(); file.Close() })
	go func() {
		defer func() { c.done <- c.all }()
		r, err := pcapgo.NewNgReader(file, pcapgo.NgReaderOptions{})
		if err != nil {
			t.Errorf("read the capture: %v", err)
			return
		}
		for {
			data, info, options, err := r.ReadPacketDataWithOptions()
			if err != nil {
				if err != io.EOF {
					t.Errorf("read the capture: %v", err)
				}
				i, err := r.Interface(0)
				if err != nil || i.Name != "net/"+port {
					t.Errorf("the capture's interface is %q, %v", i.Name, err)
				}
				c.stats <- i.Statistics
				return
			}
			c.mu.Lock()
			c.all = append(c.all, captured{data, info, options.Flags != nil &&
				options.Flags.Direction == pcapgo.NgEpbFlagDirectionOutbound})
			c.mu.Unlock()
		}
	}()
	return c
}

// await returns when the capture has enough, or after a while.
func (c *capturing) await(enough func(all []captured) bool) {
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		is := enough(c.all)
		c.mu.Unlock()
		if is {
			return
		}
	}
}

// packets ends the capture.
func (c *capturing) packets(t testing.TB) []captured {
	t.Helper()
	c.cancel()
	all := <-c.done
	c.file.Close()
	return all
}

func TestCapture(t *testing.T) {
	n, a, _ := twoElements(t)
	a.ping(t, "10.0.0.2") // addresses are resolved
	slot := n.fabric.slots[portID("net/a:eth0")]
	if n.fabric.pipe.Ports[slot].Snap != 0 {
		t.Error("frames are copied though nobody asked")
	}
	start := time.Now()
	whole, short, far := n.capture(t, "a:eth0"), n.captureSnap(t, "a:eth0", 34), n.capture(t, "b:eth0")
	before := n.counters()[portID("net/a:eth0")]
	a.must("ping", "-c", "5", "-i", "0.01", "-s", "100", "10.0.0.2")
	after := n.counters()[portID("net/a:eth0")]
	if after.RxPackets-before.RxPackets < 5 {
		t.Fatalf("counters: %+v, %+v", before, after)
	}
	cut := short.packets(t)
	n.checkEchoes(t, cut, 34, start, true)
	n.checkEchoes(t, whole.packets(t), 142, start, true)
	n.checkEchoes(t, far.packets(t), 142, start, false)
	if s := <-whole.stats; s.PacketsDropped != 0 || s.PacketsReceived < 10 {
		t.Errorf("statistics: %+v", s)
	}
	if n.fabric.pipe.Ports[slot].Snap != 0 || n.fabric.captures.ring != nil {
		t.Error("the captures have ended, and frames are still copied")
	}
}

// TestCaptureHasAllThatPassedBeforeItsEnd ends a capture while its frames are still in the ring.
func TestCaptureHasAllThatPassedBeforeItsEnd(t *testing.T) {
	n, a, _ := twoElements(t)
	a.ping(t, "10.0.0.2") // addresses are resolved
	c, start := n.capture(t, "a:eth0"), time.Now()
	n.fabric.captures.mu.Lock() // so none is distributed
	a.must("ping", "-c", "5", "-i", "0.01", "-s", "100", "10.0.0.2")
	c.cancel()
	time.Sleep(10 * time.Millisecond) // the end waits as well, most of the time
	n.fabric.captures.mu.Unlock()
	n.checkEchoes(t, c.packets(t), 142, start, true)
}

// checkEchoes finds the five echo requests, and the five replies in the other direction.
func (n *node) checkEchoes(t *testing.T, all []captured, length int, start time.Time, requestsOut bool) {
	t.Helper()
	var requests, replies int
	for i, p := range all {
		if len(p.data) < 34 || p.data[12] != 8 || p.data[13] != 0 || p.data[23] != 1 {
			continue // not ICMP
		}
		if len(p.data) != length || p.info.Length != 142 {
			t.Errorf("packet %d has %d of %d bytes", i, len(p.data), p.info.Length)
		}
		if p.info.Timestamp.Before(start.Add(-time.Second)) || p.info.Timestamp.After(time.Now().Add(time.Second)) {
			t.Errorf("packet %d came at %v", i, p.info.Timestamp)
		}
		request := p.data[29] == 1 // from 10.0.0.1
		if p.outbound != (request == requestsOut) {
			t.Errorf("packet %d has the wrong direction", i)
		}
		if request {
			requests++
		} else {
			replies++
		}
	}
	if requests != 5 || replies != 5 {
		t.Errorf("%d requests and %d replies in %d packets", requests, replies, len(all))
	}
}

// TestCaptureCountsWhatItLoses has a reader that does not read.
func TestCaptureCountsWhatItLoses(t *testing.T) {
	n, a, _ := twoElements(t)
	a.ping(t, "10.0.0.2")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	file, err := n.fabric.Capture(ctx, portID("net/a:eth0"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before := n.counters()[portID("net/a:eth0")]
	a.must("ping", "-q", "-c", "2000", "-f", "-s", "4000", "10.0.0.2")
	after := n.counters()[portID("net/a:eth0")]
	passed := after.RxPackets - before.RxPackets + after.TxPackets - before.TxPackets
	r, err := pcapgo.NewNgReader(file, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got, dropped uint64
	for {
		_, _, options, err := r.ReadPacketDataWithOptions()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if options.DropCount != nil {
			dropped += *options.DropCount
		}
		if got++; got == 100 {
			cancel()
		}
	}
	i, err := r.Interface(0)
	if err != nil {
		t.Fatal(err)
	}
	if got >= passed || i.Statistics.PacketsDropped == 0 || dropped > i.Statistics.PacketsDropped {
		t.Errorf("%d passed, %d captured, %d said to be lost on the way, statistics %+v", passed, got,
			dropped, i.Statistics)
	}
	if drops := n.counters()[portID("net/a:eth0")].Drops; len(drops) != 0 {
		t.Errorf("what a capture missed counts as dropped: %v", drops)
	}
}

func TestCaptureEndsWithItsPort(t *testing.T) {
	n, _, _ := twoElements(t)
	c := n.capture(t, "a:eth0")
	n.state.Ports = n.state.Ports[1:]
	n.apply()
	<-c.done
	if _, err := n.fabric.Capture(context.Background(), portID("net/a:eth0"), 0); err == nil ||
		!strings.Contains(err.Error(), "net/a:eth0") {
		t.Errorf("capture at no port: %v", err)
	}
}

// TestCaptureIsReadableByOthers lets tcpdump read a file.
func TestCaptureIsReadableByOthers(t *testing.T) {
	n, a, _ := twoElements(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	file, err := n.fabric.Capture(ctx, portID("net/a:eth0"), 0)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.pcapng")
	copied := make(chan error)
	go func() {
		out, err := os.Create(path)
		if err == nil {
			_, err = io.Copy(out, file)
			out.Close()
		}
		copied <- err
	}()
	a.ping(t, "10.0.0.2")
	cancel()
	if err := <-copied; err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tcpdump", "-n", "-r", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "IP 10.0.0.1 > 10.0.0.2: ICMP echo request") {
		t.Errorf("tcpdump: %v\n%s", err, out)
	}
}
