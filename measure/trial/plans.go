package trial

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/stats"
)

// Curve offers each rate in turn: the received-against-offered curve of the studies.
func (b *Bench) Curve(ctx context.Context, rates []float64, d time.Duration) ([]Result, error) {
	var out []Result
	for _, rate := range rates {
		r, err := b.Run(ctx, Load{Rate: rate, Duration: d})
		if err != nil {
			return out, fmt.Errorf("curve at %.0f frames/s: %w", rate, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// ErrClosed says that a search would mean nothing on a bench whose loop is closed.
var ErrClosed = errors.New("source and receiver share a CPU, so the source waits for what is measured and nothing is " +
	"ever lost; give the receiving device a thread on another CPU")

// Throughput searches MLRsearch-style; the range's upper end 0 means what the self-test reached.
func (b *Bench) Throughput(ctx context.Context, o search.MLROptions) (search.MLRResult, error) {
	if !b.o.Placement.Open() {
		return search.MLRResult{}, fmt.Errorf("throughput search: %w", ErrClosed)
	}
	if o.Range.Max == 0 && b.o.Limits != nil {
		o.Range.Max = b.o.Limits.Rate
	}
	return search.MultipleLossRatio(ctx, b, o)
}

// RFC2544 searches as that RFC says.
func (b *Bench) RFC2544(ctx context.Context, o search.RFC2544Options) (search.RFC2544Result, error) {
	if !b.o.Placement.Open() {
		return search.RFC2544Result{}, fmt.Errorf("RFC 2544 search: %w", ErrClosed)
	}
	if o.Range.Max == 0 && b.o.Limits != nil {
		o.Range.Max = b.o.Limits.Rate
	}
	return search.RFC2544(ctx, b, o)
}

// Latency measures delay at a fraction (0…1) of a throughput, frame by frame.
func (b *Bench) Latency(ctx context.Context, throughput, fraction float64, d time.Duration) (Result, error) {
	if !(fraction > 0 && fraction <= 1) || !(throughput > 0) {
		return Result{}, fmt.Errorf("latency at %v of a throughput of %v frames/s: the fraction is within 0…1, the "+
			"throughput above 0", fraction, throughput)
	}
	return b.Run(ctx, Load{Rate: throughput * fraction, Duration: d, Exact: true})
}

// Burst is the outcome of a back-to-back test.
type Burst struct {
	Longest uint64   `json:"longest"` // frames of the longest burst that came through whole
	Lengths []uint64 `json:"lengths"` // of every repetition
}

// BackToBack finds the longest burst, sent as fast as the source goes, of which nothing is lost (RFC 2544, section
// 26.4), up to most frames. The RFC takes the mean of 50 repetitions; Longest is their median, which one disturbance
// does not move.
func (b *Bench) BackToBack(ctx context.Context, most uint64, repetitions int) (Burst, error) {
	var out Burst
	var lengths []float64
	for range repetitions {
		low, high := uint64(0), most
		for low < high {
			n := low + (high-low+1)/2
			r, err := b.Run(ctx, Load{Count: n, Duration: 10 * time.Second})
			if err != nil {
				return out, fmt.Errorf("burst of %d frames: %w", n, err)
			}
			if r.Lost == 0 {
				low = n
			} else {
				high = n - 1
			}
		}
		out.Lengths = append(out.Lengths, low)
		lengths = append(lengths, float64(low))
	}
	if len(lengths) > 0 {
		out.Longest = uint64(stats.Median(lengths))
	}
	return out, nil
}

// System is one of several that are compared; Measure yields one figure, above 0, in a unit that all share.
type System struct {
	Name    string
	Measure func(context.Context) (float64, error)
}

// Plan says how systems are compared. Every block measures every system once, in an order drawn anew, so that what
// drifts over minutes hits all alike.
type Plan struct {
	Systems []System // the first is what the others are compared with, and the control
	Blocks  int      // at most
	Stop    *stats.StopRule
	Seed    uint64
	Steal   func() float64 // share stolen since the last call; nil: not known
}

// Comparison is what a Plan found.
type Comparison struct {
	Samples map[string][]float64   `json:"samples"` // in order of the blocks
	Order   [][]string             `json:"order"`   // of each block
	Noise   stats.Noise            `json:"noise"`   // the first system against itself (A/A)
	Ratios  map[string]stats.Ratio `json:"ratios"`  // system / first system
	Differs map[string]bool        `json:"differs"` // beyond the noise
	Verdict stats.Verdict          `json:"verdict"` // was the machine steady?
}

// again is the first system measured once more in every block: the A/A run.
const again = "again: "

// Compare runs a plan.
func Compare(ctx context.Context, p Plan) (Comparison, error) {
	c := Comparison{Samples: map[string][]float64{}, Ratios: map[string]stats.Ratio{}, Differs: map[string]bool{}}
	if len(p.Systems) == 0 || p.Blocks < 3 {
		return c, fmt.Errorf("compare %d systems in %d blocks: at least one system and three blocks are needed",
			len(p.Systems), p.Blocks)
	}
	if p.Stop != nil {
		if err := p.Stop.Validate(); err != nil {
			return c, err
		}
	}
	first := p.Systems[0]
	systems := append([]System{{again + first.Name, first.Measure}}, p.Systems...)
	rng := rand.New(rand.NewPCG(p.Seed, 0x626c6f636b))
	var steal []float64
	for block := 0; block < p.Blocks && !c.enough(p, systems); block++ {
		var order []string
		for _, i := range rng.Perm(len(systems)) {
			v, err := systems[i].Measure(ctx)
			if err != nil {
				return c, fmt.Errorf("compare: block %d: %s: %w", block+1, systems[i].Name, err)
			}
			c.Samples[systems[i].Name] = append(c.Samples[systems[i].Name], v)
			order = append(order, systems[i].Name)
			if p.Steal != nil {
				steal = append(steal, p.Steal())
			}
		}
		c.Order = append(c.Order, order)
	}
	o := stats.BootstrapOptions{Seed: p.Seed}
	base := c.Samples[first.Name]
	var err error
	if c.Noise, err = stats.NoiseFloor(base, c.Samples[again+first.Name], o); err != nil {
		return c, fmt.Errorf("compare: %w", err)
	}
	for _, s := range p.Systems[1:] {
		r, err := stats.PairedRatio(base, c.Samples[s.Name], o)
		if err != nil {
			return c, fmt.Errorf("compare %s with %s: %w", s.Name, first.Name, err)
		}
		c.Ratios[s.Name], c.Differs[s.Name] = r, c.Noise.Differs(r)
	}
	c.Verdict = stats.Judge(base, steal, stats.Limits{})
	return c, nil
}

func (c *Comparison) enough(p Plan, systems []System) bool {
	if p.Stop == nil {
		return false
	}
	return !slices.ContainsFunc(systems, func(s System) bool { return !p.Stop.Enough(c.Samples[s.Name]) })
}
