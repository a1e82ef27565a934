package powercut

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/system/sandbox"
)

// generous ends what hangs; it judges no speed.
const generous = 4 * time.Minute

// lab is a network with n hosts.
func lab(name string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "network: %s\nrouters: {r: {software: bird, node: n1}}\nhosts:\n", name)
	for i := range n {
		fmt.Fprintf(&b, "  h%d: {node: n%d}\n", i, 1+i%2)
	}
	b.WriteString("links:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - r -- h%d\n", i)
	}
	return b.String()
}

// step is one thing that a user asks for. Its words end with its acknowledgement.
type step struct {
	args  []string
	input string
	// has are the networks and how many elements each has, once the step was acknowledged.
	has map[string]int
	// file is a file of an element, "net/element path", with that content from then on.
	file, content string
	// The log's positions before the step began, and after it was acknowledged.
	began, acknowledged int
}

func steps() []*step {
	write := func(element, path, content string) *step {
		return &step{args: []string{"exec", element, "--", "sh", "-c", "echo " + content + " > " + path +
			" && sync " + path + " /root"},
			file: element + " " + path, content: content}
	}
	all := []*step{
		{args: []string{"apply", "-f", "-"}, input: lab("ann", 2), has: map[string]int{"ann": 3}},
		write("ann/r", "/root/notes", "first"),
		{args: []string{"apply", "-f", "-"}, input: lab("ben", 2) + "---\n" + lab("eve", 2),
			has: map[string]int{"ann": 3, "ben": 3, "eve": 3}},
		{args: []string{"set", "ann/r", "memory=128MiB"}},
		write("ann/r", "/root/notes", "second"),
		{args: []string{"apply", "-f", "-"}, input: lab("ann", 4), has: map[string]int{"ann": 5, "ben": 3, "eve": 3}},
		{args: []string{"delete", "ben"}, has: map[string]int{"ann": 5, "eve": 3}},
		write("eve/r", "/root/own", "eves"),
		{args: []string{"apply", "-f", "-"}, input: lab("ben", 3), has: map[string]int{"ann": 5, "ben": 4, "eve": 3}},
		{args: []string{"stop", "eve/r"}},
		{args: []string{"delete", "ann"}, has: map[string]int{"ben": 4, "eve": 3}},
	}
	var has map[string]int
	for _, s := range all {
		if s.has == nil {
			s.has = has
		}
		has = s.has
	}
	return all
}

type machine struct {
	*testing.T
	binary string
	dirs   instance.Dirs
}

func (m *machine) try(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	defer cancel()
	c := exec.CommandContext(ctx, m.binary, args...)
	c.Env = append(os.Environ(), instance.Variable+"="+m.dirs.Name, "NO_COLOR=1")
	c.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	c.WaitDelay = time.Second
	if err := c.Run(); err != nil && ctx.Err() == nil && c.ProcessState.ExitCode() != 0 {
		return "", fmt.Errorf("polyplane %s: %w: %s%s", strings.Join(args, " "), err, said.String(), out.String())
	}
	return out.String(), ctx.Err()
}

func (m *machine) run(input string, args ...string) string {
	m.Helper()
	out, err := m.try(input, args...)
	if err != nil {
		m.Fatal(err)
	}
	return out
}

// mount mounts an image where instances keep their data.
func (m *machine) mount(image string) {
	m.Helper()
	if err := linux.MountImage(image, sandbox.Data, unix.MS_NOATIME, ""); err != nil {
		m.Fatalf("the file system is not to be mounted: %v", err)
	}
}

// unmount unmounts it, as soon as nobody uses it any more.
func (m *machine) unmount() {
	m.Helper()
	for end := time.Now().Add(generous); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Unmount(sandbox.Data, 0)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			m.Fatalf("unmount %s: %v", sandbox.Data, err)
		}
	}
}

// TestPowerCut has a user at work, and cuts the power at writes: at the beginning, at the end and at some in between,
// drawn anew each time; with POWERCUTS=40 at so many, with POWERCUTS=all at every flush. In every other cut the disk
// has a cache, and any part of what was written since the last flush is lost.
func TestPowerCut(t *testing.T) {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Fatalf("this kernel has no FUSE (CONFIG_FUSE_FS, the module fuse), which the test's disk is made of: %v", err)
	}
	m := &machine{T: t, binary: os.Getenv(sandbox.BinaryVariable),
		dirs: instance.NewDirs("powercut-" + strings.ToLower(rand.Text()[:6]))}
	dir := t.TempDir()
	release, err := sandbox.KeepData()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		os.Remove(m.dirs.DiskNote())                //nolint:errcheck // where `up` has not come so far there is none
		unix.Unmount(sandbox.Data, unix.MNT_DETACH) //nolint:errcheck // where a failure has left something
		if err := release(); err != nil {
			t.Error(err)
		}
	}()
	begin, now := filepath.Join(dir, "begin"), filepath.Join(dir, "now")
	const size = 1 << 30
	if out, err := exec.Command("mkfs.ext4", "-q", "-E", "lazy_itable_init=1", begin, strconv.Itoa(size>>10)+
		"k").CombinedOutput(); err != nil {
		t.Fatalf("make a file system: %v\n%s", err, out)
	}
	if err := linux.CopySparse(begin, now); err != nil {
		t.Fatal(err)
	}
	d, path, err := newDisk(dir, size, now)
	if err != nil {
		t.Fatal(err)
	}
	m.mount(path)
	end := func() {
		m.run("", "down")
		m.unmount()
	}
	m.run("", "up", "--nodes", "2", "-d")
	all := steps()
	for _, s := range all {
		s.began = d.position()
		m.run(s.input, s.args...)
		s.acknowledged = d.position()
	}
	end()
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	flushes := d.flushes()
	first := slices.IndexFunc(flushes, func(at int) bool { return at >= all[0].began })
	flushes = flushes[first:]
	t.Logf("%d writes and flushes, %d bytes; %d flushes since the first step", len(d.records), d.end, len(flushes))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := mathrand.New(mathrand.NewPCG(seed, 0))
	cuts := 4
	switch v := os.Getenv("POWERCUTS"); v {
	case "":
	case "all":
		cuts = len(flushes)
	default:
		if cuts, err = strconv.Atoi(v); err != nil {
			t.Fatalf("POWERCUTS=%s: a number or all", v)
		}
	}
	image := filepath.Join(dir, "cut")
	for i := range cuts {
		at := flushes[i*(len(flushes)-1)/max(cuts-1, 1)]
		var lost *mathrand.Rand
		if i%2 == 1 {
			// Some way into what was written after the flush, and then a part of it is lost.
			for at < len(d.records) && d.records[at].length > 0 && random.IntN(8) > 0 {
				at++
			}
			lost = random
		}
		if err := d.replay(begin, image, at, lost); err != nil {
			t.Fatal(err)
		}
		m.mount(image)
		m.verify(all, at)
		end()
	}
}

// verify wants an instance to come up after the power was cut at a position of the log, with what was acknowledged
// before, and what was under way carried out whole or not at all.
func (m *machine) verify(all []*step, at int) {
	m.Helper()
	m.run("", "up", "-d")
	// done are the steps that were acknowledged; the one behind them may have been under way.
	done := 0
	for done < len(all) && all[done].acknowledged <= at {
		done++
	}
	possible := []map[string]int{{}}
	if done > 0 {
		possible[0] = all[done-1].has
	}
	if done < len(all) && all[done].began <= at {
		possible = append(possible, all[done].has)
	}
	// What was being deleted is shown until all of it is gone.
	for end := time.Now().Add(generous); strings.Contains(m.run("", "get", "networks"),
		"deleting"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			m.Errorf("the power was cut at write %d, after %d steps: a network is never gone:\n%s", at, done,
				m.run("", "get", "networks"))
			return
		}
	}
	has := map[string]int{}
	for _, id := range strings.Fields(m.run("", "get", "elements", "-o", "name")) {
		name, _, _ := strings.Cut(id, "/")
		has[name]++
	}
	is := func(p map[string]int) bool { return maps.Equal(p, has) }
	if !slices.ContainsFunc(possible, is) {
		m.Errorf("the power was cut at write %d, after %d steps: there is %v, and must be one of %v", at,
			done, has, possible)
		return
	}
	for name := range has {
		// Networks do their job, where nothing was stopped.
		stopped := slices.ContainsFunc(all, func(s *step) bool {
			return s.args[0] == "stop" && strings.HasPrefix(s.args[1], name+"/") && s.began <= at
		})
		if stopped {
			continue
		}
		if _, err := m.try("", "check", name, "--mesh", "--wait", "120s"); err != nil {
			m.Errorf("the power was cut at write %d, after %d steps: %v", at, done, err)
		}
	}
	files := map[string]string{}
	for _, s := range all[:done] {
		if s.file != "" {
			files[s.file] = s.content
		}
	}
	for file, content := range files {
		element, path, _ := strings.Cut(file, " ")
		network, _, _ := strings.Cut(element, "/")
		if has[network] == 0 || done < len(all) && all[done].file == file && all[done].began <= at ||
			slices.ContainsFunc(all, func(s *step) bool {
				return s.args[0] == "stop" &&
					s.args[1] == element && s.began <= at
			}) {
			continue
		}
		if got := strings.TrimSpace(m.run("", "exec", element, "--", "cat", path)); got != content {
			m.Errorf("the power was cut at write %d, after %d steps: %s of %s says %q, and was acknowledged to say %q",
				at, done, path, element, got, content)
		}
	}
}
