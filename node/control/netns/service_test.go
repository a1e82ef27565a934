package netns

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// listening is a command that listens on a TCP port, in a process of its own name.
const listening = `exec perl -e 'use Socket; $| = 1; $0 = "listener"; socket S, PF_INET, SOCK_STREAM, 0; ` +
	`setsockopt S, SOL_SOCKET, SO_REUSEADDR, 1; bind S, pack_sockaddr_in 8080, INADDR_ANY or die $!; ` +
	`print "serving $ENV{GREETING}\n"; listen S, 5; sleep 100 while 1'`

// logs are what an element's processes printed.
func (n *testNode) logs(t testing.TB, id model.ID) string {
	t.Helper()
	var b bytes.Buffer
	if err := n.Logs(t.Context(), id, false, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// pidIn is the process ID, inside the element, of its process with this name.
func (n *testNode) pidIn(t testing.TB, id model.ID, name string) string {
	t.Helper()
	return strings.TrimSpace(n.run(t, id, "sh", "-c", "grep -lx '"+name+"' /proc/[0-9]*/comm | cut -d / -f 3"))
}

// TestServices follows what people have run through its life: commands at the start, a service that others can rely on,
// changes while it runs, an agent that begins anew, a restart, and an end.
func TestServices(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 61, 2)
	id := jobs[0].ID
	el := &jobs[0].Element
	el.Service = model.Service{
		Start: []string{"echo \"one $GREETING\"; touch /root/once.$(date +%s%N)", "ip route add 198.51.100.0/24 via 10.0.0.1",
			`: odd "]" '[' $(echo x) ${y:-z}`},
		Run: listening, Env: model.Variables{"GREETING": `it's "all" $HOME`},
		Ready: &model.Readiness{TCP: 8080, Command: "test -e /root/go"},
		Tmpfs: map[string]model.Bytes{"/data": 1 << 20},
		Stop:  []string{"echo last words"},
	}
	before := func() map[string]portState { return n.state(t) }
	if r := n.apply(t, jobs)[0]; r.Phase != model.PhaseStarting {
		t.Errorf("it is %s at once, without its sign of being ready", r.Phase)
	}
	n.awaitPhases(t, jobs[1:], model.PhaseRunning)
	for { // it says what it waits for
		r := n.apply(t, jobs)[0]
		if r.Phase != model.PhaseStarting {
			t.Fatalf("it is %s: %s", r.Phase, r.Message)
		}
		if n.lookAtAll(true); strings.Contains(r.Message, "waits until `test -e /root/go` succeeds; its status is 1") {
			break
		}
	}
	n.run(t, id, "touch", "/root/go")
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if out := n.run(t, id, "sh", "-c", "ip route show 198.51.100.0/24; echo $GREETING; df /data | tail -n 1"); !strings.Contains(
		out, "via 10.0.0.1") || !strings.Contains(out, `it's "all" $HOME`) || !strings.Contains(out, "1024") {
		t.Errorf("inside are\n%s", out)
	}
	if log := n.logs(t, id); !strings.Contains(log, `one it's "all" $HOME`) ||
		!strings.Contains(log, `serving it's "all" $HOME`) {
		t.Errorf("its log is\n%s", log)
	}
	if u := n.Usage(t.Context())[id]; u.Processes < 3 || u.Limits.Memory != model.DefaultMemory {
		t.Errorf("it takes %+v", u)
	}

	// An agent that begins anew leaves it alone.
	was, pid := before(), n.pidIn(t, id, "listener")
	n.restart(t)
	for _, r := range n.apply(t, jobs) {
		if r.Phase != model.PhaseRunning || len(r.Changed) > 0 {
			t.Errorf("for a new agent %s is %s (%s), having done %q", r.ID, r.Phase, r.Message, r.Changed)
		}
	}

	// A command that comes is run, those before it are not run again; nothing else notices.
	el.Service.Start = append(slices.Clone(el.Service.Start), "echo added")
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if now := n.pidIn(t, id, "listener"); now != pid {
		t.Errorf("another command at the start made process %s out of %s", now, pid)
	}
	if log := n.logs(t, id); !strings.Contains(log, "\nadded\n") || strings.Count(log, "one it's") != 1 {
		t.Errorf("its log is\n%s", log)
	}
	// Another environment is another service.
	el.Service.Env = model.Variables{"GREETING": "two"}
	said := n.awaitPhases(t, jobs, model.PhaseRunning)
	if !slices.Equal(said, []string{"r0: what is run in it changed"}) {
		t.Errorf("a change was told as %q", said)
	}
	if now := n.pidIn(t, id, "listener"); now == pid {
		t.Error("another environment left the service as it was")
	}
	if log := n.logs(t, id); !strings.Contains(log, "serving two\n") || strings.Contains(log, "last words") {
		t.Errorf("its log is\n%s", log)
	}
	n.untouched(t, was)

	// What ends is started again, and that is told.
	n.run(t, id, "sh", "-c", "kill -KILL "+n.pidIn(t, id, "listener"))
	for told := false; !told; {
		for _, words := range n.awaitPhases(t, jobs, model.PhaseRunning) {
			told = told || words == "r0: restarted: its service had ended"
		}
		n.elements[id].process.ready = false // it is looked at only every few seconds while all is well
	}

	// A restart runs all commands again; what the first ones left in the network does no harm.
	el.Restarts++
	said = n.awaitPhases(t, jobs, model.PhaseRunning)
	if !slices.Contains(said, "r0: restarted: as requested") {
		t.Errorf("a restart was told as %q", said)
	}
	if log := n.logs(t, id); strings.Count(log, "one ") != 2 || !strings.Contains(log, "last words") {
		t.Errorf("its log is\n%s", log)
	}

	// A start command that fails is told with what it said, and mended by another.
	el.Service.Start = append(slices.Clone(el.Service.Start), "echo bad news >&2; exit 3")
	n.awaitPhases(t, jobs[:1], model.PhaseFailed)
	if err := n.Apply(t.Context(), jobs)[0].Err; err == nil || !strings.Contains(err.Error(),
		"start command `echo bad news >&2; exit 3` failed with status 3: bad news") {
		t.Errorf("what failed is told as %v", err)
	}
	el.Service.Start = append(slices.Clone(el.Service.Start[:len(el.Service.Start)-1]), "true")
	n.awaitPhases(t, jobs, model.PhaseRunning)

	// Its end.
	el.Service.Stop = append(slices.Clone(el.Service.Stop), "echo no; exit 4")
	n.awaitPhases(t, jobs, model.PhaseRunning)
	el.Stopped = true
	results := n.apply(t, jobs)
	if got := changes(results); !slices.Equal(got, []string{"r0: device r1 taken down", "r0: stopped",
		"r0: its stop command `echo no; exit 4` failed with status 4: no"}) {
		t.Errorf("its end was told as %q", got)
	}
	if log := n.logs(t, id); strings.Count(log, "last words") != 2 {
		t.Errorf("its log is\n%s", log)
	}
	el.Stopped = false
	n.awaitPhases(t, jobs, model.PhaseRunning)
	n.untouched(t, was)

	// Nothing that is run any more: its processes end, and it is an element like others.
	el.Service = model.Service{}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if n.elements[id].process.running() {
		t.Error("processes run that nobody wants")
	}
}

// TestServicesThatEnd: what is done with a service that ends is what its owner says, and one that ends again and again
// is told.
func TestServicesThatEnd(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 62, 4)
	for i, s := range []model.Service{{Run: "echo once; exit 0", Restart: model.RestartOnFailure},
		{Run: "echo again; exit 5"},
		{Run: "echo no; exit 6", Restart: model.RestartNo},
		{Run: "no-such-program -x"}} {
		jobs[i].Element.Service = s
	}
	n.awaitPhases(t, jobs[:1], model.PhaseRunning)
	n.awaitPhases(t, jobs[1:], model.PhaseFailed)
	for i, want := range []string{"", "its service ended 3 times soon after its start, lastly with status 5",
		"its service ended with status 6, and is not to be started again", "lastly with status 127"} {
		r := n.Apply(t.Context(), jobs)[i]
		if want != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), want)) {
			t.Errorf("%s: %v, want %q", r.ID, r.Err, want)
		}
	}
	if log := n.logs(t, jobs[0].ID); strings.Count(log, "once") != 1 {
		t.Errorf("what ends well was run again:\n%s", log)
	}
	if log := n.logs(t, jobs[3].ID); !strings.Contains(log, "no-such-program") {
		t.Errorf("the log does not say what is not there:\n%s", log)
	}
	// Mending it needs no restart of anything else.
	for i := range jobs {
		jobs[i].Element.Service = model.Service{Run: "sleep 1000"}
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
}

// TestServiceBesideRoutingSoftware: a router's commands are run once its software has its configuration, which keeps the
// few capabilities that it has, and is not restarted for other commands.
func TestServiceBesideRoutingSoftware(t *testing.T) {
	n := newNode(t)
	jobs := append(frrLine("lab", 63, 2), birdLine("red", 64, 1)...)
	for i := range jobs {
		jobs[i].Element.Service = model.Service{Start: []string{"echo first"}, Run: "sleep 1000"}
	}
	jobs[0].Element.Service.Start = []string{"vtysh -c 'show running-config' | grep -q hostname"}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	few := n.run(t, jobs[0].ID, "sh", "-c", "grep -h CapPrm /proc/$(cat /run/frr/staticd.pid)/status; grep -h CapBnd "+
		"/proc/$(cat /run/frr/zebra.pid)/status")
	frr := n.run(t, jobs[0].ID, "cat", "/run/frr/zebra.pid")
	for i := range jobs {
		jobs[i].Element.Service.Run = "sleep 2000"
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if now := n.run(t, jobs[0].ID, "cat", "/run/frr/zebra.pid"); now != frr {
		t.Error("FRR was restarted for another command beside it")
	}
	plain := frrLine("plain", 65, 1)
	n.awaitPhases(t, append(plain, jobs...), model.PhaseRunning)
	if alone := n.run(t, plain[0].ID, "sh", "-c", "grep -h CapPrm /proc/$(cat /run/frr/staticd.pid)/status; grep -h CapBnd "+
		"/proc/$(cat /run/frr/zebra.pid)/status"); alone != few {
		t.Errorf("FRR has the capabilities\n%s beside a service, and\n%s alone", few, alone)
	}
	// With the routing software ends what it is beside, and both begin anew.
	n.run(t, jobs[2].ID, "sh", "-c", "kill -KILL $(pidof bird)")
	for !slices.ContainsFunc(changes(n.Apply(t.Context(), jobs)), func(s string) bool {
		return strings.Contains(s, "restarted: its processes had ended")
	}) {
		if t.Context().Err() != nil {
			t.Fatal("what ended with BIRD is not started again")
		}
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
}

// TestLogsOfServicesAreBounded: a service that prints for ever does not fill its element's disk.
func TestLogsOfServicesAreBounded(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 66, 1)
	jobs[0].Element.Service = model.Service{
		Run: "head -c 20000000 /dev/zero | tr '\\0' '\\n'; echo over; exec sleep 1000"}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	for n.logs(t, jobs[0].ID) == "" || !strings.HasSuffix(n.logs(t, jobs[0].ID), "over\n") {
		if t.Context().Err() != nil {
			t.Fatal("it does not print")
		}
	}
	n.lookAtAll(true)
	info, err := os.Stat(n.logPath(jobs[0].ID))
	if err != nil || info.Size() > logMost {
		t.Errorf("the log has %d bytes (%v)", info.Size(), err)
	}
	aside, err := os.ReadFile(n.logPath(jobs[0].ID) + ".1")
	if err != nil || len(aside) != logKept || !bytes.HasSuffix(aside, []byte("over\n")) {
		t.Errorf("what is kept has %d bytes (%v)", len(aside), err)
	}
}

// An apply that overwrites configurations does not disturb what is run where there is no configuration.
func TestOverwriteLeavesServices(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 62, 1)
	jobs[0].Element.Run = listening
	n.awaitPhases(t, jobs, model.PhaseRunning)
	pid := n.pidIn(t, jobs[0].ID, "listener")
	jobs[0].Element.Overwrites++
	if said := n.awaitPhases(t, jobs, model.PhaseRunning); len(said) > 0 || n.pidIn(t, jobs[0].ID, "listener") != pid {
		t.Errorf("told is %q, and the service is process %s instead of %s", said, n.pidIn(t, jobs[0].ID, "listener"), pid)
	}
}
