package netns

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCommandsLeaveNothing: what runc's commands write lies where the node's run-time files are, goes when they have
// ended, and what those of an agent that was killed left goes when the next one begins.
func TestCommandsLeaveNothing(t *testing.T) {
	n := newNode(t)
	t.Setenv("TMPDIR", t.TempDir())
	if err := n.runRunc(t.Context(), nil, nil, "state", "nobody"); err == nil {
		t.Fatal("runc knows a container that nobody made")
	}
	entries, err := os.ReadDir(filepath.Join(n.dirs.Run, "commands"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 {
		t.Errorf("a command that has ended left %v", entries)
	}
	if entries, _ = os.ReadDir(os.TempDir()); len(entries) > 0 {
		t.Errorf("it left %v in the directory of temporary files", entries)
	}
	left, err := n.temporary("runc-") // as by a kill in the middle of a command
	if err != nil {
		t.Fatal(err)
	}
	left.Close()
	n.restart(t)
	n.apply(t, nil)
	if _, err := os.Stat(left.Name()); !os.IsNotExist(err) {
		t.Errorf("what an agent that was killed left is still there: %v", err)
	}
}
