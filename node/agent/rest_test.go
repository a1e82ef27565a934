package agent

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
)

// startingControl has elements that are starting for ever, and notes when it was asked for what.
type startingControl struct {
	*record
	mu    sync.Mutex
	calls []call
}

type call struct {
	began, ended time.Time
	glance       bool
	elements     int
}

func (*startingControl) Offers(context.Context) model.Offers            { return nil }
func (*startingControl) List(context.Context) ([]control.Found, error)  { return nil, nil }
func (*startingControl) Remove(context.Context, []model.ID, bool) error { return nil }
func (c *startingControl) Apply(ctx context.Context, jobs []control.Job) (all []control.Result) {
	one := call{began: time.Now(), glance: control.Glancing(ctx), elements: len(jobs)}
	time.Sleep(5 * time.Millisecond)
	for _, j := range jobs {
		all = append(all, control.Result{ID: j.ID, Phase: model.PhaseStarting})
	}
	one.ended = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, one)
	return all
}

// await returns the calls once they are as wanted.
func (c *startingControl) await(t *testing.T, wanted func([]call) bool) []call {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		calls := c.calls
		c.mu.Unlock()
		if wanted(calls) {
			return calls
		}
	}
	t.Fatal("the loop does not go on")
	return nil
}

// TestLooksLeaveTimeForStarts: while elements are starting, the loop looks at them only a small part of the time,
// however often it is told that something has changed. What people ask for is done all the same.
func TestLooksLeaveTimeForStarts(t *testing.T) {
	state := func(names ...string) model.NodeState {
		n := model.NodeNetwork{Name: "net"}
		for _, name := range names {
			n.Elements = append(n.Elements, model.NodeElement{PlacedElement: model.PlacedElement{Name: name,
				Kind: model.Router, Control: model.ControlNetns, Forwarding: model.ForwardGuest}})
		}
		return model.NodeState{Networks: []model.NodeNetwork{n}}
	}
	r := &record{}
	c := &startingControl{record: r}
	first := state("a")
	dir := t.TempDir()
	a := &Agent{Config: Config{Dirs: instance.NodeDirs{Instance: "test", Node: "n1", Run: dir, Data: dir},
		Log: slog.New(slog.DiscardHandler), Drivers: Drivers{
			Controls: map[model.Control]control.Driver{model.ControlNetns: c},
			Planes:   map[PlaneOf]forward.Plane{{Forwarding: model.ForwardGuest}: recordPlane{}}, Fabric: r}},
		desired: &first, elements: &elements{}, links: &links{}, wishes: make(chan model.NodeState, 1),
		ready: make(chan struct{}, 1), work: newWork("n1"), watcher: newWatcher()}
	a.reporter = newReporter(nil, "n1", a.Log)
	a.ground = newNeighbours(a.work, a.Log, func(model.Measures) {})
	a.cuts, a.saved = readCuts(a.Dirs.Incidents(), a.Log), instance.NewDesired(a.Dirs)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { a.loop(ctx) }) //nolint:errcheck // it ends with the context
	running.Go(func() {
		for ctx.Err() == nil {
			a.changed()
			time.Sleep(time.Millisecond)
		}
	})
	calls := c.await(t, func(calls []call) bool { return len(calls) >= 8 })
	glances := 0
	for i := 1; i < len(calls); i++ {
		if calls[i].glance {
			glances++
		}
		took, gap := calls[i-1].ended.Sub(calls[i-1].began), calls[i].began.Sub(calls[i-1].ended)
		if least := min(restTimes*took, restMost); calls[i].glance && gap < least {
			t.Errorf("look %d comes %v after one that took %v, and shall leave at least %v", i, gap, took, least)
		}
	}
	if glances == 0 {
		t.Errorf("none of %d looks was a short one", len(calls))
	}
	a.wishes <- state("a", "b")
	c.await(t, func(calls []call) bool { return calls[len(calls)-1].elements == 2 })
}
