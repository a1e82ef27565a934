package agent

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
	examplecontrol "github.com/polyplane/polyplane/node/control/example"
	"github.com/polyplane/polyplane/node/forward"
	exampleforward "github.com/polyplane/polyplane/node/forward/example"
)

// exampleWorld is what the examples of docs/adding-*.md stand on.
type exampleWorld struct {
	ports  map[model.PortID]int
	joined map[model.ID]map[string]int
}

func (w *exampleWorld) Make(id model.ID, ifc model.PlacedInterface) (control.Device, error) {
	port := model.PortID{ID: id, Interface: ifc.Name}
	if w.ports[port] == 0 {
		w.ports[port] = len(w.ports) + 1
	}
	return control.Device{Interface: ifc.Name, Index: w.ports[port]}, nil
}

func (w *exampleWorld) Remove(id model.ID, ifc string) error {
	delete(w.ports, model.PortID{ID: id, Interface: ifc})
	return nil
}

func (w *exampleWorld) Attach(model.ID, string) (int, error) { return 77, nil }
func (w *exampleWorld) Detach(id model.ID) error             { delete(w.joined, id); return nil }

// exampleFabric gives the plane places in the world.
type exampleFabric struct {
	*record
	world *exampleWorld
}

type examplePlace struct {
	forward.Place
	world *exampleWorld
	id    model.ID
}

func (f exampleFabric) Place(id model.ID) forward.Place { return examplePlace{world: f.world, id: id} }

func (examplePlace) Ports([]string) (map[string]uint32, error) { return nil, nil }
func (p examplePlace) Join(devices map[string]int) error {
	p.world.joined[p.id] = devices
	return nil
}

// TestExamplesInTheAgent has the agent's own pass work with the drivers that the pages build: it makes their
// elements, joins their ports, steers to their devices, and removes all that is no longer wanted.
func TestExamplesInTheAgent(t *testing.T) {
	w := &exampleWorld{ports: map[model.PortID]int{}, joined: map[model.ID]map[string]int{}}
	driver, plane, r := examplecontrol.New(w, nil), exampleforward.New(w, errors.New("not asked here")), &record{}
	drivers := Drivers{
		Controls: map[model.Control]control.Driver{model.ControlVM: driver},
		Planes:   map[PlaneOf]forward.Plane{{Forwarding: model.ForwardOpenFlow}: plane},
		Fabric:   exampleFabric{r, w},
	}
	dirs, log := instance.NewDirs("test").Node("n1"), slog.New(slog.DiscardHandler)
	a := &Agent{Config: Config{Dirs: dirs, Log: log, Drivers: drivers}, complete: true,
		elements: &elements{}, links: &links{}}
	a.reporter = newReporter(nil, "n1", a.Log)
	id := model.ID{Network: "lab", Element: "r"}
	router := model.PlacedElement{Name: "r", Kind: model.Router, Control: model.ControlVM,
		Forwarding: model.ForwardOpenFlow,
		Interfaces: []model.PlacedInterface{{
			ResolvedInterface: model.ResolvedInterface{Name: "x", MAC: "02:00:00:00:00:01"}}}}
	a.desired = &model.NodeState{Networks: []model.NodeNetwork{
		{Name: "lab", Elements: []model.NodeElement{{PlacedElement: router}}}}}
	if a.pass(t.Context()) {
		t.Fatal("the pass failed")
	}
	if len(r.state.Ports) != 1 || r.state.Ports[0].ID != (model.PortID{ID: id, Interface: "x"}) ||
		r.state.Ports[0].Index != 1 {
		t.Errorf("the fabric's ports: %+v", r.state.Ports)
	}
	if s := r.state.Steering[id]; s.Owner != model.ForwardOpenFlow || s.Devices["x"] != 77 {
		t.Errorf("steered %+v", s)
	}
	if len(a.reporter.events) != 1 || a.reporter.events[0].Reason != change.ElementCreated.Reason() {
		t.Errorf("events %+v", a.reporter.events)
	}
	a.desired = &model.NodeState{}
	if a.pass(t.Context()) {
		t.Fatal("the pass that removes failed")
	}
	found, _ := driver.List(t.Context())
	kept, _ := plane.List(t.Context())
	if len(found)+len(kept)+len(w.ports)+len(w.joined) != 0 {
		t.Errorf("left: %v, %v, %v, %v", found, kept, w.ports, w.joined)
	}
}
