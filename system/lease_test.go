package system

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// TestHungAgentIsKnown stops an agent, and then the manager, as if they hung: the node is unknown after the time of a
// lease, all of it is shown as it was last told, nobody waits for it without an end, `up` starts the process again, and
// no packet is lost.
func TestHungAgentIsKnown(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, acrossNodes))
	p.allWell("lab")
	flows := []*flow{p.flow("lab", "h1", "h2", "10.2.0.2", 0), p.flow("lab", "h3", "h1", "2001:db8:1::2", 0)}
	old := p.processes()
	stop := func(name string) time.Time {
		t.Helper()
		if err := unix.Kill(old[name], unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}

	began := stop("agent n2")
	// A command that begins before anybody knows ends with words all the same.
	said := make(chan string, 1)
	go func() {
		_, stderr, err := p.try("exec", "lab/r1", "--", "true")
		said <- fmt.Sprint(err, " ", stderr)
	}()
	var nodes string
	p.await("the node to be unknown", func() bool {
		nodes, _, _ = p.try("get", "nodes", "-o", "wide")
		return strings.Contains(nodes, "unknown")
	},
		func() string { return nodes })
	t.Logf("unknown after %s", time.Since(began).Round(100*time.Millisecond))
	for name, e := range p.elements("lab") {
		if told := e.LastTold != 0; told != (e.Node == "n2") || e.Phase != model.PhaseRunning {
			t.Errorf("%s on %s: %+v", name, e.Node, e.ElementStatus)
		}
	}
	var networks []model.NetworkStatus
	if err := json.Unmarshal([]byte(p.run("get", "networks", "-o", "json")), &networks); err != nil {
		t.Fatal(err)
	}
	if n := networks[0]; n.Phase != model.PhaseUnknown || n.Running != 2 || n.Unknown != 3 {
		t.Errorf("the network: %+v", n)
	}
	for _, args := range [][]string{{"exec", "lab/r1", "--", "true"}, {"check", "lab"},
		{"set", "lab/h2", "memory=100MiB"}} {
		from := time.Now()
		_, stderr, err := p.try(args...)
		if took := time.Since(from); err == nil || took > 15*time.Second || !strings.Contains(stderr, "n2") &&
			!strings.Contains(stderr, "check") {
			t.Errorf("%v: %v after %s: %s", args, err, took, stderr)
		}
	}
	select {
	case words := <-said:
		if !strings.Contains(words, "n2") {
			t.Errorf("exec that began when the agent had just been stopped: %s", words)
		}
	case <-time.After(time.Minute):
		t.Error("exec that began when the agent had just been stopped still hangs")
	}
	p.await("the agent to be started again", func() bool {
		is := p.processes()["agent n2"]
		return is != 0 &&
			is != old["agent n2"]
	},
		func() string { return fmt.Sprint(p.processes()) })
	t.Logf("started again after %s", time.Since(began).Round(100*time.Millisecond))
	p.ready()
	p.run("set", "lab/h2", "memory=100MiB")
	p.allWell("lab")

	// The manager hangs: its nodes are not blamed for what it did not hear.
	if os.Getenv("POLYPLANE_LONG") != "" {
		began = stop("manager")
		p.await("the manager to be started again", func() bool {
			is := p.processes()["manager"]
			return is != 0 &&
				is != old["manager"]
		},
			func() string { return fmt.Sprint(p.processes()) })
		t.Logf("the manager is started again after %s", time.Since(began).Round(100*time.Millisecond))
		p.ready()
	}
	old = p.processes()
	stop("manager")
	time.Sleep(model.LeaseTime + 3*time.Second)
	if err := unix.Kill(old["manager"], unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if nodes := p.run("get", "nodes"); strings.Contains(nodes, "unknown") {
		t.Errorf("after the manager was stopped for longer than a lease:\n%s", nodes)
	}
	p.allWell("lab")
	for i, f := range flows {
		f.reached(f.sent.Load() + 200)
		if sent, lost, duplicated := f.stop(); lost != 0 || duplicated != 0 {
			t.Errorf("flow %d: of %d packets %d were lost and %d came twice", i, sent, lost, duplicated)
		}
	}
}
