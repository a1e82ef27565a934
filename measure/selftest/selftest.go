// Package selftest finds out what source and sink can do on this machine with nothing but a veth pair between them: the rate,
// how exact paced rates are, and the least delay. Figures beyond that say nothing about what is measured.
package selftest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"time"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/source"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/trial"
)

// Options of a self-test; the zero value is a good one.
type Options struct {
	Duration time.Duration // of every trial; 0: 1 s
	Repeat   int           // trials of each kind, of which the median counts; 0: 3
	Sizes    []int         // frame sizes; empty: 64, 512 and 1518
	Rates    []float64     // paced rates to check; empty: 1 k, 10 k, 100 k and 1 M frames/s
	CPU      int           // that sends in the closed loop
}

// Speed is what one frame size reaches, in frames/s.
type Speed struct {
	Size   int     `json:"size"`
	Closed float64 `json:"closed"` // source and sink on one CPU
	Full   float64 `json:"full"`   // of Closed, per second of CPU time: what remains when others use the CPU, too, taken out
	Open   float64 `json:"open"`   // on two; 0 where there is only one, or kernel threads cannot be seen
	Got    float64 `json:"got"`    // of Open, what arrived: the ring between two CPUs is small
	Bare   float64 `json:"bare"`   // per second of CPU time: live frames that are only redirected and dropped, on one CPU
}

// Share is how much of the bare loop's rate remains with everything written, counted and timed.
func (s Speed) Share() float64 { return s.Full / s.Bare }

// Pace is how exactly one rate is kept.
type Pace struct {
	Rate     float64 `json:"rate"`
	Measured float64 `json:"measured"` // by the sink's clock readings
	Error    float64 `json:"error"`    // relative
	Late     float64 `json:"late"`     // share of frames more than 100 µs behind
	Poisson  bool    `json:"poisson,omitempty"`
}

// Report is a self-test's outcome.
type Report struct {
	Environment machine.Environment `json:"environment"`
	Speeds      []Speed             `json:"speeds"`
	Paces       []Pace              `json:"paces"`
	Floor       hist.Digest         `json:"floor"` // delay with nothing in between, frame by frame
	Limits      trial.Limits        `json:"limits"`
	Steal       float64             `json:"steal"`
	Failures    []string            `json:"failures,omitempty"` // promises that do not hold here, in words
}

// pair is a veth pair between two namespaces.
type pair struct{ from, to netdev.Ref }

// Run does the self-test, in namespaces of its own.
func Run(ctx context.Context, o Options) (Report, error) {
	o = o.orDefault()
	var rep Report
	a, err := netdev.NewNamespace()
	if err != nil {
		return rep, fmt.Errorf("self-test: %w", err)
	}
	defer a.Close()
	b, err := netdev.NewNamespace()
	if err != nil {
		return rep, fmt.Errorf("self-test: %w", err)
	}
	defer b.Close()
	p := pair{netdev.Ref{Namespace: a.Path(), Name: "src"}, netdev.Ref{Namespace: b.Path(), Name: "dst"}}
	if err := netdev.NewVeth(p.from, p.to, 1); err != nil {
		return rep, fmt.Errorf("self-test: %w", err)
	}
	if rep.Environment, err = machine.Describe(p.from, p.to); err != nil {
		return rep, fmt.Errorf("self-test: %w", err)
	}
	for _, step := range []func(context.Context, Options, pair, *Report) error{speeds, paces, floor} {
		if err := step(ctx, o, p, &rep); err != nil {
			return rep, fmt.Errorf("self-test: %w", err)
		}
	}
	rep.judge()
	return rep, nil
}

func (o Options) orDefault() Options {
	if o.Duration == 0 {
		o.Duration = time.Second
	}
	if o.Repeat == 0 {
		o.Repeat = 3
	}
	if len(o.Sizes) == 0 {
		o.Sizes = []int{64, 512, 1518}
	}
	if len(o.Rates) == 0 {
		o.Rates = []float64{1e3, 1e4, 1e5, 1e6}
	}
	return o
}

func stream(size int) source.Stream {
	return source.Stream{
		Headers: frame.Headers{Kind: frame.IPv4, SourceMAC: netdev.MAC(1), DestMAC: netdev.MAC(2), Source: netip.MustParseAddr("10.0.0.1")},
		Sizes:   frame.Fixed(size), Destinations: source.Destinations(netip.MustParseAddr("10.64.0.0"), 4096),
	}
}

func (p pair) bench(s source.Stream, place trial.Placement, every int) (*trial.Bench, error) {
	return trial.Open(trial.Options{Path: trial.Path{From: p.from, To: p.to, Before: p.from}, Placement: place,
		Streams: []source.Stream{s}, TimeEvery: every})
}

// speeds repeats every speed in turn with the bare loop, so that a slow moment hits both.
func speeds(ctx context.Context, o Options, p pair, rep *Report) error {
	for _, size := range o.Sizes {
		var closed, full, open, got, bare []float64
		for range o.Repeat {
			r, err := p.speed(ctx, o, size, trial.Placement{Source: o.CPU}, rep)
			if err != nil {
				return err
			}
			closed = append(closed, r.Forwarded)
			brief := o
			brief.Duration /= 8
			q, err := p.speed(ctx, brief, size, trial.Placement{Source: o.CPU}, rep)
			if err != nil {
				return err
			}
			if used := r.SourceCPU - q.SourceCPU; used > 0 { // what a call costs to set up cancels out, as in the bare loop
				full = append(full, (float64(r.Received)-float64(q.Received))/used.Seconds())
			}
			b, err := bareRate(p, o.CPU, size, uint32(max(r.Forwarded*o.Duration.Seconds(), 1e5)))
			if err != nil {
				return err
			}
			bare = append(bare, b)
			if runtime.NumCPU() < 2 || !netdev.ThreadsVisible() {
				continue
			}
			other := (o.CPU + 1) % runtime.NumCPU()
			if r, err = p.speed(ctx, o, size, trial.Placement{Source: o.CPU, Polled: []trial.Polled{{Device: p.to, CPU: other}}}, rep); err != nil {
				return err
			}
			open, got = append(open, r.Offered), append(got, r.Forwarded)
		}
		s := Speed{Size: size, Closed: stats.Median(closed), Full: stats.Median(full), Bare: stats.Median(bare)}
		if len(open) > 0 {
			s.Open, s.Got = stats.Median(open), stats.Median(got)
		}
		rep.Speeds = append(rep.Speeds, s)
	}
	return nil
}

func (p pair) speed(ctx context.Context, o Options, size int, place trial.Placement, rep *Report) (trial.Result, error) {
	b, err := p.bench(stream(size), place, 16)
	if err != nil {
		return trial.Result{}, err
	}
	r, err := b.Run(ctx, trial.Load{Duration: o.Duration})
	rep.Steal = max(rep.Steal, r.Usage.Steal())
	return r, errors.Join(err, b.Close())
}

func paces(ctx context.Context, o Options, p pair, rep *Report) error {
	for _, poisson := range []bool{false, true} {
		for _, rate := range o.Rates {
			if rate > 0.9*rep.Speeds[0].Closed {
				continue
			}
			s := stream(64)
			s.Poisson = poisson
			b, err := p.bench(s, trial.Placement{Source: o.CPU}, 1)
			if err != nil {
				return err
			}
			var measured, late []float64
			for range o.Repeat {
				r, err := b.Run(ctx, trial.Load{Rate: rate, Duration: o.Duration})
				if err != nil {
					return errors.Join(err, b.Close())
				}
				st := r.Streams[0]
				if st.Got.Spread > 0 {
					measured = append(measured, float64(st.Got.Next-1)/st.Got.Spread.Seconds())
					late = append(late, float64(st.Late)/float64(st.Sent))
				}
			}
			if err := b.Close(); err != nil {
				return err
			}
			pace := Pace{Rate: rate, Measured: stats.Median(measured), Late: stats.Median(late), Poisson: poisson}
			pace.Error = pace.Measured/rate - 1
			rep.Paces = append(rep.Paces, pace)
		}
	}
	return nil
}

func floor(ctx context.Context, o Options, p pair, rep *Report) error {
	b, err := p.bench(stream(64), trial.Placement{Source: o.CPU}, 1)
	if err != nil {
		return err
	}
	r, err := b.Run(ctx, trial.Load{Rate: 1e4, Duration: o.Duration, Exact: true})
	rep.Floor = r.Delay
	return errors.Join(err, b.Close())
}

// judge draws the limits, and says which promises this machine does not keep.
func (r *Report) judge() {
	fail := func(format string, a ...any) { r.Failures = append(r.Failures, fmt.Sprintf(format, a...)) }
	for _, s := range r.Speeds {
		if r.Limits.Rate == 0 || s.Closed > r.Limits.Rate {
			r.Limits.Rate = s.Closed
		}
		if s.Share() < 0.9 {
			fail("%d-byte frames reach %.0f %% of the bare loop, 90 %% are promised", s.Size, 100*s.Share())
		}
	}
	for _, p := range r.Paces {
		// The count of a Poisson stream varies by itself: three standard deviations of it are no error.
		excuse := 0.0
		if p.Poisson {
			excuse = 3 / math.Sqrt(p.Rate)
		}
		e := math.Abs(p.Error)
		if p.Rate >= 1e4 {
			if !p.Poisson {
				r.Limits.Accuracy = max(r.Limits.Accuracy, e)
			}
			if e > 0.01+excuse {
				fail("%.0f frames/s are off by %.2f %%, 1 %% is promised", p.Rate, 100*e)
			}
		}
	}
	r.Limits.Floor = time.Duration(r.Floor.P50)
	if r.Steal > trial.MaxSteal {
		fail("the hypervisor took up to %.1f %% of a core's time: repeat when the machine is quieter", 100*r.Steal)
	}
}
