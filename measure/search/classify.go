package search

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Goal is what a rate has to hold, and how surely that must be known (the terms are those of MLRsearch).
type Goal struct {
	Name      string  `json:"name"`       // "NDR", "PDR", …
	LossRatio float64 `json:"loss_ratio"` // a trial that loses more is a bad one
	// share of the trials' time that may be bad; 0.5 for "half of them"
	ExceedRatio  float64       `json:"exceed_ratio"`
	Width        float64       `json:"width"`         // relative width of the bounds
	InitialTrial time.Duration `json:"initial_trial"` // of the first, coarse trials
	FinalTrial   time.Duration `json:"final_trial"`   // trials at least this long decide
	Sum          time.Duration `json:"sum"`           // time of deciding trials that a rate needs
}

// NDR and PDR are the two goals that FD.io's CSIT reports: no loss, and at most 0.5 %; half of the 1 s trials may
// exceed, and a rate is decided by 21 s of them.
var (
	NDR = Goal{"NDR", 0, 0.5, 0.005, time.Second, time.Second, 21 * time.Second}
	PDR = Goal{"PDR", 0.005, 0.5, 0.005, time.Second, time.Second, 21 * time.Second}
)

func (g Goal) validate() error {
	switch {
	case !(g.LossRatio >= 0 && g.LossRatio < 1):
		return fmt.Errorf("goal %q: loss ratio %v is not within 0…1", g.Name, g.LossRatio)
	case !(g.ExceedRatio >= 0 && g.ExceedRatio < 1):
		return fmt.Errorf("goal %q: exceed ratio %v is not within 0…1", g.Name, g.ExceedRatio)
	case !(g.Width > 0 && g.Width < 1):
		return fmt.Errorf("goal %q: width %v is not within 0…1", g.Name, g.Width)
	case g.InitialTrial <= 0 || g.FinalTrial < g.InitialTrial || g.Sum < g.FinalTrial:
		return fmt.Errorf("goal %q: durations %v, %v, %v; they must be above 0 and not decrease (first trial, last "+
			"trial, sum)", g.Name, g.InitialTrial, g.FinalTrial, g.Sum)
	}
	return nil
}

// target is one step towards a goal: the goal itself, or a coarser and quicker one before it.
type target struct {
	loss, exceed, width float64
	trial, sum          float64 // seconds
}

// targets lists the steps of a goal, coarse first: each halves the width, and their durations grow geometrically.
func (g Goal) targets(steps int) []target {
	out := make([]target, 0, steps+1)
	for k := steps; k >= 0; k-- {
		f := 1.0
		if steps > 0 {
			f = float64(steps-k) / float64(steps)
		}
		grow := func(from, to time.Duration) float64 {
			return from.Seconds() * math.Pow(to.Seconds()/from.Seconds(), f)
		}
		out = append(out, target{
			loss: g.LossRatio, exceed: g.ExceedRatio,
			width: 1 - math.Pow(1-g.Width, math.Pow(2, float64(k))),
			trial: grow(g.InitialTrial, g.FinalTrial),
			sum:   grow(g.InitialTrial, g.Sum),
		})
	}
	return out
}

// class is what the trials at one rate have shown for a target.
type class int

const (
	undecided class = iota // more trials could make it either bound
	lowerBound
	upperBound
)

// classify decides what the trials at one rate mean for a target. It calls the rate a bound as soon as no further trial
// could change that. Bad short trials count only as far as there are more of them than the good short ones excuse.
func (t target) classify(trials []Trial) class {
	var goodLong, badLong, goodShort, badShort float64
	for _, r := range trials {
		d := r.Duration.Seconds()
		long, bad := d >= t.trial*(1-1e-9), r.LossRatio() > t.loss
		switch {
		case long && bad:
			badLong += d
		case long:
			goodLong += d
		case bad:
			badShort += d
		default:
			goodShort += d
		}
	}
	excess := badLong + max(0, badShort-goodShort*t.exceed/(1-t.exceed))
	sum := max(goodLong+excess, t.sum)
	allowed := sum * (t.exceed + 1e-9) // durations are whole nanoseconds: trials may fall short of a sum by a few
	switch optimistic, pessimistic := excess <= allowed, sum-goodLong <= allowed; {
	case pessimistic:
		return lowerBound
	case !optimistic:
		return upperBound
	}
	return undecided
}

// conditionalLoss is the loss ratio that stands for a rate: the quantile of the long trials that the exceed ratio
// points at, with time not yet spent counted as total loss.
func (t target) conditionalLoss(trials []Trial) float64 {
	var long []Trial
	total := 0.0
	for _, r := range trials {
		if r.Duration.Seconds() >= t.trial*(1-1e-9) {
			long = append(long, r)
			total += r.Duration.Seconds()
		}
	}
	slices.SortFunc(long, func(a, b Trial) int {
		switch {
		case a.LossRatio() < b.LossRatio():
			return -1
		case a.LossRatio() > b.LossRatio():
			return 1
		}
		return 0
	})
	remaining := max(t.sum, total) * (1 - t.exceed)
	for _, r := range long {
		if remaining -= r.Duration.Seconds(); remaining <= 1e-9 {
			return r.LossRatio()
		}
	}
	return 1
}
