package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/netdev"
	results "github.com/polyplane/polyplane/measure/result"
	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/tools"
	"github.com/polyplane/polyplane/measure/trial"
)

// trafficReport is everything that was measured, as -o json prints it.
type trafficReport struct {
	results.File
	Mode        trafficMode     `json:"mode"`
	Paths       []trafficPath   `json:"paths,omitempty"`
	Traffic     trafficShape    `json:"traffic"`
	Floor       time.Duration   `json:"floor_ns,omitempty"` // the self-test's median delay
	Burst       *trial.Burst    `json:"burst,omitempty"`
	TCP         []tools.TCP     `json:"tcp,omitempty"`
	Ping        []tools.Ping    `json:"ping,omitempty"`
	Connections []tools.Connect `json:"connections,omitempty"`
	Usage       machine.Usage   `json:"usage"` // of the first trial's time
	Verdict     *stats.Verdict  `json:"verdict,omitempty"`
	Warnings    []string        `json:"warnings,omitempty"`
}

// trafficShape is what was asked to be sent.
type trafficShape struct {
	Kind       string          `json:"kind"`
	Sizes      string          `json:"sizes"` // bytes, check sequences included
	Flows      int             `json:"flows"` // of each stream
	Streams    int             `json:"streams"`
	Rate       float64         `json:"rate"` // frames/s of all pairs; 0: as fast as possible
	Poisson    bool            `json:"poisson"`
	Duration   time.Duration   `json:"duration_ns"`
	Repeat     int             `json:"repeat"`
	Confidence float64         `json:"confidence"`
	Placement  trial.Placement `json:"placement"` // of the first pair
	Open       bool            `json:"open"`
}

// trafficRun is one command under way.
type trafficRun struct {
	c        *CLI
	plan     *trafficPlan
	paths    []trafficPath
	bench    *trafficLock
	programs map[string]*ebpf.Program
	limits   *trial.Limits
	report   trafficReport
}

// exactUpTo is the rate, in frames/s, up to which frames are sent one by one, so that none waits for its batch.
const exactUpTo = 200_000

// prepare reads the environment and the self-test's limits, and wakes the way up.
func (t *trafficRun) prepare(ctx context.Context, dirs instance.Dirs) error {
	p, r := t.plan, &t.report
	var devices []netdev.Ref
	for _, path := range t.paths {
		devices = append(devices, path.Device, path.Port, path.SinkDevice)
	}
	var err error
	if r.Environment, err = machine.Describe(devices...); err != nil {
		return err
	}
	r.Format, r.Mode, r.Paths = results.Format, p.mode, t.paths
	r.Traffic = trafficShape{Kind: p.kind.String(), Sizes: p.sizes.String(), Flows: p.flows, Streams: p.streams, Rate: p.fps, Poisson: p.poisson,
		Duration: p.duration, Repeat: p.repeat, Confidence: p.level, Placement: t.placement(0)}
	r.Traffic.Open = r.Traffic.Placement.Open()
	if !p.closed && !netdev.ThreadsVisible() {
		t.warn("this runs in a process namespace of its own (a container?), where receive threads cannot be placed: the loop is closed")
	}
	if t.limits, err = readLimits(dirs, r.Environment); err != nil {
		t.warn("%v", err)
	}
	if t.limits != nil {
		r.Limits, r.Floor = t.limits, t.limits.Floor
	} else if err == nil && p.mode != modePing && p.mode != modeTCP && p.mode != modeConnections {
		t.warn("what source and sink can do here is not known: `polyplane traffic --self-test` finds out")
	}
	if p.programs {
		if t.programs, err = fabricPrograms(); err != nil {
			return err
		}
	}
	for _, path := range t.paths {
		if err := t.wake(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// wake has all neighbours on the way resolved: the frames that wait for that would be lost.
func (t *trafficRun) wake(ctx context.Context, path trafficPath) error {
	for range 3 {
		p, err := tools.RunPing(ctx, tools.PingOptions{Namespace: path.Device.Namespace, Address: path.Destination, Count: 1})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && p.Received > 0 {
			return nil
		}
	}
	t.warn("%s does not answer to a ping from %s: the way may lead elsewhere, or only there", path.To, path.From)
	return nil
}

func (t *trafficRun) warn(format string, a ...any) {
	t.report.Warnings = append(t.report.Warnings, fmt.Sprintf(format, a...))
}

// placement is where the i-th pair sends and receives. One pair has the last core for its source and the first for everything
// behind it; several have a core each.
func (t *trafficRun) placement(i int) trial.Placement {
	n := runtime.NumCPU()
	at := 1
	if t.plan.mode == modeTrial {
		at = len(t.paths) // at once
	}
	place := trial.Placement{Source: n - 1 - i%n}
	if !t.plan.closed && n >= 2*at && netdev.ThreadsVisible() {
		place.Polled = []trial.Polled{{Device: t.paths[i].Port, CPU: i % n}}
	}
	return place
}

// open makes the bench of the i-th path.
func (t *trafficRun) open(i int) (*trial.Bench, error) {
	b, err := openPathBench(t.bench, t.paths[i], trial.Options{
		Label: t.paths[i].label(), Placement: t.placement(i), Streams: t.plan.streamsOf(t.paths[i]), Warmup: t.plan.warmup,
		Limits: t.limits, Mark: t.plan.beyond, Watch: machine.Watch{Programs: t.programs}, Seed: t.plan.seed,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.paths[i].label(), err)
	}
	return b, nil
}

// measure does what the mode says.
func (t *trafficRun) measure(ctx context.Context) error {
	err := map[trafficMode]func(context.Context) error{
		modeTrial: t.trials, modeSearch: t.used(t.searchThroughput), modeBurst: t.used(t.backToBack), modeTCP: t.used(t.tcp),
		modePing: t.used(t.ping), modeConnections: t.used(t.connect), modeCompare: t.compare,
	}[t.plan.mode](ctx)
	if errors.Is(err, trial.ErrBeyond) {
		return refused(fmt.Errorf("%w; --beyond measures and marks it", err))
	}
	return err
}

// load is what each of so many pairs is offered.
func (p *trafficPlan) load(pairs int) trial.Load {
	l := trial.Load{Rate: p.fps / float64(pairs), Duration: p.duration}
	l.Exact = l.Rate > 0 && l.Rate <= exactUpTo
	return l
}

// trials sends between all pairs at once, as often as asked.
func (t *trafficRun) trials(ctx context.Context) error {
	benches := make([]*trial.Bench, len(t.paths))
	defer func() {
		for _, b := range benches {
			if b != nil {
				b.Close()
			}
		}
	}()
	for i := range t.paths {
		var err error
		if benches[i], err = t.open(i); err != nil {
			return err
		}
	}
	load := t.plan.load(len(t.paths))
	for n := range t.plan.repeat {
		t.progress("trial %d of %d", n+1, t.plan.repeat)
		got := make([]trial.Result, len(benches))
		errs := make([]error, len(benches))
		var all sync.WaitGroup
		for i, b := range benches {
			all.Go(func() { got[i], errs[i] = b.Run(ctx, load) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errs[firstError(errs)]
		}
		t.report.Trials = append(t.report.Trials, got...)
	}
	t.report.Usage = t.report.Trials[0].Usage
	return t.figures()
}

func firstError(errs []error) int {
	for i, err := range errs {
		if err != nil {
			return i
		}
	}
	return 0
}

// trialFigures are the quantities of repeated trials.
var trialFigures = []struct {
	name, unit string
	value      func(trial.Result) float64
}{
	{"offered", "frames/s", func(r trial.Result) float64 { return r.Offered }},
	{"received", "frames/s", func(r trial.Result) float64 { return r.Forwarded }},
	{"lost or not sent", "", func(r trial.Result) float64 { return r.LossRatio }},
	{"delay, median", "ns", func(r trial.Result) float64 { return float64(r.Delay.P50) }},
	{"delay, 99 %", "ns", func(r trial.Result) float64 { return float64(r.Delay.P99) }},
	{"delay, 99.99 %", "ns", func(r trial.Result) float64 { return float64(r.Delay.P9999) }},
}

func (t *trafficRun) figures() error {
	if t.plan.repeat < 2 {
		return nil
	}
	for _, path := range t.paths {
		for _, f := range trialFigures {
			var samples []float64
			for _, r := range t.report.Trials {
				if r.Label == path.label() {
					samples = append(samples, f.value(r))
				}
			}
			if err := t.figure(path.label(), f.name, f.unit, samples); err != nil {
				return err
			}
		}
	}
	var control, steal []float64
	for _, r := range t.report.Trials {
		if r.Label == t.paths[0].label() {
			control, steal = append(control, r.Forwarded), append(steal, r.Usage.Steal())
		}
	}
	v := stats.Judge(control, steal, stats.Limits{})
	t.report.Verdict = &v
	return nil
}

func (t *trafficRun) figure(system, quantity, unit string, samples []float64) error {
	if len(samples) < 2 {
		return nil
	}
	f, err := results.NewFigure(system, quantity, unit, samples)
	if err != nil {
		return err
	}
	t.report.Figures = append(t.report.Figures, f)
	return nil
}

// leastRate is where a search begins, in frames/s.
const leastRate = 100

func (t *trafficRun) searchThroughput(ctx context.Context) error {
	b, err := t.open(0)
	if err != nil {
		return err
	}
	defer b.Close()
	p, label := t.plan, t.paths[0].label()
	if !t.report.Traffic.Open {
		return refused(fmt.Errorf("throughput search: %w", trial.ErrClosed))
	}
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
	device := watched{b, t}
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
		r, err := search.MultipleLossRatio(ctx, device, search.MLROptions{Range: span, Goals: goals, Confirm: 10 * p.duration})
		if err != nil {
			return err
		}
		throughput = r.Goals[0].Throughput
		t.report.Throughput = map[string]search.MLRResult{label: r}
	}
	if throughput == 0 {
		t.warn("not even %d frames/s passed without loss", leastRate)
		return nil
	}
	if p.fraction > 0 {
		r, err := b.Latency(ctx, throughput, p.fraction, p.duration)
		if err != nil {
			return err
		}
		t.report.Trials = append(t.report.Trials, r)
	}
	return nil
}

// watched tells of every trial of a search.
type watched struct {
	*trial.Bench
	t *trafficRun
}

// Trial implements search.Device.
func (w watched) Trial(ctx context.Context, rate float64, d time.Duration) (search.Trial, error) {
	r, err := w.Bench.Trial(ctx, rate, d)
	if err == nil {
		w.t.progress("%s for %s: %.3g %% lost", packetRate(rate), seconds(d), 100*r.LossRatio())
	}
	return r, err
}

// progress tells a person how far it is.
func (t *trafficRun) progress(format string, a ...any) {
	if _, ok := terminalFD(t.c.Err); ok {
		fmt.Fprintf(t.c.Err, "\r\x1b[K"+format, a...)
	}
}

func (t *trafficRun) backToBack(ctx context.Context) error {
	b, err := t.open(0)
	if err != nil {
		return err
	}
	defer b.Close()
	if !t.report.Traffic.Open {
		return refused(fmt.Errorf("bursts: %w", trial.ErrClosed))
	}
	r, err := b.BackToBack(ctx, uint64(t.plan.burst), t.plan.repeat)
	if err != nil {
		return err
	}
	t.report.Burst = &r
	var samples []float64
	for _, n := range r.Lengths {
		samples = append(samples, float64(n))
	}
	return t.figure(t.paths[0].label(), "longest burst without loss", "frames", samples)
}

// used takes the CPU time that f uses.
func (t *trafficRun) used(f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		before, err := machine.Watch{Programs: t.programs}.Read()
		if err != nil {
			return err
		}
		if err := f(ctx); err != nil {
			return err
		}
		after, err := machine.Watch{Programs: t.programs}.Read()
		if err != nil {
			return err
		}
		t.report.Usage = after.Sub(before)
		if s := t.report.Usage.Steal(); s > trial.MaxSteal {
			t.warn("the hypervisor took %.1f %% of a core's time", s*100)
		}
		return nil
	}
}

func (t *trafficRun) tcp(ctx context.Context) error {
	path := t.paths[0]
	var rates []float64
	for n := range t.plan.repeat {
		t.progress("trial %d of %d", n+1, t.plan.repeat)
		r, err := tools.RunTCP(ctx, tools.TCPOptions{Client: path.Device.Namespace, Server: path.SinkDevice.Namespace, Address: path.Destination,
			Duration: t.plan.duration, Streams: t.plan.streams})
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
		r, err := tools.RunConnect(ctx, tools.ConnectOptions{Client: path.Device.Namespace, Server: path.SinkDevice.Namespace,
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
		plan.Systems = append(plan.Systems, trial.System{Name: name, Measure: func(ctx context.Context) (float64, error) {
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
