package netns

import (
	"fmt"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// TestTurnsAreFair: whoever has the fewest is next, however many another network has waiting.
func TestTurnsAreFair(t *testing.T) {
	var waiting []model.ID
	for i := range 20 {
		waiting = append(waiting, model.ID{Network: "big", Element: fmt.Sprintf("r%02d", i)})
	}
	waiting = append(waiting, model.ID{Network: "small", Element: "a"}, model.ID{Network: "small", Element: "b"})
	given := nextTurns(waiting, 4, map[string]int{"big": 3})
	if len(given) != 4 || !given[waiting[20]] || !given[waiting[21]] || !given[waiting[0]] || !given[waiting[1]] {
		t.Errorf("of four free turns these were given: %v", given)
	}
	if given := nextTurns(waiting, -1, map[string]int{}); len(given) != 0 {
		t.Errorf("with none free: %v", given)
	}
	if given := nextTurns(waiting[20:], 9, map[string]int{}); len(given) != 2 {
		t.Errorf("of more than are wanted: %v", given)
	}
}

// TestStartsTakeTurns: no more routers than there are turns are being started at any time, another network's waits for
// few of them, and all get ready.
func TestStartsTakeTurns(t *testing.T) {
	n := newNode(t)
	many := turns() + 8
	jobs := append(frrLine("big", 70, many), birdLine("small", 71, 1)...)
	small := jobs[many].ID
	count := func(results []control.Result) (waiting, ready int) {
		for _, r := range results {
			switch {
			case r.Err != nil:
				t.Fatalf("%s: %v", r.ID, r.Err)
			case r.Phase == model.PhaseRunning:
				ready++
			case r.Phase == model.PhaseStarting && r.Message == waitsForTurn:
				waiting++
			}
		}
		if starting, _ := n.starting(); starting > turns() {
			t.Errorf("%d elements are being started: want at most %d", starting, turns())
		}
		return waiting, ready
	}
	results := n.Apply(t.Context(), jobs)
	waiting, _ := count(results)
	if want := len(jobs) - turns(); waiting != want {
		t.Errorf("%d wait for their turn: want %d", waiting, want)
	}
	if r := results[many]; r.ID != small || r.Message == waitsForTurn {
		t.Errorf("%s waits behind the other network's routers", r.ID)
	}
	if ids, err := n.Audit(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("an audit finds those that wait different: %v %v", ids, err)
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		n.lookAtAll(true)
		if _, ready := count(n.Apply(t.Context(), jobs)); ready == len(jobs) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%d of %d are ready", ready, len(jobs))
		}
	}
}

// TestRestartsTakeTurns: elements that run and must be restarted go on with what they have until they get a turn; no
// more than there are turns are being started at a time, and in the end each is restarted.
func TestRestartsTakeTurns(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 72, turns()+8)
	ready := func() (ready int) {
		n.lookAtAll(true)
		for _, r := range n.apply(t, jobs) {
			if r.Phase == model.PhaseRunning {
				ready++
			}
		}
		if starting, _ := n.starting(); starting > turns() {
			t.Errorf("%d elements are being started: want at most %d", starting, turns())
		}
		return ready
	}
	await := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); ready() < len(jobs); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not all are ready", what)
			}
		}
	}
	await("at first")
	before := map[model.ID]int{}
	for i := range jobs {
		before[jobs[i].ID] = n.pidOf(t, jobs[i].ID)
		jobs[i].Element.Restarts = 1
	}
	waiting := 0
	for _, r := range n.apply(t, jobs) {
		switch same := n.pidOf(t, r.ID) == before[r.ID]; {
		case r.Phase == model.PhaseStarting && r.Message == waitsForTurn && same:
			waiting++
		case same:
			t.Errorf("%s is %s (%s), and is not restarted", r.ID, r.Phase, r.Message)
		}
	}
	if waiting < 8 {
		t.Errorf("%d wait for their turn: want 8 and more", waiting)
	}
	if ids, err := n.Audit(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("an audit finds those that wait different: %v %v", ids, err)
	}
	await("restarted")
	for _, j := range jobs {
		if n.pidOf(t, j.ID) == before[j.ID] {
			t.Errorf("%s was never restarted", j.ID)
		}
	}
}

// TestTurnsOutliveAgents: an element that an agent which is no more has started has its turn still.
func TestTurnsOutliveAgents(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 73, 1)
	before := time.Now().Add(-time.Second) // a process's start is told in hundredths of a second
	n.apply(t, jobs)
	after := n.elements[jobs[0].ID].process.began
	n.restart(t)
	n.apply(t, jobs)
	p := &n.elements[jobs[0].ID].process
	if p.began.Before(before) || p.began.After(after) {
		t.Errorf("it was started at %s: want from %s to %s", p.began, before, after)
	}
	p.ready, p.routed, p.trouble = false, false, "" // it was quick
	if starting, _ := n.starting(); starting != 1 && time.Since(p.began) < turnTime {
		t.Errorf("%d elements are being started: want 1", starting)
	}
}
