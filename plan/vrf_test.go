package plan

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestVRFsDisturb: what is told of a router whose VRFs change.
func TestVRFsDisturb(t *testing.T) {
	red := func(v model.VRF) map[string]model.VRF { return map[string]model.VRF{"red": v} }
	routes := []model.Route{{Type: model.RouteBlackhole}}
	for name, c := range map[string]struct {
		software model.Software
		old, new map[string]model.VRF
		want     string
	}{
		"a new one":       {model.SoftwareStatic, nil, red(model.VRF{Interfaces: []string{"a", "b"}}), "vrfs.red: unset → interfaces a b"},
		"it cuts":         {model.SoftwareStatic, nil, red(model.VRF{Interfaces: []string{"a"}}), "cuts for a moment what goes over interfaces"},
		"of nothing":      {model.SoftwareStatic, nil, red(model.VRF{}), "in place"},
		"routes":          {model.SoftwareStatic, red(model.VRF{}), red(model.VRF{Routes: routes}), "in place"},
		"routes of FRR":   {model.SoftwareFRR, red(model.VRF{}), red(model.VRF{Routes: routes}), "reloads pe"},
		"a protocol":      {model.SoftwareFRR, red(model.VRF{}), red(model.VRF{OSPF: &model.OSPF{}}), "restarts pe"},
		"another of it":   {model.SoftwareFRR, red(model.VRF{OSPF: &model.OSPF{}}), map[string]model.VRF{"blue": {OSPF: &model.OSPF{}}}, "reloads pe"},
		"interfaces move": {model.SoftwareFRR, red(model.VRF{Interfaces: []string{"a"}}), map[string]model.VRF{"blue": {Interfaces: []string{"a"}}}, "cuts for a moment"},
	} {
		of := func(vrfs map[string]model.VRF) model.Network {
			return model.Network{Name: "lab", Elements: []model.Element{{Name: "pe", Kind: model.Router, Software: c.software, VRFs: vrfs}}}
		}
		if told := Diff(of(c.old), of(c.new)).Format(false); !strings.Contains(told, c.want) {
			t.Errorf("%s: want %q in\n%s", name, c.want, told)
		}
	}
}
