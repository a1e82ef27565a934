package sink_test

import (
	"math"
	"os/exec"
	"testing"
	"time"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/sink"
	"github.com/polyplane/polyplane/measure/source"
)

// Rates are kept within 1 % while something else uses the source's core all the time: what it missed, it makes up for.
// A trial whose last moment is taken from it ends late, so one of many has to hold: the first or second on a machine of
// its own.
func TestPaceOnABusyCore(t *testing.T) {
	s, k := wire(t)
	hog := exec.Command("taskset", "-c", "0", "sh", "-c", "while :; do :; done")
	if err := hog.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := hog.Process.Kill(); err != nil {
			t.Error(err)
		}
		hog.Wait() // it was killed
	}()
	for _, rate := range []float64{1e4, 1e5, 1e6} {
		worst := math.Inf(1)
		for try := 0; try < 25 && worst > 0.01; try++ {
			sent, got := run(t, source.Options{Device: s, Duration: time.Second / 2, CPU: 0,
				Streams: []source.Stream{ip4(rate, frame.Fixed(64))}},
				sink.Options{Device: k, Sender: s})
			st := got.Streams[0]
			seen := float64(st.Next-1) / st.Spread.Seconds()
			worst = max(math.Abs(sent.Rate()/rate-1), math.Abs(seen/rate-1))
			t.Logf("%.0f frames/s: %.0f sent, %.0f seen, %d late by up to %v, %d of them in a row", rate, sent.Rate(),
				seen, sent.Streams[0].Late,
				sent.Streams[0].LateMax, sent.Streams[0].Burst)
			if r := sent.Streams[0]; r.Sent != uint64(math.Round(rate/2)) ||
				(r.Late > 0) != (r.Burst > 0) || r.Burst > r.Late {
				t.Logf("%+v", r)
				worst = math.Inf(1)
			}
		}
		if worst > 0.01 {
			t.Errorf("%.0f frames/s are off by %.2f %%", rate, 100*worst)
		}
	}
}
