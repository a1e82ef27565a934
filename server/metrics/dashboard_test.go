package metrics

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every metric that the dashboard and the documentation ask for is exposed, with the labels that they pick it by.
func TestDashboardIsOfOurMetrics(t *testing.T) {
	b, err := os.ReadFile("../../docs/monitoring/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard any
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	api := http.NewServeMux()
	api.HandleFunc("GET /v1/ping", func(http.ResponseWriter, *http.Request) {})
	h := New(lab(2))
	// So that a request has been measured.
	h.Wrap(api).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/ping", nil))
	_, families := scrape(t, h)
	labels := map[string]map[string]bool{}
	for name, family := range families {
		labels[name] = map[string]bool{"job": true, "instance": true} // Prometheus's own
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[name][l.GetName()] = true
			}
		}
	}
	seen := 0
	for _, query := range queries(dashboard) {
		for _, found := range metricName.FindAllStringSubmatch(query, -1) {
			seen++
			name, selector := found[1], found[2]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, ok := strings.CutSuffix(name, suffix); ok && labels[name] == nil {
					name = base
				}
			}
			if labels[name] == nil {
				t.Errorf("there is no metric %s: %s", found[1], query)
				continue
			}
			for _, label := range labelName.FindAllStringSubmatch(selector, -1) {
				if !labels[name][label[1]] {
					t.Errorf("%s has no label %s: %s", name, label[1], query)
				}
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d metrics were found in the dashboard: the test does not understand it", seen)
	}
	text, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, found := range metricName.FindAllStringSubmatch(string(text), -1) {
		documented[found[1]] = true
		if labels[found[1]] == nil {
			t.Errorf("docs/monitoring.md tells of %s, which there is not", found[1])
		}
	}
	for name := range labels {
		if strings.HasPrefix(name, "polyplane_") && !documented[name] {
			t.Errorf("docs/monitoring.md does not tell of %s", name)
		}
	}
}

var (
	// A metric, and the labels that pick it.
	metricName = regexp.MustCompile(`\b(polyplane_[a-z0-9_]+)(\{[^}]*\})?`)
	labelName  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
)

// queries are all strings of a dashboard's "expr" and "query" fields.
func queries(v any) (all []string) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			all = append(all, queries(x)...)
		}
	case map[string]any:
		for key, x := range v {
			if s, ok := x.(string); ok && (key == "expr" || key == "query") {
				all = append(all, s)
			} else {
				all = append(all, queries(x)...)
			}
		}
	}
	return all
}
