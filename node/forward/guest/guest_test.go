package guest

import (
	"context"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

func TestPlane(t *testing.T) {
	ctx, p := context.Background(), New()
	a, b := model.ID{Network: "n", Element: "a"}, model.ID{Network: "n", Element: "b"}
	for _, r := range p.Prepare(ctx, []forward.Job{{ID: a}, {ID: b}}) {
		if r.Err != nil {
			t.Errorf("%s: %v", r.ID, r.Err)
		}
	}
	if err := p.Retire(ctx, []model.ID{a}); err != nil {
		t.Fatal(err)
	}
	if ids, err := p.List(ctx); err != nil || !slices.Equal(ids, []model.ID{b}) {
		t.Errorf("listed %v, %v: want only %s", ids, err, b)
	}
}
