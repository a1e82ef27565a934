package plan

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

func TestInternetEdges(t *testing.T) {
	net := func(in *model.Internet) model.Network {
		return model.Network{Name: "lab", Elements: []model.Element{{Name: "r1", Kind: model.Router}},
			Edges: []model.Edge{{Name: "up", End: model.End{Element: "r1", Interface: "up"}, Internet: in}}}
	}
	forwarded := net(&model.Internet{Forwards: []model.Forward{{Port: 2222, Element: "r1", To: 22}}})
	if got := Diff(net(nil), forwarded).Format(false); !strings.Contains(got, "2222:r1:22") {
		t.Errorf("an edge that becomes one to the internet is told as\n%s", got)
	}
	changes := Diff(net(&model.Internet{}), forwarded)
	if len(changes) != 1 || changes[0].Disturbs || !strings.Contains(changes.Format(false), "2222:r1:22") {
		t.Errorf("another forwarded port is told as\n%s", changes.Format(false))
	}
	created := Diff(model.Network{}, net(&model.Internet{})).Format(true)
	if !strings.Contains(created, "internet") {
		t.Errorf("a new internet edge is told as\n%s", created)
	}
}
