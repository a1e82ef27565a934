package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/source"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/turns"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel program bpf/bare.c -- -O2 -mcpu=v3 -Wall -Werror -Wno-unused-variable

// system is one way of forwarding that is measured, over a chain of its own.
type system struct {
	name  string
	chain *chain
	live  func() turns.Loop // what sends, if it is not source and sink of the chain
	// behind tells that the sink is behind the driver. Frames that redirect_peer delivers pass no driver, so a sink in
	// the driver would miss them.
	behind bool
	batch  int          // frames at once; 0: 256
	to     []netip.Addr // where frames go; none: 4,096 addresses in a row, at random
	rates  []float64    // frames a second
}

// destinations is the number of addresses that frames go to, at random.
const destinations = 4096

// every says which frames are timed and summed up whole at full speed (sink.Options).
const every = 256

// stream is what the source sends to a system: the smallest frames, from h1 to random addresses beyond the chain.
func (s *system) stream() (source.Stream, error) {
	var err error
	first := s.chain.name(1)
	h := frame.Headers{Kind: frame.IPv4, Source: netip.MustParseAddr("10.0.0.2")}
	if h.SourceMAC, err = s.chain.mac("h1", first); err != nil {
		return source.Stream{}, err
	}
	if h.DestMAC, err = s.chain.mac(first, "h1"); err != nil {
		return source.Stream{}, err
	}
	to := s.to
	if to == nil {
		to = source.Destinations(netip.MustParseAddr("10.64.0.0"), destinations)
	}
	return source.Stream{Headers: h, Sizes: frame.Fixed(64), Destinations: to}, nil
}

// mayLose is the share of frames that may be missing in a closed loop: when a loop ends, some frames are still under
// way.
const mayLose = 0.001

// loop is the source and sink of a system, as they take their turns.
func (s *system) loop() (turns.Loop, error) {
	if s.live != nil {
		return s.live(), nil
	}
	stream, err := s.stream()
	return turns.Measured(turns.Path{From: s.chain.from(), To: s.chain.to(),
		Before: s.chain.before(), Generic: s.behind,
		Stream: stream, TimeEvery: every, CheckEvery: every, Batch: s.batch, MayLose: mayLose}), err
}

// compete lets systems take turns on one core, in so many rounds.
func compete(ctx context.Context, o options, rounds int, systems ...*system) error {
	rng := rand.New(rand.NewPCG(uint64(o.seed), uint64(len(systems))))
	for round := range rounds {
		var loops []turns.Loop
		for _, s := range systems {
			loop, err := s.loop()
			if err != nil {
				return err
			}
			loops = append(loops, loop)
		}
		rates, err := turns.Take(ctx, loops, rng)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "round %d of %d, Mp/s:", round+1, rounds)
		for i, s := range systems {
			s.rates = append(s.rates, rates[i])
			fmt.Fprintf(os.Stderr, " %s %.2f", s.name, rates[i]/1e6)
		}
		fmt.Fprintln(os.Stderr)
	}
	return nil
}

// faster returns the system with the highest median rate.
func faster(systems ...*system) *system {
	best := systems[0]
	for _, s := range systems[1:] {
		if stats.Median(s.rates) > stats.Median(best.rates) {
			best = s
		}
	}
	return best
}

// comparison is a row of a table: a system, another that it is compared with, and the ratio that is promised.
type comparison struct {
	what     string
	is, base *system
	asked    string
}

// rows makes a table's rows, with the ratios and their intervals.
func (o options) rows(all ...comparison) (rows [][]string, err error) {
	for _, c := range all {
		r, err := stats.PairedRatio(c.base.rates, c.is.rates, stats.BootstrapOptions{Seed: uint64(o.seed)})
		if err != nil {
			return nil, err
		}
		rows = append(rows, []string{c.what, mega(stats.Median(c.is.rates)),
			fmt.Sprintf("%s (%s)", mega(stats.Median(c.base.rates)), c.base.name), ratio(r), c.asked})
	}
	return rows, nil
}

func raw(systems ...*system) map[string][]float64 {
	all := map[string][]float64{}
	for _, s := range systems {
		all[s.name] = s.rates
	}
	return all
}

// instead attaches a program, in its driver, to the entrance of a chain's first router, which redirects to the chain's
// end.
func (c *chain) instead(choose func(*programObjects) *ebpf.Program) (undo func(), err error) {
	var o programObjects
	if err := loadProgramObjects(&o, nil); err != nil {
		return nil, fmt.Errorf("load the programs to compare with: %w", err)
	}
	in, out := c.entrance(), c.before()
	var l link.Link
	err = netdev.In(in.Namespace, func() error { // an entry of the map is a device of the namespace of who writes it
		d, err := net.InterfaceByName(in.Name)
		if err != nil {
			return err
		}
		to, err := net.InterfaceByName(out.Name)
		if err == nil {
			err = o.Out.Put(uint32(0), uint32(to.Index))
		}
		if err == nil {
			l, err = link.AttachXDP(link.XDPOptions{Program: choose(&o), Interface: d.Index, Flags: link.XDPDriverMode})
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach to %v: %w", in, err), o.Close())
	}
	return func() { l.Close(); o.Close() }, nil
}

func bareRedirect(o *programObjects) *ebpf.Program { return o.BareRedirect }
func kernelLookup(o *programObjects) *ebpf.Program { return o.KernelLookup }
