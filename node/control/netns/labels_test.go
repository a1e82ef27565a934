package netns

import (
	"net/netip"
	"testing"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// TestLabelSettings: labels are taken at every device, that of a VLAN too, and at lo, where a packet comes again that
// has another label below the one that was taken off; the next hop may be behind an interface of a VLAN.
// Routes with labels are before those of routing protocols.
func TestLabelSettings(t *testing.T) {
	job := control.Job{ID: model.ID{Network: "lab", Element: "r1"}}
	job.Element.Kind = model.Router
	job.Element.Interfaces = []model.PlacedInterface{{ResolvedInterface: model.ResolvedInterface{Name: "s1", MTU: 1500},
		VLANs: []model.ResolvedInterface{{Name: "s1.10", VLAN: 10}}}}
	job.Element.MPLS = []model.LSP{{In: 300, Out: []int{301}, Via: "r2", NextHop: netip.MustParseAddr("10.0.10.2"),
		Interface: "s1.10"}, {In: 20}, {To: netip.MustParsePrefix("2001:db8::/32"), Out: []int{16}, Via: "r2",
		NextHop: netip.MustParseAddr("fe80::2"), Interface: "s1"}}
	w, err := newWant(instance.NodeDirs{}, job)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.labels) != 2 || w.labels[0].device != "s1.10" || w.labels[1].device != "lo" {
		t.Errorf("labels lead by %+v", w.labels)
	}
	if len(w.routes) != 1 || w.routes[0].device != "s1" || w.routes[0].metric >= 20 { // what FRR gives its own
		t.Errorf("routes with labels are %+v", w.routes)
	}
	want := map[setting]bool{{platformLabels, "301"}: true, labelInput("lo"): true, labelInput("s1"): true,
		labelInput("s1.10"): true}
	settings := w.labelSettings()
	for _, s := range settings {
		if !want[s] {
			t.Errorf("%+v is set", s)
		}
	}
	if len(settings) != len(want) {
		t.Errorf("set are %+v", settings)
	}
	for value, suits := range map[string]bool{"300": false, "301": true, "1048576": true, "": false} {
		if settings[0].suits(value) != suits {
			t.Errorf("a table of %q labels: %t", value, !suits)
		}
	}
	if s := settings[1]; s.suits("0") || !s.suits("1") {
		t.Errorf("%+v is right at 0, or wrong at 1", s)
	}
	w.up = false
	if s := w.labelSettings(); s != nil {
		t.Errorf("of one that is stopped are set %+v", s)
	}
}
