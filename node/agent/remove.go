package agent

import (
	"context"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
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
	left := map[model.ID]bool{}
	for _, f := range found {
		left[f.ID] = true
	}
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

// networks are those of which something is being removed.
func (r removing) networks() []string {
	var names []string
	for id := range r {
		if !slices.Contains(names, id.Network) {
			names = append(names, id.Network)
		}
	}
	slices.Sort(names)
	return names
}
