package netns

import (
	"context"
	"os"
	"testing"

	"github.com/polyplane/polyplane/node/control"
)

// TestUnboundedIsTold: where the program that bounds sockets cannot be attached, that is told of each element in which
// something runs, once.
func TestUnboundedIsTold(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(n.dirs.Run, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.socketsDir(), nil, 0o600); err != nil { // where a file system must be mounted
		t.Fatal(err)
	}
	jobs := lineOf("lab", 50, 2)
	n.apply(t, jobs)
	id := jobs[1].ID
	for range 2 {
		n.run(t, id, "true")
	}
	for _, want := range []int{1, 0} {
		trimmed, err := n.Trim(context.Background())
		if err != nil || len(trimmed) != want {
			t.Fatalf("told was %+v (%v), want %d", trimmed, err, want)
		}
		for _, x := range trimmed {
			if x.ID != id || x.Table != control.Unbounded || x.Why == nil {
				t.Errorf("told was %+v", x)
			}
		}
	}
}
