package guest

import (
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

func TestPlane(t *testing.T) {
	a, b := model.ID{Network: "n", Element: "a"}, model.ID{Network: "n", Element: "b"}
	for i, r := range (Plane{}).Prepare(t.Context(), []forward.Job{{ID: a}, {ID: b}}) {
		if r.Err != nil || r.ID != []model.ID{a, b}[i] || r.Steering == nil || !r.Steering.Equal(forward.Steering{}) {
			t.Errorf("%+v", r)
		}
	}
	if ids, err := (Plane{}).List(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("listed %v, %v", ids, err)
	}
}
