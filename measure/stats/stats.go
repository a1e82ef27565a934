// Package stats turns repeated measurements into statements that can be checked: means and medians with intervals,
// paired ratios, noise floors, a rule for when to stop, and a judgement whether the machine was steady enough to say
// anything.
//
// Every function is pure and, where it draws random numbers, takes a seed: the same samples give the same answer.
package stats

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/polyplane/polyplane/each"
)

// Levels are the confidence levels that reports carry.
var Levels = []float64{0.90, 0.95, 0.99}

// Interval is a two-sided confidence interval.
type Interval struct {
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Level float64 `json:"level"` // 0.95 for 95 %
}

// Contains tells whether x lies within the interval, ends included.
func (i Interval) Contains(x float64) bool { return i.Low <= x && x <= i.High }

// Width is High − Low.
func (i Interval) Width() float64 { return i.High - i.Low }

// Summary describes one sample.
type Summary struct {
	N      int     `json:"n"`
	Mean   float64 `json:"mean"`
	SD     float64 `json:"sd"` // sample standard deviation (n − 1); 0 when N < 2
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// Summarise computes a Summary. The samples are not changed. An empty sample gives a Summary with N 0.
func Summarise(x []float64) Summary {
	if len(x) == 0 {
		return Summary{}
	}
	mean, m2 := 0.0, 0.0
	for i, v := range x { // Welford: no cancellation for large means with small spreads
		d := v - mean
		mean += d / float64(i+1)
		m2 += d * (v - mean)
	}
	s := Summary{N: len(x), Mean: mean, Min: slices.Min(x), Max: slices.Max(x), Median: Median(x)}
	if len(x) > 1 {
		s.SD = math.Sqrt(m2 / float64(len(x)-1))
	}
	return s
}

// Median is the middle value, or the mean of the two middle ones; NaN for no values.
func Median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Clone(x)
	slices.Sort(s)
	return medianSorted(s)
}

func medianSorted(s []float64) float64 {
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// Quantile is the p-quantile (0 ≤ p ≤ 1) by linear interpolation between order statistics (Hyndman & Fan type 7).
func Quantile(x []float64, p float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Clone(x)
	slices.Sort(s)
	return quantileSorted(s, p)
}

func quantileSorted(s []float64, p float64) float64 {
	h := p * float64(len(s)-1)
	i := int(math.Floor(h))
	if i < 0 {
		return s[0]
	}
	if i >= len(s)-1 {
		return s[len(s)-1]
	}
	return s[i] + (h-float64(i))*(s[i+1]-s[i])
}

// MAD is the median absolute deviation, scaled by 1.4826 so that it estimates the standard deviation of normal samples.
func MAD(x []float64) float64 {
	m := Median(x)
	d := each.Of(x, func(v float64) float64 { return math.Abs(v - m) })
	return 1.4826 * Median(d)
}

// MeanInterval is Student's t interval of the mean. It needs at least two samples.
func (s Summary) MeanInterval(level float64) (Interval, error) {
	if err := checkSample(s.N, 2, level); err != nil {
		return Interval{}, fmt.Errorf("interval of a mean: %w", err)
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(s.N - 1)}.Quantile(1 - (1-level)/2)
	h := t * s.SD / math.Sqrt(float64(s.N))
	return Interval{s.Mean - h, s.Mean + h, level}, nil
}

// DifferenceInterval is Welch's t interval of mean(a) − mean(b) for independent samples of unequal variance. Two sides
// without any spread give an interval of width 0.
func DifferenceInterval(a, b []float64, level float64) (Interval, error) {
	if err := checkSample(min(len(a), len(b)), 2, level); err != nil {
		return Interval{}, fmt.Errorf("interval of a difference of means: %w", err)
	}
	sa, sb := Summarise(a), Summarise(b)
	va, vb := sa.SD*sa.SD/float64(sa.N), sb.SD*sb.SD/float64(sb.N)
	d := sa.Mean - sb.Mean
	if va+vb == 0 {
		return Interval{d, d, level}, nil
	}
	nu := (va + vb) * (va + vb) / (va*va/float64(sa.N-1) + vb*vb/float64(sb.N-1))
	h := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: nu}.Quantile(1-(1-level)/2) * math.Sqrt(va+vb)
	return Interval{d - h, d + h, level}, nil
}

func checkSample(n, least int, level float64) error {
	if !(level > 0 && level < 1) {
		return fmt.Errorf("level %v is not between 0 and 1 (write 0.95 for 95 %%)", level)
	}
	if n < least {
		return fmt.Errorf("%d samples, at least %d are needed for %.4g %%", n, least, level*100)
	}
	return nil
}
