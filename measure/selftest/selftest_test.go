package selftest

import (
	"context"
	"testing"
	"time"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/stats"
)

func TestSelfTest(t *testing.T) {
	var said []string
	all := 0
	rep, err := Run(context.Background(), Options{Progress: func(done, of int, what string) {
		if done != len(said) {
			t.Errorf("%q is step %d after %d", what, done, len(said))
		}
		said, all = append(said, what), of
	}, Duration: 300 * time.Millisecond, Repeat: 1, Rounds: 3, Sizes: []frame.Sizes{frame.Fixed(64),
		frame.IMIX()}, Rates: []float64{1e4}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range rep.Speeds {
		t.Logf("%s: %.2f Mp/s closed (%.2f a CPU second), %.2f open (%.2f arrive), bare %.2f: %.0f %%", s.Sizes,
			s.Closed/1e6, s.Full/1e6, s.Open/1e6, s.Got/1e6, s.Bare/1e6, 100*s.Share.Median)
	}
	for _, s := range rep.Speeds {
		if s.Share.N != 3 || len(s.Fulls) != 3 || len(s.Wholes) != 3 || len(s.Again) != 3 || s.Noise <= 0 ||
			!s.Share.Interval.Contains(s.Share.Median) || s.Full <= 0 || s.Whole <= 0 {
			t.Errorf("%s: %+v", s.Sizes, s)
		}
	}
	if len(said) != all {
		t.Errorf("of %d steps these were told: %q", all, said)
	}
	t.Logf("paces %+v", rep.Paces)
	t.Logf("floor %v; limits %+v; %q", rep.Floor, rep.Limits, rep.Failures)
	if len(rep.Speeds) != 2 || rep.Limits.Rate <= 0 || rep.Limits.Floor <= 0 {
		t.Fatalf("%+v", rep)
	}
	if rep.Floor.Count < 100 || rep.Floor.P50 > uint64(time.Millisecond) {
		t.Errorf("floor %v", rep.Floor)
	}
	if rep.Environment.Kernel == "" || len(rep.Environment.Devices) != 2 {
		t.Errorf("%+v", rep.Environment)
	}
	for _, p := range rep.Paces { // what is off must be said
		if e := p.Error; !p.Poisson && (e > 0.01 || e < -0.01) && len(rep.Failures) == 0 {
			t.Errorf("%.0f frames/s are off by %.2f %%, and nothing is said of it", p.Rate, 100*e)
		}
	}
}

func TestJudge(t *testing.T) {
	r := Report{Speeds: []Speed{{Sizes: "64", Closed: 5e6, Share: stats.Ratio{Median: 0.5}}},
		Paces: []Pace{{Rate: 1e5, Error: 0.05}, {Rate: 1e3, Error: 0.05, Late: 0.2}, {Rate: 1e6, Late: 0.9}},
		Steal: 0.5}
	r.judge()
	if len(r.Failures) != 4 || r.Limits.Rate != 5e6 || r.Limits.Accuracy != 0.05 {
		t.Errorf("%+v", r)
	}
	good := Report{Speeds: []Speed{{Sizes: "imix", Closed: 9.5e6, Share: stats.Ratio{Median: 0.95}}},
		Paces: []Pace{{Rate: 1e5, Error: 0.001}}}
	if good.judge(); len(good.Failures) != 0 {
		t.Errorf("%+v", good)
	}
}
