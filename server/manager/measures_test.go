package manager

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/metrics"
)

// scrape is what the manager's metrics are.
func (f *fixture) scrape(t testing.TB) string {
	t.Helper()
	w := httptest.NewRecorder()
	metrics.New(f.Manager).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	b, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v: %s", w.Code, err, b)
	}
	return string(b)
}

// What has gone leaves no series, though its node still speaks of it.
func TestDeletedNetworksHaveNoSeries(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	_, end, err := f.Watch("n1", true)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for _, name := range []string{"keep", "drop"} {
		f.apply(t, line(name, 3), model.ApplyOptions{})
	}
	f.obey(t, "n1", nil)
	before := f.scrape(t)
	for _, want := range []string{`polyplane_network_phase{network="drop",phase="running"} 1`,
		`polyplane_element_phase{element="r2",network="drop",node="n1",phase="running"} 1`,
		`polyplane_port_up{element="r2",interface="r3",network="drop",node="n1"} 1`, `polyplane_store_size_bytes `} {
		if !strings.Contains(before, "\n"+want) {
			t.Errorf("missing: %s", want)
		}
	}
	old := model.Report{Node: "n1"}
	f.mu.RLock()
	for _, e := range f.nodes["n1"].elements {
		old.Elements = append(old.Elements, e)
	}
	for _, p := range f.nodes["n1"].ports {
		old.Ports = append(old.Ports, p)
	}
	f.mu.RUnlock()
	if err := f.Delete(t.Context(), "drop", false); err != nil {
		t.Fatal(err)
	}
	f.obey(t, "n1", nil)
	for changed := f.Changed(); ; changed = f.Changed() {
		if d, _ := f.Dump("", api.Parts{Networks: true}); len(d.Networks) == 1 {
			break
		}
		<-changed
	}
	old.Revision = f.desired(t, "n1").Revision
	if err := f.Report(old); err != nil {
		t.Fatal(err)
	}
	after := f.scrape(t)
	if strings.Contains(after, `"drop"`) {
		t.Error("a deleted network has series still")
	}
	if !strings.Contains(after, `polyplane_port_up{element="r2",interface="r3",network="keep",node="n1"} 1`) {
		t.Error("the other network's ports are missing")
	}
}

// What both ends of a link measured is told, as long as their agents are there; a link that falls silent is an event.
func TestMeasures(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	if links := f.desired(t, "n1").Links; len(links) != 1 || links[0].To != "n2" || links[0].Bandwidth != 1e9 {
		t.Errorf("n1 is told of the links %+v", links)
	}
	measure := func(up bool, rtt time.Duration) {
		t.Helper()
		if err := f.Measure(model.Measures{Node: "n1",
			Links: []model.LinkMeasure{{To: "n2", Up: up, RTTMedian: rtt}}}); err != nil {
			t.Fatal(err)
		}
	}
	link := func() model.SubstrateLinkStatus {
		d, err := f.Dump("", api.Parts{Nodes: true})
		if err != nil || len(d.Substrate) != 1 {
			t.Fatalf("%+v, %v", d.Substrate, err)
		}
		return d.Substrate[0]
	}
	changed := f.Changed()
	measure(false, 0)
	<-changed // whoever watches is told
	if l := link(); l.Forth != nil {
		t.Errorf("an agent that is away measures %+v", l.Forth)
	}
	_, end, err := f.Watch("n1", true)
	if err != nil {
		t.Fatal(err)
	}
	measure(true, time.Millisecond)
	if l := link(); l.Forth == nil || l.Forth.RTTMedian != time.Millisecond || l.Back != nil || l.Bandwidth != 1e9 {
		t.Errorf("the link is %+v", l)
	}
	measure(false, time.Millisecond)
	measure(false, time.Millisecond)
	measure(true, 2*time.Millisecond)
	var reasons []string
	events, _ := f.Events(0)
	for _, e := range events {
		if e.Object == "n1 -- n2" {
			reasons = append(reasons, e.Reason)
		}
	}
	if want := []string{"SubstrateLinkDown", "SubstrateLinkUp"}; !slices.Equal(reasons, want) {
		t.Errorf("events %v, want %v", reasons, want)
	}
	if text := f.scrape(t); !strings.Contains(text,
		`polyplane_substrate_link_rtt_median_seconds{neighbour="n2",node="n1"} 0.002`) ||
		!strings.Contains(text, `polyplane_events_total{reason="SubstrateLinkDown",severity="warning"} 1`) {
		t.Error("the link's delay or its event is not among the metrics")
	}
	end()
	if l := link(); l.Forth != nil || strings.Contains(f.scrape(t), "polyplane_substrate_link_up") {
		t.Error("what an agent measured that has gone is told still")
	}
	if err := f.Measure(model.Measures{Node: "n9"}); err == nil {
		t.Error("measures of a node that there is not are taken")
	}
}

// BenchmarkScrape1000 is a scrape of a manager with 1,000 routers.
func BenchmarkScrape1000(b *testing.B) {
	f := start(b, b.TempDir(), substrateOf(1))
	_, end, err := f.Watch("n1", true)
	if err != nil {
		b.Fatal(err)
	}
	defer end()
	f.apply(b, line("line", 1000), model.ApplyOptions{})
	f.obey(b, "n1", nil)
	h := metrics.New(f.Manager)
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}
