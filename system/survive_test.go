package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// acrossNodes has routers of both sorts between hosts on two nodes.
const acrossNodes = `network: lab
routers:
  r1: {node: n2, software: static, routes: [10.3.0.0/24 via 10.0.0.2, 2001:db8:3::/64 via 2001:db8::2]}
  r2: {node: n1, software: frr, config: "frr defaults traditional\nip route 0.0.0.0/0 10.0.0.1\nipv6 route ::/0 2001:db8::1\n"}
hosts:
  h1: {node: n1}
  h2: {node: n2}
  h3: {node: n2}
links:
  - r1 -- h1: 10.1.0.0/24, 2001:db8:1::/64
  - r1 -- h2: 10.2.0.0/24, 2001:db8:2::/64
  - r1 -- r2: 10.0.0.0/30, 2001:db8::/64
  - r2 -- h3: 10.3.0.0/24, 2001:db8:3::/64
`

// file writes a network's file.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "net.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// processes are the instance's, by what they are: "up", "join", "manager", "agent n1"…
func (p *platform) processes() map[string]int {
	found := map[string]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		if len(args) < 2 || filepath.Base(args[0]) != filepath.Base(binary) ||
			!slices.Contains([]string{"up", "join", "manager", "agent"}, args[1]) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if !slices.Contains(args, p.dirs.Name) && !strings.Contains(string(env), "POLYPLANE_INSTANCE="+
			p.dirs.Name+"\x00") {
			continue
		}
		name := args[1]
		if i := slices.Index(args, "--node"); i > 0 && i+1 < len(args) {
			name += " " + args[i+1]
		}
		found[name] = pid
	}
	return found
}

// kill ends processes as the kernel does when memory runs out.
func (p *platform) kill(names ...string) {
	p.t.Helper()
	running := p.processes()
	for _, name := range names {
		if running[name] == 0 {
			p.t.Fatalf("%s does not run: %v", name, running)
		}
		// What `up` had started ends with it, perhaps before its turn here.
		if err := unix.Kill(running[name], unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			p.t.Fatalf("kill %s: %v", name, err)
		}
	}
	for _, name := range names {
		p.await("the killed "+name+" to be gone", func() bool { return p.processes()[name] != running[name] },
			func() string { return fmt.Sprint(p.processes()) })
	}
}

// ready waits until the manager answers and all nodes are ready.
func (p *platform) ready() {
	p.t.Helper()
	var out, stderr string
	p.await("all to be ready again", func() bool {
		var err error
		out, stderr, err = p.try("get", "nodes", "--no-headers")
		return err == nil && len(p.processes()) >= 2 && strings.Count(out, " ready ") == strings.Count(out, "\n")
	}, func() string { return out + stderr })
}

// TestKillingLosesNothing kills each of the platform's processes, and all of them, while packets flow across nodes:
// none is lost, and no device is touched.
func TestKillingLosesNothing(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, acrossNodes))
	p.allWell("lab")
	before := p.objects()
	for _, victims := range [][]string{{"agent n1"}, {"agent n1", "agent n2"}, {"manager"},
		{"manager", "agent n1", "agent n2"},
		{"up"}, {"up", "manager", "agent n1", "agent n2"}} {
		t.Run(strings.Join(victims, ", "), func(t *testing.T) {
			p := p.with(t)
			flows := []*flow{p.flow("lab", "h1", "h2", "10.2.0.2", 0), p.flow("lab", "h3", "h1", "2001:db8:1::2", 0)}
			if victims[0] == "up" {
				old := p.processes()
				p.kill(victims...)
				p.await("what `up` started to end with it", func() bool { return len(p.processes()) == 0 },
					func() string { return fmt.Sprint(p.processes()) })
				for _, f := range flows {
					f.reached(f.sent.Load() + 200) // with nobody there
				}
				p.run("up", "-d")
				if now := p.processes(); len(now) != len(old) {
					t.Errorf("%v run, before %v", now, old)
				}
			} else {
				p.kill(victims...)
			}
			p.ready()
			p.allWell("lab")
			for i, f := range flows {
				f.reached(f.sent.Load() + 200)
				if sent, lost, duplicated := f.stop(); lost != 0 || duplicated != 0 {
					t.Errorf("flow %d: of %d packets %d were lost and %d came twice", i, sent, lost, duplicated)
				} else {
					t.Logf("flow %d: all of %d packets came once", i, sent)
				}
			}
			p.untouched(before)
		})
	}
	t.Run("control: one packet dropped", func(t *testing.T) {
		p := p.with(t)
		f := p.flow("lab", "h1", "h2", "10.2.0.2", 500)
		f.reached(1000)
		if sent, lost, _ := f.stop(); lost != 1 {
			t.Errorf("exactly one packet was dropped, and %d of %d are said to be lost", lost, sent)
		}
	})
}
