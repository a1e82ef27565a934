// Package system tests the whole of polyplane as a user has it: the built binary, real routing software, real packets
// in namespaces.
package system

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/sandbox"
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

// binary is the program under test.
var binary = os.Getenv(sandbox.BinaryVariable)

func TestMain(m *testing.M) { os.Exit(sandbox.Main("../cmd/polyplane", m.Run)) }

// family begins the names of all instances of this run.
var family = "system-" + strings.ToLower(rand.Text()[:6]) + "-"

// platform is one running instance of polyplane.
type platform struct {
	t    *testing.T
	dirs instance.Dirs
	// host is the network namespace, by path, of the machine that it plays to be on; the tests' own when empty. env is
	// what its environment has beside the tests'.
	host string
	env  []string
	// hidden has its commands begin by ip netns exec, which hides the machine's control groups.
	hidden bool
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
	switch {
	case p.hidden:
		words = append([]string{"ip", "netns", "exec", filepath.Base(p.host)}, words...)
	case p.host != "":
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
	return p.dirs.Node(v.Node).Namespace(model.ID{Network: p.key(v.ID.Network), Element: element})
}

// key is what a network is called within the instance.
func (p *platform) key(network string) string {
	p.t.Helper()
	if owner, title, owned := model.SplitReference(network); owned {
		return keyOf(p, owner, title)
	}
	return network
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

// machine is everything that polyplane could leave behind.
func machine(t *testing.T) sandbox.State {
	t.Helper()
	state, err := sandbox.Machine(family)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// sameMachine reports what differs from before.
func sameMachine(t *testing.T, before sandbox.State) {
	t.Helper()
	for _, difference := range before.Differences(machine(t)) {
		t.Error(difference)
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
