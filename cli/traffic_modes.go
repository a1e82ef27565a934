package cli

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/tools"
	"github.com/polyplane/polyplane/measure/trial"
)

// leastRate is where a search begins, in frames/s.
const leastRate = 100

// searchThroughput searches the throughput of a pair. A closed loop is refused: nothing is lost there, so a search
// would mean nothing.
func (t *trafficRun) searchThroughput(ctx context.Context) error {
	b, err := t.open(0)
	if err != nil {
		return err
	}
	defer b.Close()
	if !t.report.Traffic.Open {
		return refused(fmt.Errorf("throughput search: %w", trial.ErrClosed))
	}
	return t.account(b.Watch(), func() error { return t.searchOn(ctx, b) })
}

func (t *trafficRun) searchOn(ctx context.Context, b *trial.Bench) error {
	p, label := t.plan, t.paths[0].label()
	span := search.Range{Min: leastRate}
	if t.limits != nil {
		span.Max = t.limits.Rate
	} else {
		r, err := b.Run(ctx, trial.Load{Duration: p.duration})
		if err != nil {
			return err
		}
		span.Max = max(r.Offered, 2*leastRate)
	}
	device := watched{b, t, new(searchSeen), time.Now()}
	throughput := 0.0
	if p.search == "rfc2544" {
		r, err := search.RFC2544(ctx, device, search.RFC2544Options{Range: span, Duration: p.duration, Width: p.width})
		if err != nil {
			return err
		}
		throughput = r.Throughput
		t.report.RFC2544 = map[string]search.RFC2544Result{label: r}
	} else {
		var goals []search.Goal
		for _, g := range []search.Goal{search.NDR, search.PDR} {
			g.Width = p.width
			g.Sum = time.Duration(float64(g.Sum) * float64(p.duration) / float64(g.FinalTrial))
			g.InitialTrial, g.FinalTrial = p.duration, p.duration
			goals = append(goals, g)
		}
		r, err := search.MultipleLossRatio(ctx, device, search.MLROptions{Range: span, Goals: goals,
			Confirm: 10 * p.duration})
		if ctx.Err() != nil {
			t.clear()
			fmt.Fprintf(t.c.Err, "interrupted in trial %d%s\n", device.seen.trials, soFar(r))
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		throughput = r.Goals[0].Throughput
		t.report.Throughput = map[string]search.MLRResult{label: r}
	}
	if n := b.Disturbed(); n > 0 {
		t.warn("others had the cores for more than %.0f %% of the time in %s of the search, each done %d times: the "+
			"machine was not quiet, and bounds may be too low", 100*trial.MaxWait, plural(n, "trial"), trial.Tries)
	}
	if throughput == 0 {
		t.warn("not even %d frames/s passed without loss", leastRate)
		return nil
	}
	if p.fraction > 0 {
		t.progress("delay at %s for %s", packetRate(throughput*p.fraction), seconds(p.duration))
		r, err := b.Latency(ctx, throughput, p.fraction, p.duration)
		if err != nil {
			return err
		}
		t.report.Trials = append(t.report.Trials, r)
	}
	return nil
}

// soFar is what an interrupted search knows.
func soFar(r search.MLRResult) string {
	var known string
	for _, g := range r.Goals {
		if g.Bounds.Lower > 0 {
			known += fmt.Sprintf("; %s holds at %s", g.Goal.Name, packetRate(g.Bounds.Lower))
		}
		if g.Bounds.Upper > 0 {
			known += fmt.Sprintf("; %s not at %s", g.Goal.Name, packetRate(g.Bounds.Upper))
		}
	}
	return known
}

// watched tells of every trial of a search.
type watched struct {
	*trial.Bench
	t     *trafficRun
	seen  *searchSeen
	start time.Time
}

// searchSeen is what a search has come to so far.
type searchSeen struct {
	trials int
	latest string
}

// Trial implements search.Device.
func (w watched) Trial(ctx context.Context, rate float64, d time.Duration) (search.Trial, error) {
	w.seen.trials++
	w.t.progress("%s, trial %d: %s for %s%s", clockTime(time.Since(w.start)), w.seen.trials, packetRate(rate),
		seconds(d), w.seen.latest)
	r, err := w.Bench.Trial(ctx, rate, d)
	w.seen.latest = fmt.Sprintf(" … (before: %.3g %% lost at %s)", 100*r.LossRatio(), packetRate(rate))
	return r, err
}

// clockTime is a time that passes, in minutes and seconds.
func clockTime(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// clear takes the progress away.
func (t *trafficRun) clear() { t.c.progressLine("") }

// progress tells a person how far it is.
func (t *trafficRun) progress(format string, a ...any) { t.c.progressLine(format, a...) }

// progressLine puts one line where the one before it was, on a terminal only, and never more than fits: a line that
// wraps could not be taken away again.
func (c *CLI) progressLine(format string, a ...any) {
	columns := terminalColumns(c.Err)
	if columns == 0 {
		return
	}
	line := []rune(fmt.Sprintf(format, a...))
	fmt.Fprint(c.Err, "\r\x1b[K"+string(line[:min(len(line), columns-1)]))
}

// backToBack finds the longest burst of a pair. A closed loop is refused for the same reason.
func (t *trafficRun) backToBack(ctx context.Context) error {
	b, err := t.open(0)
	if err != nil {
		return err
	}
	defer b.Close()
	if !t.report.Traffic.Open {
		return refused(fmt.Errorf("bursts: %w", trial.ErrClosed))
	}
	return t.account(b.Watch(), func() error { return t.burstsOn(ctx, b) })
}

func (t *trafficRun) burstsOn(ctx context.Context, b *trial.Bench) error {
	r, err := b.BackToBack(ctx, uint64(t.plan.burst), t.plan.repeat)
	if err != nil {
		return err
	}
	t.report.Burst = &r
	samples := each.Of(r.Lengths, func(n uint64) float64 { return float64(n) })
	return t.figure(t.paths[0].label(), "longest burst without loss", "frames", samples)
}

// used returns f with an account: the report gets the CPU time that f uses.
func (t *trafficRun) used(f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		return t.account(t.watch(), func() error { return f(ctx) })
	}
}

// account runs f, and puts the CPU time that it uses into the report, as far as it is watched.
func (t *trafficRun) account(w machine.Watch, f func() error) error {
	before, err := w.Read()
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	after, err := w.Read()
	if err != nil {
		return err
	}
	t.report.Usage = after.Sub(before)
	if s := t.report.Usage.Steal(); s > trial.MaxSteal {
		t.warn("the hypervisor took %.1f %% of a core's time", s*100)
	}
	return nil
}

func (t *trafficRun) tcp(ctx context.Context) error {
	path := t.paths[0]
	var rates []float64
	for n := range t.plan.repeat {
		t.progress("trial %d of %d", n+1, t.plan.repeat)
		r, err := tools.RunTCP(ctx, tools.TCPOptions{Client: path.Device.Namespace, Server: path.SinkDevice.Namespace,
			Address: path.Destination, Duration: t.plan.duration, Streams: t.plan.streams})
		if err != nil {
			return err
		}
		t.report.TCP = append(t.report.TCP, r)
		rates = append(rates, r.BitRate)
	}
	return t.figure(path.label(), "TCP", "bit/s", rates)
}

// echoesPerSecond is the pace of --ping.
const echoesPerSecond = 100

func (t *trafficRun) ping(ctx context.Context) error {
	path := t.paths[0]
	var medians []float64
	for range t.plan.repeat {
		r, err := tools.RunPing(ctx, tools.PingOptions{Namespace: path.Device.Namespace, Address: path.Destination,
			Count: max(1, int(t.plan.duration.Seconds()*echoesPerSecond)), Interval: time.Second / echoesPerSecond})
		if err != nil {
			return err
		}
		t.report.Ping = append(t.report.Ping, r)
		medians = append(medians, float64(r.RTT.P50))
	}
	return t.figure(path.label(), "round trip, median", "ns", medians)
}

func (t *trafficRun) connect(ctx context.Context) error {
	path := t.paths[0]
	var rates []float64
	for range t.plan.repeat {
		r, err := tools.RunConnect(ctx, tools.ConnectOptions{Client: path.Device.Namespace,
			Server:  path.SinkDevice.Namespace,
			Address: netip.AddrPortFrom(path.Destination, 0), Rate: t.plan.connections, Duration: t.plan.duration})
		if err != nil {
			return err
		}
		t.report.Connections = append(t.report.Connections, r)
		rates = append(rates, r.Rate)
	}
	return t.figure(path.label(), "new connections", "connections/s", rates)
}

// compare measures the pairs in random blocks. Each measurement opens its bench anew: pairs may share devices.
func (t *trafficRun) compare(ctx context.Context) error {
	stolen := 0.0
	plan := trial.Plan{Blocks: t.plan.repeat, Seed: t.plan.seed, Steal: func() float64 {
		s := stolen
		stolen = 0
		return s
	}}
	for i, path := range t.paths {
		name := path.label()
		for _, s := range plan.Systems {
			if s.Name == name {
				name = fmt.Sprintf("%s (%d)", path.label(), i+1)
			}
		}
		plan.Systems = append(plan.Systems,
			trial.System{Name: name, Measure: func(ctx context.Context) (float64, error) {
				b, err := t.open(i)
				if err != nil {
					return 0, err
				}
				defer b.Close()
				r, err := b.Run(ctx, t.plan.load(1))
				if err != nil {
					return 0, err
				}
				r.Label, r.Histogram = name, nil
				t.report.Trials = append(t.report.Trials, r)
				t.progress("trial %d of %d", len(t.report.Trials), t.plan.repeat*(len(t.paths)+1))
				stolen = max(stolen, r.Usage.Steal())
				return t.plan.figureOf(r)
			}})
	}
	c, err := trial.Compare(ctx, plan)
	if err != nil {
		return err
	}
	t.report.Comparison, t.report.Verdict, t.report.Usage = &c, &c.Verdict, t.report.Trials[0].Usage
	for _, s := range plan.Systems {
		unit := "ns"
		if t.plan.figure == figureReceived {
			unit = "frames/s"
		}
		if err := t.figure(s.Name, t.plan.figure, unit, c.Samples[s.Name]); err != nil {
			return err
		}
	}
	return nil
}

func (p *trafficPlan) figureOf(r trial.Result) (float64, error) {
	v := r.Forwarded
	switch p.figure {
	case figureDelay:
		v = float64(r.Delay.P50)
	case figureP99:
		v = float64(r.Delay.P99)
	}
	if v <= 0 {
		return 0, fmt.Errorf("nothing arrived of %d frames: there is no figure to compare", r.Sent)
	}
	return v, nil
}
