package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// farNode speaks the agents' side of the protocol as a node whose packets go where reach says.
type farNode struct {
	mu         sync.Mutex
	responders map[model.ID]string
	opened     []model.ID
	probes     int
	// reach says who answers a probe.
	reach func(p model.Probe, round int) (who model.ID, answered bool)
	// know says what routing knows.
	know   func(l model.Look, round int) model.LookAnswer
	looked int
}

func (a *farNode) serve(t *testing.T, f *fixture, node string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responders", func(w http.ResponseWriter, r *http.Request) {
		var req model.RespondersRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, x := range req.Responders {
			a.responders[x.ID] = x.Secret
			a.opened = append(a.opened, x.ID)
		}
		json.NewEncoder(w).Encode(model.RespondersResult{})
	})
	mux.HandleFunc("POST /v1/probes", func(w http.ResponseWriter, r *http.Request) {
		var req model.ProbesRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.probes++
		var out model.ProbesResult
		for _, p := range req.Probes {
			res := model.ProbeResult{From: p.From.String(), To: p.To.String(), Address: p.Address, Not: p.Not,
				Message: "no answer"}
			if who, answered := a.reach(p, a.probes); answered {
				res.Message = ""
				if res.Reached = a.responders[who] == p.Secret; res.Reached {
					res.RTT = time.Millisecond
				} else {
					res.Answered = who.String()
				}
			}
			res.OK = res.Reached != res.Not
			out.Results = append(out.Results, res)
		}
		json.NewEncoder(w).Encode(out)
	})
	mux.HandleFunc("POST /v1/looks", func(w http.ResponseWriter, r *http.Request) {
		var req model.LooksRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.looked++
		var out model.LooksResult
		for _, l := range req.Looks {
			out.Answers = append(out.Answers, a.know(l, a.looked))
		}
		json.NewEncoder(w).Encode(out)
	})
	socket := filepath.Join(f.dir, node+".sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	if err := f.Register(node, model.Registration{Socket: socket}); err != nil {
		t.Fatal(err)
	}
	_, end := f.watch(t, node)
	t.Cleanup(end)
}

func hostPair(name string, expect ...model.Expectation) model.Network {
	addr := func(s string) []model.Interface {
		return []model.Interface{{Name: map[string]string{"10.0.0.1/24": "h2", "10.0.0.2/24": "h1"}[s],
			Addresses: []netip.Prefix{netip.MustParsePrefix(s)}}}
	}
	return model.Network{Name: name, Elements: []model.Element{
		{Name: "h1", Kind: model.Host, Interfaces: addr("10.0.0.1/24")},
		{Name: "h2", Kind: model.Host, Interfaces: addr("10.0.0.2/24")},
	}, Links: []model.Link{{Name: "h1--h2", Ends: [2]model.End{{Element: "h1", Interface: "h2"},
		{Element: "h2", Interface: "h1"}}}},
		Expect: expect}
}

func TestCheckTellsTenantsApart(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, hostPair("alice", model.Expectation{From: "h1", To: "h2"}), model.ApplyOptions{})
	f.apply(t, hostPair("bob", model.Expectation{From: "h1", To: "h2", Not: true}), model.ApplyOptions{})
	a := &farNode{responders: map[model.ID]string{}}
	a.serve(t, f, "n1")
	check := func(net string, request model.CheckRequest) model.CheckResult {
		t.Helper()
		r, err := f.Check(t.Context(), net, request)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	right := func(p model.Probe, _ int) (model.ID, bool) { return p.To, true }
	nobody := func(model.Probe, int) (model.ID, bool) { return model.ID{}, false }
	crossed := func(p model.Probe, _ int) (model.ID, bool) {
		return model.ID{Network: map[string]string{"alice": "bob", "bob": "alice"}[p.To.Network],
			Element: p.To.Element}, true
	}

	a.reach = right
	if r := check("alice", model.CheckRequest{Mesh: true}); !r.OK || len(r.Probes) != 2 || !r.Probes[0].Reached ||
		r.Probes[0].RTT == 0 {
		t.Errorf("all well: %+v", r)
	}
	// Whoever owns a probed address answers, in every network.
	if want := (model.ID{Network: "bob", Element: "h2"}); !slices.Contains(a.opened, want) {
		t.Errorf("no responder in %s, which has the same address: %v", want, a.opened)
	}
	if r := check("bob", model.CheckRequest{}); r.OK || r.Probes[0].Message != "it was reached, and must not be" {
		t.Errorf("reached what must not be: %+v", r)
	}
	a.reach = nobody
	if r := check("alice", model.CheckRequest{}); r.OK || r.Probes[0].Message != "no answer" {
		t.Errorf("no answer: %+v", r)
	}
	if r := check("bob", model.CheckRequest{}); !r.OK || r.Probes[0].Message != "" {
		t.Errorf("isolated as expected: %+v", r)
	}
	a.reach = crossed
	for _, net := range []string{"alice", "bob"} {
		if r := check(net, model.CheckRequest{}); r.OK || !strings.Contains(r.Probes[0].Message,
			"of another network: they are not isolated") {
			t.Errorf("%s reaches the wrong tenant: %+v", net, r)
		}
	}
}

func TestCheckWaitsUntilAllIsWell(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, hostPair("net", model.Expectation{From: "h1", To: "h2"}), model.ApplyOptions{})
	a := &farNode{responders: map[model.ID]string{}}
	a.reach = func(p model.Probe, round int) (model.ID, bool) { return p.To, round >= 3 }
	a.serve(t, f, "n1")
	r, err := f.Check(t.Context(), "net", model.CheckRequest{Wait: time.Hour})
	if err != nil || !r.OK || a.probes != 3 {
		t.Fatalf("%+v %v after %d rounds", r, err, a.probes)
	}
}

func TestCheckOfWhatCannotBeProbed(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, hostPair("net", model.Expectation{From: "h1", To: "h2", Family: model.IPv6}), model.ApplyOptions{})
	f.apply(t, hostPair("away", model.Expectation{From: "h1", To: "h2", Not: true}), model.ApplyOptions{})
	r, err := f.Check(t.Context(), "net", model.CheckRequest{})
	if err != nil || r.OK || r.Probes[0].Message != "they do not both have an address of IPv6" {
		t.Errorf("%+v %v", r, err)
	}
	// Without an agent nothing is proved, least of all isolation.
	r, err = f.Check(t.Context(), "away", model.CheckRequest{})
	if err != nil || r.OK || r.Probes[0].Message != "the agent of node n1 is away" {
		t.Errorf("%+v %v", r, err)
	}
	if _, err = f.Check(t.Context(), "nothing", model.CheckRequest{}); problem(t, err).Kind != api.KindNotFound {
		t.Error(err)
	}
}

func TestNeighboursAndSamplesAreSeeded(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, line("lab", 40), model.ApplyOptions{})
	n := f.networks["lab"]
	draw := func(r model.CheckRequest) []string {
		t.Helper()
		qs, _, err := questions(n, r)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, q := range qs {
			out = append(out, q.From+" "+q.To+" "+q.Address.String())
		}
		return out
	}
	neighbours := draw(model.CheckRequest{Neighbours: 20, Seed: 7})
	if len(neighbours) != 20 || !slices.Equal(neighbours, draw(model.CheckRequest{Neighbours: 20, Seed: 7})) ||
		slices.Equal(neighbours, draw(model.CheckRequest{Neighbours: 20, Seed: 8})) {
		t.Errorf("neighbours are not drawn by the seed: %v", neighbours)
	}
	qs, _, _ := questions(n, model.CheckRequest{Neighbours: 1000})
	for _, q := range qs {
		if !q.first {
			t.Fatal("a neighbour has more than one try")
		}
		a, b := n.index[q.from.Element], n.index[q.to.Element]
		if a-b != 1 && b-a != 1 {
			t.Fatalf("%s and %s are no neighbours", q.From, q.To)
		}
	}
	if len(qs) < 2*39 {
		t.Errorf("%d neighbours, 39 links have two ends each", len(qs))
	}
	all := draw(model.CheckRequest{Mesh: true, Routers: true})
	pairs := map[string]bool{}
	for _, p := range all {
		from, rest, _ := strings.Cut(p, " ")
		to, _, _ := strings.Cut(rest, " ")
		if from == to {
			t.Fatal("an element probes itself")
		}
		pairs[from+" "+to] = true
	}
	if len(pairs) != 40*39 {
		t.Errorf("%d pairs, want %d", len(pairs), 40*39)
	}
	some := draw(model.CheckRequest{Mesh: true, Routers: true, Sample: 10})
	if len(some) < 10 || len(some) > 20 {
		t.Errorf("a sample of 10 pairs made %d probes", len(some))
	}
}

func TestNeighboursMeetAtASwitch(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	net := model.Network{Name: "lan", Elements: []model.Element{{Name: "s", Kind: model.Switch}}}
	for _, h := range []string{"h1", "h2", "h3"} {
		net.Elements = append(net.Elements, model.Element{Name: h, Kind: model.Host})
		net.Links = append(net.Links,
			model.Link{Name: h + "--s", Ends: [2]model.End{{Element: h, Interface: "s"}, {Element: "s", Interface: h}}})
	}
	f.apply(t, net, model.ApplyOptions{})
	qs, _, err := questions(f.networks["lan"], model.CheckRequest{Neighbours: 100})
	if err != nil {
		t.Fatal(err)
	}
	pairs := map[string]bool{}
	for _, q := range qs {
		pairs[q.from.Element+" "+q.to.Element] = true
	}
	for _, want := range []string{"h1 h2", "h2 h1", "h2 h3", "h3 h2"} {
		if !pairs[want] {
			t.Errorf("%s is not asked; asked: %v", want, pairs)
		}
	}
}

// What the document expects of a pair is asked once, also by --mesh, and never against the document.
func TestMeshAsksWhatIsExpectedOnce(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	net := line("lab", 2)
	for _, h := range []string{"h1", "h2"} {
		net.Elements = append(net.Elements, model.Element{Name: h, Kind: model.Host})
		net.Links = append(net.Links,
			model.Link{Name: h, Ends: [2]model.End{{Element: h, Interface: "r1"}, {Element: "r1", Interface: h}}})
	}
	net.Expect = []model.Expectation{{From: "h1", To: "h2"}, {From: "h2", To: "h1", Not: true}}
	f.apply(t, net, model.ApplyOptions{})
	list, _, err := questions(f.networks["lab"], model.CheckRequest{Mesh: true})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, q := range list {
		key := q.From + " " + q.To + " " + q.Address.String()
		if seen[key] {
			t.Errorf("%s is asked twice", key)
		}
		seen[key] = true
		if q.From == "lab/h2" && !q.Not {
			t.Errorf("%s is asked against the document", key)
		}
	}
	if len(list) == 0 {
		t.Error("nothing is asked")
	}
}

// The probes of a large check go out a few at a time, from each element and from each node, and none is left out.
func TestProbesGoOutInWaves(t *testing.T) {
	var all []*question
	for from := range 200 {
		for to := range 199 {
			all = append(all, &question{from: model.ID{Network: "big", Element: fmt.Sprint(from)},
				to: model.ID{Network: "big", Element: fmt.Sprint(to)}, node: fmt.Sprint(from % 2)})
		}
	}
	list := waves(all)
	asked := map[*question]bool{}
	for i, wave := range list {
		elements, nodes := map[model.ID]int{}, map[string]int{}
		for _, q := range wave {
			asked[q] = true
			elements[q.from]++
			nodes[q.node]++
		}
		for id, n := range elements {
			if n > waveElement {
				t.Errorf("wave %d has %d probes of %s", i, n, id)
			}
		}
		for node, n := range nodes {
			if n > waveNode {
				t.Errorf("wave %d has %d probes of node %s", i, n, node)
			}
		}
	}
	if len(asked) != len(all) || len(list) > len(all)/2/waveNode+waveElement {
		t.Errorf("%d of %d are asked, in %d waves", len(asked), len(all), len(list))
	}
	if few := waves(all[:waveElement]); len(few) != 1 {
		t.Errorf("few go out in %d waves", len(few))
	}
}

// An owner has a few rounds under way, and holds nobody else up.
func TestRoundsOfAnOwnerAreBounded(t *testing.T) {
	var r rounds
	var leave func()
	for range ownerRounds {
		var err error
		if leave, err = r.take(t.Context(), "alice"); err != nil {
			t.Fatal(err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.take(gone, "alice"); err == nil {
		t.Error("there is one more")
	}
	for _, other := range []string{"", "", ""} {
		if _, err := r.take(gone, other); err != nil {
			t.Errorf("an administrator waits: %v", err)
		}
	}
	if _, err := r.take(t.Context(), "bob"); err != nil {
		t.Error(err)
	}
	leave()
	if _, err := r.take(t.Context(), "alice"); err != nil {
		t.Error(err)
	}
}
