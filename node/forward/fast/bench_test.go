package fast_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/polyplane/polyplane/node/fib/internet"
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

// hooks has the routers use the driver's hook.
func (l *lab) hooks(on bool) {
	if l.hook = model.HookTC; on {
		l.hook = model.HookXDP
	}
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
	// BPF_F_XDP_HAS_FRAGS
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Flags: 1 << 5,
		Instructions: asm.Instructions{
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

func inFabric(hook bool) func(*lab) func() {
	return func(l *lab) func() {
		l.prepare(l.routerNames()...)
		l.hooks(hook)
		return func() {
			l.hooks(false)
			l.retire(l.routerIDs()...)
		}
	}
}

func guests(*lab) func() { return func() {} }

// companions has the node's kernel forward, in a way.
func companions(way model.Forwarding) func(*lab) func() {
	return func(l *lab) func() {
		planes := l.planes()
		l.change(planes, way, l.routerNames()...)
		return func() { l.change(planes, model.ForwardGuest) }
	}
}

// BenchmarkKernel compares what the node's kernel forwards for a router, in its companion, with what the router's own
// stack does: the same kernel, the same veths, and a look-up in the fabric's tables more.
func BenchmarkKernel(b *testing.B) {
	l := newChain(b, 1)
	l.quiet()
	l.measure(b, []setting{{"guest", guests, true}, {"router", companions(model.ForwardRouter), true},
		{"bridge", companions(model.ForwardBridge), true}, {"tc", inFabric(false), true}})
}

// BenchmarkPrepare takes the time until another way forwards for a router with two interfaces.
func BenchmarkPrepare(b *testing.B) {
	l := newChain(b, 1)
	planes := l.planes() // on the thread that is in the node's namespace
	for _, way := range []model.Forwarding{model.ForwardXDP, model.ForwardRouter, model.ForwardBridge} {
		b.Run(string(way), func(b *testing.B) {
			for b.Loop() {
				l.change(planes, way, "r1")
				b.StopTimer()
				l.change(planes, model.ForwardGuest)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkForwarding compares ways of forwarding 64-byte frames to 4,096 random destinations, with source, routers and
// sink on one core. POLYPLANE_XDP_BENCH names some of the settings, separated by commas.
func BenchmarkForwarding(b *testing.B) {
	settings := []setting{{"kernel", veths, false}, {"kernel-generic", veths, true}, {"guest", guests, true},
		{"tc", inFabric(false), true}, {"xdp", inFabric(true), false}, {"bare", bare, false}}
	for _, routers := range []int{1, 8} {
		b.Run(fmt.Sprint(routers), func(b *testing.B) {
			l := newChain(b, routers)
			l.quiet()
			l.measure(b, settings)
		})
	}
}

// BenchmarkFullTable compares one route with those of a full Internet table (a file that POLYPLANE_PREFIXES names, or
// such that look like them), to 4,096 of whose addresses frames are sent.
func BenchmarkFullTable(b *testing.B) {
	l := newChain(b, 1)
	l.quiet()
	v4, _ := internet.Generate(1, internet.FullIPv4, 1)
	if path := os.Getenv("POLYPLANE_PREFIXES"); path != "" {
		var err error
		if v4, _, err = internet.Read(path); err != nil {
			b.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 4096 {
		a := v4[random.IntN(len(v4))].Addr().As4()
		a[3] |= 1
		l.destinations = append(l.destinations, netip.AddrFrom4(a))
	}
	l.in("r1", "ip route add default via 10.0.1.2")
	l.measure(b, []setting{{"xdp", inFabric(true), false}})
	var batch strings.Builder
	for _, p := range v4 {
		fmt.Fprintf(&batch, "route replace %s via 10.0.1.2\n", p)
	}
	file := filepath.Join(b.TempDir(), "routes")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	l.in("r1", "ip -force -batch "+file)
	l.measure(b, []setting{{"xdp", inFabric(true), false}, {"kernel", veths, false}, {"kernel-generic", veths, true}})
}

// measure takes each setting five times, in turn.
func (l *lab) measure(b *testing.B, settings []setting) {
	chosen := os.Getenv("POLYPLANE_XDP_BENCH")
	rates := map[string][]float64{}
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
		slices.Sort(list)
		b.ReportMetric(list[len(list)/2]/1e6, name+"-Mp/s")
		b.Logf("%-14s %.2f Mp/s (%.2f…%.2f), %.0f ns", name, list[len(list)/2]/1e6, list[0]/1e6, list[len(list)-1]/1e6,
			1e9/list[len(list)/2])
	}
}

// veths has plain veths join the same namespaces, and frames take these instead.
func veths(l *lab) func() {
	l.direct = true
	return func() { l.direct = false }
}

// quiet gives the way of the frames what it needs: routes, and NAPI where frames are redirected to.
func (l *lab) quiet() {
	l.in("h2", "ethtool -K "+l.last()+" gro on")
	path := func(element string) string { return l.dirs.Namespace(id(element)) }
	join := func(a, b string, link int) {
		left, right := fmt.Sprintf("k%da", link), fmt.Sprintf("k%db", link)
		l.in(a, fmt.Sprintf("ip link add %s type veth peer name %s netns %s", left, right, path(b)))
		for element, end := range map[string]string{a: fmt.Sprintf("%s 1", left), b: fmt.Sprintf("%s 2", right)} {
			var device string
			var host int
			fmt.Sscan(end, &device, &host)
			l.in(element, fmt.Sprintf("ip addr add 172.16.%d.%d/24 dev %s; ip link set %s up; ethtool -K %s gro on",
				link, host, device, device, device))
		}
	}
	for i := range l.routers + 1 {
		join(l.name(i), l.name(i+1), i)
	}
	for i := range l.routers {
		l.in(l.name(i+1), fmt.Sprintf("ip route replace 10.65.0.0/20 via 172.16.%d.2; ping -c2 -i0.1 -W10 172.16.%d.2",
			i+1, i+1))
	}
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
	before := netdev.Ref{Namespace: l.home, Name: l.port("h2", l.last())}
	mac := func(element, ifc string) net.HardwareAddr {
		m, _ := net.ParseMAC(model.MAC(model.PortID{ID: id(element), Interface: ifc}))
		return m
	}
	headers := frame.Headers{Kind: frame.IPv4, SourceMAC: mac("h1", "r1"), DestMAC: mac("r1", "h1"),
		Source: netip.MustParseAddr("10.0.0.2")}
	destinations := source.Destinations(netip.MustParseAddr("10.64.0.0"), 4096)
	if l.direct {
		from.Name, to.Name = "k0a", fmt.Sprintf("k%db", l.routers)
		before = netdev.Ref{Namespace: l.dirs.Namespace(id(l.last())), Name: fmt.Sprintf("k%da", l.routers)}
		headers.SourceMAC, headers.DestMAC, headers.Source = l.address("h1", "k0a"), l.address("r1", "k0b"),
			netip.MustParseAddr("172.16.0.1")
		destinations = source.Destinations(netip.MustParseAddr("10.65.0.0"), 4096)
	}
	if len(l.destinations) > 0 {
		destinations = l.destinations
	}
	bench, err := trial.Open(trial.Options{Path: trial.Path{From: from, To: to, Before: before},
		Placement: trial.Placement{Source: 1},
		TimeEvery: 256, CheckEvery: 256, Generic: generic,
		Streams: []source.Stream{{Headers: headers, Sizes: frame.Fixed(64), Destinations: destinations}}})
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

// address is a device's.
func (l *lab) address(element, device string) net.HardwareAddr {
	l.Helper()
	a, err := net.ParseMAC(l.in(element, "ip -o link show dev "+device+" | sed 's/.*ether \\([^ ]*\\).*/\\1/'"))
	if err != nil {
		l.Fatal(err)
	}
	return a
}
