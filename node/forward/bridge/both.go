package bridge

import (
	"context"
	"errors"
	"slices"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// both is the plane of `forwarding: bridge`. A switch has one bridge, in its own namespace. A router has one bridge for
// each of its interfaces, in a companion namespace of the node's.
type both struct{ switches, routers forward.Plane }

var _ interface {
	forward.Plane
	forward.Treed
} = both{}

// Both joins the planes of switches and of routers.
func Both(switches, routers forward.Plane) forward.Plane { return both{switches, routers} }

// Offers returns the offers of both planes: a machine may have only what one of them needs.
func (b both) Offers(ctx context.Context) model.Offers {
	return append(b.switches.Offers(ctx), b.routers.Offers(ctx)...)
}

// Tree asks the plane of switches.
func (b both) Tree(id model.ID) (model.Tree, error) {
	if plane, ok := b.switches.(forward.Treed); ok {
		return plane.Tree(id)
	}
	return model.Tree{}, forward.ErrNotForwarded
}

// Prepare gives each job to its kind's plane.
func (b both) Prepare(ctx context.Context, jobs []forward.Job) []forward.Prepared {
	var of [2][]forward.Job
	var at [2][]int
	for i := range jobs {
		n := 0
		if jobs[i].Element.Kind == model.Router {
			n = 1
		}
		of[n], at[n] = append(of[n], jobs[i]), append(at[n], i)
	}
	results := make([]forward.Prepared, len(jobs))
	for n, plane := range []forward.Plane{b.switches, b.routers} {
		for i, p := range plane.Prepare(ctx, of[n]) {
			results[at[n][i]] = p
		}
	}
	return results
}

// List tells what both have.
func (b both) List(ctx context.Context) ([]model.ID, error) {
	switches, err := b.switches.List(ctx)
	if err != nil {
		return nil, err
	}
	routers, err := b.routers.List(ctx)
	return append(switches, routers...), err
}

// Retire gives each element to the plane that lists it.
func (b both) Retire(ctx context.Context, ids []model.ID) error {
	var failed []error
	for _, plane := range []forward.Plane{b.switches, b.routers} {
		list, err := plane.List(ctx)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		list = slices.DeleteFunc(list, func(id model.ID) bool { return !slices.Contains(ids, id) })
		if len(list) > 0 {
			failed = append(failed, plane.Retire(ctx, list))
		}
	}
	return errors.Join(failed...)
}
