package result

import (
	"encoding/csv"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/trial"
)

func sample(t *testing.T) File {
	t.Helper()
	fig, err := NewFigure("router", "throughput, 64 B", "frames/s", []float64{1.0e6, 1.1e6, 1.2e6})
	if err != nil {
		t.Fatal(err)
	}
	h := new(hist.Histogram)
	h.Add(1500)
	return File{
		Name: "p11a", Title: "Received against offered", Environment: machine.Environment{CPU: "a CPU", Cores: 2,
			Kernel: "6.18 #1", When: time.Unix(0, 0).UTC()},
		Trials: []trial.Result{{Label: "router", Rate: 1e5, Sent: 100, Received: 99, Lost: 1, LossRatio: 0.01,
			Delay: h.Digest(), Histogram: h, Marks: []string{"stolen; and, quoted"}}},
		Throughput: map[string]search.MLRResult{"router": {Goals: []search.GoalResult{{Goal: search.NDR,
			Bounds: search.Bounds{Lower: 1e6, Upper: 1.005e6}, Throughput: 1e6}}}},
		Comparison: &trial.Comparison{Noise: stats.Noise{Floor: 0.012},
			Ratios: map[string]stats.Ratio{"xdp": {Median: 3.5,
				Interval: stats.Interval{Low: 3.4, High: 3.6, Level: 0.95}}},
			Differs: map[string]bool{"xdp": true},
			Verdict: stats.Verdict{Reasons: []string{"the control varies by 9 %"}}},
		Figures: []Figure{fig},
	}
}

func TestWriteAndRead(t *testing.T) {
	dir, f := t.TempDir(), sample(t)
	if err := Write(dir, f); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir + "/p11a.json")
	if err != nil {
		t.Fatal(err)
	}
	if got.Environment.CPU != "a CPU" || got.Trials[0].Lost != 1 ||
		got.Trials[0].Histogram.Digest() != f.Trials[0].Delay ||
		got.Throughput["router"].Goals[0].Throughput != 1e6 || len(got.Figures[0].Intervals) != 3 {
		t.Errorf("%+v", got)
	}
	b, err := os.ReadFile(dir + "/p11a.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(b))).ReadAll()
	if err != nil || len(rows) != 2 || rows[0][0] != "label" || rows[1][0] != "router" ||
		rows[1][len(rows[1])-1] != "stolen; and, quoted" {
		t.Errorf("%v %q", err, rows)
	}
	all, err := ReadAll(os.DirFS(dir))
	if err != nil || len(all) != 1 || all[0].Name != "p11a" {
		t.Errorf("%v %+v", err, all)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func TestRefuses(t *testing.T) {
	if Write(t.TempDir(), File{Name: "../x"}) == nil {
		t.Error("a name with a slash was accepted")
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/x.json", []byte(`{"format":99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir + "/x.json"); err == nil || !strings.Contains(err.Error(), "99") {
		t.Errorf("another format: %v", err)
	}
	if _, err := NewFigure("a", "b", "c", []float64{1}); err == nil {
		t.Error("one sample has no interval")
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, sample(t)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## Received against offered", "a CPU, 2 cores, Linux 6.18, 1970-01-01 00:00 UTC",
		"| router | throughput, 64 B | 1.1 M frames/s | 852 k … 1.35 M | 1.1 M | 3 |",
		"| router | NDR | 1 M frames/s | 1 M … 1 M | – |", "± 1.20 %", "| xdp | 3.500 | 3.400 … 3.600 | yes |",
		"**The machine was not steady**: the control varies by 9 %.", "1 of 1 trials are marked:",
		"- stolen; and, quoted",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

func TestHuman(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 12: "12", 0.125: "0.125", 999.4: "999", 999.9: "1 k",
		1234: "1.23 k", 12345: "12.3 k", 123456: "123 k",
		7.9e6: "7.9 M", 33e9: "33 G", -1500: "-1.5 k"} {
		if got := Human(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
