// Package system tests the whole of polyplane as a user has it: the built binary, real routing software, real packets
// in namespaces.
package system

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
)

// generous is far beyond what any step takes: it ends a hung test, it judges no speed.
const generous = 5 * time.Minute

var root = func() string {
	dir, err := filepath.Abs("..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// binary is the program under test: POLYPLANE_BINARY, or built once.
var binary = os.Getenv("POLYPLANE_BINARY")

// inside marks the process that runs the tests proper.
const inside = "POLYPLANE_SYSTEM_TEST_INSIDE"

// prelude makes the namespaces ready. Others' mounts were copied into them, and would keep alive what those remove.
const prelude = `ip link set lo up
cut -d' ' -f5 /proc/self/mountinfo | grep -E '^(/run/(polyplane|netns)|/var/lib/polyplane)/' | tac | xargs -r umount -l 2>/dev/null
mkdir -p /run/netns && mount -t tmpfs tests /run/netns
exec "$0" "$@"`

// The process's first thread never ends, and its namespaces are the ones that others see as the process's: no test may
// take it into an element.
func init() { runtime.LockOSThread() }

// TestMain runs the tests in a network, mount and process namespace of their own: what else goes on on the machine
// cannot be taken for something that polyplane left behind, and whatever a killed test leaves goes with it.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "the system tests make network namespaces, so they need root")
		os.Exit(1)
	}
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	os.Exit(func() int {
		if binary == "" {
			dir, err := os.MkdirTemp("", "polyplane")
			if err != nil {
				panic(err)
			}
			defer os.RemoveAll(dir)
			binary = filepath.Join(dir, "polyplane")
			c := exec.Command("go", "build", "-o", binary, "../cmd/polyplane")
			c.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := c.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "building the binary: %v\n%s", err, out)
				return 1
			}
		}
		// tini is the first process of the namespace: it collects what nobody waits for.
		c := exec.Command("unshare", append([]string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
			"tini", "--", "sh", "-c", prelude, os.Args[0]}, os.Args[1:]...)...)
		c.Env = append(os.Environ(), inside+"=1", "POLYPLANE_BINARY="+binary)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		// The tests end with this process: with its first thread, to be exact, which started them.
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Run(); err != nil {
			var ended *exec.ExitError
			if errors.As(err, &ended) && ended.ExitCode() > 0 {
				return ended.ExitCode()
			}
			fmt.Fprintf(os.Stderr, "the tests' own namespaces: %v\n", err)
			return 1
		}
		return 0
	}())
}

// family begins the names of all instances of this run.
var family = "system-" + strings.ToLower(rand.Text()[:6]) + "-"

// platform is one running instance of polyplane.
type platform struct {
	t    *testing.T
	dirs instance.Dirs
	// host is the network namespace, by path, of the machine that it plays to be on; the tests' own when empty. env is what
	// its environment has beside the tests'.
	host string
	env  []string
}

// platforms counts those of the test that runs.
var platforms int

// newPlatform names an instance; it is removed at the end of the test, and when it is the last, the machine is compared
// with what it was before the first.
func newPlatform(t *testing.T) *platform { return newPlatformOn(t, "") }

// newPlatformOn is newPlatform for another host.
func newPlatformOn(t *testing.T, host string) *platform {
	t.Helper()
	p := &platform{t: t, host: host, dirs: instance.NewDirs(family + strings.ToLower(rand.Text()[:4]))}
	before, first := machine(t), platforms == 0
	platforms++
	t.Cleanup(func() {
		platforms--
		if out, err := p.command("down", "--purge").CombinedOutput(); err != nil {
			t.Errorf("down --purge: %v\n%s", err, out)
		}
		if first {
			sameMachine(t, before)
		}
	})
	return p
}

// up starts the instance with so many simulated nodes.
func up(t *testing.T, nodes int) *platform {
	t.Helper()
	p := newPlatform(t)
	p.run("up", "--nodes", fmt.Sprint(nodes), "-d")
	return p
}

// with is the platform for a subtest: what fails there, fails it.
func (p *platform) with(t *testing.T) *platform {
	q := *p
	q.t = t
	return &q
}

func (p *platform) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	p.t.Cleanup(cancel)
	words := append([]string{binary}, args...)
	if p.host != "" {
		words = append([]string{"nsenter", "--net=" + p.host}, words...)
	}
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.Dir = root
	c.Env = append(append(os.Environ(), "POLYPLANE_INSTANCE="+p.dirs.Name, "NO_COLOR=1"), p.env...)
	return c
}

// run runs a command that must succeed and returns its standard output.
func (p *platform) run(args ...string) string {
	p.t.Helper()
	out, stderr, err := p.try(args...)
	if err != nil {
		p.t.Fatalf("polyplane %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr)
	}
	return out
}

func (p *platform) try(args ...string) (stdout, stderr string, err error) {
	c := p.command(args...)
	var o, e strings.Builder
	c.Stdout, c.Stderr = &o, &e
	err = c.Run()
	return o.String(), e.String(), err
}

// elements are all elements of a network by name.
func (p *platform) elements(network string) map[string]model.ElementView {
	p.t.Helper()
	var views []model.ElementView
	if err := json.Unmarshal([]byte(p.run("get", "elements", network, "-o", "json")), &views); err != nil {
		p.t.Fatal(err)
	}
	byName := map[string]model.ElementView{}
	for _, v := range views {
		byName[v.ID.Element] = v
	}
	return byName
}

// namespace is where an element's network namespace is mounted.
func (p *platform) namespace(network, element string) string {
	p.t.Helper()
	v, ok := p.elements(network)[element]
	if !ok {
		p.t.Fatalf("there is no element %s/%s", network, element)
	}
	return p.dirs.Node(v.Node).Namespace(v.ID)
}

// in runs a command in a network namespace.
func in(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	out, err := exec.Command("nsenter", append([]string{"--net=" + namespace}, args...)...).Output()
	if err != nil {
		t.Fatalf("%s in %s: %v\n%s", strings.Join(args, " "), namespace, err, out)
	}
	return string(out)
}

// machine is everything that polyplane could leave behind: in these namespaces anything, and of what all namespaces
// share – files, control groups – what bears the names of our instances.
func machine(t *testing.T) map[string][]string {
	t.Helper()
	state := map[string][]string{}
	list := func(what, command string) {
		out, err := exec.Command("sh", "-c", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.TrimSpace(line); f != "" {
				state[what] = append(state[what], f)
			}
		}
		slices.Sort(state[what])
	}
	list("devices", `ip -o link | cut -d: -f2`)
	list("named namespaces", `ip netns list | cut -d' ' -f1`)
	list("network namespaces", `readlink /proc/[0-9]*/ns/net | sort -u || true`)
	list("mounts", `cut -d' ' -f5 /proc/self/mountinfo`)
	list("cgroups", `find /sys/fs/cgroup -type d -path '*/polyplane/`+family+`*' || true`)
	list("loop devices", `losetup -a | grep '/polyplane/`+family+`' || true`)
	list("directories", `ls -d /run/polyplane/`+family+`* /var/lib/polyplane/`+family+`* 2>/dev/null || true`)
	list("bpf", `find /sys/fs/bpf -mindepth 1 -maxdepth 1 ! -name '*.debug' 2>/dev/null || true`)
	list("processes", `pgrep -a 'tini|watchfrr|zebra|ospfd|ospf6d|bgpd|isisd|ripd|ripngd|staticd|bfdd|bird|runc|polyplane' | grep -v pgrep || true`)
	return state
}

// sameMachine reports what differs from before.
func sameMachine(t *testing.T, before map[string][]string) {
	t.Helper()
	after := machine(t)
	for what, now := range after {
		for _, x := range now {
			if !slices.Contains(before[what], x) {
				t.Errorf("left behind, of %s: %s", what, x)
			}
		}
	}
	for what, was := range before {
		for _, x := range was {
			if (what == "devices" || what == "named namespaces") && !slices.Contains(after[what], x) {
				t.Errorf("gone from the machine, of %s: %s", what, x)
			}
		}
	}
}

// await waits until the condition holds; after a generous time the test ends with what explain says.
func (p *platform) await(what string, holds func() bool, explain func() string) {
	p.t.Helper()
	for deadline := time.Now().Add(generous); !holds(); {
		if time.Now().After(deadline) {
			p.t.Fatalf("waited %s for %s: %s", generous, what, explain())
		}
		time.Sleep(100 * time.Millisecond)
	}
}
