package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > tol {
		t.Errorf("%s: got %v, want %v ± %v", what, got, want, tol)
	}
}

func TestSummary(t *testing.T) {
	s := Summarise([]float64{2, 4, 4, 4, 5, 5, 7, 9})
	near(t, "mean", s.Mean, 5, 1e-12)
	near(t, "sd", s.SD, math.Sqrt(32.0/7), 1e-12)
	near(t, "median", s.Median, 4.5, 0)
	if s.Min != 2 || s.Max != 9 || s.N != 8 {
		t.Errorf("min, max, n: %+v", s)
	}
	if z := Summarise(nil); z.N != 0 {
		t.Errorf("empty: %+v", z)
	}
	// A large mean with a small spread must not cancel.
	big := Summarise([]float64{1e15 + 1, 1e15 + 2, 1e15 + 3})
	near(t, "sd of a large mean", big.SD, 1, 1e-9)
}

func TestMeanIntervalAgainstTables(t *testing.T) {
	s := Summary{N: 10, Mean: 100, SD: math.Sqrt(10)}
	// t tables, 9 degrees of freedom
	for level, q := range map[float64]float64{0.90: 1.8331, 0.95: 2.2622, 0.99: 3.2498} {
		iv, err := s.MeanInterval(level)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "upper end", iv.High, 100+q, 1e-4)
		near(t, "lower end", iv.Low, 100-q, 1e-4)
	}
	if _, err := (Summary{N: 1}).MeanInterval(0.95); err == nil {
		t.Error("one sample gave an interval")
	}
	if _, err := s.MeanInterval(95); err == nil {
		t.Error("a level of 95 was accepted")
	}
}

// covered counts how often an interval of n samples drawn by draw holds truth.
func covered(sims, n int, truth float64, draw func(*rand.Rand) float64, interval func([]float64, uint64) (Interval,
	error)) (float64, error) {
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	x := make([]float64, n)
	hit := 0
	for s := range sims {
		for i := range x {
			x[i] = draw(rng)
		}
		iv, err := interval(x, uint64(s))
		if err != nil {
			return 0, err
		}
		if iv.Contains(truth) {
			hit++
		}
	}
	return float64(hit) / float64(sims), nil
}

func normal(r *rand.Rand) float64 { return 10 + r.NormFloat64() }

func TestCoverage(t *testing.T) {
	mean := func(level float64) func([]float64, uint64) (Interval, error) {
		return func(x []float64, _ uint64) (Interval, error) { return Summarise(x).MeanInterval(level) }
	}
	cases := []struct {
		name     string
		n        int
		level    float64
		truth    float64
		draw     func(*rand.Rand) float64
		interval func([]float64, uint64) (Interval, error)
	}{
		{"mean 90", 10, 0.90, 10, normal, mean(0.90)},
		{"mean 95", 5, 0.95, 10, normal, mean(0.95)},
		{"mean 95", 15, 0.95, 10, normal, mean(0.95)},
		{"mean 99", 15, 0.99, 10, normal, mean(0.99)},
		{"difference", 12, 0.95, 0, normal, func(x []float64, _ uint64) (Interval, error) {
			return DifferenceInterval(x[:6], x[6:], 0.95)
		}},
	}
	for _, c := range cases {
		got, err := covered(10000, c.n, c.truth, c.draw, c.interval)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s, n=%d: %.2f %%", c.name, c.n, got*100)
		near(t, c.name, got, c.level, 0.01)
	}
}

func TestBootstrapCoverage(t *testing.T) {
	boot := func(stat func([]float64) float64, m Method) func([]float64, uint64) (Interval, error) {
		return func(x []float64, seed uint64) (Interval, error) {
			return Bootstrap(x, stat, BootstrapOptions{Method: m, Resamples: 1000, Seed: seed})
		}
	}
	avg := func(x []float64) float64 {
		s := 0.0
		for _, v := range x {
			s += v
		}
		return s / float64(len(x))
	}
	ratio := func(x []float64, seed uint64) (Interval, error) {
		a := make([]float64, len(x)/2)
		b := make([]float64, len(x)/2)
		for i := range a {
			a[i], b[i] = x[2*i], 2*x[2*i+1]
		}
		r, err := PairedRatio(a, b, BootstrapOptions{Resamples: 500, Seed: seed})
		return r.Interval, err
	}
	const sims = 4000 // one standard deviation of the estimate is 0.34 %; the draws are the same every time
	for _, c := range []struct {
		name     string
		n        int
		truth    float64
		draw     func(*rand.Rand) float64
		interval func([]float64, uint64) (Interval, error)
	}{
		{"BCa mean", 60, 10, normal, boot(avg, BCa)},
		{"percentile median", 31, 10, normal, boot(medianInPlace, Percentile)},
		{"paired ratio", 40, 2, normal, ratio},
	} {
		got, err := covered(sims, c.n, c.truth, c.draw, c.interval)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s, n=%d: %.2f %%", c.name, c.n, got*100)
		near(t, c.name, got, 0.95, 0.01)
	}
}

func TestPairedRatio(t *testing.T) {
	a := []float64{100, 50, 80, 120, 95, 101}
	b := make([]float64, len(a))
	for i := range a {
		b[i] = a[i] * 1.25 // the blocks differ by more than the systems
	}
	r, err := PairedRatio(a, b, BootstrapOptions{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "ratio", r.Median, 1.25, 1e-12)
	near(t, "width", r.Interval.Width(), 0, 1e-12)
	back, err := PairedRatio(b, a, BootstrapOptions{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "inverse", back.Median*r.Median, 1, 1e-12)
	if _, err := PairedRatio(a, b[:3], BootstrapOptions{}); err == nil {
		t.Error("unequal numbers were accepted")
	}
	if _, err := PairedRatio([]float64{1, 0, 1}, []float64{1, 1, 1}, BootstrapOptions{}); err == nil {
		t.Error("a zero was accepted")
	}
}

func TestNoiseFloor(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noisy := func(mean float64) []float64 {
		x := make([]float64, 30)
		for i := range x {
			x[i] = mean * (1 + 0.02*rng.NormFloat64())
		}
		return x
	}
	n, err := NoiseFloor(noisy(100), noisy(100), BootstrapOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n.Floor <= 0 || n.Floor > 0.04 {
		t.Errorf("floor %v of 2 %% noise over 30 pairs", n.Floor)
	}
	same, _ := PairedRatio(noisy(100), noisy(100.1), BootstrapOptions{})
	other, _ := PairedRatio(noisy(100), noisy(110), BootstrapOptions{})
	if n.Differs(same) {
		t.Errorf("0.1 %% was called a difference: %+v against %+v", same, n)
	}
	if !n.Differs(other) {
		t.Errorf("10 %% was not called a difference: %+v against %+v", other, n)
	}
}

func TestStopRule(t *testing.T) {
	rule := StopRule{Level: 0.95, Width: 0.02, Pilot: 8, Max: 300}
	if err := rule.Validate(); err != nil {
		t.Fatal(err)
	}
	if (StopRule{Level: 0.95, Width: 0.1, Pilot: 2, Max: 9}).Validate() == nil {
		t.Error("a pilot of two was accepted")
	}
	for _, spread := range []float64{0.01, 0.05} {
		rng := rand.New(rand.NewPCG(3, 4))
		const sims = 10000
		hit, used, wide := 0, 0, 0
		for range sims {
			var x []float64
			for !rule.Enough(x) {
				x = append(x, 100*(1+spread*rng.NormFloat64()))
			}
			iv, err := rule.Interval(x)
			if err != nil {
				t.Fatal(err)
			}
			used += len(x)
			if iv.Contains(100) {
				hit++
			}
			if iv.Width()/2 > 100*rule.Width*1.05 && len(x) < rule.Max {
				wide++
			}
		}
		got := float64(hit) / sims
		t.Logf("spread %v: coverage %.2f %% after %.1f samples on average", spread, got*100, float64(used)/sims)
		near(t, "coverage with early stop", got, 0.95, 0.01)
		if wide > sims/100 {
			t.Errorf("spread %v: %d intervals are wider than asked for", spread, wide)
		}
	}
	if rule.Enough([]float64{1, 1, 1, 1}) || !rule.Enough([]float64{1, 1, 1, 1, 1, 1, 1, 1}) {
		t.Error("the pilot is not kept")
	}
	if rule.Enough([]float64{-1, 1, -1, 1, -1, 1, -1, 1}) {
		t.Error("a mean of zero has no relative width, yet the rule was content")
	}
}

func TestJudge(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	steady := make([]float64, 20)
	drifting := make([]float64, 20)
	wild := make([]float64, 20)
	for i := range steady {
		steady[i] = 100 * (1 + 0.01*rng.NormFloat64())
		drifting[i] = steady[i] * (1 - 0.005*float64(i))
		wild[i] = 100 * (1 + 0.2*rng.NormFloat64())
	}
	for _, c := range []struct {
		name    string
		control []float64
		steal   []float64
		stable  bool
	}{
		{"steady", steady, []float64{0, 0.001}, true},
		{"drifting", drifting, nil, false},
		{"wild", wild, nil, false},
		{"stolen", steady, []float64{0, 0.08}, false},
		{"no control", nil, nil, true},
	} {
		v := Judge(c.control, c.steal, Limits{})
		if v.Stable != c.stable || v.Stable == (len(v.Reasons) > 0) {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
	if v := Judge(drifting, nil, Limits{}); math.Abs(v.Drift+0.1) > 0.02 {
		t.Errorf("drift of −9.5 %% measured as %+.1f %%", v.Drift*100)
	}
	// A steady control is called drifting at most 1 % of the time.
	false1 := 0
	for range 1000 {
		x := make([]float64, 12)
		for i := range x {
			x[i] = 100 * (1 + 0.02*rng.NormFloat64())
		}
		if !Judge(x, nil, Limits{}).Stable {
			false1++
		}
	}
	if false1 > 20 {
		t.Errorf("%d of 1,000 steady machines were called unstable", false1)
	}
}
