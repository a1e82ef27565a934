package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/impair"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/selftest"
	"github.com/polyplane/polyplane/measure/source"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/trial"
)

// traffic measures the instrument itself: what its source and sink reach, and how they keep rates.
func traffic(ctx context.Context, o options) ([]table, error) {
	r, err := selftest.Run(ctx, selftest.Options{Duration: 300 * time.Millisecond, Repeat: max(o.rounds/2, 1),
		Rounds: 3 * o.rounds})
	if err != nil {
		return nil, err
	}
	// What bears on speed is among the mitigations. The rest of the command line is the machine's own business.
	r.Environment.CommandLine = ""
	return []table{backToBack(o, r), rates(r)}, nil
}

func mega(v float64) string { return fmt.Sprintf("%.2f", v/1e6) }

// backToBack is the table of how fast the instrument itself is.
func backToBack(o options, r selftest.Report) table {
	t := table{
		Name:  "traffic",
		Title: "Traffic source and sink back to back over one veth pair",
		Columns: []string{"frames", "bare loop, Mp/s", "source and sink, Mp/s", "source and sink / bare loop",
			"bare loop against itself", "every payload written and checked, Mp/s",
			"two cores: sent, Mp/s", "arrived, Mp/s"},
		Raw: r,
	}
	rounds := 0
	for _, s := range r.Speeds {
		name := s.Sizes + " B"
		if s.Sizes == frame.IMIX().String() {
			name = "IMIX"
		}
		open, got := "", ""
		if s.Open > 0 {
			open, got = mega(s.Open), mega(s.Got)
		}
		t.Rows = append(t.Rows, []string{name, mega(s.Bare), mega(s.Full), ratio(s.Share),
			fmt.Sprintf("± %.1f %%", 100*s.Noise), mega(s.Whole), open, got})
		rounds = s.Share.N
	}
	t.Note = fmt.Sprintf("Frames a second of CPU time, medians of %d rounds; ratios round by round, with 95 %% "+
		"bootstrap intervals; asked for ≥ 0.9. In a round the bare loop, itself once more, and source and sink both "+
		"ways run at once on one core, on a veth pair each, which the scheduler gives to one after the other for "+
		"milliseconds. Bare loop: one redirect of an untouched live frame (with IMIX, cut to its size) and one drop, "+
		"batches of 256, on one core. Source and sink: all headers, sequence number, time stamp and checksum of each "+
		"frame written and checked, the clock read for one frame in %d, the payload that the page holds summed up in "+
		"one frame in %d. Two cores: a whole trial, set-up included, with the sink's thread on the other one; medians "+
		"of %d.", rounds, selftest.TimeEvery, selftest.CheckEvery, max(o.rounds/2, 1))
	return t
}

// rates is the table of how exactly the instrument keeps rates.
func rates(r selftest.Report) table {
	t := table{
		Name:  "traffic-rates",
		Title: "Rates that the traffic source keeps",
		Columns: []string{"asked for, frames/s", "gaps", "measured by the sink, frames/s", "off by",
			"more than 100 µs late"},
		Note: fmt.Sprintf("Asked for: constant rates from 10,000 frames/s up within 1 %%. Medians; 64-byte frames, "+
			"one by one timed and checked. With Poisson gaps a count of N frames is off by about 1/√N by itself. "+
			"Least delay, nothing in between: median %d ns, 99 %% %d ns.", r.Floor.P50, r.Floor.P99),
	}
	for _, p := range r.Paces {
		gaps := "constant"
		if p.Poisson {
			gaps = "Poisson"
		}
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%.0f", p.Rate), gaps, fmt.Sprintf("%.0f", p.Measured),
			fmt.Sprintf("%+.3f %%", 100*p.Error), fmt.Sprintf("%.2f %%", 100*p.Late)})
	}
	t.Raw = r.Paces
	return t
}

// points is the number of offered rates at which two runs are compared.
const points = 40

// agreement measures what a lossy device lets through, at many rates, twice. The two runs share nothing but the device:
// benches, order and seeds are their own.
func agreement(ctx context.Context, o options) ([]table, error) {
	var runs [2][points][]float64
	for i := range runs {
		if err := oneRun(ctx, uint64(o.seed)+uint64(i), &runs[i]); err != nil {
			return nil, err
		}
	}
	t := table{
		Name:    "traffic-agreement",
		Title:   "Two independent runs of the same measurement",
		Columns: []string{"points", "95 % intervals of the difference that hold 0", "asked for"},
		Raw:     runs,
	}
	held := 0
	for p := range points {
		iv, err := stats.DifferenceInterval(runs[0][p], runs[1][p], 0.95)
		if err != nil {
			return nil, err
		}
		if iv.Contains(0) {
			held++
		}
	}
	t.Rows = [][]string{{fmt.Sprint(points), fmt.Sprintf("%d (%.0f %%)", held, 100*float64(held)/points), "≥ 90 %"}}
	t.Note = fmt.Sprintf("Share received through an eBPF device that loses 20 %% of the frames, at %d rates from "+
		"10,000 to 100,000 frames/s, %d trials of each in each run, in random order.", points, trialsEach)
	return []table{t}, nil
}

const trialsEach = 5

func oneRun(ctx context.Context, seed uint64, into *[points][]float64) (err error) {
	var ns [3]*netdev.Namespace
	for i := range ns {
		if ns[i], err = netdev.NewNamespace(); err != nil {
			return err
		}
		defer ns[i].Close()
	}
	ref := func(i int, name string) netdev.Ref { return netdev.Ref{Namespace: ns[i].Path(), Name: name} }
	from, in, out, to := ref(0, "from"), ref(1, "in"), ref(1, "out"), ref(2, "to")
	detour := [2]netdev.Ref{ref(1, "x0"), ref(1, "x1")}
	for i, pair := range [][2]netdev.Ref{{from, in}, {out, to}, detour} {
		if err := netdev.NewVeth(pair[0], pair[1], byte(1+2*i)); err != nil {
			return err
		}
	}
	device, err := impair.Open(in, out, detour, impair.Faults{Loss: 0.2, Seed: seed})
	if err != nil {
		return err
	}
	defer device.Close()
	bench, err := trial.Open(trial.Options{Path: trial.Path{From: from, To: to, Before: out},
		Quiet: 20 * time.Millisecond, Seed: seed,
		Streams: []source.Stream{{Headers: frame.Headers{Kind: frame.IPv4, SourceMAC: netdev.MAC(1),
			DestMAC: netdev.MAC(2), Source: netip.MustParseAddr("10.0.0.1")},
			Sizes: frame.Fixed(64), Destinations: source.Destinations(netip.MustParseAddr("10.1.0.0"), 4096)}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bench.Close()) }()
	random := rand.New(rand.NewPCG(seed, 0))
	for range trialsEach {
		for _, p := range random.Perm(points) {
			rate := 1e4 * math.Pow(10, float64(p)/(points-1))
			r, err := bench.Run(ctx, trial.Load{Rate: rate, Duration: 60 * time.Millisecond})
			if err != nil {
				return err
			}
			into[p] = append(into[p], float64(r.Received)/float64(r.Sent-r.Refused-r.Overrun))
		}
	}
	return nil
}
