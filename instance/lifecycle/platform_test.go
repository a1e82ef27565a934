package lifecycle

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
)

// The tests below run the real program: what it starts are processes of their own, in namespaces of their own.

var built struct {
	sync.Once
	dir, path string
	err       error
}

func program(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "polyplane-test-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "polyplane")
		out, err := exec.Command("go", "build", "-o", built.path,
			"github.com/polyplane/polyplane/cmd/polyplane").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("build the program: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

func removeBinary() {
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
}

// platform is one instance under test.
type platform struct {
	t      *testing.T
	dirs   instance.Dirs
	client *client.Client
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	program(t)
	p := &platform{t: t, dirs: instance.NewDirs("test-" + strings.ToLower(rand.Text()[:8]))}
	p.client = client.New(p.dirs)
	t.Cleanup(func() {
		p.client.Close()
		if t.Failed() {
			for _, name := range []string{"up", "manager", "agent-n1", "agent-n2"} {
				t.Logf("%s.log:\n%s", name, tail(filepath.Join(p.dirs.Logs(), name+".log")))
			}
		}
		if out, err := p.try("down", "--name", p.dirs.Name, "--purge"); err != nil {
			t.Errorf("down --purge: %v: %s", err, out)
		}
	})
	return p
}

func (p *platform) try(args ...string) (string, error) {
	out, err := exec.Command(built.path, args...).CombinedOutput()
	return string(out), err
}

func (p *platform) run(args ...string) string {
	p.t.Helper()
	out, err := p.try(args...)
	if err != nil {
		p.t.Fatalf("polyplane %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (p *platform) up(args ...string) string {
	p.t.Helper()
	return p.run(append([]string{"up", "--name", p.dirs.Name, "-d"}, args...)...)
}

func (p *platform) apply(file string) {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), "net.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.run("apply", "--instance", p.dirs.Name, "-f", path)
}

// pids are the instance's processes by what they are: up, manager, agent n1…
func (p *platform) pids() map[string]int {
	found := map[string]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		if len(args) < 2 || args[0] != built.path || !slices.Contains(args, p.dirs.Name) {
			continue
		}
		name := args[1]
		if i := slices.Index(args, "--node"); i > 0 {
			name += " " + args[i+1]
		}
		found[name], _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
	}
	return found
}

// ready waits until the manager answers and all agents are registered, the named ones by another process than before.
func (p *platform) ready(not map[string]int) {
	p.t.Helper()
	p.until("all is ready again", func() error {
		pong, err := p.client.Ping(p.t.Context())
		if err != nil {
			return err
		}
		if pong.Nodes == 0 || pong.Ready != pong.Nodes {
			return fmt.Errorf("%d of %d nodes are ready", pong.Ready, pong.Nodes)
		}
		now := p.pids()
		for name, pid := range not {
			if now[name] == 0 || now[name] == pid {
				return fmt.Errorf("%s is not there again", name)
			}
		}
		return nil
	})
}

// until waits for what cannot be awaited otherwise; its limit only ends a test that hangs.
func (p *platform) until(what string, f func() error) {
	p.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("waited for %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// inNamespace runs f on a thread of its own in the network namespace at path.
func inNamespace(path string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // not given back: the thread ends with the goroutine
		done <- func() error {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-done
}

// inside runs f in an element's namespace.
func (p *platform) inside(path string, f func() error) {
	p.t.Helper()
	if err := inNamespace(path, f); err != nil {
		p.t.Fatal(err)
	}
}

// ports lists the ports' indices in the nodes' namespaces, and the tunnels' and underlay's.
func (p *platform) ports(nodes ...string) map[string]int {
	p.t.Helper()
	all := map[string]int{}
	for _, n := range nodes {
		p.inside(p.dirs.Node(n).NodeNamespace(), func() error {
			links, err := linux.Whole(netlink.LinkList)
			for _, l := range links {
				all[n+" "+l.Attrs().Name] = l.Attrs().Index
			}
			return err
		})
	}
	return all
}

const acrossNodes = `network: lab
routers:
  r1: {node: n2, software: static}
hosts:
  h1: {node: n1}
  h2: {node: n2}
  h3: {node: n1}
links:
  - h1 -- r1
  - h2 -- r1
  - h3 -- r1
expect:
  - h1 reaches h2
  - h2 reaches h1
  - h3 reaches h2
`

func (p *platform) check() {
	p.t.Helper()
	result, err := p.client.Check(p.t.Context(), "lab", model.CheckRequest{Mesh: true, Wait: 5 * time.Minute})
	if err != nil {
		p.t.Fatal(err)
	}
	if !result.OK || len(result.Probes) < 6 {
		p.t.Fatalf("check: %+v", result)
	}
}

// views are the elements' addresses and places, in words.
func (p *platform) views() []string {
	p.t.Helper()
	views, err := p.client.Elements(p.t.Context(), "")
	if err != nil {
		p.t.Fatal(err)
	}
	var words []string
	for _, v := range views {
		for _, i := range v.Element.Interfaces {
			words = append(words, fmt.Sprint(v.ID, " on ", v.Node, ": ", i.Name, " ", i.MAC, " ", i.Addresses))
		}
	}
	slices.Sort(words)
	return words
}

func hostLinks(t *testing.T) []string {
	t.Helper()
	links, err := linux.Whole(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range links {
		all = append(all, fmt.Sprint(l.Attrs().Index, " ", l.Attrs().Name))
	}
	return all
}

// pinned are the IDs of the maps pinned below a directory.
func pinned(t *testing.T, dir string) []ebpf.MapID {
	t.Helper()
	var ids []ebpf.MapID
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		m, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			return nil // a program
		}
		defer m.Close()
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := info.ID(); ok {
			ids = append(ids, id)
		}
		return nil
	})
	return ids
}

// nothingLeft looks for anything that is recognisably the instance's.
func (p *platform) nothingLeft(maps []ebpf.MapID) {
	p.t.Helper()
	if left := p.pids(); len(left) > 0 {
		p.t.Errorf("processes are left: %v", left)
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, p.dirs.Name) {
			p.t.Errorf("a mount is left: %s", line)
		}
	}
	for _, path := range []string{p.dirs.Run, p.dirs.Lock()} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			p.t.Errorf("%s is left (%v)", path, err)
		}
	}
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, p.dirs.Name) {
			p.t.Errorf("a cgroup is left: %s", path)
		}
		return nil
	})
	p.until("the maps to be freed", func() error {
		for _, id := range maps {
			if m, err := ebpf.NewMapFromID(id); err == nil {
				m.Close()
				return fmt.Errorf("map %d is still there", id)
			}
		}
		return nil
	})
}

func equal(a, b map[string]int) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}
