package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/fabric"
)

// countedFabric counts how often it is made.
type countedFabric struct {
	Fabric
	made   int
	report fabric.Report
}

func (f *countedFabric) Apply(context.Context, fabric.State) fabric.Report {
	f.made++
	return f.report
}

// TestFabricIsLeftAloneWhileOthersStart: where elements only become ready, and the fabric is whole and to be as it was,
// it is not looked at. In all other cases it is.
func TestFabricIsLeftAloneWhileOthersStart(t *testing.T) {
	state := func(index int) fabric.State {
		return fabric.State{Ports: []fabric.Port{{ID: model.PortID{Interface: "r1"}, Index: index}}}
	}
	whole, glance := t.Context(), control.Glance(t.Context())
	hooks := map[string]model.HookUse{"eth0": {}}
	for _, one := range []struct {
		name   string
		ctx    context.Context
		state  fabric.State
		report fabric.Report // of the time before
		made   int
	}{
		{"nothing is another", glance, state(1), fabric.Report{Steered: true, Underlay: hooks}, 1},
		{"a whole look", whole, state(1), fabric.Report{Steered: true}, 2},
		{"another device", glance, state(2), fabric.Report{Steered: true}, 2},
		{"one port failed", glance, state(1),
			fabric.Report{Steered: true, Failed: map[model.PortID]error{{Interface: "r1"}: errors.New("it did")}}, 2},
		{"something was wrong", glance, state(1), fabric.Report{Steered: true, Problem: errors.New("it is")}, 2},
		{"something was only begun", glance, state(1), fabric.Report{Steered: true, Again: time.Second}, 2},
		{"packets went elsewhere", glance, state(1), fabric.Report{}, 2},
	} {
		f, l := &countedFabric{report: one.report}, laid{}
		l.apply(whole, f, state(1))
		said := l.apply(one.ctx, f, one.state)
		if f.made != one.made {
			t.Errorf("%s: it is made %d times, want %d", one.name, f.made, one.made)
		}
		if len(said.Underlay) != len(one.report.Underlay) || said.Steered != one.report.Steered {
			t.Errorf("%s: it is told as %+v", one.name, said)
		}
	}
}
