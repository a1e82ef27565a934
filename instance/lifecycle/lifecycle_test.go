package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/substrate"
)

// helperMode makes this test binary a daemon of TestSupervisor: it writes a line to the named file and waits.
const helperMode = "POLYPLANE_TEST_DAEMON"

func TestMain(m *testing.M) {
	if path := os.Getenv(helperMode); path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		var ns unix.Stat_t
		unix.Stat("/proc/self/ns/net", &ns)
		fmt.Println("hello from the daemon")
		fmt.Fprintf(f, "%d %d\n", os.Getpid(), ns.Ino)
		for { // a select without a case is a deadlock to Go's runtime, once nothing else waits for anything
			time.Sleep(time.Hour)
		}
	}
	code := m.Run()
	removeBinary()
	os.Exit(code)
}

// A daemon that is killed comes back, in the same namespace, and ends with the supervisor's context.
func TestSupervisorRestartsADaemon(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "told")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	told, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()

	d := instance.Dirs{Name: "x", Run: filepath.Join(dir, "run"), Data: filepath.Join(dir, "data")}
	s, err := substrate.Simulated(1, substrate.Ring, substrate.Machine{CPU: 1000, Memory: 1 << 30})
	if err == nil {
		s, err = substrate.Number(s, model.Substrate{})
	}
	if err == nil {
		_, err = substrate.Simulate(d, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	ns := d.Node("n1").NodeNamespace()
	defer unix.Unmount(ns, unix.MNT_DETACH)
	var want unix.Stat_t
	if err := unix.Stat(ns, &want); err != nil {
		t.Fatal(err)
	}

	sp, err := newSpawner()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said []string
	sup := &supervisor{spawner: sp, executable: "/proc/self/exe", deaths: map[string]int{},
		say: func(f string, a ...any) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, fmt.Sprintf(f, a...))
		}}
	log, err := openLog(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		sup.keep(ctx, daemon{name: "helper", namespace: ns, env: []string{helperMode + "=" + fifo}, log: log})
	}()
	life := func() int {
		var pid int
		var ino uint64
		if _, err := fmt.Fscanln(told, &pid, &ino); err != nil {
			t.Fatal(err)
		}
		if ino != want.Ino {
			t.Errorf("the daemon is in namespace %d, want %d", ino, want.Ino)
		}
		return pid
	}
	first := life()
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := life()
	if first == second {
		t.Errorf("the same process twice: %d", first)
	}
	cancel()
	<-done
	if err := unix.Kill(second, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the daemon lives on after its supervisor was ended: %v", err)
	}
	if sup.died("helper") != 1 {
		t.Errorf("counted %d deaths, want 1", sup.died("helper"))
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 1 || !strings.Contains(said[0], "helper") || !strings.Contains(said[0], "killed") {
		t.Errorf("said %q", said)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "log")); strings.Count(string(b), "hello from the daemon") != 2 {
		t.Errorf("the log holds %q, want both lives' words", b)
	}
}

// A daemon that hangs is ended and started again; one that answers late now and then is left alone, as is one that
// nobody could ask.
func TestSupervisorRestartsADaemonThatHangs(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "systemd"))
	dir := t.TempDir()
	fifo := filepath.Join(dir, "told")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	told, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	sp, err := newSpawner()
	if err != nil {
		t.Fatal(err)
	}
	log, err := openLog(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	said := make(chan string, 10)
	sup := &supervisor{spawner: sp, executable: "/proc/self/exe", deaths: map[string]int{},
		say: func(f string, a ...any) { said <- fmt.Sprintf(f, a...) }}
	var hanging, asked atomic.Int64
	w := &watch{every: 10 * time.Millisecond, most: 4, first: 1000, ask: func(ctx context.Context) error {
		n := asked.Add(1)
		if hanging.Load() == 0 || hanging.Load() == 1 && n%4 != 0 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		sup.keep(ctx, daemon{name: "helper", env: []string{helperMode + "=" + fifo}, log: log, watch: w})
	}()
	life := func() (pid int) {
		var ino uint64
		if _, err := fmt.Fscanln(told, &pid, &ino); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	first := life()
	// What systemd told `up` is not for its daemons: runc would hand it on to elements, and wait for their word.
	if environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", first)); err != nil ||
		strings.Contains(string(environment), "NOTIFY_SOCKET") {
		t.Errorf("the daemon's environment: %q, %v", environment, err)
	}
	hanging.Store(1) // one answer in four does not come
	for until := asked.Load() + 40; asked.Load() < until; {
		time.Sleep(5 * time.Millisecond)
	}
	if len(said) > 0 {
		t.Fatalf("a daemon that answers was ended: %s", <-said)
	}
	if err := unix.Kill(first, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	hanging.Store(2)
	words := <-said
	hanging.Store(0)
	if !strings.Contains(words, "helper") || !strings.Contains(words, "hung and was killed") {
		t.Errorf("said %q", words)
	}
	if second := life(); second == first {
		t.Errorf("the same process twice: %d", first)
	}
	cancel()
	<-done
}

// A daemon that hangs from its start is ended after as many answers' time as one that refuses, not after ten times
// that.
func TestWatchEndsWhatHangsFromItsStart(t *testing.T) {
	asked := 0
	w := &watch{every: 50 * time.Millisecond, most: 3, first: 2, ask: func(ctx context.Context) error {
		asked++
		<-ctx.Done()
		return ctx.Err()
	}}
	ended := make(chan struct{})
	go w.guard(t.Context(), func(string) { close(ended) })
	<-ended
	if asked != 2 {
		t.Errorf("asked %d times, each for as long as an answer may take; want 2", asked)
	}
}

// An agent answers, and its loop stands still.
func TestWatchAgentKnowsALoopThatStandsStill(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var beat atomic.Pointer[model.Beat]
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		json.NewEncoder(w).Encode(beat.Load())
	})}
	go s.Serve(l)
	defer s.Close()
	ask := watchAgent(socket).ask
	beat.Store(&model.Beat{Turns: 7, Step: "make elements", Still: model.Duration(stuckTime / 2)})
	if err := ask(t.Context()); err != nil {
		t.Errorf("slow, but not hanging: %v", err)
	}
	beat.Store(&model.Beat{Turns: 7, Step: "make elements", Still: model.Duration(stuckTime)})
	var stuck *stuckError
	if err := ask(t.Context()); !errors.As(err, &stuck) || !strings.Contains(err.Error(), `"make elements"`) {
		t.Errorf("a loop that stands still: %v", err)
	}
	s.Close()
	if err := ask(t.Context()); err == nil || errors.As(err, &stuck) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestLogIsTurnedOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	line := []byte(strings.Repeat("x", 1<<16-1) + "\n")
	for range 3 * logSize / len(line) {
		l.Write(line)
	}
	for _, p := range []string{path, path + ".1"} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() == 0 || info.Size() > logSize {
			t.Errorf("%s has %d bytes, want 1 to %d", p, info.Size(), logSize)
		}
	}
}

func TestLockIsHeldByOne(t *testing.T) {
	dir := t.TempDir()
	d := instance.Dirs{Name: "x", Run: filepath.Join(dir, "x"), Data: filepath.Join(dir, "data")}
	l, err := acquire(d, "up")
	if err != nil {
		t.Fatal(err)
	}
	_, err = acquire(d, "up")
	var busy *BusyError
	if !errors.As(err, &busy) || busy.Holder.PID != os.Getpid() || time.Since(busy.Holder.Started) > time.Hour {
		t.Fatalf("a second acquire: %v, want a BusyError of this process", err)
	}
	if !strings.Contains(err.Error(), "already running, since") ||
		!strings.Contains(err.Error(), "polyplane down --instance x") {
		t.Errorf("the words are %q", err)
	}
	l.release()
	if l, err = acquire(d, "down"); err != nil {
		t.Fatalf("after the release: %v", err)
	}
	l.release()
	if _, err := os.Stat(d.Lock()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock's file stays: %v", err)
	}
}

func TestDecide(t *testing.T) {
	m := substrate.Machine{Name: "box", CPU: 4000, Memory: 8 << 30}
	first, err := decide(Options{Nodes: 3, Topology: substrate.Line}, settings{}, false, m)
	if err != nil || len(first.Substrate.Nodes) != 3 || len(first.Substrate.Links) != 2 || !first.simulated() {
		t.Fatalf("three nodes: %+v, %v", first, err)
	}
	again, err := decide(Options{}, first, true, m)
	if err != nil || again.describe() != "3 simulated nodes, line" {
		t.Errorf("without arguments: %q, %v; want what was", again.describe(), err)
	}
	hooked, err := decide(Options{Hook: model.HookXDP}, first, true, m)
	if err != nil || hooked.Substrate.Hook != model.HookXDP || first.Substrate.Hook != "" {
		t.Errorf("with a hook: %+v, %v", hooked, err)
	}
	if again, err := decide(Options{Nodes: 4}, hooked, true, m); err != nil || again.Substrate.Hook != model.HookXDP {
		t.Errorf("the hook is forgotten: %+v, %v", again, err)
	}
	grown, err := decide(Options{Nodes: 4}, first, true, m)
	if err != nil || grown.Topology != substrate.Line ||
		grown.Substrate.Nodes[2].Address != first.Substrate.Nodes[2].Address {
		t.Errorf("a node more: %+v, %v; want the same topology and addresses", grown, err)
	}
	host, err := decide(Options{}, settings{}, false, m)
	if err != nil || host.simulated() || host.Substrate.Nodes[0].Name != "box" {
		t.Errorf("the first time without arguments: %+v, %v; want this machine", host, err)
	}
	for _, o := range []Options{{Nodes: 2, File: "x"}, {Topology: substrate.Line},
		{Nodes: HostOnly, Topology: substrate.Line},
		{Nodes: 2, Topology: "star"}, {File: "/nowhere.yaml"}} {
		if _, err := decide(o, settings{}, false, m); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func TestCheckChange(t *testing.T) {
	dir := t.TempDir()
	d := instance.Dirs{Name: "x", Run: filepath.Join(dir, "x"), Data: filepath.Join(dir, "data")}
	m := substrate.Machine{Name: "box", CPU: 4000, Memory: 8 << 30}
	choose := func(o Options, old settings) settings {
		s, err := decide(o, old, len(old.Substrate.Nodes) > 0, m)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	old := choose(Options{Nodes: 3, Topology: substrate.Line}, settings{})
	if err := checkChange(d, old, choose(Options{Nodes: 1}, old)); err != nil {
		t.Errorf("without networks: %v", err)
	}
	n3 := d.Node("n3")
	if err := os.MkdirAll(n3.Data, 0o755); err != nil {
		t.Fatal(err)
	}
	text := `{"node":"n3","revision":1,"networks":[{"name":"lab","index":1,"elements":[{"name":"r1","kind":"router"},{"name":"r2","kind":"router"}]}]}`
	if err := os.WriteFile(n3.Desired(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want string // nothing: accepted
	}{
		{Options{}, ""},
		{Options{Nodes: 5}, ""},
		{Options{Nodes: 3, Topology: substrate.Ring}, ""},
		{Options{Nodes: 2}, "node n3 with 2 elements would go"},
		{Options{Nodes: HostOnly}, "node n3 with 2 elements would go"},
		{Options{Etcd: Etcd{URLs: "http://elsewhere:2379"}}, "another store"},
	} {
		err := checkChange(d, old, choose(c.o, old))
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "lab")) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	mesh := choose(Options{Nodes: 3, Topology: substrate.Mesh}, old)
	if err := checkChange(d, mesh, choose(Options{Nodes: 3, Topology: substrate.Line}, mesh)); err == nil ||
		!strings.Contains(err.Error(), "link n1 -- n3 would go") {
		t.Errorf("a link less: %v", err)
	}
}

func TestUnescape(t *testing.T) {
	if got := unescape(`/run/a\040b\134c`); got != `/run/a b\c` {
		t.Errorf("got %q", got)
	}
}

// Certificates are remembered with their cluster, and not taken along to another.
func TestCertificatesBelongToTheirCluster(t *testing.T) {
	old := Etcd{URLs: "https://a:2379", CA: "/ca", Cert: "/cert", Key: "/key"}
	for _, test := range []struct{ given, old, want Etcd }{
		{Etcd{}, Etcd{}, Etcd{}},
		{Etcd{}, old, old},
		{Etcd{CA: "/new"}, old, Etcd{"https://a:2379", "/new", "/cert", "/key"}},
		{Etcd{URLs: "http://b:2379"}, old, Etcd{URLs: "http://b:2379"}},
		{Etcd{URLs: "https://b:2379", CA: "/x/../b"}, old, Etcd{URLs: "https://b:2379", CA: "/b"}},
	} {
		if got, err := test.given.over(test.old); err != nil || got != test.want {
			t.Errorf("%+v over %+v: %+v, %v", test.given, test.old, got, err)
		}
	}
	if _, err := (Etcd{CA: "/ca"}).over(Etcd{}); err == nil || !strings.Contains(err.Error(), "need --etcd") {
		t.Error(err)
	}
}
