package system

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// student is a network whose router somebody configures by hand. Addresses are left to polyplane.
const student = `network: class
ospf: {}
routers: [r1, r2]
hosts: [h1, h2]
links:
  - h1 -- r1
  - r1 -- r2
  - r2 -- h2
`

// described is what must be the same in every life of a network: who is where, with which addresses.
func (p *platform) described() string {
	p.t.Helper()
	var all strings.Builder
	for _, e := range p.all() {
		e.Phase, e.Message, e.Restarts, e.Usage = "", "", 0, nil
		b, err := json.Marshal(e)
		if err != nil {
			p.t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s\n", b)
	}
	return all.String()
}

// TestDataBehindALink: the data directory may be a link to a larger disk. Elements run there, come back, and leave
// nothing when all is purged.
func TestDataBehindALink(t *testing.T) {
	p := newPlatform(t)
	large := p.dirs.Data + "-large"
	if err := os.MkdirAll(large, 0o755); err != nil { // nor need there be any data on this machine
		t.Fatal(err)
	}
	if err := os.Symlink(large, p.dirs.Data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(large) }) // it is gone
	p.run("up", "--nodes", "1", "-d")
	p.run("apply", "-f", file(t, "network: lab\nhosts: {h1: {run: sleep infinity}, h2: {}}\nlinks: [h1 -- h2]\n"))
	p.run("exec", "lab/h1", "--", "sh", "-c", "echo kept > /root/notes")
	p.run("down")
	if left := mountsAt(t, large); left != "" {
		t.Errorf("after down, mounted are %s", left)
	}
	p.run("up", "-d")
	p.await("the network to run", func() bool { return p.phase("lab") == model.PhaseRunning },
		func() string { return p.run("get", "networks") })
	if notes := p.run("exec", "lab/h1", "--", "cat", "/root/notes"); strings.TrimSpace(notes) != "kept" {
		t.Errorf("the file holds %q", notes)
	}
	told := p.run("down", "--purge")
	for _, at := range []string{p.dirs.Data, large} {
		if _, err := os.Lstat(at); err == nil {
			t.Errorf("%s is left, and down told: %s", at, told)
		}
	}
}

// mountsAt are the mounts whose lines name a path.
func mountsAt(t *testing.T, path string) (all string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, path) {
			all += line
		}
	}
	return all
}

// TestNetworksComeBack takes the platform down in every way there is, and up again.
func TestNetworksComeBack(t *testing.T) {
	p, other := up(t, 2), up(t, 1)
	other.run("apply", "-f", file(t, student))
	p.run("apply", "-f", file(t, student))
	p.allWell("class")
	other.allWell("class")
	theirs, ours := other.objects(), p.described()

	// A student writes a configuration, and a file.
	p.run("exec", "class/r1", "--", "vtysh", "-c", "configure terminal", "-c", "ip route 203.0.113.0/24 Null0",
		"-c", "ip prefix-list mine seq 5 permit any", "-c", "end", "-c", "write memory")
	p.run("exec", "class/r1", "--", "sh", "-c", "echo kept > /root/notes")
	wrote := func(t *testing.T) {
		t.Helper()
		p := p.with(t)
		var config string
		p.await("the written configuration to be there", func() bool {
			config, _, _ = p.try("exec", "class/r1", "--", "vtysh", "-c", "show running-config")
			return strings.Contains(config, "ip route 203.0.113.0/24 Null0") &&
				strings.Contains(config, "ip prefix-list mine seq 5 permit any")
		}, func() string { return config })
		if notes := p.run("exec", "class/r1", "--", "cat", "/root/notes"); strings.TrimSpace(notes) != "kept" {
			t.Errorf("the file holds %q", notes)
		}
		if now := p.described(); now != ours {
			t.Errorf("the network is\n%s\nand was\n%s", now, ours)
		}
		p.allWell("class")
	}

	t.Run("up twice", func(t *testing.T) {
		p := p.with(t)
		before, running := p.objects(), p.processes()
		mistake{"", refused, []string{"already running"}}.make(t, p, "up", "-d")
		mistake{"", refused, []string{"already running"}}.make(t, p, "up", "--nodes", "7", "-d")
		p.untouched(before)
		if now := p.processes(); fmt.Sprint(now) != fmt.Sprint(running) {
			t.Errorf("%v run, before %v", now, running)
		}
	})
	t.Run("restart of an element", func(t *testing.T) {
		p.with(t).run("restart", "class/r1")
		wrote(t)
	})
	t.Run("down and up", func(t *testing.T) {
		p := p.with(t)
		before := machine(t)
		if out := p.run("down"); !strings.Contains(out, "is down") || !strings.Contains(out, "up") {
			t.Errorf("down says %q", out)
		}
		for what, list := range machine(t) {
			for _, x := range list {
				if strings.Contains(x, p.dirs.Name) && !strings.HasPrefix(x, p.dirs.Data) {
					t.Errorf("after down there still is, of %s: %s", what, x)
				}
			}
		}
		if now := machine(t); len(now["processes"]) >= len(before["processes"]) {
			t.Errorf("after down these processes run: %v", now["processes"])
		}
		p.run("up", "-d")
		p.await("the network to run", func() bool { return p.phase("class") == model.PhaseRunning },
			func() string { return p.run("get", "networks") })
		wrote(t)
	})
	t.Run("everything killed, then up", func(t *testing.T) {
		p := p.with(t)
		p.killAll()
		p.run("up", "-d")
		p.await("the network to run", func() bool { return p.phase("class") == model.PhaseRunning },
			func() string { return p.run("get", "networks") })
		wrote(t)
	})
	t.Run("exported, deleted, imported", func(t *testing.T) {
		p := p.with(t)
		p.run("exec", "class/r1", "--", "vtysh", "-c", "configure terminal", "-c", "ip route 198.51.100.128/25 Null0")
		p.run("exec", "class/h1", "--", "sh", "-c", "echo measured > /home/result; chmod 640 /home/result")
		archive := filepath.Join(t.TempDir(), "class.tar")
		p.run("export", "class", "-o", archive)
		whole, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		cut := file(t, string(whole[:len(whole)-512]))
		mistake{"", senseless, []string{"cut off"}}.make(t, p, "import", cut, "--name", "other")
		mistake{"", refused, []string{"class"}}.make(t, p, "import", archive)
		p.run("delete", "class")
		p.run("import", archive)
		p.allWell("class")
		if notes := p.run("exec", "class/r1", "--", "cat", "/root/notes"); strings.TrimSpace(notes) != "kept" {
			t.Errorf("the file holds %q", notes)
		}
		if got := p.run("exec", "class/h1", "--", "sh", "-c", "cat /home/result; stat -c %a /home/result"); got !=
			"measured\n640\n" {
			t.Errorf("the host's file is %q", got)
		}
		running := p.run("exec", "class/r1", "--", "vtysh", "-c", "show running-config")
		for _, line := range []string{"ip route 203.0.113.0/24 Null0", "ip route 198.51.100.128/25 Null0"} {
			if !strings.Contains(running, line+"\n") {
				t.Errorf("%q is not in what the router runs with now:\n%s", line, running)
			}
		}
	})
	t.Run("saved as it runs, deleted, applied", func(t *testing.T) {
		p := p.with(t)
		p.run("exec", "class/r1", "--", "vtysh", "-c", "configure terminal", "-c", "ip route 198.51.100.0/24 Null0")
		saved := p.run("save", "class", "--running")
		if !strings.Contains(saved, "#   r1:/root/notes  5B\n") {
			t.Errorf("what was saved does not tell of the file that was made inside:\n%s", saved)
		}
		p.run("delete", "class")
		p.run("apply", "-f", file(t, saved))
		p.allWell("class")
		again := p.run("save", "class", "--running")
		for _, line := range []string{"ip route 203.0.113.0/24 Null0", "ip prefix-list mine seq 5 permit any",
			"ip route 198.51.100.0/24 Null0"} {
			if !strings.Contains(again, line+"\n") {
				t.Errorf("%q is not in what the network runs with now:\n%s", line, again)
			}
		}
		if before, _, _ := strings.Cut(saved, "# Files that"); again != before {
			t.Errorf("the network runs with\n%s\nwhich was saved as\n%s", again, before)
		}
		if out := p.run("plan", "-f", file(t, saved), "--exit-code"); !strings.Contains(out, "no changes") {
			t.Errorf("the same file again is planned as\n%s", out)
		}
	})
	t.Run("everything killed, then purged", func(t *testing.T) {
		p := p.with(t)
		p.killAll()
		p.run("down", "--purge")
		for what, list := range machine(t) {
			for _, x := range list {
				if strings.Contains(x, p.dirs.Name) {
					t.Errorf("left behind, of %s: %s", what, x)
				}
			}
		}
		// A new life begins with nothing.
		p.run("up", "--nodes", "1", "-d")
		if out := p.run("get", "networks", "-o", "name"); strings.TrimSpace(out) != "" {
			t.Errorf("after a purge there are the networks %s", out)
		}
	})
	// All the while another instance ran beside it, with a network of the same name and addresses.
	other.untouched(theirs)
	other.allWell("class")
}

func (p *platform) phase(network string) model.Phase {
	p.t.Helper()
	var networks []model.NetworkStatus
	decode(p.t, p.run("get", "networks", "-o", "json"), &networks)
	for _, n := range networks {
		if n.Name == network {
			return n.Phase
		}
	}
	p.t.Fatalf("there is no network %s", network)
	return ""
}

// killAll kills the platform's processes and all that runs in its elements.
func (p *platform) killAll() {
	p.t.Helper()
	// `up` first: it would start the others again.
	p.kill("up")
	for _, pid := range p.processes() {
		unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // it ends with `up`
	}
	members, err := filepath.Glob("/sys/fs/cgroup/*/polyplane/" + p.dirs.Name + "/*/*/cgroup.procs")
	if err != nil || len(members) == 0 {
		p.t.Fatalf("control groups of the elements: %v, %v", members, err)
	}
	for _, file := range members {
		b, _ := os.ReadFile(file)
		for _, pid := range strings.Fields(string(b)) {
			var n int
			if fmt.Sscan(pid, &n); n > 1 { //nolint:errcheck // it is a number
				unix.Kill(n, unix.SIGKILL) //nolint:errcheck // it may have ended with its first process
			}
		}
	}
	p.await("everything to be dead", func() bool { return len(p.processes()) == 0 },
		func() string { return fmt.Sprint(p.processes()) })
}
