package netns

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// hurry makes the driver one that waits for nobody, and drives it as an agent does: step applies, and removes what else
// there is, and returns the results by element when something has changed.
func (n *testNode) hurry(t *testing.T) (step func(ctx context.Context,
	jobs []control.Job) map[model.ID]control.Result) {
	t.Helper()
	n.Hurry()
	ctx, stop := context.WithCancel(context.Background())
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		n.Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		n.hurried = false
	})
	return func(ctx context.Context, jobs []control.Job) map[model.ID]control.Result {
		t.Helper()
		results := map[model.ID]control.Result{}
		for _, r := range n.Apply(ctx, jobs) {
			results[r.ID] = r
		}
		found, err := n.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var others []model.ID
		for _, f := range found {
			if _, wanted := results[f.ID]; !wanted {
				others = append(others, f.ID)
			}
		}
		if err := n.Remove(ctx, others, false); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond): // as its own clock would
		}
		return results
	}
}

// stepUntil steps until done says so. Of each element it returns what was said to have been done.
func stepUntil(t *testing.T, step func(context.Context, []control.Job) map[model.ID]control.Result, jobs []control.Job,
	done func(map[model.ID]control.Result) bool) map[model.ID][]string {
	t.Helper()
	said := map[model.ID][]string{}
	var results map[model.ID]control.Result
	for deadline, ctx := time.Now().Add(4*time.Minute), t.Context(); ; ctx = control.Glance(t.Context()) {
		results = step(ctx, jobs)
		for id, r := range results {
			for _, c := range r.Changed {
				said[id] = append(said[id], c.String())
			}
		}
		if done(results) {
			return said
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to that: %+v", results)
		}
	}
}

// all tells whether each of a network's elements is in the phase, and nobody is at work on it.
func all(network string, phase model.Phase) func(map[model.ID]control.Result) bool {
	return func(results map[model.ID]control.Result) bool {
		for id, r := range results {
			if id.Network == network && (r.Phase != phase || r.Busy) {
				return false
			}
		}
		return true
	}
}

// hangAll stops the processes of an element that have one of the names, as its root can, so that they answer to nothing
// but SIGKILL. goOn lets them go on.
func (n *testNode) hangAll(t *testing.T, id model.ID, names ...string) (goOn func()) {
	t.Helper()
	pids, err := n.pidsOf(containerID(id))
	if err != nil {
		t.Fatal(err)
	}
	var hung []int
	for _, pid := range pids {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if slices.Contains(names, strings.TrimSpace(string(name))) && unix.Kill(pid, unix.SIGSTOP) == nil {
			hung = append(hung, pid)
		}
	}
	if len(hung) == 0 {
		t.Fatalf("none of %v runs in %s", names, id)
	}
	goOn = func() {
		for _, pid := range hung {
			unix.Kill(pid, unix.SIGCONT) //nolint:errcheck // it may have ended
		}
	}
	t.Cleanup(goOn)
	return goOn
}

// TestStubbornProcessesHoldUpNobody: while one network's processes do not end although they are told to, and have a
// minute for it, another network is made, stopped and removed. Its owner sees that work on his goes on; what was done
// is told once.
func TestStubbornProcessesHoldUpNobody(t *testing.T) {
	n := newNode(t)
	step := n.hurry(t)
	n.grace = 60_000
	bad := birdLine("bad", 90, 6)
	stepUntil(t, step, bad, all("bad", model.PhaseRunning))
	var goOn []func()
	for i := range bad {
		goOn = append(goOn, n.hangAll(t, bad[i].ID, "bird"))
		bad[i].Element.Stopped = true
	}
	good := slices.Concat(birdLine("good", 91, 2), lineOf("plain", 92, 3))
	stubborn := func(results map[model.ID]control.Result) {
		t.Helper()
		for i := range bad {
			if r := results[bad[i].ID]; r.Phase != model.PhaseRunning || !r.Busy || r.Err != nil {
				t.Fatalf("%s is %s, busy %v, error %v: it was expected to be stopping", r.ID, r.Phase, r.Busy, r.Err)
			}
		}
	}
	both := append(slices.Clone(bad), good...)
	ready := func(network string, phase model.Phase) func(map[model.ID]control.Result) bool {
		return func(results map[model.ID]control.Result) bool { stubborn(results); return all(network, phase)(results) }
	}
	said := stepUntil(t, step, both, ready("good", model.PhaseRunning))
	if got := said[good[0].ID]; !slices.Contains(got, "created") || !slices.Contains(got, "started") {
		t.Errorf("%s: was said to be %q", good[0].ID, got)
	}
	for i := range 2 {
		both[len(bad)+i].Element.Stopped = true
	}
	stepUntil(t, step, both, ready("good", model.PhaseStopped))
	stepUntil(t, step, bad, func(results map[model.ID]control.Result) bool {
		stubborn(results)
		found, err := n.List(t.Context())
		return err == nil && len(found) == len(bad)
	})
	for _, f := range goOn {
		f()
	}
	said = stepUntil(t, step, bad, all("bad", model.PhaseStopped))
	for i := range bad {
		if got := said[bad[i].ID]; !slices.Equal(got, []string{"stopped"}) {
			t.Errorf("%s: was said to be %q", bad[i].ID, got)
		}
	}
}

// TestHungReloadHoldsUpNobody: a daemon that hangs while it shall take its new configuration keeps no other network
// waiting, and its element is stopped at once, not when the reload has taken its time.
func TestHungReloadHoldsUpNobody(t *testing.T) {
	n := newNode(t)
	step := n.hurry(t)
	config := func(address string) map[string]string {
		return map[string]string{"frr.conf": "interface lo\n ip address " + address + "/32\n"}
	}
	bad := frrLine("bad", 93, 1)
	bad[0].Element.Config = config("192.0.2.1")
	stepUntil(t, step, bad, all("bad", model.PhaseRunning))
	n.hangAll(t, bad[0].ID, "zebra", "staticd")
	reloading := func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		pids, _ := n.pidsOf(containerID(bad[0].ID))
		return n.shifts[bad[0].ID] != nil && slices.ContainsFunc(pids, func(pid int) bool {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return strings.Contains(string(line), "frr-reload")
		})
	}
	bad[0].Element.Config = config("192.0.2.2")
	stepUntil(t, step, bad, func(map[model.ID]control.Result) bool { return reloading() })
	good := append(slices.Clone(bad), birdLine("good", 94, 1)...)
	stepUntil(t, step, good, func(results map[model.ID]control.Result) bool {
		if r := results[bad[0].ID]; !r.Busy {
			t.Fatalf("%s is %s, error %v: its configuration was expected to be loaded still", r.ID, r.Phase, r.Err)
		}
		return all("good", model.PhaseRunning)(results)
	})
	good[0].Element.Stopped = true
	said := stepUntil(t, step, good, all("bad", model.PhaseStopped))
	if got := said[bad[0].ID]; !slices.Equal(got, []string{"stopped"}) {
		t.Errorf("it was said to be %q", got)
	}
}

// TestWantedAgainWhileRemoved: an element that is wanted again while what ran in it is being ended is made anew, and is
// not said to run before.
func TestWantedAgainWhileRemoved(t *testing.T) {
	n := newNode(t)
	step := n.hurry(t)
	jobs := birdLine("lab", 95, 3)
	stepUntil(t, step, jobs, all("lab", model.PhaseRunning))
	pids := []int{n.pidOf(t, jobs[0].ID), n.pidOf(t, jobs[1].ID), n.pidOf(t, jobs[2].ID)}
	n.mu.Lock()
	n.handEnd(t.Context(), jobs[0].ID, []string{containerID(jobs[0].ID)})
	n.mu.Unlock()
	results := n.Apply(control.Glance(t.Context()), jobs)
	if r := results[0]; r.Phase != model.PhaseStarting {
		t.Errorf("%s is said to be %s", r.ID, r.Phase)
	}
	stepUntil(t, step, jobs, all("lab", model.PhaseRunning))
	if n.pidOf(t, jobs[0].ID) == pids[0] {
		t.Errorf("%s was not started anew", jobs[0].ID)
	}
	for i := 1; i < 3; i++ {
		if n.pidOf(t, jobs[i].ID) != pids[i] {
			t.Errorf("%s was started anew", jobs[i].ID)
		}
	}
	// The same by the whole of an element's removal, at once and after a while.
	for _, pause := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		if err := n.Remove(t.Context(), []model.ID{jobs[0].ID, jobs[2].ID}, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
		stepUntil(t, step, jobs, all("lab", model.PhaseRunning))
	}
	if left, _ := filepath.Glob(filepath.Join(n.dirs.Runc(), "*")); len(left) != len(jobs) {
		t.Errorf("there are containers %v", left)
	}
	if now := n.pidOf(t, jobs[1].ID); now != pids[1] {
		t.Errorf("%s was started anew", jobs[1].ID)
	}
}

// TestShiftsTakeTurns: elements that must be restarted get their turns beside the loop as well. Those of them that do
// not end when they are told to keep theirs meanwhile, and the others go on with what they have; in the end each is
// restarted, once.
func TestShiftsTakeTurns(t *testing.T) {
	n := newNode(t)
	step := n.hurry(t)
	n.grace = 60_000
	jobs := birdLine("lab", 98, turns()+8)
	stepUntil(t, step, jobs, all("lab", model.PhaseRunning))
	before := map[model.ID]int{}
	var goOn []func()
	for i := range jobs {
		before[jobs[i].ID] = n.pidOf(t, jobs[i].ID)
		goOn = append(goOn, n.hangAll(t, jobs[i].ID, "bird"))
		jobs[i].Element.Restarts = 1
	}
	began, said := time.Now(), map[model.ID][]string{}
	steps := func() (waiting, busy, counted int) {
		for id, r := range step(t.Context(), jobs) {
			for _, c := range r.Changed {
				said[id] = append(said[id], c.String())
			}
			if r.Message == waitsForTurn {
				waiting++
			}
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		counted, _ = n.starting()
		return waiting, len(n.shifts), counted
	}
	for decided := 0; decided < 4 && time.Since(began) < time.Minute; {
		waiting, busy, counted := steps()
		if waiting == 8 {
			decided++
		}
		// A turn is over after a while, also one of those.
		if decided > 0 && time.Since(began) < turnTime && (waiting != 8 || busy != turns() || counted != turns()) {
			t.Errorf("%d wait for their turn, %d are worked on, %d have a turn: want 8 and %d", waiting,
				busy, counted, turns())
		}
	}
	for _, f := range goOn {
		f()
	}
	for id, words := range stepUntil(t, step, jobs, all("lab", model.PhaseRunning)) {
		said[id] = slices.DeleteFunc(append(said[id], words...),
			func(word string) bool { return word != "restarted: as requested" })
		if n.pidOf(t, id) == before[id] || len(said[id]) != 1 {
			t.Errorf("%s was restarted %d times: want once", id, len(said[id]))
		}
	}
}

// TestLargeNetworkComesInPortions: who asks for one element beside a network of hundreds gets it with the first
// portion, as does who has one removed.
func TestLargeNetworkComesInPortions(t *testing.T) {
	n := newNode(t)
	step := n.hurry(t)
	big := lineOf("big", 96, 150)
	jobs := append(slices.Clone(big), lineOf("small", 97, 2)...)
	results := step(t.Context(), jobs)
	if !all("small", model.PhaseRunning)(results) {
		t.Error("the small network waits for the large one")
	}
	pending := 0
	for _, r := range results {
		if r.Phase == model.PhasePending && r.Busy {
			pending++
		}
	}
	if pending == 0 {
		t.Error("the large network was made at once")
	}
	made := map[model.ID]int{}
	for id, said := range stepUntil(t, step, jobs, all("big", model.PhaseRunning)) {
		for _, word := range said {
			if word == "created" {
				made[id]++
			}
		}
	}
	for _, r := range results {
		if said(r, "created") {
			made[r.ID]++
		}
	}
	for i := range jobs {
		if made[jobs[i].ID] != 1 {
			t.Errorf("%s was said %d times to have been made", jobs[i].ID, made[jobs[i].ID])
		}
	}
	var ids []model.ID
	for i := range jobs {
		ids = append(ids, jobs[i].ID)
	}
	if err := n.Remove(t.Context(), ids, false); err != nil {
		t.Fatal(err)
	}
	found, err := n.List(t.Context())
	if err != nil || len(found) == 0 ||
		slices.ContainsFunc(found, func(f control.Found) bool { return f.ID.Network == "small" }) {
		t.Errorf("the first portion of a removal left %d elements: %v", len(found), err)
	}
	stepUntil(t, step, nil, func(map[model.ID]control.Result) bool {
		found, err := n.List(t.Context())
		return err == nil && len(found) == 0
	})
}

// TestCrewIsFair: work of one network that hangs takes no hands from the others', and what waits for something holds
// none.
func TestCrewIsFair(t *testing.T) {
	c := newCrew()
	release, began := make(chan struct{}), make(chan string, 1000)
	for range 300 {
		c.do("bad", false, func(*hand) { began <- "bad"; <-release })
	}
	for i := range 50 {
		done := make(chan struct{})
		c.do(fmt.Sprintf("good%d", i), false, func(*hand) { close(done) })
		<-done // the test hangs if the network's only work waits for the bad one's
	}
	// What rests gives way to what waits, also of its own network.
	both := make(chan struct{}, 100)
	for range 3 * c.hands {
		c.do("resting", true, func(h *hand) {
			resting(withHand(context.Background(), h), func() { both <- struct{}{}; <-release })
		})
	}
	for range 3 * c.hands {
		<-both
	}
	c.mu.Lock()
	if c.begun > crewMost+urgentMost || c.lanes["bad"].begun > laneMost {
		t.Errorf("%d are at work, %d of them for one network", c.begun, c.lanes["bad"].begun)
	}
	c.mu.Unlock()
	close(release)
	c.all.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(began); n != 300 || c.held != 0 || c.begun != 0 || len(c.lanes) != 0 || len(c.order) != 0 {
		t.Errorf("%d of 300 were done; %d hands are held, %d at work, %d lanes left", n, c.held, c.begun, len(c.lanes))
	}
}

// TestAnEarlierAgentsWorkHoldsUpNobody: a runc command of an agent that was killed may be making a container, or hang.
// Until it has ended, nothing is started, restarted or removed that it may be at work on, and that is told. Other
// elements are made and removed meanwhile.
func TestAnEarlierAgentsWorkHoldsUpNobody(t *testing.T) {
	n := newNode(t)
	routers, other := birdLine("lab", 96, 2), lineOf("other", 3, 2)
	for _, r := range n.apply(t, routers) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	pid := n.pidOf(t, routers[0].ID)
	end := func(job *control.Job) { // as if the command had not come to it yet
		if err := n.removeContainer(t.Context(), containerID(job.ID), 0); err != nil {
			t.Fatal(err)
		}
	}
	end(&routers[1])
	n.restart(t)
	lock, err := os.OpenFile(filepath.Join(n.dirs.Run, "containers.lock"), os.O_RDWR, 0)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	step := n.hurry(t)
	both := append(slices.Clone(routers), other...)
	for range 3 {
		results := step(t.Context(), both)
		for _, j := range routers {
			if r := results[j.ID]; !r.Busy || r.Err != nil || len(r.Devices) != len(j.Element.Interfaces) {
				t.Errorf("meanwhile %s is told as %+v", j.ID, r)
			}
		}
		if !all("other", model.PhaseRunning)(results) {
			t.Errorf("another network waits: %+v", results)
		}
	}
	if _, err := n.pidsOf(containerID(routers[1].ID)); err == nil {
		t.Error("a container was made although another agent's command may be making it")
	}
	step(t.Context(), routers[:1]) // removes what else there is
	found, err := n.List(t.Context())
	if err != nil || len(found) != 2 {
		t.Errorf("left are %v (%v), want both routers", found, err)
	}
	lock.Close()
	stepUntil(t, step, routers, all("lab", model.PhaseRunning))
	if now := n.pidOf(t, routers[0].ID); now != pid {
		t.Errorf("the router that ran was started anew: %d was %d", now, pid)
	}
}
