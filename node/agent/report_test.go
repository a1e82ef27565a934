package agent

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// deafManager refuses every other report.
type deafManager struct {
	Manager
	mu    sync.Mutex
	calls int
	got   []model.Report
	heard chan struct{}
}

func (d *deafManager) Report(_ context.Context, r model.Report) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls++; d.calls%2 == 1 {
		return errors.New("not now")
	}
	d.got = append(d.got, r)
	d.heard <- struct{}{}
	return nil
}

// Every event arrives exactly once and in order, whatever the manager misses; of reports the latest counts.
func TestReporterLosesNoEvent(t *testing.T) {
	m := &deafManager{heard: make(chan struct{}, 100)}
	r := newReporter(m, "n1", slog.New(slog.DiscardHandler))
	n := 0
	event := func() {
		r.event(model.Event{Object: "x", Reason: "R", Message: strconv.Itoa(n)})
		n++
	}
	event()
	event()
	r.set(&model.Report{Node: "n1", Revision: 1})
	if err := r.deliver(t.Context()); err == nil {
		t.Fatal("the first report was to be refused")
	}
	event()
	r.set(&model.Report{Node: "n1", Revision: 2})
	if err := r.deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.deliver(t.Context()); err != nil || len(m.got) != 1 {
		t.Fatalf("nothing new was delivered: %v, %d reports", err, len(m.got))
	}
	event()
	r.again() // the manager started anew
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.run(ctx) }()
	<-m.heard
	<-m.heard
	cancel()
	<-done
	var seen []string
	for _, g := range m.got {
		if g.Revision != 2 {
			t.Errorf("revision %d was delivered after 2 was there", g.Revision)
		}
		for _, e := range g.Events {
			seen = append(seen, e.Message)
		}
	}
	if !reflect.DeepEqual(seen, []string{"0", "1", "2", "3"}) {
		t.Errorf("events %v arrived, want 0 to 3", seen)
	}
}

func TestReporterKeepsTheLatestEvents(t *testing.T) {
	r := newReporter(nil, "n1", slog.New(slog.DiscardHandler))
	for i := range maxEvents + 10 {
		r.event(model.Event{Message: strconv.Itoa(i)})
	}
	if len(r.events) != maxEvents || r.events[maxEvents-1].Message != strconv.Itoa(maxEvents+9) {
		t.Errorf("%d events are kept, the last %q", len(r.events), r.events[len(r.events)-1].Message)
	}
}
