package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/polyplane/polyplane/measure/source"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/trial"
)

// apart opens a bench on two cores: the source is on core 0; the router's receiving thread and the sink are on core 1.
func (s *system) apart(timeEvery int) (*trial.Bench, error) {
	stream, err := s.stream()
	if err != nil {
		return nil, err
	}
	return trial.Open(trial.Options{Path: trial.Path{From: s.chain.from(), To: s.chain.to(), Before: s.chain.before()},
		Generic:   s.behind,
		Placement: trial.Placement{Source: 0, Polled: []trial.Polled{{Device: s.chain.entrance(), CPU: 1}}},
		Quiet:     30 * time.Millisecond, Warmup: warmup,
		TimeEvery: timeEvery, CheckEvery: every, Streams: []source.Stream{stream}})
}

// Trials on two cores are short, so that all systems are measured within the same moments.
const (
	trialTime = 150 * time.Millisecond
	warmup    = 20 * time.Millisecond // at the beginning of a trial, not counted: caches are cold
)

// twoCores compares systems whose router is on another core than the source: what they carry when more is offered, and
// the delay at half of that.
func twoCores(ctx context.Context, o options) (tables []table, err error) {
	err = onNode(ctx, func(l *lab) error {
		xdp := &system{name: "xdp, driver's hook", chain: l.chain("x", 1, byXDP)}
		xdp.chain.packets = 1e9
		kernel := &system{name: "plain veths", chain: l.chain("k", 1, byKernel)}
		behind := &system{name: "plain veths, sink behind the driver", chain: l.chain("b", 1, byKernel), behind: true}
		bare := &system{name: "bare redirect", chain: l.chain("r", 1, byGuest)}
		none := &system{name: "no router", chain: l.chain("n", 0, byKernel)}
		if err := l.build(); err != nil {
			return err
		}
		undo, err := bare.chain.instead(bareRedirect)
		if err != nil {
			return err
		}
		defer undo()
		loads, err := overload(ctx, o, []*system{xdp, kernel, behind, bare})
		if err != nil {
			return err
		}
		best := faster(kernel, behind)
		t := table{Name: "forwarding-two-cores",
			Title: "One router on a core of its own, offered more than it can carry", Columns: ratioColumns,
			Raw: raw(xdp, kernel, behind, bare),
			Note: fmt.Sprintf("64-byte frames to 4,096 random destinations; the source on core 0, as fast as it goes "+
				"(%s Mp/s at the router's ring); on core 1 a NAPI thread receives for "+
				"the router, and the sink is there, too. Frames a second that arrived, medians of %d trials of %v "+
				"each, in random order; ratios round by round, with 95 %% bootstrap intervals.",
				mega(stats.Median(loads)), 3*o.rounds, trialTime)}
		t.Rows, err = o.rows(
			comparison{"xdp, driver's hook, meter and counters on", xdp, best, "≥ 2.5"},
			comparison{"the same", xdp, bare, ""},
		)
		if err != nil {
			return err
		}
		tables = append(tables, t)
		t, err = delays(ctx, o, none, xdp, best)
		tables = append(tables, t)
		return err
	})
	return tables, err
}

// overload offers systems all that the source can send.
func overload(ctx context.Context, o options, systems []*system) (offered []float64, err error) {
	benches := make([]*trial.Bench, len(systems))
	for i, s := range systems {
		if benches[i], err = s.apart(every); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		defer benches[i].Close()
	}
	rng := rand.New(rand.NewPCG(uint64(o.seed), 3))
	for round := range 3 * o.rounds {
		for _, i := range rng.Perm(len(systems)) {
			r, err := benches[i].Run(ctx, trial.Load{Duration: trialTime})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", systems[i].name, err)
			}
			systems[i].rates = append(systems[i].rates, r.Forwarded)
			offered = append(offered, r.Offered)
		}
		fmt.Fprintf(os.Stderr, "round %d, Mp/s:", round+1)
		for _, s := range systems {
			fmt.Fprintf(os.Stderr, " %s %.2f", s.name, s.rates[round]/1e6)
		}
		fmt.Fprintln(os.Stderr)
	}
	return offered, nil
}

// delays measures the delay of each frame with routers and without one.
func delays(ctx context.Context, o options, none, xdp, kernel *system) (table, error) {
	t := table{Name: "forwarding-delay", Title: "Delay by one router at half of what it carries",
		Columns: []string{"load, frames/s", "", "without a router, µs", "kernel, µs", "xdp, µs",
			"xdp − kernel, µs", "asked for"}}
	var benches [3]*trial.Bench
	for i, s := range []*system{none, kernel, xdp} {
		b, err := s.apart(1)
		if err != nil {
			return t, fmt.Errorf("%s: %w", s.name, err)
		}
		defer b.Close()
		benches[i] = b
	}
	half := [2]float64{stats.Median(kernel.rates) / 2, stats.Median(xdp.rates) / 2}
	loads := [][3]float64{{half[0], half[0], half[0]}, {half[1], half[0], half[1]}}
	rng := rand.New(rand.NewPCG(uint64(o.seed), 4))
	kept := map[string][]float64{}
	for n, load := range loads {
		var got [3][2][]float64 // by system: p50 and p99
		for range 3 * o.rounds {
			for _, i := range rng.Perm(3) {
				r, err := benches[i].Run(ctx, trial.Load{Rate: load[i], Duration: trialTime, Exact: true})
				if err != nil {
					return t, err
				}
				got[i][0], got[i][1] = append(got[i][0], float64(r.Delay.P50)), append(got[i][1], float64(r.Delay.P99))
			}
		}
		for q, name := range []string{"median", "99 %"} {
			less := make([]float64, len(got[1][q]))
			for n := range less {
				less[n] = (got[2][q][n] - got[1][q][n]) / 1000
			}
			interval, err := stats.Bootstrap(less, stats.Median, stats.BootstrapOptions{Seed: uint64(o.seed)})
			if err != nil {
				return t, err
			}
			what := fmt.Sprintf("%.0f for all", load[1])
			if load[1] != load[2] {
				what = fmt.Sprintf("kernel %.0f, xdp %.0f", load[1], load[2])
			}
			row := []string{what, name}
			for i := range got {
				row = append(row, fmt.Sprintf("%.2f", stats.Median(got[i][q])/1000))
			}
			t.Rows = append(t.Rows, append(row, fmt.Sprintf("%+.2f (%+.2f…%+.2f)", stats.Median(less), interval.Low,
				interval.High), "below 0"))
			for i, s := range []*system{none, kernel, xdp} {
				kept[fmt.Sprintf("%s, %s, load %d", s.name, name, n+1)] = got[i][q]
			}
		}
	}
	t.Raw = kept
	t.Note = fmt.Sprintf("Source on core 0, frame by frame at a constant rate; router and sink on core 1, as above. "+
		"Of every frame the delay is taken: medians of %d trials of %v each, in random order; the differences round "+
		"by round, with 95 %% bootstrap intervals: what the way without a router (a veth pair from source to sink) "+
		"costs is in both, and in none of them. First at half of what the kernel carries, then each at half of what "+
		"itself carries; without a router as the former.", 3*o.rounds, trialTime)
	return t, nil
}
