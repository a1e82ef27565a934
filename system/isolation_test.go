package system

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// TestTenantsAreIsolated proves on the example of two tenants with the same addresses that neither sees the other, and
// that the proof would notice.
func TestTenantsAreIsolated(t *testing.T) {
	text, err := os.ReadFile("../examples/two-tenants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Second router and second host of both stand on one node, so that their ports can be mixed up there.
	placed := strings.NewReplacer("routers: [r1, r2, r3]", "routers: {r1: , r2: {node: n1}, r3: }",
		"hosts: [h1, h2, h3]", "hosts: {h1: , h2: {node: n1}, h3: }", "r2: {bgp:",
		"r2: {node: n1, bgp:").Replace(string(text))
	p := up(t, 2)
	p.run("apply", "-f", file(t, placed))
	p.allWell("red", "blue")

	t.Run("every pair", func(t *testing.T) { everyPair(t, p.with(t)) })
	t.Run("broadcast and multicast", func(t *testing.T) { broadcastStays(t, p.with(t)) })
	t.Run("a mis-wired port is noticed", func(t *testing.T) { miswired(t, p.with(t)) })
}

// everyPair expects that check probes all pairs, both ways, in both families.
func everyPair(t *testing.T, p *platform) {
	for _, network := range []string{"red", "blue"} {
		var result model.CheckResult
		decode(t, p.run("check", network, "--mesh", "-o", "json"), &result)
		seen := map[string]bool{}
		for _, probe := range result.Probes {
			if !probe.OK || !probe.Reached || probe.Answered != "" {
				t.Errorf("%+v", probe)
			}
			family := "IPv6"
			if probe.Address.Is4() {
				family = "IPv4"
			}
			seen[probe.From+" "+probe.To+" "+family] = true
		}
		for _, from := range []string{"h1", "h2", "h3"} {
			for _, to := range []string{"h1", "h2", "h3"} {
				for _, family := range []string{"IPv4", "IPv6"} {
					if pair := network + "/" + from + " " + network + "/" + to + " " +
						family; from != to && !seen[pair] {
						t.Errorf("not probed: %s", pair)
					}
				}
			}
		}
	}
}

// marked is what the frames carry that must not be seen elsewhere.
var marked = []byte("this frame is red's own, and nobody else's")

// broadcastStays has a host of red send frames to all and to many, and looks for them on all of blue's devices.
func broadcastStays(t *testing.T, p *platform) {
	var sniffers []*sniffer
	var neighbour *sniffer
	for _, e := range p.all() {
		switch {
		case e.ID.Network == "blue":
			sniffers = append(sniffers, sniff(t, p, e))
		case e.ID.String() == "red/r1":
			neighbour = sniff(t, p, e)
		}
	}
	if len(sniffers) != 6 || neighbour == nil {
		t.Fatalf("%d elements of blue are listened in", len(sniffers))
	}
	kinds := [][]byte{
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x01, 0x00, 0x5e, 0x00, 0x00, 0x05}, // all; OSPF's
		// IPv6's; bridges'; a stranger's
		{0x33, 0x33, 0, 0, 0, 1}, {0x01, 0x80, 0xc2, 0, 0, 0}, {0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0xee},
	}
	for _, protocol := range []uint16{0x0800, 0x0806, 0x86dd, 0x88b5} { // IPv4, ARP, IPv6, local experiments
		for _, to := range kinds {
			inject(t, p, "red", "h1", to, protocol)
		}
	}
	p.await("red's own router to see the frames", func() bool { return neighbour.count() >= 4*4 },
		func() string { return fmt.Sprintf("it saw %d", neighbour.count()) })
	p.allWell("blue") // what was sent meanwhile has arrived by now
	for _, s := range sniffers {
		// On a busy machine who listens may be late.
		p.await("who listens to have seen anything, as else it proves nothing", func() bool { return s.frames() > 0 },
			func() string { return s.element.String() + " saw nothing at all" })
		if n := s.count(); n != 0 {
			t.Errorf("%s saw %d frames of red", s.element, n)
		}
	}
}

// sniffer counts all frames and the marked ones on all devices of an element.
type sniffer struct {
	element model.ID
	mu      sync.Mutex
	all     int
	marked  int
}

func (s *sniffer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marked
}

func (s *sniffer) frames() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

func sniff(t *testing.T, p *platform, e model.ElementView) *sniffer {
	t.Helper()
	s := &sniffer{element: e.ID}
	var fd int
	within(t, p.dirs.Node(e.Node).Namespace(e.ID), func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(order16(unix.ETH_P_ALL)))
		return err
	})
	// Reads end by themselves now and then, to see whether the test is over.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		t.Fatal(err)
	}
	over, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(over)
		<-ended
		unix.Close(fd)
	})
	go func() {
		defer close(ended)
		frame := make([]byte, 65536)
		for {
			select {
			case <-over:
				return
			default:
			}
			n, _, err := unix.Recvfrom(fd, frame, 0)
			if err != nil {
				continue
			}
			s.mu.Lock()
			s.all++
			if bytes.Contains(frame[:n], marked) {
				s.marked++
			}
			s.mu.Unlock()
		}
	}()
	return s
}

// order16 is a number in the network's order.
func order16(n uint16) uint16 { return n<<8 | n>>8 }

// inject sends one marked frame from an element's first interface.
func inject(t *testing.T, p *platform, network, element string, to []byte, protocol uint16) {
	t.Helper()
	v := p.elements(network)[element]
	ifc := v.Element.Interfaces[0]
	mac, err := net.ParseMAC(ifc.MAC)
	if err != nil {
		t.Fatal(err)
	}
	frame := append(append(append([]byte{}, to...), mac...), byte(protocol>>8), byte(protocol))
	if protocol == 0x8100 || protocol == 0x88a8 { // a VLAN's tag, before what the frame is
		frame = append(frame, 0, 7, 0x88, 0xb5)
	}
	frame = append(append(frame, marked...), make([]byte, 40)...)
	within(t, p.dirs.Node(v.Node).Namespace(v.ID), func() error {
		device, err := net.InterfaceByName(ifc.Name)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: device.Index, Protocol: order16(protocol)})
	})
}

// miswired crosses the cables of red's and blue's second hosts, and does so again whenever the agent puts them right:
// check must fail and name who answered. Then repair wins.
func miswired(t *testing.T, p *platform) {
	table := func(name string) *ebpf.Map {
		m, err := ebpf.LoadPinnedMap(p.dirs.Node("n1").BPF()+"/"+pipeline.Layout+"/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	ports, identities := table("ports"), table("identities")
	redRouter, redHost := p.slot(identities, "red/r2:h2"), p.slot(identities, "red/h2:r2")
	blueRouter, blueHost := p.slot(identities, "blue/r2:h2"), p.slot(identities, "blue/h2:r2")
	straight := map[uint32]uint32{redRouter: redHost, redHost: redRouter, blueRouter: blueHost, blueHost: blueRouter}
	cross := map[uint32]uint32{redRouter: blueHost, blueHost: redRouter, blueRouter: redHost, redHost: blueRouter}
	are := func(cables map[uint32]uint32) bool {
		for from, to := range cables {
			var e pipeline.Port
			if err := ports.Lookup(from, &e); err != nil {
				t.Fatal(err)
			}
			if pipeline.LinkOf(&e) != pipeline.NewLink(pipeline.Local, 0, to) {
				return false
			}
		}
		return true
	}
	if !are(straight) {
		t.Fatal("the ports are not joined as the test takes them to be")
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-over:
				tick.Stop()
				return
			case <-tick.C:
			}
			for from, to := range cross {
				var e pipeline.Port
				wanted := uint64(pipeline.NewLink(pipeline.Local, 0, to))
				if err := ports.Lookup(from, &e); err == nil && e.Link != wanted {
					e.Link = wanted
					ports.Put(from, &e) //nolint:errcheck // the await below sees it
				}
			}
		}
	}()
	uncross := sync.OnceFunc(func() { close(over); <-ended })
	defer uncross()
	p.await("the ports to be crossed", func() bool { return are(cross) }, func() string { return "they are not" })
	// All four remember where the others were.
	forget := func() {
		for _, id := range [][2]string{{"red", "r2"}, {"red", "h2"}, {"blue", "r2"}, {"blue", "h2"}} {
			sh(t, p.namespace(id[0], id[1]), "ip neigh flush all")
		}
	}
	forget()
	var out, stderr string
	var err error
	p.await("check to name who answered", func() bool {
		out, stderr, err = p.try("check", "red", "--mesh")
		return exitStatus(err) == 1 && strings.Contains(out, "blue/h2")
	}, func() string { return fmt.Sprintf("%v: %s%s", err, out, stderr) })
	for line := range strings.Lines(out) {
		if strings.Contains(line, "red/h1 ") && strings.Contains(line, "red/h3") && !strings.HasPrefix(line, "ok") {
			t.Errorf("check blames a pair that is all right: %s", line)
		}
	}
	uncross()
	p.await("the agent to uncross the ports", func() bool { return are(straight) },
		func() string { return "it does not" })
	forget()
	p.allWell("red", "blue")
}
