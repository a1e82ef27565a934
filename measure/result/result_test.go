package result

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/trial"
)

func TestEncoded(t *testing.T) {
	fig, err := NewFigure("router", "throughput, 64 B", "frames/s", []float64{1.0e6, 1.1e6, 1.2e6})
	if err != nil {
		t.Fatal(err)
	}
	h := new(hist.Histogram)
	h.Add(1500)
	f := File{Format: Format, Name: "p11a", Environment: machine.Environment{CPU: "a CPU", When: time.Unix(0, 0).UTC()},
		Trials: []trial.Result{{Label: "router", Rate: 1e5, Sent: 100, Received: 99, Lost: 1, LossRatio: 0.01,
			Delay: h.Digest(), Histogram: h, Marks: []string{"stolen; and, quoted"}}},
		Figures: []Figure{fig}}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var got File
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Format != Format || got.Environment.CPU != "a CPU" || got.Trials[0].Lost != 1 ||
		got.Trials[0].Histogram.Digest() != f.Trials[0].Delay || len(got.Figures[0].Intervals) != 3 {
		t.Errorf("%+v", got)
	}
	var text strings.Builder
	if err := CSV(&text, f.Trials); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(text.String())).ReadAll()
	if err != nil || len(rows) != 2 || rows[0][0] != "label" || rows[1][0] != "router" ||
		rows[1][len(rows[1])-1] != "stolen; and, quoted" {
		t.Errorf("%v %q", err, rows)
	}
	if _, err := NewFigure("a", "b", "c", []float64{1}); err == nil {
		t.Error("one sample has no interval")
	}
}
