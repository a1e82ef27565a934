// Package sandbox runs a program that tests the whole of polyplane in a network, mount and process namespace of its
// own: what else goes on on the machine cannot be taken for something that polyplane left behind, and whatever a killed
// test leaves goes with it.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// inside marks the process that runs the tests proper.
const inside = "POLYPLANE_SYSTEM_TEST_INSIDE"

// BinaryVariable names the program under test; it is built when the variable is empty.
const BinaryVariable = "POLYPLANE_BINARY"

// prelude makes the namespaces ready. Others' mounts were copied into them, and would keep things alive that the others
// remove. If somebody removes one in this very moment, it cannot be unmounted any more, and need not be.
const prelude = `set -e
ip link set lo up
cut -d' ' -f5 /proc/self/mountinfo | grep -E '^(/run/(polyplane|netns)|/var/lib/polyplane)/' | tac | xargs -r umount -l 2>/dev/null || :
mkdir -p /run/netns && mount -t tmpfs tests /run/netns
exec "$0" "$@"`

// The process's first thread never ends, and its namespaces are the ones that others see as the process's: no test may
// take it into an element.
func init() { runtime.LockOSThread() }

// Main runs this program again inside the sandbox, where it calls f, and returns the exit status. It builds the program
// under test from the folder source unless another one is given.
func Main(source string, f func() int) int {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "tests of the whole system make network namespaces, so they need root")
		return 1
	}
	if os.Getenv(inside) != "" {
		return f()
	}
	binary := os.Getenv(BinaryVariable)
	if binary == "" {
		dir, err := os.MkdirTemp("", "polyplane")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "polyplane")
		if err := Build(source, binary); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	// tini is the first process of the namespace: it collects what nobody waits for.
	c := exec.Command("unshare", append([]string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"tini", "--", "sh", "-c", prelude, os.Args[0]}, os.Args[1:]...)...)
	c.Env = append(os.Environ(), inside+"=1", BinaryVariable+"="+binary)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The tests end with this process: with its first thread, to be exact, which started them.
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Run(); err != nil {
		if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() > 0 {
			return ended.ExitCode()
		}
		fmt.Fprintf(os.Stderr, "the tests' own namespaces: %v\n", err)
		return 1
	}
	return 0
}

// Data is where instances keep what must last.
const Data = "/var/lib/polyplane"

// KeepData makes the directory Data, on which something can then be mounted, and keeps it until release is called.
// Otherwise somebody else's `down --purge` would remove it when it is empty, and the kernel would take the mount away,
// wherever it is mounted.
func KeepData() (release func() error, err error) {
	if err := os.MkdirAll(Data, 0o755); err != nil {
		return nil, err
	}
	keep, err := os.CreateTemp(Data, ".test-")
	if err != nil {
		return nil, fmt.Errorf("keep %s: %w", Data, err)
	}
	keep.Close()
	return func() error {
		err := os.Remove(keep.Name())
		os.Remove(Data) //nolint:errcheck // only if nobody else has anything there
		return err
	}, nil
}

// Build builds the program under test. Arguments, such as an overlay, come before the package.
func Build(source, binary string, arguments ...string) error {
	c := exec.Command("go", append(append([]string{"build", "-o", binary}, arguments...), source)...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program under test: %w\n%s", err, out)
	}
	return nil
}

// State is everything that polyplane could leave behind, by kind.
type State map[string][]string

// Machine returns the state as it is: everything in these namespaces and, of what all namespaces share (files, control
// groups), what bears a name that begins like the names of the family's instances.
func Machine(family string) (State, error) {
	state := State{}
	for what, command := range map[string]string{
		"devices":            `ip -o link | cut -d: -f2`,
		"named namespaces":   `ip netns list | cut -d' ' -f1`,
		"network namespaces": `readlink /proc/[0-9]*/ns/net | sort -u || true`,
		"mounts":             `cut -d' ' -f5 /proc/self/mountinfo`,
		"cgroups":            `find /sys/fs/cgroup -type d -path '*/polyplane/` + family + `*' 2>/dev/null || true`,
		"loop devices":       `losetup -a | grep '/polyplane/` + family + `' || true`,
		"directories": `ls -d /run/polyplane/` + family + `* /var/lib/polyplane/` + family +
			`* 2>/dev/null || true`,
		"bpf":       `find /sys/fs/bpf -mindepth 1 -maxdepth 1 ! -name '*.debug' 2>/dev/null || true`,
		"processes": `pgrep -a 'tini|watchfrr|zebra|ospfd|ospf6d|bgpd|isisd|ripd|ripngd|staticd|bfdd|bird|runc|polyplane' | grep -v pgrep || true`,
	} {
		out, err := exec.Command("sh", "-c", command).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", command, err, out)
		}
		state[what] = nil
		for line := range strings.Lines(string(out)) {
			if f := strings.TrimSpace(line); f != "" {
				state[what] = append(state[what], f)
			}
		}
	}
	return state, nil
}

// Differences tells, in words, what was left behind or taken since before.
func (before State) Differences(after State) []string {
	var found []string
	for what, now := range after {
		for _, x := range now {
			if !slices.Contains(before[what], x) {
				found = append(found, fmt.Sprintf("left behind, of %s: %s", what, x))
			}
		}
	}
	for _, what := range []string{"devices", "named namespaces"} {
		for _, x := range before[what] {
			if !slices.Contains(after[what], x) {
				found = append(found, fmt.Sprintf("gone from the machine, of %s: %s", what, x))
			}
		}
	}
	slices.Sort(found)
	return found
}
