package fast_test

import (
	"context"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/node/forward"
)

// TestNobodyWaitsForARouter: Prepare does not wait for a router whose tables are not what its namespace has. It says
// so, takes the others, has itself called again when that one is in sync – or cannot be in time, which it then tells.
func TestNobodyWaitsForARouter(t *testing.T) {
	l := newLab(t)
	l.prepare("r1", "r2")
	changed := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.plane.Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	defer func() { stop(); <-ended }()
	var jobs []forward.Job
	for _, j := range l.jobs {
		if j.ID.Element == "r1" || j.ID.Element == "r2" {
			jobs = append(jobs, l.job(&j))
		}
	}
	prepare := func(what string, waits bool) {
		t.Helper()
		for _, r := range l.plane.Prepare(ctx, jobs) {
			if r.Err != nil || r.Waits != (waits && r.ID == id("r1")) {
				t.Fatalf("%s: %s: waits %v, error %v", what, r.ID, r.Waits, r.Err)
			}
		}
	}
	in := l.plane.Unsync(id("r1"))
	prepare("while r1 is not in sync", true)
	in()
	<-changed
	prepare("when r1 is in sync", false)

	l.plane.Unsync(id("r1"))
	prepare("while it is not again", true)
	for waits := true; waits; {
		<-changed // it is too late, or somebody was in sync before
		for _, r := range l.plane.Prepare(ctx, jobs) {
			if r.ID != id("r1") && r.Err != nil {
				t.Error(r.Err)
			} else if waits = r.ID == id("r1") && r.Waits || r.ID != id("r1") && waits; r.ID == id("r1") && !waits &&
				(r.Err == nil || !strings.Contains(r.Err.Error(), "not yet known")) {
				t.Errorf("r1, too late: error %v", r.Err)
			}
		}
	}
	l.ping() // it is forwarded for all the same
}
