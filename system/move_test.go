package system

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// movable is a router between two others, with a way around it, and hosts.
const movable = `network: lab
ospf: {hello: 1s, dead: 3s}
routers: {r1: {node: n1}, r2: {}, r3: {node: n3}}
hosts: {h1: {node: n1}, h3: {node: n3}}
links: [h1 -- r1, r1 -- r2, r2 -- r3, r3 -- h3]
expect: [h1 reaches h3]
`

// nodeOf is the node that an element is on.
func (p *platform) nodeOf(element string) string {
	p.t.Helper()
	for line := range strings.Lines(p.run("get", "elements", "lab", "--no-headers")) {
		if cells := strings.Fields(line); len(cells) > 3 && cells[0] == element {
			return cells[3]
		}
	}
	p.t.Fatalf("there is no %s", element)
	return ""
}

// TestMoveWithItsFiles: a router moves from node to node as the pages say, with what was written inside it, and its
// network works again.
func TestMoveWithItsFiles(t *testing.T) {
	p := up(t, 3)
	p.run("apply", "-f", file(t, movable))
	p.run("check", "lab", "--wait", "60s")
	const write = "echo precious > /root/work; ln -s work /root/link; mkdir -m 700 /root/empty"
	p.run("exec", "lab/r2", "--", "sh", "-c", write)
	from := p.nodeOf("lab/r2")
	to := map[string]string{"n1": "n3", "n2": "n1", "n3": "n1"}[from]
	dry := p.run("move", "lab/r2", "--to", to, "--dry-run")
	for _, want := range []string{"lab/r2 would move from node " + from + " to node " + to, "its disk: files",
		"all traffic through it", "OSPF: neighbours lose the adjacency", "stands still", "r1--r2: "} {
		if !strings.Contains(dry, want) {
			t.Errorf("a dry run does not tell %q:\n%s", want, dry)
		}
	}
	if _, stderr, err := p.try("move", "lab/r2", "--to", to); err == nil || !strings.Contains(stderr, "--cold") {
		t.Errorf("it stands still although nobody said that it may: %v, %s", err, stderr)
	}
	if is := p.nodeOf("lab/r2"); is != from {
		t.Fatalf("a refused move has moved it to %s", is)
	}
	for _, to := range []string{to, "n2", "n3"} {
		if p.nodeOf("lab/r2") == to {
			continue
		}
		out := p.run("move", "lab/r2", "--to", to, "--cold")
		if !strings.Contains(out, "lab/r2 is on node "+to+" with its disk (") {
			t.Errorf("moved with\n%s", out)
		}
		if is := p.nodeOf("lab/r2"); is != to {
			t.Fatalf("it is on %s", is)
		}
		got := p.run("exec", "lab/r2", "--", "sh", "-c", "cat /root/link && stat -c %a /root/empty")
		if got != "precious\n700\n" {
			t.Fatalf("on %s it has %q", to, got)
		}
		p.run("check", "lab", "--wait", "60s")
	}
	if out := p.run("get", "moves", "lab"); !strings.Contains(out, "done") || !strings.Contains(out, "lab/r2") {
		t.Errorf("get moves says\n%s", out)
	}
	// What is applied again changes nothing of it.
	if out := p.run("plan", "-f", file(t, movable)); !strings.Contains(out, "0 to change") && !strings.Contains(out,
		"no changes") {
		t.Errorf("after the move, plan says\n%s", out)
	}
	if _, stderr, err := p.try("move", "lab/r2", "--to", "n9", "--cold"); err == nil ||
		!strings.Contains(stderr, "node n9") {
		t.Errorf("to a node that is not there: %v, %s", err, stderr)
	}
}

// TestMoveWhileProcessesDie kills the manager and agents at any moment of moves: each time the element is on one node,
// runs, and has what was written inside it.
func TestMoveWhileProcessesDie(t *testing.T) {
	p := up(t, 3)
	p.run("apply", "-f", file(t, movable))
	p.allWell("lab")
	random := rand.New(rand.NewPCG(4, 13))
	moved := 0
	for round := range 9 {
		from := p.nodeOf("lab/r2")
		to := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[from]
		word := fmt.Sprint("round ", round)
		p.run("exec", "lab/r2", "--", "sh", "-c", "echo "+word+" > /root/work && sync")
		victim := []string{"manager", "agent " + from, "agent " + to}[round%3]
		pid := p.processes()[victim]
		c := p.command("move", "lab/r2", "--to", to, "--cold", "--timeout", "100s")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.Int64N(int64(600 * time.Millisecond))))
		unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // `up` starts it again
		c.Wait()                     //nolint:errcheck // its answer may have been lost with the manager
		p.ready()
		var is string
		p.await("the move to have ended", func() bool {
			out, _, err := p.try("get", "moves", "lab", "--no-headers")
			is = out
			return err == nil && !strings.Contains(out, "copying") && !strings.Contains(out, "starting")
		}, func() string { return is })
		p.allWell("lab")
		got := p.run("exec", "lab/r2", "--", "cat", "/root/work")
		on := p.nodeOf("lab/r2")
		if got != word+"\n" || on != from && on != to {
			t.Fatalf("%s was killed while r2 moved from %s to %s: it is on %s with %q", victim, from, to, on, got)
		}
		if on == to {
			moved++
		}
	}
	t.Logf("%d of 9 moves were made, the others taken back", moved)
}
