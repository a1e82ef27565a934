package manager

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// eventsOf counts the events by reason.
func eventsOf(f *fixture, reason string) (n int) {
	all, _ := f.Events(0)
	for _, e := range all {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

// A node is believed about what is placed on it and nothing else, whatever it says; that it said so is told once.
func TestANodeTellsOfItsOwnOnly(t *testing.T) {
	attack.Tell(t, "a node reports on elements of others'",
		"nothing is believed")
	f := start(t, t.TempDir(), substrateOf(2))
	mine, others := line("mine", 2), line("others", 2)
	for i := range 2 {
		mine.Elements[i].Node, others.Elements[i].Node = "n1", "n2"
	}
	f.apply(t, mine, model.ApplyOptions{})
	f.apply(t, others, model.ApplyOptions{})
	f.obey(t, "n1", nil)
	f.obey(t, "n2", nil)
	f.mu.Lock()
	f.nodes["n1"].Joined = true
	revision := f.nodes["n1"].revision
	f.mu.Unlock()
	theirs := model.ID{Network: "others", Element: "r1"}
	own := model.ID{Network: "mine", Element: "r1"}
	huge := strings.Repeat("x", 1<<20)
	many := func() map[string]uint64 {
		all := map[string]uint64{}
		for i := range 10_000 {
			all[fmt.Sprint(i)] = 1
		}
		return all
	}
	lie := func() model.Report {
		return model.Report{Node: "n1", Revision: revision, Problem: "", Elements: []model.ElementStatus{
			{ID: theirs, Phase: model.PhaseFailed, Message: "broken"},
			{ID: model.ID{Network: "nowhere", Element: "r1"}, Phase: model.PhaseRunning},
			{ID: own, Phase: model.PhaseRunning, Message: huge,
				Fast: &model.FastPath{Punted: many(), Tables: &model.FastTables{
					Families: []model.FIBTable{{Family: model.IPv4}, {Family: model.IPv4},
						{Family: model.Family(huge)}}}}},
			{ID: model.ID{Network: "mine", Element: "r2"}, Phase: "odd"},
		}, Ports: []model.PortStatus{
			{ID: model.PortID{ID: theirs, Interface: "r2"}, Up: true, RxPackets: 1},
			{ID: model.PortID{ID: own, Interface: "none"}, Up: true},
			{ID: model.PortID{ID: own, Interface: "r2"}, Device: huge, Drops: many(), Up: true},
		}, Events: []model.Event{
			{Severity: model.Error, Object: "others/r1", Reason: "ElementFailed", Message: "a lie"},
			{Severity: model.Error, Object: "n2", Reason: "NodeProblem", Message: "a lie"},
			{Severity: "fatal", Object: "mine/r1", Reason: "Known", Message: "x"},
			{Severity: model.Error, Object: "mine/r1", Reason: "not a word", Message: "x"},
			{Severity: model.Error, Object: "mine/r1", Reason: "Mine", Message: huge, Time: time.Now().Add(time.Hour)},
		}}
	}
	for range 3 {
		if err := f.Report(lie()); err != nil {
			t.Fatal(err)
		}
	}
	f.mu.RLock()
	n := f.nodes["n1"]
	if len(n.elements) != 1 || len(n.ports) != 1 || n.trust.refused != 3*9 {
		t.Errorf("believed: %d elements, %d ports; refused: %d", len(n.elements), len(n.ports), n.trust.refused)
	}
	is, port := n.elements[own], n.ports[model.PortID{ID: own, Interface: "r2"}]
	if len(is.Message) > maxToldText+8 || len(is.Fast.Punted) > maxToldKinds || len(is.Fast.Tables.Families) != 1 ||
		len(port.Device) > 80 || len(port.Drops) > maxToldKinds {
		t.Errorf("kept: %d bytes, %d reasons, %d tables, %d and %d", len(is.Message), len(is.Fast.Punted),
			len(is.Fast.Tables.Families), len(port.Device), len(port.Drops))
	}
	if s := f.nodes.elementStatus(f.networks["others"], "r1"); s.Phase != model.PhaseRunning {
		t.Errorf("others/r1 is %s: %s", s.Phase, s.Message)
	}
	f.mu.RUnlock()
	if told := eventsOf(f, "ReportRefused"); told != 1 {
		t.Errorf("it was told %d times", told)
	}
	all, _ := f.Events(0)
	for _, e := range all {
		if e.Message == "a lie" || len(e.Message) > 2*maxToldText || e.Time.After(time.Now().Add(futureMost)) {
			t.Errorf("event %.300v", e)
		}
	}
}

// What a node tells of an element that it has just lost is nobody's lie, and not believed either.
func TestANodeThatIsBehindIsNoLiar(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	net := line("lab", 2)
	net.Elements[0].Node, net.Elements[1].Node = "n1", "n1"
	f.apply(t, net, model.ApplyOptions{})
	before := f.desired(t, "n1")
	net.Elements = net.Elements[:1]
	net.Links = nil
	f.apply(t, net, model.ApplyOptions{})
	report := model.Report{Node: "n1", Revision: before.Revision, Elements: []model.ElementStatus{
		{ID: model.ID{Network: "lab", Element: "r1"}, Phase: model.PhaseRunning},
		{ID: model.ID{Network: "lab", Element: "r2"}, Phase: model.PhaseRunning}}}
	if err := f.Report(report); err != nil {
		t.Fatal(err)
	}
	if eventsOf(f, "ReportRefused") != 0 || len(f.nodes["n1"].elements) != 1 {
		t.Errorf("%d elements, told %d times", len(f.nodes["n1"].elements), eventsOf(f, "ReportRefused"))
	}
	report.Revision = f.desired(t, "n1").Revision // now it should know
	if err := f.Report(report); err != nil {
		t.Fatal(err)
	}
	if eventsOf(f, "ReportRefused") != 1 {
		t.Error("it was not told")
	}
}

// A node's flood of events, or of words that nobody has used before, takes the others' place neither in the list nor in
// the metrics.
func TestANodesEventsAreBounded(t *testing.T) {
	attack.Tell(t, "a node tells of events without end",
		"only its own events are dropped")
	f := start(t, t.TempDir(), substrateOf(2))
	net := line("lab", 2)
	net.Elements[0].Node, net.Elements[1].Node = "n1", "n1"
	f.apply(t, net, model.ApplyOptions{})
	f.obey(t, "n1", nil)
	f.mu.Lock()
	f.nodes["n1"].Joined = true
	revision := f.nodes["n1"].revision
	f.mu.Unlock()
	for round := range 4 {
		r := model.Report{Node: "n1", Revision: revision}
		for i := range 4096 {
			r.Events = append(r.Events, model.Event{Severity: model.Info, Object: "lab/r1",
				Reason: fmt.Sprintf("R%dX%d", round, i), Message: "flood"})
		}
		if err := f.Report(r); err != nil {
			t.Fatal(err)
		}
	}
	// An element that starts and stops with every report is a flood, too.
	for i := range 6000 {
		phase := []model.Phase{model.PhaseRunning, model.PhaseStopped}[i%2]
		if err := f.Report(model.Report{Node: "n1", Revision: revision,
			Elements: []model.ElementStatus{{ID: model.ID{Network: "lab", Element: "r1"}, Phase: phase}}}); err != nil {
			t.Fatal(err)
		}
	}
	if eventsOf(f, "NetworkApplied") != 1 || eventsOf(f, "EventsDropped") != 1 {
		t.Errorf("%d and %d events are left", eventsOf(f, "NetworkApplied"), eventsOf(f, "EventsDropped"))
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if len(f.news.count) > maxEventKinds+16 || f.nodes["n1"].trust.dropped < 10_000 {
		t.Errorf("%d kinds are counted, %d were dropped", len(f.news.count), f.nodes["n1"].trust.dropped)
	}
}

// What is measured of links that there are not, or damaged, is left out.
func TestMeasuresAreBounded(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(3))
	bad := model.Histogram{Bounds: []float64{1, 2}, Counts: []uint64{1}}
	err := f.Measure(model.Measures{Node: "n1", Passes: bad, Links: []model.LinkMeasure{
		{To: "n2", Up: true, RTT: bad, Problem: strings.Repeat("x", 1<<20)}, {To: "n2"}, {To: "n3", Up: true},
		{To: "elsewhere", Problem: "a lie"}}})
	if err != nil {
		t.Fatal(err)
	}
	is := f.nodes["n1"].measures
	if len(is.Links) != 1 || len(is.Links[0].Problem) > maxToldText+8 || len(is.Links[0].RTT.Bounds) != 0 ||
		len(is.Passes.Bounds) != 0 {
		t.Errorf("believed: %.300v", is)
	}
	if eventsOf(f, "ReportRefused") != 1 {
		t.Error("it was not told")
	}
}

// Whatever phase the platform's own agents tell of is taken: an element that is starting is no lie.
func TestEveryPhaseOfAnElementIsBelieved(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, line("lab", 1), model.ApplyOptions{})
	for _, phase := range []model.Phase{model.PhasePending, model.PhaseStarting, model.PhaseRunning, model.PhaseStopped,
		model.PhaseSuspended,
		model.PhaseFailed} {
		f.obey(t, "n1", map[string]model.Phase{"lab/r1": phase})
		f.mu.RLock()
		is := f.nodes["n1"].elements[model.ID{Network: "lab", Element: "r1"}].Phase
		f.mu.RUnlock()
		if is != phase {
			t.Errorf("the node tells that r1 is %s; the manager takes it for %q", phase, is)
		}
	}
	if n := eventsOf(f, "ReportRefused"); n != 0 {
		t.Errorf("%d events say that the node lies", n)
	}
}

// Of a reason that is longer than what is kept of one, its beginning is kept with its number.
func TestLongReasonsAreShortened(t *testing.T) {
	long := strings.Repeat("x", maxToldName) + " and more"
	all := map[string]uint64{"short": 1, long: 2}
	if got := few(all); len(got) != 2 || got["short"] != 1 || got[model.Shorten(long, maxToldName)] != 2 {
		t.Errorf("%v became %v", all, got)
	}
	if few[int](nil) != nil {
		t.Error("nothing became something")
	}
}
