package hist

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestLayout(t *testing.T) {
	for i := range Buckets {
		low, high := Bounds(i)
		if Index(low) != i || Index(high) != i {
			t.Fatalf("bucket %d: %d…%d are in %d and %d", i, low, high, Index(low), Index(high))
		}
		if i > 0 {
			if _, before := Bounds(i - 1); before+1 != low {
				t.Fatalf("a gap before bucket %d", i)
			}
		}
		if high-low > low/128 {
			t.Fatalf("bucket %d (%d…%d) is wider than 1/128", i, low, high)
		}
	}
	if _, last := Bounds(Buckets - 1); last != 1<<MaxBits-1 {
		t.Errorf("the last bucket ends at %d", last)
	}
	if Index(math.MaxUint64) != Buckets-1 {
		t.Error("values beyond the range are not in the last bucket")
	}
}

func TestAgainstSorting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Uint64Max(1<<MaxBits-1), 1, 500).Draw(t, "values")
		check(t, x)
	})
	rng := rand.New(rand.NewPCG(1, 1))
	x := make([]uint64, 200000)
	for i := range x {
		x[i] = uint64(20000 * math.Exp(rng.NormFloat64()))
	}
	check(t, x)
}

func check(t interface{ Fatalf(string, ...any) }, x []uint64) {
	var h Histogram
	for _, v := range x {
		h.Add(v)
	}
	s := slices.Clone(x)
	slices.Sort(s)
	for _, p := range append([]float64{0, 1}, Percentiles...) {
		want := s[max(int(math.Ceil(p*float64(len(s)))), 1)-1]
		got := h.Quantile(p)
		if math.Abs(float64(got)-float64(want)) > float64(want)/256+0.5 {
			t.Fatalf("p%v: got %d, sorted %d", p*100, got, want)
		}
	}
	mean, m2 := 0.0, 0.0
	for i, v := range x {
		d := float64(v) - mean
		mean += d / float64(i+1)
		m2 += d * (float64(v) - mean)
	}
	if math.Abs(h.Mean()-mean) > 1e-9*mean+1e-9 {
		t.Fatalf("mean %v, want %v", h.Mean(), mean)
	}
	if len(x) > 1 {
		if sd := math.Sqrt(m2 / float64(len(x)-1)); math.Abs(h.SD()-sd) > 1e-6*sd+1e-6 {
			t.Fatalf("sd %v, want %v", h.SD(), sd)
		}
	}
	if h.Min != s[0] || h.Max != s[len(s)-1] {
		t.Fatalf("min %d max %d, want %d %d", h.Min, h.Max, s[0], s[len(s)-1])
	}
}

func TestMergeAndJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOf(rapid.Uint64Max(1<<40)).Draw(t, "a")
		b := rapid.SliceOf(rapid.Uint64Max(1<<20)).Draw(t, "b")
		var ha, hb, all Histogram
		for _, v := range a {
			ha.Add(v)
			all.Add(v)
		}
		for _, v := range b {
			hb.Add(v)
			all.Add(v)
		}
		ha.Merge(&hb)
		if ha.Digest() != all.Digest() || !slices.Equal(ha.filled(), all.filled()) {
			t.Fatalf("merged %+v, want %+v", ha.Digest(), all.Digest())
		}
		text, err := json.Marshal(&ha)
		if err != nil {
			t.Fatal(err)
		}
		var back Histogram
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if back.Digest() != all.Digest() || !slices.Equal(back.filled(), all.filled()) {
			t.Fatalf("read back %+v, want %+v", back.Digest(), all.Digest())
		}
	})
}

func TestLoadRefuses(t *testing.T) {
	if _, err := Load(Sums{Count: 1}, make([]uint64, Buckets)); err == nil {
		t.Error("a count without buckets was accepted")
	}
	if _, err := Load(Sums{}, make([]uint64, 3)); err == nil {
		t.Error("another layout was accepted")
	}
}

func TestExactDeviationOfLargeValues(t *testing.T) {
	var h Histogram
	for range 1000 {
		h.Add(60_000_000_000) // 60 s: squares are beyond 64 bits
		h.Add(60_000_000_002)
	}
	if want := math.Sqrt(2000.0 / 1999); math.Abs(h.SD()-want) > 1e-9 {
		t.Errorf("sd %v, want %v", h.SD(), want)
	}
}

// A capture worked out by hand: packets sent every 1,000 ns, one-way delays as below.
//
//	delay  500  700  600  600  900
//	IPDV       +200 −100    0 +300      (RFC 3393, section 1.1)
//	16·J  0     200  287  269  552      (RFC 3550, A.8: 16J += |D| − (16J + 8) div 16)
//
// 200 − ⌊8/16⌋ = 200 · 200 + 100 − ⌊208/16⌋ = 287 · 287 + 0 − ⌊295/16⌋ = 269 · 269 + 300 − ⌊277/16⌋ = 552
func TestVariationByHand(t *testing.T) {
	var v Variation
	steps := []uint64{0, 200, 287, 269, 552}
	for i, d := range []int64{500, 700, 600, 600, 900} {
		v.Add(d)
		if v.Jitter != steps[i] {
			t.Errorf("16·J after packet %d: %d, want %d", i+1, v.Jitter, steps[i])
		}
	}
	d := v.Digest()
	if d.Abs.Count != 4 || d.Abs.Min != 0 || d.Abs.Max != 300 || d.Abs.Mean != 150 || d.Longer != 2 || d.Shorter != 1 {
		t.Errorf("%+v", d)
	}
	if d.Mean != 100 {
		t.Errorf("mean IPDV %v, want 100", d.Mean)
	}
	// deviations from 100: 100, −200, −100, 200; squares 10,000 + 40,000 + 10,000 + 40,000 over 3
	if want := math.Sqrt(100000.0 / 3); math.Abs(d.SD-want) > 1e-9 {
		t.Errorf("sd %v, want %v", d.SD, want)
	}
	if d.Jitter != 552.0/16 {
		t.Errorf("jitter %v", d.Jitter)
	}
}

// With a constant |D| the filter settles where |D| = (16J + 8) div 16, so J is |D| to within one unit of the scale.
func TestJitterSettles(t *testing.T) {
	var v Variation
	for i := range 2000 {
		v.Add(int64(10000 + (i%2)*1600))
	}
	if d := v.Digest(); math.Abs(d.Jitter-1600) > 1 {
		t.Errorf("jitter %v, want 1600", d.Jitter)
	}
}

// bucket is one non-empty bucket: values from Low to High, both included.
type bucket struct {
	Low, High, Count uint64
}

// filled lists the non-empty buckets, smallest first.
func (h *Histogram) filled() []bucket {
	var out []bucket
	for i, c := range h.counts {
		if c > 0 {
			low, high := Bounds(i)
			out = append(out, bucket{low, high, c})
		}
	}
	return out
}
