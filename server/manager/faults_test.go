package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// A schedule runs in the manager, goes on in the next one, tells of each fault, and a stop puts back what it has
// touched: also what somebody else has changed of that, and nothing else.
func TestFaults(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	doc := line("lab", 3)
	second := model.Duration(time.Second)
	doc.Links[1].Loss = 0.01
	doc.Faults = []model.Fault{
		{At: 3600 * second, Action: model.ActionStop, Object: "r1"},
		{At: 0, Action: model.ActionStop, Object: "r1--r2"},
		{At: 1, Action: model.ActionSet, Object: "r2--r3", Values: []model.Assignment{{Key: "loss", Value: "0.5"},
			{Key: "bandwidth", Value: "10Mbit"}}},
		{At: 2, Action: model.ActionStop, Object: "r3"},
	}
	f.apply(t, doc, model.ApplyOptions{})
	if _, err := f.set(t, "r2--r3", "mtu=1400"); err != nil {
		t.Fatal(err)
	}
	faults := func(a model.Action) (model.Record, error) {
		return f.Faults(t.Context(), "lab", model.FaultRequest{Action: a})
	}
	since := f.seq()
	if _, err := faults(model.ActionStart); err != nil {
		t.Fatal(err)
	}
	f.await(t, since, "lab", "FaultsStarted")
	done := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			if r := mustNetwork(t, f, "lab").FaultRun; r != nil && len(r.Done) >= n {
				return
			} else if time.Now().After(deadline) {
				t.Fatalf("the run is %+v", r)
			}
		}
	}
	done(3)
	f.await(t, since, "lab/r1--r2", "LinkStopped")
	f.await(t, since, "lab", "FaultMade")
	r := mustNetwork(t, f, "lab")
	if r.Network.Links[0].State != model.LinkDown || r.Network.Links[1].Loss != 0.5 || !r.Overrides["r3"].Stopped ||
		r.Overrides["r1"].Stopped {
		t.Errorf("after three faults: %+v, %+v", r.Network.Links, r.Overrides)
	}
	for _, d := range r.FaultRun.Done {
		if d.Problem != "" || d.At < 0 {
			t.Errorf("a fault is %+v", d)
		}
	}
	if _, err := faults(model.ActionStart); problem(t, err).Kind != api.KindConflict {
		t.Errorf("a second start: %v", err)
	}
	// Another manager goes on with it; an apply of the same file does not end it, but has what it names.
	f.stop()
	f = start(t, f.dir, substrateOf(2))
	f.apply(t, doc, model.ApplyOptions{})
	if l := mustNetwork(t, f, "lab").Network.Links[1]; l.Loss != 0.01 || l.Bandwidth != 1e7 {
		t.Errorf("after an apply: %+v", l)
	}
	if n, there := f.faults.next(); !there || n.fault.Object != "r1" {
		t.Errorf("next is %+v", n)
	}
	if _, err := f.set(t, "r1", "cpu=0.1"); err != nil {
		t.Fatal(err)
	}
	since = f.seq()
	if _, err := faults(model.ActionStop); err != nil {
		t.Fatal(err)
	}
	f.await(t, since, "lab/r1--r2", "LinkStarted")
	r = mustNetwork(t, f, "lab")
	if l := r.Network.Links; r.FaultRun != nil || l[0].State != "" || l[1].Loss != 0.01 || l[1].Bandwidth != 0 ||
		l[1].MTU != 1400 || r.Overrides["r3"].Stopped || r.Network.Elements[0].CPU != 100 {
		t.Errorf("after the stop: %+v, %+v", r.Network, r.Overrides)
	}
	if m := strings.Join(r.Set.Links["r2--r3"], " "); m != "mtu" {
		t.Errorf("set on r2--r3 is %q", m)
	}
	if _, err := faults(model.ActionStop); err != nil {
		t.Errorf("a stop of nothing: %v", err)
	}
}

// A fault that cannot be made is told, and the schedule goes on.
func TestFaultsThatFail(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, line("lab", 2), model.ApplyOptions{})
	if _, err := f.Faults(t.Context(), "lab", model.FaultRequest{Action: model.ActionStart}); err == nil ||
		!strings.Contains(err.Error(), "has no schedule of faults") {
		t.Errorf("a network without faults: %v", err)
	}
	doc := line("lab", 2)
	doc.Faults = []model.Fault{
		{Action: model.ActionSet, Object: "r1--r2", Values: []model.Assignment{{Key: "jitter", Value: "1ms"}}},
		{At: 1, Action: model.ActionStop, Object: "r1"}}
	f.apply(t, doc, model.ApplyOptions{})
	since := f.seq()
	if _, err := f.Faults(t.Context(), "lab", model.FaultRequest{Action: model.ActionStart}); err != nil {
		t.Fatal(err)
	}
	f.await(t, since, "lab", "FaultsOver")
	f.await(t, since, "lab", "FaultFailed")
	r := mustNetwork(t, f, "lab")
	if d := r.FaultRun.Done; len(d) != 2 || !strings.Contains(d[0].Problem, "jitter") || d[1].Problem != "" ||
		!r.Overrides["r1"].Stopped {
		t.Errorf("%+v", d)
	}
	// A schedule that is over starts from where it began.
	if _, err := f.Faults(t.Context(), "lab", model.FaultRequest{Action: model.ActionStart}); err != nil {
		t.Fatal(err)
	}
	f.await(t, f.seq()-1, "lab", "FaultsOver")
	if _, err := f.Faults(t.Context(), "lab", model.FaultRequest{Action: model.ActionStop}); err != nil {
		t.Fatal(err)
	}
	if o := mustNetwork(t, f, "lab").Overrides["r1"]; o.Stopped {
		t.Errorf("r1 is %+v", o)
	}
}
