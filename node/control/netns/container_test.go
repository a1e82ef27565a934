package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/system/attack"
)

// try runs a command inside an element.
func (n *testNode) try(id model.ID, args ...string) (status int, out string, err error) {
	var b bytes.Buffer
	status, err = n.Exec(context.Background(), id, control.Command{Args: args}, control.Stdio{Out: &b, Err: &b})
	return status, b.String(), err
}

// run runs a command inside an element and expects success.
func (n *testNode) run(t testing.TB, id model.ID, args ...string) string {
	t.Helper()
	status, out, err := n.try(id, args...)
	if err != nil || status != 0 {
		t.Fatalf("exec %q in %s: status %d, error %v\n%s", args, id, status, err, out)
	}
	return out
}

// untilRuns repeats a command inside an element until it succeeds and its output has words in it.
func (n *testNode) untilRuns(t testing.TB, id model.ID, words string, args ...string) string {
	t.Helper()
	for {
		status, out, err := n.try(id, args...)
		if err == nil && status == 0 && strings.Contains(out, words) {
			return out
		}
		if t.Context().Err() != nil {
			t.Fatalf("exec %q in %s: status %d, error %v\n%s", args, id, status, err, out)
		}
	}
}

func frrLine(network string, index uint32, n int) []control.Job {
	jobs := lineOf(network, index, n)
	for i := range jobs {
		jobs[i].Element.Software = model.SoftwareFRR
	}
	return jobs
}

// pidOf is the machine's process ID of an element's first process.
func (n *testNode) pidOf(t testing.TB, id model.ID) int {
	t.Helper()
	e := n.elements[id]
	if e == nil || !e.process.running() {
		t.Fatalf("%s has no running container", id)
	}
	return e.process.pid
}

// A configuration that the software cannot read is refused with its words: a new element does not start on it, a
// running one goes on.
func TestConfigurationIsChecked(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 8, 2)
	jobs[1].Element.Software = model.SoftwareBIRD
	jobs[0].Element.Run = "exec sleep infinity" // beside which the check may still read the configuration
	good := []map[string]string{{"frr.conf": "interface lo\n ip address 192.0.2.1/32\n"},
		{"bird.conf": "router id 192.0.2.2;\nprotocol device {}\n"}}
	bad := []map[string]string{{"frr.conf": "router ospfx\n"},
		{"bird.conf": "router id 192.0.2.2;\nprotocl device {}\n"}}
	refused := func(results []control.Result) {
		t.Helper()
		for i, want := range []string{"frr refuses its configuration: line 1: % Unknown command",
			"bird refuses its configuration: bird: /etc/bird/bird.conf:2:"} {
			if err := results[i].Err; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", jobs[i].ID, err, want)
			}
		}
	}
	for i := range jobs {
		jobs[i].Element.Config = bad[i]
	}
	refused(n.Apply(t.Context(), jobs))
	for i := range jobs {
		if n.elements[jobs[i].ID].process.running() {
			t.Errorf("%s runs on a configuration that is refused", jobs[i].ID)
		}
		jobs[i].Element.Config = good[i]
	}
	n.apply(t, jobs)
	pids := []int{n.pidOf(t, jobs[0].ID), n.pidOf(t, jobs[1].ID)}
	for i := range jobs {
		jobs[i].Element.Config = bad[i]
	}
	refused(n.Apply(t.Context(), jobs))
	for i := range jobs {
		if now := n.pidOf(t, jobs[i].ID); now != pids[i] {
			t.Errorf("%s was restarted for a configuration that is refused", jobs[i].ID)
		}
	}
	// What was refused is not what a restart finds.
	for i, path := range []string{"/etc/frr/frr.conf", "/etc/bird/bird.conf"} {
		if has := n.run(t, jobs[i].ID, "cat", path); strings.Contains(has, "ospfx") ||
			strings.Contains(has, "protocl") {
			t.Errorf("%s: after a refusal %s is\n%s", jobs[i].ID, path, has)
		}
		jobs[i].Element.Config = good[i]
	}
	if got := changes(n.apply(t, jobs)); len(got) != 0 {
		t.Errorf("going back to what runs changed %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(n.dirs.Runc(), "*"+checkSuffix)); len(left) != 0 {
		t.Errorf("checks are left: %v", left)
	}
}

// TestRoutingSoftware runs FRR and BIRD as they will be run, and restarts the driver around them.
func TestRoutingSoftware(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)
	jobs[1].Element.Software = model.SoftwareBIRD
	if got := changes(n.apply(t, jobs)); !slices.Equal(got,
		[]string{"r0: created", "r0: started", "r1: created", "r1: started"}) {
		t.Errorf("apply said %q", got)
	}
	n.untilRuns(t, jobs[0].ID, "10.0.0.0/31", "vtysh", "-c", "show interface brief")
	n.untilRuns(t, jobs[1].ID, "10.0.0.1", "birdc", "show", "interfaces")
	for i, want := range []string{"/usr/bin/vtysh", "/usr/sbin/birdc"} {
		if got, err := n.Console(jobs[i].ID); err != nil || len(got) == 0 || got[0] != want {
			t.Errorf("the console of %s is %v (%v): want %s", jobs[i].ID, got, err, want)
		}
	}
	pid := n.pidOf(t, jobs[0].ID)
	base := model.UIDBase(7)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || !strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t", base)) {
		t.Errorf("the first process is not user %d on the machine (%v):\n%s", base, err, status)
	}
	n.settled(t, jobs)
	n.restart(t)
	if got := changes(n.apply(t, jobs)); len(got) != 0 {
		t.Errorf("apply after a restart changed %v", got)
	}
	if now := n.pidOf(t, jobs[0].ID); now != pid {
		t.Errorf("the first process was %d and is %d", pid, now)
	}
	// From static routes to routing software and back, while it runs.
	jobs[0].Element.Routes = []model.Route{{To: netip.MustParsePrefix("192.0.2.0/24"),
		Via: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}}
	jobs[0].Element.Software = model.SoftwareStatic
	if got := changes(n.apply(t, jobs)); !slices.Equal(got,
		[]string{"r0: route to 192.0.2.0/24 added", "r0: stopped"}) {
		t.Errorf("apply of software static said %q", got)
	}
	jobs[0].Element.Routes, jobs[0].Element.Software = nil, model.SoftwareFRR
	if got := changes(n.apply(t, jobs)); !slices.Equal(got,
		[]string{"r0: route to 192.0.2.0/24 removed", "r0: started"}) {
		t.Errorf("apply of software frr said %q", got)
	}
	// Inside, a person edits the configuration and takes an interface down: both stay.
	n.run(t, jobs[0].ID, "ip", "link", "set", "r1", "down")
	n.auditAll(t)
	if got := changes(n.apply(t, jobs)); len(got) != 0 {
		t.Errorf("apply changed what was set inside: %v", got)
	}
	n.run(t, jobs[0].ID, "ip", "link", "set", "r1", "up")
	// What is made anew beside it is up at once, and so is what was only renamed.
	port := n.dirs.PortDevice(model.PortID{ID: jobs[0].ID, Interface: "r1"})
	n.in(t, jobs[0].ID, "ip link set r1 down; ip link set r1 name other; ip link set other up")
	n.auditAll(t, jobs[0].ID)
	n.apply(t, jobs)
	if out := n.in(t, jobs[0].ID, "ip -o link show dev r1 up"); !strings.Contains(out, "r1") {
		t.Errorf("the device that was renamed is not up: %s", out)
	}
	sh(t, "ip link del "+port)
	n.apply(t, jobs)
	if out := n.in(t, jobs[0].ID, "ip -o link show dev r1 up"); !strings.Contains(out, "r1") {
		t.Errorf("the device that was made anew is not up: %s", out)
	}
}

// TestReload changes the document twice: FRR takes each change as it runs, and its own file is not taken for edited.
func TestReload(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)
	n.apply(t, jobs)
	n.untilRuns(t, jobs[0].ID, "10.0.0.0/31", "vtysh", "-c", "show interface brief")
	pid := n.pidOf(t, jobs[0].ID)
	for _, to := range []string{"192.0.2.0/24", "198.51.100.0/24"} {
		jobs[0].Element.Routes = []model.Route{{To: netip.MustParsePrefix(to),
			Via: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}}
		if got := changes(n.apply(t, jobs)); !slices.Equal(got, []string{"r0: configuration loaded"}) {
			t.Fatalf("apply with a route to %s said %q", to, got)
		}
		n.untilRuns(t, jobs[0].ID, to, "vtysh", "-c", "show ip route static")
	}
	if now := n.pidOf(t, jobs[0].ID); now != pid {
		t.Errorf("the container was started again for a new configuration")
	}
}

// TestNoEscape looks for the machine inside an element.
func TestNoEscape(t *testing.T) {
	attack.Tell(t, "the root of an element tries to leave it",
		"nothing leads out")
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)
	jobs[1].Element.Software = model.SoftwareStatic // whose commands run in a container of their own
	// Machines may have file systems of their own below /usr: they are seen, and not to be written to either.
	below := filepath.Join("/usr/local", n.dirs.Instance)
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(below)
	if err := unix.Mount("tmpfs", below, "tmpfs", 0, "size=64k,mode=1777"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(below, unix.MNT_DETACH)
	n.apply(t, jobs)
	secret := filepath.Join("/run", "polyplane-secret-"+n.dirs.Instance)
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(secret)
	for _, refused := range []string{
		"cat /etc/shadow", "ls /root | grep .", "cat " + secret, "ls /var/lib/dpkg", "ls /var/lib/polyplane",
		"ls /proc/1/root/boot",
		"touch /usr/x", "touch " + below + "/x", "mount -t tmpfs x /mnt", "umount /usr",
		"mknod /root/x b 1 1", "unshare -U true",
		"echo x > /proc/sys/kernel/core_pattern", "echo x > /proc/sys/vm/drop_caches", "dmesg",
		"mount -o remount,rw /usr",
		"echo b > /proc/sysrq-trigger", "ip netns add x", "date -s 2000-01-01", "chown 70000 /root",
	} {
		for _, j := range jobs {
			if status, out, err := n.try(j.ID, "sh", "-c", refused); err != nil || status == 0 {
				t.Errorf("%s: %q gave status %d, error %v: want a refusal\n%s", j.ID, refused, status, err, out)
			}
		}
	}
	for _, j := range jobs {
		if got := strings.TrimSpace(n.run(t, j.ID, "hostname")); got != j.ID.Element {
			t.Errorf("the host name of %s is %q", j.ID, got)
		}
		n.run(t, j.ID, "sh", "-c", "ls "+below+
			" && ping -c1 -W5 127.0.0.1 && echo 1 > /proc/sys/net/ipv4/ip_forward && touch /root/mine && test -w /tmp")
		ids := n.run(t, j.ID, "sh", "-c", "ps -e -o pid= | wc -l")
		if len(strings.TrimSpace(ids)) > 2 {
			t.Errorf("%s sees %s processes", j.ID, ids)
		}
	}
	// A planted link does not lead the agent out of the element.
	log := n.elements[jobs[0].ID].process.plan.LogFiles[0]
	n.run(t, jobs[0].ID, "ln", "-sfT", secret, log)
	var b bytes.Buffer
	if err := n.Logs(context.Background(), jobs[0].ID, false, &b); err == nil ||
		strings.Contains(b.String(), "secret") {
		t.Errorf("a link from %s to %s gave %q, %v: want a refusal", log, secret, b.String(), err)
	}
}

// TestExec checks what a command gets and gives.
func TestExec(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 7, 2)
	n.apply(t, jobs)
	id := jobs[0].ID
	for _, test := range []struct {
		args   []string
		status int
		out    string
	}{
		{[]string{"true"}, 0, ""},
		{[]string{"sh", "-c", "echo out; exit 7"}, 7, "out\n"},
		{[]string{"sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{[]string{"no-such-program"}, 127, "polyplane: 1: exec: no-such-program: not found\n"},
		{[]string{"/etc/passwd"}, 126, "polyplane: 1: exec: /etc/passwd: Permission denied\n"},
	} {
		status, out, err := n.try(id, test.args...)
		if err != nil || status != test.status || out != test.out {
			t.Errorf("%q gave status %d, %q, error %v: want %d, %q", test.args, status, out, err, test.status, test.out)
		}
	}
	var b, e bytes.Buffer
	status, err := n.Exec(context.Background(), id, control.Command{Args: []string{"sh", "-c", "cat; echo $X >&2"},
		Env: []string{"X=y"}},
		control.Stdio{In: strings.NewReader("in\n"), Out: &b, Err: &e})
	if err != nil || status != 0 || b.String() != "in\n" || e.String() != "y\n" {
		t.Errorf("a command with input gave %d, %q, %q, %v", status, b.String(), e.String(), err)
	}
	b.Reset()
	status, err = n.Exec(context.Background(), id,
		control.Command{Args: []string{"sh", "-c", "tty -s && stty size"}, TTY: true,
			Size: control.Size{Rows: 33, Cols: 99}}, control.Stdio{Out: &b})
	if err != nil || status != 0 || strings.TrimSpace(b.String()) != "33 99" {
		t.Errorf("a command on a terminal gave %d, %q, %v: want 33 99", status, b.String(), err)
	}
	// A new size arrives while a command runs.
	resize, out, in := make(chan control.Size), newLines(), newGate()
	done := make(chan error, 1)
	go func() {
		status, err := n.Exec(context.Background(), id, control.Command{Args: []string{"bash", "-c",
			"trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.05; " +
				"done"}, TTY: true}, control.Stdio{In: in, Out: out, Resize: resize})
		if err == nil && status != 5 {
			err = fmt.Errorf("status %d", status)
		}
		done <- err
	}()
	out.await("ready")
	resize <- control.Size{Rows: 44, Cols: 111}
	out.await("44 111")
	if err := <-done; err != nil {
		t.Error(err)
	}
	in.Close()
	// A caller that goes away ends its command.
	ctx, cancel := context.WithCancel(context.Background())
	lines := newLines()
	go func() {
		_, err := n.Exec(ctx, id, control.Command{Args: []string{"sh", "-c", "echo ready; exec sleep 1000"}},
			control.Stdio{Out: lines})
		done <- err
	}()
	lines.await("ready")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled command gave %v", err)
	}
	// Commands at the same time share one container, which goes with the last.
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if status, out, err := n.try(id, "hostname"); err != nil || status != 0 || out != "r0\n" {
				t.Errorf("one of several commands gave %d, %q, %v", status, out, err)
			}
		})
	}
	all.Wait()
	if _, there, err := n.readContainer(shellID(id)); there || err != nil {
		t.Errorf("the container made for commands is still there (%v)", err)
	}
	if _, _, err := n.try(model.ID{Network: "lab", Element: "nobody"}, "true"); err == nil {
		t.Error("a command in an element that does not exist gave no error")
	}
}

// lines collects output and lets one wait for words in it.
type lines struct {
	mu   sync.Mutex
	more *sync.Cond
	text []byte
}

func newLines() *lines {
	l := &lines{}
	l.more = sync.NewCond(&l.mu)
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	l.more.Broadcast()
	return len(p), nil
}

func (l *lines) await(words string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !bytes.Contains(l.text, []byte(words)) {
		l.more.Wait()
	}
}

// newGate is an input that gives nothing until it is closed.
func newGate() io.ReadCloser {
	r, _ := io.Pipe()
	return r
}

// TestProcessesAreKept kills, stops, starts, restarts and limits.
func TestProcessesAreKept(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)
	id, other := jobs[0].ID, jobs[1].ID
	n.apply(t, jobs)
	n.settled(t, jobs) // a busy machine takes its time, and is helped
	before, otherPID := n.state(t), n.pidOf(t, other)
	expect := func(want ...string) {
		t.Helper()
		if got := changes(n.apply(t, jobs)); !slices.Equal(got, want) {
			t.Errorf("apply said %q: want %q", got, want)
		}
		n.untouched(t, before)
		if now := n.pidOf(t, other); now != otherPID {
			t.Errorf("the other element's process was %d and is %d", otherPID, now)
		}
	}
	e := n.elements[id]
	lasted := func() { e.process.began, e.process.next = e.process.began.Add(-lasting), e.process.began }
	lasted()
	unix.PidfdSendSignal(e.process.pidfd, unix.SIGKILL, nil, 0)
	awaitEnd(e.process.pidfd, -1)
	n.auditAll(t, id, id)
	expect("r0: restarted: its processes had ended")
	// The next death comes too soon.
	unix.PidfdSendSignal(e.process.pidfd, unix.SIGKILL, nil, 0)
	awaitEnd(e.process.pidfd, -1)
	if r := n.Apply(context.Background(), jobs)[0]; r.Err == nil || r.Phase != model.PhaseFailed {
		t.Errorf("a process that died at once gave %s, %v: want failed, for a while", r.Phase, r.Err)
	}
	lasted()
	expect("r0: restarted: its processes had ended")

	jobs[0].Element.Stopped = true
	expect("r0: device r1 taken down", "r0: stopped")
	if r := n.apply(t, jobs)[0]; r.Phase != model.PhaseStopped || len(r.Changed) != 0 {
		t.Errorf("a stopped element is %s, changed %v", r.Phase, r.Changed)
	}
	if _, _, err := n.try(id, "true"); err == nil || !strings.Contains(err.Error(), "start lab/r0") {
		t.Errorf("a command in a stopped element gave %v", err)
	}
	jobs[0].Element.Stopped = false
	expect("r0: device r1 taken up", "r0: started")
	n.settled(t, jobs)

	jobs[0].Element.Restarts++
	expect("r0: restarted: as requested")
	pid := n.pidOf(t, id)
	jobs[0].Element.Memory, jobs[0].Element.CPU = 300<<20, 500
	expect("r0: limits changed")
	if now := n.pidOf(t, id); now != pid {
		t.Error("new limits restarted the processes")
	}
	limits := sh(t, fmt.Sprintf("cat /sys/fs/cgroup/memory%[1]s/memory.limit_in_bytes "+
		"/sys/fs/cgroup/cpu%[1]s/cpu.cfs_quota_us 2>/dev/null || "+
		"cat /sys/fs/cgroup%[1]s/memory.max /sys/fs/cgroup%[1]s/cpu.max", n.cgroupOf(containerID(id))))
	if f := strings.Fields(limits); len(f) < 2 || f[0] != fmt.Sprint(300<<20) || f[1] != "50000" {
		t.Errorf("the limits are %q: want 300 MiB and half a core", limits)
	}
	n.restart(t)
	expect()
	if err := n.Remove(context.Background(), []model.ID{id, other}, false); err != nil {
		t.Fatal(err)
	}
	if out := sh(t, "find /sys/fs/cgroup -type d -path '*polyplane/"+n.dirs.Instance+"*'; ls "+n.dirs.Run+" "+
		n.dirs.Data); strings.Contains(out, "lab") ||
		strings.Contains(out, "/sys/fs") || strings.Contains(out, "runc") {
		t.Errorf("something is left:\n%s", out)
	}
}
