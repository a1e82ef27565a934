package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// greedy is a network of one router that wants so many cores.
func greedy(name string, cores model.CPU) model.Network {
	return model.Network{Name: name,
		Elements: []model.Element{{Name: "r1", Kind: model.Router, Software: model.SoftwareStatic,
			Amounts: model.Amounts{CPU: cores * 1000}}}}
}

func documents(networks ...model.Network) []model.Document {
	var all []model.Document
	for _, n := range networks {
		all = append(all, model.Document{Network: n})
	}
	return all
}

// Of networks that fit alone and not together none is made, and everything is as before.
func TestNetworksOfOneFileAreAppliedAllOrNone(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2)) // of 8 cores each
	f.apply(t, greedy("c3", 1), model.ApplyOptions{})
	revision, seq := f.revision, f.seq()
	var copies []model.Network
	for i := range 20 {
		copies = append(copies, greedy(fmt.Sprintf("c%d", i), 3))
	}
	for _, dry := range []bool{true, false} {
		_, err := f.Manager.Apply(t.Context(), documents(copies...), model.ApplyOptions{DryRun: dry})
		p := problem(t, err)
		if p.Kind != api.KindInvalid || len(p.Reasons) != 8+1 ||
			!strings.HasPrefix(p.Detail, "16 of 20 networks are refused") ||
			!strings.Contains(p.Detail, "none is changed") ||
			!strings.Contains(p.Reasons[0].Error(),
				"network c4 does not fit onto the substrate: r1 needs 3 cores on one node: n1 has 2 cores free, n2 "+
					"has 2 cores free") {
			t.Fatalf("dry run %v: %v %v", dry, p.Kind, p)
		}
	}
	if len(f.networks) != 1 || f.revision != revision || f.seq() != seq || status(t, f.Manager, "c3").Revision != 1 {
		t.Errorf("something was changed: %d networks, revision %d was %d", len(f.networks), f.revision, revision)
	}
	_, stored, _, err := loaded(t, f)
	if err != nil || len(stored) != 1 {
		t.Errorf("the store has %v (%v)", stored, err)
	}

	results, err := f.Manager.Apply(t.Context(), documents(copies[:4]...), model.ApplyOptions{})
	if err != nil || len(results) != 4 {
		t.Fatal(results, err)
	}
	indices := map[uint32]bool{}
	for i, r := range results {
		if indices[r.Record.Assigned.Index] = true; r.Record.Network.Name != copies[i].Name || !r.Changed ||
			(r.Before != nil) != (i == 3) {
			t.Errorf("result %d is of %s: %+v", i, r.Record.Network.Name, r)
		}
	}
	if len(indices) != 4 {
		t.Errorf("networks share numbers: %v", indices)
	}
	if again, err := f.Manager.Apply(t.Context(), documents(copies[:4]...), model.ApplyOptions{}); err != nil ||
		slices.ContainsFunc(again, func(r model.ApplyResult) bool { return r.Changed }) {
		t.Errorf("the same again: %v", err)
	}
}

func loaded(t *testing.T, f *fixture) (records []model.Record, names []string, revision int64, err error) {
	t.Helper()
	records, _, revision, err = f.store.Load(t.Context())
	for _, r := range records {
		names = append(names, r.Network.Name)
	}
	return records, names, revision, err
}

// What one network of a file gives up another may take, in whatever order they stand.
func TestNetworksOfOneFileMakeRoomForEachOther(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		f := start(t, t.TempDir(), substrateOf(1))
		f.apply(t, greedy("big", 6), model.ApplyOptions{})
		f.apply(t, greedy("small", 1), model.ApplyOptions{})
		file := []model.Network{greedy("big", 1), greedy("small", 6)}
		if _, err := f.Manager.Apply(t.Context(), documents(file[order[0]], file[order[1]]),
			model.ApplyOptions{}); err != nil {
			t.Error(order, err)
		}
		f.stop()
	}
}

// What was set counts though a document leaves it out, in whatever order the networks of a file stand.
func TestNetworksOfOneFileKeepTheQuotaWithWhatWasSet(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	alice := model.ApplyOptions{Owner: "alice"}
	f.apply(t, line("lab", 1), alice)
	f.apply(t, line("two", 1), alice)
	if _, err := f.set(t, "r1", "memory=512MiB"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.SetQuota(t.Context(), model.QuotaOfOwner, "alice",
		model.QuotaRequest{Values: []model.Assignment{{Key: "memory", Value: "600MiB"}}}); err != nil {
		t.Fatal(err)
	}
	more := line("two", 1)
	more.Elements[0].Memory = 400 << 20
	for _, file := range [][]model.Document{documents(more, line("lab", 1)), documents(line("lab", 1), more)} {
		_, err := f.Manager.Apply(t.Context(), file, alice)
		if err == nil || !strings.Contains(err.Error(),
			"quota of memory is 600MiB: it asks for 400MiB, other networks have 512MiB") {
			t.Errorf("got %v", err)
		}
	}
}

func TestOneConflictRefusesAllAndTwoOfANameAreRefused(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, greedy("lab", 1), model.ApplyOptions{})
	_, err := f.Manager.Apply(t.Context(), []model.Document{{Network: greedy("new", 1), Base: model.BaseNew},
		{Network: greedy("lab", 2), Base: model.BaseNew}}, model.ApplyOptions{})
	if p := problem(t, err); p.Kind != api.KindConflict || len(f.networks) != 1 {
		t.Errorf("%d networks, %v", len(f.networks), p)
	}
	_, err = f.Manager.Apply(t.Context(), documents(greedy("new", 1), greedy("new", 2)), model.ApplyOptions{})
	if p := problem(t, err); p.Kind != api.KindInvalid ||
		!strings.Contains(p.Detail, "network new is there twice") {
		t.Error(p)
	}
}

// A store that refuses one of several has none.
func TestWhatTheStoreRefusesIsNotThere(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, greedy("lab", 1), model.ApplyOptions{})
	before := mustNetwork(t, f, "lab")
	changes := []*change{}
	// the store takes none with a slash
	for _, n := range []model.Network{greedy("lab", 2), greedy("b", 1), greedy("no/name", 1)} {
		changes = append(changes, &change{record: model.Record{Network: n, Revision: 2, Assigned: before.Assigned},
			resolved: model.Resolved{Name: n.Name}})
	}
	if err := f.commit(t.Context(), changes...); err == nil {
		t.Fatal("it was stored")
	}
	records, names, _, err := loaded(t, f)
	if err != nil || len(names) != 1 || names[0] != "lab" || records[0].Network.Elements[0].CPU != 1000 ||
		len(f.networks) != 1 {
		t.Errorf("the store has %v (%v), the manager %d", names, err, len(f.networks))
	}
}

// The nodes' revision after several networks were changed at once is the store's, which does not go back at a restart.
func TestRevisionOfSeveralNetworksIsTheStores(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	if _, err := f.Manager.Apply(t.Context(), documents(greedy("a", 1), greedy("b", 1), greedy("c", 1)),
		model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, revision, err := loaded(t, f); err != nil || f.revision != revision {
		t.Errorf("the nodes are told revision %d, the store is at %d (%v)", f.revision, revision, err)
	}
}

// bare runs a manager whose nodes' agents have not come yet.
func bare(t *testing.T, nodes int) *fixture {
	f := start(t, t.TempDir(), substrateOf(nodes))
	for _, n := range f.nodes {
		*n = *f.newNode(n.SubstrateNode,
			instance.Dirs{Name: "test", Run: f.dir, Data: f.dir}.Node(n.Name).AgentSocket())
	}
	return f
}

func TestNetworksCannotBeJudgedBeforeAgentsHaveCome(t *testing.T) {
	f := bare(t, 2)
	pinned := func(node string, change func(*model.Network)) model.Network {
		net := line("lab", 2)
		for i := range net.Elements {
			net.Elements[i].Node = node
		}
		if change != nil {
			change(&net)
		}
		return net
	}
	silent := func(net model.Network, words string) {
		t.Helper()
		for _, dry := range []bool{true, false} {
			_, err := f.Apply(t.Context(), net, model.ApplyOptions{DryRun: dry})
			p := problem(t, err)
			if p.Kind != api.KindUnavailable || !strings.Contains(p.Detail, words) {
				t.Errorf("%v %v, want %q", p.Kind, p, words)
			}
		}
	}
	silent(line("lab", 10), "the agents of nodes n1, n2 have not reported")
	f.register(t, "n1", model.ForwardGuest)
	silent(line("lab", 10), "the agent of node n2 has not reported")
	silent(pinned("n2", nil), "the agent of node n2 has not reported")
	// What no node has that told, n2 may have: it is waited for, but for elements that may not be there.
	fast := func(n *model.Network) { n.Elements[0].Forwarding = model.ForwardXDP }
	silent(pinned("", fast), "node n2")
	if got := f.refused(t, pinned("n1",
		fast)); got != "router r1 wants forwarding: xdp; r1 is pinned to n1; n1 lacks it: there is forwarding: guest" {
		t.Error(got)
	}
	f.apply(t, pinned("n1", nil), model.ApplyOptions{})
	f.register(t, "n2", model.ForwardGuest)
	if got := f.refused(t, func() model.Network {
		n := greedy("odd",
			1)
		n.Elements[0].Forwarding = model.ForwardXDP
		return n
	}()); !strings.Contains(got, " wants forwarding: ") {
		t.Error(got)
	}
	if len(f.networks) != 1 {
		t.Errorf("%d networks", len(f.networks))
	}
}

// Whoever reports to a manager that it has not noticed to be new has not said yet what it has: clients wait for it.
func TestAgentsThatOnlyReportHaveNotCome(t *testing.T) {
	f := bare(t, 1)
	if err := f.Report(model.Report{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	if n := f.nodeStatuses()[0]; !n.LastSeen.IsZero() {
		t.Errorf("it was seen at %v", n.LastSeen)
	}
	_, err := f.Apply(t.Context(), line("lab", 1), model.ApplyOptions{})
	if p := problem(t, err); p.Kind != api.KindUnavailable {
		t.Error(p)
	}
	f.register(t, "n1", model.ForwardGuest)
	if n := f.nodeStatuses()[0]; n.LastSeen.IsZero() {
		t.Error("it was never seen")
	}
	f.apply(t, line("lab", 1), model.ApplyOptions{})
}

// A network with elements on a node whose agent does not come can be changed, and deleted.
func TestDeadNodesKeepNoNetworkFromChanging(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	net := line("lab", 2)
	net.Elements[0].Node, net.Elements[1].Node = "n1", "n2"
	f.apply(t, net, model.ApplyOptions{})
	n := f.nodes["n2"]
	*n = *f.newNode(n.SubstrateNode, n.socket)
	net.Links = slices.Clone(net.Links) // the manager has the others
	net.Links[0].Bandwidth = 1e6
	net.Elements = append(net.Elements, model.Element{Name: "r3", Kind: model.Router,
		Software: model.SoftwareStatic, Node: "n1"})
	if r := f.apply(t, net, model.ApplyOptions{}); !r.Changed {
		t.Error("nothing was changed")
	}
	net.Elements[2].Node = "n2"
	_, err := f.Apply(t.Context(), net, model.ApplyOptions{})
	if p := problem(t, err); p.Kind != api.KindUnavailable {
		t.Error(p)
	}
	net.Elements[2].Node = "n1"
	net.Links = slices.Clone(net.Links)
	net.Links[0].Delay = 1e6
	_, err = f.Apply(t.Context(), net, model.ApplyOptions{})
	if p := problem(t, err); p.Kind != api.KindUnavailable {
		t.Error(p)
	}
	if err := f.Delete(t.Context(), "lab", false); err != nil {
		t.Error(err)
	}
}
