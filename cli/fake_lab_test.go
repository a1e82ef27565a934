package cli

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/polyplane/polyplane/model"
)

// result is what one command line did.
type result struct {
	code     int
	out, err string
}

func run(t *testing.T, f *fake, args ...string) result { return runWith(t, f, "", args...) }

func runWith(t *testing.T, f *fake, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	c := New(func(string) (Client, error) { return f, nil })
	c.In, c.Out, c.Err = strings.NewReader(stdin), &out, &errOut
	c.Getenv = func(string) string { return "" }
	c.Now = func() time.Time { return now }
	c.patience = f.patience
	c.Version = "1.2.3"
	c.Schema = []byte("{}\n")
	c.Examples = fstest.MapFS{"duo.yaml": {Data: []byte("# yaml-language-server: $schema=x\n# Two routers.\nnetwork: " +
		"duo\n")},
		"square.yaml": {Data: []byte("# A square of\n# routers. It is\n# ECMP's.\nnetwork: square\n")},
		"bare.yaml":   {Data: []byte("network: bare\nrouters: [r1, r2]\nlinks: [r1 -- r2]\n")}}
	code := c.ExecuteContext(t.Context(), c.Root(), args)
	if strings.Contains(errOut.String(), "goroutine") || strings.Contains(errOut.String(), "a mistake in polyplane") {
		t.Errorf("%q ends with %s", args, errOut.String())
	}
	return result{code, out.String(), errOut.String()}
}

// golden compares with testdata/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (write it anew with -update). Got:\n%s\nwant:\n%s", file, got, want)
	}
}

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// lab is an instance with a network of two routers, two hosts and a switch on two nodes.
func lab() *fake {
	id := func(e string) model.ID { return model.ID{Network: "lab", Element: e} }
	far := func(e, i string, k model.Kind) *model.Far {
		return &model.Far{Element: e, Interface: i, Kind: k}
	}
	h1 := model.ResolvedElement{Name: "h1", Kind: model.Host, Control: model.ControlNetns,
		Forwarding: model.ForwardGuest,
		Gateways:   []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Interfaces: []model.ResolvedInterface{{Name: "r1", MAC: "02:00:00:00:00:01", MTU: 1500, Link: "h1--r1",
			Addresses: prefixes("10.0.0.2/30", "fd00::2/64"), Far: far("r1", "h1", model.Router)}}}
	r1 := model.ResolvedElement{Name: "r1", Kind: model.Router, Control: model.ControlNetns,
		Forwarding: model.ForwardGuest,
		Software:   model.SoftwareFRR, Loopback: prefixes("10.255.0.1/32"), RouterID: netip.MustParseAddr("10.255.0.1"),
		Amounts: model.Amounts{CPU: 500, Memory: 256 << 20}, Routing: model.Routing{OSPF: &model.OSPF{},
			BGP: &model.BGP{AS: 65001}},
		Routes: []model.Route{{To: netip.MustParsePrefix("192.0.2.0/24"),
			Via: []netip.Addr{netip.MustParseAddr("10.0.0.6")}, Metric: 20},
			{To: netip.MustParsePrefix("198.51.100.0/24"), Type: model.RouteBlackhole}},
		Interfaces: []model.ResolvedInterface{
			{Name: "h1", MTU: 1500, Link: "h1--r1", Addresses: prefixes("10.0.0.1/30", "fd00::1/64"),
				Far: far("h1", "r1", model.Host)},
			{Name: "ge-0/0/1", Device: "ge-0.0.1", MTU: 9000, Link: "r1--r2", Addresses: prefixes("10.0.0.5/30"),
				Far: far("r2", "r1", model.Router)}}}
	r2 := model.ResolvedElement{Name: "r2", Kind: model.Router, Control: model.ControlNetns,
		Forwarding: model.ForwardGuest,
		Software:   model.SoftwareFRR, Loopback: prefixes("10.255.0.2/32"),
		Interfaces: []model.ResolvedInterface{{Name: "r1", MTU: 9000, Link: "r1--r2",
			Addresses: prefixes("10.0.0.6/30"), Far: far("r1", "ge-0/0/1", model.Router)}}}
	sw := model.ResolvedElement{Name: "s1", Kind: model.Switch, Control: model.ControlNetns,
		Forwarding: model.ForwardBridge}
	links := []model.Link{
		{Name: "h1--r1", Ends: [2]model.End{{Element: "h1", Interface: "r1"}, {Element: "r1", Interface: "h1"}}},
		{Name: "r1--r2", Ends: [2]model.End{{Element: "r1", Interface: "ge-0/0/1"}, {Element: "r2", Interface: "r1"}},
			Bandwidth: 10e6, MTU: 9000, Delay: model.Duration(10 * time.Millisecond), Loss: 0.01},
	}
	var documented []model.Element
	for _, e := range []model.ResolvedElement{h1, r1, r2, sw} {
		var interfaces []model.Interface
		for _, f := range e.Interfaces {
			interfaces = append(interfaces, model.Interface{Name: f.Name, MAC: f.MAC, Addresses: f.Addresses})
		}
		documented = append(documented, model.Rephased(e, interfaces))
	}
	network := model.Network{Name: "lab", Elements: documented, Links: links,
		Slice: model.Slice{CPU: 2000, Memory: 1 << 30},
		Edges: []model.Edge{{Name: "up", End: model.End{Element: "r2", Interface: "up"}, Node: "n2",
			Device: "eth1", VLAN: 42}},
		Expect: []model.Expectation{{From: "h1", To: "r2"}, {From: "h1", To: "s1", Not: true, Family: model.IPv6}}}
	assigned := model.Assigned{
		Placement: model.Placement{Elements: map[string]string{"h1": "n1", "r1": "n1", "r2": "n2"}},
		Links: map[string]model.AssignedLink{"h1--r1": {VNI: 6, Prefixes: prefixes("10.0.0.0/30", "fd00::/64")},
			"r1--r2": {VNI: 7, Prefixes: prefixes("10.0.0.4/30")}},
	}
	view := func(e model.ResolvedElement, node string, p model.Phase, message string) model.ElementView {
		return model.ElementView{ElementStatus: model.ElementStatus{ID: id(e.Name), Node: node, Phase: p,
			Message: message}, Element: e}
	}
	port := func(e, i string, up bool, rx, tx uint64) model.PortStatus {
		return model.PortStatus{ID: model.PortID{ID: id(e), Interface: i}, Device: "pp" + e + i, Index: 12, Up: up,
			RxPackets: rx, RxBytes: rx * 100, TxPackets: tx, TxBytes: tx * 100}
	}
	return &fake{
		records: map[string]model.Record{"lab": {Network: network, Assigned: assigned, Revision: 3,
			Created: now.Add(-3 * time.Hour), Modified: now.Add(-time.Minute)}},
		dump: model.Dump{
			Networks: []model.NetworkStatus{
				{Name: "lab", Phase: model.PhasePending, Elements: 4, Running: 2, Stopped: 1, Failed: 1, Links: 2,
					Nodes:    []string{"n1", "n2"},
					Revision: 3, Created: now.Add(-3 * time.Hour), Modified: now.Add(-time.Minute),
					Message: "waiting for\nn2"},
				{Name: "line", Phase: model.PhaseRunning, Elements: 1000, Running: 1000, Links: 999,
					Nodes:    []string{"n1", "n2", "n3", "n4", "n5", "n6"},
					Revision: 1, Created: now.Add(-50 * time.Hour), Modified: now.Add(-50 * time.Hour)}},
			Nodes: []model.NodeStatus{
				{SubstrateNode: model.SubstrateNode{Name: "n1", Location: "room-1", CPU: 2000, Memory: 4 << 30,
					Address: netip.MustParseAddr("172.16.0.1"), MTU: 9000, Simulated: true},
					Ready: true, LastSeen: now.Add(-time.Second), Elements: 2, Ports: 3, CPUReserved: 500,
					MemoryReserved: 256 << 20, CPUUsed: 0.034, MemoryUsed: 48 << 20,
					Disk: 40 << 30, DiskFree: 12 << 30,
					Offers: model.Offers{{Driver: "control: netns", Makes: []model.Feature{"software: frr"},
						Lacks: map[model.Feature]string{"software: bird": "/usr/sbin/bird is missing: install the " +
							"package bird2"}},
						{Driver: "forwarding: guest", Kinds: []model.Kind{model.Router, model.Host}},
						{Driver: "forwarding: xdp", Kinds: []model.Kind{model.Router},
							Makes: []model.Feature{"hook: tc", "hook: xdp"}},
						{Driver: "delay", Lacks: map[model.Feature]string{"delay": "its kernel 6.18 has no netem"}}}},
				{SubstrateNode: model.SubstrateNode{Name: "n2", CPU: 2000, Memory: 4 << 30},
					LastSeen: now.Add(-time.Minute), Condition: model.Unknown, Problem: "no answer\nsince a minute"}},
			Elements: []model.ElementView{view(h1, "n1", model.PhaseRunning, ""),
				view(r1, "n1", model.PhaseRunning, ""),
				view(r2, "n2", model.PhaseFailed, "runc: exit status 1"), view(sw, "n1", model.PhaseStopped, "")},
			Links: []model.LinkStatus{
				{Network: "lab", Link: numbered(links[0], assigned), VNI: 6, Up: true,
					Ports: []model.PortStatus{port("h1", "r1", true, 10, 20), port("r1", "h1", true, 20, 10)}},
				{Network: "lab", Link: numbered(links[1], assigned), VNI: 7,
					Paths: []model.LinkPath{{Nodes: []string{"n1", "n2"}}},
					Ports: []model.PortStatus{port("r1", "ge-0/0/1", false, 5, 0)}}},
		},
		events: []model.Event{
			{Seq: 1, Time: now.Add(-3 * time.Hour), Severity: model.Info, Object: "lab", Reason: "NetworkCreated",
				Message: "4 elements, 2 links"},
			{Seq: 2, Time: now.Add(-2 * time.Hour), Severity: model.Info, Object: "lab/r1", Reason: "ElementStarted",
				Message: "running", Node: "n1"},
			{Seq: 3, Time: now.Add(-time.Hour), Severity: model.Warning, Object: "lab/r1:h1", Reason: "PortRestored",
				Message: "it was gone", Node: "n1"},
			{Seq: 4, Time: now.Add(-time.Minute), Severity: model.Error, Object: "lab/r2", Reason: "ElementFailed",
				Message: "runc: exit status 1", Node: "n2"},
			{Seq: 5, Time: now.Add(-time.Minute), Severity: model.Error, Object: "labour/r2", Reason: "ElementFailed",
				Message: "another network", Node: "n3"}},
	}
}

// numbered is the link as the manager tells it: with the subnets that it was assigned.
func numbered(l model.Link, assigned model.Assigned) model.Link {
	l.Prefixes = assigned.Links[l.Name].Prefixes
	return l
}
