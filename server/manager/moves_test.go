package manager

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// standIns are nodes that do what they are told about elements and their disks, as agents do: n1… of a manager that may
// die and come again.
type standIns struct {
	t     *testing.T
	mu    sync.Mutex
	f     *fixture
	nodes map[string]*standIn
	wrong []string
}

// standIn is one of them.
type standIn struct {
	name    string
	socket  string
	disks   map[string]string // by element
	sent    map[string]string // by move
	trash   []string
	running map[string]bool
	refuses string   // what it answers to a disk
	goes    *standIn // this one's agent goes away when a disk is asked for
	breaks  bool     // it breaks off in the middle of a disk
	end     func()
}

func newStandIns(t *testing.T, f *fixture, names ...string) *standIns {
	s := &standIns{t: t, f: f, nodes: map[string]*standIn{}}
	for _, name := range names {
		n := &standIn{name: name, socket: filepath.Join(t.TempDir(), name+".sock"), disks: map[string]string{},
			sent: map[string]string{}, running: map[string]bool{}}
		s.nodes[name] = n
		l, err := net.Listen("unix", n.socket)
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/networks/lab/elements/{element}/departure", func(w http.ResponseWriter, r *http.Request) {
			s.departure(n, w, r)
		})
		mux.HandleFunc("PUT /v1/networks/lab/elements/{element}/arrival", func(w http.ResponseWriter, r *http.Request) {
			s.arrival(n, w, r)
		})
		server := httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
		server.Start()
		t.Cleanup(server.Close)
	}
	s.come(f)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
				s.obey()
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, n := range s.nodes {
			if n.end != nil {
				n.end()
			}
		}
		for _, w := range s.wrong {
			t.Error(w)
		}
	})
	return s
}

// come registers them at a manager.
func (s *standIns) come(f *fixture) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.f = f
	for _, n := range s.nodes {
		if err := f.Register(n.name, model.Registration{Socket: n.socket}); err != nil {
			s.t.Fatal(err)
		}
		_, n.end = f.watch(s.t, n.name)
	}
}

// leave lets go of a manager that dies.
func (s *standIns) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		n.end()
		n.end = nil
	}
	s.f = nil
}

// part is what a node is told of the network, and of an element. The lock is held.
func (s *standIns) part(n *standIn, element string) (part model.NodeNetwork, e *model.NodeElement) {
	if s.f == nil {
		return part, nil
	}
	for _, nn := range s.f.desired(s.t, n.name).Networks {
		part = nn
		for i := range nn.Elements {
			if nn.Elements[i].Name == element {
				e = &nn.Elements[i]
			}
		}
	}
	return part, e
}

func (s *standIns) departure(n *standIn, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	element := r.PathValue("element")
	if n.goes != nil {
		n.goes.end()
		n.goes.end = func() {}
		n.goes = nil
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	_, e := s.part(n, element)
	if e == nil || e.Leaving == "" || e.Leaving != r.URL.Query().Get("move") || n.running[element] {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if n.breaks {
		n.breaks = false
		io.WriteString(w, n.disks[element][:1]) //nolint:errcheck // it breaks off
		panic(http.ErrAbortHandler)
	}
	io.WriteString(w, n.disks[element]) //nolint:errcheck // the receiver notices
}

func (s *standIns) arrival(n *standIn, w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	part, _ := s.part(n, "")
	move := r.URL.Query().Get("move")
	switch {
	case err != nil:
		w.WriteHeader(http.StatusServiceUnavailable)
	case n.refuses != "":
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, `{"title":"Conflict","detail":%q}`, n.refuses)
	case !slices.ContainsFunc(part.Arriving, func(a model.Arrival) bool { return a.Move == move && a.Disk > 0 }):
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		n.sent[move] = string(b)
		w.WriteHeader(http.StatusNoContent)
	}
}

// obey has all of them do what they are told, and looks that nothing is in two places or nowhere.
func (s *standIns) obey() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f == nil {
		return
	}
	for _, n := range s.nodes {
		state := s.f.desired(s.t, n.name)
		r := model.Report{Node: n.name, Revision: state.Revision}
		here := map[string]bool{}
		for _, nn := range state.Networks {
			for _, e := range nn.Elements {
				here[e.Name] = true
				is := model.ElementStatus{ID: model.ID{Network: nn.Name, Element: e.Name}, Phase: model.PhaseRunning}
				if e.Arrived != "" {
					if disk, came := n.sent[e.Arrived]; came {
						n.disks[e.Name] = disk
						delete(n.sent, e.Arrived)
					}
					is.Arrived = e.Arrived
				}
				if n.running[e.Name] = e.Leaving == "" && !e.Stopped; !n.running[e.Name] {
					is.Phase = model.PhaseStopped
				}
				if _, has := n.disks[e.Name]; !has {
					if e.Arrived != "" || s.anywhere(e.Name) {
						s.wrong = append(s.wrong, fmt.Sprintf("%s begins with an empty disk on %s", e.Name, n.name))
					}
					n.disks[e.Name] = "disk of " + e.Name
				}
				r.Elements = append(r.Elements, is)
			}
		}
		for name, disk := range n.disks {
			if !here[name] {
				n.trash = append(n.trash, disk)
				delete(n.disks, name)
				delete(n.running, name)
			}
		}
		if err := s.f.Report(r); err != nil {
			s.wrong = append(s.wrong, err.Error())
		}
	}
	for _, name := range []string{"r1", "r2"} {
		var on []string
		for _, n := range s.nodes {
			if n.running[name] {
				on = append(on, n.name)
			}
		}
		if len(on) > 1 {
			s.wrong = append(s.wrong, fmt.Sprintf("%s runs on %v", name, on))
		}
	}
}

func (s *standIns) anywhere(element string) bool {
	for _, n := range s.nodes {
		if _, has := n.disks[element]; has {
			return true
		}
	}
	return false
}

// settled waits until the element runs, with its disk, on this node and on no other, and there is no move.
func (s *standIns) settled(element, node string) {
	s.t.Helper()
	for began := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		s.mu.Lock()
		is := ""
		if s.f != nil {
			r := mustNetwork(s.t, s.f, "lab")
			for _, n := range s.nodes {
				is += fmt.Sprintf("%s: disks %v, running %v; ", n.name, n.disks, n.running)
			}
			is += fmt.Sprintf("moving %+v", r.Moving)
			n := s.nodes[node]
			if r.Moving == nil && n.running[element] && n.disks[element] == "disk of "+element &&
				r.Assigned.Placement.Elements[element] == node {
				s.mu.Unlock()
				return
			}
		}
		s.mu.Unlock()
		if time.Since(began) > time.Minute {
			s.t.Fatalf("%s is not on %s: %s", element, node, is)
		}
	}
}

// movable is a network of two routers on n1.
func movable(t *testing.T) (*fixture, *standIns) {
	t.Helper()
	f := start(t, t.TempDir(), substrateOf(3))
	net := line("lab", 2)
	for i := range net.Elements {
		net.Elements[i].Node = "n1"
	}
	f.apply(t, net, model.ApplyOptions{})
	s := newStandIns(t, f, "n1", "n2", "n3")
	s.settled("r1", "n1")
	s.settled("r2", "n1")
	return f, s
}

var r2 = model.ID{Network: "lab", Element: "r2"}

func TestMoveTakesTheDiskAlong(t *testing.T) {
	f, s := movable(t)
	dry, err := f.moves.Move(t.Context(), r2, model.MoveRequest{To: "n3", DryRun: true})
	if err != nil || dry.From != "n1" || dry.Move != "" || len(dry.Links) != 1 || dry.Stands == 0 ||
		len(dry.Promise.Interrupts) == 0 || len(dry.Notes) != 1 || !strings.Contains(dry.Notes[0], "node: n1") {
		t.Errorf("%v: %+v", err, dry)
	}
	if _, err := f.moves.Move(t.Context(), r2, model.MoveRequest{To: "n3"}); !strings.Contains(problem(t, err).Error(), "--cold") {
		t.Errorf("a move that interrupts is made although nobody said that it may: %v", err)
	}
	if r := mustNetwork(t, f, "lab"); r.Revision != 1 {
		t.Errorf("a dry run, or a refused move, has changed the network: revision %d", r.Revision)
	}
	since := f.seq()
	r, err := f.moves.Move(t.Context(), r2, model.MoveRequest{To: "n3", Cold: true})
	if err != nil {
		t.Fatal(err)
	}
	s.settled("r2", "n3")
	for _, reason := range []string{"MoveBegun", "MoveSent", "ElementMoved", "MoveDone"} {
		f.await(t, since, "lab/r2", reason)
	}
	all, err := f.moves.Moves(t.Context(), "lab")
	if err != nil || len(all) != 1 || all[0].Move != r.Move || all[0].Step != model.MoveDone || all[0].Sent != 10 ||
		all[0].Stands <= 0 {
		t.Errorf("%v: %+v", err, all)
	}
	if n := s.nodes["n1"]; !slices.Equal(n.trash, []string{"disk of r2"}) {
		t.Errorf("the old node has %q in its trash", n.trash)
	}
	if r := mustNetwork(t, f, "lab"); nodeOf(&r, "r2") != "n3" || nodeOf(&r, "r1") != "n1" {
		t.Errorf("pins after the move: r1 %s, r2 %s", nodeOf(&r, "r1"), nodeOf(&r, "r2"))
	}
}

// Whoever dies at any step, the element has one owner, and its disk.
func TestMoveSurvivesTheManagersDeath(t *testing.T) {
	for _, step := range []string{"sending", "sent", "finish"} {
		t.Run(step, func(t *testing.T) {
			f, s := movable(t)
			dies, free := make(chan struct{}), make(chan struct{})
			var once sync.Once
			f.moves.at = func(is string) {
				if is == step {
					once.Do(func() { close(dies) })
					<-free
				}
			}
			if _, err := f.moves.Move(t.Context(), r2, model.MoveRequest{To: "n2", Cold: true}); err != nil {
				t.Fatal(err)
			}
			<-dies
			s.leave()
			stopped := make(chan struct{})
			go func() { defer close(stopped); f.stop() }()
			time.Sleep(10 * time.Millisecond) // it is told to end; what it does before that is as good
			close(free)
			<-stopped
			f = start(t, f.dir, model.Substrate{})
			s.come(f)
			f.moves.look()
			s.settled("r2", "n2")
		})
	}
}

// What fails before the new node has the disk is taken back: the element goes on where it was.
func TestMoveIsTakenBack(t *testing.T) {
	for name, c := range map[string]struct{ goes, refuses, why string }{
		"the new node refuses":   {"", "the machine's disk is too full", "the machine's disk is too full"},
		"the new node goes away": {"n2", "", "the agent of node n2 is away"},
		"the old node goes away": {"n1", "", "the agent of node n1 is away"},
	} {
		t.Run(name, func(t *testing.T) {
			f, s := movable(t)
			f.moves.patience = 100 * time.Millisecond
			since := f.seq()
			s.mu.Lock()
			s.nodes["n2"].refuses = c.refuses
			if c.goes != "" {
				s.nodes["n1"].goes = s.nodes[c.goes]
			}
			s.mu.Unlock()
			if _, err := f.moves.Move(t.Context(), r2, model.MoveRequest{To: "n2", Cold: true}); err != nil {
				t.Fatal(err)
			}
			if ev := f.await(t, since, "lab/r2", "MoveUndone"); !strings.Contains(ev.Message, c.why) {
				t.Errorf("taken back with %q", ev.Message)
			}
			s.settled("r2", "n1")
			all, err := f.moves.Moves(t.Context(), "")
			if err != nil || len(all) != 1 || all[0].Step != model.MoveUndone || !strings.Contains(all[0].Message, c.why) {
				t.Errorf("%v: %+v", err, all)
			}
		})
	}
}

// A stream that breaks off is sent again, and nothing of its beginning counts.
func TestMoveIsSentAgain(t *testing.T) {
	f, s := movable(t)
	s.mu.Lock()
	s.nodes["n1"].breaks = true
	s.mu.Unlock()
	if _, err := f.moves.Move(t.Context(), r2, model.MoveRequest{To: "n2", Cold: true}); err != nil {
		t.Fatal(err)
	}
	s.settled("r2", "n2")
}

// While an element is moved, its network is not changed otherwise; but it can be cut off, and removed.
func TestMoveBesideOtherChanges(t *testing.T) {
	f, _ := movable(t)
	free := make(chan struct{})
	f.moves.at = func(step string) {
		if step == "sent" {
			<-free
		}
	}
	if _, err := f.moves.Move(t.Context(), r2, model.MoveRequest{To: "n2", Cold: true}); err != nil {
		t.Fatal(err)
	}
	for what, try := range map[string]func() error{
		"an apply": func() error { _, err := f.Apply(t.Context(), line("lab", 3), model.ApplyOptions{}); return err },
		"a set": func() error {
			_, err := f.Set(t.Context(), "lab", model.SetRequest{Object: "r1", Values: []model.Assignment{{Key: "cpu",
				Value: "1"}}})
			return err
		},
		"another move": func() error {
			_, err := f.moves.Move(t.Context(), model.ID{Network: "lab", Element: "r1"}, model.MoveRequest{To: "n2", Cold: true})
			return err
		},
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), "r2 is being moved from node n1 to node n2") {
			t.Errorf("%s meanwhile: %v", what, err)
		}
	}
	// What it will take there is nobody else's, and what it takes here neither.
	other := line("other", 1)
	other.Elements[0].Node, other.Elements[0].CPU = "n2", 8000
	if _, err := f.Apply(t.Context(), other, model.ApplyOptions{DryRun: true}); err != nil {
		t.Errorf("an element without a demand reserves: %v", err)
	}
	if _, err := f.Act(t.Context(), r2, model.ActionStop); err != nil {
		t.Error(err)
	}
	if _, err := f.Quarantine(t.Context(), r2, "for a look"); err != nil {
		t.Error(err)
	}
	close(free)
	f.await(t, 0, "lab/r2", "MoveDone")
	if r := mustNetwork(t, f, "lab"); !r.Overrides["r2"].Stopped || !r.Overrides["r2"].Quarantined ||
		r.Assigned.Placement.Elements["r2"] != "n2" || r.Moving != nil {
		t.Errorf("after the move: %+v, %+v", r.Overrides, r.Assigned.Placement.Elements)
	}
	if err := f.Delete(t.Context(), "lab", false); err != nil {
		t.Fatal(err)
	}
}

// A network may be removed in the middle of a move: nothing of it stays.
func TestRemovedDuringAMove(t *testing.T) {
	f, _ := movable(t)
	free := make(chan struct{})
	f.moves.at = func(step string) {
		if step == "sent" {
			<-free
		}
	}
	if _, err := f.moves.Move(t.Context(), r2, model.MoveRequest{To: "n2", Cold: true}); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), "lab", false); err != nil {
		t.Fatal(err)
	}
	close(free)
	f.await(t, 0, "lab", "NetworkDeleted")
	for _, n := range []string{"n1", "n2", "n3"} {
		if state := f.desired(t, n); len(state.Networks) > 0 {
			t.Errorf("node %s is told of %+v", n, state.Networks)
		}
	}
}

// A move that is under way is taken back when its network is put together from the nodes, unless the element has come:
// then it still has its disk to take up.
func TestMovesAreRebuilt(t *testing.T) {
	for _, step := range []model.MoveStep{model.MoveCopying, model.MoveStarting} {
		document, _ := resolve.Read(line("lab", 3))
		resolved, as, err := document.Resolve(model.Assigned{}, resolve.NewNumbers())
		if err != nil {
			t.Fatal(err)
		}
		moving := &model.Moving{Move: "m1", Element: "r2", From: "n1", To: "n2", Step: step}
		at := map[model.MoveStep]string{model.MoveCopying: "n1", model.MoveStarting: "n2"}[step]
		as.Placement.Elements = map[string]string{"r1": "n1", "r2": at, "r3": "n3"}
		parts := map[string]model.NodeNetwork{}
		for node, state := range model.NodeStates([]model.ResolvedRecord{{Network: resolved, Assigned: as,
			Moving: moving}}, substrateOf(3)) {
			for _, nn := range state.Networks {
				parts[node] = nn
			}
		}
		arrives := len(parts["n2"].Arriving)
		if arrives == 1 != (step == model.MoveCopying) {
			t.Errorf("%s: n2 is told of %d arrivals", step, arrives)
		}
		for _, e := range parts["n1"].Elements {
			down := e.Name == "r1" && e.Interfaces[0].Far.Down
			if e.Name == "r1" && down != (step == model.MoveCopying) {
				t.Errorf("%s: the carrier of r1 is down: %v", step, down)
			}
		}
		r, err := rebuild("lab", parts, false, resolve.NewNumbers())
		if err != nil {
			t.Fatal(err)
		}
		if !r.same() {
			t.Errorf("%s: %q", step, r.notes)
		}
		if is := r.record.Moving; step == model.MoveCopying && is != nil ||
			step == model.MoveStarting && (is == nil || is.Move != "m1" || is.Step != step || is.To != "n2") {
			t.Errorf("%s: it is moving %+v", step, is)
		}
	}
}
