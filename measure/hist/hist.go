// Package hist is a log-linear histogram of durations in nanoseconds, in the manner of HdrHistogram, and the two
// measures of delay variation that the RFCs define. The eBPF sink keeps the same buckets in the kernel
// (measure/sink/bpf/hist.h); what it counted is loaded here with Load.
package hist

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"time"
)

// The layout, shared with the eBPF programs: values below 128 have a bucket each, every power of two above has 128. A
// bucket is at most 1/128 of its values wide; quantiles are the middle of one, so they are off by at most 0.4 %.
const (
	SubBits = 7
	// values from 2³⁶ ns (68.7 s) up are counted in the last bucket and in Over
	MaxBits = 36
	Buckets = (MaxBits - SubBits + 1) << SubBits // 3,840
)

// Index is the bucket of a value.
func Index(v uint64) int {
	if v < 1<<SubBits {
		return int(v)
	}
	if v >= 1<<MaxBits {
		return Buckets - 1
	}
	shift := bits.Len64(v) - 1 - SubBits
	return shift<<SubBits + int(v>>shift)
}

// Bounds gives the smallest and the largest value of a bucket.
func Bounds(i int) (low, high uint64) {
	if i < 2<<SubBits {
		return uint64(i), uint64(i)
	}
	shift := i>>SubBits - 1
	low = uint64(i-shift<<SubBits) << shift
	return low, low + 1<<shift - 1
}

// Sums are what a histogram keeps besides its buckets, all of it exact.
type Sums struct {
	Count   uint64 // values
	Over    uint64 // of these, 2³⁶ ns and more
	Min     uint64 // meaningless when Count is 0
	Max     uint64
	Sum     uint64
	SquareL uint64 // sum of squares, low and high half
	SquareH uint64
}

// Histogram counts durations in nanoseconds. The zero value is an empty one. It is not safe for concurrent use.
type Histogram struct {
	Sums
	counts []uint64
}

// Load makes a histogram of buckets and sums that were counted elsewhere; it keeps the slice. It refuses buckets that
// do not add up to the count, because then one of the two is wrong.
func Load(s Sums, counts []uint64) (*Histogram, error) {
	if len(counts) != Buckets {
		return nil, fmt.Errorf("load a histogram: %d buckets, the layout has %d", len(counts), Buckets)
	}
	total := uint64(0)
	for _, c := range counts {
		total += c
	}
	if total != s.Count {
		return nil, fmt.Errorf("load a histogram: its buckets hold %d values, its count says %d", total, s.Count)
	}
	return &Histogram{Sums: s, counts: counts}, nil
}

// Add counts one value.
func (h *Histogram) Add(v uint64) {
	if h.counts == nil {
		h.counts = make([]uint64, Buckets)
	}
	h.counts[Index(v)]++
	if v >= 1<<MaxBits {
		h.Over++
	}
	if h.Count == 0 || v < h.Min {
		h.Min = v
	}
	h.Max = max(h.Max, v)
	h.Count++
	h.Sum += v
	hi, lo := bits.Mul64(v, v)
	var carry uint64
	h.SquareL, carry = bits.Add64(h.SquareL, lo, 0)
	h.SquareH, _ = bits.Add64(h.SquareH, hi, carry)
}

// Merge adds everything that o counted.
func (h *Histogram) Merge(o *Histogram) {
	if o == nil || o.Count == 0 {
		return
	}
	if h.counts == nil {
		h.counts = make([]uint64, Buckets)
	}
	for i, c := range o.counts {
		h.counts[i] += c
	}
	if h.Count == 0 || o.Min < h.Min {
		h.Min = o.Min
	}
	h.Max = max(h.Max, o.Max)
	h.Count += o.Count
	h.Over += o.Over
	h.Sum += o.Sum
	var carry uint64
	h.SquareL, carry = bits.Add64(h.SquareL, o.SquareL, 0)
	h.SquareH, _ = bits.Add64(h.SquareH, o.SquareH, carry)
}

// Mean in nanoseconds; 0 for no values.
func (h *Histogram) Mean() float64 {
	if h.Count == 0 {
		return 0
	}
	return float64(h.Sum) / float64(h.Count)
}

// SD is the sample standard deviation in nanoseconds, from the exact sums; 0 for fewer than two values.
func (h *Histogram) SD() float64 {
	return deviation(h.Count, new(big.Int).SetUint64(h.Sum), h.SquareL, h.SquareH)
}

// deviation is √((Σx² − (Σx)²/n)/(n−1)), in integers until the last division: the two terms cancel almost entirely.
func deviation(n uint64, sum *big.Int, low, high uint64) float64 {
	if n < 2 {
		return 0
	}
	count := new(big.Int).SetUint64(n)
	squares := new(big.Int).Or(new(big.Int).Lsh(new(big.Int).SetUint64(high), 64), new(big.Int).SetUint64(low))
	num := squares.Mul(squares, count)
	num.Sub(num, new(big.Int).Mul(sum, sum))
	f, _ := new(big.Float).Quo(new(big.Float).SetInt(num),
		new(big.Float).SetInt(new(big.Int).Mul(count, new(big.Int).SetUint64(n-1)))).Float64()
	return math.Sqrt(max(f, 0))
}

// Quantile is the smallest value that at least the share p of all values does not exceed (nearest rank), to within half
// a bucket; p is within 0…1. The ends are the exact minimum and maximum.
func (h *Histogram) Quantile(p float64) uint64 {
	if h.Count == 0 {
		return 0
	}
	rank := uint64(math.Ceil(p * float64(h.Count)))
	if rank <= 1 {
		return h.Min
	}
	if rank >= h.Count {
		return h.Max
	}
	seen := uint64(0)
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			low, high := Bounds(i)
			if i == Buckets-1 {
				high = h.Max
			}
			return min(max(low+(high-low)/2, h.Min), h.Max)
		}
	}
	return h.Max
}

// Percentiles are the ones that a Digest carries.
var Percentiles = []float64{0.50, 0.75, 0.90, 0.99, 0.999, 0.9999}

// Digest is a histogram in the few figures that people read, in nanoseconds.
type Digest struct {
	Count uint64  `json:"count"`
	Min   uint64  `json:"min_ns"`
	P50   uint64  `json:"p50_ns"`
	P75   uint64  `json:"p75_ns"`
	P90   uint64  `json:"p90_ns"`
	P99   uint64  `json:"p99_ns"`
	P999  uint64  `json:"p999_ns"`
	P9999 uint64  `json:"p9999_ns"`
	Max   uint64  `json:"max_ns"`
	Mean  float64 `json:"mean_ns"`
	SD    float64 `json:"sd_ns"`
	Over  uint64  `json:"over,omitempty"` // values beyond the histogram's range
}

// Digest computes the figures.
func (h *Histogram) Digest() Digest {
	d := Digest{Count: h.Count, Mean: h.Mean(), SD: h.SD(), Over: h.Over}
	if h.Count == 0 {
		return d
	}
	d.Min, d.Max = h.Min, h.Max
	for i, at := range []*uint64{&d.P50, &d.P75, &d.P90, &d.P99, &d.P999, &d.P9999} {
		*at = h.Quantile(Percentiles[i])
	}
	return d
}

// String is one line for people.
func (d Digest) String() string {
	if d.Count == 0 {
		return "no values"
	}
	return fmt.Sprintf("min %v, p50 %v, p99 %v, p99.9 %v, max %v, mean %v ± %v (n=%d)", time.Duration(d.Min),
		time.Duration(d.P50), time.Duration(d.P99), time.Duration(d.P999), time.Duration(d.Max), time.Duration(d.Mean),
		time.Duration(d.SD), d.Count)
}

// wire is the JSON form: sums and the non-empty buckets as [index, count].
type wire struct {
	Sums
	Buckets [][2]uint64
}

// MarshalJSON writes the sums and the non-empty buckets, so that results can be merged later without loss.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	w := wire{Sums: h.Sums}
	for i, c := range h.counts {
		if c > 0 {
			w.Buckets = append(w.Buckets, [2]uint64{uint64(i), c})
		}
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(b []byte) error {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("read a histogram: %w", err)
	}
	counts := make([]uint64, Buckets)
	for _, e := range w.Buckets {
		if e[0] >= Buckets {
			return fmt.Errorf("read a histogram: bucket %d, the layout has %d", e[0], Buckets)
		}
		counts[e[0]] += e[1]
	}
	l, err := Load(w.Sums, counts)
	if err != nil {
		return err
	}
	*h = *l
	return nil
}

// Counts is a copy of the buckets.
func (h *Histogram) Counts() []uint64 {
	if h.counts == nil {
		return make([]uint64, Buckets)
	}
	return slices.Clone(h.counts)
}
