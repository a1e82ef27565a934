package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// MLROptions are the parameters of MultipleLossRatio.
type MLROptions struct {
	Range   Range
	Goals   []Goal
	Confirm time.Duration // one long trial at each goal's lower bound when the search is over; 0: none
	Limit   time.Duration // give up after this much trial time; 0: 20 minutes
}

// GoalResult is what the search found for one goal.
type GoalResult struct {
	Goal   Goal   `json:"goal"`
	Bounds Bounds `json:"bounds"`
	// conditional throughput: Lower × (1 − the loss ratio that stands for it)
	Throughput float64 `json:"throughput"`
	Confirm    *Trial  `json:"confirm,omitempty"` // the long trial at Lower
	Confirmed  bool    `json:"confirmed"`         // it held the goal's loss ratio; false when none was asked for
}

// MLRResult is the outcome of a whole search.
type MLRResult struct {
	Goals  []GoalResult `json:"goals"`
	Trials []Trial      `json:"trials"` // every trial, in order, confirmations excluded
}

// ErrLimit says that a search ran out of its time before its bounds were close enough.
var ErrLimit = errors.New("the search ran out of time")

// precedingTargets is how many coarser steps lead to a goal.
const precedingTargets = 2

// MultipleLossRatio searches for all goals at once: every trial counts for every goal. It starts from what the device
// forwards when overloaded, brackets each step's bounds, and bisects.
func MultipleLossRatio(ctx context.Context, d Device, o MLROptions) (MLRResult, error) {
	if err := o.Range.validate(); err != nil {
		return MLRResult{}, fmt.Errorf("throughput search: %w", err)
	}
	if len(o.Goals) == 0 {
		return MLRResult{}, errors.New("throughput search: no goal given, e.g. NDR")
	}
	for _, g := range o.Goals {
		if err := g.validate(); err != nil {
			return MLRResult{}, fmt.Errorf("throughput search: %w", err)
		}
	}
	o.Limit = cmp.Or(o.Limit, 20*time.Minute)
	s := &searcher{ctx: ctx, device: d, o: o, at: map[float64][]Trial{}}
	if err := s.overload(); err != nil {
		return s.result(), err
	}
	// Goals with long trials go first: their trials count for the goals with short ones, but not the other way round.
	order := slices.Clone(o.Goals)
	slices.SortStableFunc(order, func(a, b Goal) int { return cmp.Compare(b.FinalTrial, a.FinalTrial) })
	coarse := make([]Bounds, len(order))
	for step := 0; step <= precedingTargets; step++ {
		for i, g := range order {
			t := g.targets(precedingTargets)[step]
			if err := s.reach(t, coarse[i]); err != nil {
				return s.result(), err
			}
			coarse[i] = s.bounds(t)
		}
	}
	res := s.result()
	if o.Confirm > 0 {
		for i := range res.Goals {
			if err := s.confirm(&res.Goals[i]); err != nil {
				return res, err
			}
		}
	}
	return res, nil
}

type searcher struct {
	ctx    context.Context
	device Device
	o      MLROptions
	trials []Trial
	at     map[float64][]Trial
	spent  time.Duration
	guess  float64 // where the first bracket starts
}

// measure runs one trial and keeps it for all goals.
func (s *searcher) measure(rate, seconds float64) (Trial, error) {
	if s.spent > s.o.Limit {
		return Trial{}, fmt.Errorf("throughput search: %w after %v of trials", ErrLimit, s.spent)
	}
	duration := time.Duration(math.Round(seconds * 1e9))
	t, err := s.device.Trial(s.ctx, rate, duration)
	if err != nil {
		return t, fmt.Errorf("throughput search: trial at %.0f frames/s: %w", rate, err)
	}
	t.Rate, t.Duration = rate, duration
	s.spent += duration
	s.trials = append(s.trials, t)
	s.at[rate] = append(s.at[rate], t)
	return t, nil
}

// overload offers the largest rate, and then what came through of it.
func (s *searcher) overload() error {
	first := s.o.Goals[0].InitialTrial.Seconds()
	rate := s.o.Range.Max
	for range 2 {
		t, err := s.measure(rate, first)
		if err != nil {
			return err
		}
		rate = max(rate*(1-t.LossRatio()), s.o.Range.Min)
		s.guess = rate
		if t.LossRatio() == 0 {
			break
		}
	}
	return nil
}

// bounds are the tightest ones that the trials so far allow: the smallest upper bound, and the largest lower bound
// below it, so that a lucky trial above a failed rate counts for nothing.
func (s *searcher) bounds(t target) Bounds {
	var b Bounds
	for rate, trials := range s.at {
		if t.classify(trials) == upperBound && (b.Upper == 0 || rate < b.Upper) {
			b.Upper = rate
		}
	}
	for rate, trials := range s.at {
		if (b.Upper == 0 || rate < b.Upper) && rate > b.Lower && t.classify(trials) == lowerBound {
			b.Lower = rate
		}
	}
	return b
}

// decide repeats trials at a rate until it is a bound for the target.
func (s *searcher) decide(rate float64, t target) (class, error) {
	for {
		if c := t.classify(s.at[rate]); c != undecided {
			return c, nil
		}
		if _, err := s.measure(rate, t.trial); err != nil {
			return undecided, err
		}
	}
}

// reach brings the bounds of one target close enough together; coarse are the bounds of the step before it.
func (s *searcher) reach(t target, coarse Bounds) error {
	step := t.width
	for {
		next, done := s.next(s.bounds(t), coarse, t, &step)
		if done {
			return nil
		}
		c, err := s.decide(next, t)
		if err != nil {
			return err
		}
		if c == lowerBound {
			s.guess = next
		}
	}
}

// next picks the rate to decide: as long as a bound is missing, the one that the coarser step had, then further out by
// steps that double; once there are two, between them.
func (s *searcher) next(b, coarse Bounds, t target, step *float64) (rate float64, done bool) {
	lo, hi := s.o.Range.Min, s.o.Range.Max
	hopeless := coarse.Lower == 0 && coarse.Upper > 0 // not even the smallest rate held
	switch {
	case b.Lower == 0 && b.Upper == 0:
		switch {
		case hopeless:
			return lo, false
		case coarse.Lower > 0:
			return coarse.Lower, false
		}
		return min(max(s.guess, lo), hi), false
	case b.Upper == 0:
		if b.Lower >= hi {
			return 0, true
		}
		if coarse.Upper > b.Lower {
			return coarse.Upper, false
		}
		rate = b.Lower / (1 - *step)
		*step = min(2**step, 0.5)
		return min(rate, hi), false
	case b.Lower == 0:
		switch {
		case b.Upper <= lo:
			return 0, true
		case hopeless:
			return lo, false
		case coarse.Lower > 0 && coarse.Lower < b.Upper:
			return coarse.Lower, false
		}
		rate = b.Upper * (1 - *step)
		*step = min(2**step, 0.5)
		return max(rate, lo), false
	case b.within(t.width):
		return 0, true
	}
	return math.Sqrt(b.Lower * b.Upper), false
}

func (s *searcher) result() MLRResult {
	res := MLRResult{Trials: s.trials}
	for _, g := range s.o.Goals {
		final := g.targets(0)[0]
		b := s.bounds(final)
		r := GoalResult{Goal: g, Bounds: b}
		if b.Lower > 0 {
			r.Throughput = b.Lower * (1 - final.conditionalLoss(s.at[b.Lower]))
		}
		res.Goals = append(res.Goals, r)
	}
	return res
}

// confirm runs the long trial; it decides nothing, it tells.
func (s *searcher) confirm(r *GoalResult) error {
	if r.Bounds.Lower == 0 {
		return nil
	}
	t, err := s.device.Trial(s.ctx, r.Bounds.Lower, s.o.Confirm)
	if err != nil {
		return fmt.Errorf("throughput search: confirmation of %s at %.0f frames/s: %w", r.Goal.Name,
			r.Bounds.Lower, err)
	}
	r.Confirm, r.Confirmed = &t, t.LossRatio() <= r.Goal.LossRatio
	return nil
}
