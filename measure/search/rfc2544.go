package search

import (
	"context"
	"fmt"
	"math"
	"time"
)

// RFC2544Options are the parameters of the classic search.
type RFC2544Options struct {
	Range    Range
	Duration time.Duration // of every trial; the RFC says at least 60 s
	Width    float64       // relative width at which to stop, e.g. 0.005
}

// RFC2544Result is the throughput in the sense of RFC 2544, section 26.1 (RFC 1242, section 3.17): the fastest rate at
// which the count of frames received equals the count sent.
type RFC2544Result struct {
	Throughput float64 `json:"throughput"` // = Bounds.Lower; 0 when every rate lost frames
	Bounds     Bounds  `json:"bounds"`
	Trials     []Trial `json:"trials"`
	Short      bool    `json:"short,omitempty"` // trials were shorter than the 60 s the RFC wants
}

// RFC2544 bisects between the smallest and the largest rate until the bounds are close enough; a single lost frame
// fails a rate for good.
func RFC2544(ctx context.Context, d Device, o RFC2544Options) (RFC2544Result, error) {
	if err := o.Range.validate(); err != nil {
		return RFC2544Result{}, fmt.Errorf("RFC 2544 search: %w", err)
	}
	if o.Duration <= 0 || !(o.Width > 0 && o.Width < 1) {
		return RFC2544Result{}, fmt.Errorf("RFC 2544 search: trials of %v and a width of %v; durations are above 0 "+
			"and widths within 0…1", o.Duration, o.Width)
	}
	res := RFC2544Result{Short: o.Duration < 60*time.Second}
	holds := func(rate float64) (bool, error) {
		t, err := d.Trial(ctx, rate, o.Duration)
		if err != nil {
			return false, fmt.Errorf("RFC 2544 search: trial at %.0f frames/s: %w", rate, err)
		}
		res.Trials = append(res.Trials, t)
		if t.LossRatio() == 0 {
			res.Bounds.Lower = max(res.Bounds.Lower, rate)
			return true, nil
		}
		res.Bounds.Upper = rate
		return false, nil
	}
	ok, err := holds(o.Range.Max)
	if ok || err != nil {
		res.Throughput = res.Bounds.Lower
		return res, err
	}
	low := o.Range.Min
	for !(Bounds{low, res.Bounds.Upper}).within(o.Width) {
		rate := math.Sqrt(low * res.Bounds.Upper)
		ok, err := holds(rate)
		if err != nil {
			return res, err
		}
		if ok {
			low = rate
		}
	}
	if res.Bounds.Lower == 0 { // the smallest rate itself was only assumed so far
		if _, err := holds(low); err != nil {
			return res, err
		}
	}
	res.Throughput = res.Bounds.Lower
	return res, nil
}
