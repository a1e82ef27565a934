package xdp_test

import (
	"context"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/node/forward"
)

// TestNobodyWaitsForARouter: where somebody watches, Prepare does not wait for a router whose tables are not what its namespace
// has. It says so, takes the others, has itself called again when that one is in sync – or cannot be in time, which it then tells.
func TestNobodyWaitsForARouter(t *testing.T) {
	l := newLab(t)
	l.prepare("r1", "r2")
	l.plane.Hurry()
	changed := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.plane.Watch(ctx, func() { changed <- struct{}{} })
	}()
	defer func() { stop(); <-ended }()
	var jobs []forward.Job
	for _, j := range l.jobs {
		if j.ID.Element == "r1" || j.ID.Element == "r2" {
			jobs = append(jobs, forward.Job{ID: j.ID, Element: j.Element, Quota: l.quota()})
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
	<-changed // it is too late
	for _, r := range l.plane.Prepare(ctx, jobs) {
		if r.ID == id("r1") && (r.Err == nil || !strings.Contains(r.Err.Error(), "not yet known") || r.Waits) {
			t.Errorf("r1, too late: waits %v, error %v", r.Waits, r.Err)
		} else if r.ID != id("r1") && r.Err != nil {
			t.Error(r.Err)
		}
	}
	l.ping() // it is forwarded for all the same
}
