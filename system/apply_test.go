package system

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Copies of a file that fit alone and not together: nothing of them is made. As many as fit are.
func TestCopiesOfAFileAreMadeAllOrNone(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", "examples/static.yaml")
	before := p.objects()
	hungry := file(t, "network: lab\nrouters:\n  r1: {software: static, memory: 64MiB}\n  big: {software: static, "+
		"memory: "+most(t, p)+"}\nlinks: [r1 -- big]\n")
	for _, command := range []string{"plan", "apply"} {
		mistake{"", refused, []string{"1 of 3 networks are refused", "none is changed", "network c: big needs"}}.make(t,
			p,
			command, "-f", hungry, "--name", "a,b,c")
	}
	var networks []struct{ Name string }
	decode(t, p.run("get", "networks", "-o", "json"), &networks)
	if len(networks) != 1 {
		t.Errorf("there are %v", networks)
	}
	p.untouched(before)
	p.run("apply", "-f", hungry, "--name", "a,b")
	decode(t, p.run("get", "networks", "-o", "json"), &networks)
	if len(networks) != 3 {
		t.Errorf("there are %v", networks)
	}
}

// most is more than half of what a node has of memory.
func most(t *testing.T, p *platform) string {
	t.Helper()
	var nodes []struct{ Memory uint64 }
	decode(t, p.run("get", "nodes", "-o", "json"), &nodes)
	least := nodes[0].Memory
	for _, n := range nodes {
		least = min(least, n.Memory)
	}
	return fmt.Sprint(least>>20*2/3, "MiB")
}

// A network that is asked for while the platform starts, or after it was killed, is judged by what its nodes can do
// once their agents have said so; a node whose agent does not come is named, and hinders nobody who is there already.
func TestApplyWhileAgentsStart(t *testing.T) {
	p := newPlatform(t)
	c := p.command("up", "--nodes", "2")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		c.Process.Signal(unix.SIGTERM) //nolint:errcheck // it may have ended
		c.Wait()                       //nolint:errcheck // by a signal
	}()
	p.await("`up` to have begun", func() bool {
		b, _ := os.ReadFile(p.dirs.Lock())
		return strings.Contains(string(b), `"up"`)
	}, func() string { return "no lock" })
	both := "network: lab\nrouters:\n  r1: {software: static, node: n1}\n  r2: {software: static, node: n2}\nlinks: " +
		"[r1 -- r2]\n"
	p.run("apply", "-f", file(t, both))
	p.ready()

	// Nobody lets an unknown driver pass while nothing is known.
	p.kill("manager", "agent n1", "agent n2")
	mistake{"", refused, []string{"forwarding: openflow"}}.make(t, p, "plan", "-f",
		file(t, "network: odd\nrouters:\n  r1: {software: static, forwarding: openflow}\n"))
	p.ready()

	stopped := p.processes()["agent n2"]
	if err := unix.Kill(stopped, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(stopped, unix.SIGCONT) //nolint:errcheck // it may have ended
	p.kill("manager")
	_, stderr, err := p.try("apply", "-f", file(t, strings.ReplaceAll(both, "network: lab", "network: new")))
	if exitStatus(err) != refused || !strings.Contains(stderr, "waiting for the agent") ||
		!strings.Contains(stderr, "the agent of node n2 has not reported") {
		t.Errorf("with n2's agent away: %v: %s", err, stderr)
	}
	readable(t, "apply", stderr)
	p.run("apply", "--wait=false", "-f",
		file(t, strings.Replace(both, "routers:\n", "routers:\n  r3: {software: static, node: n1}\n", 1)))
	p.run("delete", "lab", "--wait=false")
}
