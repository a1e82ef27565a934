package netns

import (
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// TestDetachedCommands: what is detached outlives the command that did it and the agent, and ends with its element,
// whether that has processes of its own or not.
func TestDetachedCommands(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 70, 2)
	jobs[0].Element.Service = model.Service{Run: "sleep 2000"}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	detach := func(id model.ID, script string) {
		t.Helper()
		status, err := n.Exec(t.Context(), id, control.Command{Args: []string{"sh", "-c", script}, Detach: true},
			control.Stdio{})
		if err != nil || status != 0 {
			t.Fatalf("detaching in %s: status %d, %v", id, status, err)
		}
	}
	there := func(id model.ID) bool {
		t.Helper()
		return strings.Contains(n.run(t, id, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), "sleep 3000")
	}
	for _, j := range jobs {
		detach(j.ID, "echo words of it; exec sleep 3000")
		n.untilRuns(t, j.ID, "sleep 3000", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
		if log := n.logs(t, j.ID); !strings.Contains(log, "words of it\n") {
			t.Errorf("the log of %s is %q", j.ID, log)
		}
		if status, err := n.Exec(t.Context(), j.ID, control.Command{Args: []string{"/no/such"}, Detach: true},
			control.Stdio{}); err != nil || status != notFound {
			t.Errorf("detaching what is not there: status %d, %v", status, err)
		}
	}
	n.restart(t)
	if got := changes(n.apply(t, jobs)); len(got) > 0 {
		t.Errorf("a new agent has done %q", got)
	}
	if u := n.Usage(t.Context())[jobs[1].ID]; u.Processes < 2 {
		t.Errorf("an element with a detached command takes %+v", u)
	}
	for _, j := range jobs {
		if !there(j.ID) {
			t.Errorf("what was detached in %s has ended with the agent", j.ID)
		}
		detach(j.ID, "exec sleep 4000")
	}
	for _, change := range []func(*model.Override){
		func(o *model.Override) { o.Restarts++ },
		func(o *model.Override) { o.Stopped = true },
	} {
		for i := range jobs {
			change(&jobs[i].Element.Override)
		}
		n.apply(t, jobs)
		for i := range jobs {
			jobs[i].Element.Stopped = false
		}
		said := n.awaitPhases(t, jobs, model.PhaseRunning)
		for _, j := range jobs {
			if there(j.ID) {
				t.Errorf("what was detached in %s is there after its end (%q)", j.ID, said)
			}
			detach(j.ID, "exec sleep 3000")
		}
	}
	// A suspended element's is held, a removed one's is gone.
	jobs[1].Element.Suspended = true
	n.apply(t, jobs)
	if !n.frozen(shellID(jobs[1].ID)) {
		t.Error("what was detached in a suspended element goes on")
	}
	jobs[1].Element.Suspended = false
	n.apply(t, jobs)
	if err := n.Remove(t.Context(), []model.ID{jobs[1].ID}, false); err != nil {
		t.Fatal(err)
	}
	if n.alive(shellID(jobs[1].ID)) {
		t.Error("what was detached in a removed element is there")
	}
	if got := changes(n.apply(t, jobs)); !slices.Contains(got, "r1: created") {
		t.Errorf("making it again said %q", got)
	}
	if there(jobs[1].ID) {
		t.Error("an element that was made anew has what was detached before")
	}
}
