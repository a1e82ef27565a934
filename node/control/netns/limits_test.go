package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// birdLine is lineOf with BIRD, the least that has processes.
func birdLine(network string, index uint32, n int) []control.Job {
	jobs := lineOf(network, index, n)
	for i := range jobs {
		jobs[i].Element.Software = model.SoftwareBIRD
	}
	return jobs
}

// What one element does to its limits stays within it: the other's processes go on, have memory, can be started and
// write.
func TestLimitsBite(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 40, 2)
	jobs[0].Element.Memory, jobs[0].Element.Processes, jobs[0].Element.Disk = 32<<20, 64, 16<<20
	n.awaitPhases(t, jobs, model.PhaseRunning) // what starts a router ends, and the router with it, when it cannot fork
	bad, good := jobs[0].ID, jobs[1].ID
	pid := n.pidOf(t, good)
	fine := func(after string) {
		t.Helper()
		if n.pidOf(t, good) != pid {
			t.Fatalf("after %s in its neighbour %s was restarted", after, good)
		}
		n.run(t, good, "sh", "-c", "head -c 20M /dev/zero > /root/f && sleep 0 & wait; rm /root/f")
		u := n.Usage(t.Context())[good]
		if u.Killed != 0 || u.Refused != 0 || u.DiskFull {
			t.Errorf("after %s in its neighbour %s has %+v", after, good, u)
		}
	}
	usage := func() control.Usage { return n.Usage(t.Context())[bad] }

	t.Run("processes", func(t *testing.T) {
		storm := `for (1..200) { my $p = fork; if (!defined $p) { $n++ } elsif (!$p) { sleep 1000; exit } else { push @p, $p } }
			kill 9, @p; wait for @p; print "refused $n"`
		if out := n.run(t, bad, "perl", "-e", storm); !strings.HasPrefix(out, "refused 1") {
			t.Errorf("200 processes are too many for a limit of 64: %q", out)
		}
		if u := usage(); u.Refused == 0 || u.Processes > 64 {
			t.Errorf("usage %+v: processes were refused", u)
		}
		fine("a storm of processes")
	})
	t.Run("memory", func(t *testing.T) {
		status, _, err := n.try(bad, "sh", "-c", "head -c 200M /dev/zero | tail -n 1 > /dev/null")
		if err != nil || status == 0 {
			t.Errorf("a process took 200 MiB of 32: status %d, %v", status, err)
		}
		if u := usage(); u.Killed == 0 || u.Memory > 32<<20 || u.Limits.Memory != 32<<20 {
			t.Errorf("usage %+v: a process was ended", u)
		}
		fine("a hog of memory")
	})
	for _, d := range []struct{ what, fill string }{
		{"disk", "cat /dev/zero > /root/fill"},
		{"inodes", "mkdir -p /root/many; i=0; while : > /root/many/$i; do i=$((i+1)); done"},
	} {
		t.Run(d.what, func(t *testing.T) {
			var before, after unix.Statfs_t
			if err := unix.Statfs(n.dirs.Data, &before); err != nil {
				t.Fatal(err)
			}
			if _, out, err := n.try(bad, "bash", "-c", d.fill); err != nil || !strings.Contains(out, "No space left") {
				t.Errorf("filling its disk ended with %q, %v", out, err)
			}
			if u := usage(); !u.DiskFull || u.Disk > 16<<20 {
				t.Errorf("usage %+v: the disk is full", u)
			}
			if err := unix.Statfs(n.dirs.Data, &after); err != nil {
				t.Fatal(err)
			}
			if before.Ffree-min(after.Ffree, before.Ffree) > 500 {
				t.Errorf("the machine has lost %d of its files", before.Ffree-after.Ffree)
			}
			fine("a full disk")
			// It can still be started again, and what is deleted is room again.
			n.in(t, good, "true")
			jobs[0].Element.Restarts++
			n.apply(t, jobs)
			n.run(t, bad, "rm", "-r", "/root/fill", "/root/many", "-f")
			n.run(t, bad, "sh", "-c", "head -c 1M /dev/zero > /root/fill; rm /root/fill")
			if usage().DiskFull {
				t.Error("its disk is full although it was emptied")
			}
		})
	}
}

// Limits change while processes run, which notice nothing else.
func TestLimitsChangeAtRunTime(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 41, 1)
	n.apply(t, jobs)
	id, e := jobs[0].ID, &jobs[0].Element
	pid := n.pidOf(t, id)
	if got := n.run(t, id, "sh", "-c", "ulimit -n; ulimit -Hn"); got != "4096\n4096\n" {
		t.Errorf("by default a process may have open %q", got)
	}
	l := e.Limits()
	if l.Memory != model.DefaultMemory || l.Processes != model.DefaultProcesses {
		t.Fatalf("defaults are %+v", l)
	}
	check := func() {
		t.Helper()
		l := e.Limits()
		for _, f := range []struct {
			controller, v1, v2 string
			want               int64
		}{
			{"memory", "memory.limit_in_bytes", "memory.max", int64(l.Memory)},
			{"pids", "pids.max", "pids.max", int64(l.Processes)},
		} {
			got, ok := n.groupNumber(f.controller, containerID(id), f.v1)
			if !ok {
				got, _ = n.groupNumber(f.controller, containerID(id), f.v2)
			}
			if got != f.want {
				t.Errorf("the limit of %s is %d, want %d", f.controller, got, f.want)
			}
		}
		quota, v1 := n.groupNumber("cpu", containerID(id), "cpu.cfs_quota_us")
		if text, err := n.readGroup("cpu", containerID(id), "cpu.max"); !v1 && err == nil {
			if _, err := fmt.Sscan(strings.Replace(string(text), "max", "-1", 1), &quota); err != nil {
				t.Errorf("the quota is %q: %v", text, err)
			}
		}
		want := int64(l.CPU) * cpuPeriod / 1000
		if l.CPU == 0 {
			want = -1
		}
		if quota != want {
			t.Errorf("the quota is %d µs of %d, want %d", quota, cpuPeriod, want)
		}
		var s unix.Statfs_t
		if err := unix.Statfs(n.dirs.Files(id), &s); err != nil {
			t.Fatal(err)
		}
		if size := model.Bytes(s.Blocks) * model.Bytes(s.Bsize); size > l.Disk || size < l.Disk*9/10-8<<20 {
			t.Errorf("its disk has room for %s, want nearly %s", size, l.Disk)
		}
		var files unix.Rlimit
		if err := unix.Prlimit(n.pidOf(t, id), unix.RLIMIT_NOFILE, nil, &files); err != nil ||
			files.Max != uint64(l.OpenFiles) {
			t.Errorf("its first process may have %d files open (%v), want %d", files.Max, err, l.OpenFiles)
		}
	}
	check()
	n.run(t, id, "sh", "-c", "echo kept > /root/note")
	e.CPU, e.Memory, e.Processes, e.OpenFiles, e.Disk = 50, 64<<20, 100, 2000, 512<<20
	want := []string{"r0: limits changed"}
	if !mayRaise() {
		want = append([]string{"r0: its disk grows at its next start: " + noRaise}, want...)
	}
	if got := changes(n.apply(t, jobs)); !slices.Equal(got, want) {
		t.Errorf("apply said %q", got)
	}
	if !mayRaise() {
		e.Restarts++
		n.apply(t, jobs)
		pid = n.pidOf(t, id)
	}
	check()
	if got := n.run(t, id, "sh", "-c", "ulimit -n; cat /root/note"); got != "2000\nkept\n" {
		t.Errorf("a new process says %q", got)
	}
	// Several times what the quota allows at once. On a busy machine others take the processor before the quota does.
	for tries := 1; ; tries++ {
		u := n.Usage(t.Context())[id]
		if u.CPU > 0 && u.Throttled > 0 {
			break
		}
		if tries > 50 {
			t.Fatalf("usage %+v: it took a core's time, and never had to wait for some", u)
		}
		n.run(t, id, "sh", "-c", "for i in 1 2 3 4; do perl -e '1 for 1..5e6' & done; wait")
	}
	e.CPU, e.Memory, e.Processes, e.OpenFiles = 0, 0, 0, 1500
	n.apply(t, jobs)
	check()
	if now := n.pidOf(t, id); now != pid {
		t.Errorf("its first process was %d and is %d", pid, now)
	}
}

// Suspended processes do not run and are there still after a restart of the agent; what the kernel forwards goes on.
func TestSuspend(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 42, 3)
	n.apply(t, jobs)
	middle := jobs[1].ID
	pid := n.pidOf(t, middle)
	state := func() string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	jobs[1].Element.Suspended = true
	results := n.apply(t, jobs)
	if got := changes(results); !slices.Equal(got, []string{"r1: suspended"}) ||
		results[1].Phase != model.PhaseSuspended {
		t.Errorf("apply said %q, phase %s", got, results[1].Phase)
	}
	if !n.frozen(containerID(middle)) {
		t.Errorf("its processes are not held: they wait in %s", state())
	}
	if _, _, err := n.try(middle, "true"); err == nil || !strings.Contains(err.Error(), "polyplane resume lab/r1") {
		t.Errorf("a command in a suspended element ends with %v", err)
	}
	if got := changes(n.apply(t, jobs)); len(got) != 0 {
		t.Errorf("once more it says %q", got)
	}
	// Somebody lets them go on: they are held again.
	if err := n.thaw(containerID(middle)); err != nil {
		t.Fatal(err)
	}
	n.apply(t, jobs)
	n.restart(t)
	n.apply(t, jobs)
	if !n.frozen(containerID(middle)) || n.pidOf(t, middle) != pid {
		t.Errorf("after the driver's restart its processes are not as before")
	}
	jobs[1].Element.Suspended = false
	if got := changes(n.apply(t, jobs)); !slices.Equal(got, []string{"r1: resumed"}) {
		t.Errorf("apply said %q", got)
	}
	n.untilRuns(t, middle, "BIRD", "birdc", "show", "status")
	if n.pidOf(t, middle) != pid {
		t.Error("resuming restarted it")
	}
	// What is suspended can be stopped, and removed (by the test's end).
	jobs[1].Element.Suspended, jobs[2].Element.Suspended = true, true
	n.apply(t, jobs)
	jobs[1].Element.Stopped = true
	if r := n.apply(t, jobs); r[1].Phase != model.PhaseStopped {
		t.Errorf("phase %s", r[1].Phase)
	}
}

// Files that an earlier polyplane kept beside each other move onto disks, when their element is started again.
func TestFilesMoveOntoDisks(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 43, 1)
	id := jobs[0].ID
	old := filepath.Join(n.dirs.Files(id), "rootfs", "root")
	if err := os.MkdirAll(old, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "note"), []byte("of old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.apply(t, jobs)
	if got := n.run(t, id, "cat", "/root/note"); got != "of old\n" {
		t.Errorf("the note says %q", got)
	}
	if !linux.IsMount(n.dirs.Files(id)) {
		t.Error("its files are on no disk of their own")
	}
	// A reboot takes the mount away, an error of the file system is mended before it is mounted again.
	jobs[0].Element.Stopped = true
	n.apply(t, jobs)
	if err := n.unmountDisk(id, 0); err != nil {
		t.Fatal(err)
	}
	if out := sh(t, "debugfs -w -R 'ssv state 2' "+strconv.Quote(n.dirs.Disk(id))+
		" 2>&1"); strings.Contains(out, "error") {
		t.Fatal(out)
	}
	jobs[0].Element.Stopped = false
	n.apply(t, jobs)
	if got := n.run(t, id, "cat", "/root/note"); got != "of old\n" {
		t.Errorf("after all that the note says %q", got)
	}
	// One without processes has no disk, but for as long as commands run in it.
	host := lineOf("lab", 43, 1)
	host[0].ID.Element, host[0].Element.Name = "h", "h"
	jobs = append(jobs, host...)
	n.apply(t, jobs)
	if _, err := os.Stat(n.dirs.Disk(host[0].ID)); err == nil {
		t.Error("an element without processes has a disk")
	}
	n.run(t, host[0].ID, "sh", "-c", "echo here > /root/note")
	if linux.IsMount(n.dirs.Files(host[0].ID)) {
		t.Error("its disk is mounted although nothing runs")
	}
	if got := n.run(t, host[0].ID, "cat", "/root/note"); got != "here\n" {
		t.Errorf("its note says %q", got)
	}
}

// What somebody mounted in the place of an element's files is not emptied.
func TestDiskLeavesAnothersMountAlone(t *testing.T) {
	n := newNode(t)
	job := birdLine("lab", 44, 1)[0]
	dir := n.dirs.Files(job.ID)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	note := filepath.Join(dir, "note")
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.mountDisk(&job); err == nil || !strings.Contains(err.Error(), "something else is mounted") {
		t.Errorf("the disk was mounted over another's: %v", err)
	}
	if _, err := os.Stat(note); err != nil {
		t.Error(err)
	}
}

// An element that starts one process after another does not hold up a change of its limits.
func TestLimitsChangeInAStormOfProcesses(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 45, 1)
	n.apply(t, jobs)
	id := jobs[0].ID
	ended := make(chan error)
	go func() {
		storm := `open(F, ">/root/storm"); until (-e "/root/stop") { my $p = fork; exit if defined $p && !$p; waitpid $p, 0 }`
		_, _, err := n.try(id, "perl", "-e", storm)
		ended <- err
	}()
	n.run(t, id, "sh", "-c", "until [ -e /root/storm ]; do sleep 0.01; done")
	jobs[0].Element.OpenFiles = 2048
	n.apply(t, jobs)
	n.run(t, id, "touch", "/root/stop")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := n.run(t, id, "sh", "-c", "ulimit -Hn"); got != "2048\n" {
		t.Errorf("a process may have open %q", got)
	}
}
