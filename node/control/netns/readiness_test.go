package netns

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
	"github.com/polyplane/polyplane/system/attack"
)

// awaitPhases applies, whenever the driver says that something has changed, until each element is in the phase, and
// returns all that was said to have been done.
func (n *testNode) awaitPhases(t testing.TB, jobs []control.Job, want model.Phase) (said []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	changed := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	defer func() { stop(); <-ended }()
	for {
		left := ""
		results := n.Apply(t.Context(), jobs)
		said = append(said, changes(results)...)
		for _, r := range results {
			if r.Phase != want {
				left += fmt.Sprintf("%s is %s: %s %v\n", r.ID, r.Phase, r.Message, r.Err)
			}
		}
		if left == "" {
			return said
		}
		select {
		case <-changed:
		case <-time.After(3 * time.Minute):
			t.Fatalf("not every element is %s:\n%s", want, left)
		}
	}
}

// TestReadyMeansConfigured: routers are starting until each of their daemons has its configuration, and again from the
// death of a daemon until it has it once more; an agent that begins anew finds those ready that are.
func TestReadyMeansConfigured(t *testing.T) {
	n := newNode(t)
	jobs := append(frrLine("lab", 60, 2), birdLine("red", 61, 1)...)
	for i := range 2 {
		jobs[i].Element.Config = map[string]string{"frr.conf": "router ospf\n network 10.0.0.0/8 area 0\nip route " +
			"192.0.2.0/24 blackhole\n"}
	}
	for _, r := range n.apply(t, jobs)[:2] { // BIRD may be as quick as this
		if r.Phase != model.PhaseStarting || !strings.Contains(r.Message, "waits for") {
			t.Errorf("%s is %s (%q) at once: want starting, and for what it waits", r.ID, r.Phase, r.Message)
		}
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	configured := func() {
		t.Helper()
		for _, j := range jobs[:2] {
			if out := n.run(t, j.ID, "vtysh", "-c", "show running-config"); !strings.Contains(out,
				" network 10.0.0.0/8 area 0") ||
				!strings.Contains(out, "ip route 192.0.2.0/24 blackhole") {
				t.Errorf("%s is ready without its configuration:\n%s", j.ID, out)
			}
		}
	}
	configured()
	for _, daemon := range []string{"ospfd", "zebra", "staticd"} {
		n.run(t, jobs[0].ID, "sh", "-c", "kill -KILL $(cat /run/frr/"+daemon+".pid)")
		for {
			said := n.awaitPhases(t, jobs, model.PhaseRunning)
			if all := strings.Join(said, "\n"); strings.Contains(all, "r0: restarted: ") &&
				strings.Contains(all, daemon) {
				break
			} else if len(said) > 0 {
				t.Errorf("the death of %s made %q", daemon, said)
			}
			n.elements[jobs[0].ID].process.ready = false // it is looked at only every few seconds while all is well
		}
		configured()
	}
	n.restart(t)
	for _, r := range n.apply(t, jobs) {
		if r.Phase != model.PhaseRunning || len(r.Changed) > 0 {
			t.Errorf("for a new agent %s is %s (%s), having done %q", r.ID, r.Phase, r.Message, r.Changed)
		}
	}
}

// TestStoppedDaemonIsNotReady: a router of which a daemon is stopped is starting until it goes on, and holds nobody up.
func TestStoppedDaemonIsNotReady(t *testing.T) {
	n := newNode(t)
	jobs := append(frrLine("lab", 67, 2), birdLine("red", 68, 1)...)
	jobs[0].Element.Config = map[string]string{"frr.conf": "router ospf\n network 10.0.0.0/8 area 0\n"}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	for _, daemon := range []string{"ospfd", "zebra"} {
		n.run(t, jobs[0].ID, "sh", "-c", "p=$(cat /run/frr/"+daemon+".pid); kill -STOP $p; "+
			"until grep -q '^State:.T' /proc/$p/status; do sleep 0.01; done")
		n.lookAtAll(true)
		began := time.Now()
		results := n.Apply(t.Context(), jobs)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("with %s stopped, applying took %s", daemon, took)
		}
		if r := results[0]; r.Phase != model.PhaseStarting || !strings.Contains(r.Message, daemon) {
			t.Errorf("with %s stopped it is %s: %q", daemon, r.Phase, r.Message)
		}
		for _, r := range results[1:] {
			if r.Phase != model.PhaseRunning {
				t.Errorf("with its neighbour's %s stopped %s is %s", daemon, r.ID, r.Phase)
			}
		}
		n.run(t, jobs[0].ID, "sh", "-c", "kill -CONT $(cat /run/frr/"+daemon+".pid)")
		n.awaitPhases(t, jobs, model.PhaseRunning)
	}
}

// TestBIRDThatIsStoppedForLong: nothing in the element looks after BIRD. One that somebody has stopped is starting,
// failed with the reason once it has lasted, and running when it goes on.
func TestBIRDThatIsStoppedForLong(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("red", 71, 1)
	n.awaitPhases(t, jobs, model.PhaseRunning)
	bird := func(signal string) {
		n.run(t, jobs[0].ID, "sh", "-c", "read -r pid rest </run/polyplane/state/bird && kill -"+signal+" $pid")
	}
	bird("STOP")
	n.awaitPhases(t, jobs, model.PhaseStarting)
	n.mu.Lock()
	n.elements[jobs[0].ID].process.since = time.Now().Add(-stoppedLong)
	n.mu.Unlock()
	n.awaitPhases(t, jobs, model.PhaseFailed)
	if err := n.Apply(t.Context(), jobs)[0].Err; err == nil ||
		!strings.Contains(err.Error(), "bird has been stopped for 2m0s") || !strings.Contains(err.Error(), "SIGCONT") {
		t.Errorf("told is %v", err)
	}
	bird("CONT")
	n.awaitPhases(t, jobs, model.PhaseRunning)
}

// TestBIRDNeedsItsSupervisor: when the program ends that runs BIRD and notes that it has its configuration, the element
// begins again. No BIRD runs on of which nobody would ever know that it is ready.
func TestBIRDNeedsItsSupervisor(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("red", 73, 1)
	jobs[0].Element.Run = "sleep 1000" // else that program is the element's first process, and ends it anyway
	id := jobs[0].ID
	began := func() string {
		return n.untilRuns(t, id, "bird", "sh", "-c",
			"read -r pid rest </run/polyplane/state/bird && cat /proc/$pid/comm && cut -d ' ' -f 22 /proc/$pid/stat")
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	before := began()
	// The command ends with the element.
	n.try(id, "sh", "-c", "for p in /proc/[0-9]*; do case $(tr '\\0' ' ' <$p/cmdline) in "+
		"\"/run/polyplane/supervise bird start \") kill -KILL ${p#/proc/};; esac; done; sleep 60")
	awaitEnd(n.elements[id].process.pidfd, -1)
	n.Apply(t.Context(), jobs)
	n.elements[id].process.next = time.Now() // it is started again after a pause
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if after := began(); after == before {
		t.Error("the same BIRD runs on")
	}
}

// TestHungDaemonIsStartedAgain: a daemon that lives and does not answer is ended after a minute by FRR's look-out, and
// started again with its configuration. It takes some two minutes: POLYPLANE_LONG=1.
func TestHungDaemonIsStartedAgain(t *testing.T) {
	if os.Getenv("POLYPLANE_LONG") == "" {
		t.Log("not tried: it takes two minutes (POLYPLANE_LONG=1)")
		return
	}
	n := newNode(t)
	jobs := frrLine("lab", 70, 1)
	jobs[0].Element.Config = map[string]string{"frr.conf": "router ospf\n network 10.0.0.0/8 area 0\n"}
	id := jobs[0].ID
	n.awaitPhases(t, jobs, model.PhaseRunning)
	pid := func() string { return strings.TrimSpace(n.run(t, id, "cat", "/run/frr/ospfd.pid")) }
	old, began := pid(), time.Now()
	n.run(t, id, "kill", "-STOP", old)
	for pid() == old {
		if time.Since(began) > 4*time.Minute {
			t.Fatalf("it hangs still:\n%s", n.run(t, id, "vtysh", "-c", "show watchfrr"))
		}
		time.Sleep(time.Second)
	}
	t.Logf("started again after %s", time.Since(began).Round(time.Second))
	n.elements[id].process.ready = false // it is looked at only every few seconds while all is well
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if out := n.run(t, id, "vtysh", "-c", "show running-config ospfd"); !strings.Contains(out,
		"network 10.0.0.0/8 area 0") {
		t.Errorf("it runs without its configuration:\n%s", out)
	}
}

// TestConfigurationThatIsNotTakenIsTold: FRR's own check of a configuration passes lines that a daemon then refuses.
func TestConfigurationThatIsNotTakenIsTold(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 62, 1)
	jobs[0].Element.Config = map[string]string{"frr.conf": "log file /nowhere/at/all.log\nrouter ospf\n network " +
		"10.0.0.0/8 area 0\n"}
	n.awaitPhases(t, jobs, model.PhaseFailed)
	err := n.Apply(t.Context(), jobs)[0].Err
	if err == nil || !strings.Contains(err.Error(), "did not take its configuration as a whole") ||
		!strings.Contains(err.Error(), "/nowhere/at/all.log") {
		t.Errorf("it is told as %v", err)
	}
	jobs[0].Element.Config = map[string]string{"frr.conf": "router ospf\n network 10.0.0.0/8 area 0\n"}
	n.awaitPhases(t, jobs, model.PhaseRunning)
}

// TestHostileNotes: what an element's root writes where its readiness is noted neither holds the driver up nor leads it
// elsewhere, and the element is not ready by it.
func TestHostileNotes(t *testing.T) {
	attack.Tell(t, "a router's root plants pipes, devices, links and lies where the agent reads how far it is",
		"nothing: its neighbour is ready, and it is not believed")
	n := newNode(t)
	jobs := append(frrLine("lab", 63, 1), birdLine("red", 64, 1)...)
	n.awaitPhases(t, jobs, model.PhaseRunning)
	id := jobs[0].ID
	secret := n.dirs.Data + "/secret"
	if err := os.WriteFile(secret, []byte("the machine's own words"), 0o644); err != nil {
		t.Fatal(err)
	}
	const notes = software.NotesDir
	n.run(t, id, "sh", "-c", "cp -r "+notes+" /tmp/right")
	for name, script := range map[string]string{
		"none":     "rm $N/zebra",
		"a pipe":   "rm $N/zebra; mkfifo $N/zebra",
		"a device": "rm $N/zebra; ln -s /dev/zero $N/zebra",
		"a link out": "rm $N/zebra; ln -s " + secret + " $N/zebra; ln -s ../../../../../.." +
			secret + " $N/trouble",
		"a directory":        "rm $N/zebra; mkdir $N/zebra",
		"much":               "head -c 20000000 /dev/zero | tr '\\0' 9 > $N/zebra",
		"another process":    "echo 1 $(cut -d ' ' -f 2 $N/zebra) 1 > $N/zebra",
		"no process":         "echo 99999 $(cut -d ' ' -f 2 $N/zebra) 1 > $N/zebra",
		"a link for all":     "rm -rf $N; ln -s / $N",
		"a loop for all":     "rm -rf $N; ln -s state $N",
		"the kernel's words": "ln -s ../../../proc/version $N/trouble", // which are others, told to the agent
		"kallsyms":           "ln -s ../../../proc/kallsyms $N/trouble",
		"the machine's file": "ln -s ../../../usr/lib/os-release $N/trouble",
		"a trouble of his":   "yes 'all is lost' | head -c 5000000 > $N/trouble",
	} {
		t.Run(name, func(t *testing.T) {
			n.here(t)
			n.run(t, id, "sh", "-c", "N="+notes+"; "+script)
			began := time.Now()
			n.lookAtAll(true)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("looking at it took %s", took)
			}
			results := n.Apply(t.Context(), jobs)
			said := fmt.Sprint(results[0].Message, results[0].Err)
			if r := results[0]; r.Phase == model.PhaseRunning || len(said) > 2000 || slices.ContainsFunc(
				[]string{"machine's own", "Linux version", " T ", "PRETTY_NAME"},
				func(secret string) bool { return strings.Contains(said, secret) }) {
				t.Errorf("it is %s: %s, %v", r.Phase, r.Message, r.Err)
			}
			if results[1].Phase != model.PhaseRunning {
				t.Errorf("its neighbour is %s", results[1].Phase)
			}
			n.run(t, id, "sh", "-c", "rm -rf "+notes+"; cp -r /tmp/right "+notes)
			n.awaitPhases(t, jobs, model.PhaseRunning)
		})
	}
}

// TestConfigurationIsNotReadAllTheTime: one that has not changed is not read again, and one that changes all the time
// only now and then.
func TestConfigurationIsNotReadAllTheTime(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	p := &process{plan: software.Plan{ConfigFiles: []string{"/frr.conf"}}}
	write := func(text string) (hash string) {
		if err := os.WriteFile(dir+"/frr.conf", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return contentHash([]byte(text))
	}
	large := write(strings.Repeat("!\n", model.MaxConfigBytes))
	if !p.isConfig(root, large) || p.isConfig(root, contentHash(nil)) {
		t.Error("it is not what was written")
	}
	p.seen.hash = "noted"
	if !p.isConfig(root, "noted") {
		t.Error("it is read again, though it has not changed")
	}
	small := write("! another\n")
	if p.isConfig(root, small) {
		t.Error("it is read again at once")
	}
	p.seen.next = time.Time{}
	if !p.isConfig(root, small) {
		t.Error("it is never read again")
	}
}

// TestStartsWithNextToNoCPU: routers that get a hundredth of a processor are starting for as long as it takes, and
// ready soon after they get more.
func TestStartsWithNextToNoCPU(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 65, 12)
	for i := range jobs {
		jobs[i].Element.CPU = 10
		jobs[i].Element.Routing.OSPF = &model.OSPF{}
		jobs[i].Element.RouterID = jobs[i].Element.Interfaces[0].Addresses[0].Addr()
	}
	for _, r := range n.apply(t, jobs) {
		if r.Phase != model.PhaseStarting {
			t.Errorf("%s is %s at once", r.ID, r.Phase)
		}
	}
	for i := range jobs {
		jobs[i].Element.CPU = 600
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	for _, j := range jobs {
		if out := n.run(t, j.ID, "vtysh", "-c", "show running-config ospfd"); !strings.Contains(out, "ospf router-id") {
			t.Errorf("%s is ready without its configuration:\n%s", j.ID, out)
		}
		// Whether the daemons answer is watched from a while after that.
		n.untilRuns(t, j.ID, "zebra", "vtysh", "-c", "show watchfrr")
	}
}

// TestContainersTakeNoKeys: the kernel gives a user 200 keys, which is all elements of a network.
func TestContainersTakeNoKeys(t *testing.T) {
	attack.Tell(t, "containers take keys of their network's user, of which the kernel gives 200",
		"none are taken")
	n := newNode(t)
	jobs := birdLine("lab", 66, 4)
	n.awaitPhases(t, jobs, model.PhaseRunning)
	for _, j := range jobs {
		n.run(t, j.ID, "true")
	}
	keys, err := os.ReadFile("/proc/key-users")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(keys)) {
		if uid, rest, _ := strings.Cut(strings.TrimSpace(line), ":"); uid == fmt.Sprint(model.UIDBase(66)) {
			if f := strings.Fields(rest); len(f) > 1 && !strings.HasPrefix(f[1], "0/") {
				t.Errorf("four routers hold keys: %s", line)
			}
		}
	}
}
