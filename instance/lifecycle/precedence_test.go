package lifecycle

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDaemonsHavePrecedence: a daemon that needs a processor has most of it, though another session wants all of it as
// well.
func TestDaemonsHavePrecedence(t *testing.T) {
	if on, err := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled"); err != nil ||
		strings.TrimSpace(string(on)) != "1" {
		t.Skip("this kernel makes no scheduling groups of sessions")
	}
	if groups, err := os.ReadFile("/proc/self/cgroup"); err != nil || !inRootGroup(groups) {
		t.Skip("this test runs in a control group, where sessions do not count")
	}
	spawner, err := newSpawner()
	if err != nil {
		t.Fatal(err)
	}
	// Both compute on the same processor.
	const loop = `echo $$ >"$1.new"; mv "$1.new" "$1"; while :; do :; done`
	computes := func(pidFile string) []string { return []string{"-c", "0", "sh", "-c", loop, "sh", pidFile} }
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	other := exec.Command(taskset, computes(dir+"/other")...)
	other.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := spawner.start(other, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Process.Kill(); other.Wait() })

	log, err := openLog(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithCancel(t.Context())
	s := &supervisor{spawner: spawner, executable: taskset, say: t.Logf, deaths: map[string]int{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.once(ctx, daemon{name: "daemon", args: computes(dir + "/daemon"), log: log}) //nolint:errcheck // it is ended
	}()
	defer func() { cancel(); <-ended }()
	var pid int
	for deadline := time.Now().Add(time.Minute); pid == 0; time.Sleep(10 * time.Millisecond) {
		data, _ := os.ReadFile(dir + "/daemon")
		if pid, _ = strconv.Atoi(strings.TrimSpace(string(data))); time.Now().After(deadline) {
			t.Fatal("the daemon does not start")
		}
	}
	if sid, err := syscall.Getpgid(pid); err != nil || sid != pid {
		t.Errorf("the daemon's process group is %d: %v; want its own, %d", sid, err, pid)
	}
	daemonBefore, otherBefore := ticks(t, pid), ticks(t, other.Process.Pid)
	for deadline := time.Now().Add(2 * time.Minute); ticks(t,
		pid)-daemonBefore < 150; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the daemon gets no processor")
		}
	}
	had, otherHad := ticks(t, pid)-daemonBefore, ticks(t, other.Process.Pid)-otherBefore
	if had < 4*otherHad {
		t.Errorf("the daemon had %d ticks of a processor and another session %d: want nine times as much", had,
			otherHad)
	}
}

// inRootGroup tells whether the processes of this cgroup file compete as sessions.
func inRootGroup(groups []byte) bool {
	for line := range bytes.Lines(groups) {
		_, rest, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		for name := range strings.SplitSeq(controllers, ",") {
			if name == "cpu" {
				return path == "/"
			}
		}
	}
	return bytes.HasSuffix(bytes.TrimSpace(groups), []byte("0::/"))
}

// ticks is the processor time that a process has had.
func ticks(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return user + system
}
