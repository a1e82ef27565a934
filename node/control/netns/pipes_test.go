package netns

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/node/control"
)

// TestExecEndsWithItsCommand leaves a process behind that keeps the command's output open: the command's own output is
// complete, its status is its own, and nobody waits for what is left.
func TestExecEndsWithItsCommand(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 7, 2)
	n.apply(t, jobs)
	id := jobs[0].ID
	out, gate := newLines(), newGate()
	held := make(chan int, 1)
	go func() { // keeps the container, and so what is left running in it
		status, _ := n.Exec(t.Context(), id, control.Command{Args: []string{"sh", "-c", "echo ready; cat"}},
			control.Stdio{In: gate, Out: out})
		held <- status
	}()
	out.await("ready")
	status, got, err := n.try(id, "sh", "-c",
		"sleep 300 & echo $! >/tmp/left; head -c 300000 /dev/zero | tr '\\0' x; exit 3")
	if err != nil || status != 3 || len(got) != 300000 {
		t.Errorf("a command that left another running gave %d, %d bytes, %v: want 3, 300000 bytes",
			status, len(got), err)
	}
	n.run(t, id, "sh", "-c", "kill -0 $(cat /tmp/left)")
	// One that fills the pipe for ever does not hold the caller up either.
	if status, got, err := n.try(id, "sh", "-c", "echo first; yes & echo $! >/tmp/left"); err != nil || status != 0 ||
		!strings.Contains(got, "first\n") {
		t.Errorf("a command that left a chatterer running gave %d, %d bytes, %v", status, len(got), err)
	}
	// The pipes are the element's root's to open again.
	var b, e bytes.Buffer
	status, err = n.Exec(context.Background(), id,
		control.Command{Args: []string{"sh", "-c", "read x </dev/stdin; echo $x >/dev/stdout; echo err >/dev/stderr"}},
		control.Stdio{In: strings.NewReader("in\n"), Out: &b, Err: &e})
	if err != nil || status != 0 || b.String() != "in\n" || e.String() != "err\n" {
		t.Errorf("opening the standard streams again gave %d, %q, %q, %v", status, b.String(), e.String(), err)
	}
	// A home that is none is no reason to run nothing.
	n.run(t, id, "sh", "-c", "mv /root /was && ln -s /nowhere /root")
	if got := n.run(t, id, "pwd"); got != "/\n" {
		t.Errorf("without a home, a command begins in %q", got)
	}
	gate.Close()
	if status := <-held; status != 0 {
		t.Errorf("the command that waited for its input ended with %d", status)
	}
}
