package system

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec"
)

// forwardings are all the ways in which a router's packets can be forwarded.
var forwardings = []model.Forwarding{model.ForwardGuest, model.ForwardXDP, model.ForwardRouter, model.ForwardBridge}

// routed are the examples with a routing protocol each: OSPF with OSPFv3, OSPFv3 without any IPv4, BGP, IS-IS. Packets
// go from the first host to the second by so many routers.
var routed = []struct {
	network, from, to string
	routers           uint64
	v6                bool
}{{"ospf-square", "h1", "h3", 3, false}, {"ipv6-only", "h1", "h3", 3, true}, {"bgp-two-ases", "alice", "bob", 2, true},
	{"isis", "h1", "h3", 3, false}}

// neighbours is what routers say of their neighbours: how often each has come and gone, and for how many seconds
// OSPFv3, which counts nothing, has had each.
func (p *platform) neighbours(network string) (counts string, seconds map[string]int) {
	p.t.Helper()
	counted := regexp.MustCompile(`(?m)^.*(State is Full/\S* \d+ state changes|Adjacency flaps: \d+|Connections established \d+; dropped \d+)`)
	held := regexp.MustCompile(`Neighbor (\S+)\n(?:.*\n){2,3}\s+State Full for a duration of (?:(\d+)d)?(\d\d):(\d\d):(\d\d)`)
	seconds = map[string]int{}
	for name, e := range p.elements(network) {
		if e.Element.Kind != model.Router {
			continue
		}
		// Of a daemon that does not run it only says so.
		out := p.run("exec", network+"/"+name, "--", "sh", "-c", `for s in "ip ospf neighbor detail" "ipv6 ospf6 neighbor detail" \
			"isis neighbor detail" "bgp neighbors"; do vtysh -c "show $s"; done; true`)
		for _, m := range counted.FindAllStringSubmatch(out, -1) {
			counts += name + ": " + m[1] + "\n"
		}
		for _, m := range held.FindAllStringSubmatch(out, -1) {
			var n [4]int
			for i := range n {
				n[i], _ = strconv.Atoi(m[2+i]) // there are no days mostly
			}
			seconds[name+" "+m[1]] = ((n[0]*24+n[1])*60+n[2])*60 + n[3]
		}
	}
	lines := strings.SplitAfter(counts, "\n")
	slices.Sort(lines)
	return strings.Join(lines, ""), seconds
}

// TestForwardings runs the examples with routing protocols in every way of forwarding: each passes what the example
// tests, and then the way is changed through all of them, round and round, under iperf3, ping and flows of numbered
// packets. Nothing is lost, and no neighbour.
func TestForwardings(t *testing.T) {
	p := up(t, 2)
	files := map[model.Forwarding]string{}
	for _, way := range forwardings {
		var all []string
		for _, e := range routed {
			all = append(all, forwardedText(t, e.network, way))
		}
		files[way] = file(t, strings.Join(all, "---\n"))
	}
	networks, err := spec.Parse("", []byte(read(t, files[model.ForwardGuest])), spec.Options{})
	if err != nil || len(networks) != len(routed) {
		t.Fatalf("%d networks: %v", len(networks), err)
	}
	for _, way := range forwardings {
		t.Run(string(way), func(t *testing.T) {
			p := p.with(t)
			p.run("apply", "-f", files[way])
			var fast []*fastFlow
			for i, n := range networks {
				p.run("check", n.Name, "--wait", "3m")
				for _, e := range n.Elements {
					if e.Kind == model.Router {
						compareRoutes(t, p, n.Name, e.Name)
					}
				}
				r := routed[i]
				to := addressOf(p, r.network, r.to, r.v6)
				p.shows(r.network, r.from, to, r.routers+1)
				if way != model.ForwardGuest {
					fast = append(fast, p.fastFlow(r.network, r.from, r.to, to, r.routers))
				}
			}
			for _, f := range fast {
				f.isFast(way)
			}
		})
	}

	t.Run("changed under traffic", func(t *testing.T) {
		p := p.with(t)
		before, began := map[string]string{}, time.Now()
		var flows []*flow
		for _, r := range routed {
			before[r.network], _ = p.neighbours(r.network)
			each := uint64(1)
			if r.network == "ospf-square" {
				each = 10
			}
			flows = append(flows, p.flowBetween(p.namespace(r.network, r.from), p.namespace(r.network, r.to),
				addressOf(p, r.network, r.to, r.v6), 0, each))
		}
		there := addressOf(p, "ospf-square", "h3", false)
		h1, h3 := p.namespace("ospf-square", "h1"), p.namespace("ospf-square", "h3")
		ping := start(t, h1, "ping", "-i0.01", there)
		server := start(t, h3, "iperf3", "-s", "-1")
		p.await("iperf3's server", func() bool { return holds(h3, "ss -lnt | grep -q :5201") },
			func() string { return server.said.String() })
		segments := p.tcpSegments(h1)
		client := start(t, h1, "iperf3", "-c", there, "-t", "86400", "-b", "20M", "-J")
		reached := func() {
			for _, f := range flows {
				f.reached(f.sent.Load() + 100*f.each)
			}
		}
		for range 2 {
			for _, way := range forwardings {
				p.run("apply", "-f", files[way])
				for _, r := range routed {
					for name, e := range p.elements(r.network) {
						if e.Element.Kind == model.Router && e.Element.Forwarding != way {
							t.Errorf("%s/%s: forwarding is %s, not %s", r.network, name, e.Element.Forwarding, way)
						}
					}
				}
				reached()
				// One router at a time, beside others that forward otherwise.
				p.run("set", "ospf-square/r3", "forwarding="+string(forwardings[0]))
				p.run("set", "isis/r2", "forwarding="+string(forwardings[len(forwardings)-1]))
				reached()
			}
		}
		for i, f := range flows {
			if sent, lost, duplicated := f.stop(); lost+duplicated != 0 {
				t.Errorf("%s: of %d packets %d were lost and %d came twice", routed[i].network, sent, lost, duplicated)
			}
		}
		ping.interrupt()
		if out := ping.said.String(); !strings.Contains(out, ", 0% packet loss") || strings.Contains(out, "DUP") ||
			strings.Contains(out, "Redirect") {
			t.Errorf("ping says\n%s", out[max(0, len(out)-500):])
		}
		client.interrupt()
		var tcp struct {
			Intervals []struct{ Sum struct{ Bytes float64 } }
			End       struct {
				Sent struct {
					Bytes       float64
					Retransmits int
				} `json:"sum_sent"`
			}
		}
		if err := json.Unmarshal([]byte(client.said.String()), &tcp); err != nil || tcp.End.Sent.Bytes < 1e6 {
			t.Errorf("iperf3 says %v\n%s", err, client.said.String())
		}
		for i, interval := range tcp.Intervals {
			if interval.Sum.Bytes == 0 && i < len(tcp.Intervals)-1 {
				t.Errorf("in second %d of %d the TCP connection stood still", i, len(tcp.Intervals))
			}
		}
		// What is sent again though it had come, the receiver reports (RFC 2883). A busy machine has many such.
		now := p.tcpSegments(h1)
		if again, needless := now[0]-segments[0], now[1]-segments[1]; again > needless {
			t.Errorf("TCP sent %d segments again, and only %d of them had come", again, needless)
		}
		t.Logf("TCP: %.0f bytes, %d retransmissions in %d s", tcp.End.Sent.Bytes,
			tcp.End.Sent.Retransmits, len(tcp.Intervals))
		for _, r := range routed {
			counts, seconds := p.neighbours(r.network)
			if counts != before[r.network] {
				t.Errorf("%s: neighbours were\n%s\nand are\n%s", r.network, before[r.network], counts)
			}
			for neighbour, s := range seconds {
				if s+1 < int(time.Since(began).Seconds()) {
					t.Errorf("%s: neighbour %s has been one for %d s", r.network, neighbour, s)
				}
			}
			if counts == "" && len(seconds) == 0 {
				t.Errorf("%s: no neighbours", r.network)
			}
		}
	})
}

// tcpSegments are what a namespace's TCP has sent again, and what its peers said had come twice.
func (p *platform) tcpSegments(namespace string) (n [2]int) {
	p.t.Helper()
	for i, name := range []string{"TcpRetransSegs", "TcpExtTCPDSACKRecvSegs"} {
		f := strings.Fields(in(p.t, namespace, "nstat", "-asz", name))
		at := slices.Index(f, name)
		if at < 0 || at+1 >= len(f) {
			p.t.Fatalf("nstat says nothing of %s: %v", name, f)
		}
		n[i], _ = strconv.Atoi(f[at+1])
	}
	return n
}

// shows has traceroute show every router on the way, each by one of its own addresses.
func (p *platform) shows(network, from, to string, hops uint64) {
	p.t.Helper()
	elements := p.elements(network)
	var way, names []string
	// A router that has just said often that there is no way says no more for a second (icmp_ratelimit).
	p.await(fmt.Sprintf("%s: the way from %s to %s to be shown", network, from, to), func() bool {
		way, names = p.route(network, from, to), nil
		for _, a := range way {
			if name := owner(elements, a); name != "" {
				names = append(names, name)
			}
		}
		return len(way) == int(hops) && len(names) == len(way) && names[len(names)-1] == owner(elements, to)
	}, func() string { return fmt.Sprintf("it is %v: %v", way, names) })
}

// fastFlow is a flow of which the fast path takes at least 99 of 100 packets at each router.
type fastFlow struct {
	*flow
	network               string
	routers, first, count uint64
	punted                map[string]uint64
	companions            uint64 // packets that the kernel forwarded in companions
}

func (p *platform) fastFlow(network, from, to, address string, routers uint64) *fastFlow {
	p.t.Helper()
	f := &fastFlow{flow: p.flow(network, from, to, address, 0), network: network, routers: routers}
	f.count, f.punted = p.fast(network)
	f.companions = p.inCompanions(network)
	f.first = f.sent.Load()
	return f
}

// inCompanions is what the kernel counted as forwarded in the companions of a network's routers.
func (p *platform) inCompanions(network string) (n uint64) {
	p.t.Helper()
	for _, e := range p.elements(network) {
		way := e.Element.Forwarding
		if e.Element.Kind != model.Router || way != model.ForwardRouter && way != model.ForwardBridge {
			continue
		}
		for line := range strings.Lines(in(p.t, p.dirs.Node(e.Node).Companion(e.ID, way), "nstat", "-asz",
			"IpForwDatagrams", "Ip6OutForwDatagrams")) {
			if f := strings.Fields(line); len(f) > 1 && f[0] != "#kernel" {
				k, err := strconv.ParseUint(f[1], 10, 64)
				if err != nil {
					p.t.Fatal(line)
				}
				n += k
			}
		}
	}
	return n
}

// isFast asserts it by the fast path's own counters, and in a companion by the kernel's there, and that nothing was
// lost.
func (f *fastFlow) isFast(way model.Forwarding) {
	f.t.Helper()
	f.reached(f.first + 1000)
	sent, lost, duplicated := f.stop()
	if lost+duplicated != 0 {
		f.t.Errorf("%s: of %d packets %d were lost and %d came twice", f.network, sent, lost, duplicated)
	}
	// The counters are told once a second.
	var packets uint64
	var punted map[string]uint64
	f.p.await("the fast path's counters", func() bool {
		packets, punted = f.p.fast(f.network)
		return packets-f.count >= f.routers*(sent-f.first)*99/100
	}, func() string {
		return fmt.Sprintf("%s: %d of %d × %d packets, punted %v, before %v", f.network, packets-f.count, f.routers,
			sent-f.first, punted, f.punted)
	})
	if n := f.p.inCompanions(f.network) - f.companions; way != model.ForwardXDP &&
		n < f.routers*(sent-f.first)*99/100 || way == model.ForwardXDP && n > 0 {
		f.t.Errorf("%s: with forwarding: %s companions forwarded %d of %d × %d packets", f.network, way, n,
			f.routers, sent-f.first)
	}
}

// running is a program in a namespace.
type running struct {
	t    *testing.T
	said strings.Builder
	cmd  *exec.Cmd
}

func start(t *testing.T, namespace string, args ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: exec.Command("nsenter", append([]string{"--net=" + namespace}, args...)...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.said, &r.said
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			r.cmd.Process.Kill()
			r.cmd.Wait() //nolint:errcheck // it was killed
		}
	})
	return r
}

// interrupt ends it as ^C does.
func (r *running) interrupt() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	r.cmd.Wait() //nolint:errcheck // what it says is what counts
}
