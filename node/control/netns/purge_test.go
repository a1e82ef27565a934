package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
)

// TestPurge: what runs in containers ends although no driver is there, and runc knows of none any more.
func TestPurge(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 1, 2)
	n.apply(t, jobs)
	pids := []int{n.pidOf(t, jobs[0].ID), n.pidOf(t, jobs[1].ID)}
	n.Close()
	if err := Purge(n.dirs); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(n.dirs.Runc())
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		t.Errorf("runc still knows %v: %v", left, err)
	}
	for _, pid := range pids {
		// the dead, reaped or not, have none
		if root, err := os.Readlink(fmt.Sprintf("/proc/%d/root", pid)); err == nil {
			t.Errorf("process %d has not ended: its root is %s", pid, root)
		}
	}
	if err := Purge(n.dirs); err != nil { // nothing is left to be done
		t.Error(err)
	}
	n.restart(t)
}
