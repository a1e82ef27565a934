package system

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// TestHooks has the middle one of three nodes forward from tunnel to tunnel, on the tc hook and in the drivers of its
// underlay, where that is asked for: everything works the same, nothing is lost when it changes, and it is told.
func TestHooks(t *testing.T) {
	p := newPlatform(t)
	p.run("up", "--nodes", "3", "--topology", "line", "-d")
	const text = `network: lab
routers:
  r: {software: static, forwarding: xdp, node: n2}
hosts:
  a: {node: n1}
  b: {node: n3}
links:
  - r -- a: [10.0.1.0/24, "2001:db8:1::/64"]
  - r -- b: {mtu: 1400, prefixes: [10.0.2.0/24, "2001:db8:2::/64"]}
`
	p.run("apply", "-f", file(t, text))
	p.run("check", "lab", "--mesh", "--wait", "3m")
	a, b, n2 := p.namespace("lab", "a"), p.namespace("lab", "b"), filepath.Join(p.dirs.Node("n2").NodeNamespace())
	to, to6 := addressOf(p, "lab", "b", false), addressOf(p, "lab", "b", true)
	fast := func() model.FastPath {
		if f := p.elements("lab")["r"].Fast; f != nil {
			return *f
		}
		return model.FastPath{}
	}
	hooks := func(hook model.Hook) {
		t.Helper()
		p.await("hook "+string(hook), func() bool {
			f := fast()
			return f.Hooks["a"].Hook == hook && f.Hooks["b"].Hook == hook
		}, func() string { return fmt.Sprint(fast().Hooks) })
		for _, device := range []string{"to-n1", "to-n3"} {
			if has := strings.Contains(in(t, n2, "ip", "link", "show", device),
				" xdp "); has != (hook == model.HookXDP) {
				t.Errorf("hook %s: %s has a program: %v", hook, device, has)
			}
		}
	}
	hooks(model.HookTC) // by itself, on veths
	if why := fast().Hooks["a"].Why; !strings.Contains(why, "veth") {
		t.Errorf("the tc hook is used because %s", why)
	}

	// 10,000 packets a second, while the hook changes, the program is taken away, and the agent dies.
	before := fast() // what is told later may have packets of the flow
	f := p.flowBetween(a, b, to, 0, 10)
	for range 4 {
		p.run("set", "lab/r", "hook=xdp")
		hooks(model.HookXDP)
		f.reached(f.sent.Load() + 1000)
		p.run("set", "lab/r", "hook=auto")
		hooks(model.HookTC)
		f.reached(f.sent.Load() + 1000)
	}
	p.run("set", "lab/r", "hook=xdp")
	hooks(model.HookXDP)
	in(t, n2, "ip", "link", "set", "to-n1", "xdp", "off")
	p.await("the program to come back",
		func() bool { return strings.Contains(in(t, n2, "ip", "link", "show", "to-n1"), " xdp ") },
		func() string { return in(t, n2, "ip", "link", "show", "to-n1") })
	p.kill("agent n2")
	p.run("check", "lab", "--mesh", "--wait", "3m")
	hooks(model.HookXDP)
	f.reached(f.sent.Load() + 1000)
	sent, lost, duplicated := f.stop()
	if lost+duplicated != 0 {
		t.Errorf("of %d packets %d were lost and %d came twice", sent, lost, duplicated)
	}
	p.await("the fast path's counters", func() bool {
		is := fast()
		return is.Driver > before.Driver && is.Packets-before.Packets >= sent*99/100
	}, func() string { return fmt.Sprintf("%d packets, counted %+v before and %+v now", sent, before, fast()) })

	// In steady state all of a flow takes the driver's hook, but for what the node's watch looks at now and then.
	var share string
	p.await("a flow by the driver's hook", func() bool {
		settled := fast()
		f := p.flowBetween(a, b, to, 0, 10)
		start := f.sent.Load()
		f.reached(start + 5000)
		sent, lost, _ := f.stop()
		if lost > 0 {
			t.Errorf("of %d packets %d were lost", sent, lost)
		}
		for range 30 { // the node tells its counters a moment later
			is := fast()
			if is.Driver-settled.Driver >= (sent-start)*99/100 {
				return true
			}
			share = fmt.Sprintf("of %d packets %d took the driver's hook, %d the fast path", sent-start,
				is.Driver-settled.Driver, is.Packets-settled.Packets)
			time.Sleep(100 * time.Millisecond)
		}
		return false
	}, func() string { return share })

	for _, address := range []string{to, to6} {
		in(t, a, "ping", "-c5", "-i0.01", "-W10", address)
		out, err := exec.Command("nsenter", "--net="+a, "ping", "-c3", "-i0.1", "-W5", "-M", "do", "-s", "1420",
			address).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "1400") {
			t.Errorf("too long for the way to %s, and ping says %v:\n%s", address, err, out)
		}
		if route := p.route("lab", "a", address); len(route) != 2 || owner(p.elements("lab"), route[0]) != "r" {
			t.Errorf("the way to %s is shown as %v", address, route)
		}
		// A whole transfer may pass beside the driver's hook, where something looks at the ports or paces an element.
		var before uint64
		p.await("the driver's counter", func() bool {
			before = fast().Driver
			transfer(t, a, b, address)
			for range 30 { // the node tells its counters a moment later
				if fast().Driver-before > 1000 {
					return true
				}
				time.Sleep(100 * time.Millisecond)
			}
			return false
		}, func() string {
			return fmt.Sprintf("%d before, now %+v\n%s%s", before, fast(), p.run("get", "events"),
				in(t, n2, "ip", "-d", "-s", "link"))
		})
	}
	if out := p.run("describe", "lab/r"); !strings.Contains(out, "underlay to-n1, to-n3") ||
		!strings.Contains(out, "in a driver's hook") {
		t.Errorf("describe tells\n%s", out)
	}
	if out := p.run("describe", "node/n2"); !strings.Contains(out, "Hooks of the underlay") {
		t.Errorf("describe node tells\n%s", out)
	}
	if out := p.run("get", "nodes", "-o", "wide"); !strings.Contains(out, "xdp") {
		t.Errorf("get nodes tells\n%s", out)
	}
}

// transfer sends some megabytes by TCP.
func transfer(t *testing.T, from, to, address string) {
	t.Helper()
	server := exec.Command("nsenter", "--net="+to, "iperf3", "-s", "-1", "--forceflush")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 4096)); err != nil { // it listens
		t.Error(err)
	}
	in(t, from, "iperf3", "-n", "8M", "-c", address)
	server.Process.Kill() //nolint:errcheck // it ended with the client
	server.Wait()         //nolint:errcheck // the client tells
}
