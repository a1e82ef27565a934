// Package guest is the forwarding plane of `forwarding: guest`: the element's own network stack forwards its packets,
// so there is nothing to prepare.
package guest

import (
	"context"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// Plane leaves forwarding to the elements.
type Plane struct{}

var _ forward.Plane = Plane{}

// Offers returns what this plane offers: everything that has a stack of its own. That takes nothing.
func (Plane) Offers(context.Context) model.Offers {
	return model.OfferOf(model.ForwardGuest.Feature(), nil, model.Router, model.Host)
}

// Prepare lets all packets go to the elements.
func (Plane) Prepare(_ context.Context, jobs []forward.Job) []forward.Prepared {
	prepared := make([]forward.Prepared, len(jobs))
	for i := range jobs {
		prepared[i] = forward.Prepared{ID: jobs[i].ID, Steering: &forward.Steering{}}
	}
	return prepared
}

// List names nobody: nothing is kept.
func (Plane) List(context.Context) ([]model.ID, error) { return nil, nil }

// Retire has nothing to do.
func (Plane) Retire(context.Context, []model.ID) error { return nil }
