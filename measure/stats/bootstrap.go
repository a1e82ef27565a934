package stats

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Method is how a bootstrap turns resampled statistics into an interval.
type Method string

const (
	// Percentile takes the quantiles of the resampled statistic as they are.
	Percentile Method = "percentile"
	// BCa corrects for bias and skew (Efron 1987); it wants a smooth statistic such as a mean, not a median.
	BCa Method = "bca"
)

// BootstrapOptions says how to resample. The zero value is usable: percentile, 95 %, 4,000 resamples, seed 0.
type BootstrapOptions struct {
	Level     float64
	Resamples int // at least 200
	Method    Method
	Seed      uint64
}

func (o BootstrapOptions) orDefault() BootstrapOptions {
	o.Level = cmp.Or(o.Level, 0.95)
	o.Resamples = cmp.Or(o.Resamples, 4000)
	o.Method = cmp.Or(o.Method, Percentile)
	return o
}

// Bootstrap is the interval of any statistic of one sample. The statistic gets a slice that it may reorder.
func Bootstrap(x []float64, statistic func([]float64) float64, o BootstrapOptions) (Interval, error) {
	o = o.orDefault()
	if err := checkSample(len(x), 3, o.Level); err != nil {
		return Interval{}, fmt.Errorf("bootstrap: %w", err)
	}
	if o.Resamples < 200 {
		return Interval{}, fmt.Errorf("bootstrap: %d resamples, at least 200 are needed", o.Resamples)
	}
	if o.Method != Percentile && o.Method != BCa {
		return Interval{}, fmt.Errorf("bootstrap: unknown method %q, known are %q and %q", o.Method, Percentile, BCa)
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x706f6c79706c616e))
	reps := make([]float64, o.Resamples)
	buf := make([]float64, len(x))
	for r := range reps {
		for i := range buf {
			buf[i] = x[rng.IntN(len(x))]
		}
		reps[r] = statistic(buf)
	}
	slices.Sort(reps)
	lo := expanded((1-o.Level)/2, len(x))
	hi := 1 - lo
	if o.Method == BCa {
		lo, hi = bcaQuantiles(x, statistic, reps, lo, hi)
	}
	return Interval{quantileSorted(reps, lo), quantileSorted(reps, hi), o.Level}, nil
}

// expanded is the tail to cut so that small samples cover what they claim: resampling n values from n underestimates
// the spread by √((n−1)/n) and knows nothing of Student's tails (Hesterberg 2015, "expanded percentile").
func expanded(tail float64, n int) float64 {
	f := float64(n)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: f - 1}.Quantile(tail)
	return distuv.UnitNormal.CDF(math.Sqrt(f/(f-1)) * t)
}

// bcaQuantiles moves the two quantiles by the bias correction z0 and the acceleration a (by the jackknife).
func bcaQuantiles(x []float64, statistic func([]float64) float64, reps []float64, lo, hi float64) (float64, float64) {
	norm := distuv.UnitNormal
	theta := statistic(slices.Clone(x))
	below := 0.0
	for _, r := range reps {
		switch {
		case r < theta:
			below++
		case r == theta:
			below += 0.5
		}
	}
	p := min(max(below/float64(len(reps)), 0.5/float64(len(reps))), 1-0.5/float64(len(reps)))
	z0 := norm.Quantile(p)
	jack := make([]float64, len(x))
	buf := make([]float64, 0, len(x))
	mean := 0.0
	for i := range x {
		buf = append(append(buf[:0], x[:i]...), x[i+1:]...)
		jack[i] = statistic(buf)
		mean += jack[i] / float64(len(x))
	}
	num, den := 0.0, 0.0
	for _, j := range jack {
		d := mean - j
		num += d * d * d
		den += d * d
	}
	a := 0.0
	if den > 0 {
		a = num / (6 * math.Pow(den, 1.5))
	}
	shift := func(q float64) float64 {
		z := norm.Quantile(q)
		return norm.CDF(z0 + (z0+z)/(1-a*(z0+z)))
	}
	return shift(lo), shift(hi)
}

// Ratio compares two systems that were measured in pairs, in the same blocks.
type Ratio struct {
	N        int      `json:"n"`
	Median   float64  `json:"median"` // of b[i] / a[i]
	Interval Interval `json:"interval"`
}

// PairedRatio is the median of b[i]/a[i] with a bootstrap interval. Pairs keep what a block had in common (a slow
// minute hits both), which comparing two medians would throw away. Ratios are resampled as logarithms, so that b/a and
// a/b give the same statement.
func PairedRatio(a, b []float64, o BootstrapOptions) (Ratio, error) {
	if len(a) != len(b) {
		return Ratio{}, fmt.Errorf("paired ratio: %d values against %d, pairs need as many of each", len(a), len(b))
	}
	logs := make([]float64, len(a))
	for i := range a {
		if !(a[i] > 0 && b[i] > 0) {
			return Ratio{}, fmt.Errorf("paired ratio: pair %d is %v and %v, ratios need positive values", i+1, a[i],
				b[i])
		}
		logs[i] = math.Log(b[i] / a[i])
	}
	iv, err := Bootstrap(logs, medianInPlace, o)
	if err != nil {
		return Ratio{}, fmt.Errorf("paired ratio: %w", err)
	}
	return Ratio{
		N:        len(a),
		Median:   math.Exp(Median(logs)),
		Interval: Interval{math.Exp(iv.Low), math.Exp(iv.High), iv.Level},
	}, nil
}

func medianInPlace(x []float64) float64 {
	slices.Sort(x)
	return medianSorted(x)
}

// Noise is what two runs of the *same* system differed by: nothing smaller can be called a difference.
type Noise struct {
	Ratio Ratio   `json:"ratio"`
	Floor float64 `json:"floor"` // the largest |ratio − 1| that the A/A interval holds
}

// NoiseFloor is PairedRatio of a system with itself (an A/A run).
func NoiseFloor(first, second []float64, o BootstrapOptions) (Noise, error) {
	r, err := PairedRatio(first, second, o)
	if err != nil {
		return Noise{}, fmt.Errorf("noise floor: %w", err)
	}
	return Noise{r, max(math.Abs(r.Interval.Low-1), math.Abs(r.Interval.High-1))}, nil
}

// Differs tells whether a ratio is a real difference: its interval excludes 1, and its median is further from 1 than
// the noise floor.
func (n Noise) Differs(r Ratio) bool {
	return !r.Interval.Contains(1) && math.Abs(r.Median-1) > n.Floor
}
