package stats

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// StopRule says when repeating a measurement may end: as soon as the interval of the mean is as narrow as wanted. It is
// Stein's two-stage rule (1945): the spread of the first Pilot samples alone decides how many are needed in all, and
// the interval is built from that same spread. Looking after every sample and stopping at the first narrow interval
// would favour moments when the spread happens to look small: a "95 %" interval then covers less than 93 %.
type StopRule struct {
	Level float64 // e.g. 0.95
	Width float64 // half the interval's width relative to the mean, e.g. 0.01 for ± 1 %
	Pilot int     // at least 5; fewer samples guess the spread too badly, and then many more are needed
	Max   int     // end here even when the interval is wider than wanted
}

// Validate names what is wrong with a rule.
func (r StopRule) Validate() error {
	switch {
	case !(r.Level > 0 && r.Level < 1):
		return fmt.Errorf("stop rule: level %v is not between 0 and 1", r.Level)
	case !(r.Width > 0):
		return fmt.Errorf("stop rule: width %v must be above 0", r.Width)
	case r.Pilot < 5 || r.Max < r.Pilot:
		return fmt.Errorf("stop rule: a pilot of %d and %d repetitions at most; the pilot is at least 5, and no more "+
			"than the most", r.Pilot, r.Max)
	}
	return nil
}

// Needed is how many samples the rule asks for in all, given at least Pilot samples.
func (r StopRule) Needed(x []float64) int {
	if len(x) < r.Pilot {
		return r.Pilot
	}
	s := Summarise(x[:r.Pilot])
	h := r.quantile() * s.SD / (r.Width * math.Abs(s.Mean))
	if !(h*h < float64(r.Max)) { // also when the mean is zero
		return r.Max
	}
	return max(r.Pilot, int(math.Ceil(h*h)))
}

// Enough tells whether the samples so far suffice.
func (r StopRule) Enough(x []float64) bool { return len(x) >= r.Needed(x) && len(x) >= r.Pilot }

// Interval is the interval of the mean of samples that were collected under the rule.
func (r StopRule) Interval(x []float64) (Interval, error) {
	if err := checkSample(len(x), r.Pilot, r.Level); err != nil {
		return Interval{}, fmt.Errorf("interval under a stop rule: %w", err)
	}
	h := r.quantile() * Summarise(x[:r.Pilot]).SD / math.Sqrt(float64(len(x)))
	mean := Summarise(x).Mean
	return Interval{mean - h, mean + h, r.Level}, nil
}

func (r StopRule) quantile() float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(r.Pilot - 1)}.Quantile(1 - (1-r.Level)/2)
}

// Limits are the bounds of a steady machine. The zero value means DefaultLimits.
type Limits struct {
	Steal  float64 // share of a trial's CPU time stolen by the hypervisor
	Spread float64 // MAD / median of the repeated control
	Drift  float64 // relative change of the control over the run
}

// DefaultLimits: 2 % steal, 5 % spread, 3 % drift.
var DefaultLimits = Limits{Steal: 0.02, Spread: 0.05, Drift: 0.03}

// Verdict says whether a machine was steady, and if not, why, in words.
type Verdict struct {
	Stable  bool     `json:"stable"`
	Reasons []string `json:"reasons,omitempty"`
	Steal   float64  `json:"steal"`  // largest of the given shares
	Spread  float64  `json:"spread"` // MAD / median of the control
	Drift   float64  `json:"drift"`  // robust (Theil–Sen) change of the control over the run, relative to its median
	DriftP  float64  `json:"drift_p"`
}

// Judge looks at a control measured again and again during the run, in order, and at the share of CPU time stolen
// during each trial. Drift counts when it is larger than the limit and a Mann–Kendall trend test finds it at 1 %.
func Judge(control, steal []float64, l Limits) Verdict {
	if l == (Limits{}) {
		l = DefaultLimits
	}
	v := Verdict{DriftP: 1}
	for _, s := range steal {
		v.Steal = max(v.Steal, s)
	}
	if v.Steal > l.Steal {
		v.Reasons = append(v.Reasons,
			fmt.Sprintf("%.1f %% of the CPU time of a trial was stolen by the hypervisor (limit %.1f %%)",
				v.Steal*100, l.Steal*100))
	}
	if m := Median(control); len(control) >= 4 && m != 0 {
		v.Spread = MAD(control) / math.Abs(m)
		if v.Spread > l.Spread {
			v.Reasons = append(v.Reasons, fmt.Sprintf("the control varies by %.1f %% (limit %.1f %%)",
				v.Spread*100, l.Spread*100))
		}
		v.Drift = theilSen(control) * float64(len(control)-1) / math.Abs(m)
		v.DriftP = mannKendall(control)
		if math.Abs(v.Drift) > l.Drift && v.DriftP < 0.01 {
			v.Reasons = append(v.Reasons, fmt.Sprintf("the control drifted by %+.1f %% during the run (limit %.1f %%)",
				v.Drift*100, l.Drift*100))
		}
	}
	v.Stable = len(v.Reasons) == 0
	return v
}

// theilSen is the median slope between all pairs of points, per step.
func theilSen(x []float64) float64 {
	slopes := make([]float64, 0, len(x)*(len(x)-1)/2)
	for i := range x {
		for j := i + 1; j < len(x); j++ {
			slopes = append(slopes, (x[j]-x[i])/float64(j-i))
		}
	}
	return Median(slopes)
}

// mannKendall is the two-sided p value of a monotonic trend (normal approximation with continuity correction; the
// variance is corrected for ties).
func mannKendall(x []float64) float64 {
	n := float64(len(x))
	s := 0.0
	ties := map[float64]float64{}
	for i := range x {
		ties[x[i]]++
		for j := i + 1; j < len(x); j++ {
			switch {
			case x[j] > x[i]:
				s++
			case x[j] < x[i]:
				s--
			}
		}
	}
	variance := n * (n - 1) * (2*n + 5)
	for _, t := range ties {
		variance -= t * (t - 1) * (2*t + 5)
	}
	variance /= 18
	if variance <= 0 || s == 0 {
		return 1
	}
	z := (math.Abs(s) - 1) / math.Sqrt(variance)
	return 2 * (1 - distuv.UnitNormal.CDF(z))
}
