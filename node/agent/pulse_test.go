package agent

import (
	"context"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// A pulse stands still while the loop does, whatever else runs in the process, and goes on with any progress.
func TestPulseIsOfTheLoop(t *testing.T) {
	p := &pulse{node: "n1"}
	ctx := control.WithProgress(context.Background(), p.progress)
	p.at("make elements")
	for range 7 {
		p.count()
	}
	if b := p.beat(); b.Step != "make elements" || time.Duration(b.Still) != 7*model.BeatEvery || b.Turns != 0 {
		t.Errorf("in a step: %+v", b)
	}
	control.Progress(ctx)
	if b := p.beat(); b.Step != "make elements" || b.Still != 0 {
		t.Errorf("after progress: %+v", b)
	}
	p.count()
	p.rest()
	if b := p.beat(); b.Step != "" || b.Still != 0 || b.Turns != 1 {
		t.Errorf("round: %+v", b)
	}
	control.Progress(context.Background()) // nobody asked
}
