package fast_test

import (
	"context"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
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

// TestNobodyWaitsForACarrier: a companion whose device has no carrier is not waited for in Prepare. Meanwhile the
// fabric forwards by the router's tables, and others have what they asked for. When the carrier comes the plane has
// itself called again, and the companion forwards; if it does not come, that is told.
func TestNobodyWaitsForACarrier(t *testing.T) {
	l := newLab(t)
	plane := l.planes()[model.ForwardBridge]
	var jobs []forward.Job
	for _, j := range l.jobs {
		if j.ID.Element == "r1" || j.ID.Element == "r2" {
			jobs = append(jobs, l.job(&j))
		}
	}
	clear(l.steering)
	l.take(plane, model.ForwardBridge, jobs)
	l.apply()
	changed := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		plane.(forward.Watcher).Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	defer func() { stop(); <-ended }()
	port := strings.Split(strings.Fields(l.inCompanion("r1", model.ForwardBridge, "ip -o link show type veth"))[1],
		"@")[0]
	// A bridge without a port that forwards has no carrier.
	carrier := func(state string) {
		l.inCompanion("r1", model.ForwardBridge, "bridge link set dev "+port+" state "+state)
	}
	// prepare is one pass.
	prepare := func() (r1 forward.Prepared) {
		t.Helper()
		for _, r := range plane.Prepare(ctx, jobs) {
			if r.ID == id("r1") {
				r1 = r
			} else if r.Err != nil || r.Waits || len(r.Steering.Devices) != 2 {
				t.Fatalf("%s waits with r1: %+v", r.ID, r)
			}
			if r.Steering != nil {
				r.Steering.Owner = model.ForwardBridge
				l.steering[r.ID] = *r.Steering
			}
		}
		l.apply()
		return r1
	}
	byCompanion := func(want int) {
		t.Helper()
		l.ping()
		before := l.forwarded("r1").Companion
		l.ping()
		if n := l.forwarded("r1").Companion - before; n != uint64(want) {
			t.Errorf("of 80 packets r1's companion got %d, want %d", n, want)
		}
	}
	byCompanion(80)

	for _, comes := range []bool{true, false} {
		carrier("0")
		l.plane.Look()
		if r := prepare(); r.Err != nil || !r.Waits || r.Steering == nil || r.Steering.Devices != nil {
			t.Fatalf("without a carrier: %+v", r)
		}
		byCompanion(0)
		if !comes {
			break
		}
		carrier("3")
		for r := prepare(); r.Waits; r = prepare() {
			<-changed
		}
		byCompanion(80)
	}
	for r := prepare(); ; r = prepare() {
		if r.Err != nil && strings.Contains(r.Err.Error(), "no carrier") {
			break
		}
		if r.Err != nil || !r.Waits {
			t.Fatalf("while the carrier does not come: %+v", r)
		}
		<-changed
	}
	byCompanion(0)
}
