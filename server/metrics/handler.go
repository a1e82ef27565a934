package metrics

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics serves metrics, and measures an API.
type Metrics struct {
	registry *prometheus.Registry
	exporter http.Handler
	requests *prometheus.HistogramVec
}

// New returns the metrics of a source, and of this process.
func New(source Source) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.requests = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "polyplane_api_request_duration_seconds",
		Help: "Time until the API's answer began, by route and status, in seconds; a stream's length does not " +
			"count.",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}},
		[]string{"route", "code"})
	// Under names of their own: the node exporter, which may pass these metrics on, has a process too.
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: "polyplane_manager"})
	m.registry.MustRegister(collector{source}, m.requests, process)
	m.exporter = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorLog: complaints{}})
	return m
}

type complaints struct{}

func (complaints) Println(v ...any) { slog.Warn("metrics", "problem", v) }

// Wrap lets the API answer, and measures how long it takes.
func (m *Metrics) Wrap(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &timed{ResponseWriter: w, began: time.Now()}
		defer func() {
			// A handler that panics has its connection cut: that is no answer.
			if t.code != 0 {
				m.requests.WithLabelValues(route(r), strconv.Itoa(t.code)).Observe(t.took.Seconds())
			}
		}()
		api.ServeHTTP(t, r)
		t.answered(http.StatusOK)
	})
}

// ServeHTTP answers with the metrics.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.exporter.ServeHTTP(w, r) }

// route is the pattern that a request matched, so that there are no more routes than the API has.
func route(r *http.Request) string {
	if r.Pattern == "" || r.Pattern == "/" {
		return "other"
	}
	return r.Pattern
}

// timed notes when an answer begins.
type timed struct {
	http.ResponseWriter
	began time.Time
	code  int // zero until then
	took  time.Duration
}

// Unwrap lets http.ResponseController find the connection's own abilities.
func (t *timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *timed) answered(code int) {
	if t.code == 0 {
		t.code, t.took = code, time.Since(t.began)
	}
}

func (t *timed) WriteHeader(code int) {
	if code >= 200 || code == http.StatusSwitchingProtocols { // others announce an answer
		t.answered(code)
	}
	t.ResponseWriter.WriteHeader(code)
}

func (t *timed) Write(b []byte) (int, error) {
	t.answered(http.StatusOK)
	return t.ResponseWriter.Write(b)
}
