package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/forward"
)

// removing are the elements that drivers are removing beside the loop, with the time when that began. If the agent dies
// meanwhile, the drivers of the next one list what is left.
type removing map[model.ID]time.Time

// remove has a driver remove elements. If the driver still lists one afterwards, it is at work on it, and the next pass
// asks again.
func (a *Agent) remove(ctx context.Context, driver control.Driver, ids []model.ID) error {
	if a.removing == nil {
		a.removing = removing{}
	}
	began := time.Now()
	for _, id := range ids {
		if since, ok := a.removing[id]; !ok {
			a.removing[id] = began
		} else if since.Before(began) {
			began = since
		}
	}
	if err := driver.Remove(ctx, ids, false); err != nil {
		return err
	}
	found, err := driver.List(ctx)
	if err != nil {
		return err
	}
	left := each.SetOf(found, func(f control.Found) model.ID { return f.ID })
	gone := false
	for _, id := range ids {
		if !left[id] {
			gone = true
			delete(a.removing, id)
			a.event(model.Info, id.String(), "ElementRemoved", "removed")
		}
	}
	if !gone {
		return nil
	}
	return a.discard(ctx, began)
}

// settle forgets elements that are no longer to be removed, or that have gone in another way.
func (r removing) settle(surplus map[model.ID]bool) {
	for id := range r {
		if !surplus[id] {
			delete(r, id)
		}
	}
}

// retire has a plane let go of elements. Those that it still lists afterwards need more time, and the next pass asks
// again.
func (a *Agent) retire(ctx context.Context, plane forward.Plane, ids []model.ID) error {
	if err := plane.Retire(ctx, ids); err != nil {
		return err
	}
	left, err := plane.List(ctx)
	a.retiring = append(a.retiring, each.That(left, func(id model.ID) bool { return slices.Contains(ids, id) })...)
	return err
}

// atWork are the networks of which something is being removed, sorted.
func (a *Agent) atWork() []string {
	names := map[string]bool{}
	for id := range a.removing {
		names[id.Network] = true
	}
	for _, id := range a.retiring {
		names[id.Network] = true
	}
	return slices.Sorted(maps.Keys(names))
}
