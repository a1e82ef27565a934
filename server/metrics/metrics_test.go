package metrics

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"

	"github.com/polyplane/polyplane/model"
)

// state is a Source that never changes.
type state State

func (s *state) Metrics() State { return State(*s) }

// lab is a network of n routers in a line on three nodes, with everything that can be told of each.
func lab(n int) *state {
	s := &state{Instance: "test", Store: Store{"embedded", 1 << 20, 1 << 19}, Revision: 7,
		Events: []EventCount{{model.Info, "NodeReady", 3}},
		Networks: []model.NetworkStatus{{Name: "lab", Owner: `who "knows"`, Phase: model.PhaseRunning,
			Elements: n, Links: n - 1}}}
	rtt, passes := model.NewHistogram(0.001, 0.01), model.NewHistogram(0.1, 1)
	rtt.Observe(2 * time.Millisecond)
	passes.Observe(time.Second)
	for i := range 3 {
		s.Nodes = append(s.Nodes,
			Node{NodeStatus: model.NodeStatus{SubstrateNode: model.SubstrateNode{Name: fmt.Sprintf("n%d", i+1),
				CPU: 2000, Memory: 1 << 30}, Ready: true, LastSeen: time.UnixMilli(1500)}, Connected: true,
				Measures: &model.Measures{Started: time.Unix(1, 0), CPU: 1.5, Memory: 1 << 20, Passes: passes,
					Audits: 9, Findings: 1}})
	}
	s.Links = []model.SubstrateLinkStatus{{SubstrateLink: model.SubstrateLink{A: "n1", B: "n2", Bandwidth: 1e9},
		Forth: &model.LinkMeasure{To: "n2", Up: true, RTT: rtt, RTTMin: time.Millisecond,
			RTTMedian: 2 * time.Millisecond, Sent: 2,
			Lost: 1, Capacity: 1e9, Used: 2e8, Available: 8e8}}}
	for i := range n {
		id := model.ID{Network: "lab", Element: fmt.Sprintf("r%d", i+1)}
		node := s.Nodes[i%3].Name
		s.Elements = append(s.Elements, model.ElementStatus{ID: id, Node: node, Phase: model.PhaseRunning, Restarts: 1,
			Quarantine: "by hand", Attacks: map[string]uint64{"scan": 2},
			Usage: &model.Usage{CPU: 0.25, Memory: 1 << 20, Processes: 9, Disk: 1 << 16,
				Limits: model.Limits{CPU: 500, Memory: 1 << 28,
					Processes: 1024, OpenFiles: 4096, Disk: 1 << 28}},
			Fast: &model.FastPath{Packets: 10, Bytes: 1000, Blackholed: 1, Refused: 3,
				Punted: map[string]uint64{"TTL": 2}, Tables: &model.FastTables{
					InSync: true, NextHops: 4,
					Families: []model.FIBTable{{Family: model.IPv4, Routes: 7, Bytes: 64, Copy: 80}},
					Lack:     &model.TableLack{}}}})
		for _, port := range []string{"left", "right"} {
			s.Ports = append(s.Ports, Port{node, model.PortStatus{ID: model.PortID{ID: id, Interface: port}, Up: true,
				RxPackets: 5, RxBytes: 500,
				TxPackets: 6, TxBytes: 600, Dropped: 1, Drops: map[string]uint64{"loss": 1}}})
		}
	}
	return s
}

// scrape returns what a handler exposes, and parses it.
func scrape(t testing.TB, h http.Handler) (string, map[string]*dto.MetricFamily) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	text := w.Body.String()
	parser := expfmt.NewTextParser(prommodel.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return text, families
}

func TestExposition(t *testing.T) {
	text, families := scrape(t, New(lab(2)))
	for _, line := range []string{
		`polyplane_info{instance_name="test",store="embedded"} 1`,
		`polyplane_store_used_bytes 524288`,
		`polyplane_events_total{reason="NodeReady",severity="info"} 3`,
		`polyplane_network_info{network="lab",owner="who \"knows\"",title="lab"} 1`,
		`polyplane_network_phase{network="lab",phase="running"} 1`,
		`polyplane_network_phase{network="lab",phase="failed"} 0`,
		`polyplane_node_cpu_capacity_cores{node="n1"} 2`,
		`polyplane_node_last_report_timestamp_seconds{node="n1"} 1.5`,
		`polyplane_agent_reconcile_duration_seconds_bucket{node="n2",le="0.1"} 0`,
		`polyplane_agent_reconcile_duration_seconds_bucket{node="n2",le="1"} 1`,
		`polyplane_agent_reconcile_duration_seconds_count{node="n2"} 1`,
		`polyplane_agent_audit_findings_total{node="n3"} 1`,
		`polyplane_element_phase{element="r1",network="lab",node="n1",phase="running"} 1`,
		`polyplane_element_cpu_limit_cores{element="r1",network="lab",node="n1"} 0.5`,
		`polyplane_element_memory_used_bytes{element="r2",network="lab",node="n2"} 1.048576e+06`,
		`polyplane_element_fast_path_punted_packets_total{element="r2",network="lab",node="n2",reason="TTL"} 2`,
		`polyplane_element_fast_path_refused_packets_total{element="r2",network="lab",node="n2"} 3`,
		`polyplane_element_fast_path_tables_full{element="r2",network="lab",node="n2"} 1`,
		`polyplane_element_fast_path_copy_bytes{element="r2",family="ipv4",network="lab",node="n2"} 80`,
		`polyplane_element_quarantined{element="r2",network="lab",node="n2"} 1`,
		`polyplane_element_attacks_suspected_total{element="r2",network="lab",node="n2",signal="scan"} 2`,
		`polyplane_port_receive_packets_total{element="r2",interface="left",network="lab",node="n2"} 5`,
		`polyplane_port_transmit_bytes_total{element="r2",interface="right",network="lab",node="n2"} 600`,
		`polyplane_port_dropped_packets_total{element="r1",interface="left",network="lab",node="n1",reason="loss"} 1`,
		`polyplane_substrate_link_rtt_median_seconds{neighbour="n2",node="n1"} 0.002`,
		`polyplane_substrate_link_available_bytes_per_second{neighbour="n2",node="n1"} 1e+08`,
		`polyplane_substrate_link_rtt_seconds_bucket{neighbour="n2",node="n1",le="0.01"} 1`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	// Every description is of something that there is in this state, so that no metric is described and never made.
	for _, d := range descriptions {
		name := strings.Split(d.String(), `"`)[1]
		if families[name] == nil {
			t.Errorf("%s is described and was not exposed", name)
		} else if len(families[name].GetHelp()) < 20 {
			t.Errorf("%s is not explained", name)
		}
	}
}

// The names, units and types follow Prometheus's conventions.
func TestConventions(t *testing.T) {
	text, _ := scrape(t, New(lab(2)))
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "polyplane_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// What is not known has no series: an agent that has told nothing, a link without capacity, a damaged histogram.
func TestUnknownIsAbsent(t *testing.T) {
	s := lab(1)
	s.Store.Size = 0
	s.Nodes[0].Measures = nil
	s.Nodes[1].Measures.Passes.Counts = nil
	s.Elements[0].Usage, s.Elements[0].Fast = nil, nil
	s.Links[0].Forth = &model.LinkMeasure{To: "n2"}
	text, _ := scrape(t, New(s))
	for _, absent := range []string{"polyplane_store_", `polyplane_agent_cpu_seconds_total{node="n1"}`,
		`polyplane_agent_reconcile_duration_seconds_count{node="n2"}`, "polyplane_element_cpu",
		"polyplane_element_fast",
		"polyplane_substrate_link_capacity", "polyplane_substrate_link_rtt_median"} {
		if strings.Contains(text, "\n"+absent) {
			t.Errorf("%s is exposed", absent)
		}
	}
	if !strings.Contains(text, `polyplane_substrate_link_up{neighbour="n2",node="n1"} 0`) {
		t.Error("a link that does not answer must be 0")
	}
}

// Whatever is asked for, there are no more series than the API has routes; streams count until they begin.
func TestRequestsAreMeasured(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{})
	api := http.NewServeMux()
	api.HandleFunc("GET /v1/networks/{network}",
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") })
	api.HandleFunc("GET /v1/stream", func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("the connection's abilities are hidden: %v", err)
		}
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		close(begun)
		<-release
		panic(http.ErrAbortHandler)
	})
	m := New(lab(1))
	server := httptest.NewServer(m.Wrap(api))
	defer server.Close()
	get := func(path string) *http.Response {
		resp, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	for i := range 20 {
		io.Copy(io.Discard, get(fmt.Sprintf("/v1/networks/lab%d", i)).Body)
		io.Copy(io.Discard, get(fmt.Sprintf("/nonsense/%d", i)).Body)
	}
	stream := get("/v1/stream")
	<-begun
	close(release)
	io.Copy(io.Discard, stream.Body)
	server.Close() // all requests have ended
	_, families := scrape(t, m)
	counts := map[string]uint64{}
	for _, series := range families["polyplane_api_request_duration_seconds"].GetMetric() {
		labels := map[string]string{}
		for _, l := range series.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		counts[labels["route"]+" "+labels["code"]] = series.GetHistogram().GetSampleCount()
	}
	want := map[string]uint64{"GET /v1/networks/{network} 200": 20, "other 404": 20, "GET /v1/stream 200": 1}
	if fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", counts, want)
	}
}

// BenchmarkScrape1000 is a scrape of 1,000 routers with two ports each, of which everything is known.
func BenchmarkScrape1000(b *testing.B) {
	h := New(lab(1000))
	text, _ := scrape(b, h)
	b.ReportMetric(float64(strings.Count(text, "\n")), "lines")
	b.ReportMetric(float64(len(text)), "bytes")
	for b.Loop() {
		w := httptest.NewRecorder()
		w.Body = new(bytes.Buffer)
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}
}
