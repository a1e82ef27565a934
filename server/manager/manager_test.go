package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// substrateOf is a line of n nodes n1…
func substrateOf(n int) model.Substrate {
	var s model.Substrate
	for i := 1; i <= n; i++ {
		s.Nodes = append(s.Nodes, model.SubstrateNode{Name: fmt.Sprintf("n%d", i), CPU: 8000,
			Memory: 16 << 30, MTU: 9000,
			Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})})
		if i > 1 {
			s.Links = append(s.Links, model.SubstrateLink{A: fmt.Sprintf("n%d", i-1),
				B: fmt.Sprintf("n%d", i), Bandwidth: 1e9})
		}
	}
	return s
}

// line is a network of n static routers in a line.
func line(name string, n int) model.Network {
	net := model.Network{Name: name}
	for i := 1; i <= n; i++ {
		e := model.Element{Name: fmt.Sprintf("r%d", i), Kind: model.Router, Software: model.SoftwareStatic}
		if i > 1 {
			a, b := fmt.Sprintf("r%d", i-1), e.Name
			net.Links = append(net.Links, model.Link{Name: a + "--" + b, Ends: [2]model.End{{Element: a, Interface: b},
				{Element: b, Interface: a}}})
		}
		net.Elements = append(net.Elements, e)
	}
	return net
}

type fixture struct {
	*Manager
	dir  string
	stop func()
}

// start runs a manager on a directory; starting again on the same one is a restart.
func start(t testing.TB, dir string, substrate model.Substrate) *fixture {
	t.Helper()
	st, err := store.OpenEmbedded(t.Context(), store.EmbeddedOptions{Dir: filepath.Join(dir, "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(t.Context(), instance.Dirs{Name: "test", Run: dir, Data: dir}, st, substrate)
	if err != nil {
		t.Fatal(errors.Join(err, st.Close()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); m.Loop(ctx) }()
	f := &fixture{Manager: m, dir: dir}
	for name := range m.nodes {
		if err := f.Register(name, model.Registration{Socket: dir + "/none.sock"}); err != nil {
			t.Fatal(err)
		}
	}
	f.stop = func() {
		cancel()
		<-done
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		f.stop = func() {}
	}
	t.Cleanup(func() { f.stop() })
	return f
}

// Apply applies one network.
func (f *fixture) Apply(ctx context.Context, net model.Network, o model.ApplyOptions) (model.ApplyResult, error) {
	all, err := f.Manager.Apply(ctx, []model.Document{{Network: net, Base: o.Base}}, o)
	if err != nil {
		return model.ApplyResult{}, err
	}
	return all[0], nil
}

// desired is what the node is told, decoded.
func (f *fixture) desired(t testing.TB, node string) model.NodeState {
	t.Helper()
	f.mu.RLock()
	b := f.whole(f.nodes[node])
	f.mu.RUnlock()
	if !bytes.HasSuffix(b, []byte("}\n")) || bytes.Count(b, []byte("\n")) != 1 {
		t.Fatalf("not one line: %.200s", b)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var u model.Update
	if err := d.Decode(&u); err != nil || u.State == nil {
		t.Fatalf("%v in %.200s", err, b)
	}
	return *u.State
}

// keyOf is the key of an owner's network.
func (f *fixture) keyOf(t testing.TB, owner, title string) string {
	t.Helper()
	for _, is := range f.Names(owner) {
		if is.Title == title {
			return is.Key
		}
	}
	t.Fatalf("%s has no network %s", owner, title)
	return ""
}

// obey reports that the node has made its desired state so.
func (f *fixture) obey(t testing.TB, node string, phases map[string]model.Phase) {
	t.Helper()
	s := f.desired(t, node)
	r := model.Report{Node: node, Revision: s.Revision}
	for _, nn := range s.Networks {
		for _, e := range nn.Elements {
			phase := model.PhaseRunning
			if e.Stopped {
				phase = model.PhaseStopped
			}
			if p, ok := phases[nn.Name+"/"+e.Name]; ok {
				phase = p
			}
			id := model.ID{Network: nn.Name, Element: e.Name}
			r.Elements = append(r.Elements, model.ElementStatus{ID: id, Phase: phase})
			for _, i := range e.Interfaces {
				r.Ports = append(r.Ports, model.PortStatus{ID: model.PortID{ID: id, Interface: i.Name}, Up: true})
			}
		}
	}
	if err := f.Report(r); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) watch(t testing.TB, node string) (next func() api.Desired, end func()) {
	t.Helper()
	next, end, err := f.Watch(node, false)
	if err != nil {
		t.Fatal(err)
	}
	return next, end
}

func (f *fixture) apply(t testing.TB, net model.Network, o model.ApplyOptions) model.ApplyResult {
	t.Helper()
	r, err := f.Apply(t.Context(), net, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// await waits for an event of the reason and object after since.
func (f *fixture) await(t testing.TB, since int64, object, reason string) model.Event {
	t.Helper()
	for {
		events, more := f.Events(since)
		for _, e := range events {
			if e.Object == object && e.Reason == reason {
				return e
			}
			since = e.Seq
		}
		select {
		case <-more:
		case <-t.Context().Done():
			t.Fatalf("no %s of %s", reason, object)
		}
	}
}

func (f *fixture) seq() int64 {
	f.news.mu.Lock()
	defer f.news.mu.Unlock()
	return f.news.last
}

func status(t testing.TB, m *Manager, name string) model.NetworkStatus {
	t.Helper()
	d, err := m.Dump(name, api.Parts{Networks: true})
	if err != nil {
		t.Fatal(err)
	}
	return d.Networks[0]
}

func problem(t *testing.T, err error) *api.Problem {
	t.Helper()
	var p *api.Problem
	if !errors.As(err, &p) {
		t.Fatalf("%v (%T) is no refusal", err, err)
	}
	return p
}

func TestApplyTellsTheNodes(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(3))
	net := line("lab", 6)
	for i := range net.Elements {
		net.Elements[i].Node = fmt.Sprintf("n%d", i/2+1)
	}
	r := f.apply(t, net, model.ApplyOptions{})
	if !r.Changed || r.Before != nil || r.Record.Revision != 1 || r.Record.Assigned.Index != 1 {
		t.Fatalf("first apply: changed %v, before %v, revision %d, index %d", r.Changed, r.Before, r.Record.Revision,
			r.Record.Assigned.Index)
	}
	resolved, _, err := resolve.Known(r.Record.Network).Resolve(r.Record.Assigned,
		resolve.NewNumbers(r.Record.Assigned))
	if err != nil {
		t.Fatal(err)
	}
	want := model.NodeStates([]model.ResolvedRecord{{Network: resolved, Assigned: r.Record.Assigned}},
		f.Manager.substrate)
	for name, w := range want {
		got := f.desired(t, name)
		w.Revision, w.Store = got.Revision, f.store.Identity()
		g, _ := json.Marshal(got)
		e, _ := json.Marshal(w)
		if !bytes.Equal(g, e) {
			t.Errorf("node %s is told\n%s\nwant\n%s", name, g, e)
		}
	}

	// A change on n3 only tells n3 and nobody else.
	next1, end1 := f.watch(t, "n1")
	defer end1()
	before1, before3 := next1(), f.desired(t, "n3")
	net.Elements[5].Routes = []model.Route{{To: netip.MustParsePrefix("203.0.113.0/24"), Type: model.RouteBlackhole}}
	r = f.apply(t, net, model.ApplyOptions{})
	if r.Record.Revision != 2 || r.Before == nil || r.Before.Revision != 1 {
		t.Fatalf("second apply: revision %d", r.Record.Revision)
	}
	if after := next1(); after.Revision != before1.Revision || !bytes.Equal(bytes.Join(after.Lines, nil),
		bytes.Join(before1.Lines, nil)) {
		t.Error("n1 was told of a change that is n3's")
	}
	select {
	case <-before1.Changed:
		t.Error("n1's stream was woken")
	default:
	}
	if after := f.desired(t, "n3"); after.Revision <= before3.Revision ||
		len(after.Networks[0].Elements[1].Routes) != 1 {
		t.Error("n3 was not told")
	}
}

func TestNoChangeWritesNothing(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	net := line("lab", 4)
	first := f.apply(t, net, model.ApplyOptions{})
	revision, seq, told := f.revision, f.seq(), f.nodes["n1"].told
	net.Pools = []netip.Prefix{} // empty and missing are one
	again := f.apply(t, net, model.ApplyOptions{})
	if again.Changed || again.Record.Revision != first.Record.Revision ||
		!again.Record.Modified.Equal(first.Record.Modified) {
		t.Fatalf("a no-change apply changed something: %+v", again.Changed)
	}
	_, _, now, err := f.store.Load(t.Context())
	if err != nil || now != revision {
		t.Errorf("the store went from revision %d to %d (%v)", revision, now, err)
	}
	if f.revision != revision || f.seq() != seq || f.nodes["n1"].told != told {
		t.Error("nodes or watchers were told of nothing")
	}
}

func TestRefusedAppliesChangeNothing(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, line("lab", 3), model.ApplyOptions{})
	revision, seq := f.revision, f.seq()
	dangling := line("lab", 3)
	for _, to := range []string{"ghost", "spook"} {
		dangling.Links = append(dangling.Links,
			model.Link{Name: "r1--" + to, Ends: [2]model.End{{Element: "r1", Interface: to},
				{Element: to, Interface: "r1"}}})
	}
	big := line("lab", 3)
	big.Elements[0].CPU, big.Elements[2].Node = 64_000, "n9"
	for name, try := range map[string]struct {
		net     model.Network
		options model.ApplyOptions
		kind    api.Kind
		reasons int
	}{
		"dangling links": {dangling, model.ApplyOptions{}, api.KindInvalid, 2},
		"dry run too":    {dangling, model.ApplyOptions{DryRun: true}, api.KindInvalid, 2},
		"no room":        {big, model.ApplyOptions{}, api.KindInvalid, 1},
		"stale base":     {line("lab", 4), model.ApplyOptions{Base: 7}, api.KindConflict, 0},
		"deleted base":   {line("new", 4), model.ApplyOptions{Base: 7}, api.KindConflict, 0},
	} {
		_, err := f.Apply(t.Context(), try.net, try.options)
		p := problem(t, err)
		if p.Kind != try.kind || len(p.Reasons) < try.reasons {
			t.Errorf("%s: %v, reasons %q", name, p.Kind, p.Reasons)
		}
		for _, reason := range p.Reasons {
			if about, ok := errors.AsType[model.Problem](reason); !ok ||
				about.Network != try.net.Name || about.Name == "" {
				t.Errorf("%s: the reason %q does not say what it is about: %+v", name, reason, about)
			}
		}
	}
	if r := f.apply(t, line("lab", 5), model.ApplyOptions{DryRun: true}); !r.Changed || r.Record.Revision != 2 ||
		len(r.Record.Network.Elements) != 5 {
		t.Error("a dry run does not say what would be")
	}
	if f.revision != revision || f.seq() != seq {
		t.Error("a refused apply or a dry run left something behind")
	}
	if s := status(t, f.Manager, "lab"); s.Elements != 3 || s.Revision != 1 {
		t.Errorf("the network is %+v", s)
	}
}

func TestPhasesAndEvents(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	f.apply(t, line("lab", 4), model.ApplyOptions{})
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhasePending ||
		!strings.Contains(s.Message, "the agent of node") {
		t.Fatalf("without agents: %+v", s)
	}
	_, end1 := f.watch(t, "n1")
	_, end2 := f.watch(t, "n2")
	defer end2()
	f.obey(t, "n1", nil)
	f.obey(t, "n2", nil)
	f.await(t, 0, "lab", "NetworkReady")
	f.await(t, 0, "n1", "NodeReady")
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhaseRunning || s.Running != 4 {
		t.Fatalf("after reports: %+v", s)
	}
	if d, err := f.Dump("lab", api.Parts{Links: true, Elements: true, Nodes: true}); err != nil ||
		len(d.Links) != 3 || !d.Links[0].Up ||
		len(d.Elements) != 4 || d.Nodes[0].Elements+d.Nodes[1].Elements != 4 {
		t.Fatalf("dump: %+v %v", d, err)
	}

	since := f.seq()
	id := model.ID{Network: "lab", Element: "r2"}
	if r, err := f.Act(t.Context(), id, model.ActionStop); err != nil || !r.Changed ||
		r.Revision != f.nodes[mustNetwork(t, f, "lab").Assigned.Placement.Elements["r2"]].revision {
		t.Fatal(r, err)
	}
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhasePending {
		t.Fatalf("while stopping: %+v", s)
	}
	f.obey(t, "n1", nil)
	f.obey(t, "n2", nil)
	f.await(t, since, "lab/r2", "ElementStopped")
	f.await(t, since, "lab", "NetworkReady")
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhaseRunning || s.Stopped != 1 || s.Running != 3 {
		t.Fatalf("with one stopped: %+v", s)
	}
	before := f.revision
	if r, err := f.Act(t.Context(), id, model.ActionStop); err != nil || r.Changed || f.revision != before {
		t.Error("stopping what is stopped did something", r, err)
	}
	if _, err := f.Act(t.Context(), id, model.ActionRestart); err != nil {
		t.Fatal(err)
	}
	if o := mustNetwork(t, f, "lab").Overrides["r2"]; o.Stopped || o.Restarts != 1 {
		t.Errorf("after restart: %+v", o)
	}
	since = f.seq()
	for _, n := range []string{"n1", "n2"} {
		f.obey(t, n, map[string]model.Phase{"lab/r1": model.PhaseFailed})
	}
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhaseFailed || s.Failed != 1 {
		t.Fatalf("with one failed: %+v", s)
	}
	f.await(t, since, "lab", "NetworkFailed")
	f.obey(t, "n1", nil)
	f.obey(t, "n2", nil)
	end1()
	f.await(t, since, "n1", "NodeAway")
	// What runs there runs on, and is told so.
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhaseRunning || s.Running != 2 || s.Unknown != 2 ||
		!strings.Contains(s.Message, "agent of node n1 is away") {
		t.Fatalf("with a node away: %+v", s)
	}
	// What did not run yet is not ready because nobody says anything about it.
	_, again := f.watch(t, "n1")
	since = f.seq()
	slow := ""
	for name, node := range mustNetwork(t, f, "lab").Assigned.Placement.Elements {
		if node == "n1" {
			slow = name
		}
	}
	f.obey(t, "n1", map[string]model.Phase{"lab/" + slow: model.PhaseStarting})
	again()
	f.await(t, since, "n1", "NodeAway")
	if s := status(t, f.Manager, "lab"); s.Phase != model.PhasePending || s.Unknown != 2 ||
		!strings.Contains(s.Message, slow+" is starting, as last told: ") {
		t.Fatalf("with a node away that was starting %s: %+v", slow, s)
	}
}

func mustNetwork(t testing.TB, f *fixture, name string) model.Record {
	t.Helper()
	r, err := f.Network(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOverwriteAsksElementsWithConfiguration(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	net := line("lab", 3)
	net.Elements[1].Software, net.Elements[1].Routing.OSPF = model.SoftwareFRR, &model.OSPF{}
	net.Elements[2].Contents = map[string]model.File{"/srv/a": {Text: "x"}}
	f.apply(t, net, model.ApplyOptions{})
	r := f.apply(t, net, model.ApplyOptions{Overwrite: true})
	want := map[string]model.Override{"r2": {Overwrites: 1}, "r3": {Overwrites: 1}}
	if !r.Changed || !reflect.DeepEqual(r.Record.Overrides, want) {
		t.Fatalf("overrides %+v, want %+v", r.Record.Overrides, want)
	}
	net.Elements, net.Links = net.Elements[:1], nil
	if r = f.apply(t, net, model.ApplyOptions{}); len(r.Record.Overrides) != 0 {
		t.Errorf("the override of a removed element stays: %v", r.Record.Overrides)
	}
}

func TestEventsRing(t *testing.T) {
	e := newNews()
	for i := range 3 * keptEvents / 2 {
		e.add(model.Event{Object: fmt.Sprint(i + 1)})
	}
	all, _ := e.Events(0)
	if len(all) != keptEvents || all[0].Seq != keptEvents/2+1 || all[len(all)-1].Seq != e.last {
		t.Fatalf("%d events from %d to %d", len(all), all[0].Seq, all[len(all)-1].Seq)
	}
	for _, ev := range all {
		if ev.Object != fmt.Sprint(ev.Seq) {
			t.Fatalf("event %d is %s", ev.Seq, ev.Object)
		}
	}
	if got, _ := e.Events(e.last - 2); len(got) != 2 {
		t.Errorf("after the last but two: %d", len(got))
	}
	if got, _ := e.Events(e.last + 100); len(got) != keptEvents {
		t.Errorf("after another life's number: %d", len(got))
	}
}
