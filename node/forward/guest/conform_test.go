package guest

import (
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/forwardtest"
)

func TestConforms(t *testing.T) {
	forwardtest.Conforms(t, forwardtest.Subject{
		Restart: func() forward.Plane { return Plane{} },
		Jobs: [2]forward.Job{{ID: model.ID{Network: "lab", Element: "a"}},
			{ID: model.ID{Network: "lab", Element: "b"}}},
		KeepsNothing: true,
	})
}
