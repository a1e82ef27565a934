package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fakes listen where FRR's daemons would, and note what each is told.
type fakes struct {
	mu   sync.Mutex
	told map[string][]string
	hear func(text string) // before it is answered
}

func listenAs(t *testing.T, dir string, names []string) *fakes {
	t.Helper()
	f := &fakes{told: map[string][]string{}}
	for _, name := range names {
		l, err := net.Listen("unix", filepath.Join(dir, name+".vty"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go f.serve(name, c)
			}
		}()
	}
	return f
}

func (f *fakes) serve(name string, c net.Conn) {
	defer c.Close()
	var got []byte
	part := make([]byte, 4096)
	for {
		n, err := c.Read(part)
		got = append(got, part[:n]...)
		for {
			text, rest, whole := bytes.Cut(got, []byte{0})
			if !whole {
				break
			}
			f.mu.Lock()
			f.told[name] = append(f.told[name], string(text))
			f.mu.Unlock()
			if f.hear != nil {
				f.hear(string(text))
			}
			if string(text) == "show version" {
				c.Write([]byte(frrKnown))
			}
			c.Write([]byte{0, 0, 0, 0})
			got = rest
		}
		if err != nil {
			return
		}
	}
}

// TestShareIsVtyshs has FRR's own vtysh give every generated configuration to daemons that only listen. Each is told by
// us what vtysh tells it, in the same order. After each block vtysh leaves and enters the configuration of all daemons
// anew, which we spare them.
func TestShareIsVtyshs(t *testing.T) {
	if out, err := exec.Command("/usr/lib/frr/zebra", "--version").CombinedOutput(); err != nil {
		t.Fatalf("zebra, of Debian's package frr: %v\n%s", err, out)
	} else if !strings.Contains(string(out), "version 8.4") {
		t.Skipf("only FRR 8.4 is configured without vtysh; here is %.40q", out)
	}
	files := configurations(t)
	programs := strings.Fields(everybody)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		hash, known, misfit := lookAt(file)
		if !known || misfit != "" {
			t.Errorf("%s is left to vtysh: a line of it has no rule %s", file, misfit)
			continue
		}
		ours := t.TempDir()
		g := listenAs(t, ours, programs)
		if given, err := give(file, daemonsAt(t, ours, programs)); err != nil || given != hash {
			t.Fatalf("%s: %s was given of %s: %v", file, given, hash, err)
		}
		dir := t.TempDir()
		conf := filepath.Join(dir, "frr.conf")
		if err := os.WriteFile(conf, text, 0o644); err != nil {
			t.Fatal(err)
		}
		f := listenAs(t, dir, programs)
		if out, err := exec.Command("vtysh", "-b", "--vty_socket", dir, "--config_dir", dir).CombinedOutput(); err != nil {
			t.Fatalf("%s: vtysh: %v\n%s", file, err, out)
		}
		f.mu.Lock()
		for _, program := range programs {
			is, want := g.told[program], withoutPairs(f.told[program])
			if !slices.Equal(is, want) {
				t.Errorf("%s: %s is told %q, and by vtysh %q", filepath.Base(file), program, is, want)
			}
		}
		f.mu.Unlock()
	}
}

func withoutPairs(told []string) (all []string) {
	for i := 0; i < len(told); i++ {
		if told[i] == "end" && i+1 < len(told) && told[i+1] == "configure" {
			i++
			continue
		}
		all = append(all, told[i])
	}
	return all
}

// configurations are those that vtysh is compared with: the ones that package software writes in its tests, and one
// with what it can write besides.
func configurations(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../testdata/frr-*.conf")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no generated configurations (%v)", err)
	}
	return append(files, "testdata/frr-besides.conf")
}

func daemonsAt(t *testing.T, dir string, programs []string) (all []*daemon) {
	t.Helper()
	for _, name := range programs {
		v, err := openVTY(filepath.Join(dir, name+".vty"), patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.close)
		all = append(all, &daemon{name: name, program: name, vty: v})
	}
	return all
}

// TestEveryRuleIsCompared: of each rule there is a line whose way is compared with vtysh's.
func TestEveryRuleIsCompared(t *testing.T) {
	used := map[string]bool{}
	for _, file := range configurations(t) {
		at, path := []*block{generated()}, []string{""}
		if _, misfit := eachLine(file, func(text []byte) {
			words := strings.Fields(string(text))
			plain := strings.Join(words, " ")
			last := len(at) - 1
			switch {
			case plain == "" || plain == "!" || plain == "end":
				return
			case last > 0 && plain == at[last].end:
				at, path = at[:last], path[:last]
				return
			}
			r := at[last].find(words)
			if r == nil {
				t.Errorf("%s: there is no rule for %q", file, text)
				return
			}
			name := path[last] + " > " + strings.Join(r.form, " ")
			used[name] = true
			if r.block != nil {
				at, path = append(at, r.block), append(path, name)
			}
		}); misfit != "" {
			t.Fatal(misfit)
		}
	}
	var walk func(b *block, path string)
	walk = func(b *block, path string) {
		for _, r := range b.rules {
			name := path + " > " + strings.Join(r.form, " ")
			if !used[name] {
				t.Errorf("no configuration has a line for%s", name)
			}
			if r.block != nil {
				walk(r.block, name)
			}
		}
	}
	walk(generated(), "")
}

// TestLongLinesAreVtyshs: FRR's daemons would never answer a line of 4094 bytes, and run what is behind 4095.
func TestLongLinesAreVtyshs(t *testing.T) {
	for length, want := range map[int]bool{mostLine: true, mostLine + 1: false, 4094: false, 5000: false, 1 << 20: false} {
		begin := " neighbor 192.0.2.1 description "
		path := filepath.Join(t.TempDir(), "frr.conf")
		text := "router bgp 1\n" + begin + strings.Repeat("a", length-len(begin)) + "\nexit\nend\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		hash, known, misfit := lookAt(path)
		if known != want || misfit != "" || hash != hashOf([]byte(text)) {
			t.Errorf("with a line of %d bytes it is %v, %s %s", length, known, hash, misfit)
		}
	}
}

// TestDaemonThatDoesNotAnswer: a wait ends, and nothing else waits for it.
func TestDaemonThatDoesNotAnswer(t *testing.T) {
	dir := inTemp(t)
	l, err := net.Listen("unix", filepath.Join(dir, "zebra.vty")) // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	v, err := openVTY(filepath.Join(dir, "zebra.vty"), 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	if _, err := v.ask("show version"); err != errSilent {
		t.Errorf("it is told %v", err)
	}
	write(t, frrConf, "hostname r1\nend\n")
	write(t, frrVtysh, "service integrated-vtysh-config\n")
	if err := v.wait(patience); err != nil {
		t.Fatal(err)
	}
	zebra := &daemon{name: "zebra", program: "zebra", stage: listening, vty: v, process: &process{ended: make(chan struct{})}}
	f := &frr{p: without(), quick: true, daemons: []*daemon{zebra}}
	if f.step() || f.loading == nil { // which returns all the same
		t.Error("it is not being configured")
	}
	syscall.Shutdown(v.fd, syscall.SHUT_RDWR) //nolint:errcheck // so that the attempt ends
	if done := <-f.loading; done.ok {
		t.Error("it has its configuration")
	}
}

// inTemp has all files of FRR, BIRD and their notes elsewhere, and no programs.
func inTemp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for at, name := range map[*string]string{&frrSockets: "/", &frrConf: "/frr.conf", &frrVtysh: "/vtysh.conf",
		&notesDir: "/", &birdConf: "/bird.conf", &birdControl: "/bird.ctl", &birdPID: "/bird.pid"} {
		was := *at
		t.Cleanup(func() { *at = was })
		*at = dir + name
	}
	t.Setenv("PATH", dir)
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestConfigurationThatIsWrittenMeanwhile: what is noted is what was there at last, and has been given.
func TestConfigurationThatIsWrittenMeanwhile(t *testing.T) {
	dir := inTemp(t)
	write(t, frrConf, "ip route 192.0.2.1/32 Null0\nend\n")
	write(t, frrVtysh, "service integrated-vtysh-config\n")
	second := "ip route 192.0.2.2/32 Null0\nend\n"
	f := listenAs(t, dir, []string{"staticd"})
	f.hear = func(text string) {
		if text == "disable" { // all was read
			write(t, frrConf, second)
		}
	}
	r := &frr{p: without(), quick: true}
	hash, ok := r.load(daemonsAt(t, dir, []string{"staticd"}))
	if !ok || hash != hashOf([]byte(second)) {
		t.Errorf("it is loaded: %v, with %s", ok, hash)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.told["staticd"], "ip route 192.0.2.2/32 Null0\n") {
		t.Errorf("it is told %q", f.told["staticd"])
	}
}

// TestForgottenDaemonIsNotConfigured: where zebra ends, those before it end with it.
func TestForgottenDaemonIsNotConfigured(t *testing.T) {
	dir := inTemp(t)
	listenAs(t, dir, []string{"mgmtd"})
	f := &frr{p: without()}
	mgmtd := &daemon{name: "mgmtd", program: "no-such", stage: listening, process: asleep(t)}
	zebra := &daemon{name: "zebra", program: "no-such", stage: configured, fails: 5, process: failed(1, "it ended")}
	f.daemons = []*daemon{mgmtd, zebra}
	f.step()
	if f.loading != nil || mgmtd.process == nil || mgmtd.stage == listening || mgmtd.stage == configured {
		t.Errorf("mgmtd is %+v, and loading %v", mgmtd, f.loading != nil)
	}
}

// TestLargeConfigurationNeedsNoMemory: it may be larger than what an element may use.
func TestLargeConfigurationNeedsNoMemory(t *testing.T) {
	inTemp(t)
	var b strings.Builder
	for i := range 300_000 {
		fmt.Fprintf(&b, "ip route 10.%d.%d.%d/32 192.0.2.1\n", i>>16&255, i>>8&255, i&255)
	}
	write(t, frrConf, b.String()+"end\n")
	b = strings.Builder{}
	var told atomic.Int64
	ours, theirs, err := pairOfSockets()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	go func() {
		part := make([]byte, 4096)
		for {
			n, err := theirs.Read(part)
			if err != nil {
				return
			}
			ends := bytes.Count(part[:n], []byte{0})
			told.Add(int64(ends))
			theirs.Write(make([]byte, 4*ends))
		}
	}()
	v := &vty{fd: ours}
	defer v.close()
	runtime.GC()
	debug.FreeOSMemory()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, known, _ := lookAt(frrConf); !known {
		t.Error("it is left to vtysh")
	}
	if _, err := give(frrConf, []*daemon{{name: "staticd", program: "staticd", vty: v}}); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if told.Load() < 300_000 {
		t.Errorf("%d commands were given", told.Load())
	}
	if grown := int64(after.Sys) - int64(before.Sys); grown > 16<<20 {
		t.Errorf("it took %d MiB", grown>>20)
	}
}

func pairOfSockets() (ours int, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	return fds[0], os.NewFile(uintptr(fds[1]), "theirs"), nil
}
