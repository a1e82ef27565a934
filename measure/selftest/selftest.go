// Package selftest finds out what source and sink can do on this machine with nothing but a veth pair between them: the
// rate, how exact paced rates are, and the least delay. Figures beyond that say nothing about what is measured.
package selftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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
	"github.com/polyplane/polyplane/measure/turns"
)

// Options of a self-test; the zero value is a good one.
type Options struct {
	Duration time.Duration // of every trial; 0: 1 s
	Repeat   int           // trials of each kind, of which the median counts; 0: 3
	Rounds   int           // in which source and sink are compared with the bare loop; 0: 3 × Repeat − 1
	Sizes    []frame.Sizes // empty: 64, 512, 1518 and IMIX
	Rates    []float64     // paced rates to check; empty: 1 k, 10 k, 100 k and 1 M frames/s
	CPU      int           // that sends in the closed loop
	// Progress, if not nil, is told what is done now, in words, and as which step of how many.
	Progress func(done, all int, what string)
	steps    *int
}

// Speed is what frames of one size, or of one mixture, reach, in frames/s.
type Speed struct {
	Sizes  string  `json:"sizes"`
	Closed float64 `json:"closed"` // source and sink on one CPU, the payload of every CheckEvery-th frame checked
	Full   float64 `json:"full"`   // the same per second of CPU time, in turns with Whole and Bare
	Whole  float64 `json:"whole"`  // per second of CPU time, every payload written and checked
	Open   float64 `json:"open"`   // on two CPUs; 0 where there is only one, or kernel threads cannot be seen
	Got    float64 `json:"got"`    // of Open, what arrived: the ring between two CPUs is small
	// per second of CPU time: live frames that are only redirected and dropped, on one CPU
	Bare  float64     `json:"bare"`
	Share stats.Ratio `json:"share"` // Full / Bare, pair by pair
	// The single measurements that Full, Whole and Bare are the medians of.
	Fulls  []float64 `json:"fulls"`
	Wholes []float64 `json:"wholes"`
	Bares  []float64 `json:"bares"`
	Again  []float64 `json:"again"` // the bare loop once more in each round
	// by how much the bare loop differs from itself (A/A), relative; 0 below three rounds
	Noise float64 `json:"noise"`
}

// TimeEvery and CheckEvery say which frames are timed and checked when frames leave as fast as possible (see
// sink.Options).
const (
	TimeEvery  = 64
	CheckEvery = 256
)

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

// loopsAtOnce is how many loops take turns, each on a pair of its own.
const loopsAtOnce = 4

// pair is a veth pair between two namespaces.
type pair struct{ from, to netdev.Ref }

// Run does the self-test, in namespaces of its own.
func Run(ctx context.Context, o Options) (Report, error) {
	o = o.orDefault()
	var rep Report
	var pairs []pair
	for i := range loopsAtOnce {
		var ends [2]netdev.Ref
		for j, name := range []string{"src", "dst"} {
			ns, err := netdev.NewNamespace()
			if err != nil {
				return rep, fmt.Errorf("self-test: %w", err)
			}
			defer ns.Close()
			ends[j] = netdev.Ref{Namespace: ns.Path(), Name: name}
		}
		if err := netdev.NewVeth(ends[0], ends[1], byte(1+2*i)); err != nil {
			return rep, fmt.Errorf("self-test: %w", err)
		}
		pairs = append(pairs, pair{ends[0], ends[1]})
	}
	var err error
	if rep.Environment, err = machine.Describe(pairs[0].from, pairs[0].to); err != nil {
		return rep, fmt.Errorf("self-test: %w", err)
	}
	for _, step := range []func(context.Context, Options, []pair, *Report) error{speeds, paces, floor} {
		if err := step(ctx, o, pairs, &rep); err != nil {
			return rep, fmt.Errorf("self-test: %w", err)
		}
	}
	rep.judge()
	return rep, nil
}

func (o Options) orDefault() Options {
	o.Duration = cmp.Or(o.Duration, time.Second)
	o.Repeat = cmp.Or(o.Repeat, 3)
	o.Rounds = cmp.Or(o.Rounds, 3*o.Repeat-1)
	if len(o.Sizes) == 0 {
		o.Sizes = []frame.Sizes{frame.Fixed(64), frame.Fixed(512), frame.Fixed(1518), frame.IMIX()}
	}
	o.steps = new(int)
	if len(o.Rates) == 0 {
		o.Rates = []float64{1e3, 1e4, 1e5, 1e6}
	}
	return o
}

// step says what is done now.
func (o Options) step(format string, a ...any) {
	if o.Progress != nil {
		o.Progress(*o.steps, len(o.Sizes)*(o.Rounds+o.Repeat)+2*len(o.Rates)+1, fmt.Sprintf(format, a...))
	}
	*o.steps++
}

func stream(sizes frame.Sizes) source.Stream {
	return source.Stream{
		Headers: frame.Headers{Kind: frame.IPv4, SourceMAC: netdev.MAC(1), DestMAC: netdev.MAC(2),
			Source: netip.MustParseAddr("10.0.0.1")},
		Sizes: sizes, Destinations: source.Destinations(netip.MustParseAddr("10.64.0.0"), 4096),
	}
}

func (p pair) bench(s source.Stream, place trial.Placement, time, check int) (*trial.Bench, error) {
	return trial.Open(trial.Options{Path: trial.Path{From: p.from, To: p.to, Before: p.from}, Placement: place,
		Streams: []source.Stream{s}, TimeEvery: time, CheckEvery: check})
}

// speeds measures every size: first against the bare loop, in turns, and then what a whole trial reaches.
func speeds(ctx context.Context, o Options, pairs []pair, rep *Report) error {
	for _, sizes := range o.Sizes {
		s := Speed{Sizes: sizes.String()}
		if err := s.compare(ctx, o, sizes, pairs); err != nil {
			return err
		}
		p := pairs[0]
		var closed, open, got []float64
		for i := range o.Repeat {
			o.step("frames of %s, trial %d of %d", sizeName(s.Sizes), i+1, o.Repeat)
			r, err := p.once(ctx, o.Duration, sizes, trial.Placement{Source: o.CPU}, CheckEvery, rep)
			if err != nil {
				return err
			}
			closed = append(closed, r.Forwarded)
			if runtime.NumCPU() < 2 || !netdev.ThreadsVisible() {
				continue
			}
			other := (o.CPU + 1) % runtime.NumCPU()
			if r, err = p.once(ctx, o.Duration, sizes, trial.Placement{Source: o.CPU,
				Polled: []trial.Polled{{Device: p.to, CPU: other}}}, CheckEvery, rep); err != nil {
				return err
			}
			open, got = append(open, r.Offered), append(got, r.Forwarded)
		}
		s.Closed = stats.Median(closed)
		if len(open) > 0 {
			s.Open, s.Got = stats.Median(open), stats.Median(got)
		}
		rep.Speeds = append(rep.Speeds, s)
	}
	return nil
}

// loop is what is run over a pair.
type loop func(pair) turns.Loop

// measured is the loop of source and sink.
func measured(sizes frame.Sizes, cpu, check int) loop {
	return func(p pair) turns.Loop {
		return turns.Measured(turns.Path{From: p.from, To: p.to, Before: p.from, Stream: stream(sizes), CPU: cpu,
			TimeEvery: TimeEvery, CheckEvery: check})
	}
}

// compare lets these take turns: the bare loop, the bare loop once more, and source and sink, with sampled and with
// whole checks.
func (s *Speed) compare(ctx context.Context, o Options, sizes frame.Sizes, pairs []pair) error {
	loops := []loop{bare(sizes, o.CPU), bare(sizes, o.CPU), measured(sizes, o.CPU, CheckEvery),
		measured(sizes, o.CPU, 1)}
	into := []*[]float64{&s.Bares, &s.Again, &s.Fulls, &s.Wholes}
	rng := rand.New(rand.NewPCG(uint64(len(sizes.Of)), uint64(sizes.Mean())))
	for round := range o.Rounds {
		o.step("frames of %s and the bare loop, round %d of %d", sizeName(s.Sizes), round+1, o.Rounds)
		var runs []turns.Loop
		for i, on := range rng.Perm(len(pairs)) {
			runs = append(runs, loops[i](pairs[on]))
		}
		rates, err := turns.Take(ctx, runs, rng)
		if err != nil {
			return fmt.Errorf("source and sink against the bare loop, frames of %s: %w", sizeName(s.Sizes), err)
		}
		for i, v := range rates {
			*into[i] = append(*into[i], v)
		}
	}
	s.Full, s.Whole, s.Bare = stats.Median(s.Fulls), stats.Median(s.Wholes), stats.Median(s.Bares)
	s.Share = stats.Ratio{N: len(s.Fulls), Median: s.Full / s.Bare}
	if len(s.Fulls) < 3 {
		return nil
	}
	var err error
	if s.Share, err = stats.PairedRatio(s.Bares, s.Fulls, stats.BootstrapOptions{}); err != nil {
		return err
	}
	noise, err := stats.NoiseFloor(s.Bares, s.Again, stats.BootstrapOptions{})
	s.Noise = noise.Floor
	return err
}

func (p pair) once(ctx context.Context, d time.Duration, sizes frame.Sizes, place trial.Placement, check int,
	rep *Report) (trial.Result, error) {
	b, err := p.bench(stream(sizes), place, TimeEvery, check)
	if err != nil {
		return trial.Result{}, err
	}
	r, err := b.Run(ctx, trial.Load{Duration: d})
	rep.Steal = max(rep.Steal, r.Usage.Steal())
	return r, errors.Join(err, b.Close())
}

func paces(ctx context.Context, o Options, pairs []pair, rep *Report) error {
	for _, poisson := range []bool{false, true} {
		for _, rate := range o.Rates {
			gaps := "constant"
			if poisson {
				gaps = "Poisson"
			}
			o.step("%.0f frames/s with %s gaps", rate, gaps)
			if rate > 0.9*rep.Speeds[0].Closed {
				continue
			}
			s := stream(frame.Fixed(64))
			s.Poisson = poisson
			b, err := pairs[0].bench(s, trial.Placement{Source: o.CPU}, 1, 1)
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

func floor(ctx context.Context, o Options, pairs []pair, rep *Report) error {
	o.step("the least delay")
	b, err := pairs[0].bench(stream(frame.Fixed(64)), trial.Placement{Source: o.CPU}, 1, 1)
	if err != nil {
		return err
	}
	r, err := b.Run(ctx, trial.Load{Rate: 1e4, Duration: o.Duration, Exact: true})
	rep.Floor = r.Delay
	return errors.Join(err, b.Close())
}

// maxLate is the share of frames, at rates that any machine keeps, that may leave late before it is called busy.
const maxLate = 0.05

// judge draws the limits, and says which promises this machine does not keep.
func (r *Report) judge() {
	fail := func(format string, a ...any) { r.Failures = append(r.Failures, fmt.Sprintf(format, a...)) }
	for _, s := range r.Speeds {
		if r.Limits.Rate == 0 || s.Closed > r.Limits.Rate {
			r.Limits.Rate = s.Closed
		}
		if s.Share.Median < 0.9 {
			fail("frames of %s reach %.0f %% of the bare loop, 90 %% are promised",
				sizeName(s.Sizes), 100*s.Share.Median)
		}
	}
	late := 0.0
	for _, p := range r.Paces {
		if !p.Poisson && p.Rate <= 1e5 {
			late = max(late, p.Late)
		}
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
	if late > maxLate {
		fail("at up to 100,000 frames/s, %.0f %% of the frames left more than 100 µs late: others had the source's "+
			"core; repeat when the machine is quieter", 100*late)
	}
	r.Limits.Floor = time.Duration(r.Floor.P50)
	if r.Steal > trial.MaxSteal {
		fail("the hypervisor took up to %.1f %% of a core's time: repeat when the machine is quieter", 100*r.Steal)
	}
}

func sizeName(sizes string) string {
	if sizes == frame.IMIX().String() {
		return "IMIX"
	}
	return sizes + " bytes"
}
