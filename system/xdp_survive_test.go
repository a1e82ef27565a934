package system

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// manyRoutes is a router that nothing but tests writes routes for, behind a link with a queue.
const manyRoutes = `network: many
routers: {r: {software: static, node: n1, forwarding: xdp}}
hosts: {h1: {node: n1}, h2: {node: n1}}
links:
  - h1 -- r: {bandwidth: 1Gbit, prefixes: [10.1.0.0/24]}
  - r -- h2: 10.2.0.0/24
`

const (
	squareNetwork = "ospf-square"
	bulk          = 50_000
)

// square has the nodes forward for the square of OSPF routers, and for one router with many routes.
func square(t *testing.T, nodes int) *platform {
	t.Helper()
	p := up(t, nodes)
	p.run("apply", "-f", forwarded(t, squareNetwork, model.ForwardXDP))
	p.run("apply", "-f", file(t, manyRoutes))
	p.run("check", squareNetwork, "--mesh", "--wait", "3m")
	p.run("check", "many", "--mesh", "--wait", "3m")
	for _, router := range []string{"r1", "r2", "r3", "r4"} { // one way may be there before the other
		compareRoutes(t, p, squareNetwork, router)
	}
	return p
}

// flows are numbered packets through both networks, each way and family.
func (p *platform) flows() map[string]*flow {
	p.t.Helper()
	return map[string]*flow{
		"h1 to h3 by IPv4": p.flow(squareNetwork, "h1", "h3", addressOf(p, squareNetwork, "h3", false), 0),
		"h3 to h1 by IPv6": p.flow(squareNetwork, "h3", "h1", addressOf(p, squareNetwork, "h1", true), 0),
		"many":             p.flow("many", "h1", "h2", "10.2.0.2", 0),
	}
}

func pass(flows map[string]*flow, packets uint64) {
	for _, f := range flows {
		f.reached(f.sent.Load() + packets)
	}
}

// whole ends the flows; nothing may be missing.
func whole(t *testing.T, flows map[string]*flow) {
	t.Helper()
	for name, f := range flows {
		if sent, lost, duplicated := f.stop(); lost+duplicated != 0 {
			t.Errorf("%s: of %d packets %d were lost and %d came twice", name, sent, lost, duplicated)
		}
	}
}

// alone runs what while nothing of the platform runs, and starts it again.
func (p *platform) alone(what func()) {
	p.t.Helper()
	p.kill("up")
	p.await("what `up` started to end with it", func() bool { return len(p.processes()) == 0 },
		func() string { return fmt.Sprint(p.processes()) })
	what()
	p.run("up", "-d")
	p.ready()
}

// answers tells what the fast path would do with a packet.
func (p *platform) answers(router, to string) string {
	out, stderr, _ := p.try("trace", router, to)
	return out + stderr
}

// unreachableAt waits until the fast path leaves packets to an address to the guest, which says that it is unreachable.
func (p *platform) unreachableAt(network, router, from, to string) {
	p.t.Helper()
	var said string
	p.await("the new route of "+router+" to count", func() bool {
		said = p.answers(network+"/"+router, to)
		return strings.Contains(said, "unreachable or prohibited")
	}, func() string { return said })
	// The kernel does not answer each packet that it has no way for.
	namespace := p.namespace(network, from)
	p.await(from+" to be told", func() bool {
		out, err := exec.Command("nsenter", "--net="+namespace, "ping", "-c1", "-W1", to).CombinedOutput()
		said = string(out)
		return err != nil && strings.Contains(said, "Unreachable")
	}, func() string { return said })
}

// notTold counts the notifications of a namespace that somebody's buffer had no room for.
func notTold(t *testing.T, namespace string) (n int) {
	t.Helper()
	for line := range strings.Lines(in(t, namespace, "cat", "/proc/net/netlink")) {
		if f := strings.Fields(line); len(f) > 8 {
			k, _ := strconv.Atoi(f[8]) // the heading is none
			n += k
		}
	}
	return n
}

// batch has ip(8) do many things at once.
func batch(t *testing.T, namespace string, lines func(yield func(string))) {
	t.Helper()
	var all strings.Builder
	lines(func(line string) { all.WriteString(line + "\n") })
	c := exec.Command("nsenter", "--net="+namespace, "ip", "-force", "-batch", "-")
	c.Stdin = strings.NewReader(all.String())
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("ip -batch in %s: %v\n%s", namespace, err, out[:min(len(out), 500)])
	}
}

func bulkPrefix(i int) string { return fmt.Sprintf("30.%d.%d.0/24", i>>8, i&255) }

// TestXDPSurvives takes agents, manager and programs away from under routers that the nodes forward for, and spoils
// what they keep pinned, while numbered packets flow: none is lost, and routes that changed meanwhile are right soon
// after.
func TestXDPSurvives(t *testing.T) {
	p := square(t, 2)
	r1, many := p.namespace(squareNetwork, "r1"), p.namespace("many", "r")
	bpf := func() (dirs []string) {
		for _, n := range []string{"n1", "n2"} {
			dirs = append(dirs, p.dirs.Node(n).BPF())
		}
		return dirs
	}
	step := func(name string, f func(p *platform)) {
		t.Run(name, func(t *testing.T) {
			p := p.with(t)
			flows := p.flows()
			f(p)
			p.run("check", squareNetwork, "--wait", "3m")
			p.run("check", "many", "--mesh", "--wait", "3m")
			pass(flows, 200)
			whole(t, flows)
		})
	}

	step("killed, and routes changed meanwhile", func(p *platform) {
		p.alone(func() {
			in(t, r1, "ip", "route", "add", "unreachable", "10.3.0.77/32")
			in(t, r1, "ip", "route", "add", "10.3.0.2/32", "via", "10.0.12.2") // another right way
		})
		p.unreachableAt(squareNetwork, "r1", "h1", "10.3.0.77")
		p.await("the way by r2",
			func() bool { return strings.Contains(p.answers(squareNetwork+"/r1", "10.3.0.2"), "10.3.0.2/32") },
			func() string { return p.answers(squareNetwork+"/r1", "10.3.0.2") })
		in(t, r1, "ip", "route", "del", "10.3.0.2/32")
		in(t, r1, "ip", "route", "del", "unreachable", "10.3.0.77/32")
	})

	step("killed while many routes are told", func(p *platform) {
		batch(t, many, func(yield func(string)) {
			for i := range bulk {
				yield("route add " + bulkPrefix(i) + " via 10.2.0.2")
			}
		})
		for i := range 3 { // the new ones are killed while they learn all of it
			p.kill("agent n1")
			p.await("a new agent", func() bool { return p.processes()["agent n1"] != 0 },
				func() string { return fmt.Sprint(p.processes()) })
			time.Sleep(time.Duration(i) * 150 * time.Millisecond) // wherever it may be by then
		}
		in(t, many, "ip", "route", "add", "unreachable", "30.0.0.1/32")
		p.ready()
		p.unreachableAt("many", "r", "h1", "30.0.0.1")
		p.isFast()
		if last := p.answers("many/r", strings.Replace(bulkPrefix(bulk-1), ".0/24", ".9", 1)); !strings.Contains(last,
			bulkPrefix(bulk-1)) {
			t.Errorf("the last of %d routes: %s", bulk, last)
		}
	})

	// A notification that does not fit the mirror's buffer is lost, and the kernel says so: all is looked at again.
	step("overrun", func(p *platform) {
		agent := p.processes()["agent n1"]
		if err := unix.Kill(agent, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		lost := notTold(t, many)
		for range 5 {
			batch(t, many, func(yield func(string)) {
				for i := range bulk {
					yield("route replace " + bulkPrefix(i) + " via 10.1.0.2")
				}
				for i := range bulk {
					yield("route del " + bulkPrefix(i))
				}
				yield("route replace unreachable 30.0.0.2/32")
			})
			if notTold(t, many) > lost {
				break
			}
		}
		if notTold(t, many) == lost {
			t.Error("no notification was lost")
		}
		if err := unix.Kill(agent, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		p.unreachableAt("many", "r", "h1", "30.0.0.2")
		gone := ""
		p.await("the routes that are gone to be so", func() bool {
			gone = p.answers("many/r", "30.9.9.9")
			return strings.Contains(gone, "no route")
		}, func() string { return gone })
	})

	step("a new program", func(p *platform) {
		p.alone(func() {
			for _, dir := range bpf() {
				pins, err := filepath.Glob(filepath.Join(dir, pipeline.Layout, "????????????-*"))
				if err != nil || len(pins) < 5 {
					t.Fatalf("pinned programs: %v, %v", pins, err)
				}
				for _, pin := range pins {
					path, name := filepath.Split(pin)
					if err := os.Rename(pin, path+"0123456789ab"+name[12:]); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
		for _, dir := range bpf() {
			if left, _ := filepath.Glob(filepath.Join(dir, pipeline.Layout, "0123456789ab-*")); len(left) > 0 {
				t.Errorf("the old programs' pins are still there: %v", left)
			}
		}
	})

	newLayout := func(p *platform) {
		p.t.Helper()
		p.alone(func() {
			for _, dir := range bpf() {
				if err := os.Rename(filepath.Join(dir, pipeline.Layout), filepath.Join(dir, "v0")); err != nil {
					p.t.Fatal(err)
				}
			}
		})
		for _, dir := range bpf() {
			if _, err := os.Stat(filepath.Join(dir, "v0")); err == nil {
				p.t.Error("the old layout is still there")
			}
		}
	}
	step("a new layout", func(p *platform) {
		newLayout(p)
		p.isFast()
	})
	step("with companions", func(p *platform) {
		p.run("set", squareNetwork+"/r2", "forwarding=router")
		p.run("set", squareNetwork+"/r4", "forwarding=bridge")
		p.alone(func() { in(t, r1, "ip", "route", "add", "10.3.0.2/32", "via", "10.0.12.2") })
		newLayout(p)
		in(t, r1, "ip", "route", "del", "10.3.0.2/32")
		for _, router := range []string{"r2", "r4"} {
			p.run("set", squareNetwork+"/"+router, "forwarding=xdp")
		}
	})

	// With the words spoilt, anything may become of packets: but not once there is an agent again.
	t.Run("spoilt tables", func(t *testing.T) {
		p := p.with(t)
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 15))
		for range 2 {
			p.alone(func() {
				for _, dir := range bpf() {
					spoil(t, random, filepath.Join(dir, pipeline.Layout))
				}
			})
			p.ready()
			p.run("check", squareNetwork, "--mesh", "--wait", "3m")
			p.run("check", "many", "--mesh", "--wait", "3m")
			p.isFast()
		}
	})
}

// isFast has the fast path take what flows through both networks.
func (p *platform) isFast() {
	p.t.Helper()
	for _, f := range []*fastFlow{p.fastFlow(squareNetwork, "h1", "h3", addressOf(p, squareNetwork, "h3", false), 3),
		p.fastFlow("many", "h1", "h2", "10.2.0.2", 1)} {
		f.isFast(model.ForwardXDP)
	}
}

// spoil turns bits in the pinned tables that agents write.
func spoil(t *testing.T, random *rand.Rand, dir string) {
	t.Helper()
	words := func(m *ebpf.Map, most int) {
		size := int(m.MaxEntries()) * int(m.ValueSize())
		memory, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(memory)
		for range 1 + random.IntN(30) {
			memory[random.IntN(min(most, size))] ^= 1 << random.IntN(8)
		}
	}
	for name, most := range map[string]int{"fib_tables": 200, "fib_hops": 1000, "routers": 200,
		"ports": 1000, "peers": 100} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		words(m, most)
	}
	chunks, err := ebpf.LoadPinnedMap(filepath.Join(dir, "fib_chunks"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer chunks.Close()
	var chunk *ebpf.Map
	if err := chunks.Lookup(uint32(0), &chunk); err != nil {
		t.Fatal(err)
	}
	defer chunk.Close()
	words(chunk, 20_000)
}
