package manager

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// register tells the manager what the build of every node offers.
func (f *fixture) register(t *testing.T, node string, forwardings ...model.Forwarding) {
	t.Helper()
	f.offer(t, node, offering(forwardings...)...)
}

// offering are the offers of an agent with the driver of `control: netns` and these planes, for the kinds that they are
// for.
func offering(forwardings ...model.Forwarding) model.Offers {
	all := model.OfferOf(model.ControlNetns.Feature(), nil)
	kinds := map[model.Forwarding][]model.Kind{model.ForwardBridge: {model.Switch, model.Router},
		model.ForwardRouter: {model.Router},
		model.ForwardXDP:    {model.Router}, model.ForwardGuest: {model.Router, model.Host}}
	for _, w := range forwardings {
		all = append(all, model.OfferOf(w.Feature(), nil, kinds[w]...)...)
	}
	return all
}

func (f *fixture) offer(t *testing.T, node string, offers ...model.Offer) {
	t.Helper()
	if err := f.Register(node, model.Registration{Socket: f.dir + "/none.sock", Offers: offers}); err != nil {
		t.Fatal(err)
	}
}

// refused applies a network, dry and in earnest, and returns the one reason why it is refused.
func (f *fixture) refused(t *testing.T, net model.Network) string {
	t.Helper()
	var reason string
	for _, dry := range []bool{true, false} {
		_, err := f.Apply(t.Context(), net, model.ApplyOptions{DryRun: dry})
		p := problem(t, err)
		if p.Kind != api.KindInvalid || len(p.Reasons) != 1 {
			t.Fatalf("dry run %v: %v, reasons %q", dry, p.Kind, p.Reasons)
		}
		reason = p.Reasons[0].Error()
	}
	if _, err := f.Network(net.Name); err == nil {
		t.Fatal("the refused network is there")
	}
	return reason
}

func TestDriversThatNoNodeHasAreRefused(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	f.register(t, "n1", model.ForwardBridge, model.ForwardGuest)
	f.register(t, "n2", model.ForwardBridge, model.ForwardGuest)
	for want, change := range map[string]func(*model.Element){
		"router r2 wants forwarding: xdp; n1, n2 lack it: there is forwarding: bridge, " +
			"guest": func(e *model.Element) { e.Forwarding = model.ForwardXDP },
		"router r2 wants control: vm; n1, n2 lack it: there is control: " +
			"netns": func(e *model.Element) { e.Control = model.ControlVM },
	} {
		net := line("lab", 3)
		change(&net.Elements[1])
		if got := f.refused(t, net); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	f.apply(t, line("lab", 3), model.ApplyOptions{})
}

// A plane that nodes have for one kind of elements is none for another, nor may one that runs be set to it.
func TestPlanesForOtherKindsAreRefused(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.register(t, "n1", model.ForwardBridge, model.ForwardGuest, model.ForwardXDP)
	net := line("lab", 1)
	net.Elements = append(net.Elements, model.Element{Name: "s1", Kind: model.Switch})
	f.apply(t, net, model.ApplyOptions{})
	for object, c := range map[string]struct{ forwarding, want string }{
		"r1": {"router", "router r1 wants forwarding: router; r1 is on n1; n1 lacks it: there is forwarding: bridge, " +
			"guest, xdp"},
		"s1": {"xdp", "switch s1 wants forwarding: xdp; s1 is on n1; n1 lacks it: there is forwarding: bridge"},
	} {
		_, err := f.set(t, object, "forwarding="+c.forwarding)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if r, err := f.set(t, "r1", "forwarding=xdp"); err != nil || !r.Changed {
		t.Error(r, err)
	}
}

func TestElementsOnNodesWithoutTheirDriverAreRefused(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	f.register(t, "n1", model.ForwardGuest)
	f.register(t, "n2", model.ForwardGuest, model.ForwardXDP)
	net := line("lab", 2)
	net.Elements[0].Forwarding, net.Elements[0].Node = model.ForwardXDP, "n1"
	if got := f.refused(t, net); got != "router r1 wants forwarding: xdp; r1 is pinned to n1; n1 lacks it: there is "+
		"forwarding: guest; "+
		"n2 has it: pin r1 to it (node:)" {
		t.Error(got)
	}
	net.Elements[0].Node = "n2"
	f.apply(t, net, model.ApplyOptions{})
}

func TestConfigurationThatTheSoftwareCannotTakeIsRefused(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	net := line("lab", 2)
	net.Elements[0].Software = model.SoftwareFRR
	net.Elements[0].Routes = []model.Route{{To: netip.MustParsePrefix("192.0.2.0/24"),
		Type: model.RouteBlackhole, Metric: 1000}}
	if got := f.refused(t, net); !strings.Contains(got,
		"lab/r1: route 192.0.2.0/24: with frr a metric is an administrative distance, 1…255, not 1000") {
		t.Error(got)
	}
}

func TestOneDeviceIsOneEdge(t *testing.T) {
	substrate := substrateOf(1)
	substrate.Nodes[0].Simulated = true // in a namespace that is not there: nobody can say which devices it has
	f := start(t, t.TempDir(), substrate)
	with := func(name string, vlan int) model.Network {
		net := line(name, 2)
		net.Edges = []model.Edge{{Name: "wan", End: model.End{Element: "r1", Interface: "up"},
			Device: "eth1", VLAN: vlan}}
		return net
	}
	f.apply(t, with("red", 10), model.ApplyOptions{})
	f.apply(t, with("red", 10), model.ApplyOptions{}) // itself is nobody else
	if got := f.refused(t, with("blue",
		10)); got != "edge wan: eth1 VLAN 10 of node n1 is already edge wan of network red; take another device or "+
		"VLAN" {
		t.Error(got)
	}
	f.apply(t, with("blue", 11), model.ApplyOptions{})
	// A trunk within a VLAN is like any; one without takes the device.
	trunk := func(name string, vlan int) model.Network {
		net := with(name, vlan)
		net.Edges[0].Trunk = true
		return net
	}
	f.apply(t, trunk("blue", 11), model.ApplyOptions{})
	on2 := trunk("violet", 10)
	on2.Edges[0].Device = "eth2"
	f.apply(t, on2, model.ApplyOptions{})
	net := trunk("green", 0)
	net.Edges[0].Device = "eth2"
	if got := f.refused(t, net); got != "edge wan: eth2 of node n1 has edge wan of network violet, and a trunk takes "+
		"all of a device; take another device" {
		t.Error(got)
	}
	net = trunk("green", 0)
	net.Edges[0].Device = "eth3"
	f.apply(t, net, model.ApplyOptions{})
	for _, vlan := range []int{0, 5} {
		net := with("yellow", vlan)
		net.Edges[0].Device = "eth3"
		if got := f.refused(t, net); !strings.Contains(got, "edge wan of network green") {
			t.Error(got)
		}
	}
}

func TestDevicesThatAreNotThereAreRefused(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	net := line("lab", 2)
	net.Edges = []model.Edge{{Name: "wan", End: model.End{Element: "r1", Interface: "up"}, Device: "nonesuch0"}}
	if got := f.refused(t, net); !strings.HasPrefix(got, "edge wan: node n1 has no device nonesuch0; it has ") {
		t.Error(got)
	}
}

func TestSlicesThatNothingFillsAreRefused(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2)) // of 8 cores and 16 GiB each
	net := line("lab", 2)
	net.Slice = model.Slice{CPU: 900_000}
	if got := f.refused(t, net); got != "slice: 900 cores are more than all nodes have together (16)" {
		t.Error(got)
	}
	net.Slice = model.Slice{Memory: 33 << 30}
	if got := f.refused(t, net); got != "slice: 33GiB of memory is more than all nodes have together (32GiB)" {
		t.Error(got)
	}
	net.Slice = model.Slice{CPU: 16_000, Memory: 32 << 30}
	r := f.apply(t, net, model.ApplyOptions{DryRun: true})
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "r1 asks for none") {
		t.Errorf("%q", r.Notes)
	}
}

// A strict slice says what it owns, and its links between nodes reserve it.
func TestStrictSlices(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	net := line("lab", 2)
	net.Slice = model.Slice{Mode: model.Strict, Bandwidth: 600e6}
	net.Elements[0].CPU, net.Elements[0].Memory, net.Elements[1].CPU = 1000, 1<<30, 1000
	net.Elements[0].Node, net.Elements[1].Node = "n1", "n2"
	net.Elements[1].Memory = 1 << 30
	if got := f.refused(t, net); !strings.HasPrefix(got,
		"slice: a strict one owns what it says, and it says no packets") {
		t.Errorf("refused with %q", got)
	}
	net.Slice.Packets, net.Elements[1].Memory = 1000, 0
	if got := f.refused(t, net); !strings.Contains(got, "without memory: r2; give each its share") {
		t.Errorf("refused with %q", got)
	}
	net.Elements[1].Memory = 1 << 30
	f.apply(t, net, model.ApplyOptions{})
	net.Name, net.Slice.Bandwidth = "other", 500e6
	if got := f.refused(t, net); !strings.Contains(got, "needs 500Mbit") || !strings.Contains(got, "has 400Mbit free") {
		t.Errorf("what is reserved is given away, or refused with %q", got)
	}
}

// Strict slices own their forwarding tables: what one has no other gets.
func TestStrictSlicesOwnTables(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	net := line("lab", 2)
	net.Slice = model.Slice{Mode: model.Strict, Bandwidth: 1e6, Packets: 1000, Tables: 200 << 20, NextHops: 1000}
	for i := range net.Elements {
		net.Elements[i].CPU, net.Elements[i].Memory, net.Elements[i].Node, net.Elements[i].Forwarding = 100, 64<<20,
			"n1", model.ForwardXDP
	}
	f.apply(t, net, model.ApplyOptions{})
	f.apply(t, net, model.ApplyOptions{}) // itself is nobody else
	net.Name, net.Slice.Tables = "other", 30<<20
	if got := f.refused(t, net); !strings.Contains(got,
		"its tables of 30MiB do not fit on node n1, where strict slices own 200MiB of 224MiB") {
		t.Errorf("refused with %q", got)
	}
	net.Slice.Tables = 20 << 20
	f.apply(t, net, model.ApplyOptions{})
}

// What was edited inside elements is in no document: a plan tells of it all the same.
func TestPlansTellOfEditedConfiguration(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	net := line("lab", 2)
	net.Elements[0].Software, net.Elements[0].Routing.OSPF = model.SoftwareFRR, &model.OSPF{}
	if r := f.apply(t, net, model.ApplyOptions{Overwrite: true}); len(r.Notes) != 0 {
		t.Errorf("a new network: %q", r.Notes)
	}
	if r := f.apply(t, net, model.ApplyOptions{DryRun: true}); r.Changed || len(r.Notes) != 0 {
		t.Errorf("nothing edited: %+v", r)
	}
	overwrite := model.ApplyOptions{DryRun: true, Overwrite: true}
	if r := f.apply(t, net, overwrite); !r.Changed || len(r.Notes) != 1 ||
		r.Notes[0] != "where configuration or files were edited inside r1, they are replaced by the document's" {
		t.Errorf("nothing known: %+v", r)
	}
	_, end := f.watch(t, "n1")
	defer end()
	if err := f.Report(model.Report{Node: "n1", Revision: f.desired(t, "n1").Revision, Elements: []model.ElementStatus{
		{ID: model.ID{Network: "lab", Element: "r1"}, Phase: model.PhaseRunning, Message: "frr.conf was edited"},
		{ID: model.ID{Network: "lab", Element: "r2"}, Phase: model.PhaseRunning}}}); err != nil {
		t.Fatal(err)
	}
	if r := f.apply(t, net, model.ApplyOptions{DryRun: true}); len(r.Notes) != 1 ||
		r.Notes[0] != "r1: frr.conf was edited" {
		t.Errorf("edited: %+v", r)
	}
	if r := f.apply(t, net, overwrite); len(r.Notes) != 1 ||
		!strings.HasPrefix(r.Notes[0], "what was edited inside r1 is replaced") {
		t.Errorf("edited, to be replaced: %+v", r)
	}
}

func TestNewMeansNew(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, line("lab", 2), model.ApplyOptions{Base: model.BaseNew})
	_, err := f.Apply(t.Context(), line("lab", 3), model.ApplyOptions{Base: model.BaseNew})
	if p := problem(t, err); p.Kind != api.KindConflict {
		t.Errorf("%v: %s", p.Kind, p.Detail)
	}
	if s := status(t, f.Manager, "lab"); s.Elements != 2 {
		t.Errorf("the first one's network is lost: %+v", s)
	}
}

func TestLinksTellTheirAssignedSubnets(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	r := f.apply(t, line("lab", 2), model.ApplyOptions{})
	want := r.Record.Assigned.Links["r1--r2"].Prefixes
	d, err := f.Dump("lab", api.Parts{Links: true})
	if err != nil || len(want) == 0 || len(d.Links) != 1 || len(d.Links[0].Link.Prefixes) != len(want) ||
		d.Links[0].Link.Prefixes[0] != want[0] {
		t.Errorf("%v, links %+v, assigned %v", err, d.Links, want)
	}
	if doc, _ := f.Network("lab"); len(doc.Network.Links[0].Prefixes) != 0 {
		t.Error("the document was written to")
	}
}

func TestDelaysThatANodesKernelCannotMakeAreRefused(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	for why, can := range map[string]bool{"its kernel 6.18 has no netem": false, "": true} {
		f.offer(t, "n1", model.OfferOf(model.FeatureDelay, errors.New(why))...)
		if can {
			f.offer(t, "n1", model.OfferOf(model.FeatureDelay, nil)...)
		}
		for _, change := range []func(*model.Link){func(l *model.Link) { l.Delay = 1e6 },
			func(l *model.Link) { l.Delay, l.Jitter = 1e6, 1e6 }} {
			net := line("slow", 3)
			change(&net.Links[1])
			if can {
				if _, err := f.Apply(t.Context(), net, model.ApplyOptions{DryRun: true}); err != nil {
					t.Error(err)
				}
				continue
			}
			want := "link " + net.Links[1].Name + " wants delay; n1 lacks it: its kernel 6.18 has no netem"
			if got := f.refused(t, net); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
	}
}

func TestMovesAreTold(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	net := line("lab", 2)
	net.Elements[0].Node, net.Elements[1].Node = "n1", "n1"
	f.apply(t, net, model.ApplyOptions{})
	since := f.seq()
	net.Elements[1].Node = "n2"
	// What was written inside does not move: that must be allowed, and a plan says it.
	if _, err := f.Apply(t.Context(), net, model.ApplyOptions{}); err == nil || err.Error() !=
		"network lab would lose files, which only --lose-files allows: "+
			"element r2 would move from node n1 to n2 without what was written inside it; "+
			"`polyplane move lab/r2 --to n2 --cold` takes that along" {
		t.Errorf("moved: %v", err)
	}
	const note = "r2 (to n2) would move from node n1 without what was written inside: the disk stays in that node's trash"
	for options, want := range map[model.ApplyOptions]string{
		{DryRun: true}:                  note + "; apply refuses that without --lose-files, and `polyplane move` takes it along",
		{DryRun: true, LoseFiles: true}: note,
	} {
		if r, err := f.Apply(t.Context(), net, options); err != nil || len(r.Notes) != 1 || r.Notes[0] != want {
			t.Errorf("%+v: %v, notes %q", options, err, r.Notes)
		}
	}
	if got := mustNetwork(t, f, "lab").Revision; got != 1 {
		t.Errorf("the network is at revision %d", got)
	}
	f.apply(t, net, model.ApplyOptions{LoseFiles: true})
	if ev := f.await(t, since, "lab/r2", "ElementMoved"); ev.Message != "moves from node n1 to node n2" {
		t.Error(ev.Message)
	}
	all, _ := f.Events(since)
	for _, ev := range all {
		if ev.Object == "lab/r1" {
			t.Errorf("r1 did not move: %+v", ev)
		}
	}
}
