package netns

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/system/attack"
)

// TestTerminalsAreBounded: an element has 128 at most, and what it has of them is not what others lack.
func TestTerminalsAreBounded(t *testing.T) {
	attack.Tell(t, "an element opens terminals without end",
		"it gets 128, and others theirs")
	n := newNode(t)
	jobs := birdLine("lab", 48, 2)
	n.apply(t, jobs)
	const open = `$| = 1; while (open my $f, "+<", "/dev/ptmx") { push @f, $f } print scalar(@f), "\n"; `
	said, out := io.Pipe()
	in, stop := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := n.Exec(context.Background(), jobs[0].ID,
			control.Command{Args: []string{"perl", "-e", open + "<STDIN>"}}, control.Stdio{In: in, Out: out, Err: out})
		out.Close()
		ended <- err
	}()
	var mine int
	if _, err := fmt.Fscanln(said, &mine); err != nil {
		t.Fatal(err)
	}
	others, err := strconv.Atoi(strings.TrimSpace(n.run(t, jobs[1].ID, "perl", "-e", open)))
	stop.Close()
	select {
	case failed := <-ended:
		if failed != nil {
			t.Error(failed)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
	if mine != 128 || err != nil || others != 128 {
		t.Errorf("one element has %d terminals, and meanwhile the other %d (%v): want 128 each", mine, others, err)
	}
}

// TestHold: processes are held, go on, and what was suspended stays so.
func TestHold(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 49, 1)
	// Before that, runc may be about to become the container's first process. A program with threads that is held while
	// it becomes another one waits for those that were held before it.
	n.awaitPhases(t, jobs, model.PhaseRunning)
	id := jobs[0].ID
	release := n.Hold(id)
	for !n.held(containerID(id)) { // Hold waits for holdWait at most: on a busy machine the kernel takes longer
		if !n.frozen(containerID(id)) || t.Context().Err() != nil {
			t.Fatal("its processes are not held")
		}
		time.Sleep(time.Millisecond)
	}
	release()
	if n.frozen(containerID(id)) {
		t.Error("its processes are held still")
	}
	n.run(t, id, "true")
	if err := n.freeze(containerID(id)); err != nil {
		t.Fatal(err)
	}
	n.Hold(id)()
	if !n.frozen(containerID(id)) {
		t.Error("what was suspended before goes on")
	}
	if err := n.thaw(containerID(id)); err != nil {
		t.Fatal(err)
	}
}
