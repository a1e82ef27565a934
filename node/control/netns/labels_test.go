package netns

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

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

// manyPaths are as many label-switched paths as a router has at most, and what its kernel has of them.
func manyPaths() (*want, *inside) {
	w, in := &want{}, &inside{links: map[string]*link{"eth0": {}, "lo": {}}}
	in.links["eth0"].Index, in.links["lo"].Index = 2, 1
	via := netip.MustParseAddr("10.0.0.2")
	for i := range model.MostLSPs {
		label := model.MinLabel + i
		w.labels = append(w.labels, wantLabel{in: label, out: []int{label}, via: via, device: "eth0"})
		in.labels = append(in.labels, presentLabel{in: label, out: []int{label}, via: via, index: 2})
		to := netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 24)
		w.routes = append(w.routes, wantRoute{to: to, kind: unix.RTN_UNICAST, via: []netip.Addr{via}, device: "eth0",
			labels: []int{label}})
		in.routes = append(in.routes, presentRoute{to: to, kind: unix.RTN_UNICAST, table: unix.RT_TABLE_MAIN,
			labels: []int{label}, hops: []hop{{via, 2}}})
	}
	slices.Reverse(in.labels)
	slices.Reverse(in.routes)
	return w, in
}

// TestManyPathsArePlanned: of as many paths as there can be, those are changed that are not as they are wanted.
func TestManyPathsArePlanned(t *testing.T) {
	w, in := manyPaths()
	plan := func() (all []string) {
		var r repair
		in.planLabels(&r, w)
		in.planRoutes(&r, w)
		for _, s := range r.steps {
			all = append(all, s.doing)
		}
		return all
	}
	if got := plan(); len(got) > 0 {
		t.Fatalf("of what is as it is wanted %d things change: %q", len(got), got[:1])
	}
	in.labels[7].index = 1                                                                    // by another device
	in.labels[8].out = []int{17}                                                              // with another label
	in.labels = append(slices.Delete(in.labels, 9, 10), presentLabel{in: 60000})              // one is gone, one is too much
	in.routes[7].hops[0].index = 1                                                            // by another device
	in.routes[8].table = 1001                                                                 // in another table
	other := in.routes[6]                                                                     // one more to the same prefix
	other.metric = 9                                                                          //
	in.routes = append(slices.Delete(in.routes, 9, 10), other)                                // one is gone
	w.routes = append(w.routes, wantRoute{to: other.to, kind: unix.RTN_BLACKHOLE, metric: 8}) // and one is missing
	want := []string{"remove the route of label 4104", "remove the route of label 4103", "remove the route of label 60000",
		"add the route of label 4102", "add the route of label 4103", "add the route of label 4104",
		"remove the route to 20.15.248.0/24", "remove the route to 20.15.247.0/24", "remove the route to 20.15.249.0/24",
		"add the route to 20.15.246.0/24", "add the route to 20.15.247.0/24", "add the route to 20.15.248.0/24",
		"add the route to 20.15.249.0/24"}
	if got := plan(); !slices.Equal(got, want) {
		t.Errorf("planned is %q, want %q", got, want)
	}
}

// BenchmarkPlanPaths compares them with what is there.
func BenchmarkPlanPaths(b *testing.B) {
	w, in := manyPaths()
	for b.Loop() {
		var r repair
		in.planLabels(&r, w)
		in.planRoutes(&r, w)
	}
}
