package lifecycle

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
)

// A port that somebody deletes comes back, and everything else stays – also while the manager is away. What an agent
// knows only from its file is never a reason to remove anything.
func TestDriftIsPutRight(t *testing.T) {
	p := newPlatform(t)
	p.up("--nodes", "2")
	p.apply(acrossNodes)
	p.check()
	before := p.ports("n1", "n2")
	dir := p.dirs.Node("n2")
	port := dir.PortDevice(model.PortID{ID: model.ID{Network: "lab", Element: "h2"}, Interface: "r1"})
	if before["n2 "+port] == 0 {
		t.Fatalf("there is no port %s: %v", port, before)
	}
	restore := func() {
		t.Helper()
		old := p.ports("n2")["n2 "+port]
		p.inside(dir.NodeNamespace(),
			func() error { return netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: old}}) })
		p.until("the port to be back", func() error {
			if now := p.ports("n2")["n2 "+port]; now == 0 || now == old {
				return fmt.Errorf("port %s has index %d", port, now)
			}
			return nil
		})
		after := p.ports("n1", "n2")
		for name, index := range before {
			if name != "n2 "+port && after[name] != index {
				t.Errorf("%s had index %d and has %d", name, index, after[name])
			}
		}
	}
	restore()
	p.until("the event", func() error {
		seen := false
		err := p.client.Events(t.Context(), 0, false, func(e model.Event) error {
			seen = seen || e.Reason == "PortRestored" && strings.HasPrefix(e.Object, "lab/h2") && e.Node == "n2"
			return nil
		})
		if err == nil && !seen {
			err = fmt.Errorf("no PortRestored of lab/h2")
		}
		return err
	})
	p.check()

	// An agent alone, without manager and `up`.
	if err := unix.Kill(p.pids()["up"], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.until("everything to be gone", func() error {
		if left := p.pids(); len(left) > 0 {
			return fmt.Errorf("there still is %v", left)
		}
		return nil
	})
	// The file forgets one element, as an old file would.
	state, err := instance.NewDesired(dir).Read()
	if err != nil {
		t.Fatal(err)
	}
	state.Networks[0].Elements = slices.DeleteFunc(state.Networks[0].Elements,
		func(e model.NodeElement) bool { return e.Name == "r1" })
	if err := instance.NewDesired(dir).Write(state); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command("nsenter", "--net="+dir.NodeNamespace(), built.path, "agent", "--instance",
		p.dirs.Name, "--node", "n2",
		"--address", "100.64.0.2")
	var said bytes.Buffer
	agent.Stderr = &said
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	restore()
	for name := range before {
		if _, there := p.ports("n1", "n2")[name]; !there {
			t.Errorf("%s was removed although nobody asked for it", name)
		}
	}
	agent.Process.Kill()
	agent.Wait()
	p.up()
	p.check()
}

// What `up` and a network make is gone after `down`, another instance's is not, and `up` comes back to the same.
func TestDownLeavesNothingAndUpComesBack(t *testing.T) {
	p, other := newPlatform(t), newPlatform(t)
	other.up("--nodes", "2")
	other.apply(acrossNodes)
	others, otherPIDs := other.ports("n1", "n2"), other.pids()

	hostBefore := hostLinks(t)
	p.up("--nodes", "2")
	if out, err := p.try("up", "--name", p.dirs.Name); err == nil || !strings.Contains(out, "already running, since") ||
		!strings.Contains(out, strconv.Itoa(p.pids()["up"])) {
		t.Errorf("a second `up`: %v: %s", err, out)
	}
	p.apply(acrossNodes)
	p.check()
	views := p.views()
	maps := pinned(t, p.dirs.Node("n1").BPF())
	if len(maps) == 0 {
		t.Fatal("the fabric has pinned no maps")
	}
	if out := p.run("down", "--name", p.dirs.Name); !strings.Contains(out, "is down") {
		t.Errorf("down says %q", out)
	}
	p.nothingLeft(maps)
	if after := hostLinks(t); !slices.Equal(hostBefore, after) {
		t.Errorf("the host's devices are %v, before %v", after, hostBefore)
	}
	if out := p.run("down", "--name", p.dirs.Name); !strings.Contains(out, "was not running") {
		t.Errorf("a second down says %q", out)
	}

	p.up()
	p.until("the network to run again", func() error {
		networks, err := p.client.Networks(t.Context())
		if err == nil && (len(networks) != 1 || networks[0].Phase != model.PhaseRunning) {
			err = fmt.Errorf("networks are %+v", networks)
		}
		return err
	})
	p.check()
	if again := p.views(); !slices.Equal(views, again) {
		t.Errorf("after down and up: %v, before %v", again, views)
	}

	// With dead daemons, too.
	if err := unix.Kill(p.pids()["up"], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if out, err := p.try("up", "--name", p.dirs.Name, "--nodes", "1", "-d"); err == nil ||
		!strings.Contains(out, "lab") {
		t.Errorf("taking a node away from under the network: %v: %s", err, out)
	}
	maps = pinned(t, p.dirs.Node("n1").BPF())
	p.run("down", "--name", p.dirs.Name, "--purge")
	p.nothingLeft(maps)
	if _, err := os.Stat(p.dirs.Data); !os.IsNotExist(err) {
		t.Errorf("the data directory is still there: %v", err)
	}

	if now := other.ports("n1", "n2"); !equal(others, now) {
		t.Errorf("the other instance's devices are %v, before %v", now, others)
	}
	if now := other.pids(); !equal(otherPIDs, now) {
		t.Errorf("the other instance's processes are %v, before %v", now, otherPIDs)
	}
	other.check()
}

// A foreground `up` ends its processes at SIGINT and leaves the networks; one that is told nonsense touches nothing.
func TestForeground(t *testing.T) {
	p := newPlatform(t)
	if out, err := p.try("up", "--name", p.dirs.Name, "--nodes", "2", "--topology", "star"); err == nil ||
		!strings.Contains(out, "mesh") {
		t.Errorf("an unknown topology: %v: %s", err, out)
	}
	if _, err := os.Stat(p.dirs.Run); !os.IsNotExist(err) {
		t.Errorf("a refused `up` made %s", p.dirs.Run)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, built.path, "up", "--name", p.dirs.Name, "--nodes", "2")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.ready(nil)
	p.apply(acrossNodes)
	p.check()
	before := p.ports("n1", "n2")
	cmd.Process.Signal(unix.SIGINT)
	if err := cmd.Wait(); err != nil {
		t.Errorf("up ended with %v: %s", err, out.String())
	}
	if left := p.pids(); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if after := p.ports("n1", "n2"); !equal(before, after) {
		t.Errorf("^C altered devices: %v, before %v", after, before)
	}
	for _, want := range []string{"is up", "n2", "polyplane", "down --instance " + p.dirs.Name} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("up says nothing of %q: %s", want, out.String())
		}
	}
}
