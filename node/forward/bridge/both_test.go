package bridge_test

import (
	"context"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/bridge"
)

// listPlane remembers what it has.
type listPlane struct{ ids []model.ID }

func (p *listPlane) Offers(context.Context) model.Offers      { return nil }
func (p *listPlane) List(context.Context) ([]model.ID, error) { return slices.Clone(p.ids), nil }
func (p *listPlane) Retire(_ context.Context, ids []model.ID) error {
	p.ids = slices.DeleteFunc(p.ids, func(id model.ID) bool { return slices.Contains(ids, id) })
	return nil
}
func (p *listPlane) Prepare(_ context.Context, jobs []forward.Job) []forward.Prepared {
	p.ids = nil
	results := make([]forward.Prepared, len(jobs))
	for i := range jobs {
		p.ids = append(p.ids, jobs[i].ID)
		results[i].ID = jobs[i].ID
	}
	return results
}

// TestBoth gives switches and routers to a plane each.
func TestBoth(t *testing.T) {
	var switches, routers listPlane
	plane, ctx := bridge.Both(&switches, &routers), context.Background()
	var jobs []forward.Job
	for _, e := range []struct {
		name string
		kind model.Kind
	}{{"r1", model.Router}, {"s1", model.Switch}, {"r2", model.Router}} {
		job := forward.Job{ID: model.ID{Network: "lab", Element: e.name}}
		job.Element.Kind = e.kind
		jobs = append(jobs, job)
	}
	for i, r := range plane.Prepare(ctx, jobs) {
		if r.Err != nil || r.ID != jobs[i].ID {
			t.Errorf("job %d of %s: %s, %v", i, jobs[i].ID, r.ID, r.Err)
		}
	}
	if len(switches.ids) != 1 || len(routers.ids) != 2 {
		t.Errorf("switches %v, routers %v", switches.ids, routers.ids)
	}
	if all, err := plane.List(ctx); err != nil || len(all) != 3 {
		t.Errorf("listed %v, %v", all, err)
	}
	if err := plane.Retire(ctx, []model.ID{jobs[0].ID, jobs[1].ID}); err != nil {
		t.Fatal(err)
	}
	if all, err := plane.List(ctx); err != nil || len(all) != 1 || all[0] != jobs[2].ID {
		t.Errorf("listed %v, %v", all, err)
	}
}
