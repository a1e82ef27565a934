package xdp_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/source"
	"github.com/polyplane/polyplane/measure/trial"
	"github.com/polyplane/polyplane/model"
)

// setting is one way of forwarding that is measured.
type setting struct {
	name    string
	prepare func(l *lab) (undo func())
	generic bool // the sink's hook: what redirect_peer delivers passes no driver
}

func (l *lab) port(element, ifc string) string {
	return l.dirs.PortDevice(model.PortID{ID: id(element), Interface: ifc})
}

// hooks sets the driver's hook of the hosts' ports.
func (l *lab) hooks(on bool) {
	l.xdp = on
	l.apply()
}

// bare has a program that looks nothing up redirect what the first host sends to the last one.
func bare(l *lab) func() {
	out, err := net.InterfaceByName(l.port("h2", l.last()))
	if err != nil {
		l.Fatal(err)
	}
	in, err := net.InterfaceByName(l.port("h1", "r1"))
	if err != nil {
		l.Fatal(err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Flags: 1 << 5, Instructions: asm.Instructions{ // BPF_F_XDP_HAS_FRAGS
		asm.Mov.Imm(asm.R1, int32(out.Index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return()}})
	if err != nil {
		l.Fatal(err)
	}
	at, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: in.Index, Flags: link.XDPDriverMode})
	if err != nil {
		l.Fatal(err)
	}
	return func() { at.Close(); p.Close() }
}

func fast(hook bool) func(*lab) func() {
	return func(l *lab) func() {
		l.prepare(l.routerNames()...)
		l.hooks(hook)
		return func() {
			l.hooks(false)
			if err := l.plane.Retire(ctx, l.routerIDs()); err != nil {
				l.Fatal(err)
			}
		}
	}
}

func guests(*lab) func() { return func() {} }

// BenchmarkForwarding compares ways of forwarding 64-byte frames to 4,096 random destinations, with source, routers and sink
// on one core. POLYPLANE_XDP_BENCH names some of the settings, separated by commas.
func BenchmarkForwarding(b *testing.B) {
	settings := []setting{{"guest", guests, true}, {"tc", fast(false), true}, {"xdp", fast(true), false}, {"bare", bare, false}}
	chosen := os.Getenv("POLYPLANE_XDP_BENCH")
	for _, routers := range []int{1, 8} {
		b.Run(fmt.Sprint(routers), func(b *testing.B) {
			rates := map[string][]float64{}
			l := newChain(b, routers)
			l.quiet()
			for range 5 {
				for _, s := range settings {
					if chosen != "" && !strings.Contains(","+chosen+",", ","+s.name+",") {
						continue
					}
					undo := s.prepare(l)
					rates[s.name] = append(rates[s.name], l.trial(s.generic).Forwarded)
					undo()
				}
			}
			for name, list := range rates {
				sort.Float64s(list)
				b.ReportMetric(list[len(list)/2]/1e6, name+"-Mp/s")
				b.Logf("%-8s %.2f Mp/s (%.2f…%.2f), %.0f ns", name, list[len(list)/2]/1e6, list[0]/1e6, list[len(list)-1]/1e6, 1e9/list[len(list)/2])
			}
		})
	}
}

// quiet gives the way of the frames what it needs: routes, and NAPI where frames are redirected to.
func (l *lab) quiet() {
	l.in("h2", "ethtool -K "+l.last()+" gro on")
	for i := range l.routers {
		far := fmt.Sprintf("10.0.%d.2", i+1)
		l.in(fmt.Sprintf("r%d", i+1), "ip route replace 10.64.0.0/20 via "+far)
	}
	l.in("h1", "ping -c3 -i0.1 -W10 10.0."+fmt.Sprint(l.routers)+".2")
}

func (l *lab) trial(generic bool) trial.Result {
	l.Helper()
	from := netdev.Ref{Namespace: l.dirs.Namespace(id("h1")), Name: "r1"}
	to := netdev.Ref{Namespace: l.dirs.Namespace(id("h2")), Name: l.last()}
	mac := func(element, ifc string) net.HardwareAddr {
		m, _ := net.ParseMAC(model.MAC(model.PortID{ID: id(element), Interface: ifc}))
		return m
	}
	bench, err := trial.Open(trial.Options{Path: trial.Path{From: from, To: to, Before: netdev.Ref{Namespace: l.home, Name: l.port("h2", l.last())}},
		Placement: trial.Placement{Source: 1}, TimeEvery: 256, CheckEvery: 256, Generic: generic, Streams: []source.Stream{{
			Headers: frame.Headers{Kind: frame.IPv4, SourceMAC: mac("h1", "r1"), DestMAC: mac("r1", "h1"), Source: netip.MustParseAddr("10.0.0.2")},
			Sizes:   frame.Fixed(64), Destinations: source.Destinations(netip.MustParseAddr("10.64.0.0"), 4096),
		}}})
	if err != nil {
		l.Fatal(err)
	}
	defer bench.Close()
	r, err := bench.Run(ctx, trial.Load{Duration: time.Second})
	if err != nil {
		l.Fatal(err)
	}
	if r.Received == 0 {
		l.Fatal("nothing arrived")
	}
	return r
}
