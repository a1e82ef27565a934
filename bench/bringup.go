package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/spec"
)

// oneRound are the seconds that each system took in one round.
type oneRound struct {
	Bare, BareRemove         float64
	Mininet, MininetRemove   float64
	Polyplane, PolyRemove    float64
	NeighboursAsked, Replied int
}

// bringup compares how long a line of static routers takes from a file to "ready", and then to be gone again. "Ready"
// is tested at once: fifty pairs of neighbours, chosen by a seed, must answer at the first try.
func bringup(ctx context.Context, o options) ([]table, error) {
	dir, err := os.MkdirTemp("", "ppbench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "line.yaml")
	if err := os.WriteFile(file, spec.Line(o.routers), 0o644); err != nil {
		return nil, err
	}
	in, err := start(ctx, o, 1)
	if err != nil {
		return nil, err
	}
	defer in.stop()

	random := rand.New(rand.NewPCG(uint64(o.seed), 0))
	var rounds []oneRound
	for i := range o.rounds + 1 { // the first is the warm-up, of caches and of the page tables of all three
		var r oneRound
		steps := []func() error{
			func() error { return seconds2(&r.Bare, &r.BareRemove)(bareKernel(ctx, o.routers)) },
			func() error { return seconds2(&r.Mininet, &r.MininetRemove)(mininet(ctx, o.routers)) },
			func() error {
				began := time.Now()
				if _, err := in.run(ctx, "apply", "-f", file); err != nil {
					return err
				}
				r.Polyplane = time.Since(began).Seconds()
				if r.NeighboursAsked, r.Replied, err = in.neighbours(ctx, "line", 50, o.seed+int64(i)); err != nil {
					return err
				}
				began = time.Now()
				if _, err := in.run(ctx, "delete", "line"); err != nil {
					return err
				}
				r.PolyRemove = time.Since(began).Seconds()
				left, err := in.ports()
				if err == nil && left != 0 {
					err = fmt.Errorf("%d ports are left after the deletion", left)
				}
				return err
			},
		}
		random.Shuffle(len(steps), func(a, b int) { steps[a], steps[b] = steps[b], steps[a] })
		for _, step := range steps {
			if err := step(); err != nil {
				return nil, err
			}
		}
		if r.NeighboursAsked != r.Replied || r.NeighboursAsked == 0 {
			return nil, fmt.Errorf("not ready when it said so: %d of %d neighbours answered at the first try",
				r.Replied, r.NeighboursAsked)
		}
		fmt.Fprintf(os.Stderr, "round %d: %+v\n", i, r)
		if i > 0 {
			rounds = append(rounds, r)
		}
	}

	t := table{
		Name:  "bringup",
		Title: fmt.Sprintf("%d static routers in a line", o.routers),
		Columns: []string{"what", "polyplane, s", "bare kernel, s", "Mininet 2.3, s", "polyplane / bare kernel",
			"Mininet / polyplane"},
		Note: fmt.Sprintf("Medians of %d rounds in random order, ratios by pairs with 95 %% bootstrap intervals. "+
			"polyplane: from `apply` to ready on one node (at that instant 50 seeded pairs of neighbours answered at "+
			"the first try), and from `delete` until the last device is gone. Bare kernel: as many namespaces and "+
			"veth pairs, both ends up with an address, by `ip -batch`, never moved into their namespaces; removed by "+
			"device group. polyplane makes two pairs a link.", o.rounds),
		Raw: rounds,
	}
	row := func(name string, mine, bare, other func(oneRound) float64) error {
		a, b, c := column(rounds, mine), column(rounds, bare), column(rounds, other)
		toBare, err := stats.PairedRatio(b, a, stats.BootstrapOptions{Seed: uint64(o.seed)})
		if err != nil {
			return err
		}
		toMine, err := stats.PairedRatio(a, c, stats.BootstrapOptions{Seed: uint64(o.seed)})
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf("%.2f", stats.Median(a)),
			fmt.Sprintf("%.2f", stats.Median(b)), fmt.Sprintf("%.1f", stats.Median(c)), ratio(toBare), ratio(toMine)})
		return nil
	}
	if err := row("made", func(r oneRound) float64 { return r.Polyplane }, func(r oneRound) float64 { return r.Bare },
		func(r oneRound) float64 { return r.Mininet }); err != nil {
		return nil, err
	}
	if err := row("removed", func(r oneRound) float64 { return r.PolyRemove },
		func(r oneRound) float64 { return r.BareRemove },
		func(r oneRound) float64 { return r.MininetRemove }); err != nil {
		return nil, err
	}
	return []table{t}, nil
}

func seconds2(a, b *float64) func(x, y time.Duration, err error) error {
	return func(x, y time.Duration, err error) error {
		*a, *b = x.Seconds(), y.Seconds()
		return err
	}
}

func column[T any](rows []T, f func(T) float64) []float64 {
	return each.Of(rows, f)
}

func ratio(r stats.Ratio) string {
	return fmt.Sprintf("%.2f (%.2f…%.2f)", r.Median, r.Interval.Low, r.Interval.High)
}
