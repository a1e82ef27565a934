package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/node/fib/internet"
)

// forwarding compares ways of forwarding 64-byte frames on one core: one router, chains of them, a full table.
func forwarding(ctx context.Context, o options) ([]table, error) {
	var tables []table
	for _, part := range []func(context.Context, options) (table, error){oneRouter, chainOfRouters, fullTable} {
		t, err := part(ctx, o)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// oneCore says how compete measures.
const oneCore = "64-byte frames to 4,096 random destinations. In a round all systems run at once on one core – " +
	"source, router and sink of each on " +
	"veth pairs of its own – which the scheduler gives to one after the other for milliseconds: frames a second of " +
	"CPU time, source and sink included, medians of %d rounds; ratios round by round, with 95 %% bootstrap intervals."

var ratioColumns = []string{"what", "Mp/s", "compared with, Mp/s", "ratio", "asked for"}

// slowBatch is how many frames are sent at once where a kernel forwards. The kernel charges what it does with them in
// one go to the sender.
const slowBatch = 64

// oneRouter compares one router in every way of forwarding. Ways of the kernel are compared in rounds of their own, in
// smaller batches (slowBatch).
func oneRouter(ctx context.Context, o options) (t table, err error) {
	err = onNode(ctx, func(l *lab) error {
		xdp := &system{name: "xdp, driver's hook, metered", chain: l.chain("x", 1, byXDP)}
		xdp.chain.packets = 1e9
		unmetered := &system{name: "xdp, driver's hook", chain: l.chain("y", 1, byXDP)}
		tc := &system{name: "xdp, tc hook", chain: l.chain("t", 1, byTC), behind: true}
		guest := &system{name: "guest", chain: l.chain("g", 1, byGuest), behind: true}
		router := &system{name: "router", chain: l.chain("n", 1, byRouter), behind: true}
		kernel := &system{name: "plain veths", chain: l.chain("k", 1, byKernel)}
		behind := &system{name: "plain veths, sink behind the driver", chain: l.chain("b", 1, byKernel), behind: true}
		bare := &system{name: "bare redirect", chain: l.chain("r", 1, byGuest)}
		if err := l.build(); err != nil {
			return err
		}
		undo, err := bare.chain.instead(bareRedirect)
		if err != nil {
			return err
		}
		defer undo()
		if err := compete(ctx, o, 3*o.rounds, bare, xdp, unmetered); err != nil {
			return err
		}
		slow := &system{name: "xdp, driver's hook, metered, beside the slow ones", chain: xdp.chain}
		all := []*system{slow, tc, guest, router, kernel, behind}
		for _, s := range all {
			s.batch = slowBatch
		}
		if err := compete(ctx, o, 3*o.rounds, all...); err != nil {
			return err
		}
		best := faster(kernel, behind)
		t = table{Name: "forwarding", Title: "One router on one core", Columns: ratioColumns,
			Raw: raw(append(all, bare, xdp, unmetered)...),
			Note: fmt.Sprintf(oneCore, 3*o.rounds) +
				" The bare redirect is compared in rounds of its own, in batches of 256 frames; the others in " +
				"batches of 64. Plain veths: the same namespaces joined by veth pairs, the kernel forwards; with the " +
				"sink in the driver " +
				"(XDP) or behind it, whichever is faster, and GRO on, without which XDP frames do not arrive. Bare " +
				"redirect: one program that sends every frame on to one device by a device map, and looks at nothing."}
		t.Rows, err = o.rows(
			comparison{"xdp, driver's hook, meter and counters on", slow, best, "≥ 3"},
			comparison{"the same", xdp, bare, "≥ 0.85"},
			comparison{"xdp, driver's hook, counters only", unmetered, bare, ""},
			comparison{"xdp, tc hook", tc, best, ""},
			comparison{"xdp, tc hook", tc, guest, ""},
			comparison{"forwarding: router", router, guest, "≥ 0.95"},
			comparison{"guest", guest, best, ""},
		)
		return err
	})
	return t, err
}

// routersInRow is the longer chain.
const routersInRow = 8

// chainOfRouters measures what each further router on a packet's way costs.
func chainOfRouters(ctx context.Context, o options) (t table, err error) {
	err = onNode(ctx, func(l *lab) error {
		chains := func(w way, name string) [2]*system {
			return [2]*system{{name: name + ", 1", chain: l.chain(string(w[0])+"1", 1, w)},
				{name: fmt.Sprintf("%s, %d", name, routersInRow), chain: l.chain(string(w[0])+"8", routersInRow, w)}}
		}
		fast, kernel := chains(byXDP, "xdp"), chains(byKernel, "plain veths")
		if err := l.build(); err != nil {
			return err
		}
		if err := compete(ctx, o, 2*o.rounds, fast[:]...); err != nil {
			return err
		}
		for _, s := range kernel {
			s.batch = slowBatch
		}
		if err := compete(ctx, o, 2*o.rounds, kernel[:]...); err != nil {
			return err
		}
		t = table{Name: "forwarding-chain", Title: fmt.Sprintf("A chain of %d routers on one node, one core",
			routersInRow), Raw: raw(fast[0], fast[1], kernel[0], kernel[1]),
			Columns: []string{"what", "1 router, ns a packet", fmt.Sprintf("%d routers", routersInRow), "each more, ns",
				"each more / 1 router", "asked for"},
			Note: fmt.Sprintf(oneCore, 2*o.rounds) +
				" Batches of 256 frames, the kernel's of 64, in rounds of their own. The time with one router has " +
				"that of source and sink in it."}
		for i, pair := range [][2]*system{fast, kernel} {
			one, many := inverse(pair[0].rates), inverse(pair[1].rates)
			more, share := make([]float64, len(one)), make([]float64, len(one))
			for n := range one {
				more[n] = (many[n] - one[n]) / (routersInRow - 1)
				share[n] = more[n] / one[n]
			}
			interval, err := stats.Bootstrap(share, stats.Median, stats.BootstrapOptions{Seed: uint64(o.seed)})
			if err != nil {
				return err
			}
			t.Rows = append(t.Rows, []string{[]string{"xdp, driver's hook", "plain veths"}[i],
				fmt.Sprintf("%.0f", stats.Median(one)), fmt.Sprintf("%.0f", stats.Median(many)),
				fmt.Sprintf("%.0f", stats.Median(more)), fmt.Sprintf("%.2f (%.2f…%.2f)", stats.Median(share),
					interval.Low, interval.High), []string{"≤ 0.25", ""}[i]})
		}
		return nil
	})
	return t, err
}

// inverse turns frames a second into nanoseconds a frame.
func inverse(rates []float64) []float64 {
	return each.Of(rates, func(r float64) float64 { return 1e9 / r })
}

// prefixes returns the prefixes of the file that POLYPLANE_PREFIXES names, or generated ones.
func prefixes() (v4, v6 []netip.Prefix, from string, err error) {
	if path := os.Getenv("POLYPLANE_PREFIXES"); path != "" {
		v4, v6, err := internet.Read(path)
		return v4, v6, "a real table of 2025", err
	}
	v4, v6 = internet.Generate(1, internet.FullIPv4, internet.FullIPv6)
	return v4, v6, "generated prefixes of a like shape", nil
}

// fullTable measures what a full Internet table costs, against one route.
func fullTable(ctx context.Context, o options) (t table, err error) {
	v4, _, from, err := prefixes()
	if err != nil {
		return t, err
	}
	random := rand.New(rand.NewPCG(uint64(o.seed), 2))
	var to []netip.Addr
	for range destinations {
		a := v4[random.IntN(len(v4))].Addr().As4()
		a[3] |= 1
		to = append(to, netip.AddrFrom4(a))
	}
	dir, err := os.MkdirTemp("", "ppbench")
	if err != nil {
		return t, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "routes")
	var batch strings.Builder
	for _, p := range v4 {
		fmt.Fprintf(&batch, "route add %s via 10.0.1.2\n", p)
	}
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		return t, err
	}
	err = onNode(ctx, func(l *lab) error {
		add := func(name, network string, w way) *system {
			return &system{name: name, chain: l.chain(network, 1, w), to: to}
		}
		fast := [2]*system{add("xdp, 1 route", "x1", byXDP), add("xdp, full table", "xf", byXDP)}
		kernel := [2]*system{add("plain veths, 1 route", "k1", byKernel),
			add("plain veths, full table", "kf", byKernel)}
		if err := l.build(); err != nil {
			return err
		}
		for _, s := range []*system{fast[0], kernel[0]} {
			if err := s.chain.in("r1", "ip route add default via 10.0.1.2"); err != nil {
				return err
			}
		}
		for _, s := range []*system{fast[1], kernel[1]} { // some of the table are those of the chain
			if _, err := s.chain.output("r1", "ip -force -batch "+file+" 2>/dev/null || true"); err != nil {
				return err
			}
		}
		if err := compete(ctx, o, 2*o.rounds, fast[0], fast[1], kernel[0], kernel[1]); err != nil {
			return err
		}
		lookup := [2]*system{{name: "bpf_fib_lookup, 1 route", chain: kernel[0].chain, to: to},
			{name: "bpf_fib_lookup, full table", chain: kernel[1].chain, to: to}}
		for _, s := range lookup {
			undo, err := s.chain.instead(kernelLookup)
			if err != nil {
				return err
			}
			defer undo()
		}
		if err := compete(ctx, o, 2*o.rounds, lookup[0], lookup[1]); err != nil {
			return err
		}
		t = table{Name: "forwarding-full-table", Title: "A full Internet table against one route, one core",
			Columns: ratioColumns,
			Raw:     raw(fast[0], fast[1], kernel[0], kernel[1], lookup[0], lookup[1]),
			Note: fmt.Sprintf(oneCore, 2*o.rounds) +
				fmt.Sprintf(" The full table: %d IPv4 routes (%s), written by ip(8); the destinations are addresses "+
					"of %d random ones of these, in both cases. "+
					"They are not in a row, which costs the source more than above. bpf_fib_lookup: an XDP program "+
					"that "+
					"forwards by the kernel's own tables.", len(v4), from, destinations)}
		t.Rows, err = o.rows(
			comparison{"xdp, driver's hook", fast[1], fast[0], "≥ 0.85"},
			comparison{"plain veths", kernel[1], kernel[0], ""},
			comparison{"bpf_fib_lookup", lookup[1], lookup[0], ""},
		)
		return err
	})
	return t, err
}
