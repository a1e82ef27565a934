// Package search finds the throughput of a device: the highest rate at which it still loses no more than a goal allows.
// Two procedures share one interface: MultipleLossRatio, after MLRsearch (RFC 9971's terms: short trials of which a
// part may exceed the loss ratio, several goals at once, a long confirmation), and RFC2544, the binary search of that
// RFC's section 26.1.
package search

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Device is anything that can be loaded: offer frames at a rate (frames/s) for a while, and say what came through.
type Device interface {
	Trial(ctx context.Context, rate float64, duration time.Duration) (Trial, error)
}

// Trial is what one trial measured.
type Trial struct {
	Rate     float64       `json:"rate"`     // intended, frames/s
	Duration time.Duration `json:"duration"` // intended
	Intended uint64        `json:"intended"` // frames that the rate and duration ask for
	Sent     uint64        `json:"sent"`     // frames the source really offered
	Received uint64        `json:"received"` // frames that came through, each counted once
}

// LossRatio is (lost + not sent) / intended: a source that cannot keep up must not make a device look good.
func (t Trial) LossRatio() float64 {
	all := max(t.Intended, t.Sent)
	if all == 0 {
		return 0
	}
	bad := absDiff(t.Sent, t.Received) + absDiff(t.Intended, t.Sent)
	return float64(min(bad, all)) / float64(all)
}

func absDiff(a, b uint64) uint64 {
	if a > b {
		return a - b
	}
	return b - a
}

// Range bounds the rates of a search, in frames/s.
type Range struct {
	Min, Max float64
}

func (r Range) validate() error {
	if !(r.Min > 0 && r.Max > r.Min) || math.IsInf(r.Max, 0) {
		return fmt.Errorf("rates from %v to %v frames/s: the lower must be above 0 and the upper above the lower",
			r.Min, r.Max)
	}
	return nil
}

// Bounds is what a search found: the device holds the goal at Lower, and not at Upper. Lower is 0 when not even the
// smallest rate held; Upper is 0 when the largest rate still held.
type Bounds struct {
	Lower float64 `json:"lower"`
	Upper float64 `json:"upper"`
}

// within tells whether the bounds are closer together than the relative width.
func (b Bounds) within(width float64) bool {
	return b.Lower > 0 && b.Upper > 0 && b.Upper-b.Lower <= width*b.Upper*(1+1e-9)
}
