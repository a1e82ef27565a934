package hist

import (
	"math/big"
)

// Variation follows the delay variation of one stream: RFC 3393 (the one-way delay of a packet less that of the packet
// before it, in order of arrival) and RFC 3550 (the smoothed jitter that RTP receivers report). The zero value is
// ready.
type Variation struct {
	Abs     Histogram // of |IPDV|
	Longer  uint64    // packets that were delayed more than the one before
	Shorter uint64    // … and less
	Sum     int64     // of the signed IPDV, ns
	Jitter  uint64    // RFC 3550 J, in 1/16 ns: the scaled integer form of its appendix A.8
	MaxJ    uint64    // largest J so far, in 1/16 ns
	last    int64     // one-way delay of the newest packet
	started bool
}

// Add takes the one-way delay, in ns, of the next packet. Clocks may be apart: only differences count.
func (v *Variation) Add(delay int64) {
	if !v.started {
		v.last, v.started = delay, true
		return
	}
	d := delay - v.last
	v.last = delay
	v.Sum += d
	abs := uint64(d)
	switch {
	case d > 0:
		v.Longer++
	case d < 0:
		v.Shorter++
		abs = uint64(-d)
	}
	v.Abs.Add(abs)
	v.Jitter += abs - (v.Jitter+8)>>4
	v.MaxJ = max(v.MaxJ, v.Jitter)
}

// Merge adds the counts of another queue's Variation of the same stream; the jitter is that of whoever saw more
// packets.
func (v *Variation) Merge(o Variation) {
	if o.Abs.Count > v.Abs.Count {
		v.Jitter = o.Jitter
	}
	v.Abs.Merge(&o.Abs)
	v.Sum += o.Sum
	v.Longer += o.Longer
	v.Shorter += o.Shorter
	v.MaxJ = max(v.MaxJ, o.MaxJ)
}

// VariationDigest is a Variation in the figures that people read, in nanoseconds.
type VariationDigest struct {
	Abs       Digest  `json:"abs_ipdv"`  // distribution of |IPDV|
	Mean      float64 `json:"mean_ns"`   // mean of the signed IPDV
	SD        float64 `json:"sd_ns"`     // standard deviation of the signed IPDV
	Longer    uint64  `json:"longer"`    // packets delayed more than the one before
	Shorter   uint64  `json:"shorter"`   // … and less
	Jitter    float64 `json:"jitter_ns"` // RFC 3550 J at the end
	MaxJitter float64 `json:"max_jitter_ns"`
}

// Digest computes the figures.
func (v *Variation) Digest() VariationDigest {
	d := VariationDigest{Abs: v.Abs.Digest(), Longer: v.Longer, Shorter: v.Shorter,
		Jitter: float64(v.Jitter) / 16, MaxJitter: float64(v.MaxJ) / 16}
	if v.Abs.Count > 0 {
		d.Mean = float64(v.Sum) / float64(v.Abs.Count)
		d.SD = deviation(v.Abs.Count, big.NewInt(v.Sum), v.Abs.SquareL, v.Abs.SquareH)
	}
	return d
}
