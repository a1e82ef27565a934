package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/forward"
)

// record stands for all three kinds of drivers and notes what it is told.
type record struct {
	Fabric
	exists  []model.ID
	removed []model.ID
	state   fabric.State
	cut     map[model.ID]bool

	unsteered bool
	changed   []change.Change // of each element
	failed    map[model.PortID]error
}

func (r *record) Apply(_ context.Context, s fabric.State) fabric.Report {
	r.state = s
	return fabric.Report{Steered: !r.unsteered, Failed: r.failed}
}

func (r *record) Cut(elements map[model.ID]bool, _ []string) error                   { r.cut = elements; return nil }
func (r *record) Forwarded(context.Context) (map[model.ID]fabric.Forwarded, error)   { return nil, nil }
func (r *record) Counters(context.Context) (map[model.PortID]fabric.Counters, error) { return nil, nil }

func (r *record) Place(model.ID) forward.Place { return nil }

type recordControl struct{ *record }

func (recordControl) Offers(context.Context) model.Offers { return nil }

func (c recordControl) Apply(_ context.Context, jobs []control.Job) []control.Result {
	var all []control.Result
	for i, j := range jobs {
		r := control.Result{ID: j.ID, Phase: model.PhaseRunning, Changed: c.changed}
		for k, ifc := range j.Element.Interfaces {
			r.Devices = append(r.Devices, control.Device{Interface: ifc.Name, Index: 10*i + k + 1})
		}
		all = append(all, r)
	}
	return all
}

func (r recordControl) List(context.Context) ([]control.Found, error) {
	var all []control.Found
	for _, id := range r.exists {
		all = append(all, control.Found{ID: id})
	}
	return all, nil
}

func (r recordControl) Remove(_ context.Context, ids []model.ID, _ bool) error {
	r.removed = append(r.removed, ids...)
	return nil
}

type recordPlane struct{}

func (recordPlane) Offers(context.Context) model.Offers      { return nil }
func (recordPlane) List(context.Context) ([]model.ID, error) { return nil, nil }
func (recordPlane) Retire(context.Context, []model.ID) error { return nil }
func (recordPlane) Prepare(_ context.Context, jobs []forward.Job) []forward.Prepared {
	return make([]forward.Prepared, len(jobs))
}

// TestChangesAreEvents: an event has the reason and the words of the kind of change that the driver tells.
func TestChangesAreEvents(t *testing.T) {
	r := &record{changed: []change.Change{change.PortRestored.Of("h1")}}
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1"),
		Log: slog.New(slog.DiscardHandler), Drivers: Drivers{
			Controls: map[model.Control]control.Driver{model.ControlNetns: recordControl{r}},
			Planes:   map[PlaneOf]forward.Plane{{Forwarding: model.ForwardGuest}: recordPlane{}}, Fabric: r}},
		desired: &model.NodeState{Networks: []model.NodeNetwork{{Name: "net",
			Elements: []model.NodeElement{{PlacedElement: model.PlacedElement{Name: "h", Kind: model.Host,
				Control: model.ControlNetns, Forwarding: model.ForwardGuest}}}}}},
		elements: &elements{}, links: &links{}}
	a.reporter = newReporter(nil, "n1", a.Log)
	a.pass(t.Context())
	want := model.Event{Severity: model.Info, Object: "net/h", Reason: "PortRestored", Message: "port h1 restored"}
	if len(a.reporter.events) != 1 {
		t.Fatalf("events %+v", a.reporter.events)
	}
	if got := a.reporter.events[0]; got.Severity != want.Severity || got.Object != want.Object ||
		got.Reason != want.Reason || got.Message != want.Message {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// confirmed notes what a plane is told that the data path forwarded.
type confirmed struct {
	recordPlane
	forwarded map[model.ID]uint64
}

func (c *confirmed) Confirm(_ context.Context, forwarded map[model.ID]uint64) {
	c.forwarded = forwarded
}

type forwards struct {
	Fabric
	counts map[model.ID]fabric.Forwarded
	err    error
}

func (f *forwards) Forwarded(context.Context) (map[model.ID]fabric.Forwarded, error) {
	return f.counts, f.err
}

// TestConfirm: planes that confirm neighbours are told what was forwarded, and nothing where that is not known.
func TestConfirm(t *testing.T) {
	id := model.ID{Network: "net", Element: "r"}
	plane, f := &confirmed{}, &forwards{counts: map[model.ID]fabric.Forwarded{id: {Packets: 7}}, err: errors.New("closed")}
	a := &Agent{Config: Config{Drivers: Drivers{Fabric: f, Planes: map[PlaneOf]forward.Plane{
		{Forwarding: model.ForwardGuest}: recordPlane{}, {Forwarding: model.ForwardXDP}: plane}}}}
	a.confirmNow(t.Context())
	if plane.forwarded != nil {
		t.Errorf("told %v although nothing is known", plane.forwarded)
	}
	f.err = nil
	a.confirmNow(t.Context())
	if len(plane.forwarded) != 1 || plane.forwarded[id] != 7 {
		t.Errorf("told %v", plane.forwarded)
	}
}

// TestPass: hosts and routers get only the frames sent to them, a switch gets all; what is no longer wanted goes, but
// nothing of a network that is held, and nothing at all before the manager has spoken.
func TestPass(t *testing.T) {
	element := func(name string, kind model.Kind) model.NodeElement {
		return model.NodeElement{PlacedElement: model.PlacedElement{Name: name, Kind: kind, Control: model.ControlNetns,
			Forwarding: map[bool]model.Forwarding{false: model.ForwardGuest, true: model.ForwardBridge}[kind ==
				model.Switch],
			Interfaces: []model.PlacedInterface{{
				ResolvedInterface: model.ResolvedInterface{Name: "x", MAC: "02:00:00:00:00:01",
					Shape: &model.Shape{Bandwidth: 5, Loss: 0.1}}}}}}
	}
	desired := &model.NodeState{Hold: []string{"broken"},
		Networks: []model.NodeNetwork{{Name: "net", Slice: model.Slice{Bandwidth: 7}, Elements: []model.NodeElement{
			element("r", model.Router), element("h", model.Host), element("s", model.Switch)}}}}
	old, held := model.ID{Network: "net", Element: "old"}, model.ID{Network: "broken", Element: "r"}
	for _, complete := range []bool{false, true} {
		r := &record{exists: []model.ID{old, held}}
		a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1"),
			Log: slog.New(slog.DiscardHandler), Drivers: Drivers{
				Controls: map[model.Control]control.Driver{model.ControlNetns: recordControl{r}},
				Planes: map[PlaneOf]forward.Plane{{Forwarding: model.ForwardGuest}: recordPlane{},
					{Forwarding: model.ForwardBridge}: recordPlane{}},
				Fabric: r,
			}}, desired: desired, complete: complete, elements: &elements{}, links: &links{}}
		a.reporter = newReporter(nil, "n1", a.Log)
		if a.pass(t.Context()) {
			t.Fatal("the pass failed")
		}
		if !r.state.Incomplete {
			t.Error("the fabric may sweep although a network is held")
		}
		for _, p := range r.state.Ports {
			if has := p.MAC != nil; has != (p.ID.Element != "s") {
				t.Errorf("port %s has MAC %s", p.ID, p.MAC)
			}
			if want := (model.Shape{Bandwidth: 5, Loss: 0.1}); p.Shape != want {
				t.Errorf("port %s: its link does %s, want %s", p.ID, p.Shape, want)
			}
		}
		if got := r.state.Slices; len(got) != 1 || got["net"] != 7 {
			t.Errorf("the slices' bandwidths: %v", got)
		}
		if len(r.state.Ports) != 3 {
			t.Errorf("the fabric has %d ports, not 3", len(r.state.Ports))
		}
		var want []model.ID
		if complete {
			want = []model.ID{old}
		}
		if !slices.Equal(r.removed, want) {
			t.Errorf("complete %v: removed %v, want %v", complete, r.removed, want)
		}
	}
}

// TestWarningIsToldOnce: an element with a warning runs, says so, and is an event once, until it says something else.
func TestWarningIsToldOnce(t *testing.T) {
	id := model.ID{Network: "net", Element: "r"}
	r := &record{}
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1"), Log: slog.New(slog.DiscardHandler),
		Drivers: Drivers{Fabric: r}}, desired: &model.NodeState{}, plan: plan{order: []model.ID{id}}, links: &links{}}
	a.reporter = newReporter(nil, "n1", a.Log)
	kept := control.Warning{Reason: "ConfigurationKept", Message: "it keeps its own"}
	for i, step := range []struct {
		warning control.Warning
		message string
		events  int
	}{{kept, kept.Message, 1}, {kept, kept.Message, 1}, {control.Warning{}, "", 1}, {kept, kept.Message, 2}} {
		a.report(t.Context(), map[model.ID]*outcome{id: {phase: model.PhaseRunning, warning: step.warning}}, nil)
		s := a.reporter.last.Elements[0]
		if s.Phase != model.PhaseRunning || s.Message != step.message {
			t.Errorf("report %d: %s, %q: want running, %q", i, s.Phase, s.Message, step.message)
		}
		if n := len(a.reporter.events); n != step.events {
			t.Fatalf("report %d: %d events: want %d", i, n, step.events)
		}
		if e := a.reporter.events[0]; e.Severity != model.Warning || e.Reason != kept.Reason ||
			e.Message != kept.Message {
			t.Errorf("the event is %+v", e)
		}
	}
}

type waitingPlane struct{ recordPlane }

func (waitingPlane) Prepare(_ context.Context, jobs []forward.Job) []forward.Prepared {
	all := make([]forward.Prepared, len(jobs))
	for i, j := range jobs {
		all[i] = forward.Prepared{ID: j.ID, Waits: j.ID.Element == "r"}
	}
	return all
}

// TestWhoIsWaitedForIsAtWork: an element that its plane is not in sync with runs, has not failed, and is at work.
func TestWhoIsWaitedForIsAtWork(t *testing.T) {
	element := func(name string) model.NodeElement {
		return model.NodeElement{PlacedElement: model.PlacedElement{Name: name, Kind: model.Router, Control: model.ControlNetns,
			Forwarding: model.ForwardGuest}}
	}
	r := &record{}
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1"),
		Log: slog.New(slog.DiscardHandler), Drivers: Drivers{
			Controls: map[model.Control]control.Driver{model.ControlNetns: recordControl{r}},
			Planes:   map[PlaneOf]forward.Plane{{Forwarding: model.ForwardGuest}: waitingPlane{}},
			Fabric:   r,
		}}, desired: &model.NodeState{Networks: []model.NodeNetwork{{Name: "net",
		Elements: []model.NodeElement{element("r"), element("s")}}}},
		elements: &elements{}, links: &links{}}
	a.reporter = newReporter(nil, "n1", a.Log)
	if a.pass(t.Context()) {
		t.Error("the pass failed")
	}
	for _, s := range a.reporter.last.Elements {
		if s.Phase != model.PhaseRunning || s.Message != "" || s.AtWork != (s.ID.Element == "r") {
			t.Errorf("%s is %s, at work %v: %q", s.ID, s.Phase, s.AtWork, s.Message)
		}
	}
}

// steeringPlane has what a test says ready, for all elements, and keeps something of those that it was told of.
type steeringPlane struct {
	recordPlane
	prepared forward.Prepared
	has      map[model.ID]bool
}

func (p *steeringPlane) Prepare(_ context.Context, jobs []forward.Job) []forward.Prepared {
	all := make([]forward.Prepared, len(jobs))
	for i, j := range jobs {
		all[i] = p.prepared
		all[i].ID, p.has[j.ID] = j.ID, true
	}
	return all
}

func (p *steeringPlane) List(context.Context) ([]model.ID, error) {
	return slices.Collect(maps.Keys(p.has)), nil
}

func (p *steeringPlane) Retire(_ context.Context, ids []model.ID) error {
	for _, id := range ids {
		delete(p.has, id)
	}
	return nil
}

// TestTheAgentSteers: what a plane has ready goes to the fabric, with the plane's name, and only then another plane
// lets go of the element. While that plane waits, fails, or the fabric has not done it, the element stays as it is.
func TestTheAgentSteers(t *testing.T) {
	r := &record{}
	old, next := &steeringPlane{has: map[model.ID]bool{}}, &steeringPlane{has: map[model.ID]bool{}}
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1"),
		Log: slog.New(slog.DiscardHandler), Drivers: Drivers{
			Controls: map[model.Control]control.Driver{model.ControlNetns: recordControl{r}},
			Planes: map[PlaneOf]forward.Plane{{Forwarding: model.ForwardRouter}: old,
				{Forwarding: model.ForwardXDP}: next},
			Fabric: r,
		}}, complete: true, elements: &elements{}, links: &links{}}
	a.reporter = newReporter(nil, "n1", a.Log)
	id, other := model.ID{Network: "net", Element: "r"}, model.ID{Network: "net", Element: "gone"}
	want := func(by model.Forwarding) {
		a.desired = &model.NodeState{Networks: []model.NodeNetwork{{Name: "net", Elements: []model.NodeElement{
			{PlacedElement: model.PlacedElement{Name: "r", Kind: model.Router, Control: model.ControlNetns,
				Forwarding: by}}}}}}
	}
	old.prepared.Steering = &forward.Steering{Tables: 1, Devices: map[string]int{"x": 7}}
	old.has[other] = true
	want(model.ForwardRouter)
	a.pass(t.Context())
	if s := r.state.Steering[id]; s.Owner != model.ForwardRouter || s.Tables != 1 ||
		s.Devices["x"] != 7 || old.has[other] {
		t.Errorf("steered %+v; kept %v", s, old.has)
	}
	want(model.ForwardXDP)
	ready := &forward.Steering{Tables: 1}
	for _, step := range []struct {
		what      string
		prepared  forward.Prepared
		unsteered bool
		failed    map[model.PortID]error
		kept      bool
	}{
		{"waited for", forward.Prepared{Waits: true}, false, nil, true},
		{"failed", forward.Prepared{Err: errors.New("no")}, false, nil, true},
		{"the fabric did not come to it", forward.Prepared{Steering: ready}, true, nil, true},
		{"the fabric refuses it", forward.Prepared{Steering: ready}, false,
			map[model.PortID]error{{ID: id}: errors.New("no")}, true},
		{"ready", forward.Prepared{Steering: ready}, false, nil, false},
	} {
		next.prepared, r.unsteered, r.failed = step.prepared, step.unsteered, step.failed
		failed := a.pass(t.Context())
		if s, said := r.state.Steering[id]; said != (step.prepared.Steering != nil) || said &&
			s.Owner != model.ForwardXDP || old.has[id] != step.kept ||
			failed != (step.prepared.Err != nil || step.failed != nil) {
			t.Errorf("%s: steered %+v (%v), kept by the old plane %v, the pass failed %v", step.what, s, said,
				old.has[id], failed)
		}
	}
}

// TestSwitchesHaveAPlaneOfTheirOwn: where switches have another plane than routers with the same forwarding, each plane
// gets its own and keeps them, and lets go of an element of the other's.
func TestSwitchesHaveAPlaneOfTheirOwn(t *testing.T) {
	r := &record{}
	plane := func(has ...string) *steeringPlane {
		p := &steeringPlane{has: map[model.ID]bool{}, prepared: forward.Prepared{Steering: &forward.Steering{}}}
		for _, name := range has {
			p.has[model.ID{Network: "net", Element: name}] = true
		}
		return p
	}
	routers, switches := plane("s"), plane()
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1"),
		Log: slog.New(slog.DiscardHandler), Drivers: Drivers{
			Controls: map[model.Control]control.Driver{model.ControlNetns: recordControl{r}},
			Planes: map[PlaneOf]forward.Plane{{Forwarding: model.ForwardBridge}: routers,
				{Forwarding: model.ForwardBridge, Switches: true}: switches},
			Fabric: r,
		}}, complete: true, elements: &elements{}, links: &links{}}
	a.reporter = newReporter(nil, "n1", a.Log)
	var elements []model.NodeElement
	for name, kind := range map[string]model.Kind{"r": model.Router, "s": model.Switch} {
		elements = append(elements, model.NodeElement{PlacedElement: model.PlacedElement{Name: name, Kind: kind,
			Control: model.ControlNetns, Forwarding: model.ForwardBridge}})
	}
	a.desired = &model.NodeState{Networks: []model.NodeNetwork{{Name: "net", Elements: elements}}}
	for range 2 {
		if a.pass(t.Context()) {
			t.Fatal("the pass failed")
		}
	}
	for plane, want := range map[*steeringPlane]string{routers: "net/r", switches: "net/s"} {
		if got := slices.Collect(maps.Keys(plane.has)); len(got) != 1 || got[0].String() != want {
			t.Errorf("a plane has %v, want %s", got, want)
		}
	}
}
