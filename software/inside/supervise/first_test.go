package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("SUPERVISE") != "" { // this one is started by a test
		main()
	}
	os.Exit(m.Run())
}

// TestFirstProcessReaps: what somebody's commands leave behind does not stay, also where this one has started nothing;
// and it outlives SIGHUP.
func TestFirstProcessReaps(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes a namespace")
	}
	first := exec.Command("/proc/self/exe", "pause")
	first.Env = append(os.Environ(), "SUPERVISE=1")
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(first.Process.Pid)
	for { // it takes its signals
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(status), "Name:\tservice") {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for range 2 {
		if out, err := exec.Command("nsenter", "-t", pid, "-p", "sh", "-c", "sleep 0.05 & exit 0").CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		awaitNoChildren(t, pid)
	}
	if err := first.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("nsenter", "-t", pid, "-p", "sh", "-c", "sleep 0.05 & exit 0").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	awaitNoChildren(t, pid)
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
}

func awaitNoChildren(t *testing.T, pid string) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		some := false
		paths, _ := filepath.Glob("/proc/" + pid + "/task/*/children")
		if len(paths) == 0 {
			t.Fatal("the first process has ended")
		}
		for _, path := range paths {
			text, _ := os.ReadFile(path)
			some = some || len(text) > 0
		}
		if !some {
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("what has ended is still there")
		}
	}
}

// without does not take note of ends, which are those of a test's own programs as well.
func without() *processes { return &processes{live: map[int]*process{}, news: make(chan struct{}, 1)} }

// asleep is a process that only waits for its end.
func asleep(t *testing.T) *process {
	t.Helper()
	c := exec.Command("/bin/sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{pid: c.Process.Pid, ended: make(chan struct{})}
	go func() {
		c.Wait() //nolint:errcheck // it is ended by a signal
		p.status = 128 + int(c.ProcessState.Sys().(syscall.WaitStatus).Signal())
		close(p.ended)
	}()
	t.Cleanup(func() { p.signal(syscall.SIGKILL) })
	return p
}

// TestEnd: what ends by itself is not forced.
func TestEnd(t *testing.T) {
	one := asleep(t)
	end(nil, one)
	if one.running() || one.status != 128+int(syscall.SIGTERM) {
		t.Errorf("its status is %d", one.status)
	}
}

// TestRepairedConfigurationOfBIRD: a BIRD that did not take what was there first is ready once it takes the next one.
func TestRepairedConfigurationOfBIRD(t *testing.T) {
	inTemp(t)
	write(t, birdConf, "router id 10.255.0.1;\n")
	write(t, birdPID, "17\n")
	tell("trouble", "BIRD does not take its configuration")
	l, err := net.Listen("unix", birdControl)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.Write([]byte("0001 BIRD ready.\n"))
		c.Read(make([]byte, 100))
		c.Write([]byte("0002-Reading configuration\n0003 Reconfigured\n"))
	}()
	hash, err := configureBIRD()
	if err != nil {
		t.Fatal(err)
	}
	if err := noteReloaded(hash); err != nil {
		t.Fatal(err)
	}
	if is, want := told("bird"), "17 "+hash+" 1\n"; is != want || told("trouble") != "" {
		t.Errorf("%q is noted, and trouble %q; want %q", is, told("trouble"), want)
	}
}
